"""Lets a model answer, forks and all, and says how well it does.

    judge.py MODEL.gguf LISTS.jsonl PLAIN.jsonl [--count N] [--show N] [--logits PROGRAM]

The rules of the engine: greedy; [Child] is forced behind a fork and never chosen; no [Fork] behind a control token.
--show: that many answers, children in brackets. --logits: specdec-logits; every token that was written is compared
with what the engine finds most probable on the same path."""
import argparse
import os
import re
import subprocess
import tempfile

import numpy as np
import torch

import records
from model import Llama, Streams
from train import judged

LONGEST, MOST, AT_ONCE = 160, 24, 10  # tokens of a stream, streams of a prompt, prompts side by side
SMALL_WORDS = {"the", "with", "and", "for"}


class Stream:
    """One stream of an answer. path: all tokens that it sees; written: where its own begin; parts: own tokens and
    children in order."""

    def __init__(self, path, given, family):
        self.path, self.given, self.family = list(path), list(given), family
        self.written, self.parts, self.ended = len(path) + len(given), [], False
        family.append(self)

    def next(self, logits, vocabulary):
        """The next token: what is given, else the most probable one that the rules allow."""
        if self.given:
            return self.given.pop(0)
        logits[vocabulary.child] = -1e9
        if self.path[-1] in (vocabulary.fork, vocabulary.child, vocabulary.begin):
            logits[vocabulary.fork] = -1e9
        return int(logits.argmax())

    def take(self, token, end):
        """Appends a token. Returns whether the stream goes on."""
        self.path.append(token)
        if len(self.path) > self.written:
            self.parts.append(token)
        self.ended = self.ended or (token == end and len(self.path) > self.written)
        return not self.ended and len(self.parts) < LONGEST


def answers(model, prompts):
    """Streams of each prompt, the root first."""
    vocabulary, cache = model.vocabulary, Streams(model)
    families = [[] for _ in prompts]
    live = [Stream([], vocabulary.encode(p, prompt=True), f) for p, f in zip(prompts, families)]
    for _ in live:
        cache.open()
    for stream in live:
        stream.take(stream.next(None, vocabulary), -1)
    while live:
        logits = cache.step([s.path[-1] for s in live])
        for row in range(len(live)):
            stream = live[row]
            if stream.path[-1] == vocabulary.fork and len(stream.family) < MOST and len(stream.path) > stream.written:
                child = Stream(stream.path, [vocabulary.child], stream.family)
                stream.parts[-1] = child
                cache.open(copy_of=row)
                live.append(child)
                child.take(child.next(None, vocabulary), vocabulary.end)
        going = [i >= len(logits) or s.take(s.next(logits[i], vocabulary), vocabulary.end) for i, s in enumerate(live)]
        rows = [i for i, goes in enumerate(going) if goes]
        cache.keep(rows)
        live = [live[i] for i in rows]
    return families


def answers_to_all(model, prompts):
    return [f for i in range(0, len(prompts), AT_ONCE) for f in answers(model, prompts[i:i + AT_ONCE])]


def text(stream, vocabulary, shown=False):
    """The text of a stream with its children in place, in brackets when shown."""
    out, own = "", []
    for part in stream.parts + [None]:
        if isinstance(part, int):
            own.append(part)
        else:
            out, own = out + vocabulary.decode(own), []
            if part is not None:
                child = text(part, vocabulary, shown)
                out += "[" + child + "]" if shown else child
    return out


def own_lines(stream, vocabulary):
    """The lines that a stream writes itself; a child is a "\\0"."""
    data = [vocabulary.decode([p]) if isinstance(p, int) else "\0" for p in stream.parts]
    joined = b"".join(bytes([vocabulary.bytes[p]]) if isinstance(p, int) and p in vocabulary.bytes else d.encode()
                      for p, d in zip(stream.parts, data))
    return joined.decode("utf-8", "replace").split("\n")


def is_item(line):
    return re.match(r"(\d+\.|-) ", line) is not None


def words(line):
    return set(re.findall("[a-z]{3,}", line.lower())) - SMALL_WORDS


def says_how_many(record):
    """Whether a prompt has a number, or names what to list."""
    return re.search(r"\b(two|three|four|five|and)\b", record["prompt"]) is not None


def titles(stream, vocabulary):
    """The children of a stream, each with the line that it forked off."""
    lines = own_lines(stream, vocabulary)
    return list(zip([line for line in lines for _ in range(line.count("\0"))],
                    [p for p in stream.parts if isinstance(p, Stream)]))


def scores(families, asked, vocabulary):
    """Counts over the answers to list prompts. tokens: written by all streams; steps: with all streams in one forward;
    attended: tokens that the written ones see, and what they would see in one text after the other."""
    count = dict.fromkeys(("lists", "all items fork", "number asked", "right number", "titles differ", "children",
                           "ended", "on title", "tokens", "steps", "attended", "attended flat"), 0)
    for streams, record in zip(families, asked):
        items = [line for line in own_lines(streams[0], vocabulary) if is_item(line)]
        count["lists"] += 1
        count["all items fork"] += bool(items) and all(line.count("\0") == 1 and line.endswith("\0") for line in items)
        children = sum(isinstance(p, list) for p in record["answer"])
        count["number asked"] += says_how_many(record)
        count["right number"] += says_how_many(record) and len(items) == children
        count["titles differ"] += len({line.split(" ", 1)[1] for line in items}) == len(items)
        count["ended"] += sum(s.ended for s in streams[1:])
        count["children"] += len(streams) - 1
        for stream in streams:
            for line, child in titles(stream, vocabulary):
                own = vocabulary.decode([t for t in child.parts if isinstance(t, int)])
                count["on title"] += bool(words(line) & words(own))
        count["tokens"] += sum(len(s.path) - s.written for s in streams)
        count["steps"] += max(len(s.path) for s in streams) - streams[0].written
        count["attended"] += sum(sum(range(s.written, len(s.path))) for s in streams)
        flat = sum(len(s.path) - s.written for s in streams) - 2 * (len(streams) - 1)  # without [Fork] and child's end
        count["attended flat"] += sum(range(streams[0].written, streams[0].written + flat))
    return count


def opening(record):
    """What a plain record is asked with: its prompt, or else its first words."""
    return record["prompt"] or " ".join(record["answer"][0].split()[:4])


def agreement(program, model_path, families, vocabulary):
    """Share of written tokens that the engine finds most probable, too."""
    same = all_tokens = 0
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "rows.f32")
        for stream in (s for streams in families for s in streams):
            subprocess.run([program, "-m", model_path, "-t", "1", "-o", out,
                            "--tokens", ",".join(map(str, stream.path))], check=True, capture_output=True)
            rows = np.fromfile(out, "<f4").reshape(len(stream.path), -1)
            rows[:, vocabulary.child] = -1e9
            best = rows.argmax(1)
            same += sum(int(best[i - 1]) == stream.path[i] for i in range(stream.written, len(stream.path)))
            all_tokens += len(stream.path) - stream.written
    return same / all_tokens


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model"), parser.add_argument("lists"), parser.add_argument("plain")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--logits")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Llama(given.model)
    vocabulary = model.vocabulary
    asked = records.read(given.lists)[:given.count]
    plain = [opening(r) for r in records.read(given.plain)[:given.count]]
    families = answers_to_all(model, [r["prompt"] for r in asked])
    for streams, record in list(zip(families, asked))[:given.show]:
        print(record["prompt"] + text(streams[0], vocabulary, shown=True) + "\n")
    count = scores(families, asked, vocabulary)
    print(", ".join("%s %d" % item for item in count.items()))
    stories = answers_to_all(model, plain)
    print("plain stories %d, with a fork %d, ended %d" %
          (len(stories), sum(len(f) > 1 for f in stories), sum(f[0].ended for f in stories)))
    for prompt, streams in list(zip(plain, stories))[:given.show]:
        print(prompt + text(streams[0], vocabulary, shown=True) + "\n")
    print("loss: " + judged(model, [given.lists, given.plain], 4096))
    if given.logits:
        print("the engine's most probable token: %.4f" % agreement(given.logits, given.model, families[:5], vocabulary))


if __name__ == "__main__":
    main()
