"""Turns answers that hold a list into records of answers that fork (records.py).

    extract.py IN.jsonl OUT.jsonl [--plain SHARE] [--seed N]
    extract.py --self-test

A line of IN.jsonl is {"prompt", "answer"}, or {"messages": [{"role", "content"}, ...]}: then the last message is the
answer and the one before it the prompt. Rules, after APAR (Liu et al. 2024):

1  An item is a line that begins with "1." or "1)" and so on, or with "-", "*" or a bullet, and a space. Lines below
   it that are indented, or that directly follow, belong to it. Numbers go up by one from 1; bullets of a list are
   alike.
2  A title ends before the first ":" behind which there is a space (and behind the "**" of a bold title), or behind
   its first sentence; it has at most 12 words. The rest is the detail, which has at least 5 words. The fork is
   between them.
3  A list has at least two items, and every one of its items has a title and a detail; else it stays text.
4  A detail that leans on another item (above, below, previous, former, latter, step 2, ...) keeps its list text: a
   child does not see its brothers.
5  Answers with code or formulas (```, $$, \\\\[) are text as a whole.
6  Of the answers without a fork, --plain says which share to keep, so that the model does not fork without a list
   (0.1).

The texts of a record put together are the answer, byte for byte: checked for every one."""
import argparse
import json
import random
import re

import records

ITEM = re.compile(r"^(?:(\d+)[.)]|([-*\u2022])) +(?=\S)")
TITLE_BY_COLON = re.compile(r"^[^:\n]*?(?:\*\*)?(?=:(?:\*\*)?\s)")
TITLE_BY_SENTENCE = re.compile(r"^[^\n]*?[.!?](?=\s)")
LEANS = re.compile(r"\b(above|below|previous|former|latter|(?:item|step|point|number) \d+)\b", re.IGNORECASE)
NO_LISTS = ("```", "$$", "\\[", "\\begin{")
LONGEST_TITLE, SHORTEST_DETAIL, FEWEST_ITEMS = 12, 5, 2


def split_item(item):
    """Title and detail of an item, or None where it has not both."""
    mark = ITEM.match(item).end()
    for title in (TITLE_BY_COLON, TITLE_BY_SENTENCE):
        found = title.match(item[mark:])
        if found:
            at = mark + found.end()
            detail = item[at:]
            words, detail_words = len(item[mark:at].split()), len(detail.strip(":* \n").split())
            if 0 < words <= LONGEST_TITLE and detail_words >= SHORTEST_DETAIL:
                return item[:at], detail
    return None


def follows(line, before):
    """Whether a line begins an item that goes on with the list of the item before (None: begins a list)."""
    found = ITEM.match(line)
    if not found:
        return False
    number, bullet = found.groups()
    if before is None:
        return number in (None, "1")
    number_before, bullet_before = ITEM.match(before).groups()
    return bullet == bullet_before and (number is None or int(number) == int(number_before) + 1)


def blocks(answer):
    """The answer in pieces: texts, and lists as lists of items. Empty lines between items belong to the item
    before."""
    pieces, items, text = [], [], ""
    for line in answer.splitlines(True):
        blank_before = bool(items) and items[-1].endswith("\n\n")
        if follows(line, items[-1] if items else None):
            if text:
                pieces.append(text)
                text = ""
            items.append(line)
        elif items and (not line.strip() or line[0] in " \t" or not (blank_before or ITEM.match(line))):
            items[-1] += line
        else:
            if items:
                pieces.append(items)
                items = []
                if follows(line, None):
                    items.append(line)
                    continue
            text += line
    return pieces + ([items] if items else []) + ([text] if text else [])


def forked(items):
    """The parts of a list whose items fork, or None. The white space at an item's end is its parent's."""
    split = [split_item(item) for item in items]
    if len(items) < FEWEST_ITEMS or None in split or any(LEANS.search(detail) for _, detail in split):
        return None
    parts = []
    for title, detail in split:
        end = len(detail.rstrip())
        parts += [title, [detail[:end]]] + ([detail[end:]] if detail[end:] else [])
    return parts


def joined(parts):
    """Parts with neighbouring texts made one."""
    out = []
    for part in parts:
        if out and isinstance(part, str) and isinstance(out[-1], str):
            out[-1] += part
        else:
            out.append(part)
    return out


def parts_of(answer):
    """The parts of an answer; a single text where nothing forks."""
    if any(sign in answer for sign in NO_LISTS):
        return [answer]
    parts = []
    for piece in blocks(answer):
        parts += [piece] if isinstance(piece, str) else forked(piece) or ["".join(piece)]
    parts = joined(parts)
    assert records.restored(parts) == answer and not records.broken_rule(parts)
    return parts


def pair(line):
    """Prompt and answer of a line."""
    found = json.loads(line)
    if "messages" in found:
        return found["messages"][-2]["content"], found["messages"][-1]["content"]
    return found["prompt"], found["answer"]


CASES = (
    ("1. Red: the color of a ripe apple\n2. Blue: the color of the summer sky\n",
     ["1. Red", [": the color of a ripe apple"], "\n2. Blue", [": the color of the summer sky"], "\n"]),
    ("Two ways.\n\n- **Walk**: it is slow but costs nothing\n\n- **Ride**: it is fast but\n  needs a good horse\n\n"
     "Choose well.",
     ["Two ways.\n\n- **Walk**", [": it is slow but costs nothing"], "\n\n- **Ride**",
      [": it is fast but\n  needs a good horse"], "\n\nChoose well."]),
    ("1) Get up early. The sun is best before noon.\n2) Eat well. Bread and milk are enough.",
     ["1) Get up early.", [" The sun is best before noon."], "\n2) Eat well.", [" Bread and milk are enough."]]),
    ("- **Salt:** it keeps the fish for long\n- **Oil:** it keeps the lamps burning bright",
     ["- **Salt", [":** it keeps the fish for long"], "\n- **Oil", [":** it keeps the lamps burning bright"]]),
    ("1. Cut: cut the bread into four parts\n2. Eat: as in step 1 but with the mouth", None),  # leans on another
    ("1. Red\n2. Blue", None),                                             # titles alone
    ("1. Red: the color of a ripe apple", None),                           # one item
    ("2. Red: the color of a ripe apple\n3. Blue: the color of the summer sky", None),  # does not begin at 1
    ("1. Red: the color of a ripe apple\n```\n2\n```\n2. Blue: the color of the sky above us", None),  # code
    ("No list at all. Two sentences.", None),
    ("", None),
)


def self_test():
    for answer, wanted in CASES:
        found = parts_of(answer) if answer else [answer]
        assert found == (wanted or [answer]), (answer, found)
    print("extract.py: %d cases right" % len(CASES))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", nargs="?"), parser.add_argument("output", nargs="?")
    parser.add_argument("--plain", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--self-test", action="store_true")
    given = parser.parse_args()
    if given.self_test or not given.output:
        return self_test() if given.self_test else parser.error("IN.jsonl and OUT.jsonl are needed")
    rng, count = random.Random(given.seed), {True: 0, False: 0}
    with open(given.output, "w", encoding="utf-8") as out:
        for line in filter(str.strip, open(given.input, encoding="utf-8")):
            prompt, answer = pair(line)
            parts = parts_of(answer) if answer else []
            forks = records.forks(parts) > 0
            if parts and (forks or rng.random() < given.plain):
                out.write(json.dumps({"kind": "extracted", "prompt": prompt, "answer": parts}) + "\n")
                count[forks] += 1
    print("%d answers fork, %d are kept as text" % (count[True], count[False]))


if __name__ == "__main__":
    main()
