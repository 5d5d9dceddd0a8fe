// Classes of characters, and Unicode normalization that says which old characters each new one stands for.
//
// The `tokenizers` library has tables of several Unicode versions, 9 to 16; a browser has its own, newer version.
// Characters that were added to Unicode since then can have another class here.

export const WHITE_SPACE = "\\p{White_Space}";
// What Python's strip() and split() remove. This and the next one are to be used in a character class.
export const PYTHON_SPACE = `${WHITE_SPACE}\\x1C-\\x1F`;
export const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"; // what \w stands for
// U+166D and U+111C9 were punctuation in the library's version of Unicode.
export const PUNCTUATION = "\\p{P}!-\\/:-@\\[-`{-~\\u166D\\u{111C9}";

export const IS_WHITE_SPACE = /^\p{White_Space}$/u;
export const IS_MARK = /^\p{M}$/u;
export const IS_NONSPACING_MARK = /^(?:\u1734|(?![\u1885\u1886])\p{Mn})$/u; // three had another class there
export const IS_CONTROL = /^[\p{Cc}\p{Cf}\p{Co}]$/u;

/** The number of white-space characters that a text starts with. */
export function leadingSpaces(text) {
  return text.match(/^\p{White_Space}*/u)[0].length;
}

/** The number of those that it ends with. (The expression /\s*$/ would take quadratic time.) */
export function trailingSpaces(text) {
  let n = 0;
  while (n < text.length && IS_WHITE_SPACE.test(text[text.length - 1 - n])) n += 1;
  return n;
}

/**
 * NFC, NFD, NFKC or NFKD of a text, as changes for `NormalizedText.transform`: [character, change], where change is 0
 * for a character that replaces one, -n for one that replaces n + 1, and 1 for one that was added.
 *
 *     é    --NFD-->  [e, 0] [◌́, 1]            e ◌́  --NFC-->  [é, -1]
 *
 * null: the text does not change.
 */
export function normalizationChanges(text, form) {
  if (text.normalize(form) === text) return null;
  const decomposed = decompose(text, form.replace("C", "D"));
  return form.endsWith("C") ? compose(decomposed) : decomposed;
}

/** Replace each character by its parts, and sort the combining marks between two other characters by their class. */
function decompose(text, form) {
  const changes = [];
  let marks = []; // those after the last character that is not a mark
  const addMarks = () => {
    marks.sort(([a], [b]) => Number(isReordered(a, b)) - Number(isReordered(b, a)));
    for (const mark of marks) changes.push(mark);
    marks = [];
  };
  for (const character of text) {
    [...character.normalize(form)].forEach((part, i) => {
      if (isCombining(part)) {
        marks.push([part, i > 0 ? 1 : 0]);
      } else {
        addMarks();
        changes.push([part, i > 0 ? 1 : 0]);
      }
    });
  }
  addMarks();
  return changes;
}

/** Combine each character with the marks after it that are not blocked by a mark of the same or a higher class. */
function compose(decomposed) {
  const changes = [];
  let base = -1, lastMark = null; // the index of the base in `changes`, and the last mark that was not combined
  for (const [character, change] of decomposed) {
    const isBlocked = lastMark !== null && !isReordered(character, lastMark);
    const combined = base >= 0 && !isBlocked ? combine(changes[base][0], character) : null;
    if (combined !== null) {
      changes[base] = [combined, changes[base][1] + change - 1];
      continue;
    }
    changes.push([character, change]);
    if (!isCombining(character)) [base, lastMark] = [changes.length - 1, null];
    else if (base >= 0) lastMark = character;
  }
  return changes;
}

const HIGHEST_CLASS = "\u0345"; // the only mark of class 240; all other marks are sorted before it

/** Whether the character has a canonical combining class above 0, so that marks around it can be reordered. */
function isCombining(character) {
  return character >= "\u0300" && (character === HIGHEST_CLASS || isReordered(HIGHEST_CLASS, character));
}

/** Whether canonical order puts `second` before `first`: both are combining, and the class of `first` is higher. */
function isReordered(first, second) {
  return (first + second).normalize("NFD") !== first + second;
}

/** The single character that two characters are equivalent to, or null. */
function combine(first, second) {
  const combined = (first + second).normalize("NFC");
  return combined.length <= 2 && [...combined].length === 1 ? combined : null;
}
