// The coefficients: twelve small plots at a time, and a table of all.

import { byId, element, fillRows, setText } from "./dom.js";
import { count, significant } from "./format.js";
import { lateExtent, makePlot, niceLogRange, niceRange } from "./plot.js";
import { areRatios, describeScale, hasUnits, scaleFor } from "./units.js";

const PAGE = 12;
// Range of a plot around the estimate, in half-widths.
const NEIGHBOURHOOD = 4;
const NOT_LEARNED = "not learned";
const cards = new Map();
const chosen = { filter: "", page: 0, natural: true };
const isNatural = () => chosen.natural;
let latest = null;

export function updateEstimates(status) {
  latest = status;
  showScale(status);
  showChoice();
  for (const card of cards.values()) card.update(status);
  showInterval(status);
  showContrasts(status);
  showTable(status);
}

function showScale({ estimate }) {
  const button = byId("natural");
  button.hidden = !hasUnits(estimate);
  button.setAttribute("aria-checked", String(isNatural()));
  setText(byId("scale-words"), describeScale(estimate, isNatural()));
}

// Cards change only with the names or the choice, so that they stay in place.
function showChoice() {
  const names = latest.estimate.names;
  const wanted = chosen.filter.trim().toLowerCase();
  const found = names.filter((name) => name.toLowerCase().includes(wanted));
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  chosen.page = Math.min(chosen.page, pages - 1);
  const from = chosen.page * PAGE;
  const shown = found.slice(from, from + PAGE);
  byId("chooser").hidden = names.length <= PAGE;
  byId("previous").disabled = chosen.page === 0;
  byId("next").disabled = chosen.page === pages - 1;
  setText(byId("shown"), describeChoice(from, shown.length, found.length, names.length));
  placeCards(shown);
}

function describeChoice(from, shown, found, all) {
  if (found === 0) return `None of ${count(all)} has that in its name`;
  return `${from + 1} to ${from + shown} of ${count(found)}${found < all ? ` found among ${count(all)}` : ""}`;
}

function placeCards(names) {
  const grid = byId("parameters");
  const stays = (name, i) => cards.get(name)?.node === grid.children[i] && cards.get(name).log === scaleOf(name).log;
  if (names.length === cards.size && names.every(stays)) return;
  for (const [name, card] of cards) {
    if (names.includes(name) && card.log === scaleOf(name).log) continue;
    card.destroy();
    cards.delete(name);
  }
  for (const name of names) {
    if (!cards.has(name)) cards.set(name, makeCard(name, grid));
    grid.append(cards.get(name).node);
  }
}

const scaleOf = (name) => scaleFor(latest.estimate, name, isNatural());

function makeCard(name, grid) {
  const { log } = scaleOf(name);
  const node = grid.appendChild(element("article", "card parameter"));
  const title = node.appendChild(element("h3", "", name));
  title.title = name;
  const unit = node.appendChild(element("p", "unit"));
  const value = node.appendChild(element("p", "value"));
  const beside = node.appendChild(element("p", "beside"));
  const host = node.appendChild(element("div"));
  const state = { releases: [], values: [], halves: [], reference: null, index: null, scale: null };

  function read(index) {
    const hovering = index !== null && index < state.values.length;
    state.index = hovering ? index : null;
    const half = hovering ? state.halves[index] : state.half;
    const text = half === null && state.guessed ? NOT_LEARNED : state.scale.write(hovering ? state.values[index] : state.value, half);
    setText(value, text);
    setText(beside, hovering ? `at ${count(state.releases[index])}` : half === null ? missing(state) : truthOf(state));
    beside.classList.toggle("truth", !hovering && half !== null);
    return `${name}: ${text} at ${count(state.releases[hovering ? index : state.releases.length - 1])} releases`;
  }
  const plot = makePlot(host, {
    x: "log", y: log ? "log" : "linear", height: 168,
    series: [
      { colour: "accent", width: 2, dot: true }, {}, {},
      { colour: "truth", width: 1.5, dash: [6, 4] },
    ],
    bands: [[3, 2]],
    range: ([releases, ...lists]) => plotRange(state, releases, lists.slice(0, 3)),
    label: () => describe(name, state),
    readout: read,
  });

  function update(status) {
    const i = status.estimate.names.indexOf(name);
    Object.assign(state, history(status.history, name));
    state.value = status.estimate.values[i];
    state.half = status.estimate.half_widths[i];
    state.guessed = guesses(status.estimate);
    state.reference = status.reference?.[name] ?? null;
    state.scale = scaleOf(name);
    // Without features the estimate is a mean or shares, and their labels say which.
    const whole = state.scale.label !== "" && status.estimate.names.every((each) => /(^|:)intercept$/.test(each));
    setText(title, whole ? state.scale.label : name);
    setText(unit, state.scale.label);
    unit.hidden = whole || state.scale.label === "";
    const { of } = state.scale;
    const around = (sign) => state.values.map((v, k) => (v === null || state.halves[k] === null ? null : of(v + sign * state.halves[k])));
    plot.update([state.releases, state.values.map(of), around(-1), around(1), state.releases.map(() => of(state.reference))]);
    if (state.index === null) read(null);
  }
  return { node, log, update, destroy: () => { plot.destroy(); node.remove(); } };
}

// Clips early intervals, which are too wide to show the current one.
function plotRange({ value, half, reference, scale }, releases, lists) {
  const truth = reference === null ? [] : [scale.of(reference)];
  const seen = lateExtent(releases, lists, truth);
  if (seen === null) return scale.log ? [0.5, 2] : [0, 1];
  const near = value === null || half === null ? [null, null] : [-1, 1].map((sign) => scale.of(value + sign * NEIGHBOURHOOD * half));
  const low = Math.min(Math.max(seen[0], near[0] ?? seen[0]), ...truth);
  const high = Math.max(Math.min(seen[1], near[1] ?? seen[1]), ...truth);
  return scale.log ? niceLogRange(low, high) : niceRange(low, high);
}

// Drops zero, which a log axis cannot show.
function history(all, name) {
  const from = all.releases.findIndex((n) => n > 0);
  const releases = from < 0 ? [] : all.releases.slice(from);
  const fill = (list) => releases.map((_, i) => list?.[from + i] ?? null);
  return { releases, values: fill(all.values[name]), halves: fill(all.half_widths[name]) };
}

function truthOf({ value, half, reference, scale }) {
  return reference === null ? "" : `reference ${scale.beside(reference, value, half)}`;
}

// Without an interval, the value of scores and moments is shrunk to zero by a prior and is not an estimate.
function guesses(estimate) {
  return ["scores", "released moments"].includes(estimate.method);
}

function missing(state) {
  return state.guessed ? "too noisy at this privacy level" : "no interval";
}

function describe(name, state) {
  const { value, half, releases, scale } = state;
  const truth = truthOf(state) && `, ${truthOf(state)}`;
  const end = releases.length ? ` after ${count(releases[releases.length - 1])} releases` : "";
  const text = half !== null ? scale.write(value, half) : state.guessed ? NOT_LEARNED : `${scale.write(value, half)}, no interval`;
  return `${name}: ${text}${truth}${end}. Arrow keys read the curve.`;
}

// Random scaling covers less than its level, so its intervals are labelled nominal.
function showInterval({ estimate, reference }) {
  const nominal = estimate.method === "random scaling" ? "nominal " : "";
  setText(byId("interval-label"), `${nominal}${estimate.looks.words}`);
  byId("reference-key").hidden = reference === null;
  const none = estimate.half_widths.length > 0 && estimate.half_widths.every((half) => half === null);
  const why = estimate.note.replace(/^(none|no interval)( yet)?: /, "");
  setText(byId("interval-note"), `${none ? "No intervals" : `Intervals by ${estimate.method}`}: ${why}.`);
  setText(byId("looks"), `${estimate.looks.meaning}.`);
  byId("looks").hidden = none;
  showNeeds(estimate.needed ?? {}, estimate.diagnosis ?? "");
  showDrift(estimate.drift);
  showSets(estimate.prediction_sets);
}

// Shows whether the model has changed; nothing if that cannot be tested.
function showSets(sets) {
  setText(byId("sets"), sets?.words ?? "");
  byId("sets").hidden = !sets;
}

function showDrift(drift) {
  const known = (drift?.compared ?? 0) > 0;
  setText(byId("drift"), known ? drift.words : "");
  byId("drift").hidden = !known;
  byId("drift").classList.toggle("alarm", known && drift.alarm);
}

// Groups coefficients with the same needs.
function showNeeds(needed, why) {
  const alike = new Map();
  for (const [name, { words }] of Object.entries(needed)) alike.set(words, [...(alike.get(words) ?? []), name]);
  const said = [...alike].map(([words, names]) => `${names.join(", ")} would take ${words}.`);
  const words = [said.length ? `Too noisy to learn at this privacy level: ${said.join(" ")}` : "", why].filter(Boolean).join(" ");
  setText(byId("needed"), words);
  byId("needed").hidden = !words;
}

// Comparisons of categories, if the task asks for any.
function showContrasts({ estimate }) {
  const ratios = areRatios(estimate);
  byId("contrasts").hidden = estimate.contrasts.length === 0;
  const points = estimate.contrasts.some(({ scale }) => scale === "percentage points");
  const measure = ratios ? "Odds ratio" : points ? "Percentage points" : "Effect";
  setText(byId("contrast-value"), measure);
  setText(byId("contrast-interval"), estimate.looks.words);
  const plain = (number) => (number === null ? "none" : significant(number));
  fillRows(byId("contrast-rows"), estimate.contrasts.map((contrast) => {
    const [low, high] = contrast.interval;
    const known = low !== null && high !== null;
    const ends = ratios ? contrast.odds_ratio_interval : contrast.interval;
    return [{ head: true, text: contrast.name, label: "Contrast" },
      { kind: "n", text: known ? plain(ratios ? contrast.odds_ratio : contrast.value) : NOT_LEARNED, label: measure },
      { kind: "n", text: known ? `${plain(ends[0])} to ${plain(ends[1])}` : "none", label: estimate.looks.words },
      { kind: "n", text: plain(contrast.p_value), label: "p" },
      { kind: "n", text: plain(contrast.e_value), label: "e" }];
  }));
}

function showTable({ estimate, reference }) {
  if (!byId("all").open) return;
  const natural = isNatural() && hasUnits(estimate);
  byId("reference-column").hidden = reference === null;
  byId("unit-column").hidden = !natural;
  const ratios = natural && areRatios(estimate);
  setText(byId("value-column"), ratios ? "Odds ratio" : "Estimate");
  setText(byId("half-column"), ratios ? "Interval" : "Half-width");
  fillRows(byId("coefficients"), estimate.names.map((name, i) => {
    const [value, half, scale] = [estimate.values[i], estimate.half_widths[i], scaleFor(estimate, name, isNatural())];
    const guess = half === null && guesses(estimate);
    return [{ head: true, text: name, label: "Coefficient" }, ...(natural ? [{ text: scale.label, label: "Per" }] : []),
      { kind: "n", text: guess ? NOT_LEARNED : scale.beside(value, value, half), label: ratios ? "Odds ratio" : "Estimate" },
      { kind: "n", text: half === null ? "none" : scale.ends(value, half), label: ratios ? "Interval" : "Half-width" },
      ...(reference === null ? [] : [{ kind: "n", text: scale.beside(reference[name], value, half), label: "Reference" }])];
  }));
}

export function startEstimates() {
  const choose = (change) => () => {
    Object.assign(chosen, change());
    if (latest) updateEstimates(latest);
  };
  byId("filter").addEventListener("input", choose(() => ({ filter: byId("filter").value, page: 0 })));
  byId("previous").addEventListener("click", choose(() => ({ page: Math.max(0, chosen.page - 1) })));
  byId("next").addEventListener("click", choose(() => ({ page: chosen.page + 1 })));
  byId("natural").addEventListener("click", choose(() => ({ natural: !isNatural() })));
  byId("all").addEventListener("toggle", choose(() => ({})));
}
