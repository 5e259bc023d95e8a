/** All protocols that people's devices answer. */
import { examples } from "./examples.js";
import { gradients } from "./gradients.js";
import { moments } from "./moments.js";
import type { Protocols } from "./release.js";
import { scores } from "./scores.js";
import { univariate } from "./univariate.js";

export const ALL: Protocols = { scores, gradients, examples, moments, univariate };
