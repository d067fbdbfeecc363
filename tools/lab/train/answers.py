"""Lets a model answer prompts, for heads to be trained on what it writes itself.

    answers.py MODEL.gguf PROMPTS.jsonl FOLDER [--plain] [--temp F] [--mix KIND=SHARE,...] [--shard N] [--tokens N]
               [--sequences N] [--threads N] [--seconds S] [--count N] [--seed N] [--many FILE] [--pause FILE]

Lines of prompts: {"prompt"} or {"messages"}; "kind", if there, is what --mix weighs: kinds that it does not name are
left out. A prompt is asked as a message of a chat; with --plain, or with "plain": true beside it, it is the beginning
of a text. Every second shard of so many prompts is answered greedily, the others at --temp (0.7), with their number as
seed. FOLDER/NNNNN.jsonl is written whole or not at all; what is there is not written again, so that the same command
goes on where it was stopped. While the file --pause exists, the writer stands still."""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time


def parser_of(description, **defaults):
    """The flags that all writers of answers have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("prompts")
    parser.add_argument("folder")
    parser.add_argument("--temp", type=float, default=0.7)
    parser.add_argument("--mix", default="")
    parser.add_argument("--shard", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--context", type=int, default=640)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--count", type=int, default=1 << 30, help="shards, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause", default="")
    parser.set_defaults(**defaults)
    return parser


def options():
    parser = parser_of(__doc__)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--many", default="build/many")
    return parser.parse_args()


def shuffled(prompts, mix, seed):
    """All prompts of the kinds of the mix in an order of their own, in which kinds appear by their shares until one
    is used up."""
    rng, kinds = random.Random(seed), {}
    for record in prompts:
        kinds.setdefault(record.get("kind", "") if mix else "", []).append(record)
    shares = {k: mix.get(k, 0) if mix else 1 for k in sorted(kinds)}
    places = []
    for kind, share in shares.items():
        rng.shuffle(kinds[kind])
        if share:
            places += [((i + rng.random()) / share, kind, i) for i in range(len(kinds[kind]))]
    return [kinds[kind][i] for _, kind, i in sorted(places)]


def file_of(given, number):
    """Where the answers of a shard lie, or will lie."""
    return os.path.join(given.folder, "%05d.jsonl" % number)


def shards_of(given):
    """number, how many there are, prompts; of the shards that are not answered yet."""
    with open(given.prompts) as file:
        prompts = [json.loads(line) for line in file if line.strip()]
    mix = {k: float(v) for k, v in (pair.split("=") for pair in given.mix.split(",") if pair)}
    order = shuffled(prompts, mix, given.seed)
    shards = [order[i:i + given.shard] for i in range(0, len(order), given.shard)][:given.count]
    for number, records in enumerate(shards):
        if not os.path.exists(file_of(given, number)):
            yield number, len(shards), records


def is_greedy(given, number):
    """Whether a shard is answered greedily; the others at given.temp."""
    return number % 2 == 0 or not given.temp > 0


def line_of(number, record, plain):
    """A line for many."""
    if "messages" in record:
        return {"id": number, "messages": record["messages"]}
    if plain or record.get("plain"):
        return {"id": number, "prompt": record["prompt"]}
    return {"id": number, "messages": [{"role": "user", "content": record["prompt"]}]}


def wait(process, pause, poll=0.2):
    """Waits for a process, which stands still while a file exists. Returns its exit status."""
    still = False
    while process.poll() is None:
        wanted = bool(pause) and os.path.exists(pause)
        if wanted != still:
            process.send_signal(signal.SIGSTOP if wanted else signal.SIGCONT)
            still = wanted
        time.sleep(poll)
    return process.returncode


def write_shard(given, number, records):
    """Answers the prompts of a shard. Returns the number of tokens written."""
    path = file_of(given, number)
    lines, answers = path + ".in", path + ".part"
    with open(lines, "w") as file:
        for i, record in enumerate(records):
            file.write(json.dumps(line_of(number * given.shard + i, record, given.plain)) + "\n")
    sampling = [] if is_greedy(given, number) else ["--temp", str(given.temp), "--seed", str(number)]
    with open(answers, "w") as out:
        process = subprocess.Popen(
            [given.many, "-m", given.model, "-f", lines, "-n", str(given.tokens), "-c", str(given.context), "--ids",
             "--sequences", str(given.sequences), "-t", str(given.threads), "--spec", "off"] + sampling, stdout=out)
        try:
            status = wait(process, given.pause)
        finally:
            if process.poll() is None:
                process.kill()
    with open(answers) as file:
        said = file.readlines()
    if status and (status != 1 or len(said) != len(records)):  # 1 with all lines: some say that they are too long
        sys.exit("answers.py: %s failed with status %d after %d of %d prompts; what it says stands above" % (
            given.many, status, len(said), len(records)))
    tokens = 0
    with open(path + ".new", "w") as kept:
        for line in said:
            answer = json.loads(line)
            if "ids" in answer and answer["tokens"]:
                tokens += answer["tokens"]
                kept.write(line)
    os.replace(path + ".new", path), os.remove(lines), os.remove(answers)
    return tokens


def main():
    given = options()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # takes the writer along
    os.makedirs(given.folder, exist_ok=True)
    began, tokens = time.time(), 0
    for number, count, records in shards_of(given):
        if time.time() - began > given.seconds:
            break
        tokens += write_shard(given, number, records)
        seconds = time.time() - began
        print("shard %d of %d, %d tokens, %.0f a second" % (number + 1, count, tokens, tokens / seconds),
              flush=True)


if __name__ == "__main__":
    main()
