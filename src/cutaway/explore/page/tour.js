// The guided tour: a table of steps, and the panel that shows one of them.
//
// A step is an address: `tour`, the number of the step, and the state of the view that the step shows. So a step can be
// linked and reloaded, and Back works. The panel stands above the view and covers nothing.

import {fill, h, scrollBehaviour} from "./dom.js";
import {layersOf, matrixOf, nameOf} from "./matrix.js";
import {inNounsOf, nounsOf} from "./nouns.js";

const LENGTH = 8; // steps of a tour, at most

// What a step can have set, and the next one resets.
const RESET = {off: [], prefix: null, target: null, snapshot: null, part: null, kind: null, layer: null, head: null,
  look: null, all: null, token: null, at: null, position: null, temperature: null, top_k: null, top_p: null,
  step: null, why_step: null, why_token: null, why_rival: null};

// The steps for each task, in order. Steps whose view is missing are left out; the first eight remain.
const READERS = ["input", "map", "self", "prediction", "lens", "off", "why", "measure", "training"];
const TOURS = {
  translation: ["input", "map", "encoder", "cross", "candidates", "off", "why", "measure", "training", "lens"],
  language_model: ["input", "map", "causal", "candidates", "lens", "off", "why", "measure", "training"],
  masked_language_model: READERS, classification: READERS, tagging: READERS, image_classification: READERS,
  embedding: ["input", "map", "self", "heads", "training"],
};

const titled = (text) => ({run}) => inNounsOf(run, text);
const MORE_HEADS = "Click the small pictures to see other heads, and a cell to see how its number came about.";

/** The steps by name. view: its id; title(scene); text(scene): sentences; state(scene): what the step sets; undo: what
    the end of the tour sets; look: what gets a frame (tour.css); applies(scene).
    A scene: {run, info, trace, views, off}. */
const STEPS = {
  input: {
    view: "attention", isAtTop: true, look: "input",
    title: ({run}) => (run.task === "image_classification" ? "Choose an image" : "Give the model a text"),
    text: ({run, info}) => [inputText(run, info), OUTPUTS[run.task]],
  },
  map: {
    view: "map", look: "map", title: () => "The whole model",
    text: ({run}) => [
      inNounsOf(run, "Data flow upwards: one vector for each token enters at the bottom, and every layer adds to it."),
      "Press Play to watch the order of computation. Click a box, or pause there, to see its equation and numbers."],
  },
  encoder: {
    view: "attention", look: "matrix", title: () => "Self-attention: how tokens exchange information",
    state: ({trace}) => firstHead(trace, "encoder"), applies: ({trace}) => layersOf(trace, "encoder").length > 0,
    text: ({trace}) => ["In the encoder, each token takes information from all tokens of the input. Each row is one "
      + "token; a cell with a strong colour means that it takes much from the token of that column.",
      trace.syntax?.length ? "Orange frames mark the pairs of the syntax tree." : "", MORE_HEADS],
  },
  cross: {
    view: "attention", look: "matrix", title: () => "Cross-attention: from the output to the input",
    state: ({trace}) => ({kind: "cross", ...alignedHead(trace)}),
    applies: ({trace}) => layersOf(trace, "cross").length > 0,
    text: ({trace}) => ["Each row is one token of the output. Its cells with a strong colour are the tokens of the "
      + "input that the decoder takes information from to write it, often the words that it translates.",
      trace.gold?.length ? "Orange frames mark the true alignment." : "",
      "Click a cell to see how its number came about."],
  },
  causal: {
    view: "attention", look: "matrix", title: () => "Self-attention: how tokens exchange information",
    state: ({trace}) => firstHead(trace, "decoder"), applies: ({trace}) => layersOf(trace, "decoder").length > 0,
    text: () => ["Each row is one token, and its cells with a strong colour are the tokens that it takes information "
      + "from. A token attends only to itself and to earlier tokens, so the upper right half is empty.", MORE_HEADS],
  },
  self: {
    view: "attention", look: "matrix", title: titled("Self-attention: how tokens exchange information"),
    state: ({trace}) => firstHead(trace, "encoder"), applies: ({trace}) => layersOf(trace, "encoder").length > 0,
    text: ({run}) => [inNounsOf(run, "Each row is one token. A cell with a strong colour means that it takes much "
      + "information from the token of that column."), MORE_HEADS],
  },
  candidates: {
    view: "writing", look: "candidates", title: () => "Candidates and temperature",
    state: ({trace}) => ({position: leastCertain(trace), temperature: 1, top_k: 0, top_p: 1}),
    applies: ({trace}) => trace.steps.length > 0,
    text: ({info}) => ["At each step, every token of the vocabulary gets a probability. This is the step where the "
      + "model was least certain. Move the temperature: below 1 the probabilities become sharper, above 1 flatter.",
      info.recorded ? "" : "Click another candidate, and the model continues from there."],
  },
  prediction: {
    view: "writing", look: "candidates", title: () => "The answers that the model considered",
    state: ({trace}) => ({position: leastCertain(trace)}), applies: ({trace}) => trace.steps.length > 0,
    text: () => ["The model gives a probability to each possible answer, and the list shows the largest ones.",
      "If there are several predictions, this is the least certain one. Click another to compare."],
  },
  lens: {
    view: "lens", look: "panel", title: () => "The answer after each layer", applies: ({trace}) => Boolean(trace.lens),
    text: () => ["The logit lens reads an answer from each layer, as if the layers above did not exist.",
      "See from which layer on the final answer is the most probable one. Click a cell for its candidates."],
  },
  off: {
    view: "experiments", look: "switches", title: (scene) => `Switch a head off: ${headSwitch(scene).title}`,
    state: (scene) => ({off: [headSwitch(scene).id]}), undo: {off: []}, applies: (scene) => Boolean(headSwitch(scene)),
    text: () => ["This head now outputs zeros. Compare the output and its probability before and after.",
      "If little changes, the other parts make up for it on this input. Click other heads and sub-layers to switch "
      + "them off and on."],
  },
  why: {
    view: "why", look: "question", title: ({run}) => `Why this ${nounsOf(run.task).answer}?`,
    text: ({run}) => [inNounsOf(run, "Here the model's choice has a rival. You see which tokens of the input and which "
      + "parts of the model speak for the one, and which for the other."), "Choose another rival, and compare."],
  },
  measure: {
    view: "experiments", look: "measure", title: () => "Which parts matter for this output?",
    applies: ({views}) => !views.includes("why"),
    text: () => ["Click “Measure each part”. The model runs once without each head and once without each sub-layer.",
      "The stronger the colour of a part, the more the probability of this output depends on it."],
  },
  training: {
    view: "timelapse", look: "panel", title: () => "How the model learned this",
    applies: ({run}) => run.snapshots.length > 0,
    text: () => ["The same input with the weights at earlier steps of the training. Move the slider from the first "
      + "step to the last.", "Watch how the output, its probabilities and the attention change."],
  },
  heads: {
    view: "heads", look: "panel", title: () => "What the heads do",
    text: () => ["The table shows where each head attends, measured over many sentences and compared with chance.",
      "Click a head to see its weights for your own sentence."],
  },
};

const OUTPUTS = {
  translation: "Below it stands the translation as tokens, the words and pieces of words that the model writes one "
    + "after the other. The line under a token shows its probability; point at the token to read it.",
  language_model: "Below it stands the continuation as tokens, the words and pieces of words that the model writes one "
    + "after the other. The line under a token shows its probability; point at the token to read it.",
  masked_language_model: "The text is cut into tokens: words and pieces of words. Click a token to mask it, and the "
    + "model predicts it, with a probability.",
  classification: "Below it stand the most probable classes, each with its probability.",
  image_classification: "Below it stand the most probable classes, each with its probability.",
  tagging: "Below it stands a tag for each word. Point at a word to read the probability of its tag.",
  embedding: "The model answers with a vector. Texts with similar meanings should get similar vectors.",
};

function inputText({task}, {recorded}) {
  if (task === "image_classification") return "Click one of the images at the top.";
  if (recorded) return "Click one of the examples at the top.";
  const [what, key] = {translation: ["a sentence", "Enter"],
    language_model: ["the start of a text", "Ctrl + Enter"]}[task] ?? ["a text", "Enter"];
  return `Type ${what} in the box at the top and press ${key}, or click one of the examples.`;
}

function firstHead(trace, kind) {
  return {kind, layer: layersOf(trace, kind)[0], head: 0};
}

/** {layer, head}: where most pairs of the true alignment have the largest weight of their row; without a true alignment
    the mean of the last layer. */
function alignedHead(trace) {
  const layers = layersOf(trace, "cross");
  let best = {hits: 0, layer: layers.at(-1), head: "mean"};
  for (const layer of layers) {
    const matrix = matrixOf(trace, nameOf("cross", layer));
    for (let head = 0; head < matrix.heads; head++) {
      const hits = (trace.gold ?? []).filter(([q, k]) => q < matrix.rows
        && matrix.row(head, q).every((weight) => weight <= matrix.at(head, q, k))).length;
      if (hits > best.hits) best = {hits, layer, head};
    }
  }
  return {layer: best.layer, head: best.head};
}

/** The switch of the head that is off, of the one that shows the alignment, or of the first one in the last layer. */
function headSwitch({run, trace, off}) {
  const heads = run.switches.filter((each) => each.kind === "head"), isOff = heads.find(({id}) => id === off[0]);
  if (isOff || !heads.length) return isOff;
  const {layer, head} = layersOf(trace, "cross").length ? alignedHead(trace) : {};
  const last = heads.filter((each) => each.layer === heads.at(-1).layer && each.part === heads.at(-1).part);
  return heads.find((each) => each.part === "cross_attention" && each.layer === layer && each.head === head) ?? last[0];
}

/** The step with the least probable token, after the prompt. */
function leastCertain({steps, prompt = 0}) {
  const first = prompt < steps.length ? prompt : 0;
  return steps.reduce((best, step, i) => (i > first && step.p < steps[best].p ? i : best), first);
}

/** {element, button, show(trace, state)}. views(): ids of the views of this run; page: gets the name of what to mark
    (data-tour); tabBar: a step scrolls to it. */
export function tour({state, info, run, views, page, tabBar}) {
  const title = h("h2", {id: "tour-title"}), text = h("p", {});
  const count = h("span", {class: "count"}), astray = h("p", {class: "astray", hidden: true});
  const back = h("button", {type: "button", class: "button quiet", onclick: () => turn(-1)}, "Back");
  const next = h("button", {type: "button", class: "button", onclick: () => turn(1)}, "Next");
  const end = h("button", {type: "button", class: "button quiet", onclick: stop}, "End the tour");
  const dots = h("div", {class: "dots", role: "group", aria: {label: "Steps of the tour"}});
  const element = h("section", {class: "tour", hidden: true, aria: {labelledby: "tour-title"}},
    h("div", {class: "words", aria: {live: "polite"}}, count, title, text, astray),
    h("div", {class: "turns"}, dots, h("div", {class: "row"}, back, next, end)));
  const button = h("button", {type: "button", class: "button start", title: "A short tour of this page",
    onclick: () => begin()}, "Start here");
  let scene = null, steps = [], now = null; // now: the number of the step that is shown

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || now === null) return;
    event.preventDefault();
    stop();
  });

  function begin() {
    if (!scene) return page.querySelector("textarea")?.focus(); // no example: the text comes first
    goTo(1);
    next.focus({preventScroll: true});
  }

  function turn(by) {
    goTo(now + by);
    const shown = by > 0 ? [next, end] : [back, next];
    shown.find((each) => !each.hidden).focus({preventScroll: true});
  }

  function goTo(number) {
    state.set({...RESET, ...stateOf(number), tour: number});
  }

  function stateOf(number) {
    const step = steps[number - 1];
    return {view: step.view, ...step.state?.(scene)};
  }

  function stop() {
    const isInside = element.contains(document.activeElement) || document.activeElement === document.body;
    state.set({tour: null, ...steps[now - 1].undo});
    if (isInside) button.focus();
  }

  function show(trace, current) {
    scene = {run: run(), info, trace, views: views(), off: current.off};
    steps = stepsOf(scene);
    const isTour = Number.isInteger(current.tour) && current.tour > 0 && !info.views; // a report has no tour
    const wanted = isTour ? Math.min(current.tour, steps.length) : null;
    if (wanted && current.view === null) { // the address has only the number
      queueMicrotask(() => state.set({...stateOf(wanted), tour: wanted}, {replace: true}));
      return;
    }
    const moved = wanted !== now;
    now = wanted;
    element.hidden = wanted === null;
    page.dataset.tour = wanted === null ? "" : steps[wanted - 1].look;
    button.hidden = wanted !== null;
    if (wanted === null) return;
    draw(steps[wanted - 1], current);
    if (moved) scroll(steps[wanted - 1]);
  }

  function draw(step, current) {
    count.textContent = `Step ${now} of ${steps.length}`;
    const words = step.text(scene).filter(Boolean).join(" ");
    if (title.textContent !== step.title(scene)) title.textContent = step.title(scene);
    if (text.textContent !== words) text.textContent = words; // an unchanged text is not announced again
    back.hidden = now === 1;
    next.hidden = now === steps.length;
    const isAstray = current.view !== step.view;
    astray.hidden = !isAstray;
    page.dataset.tour = isAstray ? "" : step.look;
    fill(astray, h("button", {type: "button", class: "button link", onclick: () => goTo(now)}, "Show this step again"));
    if (dots.children.length !== steps.length) {
      fill(dots, steps.map((each, i) => h("button", {type: "button", class: "dot", onclick: () => goTo(i + 1)})));
    }
    [...dots.children].forEach((dot, i) => {
      dot.title = `${i + 1}. ${steps[i].title(scene)}`;
      dot.setAttribute("aria-label", dot.title);
      if (i + 1 === now) dot.setAttribute("aria-current", "step");
      else dot.removeAttribute("aria-current");
    });
  }

  function scroll({isAtTop}) {
    const top = isAtTop ? 0 : tabBar.getBoundingClientRect().top + scrollY - 4;
    requestAnimationFrame(() => scrollTo({top, behavior: scrollBehaviour()}));
  }

  return {element, button, show};
}

function stepsOf(scene) {
  const wanted = (TOURS[scene.run.task] ?? READERS).map((name) => STEPS[name]);
  return wanted.filter((step) => scene.views.includes(step.view) && (step.applies?.(scene) ?? true)).slice(0, LENGTH);
}
