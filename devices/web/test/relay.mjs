// Release one record through a relay; print what became of it, and every address that was asked. With `away`, at a
// second visit, to which the gateway does not tell its key at first.
import { IDBFactory, IDBKeyRange } from "fake-indexeddb";
import * as murk from "../build/testing.js";
import { record } from "./gateway.mjs";

globalThis.IDBKeyRange = IDBKeyRange;
globalThis.indexedDB = new IDBFactory();
const given = JSON.parse(process.argv[2]);
const asked = [];
let away = false;

function ask(address, init) {
  asked.push(address);
  if (away && address.endsWith("/ohttp-keys")) return Promise.resolve(new Response(null, { status: 503 }));
  return fetch(address, init);
}

async function connected() {
  return murk.connecting(murk.ALL)({ ...given, fetch: ask, store: await murk.indexedDbStore(), first: async () => true });
}

try {
  if (given.away) {
    (await connected()).close();
    asked.length = 0;
    away = true;
  }
  const device = await connected();
  away = false;
  const receipt = await device.release(record);
  const waiting = (await device.flush()).map(({ state }) => state);
  device.close();
  console.log(JSON.stringify({ receipt, waiting, asked }));
} catch (error) {
  if (!(error instanceof murk.Refused)) throw error;
  console.log(JSON.stringify({ refused: error.reason, asked }));
}
