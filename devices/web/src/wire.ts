/** Messages of the wire: reading a published model, and the bytes of a release. */
import type { Vector } from "./lattice.js";
import { hostile, type Protocol, type Query } from "./protocol.js";
import type { Task } from "./task.js";
import { timeOf, windowOf } from "./windows.js";
import { Purpose, uniform, type Words } from "./random-words.js";

export interface Model {
  readonly version: number;
  readonly numbers: Vector;
}

const KEYS = "kind,parameters,partition,schema,task,version";

/** Read a partition's published model, or without one the model of version 0. Raises `Refused`. */
export function readModel(task: Task, protocol: Protocol, partition: number, message: string | null): Model {
  if (message === null || protocol.modelSize === 0) return { version: 0, numbers: protocol.initial };
  if (message.length > 512 + 26 * protocol.modelSize) hostile("it is too long");
  let content: Record<string, unknown>;
  try {
    content = JSON.parse(message) as Record<string, unknown>;
  } catch {
    hostile("it is not JSON");
  }
  if (typeof content !== "object" || content === null || Object.keys(content).sort().join() !== KEYS)
    hostile("it has other keys");
  // No text in a model contains a colon, so the number of colons shows repeated keys.
  if (message.split(":").length !== 7) hostile("a key is given twice");
  const { schema, kind, version, parameters } = content;
  if (schema !== 1 || kind !== "model") hostile("it is of another kind");
  if (content.task !== task.hash) hostile("it is of another task");
  if (content.partition !== (protocol.shared ? 0 : partition)) hostile("it is of another partition");
  if (!(Number.isSafeInteger(version) && (version as number) >= 0)) hostile("its version is not an integer below 2^53");
  if (!(Array.isArray(parameters) && parameters.length === protocol.modelSize)) hostile("it has another number of numbers");
  if (!parameters.every((value) => typeof value === "number" && Math.abs(value) < Infinity)) hostile("its numbers are not finite");
  const numbers = Float64Array.from(parameters as number[]);
  protocol.check(numbers, version as number);
  return { version: version as number, numbers };
}

/** Draw a partition, uniformly and independently of person and record. */
export function drawPartition(task: Task, words: Words): number {
  const { partitions } = task.log;
  return partitions === 1 ? 0 : uniform(partitions, Purpose.PARTITION, words);
}

/** Draw an identifier of 128 random bits. */
export function drawIdentifier(words: Words): string {
  let text = "";
  for (let i = 0; i < 2; i++) {
    words.next(Purpose.IDENTIFIER);
    for (const half of [words.hi, words.lo]) text += half.toString(16).padStart(8, "0");
  }
  return text;
}

export interface Release {
  readonly id: string;
  readonly level: string;
  readonly partition: number;
  readonly payload: Vector;
  readonly version: number;
  readonly query: Query | undefined;
  /** Seconds since 1970. */
  readonly now: number;
  /** The window that the release answers, if it is not that of `now`. */
  readonly window?: number | undefined;
}

export const truncated = (time: number, granularity: number): number => {
  const whole = Math.trunc(time);
  return whole - (whole % granularity);
};

/** Return a release's message as ASCII text. */
export function write(task: Task, protocol: Protocol, release: Release): string {
  const { id, level, partition, payload, version, query, now, window } = release;
  const { track } = task;
  const time = track ? timeOf(track.window, window ?? windowOf(track.window, now)) : truncated(now, task.granularitySeconds);
  return (
    `{"schema":1,"kind":"${protocol.kind}","id":"${id}","task":"${task.hash}","level":"${level}","partition":${partition},` +
    `"payload":[${payload.join(",")}],"time":${time},` +
    `"expires":${truncated(now + task.expirySeconds, task.granularitySeconds)},"simulated":false` +
    (protocol.versioned ? `,"version":${version}` : "") +
    (query === undefined ? "" : `,"query":"${query.split("-")[0]}","item":${Number(query.split("-")[1] ?? 0)}`) +
    "}"
  );
}
