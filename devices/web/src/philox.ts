/** Philox4x32-10 (Salmon et al. 2011): the words of Python's `SimulatedNoise`, for test vectors only. */
import type { Purpose, Words } from "./words.js";

/** The halves of a product of two 32-bit integers. */
function product(a: number, b: number): [number, number] {
  const low = (a & 0xffff) * b;
  const high = (a >>> 16) * b + Math.floor(low / 0x10000);
  return [Math.floor(high / 0x10000), ((high % 0x10000) * 0x10000 + (low & 0xffff)) >>> 0];
}

export class Philox implements Words {
  hi = 0;
  lo = 0;
  private readonly used = new Map<Purpose, number>();
  private readonly kept = new Map<Purpose, [number, number]>();

  constructor(
    private readonly seed: bigint,
    private readonly record: bigint,
  ) {}

  next(purpose: Purpose): void {
    const at = this.used.get(purpose) ?? 0;
    this.used.set(purpose, at + 1);
    if (at % 2) {
      [this.hi, this.lo] = this.kept.get(purpose)!;
      return;
    }
    let c = [at / 2, purpose, Number(this.record & 0xffffffffn), Number(this.record >> 32n)] as [number, number, number, number];
    let [k0, k1] = [Number(this.seed & 0xffffffffn), Number(this.seed >> 32n)];
    for (let round = 0; round < 10; round++) {
      const [high0, low0] = product(0xd2511f53, c[0]);
      const [high1, low1] = product(0xcd9e8d57, c[2]);
      c = [(high1 ^ c[1] ^ k0) >>> 0, low1, (high0 ^ c[3] ^ k1) >>> 0, low0];
      k0 = (k0 + 0x9e3779b9) >>> 0;
      k1 = (k1 + 0xbb67ae85) >>> 0;
    }
    [this.lo, this.hi] = [c[0], c[1]];
    this.kept.set(purpose, [c[3], c[2]]);
  }
}
