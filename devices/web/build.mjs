// Bundle the device: one ES module for each entry point, without dependencies.
import { copyFile } from "node:fs/promises";
import { build } from "esbuild";

const testing = process.argv.includes("--testing");
await build({
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: !testing,
  legalComments: "none",
  logLevel: "warning",
  external: ["node:*"],
  entryPoints: testing
    ? { testing: "src/testing.ts" }
    : { murk: "src/index.ts", scores: "src/scores-only.ts", card: "src/card.ts", node: "src/node.ts" },
  outdir: testing ? "build" : "dist",
});
if (!testing) await copyFile("../../LICENSE", "LICENSE");
