// Reproduce Python's vectors, one JSON document a line on the standard input; print how many agreed, and the first that did not.
import { createInterface } from "node:readline";
import * as murk from "../build/testing.js";

const counts = { tasks: 0, records: 0, exact: 0, steps: 0, refusals: 0 };
const wrong = [];
const tasks = new Map();

const value = (raw) => (raw !== null && typeof raw === "object" ? (raw.integer ? BigInt(raw.integer) : Number(raw.number)) : raw);
const same = (what, line, found, wanted) => {
  if (JSON.stringify(found) === JSON.stringify(wanted)) return true;
  if (wrong.length < 5) wrong.push({ what, name: line.name, level: line.level, found, wanted });
  counts.wrong = (counts.wrong ?? 0) + 1;
  return false;
};

const refusal = async (act) => {
  try {
    await act();
    return null;
  } catch (error) {
    if (!(error instanceof murk.Refused)) throw error;
    return error.reason;
  }
};

async function readTask(line) {
  counts.tasks++;
  const task = await murk.readTask(line.document, line.hash);
  const prepared = murk.prepare(task, murk.ALL);
  tasks.set(line.name, prepared);
  same("covered", line, prepared.coding.size, line.size);
  same("mean", line, [...murk.meanOf(line.rows.map((row) => Float64Array.from(row)))], line.mean);
  if (line.initial) {
    const initial = [...prepared.protocol.initial];
    const near = initial.length === line.initial.length && initial.every((x, i) => Math.abs(x - line.initial[i]) <= line.near * Math.max(Math.abs(line.initial[i]), 1e-3));
    same("initial", line, near ? true : initial, near ? true : line.initial);
  }
  for (const [level, costs] of Object.entries(line.costs)) {
    for (const [currency, wanted] of Object.entries(costs)) {
      const cost = prepared.protocol.cost(level, currency);
      same(`cost in ${currency}`, { ...line, level }, cost && [String(cost.units), String(cost.delta)], wanted);
    }
  }
}

async function record(line) {
  const prepared = tasks.get(line.name);
  const { task, coding, protocol } = prepared;
  counts.records++;
  const raw = Object.fromEntries(Object.entries(line.record).map(([name, each]) => [name, value(each)]));
  if (line.assigned_by !== null) same("arm", line, await murk.armOf(task, line.assigned_by), line.record[task.experiment.arm]);
  const coded = coding.code(raw);
  same("coded", line, [[...coded.x], Number.isNaN(coded.y) ? null : coded.y, coded.clamped, coded.missing], [line.x, line.y, line.clamped, line.missing]);
  const words = new murk.Philox(BigInt(line.seed), BigInt(line.index));
  const partition = murk.drawPartition(task, words);
  same("partition", line, partition, line.partition);
  const model = murk.readModel(task, protocol, partition, line.model);
  const query = protocol.drawQuery(model.numbers, words);
  same("query", line, query ?? null, line.query);
  const mechanism = protocol.mechanism(line.level, query);
  const choice = { level: line.level, partition, model };
  const { used: vectors } = murk.vectorsOf(prepared, choice, query, { code: () => coded, now: line.now }, words);
  const integers = murk.quantised(mechanism, vectors);
  // Before the noise one step is allowed, where exp or an eigenvector enters; after it nothing is.
  const integral = integers && [...integers].map((q) => q + 0);
  const steps = integral && line.quantised ? integral.map((q, i) => Math.abs(q - line.quantised[i])) : [];
  const off = Math.max(0, ...steps);
  if (off === 0) counts.exact++;
  else counts.steps++;
  if (off > line.slack || (line.quantised === null) !== (integral === null)) same("quantised", line, integral, line.quantised);
  const payload = murk.payloadOf(mechanism, vectors, words);
  if (line.quantised) same("noise", line, [...payload].map((x, i) => x - integral[i]), line.payload.map((x, i) => x - line.quantised[i]));
  const id = murk.drawIdentifier(words);
  const bytes = murk.write(task, protocol, { id, level: line.level, partition, payload: off ? Float64Array.from(line.payload) : payload, version: model.version, query, now: line.now });
  same("bytes", line, bytes, line.bytes);
  if (off === 0) {
    // The device's own way, in one go.
    const again = new murk.Philox(BigInt(line.seed), BigInt(line.index));
    murk.drawPartition(task, again);
    same("release", line, murk.randomize(prepared, choice, { code: () => coding.code(raw), now: line.now }, again), line.bytes);
    await held(line, prepared, choice, raw);
    if (line.again) await repeated(line, prepared, choice, raw);
  }
}

/** A further record repeats the answer, or has one of its own. */
async function repeated(line, { task, coding, ...prepared }, choice, raw) {
  counts.repeated = (counts.repeated ?? 0) + Number(line.again.same);
  const whole = { task, coding, ...prepared };
  let text = null;
  const place = { read: () => text, write: (key) => (text = key) };
  const answer = ({ index, level, rows = 1, only = false, record }, memo) => {
    const words = new murk.Philox(BigInt(line.seed), BigInt(index));
    const own = { ...choice, level, partition: murk.drawPartition(task, words) };
    return murk.repeatOrRandomize(whole, own, { code: () => coding.code(record), now: line.now, rows }, words, memo, only, place);
  };
  const first = await answer({ ...line, record: raw }, undefined);
  same("first", line, first.bytes, line.bytes);
  const record = Object.fromEntries(Object.entries(line.again.record).map(([name, each]) => [name, value(each)]));
  const next = await answer({ ...line.again, record }, { level: first.kept.level, answer: first.kept.sealed.text });
  same("again", line, [next.bytes, next.kept === undefined], [line.again.bytes, line.again.same]);
}

/** A record that is held until its window ends gives the same bytes. */
async function held(line, prepared, choice, raw) {
  const window = murk.renewalOf(prepared.task);
  same("window", line, window === undefined ? null : murk.windowOf(window, line.now), line.held.window);
  if (window === undefined) return;
  const words = () => new murk.Philox(BigInt(line.seed), BigInt(line.index));
  same("due", line, murk.drawDue(window, line.held.window, words()), line.held.due);
  same("drawn", line, murk.isDrawn(line.held.count, words()), line.held.drawn);
  let text = null;
  const place = { read: () => text, write: (key) => (text = key) };
  const { width } = prepared.coding;
  const sealed = await murk.seal(murk.numbersOf(prepared.coding.code(raw)), place);
  const coded = await murk.unseal(sealed.text, width + 1, place);
  const again = words();
  murk.drawPartition(prepared.task, again);
  const wanted = { code: () => ({ x: coded.subarray(0, width), y: coded[width] }), now: line.held.due, window: line.held.window, rows: line.held.count };
  same("held", line, murk.randomize(prepared, choice, wanted, again), line.held.bytes);
}

for await (const text of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const line = JSON.parse(text);
  if (line.refused === undefined) await (line.document ? readTask(line) : record(line));
  else {
    counts.refusals++;
    const { task, protocol } = tasks.get(line.name) ?? {};
    const act = line.document !== undefined
      ? async () => murk.prepare(await murk.readTask(line.document, line.hash), murk.ALL)
      : async () => murk.readModel(task, protocol, line.partition, line.model);
    same(line.why, line, await refusal(act), line.refused);
  }
}
console.log(JSON.stringify({ ...counts, wrong: counts.wrong ?? 0, first: wrong }));
