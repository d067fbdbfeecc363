"""Teaches a model to fork, from records (records.py).

    train.py MODEL.gguf OUT.gguf --data FILE.jsonl [--data ...] [--judge FILE.jsonl ...] [--steps N] [--rate F]
             [--tokens N] [--seed N] [--checkpoint FILE]

Every record is one tree of tokens under one attention mask: a token sees its own path and nothing else, places are
path length - 1, so shared tokens are computed once and each path is what the engine will see. Cross-entropy on all
tokens of the answer but [Child], weighted as records.py says. AdamW, warm-up, then a cosine down to a twentieth. Loss
on the judge files is printed before and after. The state is kept in the checkpoint once a minute; the same command
goes on from there."""
import argparse
import math
import os
import random
import time

import torch
import torch.nn.functional as F

import records
from model import Llama


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    parser.add_argument("--data", action="append", required=True)
    parser.add_argument("--judge", action="append", default=[])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--tokens", type=int, default=4096, help="of a step, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint")
    parser.add_argument("--name", default="tiny-fork")
    return parser.parse_args()


def batches(trees, tokens):
    """Trees of like length together, at most so many tokens with their padding."""
    made, batch = [], []
    for tree in sorted(trees, key=lambda t: len(t.ids)):
        if batch and len(tree.ids) * (len(batch) + 1) > tokens:
            made.append(batch)
            batch = []
        batch.append(tree)
    return made + [batch]


def tensors(batch):
    """ids, places, targets, weights (trees, tokens) and what sees what (trees, tokens, tokens)."""
    length = max(len(t.ids) for t in batch)
    ids, places, targets = (torch.zeros(len(batch), length, dtype=torch.long) for _ in range(3))
    weights = torch.zeros(len(batch), length)
    sees = torch.zeros(len(batch), length, length, dtype=torch.bool)
    sees[:, range(length), range(length)] = True
    for b, tree in enumerate(batch):
        n = len(tree.ids)
        ids[b, :n], places[b, :n] = torch.tensor(tree.ids), torch.tensor(tree.places)
        targets[b, :n], weights[b, :n] = torch.tensor(tree.targets), torch.tensor(tree.weights)
        for i, before in enumerate(tree.before):
            if before >= 0:
                sees[b, i] |= sees[b, before]
    return ids, places, targets, weights, sees


def loss_of(model, batch):
    """Cross-entropy on every target of a batch, and their weights."""
    ids, places, targets, weights, sees = tensors(batch)
    wanted = weights > 0
    with torch.autocast("cpu", torch.bfloat16):
        logits = model.logits(model.tree(ids, places, sees)[wanted])
    return F.cross_entropy(logits.float(), targets[wanted], reduction="none"), weights[wanted]


@torch.no_grad()
def judged(model, files, tokens):
    """Mean loss a token on each of the files."""
    results = []
    for path in files:
        trees = [records.Tree(model.vocabulary, r) for r in records.read(path)]
        losses = torch.cat([loss_of(model, batch)[0] for batch in batches(trees, tokens)])
        results.append("%s %.4f" % (os.path.basename(path), losses.mean()))
    return ", ".join(results)


def rate_at(step, given):
    """Learning rate of a step."""
    done = step / given.steps
    return given.rate * min(1, (step + 1) / 50) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def batch_at(step, made, seed):
    """The batch of a step: every epoch in an order of its own, known from seed and step alone."""
    epoch, place = divmod(step, len(made))
    order = list(range(len(made)))
    random.Random(seed * 1000003 + epoch).shuffle(order)
    return made[order[place]]


def main():
    given = options()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    model = Llama(given.model)
    made = batches([records.Tree(model.vocabulary, r) for path in given.data for r in records.read(path)], given.tokens)
    adam = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    step, began, saved = 0, time.time(), time.time()
    if given.checkpoint and os.path.exists(given.checkpoint):
        state = torch.load(given.checkpoint)
        model.load_state_dict(state["model"]), adam.load_state_dict(state["adam"])
        step = state["step"]
    first = step
    print("%d batches an epoch; step %d; loss %s" % (len(made), step, judged(model, given.judge, given.tokens)),
          flush=True)
    while step < given.steps:
        for group in adam.param_groups:
            group["lr"] = rate_at(step, given)
        losses, weights = loss_of(model, batch_at(step, made, given.seed))
        loss = (losses * weights).sum() / weights.sum()
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        step += 1
        if step % 20 == 0:
            print("step %d loss %.4f, %.2f s a step" % (step, float(loss), (time.time() - began) / (step - first)),
                  flush=True)
        if given.checkpoint and (time.time() - saved > 60 or step == given.steps):
            state = {"model": model.state_dict(), "adam": adam.state_dict(), "step": step}
            torch.save(state, given.checkpoint + ".part")
            os.replace(given.checkpoint + ".part", given.checkpoint)
            saved = time.time()
    print("step %d; loss %s" % (step, judged(model, given.judge, given.tokens)))
    model.save(given.out, given.name)


if __name__ == "__main__":
    main()
