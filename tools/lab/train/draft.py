"""Fine-tunes a small model that drafts for a larger one of the same vocabulary, on texts that the larger one wrote.

    draft.py BASE.gguf OUT.gguf --from DRAFT.gguf --answers PATH [--rounded] [and flags of heads.py]

DRAFT.gguf is a llama in a type that gguf.py reads; one with a short vocabulary keeps that. What is learned: the base's
own distribution behind every token (distillation, Zhou et al. 2024, arXiv 2310.08461), as far as its 32 most probable
tokens tell. Texts, stages, goal and checkpoints: as heads.py has them; a step takes --rows texts. The base's states are
not kept, for nothing reads them. --rounded: layers and embeddings are what Q4_0 makes of them at every step, so that
specdec-quantize changes nothing later; for the last steps."""
import types

import numpy as np
import torch

import eagle
import gguf
import heads as training
import states
from model import Llama


def options():
    parser = training.parser_of(__doc__)
    parser.add_argument("--from", dest="draft", required=True)
    parser.add_argument("--rounded", action="store_true")
    parser.set_defaults(rows=eagle.FEW_TEXTS, heads=1, slow=1.0, noise=0.0)
    return parser.parse_args()


def rounded(weight):
    """A matrix as Q4_0 keeps it; gradients pass as if it were not rounded."""
    blocks = weight.detach().reshape(-1, gguf.BLOCK)
    scale = (blocks.gather(1, blocks.abs().argmax(1, True)) / -8).half().float()
    codes = (blocks / scale.where(scale != 0, torch.ones(()))).round().clamp(-8, 7)
    return weight + (codes * scale - blocks).view_as(weight)


class RoundedLlama(Llama):
    """A llama that runs with rounded matrices, but for the output."""

    def rounds(self, name):
        return name != self.output and self.tensor(name).dim() > 1

    def weight(self, name):
        return rounded(self.tensor(name))

    def embedded(self, ids):
        x = super().embedded(ids)
        return rounded(x) if self.rounds("token_embd.weight") else x

    @torch.no_grad()
    def stay_rounded(self):
        for name in self.names:
            if self.rounds(name):
                self.tensor(name).copy_(rounded(self.tensor(name)))


class Texts:
    """Whole texts. tokens: (texts, places); rows: which of the texts' places, one behind the other, have a goal; then
    as in states.Batch, for these: targets, known, tops, chances."""

    def __init__(self, store, shards, places, mark):
        parts = [self.part(store, shards[s], int(p), mark) for s, p in places]
        self.tokens, wanted, targets, tops, chances = map(states.padded, zip(*parts))
        self.rows = torch.nonzero(wanted.view(-1))[:, 0]
        self.targets, self.tops, self.chances = (x.flatten(0, 1)[self.rows][None] for x in (targets, tops, chances))
        self.known = torch.ones(self.targets.shape, dtype=torch.bool)

    @staticmethod
    def part(store, shard, start, mark):
        """Of the text that begins there: tokens, whether what follows them is a goal, and the goal."""
        end = int(shard.ends[start])
        tops, chances = (torch.from_numpy(a[start:end - 1].copy()) for a in store.rows(shard))
        ids = torch.from_numpy(shard.ids[start:end].astype(np.int64))
        wanted = torch.from_numpy(shard.marks[start:end - 1] & mark == mark)
        return ids[:-1], wanted, ids[1:], tops.long(), chances.float()


class Draft(training.Drafts):
    """A whole model as one head, which reads tokens alone. tokens: those that its output matrix shall have rows for;
    None, or if it is short already: it stays as it is."""

    ids_name, unit, sparse = "d2t", "texts", ()
    judged_most, judged_at_once = eagle.MANY_TEXTS, eagle.FEW_TEXTS
    units = staticmethod(eagle.Eagle.units)

    def __init__(self, model, tokens=None, numbers=torch.float32):
        layout = types.SimpleNamespace(tensors={}, meta=model.meta)
        kept = tokens if model.ids is None else model.ids
        super().__init__(layout, 1, len(model.vocabulary.tokens), kept, numbers)
        if kept is not None:
            layout.tensors[self.ids_name] = kept.shape
        if kept is not model.ids:
            rows = model.tensor(model.output).detach()[torch.from_numpy(tokens.astype(np.int64))]
            model.output = "output.weight"
            model.names += [] if model.output in model.names else [model.output]
            model.output_weight = torch.nn.Parameter(rows)
        layout.tensors.update((name, tuple(model.tensor(name).shape)) for name in model.names)
        self.model, self.output = model, model.output

    def tensor(self, name):
        return self.model.tensor(name)

    def batch(self, store, shards, places, mark):
        return Texts(store, shards, places, mark)

    def guesses(self, batch):
        texts, places = batch.tokens.shape
        sees = torch.ones(places, places, dtype=torch.bool).tril().expand(texts, -1, -1)
        with torch.autocast("cpu", torch.bfloat16, self.numbers == torch.bfloat16):
            z = self.model.tree(batch.tokens, torch.arange(places).expand(texts, -1), sees)
        yield z.float().flatten(0, 1)[batch.rows], self.tensor(self.model.output)

    def begin(self, base, store, shards, counts):
        """It begins as the model that it is."""

    def save(self, path, type_name, name):
        if isinstance(self.model, RoundedLlama):
            self.model.stay_rounded()
        super().save(path, type_name, name)


def prepare(given):
    """The base, its texts, the draft, ready to learn."""
    def make(given, base, tokens, numbers):
        model = (RoundedLlama if given.rounded else Llama)(given.draft, control=False, short=True)
        model.meta["llama.context_length"] = (gguf.U32, max(model.context, given.longest))
        return Draft(model, tokens, numbers)

    return training.prepare(given, make, kept=states.TOPS)


def main():
    trainer = prepare(options())
    trainer.run()
    training.finish(trainer)


if __name__ == "__main__":
    main()
