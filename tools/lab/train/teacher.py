"""Lets a llama answer prompts, in PyTorch: many texts side by side, in bfloat16 where that is fast.

    teacher.py MODEL.gguf PROMPTS.jsonl FOLDER [--template TEXT] [--mix KIND=SHARE,...] [--shard N] [--tokens N]
               [--slots N] [--temp F] [--seconds S] [--seed N] [--threads N] [--programs FOLDER] [--work FOLDER]
               [--longest N] [--states] [--layers A,B,...] [--pause FILE]

What answers.py writes, and beside it what is to be known of these texts, in --work as states.Store keeps it: for
draft.py the most probable next tokens behind every token; for heads.py (--states) also the states, for eagle.py those
of its --layers. It is for processors that multiply bfloat16 fast, and no oracle: texts and states are those of rounded
activations. --template: how a chat asks; control tokens in it are known by name. When --seconds are over, texts end
where they are."""
import collections
import json
import os
import time

import numpy as np
import torch

import answers
import states
from heads import NUMBERS
from model import Llama

READ_AT_ONCE = 1024     # tokens of prompts


def options():
    parser = answers.parser_of(__doc__, shard=128, context=320)
    parser.add_argument("--template", default="<|user|>\n{prompt}</s>\n<|assistant|>\n")
    parser.add_argument("--slots", type=int, default=256, help="texts side by side")
    parser.add_argument("--numbers", choices=["auto"] + sorted(NUMBERS), default="auto")
    parser.add_argument("--programs", default="build")
    parser.add_argument("--work", default="build/heads")
    parser.add_argument("--longest", type=int, default=1024, help="as draft.py is told")
    parser.add_argument("--states", action="store_true", help="are kept, too")
    parser.add_argument("--layers", default="", help="whose states are kept, as eagle.py is told")
    return parser.parse_args()


class Text:
    """A prompt and what was written behind it so far."""

    def __init__(self, prompt, greedy):
        self.ids, self.prompted, self.greedy, self.done = list(prompt), len(prompt), greedy, False
        self.rows = []  # parts of what the store keeps, behind every token but the last


class Teacher:
    """A model and rows of its caches, a text each."""

    def __init__(self, model, given, numbers, kept, layers):
        self.model, self.given, self.numbers, self.kept, self.layers = model, given, numbers, kept, layers
        for name in model.names:
            weight = model.tensor(name).requires_grad_(False)
            if weight.dim() > 1 and name != "token_embd.weight":
                weight.data = weight.data.to(numbers)
        self.output = model.tensor(model.output).to(numbers)
        shape = given.slots, model.key_heads, given.context, model.size
        self.keys, self.values = ([torch.zeros(shape, dtype=numbers) for _ in range(model.layers)] for _ in range(2))
        self.texts = [None] * given.slots
        self.random = torch.Generator().manual_seed(given.seed)

    def states(self, ids, places, remember):
        """States after the final norm, and those that are kept."""
        after = {}
        with torch.autocast("cpu", torch.bfloat16, self.numbers == torch.bfloat16):
            for layers, x in enumerate(self.model.passed(ids, places, remember)):
                if layers in self.layers:
                    after[layers] = x
            z = self.model.norm(x, "output_norm.weight")
        return z, torch.cat([after[layers] for layers in self.layers] or [z], -1)

    def logits(self, z):
        return (z.to(self.numbers) @ self.output.T).float()

    def noted(self, logits, inner):
        """What the store keeps: name -> rows."""
        known = dict(states.most_probable(logits), states=inner.half().numpy())
        return {name: known[name] for name in self.kept}

    def say(self, z, inner, texts):
        """The next token of each text, by its last state, z (texts, width)."""
        logits = self.logits(z)
        best = self.noted(logits, inner)
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

        z, inner = self.states(ids, places, remember)
        for i, (row, text) in enumerate(zip(rows, texts)):
            end = text.prompted - 1
            text.rows.append(self.noted(self.logits(z[i, :end]), inner[i, :end]))
            self.texts[row] = text
        last = torch.arange(len(texts)), torch.tensor([t.prompted - 1 for t in texts])
        self.say(z[last], inner[last], texts)

    @torch.no_grad()
    def step(self):
        """One more token for every text; those that are done then leave. Returns how many. Free rows come along, unless
        most are free: to choose rows is to copy caches."""
        rows = [i for i, t in enumerate(self.texts) if t]
        if not rows:
            return 0
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

        z, inner = (x[:, 0] for x in self.states(ids[:, None], places[:, None], remember))
        busy = torch.tensor(rows) if every else slice(None)
        self.say(z[busy], inner[busy], texts)
        self.leave()
        return len(rows)

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
    """A shard: the file of answers and, in the store, the most probable tokens. Texts of less than states.SHORTEST
    tokens are left out, for nobody learns from them."""
    path, texts = answers.file_of(given, number), [text for text in texts if len(text.ids) >= states.SHORTEST]
    with open(path + ".new", "w") as file:
        for text in texts:
            file.write(json.dumps({"tokens": len(text.ids) - text.prompted, "ids": text.ids}) + "\n")
    shard = states.Shard(store.base, path + ".new", 0, given.longest)
    nothing = {name: np.zeros((1, store.kinds[name][1])) for name in store.kept}
    if texts and not os.path.isdir(store.place(shard)):
        store.put(shard, (rows for text in texts for rows in text.rows + [nothing]))
    os.replace(path + ".new", path)


def texts_of(given, vocabulary):
    """number, texts of the shards that are not there yet; prompts that leave no room for half an answer are left
    out."""
    longest = min(given.context, given.longest) - given.tokens // 2
    for number, _, records in answers.shards_of(given):
        asked = [("{prompt}" if r.get("plain") else given.template).replace("{prompt}", r["prompt"])
                 for r in records if "prompt" in r]
        prompts = [vocabulary.encode(text, prompt=True) for text in asked]
        texts = [Text(ids, answers.is_greedy(given, number)) for ids in prompts if len(ids) <= longest]
        if texts:
            yield number, texts


def main():
    given = options()
    torch.set_num_threads(given.threads)
    os.makedirs(given.folder, exist_ok=True)
    given.context = min(given.context, given.longest)
    numbers = states.faster_numbers() if given.numbers == "auto" else NUMBERS[given.numbers]
    base = states.Base(given.model, given.programs, given.threads, map(int, filter(None, given.layers.split(","))))
    kept = states.STATES if given.states or base.layers else states.TOPS
    store = states.Store(os.path.join(given.work, "states"), base, 1 << 60, numbers, given.pause, kept)
    teacher = Teacher(base.llama(), given, numbers, kept, base.layers)
    coming, waiting, started = texts_of(given, teacher.model.vocabulary), collections.deque(), {}
    began, shown, tokens = time.time(), 0, 0
    while time.time() - began < given.seconds:
        while len(waiting) < given.slots:
            number, texts = next(coming, (None, ()))
            if not texts:
                break
            started[number] = texts
            waiting.extend(texts)
        if not started:
            break
        if waiting and len(teacher.free()) >= min(len(waiting), given.slots // 8):
            enter(teacher, waiting)
        states.wait_while(given.pause)
        tokens += teacher.step()
        for number in [n for n, texts in started.items() if all(t.done for t in texts)]:
            write(given, store, number, started.pop(number))
        if time.time() - shown > 10:
            shown = time.time()
            print("%d tokens, %.0f a second, %d shards under way" % (tokens, tokens / (shown - began), len(started)),
                  flush=True)
    for number, texts in started.items():  # time is up: texts end where they are
        if all(len(t.ids) > t.prompted for t in texts):
            write(given, store, number, texts)


if __name__ == "__main__":
    main()
