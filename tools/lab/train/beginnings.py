"""Beginnings of stories for a small story model to continue.

    beginnings.py OUT.jsonl COUNT SEED [FOLDER]

Without a folder: those of plain.py; some are empty. With a folder that answers.py has written: the first 2 to 100
words of what stands there, so that what a model continues greedily is as manifold as what it wrote at a
temperature."""
import json
import os
import random
import sys

import plain


def first_words(rng, text):
    """A text up to some place between words."""
    words = text.split(" ")
    return " ".join(words[:rng.randrange(2, max(3, min(len(words), 100)))])


def answers(folder):
    """The texts of a folder of answers."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jsonl"):
            with open(os.path.join(folder, name)) as file:
                for line in file:
                    yield json.loads(line)["text"]


def main(out, count, seed, folder=None):
    rng = random.Random(int(seed))
    texts = list(answers(folder)) if folder else None
    with open(out, "w") as file:
        for _ in range(int(count)):
            text = first_words(rng, rng.choice(texts).strip()) if texts else plain.beginning(rng)[1]
            file.write(json.dumps({"prompt": text}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) in (4, 5) else sys.exit(__doc__)
