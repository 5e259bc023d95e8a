/**
 * A consent card: what is asked, the promise with its number, what leaves the device, what was spent, and the way out.
 *
 *     import { defineCard } from "murk-device/card";
 *     defineCard();
 *     const card = document.querySelector("murk-consent");
 *     card.record = () => ({ age: 28, same_sex: "yes", third_child: "no" });
 *     card.options = { gateway, task };
 *
 * It needs only the task to show itself, and loads the device when somebody sees it.
 */
import type { Device, Options, Receipt, Status } from "./device.js";
import { isAssigned, metricsOf } from "./experiment.js";
import { isKnown } from "./known.js";
import type { Guarantee, Loss } from "./mechanisms.js";
import { maxAttackAccuracy, percent } from "./promise.js";
import type { Store } from "./store.js";
import { type About, type Feature, isPage, mostRows, repeatsAnswers, type Target, type TaskDocument } from "./task.js";
import { renewalOf, wholeOf } from "./windows.js";
import { Refused } from "./errors.js";

/** All texts of the card; translate them with `card.texts = {...}`. */
export const ENGLISH = {
  title: "A private answer",
  asked: "Asked about you: {columns}.",
  drawn: "Of {columns}, this device draws one at random, and answers only that one.",
  asIs: "Sent as they are, without noise: {columns}. Your answers may be linked by them.",
  assigned: "Drawn at random by this device: {columns}.",
  promise:
    "Before anything leaves this device, it is blurred with noise. From the answer, an attacker with any knowledge and " +
    "computing power tells your record from any other in at most {percent} of cases; guessing gives 50%. ({figures})",
  promiseKnown:
    "Before anything else leaves this device, it is blurred with noise. From the answer, an attacker with any knowledge and " +
    "computing power tells your record from any other that is the same in what is sent as it is, in at most {percent} of " +
    "cases; guessing gives 50%. ({figures})",
  atCap: "From all answers that your budget allows together, in at most {percent}.",
  once: "You can answer once {each}.",
  renews: "Your budget renews once {each}.",
  atWindow: "From all answers of one such budget together, in at most {percent}.",
  endless: "Answers add up, and no cap holds over all of them.",
  rows: "Your answer counts as many records as you give before it is made, up to {rows}. Their number is protected as they are.",
  repeats:
    "While your record is the same, your last answer is repeated. A repeated answer costs nothing, as it is the same " +
    "numbers again. It shows which answers are one person's, and a new one shows that the record has changed, and when: " +
    "no noise hides that.",
  each: { day: "a day", week: "a week", month: "a month", days: "every {days} days" },
  leaves: "What leaves this device is one message of {content}, without your name or any identifier of you.",
  leavesNamed: "What leaves this device is one message of {content}. Your login goes with it, and shows whose message it is.",
  numbers: "random-looking numbers",
  numbersKnown: "these values and random-looking numbers",
  remains: "It is not hidden that this device took part, or its network address.",
  final: "What was sent cannot be taken back, or removed from a result that was learned from it.",
  days: "{days} days",
  archived: "A copy of the message is kept in an archive for at most {kept}. Who may read it: {readers}. Who may write to it: {writers}.",
  purpose: "Purpose",
  controller: "Responsible",
  contact: "Contact",
  notice: "Privacy notice",
  receipt: "Keep a receipt",
  bytes: "The very message",
  noBytes: "There is none yet.",
  spent: "Privacy spent so far: {spent} of at most {cap}.",
  spentEach: "Privacy spent of the budget that renews: {spent} of at most {cap}.",
  unknown: "an unknown amount",
  share: "Share a blurred answer",
  questions: "The questions",
  decline: "No, thanks",
  declined: "Nothing was shared, and nothing is stored.",
  unshared: "Nothing was shared. This browser keeps a random number, and nothing about you.",
  withdraw: "Withdraw",
  withdrawn: "You have withdrawn. Nothing more leaves this device for this task. {final}",
  sent: "Your blurred answer was sent.",
  queued: "Your blurred answer is stored, and is sent when the connection allows it.",
  rejected: "The answer was not accepted ({reason}). It is not sent again.",
  known: "You have answered already.",
  done: "Your privacy budget for this task is spent: nothing more leaves this device.",
  last: "With it, your privacy budget for this task is spent.",
  held: "Your blurred answer stays on this device.",
  next: "You can answer again from {date}.",
  holding: "What you entered stays on this device, encrypted, until its time is over. Then one blurred answer is sent, and it is deleted.",
  changed: "The service has changed its question or its promise since you answered. Nothing more leaves this device.",
  optOut: "Your browser asks sites not to share your data. Nothing is shared.",
  silent: "This device has no record of earlier answers. It stays silent for {days} more days, so that cleared storage cannot spend twice.",
  first: "This device has no record of earlier answers. Share to begin one: it then stays silent for {days} days, so that cleared storage cannot spend twice.",
  unavailable: "The service cannot be reached. Nothing was shared.",
  storage: "This browser keeps no storage for this page, so the device cannot record what was shared. Nothing was shared.",
  different: "The service does not ask what this page says, or it promises too little. Nothing was shared.",
  notAllowed: "The service takes no answers from this page. Nothing was shared.",
  clock: "The clock of this device is wrong. Set it, and try again. Nothing was shared.",
  wiped: "The storage of this browser was cleared. Load the page again. Nothing was shared.",
  failed: "This page has an error. Nothing was shared.",
  working: "One moment.",
};

export type Texts = typeof ENGLISH;

const STYLE = `
:host { color-scheme: light dark; display: block; container-type: inline-size; font: var(--murk-font, 1rem/1.5 system-ui, sans-serif);
  --accent: var(--murk-accent, light-dark(#1f5c3f, #7fd1a6)); }
section, .alert { background: var(--murk-background, light-dark(#fff, #1b1d21)); color: var(--murk-color, light-dark(#1c1e21, #e8eaed));
  border: 1px solid var(--murk-border, light-dark(#c9ced6, #4a4f57)); border-radius: var(--murk-radius, .75rem); padding: 1.25rem;
  max-width: 36rem; box-sizing: border-box; }
h2 { font-size: 1.2rem; margin: 0 0 .5rem; } p { margin: .5rem 0; } dt { font-weight: 600; } dd { margin: 0 0 .5rem; }
.promise { border-inline-start: .25rem solid var(--accent); padding-inline-start: .75rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem; margin: .5rem 0 0; }
.actions { display: flex; flex-wrap: wrap; gap: .75rem; margin-top: 1rem; }
button { font: inherit; padding: .55rem 1rem; min-height: 2.75rem; border-radius: .5rem; border: 1px solid currentColor; background: none; color: inherit; cursor: pointer; }
button.share { background: var(--accent); color: var(--murk-on-accent, light-dark(#fff, #10241a)); border-color: transparent; }
button:disabled { opacity: .5; cursor: default; }
button:focus-visible, summary:focus-visible { outline: .2rem solid var(--murk-focus, light-dark(#1a5fd0, #8ab4f8)); outline-offset: .15rem; }
@container (max-width: 24rem) { .actions button { width: 100%; } }
`;

/** Style a card; a content security policy may forbid style elements. */
function styled(root: ShadowRoot): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(STYLE);
  root.adoptedStyleSheets = [sheet];
}

/** A number rounded up to four digits. */
function figure(value: number): string {
  if (value === 0) return "0";
  const unit = 10 ** (Math.floor(Math.log10(value)) - 3);
  return String(Number((Math.ceil((value * (1 - 1e-9)) / unit) * unit).toPrecision(4)));
}

function figures(guarantee: Guarantee): string {
  const [values] = Object.values(guarantee);
  return Object.entries(values ?? {})
    .map(([name, value]) => `${name} = ${figure(value)}`)
    .join(", ");
}

function amount({ currency, units, delta }: Loss): string {
  const value = Number(units) / 1e12;
  if (currency === "gdp") return `mu = ${figure(Math.sqrt(value))}`;
  if (currency === "approx") return `epsilon = ${figure(value)}, delta = ${figure(Number(delta) / 1e15)}`;
  return `${currency} = ${figure(value)}`;
}

const fill = (text: string, values: Record<string, string>): string =>
  text.replace(/\{(\w+)\}/g, (whole, name: string) => values[name] ?? whole);

/** What the card shows: a task, and once the device is loaded the account, too. */
interface View extends Pick<Status, "attackAccuracy" | "attackAccuracyAtCap" | "identified"> {
  readonly task: Pick<TaskDocument, "name" | "about" | "experiment" | "features" | "target" | "privacy" | "weight">;
  readonly guarantee: Guarantee;
  readonly account?: Status;
}

/** An error that the page's own code raised. */
class PageError extends Error {}

/** Reasons of failures after which another attempt may succeed. */
const PASSING = ["storage", "unavailable", "clock", "wiped"];

/** Whether a device would refuse any answer. */
const isFinal = (error: unknown): boolean => error instanceof Refused && !PASSING.includes(error.reason);

/** Return whether columns of a task's kinds can be coded at all; the device checks the rest. */
function isCodable(task: TaskDocument): boolean {
  const { features, target } = task;
  const fits = ({ categories, kind, low, high }: Feature): boolean =>
    categories ? categories.length > 1 : kind === "date" || (Number(high) > Number(low) && kind === undefined);
  const known = features.filter(isKnown).length;
  return features.every(fits) && [0, features.length].includes(known) && [target, ...metricsOf(task)].every(({ kind }) => ["binary", "classes", "real"].includes(kind));
}

/** The words for a failure; what only the page's author can mend goes to the console, too. */
function wordsFor(error: unknown, texts: Texts): string {
  const cause = error instanceof PageError ? error.cause : error;
  const reason = error instanceof Refused ? error.reason : "";
  const words: Record<string, string> = {
    ...{ storage: texts.storage, unavailable: texts.unavailable, clock: texts.clock, wiped: texts.wiped, origin: texts.notAllowed },
    ...Object.fromEntries(["wrong-hash", "task", "guarantee", "mechanism", "model"].map((each) => [each, texts.different])),
  };
  if (!PASSING.includes(reason)) reportError(cause);
  return words[reason] ?? texts.failed;
}

/** Who asks and why, as terms and descriptions. A link leads to a page, and runs nothing. */
function* terms(about: About, texts: Texts): Generator<[string, Node | string]> {
  for (const key of ["purpose", "controller", "contact", "notice"] as const) {
    const words = about[key];
    if (!words) continue;
    const shown = key === "notice" && isPage(words) ? Object.assign(document.createElement("a"), { href: words, textContent: words, target: "_blank", rel: "noopener noreferrer" }) : words;
    yield [texts[key], shown];
  }
}

/** What a person agreed to and sent, as text to keep: without the record, which is deleted. */
function receiptOf(account: Status, level: string, shown: string): string {
  const { task, released, repeated, sent, waiting, withdrawn, days, message } = account;
  const { name, hash, about, features, privacy } = task;
  const promise = { level, guarantee: task.guarantees.get(level), cap: privacy.per_person, window: renewalOf(task) ?? null, lifetime: privacy.lifetime ?? null, repeat: privacy.repeat ?? "anew", rows: mostRows(task), told_apart_at_most: account.attackAccuracy };
  const asked = columnsOf(task).map((column) => column.label ?? column.name);
  const answers = { days, released, repeated, sent, waiting, withdrawn, message };
  const known = { sent_as_they_are: features.filter(isKnown).map((column) => column.label ?? column.name) };
  return JSON.stringify({ receipt: "murk consent", task: name, hash, about: about ?? null, asked, ...known, promise, answers, shown }, null, 2);
}

/** Columns of a record, the target and metrics last. */
const columnsOf = (task: Pick<TaskDocument, "experiment" | "features" | "target">): (Feature | Target)[] => [...task.features, task.target, ...metricsOf(task)];

/** A column's question in the task's words. */
function description(column: Feature | Target): string {
  const labels = Object.values(column.labels ?? {});
  return [column.description ?? "", labels.length ? `${labels.join(", ")}.` : ""].filter(Boolean).join(" ");
}

/** Define the element `murk-consent`, or one of another name. */
export function defineCard(name = "murk-consent"): void {
  if (customElements.get(name)) return;
  customElements.define(
    name,
    class extends HTMLElement implements ConsentCard {
      texts: Texts = ENGLISH;
      level = "default";
      key: string | undefined;
      record: () => object = () => ({});
      load: () => Promise<DeviceModule> = () => import("./index.js");
      private chosen: CardOptions | undefined;
      private document: TaskDocument | undefined;
      private connecting: Promise<Device> | undefined;
      private connected: Device | undefined;
      private watcher: IntersectionObserver | undefined;
      private said = "";
      private busy = false;
      private declined = false;
      private turn = 0;
      private last: Status | undefined;
      private readonly follow = (): void => void this.update();

      get device(): Device | undefined {
        return this.connected;
      }

      set device(device: Device | Promise<Device> | undefined) {
        this.connected?.removeEventListener?.("change", this.follow);
        this.connected = this.last = undefined;
        this.connecting = device && Promise.resolve(device);
        if (device instanceof Promise) void this.ready().then(this.follow, (error: unknown) => this.fail(error));
        else {
          this.connected = device;
          device?.addEventListener?.("change", this.follow);
          void this.update();
        }
      }

      get options(): CardOptions | undefined {
        return this.chosen;
      }

      set options(options: CardOptions | undefined) {
        this.chosen = options;
        this.device = undefined;
        this.document = undefined;
        if (!options) return;
        void this.read(options).then(this.follow, () => this.begin());
        this.watcher?.disconnect();
        this.watcher = new IntersectionObserver((entries) => {
          if (entries.some(({ isIntersecting }) => isIntersecting)) this.begin();
        });
        this.watcher.observe(this);
      }

      /** Read the task, so that the card can show it before the device is loaded. */
      private async read({ gateway, task, fetch: given, token, relay }: CardOptions): Promise<void> {
        if (relay !== undefined) return;
        const address = `${gateway.replace(/\/+$/, "")}/v1/tasks/${encodeURIComponent(task)}`;
        const init: RequestInit = { credentials: "omit", referrerPolicy: "no-referrer" };
        const response = await (given ?? fetch)(address, token === undefined ? init : { ...init, headers: { Authorization: `Bearer ${token}` } });
        if (!response.ok) throw new TypeError("no task");
        const found = (await response.json()) as TaskDocument;
        // If no device can answer the task, nobody is asked: the card says why.
        if (!isCodable(found)) throw new TypeError("no task");
        this.document = found;
      }

      /** Load the device, and connect it. */
      private begin(): void {
        this.watcher?.disconnect();
        const options = this.chosen;
        if (!options || this.connecting || this.declined) return;
        this.device = this.load().then(({ connect }) => connect(options));
      }

      private async ready(): Promise<Device> {
        this.begin();
        const { connecting } = this;
        const device = await connecting!;
        if (this.connecting === connecting && this.connected !== device) {
          this.connected = device;
          device.addEventListener?.("change", this.follow);
          // Fetch what an answer needs, so that it can be stored without a connection, too.
          void device.prepare?.().catch(() => undefined);
        }
        return device;
      }

      private fail(error: unknown): void {
        const words = wordsFor(error, this.texts);
        // Another attempt may succeed.
        if (this.chosen) this.connecting = undefined;
        const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
        if (isFinal(error)) this.document = undefined;
        else if (root.querySelector("section")) {
          this.said = words;
          void this.update();
          return;
        }
        const [card, alert] = [document.createElement("div"), document.createElement("p")];
        Object.assign(alert, { textContent: words });
        alert.setAttribute("role", "alert");
        alert.part.add("status");
        card.className = "alert";
        card.part.add("card");
        card.append(alert);
        styled(root);
        root.replaceChildren(card);
      }

      /** Show the account as it is now. */
      async update(): Promise<void> {
        const turn = ++this.turn;
        const { connected, document: task, level } = this;
        try {
          if (connected) {
            const account = await connected.status(level);
            if (turn !== this.turn) return;
            if (this.last && account.sent > this.last.sent && account.waiting === 0 && !this.busy) this.said = this.texts.sent;
            this.last = account;
            this.show({ ...account, guarantee: account.task.guarantees.get(level)!, account });
          } else if (task) {
            const { guarantee: usual, levels } = task.privacy;
            const guarantee = level === "default" ? usual : (levels as Record<string, Guarantee>)[level];
            if (!guarantee) return;
            const [attackAccuracy, attackAccuracyAtCap] = [guarantee, wholeOf(task) ?? guarantee].map(maxAttackAccuracy) as [number, number];
            this.show({ task, guarantee, attackAccuracy, attackAccuracyAtCap, identified: this.chosen?.token !== undefined });
          }
        } catch (error) {
          if (turn === this.turn) this.shadowRoot?.querySelector("section")?.remove();
          this.fail(error);
        }
      }

      private async act(work: (device: Device) => Promise<string>): Promise<void> {
        if (this.busy) return;
        this.busy = true;
        this.said = this.texts.working;
        await this.update();
        try {
          this.said = await work(await this.ready());
        } catch (error) {
          this.busy = false;
          this.said = "";
          if (!this.connected) return this.fail(error);
          this.said = wordsFor(error, this.texts);
        }
        this.busy = false;
        await this.update();
      }

      private async share(): Promise<void> {
        await this.act(async (device) => {
          let record: object;
          try {
            record = this.record();
          } catch (error) {
            throw new PageError("record() failed", { cause: error });
          }
          const receipt = await device.release(record as Parameters<Device["release"]>[0], { level: this.level, key: this.key });
          this.dispatchEvent(new CustomEvent<Receipt>("murk-receipt", { detail: receipt, bubbles: true, composed: true }));
          return this.wordsOf(receipt);
        });
      }

      private async decline(): Promise<void> {
        this.declined = true;
        if (this.connecting) await this.act((device) => device.withdraw().then(() => ""));
        else await this.update();
      }

      private wordsOf(receipt: Receipt): string {
        const { texts } = this;
        // The account says what waits, now and later.
        if (receipt.outcome === "released")
          return receipt.delivery === "queued" ? "" : fill(texts[receipt.delivery], { reason: receipt.reason });
        if (receipt.outcome === "known" || receipt.outcome === "unavailable") return texts[receipt.outcome];
        const words: Record<string, string> = { clock: texts.clock, wiped: texts.wiped, mechanism: texts.different, "lost-key": texts.done };
        // The account says everything else.
        return words[receipt.reason] ?? "";
      }

      /** Why nothing further can be shared. */
      private still(account: Status | undefined): string {
        const { texts } = this;
        if (!account) return this.declined ? texts.declined : "";
        if (account.withdrawn && !account.released) return account.begun ? texts.unshared : texts.declined;
        if (account.withdrawn) return fill(texts.withdrawn, { final: texts.final });
        if (account.optOut) return texts.optOut;
        if (account.changed) return texts.changed;
        if (account.silentFor > 0 && account.begun) return fill(texts.silent, { days: days(account.silentFor) });
        if (account.room) return "";
        if (account.next != null) return fill(texts.next, { date: new Date(account.next * 1000).toISOString().slice(0, 10) });
        return account.waiting > 0 ? texts.last : texts.done;
      }

      /** The promise of a budget that renews; undefined if the budget does not renew. */
      private renewing({ privacy }: View["task"], single: number, guarantee: Guarantee, atCap: string): string | undefined {
        const { texts } = this;
        const renewal = renewalOf({ privacy });
        if (!renewal) return undefined;
        const words = texts.each[renewal as keyof Texts["each"]] ?? fill(texts.each.days, { days: renewal.slice(0, -1) });
        const within = maxAttackAccuracy(privacy.per_person ?? guarantee);
        const said = [fill(privacy.per_person ? texts.renews : texts.once, { each: words })];
        if (within > single) said.push(fill(texts.atWindow, { percent: percent(within) }));
        return [...said, privacy.lifetime ? atCap : texts.endless].join(" ");
      }

      private show({ task, guarantee, account, attackAccuracy, attackAccuracyAtCap, identified }: View): void {
        const { texts, busy } = this;
        const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
        const still = this.still(account);
        const focused = (root.activeElement as HTMLElement | null)?.id;
        const element = <K extends keyof HTMLElementTagNameMap>(tag: K, text = "", changes: Partial<HTMLElementTagNameMap[K]> = {}, part = "") => {
          const made = Object.assign(document.createElement(tag), { textContent: text }, changes);
          if (part) made.setAttribute("part", part);
          return made;
        };
        const body = element("div");
        // Names in other scripts must not reorder the sentence.
        const naming = (text: string, columns: (Feature | Target)[], part: string): HTMLElement => {
          const named = columns.flatMap((column, at) => [at ? ", " : "", element("bdi", column.label ?? column.name)]);
          const [before = "", after = ""] = text.split("{columns}");
          const said = element("p", "", {}, part);
          said.append(before, ...named, after);
          return said;
        };
        const known = task.features.filter(isKnown);
        const arms = known.filter(({ name }) => isAssigned(task) && name === task.experiment!.arm);
        const asked = [naming(texts.asked, columnsOf(task).filter((each) => !("known" in each && isKnown(each))), "asked")];
        if (metricsOf(task).length) asked.push(naming(texts.drawn, [task.target, ...metricsOf(task)], "asked"));
        if (known.length) asked.push(naming(texts.asIs, known, "known"));
        if (arms.length) asked.push(naming(texts.assigned, arms, "known"));
        let promise = fill(known.length ? texts.promiseKnown : texts.promise, { percent: percent(attackAccuracy), figures: figures(guarantee) });
        const atCap = attackAccuracyAtCap > attackAccuracy ? fill(texts.atCap, { percent: percent(attackAccuracyAtCap) }) : "";
        const counted = mostRows(task) > 1 ? fill(texts.rows, { rows: String(mostRows(task)) }) : "";
        const renewing = this.renewing(task, attackAccuracy, guarantee, atCap) ?? atCap;
        promise = [promise, renewing, counted, repeatsAnswers(task) ? texts.repeats : ""].filter(Boolean).join(" ");
        const folded = (id: string, summary: string, ...content: Node[]): HTMLElement => {
          const details = element("details", "", {}, "details");
          details.open = root.getElementById(id)?.parentElement?.hasAttribute("open") ?? false;
          details.append(element("summary", summary, { id }), ...content);
          return details;
        };
        const list = element("dl");
        for (const column of columnsOf(task)) {
          const words = description(column);
          if (words) list.append(element("dt", column.label ?? column.name), element("dd", words));
        }
        const about = element("dl", "", {}, "about");
        for (const [term, words] of terms(task.about ?? {}, texts)) {
          const described = element("dd");
          described.append(words);
          about.append(element("dt", term), described);
        }
        const leaves = fill(identified ? texts.leavesNamed : texts.leaves, { content: known.length ? texts.numbersKnown : texts.numbers });
        const archive = task.about?.archive;
        const kept = archive?.kept.endsWith("d") ? fill(texts.days, { days: archive.kept.slice(0, -1) }) : (archive?.kept ?? "");
        const archived = archive ? fill(texts.archived, { ...archive, kept }) : "";
        const spent = (account?.caps ?? []).slice(0, task.privacy.lifetime ? 2 : 1).map((each) => {
          const so = each.spent === null ? texts.unknown : amount({ ...each.cap, units: each.spent, delta: each.spentDelta });
          const words = fill(each.renews ? texts.spentEach : texts.spent, { spent: so, cap: amount(each.cap) });
          return element("p", words, {}, "spent");
        });
        body.append(
          element("h2", this.getAttribute("heading") ?? texts.title, { id: "title" }, "heading"),
          element("slot"),
          ...asked,
          ...(list.childElementCount ? [folded("questions", texts.questions, list)] : []),
          ...(about.childElementCount ? [about] : []),
          element("p", promise, { className: "promise" }, "promise"),
          element("p", [leaves, texts.remains, texts.final, archived].filter(Boolean).join(" "), {}, "leaves"),
          ...spent,
          folded("bytes", texts.bytes, element("pre", account?.message || texts.noBytes)),
        );
        if (!root.querySelector("section")) {
          const section = element("section", "", {}, "card");
          section.setAttribute("aria-labelledby", "title");
          // One live region that is never replaced, as screen readers watch it, and buttons that stay the same during a click.
          const status = element("p", "", {}, "status");
          status.setAttribute("role", "status");
          const actions = element("div", "", { className: "actions" }, "actions");
          actions.append(
            element("button", "", { id: "share", className: "share" }, "button share"),
            element("button", "", { id: "withdraw" }, "button withdraw"),
            element("button", texts.receipt, { id: "receipt", hidden: true }, "button receipt"),
          );
          section.append(element("div"), status, actions);
          styled(root);
          root.replaceChildren(section);
        }
        const shown = root.querySelector("section > div")!;
        if (shown.innerHTML !== body.innerHTML) shown.replaceChildren(...body.childNodes);
        const shared = account !== undefined && (account.released > 0 || account.waiting > 0 || account.held > 0);
        const withdrawing = (device: Device): Promise<string> => device.withdraw().then(() => "");
        const over = account?.withdrawn ?? this.declined;
        Object.assign(root.getElementById("share")!, { textContent: texts.share, disabled: busy || still !== "", onclick: () => void this.share() });
        Object.assign(root.getElementById("withdraw")!, {
          textContent: shared ? texts.withdraw : texts.decline,
          disabled: busy || over,
          onclick: () => void (shared ? this.act(withdrawing) : this.decline()),
        });
        Object.assign(root.getElementById("receipt")!, {
          textContent: texts.receipt,
          hidden: !account?.released,
          onclick: () => keep(`${task.name}-receipt.json`, receiptOf(account!, this.level, shown.textContent ?? "")),
        });
        const waits = account && account.waiting > 0 ? (account.optOut ? texts.held : texts.queued) : account && account.held > 0 ? texts.holding : "";
        const first = account && !account.begun && account.silentFor > 0 && still === "" ? fill(texts.first, { days: days(account.silentFor) }) : "";
        root.querySelector("p[role=status]")!.textContent = [this.said, waits, still, first].filter((each) => each !== "").join(" ");
        if (focused && root.activeElement?.id !== focused) root.getElementById(focused)?.focus();
      }
    },
  );
}

/** Let a person keep a text as a file. */
function keep(name: string, text: string): void {
  const href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  Object.assign(document.createElement("a"), { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000);
}

const days = (seconds: number): string => String(Math.ceil(seconds / 86_400));

/** What `connect` takes. */
export type CardOptions = Options & { readonly store?: Store | undefined };

/** A module that connects a device: `murk-device`, or `murk-device/scores`. */
export interface DeviceModule {
  connect(options: CardOptions): Promise<Device>;
}

/** The element that `defineCard` defines. It says what became of an answer by the event `murk-receipt`. */
export interface ConsentCard extends HTMLElement {
  /** Where the task is. The card shows it, and connects a device when somebody sees the card. */
  options: CardOptions | undefined;
  /** Loads the device; `murk.js` beside this module by default. */
  load: () => Promise<DeviceModule>;
  /** A device that the page has connected, or connects: then the card needs no `options`. */
  get device(): Device | undefined;
  set device(device: Device | Promise<Device> | undefined);
  /** Reads the form; called only when the person shares. */
  record: () => object;
  /** A text by which the same record is recognised if the page gives it again. */
  key: string | undefined;
  level: string;
  texts: Texts;
  update(): Promise<void>;
}

declare global {
  interface HTMLElementTagNameMap {
    "murk-consent": ConsentCard;
  }
  interface HTMLElementEventMap {
    "murk-receipt": CustomEvent<Receipt>;
  }
}
