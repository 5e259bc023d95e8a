/** Connecting a page to a gateway. */
import { Device, type Options } from "./device.js";
import type { Protocols } from "./release.js";
import { indexedDbStore, type Store } from "./store.js";

/** Open this origin's ledger in IndexedDB, and ask the browser to keep it. */
export async function browserStore(name?: string): Promise<Store> {
  const store = await indexedDbStore(name);
  await navigator.storage?.persist?.().catch(() => false);
  return store;
}

/** Return `connect` for some protocols. */
export function connecting(protocols: Protocols) {
  return (options: Options & { readonly store?: Store }): Promise<Device> =>
    Device.connect(() => (options.store ? Promise.resolve(options.store) : browserStore()), protocols, options);
}

export type { Record_ as Record, Value } from "./coding.js";
export type { Options, Receipt, Status } from "./device.js";
export { Device } from "./device.js";
export type { First, Policy } from "./ledger.js";
export type { Currency, Guarantee, Loss } from "./mechanisms.js";
export { percent } from "./promise.js";
export type { Changes, Rows, Store } from "./store.js";
export { levelOf } from "./task.js";
export { Refused } from "./words.js";
