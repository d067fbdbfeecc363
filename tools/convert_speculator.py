#!/usr/bin/env python3
"""Converts trained heads from the published layout (config.json and *.safetensors in one folder) to GGUF.

    convert_speculator.py FOLDER OUT.gguf [--type F32|F16|Q8_0|Q4_0] [--name NAME]

MLP speculators: config.json has emb_dim, inner_dim (0: emb_dim), n_predict, vocab_size, tie_weights, scale_input; the
tensors are emb.N.weight, proj.N.weight, head.N.weight, ln.N.weight, ln.N.bias, as they are or behind `speculator.`.
Tied ones are stored once.
Medusa: config.json has medusa_num_heads, medusa_num_layers and perhaps hidden_size, vocab_size; the tensors are
H.B.linear.weight, H.B.linear.bias, H.LAYERS.weight, as they are or behind `medusa_head.`.
Inputs are F32, F16 or BF16. Vectors stay F32. Python's standard library and numpy are all it takes."""
import argparse
import json
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lab", "train"))
import gguf
import speculator

KINDS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7}
PREFIXES = ("speculator.", "medusa_head.")
MOST_HEADS, MOST_BLOCKS, LARGEST = 64, 64, 1 << 30


class Wrong(Exception):
    """What is wrong with the input."""


def safetensors(path):
    """name -> float32 array of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack_from("<Q", data)[0] if len(data) >= 8 else len(data)
    if length > len(data) - 8:
        raise Wrong("%s is no safetensors file" % path)
    try:
        header, values = json.loads(data[8:8 + length]), memoryview(data)[8 + length:]
        return {name: array_of(path, name, info, values) for name, info in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Wrong("%s is no safetensors file: its header is wrong (%s)" % (path, error)) from None


def array_of(path, name, info, data):
    """One tensor of a safetensors file."""
    kind, shape, (begin, end) = info["dtype"], info["shape"], info["data_offsets"]
    if kind not in KINDS:
        raise Wrong("%s: %s is of type %s; F32, F16 and BF16 are read" % (path, name, kind))
    size = np.dtype(KINDS[kind]).itemsize * int(np.prod(shape, dtype=object))
    if not 0 <= begin <= end <= len(data) or end - begin != size:
        raise Wrong("%s: %s does not lie in the file as its header says" % (path, name))
    values = np.frombuffer(data[begin:end], KINDS[kind])
    if kind == "BF16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    if not np.isfinite(values).all():
        raise Wrong("%s: %s holds values that are not finite" % (path, name))
    return values.astype(np.float32).reshape(shape)


def read_folder(folder):
    """config.json, and all tensors of all safetensors files by their names without a prefix."""
    try:
        with open(os.path.join(folder, "config.json")) as file:
            config = json.load(file)
    except (OSError, ValueError) as error:
        raise Wrong("config.json: %s" % error) from None
    tensors = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            for full, array in safetensors(os.path.join(folder, name)).items():
                if bare(full) in tensors:
                    raise Wrong("%s: the tensor %s is there twice" % (name, bare(full)))
                tensors[bare(full)] = array
    if not tensors:
        raise Wrong("%s holds no safetensors file with tensors" % folder)
    return config, tensors


def bare(name):
    """A tensor's name without a prefix."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix):]
    return name


def number(config, key, most, otherwise=None):
    """A count of config.json, from 1 to most."""
    value = config.get(key, otherwise)
    if value is None:
        raise Wrong("config.json has no %s" % key)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise Wrong("config.json: %s is %s, which is no number from 1 to %d" % (key, json.dumps(value), most))
    return value


def truth(config, key):
    """A switch of config.json; what is missing is false."""
    value = config.get(key, False)
    if not isinstance(value, bool):
        raise Wrong("config.json: %s is %s, which is neither true nor false" % (key, json.dumps(value)))
    return value


def mlp(config, _):
    """The layout of an MLP speculator, and what becomes of which tensor: (published name, name in the file)."""
    width, heads = number(config, "emb_dim", LARGEST), number(config, "n_predict", MOST_HEADS)
    inner = number(config, "inner_dim", LARGEST) if config.get("inner_dim") != 0 else width
    tied = truth(config, "tie_weights")
    layout = speculator.mlp(number(config, "vocab_size", LARGEST), width, inner, heads, tied,
                            truth(config, "scale_input"))
    parts = (("emb", "weight"), ("proj", "weight"), ("head", "weight"), ("ln", "weight"), ("ln", "bias"))
    return layout, [("%s.%d.%s" % (part, i, kind), speculator.mlp_name(part, kind, i, tied))
                    for i in range(heads) for part, kind in parts]


def medusa(config, tensors):
    """The layout of Medusa's heads, and what becomes of which tensor. Published files leave two numbers out."""
    heads, blocks = number(config, "medusa_num_heads", MOST_HEADS), number(config, "medusa_num_layers", MOST_BLOCKS)
    head = tensors.get("0.%d.weight" % blocks, np.zeros(0))
    rows, width = head.shape if head.ndim == 2 else (None, None)
    layout = speculator.medusa(number(config, "vocab_size", LARGEST, rows),
                               number(config, "hidden_size", LARGEST, width), heads, blocks)
    pairs = []
    for i in range(heads):
        for block in range(blocks):
            pairs += [("%d.%d.linear.%s" % (i, block, kind), "medusa.%d.block.%d.%s" % (i, block, kind))
                      for kind in ("weight", "bias")]
        pairs.append(("%d.%d.weight" % (i, blocks), "medusa.%d.head.weight" % i))
    return layout, pairs


def gathered(layout, pairs, tensors):
    """name in the file -> array. Of tensors that are one in the file, one must be there and all must be equal."""
    found, first = {}, {}
    for source, name in pairs:
        if source not in tensors:
            continue
        array = tensors[source]
        if array.shape != layout.tensors[name]:
            raise Wrong("the tensor %s is %s and should be %s" % (source, shape_text(array.shape),
                                                                 shape_text(layout.tensors[name])))
        if name in found and not np.array_equal(found[name], array):
            raise Wrong("weights are tied, but %s is not equal to %s" % (source, first[name]))
        found.setdefault(name, array), first.setdefault(name, source)
    for source, name in pairs:
        if name not in found:
            raise Wrong("the tensor %s is missing" % source)
    unknown = sorted(set(tensors) - {source for source, _ in pairs})
    if unknown:
        raise Wrong("the tensor %s is not one of these heads" % unknown[0])
    return {name: found[name] for _, name in pairs}


def shape_text(shape):
    return " x ".join(map(str, shape)) or "a single number"


def convert(folder, out, type_name, name):
    """Writes the GGUF file of a folder. Returns the architecture and what the file holds."""
    config, tensors = read_folder(folder)
    if not isinstance(config, dict) or ("n_predict" in config) == ("medusa_num_heads" in config):
        raise Wrong("config.json is neither an MLP speculator's (n_predict) nor Medusa's (medusa_num_heads)")
    layout, pairs = (mlp if "n_predict" in config else medusa)(config, tensors)
    found = gathered(layout, pairs, tensors)
    meta = dict(layout.meta)
    meta["general.name"] = (gguf.STRING, name)
    meta["general.file_type"] = (gguf.U32, FILE_TYPES[type_name])
    part = out + ".part"
    try:
        with np.errstate(all="ignore"):
            gguf.write(part, meta, found, type_name)
            written = gguf.Reader(part).tensors
            for name in written:
                if not np.isfinite(written[name]).all():
                    source = next(source for source, stored in pairs if stored == name)
                    raise Wrong("the tensor %s holds values that are too large for %s" % (source, type_name))
        os.replace(part, out)
    finally:
        if os.path.exists(part):
            os.remove(part)
    return layout.architecture, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--type", choices=sorted(FILE_TYPES), default="Q8_0")
    parser.add_argument("--name")
    given = parser.parse_args()
    name = given.name or os.path.basename(os.path.abspath(given.folder))
    try:
        architecture, found = convert(given.folder, given.out, given.type, name)
    except (Wrong, OSError) as error:
        sys.exit("convert_speculator.py: %s" % error)
    print("%s: %s, %d tensors, %d bytes" % (given.out, architecture, len(found), os.path.getsize(given.out)))


if __name__ == "__main__":
    main()
