/** Durable rows of text, which atomic transactions change: IndexedDB in browsers, SQLite in Node. */
import { within } from "./time.js";
import { Refused } from "./errors.js";

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
  /** Where the key of held records is kept, apart from the rows; without such a place nothing can be held. */
  readonly key?: KeyPlace;
}

/** A place for one text, which can be read and written within a transaction; `write(null)` deletes the text. */
export interface KeyPlace {
  read(): string | null;
  write(text: string | null): void;
}

export function storageFailed(error: unknown): Refused {
  const name = (error as { name?: string } | null)?.name ?? "";
  const full = /quota|full/i.test(name + String((error as Error | null)?.message ?? ""));
  return new Refused("storage", full ? "the device's storage is full: nothing was released" : "the device's storage cannot be used: nothing was released");
}

const TABLE = "rows";
const LIMIT = 10_000; // milliseconds: in some browsers a database or transaction may never answer

const silent = (): Refused => new Refused("storage", `the device's storage has not answered for ${LIMIT / 1000} seconds`);

/** Thrown when the browser has closed the connection: nothing was written. */
class Lost extends Error {}

/** Open a database; if there is none, make it, or return undefined and leave no trace. */
async function open(name: string, create: boolean): Promise<IDBDatabase | undefined> {
  let late = false;
  if (!create && typeof globalThis.indexedDB?.databases === "function") {
    const listed = await within(indexedDB.databases(), LIMIT, silent).catch(() => undefined);
    if (listed && !listed.some((each) => each.name === name)) return undefined;
  }
  const opening = new Promise<IDBDatabase | undefined>((resolve, reject) => {
    let absent = false;
    let request: IDBOpenDBRequest;
    try {
      request = indexedDB.open(name, 1);
    } catch (error) {
      reject(storageFailed(error));
      return;
    }
    request.onupgradeneeded = () => {
      if (create && !late) {
        request.result.createObjectStore(TABLE);
        return;
      }
      absent = true;
      request.transaction!.abort();
      request.result.close();
    };
    request.onsuccess = () => (late ? request.result.close() : resolve(request.result));
    request.onerror = (event) => {
      event.preventDefault();
      if (absent) resolve(undefined);
      else reject(storageFailed(request.error));
    };
  });
  return within(opening, LIMIT, () => {
    late = true;
    return silent();
  });
}

function transact<T>(database: IDBDatabase, prefixes: readonly string[], change: (rows: Rows) => readonly [T, Changes]): Promise<T> {
  let transaction: IDBTransaction;
  const work = new Promise<T>((resolve, reject) => {
    let failure: unknown;
    let result: T;
    try {
      transaction = database.transaction(TABLE, "readwrite", { durability: "strict" });
    } catch {
      throw new Lost();
    }
    const table = transaction.objectStore(TABLE);
    const rows = new Map<string, string>();
    // At least one request, as a transaction without any does not begin.
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
    transaction.onabort = () => {
      const lost = transaction.error === null || transaction.error.name === "AbortError";
      reject(failure ?? (lost ? new Lost() : storageFailed(transaction.error)));
    };
  });
  return within(work, LIMIT, () => {
    try {
      transaction.abort();
    } catch {
      // The transaction has ended already, or never began.
    }
    return silent();
  });
}

/** This origin's local storage, where there is one: workers have none. */
function keyPlace(name: string): { key?: KeyPlace } {
  const { localStorage } = globalThis as { localStorage?: Storage };
  if (!localStorage) return {};
  const write = (text: string | null): void => (text === null ? localStorage.removeItem(name) : localStorage.setItem(name, text));
  return { key: { read: () => localStorage.getItem(name), write } };
}

/**
 * Use the ledger's database of this origin. It is made when it is first read, or, with `traceless`, when something is
 * first written. `update` raises `Refused` with the reason `storage`.
 */
export async function indexedDbStore(name = "murk", traceless = false): Promise<Store> {
  let connection: Promise<IDBDatabase | undefined> | undefined;

  const forget = (): void => {
    void connection?.then((database) => database?.close()).catch(() => undefined);
    connection = undefined;
  };

  const connected = async (create: boolean): Promise<IDBDatabase | undefined> => {
    let database = await (connection ??= open(name, create));
    if (!database && create) database = await (connection = open(name, true));
    if (!database) connection = undefined;
    else {
      // A damaged database is never deleted: that would refill the budget.
      database.onversionchange = forget;
      database.onclose = () => (connection = undefined);
    }
    return database;
  };

  const attempt = async <T>(prefixes: readonly string[], change: (rows: Rows) => readonly [T, Changes]): Promise<T> => {
    let database = await connected(!traceless);
    if (!database) {
      const [result, changes] = change(new Map());
      if (Object.keys(changes).length === 0) return result;
      database = await connected(true);
    }
    return transact(database!, prefixes, change);
  };

  return {
    async update(prefixes, change) {
      try {
        return await attempt(prefixes, change).catch((error: unknown) => {
          if (!(error instanceof Lost)) throw error;
          forget();
          return attempt(prefixes, change);
        });
      } catch (error) {
        const failed = error instanceof Lost ? storageFailed(error) : error;
        if (failed instanceof Refused && failed.reason === "storage") forget();
        throw failed;
      }
    },
    close: forget,
    ...keyPlace(`${name}-key`),
  };
}
