// Chromium and Firefox for the checks: no network, and every message is a problem.

import { existsSync } from "node:fs";
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
