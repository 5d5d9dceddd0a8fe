// What the Python of this project expects: a script writes it to a temporary folder.

import {execFileSync} from "node:child_process";
import {existsSync, mkdtempSync, readFileSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {fileURLToPath} from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PYTHON = join(HERE, "../../../.venv/bin/python");

/** Run a script that writes fixtures. -> a function that reads a JSON file of them */
export function dump(script, folder = process.env[`${script.toUpperCase().replace(/\W/g, "_")}_FOLDER`]) {
  if (!folder) {
    folder = mkdtempSync(join(tmpdir(), "engine-"));
    process.on("exit", () => rmSync(folder, {recursive: true}));
    const python = process.env.PYTHON ?? (existsSync(PYTHON) ? PYTHON : "python3");
    execFileSync(python, [join(HERE, script), folder], {stdio: "inherit"});
  }
  return (name) => JSON.parse(readFileSync(join(folder, name), "utf-8"));
}
