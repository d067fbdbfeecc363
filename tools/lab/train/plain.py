"""Lets a model write stories without lists, so that training on lists does not make it forget how.

    plain.py MODEL.gguf OUT.jsonl COUNT SEED

Rules. One third begins with nothing, one third with the usual first words, one third answers "Tell me a story about
...". The model samples at temperature 0.9 until it begins the next story or has 180 tokens; unfinished ones do not
end."""
import json
import random
import sys

import torch

from model import Llama, Streams
from stories import ANIMALS, BOYS, GIRLS, filled, with_article

LONGEST, TEMPERATURE, AT_ONCE = 180, 0.9, 50
OPENINGS = ("Once upon a time", "One day", "There was once", "Long ago", "A little", "{name} was",
            "{name} and {other}", "One morning, {name}", "Once upon a time there was {an animal}", "In the forest",
            "The king", "{name} went to")
ASKED = (("Tell me a story about {name}.", "Once upon a time there was a {child|little {child}} named {name}."),
         ("Tell me a story about {an animal}.", "Once upon a time there was {an animal}"),
         ("Tell {name} a story.", "Once upon a time"), ("What happened to {name} one day?", "One day {name}"))


def beginning(rng):
    """A prompt, and the first words of its story."""
    she = rng.random() < 0.5
    words = {"name": rng.choice(GIRLS if she else BOYS), "child": "girl" if she else "boy",
             "other": rng.choice(GIRLS + BOYS), "an animal": with_article(rng.choice(list(ANIMALS)))}
    kind = rng.randrange(3)
    prompt, first = ("", "") if kind == 0 else ("", rng.choice(OPENINGS)) if kind == 1 else rng.choice(ASKED)
    return filled(rng, prompt, words), filled(rng, first, words)


def stories(model, rng, count):
    """Records of plain stories, written side by side."""
    vocabulary, streams = model.vocabulary, Streams(model)
    begun = [beginning(rng) for _ in range(count)]
    given = [vocabulary.encode(first, prompt=True) if first else [vocabulary.begin] for _, first in begun]
    texts, open_rows = [ids[:1] for ids in given], list(range(count))
    ended = [False] * count
    for _ in open_rows:
        streams.open()
    while open_rows:
        logits = streams.step([texts[r][-1] for r in open_rows])
        drawn = torch.multinomial((logits / TEMPERATURE).softmax(-1), 1)[:, 0].tolist()
        for r, token in zip(open_rows, drawn):
            texts[r].append(given[r][len(texts[r])] if len(texts[r]) < len(given[r]) else token)
            ended[r] = texts[r][-1] in (vocabulary.begin, vocabulary.end)
        rows = [i for i, r in enumerate(open_rows) if not ended[r] and len(texts[r]) < LONGEST]
        streams.keep(rows)
        open_rows = [open_rows[i] for i in rows]
    for (prompt, _), ids, end in zip(begun, texts, ended):
        text = vocabulary.decode(ids)[1:]
        yield {"kind": "plain", "prompt": prompt, "answer": ["\n" + text if prompt else text], "ends": end}


def main(path, out, count, seed):
    torch.set_num_threads(1)
    torch.manual_seed(int(seed))
    rng, model = random.Random(int(seed)), Llama(path, control=False)
    with open(out, "w") as file:
        for done in range(0, int(count), AT_ONCE):
            for record in stories(model, rng, min(AT_ONCE, int(count) - done)):
                if len(record["answer"][0]) > 40:
                    file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 5 else sys.exit(__doc__)
