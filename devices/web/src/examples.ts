/** Features and target, randomized once (`protocol: examples`). */
import { composite, divided, labelOf } from "./composite.js";
import { added, quantise, type Vector } from "./lattice.js";
import { calibrate, type Guarantee, isPure, type Loss } from "./mechanisms.js";
import { kindFor, levelsOf, located, outerOf, type Protocol, type Randomizer, secondMoment, statedOf, WITHOUT_MODEL } from "./protocol.js";
import type { Task } from "./task.js";
import { Refused } from "./errors.js";

/** (w, a, r, m / sqrt 2) of features, the constant last; coded ones are within [-1, 1]. */
function direction(label: boolean, x: Vector, y: number, coded: boolean): Vector {
  const last = x.length - 1;
  const out = new Float64Array(last + 3);
  let square = 0;
  for (let j = 0; j < last; j++) {
    out[j] = y === y ? (coded ? Math.min(Math.max(x[j]!, -1), 1) : x[j]!) : 0;
    square += out[j]! * out[j]!;
  }
  const inverse = y === y ? 1 / Math.sqrt(square + 1) : 0;
  const target = label ? (y > 0.5 ? 1 : -1) : Math.min(Math.max(y, -1), 1);
  for (let j = 0; j < last; j++) out[j]! *= (label && y === y ? target : 1) * inverse;
  out[last] = inverse;
  out[last + 1] = y === y ? target * inverse : 0;
  out[last + 2] = y === y ? 0 : 1;
  return out;
}

/** v = (x, y) / sqrt(|x|^2 + 1), or zeros without a target. */
function unitVector(label: boolean, x: Vector, y: number, coded: boolean): Vector {
  const p = x.length;
  const along = direction(false, x, label && y === y ? (y > 0.5 ? 1 : -1) : y, coded);
  const shrink = 1 / Math.sqrt(1 + along[p - 1]! * along[p - 1]!);
  const out = along.slice(0, p + 1);
  for (let j = 0; j <= p; j++) out[j]! *= shrink;
  along.fill(0);
  return out;
}

/** y x, (x, y) or (x, scale y). */
function plain(form: "product" | "label" | "real", scale: number, x: Vector, y: number): Vector {
  const last = x.length - 1;
  const out = new Float64Array(last + 1);
  if (y !== y) return out;
  for (let j = 0; j < last; j++) out[j] = Math.min(Math.max(x[j]!, -1), 1);
  if (form === "real") out[last] = scale * Math.min(Math.max(y, -1), 1);
  else {
    out[last] = y > 0.5 ? 1 : -1;
    if (form === "product") for (let j = 0; j < last; j++) out[j]! *= out[last]!;
  }
  return out;
}

/** Gaussian noise on directions: |(w, a)| <= steps and |r| <= a in integers, or the missing point. */
function directions(cap: Loss, p: number): Randomizer {
  const noise = calibrate("gaussian", cap, p + 2, 1);
  const { steps, spacing } = noise;
  const integers = (v: Vector): Vector => {
    const out = new Float64Array(p + 2);
    quantise(false, v.subarray(0, p), spacing, steps, out.subarray(0, p));
    const missing = v[p + 1]! > 0.5;
    if (missing) out.fill(0);
    const bound = missing ? 0 : Math.max(out[p - 1]!, 0);
    const r = v[p]! === v[p]! ? v[p]! / spacing : 0;
    out[p - 1] = bound;
    out[p] = r >= bound ? bound : r <= -bound ? -bound : Math.trunc(r);
    out[p + 1] = missing ? Math.floor((steps * 1414) / 1000) : 0;
    return out;
  };
  return {
    ...noise,
    quantise: integers,
    randomize: (v, words) => added(integers(v), "gaussian", words),
  };
}

/** The mechanism of v v' with the least noise in the worst direction. */
function outerBest(kind: string, cap: Loss, size: number): Randomizer {
  if (kind !== "best" || cap.currency === "gdp" || cap.currency === "rho") {
    return outerOf(kind === "best" ? "gaussian" : kind, cap, size);
  }
  const able = [...(cap.units > 0n ? ["l2-ball", "privunit"] : []), ...(cap.delta > 0n ? ["gaussian"] : [])];
  const worst = ({ moments, variance }: ReturnType<typeof outerOf>): number =>
    moments ? Math.max(moments[0], moments[1] - 1) : variance;
  return able.map((each) => outerOf(each, cap, size)).reduce((best, other) => (worst(other) < 0.99 * worst(best) ? other : best));
}

export function examples(task: Task, p: number): Protocol {
  const { target } = task;
  const block = task.examples as { release: string; split: number; intercept?: boolean };
  const label = target.kind === "binary";
  if (block.release === "cells") throw new Refused("task", "examples released as cells are not known to this device");
  if (!label && target.kind !== "real") throw new Refused("task", "examples have a binary or a real target");
  // The covariates are not used, only checked.
  const stated = secondMoment(task, p) || block.intercept === false ? null : statedOf(task);
  const square = p;
  const inner = Math.sqrt(square - 1);
  const form = label ? (block.release === "joint" ? "product" : "label") : "real";
  const scale = form === "real" && block.release === "joint" ? Math.sqrt(Math.sqrt(1 + 2 * (square - 1)) - 1) : 1;

  const mechanism = (cap: Loss, guarantee: Guarantee): Randomizer => {
    const { release } = block;
    if (release === "outer") return outerBest(kindFor(task, cap), cap, p + 1);
    if (release === "joint") {
      const radius = form === "product" ? Math.sqrt(square) : Math.sqrt(inner * inner + scale * scale);
      return calibrate(task.privacy.mechanism ?? "gaussian", cap, p, radius);
    }
    if (isPure(cap)) throw new Refused("guarantee", "Gaussian noise has no pure guarantee");
    if (release === "directions") return directions(cap, p);
    if (release !== "separate" || p < 2) throw new Refused("task", `the task's release ${release} is not known`);
    const [first, second] = divided(guarantee, cap, block.split, label);
    const features = calibrate("gaussian", first, p - 1, inner);
    return composite([features, label ? labelOf(second) : calibrate("gaussian", second, 1, 1)], null);
  };
  const mechanisms = levelsOf(task, mechanism);
  return {
    kind: "example",
    ...WITHOUT_MODEL,
    vector({ x, y }) {
      const weighted = { outer: unitVector, directions: direction }[block.release];
      if (!weighted) return plain(form, scale, x, y);
      if (!stated) return weighted(label, x, y, true);
      const z = located(x, stated);
      const out = weighted(label, z, y, false);
      z.fill(0);
      return out;
    },
    mechanism: (level) => mechanisms.get(level)!,
    cost: (level, currency) => mechanisms.get(level)!.cost(currency),
  };
}
