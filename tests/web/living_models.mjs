// A living model of the book starts when the reader asks for it, and not before, in Chromium and Firefox.
//   node tests/web/living_models.mjs PAGE      a page of the built book, such as book/_build/html/book/paper/attention.html

import assert from "node:assert/strict";
import { argv } from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import { launch, open } from "./browsers.mjs";

/** Start the first model of an open page. -> its first output */
export async function startFirstModel(page) {
  assert.equal(await page.$("iframe"), null, "a model is loaded before its reader asks for it");
  await page.click(".live-model-start button");
  const frame = await (await page.waitForSelector("iframe")).contentFrame();
  const output = await frame.waitForSelector(".result .output", { timeout: 60_000 });
  return output.evaluate((element) => element.textContent);
}

async function check(name, path) {
  const browser = await launch(name);
  try {
    const { page, reports } = await open(browser, pathToFileURL(path).href);
    const output = await startFirstModel(page);
    assert.ok(output, `${name}: the output is empty`);
    assert.deepEqual(reports, [], name);
    console.log(`${name}, the first model of ${path}: ${output}`);
  } finally {
    await browser.close();
  }
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  if (!argv[2]) throw new Error("Usage: node living_models.mjs PAGE");
  for (const name of ["chromium", "firefox"]) await check(name, argv[2]);
}
