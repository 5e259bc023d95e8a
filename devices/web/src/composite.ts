/** Several independent mechanisms in one release, each with a part of the guarantee. */
import { coinThreshold, epsilonOfGdp, floorUnits, logRatio, ONE, type Rational, rational, root, UNITS } from "./exact.js";
import { response, type Vector } from "./lattice.js";
import { type Currency, type Guarantee, isPure, type Loss, pureCost } from "./mechanisms.js";
import { noiseOf } from "./lattice.js";
import type { Randomizer } from "./protocol.js";
import { Refused } from "./errors.js";

/** The largest float that means at most a number, near a start. */
function floatDown(start: number, fits: (value: Rational) => boolean): number {
  let value = start;
  while (!fits(rational(value))) value *= 1 - 2 ** -53;
  return value;
}

function approximate([top, bottom]: Rational): number {
  return Number((top * 10n ** 30n) / bottom) / 1e30;
}

/** Divide a guarantee between two parts; the first gets `share` of epsilon, of rho or of mu^2. */
export function divided(guarantee: Guarantee, cap: Loss, share: number, label: boolean): [Loss, Loss] {
  if (isPure(cap)) throw new Refused("guarantee", "a release with Gaussian noise has no pure guarantee");
  // A share outside of 0 to 1 would give one part more than the budget, and the other a negative amount.
  if (!(share >= 0.05 && share <= 0.95)) throw new Refused("task", "the task's split is not between 0.05 and 0.95");
  const [top, bottom] = rational(share);
  if (cap.currency === "approx") {
    const units = (cap.units * top) / bottom;
    const rest = cap.units - units;
    if (label) return [{ ...cap, units }, { currency: "epsilon", units: rest, delta: 0n }];
    const delta = cap.delta / 2n;
    return [
      { ...cap, units, delta },
      { ...cap, units: rest, delta },
    ];
  }
  const parts = [top, bottom - top] as const;
  if (cap.currency === "rho") {
    const [a, b] = rational(guarantee.zcdp!.rho!);
    return parts.map((part): Loss => {
      const exact: Rational = [a * part, b * bottom];
      const rho = floatDown(approximate(exact) * (1 + 2 ** -52), ([n, d]) => n * exact[1] <= exact[0] * d);
      return { ...cap, units: floorUnits(rho) };
    }) as [Loss, Loss];
  }
  const [a, b] = rational(guarantee.gdp!.mu!);
  return parts.map((part): Loss => {
    const exact: Rational = [a * a * part, b * b * bottom];
    const mu = rational(floatDown(Math.sqrt(approximate(exact)), ([n, d]) => n * n * exact[1] <= exact[0] * d * d));
    return { ...cap, units: (mu[0] * mu[0] * UNITS) / (mu[1] * mu[1]) };
  }) as [Loss, Loss];
}

/** A label under randomized response: its threshold and cost. */
export interface Label {
  readonly threshold: bigint;
  cost(currency: Currency): Loss | null;
}

export function labelOf(cap: Loss): Label {
  const units =
    cap.currency === "gdp" ? epsilonOfGdp(cap.units) : cap.currency === "rho" ? root(2n * cap.units * UNITS) : cap.units;
  if (units <= 0n) throw new Refused("guarantee", "the guarantee allows no release");
  const threshold = coinThreshold(units);
  const other = (1n << 64n) - threshold;
  return { threshold, cost: pureCost(logRatio(threshold, other), ONE) };
}

/** Combine Gaussian parts and at most one label, which comes last. */
export function composite(parts: (Randomizer | Label)[], stated: Loss | null): Randomizer {
  const gaussian = parts.filter((part): part is Randomizer => "dimension" in part);
  const label = parts.find((part): part is Label => "threshold" in part);
  const drawn = gaussian.reduce((total, part) => total + part.dimension, 0);
  const dimension = drawn + (label ? 1 : 0);
  const integers = (v: Vector): Vector => {
    const out = new Float64Array(dimension);
    let at = 0;
    for (const part of gaussian) {
      out.set(part.quantise(v.subarray(at, at + part.dimension))!, at);
      at += part.dimension;
    }
    if (label) out[drawn] = v[drawn]! < 0 ? -1 : 1;
    return out;
  };
  return {
    kind: "composite",
    dimension,
    draws: 1,
    quantise: integers,
    randomize(v, words) {
      const out = integers(v);
      // All parts share one draw of noise.
      const noise = noiseOf("gaussian", drawn, words);
      for (let i = 0; i < drawn; i++) out[i]! += noise[i]!;
      if (label) out[drawn] = response(v[drawn]!, label.threshold, words);
      noise.fill(0);
      return out;
    },
    cost(currency) {
      if (currency === "approx" && stated) return stated;
      const costs = parts.map((part) => part.cost(currency));
      if (!costs.every((cost) => cost !== null)) return null;
      return costs.reduce((a, b) => ({ currency, units: a.units + b.units, delta: a.delta + b.delta }));
    },
  };
}
