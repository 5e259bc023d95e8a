/** Random 64-bit words, in one stream for each purpose. */

/** What a word is for. Test vectors have one stream for each purpose; a device's own words have a single one. */
export const enum Purpose {
  NOISE = 0,
  SPARE = 1,
  COIN = 2,
  IDENTIFIER = 3,
  PARTITION = 4,
  SELECTION = 6,
  QUERY = 7,
  RECORD = 8,
}

/** A source of uniform 64-bit words: `next` puts the next word of a purpose into `hi` and `lo`. */
export interface Words {
  hi: number;
  lo: number;
  next(purpose: Purpose): void;
}

const MOST = 16384; // getRandomValues gives at most 65,536 bytes a call

/** The platform's secure randomness, drawn about `expected` words at a time; `wipe` overwrites what was drawn. */
export class SecureWords implements Words {
  hi = 0;
  lo = 0;
  private readonly pool: Uint32Array<ArrayBuffer>;
  private at: number;

  constructor(expected: number) {
    this.pool = new Uint32Array(Math.min(2 * expected, MOST));
    this.at = this.pool.length;
  }

  next(): void {
    if (this.at === this.pool.length) {
      crypto.getRandomValues(this.pool);
      this.at = 0;
    }
    this.lo = this.pool[this.at]!;
    this.hi = this.pool[this.at + 1]!;
    this.at += 2;
  }

  wipe(): void {
    this.pool.fill(0);
    this.at = this.pool.length;
    this.hi = this.lo = 0;
  }
}

/** Draw an integer uniform on [0, bound) from low bits of words, by rejection, with one word for each attempt; `bound` is below 2^53. */
export function uniform(bound: number, purpose: Purpose, words: Words): number {
  let size = 1;
  while (size < bound) size *= 2;
  const low = size >= 2 ** 32 ? 0xffffffff : size - 1;
  const high = size > 2 ** 32 ? size / 2 ** 32 - 1 : 0;
  for (;;) {
    words.next(purpose);
    const drawn = ((words.lo & low) >>> 0) + ((words.hi & high) >>> 0) * 2 ** 32;
    if (drawn < bound) return drawn;
  }
}

/** Return whether the current word is below a threshold in [0, 2^64), given by its halves. */
export function below(words: Words, hi: number, lo: number): boolean {
  return words.hi < hi || (words.hi === hi && words.lo < lo);
}

/** The halves of a 64-bit integer. */
export function halves(value: bigint): [number, number] {
  return [Number(value >> 32n), Number(value & 0xffffffffn)];
}
