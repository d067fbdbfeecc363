// A chat with the server that this page came from. What the model writes becomes text nodes, never HTML.
"use strict";

const element = (id) => document.getElementById(id);
const log = element("log"), message = element("message"), state = element("state");
let messages = [];     // the conversation, as the server is sent it
let running = null;    // the AbortController of the answer under way
let pending = [];      // calls of tools whose results the user has still to give

// --- the log

function make(name, className, words) {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (words !== undefined) node.textContent = words;
  return node;
}

// A message in the log; its words go into .words.
function addArticle(role, title) {
  element("empty")?.remove();
  const article = make("article", role);
  article.append(make("h3", "", title));
  log.append(article);
  return article;
}

function addWords(role, title, words) {
  const article = addArticle(role, title);
  article.append(make("div", "words", words));
  log.scrollTop = log.scrollHeight;
  return article;
}

// A part that can be folded: thoughts, calls of tools.
function addFold(article, title, open) {
  const fold = make("details"), words = make("div", "words");
  fold.open = open;
  fold.append(make("summary", "", title), words);
  article.append(fold);
  return words;
}

// Appends words to a node: pieces of the same kind share a span.
function appendWords(node, words, draft) {
  const kind = draft ? "draft" : "own";
  const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  if (node.lastChild?.className !== kind) node.append(make("span", kind, ""));
  if (!node.lastChild.firstChild) node.lastChild.append(document.createTextNode(""));
  node.lastChild.firstChild.appendData(words);
  if (atEnd) log.scrollTop = log.scrollHeight;
}

// --- settings

const remembered = ["system", "temperature", "top_p", "max_tokens", "seed", "tools"];

function loadSettings() {
  for (const name of remembered) element(name).value = localStorage.getItem("specdec." + name) ?? "";
  element("drafts").checked = localStorage.getItem("specdec.drafts") === "1";
  document.body.classList.toggle("marks", element("drafts").checked);
}

function saveSettings() {
  for (const name of remembered) localStorage.setItem("specdec." + name, element(name).value);
  localStorage.setItem("specdec.drafts", element("drafts").checked ? "1" : "0");
  document.body.classList.toggle("marks", element("drafts").checked);
}

function headers() {
  const all = { "Content-Type": "application/json" };
  if (element("key").value) all.Authorization = "Bearer " + element("key").value;
  return all;
}

function body() {
  const system = element("system").value.trim();
  const all = { stream: true, speculation: true, stream_options: { include_usage: true } };
  all.messages = (system ? [{ role: "system", content: system }] : []).concat(messages);
  for (const name of ["temperature", "top_p", "max_tokens", "seed"])
    if (element(name).value !== "") all[name] = Number(element(name).value);
  if (element("tools").value.trim()) all.tools = JSON.parse(element("tools").value);
  return JSON.stringify(all);
}

// --- an answer

// The events of a stream, as objects.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const data = rest.slice(0, end).replace(/^data: ?/, "");
      if (data === "[DONE]") return;
      if (data && !data.startsWith(":")) yield JSON.parse(data);
    }
  }
}

// Shows what events bring, and keeps it as a message.
class Answer {
  constructor() {
    this.article = addArticle("assistant", "Model");
    this.words = null;
    this.thoughts = null;
    this.calls = [];
    this.content = this.reasoning = "";
    this.pieces = this.drafts = 0;
    this.began = this.first = performance.now();
  }
  take(event) {
    const choice = event.choices?.[0], delta = choice?.delta ?? {};
    if (event.error) throw new Error(event.error.message);
    if (event.usage) this.usage = event.usage;
    if (event.speculation) this.speculation = event.speculation;
    if (delta.reasoning_content) this.think(delta.reasoning_content, choice.draft);
    if (delta.content) this.write(delta.content, choice.draft);
    for (const call of delta.tool_calls ?? []) this.call(call);
    if (choice?.finish_reason) this.finish = choice.finish_reason;
  }
  note(draft) {
    if (!this.pieces++) this.first = performance.now();
    this.drafts += draft ? 1 : 0;
    if (this.pieces % 8 === 0) this.tell();
  }
  think(words, draft) {
    this.thoughts ??= addFold(this.article, "Thoughts", false);
    this.reasoning += words;
    appendWords(this.thoughts, words, draft);
    this.note(draft);
  }
  write(words, draft) {
    if (!this.words) this.article.append(this.words = make("div", "words"));
    this.content += words;
    appendWords(this.words, words, draft);
    this.note(draft);
  }
  call(delta) {
    const call = this.calls[delta.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
    if (delta.id) call.id = delta.id;
    if (delta.function?.name) {
      call.function.name += delta.function.name;
      call.node = addFold(this.article, "Calls " + call.function.name, true);
    }
    if (delta.function?.arguments) {
      call.function.arguments += delta.function.arguments;
      if (call.node) appendWords(call.node, delta.function.arguments, false);
    }
    this.note(false);
  }
  tell() {
    const seconds = (performance.now() - this.first) / 1000;
    if (this.pieces > 1 && seconds > 0) state.textContent = `${((this.pieces - 1) / seconds).toFixed(1)} tokens a second`;
  }
  // What stands below the answer.
  about(stopped) {
    const tokens = this.usage?.completion_tokens ?? this.pieces, parts = [];
    const seconds = (performance.now() - this.first) / 1000;
    parts.push(`${tokens} tokens`);
    if (tokens > 1 && seconds > 0) parts.push(`${((tokens - 1) / seconds).toFixed(1)} a second`);
    if (this.speculation) parts.push(`${this.speculation.tokens_per_step.toFixed(2)} a step`);
    if (this.pieces) parts.push(`${Math.round(100 * this.drafts / this.pieces)} % draft tokens`);
    if (stopped) parts.push("stopped");
    else if (this.finish === "length") parts.push("cut off: the limit or the context");
    this.article.append(make("p", "about", parts.join(" · ")));
  }
  message() {
    const m = { role: "assistant", content: this.content };
    if (this.reasoning) m.reasoning_content = this.reasoning;
    if (this.calls.length)
      m.tool_calls = this.calls.map(({ id, type, function: f }) => ({ id, type, function: { name: f.name, arguments: f.arguments } }));
    return m;
  }
}

function setRunning(controller) {
  running = controller;
  element("stop").disabled = !controller;
  element("send").disabled = !!controller;
  element("again").disabled = !!controller || !messages.some((m) => m.role === "assistant");
  log.setAttribute("aria-busy", controller ? "true" : "false");
}

// What went wrong, in words for people.
async function refusal(response) {
  let words = `The server answered with status ${response.status}.`;
  try { words = (await response.json()).error.message; } catch { /* no JSON */ }
  if (response.status === 401) words += " Settings have a place for the key.";
  return new Error(words);
}

async function answer() {
  const controller = new AbortController(), a = new Answer();
  let stopped = false;
  setRunning(controller);
  state.textContent = "The model reads…";
  try {
    const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: body(), signal: controller.signal });
    if (!response.ok) throw await refusal(response);
    for await (const event of events(response)) a.take(event);
    state.textContent = "The answer is complete.";
  } catch (error) {
    stopped = controller.signal.aborted;
    state.textContent = stopped ? "Stopped." : "No answer.";
    if (!stopped) a.article.append(make("p", "bad", error.message));
    if (!stopped && !a.content) a.failed = true;
  }
  a.about(stopped);
  if (!a.failed) messages.push(a.message());
  setRunning(null);
  askForResults(a);
  log.scrollTop = log.scrollHeight;
}

// After calls of tools, what is typed next are their results, one after the other.
function askForResults(a) {
  pending = a.calls.filter((call) => call);
  showPending();
}

function showPending() {
  message.placeholder = pending.length ? `What ${pending[0].function.name} returns` : "Your message";
  message.focus();
}

// --- what the user does

function send() {
  const words = message.value;
  if (running || !words.trim()) return;
  message.value = "";
  if (pending.length) {
    const call = pending.shift();
    messages.push({ role: "tool", tool_call_id: call.id, name: call.function.name, content: words });
    addWords("tool", "Result of " + call.function.name, words);
    if (pending.length) return showPending();
  } else {
    messages.push({ role: "user", content: words });
    addWords("user", "You", words);
  }
  answer();
}

// Answers the last question again.
function again() {
  if (running) return;
  while (messages.length && messages[messages.length - 1].role === "assistant") {
    messages.pop();
    let last = log.lastElementChild;
    while (last && !last.classList.contains("assistant")) { const before = last.previousElementSibling; last.remove(); last = before; }
    last?.remove();
  }
  pending = [];
  if (messages.length) answer();
}

function clearAll() {
  running?.abort();
  messages = [];
  pending = [];
  log.replaceChildren();
  state.textContent = "A new chat.";
  showPending();
  setRunning(null);
}

element("ask").addEventListener("submit", (event) => { event.preventDefault(); send(); });
element("settings").addEventListener("submit", (event) => event.preventDefault());
element("settings").addEventListener("input", saveSettings);
element("stop").addEventListener("click", () => running?.abort());
element("again").addEventListener("click", again);
element("clear").addEventListener("click", clearAll);
element("open-settings").addEventListener("click", (event) => {
  const settings = element("settings");
  settings.hidden = !settings.hidden;
  event.currentTarget.setAttribute("aria-expanded", String(!settings.hidden));
});
message.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });

loadSettings();
fetch("v1/models", { headers: headers() }).then((r) => r.ok ? r.json() : null).then((all) => {
  element("model").textContent = all?.data[0].id ?? "";
  document.title = all ? all.data[0].id + " – specdec" : "specdec";
}).catch(() => {});
