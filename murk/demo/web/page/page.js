// The visitor's form and account, and the crowd's estimate. What is sent is the device's and the card's business.

import { defineCard } from "./card.js";
import { byId, element, setText } from "./live/dom.js";
import { count, decimals, NONE } from "./live/format.js";
import { connect, percent } from "./murk.js";

const TASK = "rested";
const EVERY = 1000;
const WIDEST = 30; // points at the ends of a track
const TROUBLE = {
  storage: "This browser keeps no storage for the page, so nothing can be shared from it.",
  unavailable: "The demonstration does not answer: start it again. What you have shared is not lost.",
};
const EFFECTS = { sleep: "One more hour of sleep", coffee: "Coffee after noon" };

const card = document.querySelector("murk-consent");
const rows = new Map();
let device;
let before = "";

function start() {
  defineCard();
  card.record = () => Object.fromEntries(new FormData(byId("form")));
  card.addEventListener("murk-receipt", ({ detail }) => {
    if (detail.outcome !== "released") return;
    setText(byId("bytes"), detail.bytes);
    byId("bytes").hidden = false;
    void look();
  });
  byId("sleep").addEventListener("input", ({ target }) => setText(byId("hours"), target.value));
  for (const [name, label] of Object.entries(EFFECTS)) rows.set(name, row(label));
  void look();
}

async function look() {
  clearTimeout(look.timer);
  try {
    // A browser that is cleared begins anew: here nobody has an account by which to notice.
    if (!device) card.device = device = await connect({ gateway: location.origin, task: TASK, first: async () => true });
    const waits = await showOwn();
    const answer = await fetch("live/api/status", { cache: "no-store", signal: AbortSignal.timeout(10_000) });
    showCrowd(await answer.json());
    byId("trouble").hidden = true;
    // It answers again: what waits need not wait for the device's own next attempt.
    if (waits) await device.flush();
  } catch (error) {
    setText(byId("trouble"), TROUBLE[error.reason] ?? TROUBLE.unavailable);
    byId("trouble").hidden = false;
  }
  look.timer = setTimeout(look, EVERY);
}

async function showOwn() {
  const { released, waiting, sent, room, withdrawn, attackAccuracy } = await device.status();
  byId("questions").disabled = withdrawn || !room;
  byId("own").hidden = released === 0;
  setText(byId("guess"), percent(attackAccuracy));
  setText(byId("delivery"), delivery(waiting, sent));
  const now = `${released} ${waiting} ${withdrawn}`;
  // Another tab, or the device itself, may have changed the account.
  if (now !== before) await card.update();
  before = now;
  return waiting > 0;
}

function delivery(waiting, sent) {
  if (waiting) return "Your answer waits in this browser. It is sent, once, as soon as the demonstration answers.";
  if (!sent) return "Your answer was not sent, and never will be.";
  const kept = !byId("bytes").hidden;
  return kept ? "Your answer was sent, as these bytes and nothing else." : "Your answer was sent; this browser keeps no copy.";
}

function row(label) {
  const effect = element("div", "effect");
  const head = element("p");
  const track = element("div", "track");
  const [value, figures] = [element("strong"), element("p", "figures")];
  const marks = Object.fromEntries(["none", "band", "estimate", "truth"].map((name) => [name, element("i", name)]));
  track.setAttribute("aria-hidden", "true");
  track.append(...Object.values(marks));
  marks.none.style.left = "50%";
  head.append(element("span", "", label), value);
  effect.append(head, track, figures);
  byId("effects").append(effect);
  return { ...marks, value, figures };
}

const place = (points) => 50 + (50 * Math.max(-WIDEST, Math.min(WIDEST, points))) / WIDEST;
const signed = (points) => (points > 0 ? "+" : "") + decimals(points, 1);

function showCrowd({ releases, estimate, reference }) {
  setText(byId("releases"), count(releases));
  setText(byId("interval"), `interval, ${estimate.looks.words}`);
  estimate.names.forEach((name, at) => {
    const shown = rows.get(name);
    if (!shown) return;
    const { factor } = estimate.units[name];
    const [value, half] = [estimate.values[at], estimate.half_widths[at]];
    const known = value !== null && half !== null;
    const [low, mid, high, truth] = [value - half, value, value + half, reference[name]].map((each) => each * factor);
    for (const mark of [shown.band, shown.estimate]) mark.hidden = !known;
    shown.truth.style.left = `${place(truth)}%`;
    shown.estimate.style.left = `${place(mid)}%`;
    shown.band.style.left = `${place(low)}%`;
    shown.band.style.right = `${100 - place(high)}%`;
    setText(shown.value, known ? `${signed(mid)} points` : NONE);
    const interval = known ? `from ${signed(low)} to ${signed(high)}` : "too few answers yet";
    setText(shown.figures, `${interval}; truth ${signed(truth)}`);
  });
}

start();
