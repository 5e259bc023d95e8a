"""Translate errors of brokers and of kafka-python into Murk's."""

from __future__ import annotations

import math
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kafka import errors

from murk.errors import MurkError, UserError
from murk.stream.log.interface import FencedError, UnreachableError

_ERROR_CODE = "MURK-KAFKA-001"

REFUSED = "MURK-KAFKA-003"
UNRESOLVED = "this name cannot be resolved from here"
CONTACTS: dict[str, Contacts] = {}  # contacts with each cluster, by its servers
_MOST_ADDRESSES = 64
_PRESENT = 60.0  # seconds after its last answer for which a broker counts as reachable
_CODECS = {"snappy": "python-snappy", "lz4": "lz4", "zstd": "zstandard"}
"""Packages that the library decompresses with, by codec."""

_UNREACHABLE = (
    errors.KafkaTimeoutError,
    errors.KafkaConnectionError,
    errors.NodeNotReadyError,
    errors.RetriableError,
    errors.BrokerNotAvailableError,
)
# A broker that wakes from a pause may abort a transaction for its time-out while its owner commits it; one that was
# killed may not know the previous batch.
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
def translate_errors(url: str, doing: str, *, apart: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Translate the library's errors, except types in ``apart``; ``doing`` is what failed, as in "reading partition 0".

    Raises `UnreachableError` if a retry may help; `UserError` if credentials, certificates or rights are wrong;
    `FencedError` if a transactional producer was fenced; `MurkError` for all other errors.
    """
    try:
        yield
    except apart:
        raise
    except (errors.KafkaError, ssl.SSLError) as error:
        raise translate(error, url, doing) from error


def translate(error: Exception, url: str, doing: str) -> MurkError:
    """Return Murk's error for an error of the library; it never contains a credential."""
    error = _root(error)
    if isinstance(error, _FENCED):
        return FencedError(f"another worker has taken over while {doing} of {url}")
    if isinstance(error, errors.AuthorizationError):
        return UserError(
            f"{url}: the broker denies this user access to {_RESOURCES.get(type(error), 'a resource')}"
            f"{_resource_names(error)} ({doing}): grant the rights that docs/deploy.md lists",
            code="MURK-KAFKA-002",
        )
    text = _partition(error)
    if isinstance(error, errors.SaslAuthenticationFailedError) or "SaslAuthenticationFailed" in text:
        return UserError(f"{url}: the broker refuses user name or password: check MURK_KAFKA_* settings", code=REFUSED)
    if isinstance(error, ssl.SSLError) or "CERTIFICATE_VERIFY_FAILED" in text:
        return UserError(
            f"{url}: the broker's certificate cannot be verified ({_reason(text)}): check ssl.ca.file and host name",
            code=REFUSED,
        )
    if isinstance(error, errors.UnsupportedSaslMechanismError):
        return UserError(f"{url}: the broker does not offer this sasl.mechanism: set one that it offers", code=REFUSED)
    if isinstance(error, (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError)):
        return MurkError(deleted(url, doing), code="MURK-LOG-006")
    if isinstance(error, errors.UnsupportedCodecError):
        return _codec(text, url, doing)
    if isinstance(error, _UNREACHABLE):
        return UnreachableError(f"{url} cannot be reached ({doing}): {_contact_problem(url)}")
    # The library raises a bare KafkaError for an error that it did not expect: a retry shows the actual state.
    if isinstance(error, _BROKER_FAULTS) or type(error) is errors.KafkaError:
        return UnreachableError(f"{url}: the broker reported an internal error ({doing}): see its log")
    return MurkError(f"{url}: {doing} failed: {type(error).__name__}")


class Contacts:
    """Outcome of the last attempt to connect to each address of a cluster; ``servers`` are those in the log's URL."""

    def __init__(self, servers: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.servers = frozenset(servers)
        self.failed: dict[str, str] = {}
        self._answered, self._clock = -math.inf, clock

    def note(self, address: str, problem: str | None) -> None:
        """Note the last attempt at an address: its problem, or None if it succeeded."""
        self.failed.pop(address, None)
        if problem is not None and len(self.failed) < _MOST_ADDRESSES:
            self.failed[address] = problem
        if problem is None and address in self.servers:
            self._answered = self._clock()

    @property
    def answers(self) -> bool:
        """Whether a server of the URL has answered within `_PRESENT` seconds, and not every server has failed since."""
        return self._clock() - self._answered < _PRESENT and not self.servers <= self.failed.keys()


def _contact_problem(url: str) -> str:
    """Return why a cluster cannot be reached, as far as known, and the remedy."""
    contacts = CONTACTS.get(url.partition("://")[2].partition("/")[0], Contacts(()))
    failed = dict(contacts.failed)
    for address, problem in failed.items():
        if address not in contacts.servers and contacts.answers:
            remedy = "Set advertised.listeners to an address that clients can reach"
            answer = f"a broker answers there and says that it is {address} (its advertised.listeners)"
            return f"{answer}, but {problem}. {remedy}"
    servers = contacts.servers or failed.keys()
    unresolved = next((each for each in failed if failed[each] == UNRESOLVED and each in servers), None)
    if unresolved is not None:
        return f"the name in {unresolved} cannot be resolved from here: is this its address?"
    return "is the broker running, and is this its address?"


def _codec(text: str, url: str, doing: str) -> UserError:
    match = re.search("snappy|lz4|zstd|gzip", text)
    codec = match[0] if match else "an unknown codec"
    package = _CODECS.get(codec)
    install = f"install its package (pip install {package}), and " if package else ""
    return UserError(
        f"{url}: the topic has messages that are compressed with {codec} and cannot be read here ({doing}): {install}"
        f"run `murk topics TASK --log {url}`, which sets compression.type=producer for new messages",
        code="MURK-KAFKA-001",
    )


def contacts_of(servers: Sequence[str]) -> Contacts:
    """Return the record of contacts with a cluster, which is created on first use."""
    key = ",".join(servers)
    contacts = CONTACTS.get(key)
    if contacts is None:
        contacts = CONTACTS[key] = Contacts(servers)
        while len(CONTACTS) > _MOST_ADDRESSES:
            CONTACTS.pop(next(iter(CONTACTS)))
    return contacts


def deleted(url: str, doing: str) -> str:
    """Return the message about a topic that was deleted."""
    return (
        f"a topic of {url} was deleted ({doing}). Murk does not start over by itself: restore the topic, or begin with "
        "a new log (docs/recover.md)"
    )


def _root(error: Exception) -> Exception:
    """Return the original error, because of which the library refuses all later requests."""
    for part in (*error.args, error.__cause__):
        if isinstance(part, errors.KafkaError):
            return _root(part)
    return error


def _resource_names(error: Exception) -> str:
    """Return the names of topics or groups in a refusal; empty if it holds a sentence of the broker instead."""
    named = error.args[0] if error.args else ""
    names = sorted(map(str, named)) if isinstance(named, (set, frozenset)) else [str(named)]
    return f" {', '.join(names)}" if all(map(_NAME.fullmatch, names)) else ""


def _partition(error: BaseException) -> str:
    words = []
    at: BaseException | None = error
    while at is not None:
        words.append(f"{type(at).__name__}: {at}")
        at = at.__cause__ or at.__context__
    return "; ".join(words)


def _reason(text: str) -> str:
    reasons = ("self-signed certificate", "Hostname mismatch", "has expired", "unable to get local issuer")
    return next((words for words in reasons if words.lower() in text.lower()), "verification failed")
