#!/usr/bin/env python3
"""Writes a GGUF file of random weights that has the shape of a public model: for measuring speed and memory where the model
itself is not at hand. Its text means nothing. Tensors are written one after the other: the memory needed is a few megabytes.

    specdec-shape.py NAME OUTPUT.gguf [--layers N] [--vocab N] [--type TYPE] [--seed N]
    specdec-shape.py --list

Needs Python 3.9 and nothing else. Weights of a type and row length come from a pool of a million values, taken from places at
random: a file compresses well, yet is read and multiplied like any other."""
import argparse
import math
import random
import struct
import sys

# Types: number, values and bytes of a block, where the scale lies, how it is written, the root mean square of codes.
TYPES = {
    "F32": (0, 1, 4), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "MXFP4": (39, 32, 17), "Q1_0": (41, 128, 18),
}
CODE_SIZE = {"Q4_0": 4.6, "Q8_0": 74.0, "Q1_0": 1.0}

# Sizes as the models' own configurations give them.
SHAPES = {
    "qwen3.5-0.8b": dict(
        architecture="qwen35", type="Q4_0", layers=24, width=1024, ff=3584, heads=8, kv=2, head=256, vocab=248320, base=1e7,
        rope=64, every=4, state=128, key_heads=16, value_heads=16, taps=4),
    "lfm2.5-1.2b": dict(
        architecture="lfm2", type="Q4_0", layers=16, width=2048, ff=8192, heads=32, kv=8, head=64, vocab=65536, base=1e6,
        attention=[2, 5, 8, 10, 12, 14], taps=3),
    "gemma-4-e2b": dict(
        architecture="gemma4", type="Q4_0", layers=35, width=1536, ff=6144, heads=8, kv=1, head=512, window_head=256,
        vocab=262144, base=1e6, window=512, period=5, shared=20, inputs=256),
    "gpt-oss-20b": dict(
        architecture="gpt-oss", type="Q8_0", experts_type="MXFP4", layers=24, width=2880, ff=2880, heads=64, kv=8, head=64,
        vocab=201088, base=150000, window=128, experts=32, chosen=4),
    "bonsai-8b": dict(
        architecture="qwen3", type="Q1_0", layers=36, width=4096, ff=12288, heads=32, kv=8, head=128, vocab=151936, base=1e6),
}


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


class Writer:
    """Keys and tensors of a file, and its bytes."""

    def __init__(self, shape, seed):
        self.shape, self.pairs, self.tensors, self.pools = shape, [], [], {}
        self.random = random.Random(seed)
        self.pair("general.architecture", 8, text(shape["architecture"]))

    def pair(self, key, kind, value):
        self.pairs.append(text(key) + struct.pack("<I", kind) + value)

    def own(self, suffix, value):
        """A key behind the architecture's name: an integer, a float, or a list of integers or truth values."""
        key = self.shape["architecture"] + suffix
        if isinstance(value, list):
            kind, form = (7, "<?") if isinstance(value[0], bool) else (4, "<I")
            items = b"".join(struct.pack(form, v) for v in value)
            self.pair(key, 9, struct.pack("<IQ", kind, len(value)) + items)
        elif isinstance(value, float):
            self.pair(key, 6, struct.pack("<f", value))
        else:
            self.pair(key, 4, struct.pack("<I", value))

    def matrix(self, name, columns, rows, count=0, kind=None):
        kind = kind or self.shape["type"]
        if columns % TYPES[kind][1]:
            sys.exit(f"{name}: rows of {columns} values are no whole blocks of {kind}")
        self.tensors.append((name, [columns, rows] + ([count] if count else []), kind, 1.0 / math.sqrt(columns), None))

    def vector(self, name, count, value, spread=0.0, row=0):
        """Values around one; row: as a matrix of rows of so many."""
        self.tensors.append((name, [row, count // row] if row else [count], "F32", spread, value))

    def pool(self, kind, size):
        """Blocks of some thousand values whose root mean square is that size."""
        key = kind, round(size, 9)
        if key not in self.pools:
            _, values, width = TYPES[kind]
            count = (1 << 20) // values
            data = bytearray(self.random.randbytes(count * width))
            if kind == "MXFP4":  # floats of a root mean square of 2.9 / 2, times 2^(e - 127)
                data[0::width] = bytes([127 + round(math.log2(size / 1.45))]) * count
            else:
                scale = struct.pack("<e", size / CODE_SIZE[kind])
                data[0::width] = scale[:1] * count
                data[1::width] = scale[1:] * count
            self.pools[key] = bytes(data)
        return self.pools[key]

    def blocks(self, kind, size, elements, out):
        pool, width = self.pool(kind, size), TYPES[kind][2]
        left, total = elements // TYPES[kind][1], len(pool) // width
        while left:
            at = self.random.randrange(total)
            count = min(left, total - at)
            out.write(memoryview(pool)[at * width:(at + count) * width])
            left -= count

    def write(self, path):
        head, offset = b"", 0
        for name, sizes, kind, _, _ in self.tensors:
            number, values, width = TYPES[kind]
            head += text(name) + struct.pack("<I", len(sizes)) + b"".join(struct.pack("<Q", n) for n in sizes)
            head += struct.pack("<IQ", number, offset)
            offset += -(-math.prod(sizes) // values * width // 32) * 32
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.pairs)) + b"".join(self.pairs) + head
        with open(path, "wb") as out:
            out.write(head + bytes(-len(head) % 32))
            for _, sizes, kind, size, middle in self.tensors:
                elements = math.prod(sizes)
                if middle is None:
                    self.blocks(kind, size, elements, out)
                else:
                    out.write(struct.pack(f"<{elements}f", *(middle + size * self.random.uniform(-1, 1) for _ in range(elements))))
                out.write(bytes(-out.tell() % 32))
            return out.tell()


def vocabulary(w, count):
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + ["\u2581"] + [f"w{i}" for i in range(count - 260)]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (count - 259)
    w.pair("tokenizer.ggml.model", 8, text("llama"))
    w.pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, count) + b"".join(text(t) for t in words))
    w.pair("tokenizer.ggml.scores", 9, struct.pack("<IQ", 6, count) + struct.pack(f"<{count}f", *range(0, -count, -1)))
    w.pair("tokenizer.ggml.token_type", 9, struct.pack("<IQ", 5, count) + struct.pack(f"<{count}i", *kinds))
    for key, number in ("unknown", 0), ("bos", 1), ("eos", 2):
        w.pair(f"tokenizer.ggml.{key}_token_id", 4, struct.pack("<I", number))


def attention(w, b, s, head, kv, owns=True):
    gates = 2 if s["architecture"] == "qwen35" else 1
    w.matrix(b + "attn_q.weight", s["width"], gates * s["heads"] * head)
    for part in ("k", "v") if owns else ():
        w.matrix(b + f"attn_{part}.weight", s["width"], kv * head)
    w.matrix(b + "attn_output.weight", s["heads"] * head, s["width"])
    if s["architecture"] == "gpt-oss":
        for part, count in ("q", s["heads"] * head), ("k", kv * head), ("v", kv * head), ("output", s["width"]):
            w.vector(b + f"attn_{part}.bias", count, 0.0, 0.1)
        w.vector(b + "attn_sinks.weight", s["heads"], 0.0, 1.0)
        return
    for part in ("q", "k") if owns else ("q",):
        w.vector(b + f"attn_{part}_norm.weight", head, 1.0)


def recurrent(w, b, s):
    if s["architecture"] == "lfm2":
        w.matrix(b + "shortconv.in_proj.weight", s["width"], 3 * s["width"])
        w.matrix(b + "shortconv.out_proj.weight", s["width"], s["width"])
        w.vector(b + "shortconv.conv.weight", s["taps"] * s["width"], 0.1, 0.5, s["taps"])
        return
    inner = s["value_heads"] * s["state"]
    channels = inner + 2 * s["key_heads"] * s["state"]
    w.matrix(b + "attn_qkv.weight", s["width"], channels)
    w.matrix(b + "attn_gate.weight", s["width"], inner)
    for part in "beta", "alpha":
        w.matrix(b + f"ssm_{part}.weight", s["width"], s["value_heads"])
    w.matrix(b + "ssm_out.weight", inner, s["width"])
    w.vector(b + "ssm_conv1d.weight", s["taps"] * channels, 0.0, 0.5, s["taps"])
    w.vector(b + "ssm_a", s["value_heads"], -0.5, 0.2)
    w.vector(b + "ssm_dt.bias", s["value_heads"], 0.0, 0.5)
    w.vector(b + "ssm_norm.weight", s["state"], 1.0)


def experts(w, b, s):
    w.vector(b + "ffn_gate_inp.weight", s["width"] * s["experts"], 0.0, 0.03, s["width"])
    w.vector(b + "ffn_gate_inp.bias", s["experts"], 0.0, 0.1)
    for part, columns, rows in ("gate", s["width"], s["ff"]), ("up", s["width"], s["ff"]), ("down", s["ff"], s["width"]):
        w.matrix(b + f"ffn_{part}_exps.weight", columns, rows, s["experts"], s["experts_type"])
        w.vector(b + f"ffn_{part}_exps.bias", rows * s["experts"], 0.0, 0.1, rows)


def keys(w, s, layers):
    for suffix, value in (
            (".block_count", layers), (".context_length", 32768), (".embedding_length", s["width"]), (".feed_forward_length", s["ff"]),
            (".attention.head_count", s["heads"]), (".attention.key_length", s["head"]), (".attention.value_length", s["head"]),
            (".rope.freq_base", float(s["base"])), (".attention.layer_norm_rms_epsilon", 1e-6)):
        w.own(suffix, value)
    if "attention" in s:
        w.own(".attention.head_count_kv", [s["kv"] if i in s["attention"] else 0 for i in range(layers)])
        w.own(".shortconv.l_cache", s["taps"])
    else:
        w.own(".attention.head_count_kv", s["kv"])
    if "rope" in s:
        w.own(".rope.dimension_count", s["rope"])
        w.own(".rope.dimension_sections", [11, 11, 10, 0]) # llama.cpp wants it; for text it says nothing
    if "every" in s:
        for suffix, value in (("ssm.conv_kernel", s["taps"]), ("ssm.state_size", s["state"]), ("ssm.group_count", s["key_heads"]),
                              ("ssm.time_step_rank", s["value_heads"]), ("ssm.inner_size", s["value_heads"] * s["state"]),
                              ("full_attention_interval", s["every"])):
            w.own("." + suffix, value)
    if "window" in s:
        w.own(".attention.sliding_window", s["window"])
    if "experts" in s:
        for suffix, value in (("count", s["experts"]), ("used_count", s["chosen"]), ("feed_forward_length", s["ff"])):
            w.own(".expert_" + suffix, value)
        w.pair("gpt-oss.rope.scaling.type", 8, text("yarn"))
        w.own(".rope.scaling.factor", 32.0)
        w.own(".rope.scaling.original_context_length", 4096)
    if "inputs" in s:
        w.own(".attention.sliding_window_pattern", [(i + 1) % s["period"] != 0 for i in range(layers)])
        w.own(".rope.freq_base_swa", 10000.0)
        w.own(".embedding_length_per_layer_input", s["inputs"])
        w.own(".attention.shared_kv_layers", s["shared"])
        w.own(".final_logit_softcapping", 30.0)
        for part in "attention.key_length", "attention.value_length", "rope.dimension_count":
            w.own(f".{part}_swa", s["window_head"])


def layer(w, s, i, layers):
    b, width = f"blk.{i}.", s["width"]
    recurs = (i + 1) % s["every"] != 0 if "every" in s else i not in s["attention"] if "attention" in s else False
    windowed = "inputs" in s and (i + 1) % s["period"] != 0
    second = "post_attention_norm" if s["architecture"] in ("qwen35", "gpt-oss") else "ffn_norm"
    w.vector(b + "attn_norm.weight", width, 1.0)
    w.vector(b + second + ".weight", width, 1.0)
    if recurs:
        recurrent(w, b, s)
    else:
        attention(w, b, s, s["window_head"] if windowed else s["head"], s["kv"], i < layers - s.get("shared", 0))
    if "experts" in s:
        experts(w, b, s)
        return
    w.matrix(b + "ffn_gate.weight", width, s["ff"])
    w.matrix(b + "ffn_up.weight", width, s["ff"])
    w.matrix(b + "ffn_down.weight", s["ff"], width)
    if "inputs" in s:
        w.vector(b + "post_attention_norm.weight", width, 1.0)
        w.vector(b + "post_ffw_norm.weight", width, 1.0)
        w.vector(b + "post_norm.weight", width, 1.0)
        w.matrix(b + "inp_gate.weight", width, s["inputs"])
        w.matrix(b + "proj.weight", s["inputs"], width)
        w.vector(b + "layer_output_scale.weight", 1, 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("name", nargs="?", choices=sorted(SHAPES))
    parser.add_argument("output", nargs="?")
    parser.add_argument("--layers", type=int, default=0, help="fewer layers than the model has")
    parser.add_argument("--vocab", type=int, default=0, help="fewer tokens than the model has")
    parser.add_argument("--type", choices=sorted(set(TYPES) - {"F32"}), help="of matrices, but for experts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list or not given.output:
        for name, s in sorted(SHAPES.items()):
            print(f"{name:14} {s['architecture']:8} {s['type']:5} {s['layers']} layers of {s['width']}, {s['vocab']} tokens")
        sys.exit(0 if given.list else 2)
    s = dict(SHAPES[given.name])
    s["type"] = given.type or s["type"]
    layers, vocab = given.layers or s["layers"], given.vocab or s["vocab"]
    if not 1 <= layers <= s["layers"] or vocab < 300:
        sys.exit(f"{given.name} has {s['layers']} layers, and a vocabulary at least 300 tokens")
    if "shared" in s:
        s["shared"] = min(s["shared"], max(layers - s["period"], 0))
    w = Writer(s, given.seed)
    keys(w, s, layers)
    vocabulary(w, vocab)
    w.matrix("token_embd.weight", s["width"], vocab)
    if "inputs" in s:
        w.matrix("per_layer_token_embd.weight", layers * s["inputs"], vocab)
        w.matrix("per_layer_model_proj.weight", s["width"], layers * s["inputs"])
        w.vector("per_layer_proj_norm.weight", s["inputs"], 1.0)
    for i in range(layers):
        layer(w, s, i, layers)
    w.vector("token_embd_norm.weight" if s["architecture"] == "lfm2" else "output_norm.weight", s["width"], 1.0)
    if s["architecture"] == "gpt-oss":
        w.matrix("output.weight", s["width"], vocab)
    print(f"{given.output}: {w.write(given.output) / 1e9:.3f} GB")


if __name__ == "__main__":
    main()
