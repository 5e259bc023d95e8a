/** The target alone, randomized once (`protocol: univariate`): for shares of classes, a mean or quantiles. */
import { exp, logRatio, ONE, pureFits, root, standardNormal, UNITS } from "./exact.js";
import { metricsOf } from "./experiment.js";
import { cellOf } from "./known.js";
import { added, type Vector } from "./lattice.js";
import { calibrate, type Currency, epsilonUnits, isPure, type Loss, pureCost } from "./mechanisms.js";
import { levelsOf, type Protocol, type Randomizer, rint, WITHOUT_MODEL } from "./protocol.js";
import { mostRows, type Target, type Task } from "./task.js";
import { Refused } from "./errors.js";
import { Purpose, type Words } from "./random-words.js";

const WORDS = 1n << 64n;
const WIDTH = 2 ** 20;
const LEVELS = 31; // to which a number is rounded, at random
const WINDOWS_FROM = 2_890_000_000_000n; // mu^2 in units; from it on windows have less variance than Gaussian noise

// Rows: smallest epsilon; number of levels in a window; number of outcomes that only a missing number favours, -1 if
// numbers are never missing.
const ALWAYS = [
  [0, 30, -1], [1, 27, -1], [1.1, 24, -1], [1.2, 22, -1], [1.3, 16, -1], [1.4, 15, -1], [2.3, 14, -1], [2.5, 13, -1],
  [2.7, 12, -1], [2.9, 11, -1], [3, 10, -1], [3.5, 9, -1], [3.8, 8, -1], [4.1, 7, -1], [4.6, 6, -1], [5.1, 5, -1],
  [5.7, 4, -1], [6.5, 3, -1], [7.5, 2, -1],
] as const;
const MAYBE = [
  [0, 30, 2], [0.3, 30, 4], [0.5, 30, 6], [1.1, 25, 10], [1.2, 20, 10], [1.3, 15, 6], [1.8, 15, 7], [2.5, 14, 7],
  [2.8, 13, 7], [3, 11, 8], [3.1, 10, 7], [3.4, 9, 6], [3.8, 8, 6], [3.9, 8, 5], [4.2, 7, 5], [4.5, 7, 4], [4.6, 6, 5],
  [5, 6, 4], [5.1, 5, 5], [5.3, 5, 4], [5.5, 5, 3], [5.7, 4, 4], [6.1, 4, 3], [6.4, 3, 3], [7.1, 3, 2], [7.5, 2, 2],
] as const;

/** Outcomes, of which `favoured` have larger odds; `apart` has what only one of two values favours, by either value. */
interface Layout {
  readonly outcomes: number;
  readonly favoured: number;
  apart(threshold: bigint, other: bigint): readonly [bigint, bigint, bigint];
}

class Odds {
  readonly threshold: bigint;
  readonly slack: bigint;
  private known: bigint | null | undefined;

  constructor(
    readonly layout: Layout,
    readonly other: bigint,
  ) {
    this.threshold = WORDS - BigInt(layout.outcomes - layout.favoured) * other;
    this.slack = 4n * BigInt(layout.outcomes) ** 2n;
  }

  /** An upper bound of epsilon, fixed-point. */
  get epsilon(): bigint {
    return logRatio(this.threshold * (WORDS + this.slack), BigInt(this.layout.favoured) * this.other * WORDS);
  }

  /** mu^2 in units, rounded up; null if 64 bits cannot resolve it. It takes milliseconds, so it is computed once. */
  get square(): bigint | null {
    if (this.known === undefined) this.known = this.squared();
    return this.known;
  }

  private squared(): bigint | null {
    const [more, less, bottom] = this.layout.apart(this.threshold, this.other);
    const error = (4n * this.slack * ONE) / WORDS;
    const one = (less * ONE) / bottom - error;
    const other = ONE - (more * ONE) / bottom - error;
    if (one <= 0n || other <= 0n) return null;
    const mu = standardNormal(one) + standardNormal(other);
    return (mu * mu * UNITS + ONE * ONE - 1n) / (ONE * ONE);
  }

  fits(cap: Loss): boolean {
    const square = this.square;
    if (square !== null && (cap.currency === "gdp" ? square : (square + 1n) / 2n) <= cap.units) return true;
    return pureFits(this.epsilon, cap.currency, cap.units);
  }

  cost(currency: Currency): Loss {
    const pure = pureCost(this.epsilon, ONE)(currency);
    const square = currency === "gdp" || currency === "rho" ? this.square : null;
    if (square === null) return pure;
    const units = currency === "gdp" ? square : (square + 1n) / 2n;
    return units < pure.units ? { currency, units, delta: 0n } : pure;
  }
}

function calibrated(layout: Layout, cap: Loss): Odds {
  const [outcomes, favoured] = [BigInt(layout.outcomes), BigInt(layout.favoured)];
  const odds = exp((epsilonUnits(cap) * ONE) / UNITS);
  const bottom = favoured * odds + (outcomes - favoured) * ONE;
  const other = (WORDS * ONE + bottom - 1n) / bottom + 4n * outcomes + 1n;
  if (favoured * other >= WORDS - (outcomes - favoured) * other)
    throw new Refused("guarantee", `the guarantee is too small for ${outcomes} outcomes`);
  if (cap.currency !== "gdp" && cap.currency !== "rho") return new Odds(layout, other);
  // mu may be below that of the odds.
  const unit = 1n + other / 2n ** 24n;
  const aim = cap.currency === "gdp" ? cap.units : 2n * cap.units;
  const at = (fewer: bigint): Odds => new Odds(layout, other - fewer * unit);
  let low = 0n;
  let high = other / unit;
  let chosen = at(low);
  // Secant steps, kept within the known bounds.
  let before = { at: low, square: chosen.square };
  let next = 1n;
  while (high - low > 1n) {
    if (next <= low || next >= high) next = (low + high) / 2n;
    const odds = at(next);
    if (odds.fits(cap)) [low, chosen] = [next, odds];
    else high = next;
    const { square } = odds;
    const last = { at: next, square };
    const rises = square !== null && before.square !== null && square !== before.square;
    next = rises ? next + ((aim - square) * (next - before.at)) / (square - before.square!) : 0n;
    if (next === low) next = low + 1n;
    else if (next === high) next = high - 1n;
    before = last;
  }
  return chosen;
}

/** Subsets of d of k categories. */
function subsetOf(k: number, d: number): Layout {
  return {
    outcomes: k,
    favoured: d,
    apart: (threshold) => [threshold * BigInt(k - d), (WORDS - threshold) * BigInt(d), BigInt(k - 1) * WORDS],
  };
}

function variance(k: number, d: number, odds: Odds): number {
  const chance = Number(odds.threshold) / 2 ** 64;
  const gain = (chance * k - d) / (k - 1);
  const inside = d / k;
  return (inside * (1 - inside)) / (gain * gain);
}

interface Subset {
  readonly size: number;
  readonly odds: Odds;
  readonly variance: number;
}

/** The subset size with the least variance, and its odds. */
function bestSubset(k: number, cap: Loss): Subset {
  const known = new Map<number, Subset>();
  const at = (size: number): Subset => {
    if (!known.has(size)) {
      const odds = calibrated(subsetOf(k, size), cap);
      known.set(size, { size, odds, variance: variance(k, size, odds) });
    }
    return known.get(size)!;
  };
  const half = Math.floor(k / 2);
  let low = 1;
  let high = 1;
  while (high < half) {
    const further = Math.min(2 * high, half);
    const falls = at(further).variance < at(high).variance;
    if (falls) low = high;
    high = further;
    if (!falls) break;
  }
  while (high - low > 2) {
    const left = low + Math.floor((high - low) / 3);
    const right = high - Math.floor((high - low) / 3);
    if (at(left).variance <= at(right).variance) high = right;
    else low = left;
  }
  let chosen = at(low);
  for (let each = low + 1; each <= high; each++) if (at(each).variance < chosen.variance) chosen = at(each);
  return chosen;
}

const word = (words: Words): bigint => {
  words.next(Purpose.COIN);
  return (BigInt(words.hi) << 32n) | BigInt(words.lo);
};

const least = (a: bigint, b: bigint): bigint => (a < b ? a : b);

function subsets(k: number, { size, odds }: Subset): Randomizer {
  return {
    kind: "subset-selection",
    dimension: k,
    draws: 1,
    quantise: () => null,
    cost: (currency) => odds.cost(currency),
    randomize(v, words) {
      const out = new Float64Array(k);
      const truth = Math.min(Math.max(v[0]!, 0), k - 1);
      const inside = word(words) < odds.threshold ? 1 : 0;
      let left = size - inside;
      for (let category = 0; category < k; category++) {
        const n = BigInt(k - category - (truth >= category ? 1 : 0));
        const drawn = word(words);
        const limit = n > 0n ? least((BigInt(left) * WORDS) / n, WORDS) - 1n : -1n;
        const taken = left > 0 && drawn <= limit ? 1 : 0;
        out[category] = category === truth ? inside : taken;
        if (category !== truth) left -= taken;
      }
      return out;
    },
  };
}

function windows(missing: boolean, cap: Loss): Randomizer {
  const units = epsilonUnits(cap);
  const table = missing ? MAYBE : ALWAYS;
  const [, size, apart] = table.findLast(([start]) => BigInt(Math.round(start * 10)) * (UNITS / 10n) <= units)!;
  const plain = LEVELS + size - 1;
  const outcomes = plain + Math.max(apart, 0);
  const odds = calibrated({ outcomes, favoured: size, apart: (threshold, other) => [threshold, BigInt(size) * other, WORDS] }, cap);
  const favours = Array.from({ length: LEVELS }, (_, level) => Array.from({ length: size }, (_, at) => level + at));
  if (missing) {
    const even = Array.from({ length: size - apart }, (_, at) => Math.floor(((2 * at + 1) * plain) / (2 * (size - apart))));
    favours.push([...even, ...Array.from({ length: apart }, (_, at) => plain + at)]);
  }
  const others = favours.map((row) => Array.from({ length: outcomes }, (_, at) => at).filter((at) => !row.includes(at)));
  return {
    kind: "window-selection",
    dimension: 1,
    draws: 1,
    quantise: () => null,
    cost: (currency) => odds.cost(currency),
    randomize(v, words) {
      const place = Math.min(Math.max(v[0]!, 0), 1) * (LEVELS - 1);
      let level = Math.min(Math.floor(place), LEVELS - 2);
      const uniform = Number(word(words) >> 11n) * 2 ** -53;
      level += uniform < place - level ? 1 : 0;
      if (v[0]! > 1) level = missing ? LEVELS : Math.floor(LEVELS / 2);
      const drawn = word(words);
      const near = least(drawn / (odds.threshold / BigInt(size)), BigInt(size - 1));
      const rest = drawn < odds.threshold ? 0n : drawn - odds.threshold;
      const far = least(rest / odds.other, BigInt(outcomes - size - 1));
      return Float64Array.of(drawn < odds.threshold ? favours[level]![Number(near)]! : others[level]![Number(far)]!);
    },
  };
}

/** Gaussian noise on a point of a simplex, whose vertices are `height` times the unit vectors. */
function simplex(k: number, cap: Loss): Randomizer & { readonly variance: number } {
  const noise = calibrate("gaussian", cap, k, 1);
  const height = Number(root(2n * BigInt(noise.steps) ** 2n));
  const quantise = (v: Vector): Vector => {
    const place = Math.min(Math.max(v[0]! === v[0]! ? v[0]! : 0, 0), k - 1);
    const whole = Math.floor(place);
    const part = rint((place - whole) * height);
    const out = new Float64Array(k);
    out[Math.min(whole + 1, k - 1)] = part;
    out[whole] = height - part;
    return out;
  };
  // Round to a point of the simplex: what remains goes to the entries with the largest remainders.
  const mean = (rows: Vector[]): Vector => {
    const [n, points] = [rows.length, rows.map(quantise)];
    const sums = points[0]!.map((_, j) => points.reduce((sum, point) => sum + point[j]!, 0));
    const out = sums.map((sum) => Math.floor(sum / n));
    const order = [...sums.keys()].sort((i, j) => (sums[j]! % n) - (sums[i]! % n));
    const left = height - out.reduce((a, b) => a + b);
    for (const j of order.slice(0, left)) out[j]! += 1;
    return out;
  };
  return {
    kind: "gaussian",
    dimension: k,
    draws: 1,
    variance: (WIDTH / height) * (WIDTH / height),
    quantise,
    randomize: (v, words) => added(quantise(v), "gaussian", words),
    cost: noise.cost,
    mean,
    averaged: { quantise: (v) => v, randomize: (v, words) => added(v, "gaussian", words) },
  };
}

/** A random threshold, and a randomized answer to whether the number exceeds it. */
function atThreshold(answer: Randomizer): Randomizer {
  return {
    ...answer,
    dimension: 1 + answer.dimension,
    quantise: () => null,
    randomize(v, words) {
      words.next(Purpose.QUERY);
      const threshold = words.hi >>> 26;
      const place = v[0]!;
      const category = place > 1 ? 2 : Number(place > threshold / 64);
      return Float64Array.of(threshold, ...answer.randomize(Float64Array.of(category), words));
    },
  };
}

/** The number of a record's cell, without noise, beside its randomized target. */
function beside(target: Randomizer): Randomizer {
  const joined = (v: Vector, numbers: Vector): Vector => Float64Array.of(v[0]!, ...numbers);
  return {
    ...target,
    dimension: 1 + target.dimension,
    quantise(v) {
      const numbers = target.quantise(v.subarray(1));
      return numbers && joined(v, numbers);
    },
    randomize: (v, words) => joined(v, target.randomize(v.subarray(1), words)),
  };
}

/** The pure guarantee by which selection meets an (epsilon, delta) guarantee: delta stays unused. */
function pureOf(cap: Loss): Loss {
  return cap.currency === "approx" ? { currency: "epsilon", units: cap.units, delta: 0n } : cap;
}

/** Number of classes, 0 of a number; of categories, a missing target included; and what is asked of it. */
interface Kind {
  readonly classes: number;
  readonly missing: boolean;
  readonly quantiles: boolean;
  readonly k: number;
}

function kindOf(target: Target, rows: number): Kind {
  // Rows that a person lacks have no target.
  const missing = target.missing_share !== 0 || rows > 1;
  const classes = target.kind === "real" ? 0 : (target.classes?.length ?? 2);
  return { classes, missing, quantiles: target.kind === "real" && target.quantiles != null, k: (classes || 2) + Number(missing) };
}

/** A coded target as the mechanism's input: the number of a class, or a place in the range. */
function placeOf({ classes, missing, k }: Kind, y: number): number {
  const rest = missing ? k - 1 : classes ? 0 : 0.5;
  return y !== y ? rest : classes ? y : (Math.min(Math.max(y, -1), 1) + 1) / 2;
}

/**
 * The number of a part, drawn evenly whatever the record is, and that part's release alone; shorter ones end in zeros.
 * Inputs are a cell and one number for each part.
 */
function drawnOf(parts: Randomizer[]): Randomizer {
  const dimension = 1 + Math.max(...parts.map((part) => part.dimension));
  return {
    kind: parts[0]!.kind,
    kinds: parts.map(({ kind }) => kind),
    dimension,
    draws: 1,
    quantise: () => null,
    randomize(v, words) {
      words.next(Purpose.QUERY);
      const number = Math.floor((words.hi * parts.length) / 2 ** 32);
      const input = Float64Array.of(v[0]!, v[1 + number]!);
      const out = new Float64Array(dimension);
      out[0] = number;
      out.set(parts[number]!.randomize(input, words), 1);
      input.fill(0);
      return out;
    },
    // The most expensive part's.
    cost(currency) {
      const most = (a: bigint, b: bigint): bigint => (a > b ? a : b);
      const costs = parts.map((part) => part.cost(currency));
      if (!costs.every((cost) => cost !== null)) return null;
      return costs.reduce((a, b) => ({ currency, units: most(a.units, b.units), delta: most(a.delta, b.delta) }));
    },
  };
}

export function univariate(task: Task, p: number): Protocol {
  // All features are known columns.
  const known = p > 1;
  const [kind, ...metrics] = [task.target, ...metricsOf(task)].map((each) => kindOf(each, mostRows(task))) as [Kind, ...Kind[]];
  if (kind.k >= 2 ** 15) throw new Refused("task", "the task has too many classes");

  const prefersGaussian = (cap: Loss, { classes, quantiles, k }: Kind): boolean => {
    if (isPure(cap)) return false;
    if (cap.currency === "approx") return cap.units === 0n;
    // With known columns the estimate does not use the likelihood of two points, so two classes are treated as several.
    if (classes === 2 && !known) return true;
    if (!classes && !quantiles) return cap.units * (cap.currency === "gdp" ? 1n : 2n) < WINDOWS_FROM;
    const subset = bestSubset(k, cap).variance * k;
    return !(subset < 0.99 * (simplex(k, cap).variance * (k - 1) + 1 - 1 / k));
  };
  let family: boolean | undefined;
  const alone = (cap: Loss, { classes, quantiles, missing, k }: Kind): Randomizer => {
    if (family === undefined) {
      // The family of the target at the default level, if it can give the guarantees of all levels.
      family = prefersGaussian(cap, kind);
      for (const each of task.guarantees.values()) if ("pure" in each || each.approx?.["delta"] === 0) family = false;
    }
    if (quantiles) return atThreshold(family ? simplex(k, cap) : subsets(k, bestSubset(k, pureOf(cap))));
    if (family) return simplex(k, cap);
    return classes ? subsets(k, bestSubset(k, pureOf(cap))) : windows(missing, pureOf(cap));
  };
  const mechanisms = levelsOf(task, (cap) => {
    if (!known) return alone(cap, kind);
    const parts = [kind, ...metrics].map((each) => beside(alone(cap, each)));
    return parts.length > 1 ? drawnOf(parts) : parts[0]!;
  });
  return {
    kind: "target",
    ...WITHOUT_MODEL,
    averages: () => family === true && !kind.classes && !kind.quantiles && !known,
    vector({ x, y }) {
      const place = placeOf(kind, y);
      // Coded metrics come before the constant.
      return known ? Float64Array.of(cellOf(task, x), place, ...metrics.map((each, at) => placeOf(each, x[p - 1 + at]!))) : Float64Array.of(place);
    },
    mechanism: (level) => mechanisms.get(level)!,
    cost: (level, currency) => mechanisms.get(level)!.cost(currency),
  };
}
