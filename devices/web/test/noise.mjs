// Draw with the platform's randomness; print counts in bins, whose edges are given, and power sums.
import * as murk from "../build/testing.js";

const [kind, count, edges] = [process.argv[2], Number(process.argv[3]), JSON.parse(process.argv[4])];
const words = new murk.SecureWords(8192);
const out = new Float64Array(4096);
const counts = new Array(edges.length + 1).fill(0);
let square = 0;
let odd = 0;
for (let done = 0; done < count; done += out.length) {
  if (kind === "partition") for (let i = 0; i < out.length; i++) out[i] = murk.uniform(edges.length + 1, 4, words);
  else murk.draw(kind, words, out);
  for (const x of out) {
    let low = 0;
    let high = edges.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (x > edges[middle]) low = middle + 1;
      else high = middle;
    }
    counts[low]++;
    square += (x / murk.WIDTH) ** 2;
    odd += Math.abs(x) % 2;
  }
}
const total = counts.reduce((a, b) => a + b);
console.log(JSON.stringify({ counts, square: square / total, odd: odd / total, total }));
