"""Limits on the size of headers and on the requests of one address prefix."""

import secrets
from collections.abc import Sequence
from hashlib import blake2b
from ipaddress import IPv4Network, IPv6Network, ip_address
from socket import AF_INET, AF_INET6, inet_pton
from time import monotonic

HEADER_BYTES = 16 * 2**10  # largest size of a request's line and headers
MINUTE = 60.0
PREFIXES = 65_536  # number of address prefixes that are counted separately in a minute; all further ones share a count
_MAPPED = bytes(10) + b"\xff\xff"  # prefix of an IPv4 address that is mapped to IPv6


class RateLimit:
    """Limit the requests of an address prefix (IPv4 /24, IPv6 /48) per minute.

    Prefixes are kept as hashes under a key that, like the counts, is drawn anew every minute. A ``rate`` of 0 means no
    limit; addresses in ``free`` have none.

    >>> limit = RateLimit(2)
    >>> [limit.wait("192.0.2.7") > 0, limit.wait("192.0.2.8") > 0, limit.wait("192.0.2.9") > 0, limit.wait("::1") > 0]
    [False, False, True, False]
    """

    def __init__(self, rate: int, free: Sequence[IPv4Network | IPv6Network] = ()) -> None:
        self._rate, self._free = rate, free
        self._end, self._key = 0.0, b""
        self._counts: dict[bytes, int] = {}

    def wait(self, address: str, number: int = 1, counted: int = 0) -> float:
        """Count ``number`` more requests; return 0 if they are allowed, else the seconds until the client may retry."""
        packed = address_of(address)
        if not self._rate or (packed and any(ip_address(packed) in network for network in self._free)):
            return 0.0
        now = monotonic()
        if now >= self._end:
            self._counts, self._key, self._end = {}, secrets.token_bytes(16), now + MINUTE
        name = blake2b(packed[: 6 if len(packed) > 4 else 3], digest_size=8, key=self._key).digest()
        most = self._rate
        if name not in self._counts and len(self._counts) >= PREFIXES:
            name, most = b"", self._rate * 16
        count = self._counts.get(name, 0)
        # A client without earlier requests in this minute (beyond ``counted``) may exceed the rate at once.
        if count > counted and count + number > most:
            return self._end - now
        self._counts[name] = count + number
        return 0.0


def address_of(address: str) -> bytes:
    """Return the bytes of an address (of an IPv4 address, also if it is mapped to IPv6); none if it is invalid."""
    try:
        if ":" not in address:
            return inet_pton(AF_INET, address)
        packed = inet_pton(AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return b""
    return packed.removeprefix(_MAPPED)
