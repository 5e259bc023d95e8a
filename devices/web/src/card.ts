/**
 * A consent card: what is asked, the promise with its number, what leaves the device, what was spent, and the way out.
 *
 *     import { defineCard } from "murk-device/card";
 *     defineCard();
 *     const card = document.querySelector("murk-consent");
 *     card.record = () => ({ age: 28, same_sex: "yes", third_child: "no" });
 *     card.device = await connect({ gateway, task });
 */
import type { Record_ } from "./coding.js";
import type { Device, Receipt, Status } from "./device.js";
import type { Guarantee, Loss } from "./mechanisms.js";
import { percent } from "./promise.js";

/** All texts of the card; translate them with `card.texts = {...}`. */
export const ENGLISH = {
  title: "A private answer",
  asked: "Asked about you: {columns}.",
  promise:
    "Before anything leaves this device, it is blurred with noise. From the answer, an attacker with any knowledge and " +
    "computing power tells your record from any other in at most {percent} of cases; guessing gives 50%. ({figures})",
  atCap: "From all answers that your budget allows together, in at most {percent}.",
  leaves: "What leaves this device is one message of random-looking numbers, without your name or any identifier of you.",
  leavesNamed: "What leaves this device is one message of random-looking numbers. Your login goes with it, and shows whose message it is.",
  remains: "It is not hidden that this device took part, or its network address.",
  bytes: "The very message",
  noBytes: "There is none yet.",
  spent: "Privacy spent so far: {spent} of at most {cap}.",
  unknown: "an unknown amount",
  share: "Share a blurred answer",
  withdraw: "Withdraw",
  withdrawn: "You have withdrawn. Nothing more leaves this device for this task.",
  sent: "Your blurred answer was sent.",
  queued: "Your blurred answer is stored, and is sent when the connection allows it.",
  rejected: "The answer was not accepted ({reason}). It is not sent again.",
  known: "You have answered already.",
  done: "Your privacy budget for this task is spent: nothing more leaves this device.",
  changed: "The service has changed its question or its promise since you answered. Nothing more leaves this device.",
  optOut: "Your browser asks sites not to share your data. Nothing is shared.",
  silent: "This device has no record of earlier answers. It stays silent for {days} more days, so that cleared storage cannot spend twice.",
  unavailable: "The service cannot be reached. Nothing was shared.",
  failed: "This device cannot keep its record of what was shared, or the service asks for too much. Nothing was shared.",
  working: "One moment.",
};

export type Texts = typeof ENGLISH;

const STYLE = `
:host { color-scheme: light dark; display: block; container-type: inline-size; font: 1rem/1.5 system-ui, sans-serif; }
section { background: light-dark(#fff, #1b1d21); color: light-dark(#1c1e21, #e8eaed); border: 1px solid light-dark(#c9ced6, #4a4f57);
  border-radius: .75rem; padding: 1.25rem; max-width: 36rem; box-sizing: border-box; }
h2 { font-size: 1.2rem; margin: 0 0 .5rem; } p { margin: .5rem 0; }
.promise { border-inline-start: .25rem solid light-dark(#2f6f4f, #7fd1a6); padding-inline-start: .75rem; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem; margin: .5rem 0 0; }
.actions { display: flex; flex-wrap: wrap; gap: .75rem; margin-top: 1rem; }
button { font: inherit; padding: .55rem 1rem; min-height: 2.75rem; border-radius: .5rem; border: 1px solid currentColor; background: none; color: inherit; cursor: pointer; }
button.share { background: light-dark(#1f5c3f, #7fd1a6); color: light-dark(#fff, #10241a); border-color: transparent; }
button:disabled { opacity: .5; cursor: default; }
button:focus-visible, summary:focus-visible { outline: .2rem solid light-dark(#1a5fd0, #8ab4f8); outline-offset: .15rem; }
@container (max-width: 24rem) { .actions button { width: 100%; } }
`;

/** Four digits, rounded up. */
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

/** Define the element `murk-consent`, or one of another name. */
export function defineCard(name = "murk-consent"): void {
  if (customElements.get(name)) return;
  customElements.define(
    name,
    class extends HTMLElement implements ConsentCard {
      texts: Texts = ENGLISH;
      level = "default";
      key: string | undefined;
      record: () => Record_ = () => ({});
      private connected: Device | undefined;
      private said = "";
      private bytes = "";
      private busy = false;

      get device(): Device | undefined {
        return this.connected;
      }

      set device(device: Device | undefined) {
        this.connected = device;
        void this.update();
      }

      /** Show the account as it is now. */
      async update(): Promise<void> {
        try {
          const status = await this.connected?.status(this.level);
          if (status) this.show(status);
        } catch {
          const alert = Object.assign(document.createElement("p"), { textContent: this.texts.failed });
          alert.setAttribute("role", "alert");
          (this.shadowRoot ?? this.attachShadow({ mode: "open" })).replaceChildren(alert);
        }
      }

      private async act(work: (device: Device) => Promise<string>): Promise<void> {
        if (!this.connected || this.busy) return;
        this.busy = true;
        this.said = this.texts.working;
        await this.update();
        try {
          this.said = await work(this.connected);
        } catch {
          this.said = this.texts.failed;
        }
        this.busy = false;
        await this.update();
      }

      private async share(): Promise<void> {
        await this.act(async (device) => {
          const options = { level: this.level, ...(this.key === undefined ? {} : { key: this.key }) };
          const receipt = await device.release(this.record(), options);
          if (receipt.outcome === "released") this.bytes = receipt.bytes;
          this.dispatchEvent(new CustomEvent<Receipt>("murk-receipt", { detail: receipt, bubbles: true, composed: true }));
          return this.wordsOf(receipt);
        });
      }

      private wordsOf(receipt: Receipt): string {
        const { texts } = this;
        // The account says what waits, also later.
        if (receipt.outcome === "released")
          return receipt.delivery === "queued" ? "" : fill(texts[receipt.delivery], { reason: receipt.reason });
        if (receipt.outcome === "known" || receipt.outcome === "unavailable") return texts[receipt.outcome];
        // The account says the rest.
        return "";
      }

      private show(status: Status): void {
        const { texts, busy } = this;
        const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
        const guarantee = status.task.guarantees.get(this.level)!;
        const own = status.caps[0]!;
        const spent = own.spent === null ? texts.unknown : amount({ ...own.cap, units: own.spent, delta: own.spentDelta });
        const still = status.withdrawn
          ? texts.withdrawn
          : status.optOut
            ? texts.optOut
            : status.changed
              ? texts.changed
              : status.silentFor > 0
                ? fill(texts.silent, { days: String(Math.ceil(status.silentFor / 86_400)) })
                : status.room
                  ? ""
                  : texts.done;
        const focused = (root.activeElement as HTMLElement | null)?.id;
        const element = <K extends keyof HTMLElementTagNameMap>(tag: K, text = "", changes: Partial<HTMLElementTagNameMap[K]> = {}) =>
          Object.assign(document.createElement(tag), { textContent: text }, changes);
        const section = element("section");
        section.setAttribute("aria-labelledby", "title");
        // Names in other scripts must not reorder the sentence.
        const [before = "", after = ""] = texts.asked.split("{columns}");
        const columns = [...status.task.features, status.task.target].flatMap(({ name }, at) => [at ? ", " : "", element("bdi", name)]);
        const asked = element("p");
        asked.append(before, ...columns, after);
        let promise = fill(texts.promise, { percent: percent(status.attackAccuracy), figures: figures(guarantee) });
        if (status.attackAccuracyAtCap > status.attackAccuracy)
          promise += ` ${fill(texts.atCap, { percent: percent(status.attackAccuracyAtCap) })}`;
        const details = element("details");
        details.open = (root.querySelector("details")?.open ?? false);
        details.append(element("summary", texts.bytes, { id: "bytes" }), element("pre", this.bytes || texts.noBytes));
        // One live region for good, which screen readers watch.
        const live = root.querySelector("p[role=status]") ?? element("p");
        live.setAttribute("role", "status");
        const actions = element("div", "", { className: "actions" });
        actions.append(
          element("button", texts.share, { id: "share", className: "share", disabled: busy || still !== "", onclick: () => void this.share() }),
          element("button", texts.withdraw, {
            id: "withdraw",
            disabled: busy || status.withdrawn,
            onclick: () => void this.act((device) => device.withdraw().then(() => "")),
          }),
        );
        section.append(
          element("h2", this.getAttribute("heading") ?? texts.title, { id: "title" }),
          element("slot"),
          asked,
          element("p", promise, { className: "promise" }),
          element("p", `${status.identified ? texts.leavesNamed : texts.leaves} ${texts.remains}`),
          element("p", fill(texts.spent, { spent, cap: amount(own.cap) })),
          details,
          live,
          actions,
        );
        const old = root.querySelector("section");
        if (old) {
          old.replaceChildren(...section.childNodes);
        } else {
          // A content security policy may forbid style elements.
          const sheet = new CSSStyleSheet();
          sheet.replaceSync(STYLE);
          root.adoptedStyleSheets = [sheet];
          root.append(section);
        }
        const waits = status.waiting > 0 ? texts.queued : "";
        live.textContent = [this.said, waits, still].filter((each) => each !== "").join(" ");
        if (focused) root.getElementById(focused)?.focus();
      }
    },
  );
}

/** The element that `defineCard` defines. It says what became of an answer by the event `murk-receipt`. */
export interface ConsentCard extends HTMLElement {
  device: Device | undefined;
  /** Reads the form; called only when the person shares. */
  record: () => Record_;
  /** Identifies the record if it comes again. */
  key: string | undefined;
  level: string;
  texts: Texts;
  update(): Promise<void>;
}
