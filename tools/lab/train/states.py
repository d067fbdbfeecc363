"""Texts, and the states that a model passes through while it reads them: what heads are trained on.

States come from specdec itself (specdec-logits --state), so any model that it runs is a base. They are kept in a
folder as float16, with the base's most probable next tokens beside them, a shard for each file of texts. The folder
has a limit: beyond it, the shard that was used longest ago is deleted, and made again when it is needed."""
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.nn.functional as F

import gguf
from model import Llama

TOP = 32           # most probable next tokens kept for each state
READ_AT_ONCE = 512  # states
STATES, TOPS = ("states", "tops", "chances"), ("tops", "chances")  # what a store may keep of a shard
SHORTEST = 3       # tokens of a text that there is something to learn from
SAMPLES, SAMPLE = 64, 4096  # places of a base's file that it is known by, bytes of each
WRITTEN, HELD_OUT = 1, 2  # marks: the base wrote what follows this state; the text is not for training


def wait_while(path):
    """Stands still while a file exists: somebody measures."""
    while path and os.path.exists(path):
        time.sleep(0.5)


class Base:
    """The model that heads are for: its embedding, its output matrix, and the programs that run it. layers: those whose
    states are read, one behind the other in a row, each counted as after so many layers; none: that after the final
    norm."""

    def __init__(self, path, programs="build", threads=1, layers=()):
        self.path, self.programs, self.threads, self.layers = path, programs, threads, tuple(layers)
        file = gguf.Reader(path)
        name = file["general.architecture"]
        self.width = file[name + ".embedding_length"]
        self.read_width = self.width * max(1, len(self.layers))
        self.file, self.cap = file, file.meta.get(name + ".final_logit_softcapping", (6, 0.0))[1]
        self.scale = file.meta.get(name + ".logit_scale", (6, 0.0))[1] or 1.0
        self.output = "output.weight" if "output.weight" in file.tensors else "token_embd.weight"
        self.vocabulary = file.tensors.shape("token_embd.weight")[0]
        self.matrices, self.key = {}, self.digest()

    def digest(self):
        """What the file is known by: its size, its header, and a sample of its weights."""
        data, start = self.file.bytes, self.file.tensors.start
        digest = hashlib.sha1(b"%d" % len(data) + data[:start])
        for at in np.linspace(start, max(start, len(data) - SAMPLE), SAMPLES).astype(int).tolist():
            digest.update(data[at:at + SAMPLE])
        return digest.hexdigest()

    def program(self, name):
        return os.path.join(self.programs, name)

    def matrix(self, name):
        """A matrix of the base as floats. Types that gguf.py does not read are rewritten by specdec-quantize."""
        if name not in self.matrices:
            with tempfile.TemporaryDirectory() as folder:
                file = gguf.Reader(self.readable([name], folder))
                self.matrices[name] = torch.from_numpy(np.array(file.tensors[name], np.float32))
        return self.matrices[name]

    def readable(self, names, folder):
        """A file with these tensors in types that gguf.py reads: this one, or one that is written into a folder."""
        if all(self.file.tensors.type(name) for name in names):
            return self.path
        whole = os.path.join(folder, "f16.gguf")
        subprocess.run([self.program("specdec-quantize"), self.path, whole, "F16"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return whole

    def logits(self, states, numbers):
        """Logits of states (n, width), computed in these numbers."""
        key = (self.output, numbers)
        if key not in self.matrices:
            self.matrices[key] = self.matrix(self.output).to(numbers)
        x = (states.to(numbers) @ self.matrices[key].T).float() * self.scale
        if "output.bias" in self.file.tensors:
            x = x + self.matrix("output.bias")
        return torch.tanh(x / self.cap) * self.cap if self.cap else x

    def llama(self):
        """The same model in PyTorch, if it is a llama."""
        with tempfile.TemporaryDirectory() as folder:
            return Llama(self.readable(self.file.tensors, folder), control=False)

    def tokenize(self, text):
        """Token ids of a text."""
        ran = subprocess.run([self.program("specdec-tokens"), "-m", self.path, "-f", "-"], input=text.encode(),
                             stdout=subprocess.PIPE, check=True)
        return list(map(int, ran.stdout.split()))

    def states(self, texts):
        """States of every token of these lists of ids, in parts of READ_AT_ONCE at most: that after the final norm and
        those of the layers, one behind the other."""
        width = self.width * (1 + len(self.layers))
        total, size = sum(map(len, texts)), 4 * width
        inner = ["--state-layers", ",".join(map(str, self.layers))] if self.layers else []
        with tempfile.NamedTemporaryFile("w", suffix=".tokens") as file:
            file.writelines(" ".join(map(str, ids)) + "\n" for ids in texts)
            file.flush()
            process = subprocess.Popen([self.program("specdec-logits"), "-m", self.path, "--tokens-file", file.name,
                                        "--lines", "--state", "-w", "256", "-t", str(self.threads), "-o", "-"] + inner,
                                       stdout=subprocess.PIPE)
            with process:
                while total:
                    count = min(total, READ_AT_ONCE)
                    data = process.stdout.read(count * size)
                    if len(data) < count * size:
                        raise RuntimeError("specdec-logits ended early (status %s)" % process.wait())
                    yield np.frombuffer(data, "<f4").reshape(count, width)
                    total -= count


def files_of(paths):
    """The files of texts that paths name: themselves, or what a folder holds."""
    for path in paths:
        if os.path.isdir(path):
            yield from (os.path.join(path, n) for n in sorted(os.listdir(path)) if n.endswith(".jsonl"))
        else:
            yield path


class Shard:
    """The texts of one file, one behind the other. ids: (n); ends: (n), where the text of a token ends; marks: (n).

    A line is {"ids", "tokens"} as many --ids writes it (the last `tokens` of ids are the model's), or {"ids"} or
    {"tokens"}: [ids], or {"text"}."""

    def __init__(self, base, path, held_out, longest):
        self.path = path
        with open(path, "rb") as file:
            data = file.read()
        self.key = hashlib.sha1(data + b"%s %d" % (base.key.encode(), longest)).hexdigest()[:16]
        self.texts, self.hashes, ends, marks = [], [], [], []
        for line in data.decode("utf-8").splitlines():
            ids, written = self.read(base, json.loads(line)) if line.strip() else ([], 0)
            ids = ids[:longest]
            if len(ids) < SHORTEST:
                continue
            mark = np.zeros(len(ids), np.uint8)
            if written:
                mark[max(0, written - 1):] |= WRITTEN
            crc = zlib.crc32(np.array(ids, np.int32).tobytes())
            if crc % 1000 < 1000 * held_out:
                mark |= HELD_OUT
            self.texts.append(ids), self.hashes.append((crc % 1000, crc)), marks.append(mark)
            ends += [len(ends) + len(ids)] * len(ids)
        self.ids = np.array([i for ids in self.texts for i in ids], np.int32)
        self.ends, self.marks = np.array(ends, np.int32), np.concatenate(marks or [np.zeros(0, np.uint8)])

    @staticmethod
    def read(base, record):
        """Ids of a line, and where what the base wrote begins; 0: it wrote nothing."""
        tokens = record.get("tokens")
        if isinstance(tokens, list):
            return tokens, 0
        if "ids" in record:
            return record["ids"], len(record["ids"]) - tokens if tokens else 0
        return base.tokenize(record["text"]), 0

    def places(self, mark, value):
        """Places from which at least the first head's token is known, and whose marks are as asked for."""
        places = np.arange(len(self.ids))
        return places[(places + 2 < self.ends) & (self.marks & mark == value)]


def read_shards(base, paths, held_out, longest):
    """The shards of all files that paths name, but for empty ones. The text of the smallest hash is always held out."""
    shards = [s for s in (Shard(base, path, held_out, longest) for path in files_of(paths)) if s.texts]
    if not shards:
        raise SystemExit("no texts of %d tokens or more: %s" % (SHORTEST, ", ".join(paths) or "no files are given"))
    smallest = min(h for shard in shards for h in shard.hashes)
    for shard in shards:
        texts = np.repeat(np.array([h == smallest for h in shard.hashes], bool), list(map(len, shard.texts)))
        shard.marks[texts] |= HELD_OUT
    return shards


def most_probable(logits):
    """The TOP most probable tokens of rows of logits, and their probabilities."""
    best = logits.topk(TOP, sorted=True)
    return {"tops": best.indices.numpy(), "chances": (best.values - logits.logsumexp(-1, keepdim=True)).exp().numpy()}


class Store:
    """The folder of states. rows(shard) -> states, tops, chances: (n, base.read_width) float16, (n, TOP) ids and their
    probabilities under the base; kept=TOPS: tops and chances alone, which take far less room. goals=WRITTEN: tops and
    chances of places with this mark alone, zeros elsewhere. making: seconds in which states were made."""

    def __init__(self, folder, base, limit, numbers, pause="", kept=STATES, goals=0):
        self.folder, self.base, self.limit, self.numbers, self.pause = folder, base, limit, numbers, pause
        self.goals = goals
        self.kinds = {"states": (np.float16, base.read_width), "tops": (np.int32, TOP), "chances": (np.float16, TOP)}
        self.kept, self.open, self.making = kept, {}, 0.0
        os.makedirs(folder, exist_ok=True)

    def bytes(self, shard):
        """What a shard takes."""
        kinds = map(self.kinds.get, self.kept)
        return len(shard.ids) * sum(columns * np.dtype(kind).itemsize for kind, columns in kinds)

    def place(self, shard):
        """Where the states of a shard lie, or will lie."""
        parts = list(map(str, self.base.layers)) if "states" in self.kept else ["tops"]
        parts += ["written"] if self.goals else []
        return os.path.join(self.folder, "-".join([shard.key, str(self.numbers).replace("torch.", "")] + parts))

    def rows(self, shard):
        place = self.place(shard)
        if place not in self.open:
            if not os.path.isdir(place):
                began = time.time()
                self.make_room(self.bytes(shard))
                self.put(shard, self.parts(shard))
                self.making += time.time() - began
            self.open[place] = [np.load(os.path.join(place, name + ".npy"), mmap_mode="r") for name in self.kept]
            os.utime(place)
        return self.open[place]

    def make_room(self, wanted):
        """Deletes what was used longest ago until there is room."""
        places = [os.path.join(self.folder, n) for n in os.listdir(self.folder) if not n.endswith(".part")]
        size = {p: sum(os.path.getsize(os.path.join(p, n)) for n in os.listdir(p)) for p in places}
        for place in sorted(places, key=os.path.getmtime):
            if sum(size.values()) + wanted <= self.limit:
                break
            self.open.pop(place, None)
            shutil.rmtree(place)
            del size[place]

    @torch.no_grad()
    def parts(self, shard):
        """Runs the base over a shard: name -> rows, part by part."""
        width, at = self.base.width, 0
        for states in self.base.states(shard.texts):
            wait_while(self.pause)
            wanted = shard.marks[at:at + len(states)] & self.goals == self.goals
            logits = self.base.logits(torch.from_numpy(states[wanted, :width]), self.numbers)
            known = {name: np.zeros((len(states), TOP), self.kinds[name][0]) for name in TOPS}
            for name, rows in most_probable(logits).items():
                known[name][wanted] = rows
            yield dict(known, states=states[:, width:] if self.base.layers else states)
            at += len(states)

    def put(self, shard, parts):
        """Keeps what is known of a shard: name -> rows, part by part."""
        place = self.place(shard)
        part, at = place + ".part", 0
        shutil.rmtree(part, ignore_errors=True)
        os.makedirs(part)
        arrays = {name: np.lib.format.open_memmap(os.path.join(part, name + ".npy"), "w+", self.kinds[name][0],
                                                  (len(shard.ids), self.kinds[name][1])) for name in self.kept}
        for rows in parts:
            for name, array in arrays.items():
                array[at:at + len(rows[name])] = rows[name]
            at += len(rows["tops"])
        for array in arrays.values():
            array.flush()
        os.rename(part, place)

    def groups(self, shards):
        """Shards that fit into the folder together, group by group."""
        group, size = [], 0
        for shard in shards:
            if group and size + self.bytes(shard) > self.limit:
                yield group
                group, size = [], 0
            group.append(shard)
            size += self.bytes(shard)
        if group:
            yield group


def padded(arrays):
    """Arrays of different lengths as one, (arrays, longest, ...), with zeros behind them."""
    longest = max(map(len, arrays))
    return torch.stack([F.pad(a, [0, 0] * (a.dim() - 1) + [0, longest - len(a)]) for a in arrays])


class Batch:
    """Places of shards and all that heads need there. states: (n, width); tokens, targets: (heads, n); known:
    (heads, n), whether the text goes that far; tops, chances: (heads, n, TOP), the base's next tokens there."""

    def __init__(self, store, shards, places, heads):
        n = len(places)
        self.states = torch.empty(n, store.base.width)
        self.tokens, self.targets = (torch.zeros(heads, n, dtype=torch.long) for _ in range(2))
        self.known = torch.zeros(heads, n, dtype=torch.bool)
        self.tops, self.chances = torch.zeros(heads, n, TOP, dtype=torch.long), torch.zeros(heads, n, TOP)
        for s in np.unique(places[:, 0]):
            rows, shard = np.nonzero(places[:, 0] == s)[0], shards[s]
            order = np.argsort(places[rows, 1], kind="stable")
            rows = rows[order]
            self.fill(store.rows(shard), shard, rows, places[rows, 1].astype(np.int64), heads)

    def fill(self, arrays, shard, rows, places, heads):
        """The rows that lie in one shard."""
        states, tops, chances = arrays
        rows = torch.from_numpy(rows)
        self.states[rows] = torch.from_numpy(states[places].astype(np.float32))
        for i in range(heads):
            known = places + 2 + i < shard.ends[places]
            far = np.minimum(places + 2 + i, shard.ends[places] - 1)
            self.tokens[i, rows] = torch.from_numpy(shard.ids[far - 1].astype(np.int64))
            self.targets[i, rows] = torch.from_numpy(shard.ids[far].astype(np.int64))
            self.known[i, rows] = torch.from_numpy(known)
            self.tops[i, rows] = torch.from_numpy(tops[far - 1].astype(np.int64))
            self.chances[i, rows] = torch.from_numpy(chances[far - 1].astype(np.float32) * known[:, None])


def faster_numbers():
    """bfloat16 where the processor multiplies it faster, else float32. That comes last: the threads of its library keep
    turning for a while when they are done."""
    seconds = {}
    for numbers in (torch.bfloat16, torch.float32):
        a, b = torch.randn(256, 1024).to(numbers), torch.randn(2048, 1024).to(numbers)
        times = []
        for _ in range(20):
            began = time.time()
            a @ b.T
            times.append(time.time() - began)
        seconds[numbers] = min(times)
    return min(seconds, key=seconds.get)
