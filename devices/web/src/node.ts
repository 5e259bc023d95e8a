/** A ledger in SQLite, for Node. */
import { type Changes, type KeyPlace, type Rows, type Store, storageFailed } from "./store.js";
import { Refused } from "./errors.js";

/** The methods of a database that the ledger uses: of Node's own `DatabaseSync` (22.5 or later), or of better-sqlite3. */
export interface Database {
  exec(sql: string): unknown;
  prepare(sql: string): { all(...values: string[]): unknown[]; run(...values: string[]): unknown };
  close(): void;
}

/**
 * Open a ledger in a file: one file for each person.
 *
 * Commits are durable (`synchronous = FULL`), and processes that share the file take turns. A damaged file is never
 * replaced: that would refill the budget. Raises `Refused` with the reason `storage`.
 */
export async function sqliteStore(file: string | Database): Promise<Store> {
  let open: () => Database;
  if (typeof file === "string") {
    const name = "node:sqlite"; // in a variable, as bundlers may not know this module
    const { DatabaseSync } = (await import(name).catch(() => {
      throw new Error("this Node has no node:sqlite: use Node 22.5 or later, or give a database of better-sqlite3");
    })) as { DatabaseSync: new (path: string) => Database };
    await ownersAlone(file).catch((error: unknown) => {
      throw storageFailed(error);
    });
    open = () => new DatabaseSync(file);
  } else open = () => file;
  try {
    const store = storeOf(open());
    return typeof file === "string" && file !== ":memory:" && !file.startsWith("file:") ? { ...store, key: await keyFile(`${file}.key`) } : store;
  } catch (error) {
    throw error instanceof Refused ? error : storageFailed(error);
  }
}

/** The checksum of a row (CRC-32), by which reading notices a damaged disk. */
function checksum(key: string, value: string): string {
  let crc = -1;
  for (const byte of new TextEncoder().encode(`${key}\0${value}`)) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (~crc >>> 0).toString(16);
}

/** Make a new file readable for its owner alone: it tells who takes part, and what they have spent. */
async function ownersAlone(file: string): Promise<void> {
  if (file === ":memory:" || file.startsWith("file:")) return;
  const name = "node:fs/promises";
  const { open } = (await import(name)) as {
    open: (path: string, flags: string, mode: number) => Promise<{ close: () => Promise<void> }>;
  };
  await (await open(file, "a", 0o600)).close();
}

/** The key of held records, in a separate file: a copy of the ledger alone tells nothing about them. */
async function keyFile(path: string): Promise<KeyPlace> {
  const name = "node:fs";
  const { readFileSync, writeFileSync, rmSync } = (await import(name)) as {
    readFileSync(path: string, encoding: string): string;
    writeFileSync(path: string, text: string, options: { mode: number; flush: boolean }): void;
    rmSync(path: string, options: { force: boolean }): void;
  };
  return {
    read() {
      try {
        return readFileSync(path, "utf8");
      } catch (error) {
        if ((error as { code?: string }).code === "ENOENT") return null;
        throw storageFailed(error);
      }
    },
    write(text) {
      if (text === null) rmSync(path, { force: true });
      else writeFileSync(path, text, { mode: 0o600, flush: true });
    },
  };
}

function storeOf(database: Database): Store {
  database.exec("PRAGMA busy_timeout = 10000");
  database.exec("PRAGMA journal_mode = WAL");
  database.exec("PRAGMA synchronous = FULL");
  // So that held records are overwritten when they are deleted.
  database.exec("PRAGMA secure_delete = ON");
  database.exec('CREATE TABLE IF NOT EXISTS rows (key TEXT PRIMARY KEY, value TEXT NOT NULL, "check" TEXT NOT NULL) WITHOUT ROWID');
  const find = database.prepare('SELECT key, value, "check" FROM rows WHERE key >= ? AND key < ?');
  const put = database.prepare("INSERT OR REPLACE INTO rows VALUES (?, ?, ?)");
  const remove = database.prepare("DELETE FROM rows WHERE key = ?");
  const read = (prefix: string) => {
    const rows = find.all(prefix, `${prefix}\u{10ffff}`) as { key: string; value: string; check: string }[];
    if (rows.some(({ key, value, check }) => check !== checksum(key, value)))
      throw new Refused("storage", "the device's ledger is damaged: put back a copy. Nothing was released");
    return rows;
  };
  // A damaged key would not be found later, and its account would begin anew.
  read("");
  return {
    async update<T>(prefixes: readonly string[], change: (rows: Rows) => readonly [T, Changes]): Promise<T> {
      let failure: unknown;
      try {
        database.exec("BEGIN IMMEDIATE");
        const rows = new Map<string, string>();
        for (const prefix of prefixes)
          for (const row of read(prefix)) rows.set(row.key, row.value);
        let changed: readonly [T, Changes];
        try {
          changed = change(rows);
        } catch (error) {
          failure = error;
          throw error;
        }
        const [result, changes] = changed;
        for (const [key, value] of Object.entries(changes)) {
          if (value === null) remove.run(key);
          else put.run(key, value, checksum(key, value));
        }
        database.exec("COMMIT");
        return result;
      } catch (error) {
        try {
          database.exec("ROLLBACK");
        } catch {
          // The transaction ended with the error, or never began.
        }
        throw failure ?? (error instanceof Refused ? error : storageFailed(error));
      }
    },
    close: () => database.close(),
  };
}
