"""Trains heads on the states of any model that specdec runs, and writes them as a GGUF file.

    heads.py BASE.gguf OUT.gguf --answers PATH [--answers ...] [--text PATH ...] [--heads N] [--inner N] [--untied]
             [--draft-vocab N] [--seconds S | --steps N] [--type mixed|Q8_0|Q4_0|F16|F32] [--work FOLDER]
             [--figure FILE.svg]

What is learned: from the state at which the base chose a token, and that token, the next one; then the one behind it,
and so on (an MLP speculator: speculator.py). --answers are texts that the base wrote (many --ids, or a folder of
answers.py), --text are any texts; a PATH is a file of lines or a folder of such files, see states.py. The first stage
learns from every token of all texts, the second one from what the base wrote itself. The goal is the base's own
distribution at the places where the text goes on, as far as its 32 most probable tokens tell.

Everything on the way is kept in --work: the states (--cache megabytes of them at most), and a checkpoint from which
the same command goes on; another command that finds it is refused. One text in a hundred is held out, but at least
one; accuracy on those is printed and drawn."""
import argparse
import copy
import json
import math
import os
import pickle
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import figure
import gguf
import linear
import speculator
import states

AT_ONCE = 256       # rows of logits that are worked on together: they stay in the processor's cache
RANKS = (1, 2, 4, 8)
NUMBERS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "mixed": 7}


def parser_of(description):
    """The flags that all kinds of drafts have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("out")
    parser.add_argument("--answers", action="append", default=[])
    parser.add_argument("--text", action="append", default=[])
    parser.add_argument("--draft-vocab", type=int, default=0, help="the heads know the most frequent N tokens only")
    parser.add_argument("--begin", help="a file of the same shape, whose weights and short vocabulary are the beginning")
    parser.add_argument("--count", action="append", default=[], help="more texts to count tokens in")
    parser.add_argument("--type", choices=sorted(FILE_TYPES), default="mixed",
                        help="mixed: embeddings in Q4_0, which costs no accuracy, other matrices in Q8_0")
    parser.add_argument("--seconds", type=float, default=600, help="of training, states not counted")
    parser.add_argument("--steps", type=int, default=0, help="instead of --seconds")
    parser.add_argument("--first", type=float, default=0.25,
                        help="share of the first stage; with none, and no --text, states are made faster")
    parser.add_argument("--rows", type=int, default=512, help="places a step")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--temp", type=float, default=1.0, help="at which the base's distribution is the goal")
    parser.add_argument("--rejected", type=float, default=0.0,
                        help="weight of what verification rejects, beside the cross-entropy; for the last steps")
    parser.add_argument("--held-out", type=float, default=0.01)
    parser.add_argument("--longest", type=int, default=1024, help="tokens of a text that are used")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--numbers", choices=["auto"] + sorted(NUMBERS), default="auto")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--programs", default="build")
    parser.add_argument("--work", default="build/heads")
    parser.add_argument("--cache", type=float, default=8000, help="megabytes of states")
    parser.add_argument("--pause", default="", help="stand still while this file exists")
    parser.add_argument("--figure")
    parser.add_argument("--name")
    return parser


def heads_parser_of(description):
    """The flags that all drafts have that read states."""
    parser = parser_of(description)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--slow", type=float, default=1.0, help="rate of the embeddings, in --rate; less for few texts")
    parser.add_argument("--noise", type=float, default=0.0, help="added to states, in their length; for few texts")
    return parser


def options():
    parser = heads_parser_of(__doc__)
    parser.add_argument("--inner", type=int, default=256)
    parser.add_argument("--untied", action="store_true")
    return parser.parse_args()


class Goal(torch.autograd.Function):
    """Cross-entropy of rows of logits, z (n, k) times head (rows, k), against probabilities p (n, TOP) of the rows ids
    (n, TOP); and `rejected` times what verification rejects of the draft's own q, which is what min(p, q) lacks of p (the
    total variation distance of Zhou et al. 2024). Summed over n. Logits are never kept: gradients are computed at once."""

    @staticmethod
    def forward(ctx, z, head, ids, chances, rejected=0.0):
        loss, z_grad, head_grad = 0.0, torch.empty_like(z), torch.zeros(head.shape)
        for at in range(0, len(z), AT_ONCE):
            here = slice(at, at + AT_ONCE)
            x = (z[here] @ head.T).float()
            peak, given = x.amax(1, keepdim=True), x.gather(1, ids[here])
            x.sub_(peak).exp_()
            p, total = chances[here], x.sum(1, keepdim=True)
            q = x.div_(total).gather(1, ids[here])
            less = q * (q < p)  # more of these would be accepted
            loss += float(((peak + total.log() - given) * p + rejected * (p - torch.minimum(p, q))).sum())
            x.mul_(p.sum(1, keepdim=True) + rejected * less.sum(1, keepdim=True))
            x.scatter_add_(1, ids[here], -p - rejected * less)
            x = x.to(z.dtype)
            z_grad[here] = x @ head
            head_grad += x.T @ z[here]
        ctx.save_for_backward(z_grad, head_grad)
        return torch.tensor(loss)

    @staticmethod
    def backward(ctx, scale):
        z_grad, head_grad = ctx.saved_tensors
        return z_grad * scale, head_grad * scale, None, None, None


class Drafts(nn.Module):
    """What is trained here: it guesses tokens one behind the other. Parameters have their names in the file with _ for
    every dot. heads: how many tokens; tokens: ids that rows of the head matrices stand for; None: all.

    Kinds of it say what they learn from, units(shard, mark, value) and batch(store, shards, places, mark), and what
    their head matrices are multiplied with, guesses(batch)."""

    ids_name = speculator.TOKENS    # the tensor with the ids that rows stand for
    sparse = ("emb",)               # in names of matrices of which a step meets few rows
    rough = ("emb",)                # in names of matrices that --type mixed writes as Q4_0
    output = None                   # the matrix that logits come from, where it may be an embedding, too
    unit, judged_most, judged_at_once = "places", 4096, 256

    def __init__(self, layout, heads, vocabulary, tokens, numbers):
        super().__init__()
        self.layout, self.heads, self.vocabulary, self.numbers = layout, heads, vocabulary, numbers
        for name, shape in layout.tensors.items():
            if name != self.ids_name:
                weight = torch.randn(shape) * shape[-1] ** -0.5 if len(shape) > 1 else torch.ones(shape)
                self.register_parameter(name.replace(".", "_"), nn.Parameter(weight))
        self.stand_for(tokens)

    def stand_for(self, tokens):
        """Says which tokens rows of the head matrices stand for: ascending ids; None: all."""
        self.tokens = tokens
        self.row = torch.full((self.vocabulary,), -1, dtype=torch.long)
        kept = torch.arange(self.vocabulary) if tokens is None else torch.from_numpy(tokens.astype(np.int64))
        self.row[kept] = torch.arange(len(kept))

    def tensor(self, name):
        return getattr(self, name.replace(".", "_"))

    def norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    def linear(self, x, matrix):
        return F.linear(x.to(self.numbers), matrix.to(self.numbers)).float()

    def said(self, batch):
        """Logits of every head, (heads, n, rows)."""
        for inner, matrix in self.guesses(batch):
            yield self.linear(inner, matrix)

    def losses(self, batch, sharpness, rejected=0.0):
        """Each head's Goal against the base's distribution, a place."""
        losses, heads = [], {}
        for i, (inner, matrix) in enumerate(self.guesses(batch)):
            if matrix not in heads:
                heads[matrix] = matrix.to(self.numbers)
            ids = self.row[batch.tops[i]]
            chances = batch.chances[i] ** sharpness
            chances = chances / chances.sum(1, keepdim=True).clamp_min(1e-9) * (ids >= 0)
            known = max(1, int(batch.known[i].sum()))
            goal = Goal.apply(inner.to(self.numbers), heads[matrix], ids.clamp_min(0), chances, rejected)
            losses.append(goal / known)
        return losses

    def save(self, path, type_name, name):
        meta = dict(self.layout.meta)
        meta["general.name"] = (gguf.STRING, name)
        meta["general.file_type"] = (gguf.U32, FILE_TYPES[type_name])
        tensors = {n: self.tensor(n).detach().numpy() for n in self.layout.tensors if n != self.ids_name}
        if self.tokens is not None:
            tensors[self.ids_name] = self.tokens.astype(np.int32)
        mixed = lambda tensor: "Q4_0" if any(part in tensor for part in self.rough) and tensor != self.output else "Q8_0"
        gguf.write(path + ".part", meta, tensors, mixed if type_name == "mixed" else type_name)
        os.replace(path + ".part", path)

    @torch.no_grad()
    def take(self, path):
        """Takes over the weights and the short vocabulary of a file."""
        file = gguf.Reader(path)
        for name, shape in self.layout.tensors.items():
            if name not in file.tensors or tuple(file.tensors.shape(name)) != tuple(shape):
                raise SystemExit("%s: %s is %s, not %s" % (path, name, file.tensors.shape(name) if name in file.tensors
                                                           else "missing", tuple(shape)))
            if name != self.ids_name:
                self.tensor(name).copy_(torch.from_numpy(np.array(file.tensors[name])))
        self.stand_for(np.array(file.tensors[self.ids_name]) if self.ids_name in file.tensors else None)

    def load(self, path):
        """The same, with the weights and the short vocabulary of a file."""
        drafts = copy.deepcopy(self)
        drafts.take(path)
        return drafts


class Heads(Drafts):
    """An MLP speculator."""

    def __init__(self, layout, tokens=None, numbers=torch.float32):
        key = lambda name: layout.meta["%s.%s" % (speculator.MLP, name)][1]
        super().__init__(layout, key("n_predict"), key("vocab_size"), tokens, numbers)
        self.inner, self.tied, self.scaled = key("inner_length"), key("tie_weights"), key("scale_input")
        self.state_weight, self.token_weight = speculator.weights_of(self.inner, self.heads)
        for name in layout.tensors:
            if name.endswith("bias"):
                nn.init.zeros_(self.tensor(name))

    def part(self, part, kind, head):
        return self.tensor(speculator.mlp_name(part, kind, head, self.tied))

    @staticmethod
    def units(shard, mark, value):
        return shard.places(mark, value)

    def batch(self, store, shards, places, mark):
        return states.Batch(store, shards, places, self.heads)

    def begin(self, base, store, shards, counts):
        linear.begin(self, base, store, shards, counts)

    def inners(self, x, tokens):
        """What each head's matrix is multiplied with: (heads, n, inner). x: states; tokens: (heads, n)."""
        if self.scaled:
            x = self.norm(x) / math.sqrt(2)
        for i in range(self.heads):
            x = self.linear(x, self.part("proj", "weight", i))
            token = F.embedding(tokens[i], self.part("emb", "weight", i), sparse=True)
            x = x + self.token_weight / self.state_weight * token
            x = F.gelu(self.norm(x) * self.part("ln", "weight", i) + self.part("ln", "bias", i))
            yield x

    def logits(self, x, tokens):
        """Logits of every head, (heads, n, rows)."""
        for i, inner in enumerate(self.inners(x, tokens)):
            yield self.linear(inner, self.part("head", "weight", i))

    def guesses(self, batch):
        for i, inner in enumerate(self.inners(batch.states, batch.tokens)):
            yield inner, self.part("head", "weight", i)


def load(path, numbers=torch.float32):
    """Heads of a file."""
    file = gguf.Reader(path)
    tokens = np.array(file.tensors[speculator.TOKENS]) if speculator.TOKENS in file.tensors else None
    keys = [file["%s.%s" % (speculator.MLP, k)] for k in ("vocab_size", "embedding_length", "inner_length", "n_predict",
                                                         "tie_weights", "scale_input")]
    return Heads(speculator.mlp(*keys, rows=None if tokens is None else len(tokens)), tokens, numbers).load(path)


def counts_of(shards, vocabulary):
    """How often each token stands in texts for training; what the base wrote counts tenfold."""
    counts = np.zeros(vocabulary)
    for shard in shards:
        use = (shard.marks & states.HELD_OUT) == 0
        counts += np.bincount(shard.ids[use], minlength=vocabulary)
        written = use & (shard.marks & states.WRITTEN > 0)
        counts += 9 * np.bincount(shard.ids[written], minlength=vocabulary)
    return counts


def frequent(counts, count):
    """The most frequent tokens, ascending."""
    return np.sort(np.argsort(-counts, kind="stable")[:count]).astype(np.int32)


class Order:
    """Which places a step learns from: epochs over the groups of shards that fit into the store, in an order of their
    own; known from seed and number of the step alone. Two stages have two of these. units: see Drafts."""

    def __init__(self, store, shards, mark, rows, seed, units=Heads.units):
        number = {id(s): i for i, s in enumerate(shards)}
        self.groups, self.mark, self.seed, self.rows, self.epoch = [], mark, seed, rows, None
        for group in store.groups(shards):
            places = [units(s, mark | states.HELD_OUT, mark) for s in group]
            pairs = [np.stack((np.full(len(p), number[id(s)]), p), 1) for s, p in zip(group, places) if len(p)]
            if pairs:
                self.groups.append(np.concatenate(pairs).astype(np.int32))
        self.steps = max(1, sum(map(len, self.groups)) // rows)

    def places(self, step):
        epoch, at = divmod(step, self.steps)
        if epoch != self.epoch:
            rng = np.random.default_rng((self.seed, epoch))
            self.order = np.concatenate([rng.permutation(self.groups[g]) for g in rng.permutation(len(self.groups))])
            self.epoch = epoch
        return self.order[at * self.rows:(at + 1) * self.rows]


@torch.no_grad()
def judged(heads, batches, ranks=RANKS):
    """Of each head: how often the next token is among its best 1, 2, 4, 8. (heads, ranks)"""
    hits, count = torch.zeros(heads.heads, len(ranks)), torch.zeros(heads.heads, 1)
    for batch in batches:
        for i, logits in enumerate(heads.said(batch)):
            row = heads.row[batch.targets[i]]
            given = logits.gather(1, row.clamp_min(0)[:, None])
            rank = (logits > given).sum(1)
            rank[row < 0] = len(heads.row)
            for j, most in enumerate(ranks):
                hits[i, j] += ((rank < most) & batch.known[i]).sum()
            count[i] += batch.known[i].sum()
    return hits / count.clamp_min(1)


def held_out(store, shards, drafts, mark=states.WRITTEN, most=None, seed=0):
    """Batches of held-out places that the base wrote; when it wrote none of them, of any held-out places."""
    most, at_once = most or drafts.judged_most, drafts.judged_at_once
    own = any(len(s.places(mark | states.HELD_OUT, mark | states.HELD_OUT)) for s in shards)
    mark, pairs = mark if own else 0, []
    for number, shard in enumerate(shards):
        places = drafts.units(shard, mark | states.HELD_OUT, mark | states.HELD_OUT)
        pairs.append(np.stack((np.full(len(places), number), places), 1))
    pairs = np.concatenate(pairs)
    pairs = np.random.default_rng(seed).permutation(pairs)[:most]
    return [drafts.batch(store, shards, pairs[i:i + at_once], mark) for i in range(0, len(pairs), at_once)]


def accuracy_text(accuracy):
    """Accuracies of all heads in one line."""
    return "; ".join("%d: %s" % (i + 1, " ".join("%.3f" % a for a in row)) for i, row in enumerate(accuracy.tolist()))


def clip(parameters, most):
    """Scales gradients so that their norm is at most so much; those of embeddings are sparse."""
    values = []
    for p in parameters:
        if p.grad is not None and p.grad.is_sparse:
            p.grad = p.grad.coalesce()
        if p.grad is not None:
            values.append(p.grad._values() if p.grad.is_sparse else p.grad)
    norm = math.sqrt(sum(float(v.pow(2).sum()) for v in values))
    for value in values:
        value.mul_(min(1, most / (norm + 1e-12)))


def noisy(x, share, seed):
    """States and noise of so much of their length, so that a few texts are not learned by heart."""
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))
    return x + share * x.pow(2).mean(-1, keepdim=True).sqrt() * noise


def checkpoint_of(given):
    """Where the checkpoint of a training lies, or will lie."""
    return os.path.join(given.work, os.path.basename(given.out) + ".checkpoint")


def identity(given, heads, base):
    """What a training is known by, each in words: a checkpoint of another one is not gone on with. How long it takes
    and how it learns may change on the way, and texts may be added to the files."""
    place = lambda path: os.path.abspath(path) if path else "none"
    words = {"kind": type(heads).__name__, "OUT": place(given.out),
             "base": "%s of %d bytes (%.8s)" % (os.path.basename(base.path), os.path.getsize(base.path), base.key),
             "layers": ",".join(map(str, base.layers)), "--heads": heads.heads, "--begin": place(given.begin),
             "--from": place(getattr(given, "draft", None)), "--rounded": getattr(given, "rounded", False),
             "--rate": given.rate, "--seed": given.seed, "--held-out": given.held_out, "--longest": given.longest,
             "--answers": " ".join(map(place, given.answers)), "--text": " ".join(map(place, given.text))}
    words.update((name, " x ".join(map(str, shape))) for name, shape in heads.layout.tensors.items())
    return {name: str(word) for name, word in words.items()}


def checkpoint(path, wanted):
    """What a checkpoint holds; None: there is none. One of another training is refused."""
    if not os.path.exists(path):
        return None
    try:
        kept = torch.load(path)
        was = kept["identity"]
    except (pickle.UnpicklingError, KeyError):  # newer versions of PyTorch do not load what older ones of this wrote
        raise SystemExit("%s does not say what it is of, an older version wrote it: to begin anew, delete it" % path)
    others = ["%s was %s, is %s" % (name, was.get(name, "not there") or "none", wanted.get(name, "not there") or "none")
              for name in dict(was, **wanted) if was.get(name) != wanted.get(name)]
    if others:
        more = "; and %d more" % (len(others) - 4) if len(others) > 4 else ""
        raise SystemExit("%s is of another training: %s%s. To go on with it, say what was said then; to begin anew, "
                         "delete it or name another folder (--work)" % (path, "; ".join(others[:4]), more))
    return kept


class Trainer:
    """Heads, their optimiser, how far they are, and what was seen on the way."""

    def __init__(self, given, heads, store, shards):
        self.given, self.heads, self.store, self.shards = given, heads, store, shards
        few = [p for n, p in heads.named_parameters() if any(part in n for part in heads.sparse)]
        others = [p for n, p in heads.named_parameters() if not any(part in n for part in heads.sparse)]
        self.adams = [torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=given.decay)]
        self.adams += [torch.optim.SparseAdam(few, betas=(0.9, 0.95))] if few else []
        self.step, self.seconds, self.curve = 0, 0.0, []
        own = any(len(s.places(states.WRITTEN | states.HELD_OUT, states.WRITTEN)) for s in shards)
        stages = (0, states.WRITTEN) if own else (0, 0)
        self.orders = [Order(store, shards, mark, given.rows, given.seed + i, heads.units)
                       for i, mark in enumerate(stages)]
        self.judges = held_out(store, shards, heads)
        self.path, self.identity = checkpoint_of(given), identity(given, heads, store.base)

    def done(self):
        """How much of the training is behind us, 0 to 1."""
        return min(1, self.step / self.given.steps if self.given.steps else self.seconds / self.given.seconds)

    def learn(self):
        """One step. Returns the losses of the heads."""
        began, done = time.time() - self.store.making, self.done()
        stage = self.orders[0 if done < self.given.first else 1]
        batch = self.heads.batch(self.store, self.shards, stage.places(self.step), stage.mark)
        if self.given.noise:
            batch.states = noisy(batch.states, self.given.noise, self.given.seed + self.step)
        rate = self.given.rate * min(1, (self.step + 1) / 20) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done)))
        losses = self.heads.losses(batch, 1 / self.given.temp, self.given.rejected)
        self.heads.zero_grad(set_to_none=True)
        sum(losses).backward()
        clip(self.heads.parameters(), 1.0)
        for adam, share in zip(self.adams, (1, self.given.slow)):
            adam.param_groups[0]["lr"] = rate * share
            adam.step()
        self.step += 1
        self.seconds += time.time() - self.store.making - began
        return [float(l) for l in losses]

    def judge(self, losses):
        """Notes and prints where we are."""
        accuracy = judged(self.heads, self.judges)
        self.curve.append({"step": self.step, "seconds": self.seconds, "losses": losses, "accuracy": accuracy.tolist()})
        print("held out, best 1 2 4 8: " + accuracy_text(accuracy), flush=True)

    def save(self):
        tokens = self.heads.tokens
        torch.save({"heads": self.heads.state_dict(), "adams": [a.state_dict() for a in self.adams],
                    "step": self.step, "seconds": self.seconds, "curve": self.curve, "identity": self.identity,
                    "tokens": None if tokens is None else torch.from_numpy(tokens.copy())}, self.path + ".part")
        os.replace(self.path + ".part", self.path)

    def restore(self):
        """Goes on from a checkpoint. Returns whether there was one."""
        kept = checkpoint(self.path, self.identity)
        if kept:
            self.heads.load_state_dict(kept["heads"])
            for adam, state in zip(self.adams, kept["adams"]):
                adam.load_state_dict(state)
            self.heads.stand_for(None if kept["tokens"] is None else kept["tokens"].numpy())
            self.step, self.seconds, self.curve = kept["step"], kept["seconds"], kept["curve"]
        return kept is not None

    def run(self, until=1.0):
        """Learns until so much is done. A line of progress every ten seconds; held-out texts every twentieth."""
        shown = saved = time.time()
        mean, judged_at = None, math.floor(20 * self.done())
        while self.done() < until:
            states.wait_while(self.given.pause)
            losses = self.learn()
            mean = losses if mean is None else [0.95 * m + 0.05 * l for m, l in zip(mean, losses)]
            if time.time() - shown > 10:
                print("%3.0f %%, step %d, epoch %.2f, %.0f %s a second, loss %s" % (
                    100 * self.done(), self.step, self.step / self.orders[1].steps,
                    self.step * self.given.rows / self.seconds, self.heads.unit, " ".join("%.3f" % m for m in mean)),
                    flush=True)
                shown = time.time()
            if math.floor(20 * self.done()) > judged_at:
                judged_at = math.floor(20 * self.done())
                self.judge(mean)
            if time.time() - saved > 120:
                self.save()
                saved = time.time()
        self.save()


def make_heads(given, base, tokens, numbers):
    """Heads as asked for."""
    layout = speculator.mlp(base.vocabulary, base.width, given.inner, given.heads, not given.untied, True,
                            given.draft_vocab or None)
    return Heads(layout, tokens, numbers)


def prepare(given, make=make_heads, layers=(), kept=states.STATES):
    """The base, its texts, what is to be trained on them, ready to learn. layers: of the base, whose states it reads;
    none: it reads that after the final norm. kept: what it wants to know of texts."""
    torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    numbers = states.faster_numbers() if given.numbers == "auto" else NUMBERS[given.numbers]
    base = states.Base(given.base, given.programs, given.threads, layers)
    shards = states.read_shards(base, given.answers + given.text, given.held_out, given.longest)
    if all((shard.marks & states.HELD_OUT).all() for shard in shards):
        raise SystemExit("every text is held out (%d in all): more are needed, or a smaller --held-out" %
                         sum(len(shard.texts) for shard in shards))
    store = states.Store(os.path.join(given.work, "states"), base, int(given.cache * 1e6), numbers, given.pause,
                         kept, 0 if given.first > 0 or given.text else states.WRITTEN)
    more = [states.Shard(base, path, given.held_out, given.longest) for path in states.files_of(given.count)]
    counts = counts_of(shards + more, base.vocabulary)
    tokens = frequent(counts, given.draft_vocab) if given.draft_vocab else None
    heads = make(given, base, tokens, numbers)
    checkpoint(checkpoint_of(given), identity(given, heads, base))  # is refused before states are made
    written = sum(int((s.marks & states.WRITTEN > 0).sum()) for s in shards)
    print("%d files, %d texts, %d tokens, %d written by the base; %s; %.1f million weights" % (
        len(shards), sum(len(s.texts) for s in shards), sum(len(s.ids) for s in shards), written, numbers,
        sum(p.numel() for p in heads.parameters()) / 1e6), flush=True)
    for number, shard in enumerate(shards):
        began, fresh = time.time(), not os.path.isdir(store.place(shard))
        if fresh and sum(map(store.bytes, shards)) <= store.limit:
            store.rows(shard)
            print("states of file %d of %d: %.0f tokens a second" % (
                number + 1, len(shards), len(shard.ids) / (time.time() - began)), flush=True)
    trainer = Trainer(given, heads, store, shards)
    if trainer.restore():
        print("%s: goes on behind step %d%s" % (trainer.path, trainer.step, "" if trainer.done() < 1 else
              ", which was the last one: nothing is learned; to begin anew, delete it"), flush=True)
    else:
        if given.begin:
            heads.take(given.begin)
        else:
            heads.begin(base, store, shards, counts)
        trainer.judge([float(l) for l in heads.losses(trainer.judges[0], 1 / given.temp, given.rejected)])
    return trainer


def finish(trainer):
    """Writes the file and the figure."""
    given = trainer.given
    trainer.heads.save(given.out, given.type, given.name or os.path.basename(given.out).replace(".gguf", ""))
    if given.figure:
        figure.draw(given.figure, trainer.curve, os.path.basename(given.out))
    with open(os.path.join(given.work, os.path.basename(given.out) + ".curve.json"), "w") as file:
        json.dump(trainer.curve, file)
    print("%s: %d bytes; %d steps, %.0f s; held out, best 1 2 4 8: %s" % (
        given.out, os.path.getsize(given.out), trainer.step, trainer.seconds,
        accuracy_text(judged(trainer.heads.load(given.out), trainer.judges))), flush=True)


def main():
    trainer = prepare(options())
    trainer.run()
    finish(trainer)


if __name__ == "__main__":
    main()
