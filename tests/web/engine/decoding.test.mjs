// Searches find the same texts, in the same steps, as those of Python on random tables of logits.

import assert from "node:assert/strict";
import {test} from "node:test";

import {Coverage} from "../../../src/cutaway/explore/page/engine/alignment.js";
import {BeamTree} from "../../../src/cutaway/explore/page/engine/beam_tree.js";
import {ChoiceTrie, decodeForChoices} from "../../../src/cutaway/explore/page/engine/choices.js";
import {ConfigError, DataError} from "../../../src/cutaway/explore/page/engine/errors.js";
import {buildFilters} from "../../../src/cutaway/explore/page/engine/filters.js";
import {RandomGenerator} from "../../../src/cutaway/explore/page/engine/random.js";
import {DECODE_DEFAULTS, readDecode, Search, Start} from "../../../src/cutaway/explore/page/engine/request.js";
import {greedy, sample} from "../../../src/cutaway/explore/page/engine/sampling.js";
import {runSearch} from "../../../src/cutaway/explore/page/engine/search.js";
import {softmax64} from "../../../src/cutaway/explore/page/engine/topk.js";
import {dump, readJson} from "./fixtures.mjs";

const BOS = 0, EOS = 1, TOLERANCE = 1e-9;
const FOLDER = dump("dump_decoding.py"), read = (name) => readJson(FOLDER, name);
const {table: TABLE, cases: CASES} = read("searches.json");
const toNumber = (x) => Number(String(x).replace("nan", "NaN").replace("inf", "Infinity")); // JSON has no infinity

// V8 rounds log(3) in the wrong direction, unlike C. Where probabilities are equal, such a difference would decide.
const log = Math.log;
Math.log = (x) => (x === 3 ? 1.0986122886681098 : log(x));

/** A model whose logits depend on a state, as in dump_decoding.py. */
class TableStepper {
  constructor(table, start) {
    this.logits = table.logits?.map((row) => row.map(toNumber)) ?? scaledLogits(table);
    this.weights = table.weights ?? TABLE.weights;
    this.states = start.prompts.map((prompt, text) => prompt.slice(0, -1).reduce(this.nextState, text));
  }

  nextState = (state, token) => (7 * state + 3 * token + 1) % this.logits.length;

  step(tokens) {
    this.states = this.states.map((state, row) => this.nextState(state, tokens[row]));
    this.sourceWeights = this.states.map((state) => this.weights[state]);
    return this.states.map((state) => Object.freeze([...this.logits[state]])); // a search must not change them
  }

  keep(rows) {
    this.states = rows.map((row) => this.states[row]);
  }
}

function scaledLogits({vocab, scale, eos, broken}) {
  const scaled = (x, token) => scale * x + (token === EOS ? eos : 0);
  const logits = TABLE.logits.map((row) => row.slice(0, vocab).map(scaled));
  if (broken) logits[broken[0]][broken[1]] = toNumber(broken[2]);
  return logits;
}

function run(fixture, onStep = null) {
  const decode = readDecode(fixture.decode), calls = [], vocab = fixture.table.vocab ?? fixture.table.logits[0].length;
  const {stop_at_token: stopAt, stop_after: stopAfter, allowed_modulo: modulo} = fixture;
  const byModulo = (text, tokens) => (tokens.length === 2 ? null
    : [...Array(vocab).keys()].filter((token) => (token + text + tokens.reduce((a, b) => a + b, 0)) % modulo));
  const search = new Search({
    decode, limits: fixture.limits, numbers: fixture.numbers, bos: BOS, eos: EOS, nBest: fixture.n_best,
    prefixes: fixture.prefixes, seeds: fixture.seeds, withAlignment: fixture.with_alignment,
    allowed: fixture.choices ? new ChoiceTrie(fixture.choices, EOS).allowed : modulo ? byModulo : null,
    onToken: stopAt === null || decode.strategy === "beam" ? null : (text, token) => token !== stopAt,
    onStep: decode.strategy === "beam" ? onStep : null,
    shouldContinue: stopAfter && ((text) => (calls[text] = (calls[text] ?? 0) + 1) < stopAfter[text]),
  });
  const start = new Start(fixture.prompts, fixture.prefixes, fixture.is_history);
  const coverage = fixture.lengths && Coverage.of(search, fixture.lengths);
  return runSearch(new TableStepper(fixture.table, start), start, search, coverage);
}

/** Are the numbers the same except for rounding? The lists can be nested. */
function assertClose(found, expected, context) {
  const a = Array.from(found).flat(Infinity).map(toNumber), b = Array.from(expected).flat(Infinity).map(toNumber);
  assert.equal(a.length, b.length, context);
  a.forEach((x, i) => {
    const isSame = Object.is(x, b[i]) || Math.abs(x - b[i]) <= TOLERANCE * Math.max(1, Math.abs(b[i]));
    assert.ok(isSame, `${context}: ${x} is not ${b[i]}`);
  });
}

function compare(fixture, context) {
  const steps = [], texts = run(fixture, (step) => steps.push(step));
  assert.equal(texts.length, fixture.texts.length, context);
  fixture.texts.forEach((expected, text) => {
    assert.deepEqual(texts[text].map(({tokens}) => tokens), expected.map(({tokens}) => tokens), context);
    expected.forEach((hypothesis, i) => {
      const found = texts[text][i];
      assert.equal(found.finished, hypothesis.finished, context);
      assertClose([found.logProbability, found.score, found.tokenLogProbs],
        [hypothesis.log_probability, hypothesis.score, hypothesis.token_log_probs], context);
      assert.equal(found.alignment === null, hypothesis.alignment === null, context);
      assertClose(found.alignment ?? [], hypothesis.alignment ?? [], context);
    });
  });
  assert.equal(steps.length, fixture.steps.length, context);
  fixture.steps.forEach((expected, i) => {
    const {total_BKV, ended_BK, found_BK, logP_BK, rows_N, tokens_N} = steps[i];
    // which extension fills a place is arbitrary if there are fewer than k
    const isReal = logP_BK.flat().map((logP) => logP > -Infinity), real = (x_N) => x_N.filter((_, n) => isReal[n]);
    assert.deepEqual([real(rows_N), real(tokens_N)], [real(expected.rows), real(expected.tokens)], context);
    assert.deepEqual(found_BK, expected.found, context);
    assertClose([total_BKV.map((rows) => rows.map((row) => [...row])), ended_BK, logP_BK],
      [expected.totals, expected.ended, expected.log_p], context);
  });
}

const cases = CASES.map((fixture, index) => ({...fixture, index}));
for (const strategy of ["greedy", "sample", "beam"]) {
  for (const ties of [false, true]) {
    const some = cases.filter((fixture) => fixture.decode.strategy === strategy && fixture.ties === ties);
    test(`${strategy}${ties ? " with equal probabilities" : ""}: ${some.length} searches`, () => {
      for (const fixture of some) {
        const context = `case ${fixture.index}`;
        if (fixture.error) assert.throws(() => run(fixture), new DataError(fixture.error), context);
        else compare(fixture, context);
      }
    });
  }
}

/** Without numbers. Which prefix fills a place of the beam is arbitrary if there are fewer than k. */
function placeOf({p, log_p, score, penalty, parent, token, token_id, ...rest}) {
  return toNumber(log_p) > -Infinity ? {...rest, parent, token, token_id} : rest;
}

test("trees of beam searches", () => {
  const trees = read("trees.json");
  assert.ok(trees.length > 200);
  for (const fixture of trees) {
    const names = (ids) => ids.map((id) => `t${id}`);
    const tree = new BeamTree("root", fixture.decode.length_penalty, fixture.limits[0], names, EOS);
    run(fixture, tree.watch);
    assert.deepEqual(tree.nodes.map(placeOf), fixture.nodes.map(placeOf));
    assert.deepEqual(tree.hypotheses().map(placeOf), fixture.found.map(placeOf));
    const numbers = (list) => list.map(({log_p, score, penalty = 0}) => [log_p, score, penalty]);
    assertClose(numbers(tree.nodes), numbers(fixture.nodes), "nodes");
    assertClose(numbers(tree.hypotheses()), numbers(fixture.found), "found");
    tree.nodes.forEach(({p, log_p: logP}, i) => {
      assert.ok(logP === -Infinity || Math.abs(p - fixture.nodes[i].p) < 1.1e-6);
    });
    assert.deepEqual(tree.hypotheses().map(({node}) => tree.tokensTo(node)), fixture.tokens);
  }
});

test("random numbers are those of NumPy", () => {
  for (const {entropy, numbers} of read("random.json")) {
    const generator = new RandomGenerator(...entropy);
    assert.deepEqual(numbers.map(() => generator.random()), numbers);
  }
});

test("sampled tokens have the distribution of the filtered logits: a chi-squared test", () => {
  const logits = [2, 1.5, 1, 0.5, 0, -0.5, -1, -4, -4.5, 3], N = 20_000;
  const critical = {3: 16.27, 4: 18.47, 5: 20.52, 6: 22.46, 9: 27.88}; // degrees of freedom -> χ² at p = 0.001
  for (const settings of [
    {temperature: 1, topP: 1}, {temperature: 2, topP: 1}, {temperature: 1, topP: 1, topK: 4},
    {temperature: 1, topP: 0.9}, {temperature: 0.5, topP: 1, minP: 0.01},
  ]) {
    const decode = readDecode({...settings, strategy: "sample"}), filtered = Float64Array.from(logits);
    for (const apply of buildFilters(decode)) apply(filtered);
    const p = softmax64(filtered), counts = p.map(() => 0);
    const generators = Array.from({length: N}, (_, number) => new RandomGenerator(0, number));
    const stepper = {step: (tokens) => tokens.map(() => logits), keep() {}};
    const texts = sample(stepper, Array(N).fill(BOS), Array(N).fill(1), 10, buildFilters(decode), generators);
    for (const {tokens: [token]} of texts) counts[token] += 1;
    const possible = [...p.keys()].filter((token) => p[token] > 0);
    assert.equal(possible.reduce((sum, token) => sum + counts[token], 0), N); // no others
    const chi = possible.reduce((sum, token) => sum + (counts[token] - N * p[token]) ** 2 / (N * p[token]), 0);
    assert.ok(chi < critical[possible.length - 1], `${JSON.stringify(settings)}: χ² = ${chi}, ${possible.length} tokens`);
  }
});

test("the ends of the distribution", () => {
  const stepper = {step: () => [[-Infinity, 0, 0, -Infinity]], keep() {}};
  const draw = (u) => sample(stepper, [BOS], [1], 9, [], [{random: () => u}])[0].tokens[0];
  assert.deepEqual([0, 0.5, 1].map(draw), [1, 2, 2]); // rounding can make u · total equal to the total
});

test("onToken gets each new token, but not </s>", () => {
  for (const fixture of CASES.filter(({decode, error}) => decode.strategy === "greedy" && !error).slice(0, 100)) {
    const start = new Start(fixture.prompts, fixture.prefixes, fixture.is_history), found = start.prompts.map(() => []);
    const onToken = (text, token, logP) => found[text].push([token, logP]);
    const texts = greedy(new TableStepper(fixture.table, start), start.first, fixture.limits, EOS,
      {forced: start.forced, onToken});
    const expected = texts.map(({tokens, tokenLogProbs}) => tokens.map((token, i) => [token, tokenLogProbs[i]]));
    assert.deepEqual(found, expected);
  }
});

test("the same seed gives the same text, alone and in a batch", () => {
  const table = CASES.find((fixture) => !fixture.ties && !fixture.table.broken).table;
  const textOf = (numbers, seed) => {
    const decode = readDecode({strategy: "sample", seed}), limits = numbers.map(() => 9);
    const start = new Start(numbers.map(() => [BOS]), [], false), stepper = new TableStepper(table, start);
    stepper.states = stepper.states.map(() => 0);
    const found = runSearch(stepper, start, new Search({decode, limits, numbers, bos: BOS, eos: 29}));
    return found.map(([text]) => text.tokens.join());
  };
  assert.deepEqual(textOf([5, 6, 7], 0).slice(1), textOf([6, 7], 0));
  assert.notDeepEqual(textOf([5], 0), textOf([5], 1));
  assert.notDeepEqual(textOf([5], 0), textOf([6], 0));
});

test("the settings of [decode] and their limits", () => {
  assert.deepEqual(DECODE_DEFAULTS, read("decode.json"));
  assert.equal(readDecode({}, "translation").strategy, "beam");
  assert.equal(readDecode({}, "language_model").strategy, "sample");
  assert.equal(readDecode({beam_size: 7}).beamSize, 7);
  assert.equal(readDecode({topP: 0.5}).topP, 0.5);
  for (const [given, message] of [
    [{beam: 3}, /decode.beam = 3 is unknown. Known: strategy, beam_size, /],
    [{beam_size: 0}, /decode.beam_size = 0 must be between 1 and 1,000/],
    [{beam_size: 1.5}, /has the wrong type/],
    [{temperature: 0}, /must be positive; for no randomness use greedy/],
    [{top_p: 0}, /must be above 0 and at most 1/],
    [{min_p: 2}, /must be between 0 and 1/],
    [{suppress: [-1]}, /must be ids of tokens, counted from 0/],
    [{strategy: "best"}, /must be auto, greedy, beam or sample/],
    [{length_penalty: NaN}, /must not be negative or infinite/],
  ]) {
    assert.throws(() => readDecode(given), (error) => error instanceof ConfigError && message.test(error.message));
  }
});

test("settings of a search that contradict each other", () => {
  const search = (settings, rest = {}) => new Search({decode: readDecode(settings), limits: [], numbers: [], ...rest});
  for (const [one, message] of [
    [search({}), /depends on the task/],
    [search({strategy: "beam"}, {onToken: () => true}), /cannot stream/],
    [search({strategy: "beam", coverage_penalty: 0.2}), /decode.coverage_penalty = 0.2 needs a source text/],
    [search({strategy: "greedy"}, {withAlignment: true}), /an alignment needs a source text/],
  ]) assert.throws(() => one.check(false), message);
  search({strategy: "beam", coverage_penalty: 0.2}, {withAlignment: true}).check(true);
});

test("choices", () => {
  assert.throws(() => new ChoiceTrie([], EOS), /the list of choices is empty/);
  assert.equal(new ChoiceTrie([[2], [2, 3, 4]], EOS).longest, 4);
  const decode = readDecode({strategy: "sample"});
  assert.equal(decodeForChoices(decode, null), decode);
  const {strategy, beamSize, lengthPenalty} = decodeForChoices(decode, ["ja", "nein"]);
  assert.deepEqual([strategy, beamSize, lengthPenalty], ["beam", 2, 0]);
});
