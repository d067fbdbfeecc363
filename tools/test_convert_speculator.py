#!/usr/bin/env python3
"""Checks what convert_speculator.py promises: test_convert_speculator.py [GOLDEN.json]. Writes only to a folder of its
own. GOLDEN.json: reference heads with states and logits, in tensors under their published names."""
import json
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

import convert_speculator as convert
import gguf
import speculator

BYTES = {"F32": lambda a: a.astype("<f4").tobytes(), "F16": lambda a: a.astype("<f2").tobytes(),
         "BF16": lambda a: (np.ascontiguousarray(a, "<f4").view(np.uint32) >> 16).astype("<u2").tobytes()}
ROUNDED = {"F32": 1e-7, "F16": 1e-3, "Q8_0": 0.01, "Q4_0": 0.15}  # largest error over the largest value


def write_safetensors(path, tensors, kind="F32"):
    """A safetensors file as published ones are: header length, JSON header, data."""
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        bytes_ = BYTES[kind](array)
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(bytes_)]}
        data += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Folder:
    """A folder in the published layout, and its conversion."""

    def __init__(self, config, tensors, kind="F32", files=1):
        self.place = tempfile.TemporaryDirectory()
        self.out = os.path.join(self.place.name, "out.gguf")
        with open(os.path.join(self.place.name, "config.json"), "w") as file:
            json.dump(config, file)
        names = list(tensors)
        for i in range(files):
            part = {n: tensors[n] for n in names[i::files]}
            write_safetensors(os.path.join(self.place.name, "model-%d.safetensors" % i), part, kind)

    def converted(self, type_name="F32"):
        convert.convert(self.place.name, self.out, type_name, "test")
        return gguf.Reader(self.out)


def mlp(tied, heads=3, vocabulary=96, width=64, inner=32, seed=0):
    """config.json and tensors of a random MLP speculator."""
    rng = np.random.default_rng(seed)
    random = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    shapes = {"emb.%d.weight": (vocabulary, inner), "proj.%d.weight": (inner, inner), "head.%d.weight":
              (vocabulary, inner), "ln.%d.weight": (inner,), "ln.%d.bias": (inner,)}
    tensors = {}
    for name, shape in shapes.items():
        one = random(*shape)
        for i in range(heads):
            tensors["speculator." + name % i] = one if tied else random(*shape)
    tensors["speculator.proj.0.weight"] = random(inner, width)
    return {"emb_dim": width, "inner_dim": inner, "n_predict": heads, "vocab_size": vocabulary, "tie_weights": tied,
            "scale_input": tied, "model_type": "mlp_speculator"}, tensors


def medusa(heads=2, blocks=2, vocabulary=96, width=32):
    """config.json and tensors of random Medusa heads."""
    rng, tensors = np.random.default_rng(1), {}
    for i in range(heads):
        for block in range(blocks):
            tensors["%d.%d.linear.weight" % (i, block)] = rng.standard_normal((width, width)).astype(np.float32)
            tensors["%d.%d.linear.bias" % (i, block)] = rng.standard_normal(width).astype(np.float32)
        tensors["%d.%d.weight" % (i, blocks)] = rng.standard_normal((vocabulary, width)).astype(np.float32)
    return {"medusa_num_heads": heads, "medusa_num_layers": blocks}, tensors


def close(a, b, share):
    assert a.shape == b.shape and np.abs(a - b).max() <= share * np.abs(b).max(), (a.shape, np.abs(a - b).max())


def test_every_tensor_of_an_mlp_speculator_comes_through():
    """Tied and untied, one head and three, every type in and out, one file and several."""
    for tied, heads, kind, type_name, files in (
            (False, 3, "F32", "F32", 1), (True, 3, "F32", "F32", 2), (False, 1, "F16", "F16", 1),
            (True, 1, "BF16", "Q8_0", 3), (True, 4, "F32", "Q4_0", 1), (False, 2, "BF16", "Q4_0", 2)):
        config, tensors = mlp(tied, heads)
        file = Folder(config, tensors, kind, files).converted(type_name)
        wanted = {speculator.mlp_name(*name.split(".")[1::2], int(name.split(".")[2]), tied) for name in tensors}
        assert set(file.tensors) == wanted == set(
            speculator.mlp(96, 64, 32, heads, tied, tied).tensors), (set(file.tensors), wanted)
        for name, array in tensors.items():
            part, head, end = name.split(".")[1:]
            stored = speculator.mlp_name(part, end, int(head), tied)
            close(file.tensors[stored], array, ROUNDED[type_name] + (0.004 if kind == "BF16" else 0.0005))
            assert file.tensors.type(stored) == ("F32" if part == "ln" else type_name)
        for key, value in (("vocab_size", 96), ("embedding_length", 64), ("inner_length", 32), ("n_predict", heads),
                           ("tie_weights", tied), ("scale_input", tied)):
            assert file["mlp_speculator." + key] == value, key
        assert file["general.architecture"] == "mlp_speculator"


def test_tied_tensors_may_be_there_once():
    """safetensors leaves out what is shared; proj.1 is no part of a file with one head."""
    config, tensors = mlp(True)
    once = {n: a for n, a in tensors.items() if ".0." in n or n.endswith("proj.1.weight")}
    whole, short = Folder(config, tensors).converted(), Folder(config, once).converted()
    assert list(whole.tensors) == list(short.tensors) and whole.bytes[:] == short.bytes[:]
    later = {n: a for n, a in tensors.items() if ".2." in n or "proj" in n}
    assert Folder(config, later).converted().bytes[:] == whole.bytes[:]
    assert "speculator.proj.1.weight" not in Folder(*mlp(True, 1)).converted().tensors


def test_every_tensor_of_medusa_comes_through():
    config, tensors = medusa()
    for prefix in ("", "medusa_head."):
        file = Folder(config, {prefix + n: a for n, a in tensors.items()}).converted()
        assert set(file.tensors) == set(speculator.medusa(96, 32, 2, 2).tensors)
        close(file.tensors["medusa.1.block.0.weight"], tensors["1.0.linear.weight"], 1e-7)
        close(file.tensors["medusa.1.block.1.bias"], tensors["1.1.linear.bias"], 1e-7)
        close(file.tensors["medusa.0.head.weight"], tensors["0.2.weight"], 1e-7)
        assert (file["medusa.n_predict"], file["medusa.block_count"], file["medusa.vocab_size"],
                file["medusa.embedding_length"]) == (2, 2, 96, 32)
    x = np.random.default_rng(2).standard_normal((5, 32))
    h = x
    for block in range(2):
        z = h @ tensors["1.%d.linear.weight" % block].T + tensors["1.%d.linear.bias" % block]
        h = h + z / (1 + np.exp(-z))
    close(speculator.medusa_forward(file, x)[1], h @ tensors["1.2.weight"].T, 1e-6)


def complaint(config, tensors, damage=None, files=1, type_name="Q8_0"):
    """What the converter says about a folder."""
    folder = Folder(config, tensors, files=files)
    if damage:
        damage(folder.place.name)
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "convert_speculator.py")
    ran = subprocess.run([sys.executable, program, folder.place.name, folder.out, "--type", type_name],
                         capture_output=True, text=True)
    assert ran.returncode == 1 and not os.path.exists(folder.out), ran
    return ran.stderr


def test_what_is_wrong_is_named():
    config, tensors = mlp(False)
    without = lambda name: {n: a for n, a in tensors.items() if n != name}
    other = lambda name, array: {**tensors, name: array}
    assert "tensor emb.1.weight is missing" in complaint(config, without("speculator.emb.1.weight"))
    assert "tensor ln.2.bias is missing" in complaint(config, without("speculator.ln.2.bias"))
    assert "proj.0.weight is 32 x 32 and should be 32 x 64" in complaint(
        config, other("speculator.proj.0.weight", np.zeros((32, 32), np.float32)))
    assert "emb.3.weight is not one of these heads" in complaint(
        config, other("speculator.emb.3.weight", np.zeros((96, 32), np.float32)))
    assert "config.json has no emb_dim" in complaint({**config, "emb_dim": None}, tensors)
    assert "n_predict is 0" in complaint({**config, "n_predict": 0}, tensors)
    assert "tie_weights is 3" in complaint({**config, "tie_weights": 3}, tensors)
    assert "neither" in complaint({}, tensors)
    config, tensors = mlp(True)
    assert "head.2.weight is not equal to head.0.weight" in complaint(
        config, {**tensors, "speculator.head.2.weight": tensors["speculator.head.2.weight"] + 1})
    without_heads = {n: a for n, a in tensors.items() if "head" not in n}
    assert "tensor head.0.weight is missing" in complaint(config, without_heads)
    for files in 1, 2:  # side by side or in two files, which Folder fills by turns
        twice = {**tensors, "head.2.weight": tensors["speculator.head.2.weight"]}
        assert "tensor head.2.weight is there twice" in complaint(config, twice, files=files)
    large = tensors["speculator.emb.0.weight"].copy()
    for value, type_name, words in ((np.inf, "F32", "speculator.emb.0.weight holds values that are not finite"),
                                    (np.nan, "Q8_0", "speculator.emb.0.weight holds values that are not finite"),
                                    (1e5, "F16", "tensor emb.0.weight holds values that are too large for F16"),
                                    (1e7, "Q8_0", "tensor emb.0.weight holds values that are too large for Q8_0"),
                                    (1e7, "Q4_0", "tensor emb.0.weight holds values that are too large for Q4_0")):
        large[3, 5] = value
        said = complaint(config, {n: large if "emb" in n else a for n, a in tensors.items()}, type_name=type_name)
        assert words in said and "Warning" not in said, said
    config, tensors = medusa()
    assert "tensor 1.0.linear.bias is missing" in complaint(
        config, {n: a for n, a in tensors.items() if n != "1.0.linear.bias"})
    assert "1.2.weight is 95 x 32 and should be 96 x 32" in complaint(
        config, {**tensors, "1.2.weight": tensors["1.2.weight"][:95]})
    config, tensors = mlp(False)

    def cut(folder):
        path = os.path.join(folder, "model-0.safetensors")
        with open(path, "rb") as file:
            data = file.read()
        with open(path, "wb") as file:
            file.write(data[:-4])

    def scramble(folder):
        path = os.path.join(folder, "model-0.safetensors")
        with open(path, "rb") as file:
            data = file.read()
        with open(path, "wb") as file:
            file.write(data.replace(b'"data_offsets"', b'"data_places"', 1).replace(b"]}", b"]} ", 1))

    assert "does not lie in the file" in complaint(config, tensors, cut)
    assert "no safetensors file" in complaint(config, tensors, scramble)
    assert "config.json" in complaint(config, tensors, lambda f: os.remove(os.path.join(f, "config.json")))


def test_what_cannot_be_written_leaves_nothing_behind():
    folder = Folder(*mlp(True))
    os.mkdir(folder.out)
    try:
        folder.converted()
    except OSError:
        assert not os.path.exists(folder.out + ".part")
    else:
        raise AssertionError("a folder was replaced by a file")


def test_golden(path):
    """Heads of the reference program, converted, give its logits to 1e-5."""
    with open(path) as file:
        cases = json.load(file)["cases"]
    for case in cases:
        config = {"emb_dim": case["emb_dim"], "inner_dim": case["inner_dim"], "n_predict": case["n_predict"],
                  "vocab_size": case["vocab"], "tie_weights": case["tie_weights"], "scale_input": case["scale_input"]}
        tensors = {n: np.array(a, np.float32) for n, a in case["tensors"].items()}
        file, run, heads = Folder(config, tensors).converted(), case["train_forward"], case["n_predict"]
        states = np.array(run["state"])
        tokens = [run["inds"][i:i + len(states)] for i in range(heads)]
        found = speculator.mlp_forward(file, states, tokens)
        assert np.abs(found - np.array(run["logits_h_n_v"])).max() < 1e-5
    return len(cases)


def main():
    test_every_tensor_of_an_mlp_speculator_comes_through()
    test_tied_tensors_may_be_there_once()
    test_every_tensor_of_medusa_comes_through()
    test_what_is_wrong_is_named()
    test_what_cannot_be_written_leaves_nothing_behind()
    golden = "%d golden cases" % test_golden(sys.argv[1]) if len(sys.argv) > 1 else "no golden file given"
    print("test_convert_speculator.py: right (%s)" % golden)


if __name__ == "__main__":
    main()
