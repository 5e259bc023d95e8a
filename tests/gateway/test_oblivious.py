"""Requests through a relay: the RFC's example, keys, what is refused where, limits, and a foreign client."""

import json
import logging
import re
import stat
from ipaddress import ip_network

import numpy as np
import pytest

from murk import Task
from murk.errors import MurkError, UserError
from murk.gateway import app
from murk.gateway.app import Settings
from murk.gateway.oblivious import ObliviousKeys, Repeated, UnopenedError
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import ModelMessage
from tests.cli.harness import finish, refused
from tests.cli.harness import murk as run
from tests.gateway.devices import Client, announced, honest, release, serving, stored, task, wire
from tests.gateway.relayed import Foreign, Sealed, ask, decoded, message, relaying
from tests.gateway.test_command import begun

BASE = "/v1/tasks/third-child"
RELEASES = f"{BASE}/releases"
KIND = {"Content_Type": "message/ohttp-req"}
JSON = {"content-type": "application/json"}

# RFC 9458, appendix A.
SECRET = bytes.fromhex("3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a")
CONFIGURATION = "01002031e1f05a740102115220e9af918f738674aec95f54db6e04eb705aae8e79815500080001000100010003"
ENC_REQUEST = bytes.fromhex(
    "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec96c208b4726374e469135906992e"
    "1268c594d2a10c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525"
)
NONCE = "c789e7151fcba46158ca84b04464910d"
ENC_RESPONSE = NONCE + "86f9013e404feea014e7be4a441f234f857fbd"


def keys(*identifiers: int) -> ObliviousKeys:
    """Keys of which nobody keeps secrets."""
    return ObliviousKeys([(identifier, bytes((identifier + 1,)) * 32) for identifier in identifiers])


def test_the_example_of_the_rfc():
    oblivious = ObliviousKeys([(1, SECRET)])
    # Media type `application/ohttp-keys`: the configuration after its length.
    assert oblivious.configuration.hex() == "002d" + CONFIGURATION
    opened = oblivious.open(ENC_REQUEST)
    assert opened.message.hex() == "00034745540568747470730b6578616d706c652e636f6d012f"
    assert opened.seal(bytes.fromhex("0140c8"), bytes.fromhex(NONCE)).hex() == ENC_RESPONSE
    # A nonce of its own for each answer, since a relay may send the request again.
    assert opened.seal(b"a")[:16] != opened.seal(b"a")[:16]
    assert all(secret not in repr((oblivious, opened)) for secret in (SECRET.hex(), repr(SECRET)))


@pytest.mark.parametrize("place", range(len(ENC_REQUEST)))
def test_a_changed_byte_is_noticed(place):
    changed = bytearray(ENC_REQUEST)
    changed[place] ^= 1
    with pytest.raises(UnopenedError) as error:
        ObliviousKeys([(1, SECRET)]).open(bytes(changed))
    assert error.value.key


def test_short_and_degenerate_requests():
    oblivious = ObliviousKeys([(1, SECRET)])
    for length in range(len(ENC_REQUEST)):
        with pytest.raises(UnopenedError) as error:
            oblivious.open(ENC_REQUEST[:length])
        assert error.value.key == (length >= 55)
    # A point of small order makes the shared secret public.
    with pytest.raises(UnopenedError):
        oblivious.open(ENC_REQUEST[:7] + bytes(32) + ENC_REQUEST[39:])


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    """A task, its log, and a gateway with two keys and without a limit of requests."""
    of = task()
    url = announced(tmp_path_factory.mktemp("oblivious"), of)
    with serving(url, settings=Settings(rate=0, keys=keys(7, 200))) as gateway:
        yield of, url, gateway


@pytest.mark.parametrize("aead", [1, 3])
def test_the_same_endpoints_with_the_same_rules(door, aead):
    of, url, gateway = door
    with Client(gateway.url) as client:
        answer = ask(client, "GET", BASE, aead=aead)
        assert (answer.status, answer.body) == (200, of.document())
        assert answer.headers["murk-task-hash"] == of.hash
        assert ask(client, "GET", BASE, {"if-none-match": answer.headers["etag"]}, aead=aead).status == 304
        head = ask(client, "HEAD", BASE, aead=aead)
        assert (head.body, head.headers["content-length"]) == (b"", str(len(of.document())))
        assert ask(client, "GET", f"{BASE}/model?partition=0", aead=aead).status == 204
        assert ask(client, "GET", "/v1/tasks/third%2Dchild", aead=aead).status == 200
        assert {"/ohttp", "/ohttp-keys"} <= ask(client, "GET", "/openapi.json", aead=aead).json["paths"].keys()
        before = len(stored(url))
        data = wire(release(of))
        # Sent twice, as a relay may: one release.
        for _ in range(2):
            answer = ask(client, "POST", RELEASES, JSON, data, aead=aead)
            assert (answer.status, answer.json) == (202, {"accepted": 1, "refused": []})
        assert stored(url)[before:] == [data]
        several = b"[" + b",".join([wire(release(of)), wire(release(of, level="unknown"))]) + b"]"
        assert ask(client, "POST", RELEASES, JSON, several, aead=aead).status == 207


def test_what_is_refused_within_is_said_within(door):
    of, _, gateway = door
    with Client(gateway.url) as client:
        for request, status, error in (
            (("GET", "/nothing"), 404, "not-found"),
            (("GET", "/v1/tasks/other"), 404, "unknown-task"),
            (("DELETE", BASE), 405, "method"),
            (("POST", RELEASES, {"content-type": "text/html"}, b"{}"), 415, "type"),
            (("POST", RELEASES, JSON, b"[]"), 400, "malformed"),
            (("POST", RELEASES, JSON, wire(release(of, task="1" * 64))), 409, "wrong-task"),
            (("GET", BASE, {"Capital": "x"}), 400, "malformed"),
            (("GET", BASE, {"expect": "100-continue"}), 400, "malformed"),
            (("GET", BASE, {"x": "y" * 17_000}), 413, "too-large"),
            (("HEAD", "/nothing"), 404, None),
            (("HEAD", RELEASES), 405, None),
            # No relay within a relay.
            (("POST", "/ohttp", {"content-type": "message/ohttp-req"}, b"x"), 404, "not-found"),
            (("GET", "/ohttp-keys"), 404, "not-found"),
        ):
            answer = ask(client, *request)
            found = answer.json["error"] if answer.body else None
            assert (answer.status, found) == (status, error), request
            assert not {"connection", "access-control-allow-origin"} & answer.headers.keys()
        sealed = Sealed(client.get("/ohttp-keys").body, message("GET", BASE)[1:])
        answer = client.ask("POST", "/ohttp", sealed.bytes, **KIND)
        assert decoded(sealed.open(answer.body)).json == {"error": "malformed"}


def test_a_fault_within_is_said_within_and_not_what_it_was(door, monkeypatch, caplog):
    def fault(*arguments):
        raise ZeroDivisionError("S3CR3T")

    with Client(door[2].url) as client, monkeypatch.context() as patch, caplog.at_level(logging.DEBUG):
        patch.setattr(app.GatewayApp, "_task_itself", fault)
        answer = ask(client, "GET", BASE)
    assert (answer.status, answer.json) == (500, {"error": "fault"})
    assert "S3CR3T" not in caplog.text


def test_what_is_refused_before_it_is_opened(door):
    _, _, gateway = door
    with Client(gateway.url) as client:
        configuration = client.get("/ohttp-keys").body
        sealed = Sealed(configuration, message("GET", BASE)).bytes
        for body, kind in ((sealed, "application/json"), (sealed, "message/bhttp")):
            answer = client.ask("POST", "/ohttp", body, Content_Type=kind)
            assert (answer.status, answer.json) == (415, {"error": "type"})
        for body in (b"", sealed[:20], sealed[:54]):
            answer = client.ask("POST", "/ohttp", body, **KIND)
            assert (answer.status, answer.json) == (400, {"error": "malformed"})
        for body in (
            b"\1" + sealed[1:],  # a key that there is not
            b"\xc8" + sealed[1:],  # another key
            sealed[:1] + b"\0\x10" + sealed[3:],  # P-256
            sealed[:3] + b"\0\2" + sealed[5:],  # HKDF-SHA384
            sealed[:5] + b"\0\2" + sealed[7:],  # AES-256-GCM
            sealed[:-1],
        ):
            answer = client.ask("POST", "/ohttp", body, **KIND)
            assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")
            assert answer.json["type"] == "https://iana.org/assignments/http-problem-types#ohttp-key"
        for method, path in (("GET", "/ohttp"), ("POST", "/ohttp-keys")):
            assert client.ask(method, path, b"x" if method == "POST" else None, **KIND).status == 405
        most = gateway._door._most + app._ROUND
        assert client.ask("POST", "/ohttp", bytes(most + 1), **KIND).status == 413


def test_keys_are_announced_and_older_ones_accepted(door):
    _, _, gateway = door
    with Client(gateway.url) as client:
        answer = client.get("/ohttp-keys")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/ohttp-keys")
        assert answer.body == keys(7).configuration
        assert "max-age=3600" in answer.headers["cache-control"]
        assert client.get("/ohttp-keys", If_None_Match=answer.headers["etag"]).status == 304
        old = Sealed(keys(200).configuration, message("GET", BASE))
        answer = client.ask("POST", "/ohttp", old.bytes, **KIND)
        assert decoded(old.open(answer.body)).status == 200


def test_without_keys_there_is_no_such_path(tmp_path):
    with serving(announced(tmp_path, task()), settings=Settings(rate=0)) as gateway, Client(gateway.url) as client:
        assert client.get("/ohttp-keys").json == {"error": "not-found"}
        assert client.ask("POST", "/ohttp", b"x", **KIND).status == 404


@pytest.mark.parametrize("features", [2, 3, 40])
def test_lengths_of_answers_are_alike_in_tasks_of_any_size(tmp_path, features):
    """A relay does not tell a published model from the answer to a release, or to a mistake."""
    columns = "".join(f"  - {{name: x{number}, low: 0, high: 1}}\n" for number in range(features))
    of = Task.parse(
        f"name: third-child\nfeatures:\n{columns}target: {{name: y, kind: binary, positive: p, negative: n}}\n"
        "privacy: {guarantee: {gdp: {mu: 1.0}}}\n"
    )
    url, device = announced(tmp_path, of), device_for(of)
    initial, version = device.initial, device.next_published(3_000)
    # Of as many digits as a learner's.
    learned = 0.99 * initial + 1e-5 * np.random.default_rng(1).random(len(initial))
    # The survey has ended.
    learned[-3:] = 0.0, 0.0, 1.0
    model = encode(ModelMessage(task=of.hash, partition=0, version=version, parameters=learned.tolist()))
    with open_log(url) as log:
        log.publish(0, model)
    data = wire(release(of))
    with serving(url, settings=Settings(rate=0, keys=keys(1))) as gateway, Client(gateway.url) as client:
        sizes = []
        for request, status, body in (
            (("POST", RELEASES, JSON, data), 202, b'{"accepted":1,"refused":[]}'),
            (("GET", "/nothing"), 404, b'{"error":"not-found"}'),
            (("GET", f"{BASE}/model"), 200, model),
        ):
            sealed = Sealed(client.get("/ohttp-keys").body, message(*request))
            answer = client.ask("POST", "/ohttp", sealed.bytes, **KIND).body
            within = decoded(sealed.open(answer))
            assert (within.status, within.body) == (status, body)
            sizes.append(len(answer))
    assert len(set(sizes)) == 1
    # Padded to whole blocks.
    assert (sizes[0] - 16 - 16) % 1_024 == 0


def test_a_token_goes_within(tmp_path):
    of = task()
    settings = Settings(rate=0, token="0123456789abcdef", keys=keys(1))
    with serving(announced(tmp_path, of), settings=settings) as gateway, Client(gateway.url) as client:
        assert ask(client, "GET", BASE).json == {"error": "unauthorized"}
        right = {"authorization": "Bearer 0123456789abcdef"}
        assert ask(client, "GET", BASE, right).status == 200
        assert ask(client, "POST", RELEASES, JSON | right, wire(release(of))).status == 202
        assert client.get(BASE).status == 401


def test_a_relay_has_no_limit_and_others_have(tmp_path):
    of = task()
    url = announced(tmp_path, of)
    batch = b"[" + b",".join(wire(release(of)) for _ in range(7)) + b"]"
    with serving(url, settings=Settings(rate=10, keys=keys(1))) as gateway, Client(gateway.url) as client:
        # One for the request, and the further six of its releases.
        assert ask(client, "POST", RELEASES, JSON, batch).status == 202
        # The further releases are counted within, to the address outside.
        assert ask(client, "POST", RELEASES, JSON, batch).json == {"error": "too-many"}
    with serving(url, settings=Settings(rate=10, keys=keys(1))) as gateway:
        statuses = []
        for _ in range(11):
            with Client(gateway.url) as client:
                statuses.append(client.ask("POST", "/ohttp", b"x", **KIND).status)
        assert statuses == [400] * 10 + [429]
    for network, last in (("127.0.0.0/30", 400), ("192.0.2.0/24", 429), ("::1/128", 429)):
        settings = Settings(rate=10, keys=keys(1), relays=(ip_network("2001:db8::/32"), ip_network(network)))
        with serving(url, settings=settings) as gateway:
            for _ in range(11):
                with Client(gateway.url) as client:
                    status = client.ask("POST", "/ohttp", b"x", **KIND).status
            assert status == last


def test_statuses_within_are_counted(tmp_path, monkeypatch):
    def away(*arguments):
        raise MurkError("the log is away")

    of = task()
    settings = Settings(rate=0, keys=keys(1))
    with serving(announced(tmp_path, of), settings=settings) as gateway, Client(gateway.url) as client:
        monkeypatch.setattr(SqliteLog, "append", away)
        answer = ask(client, "POST", RELEASES, JSON, wire(release(of)))
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert gateway._door.requests == {("", 200): 1, ("third-child", 503): 1}  # the keys, and the release


# A client that nobody here wrote


@pytest.mark.parametrize("mode", ["known", "indeterminate"])
def test_a_foreign_client_takes_part_through_a_relay(door, mode):
    of, url, gateway = door
    (data,) = honest(of, 1)
    with Client(gateway.url) as client:
        configuration = client.get("/ohttp-keys").body
    with relaying(gateway.url) as relay, Client(relay.url) as outer, Foreign(configuration) as foreign:
        answer = foreign.ask(outer, mode, "GET", BASE)
        assert (answer.status, answer.headers, answer.body) == (200, JSON, of.document())
        assert foreign.ask(outer, mode, "GET", f"{BASE}/model?partition=0").status == 204
        answer = foreign.ask(outer, mode, "POST", RELEASES, "content-type=application/json", content=data)
        assert (answer.status, answer.json) == (202, {"accepted": 1, "refused": []})
        assert foreign.ask(outer, mode, "GET", "/nothing").json == {"error": "not-found"}
        assert data in stored(url)
        assert not any(word in part for part in relay.seen for word in (data, of.hash.encode(), b"third", b"accepted"))


# Key files, and the command


def test_key_files_are_made_once_and_read_by_their_owner(tmp_path):
    new, old = str(tmp_path / "new.key"), str(tmp_path / "old.key")
    first = ObliviousKeys.load([old])
    assert stat.S_IMODE((tmp_path / "old.key").stat().st_mode) == 0o600
    assert re.fullmatch(r"murk ohttp key 1 \d{1,3} [0-9a-f]{64}\n", (tmp_path / "old.key").read_text())
    assert ObliviousKeys.load([old]).configuration == first.configuration
    both = ObliviousKeys.load([new, old])
    assert both.configuration != first.configuration
    assert both.configuration == ObliviousKeys.load([new]).configuration
    for configuration in (both.configuration, first.configuration):
        assert both.open(Sealed(configuration, b"x").bytes).message == b"x"
    with pytest.raises(UnopenedError):
        first.open(Sealed(both.configuration, b"x").bytes)


def test_a_new_key_has_an_identifier_of_its_own(tmp_path):
    paths = [str(tmp_path / f"{number}.key") for number in range(60)]
    configurations = {ObliviousKeys.load([path, *paths[:number]]).configuration for number, path in enumerate(paths)}
    assert len({configuration[2] for configuration in configurations}) == 60
    assert ObliviousKeys.load(paths).configuration[2] in range(256)


@pytest.mark.parametrize(
    "text", ["", "murk ohttp key 1 256 " + "0" * 64, "murk ohttp key 2 1 " + "0" * 64 + "\n", "1 " + "0" * 64 + "\n",
             "murk ohttp key 1 1 " + "0" * 63 + "\n", "murk ohttp key 1 1 " + "g" * 64 + "\n", "\xe4"]
)  # fmt: skip
def test_a_damaged_key_is_refused_and_not_replaced(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(UserError, match="is no key") as error:
        ObliviousKeys.load([str(path)])
    assert "0" * 60 not in str(error.value)
    assert path.read_text() == text


def test_keys_of_one_identifier_and_no_library(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="same identifier"):
        ObliviousKeys([(1, b"a" * 32), (1, b"b" * 32)])
    monkeypatch.setitem(__import__("sys").modules, "pyhpke", None)
    with pytest.raises(UserError, match=r'pip install .*\[ohttp\]"') as error:
        keys(1)
    assert error.value.code == "MURK-CLI-003"


def test_the_command_answers_relays_and_logs_nothing_of_them(tmp_path):
    of = task()
    url = announced(tmp_path, of)
    process, address = begun(url, tmp_path, "--ohttp-key", "new.key", "--relay", "192.0.2.0/24", "-v", "--log-json")
    with Client(address) as client:
        data = wire(release(of))
        assert ask(client, "POST", RELEASES, JSON, data).status == 202
        assert ask(client, "GET", "/S3CR3T").status == 404
        configuration = client.get("/ohttp-keys").body
    process.terminate()
    done = finish(process)
    assert done.status == 0
    assert not any(word in done.err for word in (json.loads(data)["id"], "S3CR3T", "ohttp", "127.0.0.1"))
    assert ObliviousKeys.load([str(tmp_path / "new.key")]).configuration == configuration


def test_wrong_options_are_refused(tmp_path):
    url = announced(tmp_path, task())
    (tmp_path / "damaged").write_text("x")
    for options, word in (
        (["--relay", "192.0.2.1"], "give --ohttp-key FILE"),
        (["--ohttp-key", "k", "--relay", "relay.example"], "write an address"),
        (["--ohttp-key", "k", "--relay", "192.0.2.1/24"], "write an address"),
        (["--ohttp-key", "damaged"], "is no key"),
        (["--ohttp-key", "nowhere/k"], "cannot be written"),
        (["--ohttp-key", "k", "--ohttp-key", "k"], "same identifier"),
    ):
        refused(run("gateway", "--log", url, "--port", 0, *options, folder=tmp_path), word)


def test_a_request_that_is_repeated_is_answered_once(door):
    """A relay keeps one and sends it again: nothing is stored, and no answer says what was in it."""
    of, url, gateway = door
    with Client(gateway.url) as client:
        content = wire(release(of))
        sealed = Sealed(client.get("/ohttp-keys").body, message("POST", RELEASES, JSON, content))
        first = client.ask("POST", "/ohttp", sealed.bytes, **KIND)
        assert decoded(sealed.open(first.body)).status == 202
        before = len(stored(url))
        again = client.ask("POST", "/ohttp", sealed.bytes, **KIND)
        assert (again.status, again.json) == (409, {"error": "repeated"})
        assert len(stored(url)) == before
        # The device itself encrypts anew, and is told that its release is there.
        assert ask(client, "POST", RELEASES, JSON, content).status == 202
        assert len(stored(url)) == before


def test_requests_are_remembered_for_as_long_as_asked_and_no_longer():
    now = [5.0]
    repeated = Repeated(1_600, lambda: now[0])
    assert not repeated.seen(b"one")
    for second in range(100, 1_601, 100):
        now[0] = 5.0 + second
        assert repeated.seen(b"one")
        assert not repeated.seen(b"%d" % second)
    now[0] += 200.0
    assert not repeated.seen(b"one")


def test_answers_have_one_length_with_a_model_or_without(tmp_path):
    """The length would tell a relay which request was a release."""
    of = task(protocol="gradients")
    url = announced(tmp_path, of)
    with open_log(url) as log:
        device = device_for(of)
        log.publish(0, encode(ModelMessage(task=of.hash, partition=0, version=0, parameters=device.initial.tolist())))
    with serving(url, settings=Settings(rate=0, keys=keys(7))) as gateway, Client(gateway.url) as client:
        lengths = set()
        for request in (
            ("GET", f"{BASE}/model?partition=0"),
            ("POST", RELEASES, JSON, wire(release(of))),
            ("GET", "/no"),
        ):
            sealed = Sealed(client.get("/ohttp-keys").body, message(*request))
            lengths.add(len(client.ask("POST", "/ohttp", sealed.bytes, **KIND).body))
        assert len(lengths) == 1
