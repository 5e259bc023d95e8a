// Do what a device of Python did in each scenario of the standard input, a JSON document; print what became of it.
import { text } from "node:stream/consumers";
import { IDBFactory, IDBKeyRange } from "fake-indexeddb";
import * as murk from "../build/testing.js";
import { Gateway } from "./gateway.mjs";

globalThis.IDBKeyRange = IDBKeyRange;
const texts = new Map();
globalThis.localStorage = { getItem: (name) => texts.get(name) ?? null, setItem: (name, value) => texts.set(name, value), removeItem: (name) => texts.delete(name) };

const results = [];
for (const { document, name, begin, policy, steps } of JSON.parse(await text(process.stdin))) {
  globalThis.indexedDB = new IDBFactory();
  const gateway = new Gateway(document);
  gateway.now = begin;
  const options = { gateway: "https://gateway.test", task: name, fetch: gateway.fetch, store: await murk.indexedDbStore(), first: async () => true };
  const device = await murk.connecting(murk.ALL)({ ...options, policy, clock: () => gateway.now });
  // What it does as it is opened comes first.
  await new Promise((resolve) => setTimeout(resolve, 0));
  await device.releaseHeld();
  const outcomes = [];
  for (const { pass, act, record, level } of steps) {
    gateway.now += pass;
    const due = (await device.releaseHeld()).map(({ outcome }) => outcome);
    const { outcome } = act === "withdraw" ? { outcome: await device.withdraw() } : await device[act](record, { level });
    const { released, repeated, held, caps } = await device.status();
    outcomes.push([due, outcome ?? "withdrawn", released, repeated, held, String(caps.find(({ renews }) => !renews).spent)]);
  }
  const payloads = gateway.accepted.map((bytes) => JSON.parse(bytes)).map(({ payload, level }) => `${level} ${payload}`);
  const alike = payloads.map((payload) => payloads.indexOf(payload));
  const store = await murk.indexedDbStore();
  const memos = await store.update(["memo:"], (rows) => [rows.size, {}]);
  results.push({ outcomes, alike, memos, key: texts.size });
  device.close();
  store.close();
  texts.clear();
}
console.log(JSON.stringify(results));
