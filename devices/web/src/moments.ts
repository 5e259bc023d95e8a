/** Second moments of a record, randomized once (`protocol: moments`). */
import { composite, divided } from "./composite.js";
import type { Vector } from "./lattice.js";
import { calibrate, type Guarantee, isPure, type Loss, type Mechanism } from "./mechanisms.js";
import { boundingOf, checkRoom, eigen, gaussianOf, kindFor, levelsOf, located, type Protocol, type Randomizer, secondMoment, statedOf, WITHOUT_MODEL } from "./protocol.js";
import type { Task } from "./task.js";
import { Refused } from "./errors.js";

/** The layout of a release's numbers. */
interface Layout {
  readonly size: number; // p
  readonly dimension: number;
  readonly clippingNorm: number; // bound of the features' norm, without the constant
  readonly root: number;
  readonly weight: number; // b
  readonly presence: number;
}

/** Shorten features to a norm; the constant stays 1. */
function confine(x: Vector, clippingNorm: number): void {
  const slopes = x.length - 1;
  x[slopes] = 1;
  let largest = 0;
  let square = 0;
  for (let i = 0; i < slopes; i++) {
    if (x[i]! - x[i]! !== 0) x[i] = 0;
    largest = Math.max(largest, Math.abs(x[i]!));
    square += x[i]! * x[i]!;
  }
  if (square <= clippingNorm * clippingNorm) return;
  square = 0;
  for (let i = 0; i < slopes; i++) square += (x[i]! / largest) * (x[i]! / largest);
  for (let i = 0; i < slopes; i++) x[i] = (x[i]! / largest) * (clippingNorm / Math.sqrt(square));
}

function momentsOf(x: Vector, y: number, { root, weight, presence, dimension }: Layout): Vector {
  const p = x.length;
  const out = new Float64Array(dimension);
  const there = presence > 0 && y !== y ? 0 : 1;
  const target = there ? y : 0;
  let at = 0;
  for (let i = 0; i < p; i++) {
    if (at + p < dimension) out[at++] = there * x[i]! * x[i]!;
    for (let j = i + 1; j < p; j++) out[at++] = there * root * x[i]! * x[j]!;
  }
  for (let i = 0; i < p; i++) out[at + i] = weight * x[i]! * target;
  if (presence > 0) out[at - 1] = presence * (2 * there - 1);
  return out;
}

/** Gaussian noise on moments, calibrated to their joint sensitivity; whatever the vector, its record is bounded again. */
function bounded(cap: Loss, layout: Layout, sensitivity: number): Randomizer & Pick<Mechanism, "variance"> {
  const { dimension, size: p, root, weight, presence, clippingNorm } = layout;
  const noise = calibrate("gaussian", cap, dimension, sensitivity / 2);
  const room = 2 * noise.steps - Math.sqrt(dimension) - 2;
  checkRoom(room, noise.steps);
  const spacing = sensitivity / room;
  const steps = 1 / spacing;
  const projected = (v: Vector): Vector => {
    const x = new Float64Array(p);
    const back = 1 / root;
    for (let i = 0, at = 0; i < p; at += p - i, i++) x[i] = i < p - 1 ? v[at + p - 1 - i]! * back : 1;
    let target = v[dimension - 1]! / weight;
    target = target === target ? Math.min(Math.max(target, -1), 1) : 0;
    if (presence > 0 && !(v[dimension - p - 1]! >= 0)) target = NaN;
    confine(x, clippingNorm);
    const out = momentsOf(x, target, layout);
    x.fill(0);
    return out;
  };
  const integers = (v: Vector): Vector => v.map((value) => Math.trunc(value * steps));
  // Added up one after the other, as in Python.
  const mean = (rows: Vector[]): Vector => rows[0]!.map((_, j) => rows.reduce((sum, row) => sum + row[j]!, 0) / rows.length);
  return gaussianOf(dimension, spacing, projected, integers, noise.cost, mean);
}

export function moments(task: Task, p: number): Protocol {
  const block = task.moments as { release: string; design: string };
  const { release } = block;
  if (!["observed", "joint", "separate"].includes(release)) throw new Refused("task", `the task's release ${release} is not known`);
  const binary = task.target.kind === "binary";
  if (!binary && task.target.kind !== "real") throw new Refused("task", "moments have a binary or a real target");
  if (!["bounded", "gaussian"].includes(block.design)) throw new Refused("task", `the task's design ${block.design} is not known`);
  const whole = release !== "separate";
  const observed = release === "observed";

  let r = Math.sqrt(p);
  const moment = secondMoment(task, p);
  if (block.design === "gaussian" && moment) {
    const inner = new Float64Array((p - 1) * (p - 1));
    for (let i = 0; i < p - 1; i++) for (let j = 0; j < p - 1; j++) inner[i * (p - 1) + j] = moment[i * p + j]!;
    const values = eigen(inner, p - 1)[0];
    const largest = Math.max(...values);
    const t = Math.log(1_000_000 / 0.05);
    const sum = values.reduce((a, b) => a + b, 0);
    const squares = values.reduce((a, b) => a + b * b, 0);
    const square = whole ? sum + 2 * Math.sqrt(squares * t) + 2 * largest * t : 5 * largest * values.length * t;
    r = Math.min(r, Math.sqrt(1 + square));
  }
  const stated = moment || !observed ? null : statedOf(task);
  if (stated) {
    let largest = 1;
    for (const [centre, spread] of stated) largest += 2 * ((1 + Math.abs(centre)) / spread) ** 2;
    r = Math.sqrt(1 + Math.min(p - 1 + 3 * Math.sqrt(2 * (p - 1)), ((1 + 1e-9) * (largest - 1)) / 2));
  }
  if (!(r > 1)) throw new Refused("task", "the task's covariates leave no room for features");
  const b = whole ? Math.SQRT2 * r : 1;
  const cross = (p * (p + 1)) / 2 - Number(!observed);
  const presence = observed ? r : 0;
  const square = r ** 4 - 1 + (b * r) ** 2;
  const norm = Math.sqrt(square + presence ** 2);
  const both = b * b <= 2 * r * r ? Math.SQRT2 * (r * r + (b * b) / 2) : 2 * r * b;
  const sensitivity = observed ? Math.max(both, Math.sqrt(square + 4 * presence ** 2)) : both;
  const layout: Layout = {
    size: p,
    dimension: cross + p,
    clippingNorm: Math.sqrt(r ** 2 - 1),
    root: whole ? Math.SQRT2 : 1,
    weight: b,
    presence,
  };

  const mechanism = (cap: Loss, guarantee: Guarantee): Randomizer => {
    const kind = kindFor(task, cap);
    if (!whole) {
      const [first, second] = divided(guarantee, cap, 0.5, false);
      const parts = [calibrate("gaussian", first, cross, r * r), calibrate("gaussian", second, p, b * r)];
      return composite(parts, cap.currency === "approx" ? cap : null);
    }
    if (kind !== "gaussian" && (kind !== "best" || isPure(cap))) return calibrate(kind, cap, layout.dimension, norm);
    const own = bounded(cap, layout, sensitivity);
    if (kind === "gaussian" || cap.currency !== "approx" || cap.units === 0n) return own;
    const pure = calibrate("best", { currency: "epsilon", units: cap.units, delta: 0n }, layout.dimension, norm);
    const noise = observed ? pure.variance : Math.max(...(pure.moments ?? [pure.variance]));
    return noise < 0.99 * own.variance ? pure : own;
  };
  const mechanisms = levelsOf(task, mechanism);
  return {
    kind: "moment",
    ...WITHOUT_MODEL,
    // Whether all levels have Gaussian noise on joint moments.
    averages: () => boundingOf(task).every((level) => mechanisms.get(level)!.averaged),
    vector(coded) {
      const x = stated ? located(coded.x, stated) : coded.x.slice();
      let y = binary ? 2 * coded.y - 1 : coded.y;
      if (y === y) y = Math.min(Math.max(y, -1), 1);
      else if (presence === 0) y = 0;
      // As in Python, a record beyond the bound counts as without a target.
      if (stated && x.subarray(0, p - 1).reduce((sum, value) => sum + value * value, 0) > layout.clippingNorm ** 2) y = NaN;
      confine(x, layout.clippingNorm);
      const out = momentsOf(x, y, layout);
      x.fill(0);
      return out;
    },
    mechanism: (level) => mechanisms.get(level)!,
    cost: (level, currency) => mechanisms.get(level)!.cost(currency),
  };
}
