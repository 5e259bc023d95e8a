// Release one record through a relay; print what became of it, and every address that was asked.
import { IDBFactory, IDBKeyRange } from "fake-indexeddb";
import * as murk from "../build/testing.js";
import { record } from "./gateway.mjs";

globalThis.IDBKeyRange = IDBKeyRange;
globalThis.indexedDB = new IDBFactory();
const given = JSON.parse(process.argv[2]);
const asked = [];

function ask(address, init) {
  asked.push(address);
  return fetch(address, init);
}

try {
  const device = await murk.connecting(murk.ALL)({ ...given, fetch: ask, store: await murk.indexedDbStore(), first: async () => true });
  const receipt = await device.release(record);
  const waiting = (await device.flush()).map(({ state }) => state);
  device.close();
  console.log(JSON.stringify({ receipt, waiting, asked }));
} catch (error) {
  if (!(error instanceof murk.Refused)) throw error;
  console.log(JSON.stringify({ refused: error.reason, asked }));
}
