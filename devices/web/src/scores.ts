/** Scores: one query at a round's published model, or at that of version 0 alone (`protocol: scores`). */
import type { Coded } from "./coding.js";
import type { Vector } from "./lattice.js";
import { calibrate, type Loss } from "./mechanisms.js";
import {
  contrasts,
  hostile,
  kindFor,
  levelsOf,
  locationsOf,
  statedOf,
  matrixSize,
  outerOf,
  type Protocol,
  type Query,
  secondMoment,
  whitening,
} from "./protocol.js";
import { mostRows, type Task } from "./task.js";
import { below, halves, Purpose } from "./random-words.js";

const FIRST = 3000;
const REMEMBERED = 8;
const LARGEST_LOGIT = 50;
const MOST_NUMBERS = 600;
/** How many numbers a model has besides its origin and transform. */
const NUMBERS = 7;
/** Lists of thresholds that a survey may ask about; a model names a list by its number. */
const THRESHOLDS: readonly (readonly number[])[] = [
  [],
  Array.from({ length: 16 }, (_, place) => (2 * place - 15) / 16),
  [-1.4, -0.7, 0, 0.7, 1.4],
  [-2, -1, -0.3, 0.3, 1, 2],
];
const ROUNDS = 6;

/** The version at which the current round began: rounds double up to `longest`, then all are that long. */
function roundStart(version: number, longest: number): number {
  if (version < FIRST) return 0;
  let doubled = FIRST;
  for (let times = Math.floor(longest / FIRST); times >= 1; times = Math.floor(times / 2)) doubled *= 2;
  if (version >= doubled) return doubled + Math.floor((version - doubled) / longest) * longest;
  let start = FIRST;
  while (2 * start <= version) start *= 2;
  return start;
}

interface Model {
  readonly origin: Vector;
  readonly transform: Vector;
  readonly clippingNorm: number;
  readonly exponent: number;
  readonly scatter: number;
  readonly curvature: number;
  /** Number of the list of thresholds that all people are asked about instead of scores; 0 for none. */
  readonly survey: number;
  /** Middle and half width of a real target. */
  readonly middle: number;
  readonly width: number;
}

function modelOf(flat: Vector, p: number): Model {
  const at = flat.length - p * p - NUMBERS;
  const [clippingNorm, exponent, scatter, curvature, survey, middle, width] = flat.subarray(flat.length - NUMBERS) as unknown as [
    number, number, number, number, number, number, number,
  ];
  const transform = flat.subarray(at, at + p * p);
  return { origin: flat.subarray(0, at), transform, clippingNorm, exponent, scatter, curvature, survey, middle, width };
}

/** Numbers of the columns that a survey asks about; the last one stands for the target. */
function surveyed({ transform, width }: Model, p: number): number[] {
  return Array.from({ length: p }, (_, j) => j).filter((j) => (j === p - 1 ? width : transform[j * p + j]) !== 0);
}

/** Whether a feature, or the target, is above a threshold: 1 or -1; 0 without a target. */
function above({ x, y }: Pick<Coded, "x" | "y">, model: Model, item: number): Vector {
  const p = x.length;
  const list = THRESHOLDS[model.survey]!;
  const j = surveyed(model, p)[Math.floor(item / list.length)]!;
  const { transform, middle, width } = model;
  const z = j === p - 1 ? (y - middle) / width : x[j]! * transform[j * p + j]! + transform[j * p + p - 1]!;
  return Float64Array.of(z > list[item % list.length]! ? 1 : Number.isNaN(z) ? 0 : -1);
}

/** The limit below which a random word selects a query with this probability. */
function threshold(share: number): [number, number] {
  const exact = BigInt(Math.floor(share * 2 ** 64));
  return halves(exact < 1n << 64n ? exact : (1n << 64n) - 1n);
}

const clip = (value: number, most: number): number => Math.min(Math.max(value, -most), most);

/** A score, or the v of a matrix v v': no longer than 1. */
function answer(
  { x, y }: Pick<Coded, "x" | "y">,
  { origin, transform, exponent }: Model,
  clippingNorm: number,
  binary: boolean,
  query: Query,
  weighed: boolean,
): Vector {
  const p = x.length;
  const out = new Float64Array(p);
  let logit = 0;
  let largest = 0;
  let square = 0;
  for (let j = 0; j < p; j++) {
    logit += x[j]! * origin[j]!;
    let z = 0;
    for (let k = 0; k < p; k++) z += transform[j * p + k]! * x[k]!;
    out[j] = z;
    largest = Math.max(largest, Math.abs(z));
  }
  if (largest > 0)
    for (let j = 0; j < p; j++) {
      out[j]! /= largest;
      square += out[j]! * out[j]!;
    }
  const norm = Math.sqrt(square);
  const length = largest * norm;
  logit = clip(logit, LARGEST_LOGIT);
  let high = 1;
  let low = -1;
  if (binary) {
    high = Math.min(1, Math.exp(-exponent * logit));
    low = -Math.min(1, Math.exp(exponent * logit));
  }
  let scale: number;
  if (query === "score") {
    scale = binary ? (y > 0.5 ? high : low) : clip(y, 1);
    scale *= length > 0 ? Math.min(1, clippingNorm / length) : 0;
  } else {
    let weight = 0.5;
    if (query === "curvature" && binary) {
      const probability = 1 / (1 + Math.exp(-logit));
      weight = probability * (1 - probability) * (high - low);
    }
    scale = Math.sqrt((2 * weight * Math.min(length, clippingNorm)) / clippingNorm);
  }
  let finite = (query === "scatter" && !weighed) || y === y;
  const factor = norm > 0 ? scale / norm : 0;
  for (let j = 0; j < p; j++) {
    out[j]! *= factor;
    finite &&= out[j]! - out[j]! === 0;
  }
  return finite ? out : out.fill(0);
}

/** The score for K classes: (K - 1) p numbers. With the constant alone, people without a target count as the last class. */
function classScore({ x, y }: Pick<Coded, "x" | "y">, model: Model, basis: Vector, classes: number): Vector {
  const p = x.length;
  const c = classes - 1;
  const { origin, exponent } = model;
  // For a real target of 1 the score is the direction c z.
  const unit = answer({ x, y: 1 }, { ...model, exponent: 0 }, model.clippingNorm, false, "score", false);
  const out = new Float64Array(c * p);
  const odds = new Float64Array(classes);
  let top = -Infinity;
  let total = 0;
  let square = 0;
  let least = 1;
  for (let k = 0; k < classes; k++) {
    for (let a = 0; a < c; a++)
      for (let j = 0; j < p; j++) odds[k]! += basis[k * c + a]! * exponent * origin[a * p + j]! * x[j]!;
    top = Math.max(top, odds[k]!);
  }
  for (let k = 0; k < classes; k++) {
    odds[k] = Math.exp(odds[k]! - top);
    total += odds[k]!;
  }
  for (let k = 0; k < classes; k++) {
    odds[k]! /= total;
    square += odds[k]! * odds[k]!;
    least = Math.min(least, odds[k]!);
  }
  const largest = Math.sqrt(1 - 2 * least + square);
  const there = y >= 0 && y < classes;
  const label = there ? y : classes - 1;
  let finite = there || p === 1;
  for (let a = 0; a < c; a++) {
    let residual = 0;
    for (let k = 0; k < classes; k++) residual -= basis[k * c + a]! * odds[k]!;
    if (there || p === 1) residual += basis[label * c + a]!;
    for (let j = 0; j < p; j++) {
      out[a * p + j] = (residual / largest) * unit[j]!;
      finite &&= out[a * p + j]! - out[a * p + j]! === 0;
    }
  }
  unit.fill(0);
  odds.fill(0);
  return finite ? out : out.fill(0);
}

/** The answers of a task of scores. */
export function scores(task: Task, p: number): Protocol {
  const { target } = task;
  const binary = target.kind === "binary";
  const classes = target.classes?.length ?? 0;
  const c = Math.max(classes - 1, 1);
  const basis = contrasts(Math.max(classes, 1));
  const block = (task.scores ?? {}) as { exponent?: number | null; interactive?: boolean; models?: string };
  const once = block.interactive === false;
  const weighed = mostRows(task) > 1;
  const matrices = !once || matrixSize(p) <= MOST_NUMBERS;
  const moment = secondMoment(task, p);
  const asksFirst = !once && !moment && p > 1;
  const mechanisms = levelsOf(task, (cap: Loss) => {
    const score = calibrate(kindFor(task, cap), cap, c * p, 1);
    const bit = asksFirst ? calibrate(score.kind, cap, 1, 1) : score;
    return { score, matrix: matrices ? outerOf(score.kind, cap, p) : null, bit };
  });
  const { partitions } = task.log;
  const columns = asksFirst ? locationsOf(task).map(Boolean) : [];
  const separate = block.models === "shared" ? 1 : partitions;
  const asksTarget = asksFirst && target.kind === "real" && separate === 1;
  if (asksTarget) columns.push(true);

  /** Versions at which rounds of the survey begin, and the version at which the last one ends. */
  const rounds = (): number[] => {
    if (!asksFirst) return [0];
    const { moments, variance } = mechanisms.get("default")!.bit;
    const count = columns.filter(Boolean).length;
    let each = 20 * (1 + (moments ? moments[1] - 1 : variance));
    const people = task.people as number | null | undefined;
    if (people != null)
      each *= Math.min(1, (0.1 * Math.floor(people / separate)) / (each * (columns.length + (ROUNDS - 1) * count)));
    const [first, later] = [Math.max(Math.ceil(each * columns.length), 1), Math.max(Math.ceil(each * count), 1)];
    return count ? [0, ...Array.from({ length: ROUNDS }, (_, place) => first + place * later)] : [0, first];
  };
  let starts: number[] | undefined;

  const initial = (): Vector => {
    const flat = new Float64Array(c * p + p * p + NUMBERS);
    const model = modelOf(flat, p);
    if (asksFirst) {
      for (let j = 0; j < p - 1; j++) model.transform[j * p + j] = columns[j] ? 1 : 3;
      model.transform[p * p - 1] = 1;
      flat.set([1, 1, 0, 0, 1, 0, asksTarget ? 1 : 0], flat.length - NUMBERS);
      return flat;
    }
    if (moment) model.transform.set(whitening(moment, p));
    else for (let i = 0; i < p; i++) model.transform[i * p + i] = 1;
    if (once && !moment)
      statedOf(task)?.forEach(([centre, spread], j) => {
        model.transform[j * p + j] = 1 / spread;
        model.transform[j * p + p - 1] = -centre / spread;
      });
    let shares = classes ? [0.375, 0.125] : [0, 0.5];
    if (moment) shares = [0, 0.1];
    if (!matrices) shares = [0, 0];
    const typical = Math.sqrt(p);
    let clippingNorm = 1e4;
    if (classes && moment) clippingNorm = 1.3 * typical;
    else if (!moment && !once) {
      const { variance } = mechanisms.get("default")!.matrix!;
      clippingNorm = Math.min(2 * typical, Math.max(1.3 * typical, 32 / (p * Math.sqrt(variance))));
    }
    flat.set([clippingNorm, once ? 1 : (block.exponent ?? 1), ...shares, 0, 0, 1], flat.length - NUMBERS);
    // To nine significant digits, as models are published.
    return flat.map((value) => Number(value.toPrecision(9)));
  };

  let first: Vector | undefined;
  const pick = (level: string, query: Query | undefined): ReturnType<Protocol["mechanism"]> => {
    const { score, matrix, bit } = mechanisms.get(level)!;
    if (query?.startsWith("above")) return bit;
    return query === "score" || matrix === null ? score : matrix;
  };
  return {
    kind: "score",
    modelSize: once ? 0 : c * p + p * p + NUMBERS,
    shared: !once && block.models === "shared",
    versioned: true,
    get initial() {
      return (first ??= initial());
    },
    check(flat, version) {
      // Versions of shared models count the releases of all partitions.
      const kept = (task.forget ?? 0) * (block.models === "shared" ? task.log.partitions : 1);
      const longest = kept ? Math.floor(kept / REMEMBERED) : 2 ** 52;
      starts ??= rounds();
      const end = starts[starts.length - 1]!;
      const begins = version < end ? starts.includes(version) : version - end === roundStart(version - end, longest);
      if (!begins) hostile("no round begins at its version");
      const model = modelOf(flat, p);
      const { origin, transform, clippingNorm, exponent, scatter, curvature, survey, middle, width } = model;
      if (!(survey in THRESHOLDS)) hostile("it names no list of a survey's thresholds");
      if (survey && !surveyed(model, p).length) hostile("it asks about no feature");
      if (!(Math.abs(middle) <= 1 && width >= (survey ? 0 : 1e-6) && width <= 1)) hostile("its targets are not within [-1, 1]");
      if (!origin.every((value) => Math.abs(value) <= 1e4)) hostile("its origin has numbers beyond 1e4");
      if (!transform.every((value) => Math.abs(value) <= 1e8)) hostile("its transform has numbers beyond 1e8");
      if (!(clippingNorm > 0 && clippingNorm <= 1e4)) hostile("its clipping norm is not between 0 and 1e4");
      if (!(exponent >= 0 && exponent <= 1)) hostile("its exponent is not between 0 and 1");
      if (!(scatter >= 0 && curvature >= 0 && scatter + curvature <= 1)) hostile("its shares are not probabilities");
      if (!matrices && scatter + curvature > 0) hostile("it asks for matrices, which nobody releases");
    },
    drawQuery(flat, words) {
      const model = modelOf(flat, p);
      const { scatter, curvature, survey } = model;
      words.next(Purpose.QUERY);
      if (survey) {
        const items = surveyed(model, p).length * THRESHOLDS[survey]!.length;
        return `above-${Math.floor((words.hi * items) / 2 ** 32)}`;
      }
      if (below(words, ...threshold(scatter))) return "scatter";
      return below(words, ...threshold(scatter + curvature)) ? "curvature" : "score";
    },
    vector(coded, flat, query) {
      const model = modelOf(flat, p);
      if (query!.startsWith("above")) return above(coded, model, Number(query!.slice(6)));
      if (classes && query === "score") return classScore(coded, model, basis, classes);
      if (!binary && !classes) coded = { x: coded.x, y: (coded.y - model.middle) / model.width };
      const clippingNorm = query === "score" ? model.clippingNorm : Math.min(model.clippingNorm, 2 * Math.sqrt(p));
      return answer(coded, model, clippingNorm, binary, query!, weighed);
    },
    averages: (query) => !query!.startsWith("above"),
    mechanism: pick,
    cost(level, currency) {
      const costs = (["score", "curvature", "above-0"] as const).map((query) => pick(level, query).cost(currency));
      return costs.reduce((dearest, cost) => (!dearest || !cost || dearest.units >= cost.units ? dearest : cost));
    },
  };
}
