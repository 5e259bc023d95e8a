/** A guarantee in plain figures. */
import type { Guarantee } from "./mechanisms.js";

/** Phi(x) - 1/2 for x in [0, 40], by a series of positive terms. */
function centralMass(x: number): number {
  let term = x;
  let total = x;
  for (let n = 3; term > total * 1e-17; n += 2) total += term *= (x * x) / n;
  return Math.min(0.5, (total * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI));
}

/** The largest probability with which an attacker tells two records apart; guessing gives 0.5. */
export function maxAttackAccuracy(guarantee: Guarantee): number {
  const { gdp, zcdp } = guarantee;
  if (gdp) return 0.5 + centralMass(Math.min(gdp.mu! / 2, 10));
  if (zcdp) return (1 + Math.min(Math.sqrt(zcdp.rho! / 2), Math.sqrt(-Math.expm1(-zcdp.rho!)))) / 2;
  const { epsilon = 0, delta = 0 } = (guarantee.pure ?? guarantee.approx) as { epsilon?: number; delta?: number };
  return (1 + delta + (1 - delta) * Math.tanh(epsilon / 2)) / 2;
}

/** A probability in percent, rounded up: one decimal, or as many as keep it below 100%. */
export function percent(probability: number): string {
  for (const digits of [1, 2, 4, 6]) {
    const rounded = Math.ceil(probability * 10 ** (digits + 2) - 1e-9) / 10 ** digits;
    if (rounded < 100) return `${rounded.toFixed(digits)}%`;
  }
  return "100%";
}
