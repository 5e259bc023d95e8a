"""The server's HTTP connections, with limits on their number, headers and times: it needs the extra ``gateway``."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from murk.gateway.rate_limits import HEADER_BYTES, address_of

HEADER_SECONDS = 10.0  # time for a request's line and headers, and for a connection between two requests
ANSWER_SECONDS = 30.0  # time for a client to read an answer


class Connection(HttpToolsProtocol):
    """An HTTP connection with limits: on the number of connections, on headers, and on the time to read a response."""

    most = 1_000  # largest number of open connections
    each = 0  # the same for one address, 0 for no limit
    free: Sequence[IPv4Network | IPv6Network] = ()  # addresses without the limit ``each``
    open: Counter[bytes]  # connections by address
    _client = b""
    _waiting = True  # whether the headers of a request are incomplete
    _head = 0  # number of bytes received since the last request, or since the last part of a body
    _ended = False  # whether further requests on the connection are ignored
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for a request."""
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        address = address_of(peer[0]) if self.each and peer else b""
        is_free = not address or any(ip_address(address) in network for network in self.free)
        # One client has a whole /64 of IPv6.
        self._client = address[:8] if len(address) > 4 else address
        self.open[self._client] += 1
        if len(self.connections) > self.most or (self.open[self._client] > self.each and not is_free):
            transport.write(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\n\r\n")
            transport.close()
        self._limit(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._limit(None)
        self.open[self._client] -= 1
        if not self.open[self._client]:
            del self.open[self._client]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received bytes, unless headers, trailers or the framing of a chunked body are too long."""
        if self._ended or self.transport.is_closing():
            return
        self._head += len(data)
        self._feed(data)
        if self._head > HEADER_BYTES and (self._waiting or self.cycle.more_body):
            self._refuse()
        if self.transport.is_closing():
            self._limit(ANSWER_SECONDS)

    def _feed(self, data: bytes) -> None:
        """Parse bytes; ignore an offer to change the protocol, as RFC 9110 (section 7.8) allows."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._ended or self.transport.is_closing():
                return
            if self.parser.get_method() == b"CONNECT":
                self.send_400_response("CONNECT is not offered.")
                return
            head = self._without_offer()
            # The parser would treat the bytes after such headers as another protocol.
            self.parser = httptools.HttpRequestParser(self)
            self._feed(head + data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")

    def _without_offer(self) -> bytes:
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/" + self.parser.get_http_version().encode()]
        for name, value in self.headers:
            if name in (b"upgrade", b"http2-settings"):
                continue
            if name == b"connection":
                options = [each.strip() for each in value.split(b",")]
                left = b", ".join(each for each in options if each.lower() not in (b"upgrade", b"http2-settings"))
                lines.append(name + b": " + left)
            else:
                lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_message_begin(self) -> None:
        """Start to read a request; refuse it if the one before it is not answered yet."""
        if self.cycle is not None and not self.cycle.response_complete:
            # The library would read any number of pipelined requests into memory.
            self.cycle.keep_alive = False
            self._ended = True
            self.flow.pause_reading()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; ignore trailers, which follow a body."""
        if self._waiting:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass a request on."""
        if self._ended or self.transport.is_closing() or self.parser.should_upgrade():
            return
        line = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if line > HEADER_BYTES:
            self._refuse()
            return
        self._waiting, self._head = False, 0
        if not self.flow.write_paused:
            self._limit(None)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body on."""
        if not (self._ended or self.transport.is_closing()):
            super().on_body(body)
            if not self._waiting:
                self._head = 0

    def on_message_complete(self) -> None:
        """Pass the end of the body on."""
        if not (self._ended or self.transport.is_closing() or self.parser.should_upgrade()):
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the timer for the next request."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._limit(ANSWER_SECONDS)
        elif self.cycle.response_complete:
            self._waiting, self._head = True, 0
            # The client may not have read the answer yet.
            self._limit(ANSWER_SECONDS if self.transport.get_write_buffer_size() else HEADER_SECONDS)

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read."""
        super().pause_writing()
        self._limit(ANSWER_SECONDS)

    def resume_writing(self) -> None:
        """Continue the answer."""
        super().resume_writing()
        self._limit(HEADER_SECONDS if self._waiting else None)

    def timeout_keep_alive_handler(self) -> None:
        """Do nothing: the timer for headers also closes idle connections."""

    def _refuse(self) -> None:
        if self.transport.is_closing():
            return
        self.transport.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        self.transport.close()
        self._limit(ANSWER_SECONDS)

    def _limit(self, seconds: float | None) -> None:
        """Close the connection after some seconds; this replaces the timer set before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


def connection(most: int, each: int = 0, free: Sequence[IPv4Network | IPv6Network] = ()) -> type[Any]:
    """Return a connection class that limits how many connections are open at once, in all and for each address.

    ``each`` is the limit of an address (in IPv6, of a /64), 0 for none, and ``free`` are addresses without it.
    """
    return type("Connection", (Connection,), {"most": most, "each": each, "free": free, "open": Counter()})
