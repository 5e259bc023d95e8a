/**
 * The person's ledger: caps, what was spent, and releases that wait to be sent.
 *
 * A debit and the release's frozen bytes are one transaction, before anything is sent. A record that is
 * known is never released again, and what was spent stays spent.
 */
import { capOf, type Currency, type Guarantee, type Loss } from "./mechanisms.js";
import type { Sealed } from "./held.js";
import { isKnown } from "./known.js";
import type { Answer } from "./memos.js";
import type { Prepared } from "./release.js";
import type { Changes, Rows, Store } from "./store.js";
import { type Moment, within } from "./time.js";
import { repeatsAnswers } from "./task.js";
import { beginOf, renewalOf, windowOf } from "./windows.js";
import { Refused } from "./errors.js";

const LEAST_SILENCE = 86_400;
const PATIENCE = 30_000; // milliseconds for an account to answer
const AGREE = 3600; // seconds by which the clocks may differ when a budget renews
const DRIFT = 0.01; // further seconds by which a clock may fall behind in each second
const CURRENCIES: Currency[] = ["gdp", "rho", "epsilon", "approx"];

/** What this device allows, whatever a task asks for. */
export interface Policy {
  /** Cap over all tasks. */
  readonly lifetime?: Guarantee | undefined;
  /** Largest cap that a task may have. */
  readonly perTask?: Guarantee | undefined;
  /** Kinds of mechanism that may be used; all by default. */
  readonly mechanisms?: readonly string[] | undefined;
  /** Whether columns that a task calls known may be sent as they are; true by default. */
  readonly knownColumns?: boolean | undefined;
}

/**
 * Whether a device without a ledger may spend at once. It may have had a ledger whose storage was wiped.
 *
 * `wait`: it keeps silent for the task's `expiry`, at least a day. A function asks a service that knows the person's
 * account and answers true once for each account, so that a person whose ledger was wiped cannot begin again.
 */
export type First = "wait" | ((identity: string) => Promise<boolean>);

type Spent = { [currency in Currency]?: [string, string] | null };

interface TaskRow {
  name: string;
  released: number;
  spent: Spent;
  withdrawn?: boolean;
  refused?: number;
  sent?: number;
  days: string[];
  /** Number of the releases that repeat an answer. */
  repeated?: number;
  /** The newest release, which a person may want to see again. */
  message?: string;
  renewed?: Renewed;
  begun?: Begun;
}

/** Of a budget that renews: the newest window with a release, and what was spent and released in it. Windows never go back. */
interface Renewed {
  newest: number;
  windows: number;
  spent: Spent;
  released: number;
}

/** The newest window that has begun, and when it began by the device's own clock. */
interface Begun {
  window: number;
  own: number;
  /** Seconds by which the best estimate of the time may be ahead of the device's clock. */
  ahead: number;
  /** Whether the clocks disagreed about its beginning, so that nothing is released in it. */
  skipped: boolean;
}

/** A record that is held until its window ends: the one drawn so far from `count`. */
export interface HeldRow {
  readonly key: string;
  readonly window: number;
  readonly level: string;
  readonly count: number;
  /** When it is due to be released, in seconds since 1970. */
  readonly due: number;
  readonly record: string;
}

/** The next record of a window: its number in the window, and the encrypted record if it is the one held from now on. */
export interface Next {
  readonly count: number;
  readonly sealed: Sealed | undefined;
}

interface IdentityRow {
  id: string;
  /** When the ledger began, by the device's own clock and by the gateway's. */
  born: number;
  there: number | null;
  claimed: boolean;
}

/** The task that a gateway had under a name when something was last spent or withdrawn. */
interface UsedRow {
  hash: string;
  withdrawn?: boolean;
}

/** Where a task comes from, and whether the page pinned its hash. */
export interface Origin {
  readonly gateway: string;
  readonly pinned: boolean;
}

/** A release that waits to be sent. */
export interface Waiting {
  readonly key: string;
  readonly task: string; // its hash
  readonly name: string;
  readonly gateway: string;
  readonly bytes: string;
  readonly expires: number;
}

/** What became of a request to release. */
export type Outcome =
  | { readonly outcome: "released"; readonly bytes: string }
  | { readonly outcome: "known" }
  | { readonly outcome: "refused"; readonly reason: string };

/** What an answer must suit: the stored memo, and whether only its answer may be given, because a cap is spent. */
export interface Asked {
  readonly outcome: "asked";
  readonly memo: string | undefined;
  readonly only: boolean;
}

/** A task's account, for a consent card. */
export interface Account {
  readonly name: string;
  readonly released: number;
  /** How many of the releases repeat an earlier answer, at no cost. */
  readonly repeated: number;
  readonly waiting: number;
  /** Releases that the gateway has accepted. */
  readonly sent: number;
  /** Amount spent and cap, in the cap's currency, in units of 1e-12 (delta: 1e-15); null if the amount is not known in it. */
  readonly caps: readonly {
    readonly cap: Loss;
    /** Whether the cap holds in each window; then `spent` is that of the current window. */
    readonly renews: boolean;
    readonly spent: bigint | null;
    readonly spentDelta: bigint;
  }[];
  readonly withdrawn: boolean;
  /** Days of the releases, as in 2026-01-31, and the newest message; both empty before the first release. */
  readonly days: readonly string[];
  readonly message: string;
  /** Whether the gateway now has another task under the name of one that was answered, and the page pins no hash. */
  readonly changed: boolean;
  /** Whether the caps have room for one more release. */
  readonly room: boolean;
  /** When the budget renews and another answer may be given, in seconds since 1970; null if that is now, or never. */
  readonly next: number | null;
  /** Windows for which a record is held. */
  readonly held: number;
}

const read = <T>(rows: Rows, key: string): T | undefined => {
  const text = rows.get(key);
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new Refused("storage", "the device's ledger is damaged: nothing is released");
  }
};

function plus(spent: Spent, cost: (currency: Currency) => Loss | null): Spent {
  const total: Spent = {};
  for (const currency of CURRENCIES) {
    const before = spent[currency] === undefined ? ["0", "0"] : spent[currency];
    const own = cost(currency);
    // After a release without a cost in a currency, no cap in this currency has room.
    total[currency] =
      before === null || own === null
        ? null
        : [String(BigInt(before[0]!) + own.units), String(BigInt(before[1]!) + own.delta)];
  }
  return total;
}

function fits(spent: Spent, cap: Loss): boolean {
  const total = spent[cap.currency];
  return total != null && BigInt(total[0]) <= cap.units && BigInt(total[1]) <= cap.delta;
}

interface Cap {
  scope: "window" | "task" | "policy";
  cap: Loss;
}

/** The caps on a release: those that the task promises, in each window and over all windows, and the policy's. */
function capsOf({ task }: Prepared, level: string, policy: Policy): Cap[] {
  const { per_person, lifetime } = task.privacy;
  const caps: Cap[] = [{ scope: renewalOf(task) ? "window" : "task", cap: capOf(per_person ?? task.guarantees.get(level)!) }];
  if (lifetime) caps.push({ scope: "task", cap: capOf(lifetime) });
  if (policy.perTask) caps.push({ scope: "policy", cap: capOf(policy.perTask) });
  return caps;
}

/** What was spent and released in a window; nothing before its first release. */
const inWindow = ({ renewed }: TaskRow, window: number | undefined): Pick<Renewed, "spent" | "released"> =>
  renewed && renewed.newest === window ? renewed : { spent: {}, released: 0 };

/** Why an account has no room for a release; undefined if it has. */
function lacking(
  prepared: Prepared,
  level: string,
  policy: Policy,
  row: TaskRow,
  window: number | undefined,
  all: Spent,
): string | undefined {
  const cost = (currency: Currency): Loss | null => prepared.protocol.cost(level, currency);
  if (row.renewed && window! < row.renewed.newest) return "late";
  const current = inWindow(row, window);
  // Without a cap people release once: a release at a small level would leave room for another one.
  const count = window === undefined ? row.released : current.released;
  if (!prepared.task.privacy.per_person && count > 0) return window === undefined ? "task-cap" : "window-cap";
  for (const { scope, cap } of capsOf(prepared, level, policy))
    if (!fits(plus(scope === "window" ? current.spent : row.spent, cost), cap)) return `${scope}-cap`;
  return policy.lifetime && !fits(plus(all, cost), capOf(policy.lifetime)) ? "lifetime-cap" : undefined;
}

/**
 * Whether a person may only repeat their last answer, as they have reached a cap that does not renew. If they answered
 * only while their record is unchanged, their silence would tell that it has changed.
 */
const isSpent = (reason: string | undefined): boolean => /^(task|policy|lifetime)-cap$/.test(reason ?? "");

/**
 * The newest window that has begun. A clock that jumps renews nothing: a window that begins sooner by the best estimate
 * of the time than by the device's own clock has no answer, and the next window must have begun by both clocks. The
 * gains of all windows are added up, except for a drift.
 */
function beginning(begun: Begun | undefined, window: number, { now, own, there }: Moment): Begun {
  if (begun && window <= begun.window) return begun;
  const ahead = now - own;
  const limit = begun ? begun.ahead + DRIFT * Math.max(0, own - begun.own) : ahead;
  const skipped = ahead > limit + AGREE;
  // Without the gateway's time the difference of the clocks is unknown.
  const least = begun && there === null ? begun.ahead : Math.min(ahead, limit);
  return { window, own: Math.floor(own), ahead: Math.floor(skipped ? ahead : least), skipped };
}

/** 128 random bits. */
const randomText = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

const memoKey = (hash: string): string => `memo:${hash}`;
const heldKey = (hash: string, window: number): string => `held:${hash}:${window}`;
const taskKey = (hash: string): string => `task:${hash}`;
const placeOf = ({ gateway }: Origin, { task }: Prepared): string => `${gateway} ${task.name}`;
const armKey = (origin: Origin, prepared: Prepared): string => `arm:${placeOf(origin, prepared)}`;
const usedKey = (origin: Origin, prepared: Prepared): string => `used:${placeOf(origin, prepared)}`;

/** Whether a gateway offers another task than before, which would have a budget of its own. */
function isChanged(used: UsedRow | undefined, { task }: Prepared, { pinned }: Origin): boolean {
  return used !== undefined && used.hash !== task.hash && !pinned;
}

/** Seconds that a ledger has existed, by the clock that says the least: a wrong clock must not end the waiting time. */
function age({ born, there }: IdentityRow, { own, there: now }: Moment): number {
  return Math.min(own - born, there === null || now === null ? Infinity : now - there);
}

export class Ledger {
  private constructor(
    private readonly store: Store,
    private readonly policy: Policy,
    private readonly first: First,
    private identity: IdentityRow | undefined,
  ) {}

  /** Open the ledger without writing: it begins with its first release. */
  static async open(store: Store, policy: Policy = {}, first: First = "wait"): Promise<Ledger> {
    for (const cap of [policy.lifetime, policy.perTask]) if (cap) capOf(cap);
    const identity = await store.update(["identity"], (rows) => [read<IdentityRow>(rows, "identity"), {}] as const);
    return new Ledger(store, policy, first, identity);
  }

  /** Whether this device has a ledger, so that a waiting time runs. */
  get begun(): boolean {
    return this.identity !== undefined;
  }

  /** Begin the ledger if there is none, with further rows, and ask whether it may spend at once. */
  async begin(expirySeconds: number, moment: Moment, further: Changes = {}): Promise<void> {
    const known = (this.identity = await this.store.update(["identity"], (rows): [IdentityRow, Changes] => {
      const before = read<IdentityRow>(rows, "identity");
      // If storage was wiped while this page was open, it has another ledger now, or none.
      if (before || this.identity) return [this.identity ?? before!, before ? further : {}];
      const id = randomText();
      const { own, there } = moment;
      const begun = { id, born: Math.floor(own), there: there && Math.floor(there), claimed: false };
      return [begun, { identity: JSON.stringify(begun), ...further }];
    }));
    const { first } = this;
    if (typeof first !== "function" || this.silence(expirySeconds, moment) === 0) return;
    // An account that cannot be asked counts as one that says no.
    const asked = within(first(known.id), PATIENCE, () => new Error("no answer"));
    if ((await asked.catch(() => false)) === true) await this.change({ ...known, claimed: true });
  }

  /** Restart the waiting time if a clock was set back: it must not last until that clock has caught up. */
  async settle(moment: Moment): Promise<void> {
    const { identity } = this;
    if (identity && !identity.claimed && age(identity, moment) < 0) {
      const { own, there } = moment;
      const born = Math.floor(Math.min(identity.born, own));
      await this.change({ ...identity, born, there: there === null ? identity.there : Math.floor(Math.min(identity.there ?? there, there)) });
    }
  }

  private async change(to: IdentityRow): Promise<void> {
    this.identity = await this.store.update(["identity"], (rows): [IdentityRow, Changes] =>
      read<IdentityRow>(rows, "identity")?.id === to.id ? [to, { identity: JSON.stringify(to) }] : [to, {}],
    );
  }

  /**
   * The random identifier by which the arm of an experiment is assigned, which is stored if there is none and `create`
   * is true. It differs from the ledger's identifier, which the service that knows the account may know.
   */
  assignment(prepared: Prepared, origin: Origin, create: boolean): Promise<string | undefined> {
    const key = armKey(origin, prepared);
    return this.store.update([key], (rows): [string | undefined, Changes] => {
      const id = rows.get(key) ?? (create ? randomText() : undefined);
      return [id, id === undefined || rows.has(key) ? {} : { [key]: id }];
    });
  }

  /** Seconds until this ledger may spend for a task; 0 if it may now. */
  silence(expirySeconds: number, moment: Moment): number {
    const { identity, first } = this;
    // A task must not shorten the waiting time to nothing.
    const whole = Math.max(expirySeconds, LEAST_SILENCE);
    if (!identity) return first === "wait" ? whole : 0;
    return identity.claimed ? 0 : Math.min(whole, Math.max(0, whole - age(identity, moment)));
  }

  /**
   * Release a record once: debit its cost and store its bytes, in one transaction.
   *
   * `make` randomizes the record; it is called only if every cap has room, and the record is not read before. Of a task
   * that repeats answers it returns the answer that was made for this memo and decision, or undefined: then nothing is
   * booked, and the outcome says what to make. A record given twice under one `key`, which must not depend on its
   * values, is released once. A `held` record belongs to the window in which it was held, and is deleted with its release.
   */
  async spend(
    prepared: Prepared,
    level: string,
    origin: Origin,
    moment: Moment,
    make: (asked: Asked) => Answer | undefined,
    { key, held }: { key?: string | undefined; held?: HeldRow | undefined } = {},
  ): Promise<Outcome | Asked> {
    const { task, protocol } = prepared;
    const cost = (currency: Currency): Loss | null => protocol.cost(level, currency);
    const own = taskKey(task.hash);
    const used = usedKey(origin, prepared);
    // A gateway that changes its task cannot ask people again.
    const records = key === undefined ? [] : [task.hash, placeOf(origin, prepared)].map((each) => `record:${each}:${key}`);
    const memo = memoKey(task.hash);
    const more = [memo, held?.key ?? `held:${task.hash}:`];
    return this.store.update(["identity", own, "all", used, ...records, ...more], (rows): [Outcome | Asked, Changes] => {
      const { row: before, window, reason, counts, only = false } = this.decide(rows, prepared, level, origin, moment, held?.window);
      const refused = (why: string): [Outcome, Changes] => [
        { outcome: "refused", reason: why },
        counts ? { [own]: JSON.stringify({ ...before, refused: (before.refused ?? 0) + 1 }) } : {},
      ];
      const known = records.some((record) => rows.has(record)) || (held && !rows.has(held.key));
      if (known && (reason === undefined || reason.endsWith("-cap") || reason === "late")) return [{ outcome: "known" }, {}];
      if (reason !== undefined) return refused(reason);
      const asked: Asked = { outcome: "asked", memo: rows.get(memo), only };
      const made = make(asked);
      if (!made || (made.kept && made.kept.sealed.key !== this.store.key?.read())) return [asked, {}];
      const { bytes, kept } = made;
      const repeated = repeatsAnswers(task) && !kept;
      const adding = (total: Spent): Spent => (repeated ? total : plus(total, cost));
      const spent = adding(before.spent);
      const all = adding(read<Spent>(rows, "all") ?? {});
      const current = inWindow(before, window);
      const renewed = window !== undefined && {
        newest: window,
        windows: (before.renewed?.windows ?? 0) + Number(before.renewed?.newest !== window),
        spent: adding(current.spent),
        released: current.released + 1,
      };
      const id = /"id":"([0-9a-f]{32})"/.exec(bytes)![1]!;
      const expires = Number(/"expires":(\d+)/.exec(bytes)![1]!);
      const day = new Date(Math.floor(moment.now / 86_400) * 86_400_000).toISOString().slice(0, 10);
      const after: TaskRow = {
        ...before,
        released: before.released + 1,
        spent,
        days: before.days.includes(day) ? before.days : [...before.days, day],
        ...(renewed && { renewed }),
        ...(repeated && { repeated: (before.repeated ?? 0) + 1 }),
        message: bytes,
      };
      const waiting = { task: task.hash, name: task.name, gateway: origin.gateway, bytes, expires };
      // If the budget of this window is spent, the record held in it cannot be released any more.
      const spentUp = window !== undefined && lacking(prepared, level, this.policy, after, window, all) !== undefined;
      const over = held?.key ?? (spentUp ? heldKey(task.hash, window) : undefined);
      return [
        { outcome: "released", bytes },
        {
          [own]: JSON.stringify(after),
          all: JSON.stringify(all),
          [used]: JSON.stringify({ hash: task.hash }),
          [`out:${id}`]: JSON.stringify(waiting),
          ...Object.fromEntries(records.map((record) => [record, day])),
          ...(over !== undefined && rows.has(over) && { [over]: null }),
          ...(kept && { [memo]: JSON.stringify({ level: kept.level, answer: kept.sealed.text, place: placeOf(origin, prepared) }) }),
        },
      ];
    });
  }

  /**
   * Decide about a release in the current window, or in an `earlier` one in which a record was held. `counts` tells
   * whether a refusal is counted in the account.
   */
  private decide(
    rows: Rows,
    prepared: Prepared,
    level: string,
    origin: Origin,
    moment: Moment,
    earlier?: number,
  ): { row: TaskRow; window?: number | undefined; reason?: string; counts: boolean; only?: boolean } {
    const { task, protocol } = prepared;
    let row = read<TaskRow>(rows, taskKey(task.hash)) ?? { name: task.name, released: 0, spent: {}, days: [] };
    const { kind, kinds = [kind] } = protocol.mechanism(level, "score");
    if (this.policy.mechanisms && !kinds.every((each) => this.policy.mechanisms!.includes(each))) return { row, reason: "mechanism", counts: false };
    if (this.policy.knownColumns === false && task.features.some(isKnown)) return { row, reason: "known-columns", counts: false };
    const identity = read<IdentityRow>(rows, "identity");
    // If storage was wiped while this page was open, it has another ledger now, or none.
    if (!identity || identity.id !== this.identity?.id) return { row, reason: "wiped", counts: false };
    if (this.silence(task.silenceSeconds, moment) > 0) return { row, reason: "new-ledger", counts: false };
    const last = read<UsedRow>(rows, usedKey(origin, prepared));
    if (row.withdrawn || last?.withdrawn) return { row, reason: "withdrawn", counts: true };
    if (isChanged(last, prepared, origin)) return { row, reason: "changed-task", counts: true };
    const renewal = renewalOf(task);
    const window = renewal === undefined ? undefined : (earlier ?? windowOf(renewal, moment.now));
    if (window !== undefined && earlier === undefined) {
      row = { ...row, begun: beginning(row.begun, window, moment) };
      if (row.begun!.window === window && row.begun!.skipped) return { row, reason: "clock", counts: true };
    }
    const reason = lacking(prepared, level, this.policy, row, window, read<Spent>(rows, "all") ?? {});
    if (rows.has(memoKey(task.hash)) && isSpent(reason)) return { row, window, counts: true, only: true };
    return { row, window, counts: true, ...(reason !== undefined && { reason }) };
  }

  /**
   * Hold a record in the current window, or, without a record, learn whether one may be held and its number in the
   * window. It is not stored if another page was faster, or the store's key has changed. Only the first record's `due`
   * counts.
   */
  hold(
    prepared: Prepared,
    level: string,
    origin: Origin,
    moment: Moment,
    due: number,
    next?: Next,
  ): Promise<{ readonly count: number; readonly stored: boolean } | { readonly reason: string }> {
    const { hash } = prepared.task;
    const window = windowOf(renewalOf(prepared.task)!, moment.now);
    const [own, used, key] = [taskKey(hash), usedKey(origin, prepared), heldKey(hash, window)];
    return this.store.update(["identity", own, "all", used, key, memoKey(hash)], (rows): [{ count: number; stored: boolean } | { reason: string }, Changes] => {
      const { row, reason } = this.decide(rows, prepared, level, origin, moment);
      if (reason !== undefined) return [{ reason }, rows.has(own) ? { [own]: JSON.stringify(row) } : {}];
      const before = read<Omit<HeldRow, "key">>(rows, key);
      const count = (before?.count ?? 0) + 1;
      const { sealed } = next ?? {};
      if (next?.count !== count || (sealed && sealed.key !== this.store.key?.read())) return [{ count, stored: false }, {}];
      const place = placeOf(origin, prepared);
      const held = { window, level, count, due: before?.due ?? due, record: sealed?.text ?? before!.record, place };
      return [{ count, stored: true }, { [own]: JSON.stringify(row), [used]: JSON.stringify({ hash }), [key]: JSON.stringify(held) }];
    });
  }

  /** The held records of a task, those of the earliest windows first. */
  held({ task: { hash } }: Prepared): Promise<HeldRow[]> {
    return this.store.update([`held:${hash}:`], (rows) => {
      const all = [...rows.keys()].map((key) => ({ key, ...read<Omit<HeldRow, "key">>(rows, key)! }));
      return [all.sort((one, other) => one.window - other.window), {}] as const;
    });
  }

  /** Delete a held record, or all under a task's name except those of one hash; and the key if nothing else is kept. */
  async drop(prepared: Prepared, origin: Origin, { only, except }: { only?: string; except?: string } = {}): Promise<void> {
    const place = placeOf(origin, prepared);
    await this.store.update(["held:"], (rows) => {
      const chosen = (key: string): boolean =>
        only === undefined ? read<{ place: string }>(rows, key)!.place === place && !(except && key.startsWith(`held:${except}:`)) : key === only;
      const gone = [...rows.keys()].filter(chosen);
      return [undefined, Object.fromEntries(gone.map((key) => [key, null]))] as const;
    });
    // The key is deleted only after the records: a crash must not leave records without their key.
    await this.store.update(["held:", "memo:"], (rows) => {
      if (!rows.size) this.store.key?.write(null);
      return [undefined, {}] as const;
    });
  }

  /** Releases that wait to be sent. */
  waiting(): Promise<Waiting[]> {
    return this.store.update(["out:"], (rows) => [[...rows.keys()].map((key) => ({ key, ...read<Omit<Waiting, "key">>(rows, key)! })), {}] as const);
  }

  /** Delete a release that was accepted or refused for good. */
  delivered({ key, task }: Waiting, accepted: boolean): Promise<void> {
    return this.store.update([taskKey(task), key], (rows): [undefined, Changes] => {
      const row = read<TaskRow>(rows, taskKey(task));
      // Another tab may have sent the release, too.
      if (!row || !rows.has(key)) return [undefined, {}];
      const counted = accepted ? { [taskKey(task)]: JSON.stringify({ ...row, sent: (row.sent ?? 0) + 1 }) } : {};
      return [undefined, { [key]: null, ...counted }];
    });
  }

  /**
   * Stop: delete the releases that wait and the list of known records, and release nothing to this task again. What was
   * spent stays spent. Where nothing was released, nothing is written, and an assignment to an arm is deleted.
   */
  withdraw(prepared: Prepared, origin: Origin): Promise<void> {
    const { task } = prepared;
    const own = taskKey(task.hash);
    const used = usedKey(origin, prepared);
    const records = [task.hash, placeOf(origin, prepared)].map((each) => `record:${each}:`);
    const arm = armKey(origin, prepared);
    return this.store.update([own, used, arm, "out:", "held:", "memo:", ...records], (rows): [undefined, Changes] => {
      if (!rows.has(own) && !rows.has(used)) return [undefined, rows.has(arm) ? { [arm]: null } : {}];
      const before = read<TaskRow>(rows, own) ?? { name: task.name, released: 0, spent: {}, days: [] };
      const last: UsedRow = { hash: task.hash, ...read<UsedRow>(rows, used), withdrawn: true };
      const changes: Changes = { [used]: JSON.stringify(last) };
      for (const key of rows.keys()) {
        if (key.startsWith("record:")) changes[key] = null;
        if (/^(held|memo):/.test(key) && read<{ place: string }>(rows, key)!.place === placeOf(origin, prepared)) changes[key] = null;
        if (!key.startsWith("out:")) continue;
        const one = read<Waiting>(rows, key)!;
        if (one.task !== task.hash && (one.gateway !== origin.gateway || one.name !== task.name)) continue;
        changes[key] = null;
        if (one.bytes === before.message) delete before.message;
      }
      changes[own] = JSON.stringify({ ...before, withdrawn: true });
      return [undefined, changes];
    });
  }

  /** A task's account. */
  account(prepared: Prepared, level: string, origin: Origin, now: number): Promise<Account> {
    const { task } = prepared;
    const own = taskKey(task.hash);
    const used = usedKey(origin, prepared);
    const renewal = renewalOf(task);
    return this.store.update([own, "out:", "all", used, `held:${task.hash}:`, memoKey(task.hash)], (rows): [Account, Changes] => {
      const row = read<TaskRow>(rows, own) ?? { name: task.name, released: 0, spent: {}, days: [] };
      const last = read<UsedRow>(rows, used);
      const all = read<Spent>(rows, "all") ?? {};
      const keys = [...rows.keys()];
      const waiting = keys.filter((key) => {
        if (!key.startsWith("out:")) return false;
        const { task: hash, expires } = read<Waiting>(rows, key)!;
        return hash === task.hash && expires > now;
      });
      const window = renewal ? windowOf(renewal, now) : undefined;
      const lacks = (at: number | undefined): boolean => {
        const reason = lacking(prepared, level, this.policy, row, at, all);
        return reason !== undefined && !(rows.has(memoKey(task.hash)) && isSpent(reason));
      };
      const skipped = row.begun?.skipped === true && row.begun.window === window;
      const room = !skipped && !lacks(window);
      const following = window === undefined ? 0 : Math.max(window, row.renewed?.newest ?? window) + 1;
      const next = renewal && !room && !lacks(following) ? beginOf(renewal, following) : null;
      const caps = capsOf(prepared, level, this.policy).map(({ scope, cap }) => {
        const total = (scope === "window" ? inWindow(row, window).spent : row.spent)[cap.currency];
        const spent = total === undefined ? 0n : total && BigInt(total[0]);
        return { cap, renews: scope === "window", spent, spentDelta: total ? BigInt(total[1]) : 0n };
      });
      const withdrawn = row.withdrawn ?? last?.withdrawn ?? false;
      const changed = isChanged(last, prepared, origin);
      const held = keys.filter((key) => key.startsWith("held:")).length;
      const { name, released, repeated = 0, sent = 0, days, message = "" } = row;
      return [{ name, released, repeated, waiting: waiting.length, sent, days, message, caps, withdrawn, changed, room, next, held }, {}];
    });
  }

  close(): void {
    this.store.close();
  }
}
