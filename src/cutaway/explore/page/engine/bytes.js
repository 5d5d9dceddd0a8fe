// Byte-level tokenizers write each byte of UTF-8 as one printable character, e.g. a space as Ġ (Radford et al. 2019).

const CHARACTER_OF_BYTE = []; // ! to ~, ¡ to ¬ and ® to ÿ are themselves; all others follow from U+0100 on
const BYTE_OF_CHARACTER = new Map();
for (let byte = 0, next = 256; byte < 256; byte++) {
  const isPrintable = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  CHARACTER_OF_BYTE[byte] = String.fromCharCode(isPrintable ? byte : next++);
  BYTE_OF_CHARACTER.set(CHARACTER_OF_BYTE[byte], byte);
}

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", {ignoreBOM: true}); // bytes that are not UTF-8 become U+FFFD

/** "é" -> "Ã©" */
export function bytesToCharacters(text) {
  if (text.length === 1 && text < "\x80") return CHARACTER_OF_BYTE[text.charCodeAt(0)]; // the usual case, faster
  return Array.from(encoder.encode(text), (byte) => CHARACTER_OF_BYTE[byte]).join("");
}

/** ["Ã", "©"] -> "é". A token with other characters stands for itself. */
export function charactersToText(tokens) {
  return decodeBytes(tokens.flatMap((token) => {
    const bytes = Array.from(token, (character) => BYTE_OF_CHARACTER.get(character));
    return bytes.includes(undefined) ? [...encoder.encode(token)] : bytes;
  }));
}

function decodeBytes(bytes) {
  return decoder.decode(Uint8Array.from(bytes));
}

/** The number of bytes of a character in UTF-8. */
export function utf8Length(character) {
  const code = character.codePointAt(0);
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

/** The names of the tokens that SentencePiece uses for the bytes of an unknown character: "é" -> <0xC3>, <0xA9> */
export function byteTokens(text) {
  return Array.from(encoder.encode(text), (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
}
