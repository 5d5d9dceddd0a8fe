// The options of a call: which there are, and what they must be.

import {ConfigError} from "./errors.js";
import {toCamelCase} from "./names.js";
import {DECODE_DEFAULTS} from "./request.js";

const isText = (value) => typeof value === "string";
const isList = (value) => Array.isArray(value) && value.every(isText);

// name -> [condition, what it must be]
const CONDITIONS = {
  prefix: [isText, "a text"],
  prompt: [isText, "the name of a prompt"],
  choices: [isList, "a list of texts"],
  stop: [isList, "a list of texts"],
  nBest: [(value) => Number.isInteger(value) && value >= 1, "a whole number from 1"],
  onToken: [(value) => typeof value === "function", "a function (text, step)"],
  signal: [(value) => value instanceof AbortSignal, "the signal of an AbortController"],
  pooling: [isText, "a text"],
  normalize: [(value) => typeof value === "boolean", "true or false"],
  cut: [(value) => typeof value === "boolean", "true or false"],
};

const DECODE = Object.keys(DECODE_DEFAULTS).filter((name) => name !== "batch_size").map(toCamelCase);

/**
 * Check the options; those that are undefined or null count as not given.
 * @param {string[]} names the options of this call, besides `signal`; "decode" stands for the settings of a search
 * @returns {object} the options, and the settings of a search in `decode`
 */
export function readOptions(options = {}, names = []) {
  requireObject(options);
  const decode = {}, found = {decode}, allowed = [...names, "signal"];
  for (const [name, value] of Object.entries(options)) {
    const isOfSearch = allowed.includes("decode") && DECODE.includes(name);
    if (!isOfSearch && (name === "decode" || !allowed.includes(name))) {
      const known = allowed.flatMap((each) => (each === "decode" ? DECODE : [each]));
      throw new ConfigError(`there is no option '${name}'. Allowed: ${known.join(", ")}.`);
    }
    if (value === undefined || value === null) continue;
    if (!isOfSearch) check(name, value);
    (isOfSearch ? decode : found)[name] = value;
  }
  return found;
}

/** Separate the two options that cannot be sent to a worker. */
export function separateCallbacks(options = {}) {
  requireObject(options);
  const {onToken, signal, ...others} = options;
  for (const [name, value] of Object.entries({onToken, signal})) if (value) check(name, value);
  return {onToken, signal, others};
}

function requireObject(options) {
  if (options !== null && typeof options === "object") return;
  throw new ConfigError(`the options are ${JSON.stringify(options)}; expected an object, such as `
    + '{strategy: "greedy"}.');
}

function check(name, value) {
  const [isMet, expected] = CONDITIONS[name];
  if (!isMet(value)) throw new ConfigError(`the option ${name} is ${JSON.stringify(value)}; expected ${expected}.`);
}
