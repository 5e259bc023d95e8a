/** Records to features in [-1, 1] and a target, as Python codes them: never an error because of a value. */
import { metricsOf } from "./experiment.js";
import type { Feature, Target, Task } from "./task.js";

/** A raw value: a number, text, a boolean, or nothing. */
export type Value = number | string | boolean | bigint | Date | Temporal | null | undefined;
/** A day of `Temporal`, in browsers that have it. */
interface Temporal {
  readonly [Symbol.toStringTag]: `Temporal.${string}`;
  toString(): string;
}
export type Record_ = { readonly [column: string]: Value };

export interface Coded {
  /** Coded features, metrics if there are any (NaN if missing), and the constant last. */
  x: Float64Array;
  /** The coded target; NaN if it is missing or undeclared. */
  y: number;
  clamped: number;
  missing: number;
}

const enum Cell {
  FINE,
  CLAMPED,
  MISSING,
  OTHER,
}

// What Python's str.strip() removes.
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
const ENDS = new RegExp(`^${SPACE}|${SPACE}$`, "g");
const NUMBER = /^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$/;
const INTEGER = /^[+-]?[0-9]{1,4000}(\.0*)?$/;
const strip = (text: string): string => text.replace(ENDS, "");

function boolean(value: Value): boolean | undefined {
  if (typeof value === "boolean") return value;
  const word = typeof value === "string" ? strip(value).toLowerCase() : "";
  return word === "true" ? true : word === "false" ? false : undefined;
}

/** Return a raw value as a number; NaN if it is missing, undefined if it is not a number. */
function number(value: Value): number | undefined {
  if (typeof value === "number") return value;
  if (value === null || value === undefined) return NaN;
  if (typeof value === "boolean") return Number(value);
  if (typeof value === "bigint") return Math.abs(Number(value)) < Infinity ? Number(value) : undefined;
  if (typeof value !== "string") return undefined;
  const text = strip(value);
  if (NUMBER.test(text)) return Number(text);
  if (text === "" || text.toLowerCase() === "nan") return NaN;
  const truth = boolean(value);
  return truth === undefined ? undefined : Number(truth);
}

/** Return a key by which equal numbers are found: integers that floats cannot represent are compared exactly. */
function exact(value: Value): number | bigint | undefined {
  const found = number(value);
  if (found === undefined || !(Math.abs(found) < Infinity)) return undefined;
  if (Math.abs(found) < 2 ** 53) return found;
  if (typeof value === "bigint") return value;
  if (typeof value === "string") {
    const text = strip(value);
    if (INTEGER.test(text)) return BigInt(text.split(".")[0]!.replace("+", ""));
  }
  return BigInt(found);
}

const DAY = 86_400_000;
const WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(" ");
const MONTHS = (
  "January February March April May June July August September October November December"
).split(" ");
const PARTS = { number: [] as string[], weekday: WEEKDAYS, month: MONTHS };
const TIME = "(?:[01]\\d|2[0-3])(?::?[0-5]\\d(?::?(?:[0-5]\\d|60)(?:[.,]\\d*)?)?)?|24(?::?00(?::?00(?:[.,]0*)?)?)?";
const OFFSET = "[+-](?:[01]\\d|2[0-3])(?::?[0-5]\\d(?::?[0-5]\\d(?:[.,]\\d*)?)?)?";
const ZONE = `Z|UTC|GMT|${OFFSET}|[A-Z][A-Z_]+(?:/[A-Z0-9_+-]+)+`;
const WRITTEN = new RegExp(
  `^(\\d{4}|[+-]\\d{4,9}|\\d{5,9})-(\\d{2})-(\\d{2})(?:[T ](?:${TIME}) ?(?:${ZONE})?)?(?:\\[!?[A-Z0-9_/=:+-]+\\])*$`,
  "i",
);
const CYCLE = 146_097; // days in 400 years, after which the calendar repeats

/** The number of a day, 1 for 0001-01-01; undefined if there is no such day. */
function ordinal(year: number, month: number, day: number): number | undefined {
  // A year between 2000 and 2399 with the same calendar.
  const alike = 2000 + (((year % 400) + 400) % 400);
  const time = Date.UTC(alike, month - 1, day);
  const date = new Date(time);
  if (date.getUTCMonth() !== month - 1 || date.getUTCDate() !== day) return undefined;
  return time / DAY + 719_163 + ((year - alike) / 400) * CYCLE;
}

/** The name of an object's kind, whichever browser window made it; empty for values that are no objects. */
const kindOf = (value: unknown): string =>
  typeof value === "object" && value !== null ? Object.prototype.toString.call(value).slice(8, -1) : "";

/** Unwrap a value: a boxed number or text becomes a plain one, a day of `Temporal` text, and a date one of this window. */
function plain(value: Value): Value {
  const kind = kindOf(value);
  try {
    if (kind === "Date") return new Date(Date.prototype.getTime.call(value));
    if (kind.startsWith("Temporal.")) return String(value);
    return /^(Number|String|Boolean|BigInt)$/.test(kind) ? ((value as object).valueOf() as Value) : value;
  } catch {
    // An object that only claims to be of this kind.
    return value;
  }
}

export function dayOf(value: Value): number | undefined | null {
  if (value === null || value === undefined || (typeof value === "number" && value !== value)) return null;
  if (value instanceof Date) {
    const time = value.getTime();
    if (Number.isNaN(time)) return null;
    // Midnight in UTC is how an input's `valueAsDate` and dates in text give a day, wherever the person is.
    if (time % DAY === 0) return ordinal(value.getUTCFullYear(), value.getUTCMonth() + 1, value.getUTCDate());
    return ordinal(value.getFullYear(), value.getMonth() + 1, value.getDate());
  }
  if (typeof value !== "string") return undefined;
  const text = strip(value);
  if (text === "") return null;
  const match = WRITTEN.exec(text);
  return match ? ordinal(Number(match[1]), Number(match[2]), Number(match[3])) : undefined;
}

/** One column of coded features, or the target. */
interface Column {
  /** Number of coded features. */
  size: number;
  /** Write the coded value into x from `at` on; a missing value may leave entries unchanged. */
  code(value: Value, x: Float64Array, at: number): Cell;
}

function numbers(low: number, high: number): Column {
  return {
    size: 1,
    code(value, x, at) {
      const found = number(value);
      if (found === undefined || Math.abs(found) === Infinity) return Cell.OTHER;
      if (found !== found) return Cell.MISSING;
      x[at] = found < low ? -1 : found > high ? 1 : ((found - low) / (high - low)) * 2 - 1;
      return found < low || found > high ? Cell.CLAMPED : Cell.FINE;
    },
  };
}

/** Return a function that finds a value's index among categories: -1 if missing, -2 if undeclared. */
function finder(categories: (string | null)[], other = -2): (value: Value) => number {
  const found = new Map<string | number | bigint, number>();
  const truths = new Map<boolean, number>();
  const add = <K>(map: Map<K, number>, key: K, index: number): void => {
    if (!map.has(key)) map.set(key, index);
  };
  // Texts that are canonically equal in Unicode are the same text.
  categories.forEach((category, index) => category !== null && found.set(category.normalize(), index));
  categories.forEach((category, index) => category !== null && found.set(category, index));
  categories.forEach((category, index) => {
    if (category === null) return;
    const key = boolean(category) === undefined ? exact(category) : undefined;
    if (key !== undefined) add(found, key, index);
    const word = category.toLowerCase();
    if (/^(true|yes|on|false|no|off)$/.test(word)) add(truths, /^(true|yes|on)$/.test(word), index);
  });
  for (const truth of [false, true]) if (found.has(Number(truth))) add(truths, truth, found.get(Number(truth))!);
  return (value) => {
    if (typeof value === "string" && found.has(value)) return found.get(value)!;
    if (value === null || value === undefined || value !== value) return -1;
    if (typeof value === "string") {
      const text = strip(value);
      if (text === "") return -1;
      const index = found.get(text) ?? found.get(text.normalize());
      if (index !== undefined) return index;
    }
    const truth = boolean(value);
    if (truth !== undefined) return truths.get(truth) ?? other;
    const key = exact(value);
    return (key === undefined ? undefined : found.get(key)) ?? other;
  };
}

function categories(names: string[]): Column {
  const find = finder(names);
  return {
    size: names.length === 2 ? 1 : names.length - 1,
    code(value, x, at) {
      const index = find(value);
      if (index < 0) return index === -1 ? Cell.MISSING : Cell.OTHER;
      if (names.length === 2) x[at] = 2 * index - 1;
      else {
        x.fill(-1, at, at + names.length - 1);
        if (index) x[at + index - 1] = 1;
      }
      return Cell.FINE;
    },
  };
}

function dates(feature: Feature): Column {
  const parts = (feature.as ?? ["number"]).map((part) =>
    part === "number"
      ? ([part, numbers(dayOf(feature.low as string)!, dayOf(feature.high as string)!)] as const)
      : ([part, categories(PARTS[part])] as const),
  );
  return {
    size: parts.reduce((total, [, column]) => total + column.size, 0),
    code(value, x, at) {
      const day = dayOf(value);
      if (day === null || day === undefined) return day === null ? Cell.MISSING : Cell.OTHER;
      let worst: Cell = Cell.FINE;
      for (const [part, column] of parts) {
        const coded =
          part === "number"
            ? day
            : part === "weekday"
              ? WEEKDAYS[(((day - 1) % 7) + 7) % 7]
              : MONTHS[new Date(((((day - 1) % CYCLE) + CYCLE) % CYCLE) * DAY - 719_162 * DAY).getUTCMonth()];
        worst = Math.max(worst, column.code(coded, x, at)) as Cell;
        at += column.size;
      }
      return worst;
    },
  };
}

function targetOf(target: Target): (value: Value) => [number, Cell] {
  if (target.kind === "real") {
    const column = numbers(target.low!, target.high!);
    const out = new Float64Array(1);
    return (value) => {
      out[0] = NaN;
      const cell = column.code(value, out, 0);
      return [out[0]!, cell];
    };
  }
  const find =
    target.kind === "classes"
      ? finder(target.classes!)
      : finder([target.negative ?? null, target.positive!], target.negative == null ? 0 : -2);
  return (value) => {
    const index = find(value);
    return index < 0 ? [NaN, index === -1 ? Cell.MISSING : Cell.OTHER] : [index, Cell.FINE];
  };
}

/** The layout of a task's coded features. */
export interface Coding {
  /** Number of coded features, the constant among them. */
  size: number;
  /** Number of a coded record's numbers without its target: of coded features and metrics. */
  width: number;
  code(record: Record_): Coded;
}

export function codingOf(task: Pick<Task, "features" | "target" | "experiment">): Coding {
  let size = 0;
  const columns = task.features.map((feature) => {
    const column =
      feature.kind === "date"
        ? dates(feature)
        : feature.categories
          ? categories(feature.categories)
          : numbers(feature.low as number, feature.high as number);
    const at = size;
    size += column.size + Number(feature.missing === "indicator");
    return { feature, column, at };
  });
  const metrics = metricsOf(task).map((metric) => ({ name: metric.name, read: targetOf(metric) }));
  const complete = new Float64Array(size + metrics.length + 1).fill(NaN, size);
  complete[size + metrics.length] = 1;
  const fills = columns.map(({ feature, column, at }): [number, number][] => {
    if (feature.missing == null) return [];
    if (feature.missing === "indicator") {
      complete[at + column.size] = -1;
      return [[at + column.size, 1]];
    }
    const coded = new Float64Array(size);
    column.code(feature.missing, coded, at);
    return Array.from({ length: column.size }, (_, i) => [at + i, coded[at + i]!]);
  });
  const target = targetOf(task.target);
  return {
    size: size + 1,
    width: complete.length,
    code(record) {
      const get = (name: string): Value => {
        if (Object.hasOwn(record, name)) return plain(record[name]);
        const key = Object.keys(record).find((each) => each.normalize() === name.normalize());
        return key === undefined ? undefined : plain(record[key]);
      };
      const x = complete.slice();
      let clamped = 0;
      let missing = 0;
      columns.forEach(({ feature, column, at }, index) => {
        const cell = column.code(get(feature.name), x, at);
        if (cell === Cell.CLAMPED) clamped++;
        if (cell < Cell.MISSING) return;
        missing++;
        for (const [place, value] of fills[index]!) x[place] = value;
      });
      const counted = ([value, cell]: [number, Cell]): number => {
        clamped += Number(cell === Cell.CLAMPED);
        missing += Number(cell >= Cell.MISSING);
        return value;
      };
      metrics.forEach(({ name, read }, index) => (x[size + index] = counted(read(get(name)))));
      const y = counted(target(get(task.target.name)));
      return { x, y, clamped, missing };
    },
  };
}
