/** Bounded gradients at the newest iterate of a partition (`protocol: gradients`). */
import { ONE, tail } from "./exact.js";
import type { Vector } from "./lattice.js";
import { calibrate } from "./mechanisms.js";
import { contrasts, eigen, hostile, kindFor, levelsOf, type Protocol, secondMoment, statedOf, whitening } from "./protocol.js";
import type { Task } from "./task.js";
import { Refused } from "./errors.js";

const MULTIPLIER = 4; // default unit of an estimated scale's coordinate, above the noise
const UNBOUNDED = 1e6; // largest scale where iterates are not projected

/** Distance from a published version to the next one. */
function spacing(version: number, floor: number): number {
  const widest = Math.max(1, Math.floor(version / 200), Math.min(floor, Math.floor(version / 100)));
  let power = 1;
  while (2 * power <= widest) power *= 2;
  return power;
}

/** E min(Z^2, c^2) of a standard normal Z. */
function kappa(c: number): number {
  const beyond = (2 * Number(tail(BigInt(Math.round(c * 2 ** 60)) << 452n) >> 440n)) / Number(ONE >> 440n);
  const density = Math.exp((-c * c) / 2) / Math.sqrt(2 * Math.PI);
  return 1 - beyond - 2 * c * density + c * c * beyond;
}

function positive(value: unknown, name: string): number {
  if (typeof value === "number" && value > 0 && value <= 1e12) return value;
  throw new Refused("task", `the task's learner.${name} is not a positive number`);
}

/** The second moment of uncorrelated features of stated centres and spreads, or null where none is stated. */
function statedMoment(task: Task, p: number): Vector | null {
  const stated = statedOf(task);
  if (!stated) return null;
  const places: [number, number][] = [...stated, [1, 0]];
  return Float64Array.from({ length: p * p }, (_, at) => {
    const [[a, spread], [b]] = [places[Math.floor(at / p)]!, places[at % p]!];
    return a * b + (at % (p + 1) === 0 ? spread * spread : 0);
  });
}

export function gradients(task: Task, p: number): Protocol {
  const { objective, learner, target } = task;
  const K = objective === "softmax" ? (target.classes ?? []).length : 0;
  const weights = learner.weights as string;
  const known = { squared: [2, 1], median: [0.05, 1] }[objective as "squared"];
  const huber = objective === "huber" || known !== undefined;
  const able = { binary: ["balanced", "logistic"], classes: ["softmax"], real: ["huber", "squared", "median"] }[target.kind];
  if (!able.includes(objective!)) throw new Refused("task", "the task's objective is not known");
  if (!["norm", "mallows", "clip"].includes(weights)) throw new Refused("task", "the task's weights are not known");
  const c = known ? known[0]! : huber ? positive(learner.huber_c, "huber_c") : 0;
  const scaled = objective === "huber" && learner.scale === "estimate";
  const fixed = known ? known[1]! : huber && !scaled ? positive(learner.scale, "scale") : 0;
  const multiplier = positive(learner.scale_multiplier ?? MULTIPLIER, "scale_multiplier");
  const rows = learner.coordinates === "classes" ? K : K - 1;
  const d = K ? rows * p : p + Number(scaled);
  const centre = scaled ? kappa(c) / 2 - (c * c) / 4 : 0;
  const moment = secondMoment(task, p) ?? statedMoment(task, p);
  const transform = moment && whitening(moment, p);
  const basis = rows === K ? Float64Array.from({ length: K * K }, (_, at) => Number(at % (K + 1) === 0)) : contrasts(Math.max(K, 1));

  // The bound of a gradient, from the features' box.
  let [small, large] = [1, p];
  if (transform) {
    const values = eigen(transform, p)[0];
    small *= Math.min(...values) ** 2;
    large *= Math.max(...values) ** 2;
  }
  let reach = Math.min(1, Math.sqrt(large));
  if (weights === "mallows") {
    const peak = Math.SQRT2;
    reach = Math.sqrt(large) < peak ? Math.sqrt(large) : Math.sqrt(small) > peak ? 2 / Math.sqrt(small) : peak;
  }
  let bound = reach * (K ? Math.SQRT2 : huber ? c : 1);
  if (scaled) bound = Math.sqrt(bound * bound + ((multiplier * c * c) / 4) ** 2);
  if (weights === "clip") bound = positive(learner.clip, "clip");

  const mechanisms = levelsOf(task, (cap) => calibrate(kindFor(task, cap), cap, d, bound));
  const unbounded = learner.radius === "unbounded";
  const radius = unbounded ? Infinity : learner.radius == null ? (huber ? 1.5 : 3) : positive(learner.radius, "radius");
  const start = positive(learner.scale_start, "scale_start");
  const floor = Math.floor(task.max_staleness.releases / 64);
  const initial = new Float64Array(d);
  if (scaled) initial[p] = start / multiplier;

  const softmax = (theta: Vector, z: Vector, y: number, weight: number, out: Vector): void => {
    const odds = new Float64Array(K);
    for (let r = 0; r < rows; r++) {
      let score = 0;
      for (let j = 0; j < p; j++) score += theta[r * p + j]! * z[j]!;
      for (let k = 0; k < K; k++) odds[k]! += basis[k * rows + r]! * score;
    }
    let top = odds[0]!;
    for (const each of odds) top = Math.max(top, each);
    let total = 0;
    for (let k = 0; k < K; k++) {
      odds[k] = Math.exp(odds[k]! - top);
      total += odds[k]!;
    }
    for (let r = 0; r < rows; r++) {
      let residual = 0;
      for (let k = 0; k < K; k++) residual += basis[k * rows + r]! * (odds[k]! / total - (k === y ? 1 : 0));
      for (let j = 0; j < p; j++) out[r * p + j] = residual * z[j]! * weight;
    }
    odds.fill(0);
  };

  return {
    kind: "gradient",
    modelSize: d,
    shared: false,
    versioned: true,
    initial,
    check(theta, version) {
      if (version % spacing(version, floor)) hostile("no iterate is published at its version");
      let largest = 1e-300;
      for (let j = 0; j < d - Number(scaled); j++) largest = Math.max(largest, Math.abs(theta[j]!));
      let square = 0;
      for (let j = 0; j < d - Number(scaled); j++) square += (theta[j]! / largest) ** 2;
      if (!(largest * Math.sqrt(square) <= radius * (1 + 1e-9))) hostile("its norm exceeds the task's radius");
      if (!scaled) return;
      const scale = theta[p]! * multiplier;
      const most = unbounded ? UNBOUNDED : Math.max(4, start);
      const least = positive(learner.scale_floor, "scale_floor");
      if (!(scale >= least * (1 - 1e-9) && scale <= most * (1 + 1e-9))) hostile("its scale is out of bounds");
    },
    drawQuery: () => undefined,
    vector({ x, y }, theta) {
      const z = x.slice();
      if (transform)
        for (let i = 0; i < p; i++) {
          let total = 0;
          for (let j = 0; j < p; j++) total += transform[i * p + j]! * x[j]!;
          z[i] = total;
        }
      const out = new Float64Array(d);
      let square = 0;
      let fit = 0;
      for (let j = 0; j < p; j++) {
        square += z[j]! * z[j]!;
        fit += theta[j]! * z[j]!;
      }
      const weight =
        weights === "norm" ? 1 / Math.max(1, Math.sqrt(square)) : weights === "mallows" ? Math.min(1, 2 / square) : 1;
      if (y !== y || fit !== fit) {
        if (scaled) out[p] = -multiplier * centre;
      } else if (K) softmax(theta, z, y, weight, out);
      else if (huber) {
        const u = (y - fit) / (scaled ? theta[p]! * multiplier : fixed);
        const slope = -Math.min(Math.max(u, -c), c) * weight;
        for (let j = 0; j < p; j++) out[j] = slope * z[j]!;
        if (scaled) {
          const half = centre + 0.25 * c * c;
          out[p] = multiplier * ((-0.5 * Math.min(u * u, c * c) + half) * weight - centre);
        }
      } else {
        const miss =
          objective === "balanced"
            ? y > 0.5
              ? -Math.exp(Math.min(-fit, 0))
              : Math.exp(Math.min(fit, 0))
            : 1 / (1 + Math.exp(-Math.min(Math.max(fit, -700), 700))) - y;
        const slope = miss * weight;
        for (let j = 0; j < p; j++) out[j] = slope * z[j]!;
      }
      if (weights === "clip") {
        let norm = 0;
        for (const value of out) norm += value * value;
        norm = Math.sqrt(norm);
        if (norm > bound) for (let j = 0; j < d; j++) out[j]! *= bound / norm;
      }
      z.fill(0);
      return out;
    },
    mechanism: (level) => mechanisms.get(level)!,
    cost: (level, currency) => mechanisms.get(level)!.cost(currency),
  };
}
