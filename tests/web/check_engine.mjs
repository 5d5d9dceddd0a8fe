// Every probe of tiny models in Chromium and Firefox: make test-web. In Node, engine/models.test.mjs compares the same.
//   node tests/web/check_engine.mjs

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { launch, open, serveFolders } from "./browsers.mjs";
import { dump, readJson } from "./engine/fixtures.mjs";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const folder = dump("dump_models.py"), cases = readJson(folder, "cases.json");
const files = await serveFolders({ "/src/": `${ROOT}src/`, "/tests/": `${ROOT}tests/`, "/fixtures/": folder });

/** In the page: the largest deviation of each case. */
async function compareAll() {
  const { compareProbes } = await import("/tests/web/engine/comparing.mjs");
  const bytes = async (name) => new Uint8Array(await (await fetch(`/fixtures/${name}`)).arrayBuffer());
  const fixtures = await (await fetch("/fixtures/cases.json")).json(), found = [];
  for (const [i, fixture] of fixtures.entries()) {
    const rows = await compareProbes(fixture, await bytes(`${i}.safetensors`), await bytes(`${i}.bin`));
    const worst = rows.reduce((most, row) => (row[1] <= most[1] ? most : row));
    found.push({ model: fixture.name, count: rows.length, probe: worst[0], deviation: String(worst[1]) });
  }
  return found;
}

try {
  for (const name of ["chromium", "firefox"]) {
    const browser = await launch(name);
    try {
      const { page, reports } = await open(browser, `${files.address}tests/web/page.html`);
      const found = await page.evaluate(compareAll);
      assert.equal(found.length, cases.length);
      for (const { model, probe, deviation } of found) {
        assert.ok(Number(deviation) < 1e-4, `${name}: ${probe} of ${model} differs by ${deviation}`);
      }
      assert.deepEqual(reports, []);
      const worst = Math.max(...found.map(({ deviation }) => Number(deviation)));
      const values = found.reduce((sum, { count }) => sum + count, 0);
      console.log(`${name}: ${found.length} models, ${values} values, greatest deviation ${worst.toExponential(1)}`);
    } finally {
      await browser.close();
    }
  }
} finally {
  files.close();
}
