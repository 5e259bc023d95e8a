"""Where a log is: its URL."""

import pytest

from murk.errors import UserError
from murk.stream import open_log
from murk.stream.log.kafka.connection.network import Address

SECRET = "hunter2-S3CR3T"


@pytest.mark.parametrize(
    ("url", "servers", "name"),
    [
        ("kafka://localhost:9092", ("localhost:9092",), None),
        (
            "kafka://a.example-1.org:1,10.0.0.2:65535/third-child",
            ("a.example-1.org:1", "10.0.0.2:65535"),
            "third-child",
        ),
        ("kafka://[::1]:9092/x", ("[::1]:9092",), "x"),
    ],
)
def test_good_urls(url, servers, name):
    found = Address.parse(url)
    assert (found.servers, found.name) == (servers, name)
    assert found.url(name) == url


@pytest.mark.parametrize(
    "rest",
    [
        "", "/", "localhost", "localhost:", ":9092", "localhost:0", "localhost:65536", "localhost:99999999",
        "localhost:9092,", ",localhost:9092", "localhost:9092;other:9092", "localhost:9092/", "localhost:9092/Big",
        "localhost:9092/a/b", "localhost:9092/-a", "localhost:9092/a_b", "localhost:9092/" + 101 * "a",
        "local host:9092", "localhost:9092?x=1", "localhost:９０９２",
    ],
)  # fmt: skip
def test_bad_urls(rest):
    with pytest.raises(UserError, match=r"kafka://HOST:PORT"):
        Address.parse(f"kafka://{rest}")


@pytest.mark.parametrize(
    "url",
    [
        f"kafka://user:{SECRET}@localhost:9092/x",
        f"kafka://{SECRET}@localhost:9092",
        f"kafka://localhost:9092/{SECRET}@x",
        f"kafka://localhost:{SECRET}",
        f"kafka://localhost:9092/?password={SECRET}",
        f"kafka:/user:{SECRET}@localhost:9092",
        f"http://user:{SECRET}@localhost:9092",
    ],
)
def test_no_error_repeats_a_credential(url):
    with pytest.raises(UserError) as caught:
        open_log(url)
    at = caught.value
    while at is not None:
        assert SECRET not in str(at)
        at = at.__cause__ or at.__context__


def test_credentials_in_a_url_are_refused_with_the_remedy():
    with pytest.raises(UserError, match="MURK_KAFKA_CONFIG"):
        Address.parse(f"kafka://user:{SECRET}@localhost:9092")
