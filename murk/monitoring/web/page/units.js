// Scales of a coefficient: coded, or the effect of one unit of its feature on the target.

import { decimals, estimatePlaces, NONE, plusMinus, significant } from "./format.js";

// A scale has log (whether its axis is logarithmic), of(value) to convert, write(value, half) with the interval,
// ends(value, half) for the interval alone, and beside(other, value, half) for another number with the same digits.
const linear = (label, factor, shift, least = null, most = null) => {
  // What is impossible, such as a change of a probability by more than 1, is cut.
  const of = (value) => (value === null ? null : Math.min(Math.max(value * factor + shift, least ?? -Infinity), most ?? Infinity));
  const width = (half) => (half === null ? null : half * factor);
  const places = (value, half) => estimatePlaces(of(value), width(half));
  const cut = (value, half) => [value - half, value + half].some((end) => of(end) !== end * factor + shift);
  const around = (value, half) => `${decimals(of(value - half), places(value, half))} to ${decimals(of(value + half), places(value, half))}`;
  return {
    label, of, log: false,
    write: (value, half) => (half !== null && cut(value, half) ? `${decimals(of(value), places(value, half))} (${around(value, half)})` : plusMinus(of(value), width(half))),
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
  const { label, factor, shift, scale, low, high } = estimate.units[name];
  return scale === "log odds" ? ratios(label, factor, shift) : linear(label + (LABELS[scale] ?? ""), factor, shift, low, high);
}

export const hasUnits = (estimate) => Object.keys(estimate.units).length > 0;

const LABELS = { percent: ", percent", "percentage points": ", percentage points" };

export const areRatios = ({ units }) => Object.values(units).some(({ scale }) => scale === "log odds");

const NATURAL = {
  "log odds": "as the odds ratio per unit of its feature",
  "percentage points": "as the change of the probability per unit of its feature",
};

// A mean, or shares, of a task without features.
export const areMeans = ({ names }) => names.every((name) => /(^|:)intercept$/.test(name));

export function describeScale(estimate, natural) {
  if (!natural || !hasUnits(estimate)) return "in coded units";
  if (areMeans(estimate)) return "in the target's own units";
  return NATURAL[Object.values(estimate.units)[0].scale] ?? "as the effect per unit of its feature";
}
