/** Philox4x32-10 (Salmon et al. 2011): the words of Python's `SimulatedNoise`, for test vectors only. */
import type { Purpose, Words } from "./random-words.js";

/** The upper half of a product of two 32-bit integers. */
function upper(a: number, b: number): number {
  const low = (a & 0xffff) * b;
  return Math.floor(((a >>> 16) * b + Math.floor(low / 0x10000)) / 0x10000);
}

export class Philox implements Words {
  hi = 0;
  lo = 0;
  private readonly counters: [number, number];
  private readonly keys: [number, number];
  private readonly used = new Float64Array(16);
  private readonly kept = new Float64Array(32);

  constructor(seed: bigint, record: bigint) {
    this.keys = [Number(seed & 0xffffffffn), Number(seed >> 32n)];
    this.counters = [Number(record & 0xffffffffn), Number(record >> 32n)];
  }

  next(purpose: Purpose): void {
    const at = this.used[purpose]!++;
    if (at % 2) {
      this.hi = this.kept[2 * purpose]!;
      this.lo = this.kept[2 * purpose + 1]!;
      return;
    }
    let c0 = at / 2;
    let c1 = purpose as number;
    let [c2, c3] = this.counters;
    let [k0, k1] = this.keys;
    for (let round = 0; round < 10; round++) {
      const high0 = upper(0xd2511f53, c0);
      const high1 = upper(0xcd9e8d57, c2);
      const [low0, low1] = [Math.imul(0xd2511f53, c0) >>> 0, Math.imul(0xcd9e8d57, c2) >>> 0];
      [c0, c1, c2, c3] = [(high1 ^ c1 ^ k0) >>> 0, low1, (high0 ^ c3 ^ k1) >>> 0, low0];
      k0 = (k0 + 0x9e3779b9) >>> 0;
      k1 = (k1 + 0xbb67ae85) >>> 0;
    }
    [this.lo, this.hi] = [c0, c1];
    this.kept[2 * purpose] = c3;
    this.kept[2 * purpose + 1] = c2;
  }
}
