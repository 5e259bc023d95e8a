// A uPlot with axes, colours, hover, keys and size; created once, then only its data changes.

import { element, say } from "./dom.js";
import { tick, timeTick } from "./format.js";
import { colour, onThemeChange } from "./theme.js";

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';
const TIME_STEPS = [
  1, 2, 5, 10, 20, 30, ...[1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720].map((m) => 60 * m), ...[1, 2, 5, 10, 30].map((d) => 86400 * d),
];
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };

// spec: {x: "log" | "time", y: "log" | "linear", height, series: [{colour, width, dash, fill, dot, steps}],
//        bands, range(data) -> [low, high], label(), readout(index | null) -> text, empty: text without points}
export function makePlot(host, spec) {
  host.classList.add("plot");
  host.style.height = `${spec.height}px`;
  host.tabIndex = 0;
  host.setAttribute("role", "img");
  const empty = host.appendChild(element("p", "empty", spec.empty ?? "Waiting for the first releases"));
  const view = { x: [1, 10], y: spec.y === "log" ? [0.1, 1] : [0, 1] };
  const plot = new uPlot(options(host, spec, view), emptyData(spec), host);
  plot.root.setAttribute("aria-hidden", "true");
  const stops = [watchSize(host, plot, spec.height), onThemeChange(() => plot.redraw(false)), watchKeys(host, plot, spec)];
  watchTouch(plot);
  return {
    update(data) {
      empty.hidden = data[0].length > 0;
      if (data[0].length > 0) Object.assign(view, { x: xRange(spec, data[0]), y: spec.range(data) });
      plot.setData(data);
      const label = spec.label();
      if (host.getAttribute("aria-label") !== label) host.setAttribute("aria-label", label);
    },
    destroy() {
      stops.forEach((stop) => stop());
      plot.destroy();
    },
  };
}

const emptyData = (spec) => [[], ...spec.series.map(() => [])];

function options(host, spec, view) {
  return {
    width: Math.max(host.clientWidth, 120), height: spec.height, padding: [8, 14, 0, 0], pxAlign: 0,
    legend: { show: false }, select: { show: false },
    scales: {
      x: { time: spec.x === "time", distr: spec.x === "log" ? 3 : 1, range: () => view.x },
      y: { distr: spec.y === "log" ? 3 : 1, range: () => view.y },
    },
    axes: [axis(spec.x, { size: 26, room: spec.x === "time" ? 76 : 40 }), axis(spec.y, { size: 52, room: 34 })],
    series: [{}, ...spec.series.map(series)],
    bands: spec.bands?.map((pair) => ({ series: pair, fill: () => colour("band") })),
    cursor: {
      drag: { x: false, y: false, setScale: false }, y: false,
      sync: { key: spec.x, scales: ["x", null], setSeries: false },
      points: { size: 8, show: (_, i) => spec.series[i - 1].dot && element("div"), fill: (_, i) => colour(spec.series[i - 1].colour) },
    },
    hooks: { setCursor: [(u) => spec.readout(u.cursor.idx ?? null)] },
  };
}

function series(line) {
  return {
    stroke: line.colour && (() => colour(line.colour)), width: line.width ?? 0, dash: line.dash,
    fill: line.fill && (() => colour(line.fill)),
    paths: line.steps && uPlot.paths.stepped({ align: -1 }),
    // A single point makes no line.
    points: { show: (_, __, first, last) => Boolean(line.dot) && last - first < 1, size: 7, fill: line.dot && (() => colour(line.colour)) },
  };
}

function axis(kind, { size, room }) {
  const made = {
    size, font: FONT, gap: 5, space: room,
    stroke: () => colour("soft"), ticks: { show: false }, grid: { stroke: () => colour("grid"), width: 1 },
  };
  if (kind === "log") {
    // uPlot requires a step before it calls ours; any that always fits will do.
    Object.assign(made, { space: 1e-12, incrs: [1], filter: (_, splits) => splits, values: (_, splits) => splits.map(tick) });
    made.splits = (u, i, low, high) => logTicks(low, high, Math.max(2, Math.floor(length(u, i) / room)));
  } else if (kind === "time") {
    made.incrs = TIME_STEPS;
    made.values = (_, splits, __, ___, step) => splits.map((at) => timeTick(at, step));
  } else {
    made.values = (_, splits) => splits.map(tick);
  }
  return made;
}

const length = (u, axisIndex) => (axisIndex === 0 ? u.bbox.width : u.bbox.height) / devicePixelRatio;

// The finest of "1 2 5", "1 3", "1", every second power... that fits; within a decade or so, plain round steps.
export function logTicks(low, high, most) {
  const decades = Math.log10(high / low);
  if (decades < 1.2) {
    const step = niceStep((high - low) / Math.min(most, 5));
    return steps(Math.ceil(low / step - 1e-9), Math.floor(high / step + 1e-9)).map((k) => Number((k * step).toPrecision(12)));
  }
  const powers = steps(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)));
  const inside = (ticks) => ticks.filter((t) => t >= low * (1 - 1e-9) && t <= high * (1 + 1e-9));
  for (const digits of [[1, 2, 5], [1, 3], [1]]) {
    // Ticks within a decade are uneven; allow half as many more for the closest.
    if (decades * digits.length * (digits.length > 1 ? 1.2 : 1) <= most) {
      return inside(powers.flatMap((p) => digits.map((d) => Number(`${d}e${p}`))));
    }
  }
  const every = Math.ceil(decades / most);
  return inside(powers.filter((p) => p % every === 0).map((p) => Number(`1e${p}`)));
}

const steps = (from, to) => Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => from + i);

export function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].find((digit) => digit * power >= rough * (1 - 1e-9)) * power;
}

// Rounds limits, so that a scale rarely moves.
export function niceRange(low, high, floor = -Infinity) {
  const span = high - low || Math.abs(high) * 0.2 || 1;
  const step = niceStep(span / 8);
  return [Math.max(floor, Math.floor((low - span * 0.04) / step) * step), Math.ceil((high + span * 0.06) / step) * step];
}

// Ignores points before a 25th of the count: early ones are imprecise and would flatten the rest.
export function lateExtent(counts, lists, also = []) {
  const from = counts[counts.length - 1] / 25;
  const seen = [...also, ...lists.flatMap((list) => list.filter((v, i) => counts[i] >= from && v !== null))];
  return seen.length ? [Math.min(...seen), Math.max(...seen)] : null;
}

export function lateRange(counts, lists) {
  const seen = lateExtent(counts, lists);
  return seen ? niceRange(...seen) : [0, 1];
}

export function niceLogRange(low, high) {
  const down = (v) => roundDigit(v / 1.05, Math.floor);
  const up = (v) => roundDigit(v * 1.05, Math.ceil);
  return high < 3 * low ? niceRange(low, high) : [down(low), up(high)];
}

// Rounds down or up to one digit: 0.034 lies between 0.03 and 0.04.
function roundDigit(value, round) {
  const power = 10 ** Math.floor(Math.log10(value));
  return Number((round(value / power) * power).toPrecision(1));
}

function xRange(spec, x) {
  const [first, last] = [x[0], x[x.length - 1]];
  if (spec.x === "time") return last - first < 10 ? [last - 10, last] : [first, last];
  // The right edge moves in tenths of the range, so that the curve fills the plot and the scale rarely moves.
  const step = 10 ** Math.floor(Math.log10(last));
  return [first, Math.max(Math.ceil(last / step / 0.5) * 0.5 * step, first * 1.05)];
}

function watchSize(host, plot, height) {
  const observer = new ResizeObserver(() => {
    const width = host.clientWidth;
    if (width > 0 && width !== plot.width) plot.setSize({ width, height });
  });
  observer.observe(host);
  return () => observer.disconnect();
}

function watchKeys(host, plot, spec) {
  const away = () => plot.setCursor({ left: -10, top: -10 }, true, true);
  const press = (event) => {
    const x = plot.data[0];
    if (event.key === "Escape") away();
    if (!(event.key in KEYS) || x.length === 0) return;
    event.preventDefault();
    const last = x.length - 1;
    const stride = Math.max(1, Math.round(last / 60));
    const next = Math.min(last, Math.max(0, (plot.cursor.idx ?? last) + KEYS[event.key] * stride));
    plot.setCursor({ left: plot.valToPos(x[next], "x"), top: 0 }, true, true);
    say(spec.readout(next));
  };
  host.addEventListener("keydown", press);
  host.addEventListener("blur", away);
  return () => host.removeEventListener("keydown", press);
}

// Horizontal touch movement reads the curve; vertical movement scrolls the page.
function watchTouch(plot) {
  plot.over.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch") return;
    plot.setCursor({ left: event.clientX - plot.over.getBoundingClientRect().left, top: 0 }, true, true);
  });
}
