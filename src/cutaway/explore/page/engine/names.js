// Names of settings and attributes: snake_case in files and in Python, camelCase in JavaScript.

/** beam_size -> beamSize */
export function toCamelCase(name) {
  return name.replace(/_./g, (match) => match[1].toUpperCase());
}

/** beamSize -> beam_size */
export function toSnakeCase(name) {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
