// A device that releases again and again, and says what was acknowledged; it is killed from outside.
import * as murk from "../build/testing.js";

const [file, gateway, from, count] = process.argv.slice(2);
const connect = murk.connecting(murk.ALL);
const store = await murk.sqliteStore(file);
const device = await connect({ gateway, task: "third-child", store, first: async () => true });
for (let i = Number(from); i < Number(from) + Number(count); i++) {
  const receipt = await device.release({ age: 28, same_sex: "yes", third_child: "no" }, { key: `form-${i}` });
  if (receipt.outcome === "released") process.stdout.write(`released ${/"id":"(\w+)"/.exec(receipt.bytes)[1]}\n`);
  else process.stdout.write(`${receipt.outcome}\n`);
}
await device.flush();
const status = await device.status();
process.stdout.write(`waiting ${status.waiting}\ndebits ${status.released}\n`);
device.close();
