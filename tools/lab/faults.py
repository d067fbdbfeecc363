#!/usr/bin/env python3
"""Do the tests notice a small fault? Puts one fault after the other into a copy of the tree (a sign, an index, a bound, a dropped mask),
joins the header and runs tests of "make test" until one fails: first those that the fault's row names, then all (with --check:
"make check DEPTH=2" behind them).

    tools/lab/faults.py [--check] [NUMBER...]        all of them, or some by number; a line each: caught by which test, or not caught
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# part, text that it holds once, text with the fault, tests to try before all others
FAULTS = [
    ("base/op", "(whole - half - 1u) << 23", "(whole - half - 2u) << 23", "ops_scalar"),
    ("quant/decode", "i < 8 ? packed[i] & 15 : packed[i - 8] >> 4", "i < 8 ? packed[i] & 7 : packed[i - 8] >> 4", "files_types quant_wide"),
    ("quant/tiles", "from + (size_t)i * from_step, 4)", "from + (size_t)i * from_step, 3)", "quant_wide quant"),
    ("quant/fit", "(peak < 0 ? -peak : peak) / 127)", "(peak < 0 ? -peak : peak) / 126)", "quantize quant_wide files_types"),
    ("quant/encode", "(codes[i + 16] + 8) << 4", "(codes[i + 16] + 7) << 4", "quantize files_types quant_wide"),
    ("kernel/scalar", "(codes[g * granule + i] + offset)", "(codes[g * granule + i] - offset)", "quant_wide conformance"),
    ("kernel/lanes", "X(load)(at + 48)", "X(load)(at + 32)", "ops_scalar conformance"),
    ("kernel/avx2_multiply", "_mm256_loadu_ps(panel->minimum[k] + half * 8)", "_mm256_loadu_ps(panel->minimum[k] + 8 - half * 8)", "quant_wide conformance"),
    ("kernel/avx512", "SPECDEC__TILE_AT(q6_k, nibbles) + eighth / 4 * 1024", "SPECDEC__TILE_AT(q6_k, nibbles) + eighth / 4 * 512", "quant_wide conformance"),
    ("kernel/lines", "if (at == whole - 1)", "if (at == whole)", "quant_wide conformance"),
    ("text/merge", "return a < b ? a : b;", "return a <= b ? b : a;", "text"),
    ("text/unicode", "high = 0x9f; /* above are surrogates */", "high = 0xbf; /* surrogates */", "text"),
    ("text/stop", "scan->taken_bytes = scan->strings[scan->stopped - 1].size + (length - i);", "scan->taken_bytes = scan->strings[scan->stopped - 1].size + (length - i) + 1;", "ends"),
    ("text/decode", "for (back = 1; back <= 3 && back <= length; back++)", "for (back = 1; back <= 2 && back <= length; back++)", "text"),
    ("text/words", "(a == 'l' && b == 'l') ? 3 : 0", "(a == 'l' && b == 'l') ? 2 : 0", "text"),
    ("text/template_parse", "return space == line && (line > from || lines) ? line : tag;", "return space == line && line > from ? line : tag;", "template"),
    ("text/chat", "if (role != SPECDEC_ASSISTANT && previous != SPECDEC_SYSTEM)", "if (role != SPECDEC_ASSISTANT)", "formats chat"),
    ("model/gguf", "if (value < low || value > high)", "if (value < low || value >= high)", "broken_files model"),
    ("model/rope", "specdec__exp_double(-2.0 * i / dim", "specdec__exp_double(-2.0 * i / (dim + 1)", "conformance"),
    ("cache/reserve", "for (; i < count && at < s->length; i++, at++)", "for (; i < count && at <= s->length; i++, at++)", "conformance"),
    ("forward/attention", "specdec__forward_count_seen_keys(c, node) - base)", "specdec__forward_count_seen_keys(c, node) - base - 1)", "conformance"),
    ("forward/multiply", "memcpy(out, last, (size_t)rows * sizeof *out)", "memcpy(out, last, (size_t)(rows - 1) * sizeof *out)", "conformance"),
    ("base/base", "#define SPECDEC__NOISE_MAXIMUM 22.1808f", "#define SPECDEC__NOISE_MAXIMUM 2.1808f", "sample"),
    ("speculation/tree", "(times[i] + l * draft_time)", "(times[i] + (l + 1) * draft_time)", "tree_tables tree"),
    ("speculation/verify", "sum += p < q ? p : q;", "sum += p < q ? q : p;", "verify"),
    ("speculation/ngram", "list->items[i].share / sum", "list->items[i].share", "ngram texts"),
    ("speculation/levels", "specdec__draft_set_tokens_of_children(m, request, drafts, level[i], i);", "specdec__draft_set_tokens_of_children(m, request, drafts, level[i], 0);", "draft eagle lossless heads"),
    ("speculation/tune", "seconds = !cold || seconds < times[width] ? seconds : times[width];", "seconds = !cold || seconds > times[width] ? seconds : times[width];", "engine"),
    ("engine/stream", "while (i < most && t->tokens[i] == tokens[i])", "while (i <= most && t->tokens[i] == tokens[i])", "kept"),
    ("engine/sequences", "x->parent == t && x->fork_at > count", "x->parent == t && x->fork_at >= count", "texts"),
    ("engine/save", "t->stream.held[i] = (unsigned char)(field[SPECDEC__SAVE_HALF_BYTES] >> 8 * i);", "t->stream.held[i] = (unsigned char)(field[SPECDEC__SAVE_HALF_BYTES] >> 7 * i);", "save"),
    ("engine/slide", "memcpy(t->tokens + t->room, t->tokens + keep,", "memcpy(t->tokens + t->room, t->tokens + keep + 1,", "save"),
    ("engine/fields", "for (*value = 0; *text >= '0' && *text <= '9'; text++) {", "for (*value = 0; *text >= '0' && *text <= '8'; text++) {", "fields"),
    ("cluster/wire", "size > room || size % 4)", "size >= room || size % 4)", "pipe"),
]


def put(root, number):
    """The fault's line, once it is in the part."""
    part, good, bad, _ = FAULTS[number]
    path = os.path.join(root, "src", part + ".h")
    text = open(path, encoding="utf-8").read()
    if text.count(good) != 1:
        raise SystemExit(f"{number}: {part} holds {good!r} {text.count(good)} times")
    open(path, "w", encoding="utf-8").write(text.replace(good, bad))
    return text[: text.index(good)].count("\n") + 1


def verdict(root, command):
    """The first test that fails, or None; ends the run there."""
    run = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                           start_new_session=True)
    found = None
    for line in run.stdout:
        # "test_parts.sh" compares header and parts, which agree; a compiler's complaint counts as well
        if re.search(r"\bFAILED\b|: error:|Error \d", line) and not line.startswith("TRIED"):
            found = line.strip()[:150]
            break
    if found is not None:
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    return found


def main():
    words = sys.argv[1:]
    everything = ["make", "check", "DEPTH=2"] if "--check" in words else ["make", "test"]
    numbers = [int(word) for word in words if word.isdigit()] or range(len(FAULTS))
    tree = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True).stdout.strip()
    caught = 0
    with tempfile.TemporaryDirectory() as root:
        root = os.path.join(root, "tree")
        if os.path.isdir(os.path.join(tree, "..", "shared")):
            os.symlink(os.path.realpath(os.path.join(tree, "..", "shared")), os.path.join(os.path.dirname(root), "shared"))
        for name in subprocess.run(["git", "ls-files"], cwd=tree, capture_output=True, text=True, check=True).stdout.split("\n"):
            if os.path.isfile(os.path.join(tree, name)):
                os.makedirs(os.path.dirname(os.path.join(root, name)), exist_ok=True)
                shutil.copy(os.path.join(tree, name), os.path.join(root, name))
        for number in numbers:
            part, _, bad, first = FAULTS[number]
            path = os.path.join(root, "src", part + ".h")
            good = open(path, encoding="utf-8").read()
            line = put(root, number)
            began = time.time()
            names = ["build/test_" + name for name in first.split()]
            named = "make -s " + " ".join(names) + " && SPECDEC_QUICK=1 sh tests/run.sh " + " ".join(names)
            found = None
            if subprocess.run(["make", "header"], cwd=root, capture_output=True, check=False).returncode:
                found = "make header"
            found = found or verdict(root, ["sh", "-c", named]) or verdict(root, everything)
            open(path, "w", encoding="utf-8").write(good)
            caught += found is not None
            print(f"{number:2} {part}:{line}: {bad}\n   {'caught: ' + found if found else 'NOT CAUGHT'} ({time.time() - began:.0f} s)",
                  flush=True)
    print(f"{caught} of {len(list(numbers))} caught")


if __name__ == "__main__":
    main()
