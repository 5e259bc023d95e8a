/**
 * The person's ledger: caps, what was spent, and releases that wait to be sent.
 *
 * A debit and the release's frozen bytes are one transaction, before anything is sent. A release is never made again
 * for a record that is known, and what was spent stays spent.
 */
import { capOf, type Currency, type Guarantee, type Loss } from "./mechanisms.js";
import type { Prepared } from "./release.js";
import type { Changes, Rows, Store } from "./store.js";
import { type Moment, within } from "./time.js";
import { Refused } from "./words.js";

const LEAST_SILENCE = 86_400;
const PATIENCE = 30_000; // milliseconds for an account to answer
const CURRENCIES: Currency[] = ["gdp", "rho", "epsilon", "approx"];

/** What this device allows, whatever a server asks for. */
export interface Policy {
  /** Cap over all tasks. */
  readonly lifetime?: Guarantee | undefined;
  /** Largest cap that a task may have. */
  readonly perTask?: Guarantee | undefined;
  /** Kinds of mechanism that may be used; all by default. */
  readonly mechanisms?: readonly string[] | undefined;
}

/**
 * Whether this device may spend at once although it has no ledger yet. It may have had one whose storage was wiped.
 *
 * `wait`: it keeps silent for the task's `expiry`, at least a day. A function asks an account of the team's, which answers true once
 * for each account: then a wiped ledger cannot begin again.
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
  /** The newest release, which a person may want to see again. */
  message?: string;
}

interface IdentityRow {
  id: string;
  /** When it began, by the device's own clock and by what the gateway told. */
  born: number;
  there: number | null;
  claimed: boolean;
}

/** The task that a gateway last had under a name when something was spent or withdrawn. */
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

/** A task's account, for a consent card. */
export interface Account {
  readonly name: string;
  readonly released: number;
  readonly waiting: number;
  /** Releases that the gateway has accepted. */
  readonly sent: number;
  /** Spent and the cap in the cap's currency, in units of 1e-12 (delta: 1e-15); spent is null if it is not known there. */
  readonly caps: readonly { readonly cap: Loss; readonly spent: bigint | null; readonly spentDelta: bigint }[];
  readonly withdrawn: boolean;
  /** Days of the releases, as in 2026-01-31, and the newest message; empty if there is none. */
  readonly days: readonly string[];
  readonly message: string;
  /** Whether the gateway now has another task under the name of one that was answered, and the page pins none. */
  readonly changed: boolean;
  /** Whether the caps have room for one more release. */
  readonly room: boolean;
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
    // A release without a cost in a currency leaves nothing of any cap in it.
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

/** The caps of a release: the task's promise, and the policy's. */
function capsOf({ task }: Prepared, level: string, policy: Policy): { scope: "task" | "policy"; cap: Loss }[] {
  const asked = task.privacy.per_person;
  const caps = [{ scope: "task" as "task" | "policy", cap: capOf(asked ?? task.guarantees.get(level)!) }];
  if (policy.perTask) caps.push({ scope: "policy", cap: capOf(policy.perTask) });
  return caps;
}

const taskKey = (hash: string): string => `task:${hash}`;
const placeOf = ({ gateway }: Origin, { task }: Prepared): string => `${gateway} ${task.name}`;
const usedKey = (origin: Origin, prepared: Prepared): string => `used:${placeOf(origin, prepared)}`;

/** Whether a gateway offers another task than before, which would have a budget of its own. */
function isChanged(used: UsedRow | undefined, { task }: Prepared, { pinned }: Origin): boolean {
  return used !== undefined && used.hash !== task.hash && !pinned;
}

/** Seconds that a ledger has existed, by the clock that says the least: a wrong clock must not end its silence. */
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

  /** Open the ledger, and write nothing: it begins with its first release. */
  static async open(store: Store, policy: Policy = {}, first: First = "wait"): Promise<Ledger> {
    for (const cap of [policy.lifetime, policy.perTask]) if (cap) capOf(cap);
    const identity = await store.update(["identity"], (rows) => [read<IdentityRow>(rows, "identity"), {}] as const);
    return new Ledger(store, policy, first, identity);
  }

  /** Whether this device has a ledger, so that a silence runs. */
  get begun(): boolean {
    return this.identity !== undefined;
  }

  /** Begin the ledger if there is none, with further rows, and ask whether it may spend at once. */
  async begin(expirySeconds: number, moment: Moment, further: Changes = {}): Promise<void> {
    const known = (this.identity = await this.store.update(["identity"], (rows): [IdentityRow, Changes] => {
      const before = read<IdentityRow>(rows, "identity");
      // Storage that was wiped while this page was open has another ledger now, or none.
      if (before || this.identity) return [this.identity ?? before!, before ? further : {}];
      const random = crypto.getRandomValues(new Uint8Array(16));
      const id = Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
      const { own, there } = moment;
      const begun = { id, born: Math.floor(own), there: there && Math.floor(there), claimed: false };
      return [begun, { identity: JSON.stringify(begun), ...further }];
    }));
    const { first } = this;
    if (typeof first !== "function" || this.silence(expirySeconds, moment) === 0) return;
    // An account that cannot be asked is as one that says no.
    const asked = within(first(known.id), PATIENCE, () => new Error("no answer"));
    if ((await asked.catch(() => false)) === true) await this.change({ ...known, claimed: true });
  }

  /** Count the silence anew if a clock was set back: it must not last until that clock catches up. */
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

  /** Seconds until this ledger may spend for a task; 0 if it may now. */
  silence(expirySeconds: number, moment: Moment): number {
    const { identity, first } = this;
    // A task must not shorten the silence to nothing.
    const whole = Math.max(expirySeconds, LEAST_SILENCE);
    if (!identity) return first === "wait" ? whole : 0;
    return identity.claimed ? 0 : Math.min(whole, Math.max(0, whole - age(identity, moment)));
  }

  /**
   * Release a record once: debit its cost and store its bytes, in one transaction.
   *
   * `make` randomizes the record; it is called only if every cap has room, and its record is not read before. `key`
   * identifies a record that may come again, and must not depend on its values.
   */
  async spend(
    prepared: Prepared,
    level: string,
    origin: Origin,
    moment: Moment,
    make: () => string,
    key?: string,
  ): Promise<Outcome> {
    const { task, protocol } = prepared;
    const cost = (currency: Currency): Loss | null => protocol.cost(level, currency);
    const own = taskKey(task.hash);
    const used = usedKey(origin, prepared);
    // A gateway that changes its task asks nobody again.
    const records = key === undefined ? [] : [task.hash, placeOf(origin, prepared)].map((each) => `record:${each}:${key}`);
    const caps = capsOf(prepared, level, this.policy);
    const { kind } = protocol.mechanism(level, "score");
    if (this.policy.mechanisms && !this.policy.mechanisms.includes(kind)) return { outcome: "refused", reason: "mechanism" };
    const lifetime = this.policy.lifetime && capOf(this.policy.lifetime);
    return this.store.update(["identity", own, "all", used, ...records], (rows): [Outcome, Changes] => {
      const identity = read<IdentityRow>(rows, "identity");
      // Storage that was wiped while this page was open has another ledger now, or none.
      if (!identity || identity.id !== this.identity?.id) return [{ outcome: "refused", reason: "wiped" }, {}];
      if (this.silence(task.expirySeconds, moment) > 0) return [{ outcome: "refused", reason: "new-ledger" }, {}];
      const before = read<TaskRow>(rows, own) ?? { name: task.name, released: 0, spent: {}, days: [] };
      const refused = (reason: string): [Outcome, Changes] => [
        { outcome: "refused", reason },
        { [own]: JSON.stringify({ ...before, refused: (before.refused ?? 0) + 1 }) },
      ];
      const last = read<UsedRow>(rows, used);
      if (before.withdrawn || last?.withdrawn) return refused("withdrawn");
      if (isChanged(last, prepared, origin)) return refused("changed-task");
      if (records.some((record) => rows.has(record))) return [{ outcome: "known" }, {}];
      const spent = plus(before.spent, cost);
      for (const { scope, cap } of caps) if (!fits(spent, cap)) return refused(`${scope}-cap`);
      const all = plus(read<Spent>(rows, "all") ?? {}, cost);
      if (lifetime && !fits(all, lifetime)) return refused("lifetime-cap");
      const bytes = make();
      const id = /"id":"([0-9a-f]{32})"/.exec(bytes)![1]!;
      const expires = Number(/"expires":(\d+)/.exec(bytes)![1]!);
      const day = new Date(Math.floor(moment.now / 86_400) * 86_400_000).toISOString().slice(0, 10);
      const after: TaskRow = {
        ...before,
        released: before.released + 1,
        spent,
        days: before.days.includes(day) ? before.days : [...before.days, day],
        message: bytes,
      };
      const waiting = { task: task.hash, name: task.name, gateway: origin.gateway, bytes, expires };
      return [
        { outcome: "released", bytes },
        {
          [own]: JSON.stringify(after),
          all: JSON.stringify(all),
          [used]: JSON.stringify({ hash: task.hash }),
          [`out:${id}`]: JSON.stringify(waiting),
          ...Object.fromEntries(records.map((record) => [record, day])),
        },
      ];
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
      // Another tab may have sent it, too.
      if (!row || !rows.has(key)) return [undefined, {}];
      const counted = accepted ? { [taskKey(task)]: JSON.stringify({ ...row, sent: (row.sent ?? 0) + 1 }) } : {};
      return [undefined, { [key]: null, ...counted }];
    });
  }

  /**
   * Stop: delete what waits and which records are known, and release nothing to this task again. What was spent stays
   * spent. Where nothing was released, nothing is written.
   */
  withdraw(prepared: Prepared, origin: Origin): Promise<void> {
    const { task } = prepared;
    const own = taskKey(task.hash);
    const used = usedKey(origin, prepared);
    const records = [task.hash, placeOf(origin, prepared)].map((each) => `record:${each}:`);
    return this.store.update([own, used, "out:", ...records], (rows): [undefined, Changes] => {
      if (!rows.has(own) && !rows.has(used)) return [undefined, {}];
      const before = read<TaskRow>(rows, own) ?? { name: task.name, released: 0, spent: {}, days: [] };
      const last: UsedRow = { hash: task.hash, ...read<UsedRow>(rows, used), withdrawn: true };
      const changes: Changes = { [used]: JSON.stringify(last) };
      for (const key of rows.keys()) {
        if (key.startsWith("record:")) changes[key] = null;
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
    const { task, protocol } = prepared;
    const own = taskKey(task.hash);
    const cost = (currency: Currency): Loss | null => protocol.cost(level, currency);
    const lifetime = this.policy.lifetime && capOf(this.policy.lifetime);
    const used = usedKey(origin, prepared);
    return this.store.update([own, "out:", "all", used], (rows): [Account, Changes] => {
      const row = read<TaskRow>(rows, own);
      const last = read<UsedRow>(rows, used);
      const waiting = [...rows.keys()].filter((key) => {
        if (!key.startsWith("out:")) return false;
        const { task: hash, expires } = read<Waiting>(rows, key)!;
        return hash === task.hash && expires > now;
      });
      const after = plus(row?.spent ?? {}, cost);
      const all = !lifetime || fits(plus(read<Spent>(rows, "all") ?? {}, cost), lifetime);
      const room = all && capsOf(prepared, level, this.policy).every(({ cap }) => fits(after, cap));
      const caps = capsOf(prepared, level, this.policy).map(({ cap }) => {
        const total = (row?.spent ?? {})[cap.currency];
        return { cap, spent: total === undefined ? 0n : total && BigInt(total[0]), spentDelta: total ? BigInt(total[1]) : 0n };
      });
      const withdrawn = row?.withdrawn ?? last?.withdrawn ?? false;
      const changed = isChanged(last, prepared, origin);
      const { released = 0, sent = 0, days = [], message = "" } = row ?? {};
      return [{ name: task.name, released, waiting: waiting.length, sent, days, message, caps, withdrawn, changed, room }, {}];
    });
  }

  close(): void {
    this.store.close();
  }
}
