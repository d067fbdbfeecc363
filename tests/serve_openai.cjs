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
  const bad = await client.chat.completions.create({ model, messages: [] }).catch((error) => error);
  check("a bad request is an error, with words", bad instanceof OpenAI.BadRequestError && /messages/.test(bad.message), String(bad));
  console.log(`openai (node): ${passed} passed, ${failed} failed, 0 skipped`);
  process.exit(failed ? 1 : 0);
}
main().catch((error) => { console.log("FAILED: openai (node):", error); console.log(`openai (node): ${passed} passed, 1 failed, 0 skipped`); process.exit(1); });
