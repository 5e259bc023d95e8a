/** Time. A device's own clock may be years off or jump, so the gateway's `Date` corrects it, and waits use a steady clock. */

/** A time in seconds since 1970, by several clocks. */
export interface Moment {
  /** The best estimate. */
  readonly now: number;
  readonly own: number;
  /** By the gateway's clock; null if the gateway has not told its time. */
  readonly there: number | null;
}

// A time before any task existed is that of a clock that was never set.
const EARLIEST = 1_704_067_200;
const LATEST = 4_102_444_800; // the year 2100
const AGREE = 60; // seconds by which two clocks may differ
const FRESH = 3600; // seconds for which the gateway's time is used without asking again

/** Seconds by a clock that nobody can set. */
export const steady = (): number => performance.now() / 1000;

export const plausible = (time: number): boolean => time >= EARLIEST && time < LATEST;

/** Estimates the gateway's time between two of its answers. */
export class Time {
  private seen: { there: number; own: number; still: number } | undefined;

  constructor(private readonly clock: () => number) {}

  private own(): number {
    const time = this.clock();
    return Number.isFinite(time) ? time : 0;
  }

  /** Read an answer's `Date`. */
  note(response: Response): void {
    const there = Date.parse(response.headers.get("Date") ?? "") / 1000;
    if (plausible(there)) this.seen = { there, own: this.own(), still: steady() };
  }

  moment(): Moment {
    const own = this.own();
    if (!this.seen) return { now: own, own, there: null };
    // The larger difference: the device's clock may have been set back, and a steady clock may stop while the machine sleeps.
    const there = this.seen.there + Math.max(own - this.seen.own, steady() - this.seen.still);
    return { now: there, own, there };
  }

  /** Whether to ask the gateway for the time before an irrevocable step that depends on it. */
  get stale(): boolean {
    return this.differs(AGREE) || !this.seen || steady() - this.seen.still > FRESH;
  }

  /** Whether the clocks differ so much that the time is unknown. */
  get unknown(): boolean {
    return this.differs(FRESH) || !plausible(this.moment().now);
  }

  private differs(seconds: number): boolean {
    const { seen } = this;
    return seen !== undefined && !(Math.abs(this.own() - seen.own - (steady() - seen.still)) <= seconds);
  }
}

/** Return the result of `work`, or after some milliseconds reject with the error that `late` returns. */
export async function within<T>(work: Promise<T>, milliseconds: number, late: () => Error): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(late()), milliseconds);
  });
  try {
    return await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}
