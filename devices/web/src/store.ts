/** Durable rows of text, changed by atomic transactions: IndexedDB in browsers, SQLite in Node. */
import { Refused } from "./words.js";

/** Rows by key. */
export type Rows = ReadonlyMap<string, string>;
/** New values by key; null deletes. */
export type Changes = Record<string, string | null>;

export interface Store {
  /**
   * Read all rows whose keys begin with one of the prefixes, and write what `change` returns, in one transaction that
   * is durable when the promise is fulfilled. If `change` throws, nothing is written.
   */
  update<T>(prefixes: readonly string[], change: (rows: Rows) => readonly [T, Changes]): Promise<T>;
  close(): void;
}

export function storageFailed(error: unknown): Refused {
  const name = (error as { name?: string } | null)?.name ?? "";
  const full = /quota|full/i.test(name + String((error as Error | null)?.message ?? ""));
  return new Refused("storage", full ? "the device's storage is full: nothing was released" : "the device's storage cannot be used: nothing was released");
}

const TABLE = "rows";

/** Open the ledger's database of this origin. Raises `Refused` with the reason `storage`. */
export async function indexedDbStore(name = "murk"): Promise<Store> {
  const database = await new Promise<IDBDatabase>((resolve, reject) => {
    const fail = (error: unknown): void => reject(storageFailed(error));
    try {
      const request = indexedDB.open(name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore(TABLE);
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => fail(request.error);
    } catch (error) {
      fail(error);
    }
  });
  // A damaged database is never deleted: that would refill the budget.
  database.onversionchange = () => database.close();
  return {
    update<T>(prefixes: readonly string[], change: (rows: Rows) => readonly [T, Changes]): Promise<T> {
      return new Promise((resolve, reject) => {
        let failure: unknown;
        let result: T;
        let transaction: IDBTransaction;
        try {
          transaction = database.transaction(TABLE, "readwrite", { durability: "strict" });
        } catch (error) {
          reject(storageFailed(error));
          return;
        }
        const table = transaction.objectStore(TABLE);
        const rows = new Map<string, string>();
        // One request at least, so that the transaction begins.
        const wanted = prefixes.length ? prefixes : ["identity"];
        let waiting = wanted.length;
        const write = (): void => {
          try {
            const [value, changes] = change(rows);
            result = value;
            for (const [key, text] of Object.entries(changes)) {
              if (text === null) table.delete(key);
              else table.put(text, key);
            }
          } catch (error) {
            failure = error;
            transaction.abort();
          }
        };
        for (const prefix of wanted) {
          const request = table.openCursor(IDBKeyRange.bound(prefix, `${prefix}\uffff`));
          request.onsuccess = () => {
            const cursor = request.result;
            if (cursor) {
              rows.set(cursor.key as string, cursor.value as string);
              cursor.continue();
            } else if (--waiting === 0) write();
          };
        }
        transaction.oncomplete = () => resolve(result);
        transaction.onabort = () => reject(failure ?? storageFailed(transaction.error));
      });
    },
    close: () => database.close(),
  };
}
