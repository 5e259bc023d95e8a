// Print one simulated release for each record of a task: {document, hash, seed, now, records} on the standard input.
import { text } from "node:stream/consumers";
import * as murk from "../build/testing.js";

const { document, hash, seed, now, records } = JSON.parse(await text(process.stdin));
const prepared = murk.prepare(await murk.readTask(document, hash), murk.ALL);
const releases = records.map((record, index) => {
  const words = new murk.Philox(BigInt(seed), BigInt(index));
  const partition = murk.drawPartition(prepared.task, words);
  const model = murk.readModel(prepared.task, prepared.protocol, partition, null);
  return murk.randomize(prepared, { level: "default", partition, model }, { code: () => prepared.coding.code(record), now }, words);
});
console.log(JSON.stringify(releases));
