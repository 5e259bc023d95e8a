/** Requests through a relay, by Oblivious HTTP (RFC 9458): the relay sees no content, the gateway no address. */
import { Aes128Gcm, CipherSuite, DhkemX25519HkdfSha256, HkdfSha256 } from "@hpke/core";
import { Refused } from "./errors.js";

export interface Relay {
  /** The address at which the relay takes requests for the gateway. */
  readonly url: string;
  readonly gateway: string;
  /** The gateway's key configuration, pinned by the page: the content of `/ohttp-keys` in base64. */
  readonly keys: string | undefined;
  readonly fetch: typeof fetch;
}

const NONCE = 16; // bytes; the longer of the key's and the nonce's length of AES-128-GCM
const KEYS = 64 * 1024;
const ANSWER = 16 * 2 ** 20; // bytes: more than the longest task or model
const PADDING = 8 * 1024; // so that a release is as long as a question: 8 KiB are a release of 350 numbers
const suite = new CipherSuite({ kem: new DhkemX25519HkdfSha256(), kdf: new HkdfSha256(), aead: new Aes128Gcm() });
const text = new TextEncoder();

interface Key {
  /** Identifier, KEM, KDF and AEAD, as in a request. */
  readonly header: Uint8Array<ArrayBuffer>;
  readonly key: CryptoKey;
}

/** Return a `fetch` that reaches the gateway through the relay. Raises `Refused` if pinned keys cannot be used. */
export async function relayed({ url, gateway, keys: pinned, fetch: ask }: Relay): Promise<typeof fetch> {
  let known = pinned === undefined ? undefined : Promise.resolve(await keyOf(decode64(pinned)));

  // Directly, and once, whether or not it succeeds: a gateway that could make a device ask again would learn whose
  // request comes before or after.
  const current = async (init: RequestInit): Promise<Key> => {
    const { headers: _, ...plain } = init;
    const response = await ask(`${gateway}/ohttp-keys`, { ...plain, method: "GET", body: null, keepalive: false });
    if (!response.ok) throw new TypeError("the gateway announces no key");
    return keyOf(await bytesOf(response, KEYS));
  };

  const send = async (address: URL, init: RequestInit, key: Key): Promise<Response> => {
    const message = request(address, init);
    const context = await suite.createSenderContext({
      recipientPublicKey: key.key,
      info: join(text.encode("message/bhttp request\0"), key.header).buffer,
    });
    const body = join(key.header, new Uint8Array(context.enc), new Uint8Array(await context.seal(message.buffer)));
    const response = await ask(url, { ...init, method: "POST", body, headers: { "Content-Type": "message/ohttp-req" } });
    const kind = response.headers.get("Content-Type");
    if (response.status === 200 && kind === "message/ohttp-res") return open(context, await bytesOf(response, ANSWER));
    // An answer of the relay itself decides only when to try again.
    const after = response.headers.get("Retry-After");
    return new Response(null, { status: 503, headers: after === null ? {} : { "Retry-After": after } });
  };

  return async (input, init = {}) => {
    known ??= current(init);
    return send(new URL(String(input)), init, await known);
  };
}

/** Read the first key that this device can use (RFC 9458, section 3). */
async function keyOf(configurations: Uint8Array<ArrayBuffer>): Promise<Key> {
  try {
    for (let outer = new Reader(configurations); !outer.ended; ) {
      const reader = new Reader(outer.take(outer.number(2)));
      const header = reader.take(3);
      if (new Reader(header.slice(1)).number(2) !== suite.kem.id) continue;
      const key = reader.take(suite.kem.publicKeySize);
      for (let suites = new Reader(reader.take(reader.number(2))); !suites.ended; ) {
        const algorithms = suites.take(4);
        const each = new Reader(algorithms);
        if (each.number(2) !== suite.kdf.id || each.number(2) !== suite.aead.id) continue;
        return { header: join(header, algorithms), key: await suite.kem.deserializePublicKey(key.buffer) };
      }
    }
  } catch {
    // This is no key configuration, or the browser has no X25519.
  }
  throw new Refused("keys", "this device cannot use the gateway's key for requests through a relay");
}

/** Encode a request with known lengths (RFC 9292), padded. */
function request(address: URL, { method = "GET", headers, body }: RequestInit): Uint8Array<ArrayBuffer> {
  const fields: Uint8Array[] = [];
  new Headers(headers).forEach((value, name) => fields.push(prefixed(name), prefixed(value)));
  if (body) fields.push(prefixed("content-type"), prefixed("application/json"));
  const message = join(
    Uint8Array.of(0),
    ...[method, "https", address.host, address.pathname + address.search].map(prefixed),
    prefixed(join(...fields)),
    prefixed((body as string | null | undefined) ?? ""),
  );
  const padded = new Uint8Array(Math.ceil(message.length / PADDING) * PADDING);
  padded.set(message);
  return padded;
}

/** Decrypt an answer, and decode it. */
async function open(context: { enc: ArrayBuffer; export: (label: ArrayBuffer, length: number) => Promise<ArrayBuffer> }, sealed: Uint8Array<ArrayBuffer>): Promise<Response> {
  const secret = await context.export(text.encode("message/bhttp response").buffer, NONCE);
  const salt = join(new Uint8Array(context.enc), sealed.slice(0, NONCE));
  const base = await crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  const derive = (label: string, bytes: number): Promise<ArrayBuffer> =>
    crypto.subtle.deriveBits({ name: "HKDF", hash: "SHA-256", salt, info: text.encode(label) }, base, 8 * bytes);
  const key = await crypto.subtle.importKey("raw", await derive("key", 16), "AES-GCM", false, ["decrypt"]);
  const iv = await derive("nonce", 12);
  const plain = await crypto.subtle.decrypt({ name: "AES-GCM", iv }, key, sealed.slice(NONCE));
  const reader = new Reader(new Uint8Array(plain));
  if (reader.integer() !== 1) throw new TypeError("not an answer of known length");
  const status = reader.integer();
  const headers = new Headers();
  for (const lines = new Reader(reader.part()); !lines.ended; ) headers.append(latin(lines.part()), latin(lines.part()));
  const content = reader.part();
  return new Response(status === 204 || status === 304 ? null : content, { status, headers });
}

/** Reads the parts of a message; throws if the message ends early. */
class Reader {
  private place = 0;
  constructor(private readonly bytes: Uint8Array<ArrayBuffer>) {}

  get ended(): boolean {
    return this.place === this.bytes.length;
  }

  take(length: number): Uint8Array<ArrayBuffer> {
    const end = this.place + length;
    if (end > this.bytes.length) throw new TypeError("a message ends early");
    const part = this.bytes.slice(this.place, end);
    this.place = end;
    return part;
  }

  number(length: number): number {
    return this.take(length).reduce((value, byte) => value * 256 + byte, 0);
  }

  /** An integer of 1, 2, 4 or 8 bytes (RFC 9000, section 16). */
  integer(): number {
    const first = this.number(1);
    const more = (1 << (first >> 6)) - 1;
    return (first & 63) * 256 ** more + this.number(more);
  }

  part(): Uint8Array<ArrayBuffer> {
    return this.take(this.integer());
  }
}

function prefixed(data: string | Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = typeof data === "string" ? text.encode(data) : data;
  const length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, bytes.length + 0x80000000);
  return join(length, bytes);
}

function join(...parts: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let place = 0;
  for (const part of parts) {
    whole.set(part, place);
    place += part.length;
  }
  return whole;
}

const latin = (bytes: Uint8Array): string => String.fromCharCode(...bytes);

function decode64(data: string): Uint8Array<ArrayBuffer> {
  try {
    return Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  } catch {
    return new Uint8Array(0);
  }
}

/** The bytes of an answer; reading stops after `most`. */
async function bytesOf(response: Response, most: number): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  let left = most;
  for (const reader = response.body?.getReader(); reader; ) {
    const { done, value } = await reader.read();
    if (done) break;
    left -= value.length;
    if (left < 0) {
      void reader.cancel().catch(() => undefined);
      throw new TypeError("an answer is too long");
    }
    parts.push(value);
  }
  return join(...parts);
}
