"""The web device behind a relay, with a real gateway and its log: who sees what, and what a relay can do."""

import base64
import json

import pytest

from murk.gateway.app import Settings
from murk.gateway.oblivious import ObliviousKeys
from tests.devices import web
from tests.gateway.devices import announced, serving, stored, task
from tests.gateway.relayed import relaying

TOKEN = "0123456789abcdef"


def configuration(*identifiers):
    return ObliviousKeys([(identifier, bytes((identifier,)) * 32) for identifier in identifiers])


def pinned(keys):
    return base64.b64encode(keys.configuration).decode()


@pytest.fixture
def parties(tmp_path):
    """A log, the gateway before it and a relay before that."""
    of, keys = task(), configuration(3, 4)
    url = announced(tmp_path, of)
    with serving(url, settings=Settings(rate=0, keys=keys, token=TOKEN)) as gateway, relaying(gateway.url) as relay:
        yield of, url, gateway, relay


def released(gateway, relay, **options):
    given = {"gateway": gateway.url, "relay": relay.url, "task": "third-child", "token": TOKEN} | options
    return web.run("relay.mjs", json.dumps(given))


def test_the_relay_sees_no_content_and_the_gateway_no_address(parties):
    of, url, gateway, relay = parties
    done = released(gateway, relay, hash=of.hash, keys=pinned(configuration(3)))
    data = done["receipt"]["bytes"].encode()
    assert (done["receipt"]["outcome"], done["receipt"]["delivery"]) == ("released", "sent")
    assert stored(url) == [data]
    # The task, the model and the release, all through the relay, which adds no word of its own.
    assert done["asked"] == [relay.url] * 3
    assert gateway._door.requests == {("third-child", status): 1 for status in (200, 204, 202)}
    seen = b"\n".join(relay.seen)
    secrets = [TOKEN, of.hash, of.name, "authorization", "same_sex", "/v1/tasks", json.loads(data)["id"]]
    assert not [word for word in secrets if word.encode().lower() in seen.lower()]
    # It cannot tell them by the length of the request; the answers to the model and the release are alike as well.
    assert len({request for request, _ in relay.lengths}) == 1
    assert len({answer for _, answer in relay.lengths[1:]}) == 1


def test_keys_that_are_not_pinned_come_from_the_gateway(parties):
    _, url, gateway, relay = parties
    done = released(gateway, relay)
    assert done["receipt"]["delivery"] == "sent"
    assert done["asked"] == [f"{gateway.url}/ohttp-keys", relay.url, relay.url, relay.url]
    assert len(stored(url)) == 1


def test_keys_that_the_gateway_does_not_have(parties):
    _, url, gateway, relay = parties
    # An older key is still accepted.
    assert released(gateway, relay, keys=pinned(configuration(4)))["receipt"]["delivery"] == "sent"
    done = released(gateway, relay, keys=pinned(configuration(9)))
    assert done == {"refused": "unavailable", "asked": [relay.url]}
    assert released(gateway, relay, keys="AAAA") == {"refused": "keys", "asked": []}
    assert len(stored(url)) == 1


def test_nobody_can_make_a_device_ask_the_gateway_again(parties):
    """What it asks directly shows its address, and whose request came just before."""
    _, _, gateway, relay = parties
    problem = (400, "application/problem+json", b'{"type":"https://iana.org/assignments/http-problem-types#ohttp-key"}')
    relay.change = lambda *answer: answer if len(relay.lengths) < 3 else problem
    done = released(gateway, relay)
    assert done["receipt"]["delivery"] == "queued"
    assert done["asked"] == [f"{gateway.url}/ohttp-keys", *[relay.url] * 4]


def test_a_gateway_without_a_key_is_not_asked_again(parties):
    """A device that connects to a task that it knows: asked again, the key would come just before its release."""
    _, url, gateway, relay = parties
    done = released(gateway, relay, away=True)
    assert done["asked"] == [f"{gateway.url}/ohttp-keys"]
    assert stored(url) == []


REFUSAL = b'{"accepted":0,"error":"schema","refused":[{"index":0,"reason":"schema"}]}'


@pytest.mark.parametrize(
    "forged",
    [(202, "application/json", b'{"accepted":1,"refused":[]}'), (400, "application/json", REFUSAL),
     (410, "application/json", REFUSAL), (200, "message/ohttp-res", b"x" * 1_056),
     (200, "message/ohttp-res", b""), (202, "message/ohttp-res", None), (200, "message/ohttp-res", None)],
)  # fmt: skip
def test_a_relay_can_neither_confirm_nor_refuse_a_release(parties, forged):
    _, url, gateway, relay = parties
    status, kind, body = forged

    def change(*answer):
        if len(relay.lengths) < 3:
            return answer
        # None: the gateway's own answer, with one bit changed.
        return status, kind, answer[2][:-1] + bytes((answer[2][-1] ^ 1,)) if body is None else body

    relay.change = change
    done = released(gateway, relay, keys=pinned(configuration(3)))
    assert (done["receipt"]["outcome"], done["receipt"]["delivery"]) == ("released", "queued")
    assert done["waiting"] == ["queued"]
    # It was sent again, and counts once.
    assert stored(url) == [done["receipt"]["bytes"].encode()]
