#!/usr/bin/env python3
"""A suite of schemas with llguidance or xgrammar (PyPI), as `specdec-grammar --suite` runs it: which compile, which of its
texts are wrongly refused or accepted, and what a full mask and the advance by one token take.

    build/specdec-grammar -m VOCAB.gguf --suite SUITE.jsonl --texts TEXTS.tsv
    python3 tools/lab/schemas_peer.py {llguidance,xgrammar} VOCAB.gguf SUITE.jsonl TEXTS.tsv [-v]
    python3 tools/lab/schemas_peer.py xgrammar bytes SUITE.jsonl TEXTS.tsv [-v]

"bytes" is a vocabulary of 256 bytes, with which xgrammar compiles in a thousandth of the time: for what it accepts.

Both get the same texts: those that specdec-grammar tried, members in the order of the schema; where a schema did not
compile there, as the suite has them, without white space. Needs tokenizers and numpy besides; one thread. Ends with
one line of JSON."""
import json
import os
import struct
import sys
import time

os.environ["RAYON_NUM_THREADS"] = os.environ["TOKENIZERS_PARALLELISM"] = "1"
import numpy  # noqa: E402
import tokenizers  # noqa: E402

WORDS = {  # how pre-tokenizers of these names cut
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
                 r"|\s+(?!\S)|\s+",
}


def facts(path):
    """The keys of a GGUF file and their values."""
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as file:
        def take(kind):
            if kind == 8:
                return file.read(take(10)).decode("utf-8", "replace")
            if kind == 9:
                inner, count = take(4), take(10)
                return [take(inner) for _ in range(count)]
            return struct.unpack("<" + sizes[kind], file.read(struct.calcsize(sizes[kind])))[0]
        file.read(16)
        return {take(8): take(take(4)) for _ in range(take(10))}


def tokenizer_of(keys):
    """The model's tokenizer, with its merges, and the token that ends a text."""
    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    t = tokenizers.Tokenizer(tokenizers.models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ")) for merge in keys["tokenizer.ggml.merges"]]))
    t.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(WORDS[keys["tokenizer.ggml.pre"]]), "isolated"),
        tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = tokenizers.decoders.ByteLevel()
    t.add_special_tokens([token for token, kind in zip(tokens, types) if kind != 1])
    return t, keys["tokenizer.ggml.eos_token_id"], len(tokens)


class Bytes:
    """A vocabulary of single bytes."""

    def encode(self, text, **_):
        self.ids = list(text.encode())
        return self


class Llguidance:
    def __init__(self, tokenizer, end, size):
        import llguidance
        self.api = llguidance
        self.tokenizer = llguidance.LLTokenizer(tokenizer.to_str(), n_vocab=size, eos_token=end)
        self.mask = numpy.zeros((size + 31) // 32, dtype=numpy.int32)
        self.first = self.matcher = None

    def compile(self, schema):
        grammar = self.api.LLMatcher.grammar_from_json_schema(schema)
        self.first = self.api.LLMatcher(self.tokenizer, grammar, log_level=0)
        return not self.first.is_error()

    def begin(self):
        self.matcher = self.first.deep_copy()

    def step(self, token):
        self.matcher.unsafe_compute_mask_ptr(self.mask.ctypes.data, self.mask.nbytes)
        return self.matcher.consume_token(token)

    def complete(self):
        return self.matcher.is_accepting()


class Xgrammar:
    def __init__(self, tokenizer, end, size):
        import xgrammar
        self.api = xgrammar
        if isinstance(tokenizer, Bytes):
            tokens, kind = [bytes([i]) for i in range(256)] + [b"<end>"], xgrammar.VocabType.RAW
        else:
            tokens, kind = [tokenizer.id_to_token(i) for i in range(size)], xgrammar.VocabType.BYTE_LEVEL
        info = xgrammar.TokenizerInfo(tokens, kind, vocab_size=size, stop_token_ids=[end])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, size)
        self.matcher = None

    def compile(self, schema):
        self.matcher = self.api.GrammarMatcher(self.compiler.compile_json_schema(schema, strict_mode=False))
        return True

    def begin(self):
        self.matcher.reset()

    def step(self, token):
        self.matcher.fill_next_token_bitmask(self.mask)
        return self.matcher.accept_token(token)

    def complete(self):
        return self.matcher.is_completed()


def accepted(peer, tokens, times):
    """Is a text accepted? times gets the seconds of each of its tokens."""
    peer.begin()
    for token in tokens:
        start = time.perf_counter()
        taken = peer.step(token)
        times.append(time.perf_counter() - start)
        if not taken:
            return False
    return peer.complete()


def texts_of(path):
    """The texts of each line of the suite: {line: [(valid, text)]}."""
    texts = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            number, valid, text = line.rstrip("\n").split("\t", 2)
            texts.setdefault(int(number), []).append((valid == "1", text))
    return texts


def main():
    kind, vocab, suite, texts = sys.argv[1:5]
    tokenizer, end, size = (Bytes(), 256, 257) if vocab == "bytes" else tokenizer_of(facts(vocab))
    peer = {"llguidance": Llguidance, "xgrammar": Xgrammar}[kind](tokenizer, end, size)
    tried, times, compiling = texts_of(texts), [], []
    result = {"schemas": 0, "compiled": 0, "valid_refused": 0, "invalid_accepted": 0}
    with open(suite, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            item = json.loads(line)
            result["schemas"] += 1
            schema, start = json.dumps(item["schema"], ensure_ascii=False), time.perf_counter()
            try:
                compiled = peer.compile(schema)
            except (RuntimeError, ValueError):
                compiled = False
            if not compiled:
                continue
            compiling.append(time.perf_counter() - start)
            result["compiled"] += 1
            for valid, text in tried.get(number) or [
                    (test["valid"], json.dumps(test["data"], ensure_ascii=False, separators=(",", ":"))) for test in item["tests"]]:
                took = []
                if accepted(peer, tokenizer.encode(text, add_special_tokens=False).ids, took) != valid:
                    result["valid_refused" if valid else "invalid_accepted"] += 1
                    if "-v" in sys.argv:
                        print("refused" if valid else "accepted", item["name"], text[:200])
                if valid:
                    times += took
    result["tokens"] = len(times)
    result["us_mean"] = round(sum(times) / len(times) * 1e6, 2)
    result["us_p99"] = round(sorted(times)[len(times) * 99 // 100] * 1e6, 2)
    result["compile_ms_median"] = round(sorted(compiling)[len(compiling) // 2] * 1e3, 3)
    print(json.dumps(result))


main()
