/** What tests of the device reach into; not part of the package. */
export * from "./coding.js";
export * from "./connect.js";
export * from "./exact.js";
export * from "./lattice.js";
export { Ledger } from "./ledger.js";
export * from "./mechanisms.js";
export * from "./node.js";
export * from "./noise.js";
export * from "./philox.js";
export * from "./privunit.js";
export * from "./promise.js";
export * from "./protocol.js";
export * from "./protocols.js";
export * from "./release.js";
export * from "./store.js";
export * from "./task.js";
export * from "./wire.js";
export * from "./words.js";
