"""Checks what eagle.py promises, from the repository's root: test_eagle.py [FOLDER OF THE PROGRAMS].
Needs PyTorch, specdec, specdec-logits, specdec-tokens and many. Takes half a minute on one core."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

import eagle
import gguf
import heads as training
import states
import test_heads
from model import turned

BASE = test_heads.BASE
BORROWS = {"borrow": True, "queries": 4, "keys": 4}


def options(folder, programs, **others):
    """What eagle.py is told."""
    given = test_heads.options(folder, programs, out=os.path.join(folder, "eagle.gguf"), layers="0,1,2", width=64,
                               size=32, queries=2, keys=1, feed_forward=96, rows=4, rate=6e-3, draft_vocab=600, borrow=False)
    given.__dict__.update(others)
    return given


def guess_of_one(draft, states_, tokens, last, count):
    """Guess number `count` of the last pair, of one text, as an engine makes it: a pair after the other, with a cache.
    states_: (pairs, read width), of which the last count - 1 may not be read; tokens: (pairs)."""
    speed = eagle.ROTATION ** (-torch.arange(0, draft.size, 2, dtype=torch.float32) / draft.size)
    keys, values, x = [], [], None
    for p in range(last + 1):
        angle = p * speed
        if p <= last - (count - 1):
            g = draft.tensor("fc.weight") @ (draft.norm(states_[p]) * draft.tensor("enc.output_norm.weight"))
        else:
            g = x
        token = draft.embedded(tokens[p])
        h = torch.cat((draft.norm(token) * draft.weight("attn_norm"), draft.norm(g) * draft.weight("attn_norm_2")))
        q, k, v = ((draft.weight("attn_" + n) @ h).view(-1, draft.size) for n in "qkv")
        keys.append(turned(k, angle.cos(), angle.sin()))
        values.append(v)
        q, groups, y = turned(q, angle.cos(), angle.sin()), len(q) // draft.keys, []
        for head in range(len(q)):
            scores = torch.stack([q[head] @ k[head // groups] for k in keys]) * draft.size ** -0.5
            y.append(scores.softmax(0) @ torch.stack([v[head // groups] for v in values]))
        x = g + draft.weight("attn_output") @ torch.cat(y)
        h = draft.norm(x) * draft.weight("ffn_norm")
        x = x + draft.weight("ffn_down") @ (F.silu(draft.weight("ffn_gate") @ h) * (draft.weight("ffn_up") @ h))
    return draft.tensor("output.weight") @ (draft.norm(x) * draft.tensor("output_norm.weight"))


@torch.no_grad()
def test_guesses_are_those_of_a_cache(folder, programs, **others):
    """Guesses of whole texts at once are those of one pair after the other; they know nothing of states behind the
    one that they start from; goals are those of the text."""
    trainer = eagle.prepare(options(folder, programs, draft_vocab=0, **others))
    draft, (s, start) = trainer.heads, trainer.orders[0].places(0)[0]
    shard, end = trainer.shards[s], int(trainer.shards[s].ends[start])
    batch = draft.batch(trainer.store, trainer.shards, np.array([[s, start]]), 0)
    assert list(batch.rows) == list(range(end - start - 2)) and start in eagle.Eagle.units(shard, 0, 0)
    assert np.array_equal(batch.tokens[0], shard.ids[start + 1:end - 1])
    assert np.array_equal(batch.targets[2], shard.ids[start + 2:end])
    rows, tops, chances = trainer.store.rows(shard)
    assert rows.shape[1] == batch.states.shape[2] == 3 * trainer.store.base.width
    assert np.array_equal(batch.tops[1], tops[start + 1:end - 1])
    assert np.array_equal(batch.chances[1, 1:], chances[start + 2:end - 1].astype(np.float32))
    assert not batch.chances[2, 1].any() and not batch.known[2, 1] and batch.known[2, 2]
    said = list(draft.said(batch))
    for count, pair in ((1, 0), (1, 9), (2, 9), (3, 2), (3, 12)):
        states_ = batch.states[0].clone()
        states_[pair - count + 2:] = 7.0
        expected = guess_of_one(draft, states_, batch.tokens[0], pair, count)
        assert torch.allclose(said[count - 1][pair], expected, atol=1e-3 * float(expected.abs().max())), (count, pair)


def test_texts_have_marks(folder, programs):
    """Held-out texts are not learned from; of what the base did not write nothing is, in the second stage."""
    trainer = eagle.prepare(options(folder, programs))
    for mark, order in zip((0, states.WRITTEN), trainer.orders):
        places = np.concatenate([order.places(i) for i in range(order.steps)])
        assert len(np.unique(places, axis=0)) == len(places) > 20
        for s, start in places.tolist():
            assert not trainer.shards[s].marks[start] & states.HELD_OUT
        batch = trainer.heads.batch(trainer.store, trainer.shards, places[:4], mark)
        wanted = [np.flatnonzero(trainer.shards[s].marks[t:trainer.shards[s].ends[t] - 2] & mark == mark)
                  for s, t in places[:4].tolist()]
        longest = batch.tokens.shape[1]
        assert list(batch.rows) == [i * longest + p for i, pairs in enumerate(wanted) for p in pairs]


def engine_says(programs, given, text, count):
    """Tokens a step of the engine, with chains of so many nodes."""
    stats = given.out + ".json"
    ran = subprocess.run([os.path.join(programs, "specdec"), "-m", BASE, "-mh", given.out, "-p", text, "-n", "150",
                          "-t", "1", "--spec", "heads", "--tree-size", str(count), "--tree-depth", str(count),
                          "--no-echo", "--stats", stats], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    with open(stats) as file:
        return json.load(file)["tokens_per_step"]


@torch.no_grad()
def scripts_say(trainer, draft, programs, folder, text, guesses):
    """The same by the draft's guesses: how many in a row are right at each step."""
    lines, answers = os.path.join(folder, "chain.in"), os.path.join(folder, "chain.jsonl")
    with open(lines, "w") as file:
        file.write(json.dumps({"prompt": text}) + "\n")
    with open(answers, "w") as file:
        subprocess.run([os.path.join(programs, "many"), "-m", BASE, "-f", lines, "-n", "150", "-t", "1", "--spec",
                        "off", "--ids"], check=True, stdout=file)
    shard = states.Shard(trainer.store.base, answers, 0, 400)
    batch = draft.batch(trainer.store, [shard], np.array([[0, 0]]), 0)
    kept = draft.tokens if draft.tokens is not None else np.arange(draft.vocabulary)
    right = [kept[logits.argmax(1).numpy()] == batch.targets[0].numpy() for logits in draft.said(batch)]
    with open(answers) as file:
        written = json.loads(file.readline())["tokens"]
    at, steps = len(shard.ids) - written + 1, 1
    while at < len(shard.ids):
        came = 0
        while came < guesses and at + came < len(shard.ids) and right[came][at + came - 2]:
            came += 1
        at, steps = at + came + 1, steps + 1
    return written / steps


def check_engine(trainer, draft, programs, folder, given):
    """The engine takes as many tokens a step with the file as the share of its draft tokens that are right promises."""
    found, promised = [], []
    for text in ("Once upon a time", "Tom and his sister", "The little dog", "One day, a girl"):
        found.append(engine_says(programs, given, text, 4))
        promised.append(scripts_say(trainer, draft, programs, folder, text, 3))
    assert sum(promised) > 1.25 * len(promised), promised
    assert abs(sum(found) / sum(promised) - 1) < 0.05, (found, promised)


def test_the_base_lends_its_embedding(folder, programs):
    """A draft that borrows it begins near the linear guess, too; its file lacks the embedding; the engine agrees."""
    given = options(folder, programs, **BORROWS, steps=10, first=0, out=os.path.join(folder, "borrows.gguf"))
    trainer = eagle.prepare(given)
    assert (training.judged(trainer.heads, trainer.judges)[:, 0] > 0.25).all()
    trainer.run()
    training.finish(trainer)
    draft = eagle.load(given.out, trainer.store.base, given.heads)
    assert "token_embd.weight" not in gguf.Reader(given.out).tensors and draft.borrowed is not None
    check_engine(trainer, draft, programs, folder, given)
    shard = trainer.shards[0]
    tops, chances = trainer.store.rows(shard)[1:]  # goals are kept where the base wrote the text, and nowhere else
    assert np.array_equal(chances.any(1), shard.marks & states.WRITTEN > 0) and len(tops) == len(shard.ids)
    os.remove(trainer.path)


def test_training_teaches_and_the_engine_agrees(folder, programs):
    """It begins near a linear guess; loss falls, held-out accuracy of every guess rises; the file is the draft; the engine
    that runs it takes as many tokens a step as its guesses promise."""
    given = options(folder, programs, steps=110, rows=6)
    trainer = eagle.prepare(given)
    before, losses = training.judged(trainer.heads, trainer.judges), trainer.learn()
    trainer.run()
    after = training.judged(trainer.heads, trainer.judges)
    trainer.judge(trainer.learn())
    assert all(a < b - 0.5 for a, b in zip(trainer.curve[-1]["losses"], losses)), (losses, trainer.curve[-1])
    assert (before[:, 0] > 0.25).all() and (after[:, 0] > before[:, 0] + 0.05).all(), (before, after)
    training.finish(trainer)
    file, draft = gguf.Reader(given.out), eagle.load(given.out, trainer.store.base, given.heads)
    assert eagle.layers_of_file(given.out) == (0, 1, 2) and eagle.layers_of_file(BASE) == ()
    assert set(file.tensors) == set(trainer.heads.layout.tensors) | {"d2t"} and len(file.tensors["d2t"]) == 600
    assert all(torch.equal(a, b) for a, b in zip(draft.parameters(), trainer.heads.parameters()))
    assert file["eagle3.target_layers"] == (gguf.U32, [0, 1, 2])
    check_engine(trainer, draft, programs, folder, given)
    said = test_heads.script("judge_heads.py", given.out, BASE, "--answers", given.answers[0], "--held-out", 0.2,
                             "--longest", 256, "--guesses", 2, "--work", given.work, "--programs", programs)
    right = [float(line.split("|")[2]) for line in said.splitlines() if line[:3] in ("| 1", "| 2")]
    assert np.abs(np.array(right) - after[:2, 0].numpy()).max() < 0.03 and "tokens a step: " in said, (said, after)
    os.remove(trainer.path)


def test_training_goes_on_where_it_stopped(folder, programs):
    """Stopped and resumed, the weights are those of a run that was not."""
    os.remove(test_heads.check_resuming(lambda: eagle.prepare(options(folder, programs, steps=10))).path)


def main():
    programs = sys.argv[1] if len(sys.argv) > 1 else "build"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        test_heads.write_stories(folder, programs)
        test_guesses_are_those_of_a_cache(folder, programs)
        test_guesses_are_those_of_a_cache(folder, programs, **BORROWS)
        test_texts_have_marks(folder, programs)
        test_the_base_lends_its_embedding(folder, programs)
        test_training_teaches_and_the_engine_agrees(folder, programs)
        test_training_goes_on_where_it_stopped(folder, programs)
    print("test_eagle.py: right")


if __name__ == "__main__":
    main()
