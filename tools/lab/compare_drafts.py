"""Which drafter pays on which prompts: runs build/specdec on the first prompts of some files, plainly and with every
drafter in turn, and prints tokens a step, the share of drafting in the time, and tokens a second over those of plain
decoding. Every text is compared with the plain one.

python3 tools/lab/compare_drafts.py -m MODEL.gguf --mode 'n-grams=--spec ngram' --mode 'heads=-mh HEADS.gguf' FILE.jsonl...

Lines of the files have "turns" (the first is taken) or "prompt". Ratios are geometric means over prompts of the medians
of --repeat pairs; with --state FILE what was run is kept, and a run that was stopped goes on: the same prompts, model
and flags are not run again."""
import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile


def prompts_of(path, first):
    """The first prompts of a file of JSON lines."""
    prompts = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            if line.strip() and len(prompts) < first:
                item = json.loads(line)
                prompts.append(item["turns"][0] if "turns" in item else item["prompt"])
    return prompts


def stamp(path):
    """What a file is known by; None: it is no file."""
    return [os.path.abspath(path), os.path.getsize(path), os.path.getmtime(path)] if os.path.isfile(path) else None


def key_of(a, path, i, prompt, temperature):
    """By what the results of a prompt are kept: all that they depend on, but for the mode."""
    asked = json.dumps([stamp(a.m), a.n, a.repeat, a.t, a.chat, os.path.abspath(a.specdec), prompt])
    return "%s %s %d %s" % (temperature, os.path.abspath(path), i, hashlib.sha1(asked.encode()).hexdigest())


def run_once(a, prompt, temperature, flags, stats):
    """One answer: its text and its statistics."""
    command = [a.specdec, "-m", a.m, "-p", prompt, "-n", str(a.n), "--temp", str(temperature), "--seed", "1",
               "--no-echo", "--stats", stats]
    if a.t:
        command += ["-t", str(a.t)]
    if a.chat:
        command += ["--chat"]
    done = subprocess.run(command + flags, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        sys.exit("%s\n%s" % (" ".join(command + flags), done.stderr.decode("utf-8", "replace")))
    with open(stats, encoding="utf-8") as file:
        return done.stdout, json.load(file)


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def measure(a, modes, prompt, temperature, stats):
    """What every mode brings for a prompt: [tokens a step, share of drafting, speed over plain]. The modes take
    turns."""
    steps, share, ratios = {}, {}, {name: [] for name in modes}
    for _ in range(a.repeat):
        plain_text, plain = run_once(a, prompt, temperature, ["--spec", "off"], stats)
        for name, flags in modes.items():
            text, got = run_once(a, prompt, temperature, flags, stats)
            if text != plain_text:
                sys.exit("%s wrote another text than plain decoding for: %s" % (name, prompt))
            steps[name] = got["tokens_per_step"]
            share[name] = got["draft_s"] / got["seconds"] if got["seconds"] else 0
            if plain["tok_s"]:
                ratios[name].append(got["tok_s"] / plain["tok_s"])
    return {name: [steps[name], share[name], median(ratios[name]) if ratios[name] else 1] for name in modes}


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", required=True, help="the model")
    parser.add_argument("--mode", action="append", required=True, help="NAME=FLAGS of specdec, for each drafter")
    parser.add_argument("--first", type=int, default=20, help="prompts of each file (20)")
    parser.add_argument("-n", type=int, default=128, help="tokens of an answer (128)")
    parser.add_argument("--temps", default="0,0.7", help="temperatures (0,0.7)")
    parser.add_argument("--repeat", type=int, default=1, help="times each prompt is run (1)")
    parser.add_argument("-t", type=int, default=0, help="threads (specdec's default)")
    parser.add_argument("--chat", action="store_true", help="prompts are messages")
    parser.add_argument("--specdec", default="build/specdec")
    parser.add_argument("--state", help="where what was run is kept")
    parser.add_argument("files", nargs="+")
    a = parser.parse_args()
    modes = {}
    for mode in a.mode:
        name, _, flags = mode.partition("=")
        modes[name] = flags.split()
    # by what the results of a mode are kept: its name, its flags, the files that these name
    labels = {name: json.dumps([name, [[flag, stamp(flag)] for flag in flags]]) for name, flags in modes.items()}
    prompts = {path: prompts_of(path, a.first) for path in a.files}
    for path in prompts:
        if not prompts[path]:
            sys.exit("compare_drafts.py: there are no prompts in %s" % path)
    known = {}
    if a.state and os.path.exists(a.state):
        with open(a.state, encoding="utf-8") as file:
            known = json.load(file)
    handle, stats = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    jobs = [(path, i, prompt) for path in a.files for i, prompt in enumerate(prompts[path])]
    print("| temperature | prompts | %s |" % " | ".join("%s: tokens a step, drafting, over plain (least)" % name
                                                        for name in modes))
    print("|---|---|" + "---|" * len(modes))
    for temperature in a.temps.split(","):
        rows = {}
        for count, (path, i, prompt) in enumerate(jobs):
            key = key_of(a, path, i, prompt, temperature)
            if key not in known or set(labels.values()) - set(known[key]):
                measured = measure(a, modes, prompt, temperature, stats)
                known.setdefault(key, {}).update((labels[name], measured[name]) for name in modes)
                if a.state:
                    with open(a.state + ".new", "w", encoding="utf-8") as file:
                        json.dump(known, file)
                    os.replace(a.state + ".new", a.state)
            rows.setdefault(path, []).append({name: known[key][labels[name]] for name in modes})
            if sys.stderr.isatty():
                print("\r%s: %d of %d " % (temperature, count + 1, len(jobs)), end="", file=sys.stderr)
        everything = [row for path in rows for row in rows[path]]
        for title, some in [(os.path.basename(path), rows[path]) for path in rows] + [("all", everything)]:
            cells = []
            for name in modes:
                steps = sum(row[name][0] for row in some) / len(some)
                share = sum(row[name][1] for row in some) / len(some)
                speeds = [row[name][2] for row in some]
                cells.append("%.2f, %.0f %%, **%.2f** (%.2f)" % (
                    steps, 100 * share, geometric_mean(speeds), min(speeds)))
            print("| %s | %d of %s | %s |" % (temperature, len(some), title, " | ".join(cells)))
        sys.stdout.flush()
    os.remove(stats)


if __name__ == "__main__":
    main()
