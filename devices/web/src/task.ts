/** The task: its document, whose hash is taken over the document's own bytes, and the settings that a device reads. */
import { type Guarantee } from "./mechanisms.js";
import { Refused } from "./words.js";

export interface Feature {
  name: string;
  low?: number | string | null;
  high?: number | string | null;
  categories?: string[];
  kind?: "date";
  as?: ("number" | "weekday" | "month")[];
  missing?: number | string;
}

export interface Target {
  name: string;
  kind: "binary" | "classes" | "real";
  positive?: string;
  negative?: string | null;
  classes?: string[];
  low?: number;
  high?: number;
}

/** A resolved task as a log carries it; keys that no device reads are left out. */
export interface TaskDocument {
  name: string;
  features: Feature[];
  target: Target;
  protocol: string;
  objective: string | null;
  privacy: {
    guarantee: Guarantee;
    levels: Record<string, Guarantee>;
    per_person: Guarantee | null;
    mechanism: string | null;
  };
  learner: Record<string, unknown>;
  granularity: string;
  expiry: string;
  covariates: { size: number; points: string; counts: string } | null;
  log: { partitions: number };
  forget?: number;
  max_staleness: { releases: number; share: number };
  [protocol: string]: unknown;
}

/** A task, with the hash that every release carries. */
export interface Task extends TaskDocument {
  readonly hash: string;
  /** Seconds. */
  readonly granularitySeconds: number;
  readonly expirySeconds: number;
  readonly guarantees: ReadonlyMap<string, Guarantee>;
}

const MOST_BYTES = 8 * 2 ** 20;
const LEVEL = /^[A-Za-z0-9_-]{1,32}$/;

function refuse(why: string): never {
  throw new Refused("task", `the task is refused: ${why}`);
}

/** Return the end of a JSON value that begins at `at`, by strings and brackets only. */
function endOf(text: string, at: number): number {
  let depth = 0;
  for (let i = at; i < text.length; i++) {
    const c = text[i]!;
    if (c === '"') {
      for (i++; text[i] !== '"'; i++) if (text[i] === "\\") i++;
      if (depth === 0) return i + 1;
    } else if (c === "{" || c === "[") depth++;
    else if (c === "}" || c === "]") {
      if (depth === 0) return i;
      if (--depth === 0) return i + 1;
    } else if (depth === 0 && c === ",") return i;
  }
  return text.length;
}

/** Return a canonical document without its member `log`, by cutting bytes out of it. */
export function withoutLog(text: string): string {
  const members: string[] = [];
  const seen = new Set<string>();
  for (let at = 1; ; ) {
    if (text[at] !== '"') refuse("white space stands between members");
    const name = endOf(text, at);
    const key = text.slice(at, name);
    if (seen.has(key) || text[name] !== ":") refuse("a key is given twice");
    seen.add(key);
    const end = endOf(text, name + 1);
    if (key !== '"log"') members.push(text.slice(at, end));
    at = end + 1;
    if (text[end] === ",") continue;
    // Every byte is hashed or is the log's: nothing may stand beyond.
    if (text[end] !== "}" || at !== text.length) refuse("something follows its last member");
    return `{${members.join(",")}}`;
  }
}

export function seconds(text: unknown): number {
  const match = /^([0-9]{1,9})([dhms])$/.exec(String(text));
  const value = match ? Number(match[1]) * { d: 86400, h: 3600, m: 60, s: 1 }[match[2] as "d"]! : 0;
  if (!(value >= 1 && value <= 3660 * 86400)) refuse("a duration is out of range");
  return value;
}

async function sha256(text: string): Promise<string> {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const KEYS = new Set(
  (
    "covariates duplicates expiry features forget granularity learner log max_staleness missing name objective " +
    "privacy protocol public schema simulated target"
  ).split(" "),
);
// A key that this device does not know may change what a release means.
const OF_FEATURE = new Set("as categories high kind low missing missing_share name typical unit".split(" "));
const OF_TARGET = new Set("classes high kind low name negative positive rate typical".split(" "));
const OF_LEARNER = new Set(
  (
    "averaging clip delays huber_c intervals radius scale scale_floor scale_start step weighting weights"
  ).split(" "),
);
const OF_BLOCK: Record<string, Set<string>> = {
  scores: new Set(["effects", "exponent", "models"]),
  examples: new Set("batch intercept loss regularization release split truncation".split(" ")),
  moments: new Set("covariance design link loss release solver".split(" ")),
  gradients: new Set(),
};

function known(value: object | null | undefined, keys: Set<string>): void {
  for (const key of Object.keys(value ?? {})) if (!keys.has(key)) refuse(`its key ${key} is not known to this device`);
}

function finite(value: unknown): value is number {
  return typeof value === "number" && Math.abs(value) < Infinity;
}

function texts(value: unknown): boolean {
  return Array.isArray(value) && value.length > 1 && new Set(value).size === value.length && value.every((v) => typeof v === "string");
}

function check(task: TaskDocument): void {
  if (task.schema !== 1) refuse("it was written by another version of Murk");
  if (task.simulated !== false) refuse("it is a simulation, and real records do not belong there");
  if (!(typeof task.protocol === "string" && Object.hasOwn(OF_BLOCK, task.protocol)))
    refuse("its protocol is not one that people's devices answer");
  known(task, new Set([...KEYS, task.protocol]));
  known(task[task.protocol] as object, OF_BLOCK[task.protocol]!);
  known(task.target, OF_TARGET);
  known(task.learner, OF_LEARNER);
  if (!Array.isArray(task.features) || task.features.length < 1 || task.features.length > 10_000)
    refuse("it has no list of features");
  for (const feature of task.features) {
    known(feature, OF_FEATURE);
    const bounded = finite(feature.low) && finite(feature.high) && feature.low < feature.high;
    if (typeof feature.name !== "string" || !(feature.kind === "date" || texts(feature.categories) || bounded))
      refuse("a feature has neither bounds nor categories");
  }
  const { target, privacy } = task;
  const bounded = finite(target?.low) && finite(target.high) && target.low < target.high;
  const fits = { binary: typeof target?.positive === "string", classes: texts(target?.classes), real: bounded };
  if (typeof target?.name !== "string" || !Object.hasOwn(fits, target.kind) || !fits[target.kind]) refuse("its target is damaged");
  if (typeof privacy?.guarantee !== "object" || typeof privacy.levels !== "object") refuse("it has no guarantee");
  for (const level of Object.keys(privacy.levels)) if (level === "default" || !LEVEL.test(level)) refuse("a level's name is damaged");
  const partitions = task.log?.partitions;
  if (!(Number.isInteger(partitions) && partitions >= 1 && partitions <= 4096)) refuse("it has no number of partitions");
}

/**
 * Read a task's canonical document and check it.
 *
 * `hash` is the pinned hash, if the page has one: a server that serves another task is then refused. Raises `Refused`.
 */
export async function readTask(text: string, hash?: string): Promise<Task> {
  let content: TaskDocument;
  if (text.length > MOST_BYTES) refuse("its document is too long");
  try {
    content = JSON.parse(text) as TaskDocument;
  } catch {
    refuse("its document is not JSON");
  }
  if (typeof content !== "object" || content === null || text[0] !== "{") refuse("its document is not an object");
  const found = await sha256(withoutLog(text));
  if (hash !== undefined && hash !== found) throw new Refused("wrong-hash", "the task's hash is not the pinned one");
  try {
    check(content);
  } catch (error) {
    if (error instanceof Refused) throw error;
    refuse("its document is damaged");
  }
  return {
    ...content,
    hash: found,
    granularitySeconds: seconds(content.granularity),
    expirySeconds: seconds(content.expiry),
    guarantees: new Map([["default", content.privacy.guarantee], ...Object.entries(content.privacy.levels)]),
  };
}
