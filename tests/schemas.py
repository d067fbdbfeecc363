#!/usr/bin/env python3
"""Answers of real models to 40 prompts with schemas of ten shapes, for test_schemas.sh: all parse and validate, they are
those of plain decoding, forced tokens make them faster, and obeying costs nothing. Needs PyPI's jsonschema.

    python3 tests/schemas.py BUILD MODEL.gguf [quick | WAY]

quick: one prompt of each shape, one way of drafting, no figures of time. WAY: only greedy, or only 0.8. Times are CPU time of one thread, so that other
work hardly counts; each is the least of several runs by turns. Ends with "NAME: N passed, M failed, 0 skipped"."""
import json
import os
import resource
import subprocess
import sys
import tempfile

import jsonschema

from driver_check import check, report


def text(most):
    return {"type": "string", "minLength": 1, "maxLength": most}


def record(properties, required=None):
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": list(properties) if required is None else required}


TREE = {"$ref": "#/$defs/node", "$defs": {"node": record({
    "label": text(20), "children": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/leaf"}}}),
    "leaf": record({"label": text(20), "size": {"type": "integer", "minimum": 0, "maximum": 99}})}}
SHAPES = [
    ("person", record({"first_name": text(20), "last_name": text(20), "age": {"type": "integer", "minimum": 0, "maximum": 120},
                       "occupation": text(30), "is_employed": {"type": "boolean"}}),
     ["Ada Lovelace, 36, wrote the first program.", "John Smith is a retired teacher, aged 71.", "Maria Garcia (29) drives a bus in Lisbon.",
      "My neighbour Tom Baker is 44 and bakes bread."]),
    ("review", record({"sentiment": {"enum": ["positive", "negative", "neutral"]}, "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                       "category": {"enum": ["electronics", "clothing", "household", "something else"]}, "summary": text(60)}),
     ["The phone broke after a day.", "I love this jacket, it is warm and light.", "The kettle boils water. That is all.",
      "The tickets came late, but the concert was great."]),
    ("list", {"type": "array", "minItems": 1, "maxItems": 4, "items": record({
        "ingredient": text(20), "quantity": {"type": "integer", "minimum": 1, "maximum": 500},
        "unit": {"enum": ["g", "ml", "pieces", "tablespoons"]}})},
     ["What do I need for pancakes?", "What do I need for a tomato salad?", "List what a simple soup needs.", "What is in bread?"]),
    ("order", record({"customer": record({"name": text(20), "email": {"type": "string", "format": "email", "maxLength": 40}}),
                      "shipping_address": record({"street": text(30), "city": text(20), "country_code": {"type": "string", "pattern": "^[A-Z]{2}$"}}),
                      "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": record({
                          "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, "quantity": {"type": "integer", "minimum": 1, "maximum": 10}})}}),
     ["Two lamps for Anna Berg, Oslo.", "One book to Paris for Luc Petit.", "Send Bob Jones of 5 High Street, London, three cups.",
      "Ms Tanaka in Kyoto wants a chair."]),
    ("call", {"anyOf": [record({"name": {"const": "get_current_weather"}, "arguments": record({
        "location": text(30), "unit": {"enum": ["celsius", "fahrenheit"]}})}),
        record({"name": {"const": "send_text_message"}, "arguments": record({"recipient": text(20), "message": text(60)})})]},
     ["How warm is it in Rome?", "Tell Eve that I am late.", "Will it rain in Berlin, in celsius?", "Write to Sam: happy birthday!"]),
    ("event", record({"event_title": text(30), "start_date": {"type": "string", "format": "date"},
                      "start_time": {"type": "string", "format": "time", "maxLength": 14}, "participants": {
                          "type": "array", "items": text(20), "minItems": 1, "maxItems": 3}, "recurring": {"type": "boolean"}}),
     ["Lunch with Ann and Joe on 3 May 2026 at noon.", "The team meets every Monday at nine.", "A concert on Christmas eve, at eight.",
      "Dentist, 14 July 2025, 10:30."]),
    ("measure", record({"temperature_celsius": {"type": "number", "minimum": -50, "maximum": 60, "multipleOf": 0.5},
                        "humidity_percent": {"type": "integer", "minimum": 0, "maximum": 100}, "pressure_hectopascal": {
                            "type": "integer", "exclusiveMinimum": 900, "exclusiveMaximum": 1100}, "station_identifier": {
                                "type": "string", "pattern": "^ST[0-9]{3}$"}}),
     ["Station 12: 21 degrees, 40 % humid, 1013 hPa.", "It froze at station 7 last night.", "A hot and dry day at station 300.",
      "Give a typical autumn reading."]),
    ("tree", TREE, ["A folder with two files.", "The parts of a bicycle.", "A book and its chapters.", "The rooms of a house."]),
    ("settings", record({"configuration_version": {"const": 3}, "enable_automatic_updates": {"type": "boolean"},
                         "preferred_interface_language": {"enum": ["english", "german", "french", "spanish"]},
                         "notification_preferences": record({"email_notifications_enabled": {"type": "boolean"},
                                                             "push_notifications_enabled": {"type": "boolean"},
                                                             "maximum_notifications_per_day": {"type": "integer", "minimum": 0, "maximum": 50}})}),
     ["No mails, please, and speak German.", "Everything on.", "French, five notes a day at most.", "Spanish, no updates."]),
    ("answer", record({"question_understood": {"type": "boolean"}, "short_answer": {"type": ["string", "null"], "maxLength": 60},
                       "sources": {"type": "array", "maxItems": 2, "items": record({"title": text(30), "year": {
                           "type": "integer", "minimum": 1900, "maximum": 2030}})}}),
     ["Who painted the Mona Lisa?", "What is the largest planet?", "Why is the sky blue?", "How many legs has a spider?"]),
]
WAYS = [("greedy", ["--temp", "0"]), ("0.8", ["--temp", "0.8", "--seed", "7"])]


class Judge:
    def __init__(self, build, model, quick):
        self.program, self.model, self.quick = os.path.join(build, "many"), model, quick
        self.rounds = 1 if quick or os.path.getsize(model) > 200 << 20 else 2
        self.lines = [{"id": "%s %d" % (name, i), "schema": schema, "messages": [
            {"role": "user", "content": "Answer in JSON (%s). %s" % (name, prompt)}]}
            for name, schema, prompts in SHAPES for i, prompt in enumerate(prompts[:1] if quick else prompts)]
        self.schemas = {line["id"]: line["schema"] for line in self.lines}

    def run(self, flags, lines=None):
        """The answers to lines, and the CPU seconds that they took."""
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines or self.lines))
            file.flush()
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = subprocess.run([self.program, "-m", self.model, "-f", file.name, "--in-order", "--sequences", "1", "-t", "1", "-c", "1024",
                                   "-n", "400"] + flags, capture_output=True, text=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        check("many answers", done.returncode == 0, done.stderr[:500])
        return [json.loads(line) for line in done.stdout.splitlines()], after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    def obeys(self, way, answers):
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        check("every prompt is answered", len(answers) == len(self.lines))
        for answer in answers:
            schema = self.schemas[answer["id"]]
            try:
                jsonschema.Draft202012Validator(schema, format_checker=checker).validate(json.loads(answer["text"]))
                good = True
            except (ValueError, jsonschema.ValidationError):
                good = False
            check("an answer parses and validates (%s)" % way, good, json.dumps(answer)[:400])

    def texts(self, way, flags):
        """Answers with and without drafts, without a constraint besides, with as many tokens, and the time of each."""
        times = {"off": [], "forced": [], "free": []}
        for turn in range(self.rounds):
            plain, seconds = self.run(flags + ["--spec", "off"])
            times["off"].append(seconds)
            if turn == 0:
                self.obeys(way, plain)
            for spec in ["forced"] if turn else ["auto"] if self.quick else ["forced", "auto"] if self.rounds == 1 else [
                    "forced", "auto", "ngram", "auto --sequences 5"]:
                other, seconds = self.run(flags + ["--spec"] + spec.split())
                times.setdefault(spec, []).append(seconds)
                check("the texts of --spec %s are those of plain decoding (%s)" % (spec, way), [a["text"] for a in other] == [a["text"] for a in plain])
            if not self.quick:
                free = [dict({key: line[key] for key in ("id", "messages")}, max_tokens=answer["tokens"])
                        for line, answer in zip(self.lines, plain)]
                other, seconds = self.run(flags + ["--spec", "off", "--ignore-eos"], free)
                times["free"].append(seconds)
                check("as many tokens without a constraint", [a["tokens"] for a in other] == [a["tokens"] for a in plain])
        return sum(answer["tokens"] for answer in plain), {name: min(seconds) for name, seconds in times.items() if seconds}

    def speed(self, way, tokens, times):
        """Forced tokens against none, and a constraint against none."""
        print("%s, %s: %d tokens in 40 answers; CPU seconds plain %.2f, forced %.2f: %.2f times as fast, auto %.2f: %.2f; without constraint "
              "%.2f: a token costs %.3f of that" % (os.path.basename(self.model), way, tokens, times["off"], times["forced"],
                                                    times["off"] / times["forced"], times["auto"], times["off"] / times["auto"], times["free"],
                                                    times["off"] / times["free"]), flush=True)
        # off, too, leaves the output matrix out where the next token is forced
        check("forced tokens make answers 1.2 times as fast (%s)" % way, times["off"] / times["forced"] >= 1.2)
        check("obeying costs at most 3 %% a token (%s)" % way, times["off"] <= 1.03 * times["free"])


def main():
    what = sys.argv[3] if len(sys.argv) > 3 else ""
    judge = Judge(sys.argv[1], sys.argv[2], what == "quick")
    for way, flags in WAYS:
        if what not in ("", "quick", way):
            continue
        tokens, times = judge.texts(way, flags)
        if not judge.quick:
            judge.speed(way, tokens, times)
    return report("schemas.py")


sys.exit(main())
