// The public API answers as the pipelines of Python, for a tiny run of each task; and its options and errors.

import assert from "node:assert/strict";
import {createHash} from "node:crypto";
import {existsSync, readFileSync} from "node:fs";
import {createServer} from "node:http";
import {join} from "node:path";
import {test} from "node:test";

import * as api from "../../../src/cutaway/explore/page/engine/index.js";
import {sha256Digest} from "../../../src/cutaway/explore/page/engine/sha256.js";
import {answerCalls, loadInWorker, useScript} from "../../../src/cutaway/explore/page/engine/worker.js";
import {dump, filesOf as readFiles, readJson} from "./fixtures.mjs";

const {ConfigError, DataError, load, RunError} = api, TOLERANCE = 1e-4;
const FOLDER = dump("dump_api.py");
const CASES = readJson(FOLDER, "cases.json");
const filesOf = (run, asText) => readFiles(join(FOLDER, run), asText);

const models = new Map();
async function modelOf(run) {
  if (!models.has(run)) models.set(run, await load(filesOf(run)));
  return models.get(run);
}

function assertClose(found, expected, context) {
  const a = [...found], b = [...expected];
  assert.equal(a.length, b.length, context);
  const isClose = (x, y) => Math.abs(x - y) <= TOLERANCE * Math.max(1, Math.abs(y));
  a.forEach((x, i) => assert.ok(isClose(x, b[i]), `${context}: ${x}, ${b[i]}`));
}

const COMPARE = {
  generate: compareTexts,
  translate: compareTexts,
  classify(found, expected, context) {
    assertClose(found.probabilities.map(({probability}) => probability), expected.probabilities, context);
    if (!("label" in expected)) return;
    assertClose([found.probability], [expected.probability], context);
    const facts = ({label, isCut, unknown}) => ({label, isCut, unknown});
    assert.deepEqual(facts(found), facts(expected), context);
  },
  tag(found, {words, tags, parts}, context) {
    assert.deepEqual(found.words, words.map((word, i) => ({word, tag: tags[i]})), context);
    assert.equal(found.parts, parts, context);
  },
  embed(found, expected, context) {
    assert.ok(found instanceof Float32Array);
    assertClose(found, expected, context);
  },
};

function compareTexts(found, {texts, hypotheses, tokens, unknown}, context) {
  assert.deepEqual(found.hypotheses.map(({text}) => text), texts, context);
  assert.deepEqual(found.unknown, unknown, context);
  hypotheses.forEach((expected, i) => {
    const one = found.hypotheses[i];
    assert.deepEqual([one.ids, one.tokens, one.finished], [expected.tokens, tokens[i], expected.finished], context);
    assertClose([one.logP, one.score, ...one.tokenLogP],
      [expected.log_probability, expected.score, ...expected.token_log_probs], context);
  });
  if (texts.length) assert.equal(found.text, texts[0], context);
}

function exampleOf({input, pixels, size}) {
  return pixels ? {pixels, width: size, height: size, channels: 1} : input;
}

for (const [run, cases] of Object.entries(CASES)) {
  test(`${run}: the same as in Python, ${cases.length} calls`, async () => {
    const model = await modelOf(run);
    for (const {method, options, result, error, message, ...given} of cases) {
      const context = `${run}.${method}(${JSON.stringify(given.input)}, ${JSON.stringify(options)})`;
      const call = model[method](exampleOf(given), options);
      if (error) await assert.rejects(call, {name: error}, `${context}: ${message}`);
      else COMPARE[method](await call, result, context);
    }
  });
}

test("streaming: the pieces are the text", async () => {
  for (const run of ["words", "subwords", "generator", "bytes"]) {
    const model = await modelOf(run), method = model.task === "translation" ? "translate" : "generate";
    for (const input of ["The small cat sleeps.", "def f(x):", "été 🙂"]) {
      const strategy = run === "subwords" ? undefined : "sample", steps = [];
      const given = {strategy, topP: 1, maxLength: 25};
      const {text, ids} = await model[method](input, {...given, onToken: (text, step) => steps.push({text, ...step})});
      const output = method === "generate" ? text.slice(input.length) : text;
      assert.deepEqual(steps.map(({id}) => id), ids);
      assert.deepEqual(steps.map(({number}) => number), [...ids.keys()]);
      assert.ok(steps.every((step, i) => step.text === (steps[i - 1]?.text ?? "") + step.piece));
      assert.ok(output.startsWith(steps.at(-1)?.text ?? ""));
    }
  }
});

test("stopping a call", async () => {
  const model = await modelOf("generator"), long = {minLength: 40, maxLength: 50, repetitionPenalty: 1.1};
  for (const strategy of ["greedy", "sample", "beam"]) {
    const controller = new AbortController();
    const call = model.generate("def f(", {...long, strategy, beamSize: 20, signal: controller.signal});
    controller.abort();
    await assert.rejects(call, {name: "AbortError"});
    await assert.rejects(model.generate("x", {signal: controller.signal}), {name: "AbortError"});
  }
  const controller = new AbortController(), texts = [];
  const call = model.generate("def f(", {...long, strategy: "greedy", signal: controller.signal, onToken(text) {
    texts.push(text);
    if (texts.length === 3) controller.abort(new Error("enough"));
    const until = performance.now() + 12; // longer than a slice
    while (performance.now() < until);
  }});
  await assert.rejects(call, {message: "enough"});
  assert.equal(texts.length, 3);
  assert.ok((await model.generate("def f(", long)).ids.length >= 40); // the model still works
});

test("a slice for every step or two: the same texts", async () => {
  const now = performance.now.bind(performance);
  for (const run of ["subwords", "generator"]) {
    const model = await modelOf(run), cases = CASES[run].filter(({result}) => result?.texts).slice(0, 25);
    const call = ({method, input, options}) => model[method](input, options), expected = [];
    for (const one of cases) expected.push(await call(one));
    let time = 0;
    performance.now = () => (time += 100);
    try {
      for (const [i, one] of cases.entries()) assert.deepEqual(await call(one), expected[i]);
    } finally {
      performance.now = now;
    }
  }
});

test("calls at the same time do not change each other", async () => {
  const model = await modelOf("words"), texts = CASES.words.slice(0, 6).map(({input}) => input);
  for (const strategy of ["greedy", "beam"]) {
    const one = [];
    for (const text of texts) one.push(await model.translate(text, {strategy}));
    assert.deepEqual(await Promise.all(texts.map((text) => model.translate(text, {strategy}))), one);
  }
});

test("errors say what to do", async () => {
  const words = await modelOf("words"), tagger = await modelOf("tagger"), digits = await modelOf("digits");
  const pixels = new Uint8Array(256), masked = await modelOf("masked");
  for (const [call, Error, pattern] of [
    [() => words.translate(5), DataError, /got number; expected a text/],
    [() => words.translate(["a"]), DataError, /got a list/],
    [() => words.translate("a", 5), ConfigError, /expected an object/],
    [() => words.translate("a", {beamsize: 2}), ConfigError, /no option 'beamsize'. Allowed: strategy, beamSize/],
    [() => words.translate("a", {batchSize: 2}), ConfigError, /no option/],
    [() => words.translate("a", {beamSize: 0}), ConfigError, /beam_size = 0 must be between/],
    [() => words.translate("a", {temperature: "hot"}), ConfigError, /wrong type/],
    [() => words.translate("a", {nBest: 0}), ConfigError, /nBest is 0; expected a whole number/],
    [() => words.translate("a", {stop: "x"}), ConfigError, /stop is "x"; expected a list of texts/],
    [() => words.translate("a", {suppress: [10_000]}), ConfigError, /suppress contains the token 10000/],
    [() => words.translate("a", {strategy: "beam", onToken() {}}), ConfigError, /cannot stream/],
    [() => words.translate("a", {prefix: "zebra"}), DataError, /zebra is not in the vocabulary/],
    [() => words.translate("a", {choices: []}), DataError, /list of choices is empty/],
    [() => words.generate("a"), ConfigError, /for translation, so generate\(\) cannot use it. Use translate\(\) or/],
    [() => tagger.tag(5), DataError, /expected a text or a list of words/],
    [() => tagger.tag(["a", 5]), DataError, /got number/],
    [() => masked.classify("a"), ConfigError, /Use embed\(\)/],
    [() => masked.embed("a", {pooling: "first"}), ConfigError, /unknown pooling 'first'/],
    [() => digits.classify("a"), DataError, /this model classifies images/],
    [() => digits.classify({pixels, width: 8, height: 32}), DataError, /8×32 pixels.* reads 16×16/],
    [() => digits.classify({pixels: Array(256).fill(2), width: 16, height: 16}), DataError, /below 0 or above 1/],
    [() => load(), RunError, /no source, and there is no model.js/],
    [() => load("runs/x"), RunError, /got 'runs\/x'; expected the URL/],
    [() => load(5), RunError, /got 5/],
    [() => load({}), RunError, /there is no config.json/],
  ]) {
    await assert.rejects(call, (error) => {
      assert.ok(error instanceof Error && pattern.test(error.message), String(error));
      return true;
    });
  }
});

test("the types and the docs have the options that calls accept", async () => {
  const root = new URL("../../../", import.meta.url), read = (path) => readFileSync(new URL(path, root), "utf-8");
  const types = read("src/cutaway/explore/web/cutaway.d.ts"), docs = read("docs/web.md");
  const namesIn = (type) => {
    const [, base, body] = types.match(new RegExp(`interface ${type}(?: extends (\\w+))? \\{(.*?)\\n\\}`, "s"));
    return [...body.matchAll(/^ {2}(\w+)\?:/gm)].map(([, name]) => name).concat(base ? namesIn(base) : []);
  };
  for (const [run, method, type] of [["words", "translate", "GenerateOptions"], ["generator", "generate", "GenerateOptions"],
                                     ["encoder", "embed", "EmbedOptions"], ["tagger", "tag", "CallOptions"],
                                     ["classifier", "classify", "CallOptions"]]) {
    const {message} = await (await modelOf(run))[method]("a", {unknownOption: 1}).catch((error) => error);
    const allowed = message.match(/Allowed: (.*)\.$/)[1].split(", ");
    assert.deepEqual(namesIn(type).sort(), allowed.sort(), method);
    for (const name of allowed) assert.match(docs, new RegExp(`\`${name}[\`(]`), `docs/web.md: ${name}`);
  }
});

test("images of bytes: grey, or colors as in a canvas", async () => {
  const model = await modelOf("digits"), size = {width: 16, height: 16};
  const bytes = Uint8Array.from({length: 256}, (_, i) => i);
  const colors = new Uint8ClampedArray(1024).map((_, i) => (i % 4 === 3 ? 255 : i >> 2));
  const grey = await model.classify({pixels: bytes, ...size});
  assert.deepEqual(await model.classify({data: colors, ...size}), grey);
  const floats = await model.classify({pixels: Float32Array.from(bytes, (x) => x / 255), ...size, channels: 1});
  assertClose([floats.probability], [grey.probability], "floats");
  assert.equal(floats.label, grey.label);
});

test("damaged and missing files", async () => {
  const files = filesOf("words", true), sums = JSON.parse(files["checksums.json"]);
  const withoutSums = {...files, "checksums.json": undefined}, weights = files["model.safetensors"];
  const unsealed = JSON.stringify({...JSON.parse(files["config.json"]), seal: undefined});
  const lora = JSON.stringify({...JSON.parse(unsealed), finetune: {method: "lora"}});
  await load(files, {worker: false});
  await load({...files, "model.safetensors": [weights.slice(0, 400), weights.slice(400)]}); // pieces, as in model.js
  await load({...withoutSums, "config.json": unsealed});
  for (const [changes, pattern] of [
    [{"config.json": `${files["config.json"]} `}, /^config.json is damaged: its checksum/],
    [{"tokenizer.json": `${files["tokenizer.json"]} `}, /^tokenizer.json is damaged: its checksum/],
    [{"model.safetensors": `AAAA${weights.slice(4)}`}, /^model.safetensors is damaged: its checksum/],
    [{"model.safetensors": "?"}, /^model.safetensors is damaged: .* not in base64/],
    [{"model.safetensors": 5}, /^model.safetensors is number; expected/],
    [{"tokenizer.json": undefined}, /^tokenizer.json is missing/],
    [{"checksums.json": "{"}, /^checksums.json is damaged: it is not JSON/],
    [{"config.json": "nothing", "checksums.json": undefined}, /^config.json is damaged: it is not JSON/],
    [{"config.json": Uint8Array.of(255), "checksums.json": undefined}, /^config.json is damaged: it is not a text/],
    [{"config.json": lora, "checksums.json": undefined}, /adapter .*Merge/],
    [{"tokenizer.json": `${files["tokenizer.json"]} `, "checksums.json": undefined}, /^tokenizer.json is damaged/],
    [{"checksums.json": JSON.stringify({...sums, "model.safetensors": "0"})}, /^model.safetensors is damaged/],
  ]) {
    const isExpected = (error) => error instanceof RunError && pattern.test(error.message);
    await assert.rejects(load({...files, ...changes}), isExpected);
  }
  const {"labels.json": _, "checksums.json": __, "config.json": config, ...rest} = filesOf("tagger", true);
  const withoutSeal = JSON.stringify({...JSON.parse(config), seal: undefined});
  await assert.rejects(load({...rest, "config.json": withoutSeal}), /labels.json has 0 labels/);
});

test("SHA-256 without the browser's", async () => {
  for (const length of [0, 1, 55, 56, 57, 63, 64, 65, 119, 120, 127, 128, 129, 1000, 100_003]) {
    const bytes = Uint8Array.from({length}, (_, i) => (i * 7919) >> 3);
    assert.equal(Buffer.from(sha256Digest(bytes)).toString("hex"), createHash("sha256").update(bytes).digest("hex"));
  }
});

// ---- A folder on a server ------------------------------------------------------------------------------------------

test("a folder on a server", async (context) => {
  const asked = [];
  const server = createServer(({url}, response) => {
    asked.push(url);
    const path = join(FOLDER, url), status = url.startsWith("/secret") ? 403 : existsSync(path) ? 200 : 404;
    response.writeHead(status).end(status === 200 ? readFileSync(path) : "no");
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.close();
    server.closeAllConnections();
  });
  const base = `http://127.0.0.1:${server.address().port}`;
  const model = await load(`${base}/classifier`), [{input, result}] = CASES.classifier;
  assert.equal((await model.classify(input)).label, result.label);
  assert.ok(!asked.some((url) => url.includes("tokenizer_config"))); // only what checksums.json names
  await load(new URL(`${base}/words/`));
  await assert.rejects(load(`${base}/nothing`), /there is no config.json/);
  await assert.rejects(load(`${base}/secret`), /the server answered 403/);
  await assert.rejects(load("http://127.0.0.1:9/"), /cannot be read/);
});

// ---- The messages of a worker --------------------------------------------------------------------------------------

test("a worker", async (context) => {
  const workers = startWorkersHere(context);
  const model = await loadInWorker(filesOf("words"), false), direct = await modelOf("words");
  const text = CASES.words[1].input, seen = [];
  assert.deepEqual([model.task, model.config, model.labels], [direct.task, direct.config, direct.labels]);
  const streamed = await model.translate(text, {onToken: (...token) => seen.push(token)});
  assert.deepEqual(streamed, await direct.translate(text));
  assert.ok(seen.length > 0 && seen.every(([text, {piece}]) => text.endsWith(piece)));
  await assert.rejects(model.translate(5), DataError);
  await assert.rejects(model.generate("a"), ConfigError);
  await assert.rejects(model.translate("a", 5), ConfigError);
  await assert.rejects(model.translate("a", {onToken: 5}), ConfigError);
  await assert.rejects(model.translate("a", {seed() {}}), /cannot be sent to the worker/);
  await assert.rejects(model.translate(text, {onToken() {
    throw new RangeError("mine");
  }}), RangeError);
  const controller = new AbortController();
  const stopped = model.translate(text, {minLength: 30, strategy: "beam", signal: controller.signal});
  setTimeout(() => controller.abort(), 5);
  await assert.rejects(stopped, {name: "AbortError"});
  assert.deepEqual(await Promise.all([text, ""].map((each) => model.translate(each))),
    [await direct.translate(text), await direct.translate("")]);
  await assert.rejects(loadInWorker({}, false), RunError);
  const open = model.translate(text);
  model.close();
  await assert.rejects(open, /the model was closed. Load the model again/);
  await assert.rejects(model.translate(text), RunError);
  assert.ok(workers.every(({isOver}) => isOver));
});

test("each task in a worker", async (context) => {
  startWorkersHere(context);
  for (const run of Object.keys(CASES)) {
    const {method, options, result, ...given} = CASES[run].find(({result}) => result);
    const model = await loadInWorker(filesOf(run), false);
    COMPARE[method](await model[method](exampleOf(given), options), result, run);
    model.close();
  }
});

test("no worker: the model is loaded here", async (context) => {
  const files = filesOf("words"), text = CASES.words[1].input;
  const expected = await (await modelOf("words")).translate(text);
  startWorkersHere(context, (worker) => worker.onerror({preventDefault() {}}));
  assert.equal(await loadInWorker(files, false), null);
  assert.deepEqual(await (await load(files)).translate(text), expected);
  globalThis.Worker = class {
    constructor() {
      throw new Error("refused");
    }
  };
  assert.deepEqual(await (await load(files)).translate(text), expected);
});

/** Put a Worker into this process, which clones its messages and answers them here. */
function startWorkersHere(context, onStart = null) {
  const workers = [], later = (call) => setTimeout(call, 0);
  globalThis.Worker = class {
    constructor() {
      workers.push(this);
      const scope = {postMessage: (data) => {
        const message = {data: structuredClone(data)};
        later(() => this.isOver || this.onmessage?.(message));
      }};
      this.scope = scope;
      later(() => (onStart ? onStart(this) : answerCalls(scope)));
    }

    postMessage(data) {
      const message = {data: structuredClone(data)};
      later(() => this.isOver || this.scope.onmessage(message));
    }

    terminate() {
      this.isOver = true;
    }
  };
  useScript("answerCalls()");
  context.after(() => delete globalThis.Worker);
  return workers;
}
