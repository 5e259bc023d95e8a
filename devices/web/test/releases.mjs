// Print a release for each record of a task, whose words are those of a seed and the record's index, as Python draws them:
// {document, hash, seed, now, records, indices} on the standard input.
import { text } from "node:stream/consumers";
import * as murk from "../build/testing.js";

const { document, hash, seed, now, records, indices } = JSON.parse(await text(process.stdin));
const prepared = murk.prepare(await murk.readTask(document, hash), murk.ALL);
const releases = records.map((record, i) => {
  const words = new murk.Philox(BigInt(seed), BigInt(indices[i]));
  const partition = murk.drawPartition(prepared.task, words);
  const model = murk.readModel(prepared.task, prepared.protocol, partition, null);
  return murk.randomize(prepared, { level: "default", partition, model }, { code: () => prepared.coding.code(record), now }, words);
});
console.log(JSON.stringify(releases));
