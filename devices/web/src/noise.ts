/**
 * Exact discrete Gaussian and Laplace noise of width S = 2^20, the same draws from the same words as Python's sampler.
 *
 * |x| = k J + j with S = m J: k by a table of its distribution function, j by acceptance with an exact Bernoulli of
 * exp(-num / den). All integers of a trial are below 2^53 and exact in doubles; no float decides anything. Karney
 * (2016); Canonne, Kamath, Steinke (2020); Ducas et al. (2013).
 */
import { Purpose, uniform, type Words } from "./random-words.js";

export type NoiseKind = "gaussian" | "laplace";

export const WIDTH = 2 ** 20;

interface Law {
  readonly quadratic: boolean;
  readonly coarse: number; // m
  readonly step: number; // J
  readonly stepBits: number;
  readonly denominator: number; // 2 S^2, or S
  levels: number;
  entries: bigint[]; // floor(2^(64 levels) P(K <= k)), the last one all ones
  high: Uint32Array; // the first 64 bits of each entry
  low: Uint32Array;
  guide: Uint16Array; // the least possible k for the leading ten bits of a word
}

const GUARD = 64;

/** The quotient of two positive integers, rounded up. */
function ceilDiv(a: bigint, b: bigint): bigint {
  return (a + b - 1n) / b;
}

/** Enclose 2^precision exp(-top / bottom) for an exponent in (0, 1]. */
function exponential(top: bigint, bottom: bigint, precision: bigint): [bigint, bigint] {
  let termLow = 1n << precision;
  let termHigh = termLow;
  let low = termLow;
  let high = termLow;
  for (let count = 1n; termHigh > 1n; count++) {
    termLow = (termLow * top) / (bottom * count);
    termHigh = ceilDiv(termHigh * top, bottom * count);
    if (count % 2n) [low, high] = [low - termHigh, high - termLow];
    else [low, high] = [low + termLow, high + termHigh];
  }
  return [low - 1n, high + 1n];
}

/** Return the table's entries by interval arithmetic, or null if this precision leaves a digit undecided. */
function tryEntries(quadratic: boolean, coarse: number, bits: bigint, precision: bigint): bigint[] | null {
  const one = 1n << precision;
  const up = (value: bigint): bigint => ceilDiv(value, one);
  const m = BigInt(coarse);
  let [low, high] = exponential(1n, quadratic ? 2n * m * m : m, precision);
  const [growLow, growHigh] = quadratic ? [(low * low) >> precision, up(high * high)] : [one, one];
  const weightsLow = [one];
  const weightsHigh = [one];
  const least = 1n << (precision - bits - 32n);
  while (weightsHigh.at(-1)! > least) {
    weightsLow.push((weightsLow.at(-1)! * low) >> precision);
    weightsHigh.push(up(weightsHigh.at(-1)! * high));
    [low, high] = [(low * growLow) >> precision, up(high * growHigh)];
  }
  // Ratios of successive weights decrease: a geometric series bounds the tail beyond the last one.
  const end = weightsHigh.at(-1)!;
  let tailLow = 0n;
  let tailHigh = ceilDiv(end * end, weightsLow.at(-2)! - end);
  const tails: [bigint, bigint][] = [];
  for (let k = weightsLow.length - 1; k >= 0; k--) {
    tails.push([tailLow, tailHigh]);
    tailLow += weightsLow[k]!;
    tailHigh += weightsHigh[k]!;
  }
  const entries: bigint[] = [];
  const last = (1n << bits) - 1n;
  const shift = precision - bits;
  for (const [below, above] of tails.reverse()) {
    const smallest = one - ceilDiv(above * one, tailLow);
    const largest = one - (below * one) / tailHigh;
    const entry = smallest >> shift;
    const other = largest >> shift;
    if (entry !== (other < last ? other : last)) return null;
    entries.push(entry);
    if (entry === last) return entries;
  }
  return null;
}

function deepen(law: Law, levels: number): Law {
  const bits = BigInt(64 * levels);
  let precision = bits + BigInt(GUARD);
  let entries: bigint[] | null = null;
  while (entries === null) {
    entries = tryEntries(law.quadratic, law.coarse, bits, precision);
    precision += BigInt(GUARD);
  }
  law.levels = levels;
  law.entries = entries;
  law.high = Uint32Array.from(entries, (entry) => Number(entry >> (bits - 32n)));
  law.low = Uint32Array.from(entries, (entry) => Number((entry >> (bits - 64n)) & 0xffffffffn));
  law.guide = new Uint16Array(1024);
  for (let lead = 0, k = 0; lead < 1024; lead++) {
    while (law.high[k]! < lead * 2 ** 22) k++;
    law.guide[lead] = k;
  }
  return law;
}

const laws: { [kind in NoiseKind]?: Law } = {};

/** Return a distribution; its table is made on first use, which takes some milliseconds. */
export function lawOf(kind: NoiseKind): Law {
  const quadratic = kind === "gaussian";
  const coarse = quadratic ? 32 : 16;
  return (laws[kind] ??= deepen(
    {
      quadratic,
      coarse,
      step: WIDTH / coarse,
      stepBits: quadratic ? 15 : 16,
      denominator: quadratic ? 2 * WIDTH * WIDTH : WIDTH,
    } as Law,
    2,
  ));
}

/** Fill `out` with draws: P(x) ~ exp(-x^2 / 2 S^2), or exp(-|x| / S). */
export function draw(kind: NoiseKind, words: Words, out: Float64Array): void {
  const law = lawOf(kind);
  const { quadratic, step, stepBits } = law;
  for (let produced = 0; produced < out.length; ) {
    words.next(Purpose.NOISE);
    const { hi, lo } = words;
    words.next(Purpose.NOISE);
    const b = words.lo;
    let k = law.guide[hi >>> 22]!;
    while (law.high[k]! < hi || (law.high[k] === hi && law.low[k]! < lo)) k++;
    const j = b & (step - 1);
    const negative = (b >>> stepBits) & 1;
    const u1 = quadratic
      ? (b >>> 16) + (words.hi & 0x1ffffff) * 2 ** 16
      : (b >>> 17) + (words.hi & 0x1f) * 2 ** 15;
    const start = k * step;
    let x = start + j;
    const numerator = quadratic ? j * (start + x) : j;
    if (u1 < numerator || (law.high[k] === hi && law.low[k] === lo)) {
      x = finish(law, hi, lo, j, negative, u1, words);
      if (x >= 0) out[produced++] = negative ? -x : x;
    } else if (x >= negative) {
      // All but the negative zero.
      out[produced++] = negative ? -x : x;
    }
  }
}

/** Finish a trial that its two words leave undecided; return |x|, or -1 if it is rejected. */
function finish(law: Law, hi: number, lo: number, j: number, negative: number, u1: number, words: Words): number {
  const x = coarse(law, (BigInt(hi) << 32n) | BigInt(lo), words) * law.step + j;
  if (x === 0 && negative) return -1;
  const numerator = law.quadratic ? j * (2 * x - j) : j;
  // exp(-num/den) = exp(-rest/den) exp(-1)^wholes
  const wholes = Math.floor(numerator / law.denominator);
  let accepted = bernoulli(numerator - wholes * law.denominator, law.denominator, u1, words);
  for (let left = wholes; accepted && left > 0; left--) accepted = bernoulli(law.denominator, law.denominator, 0, words);
  return accepted ? x : -1;
}

/** Find k by comparing digits: of the word, then of as many spare words as needed. */
function coarse(law: Law, first: bigint, words: Words): number {
  const spare: bigint[] = [];
  for (;;) {
    const { entries, levels } = law;
    const digit = (k: number, level: number): bigint =>
      (entries[k]! >> BigInt(64 * (levels - 1 - level))) & 0xffffffffffffffffn;
    let k = 0;
    let level = 0;
    while (digit(k, 0) < first) k++;
    search: for (; k < entries.length; k++) {
      let word = first;
      for (level = 0; digit(k, level) === word; ) {
        if (++level === levels) break search;
        if (spare.length < level) {
          words.next(Purpose.SPARE);
          spare.push((BigInt(words.hi) << 32n) | BigInt(words.lo));
        }
        word = spare[level - 1]!;
      }
      if (word < digit(k, level)) return k;
    }
    deepen(law, 2 * levels);
  }
}

/** Draw exactly Bernoulli(exp(-num/den)), num <= den; `first` is already drawn, uniform below den. */
function bernoulli(numerator: number, denominator: number, first: number, words: Words): boolean {
  let trial = 1;
  for (let less = first < numerator; less; ) {
    trial++;
    // Bernoulli(num / (den trial)) as two independent factors.
    less =
      uniform(denominator, Purpose.SPARE, words) < numerator && uniform(trial, Purpose.SPARE, words) === 0;
  }
  return trial % 2 === 1;
}
