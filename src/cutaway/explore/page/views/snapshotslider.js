// A bar to go through a list of moments: drag it, use the arrow keys, or let it play.
import {fill, h} from "../dom.js";

const PACE = 700; // milliseconds a moment while playing
const CALM = 1500; // for those who asked for less motion

/** {element, show(lines, at, missing), clear(), key(event)}; choose(line) goes to one, nameOf(line) names it. */
export function scrubBar(choose, nameOf) {
  const range = h("input", {type: "range", min: 0, max: 0, step: 1, aria: {label: "Moment of the training"},
                            oninput: () => to(Number(range.value))});
  const name = h("output", {class: "moment"});
  const flip = () => (timer ? stop() : start());
  const play = h("button", {type: "button", class: "button play", onclick: flip}, "▶ play");
  let lines = [], at = 0, timer = null;
  const to = (index) => lines[index] && choose(lines[index]);
  const stop = () => {
    clearInterval(timer);
    timer = null;
    fill(play, "▶ play");
  };
  const start = () => {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (at === lines.length - 1) to(0);
    fill(play, "❚❚ pause");
    timer = setInterval(next, calm ? CALM : PACE);
  };
  const next = () => {
    const seen = play.offsetParent !== null; // no film goes on behind another view
    if (seen && at < lines.length - 1) to(at + 1);
    else stop();
  };
  const show = (given, index, missing) => {
    [lines, at] = [given, index];
    [range.max, range.value] = [lines.length - 1, index];
    range.setAttribute("aria-valuetext", nameOf(lines[index]));
    play.disabled = lines.length < 2;
    fill(name, nameOf(lines[index]), h("span", {class: "dim small"},
      ` · ${index + 1} of ${lines.length}${missing > 0 ? `, ${missing} to come` : ""}`));
  };
  const clear = () => {
    stop();
    lines = [];
    play.disabled = true;
    fill(name);
  };
  const key = (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step || !lines[at + step]) return;
    event.preventDefault();
    to(at + step);
  };
  return {element: h("div", {class: "card scrub"}, play, range, name), show, clear, key};
}
