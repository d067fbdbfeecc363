// serve_openai.cjs URL - drives a running serve with npm's openai: chat, streams, log-probabilities, stopping a stream, errors.
const OpenAI = require("openai");
const client = new (OpenAI.default ?? OpenAI)({ baseURL: process.argv[2] + "/v1", apiKey: "none", maxRetries: 0 });
let passed = 0, failed = 0;

function check(promise, good, about) {
  good ? passed++ : failed++;
  if (!good) console.log("FAILED:", promise, JSON.stringify(about)?.slice(0, 600));
}

async function main() {
  const messages = [{ role: "user", content: "Tell me a story" }];
  const model = (await client.models.list()).data[0].id;
  const a = await client.chat.completions.create({ model, messages, max_tokens: 20, temperature: 0 });
  const words = a.choices[0].message.content;
  check("openai (node): a chat", words.length > 5 && a.usage.completion_tokens === 20, a);
  let pieces = "", usage;
  for await (const chunk of await client.chat.completions.create({ model, messages, max_tokens: 20, temperature: 0, stream: true, stream_options: { include_usage: true } })) {
    pieces += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  check("a stream", pieces === words && usage.completion_tokens === 20, [pieces, usage]);
  const stream = client.chat.completions.stream({ model, messages, max_tokens: 20, temperature: 0 });
  check("the helper for streams puts it together", (await stream.finalContent()) === words);
  const l = await client.chat.completions.create({ model, messages, max_tokens: 4, logprobs: true, top_logprobs: 2 });
  check("log-probabilities", l.choices[0].logprobs.content.length === 4 && l.choices[0].logprobs.content[0].top_logprobs.length === 2, l);
  const long = await client.chat.completions.create({ model, messages, max_tokens: 400, temperature: 1, stream: true });
  for await (const chunk of long) if (chunk.choices[0].delta.content) break; // aborts it
  const e = await client.embeddings.create({ model, input: "one" });
  check("embeddings", e.data[0].embedding.length > 10, e.data.length);
  const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: { city: { enum: ["Bern", "Rome"] } }, required: ["city"], additionalProperties: false } } }];
  const spaces = { 12: -100, 13: -100, 16: -100, 35: -100 }; // tokens of white space, which this model likes too much
  const runner = client.chat.completions.stream({ model, messages, tools, tool_choice: "required", parallel_tool_calls: false, max_tokens: 200, seed: 2, logit_bias: spaces });
  const called = (await runner.finalChatCompletion()).choices[0];
  const call = called.message.tool_calls?.[0];
  check("a call of a tool, streamed", called.finish_reason === "tool_calls" && ["Bern", "Rome"].includes(JSON.parse(call.function.arguments).city), called);
  const answered = await client.chat.completions.create({ model, messages: [...messages, called.message, { role: "tool", tool_call_id: call.id, content: "It rains." }], tools, max_tokens: 10 });
  check("its result is answered", answered.usage.completion_tokens > 0, answered);
  const bad = await client.chat.completions.create({ model, messages: [] }).catch((error) => error);
  check("a bad request is an error, with words", bad instanceof OpenAI.BadRequestError && /messages/.test(bad.message), String(bad));
  console.log(`openai (node): ${passed} passed, ${failed} failed, 0 skipped`);
  process.exit(failed ? 1 : 0);
}
main().catch((error) => { console.log("FAILED: openai (node):", error); console.log(`openai (node): ${passed} passed, 1 failed, 0 skipped`); process.exit(1); });
