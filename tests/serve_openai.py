# serve_openai.py URL - drives a running serve with PyPI's openai: chat, streams, log-probabilities, embeddings, errors.
import sys, typing
import openai, pydantic

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
passed = failed = 0


def check(promise, good, about=""):
    global passed, failed
    passed += bool(good)
    failed += not good
    if not good:
        print("FAILED:", promise, repr(about)[:600], flush=True)


ask = [{"role": "user", "content": "Tell me a story"}]
name = client.models.list().data[0].id
a = client.chat.completions.create(model=name, messages=ask, max_tokens=20, temperature=0)
words = a.choices[0].message.content
check("openai (Python): a chat", len(words) > 5 and a.usage.completion_tokens == 20, a)
pieces, usage = "", None
for chunk in client.chat.completions.create(model=name, messages=ask, max_tokens=20, temperature=0, stream=True, stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        pieces += choice.delta.content or ""
check("a stream", pieces == words and usage.completion_tokens == 20, (pieces, usage))
a = client.chat.completions.create(model=name, messages=ask, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2)
check("log-probabilities", len(a.choices[0].logprobs.content) == 4 and len(a.choices[0].logprobs.content[0].top_logprobs) == 2, a)
a = client.completions.create(model=name, prompt="Once upon", max_tokens=4, n=2, seed=3, temperature=1)
check("completions", len(a.choices) == 2, a)
a = client.embeddings.create(model=name, input=["one", "two"])
b = client.embeddings.create(model=name, input=["one", "two"], encoding_format="float")
check("embeddings, in base64 as in numbers", max(abs(x - y) for x, y in zip(a.data[1].embedding, b.data[1].embedding)) < 1e-6)
class Pet(pydantic.BaseModel):
    kind: typing.Literal["dog", "cat"]
    young: bool


a = client.chat.completions.parse(model=name, messages=ask, response_format=Pet, max_tokens=100, seed=2)
check("an answer of a type", a.choices[0].message.parsed.kind in ("dog", "cat"), a)
try:
    client.chat.completions.create(model=name, messages=[], max_tokens=4)
    check("a bad request is an error", False)
except openai.BadRequestError as e:
    check("a bad request is an error, with words", "messages" in str(e), e)
try:
    client.chat.completions.create(model=name, messages=[{"role": "user", "content": "word " * 9000}])
    check("one too long is an error", False)
except openai.APIStatusError as e:
    check("one too long is an error, with its code", e.code == "context_length_exceeded", e)
print(f"openai (Python): {passed} passed, {failed} failed, 0 skipped")
sys.exit(failed > 0)
