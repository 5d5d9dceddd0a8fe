// What is looked at, kept in the address (location.hash): an address restores the view, and Back goes back.

const DEFAULTS = {view: null, run: 0, snapshot: null, text: null, target: null, prefix: null, off: [], hidden: [],
                  kind: null, layer: null, head: null};

/** The one state of the page. Read it freely; change it only through set(). */
export const state = {};

const RUNS = ["run", "bRun"]; // the keys whose value is the number of a run
const subscribers = new Set();
let written = null;
let names = []; // of the runs, by their number

/** The state as the address has it. */
export function read() {
  return state;
}

/** Merge `patch` in, write the address, tell the subscribers. `replace` leaves no step for the Back button. */
export function set(patch, {replace = false} = {}) {
  const changed = Object.keys(patch).filter((key) => !same(patch[key], state[key]));
  if (!changed.length) return;
  for (const key of changed) state[key] = patch[key] ?? fallback(key);
  write(replace);
  tell(changed);
}

/** f(state, changed keys) after each change; gives back a function that ends it. */
export function subscribe(f) {
  subscribers.add(f);
  return () => subscribers.delete(f);
}

/** An address tells a run by its name: the next server may have others, in another order. Read the address anew. */
export function nameRuns(given) {
  names = given;
  Object.assign(state, parsed(location.hash));
}

/** The state as an address: "#view=attention&text=The+cat". */
export function address(given = state) {
  const told = Object.entries(given).filter(([key, value]) => !same(value, fallback(key)) || tells(key));
  return "#" + told.map(([key, value]) => `${quoted(key)}=${quoted(spelled(named(key, value)))}`).join("&");
}

// Of several runs even the first is named.
function tells(key) {
  return key === "run" && names.length > 1;
}

function named(key, value) {
  const name = RUNS.includes(key) ? names[value] : undefined;
  return name !== undefined && names.indexOf(name) === names.lastIndexOf(name) ? name : value;
}

/** The other direction; what cannot be read is taken as text. */
export function parsed(hash) {
  const found = fresh();
  for (const part of hash.replace(/^#/, "").split("&").filter(Boolean)) {
    const cut = part.indexOf("=");
    if (cut > 0) found[unquoted(part.slice(0, cut))] = meant(unquoted(part.slice(cut + 1)));
  }
  for (const key of RUNS) if (names.includes(found[key])) found[key] = names.indexOf(found[key]);
  for (const key of ["off", "hidden"]) if (!Array.isArray(found[key])) found[key] = [];
  if (found.prefix !== null && !Array.isArray(found.prefix)) found.prefix = null;
  for (const key of ["text", "target"]) if (found[key] !== null) found[key] = String(found[key]);
  return found;
}

function fresh() {
  return {...DEFAULTS, off: [], hidden: []};
}

function fallback(key) {
  return Array.isArray(DEFAULTS[key]) ? [] : DEFAULTS[key] ?? null;
}

function same(a, b) {
  return JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
}

// A string stands as it is unless it would be taken for a number or a list: then it is quoted.
function spelled(value) {
  return typeof value === "string" && meant(value) === value ? value : JSON.stringify(value);
}

function meant(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? text : value;
  } catch {
    return text;
  }
}

// Half of a surrogate pair (a cut emoji) cannot be written in an address: the encoder puts U+FFFD instead.
function quoted(text) {
  const whole = new TextDecoder().decode(new TextEncoder().encode(text));
  return encodeURIComponent(whole).replace(/%20/g, "+").replace(/%2C/g, ",").replace(/%5B/g, "[").replace(/%5D/g, "]");
}

function unquoted(text) {
  const spaced = text.replace(/\+/g, " ");
  try {
    return decodeURIComponent(spaced);
  } catch {
    return spaced;
  }
}

// Some browsers refuse many steps in a short time: the view then still works, only the address lags behind.
function write(replace) {
  written = address();
  try {
    history[replace ? "replaceState" : "pushState"](null, "", written === "#" ? location.pathname + location.search
      : written);
  } catch {
    written = location.hash;
  }
}

function tell(changed) {
  for (const f of [...subscribers]) f(state, changed);
}

function follow() {
  if ((location.hash || "#") === written) return;
  written = location.hash || "#";
  const found = parsed(location.hash);
  const keys = new Set([...Object.keys(state), ...Object.keys(found)]);
  const changed = [...keys].filter((key) => !same(state[key], found[key] ?? fallback(key)));
  for (const key of changed) state[key] = found[key] ?? fallback(key);
  if (changed.length) tell(changed);
}

Object.assign(state, parsed(location.hash));
written = location.hash || "#";
addEventListener("popstate", follow);
addEventListener("hashchange", follow);
