/** What every protocol of a person's device offers, and what several of them share. */
import { type Coded, dayOf } from "./coding.js";
import { added, meanOf, type Vector } from "./lattice.js";
import {
  calibrate,
  capOf,
  type Currency,
  defaultKind,
  type Guarantee,
  type Loss,
  type Mechanism,
  gaussianCost,
} from "./mechanisms.js";
import { WIDTH } from "./noise.js";
import { gridOf, type Task } from "./task.js";
import { Refused } from "./errors.js";

/** Standard deviations around the mean of a normal distribution that hold nine of ten values. */
const NINE_TENTHS = 1.6448536269514715;

/** The question that a release answers; a survey's questions have numbers. */
export type Query = "score" | "scatter" | "curvature" | `above-${number}`;

/** Randomizes a vector into the integers of a release. */
export type Randomizer = Pick<Mechanism, "kind" | "dimension" | "draws" | "quantise" | "randomize" | "cost" | "mean" | "averaged"> & {
  /** Of a mechanism that draws one of several: those that a policy must allow. */
  readonly kinds?: readonly string[];
};

export interface Protocol {
  /** Kind of release on the wire. */
  readonly kind: "score" | "gradient" | "example" | "moment" | "target";
  /** Length of a published model; 0 if releases use none. */
  readonly modelSize: number;
  /** Whether releases of all partitions use the first partition's models. */
  readonly shared: boolean;
  /** Whether releases name the version of a model. */
  readonly versioned: boolean;
  /** The model of version 0. */
  readonly initial: Vector;
  /** Refuse a model that no honest learner publishes, before any record is read. */
  check(model: Vector, version: number): void;
  /** Draw the query, before any record is read; undefined if there is only one. */
  drawQuery(model: Vector, words: import("./random-words.js").Words): Query | undefined;
  /** Whether a person's rows are answered by their mean; else, and if undefined, by one row, drawn uniformly. */
  averages?(query: Query | undefined): boolean;
  /** The mechanism's input for a coded record. */
  vector(coded: Pick<Coded, "x" | "y">, model: Vector, query: Query | undefined): Vector;
  mechanism(level: string, query: Query | undefined): Randomizer;
  /** Answers, or repeats the last answer; only of protocols that can repeat. */
  readonly repeat?: typeof import("./memos.js").repeatOrRandomize;
  /** Cost of a release at a level, whatever it answers; null if it has no cost in this currency. */
  cost(level: string, currency: Currency): Loss | null;
}

/** What protocols share whose releases use no model and answer a single query. */
export const WITHOUT_MODEL = {
  modelSize: 0,
  shared: false,
  versioned: false,
  initial: new Float64Array(0),
  check: () => undefined,
  drawQuery: () => undefined,
};

/** Gaussian noise on a vector: `bounded` bounds it, `integers` quantises that to steps of `unit`, and `mean` averages bounded vectors. */
export function gaussianOf(
  dimension: number,
  unit: number,
  bounded: (v: Vector) => Vector,
  integers: (v: Vector) => Vector,
  cost: Mechanism["cost"],
  mean: (rows: Vector[]) => Vector = meanOf,
) {
  const noisy = (quantise: (v: Vector) => Vector) => ({
    quantise,
    randomize: (v: Vector, words: import("./random-words.js").Words) => added(quantise(v), "gaussian", words),
  });
  return {
    kind: "gaussian",
    dimension,
    draws: 1,
    variance: (WIDTH * unit) ** 2,
    ...noisy((v) => integers(bounded(v))),
    cost,
    mean: (rows: Vector[]) => mean(rows.map(bounded)),
    averaged: noisy(integers),
  } as const;
}

export function hostile(why: string): never {
  throw new Refused("model", `the model is not one that an honest learner publishes: ${why}`);
}

/** The kind of mechanism that a task has for a guarantee. */
export function kindFor(task: Task, cap: Loss): string {
  return task.privacy.mechanism ?? defaultKind(cap);
}

/** Make something for each level of a task; if levels are a grid, only when a level is first used. */
export function levelsOf<T>(task: Task, make: (cap: Loss, guarantee: Guarantee) => T): { get(level: string): T | undefined } {
  const made = new Map<string, T>();
  const get = (level: string): T | undefined => {
    const guarantee = task.guarantees.get(level);
    if (guarantee && !made.has(level)) made.set(level, make(capOf(guarantee), guarantee));
    return made.get(level);
  };
  for (const level of gridOf(task.privacy.levels) ? ["default"] : task.guarantees.keys()) get(level);
  return { get };
}

/** All levels; of a grid only the default, the first and the last one, which bound all others. */
export function boundingOf(task: Task): string[] {
  const levels = [...task.guarantees.keys()];
  return gridOf(task.privacy.levels) ? [levels[0]!, levels[1]!, levels.at(-1)!] : levels;
}

/** Number of entries of a symmetric matrix's upper triangle. */
export function matrixSize(p: number): number {
  return (p * (p + 1)) / 2;
}

/** Round half to even, for numbers below 2^51. */
export function rint(value: number): number {
  const shift = 1.5 * 2 ** 52;
  return value + shift - shift;
}

/** Write the upper triangle of v v', off the diagonal times sqrt 2; longer v are shortened, non-finite numbers are 0. */
export function outer(row: Vector): Vector {
  const p = row.length;
  const v = row.map((value) => (value - value === 0 ? value : 0));
  let largest = 1;
  let square = 0;
  for (const value of v) largest = Math.max(largest, Math.abs(value));
  for (let j = 0; j < p; j++) {
    v[j]! /= largest;
    square += v[j]! * v[j]!;
  }
  const length = Math.max(Math.sqrt(square), 1 / largest);
  for (let j = 0; j < p; j++) v[j]! /= length;
  const out = new Float64Array(matrixSize(p));
  for (let j = 0, at = 0; j < p; at += p - j, j++) {
    out[at] = v[j]! * v[j]!;
    for (let k = j + 1; k < p; k++) out[at + k - j] = v[j]! * v[k]! * Math.SQRT2;
  }
  v.fill(0);
  return out;
}

/** Refuse a guarantee whose bound is too few lattice steps. */
export function checkRoom(room: number, steps: number): void {
  if (room < steps) throw new Refused("guarantee", "the guarantee is too strong for a release of so many numbers");
}

export type Variance = { readonly variance: number };

/** Gaussian noise on v v' of a vector v no longer than 1: two such matrices differ by at most sqrt 2. */
function outerGaussian(cap: Loss, p: number): Randomizer & Variance {
  const dimension = matrixSize(p);
  const { steps } = calibrate("gaussian", cap, dimension, Math.SQRT2 / 2);
  const room = 2 * steps - Math.sqrt(dimension) - 2;
  checkRoom(room, steps);
  const unit = Math.SQRT2 / room;
  const integers = (matrix: Vector): Vector => matrix.map((value) => rint(value / unit));
  return gaussianOf(dimension, unit, outer, integers, gaussianCost(steps, cap));
}

/** Any mechanism for vectors of norm 1, applied to v v'. */
function outerAny(kind: string, cap: Loss, p: number): Randomizer & Pick<Mechanism, "variance" | "moments"> {
  const inner = calibrate(kind, cap, matrixSize(p), 1);
  return {
    ...inner,
    quantise: (v) => inner.quantise(outer(v)),
    randomize: (v, words) => inner.randomize(outer(v), words),
    mean: (rows) => meanOf(rows.map(outer)),
    averaged: inner,
  };
}

/** A mechanism of a given kind for v v' of a vector v no longer than 1. */
export function outerOf(kind: string, cap: Loss, p: number): Randomizer & Pick<Mechanism, "variance" | "moments"> {
  return kind === "gaussian" ? outerGaussian(cap, p) : outerAny(kind, cap, p);
}

/** The orthonormal Helmert contrasts of K classes, K x (K - 1) row by row. */
export function contrasts(classes: number): Vector {
  const columns = classes - 1;
  const basis = new Float64Array(classes * columns);
  for (let c = 0; c < columns; c++) {
    const norm = Math.sqrt((c + 1) * (c + 2));
    for (let k = 0; k <= c; k++) basis[k * columns + c] = -1 / norm;
    basis[(c + 1) * columns + c] = (c + 1) / norm;
  }
  return basis;
}

/** Eigenvalues (ascending) and vectors (columns) of a symmetric matrix, by Jacobi's rotations. */
export function eigen(matrix: Vector, p: number): [number[], Vector] {
  const a = matrix.slice();
  const v = new Float64Array(p * p);
  for (let i = 0; i < p; i++) v[i * p + i] = 1;
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0;
    let total = 0;
    for (let i = 0; i < p; i++)
      for (let j = 0; j < p; j++) {
        total += a[i * p + j]! ** 2;
        if (i !== j) off += a[i * p + j]! ** 2;
      }
    if (off <= 1e-40 * total) break;
    for (let i = 0; i < p; i++)
      for (let j = i + 1; j < p; j++) {
        const b = a[i * p + j]!;
        if (b === 0) continue;
        const theta = (a[j * p + j]! - a[i * p + i]!) / (2 * b);
        const t = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.sqrt(theta * theta + 1));
        const c = 1 / Math.sqrt(t * t + 1);
        const s = t * c;
        const turn = (m: Vector, first: number, second: number, stride: number): void => {
          for (let k = 0; k < p; k++) {
            const x = m[first + k * stride]!;
            const y = m[second + k * stride]!;
            m[first + k * stride] = c * x - s * y;
            m[second + k * stride] = s * x + c * y;
          }
        };
        turn(a, i, j, p);
        turn(a, i * p, j * p, 1);
        turn(v, i, j, p);
      }
  }
  return [Array.from({ length: p }, (_, i) => a[i * p + i]!), v];
}

/** The mean of x x' over a task's public covariates, or null. */
export function secondMoment(task: Task, p: number): Vector | null {
  if (!task.covariates) return null;
  const bytes = (text: string): DataView => {
    const raw = atob(text);
    const view = new DataView(new ArrayBuffer(raw.length));
    for (let i = 0; i < raw.length; i++) view.setUint8(i, raw.charCodeAt(i));
    return view;
  };
  const points = bytes(task.covariates.points);
  const counts = bytes(task.covariates.counts);
  const rows = counts.byteLength / 8;
  const damaged = (): Refused => new Refused("task", "the task's covariates are damaged");
  if (task.covariates.size !== p || points.byteLength !== 8 * p * rows) throw damaged();
  if (!(rows >= 1 && Number.isInteger(rows))) throw damaged();
  let people = 0;
  const moment = new Float64Array(p * p);
  for (let row = 0; row < rows; row++) {
    const count = Number(counts.getBigInt64(8 * row, true));
    people += count;
    const x = Array.from({ length: p }, (_, i) => points.getFloat64(8 * (row * p + i), true));
    // As in Python: coded points with the constant, each of which stands for at least one person. Noise is calibrated to their bounds.
    if (!(count >= 1 && x[p - 1] === 1 && x.every((value) => Math.abs(value) <= 1))) throw damaged();
    for (let i = 0; i < p; i++) for (let j = 0; j < p; j++) moment[i * p + j]! += count * x[i]! * x[j]!;
  }
  return moment.map((value) => value / people);
}

/** The centre and spread of each coded feature but the constant: as stated, or those of values spread over their bounds; null for categories. */
export function locationsOf(task: Task): ([number, number] | null)[] {
  return task.features.flatMap(({ kind, low, high, typical, ...feature }) => {
    const none = (names: number): null[] => Array<null>(names === 2 ? 1 : names - 1).fill(null);
    const number = (): [number, number] => {
      const read = (value: unknown): number => (kind === "date" ? dayOf(value as string)! : (value as number));
      if (!typical) return [0, 1 / Math.sqrt(3)];
      const [least, first, last] = [low, ...(typical as unknown[])].map(read) as [number, number, number];
      const half = (read(high) - least) / 2;
      return [((first + last) / 2 - least) / half - 1, (last - first) / (2 * NINE_TENTHS * half)];
    };
    const coded =
      kind === "date"
        ? (feature.as ?? ["number"]).flatMap((part) => (part === "number" ? [number()] : none(part === "weekday" ? 7 : 12)))
        : feature.categories
          ? none(feature.categories.length)
          : [number()];
    return feature.missing === "indicator" ? [...coded, null] : coded;
  });
}

/** The centre and spread of each coded feature but the constant, [0, 1] for categories; null if the task states none. */
export function statedOf(task: Task): [number, number][] | null {
  if (task.features.every((feature) => !feature.typical)) return null;
  return locationsOf(task).map((place) => place ?? [0, 1]);
}

/** Coded features, the constant last, in the coordinates of stated centres and spreads. */
export function located(x: Vector, stated: [number, number][]): Vector {
  return x.map((value, j) => (j < stated.length ? (value - stated[j]![0]) / stated[j]![1] : value));
}

/** The symmetric inverse square root of a second-moment matrix. */
export function whitening(moment: Vector, p: number): Vector {
  const [values, vectors] = eigen(moment, p);
  const largest = Math.max(...values);
  if (!(Math.min(...values) > 1e-10 * largest)) throw new Refused("task", "the task's covariates are singular");
  const root = new Float64Array(p * p);
  for (let i = 0; i < p; i++)
    for (let j = 0; j < p; j++)
      for (let k = 0; k < p; k++)
        root[i * p + j]! += (vectors[i * p + k]! * vectors[j * p + k]!) / Math.sqrt(values[k]!);
  return root;
}
