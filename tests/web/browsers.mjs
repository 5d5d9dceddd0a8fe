// Chromium and Firefox for the checks: no network, and every message is a problem.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join, normalize } from "node:path";
import puppeteer from "puppeteer-core";

export const PROGRAMS = {
  chromium: ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"],
  firefox: ["/usr/bin/firefox-esr", "/usr/bin/firefox"],
};
const CHROMIUM_FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
// Firefox sends every request to a closed port of this machine, and starts none of its own.
const FIREFOX_PREFERENCES = {
  "network.proxy.type": 1, "network.proxy.http": "127.0.0.1", "network.proxy.http_port": 9,
  "network.proxy.ssl": "127.0.0.1", "network.proxy.ssl_port": 9, "network.captive-portal-service.enabled": false,
  "network.connectivity-service.enabled": false, "datareporting.policy.dataSubmissionEnabled": false,
  "app.update.disabledForTesting": true, "extensions.update.enabled": false,
};

export async function launch(name, scheme = "light") {
  const executablePath = PROGRAMS[name].find(existsSync);
  if (name === "chromium") return puppeteer.launch({ executablePath, args: CHROMIUM_FLAGS });
  const override = { "layout.css.prefers-color-scheme.content-override": scheme === "dark" ? 0 : 1 };
  return puppeteer.launch({ browser: "firefox", executablePath, extraPrefsFirefox: { ...FIREFOX_PREFERENCES, ...override } });
}

/** Open an address; return its page and what was reported: messages, errors, and requests to other places. */
export async function open(browser, address) {
  const page = await browser.newPage(), reports = [], home = new URL(address).origin;
  page.on("console", (message) => reports.push(message.text()));
  page.on("pageerror", (error) => reports.push(error.message));
  page.on("request", (request) => {
    const url = request.url();
    if (!/^(file|data|blob|about):/.test(url) && !url.startsWith(`${home}/`)) reports.push(`request to ${url}`);
  });
  await page.goto(address);
  return { page, reports };
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/**
 * Run axe on the page. -> its findings of impact serious or critical: [{id, count, first, why}]
 * @param {{rule: string, selector: string}[]} exceptions findings that stay: the rule, and an element or its ancestor
 */
export async function findAccessibilityProblems(page, exceptions = []) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axeSource);
  return page.evaluate(async (allowed) => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"], preload: false });
    const isException = (rule, node) =>
      allowed.some((one) => one.rule === rule && document.querySelector(node.target.join(" "))?.closest(one.selector));
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => ({ id, nodes: nodes.filter((node) => !isException(id, node)) }))
      .filter(({ nodes }) => nodes.length)
      .map(({ id, nodes }) => ({ id, count: nodes.length, first: nodes[0].target.join(" "), why: nodes[0].any[0]?.message ?? "" }));
  }, exceptions);
}

/** What a command of Cutaway prints. */
export function run(program, ...words) {
  return execFileSync(program, words, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
}

const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".json": "application/json" };

/**
 * Serve folders on this machine. -> {address, close}
 * @param {Object<string, string>} folders path -> folder
 */
export async function serveFolders(folders) {
  const server = createServer((request, response) => {
    const path = normalize(decodeURIComponent(new URL(request.url, "http://x").pathname));
    const at = Object.keys(folders).find((each) => path.startsWith(each));
    const file = at && join(folders[at], path.slice(at.length));
    if (!file || !existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream" });
    response.end(readFileSync(file));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { address: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

/** Give a page the function watch(work): -> {result, longest: the longest time that the page's own thread was busy} */
export async function addWatch(page) {
  await page.evaluate(`globalThis.watch = ${watch}`);
  const { longest } = await page.evaluate(() => watch(async () => { for (const end = performance.now() + 60; performance.now() < end;); }));
  if (longest < 55) throw new Error(`watch found ${longest} ms instead of 60`);
}

async function watch(work) {
  let last = performance.now(), longest = 0, isRunning = true;
  const tick = () => {
    const now = performance.now();
    [longest, last] = [Math.max(longest, now - last), now];
    if (isRunning) setTimeout(tick, 0);
  };
  tick();
  const result = await work();
  await new Promise((resolve) => setTimeout(resolve, 0)); // for a wait that ends with the work
  longest = Math.max(longest, performance.now() - last);
  isRunning = false;
  return { result, longest };
}
