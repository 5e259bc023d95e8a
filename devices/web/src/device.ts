/** A person's device: reads a task from a gateway, releases records once, and sends what it has stored. */
import type { Record_, Value } from "./coding.js";
import { type Account, type Asked, type First, type HeldRow, Ledger, type Next, type Origin, type Outcome, type Policy, type Waiting } from "./ledger.js";
import { armOf, isAssigned } from "./experiment.js";
import { maxAttackAccuracy } from "./promise.js";
import { drawDue, isDrawn, numbersOf, seal, unseal } from "./held.js";
import type { Answer, Memo } from "./memos.js";
import { choose, type Choice, type Prepared, prepare, type Protocols, randomize, type Wanted, wordsFor } from "./release.js";
import type { Store } from "./store.js";
import { MOST_BYTES, readTask, repeatsAnswers, type Task } from "./task.js";
import { type Moment, plausible, steady, Time, within } from "./time.js";
import { renewalOf, windowOf, wholeOf } from "./windows.js";
import { Refused } from "./errors.js";
import { SecureWords, type Words } from "./random-words.js";

export interface Options {
  /** The gateway's address, such as `https://murk.example.org`. */
  readonly gateway: string;
  /** Name of the task. */
  readonly task: string;
  /** The task's hash, pinned by the page: a task with another hash is refused. */
  readonly hash?: string | undefined;
  readonly policy?: Policy | undefined;
  /** Whether a device without a ledger may spend at once. */
  readonly first?: First | undefined;
  /** If true, nothing is released or sent; by default the browser's Global Privacy Control decides. */
  readonly optOut?: boolean | undefined;
  /** A bearer token, if the gateway asks for one. A login links a person to a release. */
  readonly token?: string | undefined;
  /** The address of a relay for the gateway: neither sees both who sends and what (Oblivious HTTP). */
  readonly relay?: string | undefined;
  /** The gateway's key for requests through a relay, pinned by the page: `/ohttp-keys` in base64. */
  readonly keys?: string | undefined;
  /** Returns seconds since 1970; the gateway's `Date` corrects them. */
  readonly clock?: (() => number) | undefined;
  readonly fetch?: typeof fetch | undefined;
}

/** What became of a record. `delivery` says where the stored bytes are. */
export type Receipt =
  | {
      readonly outcome: "released";
      readonly delivery: "sent" | "queued" | "rejected";
      readonly reason: string;
      /** Exactly the bytes that leave the device. */
      readonly bytes: string;
    }
  | { readonly outcome: "known" | "refused" | "unavailable" | "held"; readonly reason: string };

/** What a page shows before it asks. */
export interface Status extends Account {
  readonly task: Task;
  readonly optOut: boolean;
  /** Seconds until a new ledger may spend; 0 if it may now. The wait begins with the first attempt to release: `begun`. */
  readonly silentFor: number;
  readonly begun: boolean;
  /** The largest probability with which an attacker tells this record from any other by one release; guessing gives 0.5. */
  readonly attackAccuracy: number;
  /** The same, by all releases that the task's cap allows; without `lifetime`, by those of one window. */
  readonly attackAccuracyAtCap: number;
  /** Whether a token goes with each release, which links it to a login. */
  readonly identified: boolean;
}

/** A release that was not accepted: it waits, or was refused for good. */
export interface Undelivered {
  readonly bytes: string;
  readonly state: "queued" | "rejected";
  readonly reason: string;
}

/** Options, and the `fetch` that reaches the gateway. */
type Reaching = Options & { readonly fetch: typeof fetch };

/** The gateway did not answer. */
class Unreachable extends Error {}

const TIMEOUT = 30_000;
const KEEPALIVE = 60 * 1024; // bytes; browsers limit a page's requests under way with `keepalive` to 64 KiB
const FINAL = new Set([400, 409, 410, 413, 422]);
const OTHER = 421; // the gateway does not know the release's partition yet
const LONGEST_WAIT = 3600;
const DAY = 86_400;
const MOST_ANSWER = 64 * 1024; // bytes of an answer to one release
const CHANGES = "murk-changes"; // the channel over which tabs hear of each other
const RETRY = 300; // seconds until another attempt to release a held record that is due
const MODEL_AGE = 3600; // seconds for which a fetched model may be used without a connection
const HOLDING = "murk-held"; // the lock under which records are held and released later
// After these refusals of a held record another attempt may succeed.
const PASSING = new Set(["new-ledger", "wiped", "clock"]);

const turns = new Map<string, Promise<unknown>>();

/**
 * Run one piece of work at a time: in all tabs of an origin by Web Locks, else in this process. Undefined if others
 * hold the lock for longer than a request may take: a tab that hangs must not stop this one.
 */
async function locked<T>(name: string, work: () => Promise<T>): Promise<T | undefined> {
  const locks = (globalThis.navigator as Navigator | undefined)?.locks as LockManager | undefined;
  let begun = false;
  const start = (): Promise<T> => {
    begun = true;
    return work();
  };
  const late = (): Error => new Error("the turn of others does not end");
  try {
    if (locks) return (await locks.request(name, { signal: AbortSignal.timeout(TIMEOUT) }, start)) as T;
    const before = turns.get(name) ?? Promise.resolve();
    const turn = within(before.catch(() => undefined), TIMEOUT, late).then(start);
    turns.set(name, turn);
    return await turn;
  } catch (error) {
    if (begun) throw error;
    return undefined;
  }
}

/** Events of a device: `change` after every change, by this tab or another one, of what `status` returns. */
export interface DeviceEventMap {
  change: Event;
}

/** Listeners by the events of `DeviceEventMap`. */
export interface Device {
  addEventListener<K extends keyof DeviceEventMap>(
    type: K,
    listener: (this: Device, event: DeviceEventMap[K]) => unknown,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener<K extends keyof DeviceEventMap>(
    type: K,
    listener: (this: Device, event: DeviceEventMap[K]) => unknown,
    options?: boolean | EventListenerOptions,
  ): void;
}

export class Device extends EventTarget {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private watch: ReturnType<typeof setTimeout> | undefined;
  private alarm: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private busy = 0;
  private notBefore = 0; // on the steady clock: when a gateway allows the next request
  private closed = false;
  private declined = false;
  private remembered = false;
  private readonly models = new Map<number, { message: string | null; read: number }>();
  private readonly channel: BroadcastChannel | undefined;
  private readonly origin: Origin;

  private constructor(
    private readonly prepared: Prepared,
    private readonly ledger: Ledger,
    private readonly store: Store,
    private readonly options: Reaching,
    private readonly time: Time,
    private readonly text: string,
  ) {
    super();
    this.origin = { gateway: options.gateway, pinned: options.hash !== undefined };
    if (typeof BroadcastChannel === "function") {
      this.channel = new BroadcastChannel(CHANGES);
      this.channel.onmessage = () => this.dispatchEvent(new Event("change"));
      // In Node the channel must not keep the process alive.
      (this.channel as { unref?: () => void }).unref?.();
    }
  }

  /** Read the task and the ledger, and write nothing. Raises `Refused`. */
  static async connect(store: () => Promise<Store>, protocols: Protocols, given: Options): Promise<Device> {
    if (!globalThis.crypto?.subtle) throw new Refused("insecure", "this page is not served over https, so nothing can be checked or kept");
    const gateway = given.gateway.replace(/\/+$/, "");
    const time = new Time(given.clock ?? (() => Date.now() / 1000));
    const options = { ...given, gateway, fetch: await reaching(gateway, given, time) };
    const opened = await store();
    const text = await documentOf(opened, options);
    const prepared = prepare(await readTask(text, options.hash), protocols);
    if (prepared.task.name !== options.task) throw new Refused("task", "the gateway sent a task of another name");
    const ledger = await Ledger.open(opened, options.policy, options.first);
    const device = new Device(prepared, ledger, opened, options, time, text);
    device.later(0);
    return device;
  }

  get task(): Task {
    return this.prepared.task;
  }

  /** Whether the person has told the browser that nothing of theirs shall be shared. */
  get optOut(): boolean {
    return optsOut(this.options);
  }

  /** The task's account, and whether a release is possible now. */
  async status(level = "default"): Promise<Status> {
    const guarantee = this.task.guarantees.get(level);
    if (!guarantee) throw new Refused("level", `the task has no level ${level}`);
    const moment = this.time.moment();
    await this.ledger.settle(moment);
    const account = await this.ledger.account(this.prepared, level, this.origin, moment.now);
    const silentFor = this.ledger.silence(this.task.silenceSeconds, moment);
    this.announce(silentFor);
    return {
      ...account,
      withdrawn: account.withdrawn || this.declined,
      task: this.task,
      optOut: this.optOut,
      silentFor,
      begun: this.ledger.begun,
      attackAccuracy: maxAttackAccuracy(guarantee),
      attackAccuracyAtCap: maxAttackAccuracy(wholeOf(this.task) ?? this.task.privacy.per_person ?? guarantee),
      identified: this.options.token !== undefined,
    };
  }

  /** Fetch what a release needs, so that it can be stored without a connection, too. */
  async prepare(): Promise<void> {
    if (this.optOut || !this.prepared.protocol.modelSize) return;
    // Of several partitions with models of their own, a release draws one only when it is made.
    if (this.prepared.protocol.shared || this.task.log.partitions === 1) await this.newest(0).catch(() => null);
  }

  /**
   * The person's arm of the task's experiment, for the page to show: the same at each visit and in each window.
   *
   * It follows from a random identifier that is stored from now on and never sent. People who share nothing and have
   * no identifier see the control. Raises `Refused`, for example where the browser denies storage.
   */
  async arm(): Promise<string> {
    const { experiment } = this.task;
    if (!experiment || !isAssigned(this.task)) throw new Refused("task", "devices assign no arms of this task: it has no experiment, or says by: server");
    const identifier = await this.ledger.assignment(this.prepared, this.origin, !this.optOut && !this.declined);
    return identifier === undefined ? experiment.control : armOf(this.task, identifier);
  }

  /** Return a function that sets a record's arm to the one that this device assigns; the record is not read before. */
  private async assigning(): Promise<(record: object) => Record_> {
    if (!isAssigned(this.task)) return (record) => record as Record_;
    const identifier = await this.ledger.assignment(this.prepared, this.origin, true);
    const given = { [this.task.experiment!.arm]: await armOf(this.task, identifier!) };
    return (record) => ({ ...record, ...given });
  }

  /**
   * Release one record, if the person's caps have room, and send it.
   *
   * Whether, when and where something is sent depends on public facts and the ledger, never on the record's values.
   * The same record given twice under one `key` is released once; `key` must not depend on the values.
   */
  async release<T extends object>(
    record: { readonly [K in keyof T]: Value },
    { level = "default", key }: { level?: string | undefined; key?: string | undefined } = {},
  ): Promise<Receipt> {
    // Storage may replace half a surrogate pair, or cut text at NUL, so that two keys would become one.
    if (key !== undefined && !/^[^\0\p{Surrogate}]+$/u.test(key)) throw new Refused("key", "a record's key must be text of one character or more");
    if (this.optOut) return { outcome: "refused", reason: "opt-out" };
    if (this.declined) return { outcome: "refused", reason: "withdrawn" };
    const words = wordsFor(this.prepared, this.task.guarantees.has(level) ? level : "default");
    this.busy++;
    try {
      if (!this.task.guarantees.has(level)) throw new Refused("level", `the task has no level ${level}`);
      await this.begin();
      const choice = await choose(this.prepared, level, words, (partition) => this.newest(partition));
      await this.check();
      const moment = this.time.moment();
      if (!plausible(moment.now)) return { outcome: "refused", reason: "clock" };
      await this.ledger.settle(moment);
      if (this.optOut) return { outcome: "refused", reason: "opt-out" };
      const assign = await this.assigning();
      const code = () => this.prepared.coding.code(assign(record));
      const outcome = await this.book(choice, { code, now: moment.now }, moment, words, { key: key?.normalize() });
      this.changed();
      if (outcome.outcome === "refused") return outcome;
      const tried = await locked("murk", () => this.sendAll());
      if (!tried) this.later(1);
      const { sent, left } = tried ?? { sent: new Set<string>(), left: [] };
      if (outcome.outcome === "known") return { outcome: "known", reason: "this record was released before" };
      const own = left.find(({ bytes }) => bytes === outcome.bytes);
      const delivery = sent.has(outcome.bytes) ? "sent" : (own?.state ?? "queued");
      return { outcome: "released", delivery, reason: own?.reason ?? "", bytes: outcome.bytes };
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      return { outcome: "unavailable", reason: "the gateway cannot be reached: nothing was released" };
    } finally {
      words.wipe();
      this.busy--;
    }
  }

  /**
   * Hold a record until the task's current window ends; then one of the window's records is released.
   *
   * This record is drawn uniformly from all that were held in the window, and released at the level given last. Until
   * then it is kept, coded and encrypted; it is deleted when it is released or refused, when the person withdraws, or
   * when the browser sends Global Privacy Control. A page that is open when it is due, or later, releases it: `status`
   * tells how many windows wait.
   */
  async hold<T extends object>(
    record: { readonly [K in keyof T]: Value },
    { level = "default" }: { level?: string | undefined } = {},
  ): Promise<Receipt> {
    const renewal = renewalOf(this.task);
    if (!renewal) throw new Refused("task", "the budget of this task has no windows: call release instead of hold");
    if (!this.task.guarantees.has(level)) throw new Refused("level", `the task has no level ${level}`);
    if (this.optOut) await locked(HOLDING, () => this.ledger.drop(this.prepared, this.origin));
    if (this.optOut || this.declined) return { outcome: "refused", reason: this.optOut ? "opt-out" : "withdrawn" };
    const words = new SecureWords(64);
    try {
      await this.begin();
      await this.check();
      const receipt = await locked(HOLDING, async (): Promise<Receipt> => {
        const moment = this.time.moment();
        if (!plausible(moment.now)) return { outcome: "refused", reason: "clock" };
        await this.ledger.settle(moment);
        const due = drawDue(renewal, windowOf(renewal, moment.now), words);
        const assign = await this.assigning();
        const hold = (next?: Next) => this.ledger.hold(this.prepared, level, this.origin, moment, due, next);
        let held = await hold();
        while ("count" in held && !held.stored) {
          const { count } = held;
          const sealed = isDrawn(count, words) ? await seal(numbersOf(this.prepared.coding.code(assign(record))), this.store.key) : undefined;
          held = await hold({ count, sealed });
        }
        return "reason" in held ? { outcome: "refused", reason: held.reason } : { outcome: "held", reason: "" };
      });
      this.changed();
      this.awake();
      return receipt ?? { outcome: "unavailable", reason: "another page is at work: nothing was held" };
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      return { outcome: "unavailable", reason: "the time is not known, and the gateway cannot be reached: nothing was held" };
    } finally {
      words.wipe();
    }
  }

  /** Release the held records that are due; while a page is open the device does this by itself. */
  async releaseHeld(): Promise<Receipt[]> {
    try {
      const receipts = await locked(HOLDING, () => this.answerHeld());
      if (receipts?.length) {
        this.changed();
        await this.flush();
      }
      return receipts ?? [];
    } finally {
      this.awake();
    }
  }

  private async answerHeld(): Promise<Receipt[]> {
    const receipts: Receipt[] = [];
    if (this.optOut || this.declined) {
      await this.ledger.drop(this.prepared, this.origin);
      return receipts;
    }
    // A record that was held for an earlier version of the task cannot answer this one.
    await this.ledger.drop(this.prepared, this.origin, { except: this.task.hash });
    const due = async (): Promise<HeldRow[]> => (await this.ledger.held(this.prepared)).filter((each) => each.due <= this.time.moment().now);
    if ((await due()).length) await this.check();
    for (const held of plausible(this.time.moment().now) ? await due() : []) {
      const words = wordsFor(this.prepared, held.level);
      try {
        const choice = await choose(this.prepared, held.level, words, (partition) => this.newest(partition));
        const { width } = this.prepared.coding;
        const coded = await unseal(held.record, width + 1, this.store.key);
        const moment = this.time.moment();
        // A copy each time: the answer may have to be made again, and coded numbers are wiped.
        const code = () => ({ x: coded!.slice(0, width), y: coded![width]! });
        const wanted = { code, now: moment.now, window: held.window, rows: held.count };
        const outcome = coded ? await this.book(choice, wanted, moment, words, { held }) : await this.without(held);
        coded?.fill(0);
        if (outcome.outcome === "refused" && PASSING.has(outcome.reason)) continue;
        await this.ledger.drop(this.prepared, this.origin, { only: held.key });
        receipts.push(outcome.outcome === "released" ? { ...outcome, delivery: "queued", reason: "" } : { reason: "", ...outcome });
      } finally {
        words.wipe();
      }
    }
    return receipts;
  }

  /**
   * Book a release. Encryption cannot run within the transaction that books it, so of a task that repeats answers the
   * answer is made before, for the memo as it was read, and made again if another page has changed the memo.
   */
  private async book(choice: Choice, wanted: Wanted, moment: Moment, words: Words, of: { key?: string | undefined; held?: HeldRow }): Promise<Outcome> {
    let ready: { asked: Asked; answer: Answer } | undefined;
    const make = (now: Asked): Answer | undefined => {
      if (!repeatsAnswers(this.task)) return { bytes: randomize(this.prepared, choice, wanted, words) };
      return ready?.asked.memo === now.memo && ready?.asked.only === now.only ? ready.answer : undefined;
    };
    for (;;) {
      const outcome = await this.ledger.spend(this.prepared, choice.level, this.origin, moment, make, of);
      if (outcome.outcome !== "asked") return outcome;
      const { memo, only } = outcome;
      const last = memo === undefined ? undefined : (JSON.parse(memo) as Memo);
      const answer = await this.prepared.protocol.repeat!(this.prepared, choice, wanted, words, last, only, this.store.key);
      if (!answer) return { outcome: "refused", reason: "lost-key" };
      ready = { asked: outcome, answer };
    }
  }

  /** What became of a held record that cannot be read: another page has released it, or its key is lost. */
  private async without({ key }: HeldRow): Promise<Outcome> {
    const held = await this.ledger.held(this.prepared);
    return held.some((each) => each.key === key) ? { outcome: "refused", reason: "lost-key" } : { outcome: "known" };
  }

  /** Set a timer for when the next held record is due. */
  private awake(): void {
    if (!renewalOf(this.task)) return;
    clearTimeout(this.alarm);
    void this.ledger.held(this.prepared).then((rows) => {
      if (this.closed || !rows.length) return;
      const wait = Math.min(...rows.map(({ due }) => due)) - this.time.moment().now;
      clearTimeout(this.alarm);
      this.alarm = setTimeout(() => void this.releaseHeld().catch(() => undefined), Math.min(Math.max(wait, RETRY), DAY) * 1000);
      (this.alarm as { unref?: () => void }).unref?.();
    }, () => undefined);
  }

  /** Send the releases that wait, one in each request; return those that were not accepted. */
  async flush(): Promise<Undelivered[]> {
    const result = await locked("murk", () => this.sendAll());
    if (!result) this.later(1);
    return result?.left ?? [];
  }

  /** Begin the ledger, and keep the task for a visit without a connection. Called only once the person shares. */
  private async begin(): Promise<void> {
    await this.ledger.begin(
      this.task.silenceSeconds,
      this.time.moment(),
      this.remembered ? {} : { [documentKey(this.options)]: this.text },
    );
    this.remembered = true;
  }

  /** Ask the gateway for the time if the clock may be wrong: a release that has expired already would waste budget. */
  private async check(): Promise<void> {
    if (this.time.stale) await this.options.fetch(taskAddress(this.options), plain(this.options)).catch(() => undefined);
    if (this.time.stale && this.time.unknown && plausible(this.time.moment().now)) throw new Unreachable();
  }

  private async sendAll(): Promise<{ sent: Set<string>; left: Undelivered[] }> {
    const sent = new Set<string>();
    const left: Undelivered[] = [];
    let wait = this.notBefore - steady();
    let again = DAY;
    let expired = false;
    let asked = false;
    const tried = new Set<string>();
    // Read the ledger before each request, so that a withdrawal takes effect at once.
    const next = async (): Promise<Waiting | undefined> => (this.optOut ? undefined : (await this.ledger.waiting()).find(({ key }) => !tried.has(key)));
    for (let one = await next(); one; one = await next()) {
      tried.add(one.key);
      // The address is that of this task, and would refuse releases of other tasks for good.
      if (one.gateway !== this.options.gateway || one.task !== this.task.hash) continue;
      if (one.expires <= this.time.moment().now && !asked) {
        asked = true;
        // A clock that jumped must not delete the release.
        await this.check().catch(() => undefined);
      }
      if (one.expires <= this.time.moment().now) {
        if (this.time.stale) continue;
        expired = true;
        await this.ledger.delivered(one, false);
        continue;
      }
      const { reason, after, alone = false } = wait > 0 ? { reason: "unavailable", after: wait } : await this.send(one);
      if (after > 0) {
        // A gateway that does not know this release's partition yet takes the others.
        if (!alone) wait = after;
        again = Math.min(again, after);
        left.push({ bytes: one.bytes, state: "queued", reason });
        continue;
      }
      await this.ledger.delivered(one, reason === "");
      if (reason) left.push({ bytes: one.bytes, state: "rejected", reason });
      else sent.add(one.bytes);
    }
    if (left.some(({ state }) => state === "queued")) this.later(again);
    else this.failures = 0;
    if (expired || sent.size || left.some(({ state }) => state === "rejected")) this.changed();
    return { sent, left };
  }

  /**
   * Withdraw: nothing is released to this task again, and what waits is deleted. What was spent stays spent. Where
   * nothing was released, nothing is written, and the withdrawal lasts as long as this page.
   */
  async withdraw(): Promise<void> {
    this.declined = true;
    await this.ledger.withdraw(this.prepared, this.origin);
    await locked(HOLDING, () => this.ledger.drop(this.prepared, this.origin));
    this.changed();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    clearTimeout(this.watch);
    clearTimeout(this.alarm);
    this.channel?.close();
    this.ledger.close();
  }

  /** Tell this page and other tabs that the account has changed. */
  private changed(): void {
    if (this.closed) return;
    this.dispatchEvent(new Event("change"));
    this.channel?.postMessage(null);
  }

  /** Tell this page when a silence ends. */
  private announce(seconds: number): void {
    clearTimeout(this.watch);
    if (this.closed || !(seconds > 0) || !this.ledger.begun) return;
    this.watch = setTimeout(() => this.dispatchEvent(new Event("change")), Math.min(seconds, DAY) * 1000);
    (this.watch as { unref?: () => void }).unref?.();
  }

  private async newest(partition: number): Promise<string | null> {
    try {
      const response = await this.options.fetch(`${taskAddress(this.options)}/model?partition=${partition}`, plain(this.options));
      if (response.status === 204 || response.ok) {
        const most = 512 + 26 * this.prepared.protocol.modelSize;
        const message = response.status === 204 ? null : await within(textOf(response, most, "model"), TIMEOUT, late);
        this.models.set(partition, { message, read: steady() });
        return message;
      }
    } catch (error) {
      // As if the gateway had not answered.
      if (error instanceof Refused) throw error;
    }
    const known = this.models.get(partition);
    if (known && steady() - known.read < MODEL_AGE) return known.message;
    throw new Unreachable();
  }

  /**
   * Send one release; `after` is the number of seconds to wait, 0 if it was accepted or refused for good; `alone` is
   * whether only this release has to wait.
   */
  private async send({ bytes }: Waiting): Promise<{ reason: string; after: number; alone?: boolean }> {
    const patience = Math.min(LONGEST_WAIT, 2 ** Math.min(this.failures, 12));
    try {
      const response = await this.options.fetch(`${taskAddress(this.options)}/releases`, {
        ...plain(this.options),
        method: "POST",
        body: bytes,
        keepalive: bytes.length < KEEPALIVE,
      });
      const { status } = response;
      if (status === 202) return { reason: "", after: 0 };
      if (FINAL.has(status)) return { reason: await reasonOf(response), after: 0 };
      this.failures++;
      const named = this.retryAfter(response.headers.get("Retry-After") ?? "");
      if (status === OTHER) return { reason: `status-${status}`, after: Math.min(DAY, Math.max(named, patience)), alone: true };
      const after = named > 0 ? Math.min(named, DAY) : patience;
      if (named > 0) this.notBefore = steady() + after;
      return { reason: `status-${status}`, after };
    } catch {
      this.failures++;
      return { reason: "unavailable", after: patience };
    }
  }

  /** Seconds that a `Retry-After` asks for: it has a number, or a date by the gateway's clock. */
  private retryAfter(text: string): number {
    const seconds = Number(text);
    return Number.isNaN(seconds) ? Math.ceil(Date.parse(text) / 1000 - this.time.moment().now) : seconds;
  }

  /** Release the held records that are due, and send the releases that wait. */
  private async wake(): Promise<void> {
    try {
      await this.releaseHeld();
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
    } finally {
      await this.flush();
    }
  }

  private later(seconds: number): void {
    if (this.closed) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      // A release under way may end without sending what waits.
      if (this.busy > 0) this.later(1);
      else void this.wake().catch(() => this.later(2 ** Math.min(++this.failures, 12)));
    }, Math.min(Math.max(seconds, 0), DAY) * 1000);
    // In Node a release that waits does not keep the process alive: the next process sends it.
    (this.timer as { unref?: () => void }).unref?.();
  }
}

/** Whether the page or the browser says that nothing of the person's shall be shared. */
export function optsOut({ optOut }: Options): boolean {
  const { navigator } = globalThis as { navigator?: { globalPrivacyControl?: boolean } };
  return optOut ?? navigator?.globalPrivacyControl === true;
}

const late = (): Error => new Error("the gateway does not answer");

/** Return a `fetch` that reaches the gateway, directly or through a relay, and notes the gateway's time. */
async function reaching(gateway: string, { relay, keys, fetch: given }: Options, time: Time): Promise<typeof fetch> {
  const direct: typeof fetch = given ?? ((...request) => fetch(...request));
  let send = direct;
  if (relay !== undefined) {
    const { relayed } = await import("./ohttp.js");
    send = await relayed({ url: relay, gateway, keys, fetch: direct });
  }
  return async (...request) => {
    // With its own time limit, as some implementations of `fetch` ignore signals.
    const response = await within(send(...request), 1.1 * TIMEOUT, late);
    time.note(response);
    return response;
  };
}

const taskAddress = ({ gateway, task }: Options): string => `${gateway}/v1/tasks/${encodeURIComponent(task)}`;

/** The task's document, from the gateway or, without a connection, as last stored, so that a person can withdraw. */
async function documentOf(store: Store, options: Reaching): Promise<string> {
  const { gateway, task } = options;
  const key = documentKey(options);
  let status: unknown = "no answer";
  try {
    const response = await options.fetch(taskAddress(options), plain(options));
    // Bytes that are not UTF-8 would decode to others, with another hash.
    if (response.ok) return await within(textOf(response, MOST_BYTES, "task"), TIMEOUT, late);
    status = response.status;
  } catch (error) {
    if (error instanceof Refused) throw error;
  }
  const known = await store.update([key], (rows) => [rows.get(key), {}] as const);
  if (known !== undefined) return known;
  if (status === "no answer" && (await answersOthers(options))) {
    const here = `this page's origin ${globalThis.location.origin}`;
    throw new Refused("origin", `the gateway ${gateway} answers, but does not allow pages of ${here}: start it with --origin`);
  }
  throw new Refused("unavailable", `the gateway has no task ${task} for this device (${String(status)})`);
}

/** Whether the gateway answers, but does not let this page read its answers: then it does not allow the page's origin. */
async function answersOthers({ gateway, relay, fetch: ask }: Reaching): Promise<boolean> {
  const { location } = globalThis as { location?: Location };
  if (relay !== undefined || !location || new URL(gateway, location.href).origin === location.origin) return false;
  const init: RequestInit = { mode: "no-cors", credentials: "omit", referrerPolicy: "no-referrer", cache: "no-store" };
  return ask(`${gateway}/healthz`, { ...init, signal: AbortSignal.timeout(TIMEOUT) }).then(() => true, () => false);
}

const documentKey = ({ gateway, task }: Options): string => `document:${gateway} ${task}`;

/** The text of an answer's body; reading stops after `most` bytes. */
async function textOf(response: Response, most: number, reason: string): Promise<string> {
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  let text = "";
  for (let left = most; reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    left -= value.length;
    if (left < 0) {
      void reader.cancel().catch(() => undefined);
      throw new Refused(reason, `the gateway's answer is longer than ${most} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
  return text + decoder.decode();
}

/** Settings of every request: no cookies, no referrer and no cache, so that nothing names a person. */
function plain({ token }: Options): RequestInit {
  return {
    cache: "no-store",
    credentials: "omit",
    referrerPolicy: "no-referrer",
    redirect: "error",
    signal: AbortSignal.timeout(TIMEOUT),
    ...(token === undefined ? {} : { headers: { Authorization: `Bearer ${token}` } }),
  };
}

async function reasonOf(response: Response): Promise<string> {
  try {
    const { refused } = JSON.parse(await textOf(response, MOST_ANSWER, "answer")) as { refused?: { reason?: unknown }[] };
    const reason = refused?.[0]?.reason;
    if (typeof reason === "string" && /^[a-z-]{1,32}$/.test(reason)) return reason;
  } catch {
    // The status alone is enough.
  }
  return `status-${response.status}`;
}
