/** Records and answers that a device keeps, such as records held until their window ends: encrypted, with the key stored apart from the rows. */
import type { Coded } from "./coding.js";
import type { KeyPlace } from "./store.js";
import { beginOf, spreadOf } from "./windows.js";
import { Refused } from "./errors.js";
import { Purpose, uniform, type Words } from "./random-words.js";

const NONCE = 12; // bytes, of AES-GCM
const AES = "AES-GCM";

const base64 = (bytes: Uint8Array): string => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
export const bytesOf = (text: string): Uint8Array<ArrayBuffer> => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const keyOf = (text: string): Promise<CryptoKey> => crypto.subtle.importKey("raw", bytesOf(text), AES, false, ["encrypt", "decrypt"]);

/** Draw, with probability 1 / `count`, whether the newest of `count` records replaces the one that is held. */
export const isDrawn = (count: number, words: Words): boolean => count === 1 || uniform(count, Purpose.RECORD, words) === 0;

/** Draw when the answer of a window is due, in seconds since 1970: within a quarter of a window after its end. */
export const drawDue = (window: string, number: number, words: Words): number =>
  beginOf(window, number + 1) + uniform(spreadOf(window), Purpose.SELECTION, words);

/** Encrypted bytes, and the key that decrypts them. */
export interface Sealed {
  readonly text: string;
  readonly key: string;
}

/** The key that encrypts what is kept, made if there is none. Raises `Refused` if the storage keeps no keys. */
export function keyIn(place: KeyPlace | undefined): string {
  if (!place) throw new Refused("storage", "this storage keeps no keys, so no record or answer can be kept in it");
  let key = place.read();
  if (key === null) place.write((key = base64(crypto.getRandomValues(new Uint8Array(32)))));
  return key;
}

/** Encrypt numbers, which are wiped; the length says nothing about them. */
export async function seal(numbers: Float64Array<ArrayBuffer>, place: KeyPlace | undefined): Promise<Sealed> {
  const key = keyIn(place);
  const iv = crypto.getRandomValues(new Uint8Array(NONCE));
  const sealed = await crypto.subtle.encrypt({ name: AES, iv }, await keyOf(key), numbers);
  numbers.fill(0);
  const bytes = new Uint8Array(NONCE + sealed.byteLength);
  bytes.set(iv);
  bytes.set(new Uint8Array(sealed), NONCE);
  return { text: base64(bytes), key };
}

/** Decrypt `size` numbers; undefined if their key is lost, or there are more or fewer. */
export async function unseal(sealed: string, size: number, place: KeyPlace | undefined): Promise<Float64Array<ArrayBuffer> | undefined> {
  const text = place?.read();
  if (!text) return undefined;
  try {
    const [key, bytes] = [await keyOf(text), bytesOf(sealed)];
    const numbers = new Float64Array(await crypto.subtle.decrypt({ name: AES, iv: bytes.subarray(0, NONCE) }, key, bytes.subarray(NONCE)));
    return numbers.length === size ? numbers : undefined;
  } catch {
    return undefined;
  }
}

/** A coded record as numbers to keep; the record itself is wiped. */
export function numbersOf({ x, y }: Pick<Coded, "x" | "y">): Float64Array<ArrayBuffer> {
  const numbers = Float64Array.of(...x, y);
  x.fill(0);
  return numbers;
}
