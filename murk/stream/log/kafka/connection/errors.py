"""What a broker's or its client's errors mean to us: one clear line each, with its remedy."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from kafka import errors

from murk.errors import MurkError, UserError
from murk.stream.log.base import FencedError, UnreachableError

REFUSED = "MURK-KAFKA-003"
UNRESOLVED = "this name cannot be resolved from here"
CONTACTS: dict[str, Contacts] = {}
"""What is kept of the connections to each cluster, by its servers."""

_MOST_ADDRESSES = 64
_CODECS = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}
"""What the Kafka client unpacks with, by codec; gzip is Python's own."""

_UNREACHABLE = (
    errors.KafkaTimeoutError,
    errors.KafkaConnectionError,
    errors.NodeNotReadyError,
    errors.RetriableError,
    errors.BrokerNotAvailableError,
)
# A broker that wakes from a pause may end a transaction for its time-out while its owner commits it; one that was
# killed does not know the batch that the next one follows upon.
_BROKER_FAULTS = (
    errors.UnknownError,
    errors.InvalidTxnStateError,
    errors.OutOfOrderSequenceNumberError,
    errors.UnknownProducerIdError,
    errors.TransactionAbortableError,
)
_RESOURCES: dict[type[Exception], str] = {
    errors.TopicAuthorizationFailedError: "the topic",
    errors.GroupAuthorizationFailedError: "the consumer group",
    errors.TransactionalIdAuthorizationFailedError: "the transactional id",
    errors.ClusterAuthorizationFailedError: "the cluster",
}
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_FENCED = (errors.ProducerFencedError, errors.InvalidProducerEpochError, errors.InvalidProducerIdMappingError)


@contextmanager
def translate_errors(
    url: str, doing: str, *, gone: str | None = None, apart: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn the client's errors into ours.

    Parameters
    ----------
    url
        The log's URL.
    doing
        What was being done, as in "reading chain 0".
    gone
        What it means here that a topic is not there; by default that it has been deleted.
    apart
        The client's errors that the caller understands.

    Raises
    ------
    UnreachableError
        When trying again later may help.
    UserError
        When the credentials, the certificate or the rights are to be fixed.
    FencedError
        When a transactional producer was superseded.
    MurkError
        For everything else.
    """
    try:
        yield
    except apart:
        raise
    except (errors.KafkaError, ssl.SSLError) as error:
        raise translate(error, url, doing, gone) from error


def translate(error: Exception, url: str, doing: str, gone: str | None = None) -> MurkError:
    """Return our error for one of the client's; none repeats a credential."""
    error = _root(error)
    if isinstance(error, _FENCED):
        return FencedError(f"another worker has taken over while {doing} of {url}")
    if isinstance(error, errors.AuthorizationError):
        return UserError(
            f"{url}: the broker does not let this user at {_RESOURCES.get(type(error), 'what is needed')}"
            f"{_named(error)} ({doing}): give it the rights that docs/deploy.md lists",
            code="MURK-KAFKA-002",
        )
    text = _chain(error)
    if isinstance(error, errors.SaslAuthenticationFailedError) or "SaslAuthenticationFailed" in text:
        return UserError(
            f"{url}: the broker refuses the user name or the password: check the settings of MURK_KAFKA_*",
            code=REFUSED,
        )
    if isinstance(error, ssl.SSLError) or "CERTIFICATE_VERIFY_FAILED" in text:
        return UserError(
            f"{url}: the broker's certificate is not to be trusted ({_reason(text)}): check ssl.ca.file and the "
            "host name",
            code=REFUSED,
        )
    if isinstance(error, errors.UnsupportedSaslMechanismError):
        return UserError(f"{url}: the broker does not offer this sasl.mechanism: set the one that it has", code=REFUSED)
    if isinstance(error, (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError)):
        return MurkError(gone or deleted(url, doing), code=None if gone else "MURK-LOG-006")
    if isinstance(error, errors.UnsupportedCodecError):
        return _codec(text, url, doing)
    if isinstance(error, _UNREACHABLE):
        return UnreachableError(f"{url} cannot be reached ({doing}): {_whereabouts(url)}")
    # An error without a name is one that the library met where it expected none: asking again tells what stands.
    if isinstance(error, _BROKER_FAULTS) or type(error) is errors.KafkaError:
        return UnreachableError(f"{url}: the broker failed by itself ({doing}): its own log says why")
    return MurkError(f"{url}: {doing} failed: {type(error).__name__}")


class Contacts:
    """How the connections to a cluster fared, address by address; what is known when an error is put into words.

    Parameters
    ----------
    servers
        The addresses that the log's URL names; others are what brokers say of themselves.
    """

    def __init__(self, servers: Sequence[str]) -> None:
        self.servers = frozenset(servers)
        self.failed: dict[str, str] = {}

    def note(self, address: str, problem: str | None) -> None:
        """Note the last attempt at an address: what hindered it, or None where nothing did."""
        self.failed.pop(address, None)
        if problem is not None and len(self.failed) < _MOST_ADDRESSES:
            self.failed[address] = problem


def _whereabouts(url: str) -> str:
    """Say why a cluster cannot be reached, as far as it is known, with the remedy."""
    contacts = CONTACTS.get(_servers(url))
    failed = dict(contacts.failed) if contacts is not None else {}
    for address, problem in failed.items():
        if contacts is not None and address not in contacts.servers:
            return (
                f"a broker answers there and says that it is {address} (its advertised.listeners), and {problem}. Set "
                "them to what clients can reach"
            )
    for address, problem in failed.items():
        if problem == UNRESOLVED:
            return f"the name in {address} cannot be resolved from here: is this its address?"
    return "is the broker running, and is this its address?"


def _codec(text: str, url: str, doing: str) -> UserError:
    named = re.search("snappy|lz4|zstd|gzip", text)
    codec = named[0] if named else "a codec that is not known"
    package = _CODECS.get(codec)
    install = f"install what reads it (pip install {package}), and " if package else ""
    return UserError(
        f"{url}: what is on the topic is packed by {codec} ({doing}), by its setting compression.type or a producer's: "
        f"{install}let `murk topics` set compression.type=producer, by which nothing more is packed",
        code="MURK-KAFKA-001",
    )


def contacts_of(servers: Sequence[str]) -> Contacts:
    """Return what is kept of the connections to a cluster."""
    key = ",".join(servers)
    found = CONTACTS.get(key)
    if found is None:
        found = CONTACTS[key] = Contacts(servers)
        # Of what came first nobody asks any more.
        while len(CONTACTS) > _MOST_ADDRESSES:
            CONTACTS.pop(next(iter(CONTACTS)))
    return found


def _servers(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


def deleted(url: str, doing: str) -> str:
    """What to say where a topic is not there any more."""
    return (
        f"a topic of {url} is not there any more ({doing}): it was deleted. Nothing starts over by itself: "
        "restore it, or begin with a new log (docs/recover.md)"
    )


def _root(error: Exception) -> Exception:
    """Return the error for which the client refuses everything that comes after it."""
    for part in (*error.args, error.__cause__):
        if isinstance(part, errors.KafkaError):
            return _root(part)
    return error


def _named(error: Exception) -> str:
    """Names of what a refusal is about, where it gives names and not the broker's prose."""
    named = error.args[0] if error.args else ""
    names = sorted(map(str, named)) if isinstance(named, (set, frozenset)) else [str(named)]
    return f" {', '.join(names)}" if all(map(_NAME.fullmatch, names)) else ""


def _chain(error: BaseException) -> str:
    words = []
    at: BaseException | None = error
    while at is not None:
        words.append(f"{type(at).__name__}: {at}")
        at = at.__cause__ or at.__context__
    return "; ".join(words)


def _reason(text: str) -> str:
    for words in ("self-signed certificate", "Hostname mismatch", "has expired", "unable to get local issuer"):
        if words.lower() in text.lower():
            return words
    return "verification failed"
