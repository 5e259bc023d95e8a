/** Windows of time in which budgets renew: days, weeks, months, or a number of days, in UTC, as Python counts them. */
import type { Guarantee } from "./mechanisms.js";

const DAY = 86_400;
const MONDAY = 3; // 1970-01-01 was a Thursday, three days after a Monday
const MOST_DAYS = 3660;
const NAMED = /^(day|week|month)$/;

const daysOf = (window: string): number => ({ day: 1, week: 7, month: 28 })[window] ?? Number.parseInt(window, 10);

export const isWindow = (window: unknown): window is string =>
  typeof window === "string" && (NAMED.test(window) || (/^[1-9][0-9]{0,3}d$/.test(window) && daysOf(window) <= MOST_DAYS));

/** The window in which a task's budget renews; undefined if it does not. */
export function renewalOf({ privacy: { window } }: { privacy: { window?: string } }): string | undefined {
  return window === "none" ? undefined : window;
}

/** A person's cap over all releases to a task, if there is one. */
export function wholeOf({ privacy }: { privacy: { window?: string; per_person: Guarantee | null; lifetime?: Guarantee | null } }): Guarantee | null {
  return (renewalOf({ privacy }) ? privacy.lifetime : privacy.per_person) ?? null;
}

/** The number of the window that contains a time, in seconds since 1970. */
export function windowOf(window: string, time: number): number {
  const day = Math.floor(time / DAY);
  if (window === "month") {
    const date = new Date(day * DAY * 1000);
    return 12 * (date.getUTCFullYear() - 1970) + date.getUTCMonth();
  }
  return Math.floor((window === "week" ? day + MONDAY : day) / daysOf(window));
}

/** When a window begins, in seconds since 1970. */
export function beginOf(window: string, number: number): number {
  if (window === "month") return Date.UTC(1970, number) / 1000;
  return DAY * (number * daysOf(window) - (window === "week" ? MONDAY : 0));
}

/** The time that a release of a window states: the window's first second, or 0 if that is before 1970. */
export const timeOf = (window: string, number: number): number => Math.max(beginOf(window, number), 0);

/** Seconds after a window's end over which devices spread their answers: a quarter of a window. */
export const spreadOf = (window: string): number => (DAY / 4) * daysOf(window);

/** The longest that a window lasts, in seconds. */
export const longestOf = (window: string): number => DAY * (window === "month" ? 31 : daysOf(window));
