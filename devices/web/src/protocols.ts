/** All protocols that people's devices answer. */
import { examples } from "./examples.js";
import { gradients } from "./gradients.js";
import { repeatOrRandomize } from "./memos.js";
import { moments } from "./moments.js";
import type { Protocols } from "./release.js";
import { scores } from "./scores.js";
import { univariate } from "./univariate.js";

/** Adds the repetition of answers to a protocol that asks the same question in every window. */
const repeating = (make: Protocols[string]): Protocols[string] => (task, size) => ({ ...make(task, size), repeat: repeatOrRandomize });

export const ALL: Protocols = {
  scores,
  gradients,
  examples: repeating(examples),
  moments: repeating(moments),
  univariate: repeating(univariate),
};
