// The input, coloured by what each token adds to the margin, with a choice of methods.
import {fill, h, percent} from "../dom.js";
import {segmented} from "../controls.js";
import {inNounsOf} from "../nouns.js";
import {signedNats} from "./outputs.js";
import {errorLine, waitingLine} from "./requests.js";
import {tintedImage, tintedTokens} from "./tinted.js";

// What each method measures. `isShare`: how much the model looks there, without a sign.
const METHODS = {
  occlusion: {label: "occlusion",
    means: "How far the margin falls if the model reads this token as an empty position."},
  integrated_gradients: {label: "integrated gradients", needsGradients: true,
    means: "The gradient, added up on the way from an empty input to this one. The numbers should add up to the change "
      + "of the margin."},
  gradient_x_input: {label: "gradient × input", needsGradients: true,
    means: "What occlusion would be if the model were linear. It takes one backward pass, and errs where the model is "
      + "not linear."},
  attention: {label: "attention", isShare: true,
    means: "The mean attention weights of the last stack. It says where the model looks, not for what."},
  rollout: {label: "rollout", isShare: true,
    means: "Attention multiplied through all layers. It says where information can come from, not for what."},
};
const SLOW = "integrated_gradients"; // is requested only when it is chosen
const LARGE_GAP = 0.01; // nats; integrated gradients that miss their sum by more are wrong

/** The methods that every answer has. */
export function quickMethods(source) {
  return Object.keys(METHODS).filter((name) => name !== SLOW && (source.hasGradients || !METHODS[name].needsGradients));
}

/** {element, show(answer, trace)}; ask(methods): the answer with these methods too */
export function inputSection(context, ask) {
  const place = h("div", {class: "stack"}), means = h("p", {class: "dim small"});
  const options = Object.entries(METHODS)
    .filter(([, {needsGradients}]) => context.source.hasGradients || !needsGradients)
    .map(([value, {label, means: title}]) => ({value, label, title}));
  const method = () => options.find(({value}) => value === context.state.read().why_method)?.value ?? "occlusion";
  const choice = segmented({label: "method", options, value: method(),
    onchange: (value) => context.state.set({why_method: value === "occlusion" ? null : value}, {replace: true})});
  const missing = context.source.hasGradients ? null : h("p", {class: "dim small"},
    "Two more methods need gradients, which this page cannot compute. ",
    h("code", {}, "cutaway explore RUN"), " has them.");
  const element = h("section", {class: "card"}, h("h3", {}, "Which part of the input?"),
    h("div", {class: "row"}, choice.element), means, place, missing);
  let shown = null;
  const show = async (answer, trace) => {
    const name = method(), wanted = [answer, name];
    choice.set(name);
    if (shown?.every((each, i) => each === wanted[i])) return;
    shown = wanted;
    let found = answer.attributions.find((each) => each.method === name);
    const text = inNounsOf(context.run(), METHODS[name].means);
    fill(means, text);
    if (!found) {
      fill(place, waitingLine("Adding up the gradients …"));
      try {
        found = (await ask([name])).attributions.find((each) => each.method === name);
      } catch (error) {
        if (shown === wanted) fill(place, errorLine(error));
        return;
      }
      if (shown !== wanted) return;
    }
    const {gap} = found, isWrong = gap > LARGE_GAP;
    if (gap !== null) fill(means, text, ` Here they miss it by ${isWrong ? gap.toFixed(2) : "less than 0.01"} nats.`);
    fill(place, isWrong && h("p", {class: "note"}, "The numbers do not add up here, so do not trust them."),
      coloured(found, answer, trace));
  };
  return {element, show};
}

function coloured(found, answer, trace) {
  const {isShare} = METHODS[found.method], format = isShare ? percent : signedNats;
  const values = [...found.source, ...found.target], most = Math.max(isShare ? 0 : 0.1, ...values.map(Math.abs));
  const {image} = trace;
  if (image) return tintedImage({image, tokens: answer.source, values, most, format, label: "Patches"});
  const sides = [["Input", answer.source, found.source], ["Output so far", answer.target, found.target]];
  const both = sides.every(([, tokens]) => tokens.length);
  return sides.filter(([, tokens]) => tokens.length).map(([label, tokens, numbers]) => h("div", {},
    both && h("h4", {}, label), tintedTokens({tokens, values: numbers, most, format, label})));
}
