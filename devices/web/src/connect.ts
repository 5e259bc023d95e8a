/** Connecting a page to a gateway. */
import { Device, type Options, optsOut } from "./device.js";
import type { Protocols } from "./release.js";
import { indexedDbStore, type Store } from "./store.js";

/** Use this origin's ledger in IndexedDB; the first change asks the browser to keep it, without waiting for an answer. */
export async function browserStore(name?: string, traceless = false): Promise<Store> {
  const store = await indexedDbStore(name, traceless);
  let asked = false;
  return {
    ...store,
    update: (prefixes, change) =>
      store.update(prefixes, (rows) => {
        const result = change(rows);
        if (!asked && Object.keys(result[1]).length > 0) {
          asked = true;
          // Some browsers ask the visitor, who may never answer.
          void globalThis.navigator?.storage?.persist?.().catch(() => false);
        }
        return result;
      }),
  };
}

/** Return `connect` for some protocols. */
export function connecting(protocols: Protocols) {
  return (options: Options & { readonly store?: Store | undefined }): Promise<Device> =>
    Device.connect(() => (options.store ? Promise.resolve(options.store) : browserStore(undefined, optsOut(options))), protocols, options);
}

export type { Record_ as Record, Value } from "./coding.js";
export type { DeviceEventMap, Options, Receipt, Status, Undelivered } from "./device.js";
export { Device } from "./device.js";
export type { First, Policy } from "./ledger.js";
export type { Currency, Guarantee, Loss } from "./mechanisms.js";
export { percent } from "./promise.js";
export type { Changes, KeyPlace, Rows, Store } from "./store.js";
export { levelOf } from "./task.js";
export { Refused } from "./errors.js";
