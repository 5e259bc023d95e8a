"""The ASGI application of a gateway: requests and answers, without a framework and without a secret."""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import re
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass, field, replace
from email.message import Message
from email.utils import formatdate
from functools import cache, lru_cache, partial
from hashlib import sha256
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import parse_qs, unquote

import msgspec

from murk.errors import unexpected
from murk.gateway.group_commit import UNKNOWN, GroupCommit, Submission
from murk.gateway.rate_limits import HEADER_BYTES, RateLimit
from murk.monitoring.web.server import HEADERS, Hosts, Route
from murk.stream.wire.admission import lifetime_of
from murk.stream.wire.codec import Reason
from murk.task.task import Task

if TYPE_CHECKING:
    # Loaded by gateways behind relays only.
    from murk.gateway.oblivious import ObliviousKeys, Repeated

MOST_RELEASES = 256  # largest number of releases in a request
BODY_BYTES = 2**20  # largest body, unless one release of the task may be longer
BODY_SECONDS = 10.0  # time for a request's body
HELD_BYTES = 64 * 2**20  # largest size of all bodies that are being received at a time
_REASONS: Final[Mapping[int, tuple[Reason, ...]]] = {
    400: ("malformed", "schema"),
    409: ("wrong-task", "simulated", "stale", "future", "version"),
    410: ("expired",),
    413: ("too-large",),
    422: ("level", "query", "dimension", "magnitude", "duplicate"),
    # The log may have got more partitions since this gateway began: another one knows them.
    421: ("partition",),
}
STATUS_OF: Final[Mapping[Reason, int]] = {reason: status for status, of in _REASONS.items() for reason in of}
"""Status of a refusal by its reason."""

_AWAY, _BUSY = 5, 1  # seconds after which a client may retry
_KEYS_AGE = 3_600  # seconds for which a key configuration may be kept
_ROUND = 2 * HEADER_BYTES  # what encapsulation, fields and padding may add to a body
_EXPOSED = "Date, ETag, Murk-Task-Hash, Retry-After"
_ALLOWED = ("Authorization", "Content-Type", "If-None-Match")
_METHODS = {"GET": "GET, HEAD, OPTIONS", "POST": "POST, OPTIONS"}
_JSON, _TEXT = "application/json", "text/plain"
_TASKS = "/v1/tasks/"
_log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Route = Callable[[Scope, Mapping[bytes, bytes]], "Answer"]


@dataclass(frozen=True)
class Settings:
    """Settings that the operator of a gateway chooses."""

    origins: tuple[str, ...] = ()
    token: str | None = None
    rate: int = 3_000  # largest number of releases of an address prefix in a minute; 0 for no limit
    reads: int | None = None  # the same for its other requests; None for ten times the rate
    allowed_headers: tuple[str, ...] = ()  # further request headers of pages, such as those of tracing
    keys: ObliviousKeys | None = None  # keys for requests through relays
    relays: tuple[IPv4Network | IPv6Network, ...] = ()  # addresses without a limit
    each: int = 0  # largest number of connections of an address; 0 for no limit


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, body and headers of an answer; ``within`` is the status of the answer that it encapsulates."""

    status: int
    body: bytes = b""
    kind: str = _JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    within: int | None = None

    @property
    def fields(self) -> dict[str, str]:
        """All headers, including those that describe the body."""
        if not self.body and self.status in (204, 304):
            return dict(self.headers)
        return {"Content-Type": self.kind, "Content-Length": str(len(self.body)), **self.headers}


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, name: str, **headers: str) -> None:
        super().__init__(status, name)
        self.answer = Answer(status, msgspec.json.encode({"error": name}), headers=headers)


def split(body: bytes) -> list[bytes] | None:
    """Return the bytes of each release of a body, or None if it is not one release or an array of 1 to 256.

    >>> split(b'[{"a": 1}, {}]'), split(b' {"a": 1} '), split(b"[]")
    ([b'{"a": 1}', b'{}'], [b'{"a": 1}'], None)
    """
    body = body.strip(b" \t\r\n")
    if not body.startswith(b"["):
        return [body] if body else None
    try:
        return [bytes(each) for each in _ARRAY.decode(body)]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


_ARRAY: Final = msgspec.json.Decoder(Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MOST_RELEASES)])


@dataclass(frozen=True)
class ServedTask:
    """A task, the document that registered it on a log, and what appends releases to that log."""

    task: Task
    document: bytes
    appending: GroupCommit

    @property
    def most(self) -> int:
        """Largest size of a body of releases."""
        longest = self.appending.admission.rules.max_bytes
        return max(longest, min(MOST_RELEASES * (longest + 2), BODY_BYTES))

    @property
    def age(self) -> int:
        """Seconds for which a model may be kept."""
        # Gradients age quickly.
        return 1 if self.task.protocol == "gradients" else 5


class GatewayApp:
    """Answer requests about the tasks that it `serve` has been given, and for ``pages`` under ``hosts`` only."""

    def __init__(self, settings: Settings, pages: Mapping[str, Route], hosts: Hosts) -> None:
        # Answers by task, "" for requests that name none, and status.
        self.requests: Counter[tuple[str, int]] = Counter()
        # Replaced as a whole, since the threads of logs read it, too.
        self.tasks: Mapping[str, ServedTask] = {}
        self.unread: Set[str] = frozenset()  # names of tasks, as far as known, whose logs could not be opened
        self._serving = threading.Lock()
        self._settings, self._pages, self._hosts = settings, pages, hosts
        self._token = None if settings.token is None else settings.token.encode()
        self._limit = RateLimit(settings.rate, settings.relays)
        self._repeated: tuple[Repeated, ...] = ()
        self._lifetime = 0
        reads = 10 * settings.rate if settings.reads is None else settings.reads
        self._read_limit = RateLimit(reads, settings.relays)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._held = 0
        self._reading: set[asyncio.Timeout] = set()
        self._stopping = False
        self._tags: dict[bytes, str] = {}
        self._most = 0  # largest size of a body of any task
        self._description: bytes | None = None

    # The threads of logs

    def serve(self, served: ServedTask) -> None:
        """Answer requests about one more task, or again about one whose log was opened again."""
        lifetime = lifetime_of(served.task.expiry)
        with self._serving:
            self._most = max(self._most, served.most)
            if self._settings.keys is not None and lifetime > self._lifetime:
                from murk.gateway.oblivious import Repeated

                # Requests that came before are remembered by the former ones.
                self._repeated, self._lifetime = (*self._repeated, Repeated(lifetime)), lifetime
            self.tasks = dict(sorted({**self.tasks, served.task.name: served}.items()))
            self._description = None

    def resolve(self, group: Sequence[Submission]) -> None:
        """Answer requests; called in the thread of their log."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(_resolve, group)

    def stop(self) -> None:
        """Answer 503 from now on; called in any thread."""

        def interrupt() -> None:
            for timeout in list(self._reading):
                timeout.reschedule(0.0)

        self._stopping = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(interrupt)

    # Requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        self._loop = asyncio.get_running_loop()
        headers = {name: value for name, value in scope["headers"] if name in _READ}
        try:
            answer = await _settled(self._answer(scope, headers, receive))
        except _GoneError:
            return
        self.requests[scope.get("task", ""), answer.within or answer.status] += 1
        lines = [_kept_line(*each) for each in {**_SAFE, **answer.fields}.items()]
        # The origin is not stored: a client may name any.
        lines += [_line(*each) for each in self._allowed(headers).items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": lines})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
        path = scope["path"]
        if path != "/healthz":
            self._check_rate(scope, self._limit if scope["method"] == "POST" else self._read_limit)
        if self._settings.keys is None or path not in ("/ohttp", "/ohttp-keys"):
            return await self._respond(scope, headers, receive)
        # No token is needed here: a device behind a relay sends it within the encapsulated request.
        listed = _offered(scope["method"], "POST" if path == "/ohttp" else "GET")
        if listed is not None:
            return listed
        if path == "/ohttp":
            return await self._relayed(self._settings.keys, scope, headers, receive)
        return self._cached(self._settings.keys.configuration, headers, _KEYS_AGE, {}, self._settings.keys.kind)

    async def _respond(self, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive) -> Answer:
        """Answer a request about a task, which a relay may have forwarded."""
        method, path = scope["method"], scope["path"]
        name = path.removeprefix(_TASKS).partition("/")[0] if path.startswith(_TASKS) else ""
        served = self.tasks.get(name)
        if served is not None:
            scope["task"] = name
        if path != "/healthz" and self._token is not None:
            if method == "OPTIONS":
                # A browser's preflight request has no token; this answer does not disclose which paths exist.
                return Answer(204)
            if not self._has_token(headers):
                raise RefusedError(401, "unauthorized", **{"WWW-Authenticate": "Bearer", **_CLOSE})
        post = served is not None and path == f"{_TASKS}{name}/releases"
        route = None if post else self._route(path, served)
        if route is None and not post:
            raise RefusedError(404, "unknown-task" if path.startswith(_TASKS) else "not-found", **_CLOSE)
        listed = _offered(method, "POST" if post else "GET")
        if listed is not None:
            return listed
        if route is not None:
            # The log may be another one when it is opened again: a device would pay for a release that is refused.
            if served is not None and served.appending.closed:
                raise _away()
            return route(scope, headers)
        assert served is not None
        return await self._releases(served, scope, headers, receive)

    def _route(self, path: str, served: ServedTask | None) -> _Route | None:
        if served is not None:
            base = f"{_TASKS}{served.task.name}"
            of_task = {base: self._task_itself, f"{base}/model": self._model}.get(path)
            return None if of_task is None else partial(of_task, served)
        return {
            "/v1/tasks": self._list,
            "/openapi.json": self._describe,
            "/healthz": self._healthz,
        }.get(path, self._page if path in self._pages else None)

    def _page(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Answer:
        if not self._hosts.allows(headers.get(b"host", b"").decode("latin-1")):
            raise RefusedError(421, "host", **_CLOSE)
        status, kind, body = self._pages[scope["path"]](Message())
        return Answer(status, body, kind, HEADERS)

    @staticmethod
    def _check_rate(scope: Scope, limit: RateLimit, number: int = 1, counted: int = 0) -> None:
        client = scope.get("client")
        seconds = limit.wait(client[0] if client else "", number, counted)
        if seconds:
            raise RefusedError(429, "too-many", **{"Retry-After": str(math.ceil(seconds))}, **_CLOSE)

    def _list(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Answer:
        tasks = [{"name": served.task.name, "hash": served.task.hash} for served in self.tasks.values()]
        return _json(200, {"tasks": tasks}, **self._fresh(60))

    def _task_itself(self, served: ServedTask, scope: Scope, headers: Mapping[bytes, bytes]) -> Answer:
        return self._cached(served.document, headers, 60, {"Murk-Task-Hash": served.task.hash})

    def _model(self, served: ServedTask, scope: Scope, headers: Mapping[bytes, bytes]) -> Answer:
        appending = served.appending
        chosen = parse_qs(scope["query_string"].decode("latin-1")).get("partition", ["0"])[-1]
        if not (chosen.isascii() and chosen.isdigit() and len(chosen) < 9 and int(chosen) < served.task.log.partitions):
            raise RefusedError(404, "no-partition")
        if not appending.admission.interactive:
            raise RefusedError(404, "no-models")
        model = appending.models.get(int(chosen))
        if model is None:
            return Answer(204, headers=self._fresh(served.age))
        return self._cached(model, headers, served.age, {})

    def _cached(
        self, body: bytes, headers: Mapping[bytes, bytes], age: int, more: Mapping[str, str], kind: str = _JSON
    ) -> Answer:
        """Return a body with its `ETag`, or status 304 if the client has it already."""
        tag = self._tags.get(body)
        if tag is None:
            if len(self._tags) > 64:
                self._tags.clear()
            tag = self._tags[body] = f'"{sha256(body).hexdigest()[:32]}"'
        named = {"ETag": tag, **self._fresh(age), **more}
        etags = headers.get(b"if-none-match", b"").decode("latin-1")
        if etags == "*" or tag in (each.strip().removeprefix("W/") for each in etags.split(",")):
            return Answer(304, headers=named)
        return Answer(200, body, kind, named)

    def _fresh(self, seconds: int) -> dict[str, str]:
        # Caches between client and gateway must not answer clients without a token.
        return {"Cache-Control": f"{'public' if self._token is None else 'private'}, max-age={seconds}"}

    def _describe(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Answer:
        from murk.gateway.openapi import description

        described = self._description
        if described is None:
            described = self._description = description([served.task for served in self.tasks.values()])
        return self._cached(described, headers, 60, {})

    def _has_token(self, headers: Mapping[bytes, bytes]) -> bool:
        """Return whether a request has the token of devices, or needs none."""
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        return self._token is None or (scheme.lower() == b"bearer" and hmac.compare_digest(token.strip(), self._token))

    def _healthz(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Answer:
        # The reasons name the logs' addresses: they are logged, and shown on the port of metrics.
        tasks, unread = self.tasks, self.unread
        troubled = {name for name, served in tasks.items() if served.appending.trouble is not None}
        if self._stopping or len(troubled) == len(tasks):
            raise _away()
        away = sorted(troubled | unread - tasks.keys())
        return _json(200, {"unavailable": away if self._has_token(headers) else len(away)})

    def _allowed(self, headers: Mapping[bytes, bytes]) -> Mapping[str, str]:
        """Return the headers that let pages of declared origins read a response in a browser."""
        origins = self._settings.origins
        if not origins:
            return {}
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or not (origin in origins or "*" in origins):
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Expose-Headers": _EXPOSED,
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Allow-Headers": ", ".join((*_ALLOWED, *self._settings.allowed_headers)),
            "Access-Control-Max-Age": "7200",
        }

    # Through a relay

    async def _relayed(
        self, keys: ObliviousKeys, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Answer:
        """Answer an encapsulated request. An error within the request is reported in the encapsulated answer only."""
        from murk.gateway.binary_http import PADDING, encode_response
        from murk.gateway.oblivious import PROBLEM, REQUEST, RESPONSE, UnopenedError

        _check_kind(headers, REQUEST)
        try:
            opened = keys.open(await self._body(headers, receive, self._most + _ROUND))
        except UnopenedError as refused:
            if refused.key:
                return Answer(400, PROBLEM, "application/problem+json")
            raise RefusedError(400, "malformed") from None
        # Each must remember the request.
        if True in [repeated.seen(opened.encapsulated) for repeated in self._repeated]:
            raise RefusedError(409, "repeated")
        answer = await _settled(self._within(scope, opened.message))
        served = self.tasks.values()
        bodies = [model for each in served for model in each.appending.models.values()]
        # Every answer has the length of one with the longest model: a length would tell a relay which requests are
        # releases, and of which task. Answers to requests for a task have that of one with the longest task.
        bodies += [each.document for each in served] if scope.get("reads_task") else []
        longest = max(map(len, bodies), default=0)
        # Devices behind a relay need the gateway's time as well.
        fields = {"Date": formatdate(usegmt=True), **answer.fields}
        sealed = opened.seal(encode_response(answer.status, fields, answer.body, longest + PADDING))
        return Answer(200, sealed, RESPONSE, within=answer.status)

    async def _within(self, scope: Scope, message: bytes) -> Answer:
        from murk.gateway.binary_http import InvalidMessageError, decode_request

        try:
            request = decode_request(message, HEADER_BYTES, self._most)
        except InvalidMessageError as error:
            raise RefusedError(error.status, "too-large" if error.status == 413 else "malformed") from None
        path, _, query = request.target.partition(b"?")
        target = unquote(path.decode("ascii"))
        inner = {"method": request.method, "path": target, "query_string": query}
        directory, _, name = target.rpartition("/")
        scope["reads_task"] = f"{directory}/" == _TASKS and name != ""

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": request.content}

        headers = {name: value for name, value in request.fields if name in _READ}
        inner_scope = {**scope, **inner}
        answer = await _settled(self._respond(inner_scope, headers, receive))
        scope["task"] = inner_scope.get("task", "")
        return replace(answer, body=b"", headers=answer.fields) if request.method == "HEAD" else answer

    # Releases

    async def _releases(
        self, served: ServedTask, scope: Scope, headers: Mapping[bytes, bytes], receive: Receive
    ) -> Answer:
        _check_kind(headers, _JSON, _TEXT)
        releases = split(await self._body(headers, receive, served.most))
        if releases is None:
            raise RefusedError(400, "malformed")
        if len(releases) > 1:
            self._check_rate(scope, self._limit, len(releases) - 1, counted=1)
        appending = served.appending
        submission = Submission(releases, asyncio.get_running_loop().create_future())
        if not appending.submit(submission):
            if appending.closed:
                raise _away()
            raise RefusedError(429, "too-many", **{"Retry-After": str(_BUSY)})
        await submission.waiter
        # To send accepted releases again is safe.
        if submission.outcomes is None:
            raise _away()
        if UNKNOWN in submission.outcomes:
            raise RefusedError(421, UNKNOWN, **{"Retry-After": str(_AWAY)})
        return _outcome(submission.outcomes)

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive, most: int) -> bytes:
        """Read a body within its limits of size and time."""
        stated = headers.get(b"content-length", b"0")
        if stated.isdigit() and int(stated[:20]) > most:
            raise RefusedError(413, "too-large", **_CLOSE)
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_SECONDS) as timeout:
                self._reading.add(timeout)
                while True:
                    if self._stopping:
                        raise _away()
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _GoneError
                    part = message.get("body", b"")
                    size += len(part)
                    self._held += len(part)
                    parts.append(part)
                    if size > most:
                        raise RefusedError(413, "too-large", **_CLOSE)
                    if not message.get("more_body", False):
                        return b"".join(parts)
                    if self._held > HELD_BYTES:
                        raise RefusedError(429, "too-many", **{"Retry-After": str(_BUSY)}, **_CLOSE)
        except TimeoutError:
            raise _away() if self._stopping else RefusedError(408, "too-slow", **_CLOSE) from None
        finally:
            self._reading.discard(timeout)
            self._held -= size


class _GoneError(Exception):
    """The client has disconnected."""


# No cookie, no identifier; pages may not be framed or run anything.
_SAFE: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_CLOSE: Final = {"Connection": "close"}
_CHARSET: Final = re.compile(r'(?:^|;)\s*charset\s*=\s*"?([^\s";]*)')
_READ: Final = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"host",
        b"if-none-match",
        b"origin",
        b"transfer-encoding",
    )
)


def _line(name: str, value: str) -> tuple[bytes, bytes]:
    return name.lower().encode(), value.encode("latin-1")


_kept_line = lru_cache(256)(_line)


async def _settled(work: Awaitable[Answer]) -> Answer:
    """Return the answer of ``work``, or the answer to a refused or failed request."""
    try:
        return await work
    except RefusedError as refused:
        return refused.answer
    except _GoneError:
        raise
    except Exception as error:  # noqa: BLE001 - neither a value nor a traceback may get out
        _log.warning("a request failed: %s", unexpected(error))
        return Answer(500, b'{"error":"fault"}', headers=_CLOSE)


def _offered(method: str, offered: str) -> Answer | None:
    """Return the answer to OPTIONS, None for an ``offered`` method; raise `RefusedError` for another method."""
    allow = _METHODS[offered]
    if method == "OPTIONS":
        return Answer(204, headers={"Allow": allow})
    if method not in allow.split(", "):
        raise RefusedError(405, "method", Allow=allow, **_CLOSE)
    return None


def _check_kind(headers: Mapping[bytes, bytes], *kinds: str) -> None:
    """Refuse a body of another media type, charset or coding: as malformed JSON, clients would give it up for good."""
    stated, _, parameters = headers.get(b"content-type", kinds[0].encode()).lower().decode("latin-1").partition(";")
    charset = _CHARSET.search(parameters)
    if stated.strip() not in kinds or (charset is not None and charset[1] not in ("utf-8", "utf8", "us-ascii")):
        raise RefusedError(415, "type", **_CLOSE)
    coding = headers.get(b"content-encoding", b"").strip().lower()
    framing = headers.get(b"transfer-encoding", b"").strip().lower()
    if coding not in (b"", b"identity") or framing not in (b"", b"chunked"):
        raise RefusedError(415, "encoding", **{"Accept-Encoding": "identity", **_CLOSE})


def _away() -> RefusedError:
    return RefusedError(503, "unavailable", **{"Retry-After": str(_AWAY)}, **_CLOSE)


def _json(status: int, content: object, **headers: str) -> Answer:
    return Answer(status, msgspec.json.encode(content), headers=headers)


@cache
def _accepted(number: int) -> Answer:
    return _json(202, {"accepted": number, "refused": []})


def _outcome(outcomes: Sequence[str | None]) -> Answer:
    """Return the answer to a request from the outcome of each release: None if it is durable, else the reason."""
    if not any(outcomes):
        return _accepted(len(outcomes))
    refused = [{"index": index, "reason": reason} for index, reason in enumerate(outcomes) if reason is not None]
    content: dict[str, object] = {"accepted": len(outcomes) - len(refused), "refused": refused}
    if len(refused) < len(outcomes):
        return _json(207, content)
    statuses = {STATUS_OF[each["reason"]] for each in refused}  # type: ignore[index]
    return _json(statuses.pop() if len(statuses) == 1 else 422, {"error": refused[0]["reason"], **content})


def _resolve(group: Sequence[Submission]) -> None:
    for submission in group:
        # The client may have gone.
        if not submission.waiter.done():
            submission.waiter.set_result(None)
