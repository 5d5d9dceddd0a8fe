// Normalizers of a tokenizer.json: functions NormalizedText -> NormalizedText, applied before a text is split.

import {DataError} from "./errors.js";
import {findMatches, readPattern} from "./regex.js";
import {readCharsmap} from "./charsmap.js";
import {IS_CONTROL, IS_MARK, IS_NONSPACING_MARK, IS_WHITE_SPACE, normalizationChanges} from "./unicode.js";

const BUILDERS = {
  Sequence: ({normalizers}) => {
    const steps = normalizers.map(buildNormalizer);
    return (text) => steps.reduce((normalized, step) => step(normalized), text);
  },
  NFC: () => (text) => normalizeTo(text, "NFC"),
  NFD: () => (text) => normalizeTo(text, "NFD"),
  NFKC: () => (text) => normalizeTo(text, "NFKC"),
  NFKD: () => (text) => normalizeTo(text, "NFKD"),
  Lowercase: () => toLowerCase,
  Strip: ({strip_left, strip_right}) => (text) => text.strip(strip_left, strip_right),
  StripAccents: () => (text) => removeCharacters(text, IS_MARK),
  Prepend: ({prepend}) => (text) => text.prepend(prepend),
  Replace: ({pattern, content}) => {
    const expression = readPattern(pattern);
    return (text) => text.replace(findMatches(expression, text.text), content);
  },
  BertNormalizer: buildBert,
  Precompiled: ({precompiled_charsmap}) => readCharsmap(precompiled_charsmap),
};

/** @param {object | null} settings the entry of tokenizer.json; null: no normalizer */
export function buildNormalizer(settings) {
  if (!settings) return (text) => text;
  return requireSupported(BUILDERS, settings.type, "normalizer")(settings);
}

/** The entry of a table, or an error that lists all of them. */
export function requireSupported(table, type, kind) {
  if (Object.hasOwn(table, type)) return table[type];
  throw new DataError(`this tokenizer has the ${kind} ${type}, which the JavaScript engine does not support. `
    + `It supports ${Object.keys(table).join(", ")}. Use Python for this tokenizer.`);
}

function normalizeTo(text, form) {
  const changes = normalizationChanges(text.text, form);
  return changes ? text.transform(changes) : text;
}

/** Each character alone, so a Greek sigma at the end of a word becomes σ. */
function toLowerCase(text) {
  return text.map((character) => character.toLowerCase());
}

/** Remove the characters of a class. */
function removeCharacters(text, excluded) {
  return text.map((character) => (excluded.test(character) ? "" : character));
}

/** BERT: white space becomes spaces; control characters and accents disappear; Chinese characters become words. */
function buildBert({clean_text, handle_chinese_chars, strip_accents, lowercase}) {
  const steps = [];
  if (clean_text) steps.push((text) => text.map(clean));
  if (handle_chinese_chars) steps.push((text) => text.map((c) => (IS_CHINESE.test(c) ? ` ${c} ` : c)));
  if (strip_accents ?? lowercase) steps.push((text) => removeCharacters(normalizeTo(text, "NFD"), IS_NONSPACING_MARK));
  if (lowercase) steps.push(toLowerCase);
  return (text) => steps.reduce((normalized, step) => step(normalized), text);
}

function clean(character) {
  if ("\t\n\r".includes(character)) return " ";
  if (character === "\0" || character === "\uFFFD" || IS_CONTROL.test(character)) return "";
  return IS_WHITE_SPACE.test(character) ? " " : character;
}

const IS_CHINESE = new RegExp("[\\u4E00-\\u9FFF\\u3400-\\u4DBF\\u{20000}-\\u{2A6DF}\\u{2A700}-\\u{2B73F}"
  + "\\u{2B740}-\\u{2B81F}\\u{2B920}-\\u{2CEAF}\\uF900-\\uFAFF\\u{2F800}-\\u{2FA1F}]", "u");
