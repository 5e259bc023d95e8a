// A device that releases or holds again and again, and says what was acknowledged; it is killed from outside.
import * as murk from "../build/testing.js";
import { recordOf } from "./gateway.mjs";

const [file, gateway, from, count, mode, begin] = process.argv.slice(2);
const record = { age: 28, same_sex: "yes", third_child: "no" };
const say = (text) => process.stdout.write(`${text}\n`);
const field = (receipt, name) => JSON.parse(receipt.bytes)[name];
// Time goes on from that of the gateway.
const clock = mode !== "release" ? () => Number(begin) + performance.now() / 1000 : undefined;
const device = await murk.connecting(murk.ALL)({ gateway, task: "third-child", store: await murk.sqliteStore(file), first: async () => true, clock });
const repeats = mode === "repeat";
// Its one answer of a day is among what may be interrupted.
if (repeats) say("ready");
for (let i = Number(from); i < Number(from) + Number(count); i++) {
  if (mode === "hold") {
    const { outcome, reason } = await device.hold(record);
    say(outcome === "held" ? `held ${murk.windowOf("day", clock())}` : `${outcome} ${reason}`);
  } else {
    const receipt = await device.release(repeats ? recordOf(clock()) : record, repeats ? {} : { key: `form-${i}` });
    say(receipt.outcome === "released" ? `released ${field(receipt, "id")}` : receipt.outcome);
  }
}
for (const receipt of mode === "hold" ? await device.releaseHeld() : [])
  say(receipt.outcome === "released" ? `released ${field(receipt, "id")}` : `${receipt.outcome} ${receipt.reason}`);
await device.flush();
const status = await device.status();
say(`waiting ${status.waiting + status.held}\ndebits ${status.released}\nrepeated ${status.repeated}`);
device.close();
