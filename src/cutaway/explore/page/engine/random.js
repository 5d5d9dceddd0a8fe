// A random generator with a seed: NumPy's default_rng([seed, number]), which Cutaway uses in Python. So a text is
// sampled from the same random numbers in all engines, and is the same unless rounding decides.
//
// NumPy makes its first state from the seed with O'Neill's seed_seq_fe, then draws with PCG64 (O'Neill 2014).

const MASK_64 = (1n << 64n) - 1n, MASK_128 = (1n << 128n) - 1n;
const MULTIPLIER = 0x2360ED051FC65DA44385DF649FCCF645n;

export class RandomGenerator {
  #state = 0n;
  #increment;

  /** @param {number[]} entropy whole numbers, not negative */
  constructor(...entropy) {
    const [high, low, incrementHigh, incrementLow] = seedState(entropy.flatMap(words));
    this.#increment = ((((incrementHigh << 64n) | incrementLow) << 1n) | 1n) & MASK_128;
    this.#step();
    this.#state += (high << 64n) | low;
    this.#step();
  }

  #step() {
    this.#state = (this.#state * MULTIPLIER + this.#increment) & MASK_128;
  }

  /** A random number from [0, 1): 53 random bits. */
  random() {
    this.#step();
    const folded = (this.#state >> 64n) ^ (this.#state & MASK_64), rotation = this.#state >> 122n;
    const bits = ((folded >> rotation) | (folded << (64n - rotation))) & MASK_64;
    return Number(bits >> 11n) / 2 ** 53;
  }
}

/** A whole number as 32-bit words, the lowest first. */
function words(number) {
  const found = [];
  for (let rest = BigInt(number); rest > 0n || !found.length; rest >>= 32n) found.push(Number(rest & 0xFFFFFFFFn));
  return found;
}

/** Mix the words in a pool of four, and make four 64-bit numbers from the pool. */
function seedState(entropy) {
  const hash = hasher(0x43B0D7E5, 0x931E8875);
  const pool = [0, 1, 2, 3].map((i) => hash(entropy[i] ?? 0));
  const mixInto = (to, word) => {
    const mixed = Math.imul(0xCA01F9DD, pool[to]) - Math.imul(0x4973F715, hash(word));
    pool[to] = mixed ^ (mixed >>> 16);
  };
  for (let from = 0; from < 4; from++) for (let to = 0; to < 4; to++) if (from !== to) mixInto(to, pool[from]);
  for (const word of entropy.slice(4)) for (let to = 0; to < 4; to++) mixInto(to, word);
  const halves = [...pool, ...pool].map(hasher(0x8B51F9DD, 0x58F38DED)).map((word) => BigInt(word >>> 0));
  return [0, 2, 4, 6].map((i) => halves[i] | (halves[i + 1] << 32n));
}

/** A hash of 32-bit words whose constant changes with each call. */
function hasher(constant, multiplier) {
  return (word) => {
    let value = word ^ constant;
    constant = Math.imul(constant, multiplier);
    value = Math.imul(value, constant);
    return value ^ (value >>> 16);
  };
}
