// Rows of bars to both sides of zero: a label, a bar, and its number.
//
//     embedding      |███▌            +0.49
//     head 2     ▐███|                −0.74
import {h} from "../dom.js";

/** rows: [{label, text, from, to, isTotal, title}]; a bar goes from `from` (default 0) to `to`. */
export function signedBars({rows, label}) {
  const ends = rows.flatMap(({from = 0, to}) => [from, to]);
  const [min, max] = [Math.min(0, ...ends), Math.max(0, ...ends)], width = max - min || 1;
  const place = (value) => `${(100 * (value - min) / width).toFixed(2)}%`;
  return h("div", {class: "signed-bars", role: "list", aria: {label}, style: {"--zero": place(0)}},
    rows.map(({label: name, text, from = 0, to, isTotal = false, title = null}) => {
      const size = `${(100 * Math.abs(to - from) / width).toFixed(2)}%`;
      return h("div", {class: `signed-row${isTotal ? " total" : ""}`, role: "listitem", title},
        h("span", {class: "signed-label"}, name),
        h("span", {class: "signed-track", aria: {hidden: "true"}},
          h("span", {class: `signed-bar ${to < from ? "against" : "for"}`,
                     style: {left: place(Math.min(from, to)), width: size}})),
        h("span", {class: "signed-number"}, text));
    }));
}
