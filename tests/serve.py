# serve.py PROGRAM MODEL [SECONDS CLIENTS [FLAG...]] - starts build/serve with a model on a port of its own and drives it with Python's own
# sockets: what replies hold, hostile HTTP, then so many clients for so long, a third of which go away at random: texts are those of
# single runs, memory stays flat, nothing is left behind. The last line counts; the status is 1 when something failed.
import atexit, http.client, json, os, random, signal, socket, subprocess, sys, tempfile, threading, time
from driver_check import check, report
from serve_template import with_template

program, model = sys.argv[1:3]
seconds, clients = (float(sys.argv[3]), int(sys.argv[4])) if len(sys.argv) > 4 else (8, 16)
flags = sys.argv[5:]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(true, looks, pause=0.02):
    """Waits for something to become true, for so many looks; whether it did."""
    for look in range(looks):
        if true():
            return True
        time.sleep(pause)
    return False


class Server:
    def __init__(self, *more, path=None):
        self.port = free_port()
        self.errors = tempfile.TemporaryFile()
        self.process = subprocess.Popen([program, "-m", path or model, *([] if path else ["--chat-format", "zephyr"]), "--port", str(self.port), "-c", "512", *flags, *more],
                                        stderr=self.errors)
        atexit.register(self.process.kill)
        end = time.time() + 120
        while time.time() < end and self.process.poll() is None:
            try:
                if self.get("/health")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise SystemExit("serve does not start: " + self.words())

    def words(self):
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace")

    def connect(self, timeout=3600):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers={}, timeout=3600):
        c = self.connect(timeout)
        try:
            c.request(method, path, body, headers)
            reply = c.getresponse()
            return reply.status, reply.read(), reply.headers
        finally:
            c.close()

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def post(self, path, body, headers={}):
        status, data, about = self.ask("POST", path, json.dumps(body), headers)
        return status, json.loads(data)

    def chat(self, words, **more):
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": words}], **more})

    def raw(self, data, wait=5):
        """What comes back for these bytes, until the server closes or says nothing for a while."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=wait)
        out = b""
        try:
            s.sendall(data)
            while True:
                piece = s.recv(65536)
                if not piece:
                    break
                out += piece
        except OSError:
            pass
        s.close()
        return out

    def metrics(self):
        lines = self.get("/metrics")[1].decode().splitlines()
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}

    def memory(self):
        try:
            with open(f"/proc/{self.process.pid}/status") as f:
                return int([line for line in f if line.startswith("VmRSS")][0].split()[1])
        except OSError:
            return 0

    def idle(self, looks=500):
        """Waits until nothing is at work, for so many looks (not for a time, as slow builds and busy machines have their own); whether
        that came about."""
        return until(lambda: not self.work(), looks)

    def work(self):
        """Requests and sequences at work."""
        about = json.loads(self.get("/health")[1])
        return about["running"] + about["waiting"]

    def finish(self, looks=600):
        """Waits until nothing is at work, for as long as tokens are read or written, however slowly; whether that came about."""
        while self.work():
            before = self.tokens()
            if not until(lambda: self.tokens() != before or not self.work(), looks, 0.1):
                return False
        return True

    def tokens(self):
        m = self.metrics()
        return m["specdec_tokens_total"] + m["specdec_prompt_tokens_total"]

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return "does not end"


def events(server, body, path="/v1/chat/completions"):
    """The events of a stream."""
    c = server.connect()
    c.request("POST", path, json.dumps({**body, "stream": True}))
    reply = c.getresponse()
    assert reply.status == 200, reply.read()
    out = [line[6:] for line in reply.read().decode().split("\n\n") if line.startswith("data: ")]
    c.close()
    return out


# --- what replies hold

def test_replies(server):
    status, a = server.chat("Tell me a story", max_tokens=20, temperature=0)
    words = a["choices"][0]["message"]["content"]
    check("a chat is answered", status == 200 and a["object"] == "chat.completion" and len(words) > 10, a)
    check("max_tokens is kept, and said", a["usage"]["completion_tokens"] == 20 and a["choices"][0]["finish_reason"] == "length", a)
    check("usage adds up", a["usage"]["total_tokens"] == a["usage"]["prompt_tokens"] + 20, a["usage"])
    s = a["speculation"]
    check("speculation is told", s["steps"] > 0 and s["accepted"] <= s["drafted"] and s["tokens_per_step"] >= 1, s)
    lines = events(server, {"messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 20, "temperature": 0,
                            "stream_options": {"include_usage": True}, "speculation": True})
    chunks = [json.loads(line) for line in lines[:-1]]
    check("a stream ends with [DONE]", lines[-1] == "[DONE]", lines[-1])
    check("a stream brings the same text", "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1]) == words, lines)
    check("its last chunk has the usage, the others null", chunks[-1]["usage"]["completion_tokens"] == 20 and chunks[-1]["choices"] == []
          and all(c["usage"] is None for c in chunks[:-1]), lines)
    marked = sum(c["choices"][0].get("draft", False) for c in chunks[:-1])
    check("draft tokens are marked, nearly as often as tokens were accepted (white space may wait for the next token)", 0 <= chunks[-1]["speculation"]["accepted"] - marked <= 4, chunks[-1])
    status, a = server.chat("Tell me a story", max_tokens=5, n=3, temperature=1.5, seed=5)
    texts = [c["message"]["content"] for c in a["choices"]]
    check("n answers, that differ", status == 200 and len(set(texts)) == 3 and [c["index"] for c in a["choices"]] == [0, 1, 2], a)
    check("a prompt counts once", a["usage"]["prompt_tokens"] < 40, a["usage"])
    check("with a seed they are the same again", [c["message"]["content"] for c in server.chat("Tell me a story", max_tokens=5, n=3,
          temperature=1.5, seed=5)[1]["choices"]] == texts)
    check("without one they are others", len({server.chat("Tell me a story", max_tokens=8, temperature=1.5)[1]["choices"][0]["message"]["content"]
                                              for i in range(4)}) > 1)
    stop = words[8:12]
    status, a = server.chat("Tell me a story", max_tokens=20, temperature=0, stop=[stop])
    check("a stop string ends the answer, and is not in it", a["choices"][0]["message"]["content"] == words[:words.index(stop)] and
          a["choices"][0]["finish_reason"] == "stop", (stop, a))
    status, a = server.chat("Tell me a story", max_tokens=6, temperature=0, logprobs=True, top_logprobs=3)
    items = a["choices"][0]["logprobs"]["content"]
    check("log-probabilities: of each token, the best in their order", len(items) == 6 and all(len(i["top_logprobs"]) == 3 and
          i["top_logprobs"][0]["logprob"] >= i["top_logprobs"][1]["logprob"] and i["logprob"] <= 0 for i in items), a)
    check("and the bytes of tokens are those of the text", b"".join(bytes(i["bytes"]) for i in items).decode() == a["choices"][0]["message"]["content"], a)
    chunks = [json.loads(line) for line in events(server, {"messages": [{"role": "user", "content": "Tell me a story"}], "max_tokens": 6,
                                                           "temperature": 0, "logprobs": True, "top_logprobs": 3})[:-1]]
    streamed = [i for c in chunks for i in (c["choices"][0]["logprobs"] or {}).get("content", [])]
    check("a stream brings the same log-probabilities", streamed == items, streamed)
    status, a = server.post("/v1/completions", {"prompt": ["Once upon a time", "The dog"], "max_tokens": 6, "temperature": 0, "logprobs": 2})
    check("completions of two prompts", status == 200 and len(a["choices"]) == 2 and a["choices"][0]["text"] != a["choices"][1]["text"], a)
    l = a["choices"][0]["logprobs"]
    check("their log-probabilities", len(l["tokens"]) == len(l["token_logprobs"]) == len(l["top_logprobs"]) == len(l["text_offset"]) == 6 and
          "".join(l["tokens"]) == a["choices"][0]["text"] and all(len(t) == 2 for t in l["top_logprobs"]), l)
    status, b = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 6, "temperature": 0})
    check("each is what it is alone", b["choices"][0]["text"] == a["choices"][0]["text"], b)
    check("16 tokens are what a completion has by default", server.post("/v1/completions", {"prompt": "Once"})[1]["usage"]["completion_tokens"] == 16)
    status, a = server.chat("Hi", max_tokens=3, temperature=0, logit_bias={"300": 100})
    many = [server.chat("Tell me a story", max_tokens=60, temperature=0, presence_penalty=p, frequency_penalty=p)[1]["choices"][0]["message"]["content"] for p in (0, 2)]
    check("penalties change what is written", many[0] != many[1] and many[0].startswith(words), many)
    status, b = server.post("/v1/completions", {"prompt": [[300, 301, 302]], "max_tokens": 2, "temperature": 0})
    check("token ids as a prompt", status == 200 and b["usage"]["prompt_tokens"] == 3, b)
    status, a = server.post("/v1/embeddings", {"input": ["a dog", "a dog", "the moon and the stars"]})
    v = [d["embedding"] for d in a["data"]]
    check("embeddings have length 1, and are a function of the text", status == 200 and v[0] == v[1] != v[2] and abs(sum(x * x for x in v[0]) - 1) < 1e-4, status)
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
              "kind": {"enum": ["dog", "cat"]}}, "required": ["name", "age", "kind"], "additionalProperties": False}
    for i in range(4):
        status, a = server.chat("Describe a pet", max_tokens=120, temperature=1.2, seed=i, response_format={"type": "json_schema", "json_schema":
                                {"name": "pet", "strict": True, "schema": schema}})
        pet = json.loads(a["choices"][0]["message"]["content"])
        check("an answer obeys its schema", status == 200 and sorted(pet) == ["age", "kind", "name"] and pet["kind"] in ("dog", "cat") and
              0 <= pet["age"] <= 120 and a["choices"][0]["finish_reason"] == "stop", a)
    lines = events(server, {"messages": [{"role": "user", "content": "Describe a pet"}], "max_tokens": 120, "temperature": 1.2, "seed": 3,
                            "response_format": {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema}}})
    check("a stream, too", json.loads("".join(json.loads(l)["choices"][0]["delta"].get("content", "") for l in lines[:-1])) == pet, lines)
    status, a = server.chat("Describe a pet", max_tokens=8, response_format={"type": "json_object"})
    check("a JSON object begins as one", a["choices"][0]["message"]["content"].lstrip().startswith("{"), a)
    status, a = server.chat("Yes or no?", grammar='root ::= "yes" | "no"')
    check("an answer obeys a grammar", a["choices"][0]["message"]["content"] in ("yes", "no"), a)
    long = " ".join("word%d" % i for i in range(60))
    status, a = server.post("/v1/embeddings", {"input": long})
    check("an input of several parts is one embedding", status == 200 and abs(sum(x * x for x in a["data"][0]["embedding"]) - 1) < 1e-4, a)
    status, data, about = server.get("/v1/models")
    name = json.loads(data)["data"][0]["id"]
    check("the model is listed", name == os.path.basename(model)[:-5], data)
    check("and found by its name", server.get("/v1/models/" + name)[0] == 200 and server.get("/v1/models/other")[0] == 404)
    status, page, about = server.get("/")
    check("the page is there, with a strict policy", status == 200 and b"<html" in page and "default-src 'none'" in about["Content-Security-Policy"]
          and "unsafe" not in about["Content-Security-Policy"], about)
    check("so are its script and its style", server.get("/page.js")[0] == server.get("/page.css")[0] == 200)
    m = server.metrics()
    check("metrics count", m["specdec_tokens_total"] > 50 and m['specdec_requests_total{endpoint="chat",status="2xx"}'] >= 5, m)
    shared = [{"role": "system", "content": "You are kind, and " + long}, {"role": "user", "content": "Why?"}]
    server.post("/v1/chat/completions", {"messages": shared, "max_tokens": 2})
    shared[1]["content"] = "Who?"
    status, a = server.post("/v1/chat/completions", {"messages": shared, "max_tokens": 2})
    check("a system message that was read before is not read again", a["usage"]["prompt_tokens_details"]["cached_tokens"] > 100, a["usage"])


def test_refusals(server):
    def refused(promise, status, body, path="/v1/chat/completions"):
        got, a = server.post(path, body)
        check(promise, got == status and len(a["error"]["message"]) > 10, (got, a))
        return a

    hello = [{"role": "user", "content": "Hello"}]
    refused("no messages: 400", 400, {})
    refused("an empty list of messages: 400", 400, {"messages": []})
    refused("a role that nobody knows: 400", 400, {"messages": [{"role": "emperor", "content": "x"}]})
    refused("a number as content: 400", 400, {"messages": [{"role": "user", "content": 5}]})
    refused("an image: 400", 400, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]})
    for name, value in [("temperature", -1e9), ("temperature", "hot"), ("top_p", 2), ("n", 0), ("n", 1000), ("max_tokens", -1), ("seed", 1.5), ("stop", 5),
                        ("stop", [""]), ("stop", ["x"] * 40), ("logit_bias", {"x": 1}), ("logit_bias", [1]), ("stream", "yes"), ("top_logprobs", 50),
                        ("stream_options", 3), ("presence_penalty", 1e9), ("frequency_penalty", "x"), ("best_of", 3)]:
        if (name, value) == ("temperature", -1e9):
            continue # below 0 is 0, as elsewhere
        refused(f"{name} = {value}: 400", 400, {"messages": hello, name: value})
    for form in [{"type": "xml"}, {"type": "json_schema"}, 5, {"type": "json_schema", "json_schema": {"schema": {"type": "nonsense"}}},
                 {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/nowhere"}}}]:
        refused(f"response_format = {form}: 400", 400, {"messages": hello, "response_format": form})
    refused("a grammar that is none: 400", 400, {"messages": hello, "grammar": "root = x"})
    check("null is as if it was not there", server.chat("Hi", max_tokens=2, temperature=None, stop=None, tools=None, presence_penalty=0)[0] == 200)
    a = refused("a prompt that the context cannot hold: 413", 413, {"messages": [{"role": "user", "content": "word " * 3000}]})
    check("with OpenAI's code", a["error"]["code"] == "context_length_exceeded", a)
    got = events_status(server, {"messages": [{"role": "user", "content": "word " * 3000}], "stream": True})
    check("also where a stream was asked for: a status, not an event", got == 413, got)
    refused("no prompt: 400", 400, {}, "/v1/completions")
    refused("token ids beyond the vocabulary: 400", 400, {"prompt": [1, 10 ** 9]}, "/v1/completions")
    refused("negative token ids: 400", 400, {"prompt": [-1]}, "/v1/completions")
    refused("suffix is not supported: 400", 400, {"prompt": "x", "suffix": "y"}, "/v1/completions")
    refused("no input: 400", 400, {}, "/v1/embeddings")
    refused("an empty input list: 400", 400, {"input": []}, "/v1/embeddings")
    refused("an input that the context cannot hold: 413", 413, {"input": "word " * 3000}, "/v1/embeddings")
    check("another path: 404", server.get("/v1/nothing")[0] == 404)
    check("another method: 405", server.ask("DELETE", "/v1/models")[0] == 405 and server.get("/v1/completions")[0] == 405)


def events_status(server, body):
    return server.ask("POST", "/v1/chat/completions", json.dumps(body))[0]


# --- tools

def test_tools():
    tools = [{"type": "function", "function": {"name": "weather", "description": "Of a city", "parameters":
              {"type": "object", "properties": {"city": {"enum": ["Bern", "Zürich", "東京"]}}, "required": ["city"], "additionalProperties": False}}},
             {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}]
    with with_template(model) as file:
        server = Server(path=file.name)
        for choice in ["required", {"type": "function", "function": {"name": "weather"}}]:
            for seed in range(3):
                body = {"messages": [{"role": "user", "content": "How is it?"}], "tools": tools, "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 90, "seed": seed, "temperature": 1}
                status, a = server.post("/v1/chat/completions", body)
                check("a call that must be is a call", status == 200 and a["choices"][0]["message"].get("tool_calls"), a)
                if status != 200 or not a["choices"][0]["message"].get("tool_calls"):
                    continue
                calls = a["choices"][0]["message"]["tool_calls"]
                f = calls[0]["function"]
                check("of the tool that was named", choice == "required" or f["name"] == "weather", a)
                check("of a tool that there is", f["name"] in (["weather", "clock"] if choice == "required" else ["weather"]), a)
                try:
                    arguments = json.loads(f["arguments"])
                    good = arguments["city"] in ("Bern", "Zürich", "東京") if f["name"] == "weather" else arguments == {}
                except (ValueError, KeyError, TypeError):
                    good = False
                check("its arguments obey the schema", good, a)
                check("and the reply says why it ended", a["choices"][0]["finish_reason"] == "tool_calls", a)
                streamed = {}
                for line in events(server, body)[:-1]:
                    for c in json.loads(line)["choices"][0]["delta"].get("tool_calls", []):
                        one = streamed.setdefault(c["index"], {"name": "", "arguments": "", "id": ""})
                        one["id"] += c.get("id", "")
                        one["name"] += c["function"].get("name", "")
                        one["arguments"] += c["function"].get("arguments", "")
                check("a stream brings the same call", streamed and streamed[0]["name"] == f["name"] and streamed[0]["arguments"] == f["arguments"] and
                      streamed[0]["id"], (streamed, f))
                status, b = server.post("/v1/chat/completions", {"messages": [*body["messages"], a["choices"][0]["message"], {"role": "tool", "tool_call_id":
                                        calls[0]["id"], "content": "It rains."}], "tools": tools, "max_tokens": 8, "temperature": 0})
                check("the result of a call is answered", status == 200, b)
        for token in (12, 13, 35): # tab, new line, space
            status, a = server.chat("Hi", max_tokens=300, temperature=0, logit_bias={str(token): 100})
            check("an answer of white space without end harms nothing", status == 200 and len(a["choices"][0]["message"]["content"]) > 250, a)
        status, a = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "tools": 5, "max_tokens": 4})
        check("tools that are none: 400", status == 400, a)
        check("the server with tools ends with 0", server.end() == 0, server.words())


# --- hostile HTTP

def post_raw(body, length=None, more=""):
    return (f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body) if length is None else length}\r\n"
            f"Connection: close\r\n{more}\r\n").encode() + body


def test_hostile(server):
    def says(promise, status, data, wait=5):
        reply = server.raw(data, wait)
        check(promise, reply.startswith(b"HTTP/1.1 %d" % status) or reply.startswith(b"HTTP/1.0 %d" % status), reply[:200])

    says("no JSON: 400", 400, post_raw(b"{nonsense"))
    says("an empty body: 400", 400, post_raw(b""))
    says("bad UTF-8: 400", 400, post_raw(b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}'))
    says("10,000 arrays inside each other: 400", 400, post_raw(b"[" * 10000 + b"]" * 10000))
    says("10,000 objects inside each other: 400", 400, post_raw(b'{"a":' * 10000 + b"1" + b"}" * 10000))
    says("an array as the body: 400", 400, post_raw(b"[]"))
    says("a number beyond all bounds: 400", 400, post_raw(b'{"messages": [], "seed": 1' + b"0" * 400 + b"}"))
    says("a body of 1 GB that is announced: 413 before it comes", 413, post_raw(b"", 1 << 30))
    chunk = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
    says("a body in chunks that is too long: 413", 413, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
         b"Connection: close\r\n\r\n" + chunk * 24 + b"0\r\n\r\n")
    reply = server.raw(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 64)
    check("one without an end is cut off", b" 200 " not in reply, reply[:100])
    says("a flood of headers: 431", 431, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"y" * 100) for i in range(2000)) + b"\r\n")
    says("a header without an end: 431", 431, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100000 + b"\r\n\r\n")
    for junk in [b"\x00" * 1000, b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
                 b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", os.urandom(4096)]:
        reply = server.raw(junk, 1)
        check("what is no HTTP gets no answer of the model", b" 200 " not in reply, (junk[:40], reply[:100]))
    says("another Host: 403, as pages of others could ask by it", 403, b"GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
    says("another Origin: 403", 403, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nConnection: close\r\n\r\n")
    says("the page's own Origin: 200", 200, b"GET /v1/models HTTP/1.1\r\nHost: localhost:%d\r\nOrigin: http://localhost:%d\r\nConnection: close\r\n\r\n" % (server.port, server.port))
    reply = server.ask("OPTIONS", "/v1/chat/completions", headers={"Origin": "http://127.0.0.1:%d" % server.port})
    check("no site may use it unless told", "Access-Control-Allow-Origin" not in reply[2], str(reply[2]))
    check("two requests on one connection", server.raw((b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") * 2 + b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
          b"Connection: close\r\n\r\n").count(b"HTTP/1.1 200") == 3)
    status, a = server.chat("Hello\0there", max_tokens=2)
    check("a zero byte in a message is a byte like others", status == 200, a)
    check("and the server lives", server.chat("Hello", max_tokens=2)[0] == 200)


def test_slow(server):
    """Clients that send nothing, or drop by drop; those that do not read."""
    idle = [socket.create_connection(("127.0.0.1", server.port)) for i in range(40)]
    for i, s in enumerate(idle):
        s.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"[:10 + i])
    body = json.dumps({"messages": [{"role": "user", "content": "Tell me a story"}], "stream": True, "n": 8, "max_tokens": 150, "logprobs": True,
                       "top_logprobs": 20, "temperature": 1, "seed": 1}).encode()
    deaf = []
    for i in range(2):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.connect(("127.0.0.1", server.port))
        s.sendall(post_raw(body))
        deaf.append(s)
    began = time.time()
    status, a = server.chat("Hello", max_tokens=8)
    check("40 clients that say nothing and 2 that do not read hold nobody up", status == 200, a)
    check("those that do not read hold no slot: their answers are written to the end", server.finish(), server.get("/health")[1])
    for s in deaf + idle:
        s.close()
    check("their memory is given back", server.chat("Hello", max_tokens=2)[0] == 200)


def test_gone(server):
    """A client that goes away: its sequence is closed within a step."""
    check("nothing of others is at work", server.idle(), server.get("/health")[1]) # /health may tell of them a round longer than they are
    s = socket.create_connection(("127.0.0.1", server.port))
    s.sendall(post_raw(json.dumps({"messages": [{"role": "user", "content": "Tell me a story"}], "n": 20, "max_tokens": 400, "temperature": 1.3}).encode()))
    check("a request is at work soon", until(lambda: json.loads(server.get("/health")[1])["running"], 5000, 0.002), server.get("/health")[1])
    before = server.metrics()
    s.close()
    check("when a client goes away its sequences are closed, though it had not been sent a byte", server.idle(150), server.get("/health")[1])
    cancelled = lambda: server.metrics()["specdec_cancelled_total"] - before["specdec_cancelled_total"]
    check("and that is counted", until(lambda: cancelled() == 1, 300, 0.01), cancelled()) # the request is given back behind its sequences
    check("it was far from its end", server.metrics()["specdec_tokens_total"] < before["specdec_tokens_total"] + 4000, server.metrics())


# --- many clients

def storm(server):
    prompts = ["Tell me a story", "Why is the sky blue?", "The dog and the cat. " * 8, "One day", "Who are you? Be kind and answer at length."]
    bodies = [{"messages": [{"role": "system", "content": "You are kind. " * 12}, {"role": "user", "content": p}], "max_tokens": 24 + 12 * i,
               "temperature": t, "seed": 100 + i, "n": n} for i, p in enumerate(prompts) for t, n in [(0, 1), (1.1, 1), (0.8, 2)]]
    expected = [[c["message"]["content"] for c in server.post("/v1/chat/completions", b)[1]["choices"]] for b in bodies]
    check("single runs are repeated", all([c["message"]["content"] for c in server.post("/v1/chat/completions", b)[1]["choices"]] == e
                                          for b, e in zip(bodies, expected)))
    end = time.time() + seconds
    counts = {"answers": 0, "wrong": 0, "gone": 0, "full": 0, "broken": 0}
    waits, wrong, memory = [], [], []
    lock = threading.Lock()

    def client(number):
        chance = random.Random(number)
        while time.time() < end:
            i = chance.randrange(len(bodies))
            leave = chance.random() < 1 / 3
            c = server.connect()
            try:
                stream = chance.random() < 0.7
                c.request("POST", "/v1/chat/completions", json.dumps({**bodies[i], "stream": stream}))
                if leave and chance.random() < 0.3:
                    time.sleep(chance.random() * 0.1)
                    raise InterruptedError
                reply = c.getresponse()
                if reply.status == 429:
                    reply.read()
                    with lock:
                        counts["full"] += 1
                    time.sleep(0.2)
                    continue
                texts = [""] * bodies[i]["n"]
                if not stream:
                    for choice in json.loads(reply.read())["choices"]:
                        texts[choice["index"]] = choice["message"]["content"]
                else:
                    last = 0
                    for line in reply:
                        if not line.startswith(b"data: {"):
                            continue
                        now = time.time()
                        if last and bodies[i]["n"] == 1:
                            waits.append(now - last)
                        last = now
                        choice = json.loads(line[6:])["choices"][0]
                        texts[choice["index"]] += choice["delta"].get("content", "")
                        if leave and chance.random() < 0.1:
                            raise InterruptedError
                with lock:
                    counts["answers"] += 1
                    if texts != expected[i]:
                        counts["wrong"] += 1
                        wrong.append((i, texts, expected[i]))
            except InterruptedError:
                with lock:
                    counts["gone"] += 1
            except Exception as e:
                with lock:
                    counts["broken"] += 1
                    wrong.append(repr(e))
            finally:
                c.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    for t in threads:
        t.start()
    while time.time() < end:
        time.sleep(min(1, seconds / 8))
        memory.append(server.memory())
    for t in threads:
        t.join()
    check("all texts are those of single runs", not counts["wrong"] and not counts["broken"] and counts["answers"] > clients / 4, (counts, wrong[:2]))
    check("nothing is left behind", server.idle(), server.get("/health")[1])
    m = server.metrics()
    check("no page is lost", m["specdec_cache_pages_free"] == m["specdec_cache_pages"], m)
    quarter = max(memory[:max(len(memory) // 4, 1) + 1])
    check("memory stays flat", memory[-1] <= quarter * 1.05 + 4096, memory)
    waits.sort()
    print(f"serve: {clients} clients, {seconds:g} s: {counts}; wait between pieces: median {1000 * waits[len(waits) // 2]:.1f} ms, "
          f"p99 {1000 * waits[int(len(waits) * 0.99)]:.1f} ms; memory {memory[0]} to {memory[-1]} KB; {m['specdec_tokens_per_step']:.2f} tokens a step", flush=True)


# --- beginning and end

def test_limits():
    server = Server("--slots", "1", "--queue", "2", "--api-key", "sesame", "--cors", "https://good.example", "--timeout", "2")
    key = {"Authorization": "Bearer sesame"}
    check("without the key: 401", server.get("/v1/models")[0] == 401 and server.get("/metrics")[0] == 401)
    check("with a wrong one: 401", all(server.get("/v1/models", headers={"Authorization": w})[0] == 401 for w in ["Bearer sesam", "Bearer sesamee", "sesame", "Bearer "]))
    check("with the key: 200", server.get("/v1/models", headers=key)[0] == 200)
    check("the page and the state of health need none", server.get("/")[0] == server.get("/health")[0] == 200)
    reply = server.ask("OPTIONS", "/v1/models", headers={"Origin": "https://good.example"})
    check("--cors allows that site", reply[0] == 204 and reply[2]["Access-Control-Allow-Origin"] == "https://good.example")
    check("and no other", server.get("/v1/models", headers={**key, "Origin": "https://bad.example"})[0] == 403)
    body = json.dumps({"messages": [{"role": "user", "content": "Tell me a story"}], "n": 100, "max_tokens": 400, "temperature": 1}).encode()
    waiting = []
    for i in range(3):
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(post_raw(body, more="Authorization: Bearer sesame\r\n"))
        waiting.append(s)
        time.sleep(0.2)
    status, data, about = server.ask("POST", "/v1/chat/completions", body, key)
    check("a full queue: 429, and when to come again", status == 429 and int(about["Retry-After"]) > 0, (status, data))
    waiting[0].settimeout(20)
    reply = waiting[0].recv(4096)
    check("an answer that takes too long: 504", reply.startswith(b"HTTP/1.1 504"), reply[:100])
    for s in waiting:
        s.close()
    check("the slot is free again", server.idle())
    check("SIGTERM ends it with 0", server.end() == 0, server.words())


def test_crowded():
    """A cache that cannot hold all sequences: some wait, and all texts are those of single runs."""
    server = Server("--slots", "6", "--cache", "640")
    bodies = [{"messages": [{"role": "user", "content": "Tell me story %d" % i}], "max_tokens": 250, "temperature": 1, "seed": i} for i in range(6)]
    bodies = [{**b, "logit_bias": {"2": -100}} for b in bodies] # none ends early
    text = lambda b: server.post("/v1/chat/completions", b)[1]["choices"][0]["message"]["content"]
    stream = lambda b: "".join(json.loads(e)["choices"][0]["delta"].get("content", "") for e in events(server, b)[:-1])
    expected = [text(b) for b in bodies]
    out = [None] * 6

    def run(i):
        out[i] = (stream if i % 2 else text)(bodies[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("sequences that the cache has no room for begin anew, and write the same, streamed or not", out == expected, [(a, b) for a, b in zip(out, expected) if a != b][:1])
    check("a server with a small cache ends with 0", server.end() == 0, server.words())


def test_end():
    history = tempfile.mktemp()
    server = Server("--history", history, "--slots", "2")
    first, second = [server.chat("Tell me a story", max_tokens=60, temperature=0)[1] for i in range(2)]
    result = []
    server.idle()
    t = threading.Thread(target=lambda: result.append(server.chat("Tell me a long story", max_tokens=150, temperature=0)))
    t.start()
    while not json.loads(server.get("/health")[1])["running"] and t.is_alive():
        time.sleep(0.001)
    status = server.end()
    t.join()
    check("SIGTERM: what is under way is answered", result and result[0][0] == 200 and status == 0, (result, status, server.words()))
    check("the history is saved", os.path.getsize(history) > 100)
    server = Server("--history", history, "--slots", "2")
    again = server.chat("Tell me a story", max_tokens=60, temperature=0)[1]
    check("and drafted from after the next start: the same text in fewer steps", again["choices"] == first["choices"] and
          again["speculation"]["steps"] < first["speculation"]["steps"], (again["speculation"], first["speculation"]))
    check("Ctrl-C ends it with 0, too", server.end(signal.SIGINT) == 0)
    os.unlink(history)


main = Server("--slots", "6", "--max-body", "1048576")
test_replies(main)
test_refusals(main)
test_hostile(main)
test_slow(main)
test_gone(main)
storm(main)
check("it ends with 0", main.end() == 0, main.words())
test_tools()
test_limits()
test_crowded()
test_end()
sys.exit(report("serve"))
