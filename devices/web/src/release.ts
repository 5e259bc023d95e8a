/** From a record to the bytes that leave the device. */
import { type Coded, type Coding, codingOf, type Record_ } from "./coding.js";
import type { Protocol } from "./protocol.js";
import type { Task } from "./task.js";
import { drawPartition, drawIdentifier, type Model, readModel, write } from "./wire.js";
import { Refused, SecureWords, type Words } from "./words.js";

/** Makes the answers of a task, given the number of coded features. */
export type Protocols = { readonly [protocol: string]: (task: Task, size: number) => Protocol };

/** A task with its coding, mechanisms and answers. */
export interface Prepared {
  readonly task: Task;
  readonly coding: Coding;
  readonly protocol: Protocol;
}

const MOST_BYTES = 1_000_000; // of a message

/** Prepare a task: recompute its mechanisms from its guarantees. Raises `Refused`. */
export function prepare(task: Task, protocols: Protocols): Prepared {
  const make = Object.hasOwn(protocols, task.protocol) ? protocols[task.protocol] : undefined;
  if (!make) throw new Refused("task", `this build of the device does not answer tasks of ${task.protocol}`);
  try {
    const coding = codingOf(task);
    const protocol = make(task, coding.size);
    for (const query of ["score", "curvature"] as const)
      if (512 + 22 * protocol.mechanism("default", query).dimension > MOST_BYTES)
        throw new Refused("task", "the task has too many features for a message");
    return { task, coding, protocol };
  } catch (error) {
    if (error instanceof Refused) throw error;
    throw new Refused("task", "the task is damaged");
  }
}

export interface Choice {
  readonly level: string;
  readonly partition: number;
  readonly model: Model;
}

/** Choose the partition and check its model, before any record is read. Raises `Refused`. */
export async function choose(
  { task, protocol }: Prepared,
  level: string,
  words: Words,
  newest: (partition: number) => Promise<string | null>,
): Promise<Choice> {
  if (!task.guarantees.has(level)) throw new Refused("level", `the task has no level ${level}`);
  const partition = drawPartition(task, words);
  const message = protocol.modelSize ? await newest(protocol.shared ? 0 : partition) : null;
  return { level, partition, model: readModel(task, protocol, partition, message) };
}

/**
 * Randomize one record, once; `now` is in seconds since 1970. Scratch memory that depends on the record is wiped.
 */
export function randomize(prepared: Prepared, choice: Choice, now: number, record: Record_, words: Words): string {
  return randomizeCoded(prepared, choice, now, () => prepared.coding.code(record), words);
}

/** Randomize a record of a window, this one by default, that is coded only once the query is drawn. */
export function randomizeCoded(
  { task, protocol }: Prepared,
  choice: Choice,
  now: number,
  code: () => Pick<Coded, "x" | "y">,
  words: Words,
  window?: number,
): string {
  const { level, partition, model } = choice;
  const query = protocol.drawQuery(model.numbers, words);
  const coded = code();
  const vector = protocol.vector(coded, model.numbers, query);
  const payload = protocol.mechanism(level, query).randomize(vector, words);
  coded.x.fill(0);
  vector.fill(0);
  const id = drawIdentifier(words);
  return write(task, protocol, { id, level, partition, payload, version: model.version, query, now, window });
}

/** Secure words, about as many as a release of a level needs. */
export function wordsFor({ protocol }: Prepared, level: string): SecureWords {
  const { draws, dimension } = protocol.mechanism(level, "score");
  return new SecureWords(Math.ceil(2.1 * draws * dimension) + 32);
}
