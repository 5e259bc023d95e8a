// The device with its ledger, on IndexedDB (in memory) and SQLite (in a file).
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { IDBFactory, IDBKeyRange } from "fake-indexeddb";
import * as murk from "../build/testing.js";
import { DAY, document, experiment, Gateway, record, repeating } from "./gateway.mjs";

globalThis.IDBKeyRange = IDBKeyRange;
const NOW = 1_800_000_000;
const claimed = async () => true;
const WEEKLY = { guarantee: { gdp: { mu: 1 } }, levels: {}, mechanism: null, per_person: null, window: "week", lifetime: { gdp: { mu: 1.5 } } };
const WEDNESDAY = 1_800_403_200; // 2027-01-20, 00:00 UTC
const WEEK = 7 * DAY;
// A browser's local storage.
const texts = new Map();
globalThis.localStorage = { getItem: (name) => texts.get(name) ?? null, setItem: (name, text) => texts.set(name, text), removeItem: (name) => texts.delete(name) };

const kinds = {
  indexeddb: () => {
    globalThis.indexedDB = new IDBFactory();
    return { open: () => murk.indexedDbStore(), wipe: () => (globalThis.indexedDB = new IDBFactory()) };
  },
  sqlite: () => {
    const folder = mkdtempSync(join(tmpdir(), "murk-"));
    process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
    let number = 0;
    return { open: () => murk.sqliteStore(join(folder, `ledger-${number}.db`)), wipe: () => number++ };
  },
};
/** Protocols of devices of one task, which compute together, once, what its releases cost. */
function countedOnce() {
  const known = new Map();
  return Object.fromEntries(Object.entries(murk.ALL).map(([name, make]) => [name, (...given) => {
    const made = make(...given);
    return { ...made, cost: (level, currency) => {
      const key = `${level} ${currency}`;
      if (!known.has(key)) known.set(key, made.cost(level, currency));
      return known.get(key);
    } };
  }]));
}
const hasSqlite = await import("node:sqlite").then(() => true, () => false);

for (const [kind, begin] of Object.entries(kinds)) {
  describe(kind, { skip: kind === "sqlite" && !hasSqlite ? "this Node has no node:sqlite" : false }, () => {
    const connect = async (gateway, place, { protocols = murk.ALL, ...options } = {}) =>
      murk.connecting(protocols)({
        gateway: "https://gateway.test", task: /"name":"([a-z-]+)","(?:objective|features)/.exec(gateway.text)?.[1] ?? "third-child", fetch: gateway.fetch, store: await place.open(),
        first: claimed, clock: () => NOW, ...options,
      });

    test("a record is released once, and the cap holds", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      const device = await connect(gateway, place);
      assert.equal((await device.status()).caps[0].spent, 0n);
      const first = await device.release(record);
      assert.deepEqual([first.outcome, first.delivery], ["released", "sent"]);
      assert.deepEqual(gateway.accepted, [first.bytes]);
      assert.deepEqual(await device.release(record), { outcome: "refused", reason: "task-cap" });
      assert.equal(gateway.accepted.length, 1);
      const status = await device.status();
      // As `murk ledger` counts it: mu^2 in units of 1e-12, rounded up.
      assert.equal(status.caps[0].spent, 999996185315n);
      assert.equal(status.room, false);
      assert.equal(status.caps[0].cap.units, 1_000_000_000_000n);
      assert.equal(murk.percent(status.attackAccuracy), "69.2%");
      const sent = gateway.posts[0].init;
      assert.deepEqual([sent.credentials, sent.referrerPolicy, sent.headers], ["omit", "no-referrer", undefined]);
      device.close();
    });

    test("the same key is sent again, never randomized again", async () => {
      const gateway = new Gateway(document({ privacy: { guarantee: { gdp: { mu: 1 } }, levels: {}, mechanism: null, per_person: { gdp: { mu: 3 } } } }));
      const place = begin();
      const device = await connect(gateway, place);
      gateway.answer = () => ({});
      const first = await device.release(record, { key: "form-1" });
      assert.equal(first.delivery, "queued");
      gateway.answer = () => ({ status: 202 });
      assert.equal((await device.release(record, { key: "form-1" })).outcome, "known");
      assert.deepEqual(gateway.accepted, [first.bytes]);
      assert.equal((await device.release(record, { key: "form-2 \u00e9" })).outcome, "released");
      assert.equal((await device.release(record, { key: "form-2 e\u0301" })).outcome, "known"); // one text, written twice
      device.close();
    });

    test("stored bytes are sent after a reload, and once accepted never again", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      // Accepted, but the answer is lost.
      gateway.answer = () => ({ taken: true });
      const device = await connect(gateway, place);
      const { bytes, delivery } = await device.release(record);
      assert.equal(delivery, "queued");
      device.close();
      gateway.answer = () => ({ status: 202 });
      const again = await connect(gateway, place);
      await again.flush();
      await again.flush();
      assert.deepEqual(gateway.accepted, [bytes, bytes]);
      assert.equal((await again.status()).waiting, 0);
      again.close();
    });

    test("Retry-After is honoured", async (t) => {
      const [gateway, place] = [new Gateway(), begin()];
      let time = NOW;
      const device = await connect(gateway, place, { clock: () => time });
      await new Promise((resolve) => setTimeout(resolve, 20));
      t.mock.method(performance, "now", () => time * 1000);
      t.mock.timers.enable({ apis: ["setTimeout"] });
      gateway.answer = () => ({ status: 429, headers: { "Retry-After": "30" } });
      assert.equal((await device.release(record)).delivery, "queued");
      gateway.answer = () => ({ status: 202 });
      time += 29;
      t.mock.timers.tick(29_000);
      // Nor because the page asks.
      assert.equal((await device.flush())[0].state, "queued");
      assert.equal(gateway.posts.length, 1);
      time += 1;
      t.mock.timers.tick(30_000);
      t.mock.timers.reset();
      const deadline = Date.now() + 60_000;
      while (gateway.accepted.length === 0 && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 5));
      assert.equal(gateway.accepted.length, 1);
      device.close();
    });

    test("a release of a partition that the gateway does not know yet waits alone", async () => {
      const gateway = new Gateway(document({ privacy: { guarantee: { gdp: { mu: 1 } }, levels: {}, mechanism: null, per_person: { gdp: { mu: 3 } } } }));
      const device = await connect(gateway, begin());
      let unknown;
      gateway.answer = (body) => ({ status: (unknown ??= body) === body ? 421 : 202, headers: { "Retry-After": "5" } });
      assert.equal((await device.release(record, { key: "one" })).delivery, "queued");
      const second = await device.release(record, { key: "two" });
      assert.equal(second.delivery, "sent");
      assert.deepEqual(gateway.accepted, [second.bytes]);
      assert.deepEqual((await device.flush()).map(({ bytes, state, reason }) => [bytes, state, reason]), [[unknown, "queued", "status-421"]]);
      // Another gateway knows it.
      gateway.answer = () => ({ status: 202 });
      assert.deepEqual(await device.flush(), []);
      assert.deepEqual(gateway.accepted, [second.bytes, unknown]);
      device.close();
    });

    test("what is refused for good is deleted, and stays spent", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      gateway.answer = () => ({ status: 409, body: '{"accepted":0,"refused":[{"index":0,"reason":"stale"}],"error":"stale"}' });
      const device = await connect(gateway, place);
      const receipt = await device.release(record);
      assert.deepEqual([receipt.delivery, receipt.reason], ["rejected", "stale"]);
      assert.deepEqual([(await device.status()).waiting, (await device.release(record)).outcome], [0, "refused"]);
      device.close();
    });

    test("withdrawal deletes what waits and stops", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      gateway.answer = () => ({});
      const device = await connect(gateway, place);
      await device.release(record);
      assert.equal((await device.status()).waiting, 1);
      await device.withdraw();
      gateway.answer = () => ({ status: 202 });
      await device.flush();
      const status = await device.status();
      assert.deepEqual([status.waiting, status.withdrawn, gateway.accepted.length], [0, true, 0]);
      assert.equal((await device.release(record)).reason, "withdrawn");
      device.close();
    });

    test("releases of another task wait for their own device", async () => {
      const [one, two, place] = [new Gateway(), new Gateway(document({ name: "second" })), begin()];
      one.answer = () => ({});
      const first = await connect(one, place);
      const { bytes } = await first.release(record);
      first.close();
      // Asked for another task, the gateway would refuse them for good.
      two.answer = (body) => ({ status: body === bytes ? 409 : 202 });
      const second = await connect(two, place);
      assert.equal((await second.release(record)).delivery, "sent");
      assert.deepEqual(await second.flush(), []);
      assert.equal(two.posts.length, 1);
      second.close();
      one.answer = () => ({ status: 202 });
      const again = await connect(one, place);
      await again.flush();
      assert.deepEqual(one.accepted, [bytes]);
      again.close();
    });

    test("a gateway that changes its task gets nothing more, unless the page pins the new one", async () => {
      const place = begin();
      const first = await connect(new Gateway(), place);
      assert.equal((await first.release(record, { key: "form-1" })).outcome, "released");
      first.close();
      const text = document({ expiry: "8d" });
      const gateway = new Gateway(text);
      for (const address of ["https://gateway.test", "https://gateway.test/"]) {
        const changed = await connect(gateway, place, { gateway: address });
        assert.equal((await changed.status()).changed, true);
        assert.deepEqual(await changed.release(record), { outcome: "refused", reason: "changed-task" });
        changed.close();
      }
      assert.equal(gateway.posts.length, 0);
      const { hash } = await murk.readTask(text);
      const pinned = await connect(gateway, place, { hash });
      assert.equal((await pinned.status()).changed, false);
      // The same record is not asked again.
      assert.equal((await pinned.release(record, { key: "form-1" })).outcome, "known");
      assert.equal((await pinned.release(record, { key: "form-2" })).outcome, "released");
      pinned.close();
      // And the former task is another one now.
      const back = await connect(new Gateway(), place);
      assert.equal((await back.release(record)).reason, "changed-task");
      back.close();
      // A gateway of another address has its own.
      const other = await connect(new Gateway(document({ expiry: "9d" })), place, { gateway: "https://other.test" });
      assert.equal((await other.release(record)).outcome, "released");
      other.close();
    });

    test("a withdrawal holds for every task of that name at the gateway", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      gateway.answer = () => ({});
      const device = await connect(gateway, place);
      await device.release(record);
      device.close();
      const text = document({ expiry: "8d" });
      const changed = await connect(new Gateway(text), place);
      await changed.withdraw();
      changed.close();
      gateway.answer = () => ({ status: 202 });
      for (const [at, hash] of [[gateway, undefined], [new Gateway(text), (await murk.readTask(text)).hash]]) {
        const later = await connect(at, place, hash ? { hash } : {});
        assert.deepEqual([(await later.status()).withdrawn, (await later.status()).waiting], [true, 0]);
        assert.equal((await later.release(record)).reason, "withdrawn");
        later.close();
      }
      assert.equal(gateway.accepted.length, 0);
    });

    test("a task is stored only once it was checked", async () => {
      const place = begin();
      const away = async () => Promise.reject(new TypeError("network"));
      const fine = await connect(new Gateway(), place);
      const { hash } = fine.task;
      await fine.release(record);
      fine.close();
      for (const text of ["{", document({ simulated: true }), document({ privacy: { guarantee: { gdp: { mu: 90 } }, levels: {}, mechanism: null, per_person: null } })])
        await assert.rejects(connect(new Gateway(text), place, { task: "third-child" }));
      await assert.rejects(connect(new Gateway(document({ expiry: "8d" })), place, { hash }), { reason: "wrong-hash" });
      const offline = await connect(new Gateway(), place, { fetch: away });
      assert.equal(offline.task.hash, hash);
      offline.close();
    });

    test("what was not sent is not called sent, and an opt-out counts at once", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      let out = false;
      const device = await connect(gateway, place);
      Object.defineProperty(device, "optOut", { get: () => out });
      const spend = device.ledger.spend.bind(device.ledger);
      device.ledger.spend = async (...given) => {
        const outcome = await spend(...given);
        out = true;
        return outcome;
      };
      assert.equal((await device.release(record)).delivery, "queued");
      assert.equal(gateway.posts.length, 0);
      out = false;
      device.ledger.spend = spend;
      const asked = device.newest.bind(device);
      // After the first look, before the debit.
      device.newest = async (partition) => {
        out = true;
        return asked(partition);
      };
      assert.deepEqual(await device.release(record), { outcome: "refused", reason: "opt-out" });
      assert.equal((await device.status()).released, 1);
      device.close();
    });

    test("answers without end are not read", async () => {
      const place = begin();
      let pulled = 0;
      const endless = () => new ReadableStream({ pull: (controller) => { pulled++; controller.enqueue(new Uint8Array(2 ** 20).fill(32)); } });
      const gateway = new Gateway();
      const answers = { document: false, model: false };
      const fetch = async (address, init) => {
        const { pathname } = new URL(address);
        assert.equal(init.cache, "no-store");
        const kind = pathname.endsWith("/model") ? "model" : pathname.endsWith("/releases") ? "release" : "document";
        if (answers[kind]) return new Response(endless(), { status: kind === "release" ? 409 : 200 });
        return gateway.fetch(address, init);
      };
      answers.document = true;
      await assert.rejects(connect(gateway, place, { fetch }), { reason: "task" });
      answers.document = false;
      const device = await connect(gateway, place, { fetch });
      answers.model = true;
      await assert.rejects(device.release(record), { reason: "model" });
      assert.equal((await device.status()).released, 0);
      answers.model = false;
      answers.release = true;
      assert.equal((await device.release(record)).reason, "status-409");
      assert.ok(pulled < 20);
      device.close();
    });

    test("only true admits a ledger", async () => {
      for (const said of [1, "no", {}, undefined]) {
        const device = await connect(new Gateway(), begin(), { first: async () => said });
        assert.equal((await device.release(record)).reason, "new-ledger");
        assert.ok((await device.status()).silentFor > 0);
        device.close();
      }
    });

    test("wiped storage does not refill a budget", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      let time = NOW;
      const clock = () => time;
      const accounts = new Set();
      // An account of the team's answers true once.
      const once = async () => !accounts.has("me") && accounts.add("me") && true;
      const device = await connect(gateway, place, { clock, first: once });
      assert.equal((await device.release(record)).outcome, "released");
      device.close();
      place.wipe();
      const away = async () => Promise.reject(new TypeError("network"));
      for (const first of [once, away, "wait"]) {
        const other = await connect(gateway, place, { clock, first });
        assert.equal((await other.release(record)).reason, "new-ledger");
        assert.equal((await other.status()).silentFor, 7 * DAY);
        other.close();
      }
      gateway.now = time += 7 * DAY - 1;
      const later = await connect(gateway, place, { clock, first: "wait" });
      assert.equal((await later.release(record)).reason, "new-ledger");
      gateway.now = time += 1;
      assert.equal((await later.release(record)).outcome, "released");
      later.close();
      assert.equal(gateway.accepted.length, 2);
    });

    test("storage that is wiped under an open page is noticed", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      const store = await place.open();
      const device = await connect(gateway, place, { store, first: "wait" });
      assert.equal((await device.release(record)).reason, "new-ledger");
      await store.update([""], (rows) => [null, Object.fromEntries([...rows.keys()].map((key) => [key, null]))]);
      assert.equal((await device.release(record)).reason, "wiped");
      assert.equal(gateway.posts.length, 0);
      device.close();
    });

    test("a damaged ledger releases nothing", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      const device = await connect(gateway, place);
      const store = await place.open();
      await store.update([], () => [null, { [`task:${device.task.hash}`]: "{" }]).catch(() => undefined);
      await store.update(["identity"], () => [null, { [`task:${device.task.hash}`]: "{" }]);
      await assert.rejects(device.release(record), { reason: "storage" });
      assert.equal(gateway.posts.length, 0);
      device.close();
    });

    test("tabs that race for the last of a budget release it once", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      const devices = await Promise.all([1, 2, 3, 4].map(() => connect(gateway, place)));
      const receipts = await Promise.all(devices.map((device) => device.release(record)));
      assert.deepEqual(receipts.map(({ outcome }) => outcome).sort(), ["refused", "refused", "refused", "released"]);
      for (const device of devices) await device.flush();
      assert.equal(new Set(gateway.accepted).size, 1);
      for (const device of devices) device.close();
    });

    test("an opted-out device sends nothing, not even what waits", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      gateway.answer = () => ({});
      const device = await connect(gateway, place);
      await device.release(record);
      device.close();
      gateway.requests = [];
      const out = await connect(gateway, place, { optOut: true });
      assert.equal((await out.status()).optOut, true);
      assert.deepEqual(await out.release(record), { outcome: "refused", reason: "opt-out" });
      await out.flush();
      assert.equal(gateway.posts.length, 0);
      out.close();
    });

    test("releases are not sent after their expiry", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      let time = NOW;
      gateway.answer = () => ({});
      const device = await connect(gateway, place, { clock: () => time });
      await device.release(record);
      gateway.now = time += 7 * DAY;
      gateway.answer = () => ({ status: 202 });
      await device.flush();
      assert.deepEqual([(await device.status()).waiting, gateway.accepted.length], [0, 0]);
      device.close();
    });

    for (const [words, off] of [["years behind", -20 * 365 * DAY], ["nine days behind", -9 * DAY], ["nine days ahead", 9 * DAY], ["before 1970", -NOW - 1e6], ["years ahead", 900 * 365 * DAY], ["nowhere", NaN]])
      test(`a clock that is ${words} costs nobody an answer`, async () => {
        const [gateway, place] = [new Gateway(), begin()];
        const device = await connect(gateway, place, { clock: () => NOW + off });
        const { outcome, bytes } = await device.release(record);
        assert.equal(outcome, "released");
        assert.equal(JSON.parse(bytes).expires, Math.floor((NOW + 7 * DAY) / DAY) * DAY);
        device.close();
        // A gateway that tells no time, as one behind a proxy that removes it.
        gateway.now = null;
        const blind = await connect(gateway, begin(), { clock: () => NOW + off });
        const answer = await blind.release(record);
        if (!(off > -3 * 365 * DAY && off < 300 * 365 * DAY)) assert.deepEqual(answer, { outcome: "refused", reason: "clock" });
        blind.close();
      });

    test("a clock that jumps while an answer waits deletes nothing unsent", async () => {
      for (const jump of [10 * 365 * DAY, 8 * DAY, -8 * DAY, -60 * 365 * DAY]) {
        const [gateway, place] = [new Gateway(), begin()];
        let time = NOW;
        gateway.answer = () => ({});
        const device = await connect(gateway, place, { clock: () => time });
        const { bytes } = await device.release(record);
        time += jump;
        const { fetch } = gateway;
        gateway.answer = () => ({ status: 202 });
        await device.flush();
        assert.deepEqual(gateway.accepted, [bytes], `${jump}`);
        assert.equal((await device.status()).waiting, 0);
        gateway.fetch = fetch;
        device.close();
      }
    });

    test("a silence ends although the clock was decades ahead when it began", async () => {
      for (const now of [NOW, null]) {
        const [gateway, place] = [new Gateway(), begin()];
        let time = NOW + 29 * 365 * DAY;
        gateway.now = now;
        const options = { clock: () => time, first: "wait" };
        const device = await connect(gateway, place, options);
        assert.equal((await device.release(record)).reason, "new-ledger");
        device.close();
        time = NOW;
        const set = await connect(gateway, place, options);
        assert.ok((await set.status()).silentFor <= 7 * DAY);
        set.close();
        time += 7 * DAY;
        if (now) gateway.now += 7 * DAY;
        const later = await connect(gateway, place, options);
        assert.equal((await later.release(record)).outcome, "released");
        later.close();
      }
    });

    test("before the first release nothing is stored, and nobody is asked", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      const rows = async () => {
        const store = await place.open();
        const keys = await store.update([""], (found) => [[...found.keys()], {}]);
        store.close();
        return keys;
      };
      let asked = 0;
      const first = async () => ++asked > 0;
      for (const optOut of [true, false]) {
        const device = await connect(gateway, place, { first, optOut });
        await device.status();
        await device.prepare();
        await device.flush();
        if (optOut) await device.release(record);
        await device.withdraw();
        assert.equal((await device.status()).withdrawn, true);
        assert.equal((await device.release(record)).outcome, "refused");
        device.close();
        assert.deepEqual([await rows(), asked, gateway.posts.length], [[], 0, 0]);
      }
      const device = await connect(gateway, place, { first });
      assert.equal((await device.release(record, { key: "name" })).outcome, "released");
      assert.equal(asked, 1);
      await device.withdraw();
      // What was spent stays, and which records are known does not.
      assert.deepEqual((await rows()).filter((key) => /^(record|out):/.test(key)), []);
      assert.ok((await rows()).some((key) => key.startsWith("task:")));
      device.close();
    });

    test("an event follows every change of the account", async () => {
      const [gateway, place] = [new Gateway(document({ privacy: { guarantee: { gdp: { mu: 1 } }, levels: {}, mechanism: null, per_person: { gdp: { mu: 3 } } } })), begin()];
      const device = await connect(gateway, place);
      let events = 0;
      device.addEventListener("change", () => events++);
      gateway.answer = () => ({});
      await device.release(record);
      assert.ok(events > 0);
      events = 0;
      gateway.answer = () => ({ status: 202 });
      await device.flush();
      assert.ok(events > 0);
      events = 0;
      await device.flush();
      assert.equal(events, 0);
      await device.withdraw();
      assert.equal(events, 1);
      device.close();
    });

    test("with a model from before, an answer waits for the connection", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      let away = false;
      const fetch = (...given) => (away ? Promise.reject(new TypeError("network")) : gateway.fetch(...given));
      const device = await connect(gateway, place, { fetch });
      await device.prepare();
      away = true;
      const { outcome, delivery, bytes } = await device.release(record);
      assert.deepEqual([outcome, delivery], ["released", "queued"]);
      away = false;
      await device.flush();
      assert.deepEqual(gateway.accepted, [bytes]);
      device.close();
    });

    test("a lifetime cap holds over all tasks, and levels count together", async () => {
      const place = begin();
      const policy = { lifetime: { gdp: { mu: 1.2 } } };
      const levels = { guarantee: { gdp: { mu: 0.5 } }, levels: { open: { gdp: { mu: 0.55 } } }, mechanism: null, per_person: null };
      const one = new Gateway(document({ privacy: levels }));
      const first = await connect(one, place, { policy });
      assert.equal((await first.release(record)).outcome, "released");
      // One release at her level, not one at each.
      assert.equal((await first.release(record, { level: "open" })).reason, "task-cap");
      first.close();
      const two = await connect(new Gateway(document({ name: "second" })), place, { policy });
      assert.equal((await two.release(record)).outcome, "released");
      two.close();
      const three = await connect(new Gateway(document({ name: "third" })), place, { policy });
      assert.equal((await three.release(record)).reason, "lifetime-cap");
      three.close();
    });

    test("what a gateway may try", async () => {
      const place = begin();
      for (const policy of [{ lifetime: { gdp: { mu: -1 } } }, { perTask: { gdp: { mu: NaN } } }])
        await assert.rejects(connect(new Gateway(), place, { policy }), { reason: "guarantee" });
      const { hash } = await murk.readTask(document());
      await assert.rejects(connect(new Gateway(document({ expiry: "8d" })), place, { hash }), { reason: "wrong-hash" });
      await assert.rejects(connect(new Gateway(document({ name: "other" })), place, { task: "third-child" }), { reason: "task" });
      await assert.rejects(connect(new Gateway("{"), place, { task: "third-child" }), { reason: "task" });
      const gateway = new Gateway();
      const device = await connect(gateway, place, { hash });
      gateway.model = JSON.stringify({ schema: 1, kind: "model", task: "0".repeat(64), partition: 0, version: 3000, parameters: [] });
      await assert.rejects(device.release(record), { reason: "model" });
      gateway.fetch = undefined;
      assert.equal(gateway.posts.length, 0);
      assert.equal((await device.status()).released, 0);
      device.close();
    });

    test("without a connection nothing is debited", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      let away = false;
      const fetch = (...given) => (away ? Promise.reject(new TypeError("network")) : gateway.fetch(...given));
      const device = await connect(gateway, place, { fetch });
      away = true;
      assert.equal((await device.release(record)).outcome, "unavailable");
      assert.equal((await device.status()).released, 0);
      device.close();
      // The task is known from before: a person can look and withdraw.
      const offline = await connect(gateway, place, { fetch });
      await offline.withdraw();
      assert.equal((await offline.status()).withdrawn, true);
      offline.close();
      place.wipe();
      await assert.rejects(connect(gateway, place, { fetch }), { reason: "unavailable" });
    });

    /** A device whose clock and gateway a test moves together. */
    const weekly = async (privacy = {}, place = begin(), options = {}) => {
      const gateway = new Gateway(document({ privacy: { ...WEEKLY, ...privacy } }));
      const time = { own: WEDNESDAY };
      gateway.now = WEDNESDAY;
      const pass = (seconds) => (gateway.now = time.own += seconds);
      const device = await settled(await connect(gateway, place, { clock: () => time.own, ...options }));
      return { gateway, place, time, pass, device };
    };

    /** A device that has done what it does as it is opened. */
    const settled = async (device) => {
      await new Promise((resolve) => setTimeout(resolve, 0));
      await device.releaseHeld().catch(() => undefined);
      return device;
    };

    const rowsOf = async (place, prefix) => {
      const store = await place.open();
      const rows = await store.update([prefix], (found) => [[...found], {}]);
      const key = await store.key?.read();
      store.close();
      return { rows, key };
    };

    test("a budget renews with its window, up to its lifetime, and windows never go back", async () => {
      const { gateway, pass, device } = await weekly();
      const outcome = async () => ((given) => given.reason || given.outcome)(await device.release(record));
      assert.equal(await outcome(), "released");
      assert.equal(await outcome(), "window-cap");
      let status = await device.status();
      assert.deepEqual([status.room, status.next, status.held], [false, WEDNESDAY + 5 * DAY, 0]);
      assert.deepEqual(status.caps.map(({ renews, spent }) => [renews, spent]), [[true, 999996185315n], [false, 999996185315n]]);
      pass(5 * DAY - 1);
      assert.equal(await outcome(), "window-cap");
      pass(1);
      status = await device.status();
      assert.deepEqual([status.room, status.next, status.caps[0].spent], [true, null, 0n]);
      assert.equal(await outcome(), "released");
      pass(-3 * DAY);
      assert.equal(await outcome(), "late");
      pass(10 * DAY);
      // mu^2 = 1 + 1 of 2.25 are spent.
      assert.equal(await outcome(), "task-cap");
      status = await device.status();
      assert.deepEqual([status.room, status.next, status.released], [false, null, 2]);
      assert.equal(gateway.accepted.length, 2);
      device.close();
    });

    test("a tiny level leaves no room for another release in its window", async () => {
      const { pass, device } = await weekly({ levels: { tiny: { gdp: { mu: 0.001 } } } });
      assert.equal((await device.release(record, { level: "tiny" })).outcome, "released");
      assert.equal((await device.release(record)).reason, "window-cap");
      pass(WEEK);
      assert.equal((await device.release(record)).outcome, "released");
      device.close();
    });

    test("a policy caps all windows", async () => {
      const { pass, device } = await weekly({ lifetime: null }, undefined, { policy: { perTask: { gdp: { mu: 1.2 } } } });
      assert.equal((await device.release(record)).outcome, "released");
      pass(WEEK);
      assert.equal((await device.release(record)).reason, "policy-cap");
      device.close();
    });

    test("a jump of one clock renews nothing", async () => {
      const { gateway, time, pass, device } = await weekly({ lifetime: null });
      assert.equal((await device.release(record)).outcome, "released");
      // A gateway that says, again and again, that a week has passed.
      for (let week = 1; week <= 5; week++) {
        gateway.now = WEDNESDAY + week * WEEK;
        time.own += 10;
        await device.prepare();
        assert.equal((await device.release(record)).reason, "clock");
        assert.equal((await device.hold(record)).reason, "clock");
      }
      assert.equal((await device.status()).next, WEDNESDAY + 5 * DAY + 5 * WEEK);
      // From then on both clocks agree.
      pass(0);
      gateway.now = WEDNESDAY + 6 * WEEK;
      time.own += WEEK;
      await device.prepare();
      assert.equal((await device.release(record)).outcome, "released");
      assert.equal(gateway.accepted.length, 2);
      device.close();
      // A device's own clock that jumps, where the gateway tells the time.
      const other = await weekly({ lifetime: null });
      assert.equal((await other.device.release(record)).outcome, "released");
      other.time.own += 4 * WEEK;
      assert.equal((await other.device.release(record)).reason, "window-cap");
      other.device.close();
    });

    test("a gateway that gains a little in each window renews no budget early", async () => {
      const { gateway, time, device } = await weekly({ window: "day", lifetime: null });
      const days = 60;
      let [answers, refused] = [0, 0];
      // It says that a day is over after 23 hours and 5 minutes.
      for (let day = 0, short = DAY - 3300; day * short < days * DAY; day++) {
        time.own = WEDNESDAY + day * short + 60;
        gateway.now = WEDNESDAY + day * DAY + 60;
        await device.prepare();
        const { outcome, reason } = await device.release(record);
        assert.ok(outcome === "released" || reason === "clock");
        if (outcome === "released") answers++;
        else refused++;
      }
      // It gains an hour, and a hundredth of the time; each of its days would be an answer.
      assert.ok(answers <= days + (1 + 0.01 * 24 * days) / 24, `${answers} answers`);
      assert.ok(answers + refused > days + 2 && answers > days / 2);
      device.close();
    });

    test("honest clocks that fall behind, or are set back now and then, skip no window", async () => {
      // Seconds that the device's clock loses by a day.
      for (const [words, lost] of [["slow", (day) => 800 * day], ["set back", (day) => 3000 * Math.floor(day / 4)]]) {
        const { gateway, time, device } = await weekly({ window: "day", lifetime: null });
        for (let day = 0; day < 40; day++) {
          time.own = WEDNESDAY + day * DAY + 3600 - lost(day);
          gateway.now = WEDNESDAY + day * DAY + 3600;
          await device.prepare();
          assert.equal((await device.release(record)).outcome, "released", `${words}, day ${day}`);
        }
        device.close();
      }
    });

    test("a device that is offline now and then keeps what it knows of its clock", async () => {
      const { gateway, place, time, device } = await weekly({ window: "day", lifetime: null });
      device.close();
      // Three hours behind.
      for (const [day, told] of [[0, true], [1, false], [2, true], [3, true]]) {
        time.own = WEDNESDAY + day * DAY + 6 * 3600;
        gateway.now = told ? time.own + 3 * 3600 : null;
        const visit = await settled(await connect(gateway, place, { clock: () => time.own }));
        assert.equal((await visit.release(record)).outcome, "released", `day ${day}`);
        visit.close();
      }
    });

    test("a wiped ledger keeps silent until no window of it can be answered again", async () => {
      const { device } = await weekly({ window: "90d" }, undefined, { first: "wait" });
      assert.equal((await device.release(record)).reason, "new-ledger");
      assert.equal((await device.hold(record)).reason, "new-ledger");
      assert.equal((await device.status()).silentFor, 90 * DAY);
      device.close();
    });

    test("one record of a window is held, and released after it", async () => {
      const { gateway, place, pass, device } = await weekly();
      for (const age of [22, 24, 26, 28, 30]) assert.deepEqual(await device.hold({ ...record, age }), { outcome: "held", reason: "" });
      let status = await device.status();
      assert.deepEqual([status.held, status.released, gateway.posts.length], [1, 0, 0]);
      const { rows: [[, text]], key } = await rowsOf(place, "held:");
      const held = JSON.parse(text);
      assert.equal(held.count, 5);
      // 12 bytes of nonce, 8 of each number, and 16 of tag.
      assert.equal(atob(held.record).length, 12 + 8 * 4 + 16);
      assert.equal(atob(key).length, 32);
      const end = WEDNESDAY + 5 * DAY;
      assert.ok(held.due >= end && held.due < end + 42 * 3600);
      pass(held.due - WEDNESDAY - 1);
      assert.deepEqual(await device.releaseHeld(), []);
      device.close();
      pass(1);
      // It wakes as it is opened.
      const woken = await connect(gateway, place, { clock: () => gateway.now });
      const deadline = Date.now() + 60_000;
      while (gateway.accepted.length === 0 && Date.now() < deadline) await new Promise((resolve) => setTimeout(resolve, 5));
      assert.equal(gateway.accepted.length, 1);
      assert.deepEqual(await woken.releaseHeld(), []);
      status = await woken.status();
      assert.deepEqual([status.held, status.released], [0, 1]);
      assert.deepEqual(await rowsOf(place, "held:"), { rows: [], key: null });
      // That window has had its answer, and this one has not.
      assert.equal((await woken.release(record)).outcome, "released");
      woken.close();
    });

    test("a device asleep for three windows answers the one in which it was awake", async () => {
      const { gateway, pass, device } = await weekly();
      await device.hold(record);
      pass(4 * WEEK);
      assert.deepEqual((await device.releaseHeld()).map(({ outcome }) => outcome), ["released"]);
      await device.hold(record);
      pass(WEEK);
      await device.hold(record);
      pass(WEEK);
      // mu^2 = 2.25 allows two answers in all; what is refused is deleted.
      assert.deepEqual((await device.releaseHeld()).map(({ outcome, reason }) => reason || outcome), ["released", "task-cap"]);
      assert.equal((await device.status()).held, 0);
      assert.equal(gateway.accepted.length, 2);
      device.close();
    });

    test("an answer of a later window comes first, and none of an earlier one follows", async () => {
      const { pass, device } = await weekly();
      await device.hold(record);
      pass(WEEK);
      assert.equal((await device.release(record)).outcome, "released");
      assert.deepEqual(await device.releaseHeld(), [{ outcome: "refused", reason: "late" }]);
      device.close();
    });

    test("an answer at once leaves nothing to hold", async () => {
      const { gateway, pass, device } = await weekly();
      await device.hold(record);
      assert.equal((await device.release(record)).outcome, "released");
      assert.equal((await device.status()).held, 0);
      pass(WEEK);
      assert.deepEqual(await device.releaseHeld(), []);
      assert.equal(gateway.accepted.length, 1);
      device.close();
    });

    test("withdrawal and an opt-out delete what is held", async () => {
      for (const way of ["withdraw", "wake", "hold", "task"]) {
        const { gateway, place, pass, device } = await weekly();
        await device.hold(record);
        if (way === "withdraw") await device.withdraw();
        device.close();
        const text = way === "task" ? document({ privacy: { ...WEEKLY, window: "day" } }) : gateway.text;
        const other = await connect(way === "task" ? new Gateway(text) : gateway, place, { clock: () => WEDNESDAY, optOut: way === "wake" || way === "hold" });
        if (way === "hold") assert.equal((await other.hold(record)).reason, "opt-out");
        pass(2 * WEEK);
        assert.deepEqual(await other.releaseHeld(), []);
        assert.deepEqual(await rowsOf(place, "held:"), { rows: [], key: null }, way);
        assert.equal(gateway.accepted.length, 0);
        other.close();
      }
    });

    test("two pages hold and release one record", async () => {
      const { gateway, place, pass, device } = await weekly();
      const other = await settled(await connect(gateway, place, { clock: () => gateway.now }));
      await Promise.all([device, other, device, other].map((each) => each.hold(record)));
      assert.equal(JSON.parse((await rowsOf(place, "held:")).rows[0][1]).count, 4);
      pass(WEEK);
      const receipts = (await Promise.all([device, other].map((each) => each.releaseHeld()))).flat();
      assert.deepEqual(receipts.map(({ outcome }) => outcome), ["released"]);
      assert.equal(new Set(gateway.accepted).size, 1);
      for (const each of [device, other]) each.close();
    });

    test("a record whose key is lost is deleted, and one that is refused is not read", async () => {
      const { gateway, place, pass, device } = await weekly();
      await device.hold(record);
      const store = await place.open();
      await store.key.write(btoa("x".repeat(32)));
      pass(WEEK);
      assert.deepEqual(await device.releaseHeld(), [{ outcome: "refused", reason: "lost-key" }]);
      assert.equal((await device.release(record)).outcome, "released");
      const untouchable = new Proxy({}, { get: () => assert.fail("the record was read"), ownKeys: () => assert.fail("the record was read") });
      assert.equal((await device.hold(untouchable)).reason, "window-cap");
      assert.equal(gateway.accepted.length, 1);
      device.close();
      store.close();
    });

    /** A device that repeats its answers, and what the gateway got of it. */
    const daily = async (privacy = {}, place = begin(), options = {}, changes = {}) => {
      const gateway = new Gateway(repeating(privacy, changes));
      gateway.now = WEDNESDAY + DAY / 2;
      const open = async () => settled(await connect(gateway, place, { clock: () => gateway.now, ...options }));
      const next = () => (gateway.now += DAY);
      const payloads = () => gateway.accepted.map((bytes) => JSON.parse(bytes).payload.join());
      return { gateway, place, open, next, payloads, device: await open() };
    };

    test("an answer is repeated while the record codes to the same, encrypted until then", async () => {
      const { gateway, place, open, next, payloads, device } = await daily({ lifetime: { gdp: { mu: 1.5 } } });
      for (const minutes of [10, "10", 10 + 1e-12]) {
        assert.equal((await device.release({ minutes })).outcome, "released");
        assert.equal((await device.release({ minutes })).reason, "window-cap");
        next();
      }
      device.close();
      const { rows: [[name, row]], key } = await rowsOf(place, "memo:");
      const { answer, level, ...more } = JSON.parse(row);
      assert.deepEqual([level, Object.keys(more)], ["default", ["place"]]);
      // 12 bytes of nonce, 8 of each of 4 numbers of the hash and 3 of the answer, and 16 of tag.
      assert.deepEqual([atob(answer).length, atob(key).length], [12 + 8 * 7 + 16, 32]);
      const sealed = Uint8Array.from(atob(answer), (letter) => letter.charCodeAt(0)).subarray(12).buffer.slice(0, 8 * 7);
      assert.ok(!payloads()[0].split(",").some((number) => [...new Float64Array(sealed)].includes(Number(number))));
      // Another visit repeats it, too; a change costs, until nothing is left and the last one is repeated.
      const again = await open();
      for (const minutes of [10, 20, 20, 10, 59]) {
        assert.equal((await again.status()).room, true);
        assert.equal((await again.release({ minutes })).outcome, "released");
        next();
      }
      const alike = payloads().map((payload) => payloads().indexOf(payload));
      assert.deepEqual(alike, [0, 0, 0, 0, 4, 4, 4, 4]);
      assert.equal(new Set(gateway.accepted.map((bytes) => JSON.parse(bytes).id)).size, 8);
      const { released, repeated, caps } = await again.status();
      assert.deepEqual([released, repeated, caps[1].spent], [8, 6, 2n * 999996185315n]);
      assert.equal((await rowsOf(place, "memo:")).rows[0][0], name);
      again.close();
    });

    test("a withdrawal deletes what is repeated, and an answer whose key is lost is drawn anew at its cost", async () => {
      const { place, open, next, payloads, device } = await daily({ lifetime: { gdp: { mu: 1.5 } } });
      const lose = async (letter) => {
        const store = await place.open();
        await store.key.write(btoa(letter.repeat(32)));
        store.close();
      };
      await device.release({ minutes: 10 });
      await lose("x");
      next();
      assert.equal((await device.release({ minutes: 10 })).outcome, "released");
      assert.notEqual(payloads()[0], payloads()[1]);
      assert.deepEqual([(await device.status()).released, (await device.status()).repeated], [2, 0]);
      next();
      await lose("y");
      // Nothing is left for a new one, and the last one cannot be read.
      assert.deepEqual(await device.release({ minutes: 10 }), { outcome: "refused", reason: "lost-key" });
      device.close();
      const other = await open();
      await other.withdraw();
      assert.deepEqual(await rowsOf(place, "memo:"), { rows: [], key: null });
      assert.equal((await other.release({ minutes: 10 })).reason, "withdrawn");
      other.close();
    });

    test("each task, level and person has an answer of its own, and the key stays until the last", async () => {
      const place = begin();
      const { next, payloads, device } = await daily({ levels: { open: { gdp: { mu: 2 } } } }, place);
      const other = await daily({ levels: { open: { gdp: { mu: 2 } } } }, place, {}, { name: "other" });
      await device.release({ minutes: 10 });
      next();
      await device.release({ minutes: 10 }, { level: "open" });
      await other.device.release({ minutes: 10 });
      assert.equal(new Set([...payloads(), ...other.payloads()]).size, 3);
      assert.equal((await rowsOf(place, "memo:")).rows.length, 2);
      await other.device.hold({ minutes: 10 });
      await device.withdraw();
      const { rows, key } = await rowsOf(place, "memo:");
      assert.deepEqual([rows.length, typeof key], [1, "string"]);
      await other.device.withdraw();
      assert.deepEqual(await rowsOf(place, "memo:"), { rows: [], key: null });
      for (const each of [device, other.device]) each.close();
    });

    test("pages that answer at once book and keep one answer", async () => {
      const { gateway, place, open, next, payloads, device } = await daily();
      const other = await open();
      for (let day = 0; day < 4; day++) {
        const outcomes = await Promise.all([device, other, device].map(async (each) => (await each.release({ minutes: day < 2 ? 10 : 20 })).outcome));
        assert.deepEqual(outcomes.sort(), ["refused", "refused", "released"]);
        next();
      }
      await device.flush();
      assert.deepEqual(payloads().map((payload) => payloads().indexOf(payload)), [0, 0, 2, 2]);
      assert.equal((await device.status()).repeated, 2);
      assert.equal(gateway.accepted.length, 4);
      assert.equal((await rowsOf(place, "memo:")).rows.length, 1);
      for (const each of [device, other]) each.close();
    });

    test("what is repeated is neither read before it is paid, nor kept where no key is", async () => {
      const { gateway, next, device } = await daily();
      await device.release({ minutes: 10 });
      const untouchable = new Proxy({}, { get: () => assert.fail("the record was read"), ownKeys: () => assert.fail("the record was read") });
      assert.equal((await device.release(untouchable)).reason, "window-cap");
      next();
      await assert.rejects(device.release(untouchable));
      assert.equal((await device.status()).released, 1);
      device.close();
      const { key, ...store } = await begin().open();
      assert.ok(key);
      const keyless = await connect(gateway, { open: async () => store }, { clock: () => gateway.now });
      await assert.rejects(keyless.release({ minutes: 10 }), { reason: "storage" });
      assert.equal((await keyless.status()).released, 0);
      keyless.close();
    });

    test("rows that count are those of a window, at most as many as the task says", async () => {
      const { next, payloads, device } = await daily({}, undefined, {}, { weight: { rows: 4 } });
      for (const count of [3, 3, 2, 4, 6]) {
        for (let row = 0; row < count; row++) assert.equal((await device.hold({ minutes: 50 })).outcome, "held");
        next();
        next();
        assert.deepEqual((await device.releaseHeld()).map(({ outcome }) => outcome), ["released"]);
      }
      await device.release({ minutes: 50 });
      // The mean of as many rows is the same, also of more than count; one that is released at once is one row.
      assert.deepEqual(payloads().map((payload) => payloads().indexOf(payload)), [0, 0, 2, 3, 3, 5]);
      device.close();
    });

    test("without a connection what is due waits, and a task without windows holds nothing", async () => {
      const { gateway, place, pass, device } = await weekly();
      await device.hold(record);
      device.close();
      pass(WEEK);
      let away = false;
      const fetch = (...given) => (away ? Promise.reject(new TypeError("network")) : gateway.fetch(...given));
      away = true;
      const offline = await settled(await connect(gateway, place, { fetch, clock: () => gateway.now }));
      await assert.rejects(offline.releaseHeld());
      assert.equal((await offline.status()).held, 1);
      away = false;
      assert.deepEqual((await offline.releaseHeld()).map(({ outcome }) => outcome), ["released"]);
      offline.close();
      const plain = await connect(new Gateway(), begin());
      await assert.rejects(plain.hold(record), { reason: "task" });
      plain.close();
    });

    test("the record that is held is drawn uniformly", async () => {
      // Of 1,000 windows with 4 records each place has 250, within 5 standard errors but once in 4e5.
      const { hash } = await murk.readTask(document({ privacy: WEEKLY }));
      const counts = [0, 0, 0, 0];
      const quarters = [0, 0, 0, 0];
      const words = new murk.SecureWords(256);
      for (let each = 0; each < 1000; each++) {
        let held = 0;
        for (let count = 1; count <= 4; count++) if (murk.isDrawn(count, words)) held = count;
        counts[held - 1]++;
        const late = murk.drawDue("week", 100, words) - murk.beginOf("week", 101);
        quarters[Math.floor((4 * late) / murk.spreadOf("week"))]++;
      }
      const error = 5 * Math.sqrt((1000 * 3) / 16);
      for (const count of [...counts, ...quarters]) assert.ok(Math.abs(count - 250) < error, `${counts} ${quarters}`);
      // The newest record alone, or each kept with probability a half, is not uniform.
      assert.ok(Math.abs(500 - 250) > error);
      assert.equal(hash.length, 64);
    });

    const visit = { platform: "ios", bought: "yes" };
    const cell = (bytes) => JSON.parse(bytes).payload[0];
    const places = { control: 0, treatment: 1 };

    test("a person has one arm, at each visit and in each window, and the release states it", async () => {
      const privacy = { ...WEEKLY, lifetime: null };
      for (const way of ["release", "hold"]) {
        const [gateway, place] = [new Gateway(experiment({ privacy })), begin()];
        const arms = new Set();
        for (let week = 0; week < 3; week++) {
          gateway.now = WEDNESDAY + week * WEEK;
          const device = await settled(await connect(gateway, place, { clock: () => gateway.now }));
          // A form's own word about the arm does not count.
          arms.add(await device.arm());
          assert.notEqual((await device[way]({ ...visit, arm: week % 2 ? "control" : "treatment" })).outcome, "refused");
          arms.add(await device.arm());
          device.close();
        }
        assert.equal(arms.size, 1);
        // Three values of the platform, and a missing one.
        const [arm] = arms;
        assert.deepEqual(gateway.accepted.map(cell), gateway.accepted.map(() => 4 * places[arm] + 1));
        assert.equal(gateway.accepted.length, way === "release" ? 3 : 2);
        assert.ok(gateway.requests.every(({ init }) => !String(init.body ?? "").includes(arm)));
      }
    });

    test("an arm is stored only for those who may take part, and deleted with a refusal", async () => {
      const [gateway, place] = [new Gateway(experiment()), begin()];
      const keys = async () => (await rowsOf(place, "")).rows.map(([key]) => key.split(":")[0]);
      const out = await connect(gateway, place, { optOut: true });
      assert.equal(await out.arm(), "control");
      out.close();
      const device = await connect(gateway, place);
      assert.deepEqual(await keys(), []);
      const arm = await device.arm();
      assert.deepEqual(await keys(), ["arm"]);
      assert.equal((await device.status()).begun, false);
      await device.withdraw();
      assert.deepEqual(await keys(), []);
      assert.equal(await device.arm(), "control");
      device.close();
      // What was released goes on to be of its arm.
      const other = await connect(gateway, place);
      await other.arm();
      assert.equal((await other.release(visit)).outcome, "released");
      const shown = await other.arm();
      await other.withdraw();
      assert.equal(await other.arm(), shown);
      assert.ok(arm in places);
      other.close();
    });

    test("arms have their shares, and experiments are independent", async () => {
      // Of 400 people each share is within 4.9 standard errors, but once in a million.
      const [people, shares] = [400, [0.8, 0.2]];
      const [one, two] = await Promise.all(["one", "two"].map(async (salt) => murk.readTask(experiment({}, { by: "device", salt, shares }))));
      let [first, both] = [0, 0];
      for (let person = 0; person < people; person++) {
        const arms = await Promise.all([one, two].map((task) => murk.armOf(task, `person ${person}`)));
        first += Number(arms[0] === "treatment");
        both += Number(arms[0] === "treatment" && arms[1] === "treatment");
      }
      const off = (count, share) => Math.abs(count - people * share) / Math.sqrt(people * share * (1 - share));
      assert.ok(off(first, 0.2) < 4.9 && off(both, 0.04) < 4.9, `${first} ${both}`);
      // Even shares, or the same arm in both experiments, would be noticed.
      assert.ok(off(first, 0.5) > 4.9 && off(first, 0.04) > 4.9);
    });

    test("a server's arms come with the record, and a policy refuses known columns", async () => {
      const [gateway, place] = [new Gateway(experiment({}, { by: "server", salt: null, shares: [0.5, 0.5] })), begin()];
      const strict = await connect(gateway, place, { policy: { knownColumns: false } });
      assert.deepEqual(await strict.release({ ...visit, arm: "treatment" }), { outcome: "refused", reason: "known-columns" });
      strict.close();
      const device = await connect(gateway, place);
      await assert.rejects(device.arm(), { reason: "task" });
      assert.equal((await device.release({ ...visit, arm: "treatment" })).outcome, "released");
      assert.deepEqual(gateway.accepted.map(cell), [5]);
      device.close();
    });

    test("a release is of the target or of one metric, which is drawn, also if the record was held", async () => {
      const metrics = [
        { kind: "binary", missing_share: 0, name: "returned", negative: "no", positive: "yes" },
        { high: 200, kind: "real", low: 0, name: "amount" },
      ];
      const assigned = { by: "server", salt: null, shares: [0.5, 0.5] };
      const of = { arm: "arm", assigned, control: "control", guardrail: { margin: 0.01, metric: "returned", worse: "higher" }, metrics };
      // An answer is wrong with a probability below 1e-12; what such a release costs takes long to compute.
      const privacy = { ...WEEKLY, guarantee: { pure: { epsilon: 30 } }, lifetime: null };
      const [counts, protocols] = [[0, 0, 0], countedOnce()];
      for (const way of ["release", "hold"]) {
        const [gateway, place] = [new Gateway(experiment({ privacy, experiment: of })), begin()];
        for (let week = 0; week < 21; week++) {
          gateway.now = WEDNESDAY + week * WEEK;
          const device = await settled(await connect(gateway, place, { clock: () => gateway.now, protocols }));
          await device[way]({ ...visit, arm: "treatment", returned: "no", amount: 200 });
          device.close();
        }
        for (const bytes of gateway.accepted) {
          const { payload } = JSON.parse(bytes);
          counts[payload[0]]++;
          // The largest of 31 levels is one of two windows; a missing amount would be of outcomes above them.
          if (payload[0] === 2) assert.ok(payload[1] === 5 && [30, 31].includes(payload[2]) && payload[3] === 0, bytes);
          else assert.deepEqual(payload.slice(1), payload[0] === 0 ? [5, 0, 1] : [5, 1, 0]);
        }
      }
      // Of 41 draws none is of one of three, but once in four million.
      assert.equal(counts[0] + counts[1] + counts[2], 41);
      assert.ok(Math.min(...counts) > 0, `${counts}`);
      const gateway = new Gateway(experiment({ privacy, experiment: of }));
      for (const [mechanisms, outcome] of [[["subset-selection"], "refused"], [["subset-selection", "window-selection"], "released"]]) {
        const device = await settled(await connect(gateway, begin(), { policy: { mechanisms } }));
        assert.equal((await device.release({ ...visit, arm: "treatment" })).outcome, outcome);
        device.close();
      }
    });

    test("storage that is full releases nothing", async () => {
      const [gateway, place] = [new Gateway(), begin()];
      const store = await place.open();
      let full = false;
      const failing = {
        ...store,
        update: (keys, change) => store.update(keys, (rows) => {
          const [result, changes] = change(rows);
          if (full && Object.keys(changes).length) throw murk.storageFailed(new DOMException("", "QuotaExceededError"));
          return [result, changes];
        }),
      };
      const device = await connect(gateway, place, { store: failing });
      full = true;
      await assert.rejects(device.release(record), { reason: "storage" });
      full = false;
      assert.equal(gateway.posts.length, 0);
      assert.equal((await device.release(record)).outcome, "released");
      device.close();
    });
  });
}

test("a database that the browser closes, or that does not answer, holds nobody up", async (t) => {
  const gateway = new Gateway(document({ privacy: { guarantee: { gdp: { mu: 1 } }, levels: {}, mechanism: null, per_person: { gdp: { mu: 3 } } } }));
  const options = { gateway: "https://gateway.test", task: "third-child", fetch: gateway.fetch, first: claimed, clock: () => NOW };
  const later = globalThis.setTimeout;
  // The limit of what never answers is over at once; that of what answers stays, however slow the machine.
  let hangs = false;
  t.mock.method(globalThis, "setTimeout", (work, time, ...rest) => {
    const over = hangs && time === 10_000;
    if (over) hangs = false;
    return later(work, over ? 0 : time, ...rest);
  });
  globalThis.indexedDB = new IDBFactory();
  const open = indexedDB.open.bind(indexedDB);
  let database;
  indexedDB.open = (...given) => {
    const request = open(...given);
    request.addEventListener("success", () => (database = request.result));
    return request;
  };
  const device = await murk.connecting(murk.ALL)(options);
  assert.equal((await device.release(record)).outcome, "released");
  database.close();
  database.onclose?.(new Event("close"));
  assert.equal((await device.release(record)).outcome, "released");
  const { transaction } = database;
  database.transaction = () => {
    hangs = true;
    return { objectStore: () => ({ openCursor: () => ({}) }), abort() {} };
  };
  await assert.rejects(device.release(record), { reason: "storage" });
  database.transaction = transaction;
  assert.equal((await device.release(record)).outcome, "released");
  device.close();
  globalThis.indexedDB = { open: () => ((hangs = true), {}) };
  await assert.rejects(murk.connecting(murk.ALL)(options), { reason: "storage" });
});

test("the request to keep the storage is not waited for, and comes with the first release", async (t) => {
  globalThis.indexedDB = new IDBFactory();
  let asked = 0;
  const persist = () => new Promise(() => asked++);
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator");
  Object.defineProperty(globalThis, "navigator", { configurable: true, value: { storage: { persist } } });
  try {
    const gateway = new Gateway();
    const device = await murk.connecting(murk.ALL)({ gateway: "https://gateway.test", task: "third-child", fetch: gateway.fetch, first: claimed, clock: () => NOW });
    assert.equal(asked, 0);
    assert.equal((await device.release(record)).delivery, "sent");
    assert.equal(asked, 1);
    device.close();
    globalThis.indexedDB = new IDBFactory();
    const out = await murk.connecting(murk.ALL)({ gateway: "https://gateway.test", task: "third-child", fetch: gateway.fetch, optOut: true });
    await out.status();
    await out.withdraw();
    assert.deepEqual(await indexedDB.databases(), []);
    out.close();
  } finally {
    Object.defineProperty(globalThis, "navigator", before ?? { configurable: true, value: undefined });
  }
});

test("a lattice maps every vector to integers within its bound", () => {
  for (const one of [false, true])
    for (const vector of [[0, 0], [NaN, 0], [NaN, NaN], [Infinity, NaN], [-Infinity, Infinity], [1e300, 5e-324], [5e-324, 0]])
      for (const spacing of [1, 0, 5e-324, 1e308, Infinity]) {
        const out = new Float64Array(2);
        murk.quantise(one, Float64Array.from(vector), spacing, 1000, out);
        assert.ok(out.every(Number.isInteger), `${vector} at ${spacing}: ${out}`);
        assert.ok((one ? Math.abs(out[0]) + Math.abs(out[1]) : Math.hypot(...out)) <= 1000);
      }
});

test("bounds and parts of a guarantee that Python refuses are refused", () => {
  const cap = { currency: "gdp", units: 10n ** 12n, delta: 0n };
  for (const radius of [0, -1, 1e-101, 1e101, NaN, Infinity])
    for (const kind of ["gaussian", "laplace", "l2-ball", "privunit", "best"])
      assert.throws(() => murk.calibrate(kind, cap, 3, radius), { reason: "task" });
  for (const share of [15, -1, 0, 1, 0.04, 0.96, NaN, undefined]) assert.throws(() => murk.divided({ gdp: { mu: 1 } }, cap, share, true), { reason: "task" });
  for (const units of [0n, -1n, -29n * 10n ** 12n]) {
    assert.throws(() => murk.labelOf({ currency: "epsilon", units, delta: 0n }), { reason: "guarantee" });
    for (const kind of ["laplace", "l2-ball", "privunit"])
      assert.throws(() => murk.calibrate(kind, { currency: "epsilon", units, delta: 0n }, 3, 1), { reason: "guarantee" });
  }
  const tcdp = { rho: 0.3, omega: 8, delta: 0 }; // for caps of Gaussian mixtures
  assert.throws(() => murk.capOf({ tcdp }), { reason: "guarantee", message: "guarantees in tcdp are not known to this device" });
  for (const both of [{}, { tcdp, gdp: { mu: 1 } }]) assert.throws(() => murk.capOf(both), { message: "not a guarantee" });
  for (const delta of [1, 1.5, -1e-9]) assert.throws(() => murk.capOf({ approx: { epsilon: 1, delta } }), { reason: "guarantee" });
});

test("queries are drawn at every probability", async () => {
  const { protocol } = murk.prepare(await murk.readTask(document()), murk.ALL);
  for (const share of [0, 5e-324, 1e-30, 1 / 3, 1]) {
    const model = protocol.initial.slice();
    // Beside the reach and the exponent: shares of scatters, curvatures and single bits.
    model.set([share, 0, 0], model.length - 5);
    const query = protocol.drawQuery(model, new murk.Philox(7n, 1n));
    if (share === 0 || share === 1) assert.equal(query, share ? "scatter" : "score");
  }
});

test("a database that fails is storage that fails", { skip: !hasSqlite }, async () => {
  const folder = mkdtempSync(join(tmpdir(), "murk-"));
  try {
    writeFileSync(join(folder, "damaged.db"), "no database at all ".repeat(500));
    await assert.rejects(murk.sqliteStore(join(folder, "damaged.db")), { reason: "storage", name: "Refused" });
    await assert.rejects(murk.sqliteStore(join(folder, "no", "folder.db")), { reason: "storage" });
    const { DatabaseSync } = await import("node:sqlite");
    const database = new DatabaseSync(join(folder, "ledger.db"));
    const store = await murk.sqliteStore(database);
    database.exec("DROP TABLE rows");
    await assert.rejects(store.update(["a"], () => [null, { a: "b" }]), (error) => error instanceof murk.Refused && error.reason === "storage");
    // What a change throws is its own.
    database.exec('CREATE TABLE rows (key TEXT PRIMARY KEY, value TEXT NOT NULL, "check" TEXT NOT NULL)');
    await assert.rejects(store.update(["a"], () => { throw new murk.Refused("model", ""); }), { reason: "model" });
    await assert.rejects(store.update(["a"], () => { throw new RangeError("x"); }), RangeError);
    assert.equal(await store.update(["a"], (rows) => [rows.size, { a: "b" }]), 0);
    store.close();
    await assert.rejects(store.update(["a"], () => [null, {}]), { reason: "storage" });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test("no flipped bit of a ledger in a file is taken for its content", { skip: !hasSqlite }, async () => {
  const { DatabaseSync } = await import("node:sqlite");
  const file = new DatabaseSync(":memory:");
  const open = () => murk.sqliteStore({ exec: (sql) => file.exec(sql), prepare: (sql) => file.prepare(sql), close() {} });
  const device = await murk.connecting(murk.ALL)({ gateway: "https://gateway.test", task: "third-child", fetch: new Gateway().fetch, store: await open(), first: claimed, clock: () => NOW });
  assert.equal((await device.release(record)).outcome, "released");
  device.close();
  const rows = file.prepare("SELECT key, value FROM rows").all();
  assert.ok(rows.length > 2);
  const write = file.prepare("UPDATE rows SET key = ?, value = ? WHERE key = ?");
  const flip = (text, at) => text.slice(0, at) + String.fromCharCode(text.charCodeAt(at) ^ (1 << at % 7)) + text.slice(at + 1);
  for (const { key, value } of rows)
    for (const [other, text] of [[flip(key, 0), value], ...[...value].map((_, at) => [key, flip(value, at)])]) {
      write.run(other, text, key);
      await assert.rejects(open(), { reason: "storage", message: /is damaged: put back a copy/ });
      write.run(key, value, other);
    }
  await open();
});

test("a build of scores alone refuses other protocols", async () => {
  const gateway = new Gateway(document({ protocol: "moments", scores: undefined, moments: { release: "observed", design: "bounded" } }));
  const options = { gateway: "https://gateway.test", task: "third-child", fetch: gateway.fetch, store: { update: async (_, change) => change(new Map())[0] } };
  await assert.rejects(murk.connecting({ scores: murk.ALL.scores })(options), { reason: "task" });
});

test("midnight in UTC, as an input's valueAsDate is, names its day in every zone", () => {
  const zone = process.env.TZ;
  for (const other of ["Europe/Berlin", "America/New_York", "Pacific/Honolulu", "Pacific/Kiritimati"]) {
    process.env.TZ = other;
    assert.equal(murk.dayOf(new Date("2024-05-31")), murk.dayOf("2024-05-31"), other);
  }
  if (zone === undefined) delete process.env.TZ;
  else process.env.TZ = zone;
});
