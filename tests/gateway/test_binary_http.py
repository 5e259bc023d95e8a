"""Requests and answers in binary (RFC 9292): the RFC's examples, every form of one request, and hostile bytes."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from murk.gateway.binary_http import PADDING, InvalidMessageError, Request, decode_request, encode_response
from tests.gateway.relayed import decoded, integer, prefixed

# Section 5.1: known length, then indeterminate with ten bytes of padding.
FIELDS = (
    (b"user-agent", b"curl/7.16.3 libcurl/7.16.3 OpenSSL/0.9.7l zlib/1.2.3"),
    (b"host", b"www.example.com"),
    (b"accept-language", b"en, mi"),
)
HELLO = Request("GET", b"/hello.txt", FIELDS, b"")
KNOWN = bytes.fromhex(
    "0003474554056874747073000a2f68656c6c6f2e747874406c0a757365722d6167656e74346375726c2f372e31362e33"
    "206c69626375726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e3304686f73740f77"
    "77772e6578616d706c652e636f6d0f6163636570742d6c616e677561676506656e2c206d690000"
)
INDETERMINATE = bytes.fromhex(
    "0203474554056874747073000a2f68656c6c6f2e7478740a757365722d6167656e74346375726c2f372e31362e33206c"
    "69626375726c2f372e31362e33204f70656e53534c2f302e392e376c207a6c69622f312e322e3304686f73740f777777"
    "2e6578616d706c652e636f6d0f6163636570742d6c616e677561676506656e2c206d6900000000000000000000000000"
)


def short(number):
    """An integer in its shortest form."""
    for size in (1, 2, 4, 8):
        if number < 1 << (8 * size - 2):
            return (number | (size.bit_length() - 1) << (8 * size - 2)).to_bytes(size)
    raise ValueError(number)


def encoded(request, *, known, cuts=(), trailers=(), write=short, padding=0):
    """An encoder of these tests, with every freedom that the format leaves."""

    def text(data):
        return write(len(data)) + data

    def section(lines):
        joined = b"".join(text(name) + text(value) for name, value in lines)
        return text(joined) if known else joined + write(0)

    control = b"".join(map(text, (request.method.encode(), b"https", b"", request.target)))
    places = [0, *sorted({cut % (len(request.content) + 1) for cut in cuts}), len(request.content)]
    chunks = [request.content[a:b] for a, b in pairwise(places) if a < b]
    content = text(request.content) if known else b"".join(map(text, chunks)) + write(0)
    return write(0 if known else 2) + control + section(request.fields) + content + section(trailers) + bytes(padding)


def test_the_examples_of_the_rfc_and_what_may_be_cut_off():
    for cut in range(3):
        assert decode_request(KNOWN[: len(KNOWN) - cut], 200, 0) == HELLO
    for cut in range(13):
        assert decode_request(INDETERMINATE[: len(INDETERMINATE) - cut], 200, 0) == HELLO
    for whole, most in ((KNOWN, 2), (INDETERMINATE, 12)):
        for end in range(len(whole) - most):
            # Where the fields would begin, none is missing: that is a request without any.
            if end == whole.index(b"hello.txt") + 9:
                assert decode_request(whole[:end], 200, 0) == Request("GET", b"/hello.txt", (), b"")
            else:
                with pytest.raises(InvalidMessageError):
                    decode_request(whole[:end], 200, 0)


NAMES = st.sampled_from([b"content-type", b"authorization", b"x", b"if-none-match"])
VALUES = st.sampled_from([b"", b"a", b"a b", b"\xe4\t\xff", b"x" * 70])
REQUESTS = st.builds(
    Request,
    st.sampled_from(["GET", "POST", "OPTIONS"]),
    st.sampled_from([b"/", b"/v1/tasks?x=%20", b"/" + b"a" * 100]),
    st.lists(st.tuples(NAMES, VALUES), max_size=4).map(tuple),
    st.binary(max_size=80) | st.just(b"y" * 20_000),
)


@settings(max_examples=150, deadline=None)
@given(REQUESTS, st.booleans(), st.lists(st.integers(0, 100), max_size=3), st.integers(0, 9),
       st.sampled_from([short, integer]), st.lists(st.tuples(NAMES, VALUES), max_size=1))  # fmt: skip
def test_every_form_of_a_request_is_decoded(request, known, cuts, padding, write, trailers):
    data = encoded(request, known=known, cuts=cuts, padding=padding, write=write, trailers=trailers)
    assert decode_request(data, 2_000, 20_000) == request
    with pytest.raises(InvalidMessageError):
        decode_request(data + b"\1", 2_000, 20_000)
    if request.content:
        with pytest.raises(InvalidMessageError) as refused:
            decode_request(data, 2_000, len(request.content) - 1)
        assert refused.value.status == 413


def flawed(**changes):
    fields = {"method": "GET", "target": b"/", "fields": (), "content": b""} | changes
    return [encoded(Request(**fields), known=known) for known in (True, False)]


@pytest.mark.parametrize(
    "data",
    [b"", b"\1", b"\3", b"\xff" * 8, integer(2**62 - 1),
     *flawed(method="get"), *flawed(method=""), *flawed(method="GET /"), *flawed(method="A" * 17),
     *flawed(target=b""), *flawed(target=b"tasks"), *flawed(target=b"/a b"), *flawed(target=b"/\xe4"),
     *flawed(target=b"https://gateway.test/"), *flawed(target=b"*"), *flawed(target=b"/a\r\nb"),
     *(one for name in (b"X", b"a b", b"a\n", b"\xe4", b":", b":method", b":path", b":status", b"connection",
                        b"expect", b"transfer-encoding", b"upgrade")
       for one in flawed(fields=((name, b"1"),))),
     *(one for value in (b" a", b"a ", b"\ta", b"a\nb", b"a\r", b"a\0b", b"\n")
       for one in flawed(fields=((b"x", value),))),
     *flawed(fields=((b"a", b"1"), (b":protocol", b"2"))),
     flawed(fields=((b"", b"1"),))[0],
     encoded(HELLO, known=True, trailers=((b":protocol", b"1"),)),
     KNOWN.replace(b"https", b"ftps:")],
)  # fmt: skip
def test_other_messages_are_invalid(data):
    with pytest.raises(InvalidMessageError):
        decode_request(data, 200, 200)


def test_pseudo_fields_of_extensions_come_first():
    request = Request("GET", b"/", ((b":protocol", b"1"), (b"a", b"2")), b"")
    assert [decode_request(encoded(request, known=known), 200, 0) for known in (True, False)] == [request] * 2


@pytest.mark.parametrize("known", [True, False])
def test_heads_are_bounded(known):
    many = tuple((b"a", b"b") for _ in range(3_000))
    for request, trailers in (
        (Request("GET", b"/" + b"a" * 300, (), b""), ()),
        (Request("GET", b"/", ((b"a", b"b" * 300),), b""), ()),
        (Request("GET", b"/", many, b""), ()),
        (Request("GET", b"/", (), b""), many),
    ):
        data = encoded(request, known=known, trailers=trailers)
        decode_request(data, 20_000, 0)
        with pytest.raises(InvalidMessageError) as refused:
            decode_request(data, 300, 0)
        assert refused.value.status == 413


def test_content_in_many_parts_is_refused():
    """Each takes time in which a gateway answers nobody."""
    for number, status in ((1_024, None), (1_025, 413)):
        data = encoded(Request("POST", b"/", (), b"x" * number), known=False, cuts=range(number))
        if status is None:
            assert decode_request(data, 100, 5_000).content == b"x" * number
            continue
        with pytest.raises(InvalidMessageError) as refused:
            decode_request(data, 100, 5_000)
        assert refused.value.status == status


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=60) | st.tuples(st.sampled_from([KNOWN, INDETERMINATE]), st.integers(0, 130), st.binary(
    max_size=9), st.integers(0, 9)).map(lambda one: one[0][: one[1]] + one[2] + one[0][one[1] + one[3] :]))  # fmt: skip
@example(b"\0" + b"\xff" * 40)
@example(b"\2\3GET\5https\0\1/" + b"\xc0" + b"\0" * 7)
def test_hostile_bytes_are_invalid_or_a_request_within_bounds(data):
    try:
        request = decode_request(data, 150, 20)
    except InvalidMessageError:
        return
    assert len(request.content) <= 20
    assert sum(len(name) + len(value) for name, value in request.fields) + len(request.target) <= 150
    assert request.target.startswith(b"/")


def test_an_answer_is_padded_and_decoded():
    fields = {"ETag": '"x"', "Connection": "close", "Content-Type": "application/json"}
    for size in (0, 1, 63, 64, 1_024, 17_000):
        data = encode_response(202, fields, b"z" * size)
        assert len(data) % PADDING == 0
        assert len(data) < size + 80 + PADDING
        assert decoded(data) == (202, {"etag": '"x"', "content-type": "application/json"}, b"z" * size)


def test_prefixes_of_these_tests():
    assert [short(number).hex() for number in (63, 64, 15_293)] == ["3f", "4040", "7bbd"]
    assert prefixed(b"a") == bytes.fromhex("c00000000000000161")
