/** The task: its document, whose bytes are hashed, and the settings that a device reads. */
import { dayOf, type Value } from "./coding.js";
import { type Experiment, metricsOf } from "./experiment.js";
import { cellsOf, isKnown } from "./known.js";
import { capOf, type Guarantee } from "./mechanisms.js";
import { isWindow, longestOf, renewalOf } from "./windows.js";
import { Refused } from "./errors.js";

/** What a column shows to people. */
interface Wording {
  label?: string;
  description?: string;
  /** What people are shown instead of categories or classes. */
  labels?: Record<string, string>;
}

export interface Feature extends Wording {
  name: string;
  low?: number | string | null;
  high?: number | string | null;
  categories?: string[];
  kind?: "date";
  as?: ("number" | "weekday" | "month")[];
  missing?: number | string | null;
  missing_share?: number | null;
  unit?: unknown;
  typical?: unknown;
  /** Whether the column is sent as it is, without noise, as the receiver has it already. */
  known?: boolean | null;
}

export interface Target extends Wording {
  name: string;
  kind: "binary" | "classes" | "real";
  positive?: string;
  negative?: string | null;
  classes?: string[];
  low?: number;
  high?: number;
  rate?: unknown;
  typical?: unknown;
  missing_share?: unknown;
  quantiles?: number[] | null;
}

/** What people are told before they consent. */
export interface About {
  purpose?: string | null;
  controller?: string | null;
  contact?: string | null;
  notice?: string | null;
  archive?: Archive | null;
}

/** What people are told about an archive of the releases. */
export interface Archive {
  kept: string;
  readers: string;
  writers: string;
}

/** A geometric grid of budgets: each point is a level, named by its number. */
export interface Grid {
  from: number;
  to: number;
}

/** A resolved task as a log carries it; keys that no device reads are left out. */
export interface TaskDocument {
  name: string;
  about?: About | null;
  features: Feature[];
  target: Target;
  protocol: string;
  objective: string | null;
  privacy: {
    guarantee: Guarantee;
    levels: Record<string, Guarantee> | Grid;
    per_person: Guarantee | null;
    /** The windows in each of which `per_person` holds, and a cap over all windows. */
    window?: string;
    lifetime?: Guarantee | null;
    /** `same`: the last answer is sent again while the coded record is unchanged. */
    repeat?: string;
    mechanism: string | null;
  };
  learner: Record<string, unknown>;
  granularity: string;
  expiry: string;
  covariates: { size: number; points: string; counts: string } | null;
  log: { partitions: number };
  forget?: number;
  /** If given, learners keep sums for each window, and a release belongs to the window of its time. */
  track?: { window: string } | null;
  experiment?: Experiment | null;
  /** The largest number of a person's rows that count; if absent, people count alike. */
  weight?: { rows: number };
  max_staleness: { releases: number; share: number };
  [protocol: string]: unknown;
}

/** A task, with the hash that every release carries. */
export interface Task extends TaskDocument {
  readonly hash: string;
  /** Seconds. */
  readonly granularitySeconds: number;
  readonly expirySeconds: number;
  /** Seconds for which a new ledger releases nothing: after storage was cleared, no window may be answered again. */
  readonly silenceSeconds: number;
  readonly guarantees: ReadonlyMap<string, Guarantee>;
}

export const MOST_BYTES = 8 * 2 ** 20;
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

/** Return a canonical document without its member `log`, whose bytes are cut out. */
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
    // Every byte is hashed or belongs to `log`: nothing may follow the document.
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

// A key unknown to this device may change what a release means, so such tasks are refused.
const KEYS =
  "about contrasts covariates duplicates experiment expiry features forget granularity intervals learner log max_staleness missing name " +
  "objective people privacy protocol public schema simulated target track weight";
const OF_BLOCK: Record<string, string> = {
  about: "archive contact controller notice purpose",
  covariates: "counts points size",
  experiment: "arm assigned control guardrail metrics ratios segments",
  intervals: "tightest_at validity",
  learner:
    "averaging clip coordinates delays huber_c intervals radius scale scale_floor scale_multiplier scale_start step " +
    "weighting weights",
  log: "partitions retention",
  max_staleness: "releases share",
  privacy: "guarantee levels lifetime mechanism per_person repeat window",
  public: "file set_aside",
  track: "smooth window windows",
  weight: "rows",
};
const OF_PROTOCOL: Record<string, string> = {
  scores: "effects exponent interactive link loss models",
  examples: "batch for intercept loss newton regularization release split truncation",
  moments: "covariance design link loss release repair solver",
  gradients: "",
  univariate: "",
};
const OF_TARGET = {
  binary: "description kind label labels name negative positive rate",
  classes: "classes description kind label labels name rate",
  real: "description high kind label low name quantiles typical",
};
const OF_FEATURE = "description label missing missing_share name typical unit";
const TINY = 2 ** -1074;
const LARGEST = 1e12;
/** Each number's bounds, as in Python: least, most, and whether it is an integer. Null and absent numbers are defaults. */
const NUMBERS: Record<string, readonly [number, number, 1?]> = {
  duplicates: [1, 2 ** 24, 1],
  forget: [24_000, LARGEST, 1],
  people: [1, LARGEST, 1],
  "examples.batch": [1, 65_536, 1],
  "examples.regularization": [0, 1e6],
  "examples.split": [0.05, 0.95],
  "examples.truncation": [1, 3, 1],
  "intervals.tightest_at": [1000, LARGEST, 1],
  "learner.clip": [TINY, LARGEST],
  "learner.huber_c": [TINY, LARGEST],
  "learner.radius": [TINY, LARGEST],
  "learner.scale": [TINY, LARGEST],
  "learner.scale_floor": [TINY, LARGEST],
  "learner.scale_multiplier": [TINY, LARGEST],
  "learner.scale_start": [TINY, LARGEST],
  "learner.step.alpha": [0, 1],
  "learner.step.eta": [TINY, LARGEST],
  "max_staleness.releases": [1, 1e6, 1],
  "max_staleness.share": [0.02, 0.5],
  "public.set_aside": [2, 1e6, 1],
  "scores.exponent": [0, 1],
  "track.smooth": [0, 52, 1],
  "track.windows": [2, 400, 1],
  "weight.rows": [2, 100, 1],
};
const MOST_CELLS = 1000; // combinations of known columns: more would identify people
const MOST_METRICS = 20;
const MOST_LEVELS = 16;
const MOST_POINTS = 512;
const RATIO = 1.0199;

/** The largest number of a person's rows that count; 1 if people count alike. */
export const mostRows = ({ weight }: Pick<TaskDocument, "weight">): number => weight?.rows ?? 1;

/** Whether a person whose record has not changed repeats their last answer. */
export const repeatsAnswers = ({ privacy }: Pick<TaskDocument, "privacy">): boolean => privacy.repeat === "same";

/** The grid of a task's levels, if it has one. */
export function gridOf(levels: TaskDocument["privacy"]["levels"]): Grid | null {
  return typeof levels.from === "number" || typeof levels.to === "number" ? (levels as Grid) : null;
}

/** The budgets of a grid, ascending. */
function points({ from, to }: Grid): number[] {
  const budgets = [];
  for (let next = from; next < to; next = Number((next * RATIO).toPrecision(6))) budgets.push(next);
  return [...budgets, to];
}

/** Each level's guarantee, by name. */
function guarantees({ guarantee, levels }: TaskDocument["privacy"]): Map<string, Guarantee> {
  const grid = gridOf(levels);
  if (!grid) return new Map([["default", guarantee], ...Object.entries(levels as Record<string, Guarantee>)]);
  const [[kind, figures]] = Object.entries(guarantee) as [[string, Record<string, number>]];
  const name = { pure: "epsilon", approx: "epsilon", gdp: "mu", zcdp: "rho" }[kind]!;
  const own = points(grid).map((budget, i): [string, Guarantee] => [`${i}`, { [kind]: { ...figures, [name]: budget } }]);
  return new Map([["default", guarantee], ...own]);
}

/** The level with the largest budget of the task's grid that does not exceed a person's own. Raises `Refused`. */
export function levelOf(task: TaskDocument, budget: number): string {
  const grid = gridOf(task.privacy.levels);
  if (!grid) throw new Refused("level", "the task has no grid of budgets");
  if (!(budget >= grid.from)) throw new Refused("level", `the budget is below the task's smallest, ${grid.from}`);
  return `${points(grid).filter((point) => point <= budget).length - 1}`;
}
const LAST_DAY = 3_652_059; // 9999-12-31, of days from 0001-01-01
const NAME = /^[a-z0-9-]{1,64}$/;

function allow(value: object | null | undefined, keys: string): void {
  for (const key of Object.keys(value ?? {}))
    if (!keys.split(" ").includes(key)) refuse(`its key ${key} is unknown to this device`);
}

function within(value: unknown, low: number, high: number): value is number {
  return typeof value === "number" && value >= low && value <= high;
}

/** Whether a value is a share above 0 and below 1. */
const share = (value: unknown): boolean => within(value, TINY, 1 - 2 ** -53);

function bounded(low: unknown, high: unknown): boolean {
  return typeof low === "number" && typeof high === "number" && low < high && high - low < Infinity;
}

function isText(value: unknown): value is string {
  return typeof value === "string" && value.length > 0;
}

function texts(value: unknown): value is string[] {
  return within((value as unknown[]).length, 2, 10_000) && distinct(value as unknown[]) && (value as unknown[]).every(isText);
}

function distinct(values: unknown[]): boolean {
  return Array.isArray(values) && new Set(values.map((each) => (isText(each) ? each.normalize() : each))).size === values.length;
}

function isRange(typical: unknown, low: number, high: number, read = (value: unknown): unknown => value): boolean {
  if (typical == null) return true;
  const [first, last, more] = (typical as unknown[]).map(read);
  return within(first, low, high) && within(last, low, high) && first < last && more === undefined;
}

function checkNumbers(task: TaskDocument): void {
  for (const [path, [low, high, whole]] of Object.entries(NUMBERS)) {
    let value: unknown = task;
    for (const key of path.split(".")) value = Object.hasOwn(Object(value), key) ? (value as Record<string, unknown>)[key] : null;
    const words: Record<string, unknown> = { "learner.scale": "estimate", "learner.radius": "unbounded" };
    const word = Object.hasOwn(words, path) && value === words[path];
    if (value !== null && !word && !(within(value, low, high) && (!whole || Number.isInteger(value))))
      refuse(`its ${path} is not between ${low} and ${high}`);
  }
  const { clip, scale_start, scale_floor, weights } = task.learner as Record<string, number>;
  if ((clip == null) === ((weights as unknown) === "clip") || scale_start! < scale_floor!) refuse("its learner is damaged");
}

/** Whether what a column shows to people is text, and is given for categories of the column only. */
function isWorded({ label, description, labels }: Feature | Target, values: string[] = []): boolean {
  const words = [label, description, ...Object.values(labels ?? {})].filter((each) => each != null);
  return words.every(isText) && Object.keys(labels ?? {}).every((each) => values.includes(each));
}

function isFeature(feature: Feature): boolean {
  const { name, categories, kind, missing, missing_share, unit, typical } = feature;
  let [low, high] = [-Infinity, Infinity];
  let read = (value: unknown): unknown => value;
  if (!isText(name) || (!categories && !isWorded(feature)) || (missing_share != null && !share(missing_share))) return false;
  if (kind === "date") {
    allow(feature, `${OF_FEATURE} as high kind low`);
    const parts = feature.as ?? ["number"];
    if (!(distinct(parts) && parts.length && parts.every((part) => ["number", "weekday", "month"].includes(part)))) return false;
    read = (value) => dayOf(value as Value);
    if (parts.includes("number")) {
      [low, high] = [read(feature.low), read(feature.high)] as [number, number];
      if (!within(low, 1, LAST_DAY) || !within(high, 1, LAST_DAY)) return false;
    } else if (feature.low != null || feature.high != null || typical != null) return false;
    if (!(low < high) || (unit != null && !["day", "week", "month", "year"].includes(unit as string))) return false;
  } else {
    if (categories !== undefined) {
      allow(feature, `${OF_FEATURE} categories known labels`);
      if (feature.known != null && !isKnown(feature)) return false;
      return isWorded(feature, categories) && texts(categories) && (missing == null || missing === "indicator" || categories.includes(missing as string));
    }
    allow(feature, `${OF_FEATURE} high low`);
    if (!bounded(feature.low, feature.high) || (unit != null && !within(unit, TINY, Number.MAX_VALUE))) return false;
    [low, high] = [feature.low as number, feature.high as number];
  }
  return (missing == null || missing === "indicator" || within(read(missing), low, high)) && isRange(typical, low, high, read);
}

function areQuantiles(quantiles: number[] | null | undefined): boolean {
  if (quantiles == null) return true;
  const rises = (each: number, place: number): boolean => within(each, 0.001, 0.999) && !(each <= quantiles[place - 1]!);
  return Array.isArray(quantiles) && within(quantiles.length, 1, 16) && quantiles.every(rises);
}

function isTarget(target: Target): boolean {
  if (!isText(target.name) || !Object.hasOwn(OF_TARGET, target.kind)) return false;
  allow(target, `${OF_TARGET[target.kind]} missing_share`);
  if (target.missing_share != null && !within(target.missing_share, 0, 1 - 2 ** -53)) return false;
  const { kind, positive, negative, classes, low, high, rate, typical, quantiles } = target;
  if (!isWorded(target, classes ?? [positive, negative].filter(isText))) return false;
  if (kind === "binary") {
    const other = negative == null || (isText(negative) && negative !== positive);
    return isText(positive) && other && (rate == null || share(rate));
  }
  if (kind === "real") return bounded(low, high) && isRange(typical, low!, high!) && areQuantiles(quantiles);
  const rates = rate == null || ((rate as unknown[]).length === classes!.length && (rate as unknown[]).every(share));
  return texts(classes) && rates;
}

function isExperiment(experiment: Experiment, target: Target, known: Feature[]): boolean {
  const { arm, control, assigned, guardrail, segments = [], metrics = [], ratios = [] } = experiment;
  const arms = known.find(({ name }) => name === arm)?.categories;
  if (!arms?.includes(control) || !segments.every((each) => each !== arm && known.some(({ name }) => name === each))) return false;
  for (const ratio of ratios) allow(ratio, "denominator name numerator");
  const isMetric = (metric: Target): boolean => isTarget(metric) && metric.kind !== "classes" && metric.quantiles == null;
  if (!Array.isArray(metrics) || metrics.length > MOST_METRICS || !metrics.every(isMetric)) return false;
  if (guardrail != null) {
    allow(guardrail, "margin metric worse");
    const { metric } = guardrail;
    if (metric != null && ![target, ...metrics, ...ratios].some(({ name }) => name === metric)) return false;
  }
  if (assigned == null) return true;
  allow(assigned, "by salt shares");
  const { by, salt, shares } = assigned;
  if (by === "device" ? !isText(salt) : by !== "server" || salt != null) return false;
  return shares.length === arms.length && shares.every(share) && Math.abs(shares.reduce((a, b) => a + b) - 1) <= 1e-6;
}

/** Whether a text is the address of a page, so that a link to it runs nothing. */
export const isPage = (text: unknown): text is string => isText(text) && /^https:\/\/[!-~]+$/.test(text);

function isArchive({ kept, readers, writers, ...others }: Archive): boolean {
  return [kept, readers, writers].every(isText) && /^[1-9]\d*[dhms]$/.test(kept) && !Object.keys(others).length;
}

function isAbout({ purpose, controller, contact, notice, archive }: About): boolean {
  const texts = [purpose, controller, contact].every((each) => each == null || isText(each));
  return texts && (notice == null || isPage(notice)) && (archive == null || isArchive(archive));
}

function check(task: TaskDocument): void {
  if (task.schema !== 1) refuse("it was written by another version of Murk");
  if (task.simulated !== false) refuse("it is a simulation, and real records do not belong there");
  const { features, target, privacy, contrasts, protocol } = task;
  if (!(typeof protocol === "string" && Object.hasOwn(OF_PROTOCOL, protocol)))
    refuse("its protocol is not one that people's devices answer");
  allow(task, `${KEYS} ${protocol}`);
  for (const [block, keys] of Object.entries({ ...OF_BLOCK, [protocol]: OF_PROTOCOL[protocol]! })) allow(task[block] as object, keys);
  if (!NAME.test(task.name)) refuse("its name is damaged");
  if (!isAbout(task.about ?? {})) refuse("what it says about itself is damaged");
  checkNumbers(task);
  if (!within((features as unknown[] | null)?.length, 0, 10_000)) refuse("it has no list of features");
  const known = features.filter(isKnown);
  if (known.length && known.length < features.length)
    refuse("it sends some columns as they are and keeps others private, and this device answers tasks of one kind only");
  if ((known.length === features.length) !== (protocol === "univariate") || (protocol === "univariate" && task.public != null))
    refuse("its features do not fit its protocol");
  if (features.length && target?.quantiles != null) refuse("quantiles are learned without features only");
  for (const feature of features) if (!isFeature(feature)) refuse("a feature has neither bounds nor categories, or is damaged");
  if (known.length && !(cellsOf(known) <= MOST_CELLS)) refuse(`its known columns have more than ${MOST_CELLS} combinations of values, which identify people`);
  if (!isTarget(target)) refuse("its target is damaged");
  if (task.experiment != null && !isExperiment(task.experiment, target, known)) refuse("its experiment is damaged");
  if (!distinct([target, ...metricsOf(task), ...features].map(({ name }) => name))) refuse("two of its columns have one name");
  for (const contrast of (contrasts ?? []) as object[]) allow(contrast, "against category feature");
  if (typeof privacy?.guarantee !== "object" || typeof privacy.levels !== "object") refuse("it has no guarantee");
  const grid = gridOf(privacy.levels);
  if (grid) {
    allow(grid, "from to");
    capOf(privacy.guarantee);
    const { from, to } = grid;
    if (!(from >= 1e-9 && from < to && to <= 1e3 && to < from * RATIO ** (MOST_POINTS - 2))) refuse("its grid of levels is damaged");
  }
  const levels = grid ? [] : Object.keys(privacy.levels);
  for (const level of levels) if (level === "default" || !LEVEL.test(level)) refuse("a level's name is damaged");
  if (levels.length > MOST_LEVELS) refuse("it has too many levels");
  if (privacy.per_person != null) capOf(privacy.per_person);
  if (privacy.window !== undefined && privacy.window !== "none" && !isWindow(privacy.window)) refuse("its window is damaged");
  if (privacy.lifetime != null && !renewalOf(task)) refuse("it caps all windows, and has none");
  if (privacy.lifetime != null) capOf(privacy.lifetime);
  const { repeat = "anew", per_person } = privacy;
  if (repeat !== "anew" && !(repeat === "same" && renewalOf(task) && per_person == null && /^(moments|examples|univariate)$/.test(protocol)))
    refuse("its answers cannot be repeated");
  // Metrics that are not drawn would decide whether an answer is repeated.
  if (repeat !== "anew" && metricsOf(task).length) refuse("its answers cannot be repeated beside metrics");
  const alike = { scores: task.public != null, moments: (task.moments as { release?: string } | undefined)?.release !== "observed", univariate: task.experiment != null }[protocol] ?? true;
  if (task.weight !== undefined && (alike || !task.weight?.rows)) refuse("its people count alike, and not as their rows");
  if (task.track != null && (task.track.window !== renewalOf(task) || known.length || !/^(scores|univariate)$/.test(protocol)))
    refuse("its track is not of the window in which a person answers");
  if (!(within(task.log.partitions, 1, 4096) && Number.isInteger(task.log.partitions))) refuse("it has no number of partitions");
  if (seconds(task.expiry) < seconds(task.granularity)) refuse("its expiry is below its granularity");
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
  const [expirySeconds, window] = [seconds(content.expiry), renewalOf(content)];
  return {
    ...content,
    hash: found,
    granularitySeconds: seconds(content.granularity),
    expirySeconds,
    silenceSeconds: Math.max(expirySeconds, window ? longestOf(window) : 0),
    guarantees: guarantees(content.privacy),
  };
}
