"""Judges a file of heads, or an EAGLE-3 draft, on texts that its base wrote: how often the next token is among a
head's best, and how many tokens a step that promises.

    judge_heads.py HEADS.gguf BASE.gguf --answers PATH [--answers ...] [--held-out F] [--nodes 8,16] [--places N]

Reads the same texts as heads.py, and of those the held-out ones (--held-out 1: all). A line of the table is a head,
or one of the guesses that a draft makes in a row; the tokens before it are those of the text. Tokens a step: of the
best tree of so many nodes, the root included, if what is right at one head says nothing about the next; the last token
comes from the base."""
import argparse
import heapq
import os

import torch

import eagle
import heads as training
import states

RANKS = tuple(range(1, 17))


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heads")
    parser.add_argument("base")
    parser.add_argument("--answers", action="append", required=True)
    parser.add_argument("--held-out", type=float, default=0.01)
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--nodes", default="2,4,8,16")
    parser.add_argument("--places", type=int, default=0, help="at most; of a draft: texts; 8192 and 320, if not given")
    parser.add_argument("--guesses", type=int, default=5, help="of a draft")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--programs", default="build")
    parser.add_argument("--work", default="build/heads")
    parser.add_argument("--cache", type=float, default=8000)
    return parser.parse_args()


def tokens_a_step(chances, nodes):
    """Tokens that the best tree of so many nodes yields, and its levels. chances[h][r]: that a node's child of rank r
    on level h + 1 is right, its parent being right."""
    total, deepest = 0.0, 0
    waiting = [(-1.0, 0, 0, -1.0)]  # less the chance of a path; levels; rank of its last node; less its parent's chance
    while nodes and waiting:
        less, level, rank, parent = heapq.heappop(waiting)
        total, nodes, deepest = total - less, nodes - 1, max(deepest, level)
        if level < len(chances):
            heapq.heappush(waiting, (less * chances[level][0], level + 1, 0, less))
        if level and rank + 1 < len(chances[0]):
            heapq.heappush(waiting, (parent * chances[level - 1][rank + 1], level, rank + 1, parent))
    return total, deepest


def main():
    given = options()
    torch.set_num_threads(given.threads)
    numbers = states.faster_numbers()
    layers = eagle.layers_of_file(given.heads)
    base = states.Base(given.base, given.programs, given.threads, layers)
    heads = eagle.load(given.heads, base, given.guesses, numbers) if layers else training.load(given.heads, numbers)
    shards = states.read_shards(base, given.answers, given.held_out, given.longest)
    store = states.Store(os.path.join(given.work, "states"), base, int(given.cache * 1e6), numbers)
    batches = training.held_out(store, shards, heads, most=given.places or 2 * heads.judged_most)
    accuracy = training.judged(heads, batches, RANKS)
    print("| head | best 1 | 2 | 4 | 8 | 16 |\n|---:|---:|---:|---:|---:|---:|")
    for i, row in enumerate(accuracy.tolist()):
        print("| %d | %s |" % (i + 1, " | ".join("%.3f" % row[r - 1] for r in (1, 2, 4, 8, 16))))
    chances = [[row[0]] + [b - a for a, b in zip(row, row[1:])] for row in accuracy.tolist()]
    print("%d places; tokens a step: " % sum(b.known.shape[1] for b in batches) + ", ".join(
        "%.2f of %s nodes (%d levels)" % (tokens_a_step(chances, int(n))[0], n, tokens_a_step(chances, int(n))[1])
        for n in given.nodes.split(",")))


if __name__ == "__main__":
    main()
