"""Who learns what: computed for all by one of them, with few moves, and under names that come back."""

import errno
import socket
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import LeaderNotAvailableError, RetriableError

from murk.errors import UserError
from murk.stream.log.kafka.connection.members import Assignor, share
from murk.stream.log.kafka.membership import Slot, check_name

PARTITIONS = range(7)


def settled(owned):
    """What members have once all moves are over; each of them lets go before another one gets it."""
    for _ in range(2):
        found = share(PARTITIONS, owned)
        given_away = [partition for have in found.values() for partition in have]
        assert len(given_away) == len(set(given_away))
        for member, have in found.items():
            # Its own, or nobody's.
            assert all(one in owned[member] or not any(one in before for before in owned.values()) for one in have)
        owned = found
    assert share(PARTITIONS, owned) == owned
    return owned


@given(st.lists(st.sets(st.sampled_from(PARTITIONS)), min_size=1, max_size=9), st.randoms())
def test_all_is_shared_out_evenly_and_little_moves(claims, rng):
    members = {f"m{number}": have for number, have in enumerate(claims)}
    found = settled(members)
    assert sorted(partition for have in found.values() for partition in have) == list(PARTITIONS)
    sizes = sorted(map(len, found.values()))
    assert sizes[-1] - sizes[0] <= 1
    # One more, and then one less: nothing moves between those who stay but what evenness asks for.
    more = settled({**found, "new": []})
    assert all(set(more[member]) <= set(have) for member, have in found.items())
    leaver = rng.choice(list(found))
    rest = {member: have for member, have in found.items() if member != leaver}
    if rest:
        less = settled(rest)
        assert all(set(have) <= set(less[member]) for member, have in rest.items())


def test_who_is_started_again_and_again_is_the_last_to_be_given_more():
    assert share([0, 1, 2], {"old": [0], "new": [1]}) == {"old": [0, 2], "new": [1]}
    assert share([0, 1, 2], {"new": [1], "old": [0]}) == {"new": [1, 2], "old": [0]}


def member(name, topic, since, have):
    entries = [SimpleNamespace(topic=topic, partitions=have)] if have else []
    metadata = SimpleNamespace(topics=[topic], user_data=since, owned_partitions=entries)
    return SimpleNamespace(member_id=name, metadata=metadata)


def cluster(partitions, asked):
    return SimpleNamespace(partitions_for_topic=lambda topic: partitions, request_update=lambda: asked.append("update"))


def test_age_is_what_members_say_of_themselves():
    members = [member("a", "t", b"200", [1]), member("b", "t", b"100", [0]), member("c", "t", b"", None)]
    found = Assignor(list).assign(cluster({0, 1, 2, 3, 4}, []), members)
    assert {name: one.assigned_partitions for name, one in found.items()} == {
        "b": [("t", [0, 3])], "a": [("t", [1, 4])], "c": [("t", [2])]
    }  # fmt: skip


def test_a_new_member_asks_again_where_a_partition_was_left_to_nobody():
    asked = []
    moving = [member("old", "t", b"1", [0, 1]), member("new", "t", b"2", None)]
    done = [member("old", "t", b"1", [0]), member("new", "t", b"2", None)]
    unfinished, finished = (Assignor(list).assign(cluster({0, 1}, []), members)["old"] for members in (moving, done))
    for said, often in (([unfinished, unfinished], 1), ([finished, unfinished], 0)):
        assignor = Assignor(list, lambda: asked.append("again"))
        for one in said:
            assignor.on_assignment(one, 1)
        assert len(asked) == often
        asked.clear()


@pytest.mark.parametrize("partitions", [None, set()])
def test_a_broker_that_knows_of_no_partition_yet_is_asked_again(partitions):
    asked = []
    with pytest.raises(LeaderNotAvailableError) as raised:
        Assignor(list).assign(cluster(partitions, asked), [member("a", "t", b"1", None)])
    assert isinstance(raised.value, RetriableError)
    assert asked == ["update"]


def test_a_slot_is_free_again_once_its_process_has_ended():
    first, second, other = Slot("murk-test-slots"), Slot("murk-test-slots"), Slot("murk-test-others")
    try:
        assert (first.number, second.number, other.number) == (0, 1, 0)
        assert check_name(first.name).endswith("-0")
    finally:
        first.close()
    again = Slot("murk-test-slots")
    assert again.number == 0
    for one in (second, other, again):
        one.close()


def test_without_such_sockets_there_is_no_name(monkeypatch):
    def refuse(*arguments):
        raise OSError(errno.EAFNOSUPPORT, "no")

    monkeypatch.setattr(socket, "socket", refuse)
    slot = Slot("murk-test-slots")
    assert (slot.number, slot.name) == (None, None)


@pytest.mark.parametrize("host", ["läptop.local", "x" * 300])
def test_any_machine_has_a_name(monkeypatch, host):
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    slot = Slot("murk-test-hosts")
    slot.close()
    assert check_name(slot.name) == slot.name


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250, "a\n"])
def test_names_that_a_broker_refuses_are_refused(name):
    with pytest.raises(UserError, match="letters"):
        check_name(name)
