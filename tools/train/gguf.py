"""Reads and writes GGUF files, as far as small llamas need it: any metadata, tensors of F32, F16, Q8_0."""
import struct

import numpy as np

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
F32, F16, Q8_0 = 0, 1, 8


class Reader:
    """file.meta: name -> (type, value), an array's value being (type of its items, list).
    file.tensors: name -> float32 array, rows first."""

    def __init__(self, path):
        self.bytes = open(path, "rb").read()
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
        start = -(-self.at // align) * align
        self.tensors = {name: self.floats(shape, kind, start + offset) for name, shape, kind, offset in infos}

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
            return item, [self.value(item) for _ in range(count)]
        return self.take(SCALARS[kind])[0]

    def tensor_info(self):
        name, dimensions = self.string(), self.take("<I")[0]
        shape = self.take("<%dQ" % dimensions)[::-1]
        return (name, shape) + self.take("<IQ")

    def floats(self, shape, kind, offset):
        count = int(np.prod(shape))
        if kind in (F32, F16):
            values = np.frombuffer(self.bytes, "<f4" if kind == F32 else "<f2", count, offset)
        elif kind == Q8_0:
            blocks = np.frombuffer(self.bytes, [("scale", "<f2"), ("q", "i1", 32)], count // 32, offset)
            values = blocks["scale"].astype(np.float32)[:, None] * blocks["q"]
        else:
            raise ValueError("tensors of type %d are not read here; specdec-quantize makes F16 of them" % kind)
        return values.astype(np.float32).reshape(shape)


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


def write(path, meta, tensors, align=32):
    """Writes a GGUF v3 file: meta as Reader has it, tensors (name -> array) as F32."""
    header = [struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(meta))]
    for name, (kind, value) in meta.items():
        header += [packed_string(name), struct.pack("<I", kind), packed(kind, value)]
    offset, blobs = 0, []
    for name, array in tensors.items():
        shape = array.shape[::-1]
        header += [packed_string(name), struct.pack("<I%dQ" % len(shape), len(shape), *shape),
                   struct.pack("<IQ", F32, offset)]
        data = np.ascontiguousarray(array, "<f4").tobytes()
        blobs.append(data + b"\0" * (-len(data) % align))
        offset += len(blobs[-1])
    head = b"".join(header)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % align) + b"".join(blobs))
