// The models that dump_models.py wrote, for the tests.

import {readFileSync} from "node:fs";
import {join} from "node:path";

import {buildModel} from "../../../src/cutaway/explore/page/engine/build.js";
import {readWeights} from "../../../src/cutaway/explore/page/engine/weights.js";
import {expectedOf} from "./comparing.mjs";
import {dump, readJson} from "./fixtures.mjs";

const FOLDER = dump("dump_models.py");
export const CASES = readJson(FOLDER, "cases.json");

export function readBytes(name) {
  return new Uint8Array(readFileSync(join(FOLDER, name)));
}

/** A JSON file of the script. */
export function readFixture(name) {
  return readJson(FOLDER, name);
}

/** The model of a case. */
export async function modelOf(fixture) {
  return buildModel(fixture.config, await readWeights(readBytes(`${CASES.indexOf(fixture)}.safetensors`)));
}

/** The probes that PyTorch computed, in the order of computation. */
export function expectedProbes(fixture) {
  return expectedOf(fixture, readBytes(`${CASES.indexOf(fixture)}.bin`));
}
