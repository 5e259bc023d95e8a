// Scales of a coefficient: coded, or the effect of one unit of its feature on the target.

import { decimals, estimatePlaces, NONE, plusMinus, significant } from "./format.js";

// A scale has log (whether its axis is logarithmic), of(value) to convert, write(value, half) with the interval,
// ends(value, half) for the interval alone, and beside(other, value, half) for another number with the same digits.
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
    // Infinity cannot be plotted.
    of: (value) => (Number.isFinite(ratio(value)) ? ratio(value) : null),
    write: (value, half) => (half === null ? significant(ratio(value)) : `${significant(ratio(value))} (${ends(value, half)})`),
    beside: (other) => significant(ratio(other)),
  };
};

const CODED = linear("", 1, 0);

// Coded if a coefficient has no unit.
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

// A mean, or shares, of a task without features.
export const areMeans = ({ names }) => names.every((name) => /(^|:)intercept$/.test(name));

export function describeScale(estimate, natural) {
  if (!natural || !hasUnits(estimate)) return "in coded units";
  return areMeans(estimate) ? "in the target's own units" : NATURAL[estimate.effect];
}
