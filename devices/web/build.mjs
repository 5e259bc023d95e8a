// Bundle the device: one ES module for each entry point; what it depends on is within.
import { copyFile } from "node:fs/promises";
import { build } from "esbuild";

/** What modules load when it is needed is a file of its own; no module of a browser imports one of Node. */
function parts(building) {
  building.onResolve({ filter: /^\.\/index\.js$/ }, ({ kind }) => (kind === "dynamic-import" ? { path: "./murk.js", external: true } : null));
  building.onResolve({ filter: /^crypto$/ }, () => ({ path: "crypto", namespace: "browser" }));
  building.onLoad({ filter: /.*/, namespace: "browser" }, () => ({ contents: "export const webcrypto = globalThis.crypto;" }));
}

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
  plugins: [{ name: "parts", setup: parts }],
  entryPoints: testing
    ? { testing: "src/testing.ts", ohttp: "src/ohttp.ts" }
    : { murk: "src/index.ts", scores: "src/scores-only.ts", card: "src/card.ts", node: "src/node.ts", ohttp: "src/ohttp.ts" },
  outdir: testing ? "build" : "dist",
});
if (!testing) {
  await copyFile("../../LICENSE", "LICENSE");
  await copyFile("node_modules/@hpke/core/LICENSE", "dist/ohttp.js.LICENSE");
}
