// An experiment: what its arms show, each arm's lift over the number of releases, and a table of arms.

import { byId, element, fillRows, setText } from "./dom.js";
import { count, decimals, estimatePlaces, NONE, significant } from "./format.js";
import { lateRange, makePlot } from "./plot.js";

const TOO_FEW = "too few people";
const cards = new Map();

export function updateExperiment({ experiment, history, estimate }) {
  byId("experiment").hidden = !experiment;
  if (!experiment) return;
  const all = lifts(experiment);
  const alarms = experiment.mismatch || experiment.stop === "harmed";
  setText(byId("experiment-words"), experiment.words.join("\n"));
  byId("experiment-words").classList.toggle("alarm", alarms);
  setText(byId("experiment-counts"), experiment.count_words.join("\n"));
  setText(byId("experiment-control"), experiment.control);
  setText(byId("experiment-looks"), estimate.looks.words + together(experiment));
  for (const lift of all) {
    if (!cards.has(lift.name)) cards.set(lift.name, makeCard(lift.name));
    cards.get(lift.name)(lift, history);
  }
  showTable(experiment, all, estimate.looks.words);
}

// The lifts on the target, then those on each metric, as the history names them.
function lifts({ lifts: onTarget, unit, metrics }) {
  const own = onTarget.map((lift) => ({ ...lift, name: lift.arm, unit }));
  return [...own, ...metrics.flatMap((metric) => metric.lifts.map((lift) => ({ ...lift, name: `${lift.arm}, ${metric.name}`, unit: metric.unit })))];
}

// The lifts that share the error.
function together({ lifts: onTarget, metrics }) {
  if (metrics.length) return ", once for the target and once for all metrics";
  return onTarget.length > 1 ? ", all arms together" : "";
}

const isKnown = (low, high) => low !== null && high !== null;
const places = (value, low, high) => estimatePlaces(value, (high - low) / 2);
const signed = (value, digits) => (value > 0 ? "+" : "") + decimals(value, digits);
const range = (low, high, digits) => `${signed(low, digits)} to ${signed(high, digits)}`;

function describe([value, low, high], unit) {
  if (!isKnown(low, high)) return TOO_FEW;
  const digits = places(value, low, high);
  return `${signed(value, digits)} ${unit} (${range(low, high, digits)})`;
}

function makeCard(name) {
  const card = byId("lifts").appendChild(element("article", "card"));
  card.append(element("h3", "", name));
  const head = card.appendChild(element("div", "card-head"));
  const value = head.appendChild(element("b", "value"));
  const at = head.appendChild(element("span", "at"));
  let data = [[], [], [], [], []];
  let last = [null, null, null];
  let unit = "";

  function read(index) {
    const hovering = index !== null && index < data[0].length;
    const text = describe(hovering ? [1, 2, 3].map((list) => data[list][index]) : last, unit);
    setText(value, text);
    setText(at, hovering ? `at ${count(data[0][index])}` : "");
    return `${name}: ${text}${hovering ? ` at ${count(data[0][index])} releases` : ""}`;
  }
  const plot = makePlot(card.appendChild(element("div")), {
    x: "log", y: "linear", height: 200, bands: [[3, 2]], empty: "The curve begins with the next releases",
    series: [{ colour: "accent", width: 2, dot: true }, {}, {}, { colour: "soft", width: 1, dash: [3, 4] }],
    range: ([releases, ...lists]) => lateRange(releases, lists),
    label: () => `Lift of ${read(null)}. Arrow keys read the curve.`, readout: read,
  });
  return (lift, history) => {
    const { values, lows, highs } = history.lifts[name];
    const counts = history.releases;
    // Points before the monitor started, and those of too few people, have no lift; one point is no curve.
    const known = counts.map((_, i) => i).filter((i) => isKnown(lows[i], highs[i]) && counts[i] !== counts[i + 1]);
    const seen = known.length > 1 ? known : [];
    const pick = (list) => seen.map((i) => list[i]);
    data = [pick(counts), pick(values), pick(lows), pick(highs), seen.map(() => 0)];
    last = [lift.value, ...lift.interval];
    unit = lift.unit;
    plot.update(data);
  };
}

function showTable(experiment, all, looks) {
  const guarded = all.some(({ guardrail }) => guardrail !== null);
  byId("guardrail-column").hidden = !guarded;
  setText(byId("lift-interval"), looks);
  const control = [{ head: true, text: experiment.control === "control" ? "control" : `${experiment.control} (control)`, label: "Arm" },
    { kind: "n", text: count(experiment.people[experiment.control]), label: "People" },
    ...["Lift", looks, "Relative", "p", "e", ...(guarded ? ["Guard rail"] : [])].map((label) => ({ kind: "n", text: "", label }))];
  fillRows(byId("arm-rows"), [control, ...all.map((lift) => row(lift, experiment, looks, guarded))]);
}

function row(lift, { people }, looks, guarded) {
  const [low, high] = lift.interval;
  const known = isKnown(low, high);
  const digits = places(lift.value, low, high);
  const [least, most] = lift.relative_interval;
  const relative = isKnown(least, most) && lift.relative !== null ? `${range(least, most, places(lift.relative, least, most))}%` : NONE;
  const plain = (number) => (number === null ? NONE : significant(number));
  return [{ head: true, text: lift.name, label: "Arm" }, { kind: "n", text: lift.name === lift.arm ? count(people[lift.arm]) : "", label: "People" },
    { kind: "n", text: known ? `${signed(lift.value, digits)} ${lift.unit}` : TOO_FEW, label: "Lift" },
    { kind: "n", text: known ? range(low, high, digits) : NONE, label: looks },
    { kind: "n", text: known ? relative : NONE, label: "Relative" },
    { kind: "n", text: plain(lift.p_value), label: "p" }, { kind: "n", text: plain(lift.e_value), label: "e" },
    ...(guarded ? [{ kind: "n", text: lift.guardrail ?? NONE, label: "Guard rail" }] : [])];
}
