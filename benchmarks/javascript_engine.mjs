// The JavaScript engine for javascript_engine.py: node javascript_engine.mjs RUN
// Reads a request {text, options} from each line of the input, and writes {text, seconds}.

import {existsSync, readFileSync} from "node:fs";
import {join} from "node:path";
import {createInterface} from "node:readline";

import {load} from "../src/cutaway/explore/page/engine/index.js";

const NAMES = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "checksums.json"];
const folder = process.argv[2], names = NAMES.filter((name) => existsSync(join(folder, name)));
const model = await load(Object.fromEntries(names.map((name) => [name, readFileSync(join(folder, name))])),
  {worker: false});

for await (const line of createInterface({input: process.stdin})) {
  const {text, options} = JSON.parse(line), start = performance.now();
  const {text: output} = await model.translate(text, options);
  console.log(JSON.stringify({text: output, seconds: (performance.now() - start) / 1000}));
}
