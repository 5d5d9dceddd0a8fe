// The state of the page. It is stored in the address (location.hash), so a link restores the view and Back works.

const DEFAULTS = {view: null, run: 0, snapshot: null, text: null, target: null, prefix: null, off: [], hidden: [],
                  kind: null, layer: null, head: null, engine: null};

/** The state of the page. Change it only with set(). */
export const state = {};

const RUN_KEYS = ["run", "bRun"]; // their values are numbers of runs
const subscribers = new Set();
let written = null; // the hash that this page wrote last
let names = []; // names of the runs, by number

export function read() {
  return state;
}

/** Merge `patch` into the state, write the address and call the subscribers. `replace` adds no entry to the history. */
export function set(patch, {replace = false} = {}) {
  const changed = Object.keys(patch).filter((key) => !same(patch[key], state[key]));
  if (!changed.length) return;
  for (const key of changed) state[key] = patch[key] ?? fallback(key);
  writeAddress(replace);
  notify(changed);
}

/** Call f(state, changed keys) after each change. -> a function that ends this */
export function subscribe(f) {
  subscribers.add(f);
  return () => subscribers.delete(f);
}

/** Set the names of the runs and read the address again. An address has names, because numbers can change. */
export function nameRuns(runNames) {
  names = runNames;
  Object.assign(state, parseAddress(location.hash));
}

/** The state as an address: "#view=attention&text=The+cat". */
export function address(from = state) {
  const entries = Object.entries(from).filter(([key, value]) => !same(value, fallback(key)) || isRequired(key));
  return "#" + entries.map(([key, value]) => `${encode(key)}=${encode(toText(runName(key, value)))}`).join("&");
}

// With several runs, the address always names the run.
function isRequired(key) {
  return key === "run" && names.length > 1;
}

function runName(key, value) {
  const name = RUN_KEYS.includes(key) ? names[value] : undefined;
  return name !== undefined && names.indexOf(name) === names.lastIndexOf(name) ? name : value;
}

/** The state of an address. A value that is not JSON is a string. */
export function parseAddress(hash) {
  const found = {...DEFAULTS, off: [], hidden: []};
  for (const part of hash.replace(/^#/, "").split("&").filter(Boolean)) {
    const cut = part.indexOf("=");
    if (cut > 0) found[decode(part.slice(0, cut))] = fromText(decode(part.slice(cut + 1)));
  }
  for (const key of RUN_KEYS) if (names.includes(found[key])) found[key] = names.indexOf(found[key]);
  for (const key of ["off", "hidden"]) if (!Array.isArray(found[key])) found[key] = [];
  if (found.prefix !== null && !Array.isArray(found.prefix)) found.prefix = null;
  for (const key of ["text", "target"]) if (found[key] !== null) found[key] = String(found[key]);
  return found;
}


function fallback(key) {
  return Array.isArray(DEFAULTS[key]) ? [] : DEFAULTS[key] ?? null;
}

function same(a, b) {
  return JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
}

// A string is written without quotes, unless it would be read as a number or a list.
function toText(value) {
  return typeof value === "string" && fromText(value) === value ? value : JSON.stringify(value);
}

function fromText(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? text : value;
  } catch {
    return text;
  }
}

// Half of a surrogate pair (a cut emoji) cannot be encoded; TextEncoder replaces it with U+FFFD.
function encode(text) {
  const whole = new TextDecoder().decode(new TextEncoder().encode(text));
  return encodeURIComponent(whole).replace(/%20/g, "+").replace(/%2C/g, ",").replace(/%5B/g, "[").replace(/%5D/g, "]");
}

function decode(text) {
  const spaced = text.replace(/\+/g, " ");
  try {
    return decodeURIComponent(spaced);
  } catch {
    return spaced;
  }
}

// Some browsers reject many history entries in a short time. Then only the address is out of date.
function writeAddress(replace) {
  written = address();
  try {
    history[replace ? "replaceState" : "pushState"](null, "", written === "#" ? location.pathname + location.search
      : written);
  } catch {
    written = location.hash;
  }
}

function notify(changed) {
  for (const f of [...subscribers]) f(state, changed);
}

function readAddress() {
  if ((location.hash || "#") === written) return;
  written = location.hash || "#";
  const found = parseAddress(location.hash);
  const keys = new Set([...Object.keys(state), ...Object.keys(found)]);
  const changed = [...keys].filter((key) => !same(state[key], found[key] ?? fallback(key)));
  for (const key of changed) state[key] = found[key] ?? fallback(key);
  if (changed.length) notify(changed);
}

Object.assign(state, parseAddress(location.hash));
written = location.hash || "#";
addEventListener("popstate", readAddress);
addEventListener("hashchange", readAddress);
