/**
 * Answers that are repeated while the coded record is unchanged. A memo is the last answer with a keyed hash of the
 * coded record, encrypted as held records are.
 */
import { bytesOf, keyIn, seal, type Sealed, unseal } from "./held.js";
import { type Vector } from "./lattice.js";
import { type Choice, payloadOf, type Prepared, vectorsOf, type Wanted } from "./release.js";
import type { KeyPlace } from "./store.js";
import { drawIdentifier, write } from "./wire.js";
import type { Words } from "./random-words.js";

/** A memo as it is stored: its level, and the encrypted hash and payload. */
export interface Memo {
  readonly level: string;
  readonly answer: string;
}

/** An answer that is ready to be booked: its bytes and, if it is to be repeated, what becomes the memo. */
export interface Answer {
  readonly bytes: string;
  readonly kept?: { readonly level: string; readonly sealed: Sealed };
}

const PRINT = 4; // numbers of 32 bits
const DECIMALS = 1e9; // of rounding, so that the order in which rows are added up changes nothing

/** A keyed hash of the numbers that a person's rows give, which are wiped. */
async function fingerprint(hash: string, input: Vector, place: KeyPlace | undefined): Promise<number[]> {
  const key = await crypto.subtle.importKey("raw", bytesOf(keyIn(place)), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const rounded = input.map((value) => Math.round(value * DECIMALS) + 0); // no negative zero
  const bytes = Uint8Array.of(...new TextEncoder().encode(`murk memo ${hash}`), ...new Uint8Array(rounded.buffer));
  const print = [...new Uint32Array(await crypto.subtle.sign("HMAC", key, bytes), 0, PRINT)];
  for (const scratch of [input, rounded, bytes]) scratch.fill(0);
  return print;
}

/**
 * Answer a task that repeats answers: with the memo's answer if the coded record and level are unchanged, or if `only`
 * this one may be given; else with a new one. Undefined if only the memo's may be given and it cannot be read.
 */
export async function repeatOrRandomize(
  prepared: Prepared,
  choice: Choice,
  wanted: Wanted,
  words: Words,
  memo: Memo | undefined,
  only: boolean,
  place: KeyPlace | undefined,
): Promise<Answer | undefined> {
  const { task, protocol } = prepared;
  const { partition, model } = choice;
  const query = protocol.drawQuery(model.numbers, words);
  const mechanism = protocol.mechanism(choice.level, query);
  const { all, used } = vectorsOf(prepared, choice, query, wanted, words);
  // The hash is of the record and its number of rows: which row was drawn is not a change.
  const input = Float64Array.of(...all[0]!, Math.min(wanted.rows ?? 1, all.length));
  const print = await fingerprint(task.hash, input, place);
  const last = memo && (await unseal(memo.answer, PRINT + mechanism.dimension, place));
  if (only && !last) return undefined;
  const same = last && memo.level === choice.level && print.every((word, at) => word === last[at]);
  const repeated = same || only ? last!.slice(PRINT) : undefined;
  const level = repeated ? memo!.level : choice.level;
  const payload = repeated ?? payloadOf(mechanism, used, words);
  for (const vector of all) vector.fill(0);
  const id = drawIdentifier(words);
  const bytes = write(task, protocol, { id, level, partition, payload, version: model.version, query, now: wanted.now, window: wanted.window });
  return repeated ? { bytes } : { bytes, kept: { level, sealed: await seal(Float64Array.of(...print, ...payload), place) } };
}
