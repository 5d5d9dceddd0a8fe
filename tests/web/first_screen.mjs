// Checks of what a newcomer meets first in the explorer: the tour, the animation of the map, the numbers of a cell.

import assert from "node:assert/strict";

const settle = (page) => page.waitForFunction(() => !document.querySelector("[aria-busy=true], main .waiting-line"),
  { timeout: 60_000 });
const setHash = (page, hash) => page.evaluate((value) => { location.hash = value; }, hash);
const rowOf = (page, name) => page.$$eval(`.derivation td.${name}`, (cells) => cells.map((cell) =>
  (cell.classList.contains("masked") ? null : Number(cell.dataset.value))));

/** Each view says in a line of its own what it shows. */
export async function readAbouts(page) {
  const found = [];
  for (const tab of await page.$$("[role=tab]")) {
    await tab.click();
    await settle(page);
    found.push(await page.$eval(".about", ({ textContent }) => textContent));
  }
  assert.equal(new Set(found).size, found.length);
  for (const text of found) assert.match(text, /^[A-Z].{30,}[.?]$/);
}

/** The step that the page shows: {count, title, address}. */
async function stepOf(page, number) {
  await page.waitForFunction((start) => document.querySelector(".tour:not([hidden]) .count")?.textContent.startsWith(start),
    { timeout: 60_000 }, `Step ${number} of`);
  await settle(page);
  return page.evaluate(() => ({ count: document.querySelector(".tour .count").textContent,
    title: document.querySelector(".tour h2").textContent, address: location.hash,
    view: document.querySelector("main > section:not([hidden])").id }));
}

/** Every step by its button; each address reloads to the same step; Back and Escape work. */
export async function takeTour(page, steps) {
  await page.click(".start");
  const seen = [];
  for (let number = 1; number <= steps; number++) {
    const shown = await stepOf(page, number);
    assert.equal(shown.count, `Step ${number} of ${steps}`);
    assert.match(shown.address, new RegExp(`(#|&)tour=${number}(&|$)`));
    await page.reload();
    assert.deepEqual(await stepOf(page, number), shown);
    seen.push(shown);
    assert.doesNotMatch(await page.$eval(".tour", ({ textContent }) => textContent), /dark cell|darker/);
    if (number < steps) await page.evaluate(() => [...document.querySelectorAll(".tour button")].find((each) => each.textContent === "Next").click());
  }
  assert.equal(new Set(seen.map(({ title }) => title)).size, steps, "each step has its own title");
  await page.goBack();
  assert.deepEqual(await stepOf(page, steps - 1), seen.at(-2));
  await page.keyboard.press("Escape");
  await page.waitForSelector(".tour", { hidden: true });
  assert.doesNotMatch(await page.evaluate(() => location.hash), /tour=/);
  await settle(page);
}

/** Click a cell: the softmax of the shown scores is the row of weights of the trace. */
export async function readNumbers(page, kind, [q, k]) {
  await setHash(page, `view=attention&kind=${kind}&layer=0&head=1`);
  await page.waitForFunction((start) => !document.querySelector(".changes")
    && document.querySelector(".one-head h2")?.textContent.toLowerCase().startsWith(start), { timeout: 60_000 }, kind);
  await new Promise((resolve) => setTimeout(resolve, 500)); // the trace of another text may be under way
  await settle(page);
  const box = await page.$(".one-head .heatmap-body"), cell = await page.$eval(".one-head .heatmap", ({ dataset }) => Number(dataset.cell));
  await box.scrollIntoView();
  await box.click({ offset: { x: (k + 0.5) * cell, y: (q + 0.5) * cell } });
  await page.waitForSelector(".derivation .formula", { timeout: 60_000 });
  const [scores, weights] = [await rowOf(page, "score"), await rowOf(page, "weight")];
  const exponentials = scores.map((score) => (score === null ? 0 : Math.exp(score)));
  const sum = exponentials.reduce((total, value) => total + value, 0);
  const traced = await page.$eval(".one-head .heatmap", (map, at) => map.weightAt(...at), [q, k]);
  assert.equal(weights[k], traced, "the shown weight is that of the trace");
  for (const [i, value] of exponentials.entries()) assert.ok(Math.abs(value / sum - (weights[i] ?? 0)) < 2e-4, `${kind}: key ${i}`);
  await checkSymbols(page);
  if (kind === "decoder") assert.deepEqual(scores.map((score) => score === null), scores.map((_, i) => i > q));
}

/** A symbol of the equation lights its matrix, by pointer and by keyboard. */
async function checkSymbols(page) {
  const lit = () => page.$$eval(".derivation figure.lit", (all) => all.length);
  const symbols = await page.$$(".derivation .symbol");
  assert.ok(symbols.length >= 4);
  for (const symbol of symbols) {
    await symbol.hover();
    assert.equal(await lit(), 1, "the symbol under the pointer lights one matrix");
  }
  await page.mouse.move(0, 0);
  assert.equal(await lit(), 0);
  await symbols[0].focus();
  assert.equal(await lit(), 1, "the symbol in focus lights its matrix");
}

/** With reduced motion, a press moves one box further, and nothing moves by itself. */
async function playWithoutMotion(page) {
  await page.emulateMediaFeatures([{ name: "prefers-reduced-motion", value: "reduce" }]);
  await page.reload();
  await page.waitForFunction(() => document.querySelector(".player")?.dataset.state === "ready", { timeout: 60_000 });
  const read = () => page.$eval(".player", ({ dataset }) => [Number(dataset.at), dataset.state]);
  assert.equal(await page.$eval(".player .button", ({ textContent }) => textContent), "First step");
  for (const at of [0, 1]) {
    await page.click(".player .button");
    assert.deepEqual(await read(), [at, "paused"]);
  }
  await new Promise((resolve) => setTimeout(resolve, 1000)); // longer than a step of the animation
  assert.deepEqual(await read(), [1, "paused"], "no box follows by itself");
  assert.equal(await page.$eval(".vectors", (one) => getComputedStyle(one).transitionProperty), "none");
  await page.emulateMediaFeatures([]);
}

/** Play pauses at a box and shows its numbers, and runs to the end. */
export async function playForward(page) {
  const state = (wanted) => page.waitForFunction((value) => document.querySelector(".player")?.dataset.state === value,
    { timeout: 60_000 }, wanted);
  await setHash(page, "view=map");
  await state("ready");
  await page.click(".player input[value=fast]");
  await page.click(".player .button");
  await page.waitForFunction(() => Number(document.querySelector(".player").dataset.at) >= 5, { timeout: 60_000 });
  await page.keyboard.press(" ");
  await state("paused");
  await settle(page);
  const name = await page.$eval(".plan .working", ({ dataset }) => dataset.name);
  assert.equal(await page.$eval(".panel-part .name", ({ textContent }) => textContent), name);
  await page.click(".player .button");
  await state("end");
  const [boxes, done] = [await page.$$(".plan .part.box"), await page.$$(".plan .part.box.done")];
  assert.equal(done.length, boxes.length, "every box was at work");
  if ((await page.browser().version()).includes("Chrom")) await playWithoutMotion(page); // Firefox cannot emulate it
}
