// What is explained: by how much the model prefers one token to another (explore/causes/margin.py).
//
//     margin = {step, token, rival}      at prediction `step`: logit(token) - logit(rival), in nats

import {DataError} from "../engine/errors.js";
import {logSoftmax, topk} from "../engine/topk.js";

/** The margin of these logits [N][V]. */
export function marginOf({step, token, rival}, logits_NV) {
  return logits_NV[step][token] - logits_NV[step][rival];
}

/** The probabilities of token and rival. */
export function probabilities({step, token, rival}, logits_NV) {
  const logP_V = logSoftmax(logits_NV[step]);
  return [Math.exp(logP_V[token]), Math.exp(logP_V[rival])];
}

/**
 * The margin of an output token over its rival. Both are ids.
 *
 * Without a step: the least certain answer. Without a token: the answer at this step. Without a rival: the most
 * probable other token.
 */
export function findMargin(example, logits_NV, {step = null, token = null, rival = null}) {
  const {answers, prompt} = example;
  if (!answers.length) throw new DataError("this model makes no predictions, so there is no token to explain.");
  if (step !== null && !(step >= prompt && step < answers.length)) {
    throw new DataError(`there is no step ${step}. The output has the steps ${prompt} to ${answers.length - 1}.`);
  }
  const at = step ?? (token === null ? closestStep(example, logits_NV) : stepOf(example, token));
  const chosen = token ?? answers[at], against = rival ?? topk(logits_NV[at], 2).find((id) => id !== chosen);
  for (const id of [chosen, against]) checkId(id, logits_NV[at].length);
  if (chosen === against) {
    throw new DataError(`token and rival are both '${example.names([chosen])[0]}'. Give two different tokens.`);
  }
  return {step: at, token: chosen, rival: against};
}

/** The step whose answer is least certain; not the end of a text, if there is another. */
function closestStep({answers, prompt, finished, task}, logits_NV) {
  const logP = logits_NV.map((logits_V, n) => logSoftmax(logits_V)[answers[n]]);
  const isEnd = finished && answers.length - prompt > 1 && ["translation", "language_model"].includes(task);
  const found = logP.slice(prompt, isEnd ? -1 : undefined);
  return prompt + found.indexOf(Math.min(...found));
}

function stepOf({answers, prompt, names}, token) {
  const found = answers.indexOf(token, prompt);
  if (found >= 0) return found;
  const output = names(answers.slice(prompt)).join(" ");
  throw new DataError(`token ${token} is not in the output: ${output}. For another token, give its step.`);
}

function checkId(id, count) {
  if (Number.isInteger(id) && id >= 0 && id < count) return;
  throw new DataError(`the model has no token with the id ${id}. Ids go from 0 to ${count - 1}.`);
}
