/** Known columns: the receiver has them already. Combinations of their values are numbered, and a record's number, its cell, is sent as it is. */
import type { Vector } from "./lattice.js";
import type { Feature, Task } from "./task.js";

export const isKnown = ({ known }: Pick<Feature, "known">): boolean => known === true;

/** Number of a known column's values: its categories, and a missing or undeclared one unless that counts as a category. */
const valuesOf = ({ categories, missing }: Feature): number => categories!.length + Number(missing == null || missing === "indicator");

/** Number of combinations of values. */
export const cellsOf = (features: Feature[]): number => features.reduce((product, feature) => product * valuesOf(feature), 1);

/** The cell of a coded record; the last column's value changes fastest. */
export function cellOf({ features }: Pick<Task, "features">, x: Vector): number {
  let [cell, at] = [0, 0];
  for (const feature of features) {
    const codes = x.subarray(at, at + feature.categories!.length - 1);
    const above = codes.findIndex((code) => code > 0);
    const first = codes.every((code) => code < 0) ? 0 : valuesOf(feature) - 1;
    cell = cell * valuesOf(feature) + (above < 0 ? first : above + 1);
    at += codes.length + Number(feature.missing === "indicator");
  }
  return cell;
}
