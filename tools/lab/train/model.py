"""A llama in PyTorch that runs trees of tokens, and streams that fork; loads from GGUF and writes it."""
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import gguf
from vocabulary import CHILD, FORK, Vocabulary

NAMES = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")


def turned(x, cos, sin):
    """Rotary positions of pairs of neighbours. x: (batch, heads, tokens, size); cos, sin: (batch, 1, tokens,
    size/2)"""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Llama(nn.Module):
    """weights: one parameter a tensor of the file, under its name with _ for every dot. short: the output may have rows
    for the tokens ids alone; whoever says so knows what its logits are of, and writes the file."""

    def __init__(self, path, control=True, short=False):
        super().__init__()
        file = gguf.Reader(path)
        self.meta, self.vocabulary = file.meta, Vocabulary(file.meta)
        self.layers, self.width = file["llama.block_count"], file["llama.embedding_length"]
        self.heads, self.key_heads = file["llama.attention.head_count"], file["llama.attention.head_count_kv"]
        self.size = self.width // self.heads
        self.context = file["llama.context_length"]
        self.epsilon = file["llama.attention.layer_norm_rms_epsilon"]
        self.base = file["llama.rope.freq_base"]
        if "rope_freqs.weight" in file.tensors:
            raise ValueError("rope_freqs is not read here")
        if "d2t" in file.tensors and not short:
            raise ValueError("a short vocabulary is not read here")
        self.ids = np.array(file.tensors["d2t"]) if "d2t" in file.tensors else None
        self.names = [name for name in file.tensors if name != "d2t"]
        self.output = "output.weight" if "output.weight" in self.names else "token_embd.weight"
        for name in self.names:
            array = torch.from_numpy(file.tensors[name].copy())
            self.register_parameter(name.replace(".", "_"), nn.Parameter(array))
        if control:
            self.add_control()

    def add_control(self):
        """Adds [Fork] and [Child]. Their rows begin as the mean of all rows and a little noise: like no word."""
        for name in (FORK, CHILD):
            before = len(self.vocabulary.tokens)
            self.vocabulary.add_control(name)
            if len(self.vocabulary.tokens) == before:
                continue
            for matrix in ("token_embd.weight", "output.weight"):
                if matrix in self.names:
                    rows = self.tensor(matrix).data
                    row = rows.mean(0) + 0.5 * rows.std(0) * torch.randn(self.width)
                    self.register_parameter(matrix.replace(".", "_"), nn.Parameter(torch.cat((rows, row[None]))))

    def tensor(self, name):
        return getattr(self, name.replace(".", "_"))

    def weight(self, name):
        """What a layer multiplies by."""
        return self.tensor(name)

    def embedded(self, ids):
        return F.embedding(ids, self.tensor("token_embd.weight"))

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.tensor(name)

    def rotation(self, places):
        """cos and sin, (batch, 1, tokens, size/2), of places (batch, tokens)."""
        speed = self.base ** (-torch.arange(0, self.size, 2, dtype=torch.float32) / self.size)
        angle = places[:, None, :, None].float() * speed
        return angle.cos(), angle.sin()

    def layer(self, i, x, rotation, remember):
        """One layer. remember(i, k, v) stores keys and values and returns those to look at and a mask to add."""
        w = {n: self.weight("blk.%d.%s.weight" % (i, n)) for n in NAMES if not n.endswith("norm")}
        batch, tokens, _ = x.shape
        h = self.norm(x, "blk.%d.attn_norm.weight" % i)
        q, k, v = (F.linear(h, w["attn_" + n]).view(batch, tokens, -1, self.size).transpose(1, 2) for n in "qkv")
        k, v, mask = remember(i, turned(k, *rotation), v)
        groups = self.heads // self.key_heads
        q = turned(q, *rotation) * self.size ** -0.5
        q = q.reshape(batch, self.key_heads, groups * tokens, self.size)  # the queries of a group share keys
        scores = (q @ k.transpose(-1, -2)).view(batch, self.key_heads, groups, tokens, -1) + mask
        y = scores.softmax(-1).view(batch, self.key_heads, groups * tokens, -1) @ v
        y = y.view(batch, self.heads, tokens, self.size).transpose(1, 2).reshape(batch, tokens, -1)
        x = x + F.linear(y, w["attn_output"])
        h = self.norm(x, "blk.%d.ffn_norm.weight" % i)
        return x + F.linear(F.silu(F.linear(h, w["ffn_gate"])) * F.linear(h, w["ffn_up"]), w["ffn_down"])

    def passed(self, ids, places, remember):
        """States, (batch, tokens, width), after 0, 1, ... layers."""
        x, rotation = self.embedded(ids), self.rotation(places)
        yield x
        for i in range(self.layers):
            x = self.layer(i, x, rotation, remember)
            yield x

    def states(self, ids, places, remember):
        """States after the final norm, (batch, tokens, width)."""
        for x in self.passed(ids, places, remember):
            pass
        return self.norm(x, "output_norm.weight")

    def logits(self, states):
        return F.linear(states, self.tensor(self.output))

    def tree(self, ids, places, sees):
        """States of whole trees; sees (batch, tokens, tokens): whether token i sees token j."""
        mask = torch.zeros(sees.shape).masked_fill_(~sees, -1e9)[:, None, None]
        return self.states(ids, places, lambda i, k, v: (k, v, mask))

    def save(self, path, name):
        """Writes the model as F32."""
        meta = dict(self.meta)
        meta["general.name"] = (gguf.STRING, name)
        meta["general.file_type"] = (4, 0)
        self.vocabulary.put_into(meta)
        gguf.write(path, meta, {n: self.tensor(n).detach().numpy() for n in self.names})


class Streams:
    """Texts that grow side by side, a row of the caches each. Rows may fork and leave."""

    def __init__(self, model):
        self.model, self.length = model, []
        self.keys = [torch.zeros(0, model.key_heads, model.context, model.size) for _ in range(model.layers)]
        self.values = [k.clone() for k in self.keys]

    def open(self, copy_of=None):
        """A new row, empty or a copy. Returns its number."""
        self.length.append(0 if copy_of is None else self.length[copy_of])
        for cache in (self.keys, self.values):
            for i, rows in enumerate(cache):
                row = torch.zeros_like(rows[:1]) if copy_of is None else rows[copy_of:copy_of + 1]
                if not len(row):
                    row = torch.zeros((1,) + tuple(rows.shape[1:]))
                cache[i] = torch.cat((rows, row))
        return len(self.length) - 1

    def keep(self, rows):
        """Rows that go on; the others leave."""
        self.length = [self.length[r] for r in rows]
        for cache in (self.keys, self.values):
            cache[:] = [c[rows] for c in cache]

    @torch.no_grad()
    def step(self, ids):
        """Appends one token to every row; returns logits, (rows, vocabulary)."""
        places = torch.tensor(self.length)
        rows, longest = torch.arange(len(ids)), max(self.length) + 1
        mask = torch.zeros(len(ids), longest).masked_fill_(torch.arange(longest) > places[:, None], -1e9)

        def remember(i, k, v):
            self.keys[i][rows, :, places] = k[:, :, 0]
            self.values[i][rows, :, places] = v[:, :, 0]
            return self.keys[i][:, :, :longest], self.values[i][:, :, :longest], mask[:, None, None, None]

        states = self.model.states(torch.tensor(ids)[:, None], places[:, None], remember)
        self.length = [n + 1 for n in self.length]
        return self.model.logits(states[:, 0])
