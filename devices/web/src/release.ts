/** Turns a record into the bytes that leave the device. */
import { type Coded, type Coding, codingOf } from "./coding.js";
import type { Vector } from "./lattice.js";
import type { Protocol, Query, Randomizer } from "./protocol.js";
import { mostRows, type Task } from "./task.js";
import { drawPartition, drawIdentifier, type Model, readModel, write } from "./wire.js";
import { Refused } from "./errors.js";
import { Purpose, SecureWords, uniform, type Words } from "./random-words.js";

/** Makes the answers of a task, given the number of coded features. */
export type Protocols = Readonly<Record<string, (task: Task, size: number) => Protocol>>;

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

/** A record to release. It is coded only after the query is drawn, and the coded numbers are wiped. */
export interface Wanted {
  readonly code: () => Pick<Coded, "x" | "y">;
  /** Seconds since 1970. */
  readonly now: number;
  /** The window that the release answers, if it is not that of `now`. */
  readonly window?: number | undefined;
  /** Number of the person's records from which this one was drawn. */
  readonly rows?: number | undefined;
}

/**
 * The vectors of a record that stands for a number of rows. Where people count alike, that is its own vector. Where rows
 * count, there are as many vectors as rows may count; the rows that a person lacks have no target. What is `used` is
 * all vectors, of which the mean is released, or one of them, drawn uniformly.
 */
export function vectorsOf({ task, protocol }: Prepared, { model }: Choice, query: Query | undefined, { code, rows = 1 }: Wanted, words: Words): { all: Vector[]; used: Vector[] } {
  const most = mostRows(task);
  const { x, y } = code();
  const vector = (target: number): Vector => protocol.vector({ x, y: target }, model.numbers, query);
  const [there, none] = [vector(y), most > 1 ? vector(NaN) : undefined];
  const all = Array.from({ length: most }, (_, row) => (row < rows || !none ? there : none));
  const used = most === 1 || protocol.averages?.(query) ? all : [all[uniform(most, Purpose.RECORD, words)]!];
  x.fill(0);
  return { all, used };
}

/** Quantise a vector, or the mean of several, without noise, which test vectors compare. */
export const quantised = (mechanism: Randomizer, vectors: Vector[]): Vector | null =>
  vectors.length > 1 ? (mechanism.averaged ?? mechanism).quantise(mechanism.mean!(vectors)) : mechanism.quantise(vectors[0]!);

/** Randomize a vector, or the mean of several, which are wiped. */
export function payloadOf(mechanism: Randomizer, vectors: Vector[], words: Words): Vector {
  const mean = vectors.length > 1 ? mechanism.mean!(vectors) : vectors[0]!;
  const payload = (vectors.length > 1 ? (mechanism.averaged ?? mechanism) : mechanism).randomize(mean, words);
  for (const vector of [...vectors, mean]) vector.fill(0);
  return payload;
}

/** Randomize a record, once. */
export function randomize(prepared: Prepared, choice: Choice, wanted: Wanted, words: Words): string {
  const { task, protocol } = prepared;
  const { level, partition, model } = choice;
  const query = protocol.drawQuery(model.numbers, words);
  const { all, used } = vectorsOf(prepared, choice, query, wanted, words);
  const payload = payloadOf(protocol.mechanism(level, query), used, words);
  for (const vector of all) vector.fill(0);
  const id = drawIdentifier(words);
  return write(task, protocol, { id, level, partition, payload, version: model.version, query, now: wanted.now, window: wanted.window });
}

/** Secure words, about as many as a release at a level needs. */
export function wordsFor({ protocol }: Prepared, level: string): SecureWords {
  const { draws, dimension } = protocol.mechanism(level, "score");
  return new SecureWords(Math.ceil(2.1 * draws * dimension) + 32);
}
