/**
 * Arithmetic for privacy claims: rationals, and fixed-point numbers of 512 binary digits (`ONE` is 1).
 *
 * A number in a task means its shortest decimal, as in Python: 0.1 is 1/10. Errors of a few units of 2^-512 are far
 * below the margins by which every result is moved against the claim.
 */
import { Refused } from "./errors.js";

export type Rational = readonly [bigint, bigint];

const BITS = 512n;
export const ONE = 1n << BITS;
export const UNITS = 10n ** 12n;
export const DELTA_UNITS = 10n ** 15n;
// Far above all rounding errors, and far below the resolution of 64-bit integers and of units.
const MARGIN = ONE >> 200n;

/** The rational number that a float's shortest decimal means. */
export function rational(value: number): Rational {
  const match = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(value));
  if (match === null) throw new Refused("guarantee", `${value} is not a parameter of a guarantee`);
  const digits = BigInt(match[1]! + (match[2] ?? ""));
  const exponent = Number(match[3] ?? 0) - (match[2] ?? "").length;
  return exponent < 0 ? [digits, 10n ** BigInt(-exponent)] : [digits * 10n ** BigInt(exponent), 1n];
}

export function floorUnits(value: number, scale: bigint = UNITS): bigint {
  const [top, bottom] = rational(value);
  return (top * scale) / bottom;
}

export function ceilUnits(top: bigint, bottom: bigint): bigint {
  return (top * UNITS + bottom - 1n) / bottom;
}

/** The largest integer whose square is at most `value`. */
export function root(value: bigint): bigint {
  if (value < 2n) return value;
  let x = 1n << BigInt((value.toString(2).length + 1) >> 1);
  for (;;) {
    const next = (x + value / x) >> 1n;
    if (next >= x) return x;
    x = next;
  }
}

const times = (a: bigint, b: bigint): bigint => (a * b) >> BITS;
const over = (a: bigint, b: bigint): bigint => (a << BITS) / b;
export const sqrt = (value: bigint): bigint => root(value << BITS);

/** e^x for a fixed-point x of at most some hundreds. */
export function exp(x: bigint): bigint {
  // e^x = (e^(x / 2^k))^(2^k), with 32 more digits for the squarings.
  const k = 40n;
  let term = 1n << (BITS + 64n);
  let total = term;
  const small = (x << 64n) >> k;
  for (let n = 1n; term !== 0n && term !== -1n; n++) {
    term = ((term * small) >> (BITS + 64n)) / n;
    total += term;
  }
  for (let i = 0n; i < k; i++) total = (total * total) >> (BITS + 64n);
  return total >> 64n;
}

/** The natural logarithm of a positive fixed-point number. */
export function ln(x: bigint): bigint {
  const shift = BigInt(x.toString(2).length - 1) - BITS;
  const series = (value: bigint): bigint => {
    const ratio = over(value - ONE, value + ONE);
    const square = times(ratio, ratio);
    let power = ratio;
    let total = 0n;
    for (let n = 1n; power !== 0n && power !== -1n; n += 2n, power = times(power, square)) total += power / n;
    return 2n * total;
  };
  return series(shift < 0n ? x << -shift : x >> shift) + shift * series(2n * ONE);
}

let twoPi: bigint | undefined;

/** 2 pi, by Machin's formula. */
function circle(): bigint {
  const arc = (inverse: bigint): bigint => {
    let power = ONE / inverse;
    let total = 0n;
    for (let n = 1n; power !== 0n; n += 2n, power = -power / (inverse * inverse)) total += power / n;
    return total;
  };
  return (twoPi ??= 8n * (4n * arc(5n) - arc(239n)));
}

/** P(Z > x) of a standard normal Z, to within 2^-220; 0 beyond 20, where it is below 2^-292. */
export function tail(x: bigint): bigint {
  if (x < 0n) return ONE - tail(-x);
  if (x > 20n * ONE) return 0n;
  // Phi(x) - 1/2 = phi(x) (x + x^3/3 + x^5/(3 5) + ...), terms all positive.
  const square = times(x, x);
  let term = x;
  let total = x;
  for (let odd = 3n; term !== 0n; odd += 2n) {
    term = times(term, square) / odd;
    total += term;
  }
  return ONE / 2n - times(total, over(exp(-square / 2n), sqrt(circle())));
}

/** A lower bound of log(Phi(mu/2) / Phi(-mu/2)), for mu of at most 24. */
function logOdds(mu: bigint): bigint {
  const other = tail(mu / 2n);
  return ln(over(ONE - other, other)) - (ONE >> 100n);
}

/** The largest epsilon, in units, whose pure guarantee implies mu-GDP for a mu^2 in units, and rho = mu^2 / 2. */
export function epsilonOfGdp(units: bigint): bigint {
  const mu = sqrt((units * ONE) / UNITS) - 1n;
  const fitting = units > 0n && mu > 0n ? (logOdds(mu) * UNITS) >> BITS : 0n;
  const most = root(2n * (units / 2n) * UNITS);
  return fitting < most ? fitting : most;
}

/** Whether a pure release, whose epsilon is fixed-point and rounded up, costs at most a cap in gdp or rho. */
export function pureFits(epsilon: bigint, currency: string, units: bigint): boolean {
  if (currency === "gdp") return logOdds(sqrt((units * ONE) / UNITS)) >= epsilon;
  return ceilUnits(epsilon * epsilon, 2n * ONE * ONE) <= units;
}

/** An upper bound, tight to 2^-150, of the z that a standard normal variable exceeds with probability `above`. */
export function standardNormal(above: bigint): bigint {
  if (above > ONE / 2n) return (ONE >> 149n) - standardNormal(ONE - above);
  const scale = sqrt(circle());
  let z = 0n;
  // The tail is convex from 0 on, so that no step passes the root.
  for (;;) {
    const step = times(tail(z) - above, times(scale, exp(times(z, z) / 2n)));
    z += step;
    if (step < ONE >> 160n) return z + (ONE >> 150n);
  }
}

/** mu^2 of epsilon-DP in units, rounded up; `epsilon` is fixed-point and rounded up. */
export function gdpOfEpsilon(epsilon: bigint): bigint {
  // At most (pi/2) epsilon^2, and at most 8 epsilon.
  let low = 0n;
  let high = ceilUnits(epsilon * (epsilon < 5n * ONE ? epsilon * 2n : 8n * ONE), ONE * ONE) + 1n;
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (logOdds(sqrt((middle * ONE) / UNITS)) >= epsilon) high = middle;
    else low = middle;
  }
  return high;
}

/** Whether mu-GDP with mu = 2 steps / sqrt(S^2 - 9) stays within (epsilon, delta), in units. */
function within(steps: bigint, epsilonUnits: bigint, deltaUnits: bigint): boolean {
  const mu = over(2n * steps * ONE, sqrt((2n ** 40n - 9n) * ONE)) + 1n;
  const epsilon = (epsilonUnits * ONE) / UNITS;
  const z = over(epsilon, mu) - mu / 2n;
  const delta = tail(z) - times(exp(epsilon), tail(z + mu));
  return delta + MARGIN <= (deltaUnits * ONE) / DELTA_UNITS;
}

/** The largest number of steps whose exact curve stays within (epsilon, delta). */
export function analyticSteps(epsilonUnits: bigint, deltaUnits: bigint): bigint {
  let low = 0n;
  let high = 2n ** 31n;
  while (high - low > 1n) {
    const middle = (low + high) >> 1n;
    if (within(middle, epsilonUnits, deltaUnits)) low = middle;
    else high = middle;
  }
  return low;
}

const WORDS = 1n << 64n;

/** The largest t < 2^64 with t / (2^64 - t) at most e^epsilon. */
export function coinThreshold(units: bigint): bigint {
  const exact = over(WORDS * ONE, ONE + exp((-units * ONE) / UNITS));
  const threshold = (exact - MARGIN) >> BITS;
  return threshold < WORDS ? threshold : WORDS - 1n;
}

/** The largest threshold of all `closest` draws together whose odds are at most e^epsilon. */
export function sharedThreshold(units: bigint, draws: number, closest: number): bigint {
  const k = BigInt(closest);
  const others = BigInt(2 * draws) - k;
  const inverse = exp((-units * ONE) / UNITS);
  const exact = over(WORDS * inverse, k * ONE + others * inverse) + MARGIN;
  const share = (exact + k * ONE - 1n) / (k * ONE);
  return WORDS - others * share * k;
}

/** An upper bound of log(favoured / other), fixed-point. */
export function logRatio(favoured: bigint, other: bigint): bigint {
  return ln(over(favoured * ONE, other * ONE)) + MARGIN;
}
