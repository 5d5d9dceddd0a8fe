// Tokens, or the patches of an image, coloured by a number each: blue above zero, orange below.
import {h} from "../dom.js";
import {imageCanvas} from "../image.js";
import {readable} from "../tokens.js";

const MOST_NUMBERS = 64; // patches of an image that show their number
const MANY = 80; // tokens; more get a smaller font

const sideOf = (value) => (value < 0 ? "against" : "for");
const FULL = 45; // percent of the colour; more would make the text on it hard to read
const strength = (value, most) => `${Math.round(FULL * Math.sqrt(Math.min(1, Math.abs(value) / most)))}%`;

/** A row of tokens with their numbers. format(value): its text; most: the number with the full colour */
export function tintedTokens({tokens, values, most, format, label}) {
  const size = tokens.length > MANY ? " many" : "";
  return h("div", {class: `tokens tinted-tokens${size}`, role: "list", aria: {label}, dir: "auto"},
    tokens.map((token, i) => h("span", {class: `token tinted-token ${sideOf(values[i])}`, role: "listitem",
      title: `${readable(token)}: ${format(values[i])}`, style: {"--strength": strength(values[i], most)}},
      h("bdi", {}, readable(token, 24)), h("span", {class: "number"}, format(values[i])))));
}

/** An image with its patches. A class token in front of them is below the image. */
export function tintedImage({image, tokens, values, most, format, label}) {
  const first = image.class_token ? 1 : 0, patches = tokens.slice(first);
  const columns = Math.round(Math.sqrt(patches.length));
  const [height, width] = [image.pixels[0].length, image.pixels[0][0].length];
  const cell = (name, i) => {
    const value = values[first + i], [row, column] = [Math.floor(i / columns), i % columns];
    return h("span", {class: `patch ${sideOf(value)}`, role: "listitem", style: {"--strength": strength(value, most)},
      title: `row ${row}, column ${column}: ${format(value)}`},
      patches.length <= MOST_NUMBERS ? h("span", {class: "number"}, format(value))
        : h("span", {class: "visually-hidden"}, format(value)));
  };
  const grid = h("div", {class: "patches", role: "list", aria: {label},
    style: {"grid-template-columns": `repeat(${columns}, 1fr)`}}, patches.map(cell));
  const stage = h("div", {class: "tinted-image", style: {"aspect-ratio": `${width} / ${height}`}},
    imageCanvas(image.pixels, "The input image"), grid);
  const classToken = {tokens: ["class token"], values: values.slice(0, 1), most, format, label: "Class token"};
  return h("div", {class: "stack"}, stage, first ? tintedTokens(classToken) : null);
}
