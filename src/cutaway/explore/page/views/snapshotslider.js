// A slider over the snapshots of a training: drag it, use the arrow keys, or play it.
import {fill, h} from "../dom.js";

const INTERVAL = 700; // milliseconds per snapshot while playing
const SLOW_INTERVAL = 1500; // with reduced motion

/** {element, show(snapshots, at, missing), clear(), key(event)}; choose(snapshot) selects one, nameOf(snapshot) names
    it. `missing`: how many are not loaded yet. */
export function snapshotSlider(choose, nameOf) {
  const range = h("input", {type: "range", min: 0, max: 0, step: 1, aria: {label: "Snapshot of the training"},
                            oninput: () => select(Number(range.value))});
  const name = h("output", {class: "snapshot-name"});
  const togglePlay = () => (timer ? stop() : start());
  const play = h("button", {type: "button", class: "button play", onclick: togglePlay}, "▶ Play");
  let snapshots = [], at = 0, timer = null;
  const select = (index) => snapshots[index] && choose(snapshots[index]);
  const stop = () => {
    clearInterval(timer);
    timer = null;
    fill(play, "▶ Play");
  };
  const start = () => {
    const isSlow = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (at === snapshots.length - 1) select(0);
    fill(play, "❚❚ Pause");
    timer = setInterval(next, isSlow ? SLOW_INTERVAL : INTERVAL);
  };
  const next = () => {
    const isVisible = play.offsetParent !== null;
    if (isVisible && at < snapshots.length - 1) select(at + 1);
    else stop();
  };
  const show = (loaded, index, missing) => {
    [snapshots, at] = [loaded, index];
    [range.max, range.value] = [snapshots.length - 1, index];
    range.setAttribute("aria-valuetext", nameOf(snapshots[index]));
    play.disabled = snapshots.length < 2;
    fill(name, nameOf(snapshots[index]), h("span", {class: "dim small"},
      ` · ${index + 1} of ${snapshots.length}${missing > 0 ? `, loading ${missing} more` : ""}`));
  };
  const clear = () => {
    stop();
    snapshots = [];
    play.disabled = true;
    fill(name);
  };
  const key = (event) => {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!step || !snapshots[at + step]) return;
    event.preventDefault();
    select(at + step);
  };
  return {element: h("div", {class: "card snapshot-slider"}, play, range, name), show, clear, key};
}
