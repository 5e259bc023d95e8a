// The visitor's arm and account, and the experiment at every look, with a naive and a valid interval.

import { defineCard } from "./card.js";
import { byId, element, setText } from "./live/dom.js";
import { count, decimals } from "./live/format.js";
import { connect } from "./murk.js";

const TASK = "checkout";
const EVERY = 1000;
const WIDEST = 15; // points at the edges of a chart
const [WIDTH, HEIGHT] = [400, 120];
const TROUBLE = {
  storage: "This browser keeps no storage for the page, so nothing can be shared from it.",
  unavailable: "The demonstration does not answer: start it again. What you have shared is not lost.",
};

const card = document.querySelector("murk-consent");
const charts = new Map();
let device;
let stopped = false;

function start() {
  defineCard();
  card.record = () => Object.fromEntries(new FormData(byId("form")));
  byId("stop").addEventListener("click", () => {
    stopped = !stopped;
    setText(byId("stop"), stopped ? "Go on" : "Stop and decide");
    void look();
  });
  void look();
}

async function look() {
  clearTimeout(look.timer);
  try {
    // A browser that is cleared begins anew: here nobody has an account by which to notice.
    if (!device) {
      card.device = device = await connect({ gateway: location.origin, task: TASK, first: async () => true });
      byId("buy").dataset.arm = await device.arm();
    }
    const { waiting, room, withdrawn } = await device.status();
    byId("questions").disabled = withdrawn || !room;
    if (!stopped || !look.seen) {
      const answer = await fetch("looks", { cache: "no-store", signal: AbortSignal.timeout(10_000) });
      look.seen = await answer.json();
    }
    show(look.seen);
    byId("trouble").hidden = true;
    if (waiting) await device.flush();
  } catch (error) {
    setText(byId("trouble"), TROUBLE[error.reason] ?? TROUBLE.unavailable);
    byId("trouble").hidden = false;
  }
  look.timer = setTimeout(look, EVERY);
}

function show({ control, truth, looks }) {
  const last = looks.at(-1);
  setText(byId("people"), count(last?.people ?? 0));
  byId("truth-key").hidden = !stopped;
  const decisions = [];
  for (const [arm, own] of Object.entries(truth)) {
    const path = looks.filter(({ lifts }) => lifts[arm]).map(({ people, lifts }) => [people, ...lifts[arm]]);
    if (!charts.has(arm)) charts.set(arm, chart(arm, control));
    draw(charts.get(arm), path, own);
    if (path.length) decisions.push(decide(arm, control, path, own));
  }
  setText(byId("decision"), stopped ? [`You stopped at ${count(last?.people ?? 0)} answers.`, ...decisions].join("\n") : "");
}

const excludes = (low, high) => low > 0 || high < 0;
const verdict = (low, high) => (low > 0 ? "better" : high < 0 ? "worse" : "no difference shown");

function decide(arm, control, path, own) {
  const [, , low, high, first, second] = path.at(-1);
  const often = path.filter(([, , , , from, to]) => excludes(from, to)).length;
  return (
    `${arm} against ${control}: ${verdict(first, second)} by the naive interval, ${verdict(low, high)} by the valid one. ` +
    `The truth is ${signed(own)} points. ` +
    `The naive interval excluded zero at ${count(often)} of ${count(path.length)} looks.`
  );
}

const signed = (points) => (points > 0 ? "+" : "") + decimals(points, 1);

function chart(arm, control) {
  const box = element("div", "card");
  const head = element("p");
  const value = element("strong");
  const [naive, valid] = [element("p", "figures"), element("p", "figures")];
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  const shape = (name, kind) => {
    const made = document.createElementNS(svg.namespaceURI, kind);
    made.setAttribute("class", name);
    svg.append(made);
    return made;
  };
  const parts = { valid: shape("valid", "polygon"), naive: shape("naive", "polygon"), zero: shape("zero", "line"), truth: shape("truth", "line"), lift: shape("lift", "polyline") };
  head.append(element("span", "", `The ${arm} button, against the ${control} one`), value);
  box.append(head, svg, naive, valid);
  byId("arms").append(box);
  return { ...parts, value, words: { naive, valid } };
}

function draw(shown, path, own) {
  const most = path.at(-1)?.[0] ?? 1;
  const x = (people) => (WIDTH * people) / most;
  const y = (points) => (HEIGHT * (WIDEST - Math.max(-WIDEST, Math.min(WIDEST, points)))) / (2 * WIDEST);
  const level = (line, points) => {
    for (const [name, place] of Object.entries({ x1: 0, x2: WIDTH, y1: y(points), y2: y(points) })) line.setAttribute(name, place);
  };
  const band = (low, high) =>
    [...path.map((each) => `${x(each[0])},${y(each[high])}`), ...path.toReversed().map((each) => `${x(each[0])},${y(each[low])}`)].join(" ");
  level(shown.zero, 0);
  level(shown.truth, own);
  shown.truth.setAttribute("visibility", stopped ? "visible" : "hidden");
  shown.valid.setAttribute("points", band(2, 3));
  shown.naive.setAttribute("points", band(4, 5));
  shown.lift.setAttribute("points", path.map((each) => `${x(each[0])},${y(each[1])}`).join(" "));
  if (!path.length) {
    setText(shown.words.naive, "too few answers yet");
    return;
  }
  const [, value, low, high, first, second] = path.at(-1);
  setText(shown.value, `${signed(value)} points`);
  setText(shown.words.naive, `naive: from ${signed(first)} to ${signed(second)}, ${verdict(first, second)}`);
  setText(shown.words.valid, `valid: from ${signed(low)} to ${signed(high)}, ${verdict(low, high)}`);
}

start();
