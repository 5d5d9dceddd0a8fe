// The attention of one patch, drawn over the image. A click or the arrow keys choose the patch.
import {fill, h, percent} from "../dom.js";
import {colour} from "../heatmap.js";
import {imageCanvas} from "../image.js";

const SIDE = 288; // pixels on the page

/** {element, draw({image, weights, token})}; pick(token) is called when a patch is chosen. */
export function patches(pick) {
  const frame = h("div", {class: "patch-frame"});
  const overlay = h("canvas", {class: "patch-overlay", aria: {hidden: true}});
  const stage = h("div", {class: "patch-stage", role: "application", tabindex: 0,
    aria: {roledescription: "image of patches"}});
  const caption = h("p", {class: "small", aria: {live: "polite"}});
  const extra = h("div", {class: "row"});
  const element = h("div", {class: "patches stack"}, stage, caption, extra);
  let now = null;
  stage.addEventListener("click", (event) => now && pick(patchAt(event, stage, now)));
  stage.addEventListener("keydown", (event) => now && movePatch(event, now, pick));
  const draw = ({image, weights, token}) => {
    now = {...grid(image), token, first: image.class_token ? 1 : 0};
    fill(stage, imageCanvas(image.pixels, "The input image"), overlay, frame);
    stage.style.setProperty("aspect-ratio", `${now.width} / ${now.height}`);
    drawWeights(overlay, weights, now);
    placeFrame(frame, now);
    const place = token - now.first;
    const strongest = weights.indexOf(Math.max(...weights));
    const query = place < 0 ? "The class token"
      : `The patch in row ${Math.floor(place / now.columns)}, column ${place % now.columns}`;
    const share = percent(weights[strongest]);
    caption.textContent = `${query} attends most to ${patchName(strongest, now)} (${share}).`;
    stage.setAttribute("aria-label", `${caption.textContent} Use the arrow keys to choose another patch.`);
    fill(extra, image.class_token ? h("button",
      {type: "button", class: "button quiet", aria: {pressed: token === 0}, onclick: () => pick(0)},
      "Class token") : null);
  };
  return {element, draw};
}

function grid(image) {
  const [height, width] = [image.pixels[0].length, image.pixels[0][0].length];
  return {height, width, patch: image.patch, columns: Math.floor(width / image.patch),
    rows: Math.floor(height / image.patch)};
}

function patchName(token, now) {
  const place = token - now.first;
  if (place < 0) return "the class token";
  return place === now.token - now.first ? "itself"
    : `row ${Math.floor(place / now.columns)}, column ${place % now.columns}`;
}

// Relative to the largest weight, so that small weights are visible too.
function drawWeights(canvas, weights, {columns, rows, first, width, height, patch}) {
  canvas.width = SIDE;
  canvas.height = (SIDE * height) / width;
  const context = canvas.getContext("2d");
  const size = (SIDE * patch) / width;
  const most = Math.max(...weights.subarray(first)) || 1;
  context.fillStyle = colour("--second");
  for (let i = 0; i < columns * rows; i++) {
    context.globalAlpha = 0.82 * (weights[first + i] / most);
    context.fillRect((i % columns) * size, Math.floor(i / columns) * size, size, size);
  }
}

function placeFrame(frame, {token, first, columns, patch, width, height}) {
  const place = token - first;
  frame.hidden = place < 0;
  const box = {left: ((place % columns) * patch) / width, top: (Math.floor(place / columns) * patch) / height,
    width: patch / width, height: patch / height};
  for (const [side, share] of Object.entries(box)) frame.style.setProperty(side, `${100 * share}%`);
}

function patchAt(event, stage, {columns, rows, first}) {
  const bounds = stage.getBoundingClientRect();
  const clamp = (share, count) => Math.max(0, Math.min(count - 1, Math.floor(share * count)));
  const [x, y] = [clamp((event.clientX - bounds.left) / bounds.width, columns),
    clamp((event.clientY - bounds.top) / bounds.height, rows)];
  return first + y * columns + x;
}

function movePatch(event, {token, first, columns, rows}, pick) {
  const place = Math.max(0, token - first);
  const [x, y] = [place % columns, Math.floor(place / columns)];
  const to = {ArrowLeft: [x - 1, y], ArrowRight: [x + 1, y], ArrowUp: [x, y - 1], ArrowDown: [x, y + 1]}[event.key];
  if (!to) return;
  event.preventDefault();
  event.stopPropagation();
  const inside = (value, count) => Math.max(0, Math.min(count - 1, value));
  pick(first + inside(to[1], rows) * columns + inside(to[0], columns));
}
