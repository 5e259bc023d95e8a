// Kill devices at random moments, two at a time now and then; then count double spends and lost acknowledged releases.
// They release at once, or hold records until the day is over: then each day has one answer, whose time is its beginning.
// Or they repeat answers: each day has one, and a new one only where the record has changed.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DAY, document, recordOf, repeating } from "./gateway.mjs";

const [kills, mode] = [Number(process.argv[2]), process.argv[3] ?? "release"];
const [holds, repeats] = [mode === "hold", mode === "repeat"];
const CAP = 12; // releases that the cap allows
const ROUNDS = 8; // kills of one ledger
const LONGEST = holds ? 120 : repeats ? 300 : 25; // milliseconds of life after the first word
const NOON = 1_800_403_200 + DAY / 2;
const privacy = { guarantee: { gdp: { mu: 1 } }, levels: {}, mechanism: null };
const text = repeats ? repeating() : holds
  ? document({ privacy: { ...privacy, per_person: null, window: "day", lifetime: null }, track: { smooth: 2, window: "day", windows: 53 }, expiry: "30d" })
  : document({ privacy: { ...privacy, per_person: { gdp: { mu: Math.sqrt(CAP) + 0.01 } } } });
const folder = mkdtempSync(join(tmpdir(), "murk-kills-"));
const received = [];
let turn = 0;
let begin = NOON;
let begun = performance.now();

const server = createServer((request, response) => {
  if (mode !== "release") response.setHeader("Date", new Date(1000 * begin + performance.now() - begun).toUTCString());
  if (request.url.includes("/model")) return response.writeHead(204).end();
  if (request.method === "GET") return response.end(text);
  let body = "";
  request.on("data", (part) => (body += part));
  request.on("end", () => {
    // One in four is refused for now, and one in eight taken without an answer.
    turn++;
    if (turn % 4 === 0) return response.writeHead(503, { "Retry-After": "1" }).end();
    received.push(JSON.parse(body));
    if (turn % 8 === 1) return response.destroy();
    response.writeHead(202).end();
  });
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const gateway = `http://127.0.0.1:${server.address().port}`;

/** Run a device, and kill it after some milliseconds of its own life; return what it said. */
function spend(file, from, count, after) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ["--no-warnings", "test/spender.mjs", file, gateway, from, count, mode, begin], { stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    let errors = "";
    child.stdout.on("data", (part) => {
      // The clock starts with its first word: that it starts slowly does not matter.
      if (said === "" && after !== null) setTimeout(() => child.kill("SIGKILL"), after);
      said += part;
    });
    child.stderr.on("data", (part) => (errors += part));
    child.on("close", (code, signal) => resolve({ said, errors: signal ? "" : errors, killed: signal === "SIGKILL" }));
  });
}

/** Let a day pass, so that what is held is due. */
function pass() {
  begin += DAY;
  begun = performance.now();
}

const result = { kills: 0, ledgers: 0, acknowledged: 0, received: 0, double: 0, lost: 0, refused: [], errors: [] };
while (result.kills < kills) {
  const file = join(folder, `ledger-${result.ledgers++}.db`);
  received.length = 0;
  const [acknowledged, windows] = [new Set(), new Set()];
  let repeated = 0;
  const keep = ({ said, errors }) => {
    for (const [, id] of said.matchAll(/released (\w+)/g)) acknowledged.add(id);
    for (const [, count] of said.matchAll(/repeated (\d+)/g)) repeated = Number(count);
    for (const [, window] of said.matchAll(/held (\d+)/g)) windows.add(Number(window));
    if (holds) for (const [line] of said.matchAll(/(refused|unavailable) .*/g)) if (result.refused.length < 3) result.refused.push(line);
    if (errors && result.errors.length < 3) result.errors.push(errors.slice(0, 500));
  };
  for (let round = 0; round < ROUNDS; round++) {
    // Keys overlap with those of the round before: what is known is never randomized again.
    // Now and then only what is due is released, so that the key is deleted, and another device makes the next one.
    const count = holds ? [2, 0, 2, 1][round % 4] : 6;
    const runs = [[2 * round, count]];
    if (round % 4 === 3 || mode !== "release") runs.push([2 * round + 1, holds ? 2 - count : count]);
    // Of two days with the same record both are answered, and the second one repeats.
    const calm = repeats && (round === 1 || round === 2);
    for (const run of await Promise.all(runs.map(([from, count]) => spend(file, from, count, calm ? null : Math.random() ** 2 * LONGEST)))) {
      keep(run);
      if (run.killed) result.kills++;
    }
    if (mode !== "release") pass();
  }
  // Undisturbed, until nothing waits.
  let debits = 0;
  for (let tries = 0; tries < 20; tries++) {
    const run = await spend(file, 0, 0, null);
    keep(run);
    debits = Number(/debits (\d+)/.exec(run.said)?.[1] ?? 0);
    if (run.said.includes("waiting 0")) break;
  }
  const distinct = new Set(received.map(({ id }) => id));
  result.acknowledged += acknowledged.size + windows.size;
  result.received += distinct.size;
  for (const id of acknowledged) if (!distinct.has(id)) result.lost++;
  if (holds) {
    // One release a day, of which each is one debit, and no key without a record.
    const answered = new Set(received.map(({ time }) => Math.floor(time / DAY)));
    for (const window of windows) if (!answered.has(window)) result.lost++;
    result.double += distinct.size - answered.size + Math.abs(debits - distinct.size) + Number(existsSync(`${file}.key`));
  } else if (repeats) {
    // Each day has one answer at most; new ones are those before which the record changed, and each is one debit.
    const days = [...new Map(received.map((each) => [each.id, each])).values()].sort((one, other) => one.time - other.time);
    const changed = (key) => days.filter((each, at) => !at || key(each) !== key(days[at - 1])).length;
    const made = changed(({ time }) => recordOf(time).minutes);
    result.double += days.length - new Set(days.map(({ time }) => time)).size + Math.abs(changed(({ payload }) => payload.join()) - made);
    result.double += Math.abs(debits - repeated - made) + Math.abs(debits - days.length);
    result.repeated = (result.repeated ?? 0) + repeated;
  } else result.double += Math.max(0, distinct.size - Math.min(debits, CAP));
}
server.close();
rmSync(folder, { recursive: true, force: true });
console.log(JSON.stringify(result));
