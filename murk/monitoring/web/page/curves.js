// The curves of the whole run: error over releases, speed and lag over time.

import { byId, element, setText } from "./dom.js";
import { count, NONE, plusMinus, rate, significant, timeOf } from "./format.js";
import { lateRange, makePlot, niceLogRange, niceRange } from "./plot.js";

// lines: [{label, colour, width, dash, fill, write(value, row) -> text}], one for each list of values; after them
// the lists of the edges of bands, if any
function makeCurve(card, { x, y, lines, name, height, when, range, bands = [] }) {
  const head = card.appendChild(element("div", "card-head"));
  const keys = lines.map((line) => {
    const key = head.appendChild(element("p", "key"));
    key.append(element("i", `swatch ${line.swatch}`), element("span", "", line.label));
    return { key, value: key.appendChild(element("b")) };
  });
  const at = head.appendChild(element("span", "at"));
  let data = [[], ...lines.map(() => [])];
  let shown = null;

  function read(index) {
    const hovering = index !== null && index < data[0].length;
    shown = hovering ? index : null;
    const last = data[0].length - 1;
    const row = data.map((list) => list[hovering ? index : last] ?? null);
    const texts = lines.map((line, i) => line.write(row[i + 1], row));
    texts.forEach((text, i) => setText(keys[i].value, text));
    setText(at, hovering ? when(data[0][index]) : "");
    return `${lines.map((line, i) => `${line.label} ${texts[i]}`).join(", ")}, ${last < 0 ? "" : when(data[0][hovering ? index : last])}`;
  }
  const plot = makePlot(card.appendChild(element("div")), {
    x, y, height, series: [...lines.map((line) => ({ width: 2, dot: true, ...line })), ...bands.flatMap(() => [{}, {}])],
    bands, range, label: () => `${name}: ${data[0].length ? read(shown) : "nothing yet"}. Arrow keys read the curve.`, readout: read,
  });
  return (next, hidden = []) => {
    data = next;
    keys.forEach(({ key }, i) => { key.hidden = hidden.includes(i); });
    plot.update(data);
    if (shown === null) read(null);
  };
}

const known = (lists) => lists.flat().filter((v) => v !== null);

function positiveRange(data) {
  const seen = known(data.slice(1)).filter((v) => v > 0);
  return seen.length ? niceLogRange(Math.min(...seen), Math.max(...seen)) : [0.1, 1];
}

const fromZero = (data) => niceRange(0, Math.max(1, ...known(data.slice(1))), 0);

const atCount = (n) => `at ${count(n)} releases`;
const atTime = (t) => `at ${timeOf(t)}`;

function makeError() {
  const draw = makeCurve(byId("error-card"), {
    x: "log", y: "log", height: 240, name: "Error", when: atCount, range: positiveRange,
    lines: [
      { label: "estimated", colour: "accent", swatch: "estimate", write: (v) => significant(v) },
      { label: "against the reference", colour: "truth", swatch: "measured", write: (v) => significant(v) },
    ],
  });
  return ({ history, reference }) => {
    const from = history.releases.findIndex((n) => n > 0);
    const cut = (list) => (from < 0 ? [] : list.slice(from).map((v) => (v > 0 ? v : null)));
    const measured = cut(history.parameter_error);
    draw([cut(history.releases), cut(history.estimated_error), measured], reference === null ? [1] : []);
  };
}

// Cuts curves to the points observed by this monitor.
function since(seen, ...lists) {
  const from = seen.findIndex((v) => v !== null);
  return lists.map((list) => (from < 0 ? [] : list.slice(from)));
}

// Steps: each value belongs to the span that ends there.
function makeOverTime(id, field, name, write, height) {
  const draw = makeCurve(byId(id), {
    x: "time", y: "linear", height, name, when: atTime, range: fromZero,
    lines: [{ label: "latest", colour: "accent", swatch: "estimate", fill: "area", steps: true, write: (v) => (v === null ? NONE : write(v)) }],
  });
  return ({ pace }) => draw([pace.time, pace[field]]);
}

function makeLoss() {
  let draw = null;
  return ({ unbiased_loss: loss, history }) => {
    if (loss === null) return;
    // Created only if the protocol estimates the loss.
    draw ??= makeCurve(byId("loss-card"), {
      x: "log", y: "linear", height: 240, name: "Loss", when: atCount, bands: [[3, 2]],
      range: ([releases, ...lists]) => lateRange(releases, lists),
      lines: [{
        label: "unbiased mean", colour: "accent", swatch: "estimate",
        write: (v, [, , , high]) => plusMinus(v, high === null ? null : high - v),
      }],
    });
    const [counts, values, errors] = since(history.unbiased_loss, history.releases, history.unbiased_loss, history.unbiased_loss_error);
    const around = (sign) => values.map((v, i) => (v === null || errors[i] === null ? null : v + sign * 1.96 * errors[i]));
    draw([counts, values, around(-1), around(1)]);
  };
}

export function makeCurves() {
  const draws = [
    makeError(),
    makeOverTime("rate-card", "rate", "Releases per second", rate, 240),
    makeOverTime("lag-card", "lag", "Lag", count, 168),
    makeLoss(),
  ];
  return (status) => draws.forEach((draw) => draw(status));
}
