#!/usr/bin/env python3
"""Random conversations over chat templates, rendered by jinja2 (PyPI) set as transformers sets it, as a suite for
specdec-chat-template.

    python3 templates.py FOLDER SEED ROUNDS [requests] > FOLDER-copy/cases.jsonl

With "requests" the cases are requests in OpenAI's form, for specdec-chat-template --requests: arguments of calls are
text, what the template gets is what specdec_chat_json is to give it.

FOLDER holds *.jinja; the suite must lie beside them (or beside links to them).
"""
import datetime
import glob
import json
import os
import random
import sys

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 11, 28)


class Generation(Extension):
    """{% generation %} writes its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


WORDS = ["fjord", "  two  ", "Köln", "\n\nline\n", "'quote'", '"double"', "<think>\nhm\n</think>\n\nyes", "<|im_end|>", "</think>",
         "{{ x }}", "a\\b", "日本語", "😀", "&amp; <b>", "", " ", "1.5", "tab\there", "<tool_call>", "[INST]", "\r\n", "end</s>",
         "<|eot_id|>", "%s", "a\u2028b", "ÄÖÜ ß", "/no_think", "x" * 300]


def text(r):
    return "".join(r.choice(WORDS) + r.choice(["", " ", ". "]) for _ in range(r.randint(0, 5)))


def value(r, depth=2):
    kind = r.randint(0, 7 if depth else 5)
    if kind == 0:
        return r.randint(-1000, 10 ** r.randint(1, 15))
    if kind == 1:
        return round(r.uniform(-100, 100), r.randint(0, 9))
    if kind == 2:
        return r.choice([True, False, None])
    if kind == 6:
        return [value(r, depth - 1) for _ in range(r.randint(0, 3))]
    if kind == 7:
        return {r.choice("abcdefgh") * r.randint(1, 3): value(r, depth - 1) for _ in range(r.randint(0, 3))}
    return text(r)


def schema(r, depth=2):
    kind = r.choice(["string", "integer", "number", "boolean"] + (["object", "array"] if depth else []))
    s = {"type": kind}
    if r.random() < .2:
        s["type"] = [kind, "null"]
    if r.random() < .7:
        s["description"] = text(r)
    if kind == "string" and r.random() < .4:
        s["enum"] = [r.choice(["celsius", "a b", "ü"]) for _ in range(r.randint(1, 3))]
    if r.random() < .2:
        s["default"] = value(r, 1)
    if kind == "array":
        s["items"] = schema(r, depth - 1)
    if kind == "object":
        s.update(parameters(r, depth - 1))
    return s


def parameters(r, depth=2):
    names = r.sample(["place", "days", "unit", "label", "x", "items", "Zeit", "b"], r.randint(0, 4))
    p = {"type": "object", "properties": {n: schema(r, depth) for n in names}}
    if r.random() < .7:
        p["required"] = [n for n in names if r.random() < .5]
    if r.random() < .1:
        p["additionalProperties"] = False
    return p


def tool(r, i):
    f = {"name": r.choice(["get_weather", "set_timer", "f"]) + str(i), "description": text(r), "parameters": parameters(r)}
    if r.random() < .1:
        f["return"] = {"type": "string"}
    return {"type": "function", "function": f}


def answer(r, tools):
    m = {"role": "assistant", "content": text(r)}
    if r.random() < .3:
        m["reasoning_content"] = text(r)
    if tools and r.random() < .5:
        calls = []
        for k in range(1 if r.random() < .7 else 2):
            arguments = {n: value(r) for n in r.sample(["place", "days", "unit", "x"], r.randint(0, 3))}
            calls.append({"id": "call_%05d%d" % (r.randint(0, 99999), k), "type": "function", "function": {
                "name": r.choice(tools)["function"]["name"],
                "arguments": arguments if r.random() < .9 else json.dumps(arguments)}})
        m["tool_calls"] = calls
        if r.random() < .3:
            m["content"] = r.choice([None, ""])
    return m


def conversation(r):
    tools = [tool(r, i) for i in range(r.randint(1, 3))] if r.random() < .5 else None
    messages = []
    if r.random() < .5:
        messages.append({"role": r.choice(["system", "system", "developer"]), "content": text(r)})
    for _ in range(r.randint(0, 4)):
        content = text(r)
        if r.random() < .1:
            content = [{"type": "text", "text": text(r)} for _ in range(r.randint(1, 2))]
        messages.append({"role": "user", "content": content})
        m = answer(r, tools)
        messages.append(m)
        for call in m.get("tool_calls", []):
            if r.random() < .9:
                messages.append({"role": "tool", "name": call["function"]["name"], "tool_call_id": call["id"],
                                 "content": text(r) if r.random() < .7 else json.dumps(value(r))})
        if m.get("tool_calls") and r.random() < .5:
            messages.append(answer(r, None))
    if r.random() < .85:
        messages.append({"role": "user", "content": text(r)})
    arguments = {}
    for name in ["enable_thinking", "thinking"]:
        if r.random() < .2:
            arguments[name] = r.random() < .5
    if r.random() < .1:
        arguments["reasoning_effort"] = r.choice(["low", "high"])
    return messages, tools, arguments


class Raised(Exception):
    """raise_exception was called."""


def given(messages, empty, text):
    """The messages of a request as a template gets them."""
    out = []
    for m in messages:
        content = m.get("content")
        if isinstance(content, list):
            content = "\n".join(part["text"] for part in content)
        n = {"role": m["role"], "content": "" if content is None and empty else content}
        if m.get("reasoning_content") is not None:
            n["reasoning_content"] = m["reasoning_content"]
        if m.get("tool_calls"):
            n["tool_calls"] = [{"id": c["id"], "type": "function", "function": {
                "name": c["function"]["name"],
                "arguments": c["function"]["arguments"] if text else json.loads(c["function"]["arguments"])}}
                for c in m["tool_calls"]]
        if "tool_call_id" in m:
            n["tool_call_id"] = m["tool_call_id"]
        if "name" in m:
            n["name"] = m["name"]
        out.append(n)
    return out


def request(env, template, case):
    """Fills in what is expected of a request: the first way to give the messages that the template takes."""
    first = None
    for way in range(4):
        try:
            case["expected"] = template.render(messages=given(case["messages"], way & 1, way & 2), tools=case["tools"] or None, bos_token="",
                                               eos_token="", add_generation_prompt=True, **case["chat_template_kwargs"])
            return
        except Raised as error:
            first = first or error
            break
        except Exception as error:
            first = first or error
    case["fails"] = type(first).__name__ + ": " + str(first)[:200]


def requests(folder, seed, rounds):
    env = environment()

    def raise_exception(message):
        raise Raised(message)

    env.globals["raise_exception"] = raise_exception
    for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
        with open(path, encoding="utf-8") as f:
            template = env.from_string(f.read())
        for k in range(rounds):
            messages, tools, arguments = conversation(random.Random("%d %s %d" % (seed, os.path.basename(path), k)))
            for m in messages:
                for call in m.get("tool_calls", []):
                    if not isinstance(call["function"]["arguments"], str):
                        call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=k % 2 == 0)
            case = {"template": os.path.basename(path), "case": str(k), "messages": messages, "tools": tools, "chat_template_kwargs": arguments}
            if not messages:
                continue
            request(env, template, case)
            print(json.dumps(case, ensure_ascii=False))


def main():
    folder, seed, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if sys.argv[4:] == ["requests"]:
        requests(folder, seed, rounds)
        return
    env = environment()
    for path in sorted(glob.glob(os.path.join(folder, "*.jinja"))):
        with open(path, encoding="utf-8") as f:
            template = env.from_string(f.read())
        for k in range(rounds):
            r = random.Random("%d %s %d" % (seed, os.path.basename(path), k))
            messages, tools, arguments = conversation(r)
            case = {"template": os.path.basename(path), "case": str(k), "messages": messages, "tools": tools,
                    "add_generation_prompt": r.random() < .8, "bos_token": "<s>", "eos_token": "</s>", "kwargs": arguments}
            try:
                case["expected"] = template.render(messages=messages, tools=tools, bos_token="<s>", eos_token="</s>",
                                                   add_generation_prompt=case["add_generation_prompt"], **arguments)
            except Exception as error:  # whatever Python raises is a refusal
                case["fails"] = type(error).__name__ + ": " + str(error)[:200]
            print(json.dumps(case, ensure_ascii=False))


main()
