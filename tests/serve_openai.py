# serve_openai.py URL - drives a running serve with PyPI's openai: chat, streams, log-probabilities, embeddings, errors.
import json, sys, typing
import openai, pydantic
from driver_check import check, report

client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)


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
tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Bern", "Rome"]}},
                                                                             "required": ["city"], "additionalProperties": False}}}]
spaces = {str(token): -100 for token in (12, 13, 16, 35)} # of white space, which this model likes too much
a = client.chat.completions.create(model=name, messages=ask, tools=tools, tool_choice="required", parallel_tool_calls=False, max_tokens=200, seed=1,
                                   logit_bias=spaces)
call = a.choices[0].message.tool_calls[0]
check("a call of a tool", a.choices[0].finish_reason == "tool_calls" and json.loads(call.function.arguments)["city"] in ("Bern", "Rome"), a)
a = client.chat.completions.create(model=name, messages=[*ask, a.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "It rains."}],
                                   tools=tools, max_tokens=10)
check("its result is answered", a.usage.completion_tokens > 0, a)
try:
    client.chat.completions.create(model=name, messages=[], max_tokens=4)
    check("a bad request is an error", False)
except openai.BadRequestError as e:
    check("a bad request is an error, with words", "messages" in str(e), e)
try:
    client.chat.completions.create(model=name, messages=[{"role": "user", "content": "word " * 60000}])
    check("one too long is an error", False)
except openai.APIStatusError as e:
    check("one too long is an error, with its code", e.code == "context_length_exceeded", e)
sys.exit(report("openai (Python)"))
