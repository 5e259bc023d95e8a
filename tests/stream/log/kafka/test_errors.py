"""What the client library's errors become."""

import ssl

import pytest
from kafka import errors

from murk.errors import MurkError, UserError
from murk.stream.log.interface import FencedError, UnreachableError
from murk.stream.log.kafka.connection.errors import (
    CONTACTS,
    UNRESOLVED,
    Contacts,
    contacts_of,
    translate,
    translate_errors,
)
from murk.stream.log.kafka.connection.network import Address, explain
from murk.stream.log.kafka.connection.settings import Settings

URL = "kafka://host:9092/x"
SECRET = "hunter2-S3CR3T"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (errors.KafkaTimeoutError(SECRET), UnreachableError, "cannot be reached (reading)"),
        (errors.KafkaConnectionError(SECRET), UnreachableError, "is the broker running"),
        (errors.NotLeaderForPartitionError(), UnreachableError, "cannot be reached"),
        (errors.CoordinatorNotAvailableError(), UnreachableError, "cannot be reached"),
        (errors.SaslAuthenticationFailedError(SECRET), UserError, "refuses user name or password"),
        (errors.UnsupportedSaslMechanismError(SECRET), UserError, "sasl.mechanism"),
        (errors.TopicAuthorizationFailedError({"b", "a"}), UserError, "to the topic a, b (reading): grant"),
        (errors.TopicAuthorizationFailedError("a"), UserError, "to the topic a (reading)"),
        (errors.TopicAuthorizationFailedError(f"prose: {SECRET}"), UserError, "to the topic (reading)"),
        (errors.GroupAuthorizationFailedError("g"), UserError, "to the consumer group g (reading)"),
        (errors.TransactionalIdAuthorizationFailedError(), UserError, "to the transactional id (reading)"),
        (errors.ClusterAuthorizationFailedError(), UserError, "docs/deploy.md"),
        (errors.ProducerFencedError(), FencedError, "another worker"),
        (errors.InvalidProducerEpochError(), FencedError, "another worker"),
        (errors.UnknownTopicOrPartitionError(), MurkError, "was deleted (reading)"),
        (errors.KafkaConnectionError("Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
                                     "self-signed certificate"), UserError, "(self-signed certificate): check ssl.ca"),
        (ssl.SSLCertVerificationError("Hostname mismatch, certificate is not valid"), UserError, "(Hostname mismatch)"),
        (ssl.SSLCertVerificationError("certificate has expired"), UserError, "(has expired)"),
        (
            errors.KafkaError(f"Unhandled error in EndTxnResponse: {errors.UnknownError()}"),
            UnreachableError,
            "internal error",
        ),
        (errors.KafkaError(errors.InvalidTxnStateError()), UnreachableError, "internal error (reading)"),
        (errors.OutOfOrderSequenceNumberError(), UnreachableError, "internal error (reading)"),
        (errors.UnknownProducerIdError(), UnreachableError, "internal error (reading)"),
        (errors.TransactionAbortableError(), UnreachableError, "internal error (reading)"),
        (errors.KafkaError(SECRET), MurkError, "internal error"),
        (errors.UnsupportedCodecError("Libraries for zstd compression codec not found"), UserError, "zstandard"),
        (errors.UnsupportedCodecError("Libraries for snappy compression codec not found"), UserError, "with snappy"),
        (errors.UnsupportedCodecError(SECRET), UserError, "compression.type=producer"),
    ],
)  # fmt: skip
def test_errors(error, kind, words):
    with pytest.raises(MurkError) as caught, translate_errors(URL, "reading"):
        raise error
    assert type(caught.value) is kind or kind is MurkError
    text = str(caught.value)
    assert words in text
    assert URL in text
    assert "\n" not in text
    assert SECRET not in text


def test_the_reason_behind_an_error_counts():
    # A producer that was refused once says only that it is in an error state.
    refused = errors.TransactionalIdAuthorizationFailedError()
    outer = errors.KafkaError("in an error state")
    outer.__cause__ = refused
    assert "transactional id" in str(translate(outer, URL, "committing"))
    assert "transactional id" in str(translate(errors.KafkaError(refused), URL, "committing"))


def test_a_missing_topic_was_deleted():
    found = translate(errors.UnknownTopicOrPartitionError(), URL, "reading")
    assert "was deleted (reading)" in str(found)
    assert found.code == "MURK-LOG-006"


def test_errors_that_are_ours_and_nobody_s_pass():
    for error in (UserError("x"), UnreachableError("x"), ValueError("x")):
        with pytest.raises(type(error), match="x"), translate_errors(URL, "reading"):
            raise error


def test_nobody_at_the_address_is_no_matter_of_settings():
    for protocol in ("PLAINTEXT", "SSL"):
        settings = Settings(security_protocol=protocol)
        assert explain(Address.parse("kafka://127.0.0.1:1"), settings, URL) is None


REFUSED_NOW = "it cannot be connected to from here (ECONNREFUSED)"


@pytest.mark.parametrize(("notes", "words", "unsaid"), [
    ({"host:9092": None, "inner:1": UNRESOLVED},
     "says that it is inner:1 (its advertised.listeners), but this name cannot be", "running"),
    ({"host:9092": None, "inner:1": "it cannot be connected to from here (ECONNREFUSED)"},
     "it is inner:1 (its advertised", "running"),
    ({"host:9092": UNRESOLVED}, "the name in host:9092 cannot be resolved from here", "running"),
    ({"host:9092": "it cannot be connected to from here (ECONNREFUSED)"}, "is the broker running", "advertised"),
    # It answered once, and is away now, as is the broker behind the other address.
    ({"host:9092": REFUSED_NOW, "inner:1": REFUSED_NOW}, "is the broker running", "advertised"),
    ({"inner:1": REFUSED_NOW}, "is the broker running", "advertised"),
    ({}, "is the broker running", "advertised"),
])  # fmt: skip
def test_why_a_cluster_cannot_be_reached_is_what_was_found(notes, words, unsaid):
    """And not a guess: a broker that was reached is running."""
    try:
        for url in (URL, "kafka://host:9092", "kafka://a:1,host:9092/y"):
            contacts = contacts_of(Address.parse(url).servers)
            for address, problem in notes.items():
                contacts.note(address, problem)
            text = str(translate(errors.KafkaTimeoutError(), url, "reading"))
            assert words in text
            assert unsaid not in text
            for address in notes:
                contacts.note(address, None)
            assert "is the broker running" in str(translate(errors.KafkaTimeoutError(), url, "reading"))
    finally:
        CONTACTS.clear()


def test_an_answer_of_long_ago_is_no_present_contact():
    """An advertised address that worked fails with everything else, once the brokers are away."""
    now = [0.0]
    contacts = Contacts(["host:9092"], lambda: now[0])
    contacts.note("host:9092", None)
    assert contacts.answers
    now[0] = 3_600.0
    assert not contacts.answers
    contacts.note("host:9092", None)
    contacts.note("host:9092", UNRESOLVED)
    assert not contacts.answers


def test_what_is_kept_of_contacts_is_bounded():
    try:
        for number in range(1000):
            contacts_of([f"host:{number}"])
        assert len(CONTACTS) <= 64
        contacts = contacts_of(["host:1"])
        for number in range(1000):
            contacts.note(f"other:{number}", UNRESOLVED)
        assert len(contacts.failed) <= 64
    finally:
        CONTACTS.clear()
