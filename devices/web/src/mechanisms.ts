/** Mechanisms of bounded vectors, recomputed from the guarantee: a task cannot ask for less noise than it promises. */
import {
  analyticSteps,
  ceilUnits,
  coinThreshold,
  DELTA_UNITS,
  epsilonOfGdp,
  floorUnits,
  gdpOfEpsilon,
  logRatio,
  ONE,
  rational,
  root,
  sharedThreshold,
  UNITS,
} from "./exact.js";
import { added, ball, meanOf, quantise, shortened, unit, type Vector } from "./lattice.js";
import { WIDTH } from "./noise.js";
import { fitted, gain } from "./privunit.js";
import { Refused } from "./errors.js";
import { type Words } from "./random-words.js";

export type Guarantee = { readonly [kind in "pure" | "approx" | "gdp" | "zcdp"]?: { readonly [name: string]: number } };
export type Currency = "gdp" | "rho" | "epsilon" | "approx";

/** An amount of privacy loss in integer units of 1e-12 (delta: 1e-15), so that a ledger adds without rounding. */
export interface Loss {
  readonly currency: Currency;
  readonly units: bigint;
  readonly delta: bigint;
}

const CURRENCIES = { gdp: "gdp", zcdp: "rho", pure: "epsilon", approx: "approx" } as const;
const NAMES = { gdp: ["mu"], zcdp: ["rho"], pure: ["epsilon"], approx: ["epsilon", "delta"] };
const MOST = { mu: 20, rho: 200, epsilon: 64, delta: 1 }; // above these a guarantee hardly protects

function refuse(why: string): never {
  throw new Refused("guarantee", why);
}

/** Convert a guarantee to a cap on an account, rounded down. */
export function capOf(guarantee: Guarantee): Loss {
  const [entry, other] = Object.entries(guarantee);
  const kind = entry?.[0] as keyof typeof CURRENCIES;
  const names = Object.hasOwn(NAMES, kind) ? NAMES[kind] : undefined;
  const values = entry?.[1] ?? {};
  if (entry && !other && !names) refuse(`guarantees in ${kind} are not known to this device`);
  if (other || !names || Object.keys(values).sort().join() !== [...names].sort().join()) refuse("not a guarantee");
  for (const name of names) {
    const value = values[name];
    const most = MOST[name as keyof typeof MOST];
    if (typeof value !== "number" || !(value >= 0 && value <= most) || (name === "delta" && value === most))
      refuse(`the guarantee's ${name} is not between 0 and ${most}`);
  }
  const units =
    kind === "gdp" ? (([top, bottom]) => (top * top * UNITS) / (bottom * bottom))(rational(values.mu!)) : 0n;
  return {
    currency: CURRENCIES[kind],
    units: kind === "gdp" ? units : floorUnits(values[names[0]!]!),
    delta: kind === "approx" ? floorUnits(values.delta!, DELTA_UNITS) : 0n,
  };
}

/** The largest epsilon, in units, whose pure guarantee implies `guarantee` and fits under its cap. */
export function epsilonUnits(cap: Loss): bigint {
  const units =
    cap.currency === "gdp" ? epsilonOfGdp(cap.units) : cap.currency === "rho" ? root(2n * cap.units * UNITS) : cap.units;
  if (units <= 0n) refuse("the guarantee allows no release");
  return units;
}

/** How a bounded vector becomes the integers of a release. */
export interface Mechanism {
  readonly kind: string;
  readonly dimension: number;
  /** Bound of the quantised vector in lattice steps; 0 for directions. */
  readonly steps: number;
  readonly spacing: number;
  /** Variance of a coordinate of the decoded release. */
  readonly variance: number;
  /** Mean squares of the decoded vector's component across and along the true direction. */
  readonly moments?: readonly [number, number];
  /** Number of noise vectors of a release. */
  readonly draws: number;
  /** Quantise without noise, which test vectors compare. Null for directions. */
  quantise(v: Vector): Vector | null;
  randomize(v: Vector, words: Words): Vector;
  /** The mean of several rows' vectors, each within the bounds; only of mechanisms that protocols average with. */
  mean?(rows: Vector[]): Vector;
  /** Randomizes such a mean, if that differs from randomizing a vector. */
  averaged?: Pick<Mechanism, "quantise" | "randomize">;
  /** Cost of one release, rounded up; null where there is none in this currency. */
  cost(currency: Currency): Loss | null;
}

function loss(currency: Currency, units: bigint, delta = 0n): Loss {
  return { currency, units, delta };
}

/** Cost of a pure release; epsilon is top / bottom exactly, or rounded up. */
export function pureCost(top: bigint, bottom: bigint): (currency: Currency) => Loss {
  return (currency) => {
    if (currency === "gdp") return loss(currency, gdpOfEpsilon((top * ONE + bottom - 1n) / bottom));
    if (currency === "rho") return loss(currency, ceilUnits(top * top, 2n * bottom * bottom));
    return loss(currency, ceilUnits(top, bottom));
  };
}

const SQUARE = 2n ** 40n;

/** The bound, in lattice steps, at which Gaussian noise gives a guarantee. */
function gaussianSteps(cap: Loss): number {
  let steps: bigint;
  if (cap.currency === "approx") {
    if (cap.delta === 0n) refuse("Gaussian noise needs a delta of at least 1e-15");
    steps = analyticSteps(cap.units, cap.delta);
  } else if (cap.currency === "epsilon") refuse("Gaussian noise gives no pure guarantee");
  else {
    const rho = cap.currency === "gdp" ? cap.units / 2n : cap.units;
    steps = root((rho * SQUARE) / (2n * UNITS));
    if (cap.currency === "gdp") {
      const other = root((cap.units * (SQUARE - 9n)) / (4n * UNITS));
      if (other < steps) steps = other;
    }
  }
  return Number(steps);
}

function checkSteps(steps: number, dimension: number): void {
  if (steps < 1) refuse("the guarantee is less than a lattice step can express");
  if (steps >= 2 ** 31 || BigInt(dimension) * BigInt(steps) ** 2n >= 1n << 63n) refuse("the guarantee is too large");
}

/** Cost of Gaussian noise; in (epsilon, delta) only that of its calibration. */
export function gaussianCost(steps: number, cap: Loss): (currency: Currency) => Loss | null {
  const square = BigInt(steps) ** 2n;
  return (currency) => {
    if (currency === "rho") return loss(currency, ceilUnits(2n * square, SQUARE));
    if (currency === "gdp") return loss(currency, ceilUnits(4n * square, SQUARE - 9n));
    return currency === "approx" && cap.currency === "approx" ? cap : null;
  };
}

function gaussian(cap: Loss, dimension: number, radius: number): Mechanism {
  const steps = gaussianSteps(cap);
  checkSteps(steps, dimension);
  const spacing = radius / steps;
  const integers = (v: Vector): Vector => {
    const out = new Float64Array(dimension);
    quantise(false, v, spacing, steps, out);
    return out;
  };
  return {
    kind: "gaussian",
    dimension,
    steps,
    spacing,
    variance: (WIDTH * spacing) ** 2,
    draws: 1,
    quantise: integers,
    randomize: (v, words) => added(integers(v), "gaussian", words),
    cost: gaussianCost(steps, cap),
  };
}

function laplace(cap: Loss, dimension: number, radius: number): Mechanism {
  const steps = Number((epsilonUnits(cap) * 2n ** 20n) / (2n * UNITS));
  checkSteps(steps, dimension);
  const spacing = (Math.sqrt(dimension) * radius) / steps;
  const integers = (v: Vector): Vector => {
    const out = new Float64Array(dimension);
    quantise(true, v, spacing, steps, out);
    return out;
  };
  return {
    kind: "laplace",
    dimension,
    steps,
    spacing,
    variance: 2 * (WIDTH * spacing) ** 2,
    draws: 1,
    quantise: integers,
    randomize: (v, words) => added(integers(v), "laplace", words),
    cost: pureCost(2n * BigInt(steps), 2n ** 20n),
  };
}

const WORDS = 1n << 64n;

/** Gamma((d + 1) / 2) / Gamma(d / 2 + 1). */
function gammas(d: number): number {
  let ratio = d % 2 ? 2 / Math.sqrt(Math.PI) : Math.sqrt(Math.PI);
  for (let k = d % 2 ? 3 : 2; k <= d; k += 2) ratio *= (k - 1) / k;
  return ratio;
}

function l2Ball(cap: Loss, dimension: number, radius: number): Mechanism {
  const threshold = coinThreshold(epsilonUnits(cap));
  const norm =
    ((radius / (Number(2n * threshold - WORDS) / 2 ** 64)) * Math.sqrt(Math.PI)) / 2 * (dimension * gammas(dimension));
  const variance = norm ** 2 / dimension;
  return {
    kind: "l2-ball",
    dimension,
    steps: 0,
    spacing: 1,
    variance,
    moments: [variance, variance],
    draws: 1,
    quantise: () => null,
    randomize: (v, words) => ball(v, radius, threshold, words),
    cost: pureCost(logRatio(threshold, WORDS - threshold), ONE),
  };
}

function privUnit(cap: Loss, dimension: number, radius: number): Mechanism {
  const units = epsilonUnits(cap);
  const [draws, closest] = fitted(dimension, Number(units) / 1e12);
  const threshold = sharedThreshold(units, draws, closest);
  const near = threshold / BigInt(closest);
  const far = (WORDS - threshold) / BigInt(2 * draws - closest);
  if (far < 1n || far >= near) refuse("the guarantee is beyond what a word of 64 bits expresses");
  const share = Number(threshold) / 2 ** 64;
  const [mean, square] = gain(dimension, draws, closest, share);
  const norm = radius / mean;
  const along = share * square + ((1 - share) * ((2 * draws) / dimension - closest * square)) / (2 * draws - closest);
  const across = dimension > 1 ? (norm ** 2 * (1 - along)) / (dimension - 1) : 0;
  return {
    kind: "privunit",
    dimension,
    steps: 0,
    spacing: 1,
    variance: norm ** 2 / dimension,
    moments: [across, norm ** 2 * along],
    draws,
    quantise: () => null,
    randomize: (v, words) => unit(v, radius, draws, closest, threshold, words),
    cost: pureCost(logRatio(near, far), ONE),
  };
}

const KINDS = { gaussian, laplace, "l2-ball": l2Ball, privunit: privUnit };

/** Whether only a pure mechanism has the guarantee. */
export function isPure(cap: Loss): boolean {
  return cap.currency === "epsilon" || (cap.currency === "approx" && cap.delta === 0n);
}

/** The kind of mechanism of a task that names none. */
export function defaultKind(cap: Loss): string {
  return isPure(cap) ? "l2-ball" : "gaussian";
}

const BOUNDS = [1e-100, 1e100] as const; // of a radius: outside, spacings of a lattice underflow or overflow

/** Return the mechanism of a kind, or with `best` the one of least variance, for a guarantee. */
export function calibrate(kind: string, cap: Loss, dimension: number, radius: number): Mechanism {
  if (!(radius >= BOUNDS[0] && radius <= BOUNDS[1])) throw new Refused("task", "a bound of the task is not between 1e-100 and 1e100");
  const mean = (rows: Vector[]): Vector => meanOf(rows.map((v) => shortened(v, radius)));
  if (kind === "best" && (cap.currency === "gdp" || cap.currency === "rho")) kind = "gaussian";
  if (kind !== "best") {
    if (!Object.hasOwn(KINDS, kind)) throw new Refused("mechanism", `this device has no mechanism ${kind}`);
    return { ...KINDS[kind as keyof typeof KINDS](cap, dimension, radius), mean };
  }
  let best: Mechanism | undefined;
  let why: unknown;
  for (const make of Object.values(KINDS)) {
    try {
      const other = make(cap, dimension, radius);
      if (!best || other.variance < 0.99 * best.variance) best = other;
    } catch (error) {
      why = error;
    }
  }
  if (!best) throw why;
  return { ...best, mean };
}
