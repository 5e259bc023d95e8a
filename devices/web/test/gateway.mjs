// A gateway in memory, as a `fetch`: a task, its model, and the releases that it accepted.
export const DAY = 86_400;
export const HOLD = Symbol("no answer");

export function document(changes = {}) {
  const task = {
    covariates: null, duplicates: 65536, expiry: "7d",
    features: [{ high: 35, low: 21, name: "age" }, { categories: ["no", "yes"], name: "same_sex" }],
    granularity: "1d",
    learner: { averaging: "polyak", clip: null, huber_c: 0.5, radius: null, scale: "estimate", scale_floor: 0.01, scale_start: 1, step: "noise-aware", weighting: "inverse-variance", weights: "norm" },
    log: { partitions: 1, retention: "7d" }, max_staleness: { releases: 100, share: 0.02 }, missing: "midpoint", name: "third-child",
    objective: null,
    privacy: { guarantee: { gdp: { mu: 1 } }, levels: {}, mechanism: null, per_person: null },
    protocol: "scores", public: null, schema: 1, scores: { effects: "line", exponent: null }, simulated: false,
    target: { kind: "binary", name: "third_child", negative: "no", positive: "yes" },
    ...changes,
  };
  return JSON.stringify(task);
}

/** A task whose arms devices assign, beside another known column. */
export function experiment(changes = {}, assigned = { by: "device", salt: "checkout-7", shares: [0.5, 0.5] }) {
  return document({
    name: "checkout", protocol: "univariate", scores: undefined,
    features: [{ categories: ["control", "treatment"], known: true, name: "arm" }, { categories: ["web", "ios", "other"], known: true, name: "platform" }],
    target: { kind: "binary", missing_share: 0, name: "bought", negative: "no", positive: "yes" },
    experiment: { arm: "arm", assigned, control: "control", guardrail: null },
    ...changes,
  });
}

/** A mean that people are asked for again and again, and whose answers they repeat. */
export function repeating(privacy = {}, changes = {}) {
  return document({
    protocol: "univariate", scores: undefined, features: [], target: { high: 60, kind: "real", low: 0, name: "minutes" }, expiry: "30d",
    privacy: { guarantee: { gdp: { mu: 1 } }, levels: {}, lifetime: null, mechanism: null, per_person: null, repeat: "same", window: "day", ...privacy },
    ...changes,
  });
}

/** A record that changes every third day. */
export const recordOf = (time) => ({ minutes: (7 * Math.floor(time / (3 * DAY))) % 60 });

export class Gateway {
  accepted = [];
  requests = [];
  answer = () => ({ status: 202 });
  model = null;
  now = 1_800_000_000; // seconds since 1970 of its `Date`; null for none

  constructor(text = document()) {
    this.text = text;
  }

  fetch = async (address, init = {}) => {
    const { pathname } = new URL(address);
    this.requests.push({ pathname, init });
    const date = this.now === null ? {} : { Date: new Date(this.now * 1000).toUTCString() };
    if (pathname.endsWith("/model")) return new Response(this.model, { status: this.model === null ? 204 : 200, headers: date });
    if (!pathname.endsWith("/releases")) return new Response(this.text, { headers: date });
    const { status, headers, body, taken = status === 202 } = this.answer(init.body);
    if (taken) this.accepted.push(init.body);
    if (status === undefined) throw new TypeError("network");
    return new Response(body ?? null, { status, headers: { ...date, ...headers } });
  };

  get posts() {
    return this.requests.filter(({ pathname }) => pathname.endsWith("/releases"));
  }
}

export const record = { age: 28, same_sex: "yes", third_child: "no" };
