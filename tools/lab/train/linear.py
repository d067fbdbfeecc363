"""Where the training of drafts begins: the best linear guess of the base's next state, found without training.

A head, or the layer of an EAGLE-3 draft, is to say what the base would say after one more token. The state s' that the
base will have then is guessed by least squares from its state s and the embedding of the token (ridge regression), and
what matters of the guess for the base's logits is kept (reduced-rank regression): s' is about D u, u = P s + e(token), with as few numbers in u as
there is room for. Logits are (W D) u with the base's own output matrix W.

In heads, u has half as many numbers as their inner width, because both u and -u go through the heads' GELU: gelu(u) -
gelu(-u) is u itself. So the heads begin as exactly this linear map, and learn from there on. An EAGLE-3 draft begins
near it: see eagle.py."""
import numpy as np
import torch

import states

RIDGE = 0.02        # of the mean diagonal
MOST = 400000       # places that are looked at
AT_ONCE = 4096


class Places:
    """Places of texts for training and what lies there, part by part. features: of the rows of the store; final: the
    state after the base's final norm."""

    def __init__(self, store, shards, features, final=lambda x: x):
        self.store, self.shards, self.features, self.final = store, shards, features, final

    def parts(self):
        """(features of the state, next token, next state, the token after it, the state after that one)."""
        left = MOST
        for shard in self.shards:
            places, rows = shard.places(states.HELD_OUT, 0), self.store.rows(shard)[0]
            for at in range(0, min(len(places), left), AT_ONCE):
                states.wait_while(self.store.pause)
                here = places[at:at + AT_ONCE][:left]
                row = lambda ahead: torch.from_numpy(rows[here + ahead].astype(np.float32))
                token = lambda ahead: torch.from_numpy(shard.ids[here + ahead].astype(np.int64))
                yield self.features(row(0)), token(1), self.final(row(1)), token(2), self.final(row(2))
                left -= len(here)


def solved(moments, cross):
    """Ridge regression. moments: (features, features); cross: (features, targets)."""
    ridge = RIDGE * moments.diagonal().mean() * torch.eye(len(moments))
    factor, wrong = torch.linalg.cholesky_ex(moments + ridge)
    if wrong:  # few texts, and moments rounded to bfloat16
        factor = torch.linalg.cholesky(moments + ridge / RIDGE)
    return torch.cholesky_solve(cross, factor)


def guess_of_next(places, embedding, numbers):
    """The linear guess of the next state, (features and width, width), and the second moments of what it guesses."""
    moments, cross, count = 0, 0, 0
    for state, token, following, _, _ in places.parts():
        features = torch.cat((state.to(numbers), embedding[token].to(numbers)), 1)
        moments += (features.T @ features).float()
        cross += (features.T @ following.to(numbers)).float()
        count += len(state)
    guess = solved(moments, cross)
    return guess, guess.T @ (moments @ guess) / count


def reduced(second, output, weights, rank):
    """What matters of states with these second moments for logits under an output matrix, whose rows have weights:
    code (rank, width) and decode (width, rank), so that decode @ code @ state gives nearly the same logits."""
    values, vectors = torch.linalg.eigh(second)
    root = values.clamp_min(1e-6 * values.max()).sqrt()
    forth, back = (vectors * root) @ vectors.T, (vectors / root) @ vectors.T
    centred = (output - (weights[:, None] * output).sum(0)) * weights[:, None].sqrt()
    ways = torch.linalg.eigh(forth @ (centred.T @ centred) @ forth)[1][:, -rank:]
    return ways.T @ back, forth @ ways


def guess_of_later(places, state_part, token_part, code, step):
    """How u goes on: (rank, rank), by least squares from the first guess's u to the second one's. step(u): what the
    second guess reads of the first one's."""
    rank = len(code)
    moments, cross = torch.zeros(rank, rank), torch.zeros(rank, rank)
    for state, token, _, then, after in places.parts():
        u = step(state @ state_part.T + token_part[token])
        moments += u.T @ u
        cross += u.T @ (after @ code.T - token_part[then])
    return solved(moments, cross).T


def guess(places, base, numbers, kept, counts, rank, step, embedding=None):
    """Of the tokens `kept`: P (rank, features), e (vocabulary, rank), how u goes on (rank, rank), W D (kept, rank). e is
    linear in the embedding, which is the base's, if none is given."""
    output = base.matrix(base.output)[kept]
    if embedding is None:
        embedding = base.matrix("token_embd.weight") / base.matrix("token_embd.weight").std()
    whole, second = guess_of_next(places, embedding.to(numbers), numbers)
    weights, features = torch.from_numpy(counts).float()[kept] + 1, len(whole) - base.width
    code, decode = reduced(second, output, weights / weights.sum(), rank)
    state_part, token_part = code @ whole[:features].T, embedding @ (whole[features:] @ code.T)
    return state_part, token_part, guess_of_later(places, state_part, token_part, code, step), output @ decode


def mirrored(matrix, dim):
    """A matrix and its negative, side by side."""
    return torch.cat((matrix, -matrix), dim)


@torch.no_grad()
def begin(heads, base, store, shards, counts):
    """Sets the weights of heads to the linear guess. counts: of every token in the texts."""
    scaled = lambda x: heads.norm(x) * 0.5 ** 0.5 if heads.scaled else x
    kept = torch.nonzero(heads.row >= 0)[:, 0]
    state_part, token_part, later, output = guess(Places(store, shards, scaled), base, heads.numbers, kept, counts,
                                                  min(heads.inner // 2, base.width), heads.norm)
    for i in range(heads.heads):
        for name, matrix in (("emb", mirrored(token_part, 1) * heads.state_weight / heads.token_weight),
                             ("head", mirrored(output, 1)),
                             ("proj", mirrored(mirrored(later, 1) if i else state_part, 0))):
            weight = heads.part(name, "weight", i)
            weight.zero_()[:matrix.shape[0], :matrix.shape[1]] = matrix
