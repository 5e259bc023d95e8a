"""Arrays that are wiped at the end of a scope, however it ends."""

import threading

import numpy as np
import pytest

from murk._internal.wiping import copied, empty, lasting, track, wiped, wiping


def full(size=3):
    array = empty(size)
    array.fill(7.0)
    return array


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, SystemExit])
def test_everything_of_a_scope_is_wiped_however_it_ends(error):
    made = []

    def work():
        with wiping():
            made.append(full())
            made.append(track(made[0] * 2.0))
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(error):
            work()
    assert [array.tolist() for array in made] == [[0.0] * 3] * 2
    # The next scope is not within one that is over.
    after = full()
    assert after.tolist() == [7.0] * 3


def test_an_inner_scope_wipes_its_own():
    with wiping():
        outer = full()
        with wiping():
            inner = full()
        assert (inner.sum(), outer.sum()) == (0.0, 21.0)
    assert outer.sum() == 0.0


def test_what_lasts_is_not_wiped():
    with wiping():
        with lasting():
            kept = full()
        own = full()
    assert (kept.sum(), own.sum()) == (21.0, 0.0)


def test_arrays_of_others_are_left_as_they_are():
    theirs, numbers = np.arange(6.0), [1.0, 2.0]
    with wiping():
        same, turned, made = copied(theirs), copied(theirs[::-1]), copied(numbers)
        assert same is theirs
    assert theirs.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert turned.sum() == made.sum() == 0.0
    assert numbers == [1.0, 2.0]


def test_random_bytes_are_wiped_though_they_cannot_be_written_to():
    with wiping():
        words = track(np.frombuffer(bytes(range(1, 17)), dtype=np.uint64))
        assert not words.flags.writeable
    assert words.tolist() == [0, 0]


def test_an_interrupt_while_wiping_leaves_nothing(monkeypatch):
    class Late(np.ndarray):
        def fill(self, value):
            if not Late.came:
                Late.came = True
                raise KeyboardInterrupt
            super().fill(value)

    Late.came = False
    with pytest.raises(KeyboardInterrupt), wiping():
        made = [track(np.full(2, 3.0).view(Late)) for _ in range(3)]
    assert [array.sum() for array in made] == [0.0] * 3


def test_threads_have_scopes_of_their_own():
    found = []

    def work():
        found.append(full())

    with wiping():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found[0].sum() == 21.0


def test_a_function_has_a_scope_and_gives_what_it_gives():
    made = []

    @wiped
    def work(size, *, more):
        made.append(full(size))
        return float(made[0].sum()) + more

    assert work(2, more=1.0) == 15.0
    assert made[0].sum() == 0.0
