"""Checks what draft.py and teacher.py promise, from the repository's root: test_draft.py [FOLDER OF THE PROGRAMS].
Needs PyTorch, specdec, specdec-logits, specdec-tokens and many. Takes a minute on one core."""
import json
import os
import subprocess
import sys
import tempfile
import types

import numpy as np
import torch

import answers
import beginnings
import draft
import gguf
import heads as training
import states
import teacher
import test_heads
from model import Llama

BASE, LAYERS = test_heads.BASE, (2, 0)


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
                               draft=os.path.join(folder, "spoiled.gguf"), noise=0, rejected=1.0, steps=60, rounded=False)
    given.__dict__.update(others)
    return given


def written(folder, programs, draft_name):
    """What the base writes with a draft ("": without one), and the tokens of a step."""
    stats = os.path.join(folder, "stats.json")
    flags = ["-md", draft_name, "--spec", "draft"] if draft_name else ["--spec", "off"]
    ran = subprocess.run([os.path.join(programs, "specdec"), "-m", BASE, "-p", "Once upon a time", "-n", "150", "-t",
                          "1", "--no-echo", "--stats", stats] + flags, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    with open(stats) as file:
        return ran.stdout, json.load(file)["tokens_per_step"]


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
        assert np.array_equal(batch.tops[0], rows[0][start:end - 1][wanted])
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
    steps = {name: written(folder, programs, name) for name in ("", given.draft, given.out)}
    assert len({text for text, _ in steps.values()}) == 1
    assert steps[given.out][1] > steps[given.draft][1] + 0.2, steps
    os.remove(trainer.path)


def test_training_goes_on_where_it_stopped(folder, programs):
    """Stopped and resumed, the weights are those of a run that was not."""
    os.remove(test_heads.check_resuming(lambda: draft.prepare(options(folder, programs, steps=10))).path)


def test_short_vocabulary(folder, programs):
    """The draft gets an output matrix of the most frequent tokens; what it says of these is what it said before; the
    engine drafts with the file: the text stays, and most guesses of the base itself, so shortened, are right."""
    given = options(folder, programs, draft=BASE, draft_vocab=512, steps=1, work=os.path.join(folder, "short"))
    trainer = draft.prepare(given)
    whole, short = Llama(given.draft, control=False), trainer.heads
    z = torch.randn(3, whole.width)
    assert torch.equal(short.model.logits(z), whole.logits(z)[:, short.tokens])
    training.finish(trainer)
    file = gguf.Reader(given.out)
    assert np.array_equal(file.tensors["d2t"], short.tokens) and len(short.tokens) == 512
    again = draft.prepare(options(folder, programs, draft=given.out, work=os.path.join(folder, "again"))).heads
    assert np.array_equal(again.tokens, short.tokens) and again.tensor("output.weight").shape == (512, whole.width)
    try:
        Llama(given.out, control=False)
        raise AssertionError("logits of 512 tokens were taken for those of all")
    except ValueError:
        pass
    (plain, _), (drafted, steps) = (written(folder, programs, name) for name in ("", given.out))
    assert plain == drafted and steps > 2, steps


def test_rounded_weights_stay(folder, programs):
    """What is trained rounded is in the file what it was in training, and Q4_0 keeps every weight; it learns. The
    embedding is rounded unless it is the output, too."""
    for count in (0, 512):
        given = options(folder, programs, rounded=True, draft_vocab=count, type="F32",
                        work=os.path.join(folder, "rounded%d" % count))
        trainer = draft.prepare(given)
        before = training.judged(trainer.heads, trainer.judges)
        trainer.run()
        after, batch, model = training.judged(trainer.heads, trainer.judges), trainer.judges[0], trainer.heads.model
        with torch.no_grad():
            said = next(trainer.heads.guesses(batch))[0]
            training.finish(trainer)
            assert after[0, 0] > before[0, 0] + 0.1, (before, after)
            assert torch.equal(next(trainer.heads.guesses(batch))[0], said)
            assert torch.equal(model.embedded(batch.tokens), model.tensor("token_embd.weight")[batch.tokens])
        assert model.rounds("token_embd.weight") == (count > 0) and not model.rounds(model.output)
        for name in filter(model.rounds, model.names):
            values = model.tensor(name).detach().numpy().reshape(-1, gguf.BLOCK)
            blocks = np.frombuffer(gguf.encoded_q4_0(values), gguf.TYPES["Q4_0"].block)
            assert np.array_equal(gguf.decoded_q4_0(blocks), values), name


def test_types_of_matrices(folder, programs):
    """Of a mixed file the embedding is in Q4_0, unless it is the output, too; flags that mean nothing are refused."""
    for count, embedding in ((0, "Q8_0"), (512, "Q4_0")):
        given = options(folder, programs, draft=BASE, draft_vocab=count)
        draft.prepare(given).heads.save(given.out, "mixed", "mixed")
        tensors = gguf.Reader(given.out).tensors
        assert tensors.type("token_embd.weight") == embedding
        assert {tensors.type(n) for n in tensors if n != "token_embd.weight"} == {"Q8_0", "F32"} | (
            {"I32"} if count else set())
    for flag in "--noise", "--slow", "--heads":
        said = test_heads.refused("draft.py", BASE, given.out, "--from", BASE, "--text", given.out, flag, 1)
        assert "unrecognized arguments: %s 1" % flag in said, said


def test_teacher_leaves_short_texts_out(folder, programs):
    """Texts of less than three tokens end no run. A shard that cannot be kept leaves no file that counts as done."""
    given = types.SimpleNamespace(folder=os.path.join(folder, "short-texts"), longest=64)
    os.makedirs(given.folder)
    base = states.Base(BASE, programs)
    store = states.Store(os.path.join(folder, "short-tops"), base, 1 << 30, torch.float32, kept=states.TOPS)

    def text(count, rows):
        made = teacher.Text([1], True)
        made.ids += range(5, 4 + count)
        made.rows = [{name: np.full((rows, store.kinds[name][1]), count) for name in store.kept}]
        return made

    teacher.write(given, store, 0, [text(2, 1), text(5, 4), text(2, 1), text(3, 2)])
    shard = states.Shard(base, answers.file_of(given, 0), 0, given.longest)
    assert list(map(len, shard.texts)) == [5, 3] and os.path.isdir(store.place(shard))
    assert list(store.rows(shard)[0][:, 0]) == [5] * 4 + [0] + [3] * 2 + [0]
    teacher.write(given, store, 1, [text(2, 1)])
    assert not open(answers.file_of(given, 1)).read()
    try:
        teacher.write(given, store, 2, [text(4, 9)])
        raise AssertionError("nine rows were kept of three")
    except ValueError:
        assert not os.path.exists(answers.file_of(given, 2))


def test_comparisons_are_kept_by_what_was_asked(folder, programs):
    """compare_drafts.py --state: what was run with other flags is not taken for this; no prompts are no comparison."""
    prompts, state = (os.path.join(folder, name) for name in ("compared.jsonl", "compared.json"))
    ask = lambda *flags: (os.path.join("..", "compare_drafts.py"), "-m", BASE, "--specdec", os.path.join(
        programs, "specdec"), "--temps", "0", "-t", 1, "--state", state, prompts) + flags
    open(prompts, "w").close()
    assert "no prompts in " + prompts in test_heads.refused(*ask("--mode", "a=--spec ngram"))
    counts = []
    for text, flags in (("Once", "--spec ngram"), ("Once", "--spec ngram"), ("Tom", "--spec ngram"),
                        ("Tom", "--spec ngram --tree-size 2")):
        with open(prompts, "w") as file:
            file.write(json.dumps({"prompt": text}) + "\n")
        for tokens in 4, 5:
            test_heads.script(*ask("--mode", "a=" + flags, "-n", tokens))
            with open(state) as file:
                counts.append(sum(map(len, json.load(file).values())))
    assert counts == [1, 2, 2, 2, 3, 4, 5, 6], counts


def test_teacher_writes_what_the_base_does(folder, programs):
    """Its greedy texts are those of specdec, but behind places where two tokens are nearly equal; the states and the
    most probable tokens that it notes are specdec's, for every token but a text's last."""
    out, work, prompts = (os.path.join(folder, name) for name in ("taught", "noted", "teacher.jsonl"))
    beginnings.main(prompts, 24, 5)
    shape = ["--shard", 6, "--tokens", 40, "--context", 100]
    test_heads.script("teacher.py", BASE, prompts, out, "--template", "{prompt}", "--slots", 7, "--numbers", "float32",
                      "--work", work, "--programs", programs, "--layers", ",".join(map(str, LAYERS)), *shape)
    test_heads.script("answers.py", BASE, prompts, out + "-many", "--plain", "--many",
                      os.path.join(programs, "many"), *shape)
    base, same = states.Base(BASE, programs, layers=LAYERS), []
    noted, own = (states.Store(place, base, 1 << 30, torch.float32)
                  for place in (os.path.join(work, "states"), os.path.join(folder, "own")))
    for number in range(4):
        name = "%05d.jsonl" % number
        shard = states.Shard(base, os.path.join(out, name), 0, 1024)
        assert len(shard.texts) == 6 and os.path.isdir(noted.place(shard))
        last = shard.ends - 1 == np.arange(len(shard.ids))
        (read, tops, chances), (own_read, own_tops, own_chances) = noted.rows(shard), own.rows(shard)
        assert read.shape == own_read.shape
        read, own_read = (x[~last].astype(float) for x in (read, own_read))
        assert abs(read - own_read).mean() < 0.05 * abs(own_read).mean()
        assert (tops[~last, 0] == own_tops[~last, 0]).mean() > 0.97
        assert abs(chances[~last].astype(float) - own_chances[~last]).mean() < 0.002
        written = (shard.marks & states.WRITTEN > 0) & ~last
        if number % 2 == 0:
            assert np.array_equal(tops[written, 0], shard.ids[1:][written[:-1]])
        with open(os.path.join(out + "-many", name)) as file:
            texts = {tuple(r["ids"][:-r["tokens"]]): r["ids"] for r in map(json.loads, file)}
        with open(os.path.join(out, name)) as file:
            for r in map(json.loads, file):
                expected = texts[tuple(r["ids"][:-r["tokens"]])]  # the prompt is the same
                same += [a == b for a, b in zip(r["ids"], expected)] if number % 2 == 0 else []
    assert np.mean(same) > 0.8, np.mean(same)


def main():
    programs = sys.argv[1] if len(sys.argv) > 1 else "build"
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        test_heads.write_stories(folder, programs)
        spoiled(os.path.join(folder, "spoiled.gguf"))
        test_goals_are_those_of_the_text(folder, programs)
        test_training_teaches_and_the_engine_agrees(folder, programs)
        test_training_goes_on_where_it_stopped(folder, programs)
        test_short_vocabulary(folder, programs)
        test_rounded_weights_stay(folder, programs)
        test_types_of_matrices(folder, programs)
        test_teacher_leaves_short_texts_out(folder, programs)
        test_comparisons_are_kept_by_what_was_asked(folder, programs)
        test_teacher_writes_what_the_base_does(folder, programs)
    print("test_draft.py: right")


if __name__ == "__main__":
    main()
