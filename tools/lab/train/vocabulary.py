"""The tokenizer of a llama GGUF ("tokenizer.ggml.model" is "llama": SentencePiece's BPE, with bytes)."""
import re

SPACE = "\u2581"
WORD = re.compile("%s*[^%s]+|%s+" % (SPACE, SPACE, SPACE))
CONTROL = 3
FORK, CHILD = "[Fork]", "[Child]"


class Vocabulary:
    """ids and texts of tokens. One word after the other is encoded: the same as the whole, because no token has a
    space behind a letter."""

    def __init__(self, meta):
        self.tokens = list(meta["tokenizer.ggml.tokens"][1][1])
        self.scores = list(meta["tokenizer.ggml.scores"][1][1])
        self.types = list(meta["tokenizer.ggml.token_type"][1][1])
        self.begin = meta["tokenizer.ggml.bos_token_id"][1]
        self.end = meta["tokenizer.ggml.eos_token_id"][1]
        self.index()

    def index(self):
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.bytes = {i: int(t[3:5], 16) for i, t in enumerate(self.tokens) if self.types[i] == 6}
        self.byte_ids = {b: i for i, b in self.bytes.items()}
        self.words = {}
        names = sorted((t for t, kind in zip(self.tokens, self.types) if t and kind == CONTROL), key=len, reverse=True)
        self.control = re.compile("(%s)" % "|".join(map(re.escape, names)) if names else "(?!)")
        self.fork, self.child = self.ids.get(FORK), self.ids.get(CHILD)

    def add_control(self, name):
        """Adds a control token; a vocabulary that has it stays as it is."""
        if name not in self.ids:
            self.tokens.append(name), self.scores.append(0.0), self.types.append(CONTROL)
            self.index()

    def put_into(self, meta):
        """Writes the vocabulary into metadata."""
        for key, values in (("tokens", self.tokens), ("scores", self.scores), ("token_type", self.types)):
            kind, (item, _) = meta["tokenizer.ggml." + key]
            meta["tokenizer.ggml." + key] = (kind, (item, values))
        if "llama.vocab_size" in meta:
            meta["llama.vocab_size"] = (meta["llama.vocab_size"][0], len(self.tokens))

    def word(self, text):
        """Ids of one word: neighbours are joined, those of the best score first."""
        parts = list(text)
        while len(parts) > 1:
            pairs = [(-self.scores[self.ids[a + b]], i) for i, (a, b) in enumerate(zip(parts, parts[1:]))
                     if a + b in self.ids]
            if not pairs:
                break
            i = min(pairs)[1]
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        ids = []
        for part in parts:
            ids += [self.ids[part]] if part in self.ids else [self.byte_ids[b] for b in part.encode()]
        return ids

    def encode(self, text, prompt=False):
        """Ids of a text. A prompt begins with the token of the beginning; control tokens in it are known by name, and
        each piece between them begins with a space."""
        if prompt:
            pieces = enumerate(self.control.split(text))  # every second one is a control token
            return sum(([self.ids[p]] if i % 2 else self.encode(" " + p) for i, p in pieces if p), [self.begin])
        ids = []
        for word in WORD.findall(text.replace(" ", SPACE)):
            if word not in self.words:
                self.words[word] = self.word(word)
            ids += self.words[word]
        return ids

    def decode(self, ids, special=False):
        """The text of tokens; control tokens are left out unless special."""
        data = b""
        for i in ids:
            if i in self.bytes:
                data += bytes([self.bytes[i]])
            elif self.types[i] != CONTROL or special:
                data += self.tokens[i].replace(SPACE, " ").encode()
        return data.decode("utf-8", "replace")
