// Small controls. Each function returns {element, set(value)}; `set` updates the display without calling a handler.

import {h, s, number} from "./dom.js";

let count = 0;

function uniqueId(prefix) {
  count += 1;
  return `${prefix}-${count}`;
}

/** A slider with its value next to it. */
export function slider({label, min, max, step = 1, value, format = number, oninput}) {
  const id = uniqueId("slider");
  const text = h("output", {class: "slider-value", for: id});
  const input = h("input", {id, type: "range", min, max, step,
    oninput: () => { show(); oninput?.(Number(input.value)); }});
  const show = () => {
    text.textContent = format(Number(input.value));
    input.setAttribute("aria-valuetext", text.textContent);
  };
  const set = (to) => { input.value = String(to); show(); };
  set(value);
  return {element: h("div", {class: "slider"}, h("label", {for: id}, label), input, text), set};
}

/** A choice among few options, side by side. It is a radio group, so the browser handles the arrow keys. */
export function segmented({label, options, value, onchange, hideLabel = false}) {
  const name = uniqueId("choice");
  const inputs = options.map((option) => h("input", {type: "radio", name, value: String(option.value),
                                                      onchange: () => onchange?.(option.value)}));
  const segments = options.map((option, i) => h("label", {class: "segment", title: option.title}, inputs[i],
    h("span", {}, h("bdi", {}, option.label ?? String(option.value)))));
  const set = (to) => inputs.forEach((input, i) => { input.checked = options[i].value === to; });
  set(value);
  const legend = h("span", {class: hideLabel ? "visually-hidden" : "control-label", id: `${name}-label`}, label);
  const group = h("div", {class: "segments", role: "radiogroup", aria: {labelledby: `${name}-label`}}, segments);
  return {element: h("div", {class: "control"}, legend, group), set};
}

/** A choice among many options. */
export function select({label, options, value, onchange, hideLabel = false}) {
  const id = uniqueId("select");
  const box = h("select", {id, onchange: () => onchange?.(options[box.selectedIndex].value)},
    options.map((option) => h("option", {title: option.title}, option.label ?? String(option.value))));
  const set = (to) => { box.selectedIndex = options.findIndex((option) => option.value === to); };
  set(value);
  const caption = h("label", {for: id, class: hideLabel ? "visually-hidden" : "control-label"}, label);
  return {element: h("div", {class: "control"}, caption, box), set};
}

/** A switch. */
export function toggle({label, checked = false, onchange, title}) {
  const input = h("input", {type: "checkbox", role: "switch", onchange: () => onchange?.(input.checked)});
  const set = (to) => { input.checked = Boolean(to); };
  set(checked);
  return {element: h("label", {class: "toggle", title}, input, h("span", {}, label)), set};
}

/** A list of tabs. The panel of a tab has the id `panel-VALUE`. Arrow keys, Home and End change the tab. */
export function tabs({label, options, value, onchange}) {
  const list = h("div", {class: "tabs", role: "tablist", aria: {label}});
  const buttons = options.map((option) => h("button", {type: "button", class: "tab", role: "tab", title: option.title,
    id: `tab-${option.value}`, aria: {controls: `panel-${option.value}`}, onclick: () => onchange?.(option.value)},
      option.label));
  list.append(...buttons);
  const set = (to) => buttons.forEach((button, i) => {
    const chosen = options[i].value === to;
    button.setAttribute("aria-selected", String(chosen));
    button.tabIndex = chosen ? 0 : -1;
    if (chosen) scrollTo(list, button);
  });
  list.addEventListener("keydown", (event) => {
    const at = buttons.indexOf(document.activeElement);
    const to = {ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: buttons.length - 1}[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    const next = (to + buttons.length) % buttons.length;
    buttons[next].focus();
    onchange?.(options[next].value);
  });
  set(value);
  return {element: list, set};
}

function scrollTo(list, button) {
  const [from, to] = [button.offsetLeft - list.offsetLeft, button.offsetLeft - list.offsetLeft + button.offsetWidth];
  if (from < list.scrollLeft || to > list.scrollLeft + list.clientWidth) list.scrollLeft = from - 24;
}

/** A probability as a bar. */
export function bar(p, {label = null} = {}) {
  const inner = h("span", {class: "bar-fill", style: {width: `${(100 * Math.max(0, Math.min(1, p))).toFixed(2)}%`}});
  return h("span", {class: "bar", role: label ? "img" : null, aria: label ? {label} : {hidden: true}}, inner);
}

const STYLES = ["first", "second dashed", "third dotted", "dim"];

/** A line chart as SVG. lines: [{name, points: [[x, y], ...], style}]; style: "first", "second", "third" or "dim", and
    "dashed" or "dotted". x, y: the label of the axis, or {label, min, max, format}. */
export function lineChart({lines, x = {}, y = {}, label, width = 640, height = 240}) {
  const [across, up] = [axis(x, lines, 0), axis(y, lines, 1)];
  const edge = {left: 56, right: 16, top: 12 + 18 * (lines.length > 1), bottom: 40};
  const [wide, high] = [width - edge.left - edge.right, height - edge.top - edge.bottom];
  const px = (value) => edge.left + wide * (value - across.min) / (across.max - across.min);
  const py = (value) => height - edge.bottom - high * (value - up.min) / (up.max - up.min);
  const svg = s("svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img",
    aria: {label: label ?? up.label ?? "Chart"}});
  for (const value of ticks(up)) {
    svg.append(s("line", {class: "grid", x1: edge.left, x2: width - edge.right, y1: py(value), y2: py(value)}),
      s("text", {x: edge.left - 8, y: py(value) + 4, "text-anchor": "end"}, up.format(value)));
  }
  for (const value of ticks(across)) {
    svg.append(s("text", {x: px(value), y: height - edge.bottom + 18, "text-anchor": "middle"}, across.format(value)));
  }
  if (across.label) svg.append(s("text", {x: (edge.left + width - edge.right) / 2, y: height - 4,
    "text-anchor": "middle"}, across.label));
  if (up.label) svg.append(s("text", {x: 12, y: height / 2, "text-anchor": "middle",
    transform: `rotate(-90 12 ${height / 2})`}, up.label));
  let legend = edge.left;
  lines.forEach((line, i) => {
    const style = line.style ?? STYLES[i % STYLES.length];
    const points = line.points.filter(([, value]) => Number.isFinite(value));
    svg.append(s("polyline", {class: `line ${style}`,
      points: points.map(([a, b]) => `${px(a).toFixed(1)},${py(b).toFixed(1)}`).join(" ")}));
    for (const [a, b] of points) {
      svg.append(s("circle",
        {class: `dot ${style}`, cx: px(a).toFixed(1), cy: py(b).toFixed(1), r: points.length > 60 ? 1.2 : 2.6},
        s("title", {}, `${line.name ? `${line.name}, ` : ""}${across.format(a)}: ${up.format(b)}`)));
    }
    if (lines.length < 2) return;
    svg.append(s("line", {class: `line ${style}`, x1: legend, x2: legend + 22, y1: 12, y2: 12}),
      s("text", {x: legend + 28, y: 16}, line.name));
    legend += 44 + 7 * String(line.name).length;
  });
  return svg;
}

function axis(setting, lines, which) {
  const options = typeof setting === "string" ? {label: setting} : setting ?? {};
  const values = lines.flatMap((line) => line.points.map((point) => point[which])).filter(Number.isFinite);
  const [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [0, 1];
  const [min, max] = [options.min ?? least, options.max ?? most];
  return {label: options.label, format: options.format ?? number, min, max: max > min ? max : min + 1};
}

// About five round numbers between min and max.
function ticks({min, max}) {
  const rough = (max - min) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((times) => times * power >= rough * 0.999);
  const first = Math.ceil(min / step - 1e-9);
  const count = Math.floor(max / step + 1e-9) - first + 1;
  return Array.from({length: Math.max(0, count)}, (_, i) => +((first + i) * step).toPrecision(12));
}
