/** Murk's device with the default protocol alone: scores. */
import { connecting } from "./connect.js";
import { scores } from "./scores.js";

export * from "./connect.js";

/** Read a task of scores from a gateway and open the person's ledger. Raises `Refused`. */
export const connect = connecting({ scores });
