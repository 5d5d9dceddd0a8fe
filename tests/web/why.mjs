// The explorer's view "Why", held against `cutaway why`.

import assert from "node:assert/strict";

const TEXT = "We think that he dances on the small beach.", OTHER = "We think that he dances on the small garden.";
const [TOKEN, RIVAL] = ["la", "le"];
const ROUNDED = 0.02, AS_FLOAT16 = 0.15; // nats; the page shows two decimals
const NUMBER = /[+−-]?\d+(?:\.\d+)?/g;

/** What Python answers. `command` runs cutaway and returns what it prints. */
export function expectedWhy(command, run) {
  const found = JSON.parse(command("why", run, TEXT, "--token", TOKEN, "--not", RIVAL, "--other", OTHER, "--json"));
  return { ...found, otherOutput: command("translate", run, OTHER).trim() };
}

/**
 * The page names the same token and head as Python, and without this head its margin is the one that was named.
 * @param {string} address the page, with the engine in its hash
 * @param {object} how isExact: whether the page has the weights of the run unchanged
 */
export async function checkWhy(page, address, expected, { isExact, name }) {
  const tolerance = isExact ? ROUNDED : AS_FLOAT16, { step, margin } = expected;
  await openView(page, address);
  await click(page, "Predictions", TOKEN);
  await click(page, "Rivals", RIVAL);
  await waitForSentence(page, `The model prefers “${TOKEN}” to “${RIVAL}”`);
  const shown = await readView(page), tokens = await outputTokens(page);
  assertClose(shown[0], expected.sentence, tolerance, `${name}: the sentence`);
  if (isExact) compareNumbers(shown, expected, name);
  await checkPatching(page, expected, { tolerance, name });

  const head = expected.parts.filter(({ kind }) => kind === "head").reduce((a, b) => (b.effect < a.effect ? b : a));
  await page.click(`#panel-why [data-id="${head.id}"]`);
  await page.waitForFunction(() => document.querySelector(".changes")?.textContent.startsWith("Switched off"));
  await page.waitForFunction((before) => document.querySelector("#panel-why .finding").textContent !== before, { timeout: 60_000 }, shown[0]);
  const after = await marginOf(page), output = await page.$eval(".result .output", ({ textContent }) => textContent);
  assert.ok(after < margin, `${name}: the margin without ${head.title} is ${after}, and ${margin} with it`);
  const isSame = JSON.stringify((await outputTokens(page)).slice(0, step)) === JSON.stringify(tokens.slice(0, step));
  if (isSame) assert.ok(Math.abs(after - margin - head.effect) < tolerance, `${name}: ${after} without ${head.title}`);
  if (isExact) assert.equal(output, expected.without, `${name}: the output without ${head.title}`);
  return shown;
}

/** Both engines show the same numbers. */
export function assertSameView(found, expected, name) {
  assert.equal(found.length, expected.length, name);
  found.forEach((text, i) => assertClose(text, expected[i], ROUNDED, name));
}

async function openView(page, address) {
  await page.goto("about:blank"); // otherwise a new address would only change the hash
  await page.goto(`${address}&view=why&text=${encodeURIComponent(TEXT)}`);
  await page.waitForSelector("#panel-why .signed-bars", { timeout: 60_000 });
}

/** Click the button with this text, and wait until its answer is shown. */
async function click(page, group, text) {
  await page.evaluate((label, wanted) => {
    const buttons = [...document.querySelector(`#panel-why [aria-label="${label}"]`).children];
    buttons.find(({ textContent }) => textContent === wanted).click();
  }, group, text);
  await page.waitForFunction(() => !document.querySelector("#panel-why .waiting-line"), { timeout: 60_000 });
}

const waitForSentence = (page, start) => page.waitForFunction(
  (wanted) => document.querySelector("#panel-why .finding").textContent.startsWith(wanted), { timeout: 60_000 }, start);

/** The sentence, and the text of everything that is coloured. */
const readView = (page) => page.$eval("#panel-why", (panel) => {
  const texts = (selector) => [...panel.querySelectorAll(selector)].map((one) => one.title || one.textContent);
  return [panel.querySelector(".finding").textContent, ...texts(".tinted-token"), ...texts(".switch"), ...texts(".signed-row")];
});

const outputTokens = (page) =>
  page.$$eval("#panel-why [aria-label=Predictions] button", (all) => all.map(({ textContent }) => textContent));

const marginOf = (page) => page.$eval("#panel-why .signed-row.total .signed-number", ({ textContent }) =>
  Number(textContent.replace("−", "-")));

/** The tokens and the sums of the page have the numbers of Python. */
function compareNumbers(shown, { attributions: [occlusion], parts, lens, margin }, name) {
  const numbers = shown.map((text) => toNumber(text.match(NUMBER)?.at(-1) ?? "NaN"));
  const tokens = numbers.slice(1), effects = [...occlusion.source, ...occlusion.target];
  effects.forEach((value, i) => assert.ok(Math.abs(tokens[i] - value) < ROUNDED, `${name}: ${shown[1 + i]}, ${value}`));
  for (const { title, effect } of parts) {
    const found = shown.find((text) => text.startsWith(`${title}. It adds`));
    assert.ok(found, `${name}: the page does not show ${title}`);
    assert.ok(Math.abs(toNumber(found.slice(title.length + 1).match(NUMBER)[0]) + effect) < ROUNDED, `${name}: ${found}`);
  }
  for (const [i, [, value]] of lens.entries()) {
    assert.ok(Math.abs(numbers[numbers.length - lens.length + i] - value) < ROUNDED, `${name}: margin after ${lens[i][0]}`);
  }
  assert.ok(Math.abs(numbers.at(-1) - margin) < ROUNDED, `${name}: ${numbers.at(-1)}, ${margin}`);
}

/** Another word: the grids have the shares of Python, and a click on a cell shows its probabilities and the output. */
async function checkPatching(page, { patching: expected, otherOutput }, { tolerance, name }) {
  await page.evaluate(() => [...document.querySelectorAll("#panel-why .word")].find(({ textContent }) => textContent === "beach").click());
  await page.$eval("#panel-why form", (form) => {
    form.querySelector("input").value = "garden";
    form.querySelector("button").click();
  });
  await page.waitForSelector("#panel-why .heatmap", { timeout: 60_000 });
  const shares = await page.$$eval("#panel-why .heatmap", (maps) => maps.map((map) =>
    Array.from({ length: Number(map.dataset.rows) }, (_, q) =>
      Array.from({ length: Number(map.dataset.columns) }, (_, k) => map.weightAt(q, k)))));
  const wanted = expected.grids.map((grid) => grid.shares), found = shares.flat(2);
  wanted.flat(2).forEach((share, i) => assert.ok(Math.abs(found[i] - share) < tolerance, `${name}: share ${i}: ${found[i]}, ${share}`));
  const stacks = expected.grids.length, ofParts = shares.slice(stacks).flat(2).sort((a, b) => a - b);
  const wantedOfParts = expected.parts.map(({ share }) => share).sort((a, b) => a - b);
  assert.equal(ofParts.length, wantedOfParts.length, `${name}: heads and sub-layers`);
  wantedOfParts.forEach((share, i) => assert.ok(Math.abs(ofParts[i] - share) < tolerance, `${name}: part ${i}: ${ofParts[i]}, ${share}`));

  // the embedding of the other word makes this text the other one, so the model writes the output of the other one
  const { tokens, others } = expected.grids[0], k = tokens.findIndex((token, i) => token !== others[i]);
  await clickCell(page, 0, [0, k]);
  const [intro, output] = await readKept(page);
  assert.ok(intro.startsWith(`With the vector of “${others[k]}” after the embedding, the margin is `), `${name}: ${intro}`);
  assert.equal(output, otherOutput, name);
  await clickCell(page, stacks, [0, 1]);
  assert.match((await readKept(page))[0], /^With the output of encoder layer 0, self-attention, head 0 for .*, the margin is /, name);
  await page.focus("#panel-why .heatmap-grid");
  await page.keyboard.press("ArrowRight");
  assert.match((await readKept(page))[0], /^With the vector of “/, name);
}

async function clickCell(page, map, [q, k]) {
  const element = (await page.$$("#panel-why .heatmap"))[map], body = await element.$(".heatmap-body");
  const cell = await element.evaluate(({ dataset }) => Number(dataset.cell));
  await body.scrollIntoView();
  await body.click({ offset: { x: (k + 0.5) * cell, y: (q + 0.5) * cell } });
}

/** What is written below the grids: [about the margin, the output with the patch]. */
async function readKept(page) {
  await page.waitForFunction(() => document.querySelector("#panel-why .kept") && !document.querySelector("#panel-why .kept .waiting-line"),
    { timeout: 60_000 });
  return page.$eval("#panel-why .kept", (kept) => [kept.querySelector("p").textContent,
    (kept.querySelector(".side:last-child .text") ?? kept.querySelector("p:last-child bdi"))?.textContent ?? null]);
}

function assertClose(found, expected, tolerance, message) {
  const words = (text) => text.replace(NUMBER, "#"), numbers = (text) => (text.match(NUMBER) ?? []).map(toNumber);
  assert.equal(words(found), words(expected), message);
  const wanted = numbers(expected);
  numbers(found).forEach((value, i) => assert.ok(Math.abs(value - wanted[i]) < tolerance, `${message}: ${found}; ${expected}`));
}

const toNumber = (text) => Number(text.replace("−", "-"));
