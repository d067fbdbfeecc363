"""Records: prompts with answers that fork, a line of JSON each, and what training makes of them.

    {"prompt": "Three animals lived by the sea:",
     "answer": ["\\n1. Lily the fox", [": Lily was ..."], "\\n2. Tom the owl", [": Tom was ..."], "\\nThe end."]}

An answer is a list of parts. A text is written by the stream that owns the list; a list inside is a fork: the owner
writes [Fork] there and goes on with the next part, a child that begins with [Child] writes the list. Every list ends
with the end token, unless the record says "ends": false. Texts put together in order (pre-order) are the plain
answer. A record without forks is plain text; where it has no prompt, all of it is learned."""
import json

NO_TARGET = -1
FORKING = 4  # weight of the tokens of a stream that forks


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def restored(parts):
    """The plain text of an answer."""
    return "".join(p if isinstance(p, str) else restored(p) for p in parts)


def forks(parts):
    """How many streams fork off, in all."""
    return sum(1 + forks(p) for p in parts if not isinstance(p, str))


def broken_rule(parts, child=False):
    """What is wrong with an answer, or None: a fork needs a text before it (no [Fork] behind a control token),
    nothing is empty, and there are no other things than texts and lists."""
    before_is_text = False
    for part in parts:
        if isinstance(part, str) and part:
            before_is_text = True
        elif isinstance(part, list) and part:
            if not before_is_text:
                return "a fork without text before it"
            before_is_text = False
            wrong = broken_rule(part, True)
            if wrong:
                return wrong
        else:
            return "an empty part"
    return None


class Tree:
    """The tokens of a record, flattened: ids; before[i], the token that i follows (-1: none); places, path length - 1;
    targets[i], the token to learn behind i (NO_TARGET: none), and weights[i], how much that matters: FORKING in streams
    that fork, whose few tokens say what and how many things are listed, 1 elsewhere. Every shared token is there once,
    every path is whole. [Child] is nobody's target: it is forced, never chosen."""

    def __init__(self, vocabulary, record):
        self.ids, self.before, self.places, self.targets, self.weights = [], [], [], [], []
        self.vocabulary, self.ends = vocabulary, record.get("ends", True)
        last = -1
        for token in vocabulary.encode(record["prompt"], prompt=True):
            last = self.add(token, last, learn=False)
        self.list(record["answer"], last, first=not record["prompt"])

    def add(self, token, before, learn=True, weight=1):
        """Appends a token; the one before it learns to write it. Returns its index."""
        self.ids.append(token)
        self.before.append(before)
        self.places.append(self.places[before] + 1 if before >= 0 else 0)
        self.targets.append(NO_TARGET)
        self.weights.append(0)
        if learn and before >= 0:
            self.target(before, token, weight)
        return len(self.ids) - 1

    def target(self, i, token, weight):
        self.targets[i], self.weights[i] = token, weight

    def list(self, parts, last, first=False):
        """One stream, behind the token last. first: its text begins like a prompt, with a space."""
        weight = FORKING if forks(parts) else 1
        for part in parts:
            if isinstance(part, str):
                for token in self.vocabulary.encode(" " + part if first else part):
                    last = self.add(token, last, weight=weight)
                first = False
            else:
                last = self.add(self.vocabulary.fork, last, weight=weight)
                self.list(part, self.add(self.vocabulary.child, last, learn=False))
        if self.ends:
            self.target(last, self.vocabulary.end, weight)

    def paths(self):
        """Indices of every path, from the root to the last token of a stream."""
        followed = set(self.before)
        for i in range(len(self.ids)):
            if i not in followed:
                path = []
                while i >= 0:
                    path.insert(0, i)
                    i = self.before[i]
                yield path
