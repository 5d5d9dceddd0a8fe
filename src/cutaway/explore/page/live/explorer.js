// The explorer's answers, computed in the browser (explore/explorer.py): the same requests, the same results.

import {BeamTree} from "../engine/beam_tree.js";
import {buildModel} from "../engine/build.js";
import {DataError, RunError} from "../engine/errors.js";
import {TextGenerator} from "../engine/generation.js";
import {Run} from "../engine/run.js";
import {toBytes} from "../engine/run_files.js";
import {Slices} from "../engine/slices.js";
import {Tensor} from "../engine/tensor.js";
import {readWeights} from "../engine/weights.js";
import {ablate, measureAblations} from "./ablation.js";
import {outputSearch, prepareExample} from "./example.js";
import {findMargin} from "./margin.js";
import {describePart} from "./parts.js";
import {patchAll, patchedOutput, prepareOther} from "./patching.js";
import {traceAttention, traceExample} from "./trace.js";
import {round} from "./values.js";
import {explain} from "./why.js";

const CHARACTERS = 20_000; // longest text

export class Explorer {
  #runs = new Map(); // number -> {run, info, parts, gold, snapshots}
  #last = Promise.resolve(); // the request before this one

  /**
   * Load a run.
   * @param {number} number
   * @param {object} description what Python wrote: files (see run_files.js), info, parts, gold
   */
  async addRun({number, description: {files, ...others}}) {
    this.#runs.set(number, {run: await Run.load(files), snapshots: new Map(), ...others});
  }

  /** Add the weights of an earlier step of a run: bytes, or a text in base64. */
  async addSnapshot({number, step, weights}) {
    const {run, snapshots} = this.#run({run: number});
    const where = `step_${step}.safetensors`, bytes = toBytes(weights, where);
    const model = buildModel(run.config.model, await readWeights(bytes, {where, mustBeSealed: true}), where);
    snapshots.set(step, Object.assign(Object.create(run), {model}));
  }

  /** The trace of one text, with reference and gold alignment where they are known. */
  trace(request, {signal} = {}) {
    const started = performance.now();
    return this.#inTurn(request, signal, async (run, {info, gold}) => {
      const found = traceExample(run, await this.#prepare(run, request, signal));
      const known = run.task === "image_classification" ? {text: request.text, reference: label(info, request.text)}
        : request.text && goldOf(gold, request.text, found.output);
      return {...found, ...known, milliseconds: round(performance.now() - started, 1)};
    });
  }

  /** The beam search tree. */
  beam({beam_size: beamSize, length_penalty: lengthPenalty, ...request}, {signal} = {}) {
    return this.#inTurn(request, signal, (run) => beamTree(run, request, beamSize, lengthPenalty, signal));
  }

  /** One part of the model, with its values for this text. */
  part({name, ...request}, {signal} = {}) {
    return this.#inTurn(request, signal, async (run, {parts}) =>
      describePart(run.model, await this.#prepare(run, request, signal), name, parts));
  }

  /** The log-probability of the same output with each head and sub-layer switched off alone. */
  ablations(request, {signal} = {}) {
    return this.#inTurn(request, signal, async (run, {info}) => {
      const example = await this.#prepare(run, request, signal);
      const before = example.totalLogP(example.logits(run.model));
      const found = await measureAblations(run.model, info.switches, example, new Slices(signal));
      const rows = found.filter(({id}) => !request.off?.includes(id));
      return {output: example.output, log_p: before, rows};
    });
  }

  /** The causes of one prediction, without the methods that need gradients. Token and rival are ids. */
  why({step, token, rival, methods, ...request}, {signal} = {}) {
    return this.#inTurn(request, signal, async (run, {info}) => {
      const example = await this.#prepare(run, request, signal);
      const margin = findMargin(example, example.logits(run.model), {step, token, rival});
      return explain(run, example, margin, {methods, targets: info.switches, slices: new Slices(signal)});
    });
  }

  /** How much of the difference to another text each value carries. */
  patching({other, step, token, rival, ...request}, {signal} = {}) {
    return this.#inTurn(request, signal, async (run, {info}) => {
      const example = await this.#prepare(run, request, signal);
      const otherExample = await prepareOther(run, example, this.#content(run, {...request, text: other}));
      const margin = findMargin(example, example.logits(run.model), {step, token, rival});
      return patchAll(run.model, example, otherExample, margin, {targets: info.switches, slices: new Slices(signal)});
    });
  }

  /** The output of the model itself with one value of another text. */
  patched({other, place, position = null, step = null, ...request}, {signal} = {}) {
    return this.#inTurn(request, signal, async (run, {info}) => {
      const content = this.#content(run, request), example = await this.#prepare(run, request, signal);
      const otherExample = await prepareOther(run, example, this.#content(run, {...request, text: other}));
      const both = [example, otherExample].map((each) => (step === null ? each : each.until(step)));
      const given = {place, position, targets: info.switches};
      return {output: await patchedOutput(run, content, ...both, given, signal)};
    });
  }

  /** The same text at each snapshot of the training. The first line has the tokens and the steps. */
  async snapshots(request, {signal, onToken: onLine}) {
    const steps = [...this.#run(request).info.snapshots, null];
    const at = (snapshot, work) => this.#inTurn({...request, snapshot}, signal, async (run) =>
      work(run, await this.#prepare(run, request, signal)));
    const final = await at(null, (run, example) => example);
    onLine({source: final.source, target_in: final.target_in, target_out: final.target_out, steps});
    let line = null;
    for (const step of steps) {
      line = await at(step, (run, own) => {
        const {attention, kept, logP} = traceAttention(run.model, final);
        const p = logP.map((each) => round(Math.exp(each), 6));
        const total = logP.slice(final.prompt).reduce((sum, each) => sum + each, 0);
        return {step, output: own.output, log_p: total, p, attention, kept};
      });
      onLine(line);
    }
    return line;
  }

  #run({run: number = 0}) {
    if (this.#runs.has(number)) return this.#runs.get(number);
    throw new DataError(`there is no run ${number}. Choose one from 0 to ${this.#runs.size - 1}.`);
  }

  /** Call work(run, description) after earlier requests, because changes of activations must not overlap. */
  #inTurn(request, signal, work) {
    const mine = this.#last.then(async () => {
      signal?.throwIfAborted();
      const described = this.#run(request), {snapshot = null} = request;
      const run = snapshot === null ? described.run : described.snapshots.get(snapshot);
      if (!run) throw new RunError(`this page has no snapshot of step ${snapshot}.`);
      const edit = ablate(run.model, described.info.switches, request.off ?? []);
      try {
        return await work(run, described);
      } finally {
        edit.stop();
      }
    });
    this.#last = mine.catch(() => {});
    return mine;
  }

  #prepare(run, request, signal) {
    return prepareExample(run, this.#content(run, request), request, signal);
  }

  /** The model's input: the text, or the image example with that number. */
  #content(run, {text, ...request}) {
    if (text.length > CHARACTERS) {
      throw new DataError(`the text has ${text.length.toLocaleString("en")} characters; the explorer takes at most `
        + `${CHARACTERS.toLocaleString("en")}. Shorten it.`);
    }
    return run.task === "image_classification" ? pixels(run, this.#run(request).info, text) : text;
  }
}

/** The example image with this number. */
function image({examples}, number) {
  const found = examples.find((example) => String(example.number) === number);
  if (found) return found;
  throw new DataError(`there is no image '${number.slice(0, 20)}'. Choose one from 0 to ${examples.length - 1}.`);
}

const label = (info, number) => image(info, number).label;

/** [1,C,H,W] */
function pixels(run, info, number) {
  const {channels, imageSize} = run.settings;
  return new Tensor([1, channels, imageSize, imageSize], Float32Array.from(image(info, number).pixels.flat(Infinity)));
}

/** What is known of a source text. The alignment is known if the translation is correct. */
function goldOf(gold, text, output) {
  const pair = gold[text.trim()];
  if (!pair) return {reference: null, gold: null, syntax: null, words: null};
  if (output.trim() === pair.reference) return pair;
  return {...pair, gold: null, words: {...pair.words, target: null}};
}

/** Run beam search on one text. -> its tree and the hypotheses `found`, best first (explore/beam_tree.py) */
async function beamTree(run, {text, prefix}, beamSize, lengthPenalty, signal) {
  const {tokenizer, task} = run, forced = prefix ?? [];
  if (task !== "translation" && task !== "language_model") {
    throw new DataError(`a model for ${task.replaceAll("_", " ")} generates no text, so it has no beam search.`);
  }
  const isText = task === "language_model", encoded = tokenizer.encode(text);
  const row = isText ? tokenizer.addBos(encoded) : [...encoded, tokenizer.eos];
  // without the coverage penalty, because it would change the ranking by something that the nodes do not show
  const decode = {strategy: "beam", beamSize, lengthPenalty, coveragePenalty: 0};
  const search = outputSearch(run, text, row, forced, {signal, decode});
  const [root] = tokenizer.tokens([[...(isText ? row : [tokenizer.bos]), ...forced].at(-1)]);
  let tree;
  const names = (ids) => tokenizer.tokens(ids);
  await search.run({
    onStart: () => { tree = new BeamTree(root, lengthPenalty, search.limit, names, tokenizer.eos); },
    onStep: (step) => tree.watch(step),
  });
  const writer = isText ? new TextGenerator(run, text) : null;
  const textOf = (ids) => (writer ? writer.outputText(ids) : tokenizer.decode(ids));
  const found = tree.hypotheses().map((one) => ({...one, text: textOf([...forced, ...tree.tokensTo(one.node)])}));
  return {beam_size: beamSize, length_penalty: lengthPenalty, steps: tree.depth, nodes: tree.nodes, found};
}
