// Bundle the device: one ES module for each entry point, without dependencies.
import { build } from "esbuild";

const shared = { bundle: true, format: "esm", target: "es2022", minify: true, legalComments: "none", logLevel: "warning" };
const testing = process.argv.includes("--testing");
const entries = testing
  ? { testing: "src/testing.ts", ...(process.argv.includes("--all") ? {} : {}) }
  : { murk: "src/index.ts", scores: "src/scores-only.ts", card: "src/card.ts", node: "src/node.ts" };
await build({ ...shared, entryPoints: entries, outdir: testing ? "build" : "dist", minify: !testing, external: ["node:*"] });
