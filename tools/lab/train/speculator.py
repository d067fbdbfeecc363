"""The GGUF files of heads that read a target's state: what stands in them, and what they compute.

mlp_speculator: Wertheimer et al. 2024, arXiv 2404.19124. medusa: Cai et al. 2024, arXiv 2401.10774. Both may hold
`speculator.tokens`, ascending token ids: row r of every head's matrix then stands for token tokens[r]."""
import math

import numpy as np

import gguf

MLP, MEDUSA = "mlp_speculator", "medusa"
TOKENS = "speculator.tokens"


class Layout:
    """What a file holds. tensors: name -> shape, rows first. meta: as gguf.write takes it."""

    def __init__(self, architecture, keys, tensors):
        self.architecture, self.tensors = architecture, tensors
        self.meta = {"general.architecture": (gguf.STRING, architecture)}
        for key, value in keys.items():
            kind = gguf.BOOL if isinstance(value, bool) else gguf.U32
            self.meta["%s.%s" % (architecture, key)] = (kind, value)


def mlp_name(part, kind, head, tied):
    """The name in a file of what is `part.head.kind` in the published layout. Of tied heads, several are one."""
    if tied and part != "proj":
        return "speculator.%s.%s" % (part, kind)
    return "speculator.%s.%d.%s" % (part, min(head, 1) if tied else head, kind)


def mlp(vocabulary, width, inner, heads, tied, scaled, rows=None):
    """Layout of an MLP speculator. width: of the target's state; rows: of the head matrices, if not all tokens."""
    tensors = {}
    for i in range(heads):
        for part, kind, shape in (("emb", "weight", (vocabulary, inner)), ("proj", "weight", (inner, inner)),
                                  ("ln", "weight", (inner,)), ("ln", "bias", (inner,)),
                                  ("head", "weight", (rows or vocabulary, inner))):
            tensors[mlp_name(part, kind, i, tied)] = (inner, width) if part == "proj" and i == 0 else shape
    if rows:
        tensors[TOKENS] = (rows,)
    return Layout(MLP, {"vocab_size": vocabulary, "embedding_length": width, "inner_length": inner,
                        "n_predict": heads, "tie_weights": tied, "scale_input": scaled}, tensors)


def medusa(vocabulary, width, heads, blocks, rows=None):
    """Layout of Medusa's heads."""
    tensors = {}
    for i in range(heads):
        for block in range(blocks):
            tensors["medusa.%d.block.%d.weight" % (i, block)] = (width, width)
            tensors["medusa.%d.block.%d.bias" % (i, block)] = (width,)
        tensors["medusa.%d.head.weight" % i] = (rows or vocabulary, width)
    if rows:
        tensors[TOKENS] = (rows,)
    return Layout(MEDUSA, {"vocab_size": vocabulary, "embedding_length": width, "n_predict": heads,
                           "block_count": blocks}, tensors)


def weights_of(inner, heads):
    """What the state and the embedding of a token are weighted with in an MLP speculator."""
    state = 0.5 ** (0.5 / heads)
    return state, math.sqrt((1 - state * state) * inner / 2)


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def normed(x):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def mlp_forward(file, states, tokens):
    """Logits of every head, (heads, states, rows), in double precision. file: a gguf.Reader; states: (n, width);
    tokens: (heads, n), the token that comes before what the head gives."""
    tensor = {name: file.tensors[name].astype(np.float64) for name in file.tensors if name != TOKENS}
    heads, tied = file[MLP + ".n_predict"], file[MLP + ".tie_weights"]
    state_weight, token_weight = weights_of(file[MLP + ".inner_length"], heads)
    x, logits = np.asarray(states, np.float64), []
    if file[MLP + ".scale_input"]:
        x = normed(x) / math.sqrt(2)
    for i in range(heads):
        part = {p: tensor[mlp_name(*p.split("."), i, tied)]
                for p in ("emb.weight", "proj.weight", "ln.weight", "ln.bias", "head.weight")}
        x = x @ part["proj.weight"].T + token_weight / state_weight * part["emb.weight"][np.asarray(tokens[i])]
        x = gelu(normed(x) * part["ln.weight"] + part["ln.bias"])
        logits.append(x @ part["head.weight"].T)
    return np.stack(logits)


def medusa_forward(file, states):
    """Logits of every head, (heads, states, rows), in double precision."""
    logits = []
    for i in range(file[MEDUSA + ".n_predict"]):
        x = np.asarray(states, np.float64)
        for block in range(file[MEDUSA + ".block_count"]):
            name = "medusa.%d.block.%d." % (i, block)
            z = x @ file.tensors[name + "weight"].T.astype(np.float64) + file.tensors[name + "bias"]
            x = x + z / (1 + np.exp(-z))
        logits.append(x @ file.tensors["medusa.%d.head.weight" % i].T.astype(np.float64))
    return np.stack(logits)
