// serve_page.cjs URL [FOLDER] - drives the page of a running serve in a browser (npm: playwright-core, axe-core; CHROMIUM, or /usr/bin/chromium):
// types, streams, stops, regenerates, shows a hostile answer; is it readable by all (axe). Screenshots go into the folder.
const { chromium } = require("playwright-core");
const { readFileSync } = require("fs");
const url = process.argv[2] + "/", out = process.argv[3];
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
let passed = 0, failed = 0;

async function main() {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
  const check = (promise, good, about) => {
    good ? passed++ : failed++;
    if (!good) console.log("FAILED:", promise, JSON.stringify(about)?.slice(0, 600));
  };
  const shoot = (name) => out && page.screenshot({ path: `${out}/${name}.png` });
  const context = await browser.newContext({ viewport: { width: 1000, height: 720 } });
  const page = await context.newPage();
  const problems = [];
  page.on("console", (m) => { if (m.type() === "error") problems.push(m.text()); });
  page.on("pageerror", (e) => problems.push(String(e)));
  page.on("dialog", (d) => { problems.push("dialog " + d.message()); d.dismiss(); });
  await page.goto(url);
  await page.waitForFunction(() => document.getElementById("model").textContent.trim().length > 1);
  check("the model is named", true);
  await page.click("#open-settings");
  await page.fill("#max_tokens", "60");
  await page.fill("#temperature", "0");
  await page.check("#drafts");
  await shoot("settings");
  await page.click("#open-settings");
  await page.fill("#message", "Tell me a story.\nA short one.");
  await page.keyboard.press("Enter");
  await page.waitForSelector("article.assistant .words span");
  check("an answer streams", await page.evaluate(() => document.getElementById("log").getAttribute("aria-busy")) !== null);
  await page.waitForSelector("article.assistant .about", { timeout: 60000 });
  const first = await page.textContent("article.assistant .words");
  check("the answer has words", first.length > 20, first);
  await page.click("#again");
  await page.waitForFunction(() => document.querySelectorAll("article.assistant .about").length === 1 && !document.getElementById("again").disabled, { timeout: 60000 });
  check("regenerate: one answer, at temperature 0 the same", (await page.textContent("article.assistant .words")) === first, await page.textContent("article.assistant .words"));
  await shoot("light");
  await page.emulateMedia({ colorScheme: "dark" });
  await shoot("dark");
  // stop
  await page.click("#open-settings"); await page.fill("#max_tokens", "12000"); await page.click("#open-settings");
  await page.route("**/v1/chat/completions", (route) => // one that does not end by itself
    route.continue({ postData: JSON.stringify({ ...JSON.parse(route.request().postData()), ignore_end: true, temperature: 1.5 }) }));
  await page.fill("#message", "Write a very long story about a dragon.");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("article.assistant").length === 2 && document.querySelectorAll("article.assistant")[1].querySelector(".words")?.textContent.length > 20, { timeout: 60000 });
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => document.querySelectorAll("article.assistant .about").length === 2, { timeout: 10000 });
  check("Escape stops the answer", (await page.textContent("#state")) === "Stopped.", await page.textContent("#state"));
  const busy = async () => (await (await fetch(url + "health")).json()).running;
  let n = 0; while (await busy() && n++ < 40) await new Promise((r) => setTimeout(r, 50));
  check("and the server's sequence is closed", !(await busy()));
  await page.unroute("**/v1/chat/completions");
  // an answer that is hostile
  await page.route("**/v1/chat/completions", (route) => {
    const bad = "<script>alert(1)</script><img src=x onerror=alert(2)>";
    const chunk = (delta, finish) => "data: " + JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish ?? null, draft: true }] }) + "\n\n";
    route.fulfill({ status: 200, contentType: "text/event-stream", body: chunk({ role: "assistant", content: "" }) + chunk({ reasoning_content: "hm <b>" }) + chunk({ content: bad }) +
      chunk({ tool_calls: [{ index: 0, id: "c1", type: "function", function: { name: "<i>clock</i>", arguments: "{\"zone\":" } }] }) +
      chunk({ tool_calls: [{ index: 0, function: { arguments: "\"CET\"}" } }] }) + chunk({}, "tool_calls") + "data: [DONE]\n\n" });
  });
  await page.fill("#message", "<script>alert(0)</script>");
  await page.click("#send");
  await page.waitForFunction(() => document.querySelectorAll("article.assistant .about").length === 3, { timeout: 10000 });
  check("hostile text stays text", await page.evaluate(() => !document.querySelector("#log script, #log img, #log b, #log i")) &&
    (await page.locator("article.assistant").nth(2).locator(":scope > .words").textContent()).startsWith("<script>alert(1)"));
  check("thoughts are folded", await page.evaluate(() => [...document.querySelectorAll("details")].some((d) => !d.open && d.textContent.includes("hm <b>"))));
  check("calls of tools are shown, and their results asked for", (await page.getAttribute("#message", "placeholder")).includes("clock"));
  await shoot("hostile");
  await page.unroute("**/v1/chat/completions");
  await page.setViewportSize({ width: 360, height: 640 });
  await page.emulateMedia({ colorScheme: "light" });
  await shoot("narrow");
  check("nothing is wider than 360 pixels", await page.evaluate(() => document.documentElement.scrollWidth <= 360));
  await page.click("#open-settings");
  await shoot("narrow-settings");
  for (const scheme of ["light", "dark"]) { // axe needs a page without the policy: another context
    const free = await browser.newContext({ bypassCSP: true, colorScheme: scheme, viewport: { width: 1000, height: 720 } });
    const p = await free.newPage();
    await p.goto(url);
    await p.evaluate(() => { localStorage.setItem("specdec.drafts", "1"); localStorage.setItem("specdec.max_tokens", "20"); });
    await p.reload();
    await p.fill("#message", "Hello"); await p.keyboard.press("Enter");
    await p.waitForSelector("article.assistant .about", { timeout: 60000 });
    await p.click("#open-settings");
    await p.evaluate(axe);
    const result = await p.evaluate(() => axe.run());
    check("axe: nothing found, " + scheme, result.violations.length === 0, result.violations.map((v) => [v.id, v.impact, v.nodes.map((x) => x.html.slice(0, 90))]));
  }
  check("no errors in the console", problems.length === 0, problems);
  await browser.close();
  console.log(`serve's page: ${passed} passed, ${failed} failed, 0 skipped`);
  process.exit(failed ? 1 : 0);
}
main().catch((error) => { console.log("FAILED: the page:", error); console.log(`serve's page: ${passed} passed, 1 failed, 0 skipped`); process.exit(1); });
