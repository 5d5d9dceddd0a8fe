// Check the built book in Chromium and Firefox, from files and without a network: make test-web.
//   node tests/web/check_book.mjs FOLDER [--browser chromium|firefox|both] [--screenshots DIR] [--axe N]

import { existsSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { findAccessibilityProblems, launch, PROGRAMS } from "./browsers.mjs";
import { startFirstModel } from "./living_models.mjs";

const FOLDER_LIMIT = 60e6; // bytes
const FIRST_PAGE_LIMIT = 400e3; // html, styles, scripts, fonts, images
const TIME_LIMIT_MINUTES = 22;
const TABS = 2;
const WIDE = { width: 1280, height: 1000 };
const MEDIUM = { width: 1100, height: 1000 };
const NARROW = { width: 390, height: 844 };
const FIRST_PAGE = "book/index.html";
const MODELS = "models/"; // pages of the explorer, which the book shows in frames

// Pages of every kind, for axe and the screenshots.
const REPRESENTATIVE = [
  FIRST_PAGE, "book/paper/attention.html", "book/paper/multi-head.html", "book/paper/training.html", "book/paper/results.html",
  "book/paper/stacks.html", "book/beyond/positions.html", "book/beyond/norms.html", "book/beyond/families.html",
  "book/beyond/scaling.html", "book/course/index.html", "book/course/exercises.html", "book/reference/python.html",
  "lessons/01_attention_mechanism.html", "lessons/07_complete_transformer.html", "docs/getting-started.html",
  "docs/commands.html", "docs/settings.html", "docs/results.html", "docs/looking-inside.html", "docs/glossary.html",
  "docs/index.html", "source/src/cutaway/nn/attention.py.html", "source/README.md.html", "CHANGELOG.html",
  "search.html", "genindex.html",
];

// Findings of axe that stay: the rule, a selector of the element or its ancestor, and the reason.
const AXE_EXCEPTIONS = [
  { rule: "definition-list", selector: "dt.sig dl", reason: "Sphinx writes a signature of several lines as <dl> with only <dd>" },
  { rule: "scrollable-region-focusable", selector: "article", reason: "both browsers let the Tab key reach a box that scrolls" },
];

const problems = new Set();
const counts = {
  consoleMessages: 0, loadFailures: 0, otherHosts: 0, links: 0, brokenLinks: 0, equations: 0, axeRuns: 0, axeFindings: 0, tooWide: 0,
};

function report(page, kind, text, counter) {
  if (counter) counts[counter] += 1;
  problems.add(`${page}: ${kind}: ${String(text).replace(/\s+/g, " ").slice(0, 300)}`);
}

function progress(text) {
  if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${text}`);
}

function listFiles(folder) {
  const entries = readdirSync(folder, { recursive: true }).map((name) => join(folder, name));
  return entries.filter((path) => statSync(path).isFile()).sort();
}

function addSizes(files) {
  return files.reduce((sum, file) => sum + statSync(file).size, 0);
}

/** Open a tab that reports messages, errors, failed loads and requests to other hosts under tab.label. */
async function openTab(browser, name, scheme) {
  const page = await browser.newPage();
  const tab = { page, label: "", loaded: new Set() };
  await page.setViewport(WIDE);
  if (name === "chromium") {
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    await page.setRequestInterception(true);
  }
  const tell = (counter, kind, text) => report(tab.label, `${name} ${kind}`, text, counter);
  page.on("console", (message) => tell("consoleMessages", `console ${message.type()}`, message.text()));
  page.on("pageerror", (error) => tell("consoleMessages", "page error", error.message));
  page.on("requestfailed", (request) => tell("loadFailures", "failed load", `${request.url()} (${request.failure()?.errorText})`));
  page.on("request", (request) => {
    const isLocal = /^(file|data|blob):/.test(request.url());
    if (request.url().startsWith("file:")) tab.loaded.add(request.url().split(/[?#]/)[0]);
    if (!isLocal) tell("otherHosts", "request to another host", request.url());
    if (name === "chromium") (isLocal ? request.continue() : request.abort()).catch(() => {});
  });
  // Firefox sends no events about files. Elements that failed to load say so themselves.
  await page.evaluateOnNewDocument(() => {
    window.failedElements = [];
    const remember = (event) => event.target !== window && window.failedElements.push(event.target.src ?? event.target.href);
    window.addEventListener("error", remember, true);
  });
  return tab;
}

/** Run work(tab, item) for every item, in TABS tabs at a time. */
async function inTabs(browser, name, scheme, items, title, work) {
  const queue = [...items];
  const worker = async () => {
    const tab = await openTab(browser, name, scheme);
    for (let item; (item = queue.shift()); ) {
      progress(`${name}: ${title}: ${items.length - queue.length} of ${items.length}: ${item}`);
      tab.label = item;
      tab.loaded.clear();
      await work(tab, item).catch((error) => report(item, `${name} ${title}`, error.message));
    }
    await tab.page.close();
  };
  await Promise.all(Array.from({ length: TABS }, worker));
}

/** Runs in the page: its ids and its references, and what did not show. */
function readPage() {
  const references = [];
  for (const element of document.querySelectorAll("*")) {
    for (const { name, value } of element.attributes) {
      if (/^(href|src|xlink:href|data|poster)$/.test(name)) references.push(value);
      else if (name === "srcset") references.push(...value.split(",").map((part) => part.trim().split(/\s/)[0]));
      else for (const match of value.matchAll(/url\(["']?(#[^"')]+)/g)) references.push(match[1]);
    }
  }
  // On a phone only boxes inside the article scroll sideways. The theme hides what is wider than <html>: measure .content too.
  const excess = Math.max(...[...document.querySelectorAll("html, .content")].map((one) => one.scrollWidth - one.clientWidth));
  const scrolls = (one) => !one.matches("article") && (getComputedStyle(one).overflowX !== "visible" || scrolls(one.parentElement));
  const isOutside = (one) => one.getBoundingClientRect().right > innerWidth + 1 && !scrolls(one.parentElement);
  const isFlat = (element) => element.checkVisibility() && element.getBoundingClientRect().height < 2;
  return {
    address: location.href,
    ids: [...document.querySelectorAll("[id], a[name]")].map((element) => element.id || element.name),
    references,
    failed: window.failedElements,
    excess,
    widest: excess > 1 ? [...document.querySelectorAll("article *")].find(isOutside)?.outerHTML.slice(0, 120) : "",
    flatEquations: [...document.querySelectorAll("math")].filter(isFlat).length,
    equations: document.querySelectorAll("math").length,
  };
}

/**
 * Open a page of the book. The <article> is there at once, except after index.html, which goes on to another page. The page
 * of a model has none: it is ready when it shows a result.
 */
async function openPage(page, path) {
  await page.goto(pathToFileURL(join(folder, path)).href);
  const content = path.startsWith(MODELS) ? ".result .output" : "article";
  const isReady = (selector) => document.querySelector(selector) && document.readyState === "complete";
  await page.waitForFunction(isReady, { polling: 100 }, content); // a tab in the background gets no animation frames
}

/** Open every page, as wide as a phone; return what readPage() found, by path. */
async function visitPages(browser, name) {
  const found = new Map();
  await inTabs(browser, name, "light", pages, "pages", async ({ page, loaded }, path) => {
    await page.setViewport(NARROW);
    await openPage(page, path);
    const contents = await page.evaluate(readPage);
    found.set(path, contents);
    for (const address of contents.failed) report(path, `${name} failed load`, address, "loadFailures");
    if (contents.excess > 1) report(path, `${name} scrolls sideways`, `${contents.excess} px: ${contents.widest}`, "tooWide");
    if (contents.flatEquations) report(path, `${name} equations without height`, contents.flatEquations);
    counts.equations += contents.equations;
    if (path === FIRST_PAGE && name === "chromium") counts.firstPageBytes = addSizes([...loaded].map(fileURLToPath).filter(existsSync));
  });
  return found;
}

/** Every relative reference leads to a file and, with a fragment, to an id of that file. */
function checkLinks(found) {
  const ids = new Map();
  const references = [];
  for (const [path, contents] of found) {
    const base = contents.address.split(/[?#]/)[0];
    ids.set(base, new Set(contents.ids));
    for (const reference of contents.references) references.push([path, base, reference]);
  }
  for (const file of files.filter((name) => name.endsWith(".svg"))) {
    const base = pathToFileURL(file).href;
    const text = readFileSync(file, "utf8");
    ids.set(base, new Set(Array.from(text.matchAll(/\bid="([^"]+)"/g), (match) => match[1])));
    for (const match of text.matchAll(/(?:href="|url\()(#[^")]+)/g)) references.push([relative(folder, file), base, match[1]]);
  }
  for (const [path, base, reference] of references) {
    if (/^([a-z][a-z+.-]*:|\/\/)/i.test(reference) && !reference.startsWith("file:")) continue;
    counts.links += 1;
    const target = new URL(reference, base);
    const fragment = decodeURIComponent(target.hash.slice(1));
    const address = target.href.split(/[?#]/)[0];
    const file = fileURLToPath(address);
    const isInside = !relative(folder, file).startsWith("..");
    const exists = isInside && existsSync(file) && statSync(file).isFile();
    const isState = relative(folder, file).startsWith(MODELS); // the fragment says what the model's page shows
    const hasTarget = !fragment || isState || !ids.has(address) || ids.get(address).has(fragment);
    if (!exists) report(path, "link to a missing file", reference, "brokenLinks");
    else if (!hasTarget) report(path, "link to a missing id", reference, "brokenLinks");
  }
}

/** Run axe; report findings of impact serious or critical. */
async function checkAccessibility(page, name, kind, path) {
  const findings = await findAccessibilityProblems(page, AXE_EXCEPTIONS);
  counts.axeRuns += 1;
  for (const { id, count, first, why } of findings) {
    report(path, `${name} ${kind} axe ${id}`, `${count} elements, first ${first}: ${why}`, "axeFindings");
  }
}

/** The window does not scroll sideways. (Narrow windows are measured on all pages, by visitPages.) */
async function checkWidth(page, name, path, kind) {
  const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (excess > 1) report(path, `${name} ${kind} scrolls sideways`, `${excess} px`, "tooWide");
}

async function takeScreenshot(page, directory, name, path, kind) {
  const { width, height: rows } = page.viewport();
  const height = Math.min(await page.evaluate(() => document.documentElement.scrollHeight), 3 * rows);
  const file = `${path.replace(/\.html$/, "").replaceAll("/", "-")}-${kind}-${name}.png`;
  await page.screenshot({ path: join(directory, file), clip: { x: 0, y: 0, width, height }, captureBeyondViewport: true });
}

/** A model of the book starts when its button is clicked. */
async function checkModel(browser, name) {
  await inTabs(browser, name, "dark", ["book/paper/attention.html"], "model", async ({ page }, path) => {
    await openPage(page, path);
    if (!await startFirstModel(page)) report(path, `${name} model`, "its output is empty");
  });
}

/** What is folded on the screen is printed. */
async function checkPrint(browser, name) {
  await inTabs(browser, name, "dark", ["book/paper/results.html"], "print", async ({ page }, path) => {
    await openPage(page, path);
    const [folded, printed, after] = await page.evaluate(() => {
      const countFolded = () => document.querySelectorAll("article details:not([open])").length;
      return [null, "beforeprint", "afterprint"].map((event) => (event && dispatchEvent(new Event(event)), countFolded()));
    });
    if (!folded || printed || after !== folded) report(path, `${name} folded parts in print`, `${folded}, ${printed}, ${after}`);
  });
}

async function checkSearch(browser, name) {
  await inTabs(browser, name, "dark", ["search.html"], "search", async ({ page }, path) => {
    await page.goto(`${pathToFileURL(join(folder, path)).href}?q=softmax`);
    await page.waitForSelector("#search-results ul.search li a", { timeout: 60_000 });
    const links = await page.$$eval("#search-results ul.search li a", (all) => all.map((one) => one.href.split(/[?#]/)[0]));
    const missing = links.filter((address) => !existsSync(fileURLToPath(address)));
    if (missing.length) report(path, `${name} search result without a page`, missing[0]);
  });
}

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { browser: { type: "string", default: "both" }, screenshots: { type: "string" }, axe: { type: "string" } },
});
const names = options.browser === "both" ? ["chromium", "firefox"] : [options.browser];
if (positionals.length !== 1 || !names.every((name) => name in PROGRAMS)) {
  throw new Error("Usage: node check_book.mjs FOLDER [--browser chromium|firefox|both] [--screenshots DIR] [--axe N]");
}
const folder = resolve(positionals[0]);
const files = existsSync(folder) ? listFiles(folder) : [];
const pages = files.map((file) => relative(folder, file)).filter((file) => file.endsWith(".html"));
if (!pages.length) throw new Error(`${folder} has no pages. Build the book first: make book`);
if (options.screenshots) mkdirSync(options.screenshots, { recursive: true });
const stop = () => process.exit(console.error(`The check did not end in ${TIME_LIMIT_MINUTES} minutes.`) ?? 1);
setTimeout(stop, TIME_LIMIT_MINUTES * 60_000).unref();

const start = Date.now();
for (const path of REPRESENTATIVE) if (!pages.includes(path)) report(path, "missing", "the check's list of pages names it");
const chosen = REPRESENTATIVE.filter((path) => pages.includes(path));
const withAxe = new Set(chosen.slice(0, Number(options.axe ?? chosen.length)));
for (const name of names) {
  for (const scheme of ["light", "dark"]) {
    const browser = await launch(name, scheme);
    try {
      if (scheme === "light") {
        const found = await visitPages(browser, name);
        if (name === names[0]) checkLinks(found);
      }
      await inTabs(browser, name, scheme, chosen, `${scheme} checks`, async ({ page }, path) => {
        await openPage(page, path);
        for (const [kind, viewport] of Object.entries(scheme === "light" ? { wide: WIDE, narrow: NARROW } : { dark: WIDE })) {
          await page.setViewport(viewport);
          await checkWidth(page, name, path, kind);
          if (options.screenshots) await takeScreenshot(page, options.screenshots, name, path, kind);
          if (withAxe.has(path)) await checkAccessibility(page, name, kind, path);
        }
        await page.setViewport(MEDIUM);
        await checkWidth(page, name, path, "medium");
      });
      if (scheme === "dark") await checkModel(browser, name);
      if (scheme === "dark") await checkPrint(browser, name);
      if (scheme === "dark") await checkSearch(browser, name); // the last one: its words would be marked on other pages
    } finally {
      await browser.close();
    }
  }
}
progress("");

const bytes = addSizes(files);
if (bytes > FOLDER_LIMIT) report(".", "too large", `${bytes} bytes, limit ${FOLDER_LIMIT}`);
if (counts.firstPageBytes > FIRST_PAGE_LIMIT) report(FIRST_PAGE, "too large", `${counts.firstPageBytes} bytes, limit ${FIRST_PAGE_LIMIT}`);
for (const line of [...problems].sort()) console.log(line);
const numbers = [
  `${pages.length} pages in ${names.join(" and ")}`,
  `${counts.consoleMessages} console messages, ${counts.loadFailures} failed loads, ${counts.otherHosts} requests to other hosts`,
  `${counts.brokenLinks} of ${counts.links} links broken, ${counts.equations} equations`,
  `${counts.axeFindings} findings in ${counts.axeRuns} axe runs, ${counts.tooWide} pages too wide`,
  `${(bytes / 1e6).toFixed(1)} MB${counts.firstPageBytes ? `, first page ${Math.round(counts.firstPageBytes / 1000)} KB` : ""}`,
  `${problems.size} problems, ${Math.round((Date.now() - start) / 1000)} s`,
];
console.log(numbers.join(", "));
process.exitCode = problems.size ? 1 : 0;
