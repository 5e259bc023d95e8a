"""Clients behind a relay: one of these tests' own, and one that nobody here wrote; and the relay."""

import contextlib
import fcntl
import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey

from tests.gateway.devices import Answered, Client
from tests.services.services import missing

ROOT = Path(__file__).parents[2]
SOURCE, BUILT = Path(__file__).parent / "client", ROOT / "build" / "ohttp-client"


def integer(number: int) -> bytes:
    """An integer in the longest form, which a decoder must take as well as the shortest."""
    return (number | 3 << 62).to_bytes(8)


def prefixed(data: bytes) -> bytes:
    return integer(len(data)) + data


def message(method: str, path: str, fields: dict[str, str] | None = None, content: bytes = b"") -> bytes:
    """A request of known length."""
    control = [method.encode(), b"https", b"gateway.test", path.encode()]
    lines = b"".join(prefixed(name.encode()) + prefixed(value.encode()) for name, value in (fields or {}).items())
    return b"\0" + b"".join(map(prefixed, control)) + prefixed(lines) + prefixed(content) + prefixed(b"")


class Sealed:
    """A sealed request to the key of a configuration, and what opens its answer."""

    def __init__(self, configuration: bytes, plain: bytes, aead: int = 1) -> None:
        header = configuration[2:5] + b"\0\1" + aead.to_bytes(2)
        public = KEMKey.from_pyca_cryptography_key(_public(configuration[5:37]))
        suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId(aead))
        self._enc, context = suite.create_sender_context(public, info=b"message/bhttp request\0" + header)
        self.bytes = header + self._enc + context.seal(plain)
        self._size, self._cipher = (16, AESGCM) if aead == 1 else (32, ChaCha20Poly1305)
        self._secret = context.export(b"message/bhttp response", self._size)

    def open(self, answer: bytes) -> bytes:
        nonce, sealed = answer[: self._size], answer[self._size :]
        key, iv = (
            HKDF(SHA256(), size, self._enc + nonce, label).derive(self._secret)
            for size, label in ((self._size, b"key"), (12, b"nonce"))
        )
        return self._cipher(key).decrypt(iv, sealed, None)


def _public(data: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return X25519PublicKey.from_public_bytes(data)


def decoded(answer: bytes) -> Answered:
    """A response of known length."""
    place = 1

    def number() -> int:
        nonlocal place
        size = 1 << (answer[place] >> 6)
        value = int.from_bytes(answer[place : place + size]) & ((1 << (8 * size - 2)) - 1)
        place += size
        return value

    def part() -> bytes:
        nonlocal place
        size = number()
        place += size
        return answer[place - size : place]

    assert answer[0] == 1
    status, end = number(), number()
    end += place
    fields = {}
    while place < end:
        name = part().decode()
        fields[name] = part().decode()
    content = part()
    assert not answer[place:].strip(b"\0")
    return Answered(status, fields, content)


def ask(client: Client, *request: Any, aead: int = 1, **keywords: Any) -> Answered:
    """Ask through `/ohttp`, and return the answer within."""
    sealed = Sealed(client.get("/ohttp-keys").body, message(*request, **keywords), aead)
    answer = client.ask("POST", "/ohttp", sealed.bytes, Content_Type="message/ohttp-req")
    assert (answer.status, answer.headers["content-type"]) == (200, "message/ohttp-res")
    return decoded(sealed.open(answer.body))


@functools.cache
def foreign_client() -> str:
    """The path of the client in `client`, built once for all test processes; skips without Rust."""
    cargo = shutil.which("cargo")
    if cargo is None:
        missing("cargo is missing: install Rust 1.86 or later")
    BUILT.mkdir(parents=True, exist_ok=True)
    with open(BUILT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in ("Cargo.toml", "src/main.rs"):
            (BUILT / name).parent.mkdir(exist_ok=True)
            # Only what has changed is built again.
            if not (BUILT / name).exists() or (BUILT / name).read_bytes() != (SOURCE / name).read_bytes():
                shutil.copy(SOURCE / name, BUILT / name)
        target = {**os.environ, "CARGO_TARGET_DIR": str(BUILT / "target")}
        said = subprocess.run([cargo, "build", "--quiet"], cwd=BUILT, env=target, capture_output=True, text=True)
    if said.returncode:
        missing(f"the client does not build: {said.stderr[-500:]}")
    return str(BUILT / "target" / "debug" / "client")


class Foreign:
    """A process of the foreign client, which knows a key configuration; a context manager."""

    def __init__(self, configuration: bytes) -> None:
        self._keys = configuration.hex()
        self._process = subprocess.Popen([foreign_client()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, relay: Client, mode: str, method: str, path: str, *fields: str, content: bytes = b"") -> Answered:
        self._write(" ".join([self._keys, mode, method, path, *fields]), content.hex())
        answer = relay.ask("POST", "/ohttp", bytes.fromhex(self._line()), Content_Type="message/ohttp-req")
        assert answer.status == 200
        self._write(answer.body.hex())
        status, kind, body = (*self._line().split(" "), "")[:3]
        return Answered(int(status), {"content-type": bytes.fromhex(kind).decode()}, bytes.fromhex(body))

    def _write(self, *lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(line + "\n" for line in lines))
        self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def __enter__(self) -> "Foreign":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()


class Relay(http.server.ThreadingHTTPServer):
    """A relay: it forwards bodies to one gateway, and keeps all that it has seen."""

    daemon_threads = True

    def __init__(self, gateway: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarder)
        self.gateway = gateway
        self.seen: list[bytes] = []
        self.lengths: list[tuple[int, int]] = []
        # What it makes of an answer: status, media type and body.
        self.change: Callable[[int, str, bytes], tuple[int, str, bytes]] = lambda *answer: answer
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Forwarder(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Relay

    def do_OPTIONS(self) -> None:
        self._say(204, "text/plain", b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen += [self.requestline.encode(), str(self.headers).encode(), body]
        with Client(self.server.gateway) as gateway:
            answer = gateway.ask("POST", "/ohttp", body, Content_Type=self.headers["Content-Type"])
        self.server.seen += [repr(answer.headers).encode(), answer.body]
        self.server.lengths.append((len(body), len(answer.body)))
        self._say(*self.server.change(answer.status, answer.headers["content-type"], answer.body))

    def _say(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        # Pages of any origin may use it.
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Access-Control-Allow-Headers", "Content-Type")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def relaying(gateway: str) -> Iterator[Relay]:
    """A relay in threads of this process."""
    with Relay(gateway) as relay:
        thread = threading.Thread(target=relay.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()
