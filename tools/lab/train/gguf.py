"""Reads and writes GGUF files as far as training needs it: any metadata; tensors in the types of TYPES."""
import collections.abc
import mmap
import struct

import numpy as np

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
U32, F32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
BLOCK = 32                                                 # values of a block of Q8_0 and Q4_0
PEAKS = -np.arange(6.5, 9.51, 0.25, dtype=np.float32)      # codes tried for the largest value of a block of Q4_0


def encoded_q8_0(values):
    """Bytes of blocks; the scale is the largest magnitude over 127. values: (blocks, 32)"""
    blocks = np.zeros(len(values), TYPES["Q8_0"].block)
    blocks["scale"] = np.abs(values).max(1) / 127
    blocks["codes"] = codes_of(values, blocks["scale"], -127, 127)
    return blocks.tobytes()


def codes_of(values, scale, low, high):
    """The nearest codes at a scale a block. values: (blocks, n), scale: (blocks)"""
    scale = scale.astype(np.float32)[:, None]
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    return np.rint(values * inverse).clip(low, high).astype(np.int8)


def encoded_q4_0(values):
    """Bytes of blocks; the scale is the best by least squares of those tried. values: (blocks, 32)"""
    rows = np.arange(len(values))
    peak = values[rows, np.abs(values).argmax(1)]
    best, gain = np.zeros(len(values), np.float32), np.zeros(len(values), np.float32)
    for code in PEAKS:
        codes = codes_of(values, peak / code, -8, 7).astype(np.float32)
        along, square = (values * codes).sum(1), (codes * codes).sum(1)
        gained = np.divide(along * along, square, out=np.zeros_like(gain), where=square > 0)
        better = gained > gain
        gain[better], best[better] = gained[better], (along[better] / square[better])
    blocks = np.zeros(len(values), TYPES["Q4_0"].block)
    blocks["scale"] = best
    codes = (codes_of(values, blocks["scale"], -8, 7) + 8).astype(np.uint8)
    blocks["codes"] = codes[:, :16] | codes[:, 16:] << 4
    return blocks.tobytes()


def decoded_q8_0(blocks):
    return blocks["scale"].astype(np.float32)[:, None] * blocks["codes"]


def decoded_q4_0(blocks):
    codes = np.concatenate((blocks["codes"] & 15, blocks["codes"] >> 4), 1).astype(np.float32) - 8
    return blocks["scale"].astype(np.float32)[:, None] * codes


def decoded_q6_k(blocks):
    """256 values a block: low four bits, high two bits, a scale for each 16 values and one for all."""
    low = blocks["low"].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8)[:, None] & 15
    high = blocks["high"].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    codes = low.reshape(-1, 256) | high.reshape(-1, 256) << 4
    scales = blocks["scales"].astype(np.float32) * blocks["scale"].astype(np.float32)[:, None]
    return (codes.astype(np.float32) - 32) * scales.repeat(16, 1)


class Type:
    """A type of tensors: its number in files, how many values a block of it holds, what a block is, and how blocks
    become floats and (blocks, values) become bytes; the latter is None for types that are only read."""

    def __init__(self, number, values, block, decode, encode=None):
        self.number, self.values, self.block = number, values, np.dtype(block)
        self.decode, self.encode = decode, encode


TYPES = {
    "F32": Type(0, 1, "<f4", lambda b: b, lambda v: v.astype("<f4").tobytes()),
    "F16": Type(1, 1, "<f2", lambda b: b.astype(np.float32), lambda v: v.astype("<f2").tobytes()),
    "BF16": Type(30, 1, "<u2", lambda b: (b.astype(np.uint32) << 16).view(np.float32)),
    "I32": Type(26, 1, "<i4", lambda b: b, lambda v: v.astype("<i4").tobytes()),
    "Q4_0": Type(2, BLOCK, [("scale", "<f2"), ("codes", "u1", 16)], decoded_q4_0, encoded_q4_0),
    "Q8_0": Type(8, BLOCK, [("scale", "<f2"), ("codes", "i1", 32)], decoded_q8_0, encoded_q8_0),
    "Q6_K": Type(14, 256, [("low", "u1", 128), ("high", "u1", 64), ("scales", "i1", 16), ("scale", "<f2")],
                 decoded_q6_k),
}
NAMES = {kind.number: name for name, kind in TYPES.items()}


class Tensors(collections.abc.Mapping):
    """name -> float32 array (or int32), rows first, read when it is asked for."""

    def __init__(self, data, infos, start):
        self.data, self.infos, self.start = data, {name: info for name, *info in infos}, start

    def __iter__(self):
        return iter(self.infos)

    def __len__(self):
        return len(self.infos)

    def type(self, name):
        """The name of a tensor's type; None: one that is not read here."""
        return NAMES.get(self.infos[name][1])

    def shape(self, name):
        return self.infos[name][0]

    def __getitem__(self, name):
        shape, number, offset = self.infos[name]
        if number not in NAMES:
            raise ValueError("%s has type %d, which is not read here; specdec-quantize makes F16 of it" % (
                name, number))
        kind, count = TYPES[NAMES[number]], int(np.prod(shape))
        blocks = np.frombuffer(self.data, kind.block, count // kind.values, self.start + offset)
        return kind.decode(blocks).reshape(shape)


class Reader:
    """file.meta: name -> (type, value), an array's value being (type of its items, list).
    file.tensors: name -> array."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.at = 0
        magic, version, tensors, pairs = self.take("<4sIQQ")
        if magic != b"GGUF" or version not in (2, 3):
            raise ValueError(path + " is no GGUF file of version 2 or 3")
        self.meta = {}
        for _ in range(pairs):
            name, kind = self.string(), self.take("<I")[0]
            self.meta[name] = (kind, self.value(kind))
        infos = [self.tensor_info() for _ in range(tensors)]
        align = self.meta.get("general.alignment", (4, 32))[1]
        self.tensors = Tensors(self.bytes, infos, -(-self.at // align) * align)

    def __getitem__(self, name):
        return self.meta[name][1]

    def take(self, form):
        values = struct.unpack_from(form, self.bytes, self.at)
        self.at += struct.calcsize(form)
        return values

    def string(self):
        length = self.take("<Q")[0]
        self.at += length
        return self.bytes[self.at - length:self.at].decode("utf-8", "surrogateescape")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            item, count = self.take("<IQ")
            if item in SCALARS:
                return item, list(self.take(SCALARS[item].replace("<", "<%d" % count)))
            return item, [self.value(item) for _ in range(count)]
        return self.take(SCALARS[kind])[0]

    def tensor_info(self):
        name, dimensions = self.string(), self.take("<I")[0]
        shape = self.take("<%dQ" % dimensions)[::-1]
        return (name, shape) + self.take("<IQ")


def packed_string(text):
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def packed(kind, value):
    """The bytes of one metadata value."""
    if kind == STRING:
        return packed_string(value)
    if kind == ARRAY:
        item, values = value
        return struct.pack("<IQ", item, len(values)) + b"".join(packed(item, v) for v in values)
    return struct.pack(SCALARS[kind], value)


def encoded(array, name):
    """An array's type in a file, and its bytes: the type wanted for matrices; F32 for vectors, I32 for integers, F16
    where rows are no whole blocks."""
    if array.dtype.kind == "i":
        name = "I32"
    elif array.ndim < 2:
        name = "F32"
    elif array.shape[-1] % TYPES[name].values:
        name = "F16"
    kind = TYPES[name]
    values = np.ascontiguousarray(array).reshape(-1, kind.values)
    return kind.number, kind.encode(values if name == "I32" else values.astype(np.float32))


def write(path, meta, tensors, type="F32", align=32):
    """Writes a GGUF v3 file: meta as Reader has it, tensors (name -> array), matrices in the type; or type(name) is
    that of a tensor."""
    header = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(meta))]
    for name, (kind, value) in meta.items():
        header += [packed_string(name), struct.pack("<I", kind), packed(kind, value)]
    offset, blobs = 0, []
    for name, array in tensors.items():
        number, data = encoded(np.asarray(array), type(name) if callable(type) else type)
        shape = array.shape[::-1]
        header += [packed_string(name), struct.pack("<I%dQ" % len(shape), len(shape), *shape),
                   struct.pack("<IQ", number, offset)]
        blobs.append(data + b"\0" * (-len(data) % align))
        offset += len(blobs[-1])
    head = b"".join(header)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % align) + b"".join(blobs))
