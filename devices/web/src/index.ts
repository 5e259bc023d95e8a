/** Murk's device with all protocols of people: scores, gradients, examples and moments. */
import { connecting } from "./connect.js";
import { ALL } from "./protocols.js";

export * from "./connect.js";

/** Read a task from a gateway and open the person's ledger. Raises `Refused`. */
export const connect = connecting(ALL);
