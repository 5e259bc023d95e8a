"""Where each rule for copied rows begins to speak: just there, as plain Python with exact sums finds it."""

import math
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from murk.errors import UserError
from murk.populations import public_sample as overlap
from murk.populations.public_sample import (
    _is_clustered,
    _is_repetitive,
    _log_tail,
    _plain,
    _split_share,
    consecutive,
    distinct,
    in_order,
    rare,
)
from murk.populations.records.files import open_table, slices

UNLIKELY = math.log(1e-6)


def files(*counts: tuple[int, int, int]):
    """Two files with so many rows (the first number) that occur so often in the one and in the other."""
    each = [(own, public) for number, own, public in counts for _ in range(number)]
    return [
        np.repeat(np.arange(len(each), dtype=np.uint64), [pair[place] for pair in each]).astype(np.uint64)
        for place in (0, 1)
    ]


def improbable(count: int, of: int, chance: float) -> bool:
    """Whether so many of so many draws succeed, by Chernoff's bound, less often than once in a million."""
    share = count / of if of else 0.0
    if share <= chance:
        return False
    bound = share * math.log(share / chance)
    if count < of:
        bound += (1 - share) * math.log((1 - share) / (1 - chance))
    return -of * bound < UNLIKELY


def looks_rare(counts: list[tuple[int, int, int]]) -> bool:
    total = [sum(number * pair[place] for number, *pair in counts) for place in (0, 1)]
    kind = {pair: sum(number for number, *one in counts if tuple(one) == pair) for pair in product(range(3), repeat=2)}
    split, inside, outside = kind[1, 1], kind[2, 0], kind[0, 2]
    of, ratio = split + inside + outside, total[1] / total[0]
    if split < 5:
        return False
    alone, new = kind[1, 0] + kind[0, 1], sum(number * public for number, own, public in counts if not own)
    expected = 2 * ratio / (1 + ratio) ** 2
    if 2 * split > of * expected and improbable(alone - new, alone, 1 / (1 + ratio)):
        return True
    if inside:
        seen = math.sqrt(outside / inside)
    else:
        seen = math.inf if outside else ratio
    nearest = min(max(min(ratio, seen), 1.0), max(ratio, seen))
    expected = 2 / (nearest + 2 + 1 / nearest) if math.isfinite(nearest) else 0.0
    return improbable(split, of, expected)


SHAPES = [
    (inside, outside, own, public, often)
    for inside in (0, 3, 40)
    for outside in (0, 3, 40)
    for own, public in ((0, 0), (60, 3), (200, 9), (30, 90))
    for often in (0, 8)
]


def test_from_how_many_shared_rows_on_they_are_too_rare() -> None:
    """Over tables of rows by how often each file has them; which differ in the answer by one row somewhere."""
    flips = 0
    for inside, outside, own, public, often in SHAPES:
        found = []
        for split in (*range(1, 36), 60, 150):
            counts = [
                (split, 1, 1), (inside, 2, 0), (outside, 0, 2), (own, 1, 0), (public, 0, 1), (often, 2, 1),
                (often, 0, 3), (1, 3, 0), (1, 1, 4),
            ]  # fmt: skip
            found.append(rare(*files(*counts)))
            assert found[-1] == looks_rare(counts), counts
        flips += sum(one != other for one, other in pairwise(found))
    assert flips >= 40


def test_how_few_rows_of_its_own_give_a_part_away() -> None:
    """Where pairs are as in other people's files, by the rows that occur once in both: too few of them are its own."""
    for shared_twice, own, inside in ((35, 955, 300), (300, 955, 300), (300, 300, 100), (200, 1500, 400)):
        found = []
        for public in range(150):
            counts = [(45, 1, 1), (inside, 2, 0), (own, 1, 0), (shared_twice, 2, 1), (public, 0, 1), (3, 0, 3)]
            found.append(rare(*files(*counts)))
            assert found[-1] == looks_rare(counts), counts
        assert sum(one != other for one, other in pairwise(found)) == 1


def test_people_of_whom_one_in_a_hundred_is_alike_are_hardly_alike() -> None:
    for alike in (1, 2):
        assert distinct(*files((180 - 2 * alike, 1, 0), (alike, 2, 0), (20, 1, 1), (9, 0, 1))) == (alike == 1)


def test_four_shared_rows_are_too_few_to_tell_whatever_the_counts_say() -> None:
    for shared in (4, 5):
        assert rare(*files((1000, 1, 0), (shared, 1, 1))) == (shared == 5)


def test_thirty_two_runs_in_order_are_a_copy() -> None:
    mine = np.repeat(np.arange(100, dtype=np.uint64), 3)
    for runs in (31, 32):
        assert consecutive(mine, mine[29 : 29 + 1 + 3 * runs + 2]) == (runs == 32)


def test_a_column_tells_where_a_tenth_of_its_values_or_two_differ() -> None:
    for rows, values, tells in ((20, 2, True), (20, 3, False), (40, 4, True), (40, 5, False), (2, 2, True)):
        assert _is_repetitive(np.arange(rows, dtype=np.uint64) % np.uint64(values)) == tells


def test_a_value_is_the_same_however_it_is_written() -> None:
    for one, other in ((" yes ", "yes"), ("30", 30), (" 30.0 ", 30), (True, 1), ("nan", float("nan")), (None, "None")):
        assert _plain(one) == _plain(other)
    assert _plain("nan") == 0
    assert len({_plain(value) for value in ("yes", "no", "Yes", 30, 31, 10**400, "y es")}) == 7


def test_which_row_of_a_long_file_is_wrong(tmp_path: Path) -> None:
    """However many are read at once."""
    (tmp_path / "people.csv").write_text("age\n" + "30\n" * 6 + "30,1\n")
    table = open_table(tmp_path / "people.csv", ["age"])
    assert [list(numbers) for numbers, _ in slices(table, 2)] == [[0, 1], [2, 3], [4, 5], [6]]
    with pytest.raises(UserError, match="row 7: 2 cells"):
        [table.columns(records, numbers, ["age"]) for numbers, records in slices(table, 2)]


def test_from_how_many_coincidences_on_people_who_are_hardly_alike_are_refused() -> None:
    for alike, public, theirs in product((0, 1, 2), (0, 3), (40, 100, 160)):
        found = []
        for shared in range(40):
            mine_and_theirs = files(
                (300 - 2 * alike - shared, 1, 0), (alike, 2, 0), (shared, 1, 1), (public, 0, 2), (theirs - shared, 0, 1)
            )
            sizes = [len(rows) for rows in mine_and_theirs]
            split = 2 * sizes[0] * sizes[1] / sum(sizes) ** 2
            too_many = shared > 4 * (alike + public) * split / (1 - split) and 2 * alike <= 0.01 * sizes[0]
            assert distinct(*mine_and_theirs) == too_many
            found.append(too_many)
        assert (True in found) == (2 * alike <= 3)
        assert not found[0]


@pytest.mark.parametrize(("count", "of", "chance"), [(7, 7, 0.3), (9, 20, 0.25), (1, 3, 0.001), (999, 1000, 0.5)])
def test_the_bound_of_a_tail(count: int, of: int, chance: float) -> None:
    """No less than the binomial tail itself, and the best of its kind: E exp(t (X - count)) at its minimum."""
    tail = math.log(math.fsum(math.comb(of, k) * chance**k * (1 - chance) ** (of - k) for k in range(count, of + 1)))
    t = np.linspace(0.0, 30.0, 300_001)
    best = float(np.min(of * np.log(1 - chance + chance * np.exp(t)) - t * count))
    assert _log_tail(count, of, chance) == pytest.approx(best, rel=1e-4)
    assert _log_tail(count, of, chance) >= tail
    assert _log_tail(count, of, count / of) == _log_tail(0, 0, chance) == 0.0


def test_the_chance_that_a_pair_is_split() -> None:
    """Of two rows among own + public, drawn without order: one of each, 2 own public / (own + public)^2."""
    for own, public in ((1, 1), (3, 1), (100, 7), (7, 100)):
        assert _split_share(public / own) == pytest.approx(2 * own * public / (own + public) ** 2, rel=1e-14)


def test_from_how_many_equal_neighbours_on_a_file_is_sorted() -> None:
    """Six standard deviations and six more than in any order, of 4 values that are equally frequent."""
    for each in (10, 50):
        count = 4 * each
        expected = (count - 1) / 4
        rng = np.random.default_rng(8)
        seen = set()
        for cuts in range(4, count):
            # Runs of one value, in so many pieces.
            parts = np.array_split(np.repeat(np.arange(4, dtype=np.uint64), each), cuts)
            rows = np.concatenate([parts[place] for place in rng.permutation(cuts)])
            equal = int(np.sum(rows[1:] == rows[:-1]))
            wanted = equal > expected + 6 * math.sqrt(expected) + 6
            assert _is_clustered(rows) == wanted
            seen.add(wanted)
        assert seen == {True, False}
    assert not _is_clustered(np.arange(30, dtype=np.uint64))


@pytest.mark.parametrize("values", [2, 4, 20])
def test_from_how_many_rows_on_a_part_in_order_is_one(values: int) -> None:
    """Where exp(t n) E exp(-t W)^k falls below one in a million: the waiting time W for a value of share 1 / values."""
    rng = np.random.default_rng(values)
    mine = rng.permutation(np.repeat(np.arange(values, dtype=np.uint64), 400 // values))
    share, t = 1 / values, np.logspace(-6, 1, 20_000)
    met = np.log(share * np.exp(-t) / (1 - (1 - share) * np.exp(-t)))
    counts = range(1, 401)
    bounds = [float(np.min(t * 400 + count * met)) for count in counts]
    found = []
    for count in counts:
        chosen = np.sort(rng.choice(400, count, replace=False))
        found.append(in_order(mine, mine[chosen]))
    clear = [place for place, bound in enumerate(bounds) if abs(bound - UNLIKELY) > 0.5]
    assert [found[place] for place in clear] == [bounds[place] < UNLIKELY for place in clear]
    assert len(clear) > 380
    assert {found[place] for place in clear} == {True, False}
    # One row of it in another place, or one that the people have not, and it is none.
    part = mine[np.sort(rng.choice(400, 390, replace=False))]
    assert in_order(mine, part)
    assert not in_order(mine, np.r_[part, np.uint64(values)])
    assert not in_order(mine, part[::-1])


def test_rows_are_mixed_as_splitmix64_mixes() -> None:
    """One to one, then: with its first outputs for the seed 0, as they are published."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    gamma, multiplier = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
    column = [(place * gamma - gamma * multiplier) % 2**64 for place in (1, 2, 3)]
    assert overlap._mixed([np.array(column, dtype=np.uint64)]).tolist() == published
    # Column after column, so that their order counts.
    again = [(place * gamma - found * multiplier) % 2**64 for place, found in enumerate(published, 1)]
    columns = [np.array(each, dtype=np.uint64) for each in (column, again)]
    assert overlap._mixed(columns).tolist() == published
    assert overlap._mixed(columns[::-1]).tolist() != published
