/** Vectors to integers on a lattice, and to payloads: the operations of Python's kernels, in their order. */
import type { NoiseKind } from "./noise.js";
import { draw } from "./noise.js";
import { below, halves, Purpose, type Words } from "./random-words.js";

export type Vector = Float64Array;

const SLACK = 1 + 2 ** -40;
const UNIT = 2 ** -53;
const ALL = (1n << 64n) - 1n;

function largestSize(v: Vector): number {
  let largest = 0;
  for (const value of v) if (Math.abs(value) > largest) largest = Math.abs(value);
  return largest;
}

/** A coordinate divided by the largest one: 0 for NaN, and for a finite coordinate if another is infinite. */
function shareOf(value: number, largest: number): number {
  if (value !== value) return 0;
  if (largest === Infinity) return Math.abs(value) === Infinity ? Math.sign(value) : 0;
  return value / largest;
}

/** Whether the integers' norm exceeds `steps`, exactly: in doubles below 2^53, else in big integers. */
function exceeds(one: boolean, steps: number, out: Vector): boolean {
  let total = 0;
  if (one) {
    for (const q of out) total += Math.abs(q);
    return total > steps;
  }
  if (out.length * steps * steps < 2 ** 53) {
    for (const q of out) total += q * q;
    return total > steps * steps;
  }
  let sum = 0n;
  for (const q of out) sum += BigInt(q) * BigInt(q);
  return sum > BigInt(steps) * BigInt(steps);
}

/** Quantise a vector so that always sum(out^2) <= steps^2, or with `one` sum(|out|) <= steps. NaN counts as 0. */
export function quantise(one: boolean, v: Vector, spacing: number, steps: number, out: Vector): void {
  // Nearly every vector is within the bound, which the integers show exactly.
  if (!one) {
    let fits = true;
    for (let i = 0; i < v.length; i++) {
      const t = v[i]! / spacing;
      fits &&= Math.abs(t) <= steps; // not for NaN
      out[i] = fits ? Math.trunc(t) : 0;
    }
    if (fits && !exceeds(false, steps, out)) return;
  }
  const largest = largestSize(v);
  const clamp = (q: number): number => (q === q ? Math.min(Math.max(Math.trunc(q), -steps), steps) : 0);
  let total = 0;
  let inside = largest <= steps * spacing && largest < Infinity;
  if (inside) {
    for (let i = 0; i < v.length; i++) {
      const t = v[i] === v[i] ? v[i]! / spacing : 0;
      total += one ? Math.abs(t) : t * t;
      out[i] = clamp(t);
    }
    inside = total <= (one ? steps * SLACK : steps * SLACK * steps * SLACK);
  }
  if (!inside) {
    total = 0;
    for (const value of v) {
      const r = shareOf(value, largest);
      total += one ? Math.abs(r) : r * r;
    }
    const length = steps / (one ? total : Math.sqrt(total));
    for (let i = 0; i < v.length; i++) out[i] = clamp(shareOf(v[i]!, largest) * length);
  }
  while (exceeds(one, steps, out)) {
    let at = 0;
    for (let i = 1; i < out.length; i++) if (Math.abs(out[i]!) > Math.abs(out[at]!)) at = i;
    out[at]! += out[at]! > 0 ? -1 : 1;
  }
}

/** Draw noise of a kind. */
export function noiseOf(kind: NoiseKind, size: number, words: Words): Vector {
  const noise = new Float64Array(size);
  draw(kind, words, noise);
  return noise;
}

/** Return `q + noise`, and wipe the noise. */
export function added(q: Vector, kind: NoiseKind, words: Words): Vector {
  const noise = noiseOf(kind, q.length, words);
  for (let i = 0; i < q.length; i++) noise[i]! += q[i]!;
  return noise;
}

/** Shorten a vector to a length; numbers that are not finite count as 0, and so does a vector whose norm overflows. */
export function shortened(v: Vector, length: number): Vector {
  let square = 0;
  for (const value of v) if (value - value === 0) square += value * value;
  const factor = length / Math.max(Math.sqrt(square), length);
  return v.map((value) => (value - value === 0 ? value * factor : 0));
}

/** The mean of at most 128 vectors, added up in numpy's order, so that it equals Python's bit by bit. */
export function meanOf([first, ...others]: Vector[]): Vector {
  const [n, whole] = [others.length, others.length - (others.length % 8)];
  return first!.map((value, j) => {
    const sums = new Float64Array(8);
    others.forEach((row, i) => i < whole && (sums[i % 8]! += row[j]!));
    const [a, b, c, d, e, f, g, h] = sums as unknown as [number, number, number, number, number, number, number, number];
    let total = a + b + (c + d) + (e + f + (g + h));
    for (let i = whole; i < n; i++) total += others[i]![j]!;
    return (value + total) / (n + 1);
  });
}

interface Coins {
  rounding: number; // uniform on [0, 1)
  word: bigint;
  even: boolean;
}

function coinsOf(words: Words): Coins {
  words.next(Purpose.COIN);
  const rounding = (words.hi * 2 ** 21 + (words.lo >>> 11)) * UNIT;
  words.next(Purpose.COIN);
  const word = (BigInt(words.hi) << 32n) | BigInt(words.lo);
  words.next(Purpose.COIN);
  return { rounding, word, even: words.hi >= 2 ** 31 };
}

/** A noise vector or its negative; only the sign depends on the vector, through one exact coin (Duchi et al. 2018). */
export function ball(v: Vector, radius: number, threshold: bigint, words: Words): Vector {
  const out = noiseOf("gaussian", v.length, words);
  const coins = coinsOf(words);
  const largest = largestSize(v);
  let inner = 0;
  let square = 0;
  if (out.every((x) => x === 0)) out[0] = 1;
  if (largest > 0) {
    for (let i = 0; i < v.length; i++) {
      const r = shareOf(v[i]!, largest);
      inner += r * out[i]!;
      square += r * r;
    }
  }
  let positive = coins.even;
  if (inner !== 0) {
    const share = largest < radius ? Math.min(1, (largest * Math.sqrt(square)) / radius) : 1;
    const towards = coins.rounding < 0.5 + 0.5 * share;
    positive = inner > 0 === towards;
  }
  if (positive !== coins.word < threshold) for (let i = 0; i < out.length; i++) out[i] = -out[i]!;
  return out;
}

/** One of several noise vectors and their negatives; only the choice depends on the vector, through one exact word. */
export function unit(
  v: Vector,
  radius: number,
  draws: number,
  closest: number,
  threshold: bigint,
  words: Words,
): Vector {
  const d = v.length;
  const n = draws;
  const noise = noiseOf("gaussian", n * d, words);
  const coins = coinsOf(words);
  const largest = largestSize(v);
  const towards = new Float64Array(d);
  const scores = new Float64Array(n);
  let square = 0;
  for (let j = 0; j < d; j++) {
    towards[j] = largest > 0 ? shareOf(v[j]!, largest) : j === 0 ? 1 : 0;
    square += towards[j]! * towards[j]!;
  }
  const share = largest < radius ? Math.min(1, (largest * Math.sqrt(square)) / radius) : 1;
  const turn = coins.rounding < 0.5 + 0.5 * share ? 1 : -1;
  for (let i = 0; i < n; i++) {
    let inner = 0;
    let length = 0;
    for (let j = 0; j < d; j++) {
      const x = noise[i * d + j]!;
      inner += towards[j]! * x;
      length += x * x;
    }
    if (length === 0) {
      inner = towards[0]!;
      length = 1;
    }
    scores[i] = (turn * inner) / Math.sqrt(length);
  }
  const sizes = scores.map(Math.abs).sort();
  const bound = sizes[n - closest]!;
  let ties = closest;
  for (const size of sizes) if (size > bound) ties--;
  // Each of the k closest candidates has threshold / k of the 2^64 words; the others share the remaining words equally.
  const near = coins.word < threshold;
  let place = Number(
    near
      ? coins.word / (threshold / BigInt(closest))
      : (coins.word - threshold) / ((ALL - threshold) / BigInt(2 * n - closest) + 1n),
  );
  let start = 0;
  let sign = 1;
  for (let i = 0; i < n; i++) {
    const size = Math.abs(scores[i]!);
    let member = size > bound;
    if (size === bound && ties > 0) {
      member = true;
      ties--;
    }
    const side = scores[i]! >= 0 ? 1 : -1;
    if (place === 0 && (member || !near)) {
      start = i * d;
      sign = near ? side : -side;
    } else if (place === 1 && !(member || near)) {
      start = i * d;
      sign = side;
    }
    place -= member ? 1 : near ? 0 : 2;
  }
  const out = noise.slice(start, start + d);
  for (let j = 0; j < d; j++) out[j] = sign * out[j]!;
  if (out.every((x) => x === 0)) out[0] = sign;
  for (const scratch of [noise, towards, scores, sizes]) scratch.fill(0);
  return out;
}

/** Keep a label -1 or +1 with probability threshold / 2^64, else flip it; a missing one (0, NaN) is a fair coin. */
export function response(label: number, threshold: bigint, words: Words): number {
  words.next(Purpose.COIN);
  if (!(label > 0 || label < 0)) return words.hi < 2 ** 31 ? 1 : -1;
  const truth = label > 0 ? 1 : -1;
  return below(words, ...halves(threshold)) ? truth : -truth;
}
