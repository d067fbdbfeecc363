#!/usr/bin/env python3
"""Do the tests notice a small fault? Puts one fault after the other into a copy of the tree (a sign, an index, a bound, a dropped mask),
joins the header and runs "make test" (with --check: "make check DEPTH=2") until a test fails.

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

# part, text that it holds once, text with the fault
FAULTS = [
    ("base/op", "(whole - half - 1u) << 23", "(whole - half - 2u) << 23"),
    ("quant/decode", "i < 8 ? packed[i] & 15 : packed[i - 8] >> 4", "i < 8 ? packed[i] & 7 : packed[i - 8] >> 4"),
    ("quant/tiles", "from + (size_t)i * from_step, 4)", "from + (size_t)i * from_step, 3)"),
    ("quant/fit", "(peak < 0 ? -peak : peak) / 127)", "(peak < 0 ? -peak : peak) / 126)"),
    ("quant/encode", "(codes[i + 16] + 8) << 4", "(codes[i + 16] + 7) << 4"),
    ("kernel/scalar", "(codes[g * granule + i] + offset)", "(codes[g * granule + i] - offset)"),
    ("kernel/lanes", "X(load)(at + 48)", "X(load)(at + 32)"),
    ("kernel/avx2_multiply", "_mm256_loadu_ps(panel->minimum[k] + half * 8)", "_mm256_loadu_ps(panel->minimum[k] + 8 - half * 8)"),
    ("kernel/avx512", "SPECDEC__TILE_AT(q6_k, nibbles) + eighth / 4 * 1024", "SPECDEC__TILE_AT(q6_k, nibbles) + eighth / 4 * 512"),
    ("kernel/lines", "if (at == whole - 1)", "if (at == whole)"),
    ("text/merge", "return a < b ? a : b;", "return a <= b ? b : a;"),
    ("text/unicode", "high = 0x9f; /* surrogates */", "high = 0xbf; /* surrogates */"),
    ("text/stop", "scan->cut = scan->strings[scan->stopped - 1].size + (length - i);", "scan->cut = scan->strings[scan->stopped - 1].size + (length - i) + 1;"),
    ("text/decode", "for (back = 1; back <= 3 && back <= length; back++)", "for (back = 1; back <= 2 && back <= length; back++)"),
    ("text/words", "(a == 'l' && b == 'l') ? 3 : 0", "(a == 'l' && b == 'l') ? 2 : 0"),
    ("text/template_run", "(text[start - 1] == ' ' || text[start - 1] == '\\t'); start--)", "text[start - 1] == ' '; start--)"),
    ("text/chat", "if (role != SPECDEC_ASSISTANT && previous != SPECDEC_SYSTEM)", "if (role != SPECDEC_ASSISTANT)"),
    ("model/gguf", "if (value < low || value > high)", "if (value < low || value >= high)"),
    ("model/rope", "specdec__exp_double(-2.0 * i / m->rope_dim", "specdec__exp_double(-2.0 * i / (m->rope_dim + 1)"),
    ("cache/reserve", "for (; i < count && at < s->length; i++, at++)", "for (; i < count && at <= s->length; i++, at++)"),
    ("forward/attention", "end = c->place[node] + 1 - block * SPECDEC__KEYS", "end = c->place[node] - block * SPECDEC__KEYS"),
    ("forward/multiply", "if (rows >= SPECDEC__ROWS) {", "if (rows > SPECDEC__ROWS) {"),
    ("speculation/sample", "#define SPECDEC__SAMPLE_GUMBEL_MAX 22.1808f", "#define SPECDEC__SAMPLE_GUMBEL_MAX 2.1808f"),
    ("speculation/tree", "(times[i] + l * draft_time)", "(times[i] + (l + 1) * draft_time)"),
    ("speculation/verify", "sum += p < q ? p : q;", "sum += p < q ? q : p;"),
    ("speculation/ngram", "for (scanned = 0; child >= 0 && scanned < SPECDEC__NGRAM_SCAN;", "for (scanned = 1; child > 0 && scanned < SPECDEC__NGRAM_SCAN;"),
    ("speculation/levels", "specdec__draft_children(m, p, level[i], i);", "specdec__draft_children(m, p, level[i], 0);"),
    ("speculation/tune", "seconds = !cold || seconds < times[width] ? seconds : times[width];", "seconds = !cold || seconds > times[width] ? seconds : times[width];"),
    ("engine/stream", "while (i < most && t->tokens[i] == tokens[i])", "while (i <= most && t->tokens[i] == tokens[i])"),
    ("engine/sequences", "x->parent == t && x->fork_at > count", "x->parent == t && x->fork_at >= count"),
    ("engine/save", "t->stream.held[i] = (unsigned char)(field[SPECDEC__SAVE_HALF_BYTES] >> 8 * i);", "t->stream.held[i] = (unsigned char)(field[SPECDEC__SAVE_HALF_BYTES] >> 7 * i);"),
    ("engine/slide", "memcpy(t->tokens + t->room, t->tokens + keep,", "memcpy(t->tokens + t->room, t->tokens + keep + 1,"),
    ("engine/fields", "for (*value = 0; *text >= '0' && *text <= '9'; text++) {", "for (*value = 0; *text >= '0' && *text <= '8'; text++) {"),
    ("cluster/wire", "size > room || size % 4)", "size >= room || size % 4)"),
]


def put(root, number):
    """The fault's line, once it is in the part."""
    part, good, bad = FAULTS[number]
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
    command = ["make", "check", "DEPTH=2"] if "--check" in words else ["make", "test"]
    numbers = [int(word) for word in words if word.isdigit()] or range(len(FAULTS))
    tree = subprocess.run(["git", "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True).stdout.strip()
    caught = 0
    for number in numbers:
        with tempfile.TemporaryDirectory() as root:
            root = os.path.join(root, "tree")
            shutil.copytree(tree, root, ignore=shutil.ignore_patterns(".git", "build", "models"))
            line = put(root, number)
            began = time.time()
            found = None
            if subprocess.run(["make", "header"], cwd=root, capture_output=True, check=False).returncode:
                found = "make header"
            found = found or verdict(root, command)
        caught += found is not None
        print(f"{number:2} {FAULTS[number][0]}:{line}: {FAULTS[number][2]}\n   {'caught: ' + found if found else 'NOT CAUGHT'} "
              f"({time.time() - began:.0f} s)", flush=True)
    print(f"{caught} of {len(list(numbers))} caught")


if __name__ == "__main__":
    main()
