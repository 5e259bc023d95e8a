"""Which process of a run takes which files."""

from collections import OrderedDict

from tests.turns import ORDER, place, take, takes_waiting, waits

FILES = ["services/test_topics.py", "soak/test_soak.py", "test_docs.py", "stream/log/test_contract.py", "test_files.py"]


def taken(*kinds):
    """Which files are taken, one after the other, by processes that wait or compute."""
    queue = OrderedDict.fromkeys(f"tests/{name}" for name in FILES)
    found = []
    for waiting in kinds:
        take(queue, waiting)
        found.append(FILES.index(queue.popitem(last=False)[0].removeprefix("tests/")))
    return found


def test_files_that_wait_and_files_that_compute_are_taken_in_turn():
    assert [waits(name) for name in FILES] == [True, True, False, False, False]
    assert taken(True, False, True, False, False) == [0, 2, 1, 3, 4]


def test_who_has_none_left_of_a_kind_takes_the_other():
    assert taken(True, True, True, False, True) == [0, 1, 2, 3, 4]
    assert taken(False, False, False, False, True) == [2, 3, 4, 0, 1]


def test_half_of_the_processes_wait():
    assert [takes_waiting(f"gw{number}") for number in range(12)] == [True, False] * 6


def test_files_are_in_order():
    assert sorted(FILES, key=place) == FILES
    assert place("test_files.py") == len(ORDER)
