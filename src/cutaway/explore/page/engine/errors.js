// The errors that a user can fix. A message says what was given, what was expected, and what to do.

export class CutawayError extends Error {
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

/** A setting that is unknown, or that this engine does not support. */
export class ConfigError extends CutawayError {}

/** A text, an image or token ids that cannot be used. */
export class DataError extends CutawayError {}

/** A file of a run that is missing, incomplete or damaged. */
export class RunError extends CutawayError {}

/** The error for a file that differs from the one that was written. */
export function damageError(name, how) {
  return new RunError(`${name} is damaged: ${how}. Restore it from a copy.`);
}
