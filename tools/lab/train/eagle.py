"""Trains an EAGLE-3 draft on the states of any model that specdec runs, and writes it as a GGUF file.

    eagle.py BASE.gguf OUT.gguf --answers PATH [--layers A,B,C] [--width N | --borrow] [--size N] [--queries N] [--keys N]
             [--feed-forward N] [and the flags of heads.py: --heads N is how many tokens it learns to guess in a row]

What is learned: one layer with its own cache (Li et al. 2025, arXiv 2503.01840). Pair p is the base's states behind
token p, after some of its layers, and token p + 1; the guess is token p + 2. Behind the text, the layer's own state
stands for the base's. So it is trained as it is used: guess 1 of a pair comes from the base's state, guess 2 from the
state that guess 1 of the pair before has left, and so on, each seeing the keys that it will find in the cache.

Texts, states, stages, checkpoints, the goal: as heads.py has them; a step takes --rows texts. The draft's width is its
own, so it has its own embedding; with --borrow it is as wide as the base, whose embedding it reads, as it is. It carries
the base's tokenizer."""
import math
import types

import numpy as np
import torch
import torch.nn.functional as F

import gguf
import heads as training
import linear
import speculator
import states
from model import turned

EAGLE = "eagle3"
EPSILON, ROTATION = 1e-6, 10000.0
MARK = 32                          # numbers that all embeddings begin with alike: a block, so that Q4_0 keeps the others
TURNS, NEAR = 5, 3.0               # pairs of numbers that tell places apart in the beginning; by so much, in logarithms
FEW_TEXTS, MANY_TEXTS = 8, 160     # of a step, unless --rows says so; held-out ones that are judged


def options():
    parser = training.heads_parser_of(__doc__)
    parser.add_argument("--layers", default="", help="of the base, whose states are read (1, half of them, all)")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--borrow", action="store_true", help="the base's embedding, and its width")
    parser.add_argument("--size", type=int, default=32, help="of an attention head")
    parser.add_argument("--queries", type=int, default=4, help="attention heads")
    parser.add_argument("--keys", type=int, default=2, help="attention heads of keys and values")
    parser.add_argument("--feed-forward", type=int, default=384)
    parser.set_defaults(rows=FEW_TEXTS)
    return parser.parse_args()


def layers_of(given):
    """After how many layers of the base its states are read."""
    if given.layers:
        return tuple(map(int, given.layers.split(",")))
    file = gguf.Reader(given.base)
    count = file[file["general.architecture"] + ".block_count"]
    return 1, count // 2, count


class Layout:
    """What a file holds: see speculator.Layout."""

    def __init__(self, given, base, rows):
        width = base.width if given.borrow else given.width
        q, kv = given.queries * given.size, given.keys * given.size
        self.size, self.keys = given.size, given.keys
        numbers = {"context_length": 4096, "embedding_length": width, "block_count": 1,
                   "feed_forward_length": given.feed_forward, "attention.head_count": given.queries,
                   "attention.head_count_kv": given.keys, "attention.key_length": given.size,
                   "attention.value_length": given.size, "rope.dimension_count": given.size,
                   "vocab_size": base.vocabulary, "target_hidden_size": base.width}
        self.meta = speculator.Layout(EAGLE, dict(numbers, norm_before_fc=True, norm_before_residual=False), {}).meta
        self.meta[EAGLE + ".rope.freq_base"] = (gguf.F32, ROTATION)
        self.meta[EAGLE + ".attention.layer_norm_rms_epsilon"] = (gguf.F32, EPSILON)
        self.meta[EAGLE + ".target_layers"] = (gguf.ARRAY, (gguf.U32, list(base.layers)))
        self.meta.update({k: v for k, v in base.file.meta.items() if k.startswith("tokenizer.")})
        self.tensors = {
            "token_embd.weight": (base.vocabulary, width), "enc.output_norm.weight": (base.read_width,),
            "fc.weight": (width, base.read_width), "blk.0.attn_norm.weight": (width,),
            "blk.0.attn_norm_2.weight": (width,), "blk.0.attn_q.weight": (q, 2 * width),
            "blk.0.attn_k.weight": (kv, 2 * width), "blk.0.attn_v.weight": (kv, 2 * width),
            "blk.0.attn_output.weight": (width, q), "blk.0.ffn_norm.weight": (width,),
            "blk.0.ffn_gate.weight": (given.feed_forward, width), "blk.0.ffn_up.weight": (given.feed_forward, width),
            "blk.0.ffn_down.weight": (width, given.feed_forward), "output_norm.weight": (width,),
            "output.weight": (rows or base.vocabulary, width)}
        if given.borrow:
            del self.tensors["token_embd.weight"]


class Texts:
    """Whole texts, and where guesses in them have a goal. states: (texts, pairs, read width); tokens: (texts, pairs),
    those next to the states; rows: which of the texts' pairs, one behind the other, have a goal; then as in
    states.Batch, for these: targets, known, tops, chances."""

    def __init__(self, store, shards, places, heads, mark):
        parts = [self.part(store, shards[s], int(p), mark) for s, p in places]
        self.states, self.tokens, wanted, targets, tops, chances = map(states.padded, zip(*parts))
        self.rows = torch.nonzero(wanted.view(-1))[:, 0]
        pair = self.rows % self.tokens.shape[1]
        self.known = torch.stack([pair >= i for i in range(heads)])
        self.targets, self.tops = self.repeated(targets, heads), self.repeated(tops, heads)
        self.chances = self.repeated(chances, heads) * self.known[..., None]
        self.count = len(parts)

    def repeated(self, array, heads):
        """The rows that have a goal; it is the same for every guess."""
        rows = array.flatten(0, 1)[self.rows]
        return rows.expand(heads, *rows.shape)

    @staticmethod
    def part(store, shard, start, mark):
        """The pairs of the text that begins there: states, tokens, whether they have a goal, the goal."""
        end = int(shard.ends[start])
        states_, tops, chances = (torch.from_numpy(a[start:end].copy()) for a in store.rows(shard))
        ids = torch.from_numpy(shard.ids[start:end].astype(np.int64))
        wanted = torch.from_numpy(shard.marks[start:end] & mark == mark)
        return (states_[:-2].float(), ids[1:-1], wanted[:-2], ids[2:], tops[1:-1].long(), chances[1:-1].float())


class Eagle(training.Drafts):
    """One layer that reads states next to tokens."""

    ids_name, unit = "d2t", "texts"
    rough = ("emb", "fc.", "output.weight")
    judged_most, judged_at_once = MANY_TEXTS, FEW_TEXTS

    def __init__(self, layout, heads, vocabulary, tokens=None, numbers=torch.float32, borrowed=None):
        super().__init__(layout, heads, vocabulary, tokens, numbers)
        self.size, self.keys, self.borrowed = layout.size, layout.keys, borrowed

    @staticmethod
    def units(shard, mark, value):
        """Where texts begin that have a place to learn from."""
        places = shard.places(mark, value)
        starts = np.flatnonzero(np.r_[True, np.diff(shard.ends) > 0])
        return starts[np.unique(np.searchsorted(starts, places, "right") - 1)]

    def batch(self, store, shards, places, mark):
        return Texts(store, shards, places, self.heads, mark)

    def weight(self, name):
        return self.tensor("blk.0.%s.weight" % name)

    def heads_of(self, x, name, rotation=None):
        """(texts, heads, pairs, size) of what one matrix makes of x; rotated, if asked for."""
        x = self.linear(x, self.weight(name)).unflatten(-1, (-1, self.size)).transpose(1, 2)
        return turned(x, *rotation) if rotation else x

    def attended(self, q, caches, mask):
        """What the pairs of guess number len(caches) see: keys of guess 1 of the text as far as that came from the
        base's states, then one key of each guess since. caches: keys and values of every guess so far."""
        last, groups = len(caches) - 1, q.shape[1] // self.keys
        many = lambda x: x.repeat_interleave(groups, 1)
        shifted = lambda x, by: F.pad(x, (0, 0, by, 0))[:, :, :x.shape[2]]
        first = q.to(self.numbers) @ many(caches[0][0]).to(self.numbers).transpose(-1, -2)
        own = [(q * shifted(many(k), last - i)).sum(-1, keepdim=True) for i, (k, _) in enumerate(caches) if i]
        scores = torch.cat([first.float() + mask.tril(-last).sub(1).mul(1e9)] + own, -1) * self.size ** -0.5
        chances = scores.softmax(-1)
        y = (chances[..., :q.shape[2]].to(self.numbers) @ many(caches[0][1]).to(self.numbers)).float()
        for i, (_, v) in enumerate(caches[1:], 1):
            at = q.shape[2] + i - 1
            y = y + chances[..., at:at + 1] * shifted(many(v), last - i)
        return y.transpose(1, 2).flatten(2)

    def layer(self, g, embedded, caches, rotation, mask):
        """The layer's states, (texts, pairs, width), of guess number len(caches) + 1; adds to the caches."""
        h = torch.cat((self.norm(embedded) * self.weight("attn_norm"), self.norm(g) * self.weight("attn_norm_2")), -1)
        caches.append((self.heads_of(h, "attn_k", rotation), self.heads_of(h, "attn_v")))
        x = g + self.linear(self.attended(self.heads_of(h, "attn_q", rotation), caches, mask),
                            self.weight("attn_output"))
        h = self.norm(x) * self.weight("ffn_norm")
        gate, up = self.linear(h, self.weight("ffn_gate")), self.linear(h, self.weight("ffn_up"))
        return x + self.linear(F.silu(gate) * up, self.weight("ffn_down"))

    @torch.no_grad()
    def even_out(self):
        """Gives all columns of the output matrix the same length, which its norm makes up for: the draft says the same.
        They begin with very different ones, and blocks of Q4_0 would keep nothing of the short ones."""
        length = self.tensor("output.weight").pow(2).mean(0).sqrt().clamp_min(1e-9)
        self.tensor("output.weight").div_(length)
        self.tensor("output_norm.weight").mul_(length)

    def save(self, path, type_name, name):
        self.even_out()
        super().save(path, type_name, name)

    def embedded(self, ids):
        if self.borrowed is not None:
            return F.embedding(ids, self.borrowed)
        return F.embedding(ids, self.tensor("token_embd.weight"), sparse=True)

    def read(self, x):
        """What fc reads of the base's states."""
        return self.norm(x) * self.tensor("enc.output_norm.weight")

    def guesses(self, batch):
        pairs = batch.tokens.shape[1]
        speed = ROTATION ** (-torch.arange(0, self.size, 2, dtype=torch.float32) / self.size)
        angle = torch.arange(pairs)[:, None] * speed
        rotation, mask, caches = (angle.cos()[None, None], angle.sin()[None, None]), torch.ones(pairs, pairs), []
        embedded = self.embedded(batch.tokens)
        g = self.linear(self.read(batch.states), self.tensor("fc.weight"))
        for _ in range(self.heads):
            x = self.layer(g, embedded, caches, rotation, mask)
            z = self.norm(x).flatten(0, 1)[batch.rows] * self.tensor("output_norm.weight")
            yield z, self.tensor("output.weight")
            g = F.pad(x, (0, 0, 1, 0))[:, :-1]

    @torch.no_grad()
    def begin(self, base, store, shards, counts):
        """Begins near the linear guess of linear.py, u = later g + e(token): fc gives the g with which that is the
        guess from the base's states, and a guess is the g of the next one. All embeddings have the same last numbers,
        a mark by which three quarters of the attention heads know their own pair; these carry what is added to g. In a
        borrowed embedding, whose e(token) is linear in its norm, the mark is a direction in which all are alike.
        Others and the feed-forward part begin by adding nothing."""
        width, own = self.tensor("output.weight").shape[1], self.keys - self.keys // 4
        rank = min(own * self.size, width - (MARK if self.borrowed is None else 0), base.width)
        normed = None if self.borrowed is None else self.norm(self.borrowed)
        self.level(store, shards, base.width)
        places = linear.Places(store, shards, self.read, lambda x: self.norm(x[:, -base.width:]) *
                               base.matrix("output_norm.weight"))
        kept = torch.nonzero(self.row >= 0)[:, 0]
        state_part, token_part, later, output = linear.guess(places, base, self.numbers, kept, counts, rank,
                                                             lambda u: u, normed)
        state, token, _, _, _ = next(places.parts())
        length = lambda x: float(x.norm(dim=1).median()) / math.sqrt(width)
        said, met = length(state @ state_part.T + token_part[token]), length(token_part[token])
        more, share = later - torch.eye(rank), 1.0
        for _ in range(3):  # the layer reads g by its length, which is not the same for the first guess and the others
            through = torch.eye(rank) + share * more
            fc = linear.solved(through.T @ through, through.T @ state_part)
            share = said / length(state @ fc.T)
        self.tensor("fc.weight").mul_(0.3 * said)[:rank] = fc
        self.tensor("output.weight").zero_()[:, :rank] = output * said
        if normed is None:
            mark, sight = math.sqrt(2 / MARK) * met * math.sqrt(width), torch.zeros(width)
            embedding = self.tensor("token_embd.weight").zero_()
            embedding[:, :rank], embedding[:, -MARK:] = token_part, mark
            embedding.div_(float(embedding.std()))
            sight[-MARK:] = math.sqrt(3) * met / (mark * MARK)
            values = math.sqrt(3) * met * torch.eye(rank, width)
        else:
            often = normed * torch.from_numpy(counts + 1).float().sqrt()[:, None]
            sight = linear.solved(often.T @ often, often.T @ torch.from_numpy(counts + 1).float().sqrt()[:, None])[:, 0]
            values = torch.linalg.lstsq(normed, token_part).solution.T
        self.look_at_own_pair(own, sight, values, more * said)

    @torch.no_grad()
    def level(self, store, shards, width):
        """Gives the base's states after each layer the same length."""
        rows = torch.from_numpy(store.rows(shards[0])[0][:linear.AT_ONCE].astype(np.float32))
        parts = self.norm(rows).unflatten(1, (-1, width)).pow(2).mean(2).median(0)[0].rsqrt()
        self.tensor("enc.output_norm.weight").copy_(parts.repeat_interleave(width))

    def look_at_own_pair(self, own, sight, values, more):
        """Attention heads of the first `own` keys look at their own pair and carry values times the norm of the
        embedding, which times sight is 1, and more g."""
        rank, width = values.shape
        groups = len(self.weight("attn_q")) // len(self.weight("attn_k"))
        turns = 1 - torch.cos(ROTATION ** (-2 * torch.arange(TURNS) / self.size))
        seen = math.sqrt(NEAR * math.sqrt(self.size) / float(turns.sum()))
        for name, count in (("attn_q", own * groups), ("attn_k", own)):
            rows = self.weight(name)[:count * self.size].zero_().unflatten(0, (count, self.size))
            rows[:, 0:2 * TURNS:2, :width] = seen * sight
        carried = self.weight("attn_v")[:rank].zero_()
        carried[:, :width], carried[:, width:width + rank] = values, more
        at = torch.arange(rank)
        self.weight("attn_output").zero_()[at, at // self.size * groups * self.size + at % self.size] = 1
        self.weight("ffn_down").zero_()


def make_eagle(given, base, tokens, numbers):
    """A draft as asked for."""
    return Eagle(Layout(given, base, given.draft_vocab), given.heads, base.vocabulary, tokens, numbers,
                 base.matrix("token_embd.weight") if given.borrow else None)


def layers_of_file(path):
    """The layers of the base that a draft reads; none: the file holds something else."""
    return tuple(gguf.Reader(path).meta.get(EAGLE + ".target_layers", (0, (0, ())))[1][1])


def load(path, base, guesses, numbers=torch.float32):
    """The draft of a file, which has all that Layout has."""
    file = gguf.Reader(path)
    names = {"width": "embedding_length", "size": "attention.key_length", "queries": "attention.head_count",
             "keys": "attention.head_count_kv", "feed_forward": "feed_forward_length"}
    shape = types.SimpleNamespace(**{k: file["%s.%s" % (EAGLE, v)] for k, v in names.items()})
    shape.borrow = "token_embd.weight" not in file.tensors
    layout = Layout(shape, base, file.tensors.shape("output.weight")[0])
    borrowed = base.matrix("token_embd.weight") if shape.borrow else None
    return Eagle(layout, guesses, base.vocabulary, None, numbers, borrowed).load(path)


def prepare(given):
    """The base, its texts, its draft, ready to learn."""
    return training.prepare(given, make_eagle, layers_of(given))


def main():
    trainer = prepare(options())
    trainer.run()
    training.finish(trainer)


if __name__ == "__main__":
    main()
