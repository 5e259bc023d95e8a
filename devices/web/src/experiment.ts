/** Experiments: arms that devices assign, by a keyed hash of a random identifier that stays on the device. */
import type { Target, TaskDocument } from "./task.js";

/** An experiment: a known column, whose categories are the arms. */
export interface Experiment {
  arm: string;
  control: string;
  assigned?: { by: "device" | "server"; salt?: string | null; shares: number[] } | null;
  guardrail?: { margin: number; worse: string; metric?: string | null } | null;
  segments?: string[];
  metrics?: Target[];
  ratios?: { name: string; numerator: string; denominator: string }[];
}

/** Further targets of a task: each release is of the target or of one of them, drawn evenly, whatever the record is. */
export const metricsOf = ({ experiment }: Pick<TaskDocument, "experiment">): Target[] => experiment?.metrics ?? [];

/** Return whether devices assign the arms of a task's experiment. */
export const isAssigned = ({ experiment }: Pick<TaskDocument, "experiment">): boolean => experiment?.assigned?.by === "device";

/** Return the arm of an identifier: the first whose summed share exceeds the first 53 bits of HMAC-SHA256, as a number below 1. */
export async function armOf({ experiment, features }: Pick<TaskDocument, "experiment" | "features">, identifier: string): Promise<string> {
  const { arm, assigned } = experiment!;
  const bytes = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);
  const key = await crypto.subtle.importKey("raw", bytes(assigned!.salt!), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const digest = new DataView(await crypto.subtle.sign("HMAC", key, bytes(identifier)));
  const uniform = Number(digest.getBigUint64(0) >> 11n) * 2 ** -53;
  const arms = features.find(({ name }) => name === arm)!.categories!;
  let total = 0;
  const place = assigned!.shares.findIndex((share) => uniform < (total += share));
  return arms.at(place)!;
}
