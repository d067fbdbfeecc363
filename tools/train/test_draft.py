"""Checks what draft.py promises, from the repository's root: test_draft.py [FOLDER OF THE PROGRAMS].
Needs PyTorch, specdec, specdec-logits, specdec-tokens and many. Takes half a minute on one core."""
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch

import draft
import gguf
import heads as training
import states
import test_heads
from model import Llama

BASE = test_heads.BASE


def spoiled(path):
    """The base itself, as a draft that has forgotten much."""
    model, random = Llama(BASE, control=False), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name in model.names:
            w = model.tensor(name)
            if w.dim() > 1:
                w.add_(0.6 * w.std() * torch.randn(w.shape, generator=random))
    model.save(path, "spoiled")
    return path


def options(folder, programs, **others):
    """What draft.py is told."""
    given = test_heads.options(folder, programs, out=os.path.join(folder, "draft.gguf"), heads=1, rows=4, rate=2e-3,
                               draft=os.path.join(folder, "spoiled.gguf"), layers="", noise=0, steps=60)
    given.__dict__.update(others)
    return given


@torch.no_grad()
def test_goals_are_those_of_the_text(folder, programs):
    """Behind every token that the base wrote, and behind no other one in the second stage, stands its own row."""
    trainer = draft.prepare(options(folder, programs))
    s, start = map(int, trainer.orders[1].places(0)[0])
    shard, rows = trainer.shards[s], trainer.store.rows(trainer.shards[s])
    end = int(shard.ends[start])
    for mark in (0, states.WRITTEN):
        batch = trainer.heads.batch(trainer.store, trainer.shards, np.array([[s, start]]), mark)
        wanted = np.flatnonzero(shard.marks[start:end - 1] & mark == mark)
        assert np.array_equal(batch.rows, wanted) and len(wanted)
        assert np.array_equal(batch.tokens[0], shard.ids[start:end - 1])
        assert np.array_equal(batch.targets[0], shard.ids[start + 1:end][wanted])
        assert np.array_equal(batch.tops[0], rows[1][start:end - 1][wanted])
        z, matrix = next(trainer.heads.guesses(batch))
        n, model = end - 1 - start, trainer.heads.model
        expected = model.tree(batch.tokens, torch.arange(n)[None], torch.ones(1, n, n, dtype=torch.bool).tril())
        assert torch.equal(z, expected[0][batch.rows]) and matrix is model.tensor(model.output)


def test_training_teaches_and_the_engine_agrees(folder, programs):
    """Held-out accuracy rises; the file drafts for the base, whose text stays, and more of it is accepted."""
    given = options(folder, programs)
    trainer = draft.prepare(given)
    before = training.judged(trainer.heads, trainer.judges)
    trainer.run()
    after = training.judged(trainer.heads, trainer.judges)
    training.finish(trainer)
    assert after[0, 0] > before[0, 0] + 0.1, (before, after)
    file = gguf.Reader(given.out)
    assert set(file.tensors) == set(trainer.heads.model.names)
    steps = {}
    for name in ("", given.draft, given.out):
        stats = os.path.join(folder, "stats.json")
        flags = ["-md", name, "--spec", "draft"] if name else ["--spec", "off"]
        ran = subprocess.run([os.path.join(programs, "specdec"), "-m", BASE, "-p", "Once upon a time", "-n", "150", "-t",
                              "1", "--no-echo", "--stats", stats] + flags, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        steps[name] = (ran.stdout, float(open(stats).read().split('"tokens_per_step":')[1].split(",")[0]))
    assert len({text for text, _ in steps.values()}) == 1
    assert steps[given.out][1] > steps[given.draft][1] + 0.2, steps
    os.remove(trainer.path)


def test_training_goes_on_where_it_stopped(folder, programs):
    """Stopped and resumed, the weights are those of a run that was not."""
    os.remove(test_heads.check_resuming(lambda: draft.prepare(options(folder, programs, steps=10))).path)


def main():
    programs = sys.argv[1] if len(sys.argv) > 1 else "build"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        test_heads.write_stories(folder, programs)
        spoiled(os.path.join(folder, "spoiled.gguf"))
        test_goals_are_those_of_the_text(folder, programs)
        test_training_teaches_and_the_engine_agrees(folder, programs)
        test_training_goes_on_where_it_stopped(folder, programs)
    print("test_draft.py: right")


if __name__ == "__main__":
    main()
