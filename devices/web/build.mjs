// Bundle the device: one ES module for each entry point; what it depends on is within.
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
  // Loaded only where a page uses a relay, and so a file of its own.
  external: ["node:*", "./ohttp.js"],
  entryPoints: testing
    ? { testing: "src/testing.ts", ohttp: "src/ohttp.ts" }
    : { murk: "src/index.ts", scores: "src/scores-only.ts", card: "src/card.ts", node: "src/node.ts", ohttp: "src/ohttp.ts" },
  outdir: testing ? "build" : "dist",
});
if (!testing) {
  await copyFile("../../LICENSE", "LICENSE");
  await copyFile("node_modules/@hpke/core/LICENSE", "dist/ohttp.js.LICENSE");
}
