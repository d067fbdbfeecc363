"""Lets a llama answer prompts, in PyTorch: many texts side by side, in bfloat16 where that is fast.

    teacher.py MODEL.gguf PROMPTS.jsonl FOLDER [--template TEXT] [--mix KIND=SHARE,...] [--shard N] [--tokens N]
               [--slots N] [--temp F] [--seconds S] [--seed N] [--threads N] [--programs FOLDER] [--work FOLDER]
               [--longest N] [--pause FILE]

What answers.py writes, and beside it what draft.py wants to know of these texts, in --work as states.Store keeps it:
the most probable next tokens behind every token. Where a processor multiplies bfloat16 fast, this is about three times
as fast as answers.py and a second reading; it is no oracle: texts are those of rounded activations. --template: how a
chat asks; control tokens in it are known by name."""
import argparse
import collections
import json
import os
import re
import time

import numpy as np
import torch

import answers
import states
from model import Llama
from vocabulary import CONTROL

READ_AT_ONCE = 1024     # tokens of prompts


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompts")
    parser.add_argument("folder")
    parser.add_argument("--template", default="<|user|>\n{prompt}</s>\n<|assistant|>\n")
    parser.add_argument("--mix", default="")
    parser.add_argument("--shard", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=200, help="of an answer")
    parser.add_argument("--context", type=int, default=320)
    parser.add_argument("--slots", type=int, default=256, help="texts side by side")
    parser.add_argument("--temp", type=float, default=0.7)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--count", type=int, default=1 << 30, help="shards, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--numbers", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument("--programs", default="build")
    parser.add_argument("--work", default="build/heads")
    parser.add_argument("--longest", type=int, default=1024, help="as draft.py is told")
    parser.add_argument("--pause", default="")
    return parser.parse_args()


def encoded(vocabulary, text):
    """Ids of a text with control tokens in it; each piece behind one begins with a space, as the first one does."""
    names = [t for t, kind in zip(vocabulary.tokens, vocabulary.types) if kind == CONTROL]
    ids = [vocabulary.begin]
    for piece in re.split("(%s)" % "|".join(map(re.escape, names)), text):
        ids += [vocabulary.ids[piece]] if piece in names else vocabulary.encode(" " + piece) if piece else []
    return ids


class Text:
    """A prompt and what was written behind it so far."""

    def __init__(self, prompt, greedy):
        self.ids, self.prompted, self.greedy, self.done = list(prompt), len(prompt), greedy, False
        self.rows = []  # parts of what states.most_probable says, behind every token but the last

    def record(self):
        return {"tokens": len(self.ids) - self.prompted, "ids": self.ids}


class Teacher:
    """A model and rows of its caches, a text each."""

    def __init__(self, model, given, numbers):
        self.model, self.given, self.numbers = model, given, numbers
        for name in model.names:
            weight = model.tensor(name).requires_grad_(False)
            if weight.dim() > 1 and name != "token_embd.weight":
                weight.data = weight.data.to(numbers)
        self.output = model.tensor(model.output).to(numbers)
        shape = given.slots, model.key_heads, given.context, model.size
        self.keys, self.values = ([torch.zeros(shape, dtype=numbers) for _ in range(model.layers)] for _ in range(2))
        self.texts = [None] * given.slots
        self.random = torch.Generator().manual_seed(given.seed)

    def states(self, *arguments):
        with torch.autocast("cpu", torch.bfloat16, self.numbers == torch.bfloat16):
            return self.model.states(*arguments)

    def logits(self, z):
        return (z.to(self.numbers) @ self.output.T).float()

    def say(self, z, texts):
        """The next token of each text, by its last state, z (texts, width)."""
        logits = self.logits(z)
        best = states.most_probable(logits)
        drawn = best["tops"][:, 0].tolist()
        for i in [i for i, text in enumerate(texts) if not text.greedy]:
            sums = (logits[i] / self.given.temp).softmax(-1).cumsum(-1)
            drawn[i] = int(torch.searchsorted(sums, sums[-1] * torch.rand((), generator=self.random)))
        for i, text in enumerate(texts):
            text.rows.append({name: rows[i:i + 1] for name, rows in best.items()})
            text.ids.append(drawn[i])
            text.done = (text.ids[-1] == self.model.vocabulary.end or len(text.ids) == self.given.context or
                         len(text.ids) - text.prompted == self.given.tokens)

    @torch.no_grad()
    def read(self, rows, texts):
        """Reads the prompts of texts into free rows, together; each gets its first token."""
        longest = max(len(t.ids) for t in texts)
        ids = torch.tensor([t.ids + [0] * (longest - len(t.ids)) for t in texts])
        places, at = torch.arange(longest).expand(len(texts), -1), torch.tensor(rows)
        mask = torch.full((longest, longest), -1e9).triu(1)[None, None, None]

        def remember(i, k, v):
            self.keys[i][at, :, :longest], self.values[i][at, :, :longest] = k.to(self.numbers), v.to(self.numbers)
            return k, v, mask

        z = self.states(ids, places, remember)
        for row, text, state in zip(rows, texts, z):
            text.rows.append(states.most_probable(self.logits(state[:text.prompted - 1])))
            self.texts[row] = text
        self.say(torch.stack([state[t.prompted - 1] for state, t in zip(z, texts)]), texts)

    @torch.no_grad()
    def step(self):
        """One more token for every text. Free rows come along, unless most are free: to choose rows is to copy
        caches."""
        rows = [i for i, t in enumerate(self.texts) if t]
        texts, every = [self.texts[i] for i in rows], 2 * len(rows) > len(self.texts)
        at = torch.arange(len(self.texts)) if every else torch.tensor(rows)
        ids = torch.tensor([self.texts[i].ids[-1] if self.texts[i] else 0 for i in at])
        places = torch.tensor([len(self.texts[i].ids) - 1 if self.texts[i] else 0 for i in at])
        longest = int(places.max()) + 1
        mask = torch.zeros(len(at), longest).masked_fill_(torch.arange(longest) > places[:, None], -1e9)

        def remember(i, k, v):
            keys, values = self.keys[i], self.values[i]
            keys[at, :, places], values[at, :, places] = k[:, :, 0].to(self.numbers), v[:, :, 0].to(self.numbers)
            keys, values = (keys, values) if every else (keys[at], values[at])
            return keys[:, :, :longest], values[:, :, :longest], mask[:, None, None, None]

        z = self.states(ids[:, None], places[:, None], remember)[:, 0]
        self.say(z[torch.tensor(rows)] if every else z, texts)

    def leave(self):
        """Texts that are done leave their rows."""
        self.texts = [t if t and not t.done else None for t in self.texts]

    def free(self):
        return [i for i, t in enumerate(self.texts) if t is None]


def enter(teacher, waiting):
    """Fills free rows with texts that wait, those of like length together."""
    free = teacher.free()
    texts = sorted((waiting.popleft() for _ in range(min(len(free), len(waiting)))), key=lambda t: len(t.ids))
    while texts:
        count = max(1, READ_AT_ONCE // len(texts[-1].ids))
        teacher.read(free[-min(count, len(texts)):], texts[-count:])
        del free[-min(count, len(texts)):], texts[-count:]
    teacher.leave()


def write(given, store, number, texts):
    """A shard: the file of answers and, beside the states, the most probable tokens."""
    path = os.path.join(given.folder, "%05d.jsonl" % number)
    with open(path + ".new", "w") as file:
        for text in texts:
            file.write(json.dumps(text.record()) + "\n")
    os.replace(path + ".new", path)
    shard = states.Shard(store.base, path, 0, given.longest)
    nothing = {"tops": np.zeros((1, states.TOP)), "chances": np.zeros((1, states.TOP))}
    store.put(shard, (rows for text in texts for rows in text.rows + [nothing]))


def shards_of(given, vocabulary):
    """number, texts of the shards that are not there yet; prompts that leave no room for half an answer are left
    out."""
    with open(given.prompts) as file:
        prompts = [json.loads(line) for line in file if line.strip()]
    mix = {k: float(v) for k, v in (pair.split("=") for pair in given.mix.split(",") if pair)}
    order = [r for r in answers.shuffled(prompts, mix, given.seed) if "prompt" in r]
    for number, at in enumerate(range(0, len(order), given.shard)):
        if number < given.count and not os.path.exists(os.path.join(given.folder, "%05d.jsonl" % number)):
            texts = [("{prompt}" if r.get("plain") else given.template).replace("{prompt}", r["prompt"])
                     for r in order[at:at + given.shard]]
            asked = [encoded(vocabulary, text) for text in texts]
            yield number, [Text(ids, number % 2 == 0) for ids in asked if len(ids) <= given.context - given.tokens // 2]


def main():
    given = options()
    torch.set_num_threads(given.threads)
    os.makedirs(given.folder, exist_ok=True)
    numbers = states.faster_numbers() if given.numbers == "auto" else getattr(torch, given.numbers)
    base = states.Base(given.model, given.programs, given.threads)
    store = states.Store(os.path.join(given.work, "states"), base, 1 << 60, numbers, given.pause, states.TOPS)
    teacher = Teacher(base.llama(), given, numbers)
    coming, waiting, open_ = shards_of(given, teacher.model.vocabulary), collections.deque(), {}
    began, shown, tokens, more = time.time(), 0, 0, True
    while time.time() - began < given.seconds:
        while more and len(waiting) < given.slots:
            number, texts = next(coming, (None, None))
            more = texts is not None
            if more:
                open_[number] = texts
                waiting.extend(texts)
        if waiting and len(teacher.free()) >= min(len(waiting), given.slots // 8):
            enter(teacher, waiting)
        if not any(teacher.texts):
            break
        states.wait_while(given.pause)
        teacher.step()
        tokens += given.slots - len(teacher.free())
        teacher.leave()
        for number in [n for n, texts in open_.items() if all(t.done for t in texts)]:
            write(given, store, number, open_.pop(number))
        if time.time() - shown > 10:
            shown = time.time()
            print("%d tokens, %.0f a second, %d shards under way" % (tokens, tokens / (shown - began), len(open_)),
                  flush=True)
    for number, texts in open_.items():  # time is up: texts end where they are
        begun = [t for t in texts if len(t.ids) > t.prompted]
        if len(begun) == len(texts):
            write(given, store, number, begun)


if __name__ == "__main__":
    main()
