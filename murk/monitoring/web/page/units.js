// Two ways to read a coefficient: as it is coded, or as what one unit of its feature does to the target.

import { decimals, estimatePlaces, NONE, plusMinus, significant } from "./format.js";

// What a number is on a scale, and how it is written: log, whether its axis is logarithmic; of(value); write(value, half) with its interval; ends(value, half),
// the interval alone; beside(other, value, half), another number with as many digits as the estimate has.
const linear = (label, factor, shift) => {
  const of = (value) => (value === null ? null : value * factor + shift);
  const width = (half) => (half === null ? null : half * factor);
  const places = (value, half) => estimatePlaces(of(value), width(half));
  return {
    label, of, log: false,
    write: (value, half) => plusMinus(of(value), width(half)),
    ends: (value, half) => decimals(width(half), places(value, half)),
    beside: (other, value, half) => decimals(of(other), places(value, half)),
  };
};

const ratios = (label, factor, shift) => {
  const ratio = (value) => (value === null ? null : Math.exp(value * factor + shift));
  const ends = (value, half) => (value === null ? NONE : `${significant(ratio(value - half))} to ${significant(ratio(value + half))}`);
  return {
    label, ends, log: true,
    // What is beyond all numbers has no place in a plot.
    of: (value) => (Number.isFinite(ratio(value)) ? ratio(value) : null),
    write: (value, half) => (half === null ? significant(ratio(value)) : `${significant(ratio(value))} (${ends(value, half)})`),
    beside: (other) => significant(ratio(other)),
  };
};

const CODED = linear("", 1, 0);

// Coded, too, where a coefficient has no unit.
export function scaleFor(estimate, name, natural) {
  if (!natural || !Object.hasOwn(estimate.units, name)) return CODED;
  const { label, factor, shift } = estimate.units[name];
  return (estimate.effect === "odds ratio" ? ratios : linear)(label, factor, shift);
}

export const hasUnits = (estimate) => Object.keys(estimate.units).length > 0;

const NATURAL = {
  "odds ratio": "as the odds ratio per unit of its feature",
  chance: "as the change of the probability per unit of its feature",
  effect: "as the effect per unit of its feature",
};

export const describeScale = (estimate, natural) => (natural && hasUnits(estimate) ? NATURAL[estimate.effect] : "in coded units");
