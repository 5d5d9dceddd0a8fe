// argmax, top k and softmax of one row [V]. Of equal numbers, the one with the lower index comes first.

/** The index of the largest number. NaN counts as the largest, as in NumPy. */
export function argmax(x_V) {
  let best = 0;
  for (let i = 0; i < x_V.length; i++) {
    if (Number.isNaN(x_V[i])) return i;
    if (x_V[i] > x_V[best]) best = i;
  }
  return best;
}

/** The indices of the k largest numbers, largest first. */
export function topk(x_V, k) {
  const best = [];
  for (let i = 0; i < x_V.length; i++) {
    if (best.length === k && !(x_V[i] > x_V[best[k - 1]])) continue;
    if (best.length === k) best.pop();
    let place = best.length;
    while (place > 0 && x_V[i] > x_V[best[place - 1]]) place -= 1;
    best.splice(place, 0, i);
  }
  return best;
}

/** log softmax(x), computed without overflow. NaN everywhere if a number is NaN or ∞, or if all are -∞. */
export function logSoftmax(x_V) {
  const max = maximum(x_V), y_V = Float64Array.from(x_V);
  let sum = 0;
  for (let i = 0; i < y_V.length; i++) sum += Math.exp(y_V[i] -= max);
  const logSum = Math.log(sum);
  for (let i = 0; i < y_V.length; i++) y_V[i] -= logSum;
  return y_V;
}

/** softmax(x) = exp(x) / Σ exp(x), in 64 bits */
export function softmax64(x_V) {
  const max = maximum(x_V), y_V = new Float64Array(x_V.length);
  let sum = 0;
  for (let i = 0; i < y_V.length; i++) sum += y_V[i] = Math.exp(x_V[i] - max);
  for (let i = 0; i < y_V.length; i++) y_V[i] /= sum;
  return y_V;
}

export function maximum(x_V) {
  let max = -Infinity;
  for (let i = 0; i < x_V.length; i++) if (x_V[i] > max) max = x_V[i];
  return max;
}
