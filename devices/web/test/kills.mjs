// Kill spenders at random moments, two at a time now and then; then count double spends and lost acknowledged releases.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { document } from "./gateway.mjs";

const kills = Number(process.argv[2]);
const CAP = 12; // releases that the cap allows
const ROUNDS = 8; // kills of one ledger
const text = document({ privacy: { guarantee: { gdp: { mu: 1 } }, levels: {}, mechanism: null, per_person: { gdp: { mu: Math.sqrt(CAP) + 0.01 } } } });
const folder = mkdtempSync(join(tmpdir(), "murk-kills-"));
const received = [];
let turn = 0;

const server = createServer((request, response) => {
  if (request.url.includes("/model")) return response.writeHead(204).end();
  if (request.method === "GET") return response.end(text);
  let body = "";
  request.on("data", (part) => (body += part));
  request.on("end", () => {
    // One in four is refused for now, and one in eight taken without an answer.
    turn++;
    if (turn % 4 === 0) return response.writeHead(503, { "Retry-After": "1" }).end();
    received.push(/"id":"(\w+)"/.exec(body)[1]);
    if (turn % 8 === 1) return response.destroy();
    response.writeHead(202).end();
  });
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
const gateway = `http://127.0.0.1:${server.address().port}`;

/** Run a spender, and kill it after some milliseconds of its own life; return what it said. */
function spend(file, from, count, after) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, ["--no-warnings", "test/spender.mjs", file, gateway, from, count], { stdio: ["ignore", "pipe", "pipe"] });
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

const result = { kills: 0, ledgers: 0, acknowledged: 0, received: 0, double: 0, lost: 0, errors: [] };
while (result.kills < kills) {
  const file = join(folder, `ledger-${result.ledgers++}.db`);
  received.length = 0;
  const acknowledged = new Set();
  const keep = ({ said, errors }) => {
    for (const [, id] of said.matchAll(/released (\w+)/g)) acknowledged.add(id);
    if (errors && result.errors.length < 3) result.errors.push(errors.slice(0, 500));
  };
  for (let round = 0; round < ROUNDS; round++) {
    // Keys overlap with those of the round before: what is known is never randomized again.
    const runs = [[2 * round, 6]];
    if (round % 4 === 3) runs.push([2 * round + 1, 6]);
    for (const run of await Promise.all(runs.map(([from, count]) => spend(file, from, count, Math.random() ** 2 * 25)))) {
      keep(run);
      if (run.killed) result.kills++;
    }
  }
  // Undisturbed, until nothing waits.
  let debits = 0;
  for (let tries = 0; tries < 20; tries++) {
    const run = await spend(file, 0, 0, null);
    keep(run);
    debits = Number(/debits (\d+)/.exec(run.said)?.[1] ?? 0);
    if (run.said.includes("waiting 0")) break;
  }
  const distinct = new Set(received);
  result.acknowledged += acknowledged.size;
  result.received += distinct.size;
  result.double += Math.max(0, distinct.size - Math.min(debits, CAP));
  for (const id of acknowledged) if (!distinct.has(id)) result.lost++;
}
server.close();
rmSync(folder, { recursive: true, force: true });
console.log(JSON.stringify(result));
