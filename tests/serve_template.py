# serve_template.py MODEL OUT - writes a copy of a GGUF file with a chat template that has calls of tools, as Qwen's have them.
import struct, sys, tempfile

TEMPLATE = """{%- if tools %}<|im_start|>system
Tools: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content %}{{ m.content }}{% endif %}{% if m.tool_calls %}{% for call in m.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def with_template(path, template=TEMPLATE):
    """A copy of a GGUF file with a chat template."""
    with open(path, "rb") as f:
        data = f.read()
    pairs = struct.unpack_from("<Q", data, 16)[0]
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def skip(kind, at):
        if kind == 8:
            return at + 8 + struct.unpack_from("<Q", data, at)[0]
        if kind != 9:
            return at + sizes[kind]
        kind, count = struct.unpack_from("<IQ", data, at)
        at += 12
        for i in range(count):
            at = skip(kind, at)
        return at

    at, records = 24, []
    for i in range(pairs):
        begin = at
        at = skip(8, at)
        key = data[begin + 8:at]
        at = skip(struct.unpack_from("<I", data, at)[0], at + 4)
        if key != b"tokenizer.chat_template":
            records.append(data[begin:at])
    tensors = at
    for i in range(struct.unpack_from("<Q", data, 8)[0]):
        at = skip(8, at)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    words = lambda text: struct.pack("<Q", len(text)) + text
    records.append(words(b"tokenizer.chat_template") + struct.pack("<I", 8) + words(template.encode()))
    head = data[:16] + struct.pack("<Q", len(records)) + b"".join(records) + data[tensors:at]
    out = tempfile.NamedTemporaryFile(suffix=".gguf")
    out.write(head + b"\0" * (-len(head) % 32) + data[(at + 31) // 32 * 32:])
    out.flush()
    return out


if __name__ == "__main__":
    with with_template(sys.argv[1]) as made, open(sys.argv[2], "wb") as out:
        made.seek(0)
        out.write(made.read())
