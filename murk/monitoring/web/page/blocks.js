// Headline, staleness, dead letters, partitions and levels.

import { byId, element, fillRows, setText } from "./dom.js";
import { count, dayOf, decimals, estimatePlaces, NONE, rate, share, significant } from "./format.js";

const FEWEST_BUCKETS = 6;
const MOST_BUCKETS = 11;
const MOST_LEVELS = 17;

// Meanings of reasons; an unknown reason is shown without one.
const MEANINGS = {
  "too-large": "longer than any release",
  malformed: "cannot be read as a message",
  schema: "a field missing, unknown or out of range",
  "wrong-task": "made for another task",
  simulated: "simulated on a real log, or real on a simulated one",
  dimension: "wrong number of coordinates",
  level: "at a privacy level that the task does not offer",
  magnitude: "a coordinate larger than honest noise",
  partition: "on another partition",
  expired: "arrived after its expiry",
  stale: "computed with a model that is too old",
  future: "computed with a model that does not exist yet, or of a window that has not begun",
  version: "of an unknown version",
  duplicate: "sent more than once",
};

// What a release is, by protocol.
const RELEASES = {
  gradients: "one person's noisy gradient at the newest model",
  scores: "one person's noisy answer to one query, at the model of a round",
  examples: "one person's noisy example",
  moments: "the noisy moments of one person's record",
  summaries: "an organisation's noisy moments, or mixture, of many records",
  univariate: "one person's noisy answer, beside their known columns if there are any",
};
const PROMISES = {
  summaries: "A level is a guarantee about one record in one sketch, against everybody but the organisation that made it",
};
const PROMISE = "A level is a guarantee about one release";

// Columns of the table of partitions that depend on the protocol.
const COLUMNS = [
  { key: "iterate_gap", head: "gap-column", label: "Iterate gap", write: significant,
    says: "Iterate gap: distance from the newest iterate to its average." },
  { key: "step_size", head: "step-column", label: "Step size", write: significant, says: "Step size: factor on the next gradient." },
  { key: "refused_updates", head: "refused-column", label: "Refused", write: count,
    says: "Refused: releases left out as implausible." },
];

const total = (counts) => Object.values(counts).reduce((sum, one) => sum + one, 0);

export function updateBlocks(status) {
  showTask(status);
  showHeadline(status);
  showLoss(status);
  byId("staleness-section").hidden = status.staleness === null;
  if (status.staleness !== null) showStaleness(status.staleness);
  showDead(status.dead_letters);
  showPartitions(status.partitions);
  showLevels(status.task.levels);
}

function showTask({ task, releases, started }) {
  document.title = `${count(releases)} ${task.protocol === "summaries" ? "sketches" : "releases"} · ${task.name} · Murk`;
  setText(byId("task"), task.name);
  setText(byId("protocol"), `protocol: ${task.protocol} (each release is ${RELEASES[task.protocol]})`);
  setText(byId("model"), task.model);
  setText(byId("promise"), PROMISES[task.protocol] ?? PROMISE);
  setText(byId("log"), task.log);
  setText(byId("hash"), `task ${task.hash.slice(0, 12)}`);
  byId("hash").title = task.hash;
  byId("simulated").hidden = !task.simulated;
  byId("public-sample").hidden = !task.public_sample;
  setText(byId("public-sample"), task.public_sample?.words ?? "");
  setText(byId("since"), `Monitor started ${dayOf(started)}; earlier figures come from the log.`);
}

function showHeadline(status) {
  const dead = total(status.dead_letters);
  const of = status.records === null ? "learned" : `learned, of ${count(status.records)} records`;
  setText(byId("unit"), status.task.protocol === "summaries" ? "Sketches" : "Releases");
  setText(byId("releases"), count(status.releases));
  setText(byId("duplicates"), `${of}; ${count(status.duplicates)} duplicates not counted again`);
  setText(byId("rate"), rate(status.rate));
  setText(byId("estimated-error"), significant(status.estimate.estimated_error));
  byId("parameter-error-figure").hidden = status.reference === null;
  setText(byId("parameter-error"), significant(status.estimate.parameter_error));
  setText(byId("lag"), count(status.lag));
  setText(byId("dead"), count(dead));
  byId("dead").classList.toggle("some", dead > 0);
}

function showLoss({ unbiased_loss: loss, refused_updates: refused, releases }) {
  byId("loss-figure").hidden = byId("loss-section").hidden = loss === null;
  if (loss === null) return;
  const half = loss.error === null ? null : 1.96 * loss.error;
  const places = estimatePlaces(loss.value, half);
  setText(byId("loss"), decimals(loss.value, places));
  setText(byId("loss-aside"), half === null ? "mean, estimated from releases" : `± ${decimals(half, places)}, estimated from releases`);
  setText(byId("refused"), refused
    ? `Refused updates: ${count(refused)} of ${count(releases)} releases were left out as implausible.`
    : "Refused updates: none.");
  byId("refused").classList.toggle("some", refused > 0);
}

function bucketName(bounds, i) {
  if (i >= bounds.length) return `over ${count(bounds[bounds.length - 1])}`;
  const from = i === 0 ? 0 : bounds[i - 1] + 1;
  return from === bounds[i] ? count(from) : `${count(from)} to ${count(bounds[i])}`;
}

// Merges pairs of buckets, except the first (zero) and the last (beyond all bounds), and drops empty ones at the end.
function coarser(bounds, counts) {
  const keep = bounds.map((_, i) => i).filter((i) => i % 2 === 0 || i === bounds.length - 1);
  const sums = keep.map((i, k) => counts.slice(k ? keep[k - 1] + 1 : 0, i + 1).reduce((sum, n) => sum + n, 0));
  const all = [...sums, counts[bounds.length] ?? 0];
  return { bounds: keep.map((i) => bounds[i]), counts: all.slice(0, all.findLastIndex((n) => n > 0) + 1) };
}

function showStaleness({ bounds, counts, mean }) {
  const all = total(counts);
  const last = Math.max(counts.findLastIndex((n) => n > 0) + 1, FEWEST_BUCKETS);
  if (last > MOST_BUCKETS) ({ bounds, counts } = coarser(bounds, counts));
  const shown = counts.slice(0, Math.min(last, counts.length));
  const most = Math.max(...shown, 1);
  setText(byId("staleness-mean"), mean === null ? NONE : `${significant(mean)} releases`);
  fillRows(byId("staleness").tBodies[0], shown.map((n, i) => [
    { head: true, text: bucketName(bounds, i) }, { kind: "track", bar: n / most },
    { kind: "n", text: share(n, all) },
  ]));
}

function showDead(letters) {
  const rows = Object.entries(letters).filter(([, n]) => n > 0).sort(([, a], [, b]) => b - a);
  byId("dead-none").hidden = rows.length > 0;
  byId("dead-table").hidden = rows.length === 0;
  fillRows(byId("dead-table").tBodies[0], rows.map(([reason, n]) => [
    { head: true, text: reason }, { text: Object.hasOwn(MEANINGS, reason) ? MEANINGS[reason] : "" }, { kind: "n", text: count(n) },
  ]));
}

// The log names an owner from its first commit on.
const unowned = (partition) => (partition.version === 0 ? "named with its first commit" : "not recorded");

function showPartitions(partitions) {
  const known = COLUMNS.filter(({ key }) => partitions.some((partition) => partition[key] !== null));
  for (const column of COLUMNS) byId(column.head).hidden = !known.includes(column);
  // A log in a file has no owners.
  const owned = partitions.some((partition) => partition.owner !== null) || partitions.every((partition) => partition.version === 0);
  byId("owner-column").hidden = !owned;
  setText(byId("partitions-foot"), ["Version: releases learned.", ...known.map(({ says }) => says)].join(" "));
  fillRows(byId("partitions").tBodies[0], partitions.map((partition) => [
    { head: true, text: String(partition.partition), label: "Partition" },
    { kind: "n", text: count(partition.version), label: "Version" },
    { kind: "n", text: count(partition.lag), label: "Lag" },
    ...(owned ? [{ kind: partition.owner === null ? "owner nobody" : "owner", text: partition.owner ?? unowned(partition), label: "Owner" }] : []),
    ...known.map(({ key, label, write }) => ({ kind: "n", text: write(partition[key]), label })),
  ]));
}

function showLevels(all) {
  const grid = byId("levels");
  const learned = all.reduce((sum, level) => sum + level.learned, 0);
  // Of a grid of budgets, its default, smallest and largest.
  const levels = all.length > MOST_LEVELS ? [all[0], all[1], all.at(-1)] : all;
  while (grid.children.length > levels.length) grid.lastElementChild.remove();
  levels.forEach((level, i) => showLevel(grid.children[i] ?? grid.appendChild(levelCard()), level, learned));
}

function levelCard() {
  const card = element("article", "card level");
  const meter = element("div", "meter");
  meter.append(element("span", "reach"));
  const ends = element("p", "ends");
  ends.append(element("span", "", "50% guessing"), element("span", "", "100% certain"));
  card.append(element("h3"), element("p", "right"), meter, ends, element("p", "words"), element("p", "learned"));
  return card;
}

function showLevel(card, level, learned) {
  const [name, right, meter, , words, used] = card.children;
  const percent = decimals(Math.ceil(1000 * level.right_at_most - 1e-9) / 10, 1);
  setText(name, level.name);
  setText(right, `An attacker is right at most ${percent}% of the time`);
  meter.firstElementChild.style.width = `${Math.min(100, Math.max(0, 200 * (level.right_at_most - 0.5)))}%`;
  setText(words, level.words);
  setText(used, `${count(level.learned)} releases learned at this level (${share(level.learned, learned)})`);
}
