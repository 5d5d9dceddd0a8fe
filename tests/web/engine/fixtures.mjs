// What the Python of this project expects: a script writes it to a temporary folder.

import {execFileSync} from "node:child_process";
import {existsSync, mkdtempSync, readFileSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {fileURLToPath} from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PYTHON = join(HERE, "../../../.venv/bin/python");

/** Run a script that writes fixtures. DUMP_API_PY names a folder with those of an earlier run. -> the folder */
export function dump(script, ...args) {
  const earlier = process.env[script.toUpperCase().replace(/\W/g, "_")];
  if (earlier) return earlier;
  const folder = mkdtempSync(join(tmpdir(), "engine-"));
  process.on("exit", () => rmSync(folder, {recursive: true}));
  const python = process.env.PYTHON ?? (existsSync(PYTHON) ? PYTHON : "python3");
  execFileSync(python, [join(HERE, script), ...args, folder], {stdio: "inherit"});
  return folder;
}

/** The content of a JSON file. */
export function readJson(folder, name) {
  return JSON.parse(readFileSync(join(folder, name), "utf-8"));
}

const NAMES = ["config.json", "tokenizer.json", "labels.json", "model.safetensors", "checksums.json"];

/** The files of a run, the weights in base64 if `asText`. */
export function filesOf(folder, asText = false) {
  const found = NAMES.filter((name) => existsSync(join(folder, name)));
  return Object.fromEntries(found.map((name) => {
    const bytes = readFileSync(join(folder, name));
    return [name, asText ? bytes.toString(name.endsWith(".safetensors") ? "base64" : "utf-8") : bytes];
  }));
}
