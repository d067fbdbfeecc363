"""Checks the promises of these scripts, from the repository's root: test.py [FOLDER OF THE PROGRAMS]. Needs PyTorch."""
import os
import random
import subprocess
import sys
import tempfile

import torch

import extract
import gguf
import records
import stories
from model import Llama, Streams
from train import tensors

MODEL = "examples/models/tiny-stories-target-q8_0.gguf"


def examples(count):
    rng = random.Random(5)
    return [stories.record(rng) for _ in range(count)]


def test_records_keep_the_rules(model):
    """No record breaks a rule; [Child] is nobody's target; a path is the text of its streams."""
    for record in examples(500):
        assert not records.broken_rule(record["answer"]), record
        tree = records.Tree(model.vocabulary, record)
        assert model.vocabulary.child not in tree.targets
        forks = records.forks(record["answer"])
        assert tree.ids.count(model.vocabulary.fork) == tree.ids.count(model.vocabulary.child) == forks
        whole = model.vocabulary.decode(tree.ids)
        assert whole == " " + record["prompt"] + records.restored(record["answer"]), whole


def test_same_tokens_as_the_engine(model, programs):
    """Prompts become the tokens that specdec-tokens finds, control tokens in them those that --special finds."""
    texts = [r["prompt"] + records.restored(r["answer"]) for r in examples(20)]
    for text in texts + [" two  spaces", "\u00e4 \u2603\n\n1."]:
        found = subprocess.run([os.path.join(programs, "specdec-tokens"), "-m", MODEL, "-p", text], check=True,
                               capture_output=True, text=True).stdout.split()
        assert list(map(int, found)) == model.vocabulary.encode(text, prompt=True), text
    for text in "", "<s>a", "</s>", "Tell a story.</s>\n b":
        found = subprocess.run([os.path.join(programs, "specdec-tokens"), "-m", MODEL, "--special", "-p", text],
                               check=True, capture_output=True, text=True).stdout.split()
        assert list(map(int, found)) == model.vocabulary.encode(text, prompt=True), text


def test_blank_lines_are_skipped():
    """Records and answers may have blank lines between them."""
    with tempfile.TemporaryDirectory() as folder:
        lines, out = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
        with open(lines, "w") as file:
            file.write('\n{"prompt": "a", "answer": "b"}\n \n')
        extract_ = os.path.join(os.path.dirname(os.path.abspath(__file__)), "extract.py")
        subprocess.run([sys.executable, extract_, lines, out, "--plain", "1"], check=True, capture_output=True)
        assert len(records.read(lines)) == len(records.read(out)) == 1


@torch.no_grad()
def test_paths_of_a_tree_are_plain_texts(model):
    """States of a tree, under its mask, are those of each path alone."""
    trees = [records.Tree(model.vocabulary, r) for r in examples(6)]
    ids, places, _, _, sees = tensors(trees)
    states = model.tree(ids, places, sees)
    for b, tree in enumerate(trees):
        for path in tree.paths():
            n = len(path)
            alone = model.tree(ids[b, path][None], torch.arange(n)[None], torch.ones(1, n, n, dtype=torch.bool).tril())
            assert (alone[0] - states[b, path]).abs().max() < 1e-3


def test_forked_streams_are_plain_texts(model):
    """A forked row goes on as if it had read everything itself."""
    tree = records.Tree(model.vocabulary, examples(1)[0])
    first, second = list(tree.paths())[:2]
    shared = next(i for i, (a, b) in enumerate(zip(first, second)) if a != b)
    streams = Streams(model)
    streams.open()
    for i in first[:shared]:
        streams.step([tree.ids[i]])
    streams.open(copy_of=0)
    for a, b in zip(first[shared:], second[shared:]):
        logits = streams.step([tree.ids[a], tree.ids[b]])
    alone = Streams(model)
    alone.open()
    for i in second[:shared + min(len(first), len(second)) - shared]:
        expected = alone.step([tree.ids[i]])
    assert (logits[1] - expected[0]).abs().max() < 1e-3


def test_files_are_read_back(model, programs):
    """A saved model is the same again, has both control tokens once, and loads in the engine."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "saved.gguf")
        model.save(path, "saved")
        again, file = Llama(path), gguf.Reader(path)
        assert file["tokenizer.ggml.token_type"][1][-2:] == [3, 3]
        assert again.vocabulary.tokens == model.vocabulary.tokens
        assert all(torch.equal(again.tensor(n), model.tensor(n)) for n in model.names)
        subprocess.run([os.path.join(programs, "specdec-info"), "-m", path], check=True, capture_output=True)


def main():
    programs = sys.argv[1] if len(sys.argv) > 1 else "build"
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Llama(MODEL)
    extract.self_test()
    test_records_keep_the_rules(model)
    test_same_tokens_as_the_engine(model, programs)
    test_blank_lines_are_skipped()
    test_paths_of_a_tree_are_plain_texts(model)
    test_forked_streams_are_plain_texts(model)
    test_files_are_read_back(model, programs)
    print("test.py: right")


if __name__ == "__main__":
    main()
