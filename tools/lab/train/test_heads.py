"""Checks what the scripts for heads promise, from the repository's root: test_heads.py [FOLDER OF THE PROGRAMS].
Needs PyTorch, specdec-logits, specdec-tokens, specdec-quantize and many. Takes a minute on one core."""
import copy
import glob
import json
import os
import pickletools
import subprocess
import sys
import tempfile
import types
import xml.dom.minidom
import zipfile

import numpy as np
import torch
import torch.nn.functional as F

import answers
import beginnings
import figure
import gguf
import heads as training
import linear
import judge_heads
import speculator
import states
from model import Llama

BASE = "examples/models/tiny-stories-draft-q8_0.gguf"
HERE = os.path.dirname(os.path.abspath(__file__))


def script(name, *arguments):
    """What a script prints."""
    ran = subprocess.run([sys.executable, os.path.join(HERE, name)] + list(map(str, arguments)), capture_output=True,
                         text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def refused(name, *arguments):
    """What a script says that fails."""
    ran = subprocess.run([sys.executable, os.path.join(HERE, name)] + list(map(str, arguments)), capture_output=True,
                         text=True)
    assert ran.returncode and "Traceback" not in ran.stderr, ran
    return ran.stderr


def refusal(call):
    """What is said instead of doing something."""
    try:
        call()
    except SystemExit as end:
        return str(end)
    raise AssertionError("it was done")


def options(folder, programs, **others):
    """What heads.py is told."""
    given = dict(base=BASE, out=os.path.join(folder, "heads.gguf"), answers=[os.path.join(folder, "answers")], text=[],
                 heads=3, inner=32, untied=False, draft_vocab=0, type="F32", seconds=0, steps=60, first=0.25, rows=128,
                 rate=1e-2, decay=0.01, slow=1.0, noise=0.1, rejected=0.0, count=[], temp=1.0, held_out=0.2,
                 longest=256, seed=1, numbers="float32", threads=1, programs=programs,
                 work=os.path.join(folder, "work"), cache=1000, pause="", figure=None, name=None, begin=None)
    given.update(others)
    return types.SimpleNamespace(**given)


def write_stories(folder, programs):
    """Answers of BASE to beginnings of stories, in two files."""
    prompts = os.path.join(folder, "prompts.jsonl")
    beginnings.main(prompts, 96, 3)
    script("answers.py", BASE, prompts, os.path.join(folder, "answers"), "--plain", "--shard", 48, "--tokens", 80,
           "--context", 200, "--sequences", 8, "--many", os.path.join(programs, "many"))
    assert len(glob.glob(folder + "/answers/*.jsonl")) == 2


def check_resuming(prepare):
    """Stopped and resumed, the weights are those of a run that was not. prepare() -> trainer, the same every time.
    Returns the last one, whose checkpoint is still there."""
    weights = []
    for stops in ((1.0,), (0.4, 1.0)):
        for stop in stops:
            trainer = prepare()
            trainer.run(stop)
        weights.append(copy.deepcopy(trainer.heads.state_dict()))
        assert trainer.step == trainer.given.steps
        if len(weights) == 1:
            os.remove(trainer.path)
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    return trainer


def test_answers_are_written_once(folder, programs):
    """Every prompt has one answer; half are greedy; what is there stays; the tokens are those of the text."""
    prompts, out = os.path.join(folder, "prompts.jsonl"), os.path.join(folder, "answers")
    beginnings.main(prompts, 48, 3)
    arguments = [BASE, prompts, out, "--plain", "--shard", 16, "--tokens", 60, "--context", 200, "--sequences", 8,
                 "--many", os.path.join(programs, "many")]
    script("answers.py", *arguments, "--count", 2)
    first = {p: open(p).read() for p in glob.glob(out + "/*")}
    assert len(first) == 2
    said = script("answers.py", *arguments)
    assert said.count("shard") == 1 and "shard 3 of 3" in said
    assert all(open(p).read() == text for p, text in first.items())
    vocabulary, ids = Llama(BASE, control=False).vocabulary, []
    for path in sorted(glob.glob(out + "/*.jsonl")):
        for line in map(json.loads, open(path)):
            ids.append(line["id"])
            assert vocabulary.decode(line["ids"][-line["tokens"]:]).lstrip() == line["text"].lstrip(), line
    assert sorted(ids) == list(range(48))


def test_failures_are_no_answers(folder, programs):
    """A writer that fails leaves no shard that counts as done; a prompt that is too long is left out."""
    prompts, out, broken = (os.path.join(folder, name) for name in ("few.jsonl", "few", "broken.gguf"))
    with open(prompts, "w") as file:
        file.writelines(json.dumps({"prompt": text}) + "\n" for text in ("Once", "Tom had " * 200))
    with open(broken, "wb") as file:
        file.write(open(BASE, "rb").read()[:100000])
    arguments = [prompts, out, "--plain", "--tokens", 9, "--context", 100, "--many", os.path.join(programs, "many")]
    ran = refused("answers.py", broken, *arguments)
    assert "is it complete" in ran and "after 0 of 2 prompts" in ran and not glob.glob(out + "/*.jsonl"), ran
    script("answers.py", BASE, *arguments)
    assert len(open(out + "/00000.jsonl").readlines()) == 1


def test_kinds_are_mixed():
    """Kinds appear by their shares; those not named are left out; the order is always the same."""
    prompts = [{"kind": k, "prompt": str(i)} for k in "abc" for i in range(100)]
    order = answers.shuffled(prompts, {"a": 3.0, "b": 1.0}, 1)
    kinds = [r["kind"] for r in order]
    assert len(order) == 200 and "c" not in kinds and 26 <= kinds[:40].count("a") <= 34
    assert answers.shuffled(prompts[::-1], {"a": 3.0, "b": 1.0}, 1) != order
    assert answers.shuffled(list(prompts), {"a": 3.0, "b": 1.0}, 1) == order


@torch.no_grad()
def test_states_are_those_of_the_model(folder, programs):
    """A row of states belongs to its token and its text; the base's next tokens are computed from it."""
    base = states.Base(BASE, programs)
    shard = states.Shard(base, os.path.join(folder, "answers", "00000.jsonl"), 0.2, 40)
    store = states.Store(os.path.join(folder, "aligned"), base, 1 << 30, torch.float32)
    rows, tops, chances = store.rows(shard)
    model, at = Llama(BASE, control=False), 0
    for ids in shard.texts:
        n = len(ids)
        assert n <= 40 and list(shard.ids[at:at + n]) == ids and set(shard.ends[at:at + n]) == {at + n}
        expected = model.tree(torch.tensor([ids]), torch.arange(n)[None], torch.ones(1, n, n, dtype=torch.bool).tril())
        found = torch.from_numpy(rows[at:at + n].astype(np.float32))
        assert (found - expected[0]).norm() < 0.05 * expected.norm()  # the engine multiplies 8-bit integers
        best = model.logits(found).softmax(-1).topk(states.TOP)
        assert (torch.from_numpy(chances[at:at + n].astype(np.float32)) - best.values).abs().max() < 2e-3
        assert (torch.from_numpy(tops[at:at + n].copy())[:, 0] == best.indices[:, 0]).float().mean() > 0.9
        at += n
    assert at == len(shard.ids) == len(rows)


def test_batches_follow_the_text(folder, programs):
    """Head H sees token t + 1 + H and is to say token t + 2 + H of the same text, knowing the base's row there."""
    base = states.Base(BASE, programs)
    shards = [states.Shard(base, p, 0.2, 256) for p in sorted(glob.glob(folder + "/answers/*.jsonl"))]
    store = states.Store(os.path.join(folder, "work", "states"), base, 1 << 30, torch.float32)
    places = np.array([(s, t) for s, shard in enumerate(shards) for t in shard.places(0, 0)])
    places = np.random.default_rng(0).permutation(places)[:300]
    batch = states.Batch(store, shards, places, 3)
    for i, (s, t) in enumerate(places.tolist()):
        shard, (rows, tops, _) = shards[s], store.rows(shards[s])
        assert np.array_equal(batch.states[i].numpy(), rows[t].astype(np.float32))
        for head in range(3):
            known = t + 2 + head < shard.ends[t]
            assert bool(batch.known[head, i]) == known
            if known:
                assert batch.tokens[head, i] == shard.ids[t + 1 + head]
                assert batch.targets[head, i] == shard.ids[t + 2 + head]
                assert np.array_equal(batch.tops[head, i].numpy(), tops[t + 1 + head])
            assert known == bool(batch.chances[head, i].sum() > 0)


def test_marks_say_what_is_for_training(folder, programs):
    """Only states at which the base chose what comes next are WRITTEN; held-out texts are the same in every file."""
    path, base = os.path.join(folder, "marks.jsonl"), states.Base(BASE, programs)
    with open(path, "w") as file:
        for line in ({"ids": [1, 5, 6, 7, 8], "tokens": 3}, {"tokens": [1, 9, 9]}, {"text": "Once upon a time"}):
            file.write(json.dumps(line) + "\n")
    shard, all_out = states.Shard(base, path, 0, 100), states.Shard(base, path, 1, 100)
    assert list(shard.marks) == [0, 1, 1, 1, 1] + [0] * (len(shard.ids) - 5)
    assert list(shard.places(states.WRITTEN, states.WRITTEN)) == [1, 2] and list(shard.places(0, 0))[:4] == [0, 1, 2, 5]
    assert len(shard.texts[2]) > 3 and (all_out.marks & states.HELD_OUT == states.HELD_OUT).all()


def test_loss_is_cross_entropy_and_what_is_rejected():
    """Loss and gradients of Goal are those that PyTorch finds."""
    torch.manual_seed(0)
    z, head = torch.randn(300, 16, requires_grad=True), torch.randn(50, 16, requires_grad=True)
    ids, chances = torch.stack([torch.randperm(50)[:4] for _ in range(300)]), torch.rand(300, 4)
    for rejected in 0.0, 3.0:
        logs = F.log_softmax(z @ head.T, -1).gather(1, ids)
        expected = (rejected * (chances - torch.minimum(chances, logs.exp())) - logs * chances).sum()
        wanted = torch.autograd.grad(expected, (z, head))
        found = training.Goal.apply(z, head, ids, chances, rejected)
        gradients = torch.autograd.grad(found, (z, head))
        assert abs(float(found) / float(expected) - 1) < 1e-5
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(gradients, wanted))


@torch.no_grad()
def test_heads_begin_as_a_linear_guess(folder, programs):
    """Untrained heads are exactly a linear map of state and token, up to its length; with all numbers kept nothing is
    lost for the logits; the guess is right more often than the most frequent token."""
    torch.manual_seed(3)
    trainer = training.prepare(options(folder, programs, inner=64))
    heads, batch = trainer.heads, trainer.judges[0]
    logits = next(heads.logits(batch.states, batch.tokens))
    u = heads.linear(heads.norm(batch.states) / 2 ** 0.5, heads.part("proj", "weight", 0)[:32])
    u = u + heads.token_weight / heads.state_weight * heads.part("emb", "weight", 0)[batch.tokens[0], :32]
    assert torch.allclose(logits, heads.norm(u) @ heads.part("head", "weight", 0)[:, :32].T, atol=1e-3)
    x = torch.randn(500, 24)
    second, output, weights = x.T @ x / 500, torch.randn(90, 24), torch.rand(90)
    code, decode = linear.reduced(second, output, weights / weights.sum(), 24)
    assert torch.allclose(decode @ code, torch.eye(24), atol=1e-3)
    less = [((x - x @ c.T @ d.T) @ output.T).pow(2).sum() for c, d in
            (linear.reduced(second, output, torch.ones(90) / 90, rank) for rank in (4, 12, 20))]
    assert less[0] > less[1] > less[2]
    assert torch.allclose(linear.solved(torch.eye(4) * 100, torch.ones(4, 2)), torch.full((4, 2), 1 / 102), atol=1e-4)
    assert training.judged(heads, trainer.judges)[0, 0] > 0.2


def test_training_teaches_and_files_say_the_same(folder, programs):
    """Loss falls, held-out accuracy rises; the file gives the logits of the heads; a short vocabulary is the texts'
    most frequent tokens; the figure has a line for each head."""
    for others in ({}, {"draft_vocab": 512, "untied": True, "heads": 2}, {"type": "mixed", "heads": 1}):
        given = options(folder, programs, **others)
        trainer = training.prepare(given)
        before, losses = training.judged(trainer.heads, trainer.judges), trainer.learn()
        trainer.run()
        after = training.judged(trainer.heads, trainer.judges)
        trainer.judge(trainer.learn())
        assert trainer.curve[-1]["losses"][0] < losses[0] - 0.3, (losses, trainer.curve[-1])
        assert after[0, 0] > before[0, 0] + 0.03, (before, after)
        training.finish(trainer)
        os.remove(trainer.path)
        file, batch = gguf.Reader(given.out), trainer.judges[0]
        expected = torch.stack(list(trainer.heads.logits(batch.states, batch.tokens))).detach().numpy()
        found = speculator.mlp_forward(file, batch.states.numpy(), batch.tokens.numpy())
        close = 1e-4 if given.type == "F32" else 0.2
        assert np.abs(found - expected).max() < close * np.abs(expected).max()
        assert set(file.tensors) == set(trainer.heads.layout.tensors)
        kinds = {part: file.tensors.type(speculator.mlp_name(part, "weight", 0, not given.untied))
                 for part in ("emb", "head", "proj", "ln")}
        assert kinds == {p: "F32" if given.type == "F32" or p == "ln" else "Q4_0" if p == "emb" else "Q8_0"
                         for p in kinds}
        assert trainer.heads.layout.tensors[speculator.mlp_name("head", "weight", 0, not given.untied)][0] == \
            (given.draft_vocab or 4096)
        if given.draft_vocab:
            tokens = file.tensors[speculator.TOKENS]
            assert (np.diff(tokens) > 0).all() and len(tokens) == 512
            missing = [t for s in trainer.shards for ids in s.texts for t in ids if t not in set(tokens.tolist())]
            assert len(missing) < 0.1 * sum(len(s.ids) for s in trainer.shards)
    drawn = os.path.join(folder, "figure.svg")
    curve = [dict(entry, losses=entry["losses"] * 9, accuracy=entry["accuracy"] * 9) for entry in trainer.curve * 2]
    figure.draw(drawn, curve, "this & that")
    assert len(xml.dom.minidom.parse(drawn).getElementsByTagName("polyline")) == 18


def test_training_goes_on_where_it_stopped(folder, programs):
    """Stopped and resumed, weights and short vocabulary are those of a run that was not."""
    trainer = check_resuming(lambda: training.prepare(options(folder, programs, steps=20, draft_vocab=600)))
    kept = trainer.heads.tokens
    trainer.heads.stand_for(np.arange(600))  # texts that came later
    trainer.restore()
    assert np.array_equal(trainer.heads.tokens, kept) and int(trainer.heads.row[int(kept[-1])]) == 599
    os.remove(trainer.path)


def test_training_begins_with_a_file(folder, programs):
    """Heads that begin with a file say what it says; another shape is refused by name."""
    begin = os.path.join(folder, "begin.gguf")
    trainer = training.prepare(options(folder, programs, steps=20, draft_vocab=600, out=begin))
    trainer.run()
    training.finish(trainer)
    taught = training.judged(trainer.heads, trainer.judges)
    again = training.prepare(options(folder, programs, draft_vocab=600, begin=begin, seed=2))
    assert np.array_equal(again.heads.tokens, trainer.heads.tokens)
    assert torch.equal(training.judged(again.heads, trainer.judges), taught)
    said = refusal(lambda: training.prepare(options(folder, programs, draft_vocab=600, begin=begin, inner=64)))
    assert "emb" in said and "(4096, 32), not (4096, 64)" in said, said


def test_checkpoints_are_of_one_training(folder, programs):
    """A checkpoint holds nothing but what PyTorch loads by itself (weights_only). Another training that finds it
    is refused and says why; the same one that is done learns nothing more."""
    given = options(folder, programs, steps=2, draft_vocab=600)
    trainer = training.prepare(given)
    trainer.run()
    with zipfile.ZipFile(trainer.path) as file:
        operations = pickletools.genops(file.read(next(n for n in file.namelist() if n.endswith("data.pkl"))))
    code = {argument for operation, argument, _ in operations if "GLOBAL" in operation.name}
    assert code <= {"torch IntStorage", "torch FloatStorage", "torch._utils _rebuild_tensor_v2",
                    "collections OrderedDict"}, code
    assert np.array_equal(torch.load(trainer.path)["tokens"], trainer.heads.tokens)
    before = copy.deepcopy(trainer.heads.state_dict())
    again = training.prepare(given)
    again.run()
    assert all(torch.equal(weight, before[name]) for name, weight in again.heads.state_dict().items())
    elsewhere = os.path.join(folder, "elsewhere", "heads.gguf")
    for others, words in (({"seed": 2}, "--seed was 1, is 2"), ({"out": elsewhere}, "OUT was " + given.out),
                          ({"inner": 64}, "speculator.emb.weight was 4096 x 32, is 4096 x 64"),
                          ({"held_out": 0.1}, "--held-out was 0.2"), ({"begin": BASE}, "--begin was none")):
        said = refusal(lambda: training.prepare(types.SimpleNamespace(**dict(vars(given), **others))))
        assert words in said and "to begin anew, delete it" in said, said
    os.remove(trainer.path)


def test_few_texts(folder, programs):
    """Of two texts one is held out, whichever was written by the base; of one or none nothing is learned."""
    path = os.path.join(folder, "few-texts.jsonl")
    lines = [json.dumps({"ids": list(range(5, 25)), "tokens": 9}), json.dumps({"ids": list(range(40, 70))}), ""]
    for kept in lines[:2], lines[1:], lines[2:]:
        with open(path, "w") as file:
            file.write("\n".join(kept))
        given = options(folder, programs, answers=[], text=[path], held_out=0.0, rows=8, steps=2)
        if len(kept) == 2 and all(kept):
            trainer = training.prepare(given)
            assert len(trainer.judges[0].states) and len(np.unique(trainer.shards[0].marks & states.HELD_OUT)) == 2
            trainer.run()
            os.remove(trainer.path)
        else:
            said = refusal(lambda: training.prepare(given))
            assert ("no texts of 3 tokens" if kept == [""] else "(1 in all)") in said, said


def test_the_store_keeps_its_limit(folder, programs):
    """States that do not fit are made again when they are needed, and are the same."""
    base, place = states.Base(BASE, programs), os.path.join(folder, "small")
    shards = [states.Shard(base, p, 0.2, 256) for p in sorted(glob.glob(folder + "/answers/*.jsonl"))]
    whole = states.Store(os.path.join(folder, "work", "states"), base, 1 << 30, torch.float32)
    limit = max(map(whole.bytes, shards)) * 2 + 4096
    small = states.Store(place, base, limit, torch.float32)
    assert len(list(small.groups(shards))) == 2
    for _ in range(2):
        for shard in shards:
            assert all(np.array_equal(a, b) for a, b in zip(small.rows(shard), whole.rows(shard)))
            kept = glob.glob(place + "/*/*")
            assert sum(map(os.path.getsize, kept)) <= limit and len(kept) <= 6
    order = training.Order(small, shards, 0, 64, 1)
    seen = np.concatenate([order.places(i) for i in range(order.steps)])
    assert len(np.unique(seen, axis=0)) == len(seen) > 64


def test_other_types_of_bases(programs):
    """A base whose matrices gguf.py does not read is rewritten first."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "k.gguf")
        rng = np.random.default_rng(0)
        meta = {"general.architecture": (gguf.STRING, "llama"), "llama.embedding_length": (gguf.U32, 256)}
        gguf.write(path, meta, {"token_embd.weight": rng.standard_normal((96, 256))})
        small = path.replace("k.", "q4.")
        subprocess.run([os.path.join(programs, "specdec-quantize"), path, small, "Q4_K_M"], check=True,
                       capture_output=True)
        base, plain = states.Base(small, programs), states.Base(path, programs)
        assert base.vocabulary == 96
        error = base.matrix("token_embd.weight") - plain.matrix("token_embd.weight")
        assert 0 < error.pow(2).mean().sqrt() < 0.1


def test_trees():
    """Tokens a step: a chain of certain heads, a fork where the second child is as good, the limit of nodes."""
    assert judge_heads.tokens_a_step([[1, 0], [1, 0]], 8) == (3, 2)
    assert judge_heads.tokens_a_step([[0.5, 0.5], [0.5, 0.5]], 3) == (2, 1)
    assert judge_heads.tokens_a_step([[0.5, 0.25], [0.5, 0.25]], 4)[0] == 1 + 0.5 + 0.25 + 0.25
    assert judge_heads.tokens_a_step([[0.9, 0.05]], 1) == (1, 0)


def main():
    programs = sys.argv[1] if len(sys.argv) > 1 else "build"
    torch.set_num_threads(1)
    test_loss_is_cross_entropy_and_what_is_rejected()
    test_trees()
    test_kinds_are_mixed()
    test_other_types_of_bases(programs)
    with tempfile.TemporaryDirectory() as folder:
        test_answers_are_written_once(folder, programs)
        test_failures_are_no_answers(folder, programs)
        test_states_are_those_of_the_model(folder, programs)
        test_batches_follow_the_text(folder, programs)
        test_marks_say_what_is_for_training(folder, programs)
        test_heads_begin_as_a_linear_guess(folder, programs)
        test_training_teaches_and_files_say_the_same(folder, programs)
        test_training_goes_on_where_it_stopped(folder, programs)
        test_training_begins_with_a_file(folder, programs)
        test_checkpoints_are_of_one_training(folder, programs)
        test_few_texts(folder, programs)
        test_the_store_keeps_its_limit(folder, programs)
    print("test_heads.py: right")


if __name__ == "__main__":
    main()
