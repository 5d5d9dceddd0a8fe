// Choose a word of a text, and replace it with another one.
import {fill, h} from "../dom.js";
import {splitWords} from "./textdiff.js";

let count = 0;

/** {element, show(text)}; run(changed text) is called when another word was given. button: its label */
export function wordChoice({button, run}) {
  const row = h("div"), form = h("div"), id = `another-word-${++count}`;
  let text = null, picked = null;
  const draw = () => fill(row, wordRow(text, picked, pick));
  const pick = (i) => {
    picked = i;
    draw();
    fill(form, wordForm({id, word: splitWords(text)[i], button, run: (word) => run(replaceWord(text, picked, word))}));
    form.querySelector("input").select();
  };
  const show = (newText) => {
    if (newText === text) return;
    [text, picked] = [newText, null];
    fill(form);
    draw();
  };
  return {element: h("div", {}, row, form), show};
}

/** The words of a text as buttons, with the spaces between them. */
function wordRow(text, picked, onpick) {
  const word = (piece, i) => h("button", {type: "button", class: "word", aria: {pressed: i === picked},
                                          onclick: () => onpick(i)}, h("bdi", {}, piece));
  const between = (piece) => (piece.includes("\n") ? h("br") : " ");
  return h("div", {class: "words box", role: "group", aria: {label: "Words of the input"}, dir: "auto"},
    splitWords(text).map((piece, i) => (piece.trim() ? word(piece, i) : between(piece))));
}

function wordForm({id, word, button, run}) {
  const field = h("input", {type: "text", id, value: word, autocomplete: "off", spellcheck: "false", dir: "auto"});
  const submit = (event) => {
    event.preventDefault();
    run(field.value.trim());
  };
  return h("form", {class: "row", onsubmit: submit},
    h("label", {for: id, class: "small"}, "Replace ", h("bdi", {}, `“${word}”`), " with"),
    field, h("button", {class: "button"}, button));
}

/** The text with another word. An empty word removes the space before it too. */
function replaceWord(text, index, word) {
  const all = splitWords(text);
  all[index] = word;
  if (!word && index && !all[index - 1].trim()) all[index - 1] = "";
  return all.join("").trim();
}
