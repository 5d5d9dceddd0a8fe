// Create DOM elements. All text becomes text nodes; nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** h("button", {class: "tab", onclick: f, aria: {label: "Close"}, data: {id: 3}}, "text", child, [more]) -> element */
export function h(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
export function s(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "aria" || name === "data") {
      for (const [key, text] of Object.entries(value)) element.setAttribute(`${name}-${key}`, String(text));
    } else if (name === "style" && typeof value === "object") {
      for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    } else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Replace the children of an element. */
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

/** Scroll a box, and only this box, until an element in it can be seen. */
export function scrollInside(box, element) {
  const [outer, inner] = [box, element].map((each) => each.getBoundingClientRect());
  const isAcross = inner.left < outer.left || inner.right > outer.right;
  const isDown = inner.top < outer.top || inner.bottom > outer.bottom;
  if (isAcross) box.scrollLeft += (inner.left + inner.right - outer.left - outer.right) / 2;
  if (isDown) box.scrollTop += (inner.top + inner.bottom - outer.top - outer.bottom) / 2;
}

/** Whether the user prefers a page without motion. */
export const isStill = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export const scrollBehaviour = () => (isStill() ? "auto" : "smooth");

/** 0.1234 -> "12 %", 0.9996 -> "99.96 %", 1e-5 -> "0.001 %": more digits near 0 and 1. */
export function percent(p) {
  if (p === null || p === undefined) return "–";
  const value = 100 * p;
  if (value === 0 || value === 100) return `${value} %`;
  if (value >= 99) return `${Math.min(99.99, value).toFixed(value >= 99.9 ? 2 : 1)} %`;
  if (value >= 10) return `${value.toFixed(0)} %`;
  if (value >= 0.1) return `${value.toFixed(1)} %`;
  return value >= 0.001 ? `${value.toFixed(3)} %` : "< 0.001 %";
}

/** A number with about three digits and a minus sign instead of a hyphen. */
export function number(value) {
  if (value === null || value === undefined) return "–";
  if (!Number.isFinite(value)) return String(value);
  const size = Math.abs(value);
  const text = size >= 1000 ? Math.round(value).toLocaleString("en")
    : size >= 0.01 || size === 0 ? String(+value.toPrecision(3)) : value.toExponential(1);
  return text.replace(/^-/, "−");
}
