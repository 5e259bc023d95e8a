/** A person's device: reads a task from a gateway, releases records once, and sends what it has stored. */
import type { Record_ } from "./coding.js";
import { type Account, type First, Ledger, type Origin, type Policy, type Waiting } from "./ledger.js";
import { maxAttackAccuracy } from "./promise.js";
import { choose, type Prepared, prepare, type Protocols, randomize, wordsFor } from "./release.js";
import type { Store } from "./store.js";
import { MOST_BYTES, readTask, type Task } from "./task.js";
import { Refused } from "./words.js";

export interface Options {
  /** The gateway's address, such as `https://murk.example.org`. */
  readonly gateway: string;
  /** Name of the task. */
  readonly task: string;
  /** The task's hash, pinned by the page: another task is refused. */
  readonly hash?: string;
  readonly policy?: Policy;
  /** Whether a device without a ledger may spend at once. */
  readonly first?: First;
  /** Nothing is released or sent; by default the browser's Global Privacy Control. */
  readonly optOut?: boolean;
  /** A bearer token, if the gateway asks for one. A login links a person to a release. */
  readonly token?: string;
  /** The address of a relay for the gateway: neither sees both who sends and what (Oblivious HTTP). */
  readonly relay?: string;
  /** The gateway's key for requests through a relay, pinned by the page: `/ohttp-keys` in base64. */
  readonly keys?: string;
  /** Seconds since 1970. */
  readonly clock?: () => number;
  readonly fetch?: typeof fetch;
}

/** What became of a record. `delivery` says where the stored bytes are. */
export type Receipt =
  | {
      readonly outcome: "released";
      readonly delivery: "sent" | "queued" | "rejected";
      readonly reason: string;
      /** The very bytes that leave the device. */
      readonly bytes: string;
    }
  | { readonly outcome: "known" | "refused" | "unavailable"; readonly reason: string };

/** What a page shows before it asks. */
export interface Status extends Account {
  readonly task: Task;
  readonly optOut: boolean;
  /** Seconds until a new ledger may spend; 0 if it may now. */
  readonly silentFor: number;
  /** How often, at most, an attacker tells this record from any other by one release; guessing gives 0.5. */
  readonly attackAccuracy: number;
  /** The same, from all releases that the task's cap allows together. */
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

/** Options with what reaches the gateway. */
type Reaching = Options & Required<Pick<Options, "fetch">>;

/** The gateway did not answer. */
class Unreachable extends Error {}

const TIMEOUT = 30_000;
const KEEPALIVE = 60 * 1024; // of the 64 KiB that a page may have under way
const FINAL = new Set([400, 409, 410, 413, 422]);
const LONGEST_WAIT = 3600;
const MOST_ANSWER = 64 * 1024; // of an answer to one release

const turns = new Map<string, Promise<unknown>>();

/** One at a time: over all tabs of an origin by Web Locks, else within this process. */
function locked<T>(name: string, work: () => Promise<T>): Promise<T> {
  const locks = (globalThis.navigator as Navigator | undefined)?.locks as LockManager | undefined;
  if (locks) return locks.request(name, work) as Promise<T>;
  const turn = (turns.get(name) ?? Promise.resolve()).then(work, work);
  turns.set(name, turn);
  return turn;
}

export class Device {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private busy = 0;
  private notBefore = 0; // seconds since 1970, as a gateway asked
  private closed = false;
  private readonly ask: typeof fetch;
  private readonly clock: () => number;
  private readonly origin: Origin;

  private constructor(
    private readonly prepared: Prepared,
    private readonly ledger: Ledger,
    private readonly options: Reaching,
  ) {
    this.ask = options.fetch;
    this.clock = options.clock ?? (() => Date.now() / 1000);
    this.origin = { gateway: options.gateway, pinned: options.hash !== undefined };
  }

  /** Read the task and open the ledger. Raises `Refused`. */
  static async connect(store: () => Promise<Store>, protocols: Protocols, given: Options): Promise<Device> {
    const gateway = given.gateway.replace(/\/+$/, "");
    const options = { ...given, gateway, fetch: await reaching(gateway, given) };
    const opened = await store();
    const { text, fresh } = await documentOf(opened, options);
    const prepared = prepare(await readTask(text, options.hash), protocols);
    if (prepared.task.name !== options.task) throw new Refused("task", "the gateway sent a task of another name");
    if (fresh) await opened.update([], () => [null, { [documentKey(options)]: text }]);
    const now = (options.clock ?? (() => Date.now() / 1000))();
    const ledger = await Ledger.open(opened, options.policy, options.first, now);
    const device = new Device(prepared, ledger, options);
    device.later(0);
    return device;
  }

  get task(): Task {
    return this.prepared.task;
  }

  /** Whether the person has told the browser that nothing of theirs shall be shared. */
  get optOut(): boolean {
    const { navigator } = globalThis as { navigator?: { globalPrivacyControl?: boolean } };
    return this.options.optOut ?? navigator?.globalPrivacyControl === true;
  }

  /** The task's account, and whether a release is possible now. */
  async status(level = "default"): Promise<Status> {
    const guarantee = this.task.guarantees.get(level);
    if (!guarantee) throw new Refused("level", `the task has no level ${level}`);
    return {
      ...(await this.ledger.account(this.prepared, level, this.origin)),
      task: this.task,
      optOut: this.optOut,
      silentFor: this.ledger.silence(this.task.expirySeconds, this.clock()),
      attackAccuracy: maxAttackAccuracy(guarantee),
      attackAccuracyAtCap: maxAttackAccuracy(this.task.privacy.per_person ?? guarantee),
      identified: this.options.token !== undefined,
    };
  }

  /**
   * Release one record, if the person's caps have room, and send it.
   *
   * Whether, when and where something is sent depends on public things and the ledger, never on a value. `key`
   * identifies a record that may come again; it must not depend on its values.
   */
  async release(record: Record_, { level = "default", key }: { level?: string; key?: string } = {}): Promise<Receipt> {
    if (this.optOut) return { outcome: "refused", reason: "opt-out" };
    const words = wordsFor(this.prepared, this.task.guarantees.has(level) ? level : "default");
    this.busy++;
    try {
      const now = this.clock();
      const choice = await choose(this.prepared, level, now, words, (chain) => this.newest(chain));
      const make = (): string => randomize(this.prepared, choice, record, words);
      return await locked("murk", async () => {
        if (this.optOut) return { outcome: "refused", reason: "opt-out" };
        const outcome = await this.ledger.spend(this.prepared, level, this.origin, now, make, key);
        if (outcome.outcome === "refused") return outcome;
        const { sent, left } = await this.sendAll();
        if (outcome.outcome === "known") return { outcome: "known", reason: "this record was released before" };
        const own = left.find(({ bytes }) => bytes === outcome.bytes);
        const delivery = sent.has(outcome.bytes) ? "sent" : (own?.state ?? "queued");
        return { outcome: "released", delivery, reason: own?.reason ?? "", bytes: outcome.bytes };
      });
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      return { outcome: "unavailable", reason: "the gateway cannot be reached: nothing was released" };
    } finally {
      words.wipe();
      this.busy--;
    }
  }

  /** Send what waits, one release a request; return what was not accepted. */
  async flush(): Promise<Undelivered[]> {
    return locked("murk", async () => (await this.sendAll()).left);
  }

  private async sendAll(): Promise<{ sent: Set<string>; left: Undelivered[] }> {
    const sent = new Set<string>();
    const left: Undelivered[] = [];
    const now = this.clock();
    let wait = this.notBefore - now;
    for (const one of this.optOut ? [] : await this.ledger.waiting(now)) {
      // The address is this task's: it would refuse another task's releases for good.
      if (one.gateway !== this.options.gateway || one.task !== this.task.hash) continue;
      const { reason, after } = wait > 0 ? { reason: "unavailable", after: wait } : await this.send(one);
      if (after > 0) {
        wait = after;
        left.push({ bytes: one.bytes, state: "queued", reason });
        continue;
      }
      await this.ledger.delivered(one, reason === "");
      if (reason) left.push({ bytes: one.bytes, state: "rejected", reason });
      else sent.add(one.bytes);
    }
    if (left.some(({ state }) => state === "queued")) this.later(wait);
    else this.failures = 0;
    return { sent, left };
  }

  /** Withdraw: nothing is released to this task again, and what waits is deleted. What was spent stays spent. */
  async withdraw(): Promise<void> {
    await locked("murk", () => this.ledger.withdraw(this.prepared, this.origin));
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.ledger.close();
  }

  private async newest(chain: number): Promise<string | null> {
    const address = `${this.options.gateway}/v1/tasks/${encodeURIComponent(this.task.name)}/model?chain=${chain}`;
    try {
      const response = await this.ask(address, plain(this.options));
      if (response.status === 204) return null;
      if (response.ok) return await textOf(response, 512 + 26 * this.prepared.protocol.modelSize, "model");
    } catch (error) {
      // As if it had not answered.
      if (error instanceof Refused) throw error;
    }
    throw new Unreachable();
  }

  /** Send one release; `after` is when to try again, in seconds, 0 if it was accepted or refused for good. */
  private async send({ bytes }: Waiting): Promise<{ reason: string; after: number }> {
    const patience = Math.min(LONGEST_WAIT, 2 ** Math.min(this.failures, 12));
    try {
      const response = await this.ask(`${this.options.gateway}/v1/tasks/${encodeURIComponent(this.task.name)}/releases`, {
        ...plain(this.options),
        method: "POST",
        body: bytes,
        keepalive: bytes.length < KEEPALIVE,
      });
      const { status } = response;
      if (status === 202) return { reason: "", after: 0 };
      if (FINAL.has(status)) return { reason: await reasonOf(response), after: 0 };
      this.failures++;
      const named = Number(response.headers.get("Retry-After"));
      const after = named > 0 ? Math.min(named, 86_400) : patience;
      if (named > 0) this.notBefore = this.clock() + after;
      return { reason: `status-${status}`, after };
    } catch {
      this.failures++;
      return { reason: "unavailable", after: patience };
    }
  }

  private later(seconds: number): void {
    if (this.closed) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      // A release under way sends what waits itself.
      if (this.busy === 0) void this.flush().catch(() => undefined);
    }, seconds * 1000);
    // In Node a waiting release does not keep the process alive: the next one sends it.
    (this.timer as { unref?: () => void }).unref?.();
  }
}

/** Return what reaches the gateway: directly, or by a module that only relays need. */
async function reaching(gateway: string, { relay, keys, fetch: given }: Options): Promise<typeof fetch> {
  const direct: typeof fetch = given ?? ((...request) => fetch(...request));
  if (relay === undefined) return direct;
  const { relayed } = await import("./ohttp.js");
  return relayed({ url: relay, gateway, keys, fetch: direct });
}

/** The task's document from the gateway, else as it was last time: a person can withdraw without a connection. */
async function documentOf(store: Store, options: Reaching): Promise<{ text: string; fresh: boolean }> {
  const { gateway, task } = options;
  const key = documentKey(options);
  let status: unknown = "no answer";
  try {
    const response = await options.fetch(`${gateway}/v1/tasks/${encodeURIComponent(task)}`, plain(options));
    // Bytes that are not UTF-8 would decode to others, with another hash.
    if (response.ok) return { text: await textOf(response, MOST_BYTES, "task"), fresh: true };
    status = response.status;
  } catch (error) {
    if (error instanceof Refused) throw error;
  }
  const known = await store.update([key], (rows) => [rows.get(key), {}] as const);
  if (known === undefined) throw new Refused("unavailable", `the gateway has no task ${task} for this device (${String(status)})`);
  return { text: known, fresh: false };
}

const documentKey = ({ gateway, task }: Options): string => `document:${gateway} ${task}`;

/** The text of an answer's body, which is not read beyond `most` bytes. */
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

/** Settings of every request: no cookies, no referrer, nothing kept that names a person. */
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
    // The status says enough.
  }
  return `status-${response.status}`;
}
