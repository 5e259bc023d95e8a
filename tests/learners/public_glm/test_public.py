"""Public covariates: from wherever they are, read once; what they must be."""

import gzip
import math

import numpy as np
import pandas as pd
import pytest

from murk.errors import UserError
from murk.learners import LDPSGDRegressor
from murk.learners.public_sample import KEPT, PublicSample
from murk.privacy import GaussianDP
from murk.protocols.moments.statistics import normal_norm_bound
from murk.protocols.rows import Rows

ROWS = np.random.default_rng(1).uniform(-1, 1, (300, 2))
RECORDS = [{"b": float(b), "a": float(a)} for a, b in ROWS]


def forms(tmp_path):
    plain, packed = tmp_path / "rows.csv", tmp_path / "rows.csv.gz"
    text = "note,b,a\n" + "".join(f"x,{row['b']!r},{row['a']!r}\n" for row in RECORDS)
    plain.write_text(text)
    packed.write_bytes(gzip.compress(text.encode()))
    return [ROWS, pd.DataFrame(ROWS, columns=["a", "b"])[["b", "a"]], RECORDS, iter(RECORDS), plain, str(packed)]


def test_every_form_reads_the_same(tmp_path):
    whole = np.column_stack([ROWS, np.ones(300)])
    for public in forms(tmp_path):
        sample = PublicSample.read(public, ["a", "b"])
        assert np.array_equal(sample.rows, ROWS)
        assert (sample.names, sample.total) == (("a", "b"), 300)
        np.testing.assert_allclose(sample.moment, whole.T @ whole / 300, rtol=1e-12)


def test_names_by_default():
    assert PublicSample.read(ROWS).names == (0, 1)
    sample = PublicSample.read(RECORDS)
    assert sample.names == ("a", "b")
    assert PublicSample.read(sample) is sample
    turned = PublicSample.read(sample, ["b"])
    assert np.array_equal(turned.rows, ROWS[:, 1:])
    np.testing.assert_allclose(turned.moment, sample.moment[1:, 1:])


def test_memory_stays_bounded_and_the_draw_is_even():
    n = 3 * KEPT
    rows = np.arange(n, dtype=float)[:, None] / n
    sample = PublicSample.read({"a": float(value)} for value in rows[:, 0])
    assert (len(sample.rows), sample.total) == (KEPT, n)
    assert len(np.unique(sample.rows)) == KEPT
    assert sample.moment[0, 0] == pytest.approx(np.mean(rows**2))
    # An even draw's mean is within 5 of its standard errors but once in 10^6 runs; the first KEPT rows' is not.
    error = math.sqrt(1 / 12 / KEPT)
    assert abs(sample.rows.mean() - 0.5) < 5 * error
    assert abs(rows[:KEPT].mean() - 0.5) > 5 * error
    assert np.array_equal(PublicSample.read(rows).rows, sample.rows)


@pytest.mark.parametrize("most", [100, 5_000, 10**9])
def test_rows_are_copied_at_most_twice_and_the_argument_is_left_as_it_is(monkeypatch, most):
    """Otherwise the time would grow with the square of their number."""
    copied, concatenate = [], np.concatenate

    def counted(parts):
        copied.append(sum(map(len, parts)))
        return concatenate(parts)

    few = 10  # numpy's own: the generator's seed is an array of one number
    rows = np.arange(40_000.0)[:, None]
    monkeypatch.setattr(np, "concatenate", counted)
    sample = PublicSample.read(rows, most=most)
    assert sum(copied) <= 2 * min(most, len(rows)) + few
    assert np.array_equal(rows[:, 0], np.arange(40_000.0))
    assert len(np.unique(sample.rows)) == min(most, len(rows))


def test_an_iterator_is_read_once_also_by_clones():
    arguments = {"guarantee": GaussianDP(1.0), "seed": 1}
    whole = LDPSGDRegressor(features=["a", "b"], public=RECORDS, **arguments)
    for features in (["a", "b"], None):
        learner = LDPSGDRegressor(features=features, public=iter(RECORDS), **arguments)
        for each in (learner, learner.clone(), learner.clone()):
            each.learn_one({"a": 0.1, "b": 0.2}, 0.5)
            moment = each._settings.second_moment
            np.testing.assert_array_equal(moment, whole._settings.second_moment)


@pytest.mark.parametrize("value", [None, "text", float("nan"), float("inf")])
def test_a_value_that_is_no_number_is_named_by_its_place(value):
    with pytest.raises(UserError, match="row 2, column 'a'"):
        PublicSample.read([{"a": 1.0}, {"a": value}])
    with pytest.raises(UserError, match="row 2, column 'a'"):
        PublicSample.read(pd.DataFrame({"a": [1.0, value]}))


@pytest.mark.parametrize(
    ("public", "names", "message"),
    [
        ([{"a": 1.0}], ["a", "c"], "no column 'c'; there are: a"),
        (pd.DataFrame({"a": [1.0]}), ["c"], "no column 'c'"),
        (ROWS, ["a"], "2 columns and the learner 1"),
        (ROWS[0], None, r"\(n, k\) array of numbers"),
        (np.array([["a"]]), None, r"\(n, k\) array of numbers"),
        ([], ["a"], "no rows"),
        (ROWS[:0], None, "no rows"),
        ([1.0], None, "mapping"),
        (7, None, "type int"),
        ("/nowhere/rows.csv", None, "cannot be read"),
        (PublicSample.read(RECORDS), ["c"], "no column 'c'"),
    ],
)
def test_public_data_of_another_kind_are_refused(public, names, message):
    with pytest.raises(UserError, match=message):
        PublicSample.read(public, names)


def test_a_file_that_is_none_is_refused(tmp_path):
    for name, content in (
        ("a.csv", b"a\n\xff\xfe\n"),
        ("b.csv.gz", b"\x1f\x8bno gzip at all"),
        ("c.csv.gz", gzip.compress(b"a\n1\n")[:-4]),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=name):
            PublicSample.read(tmp_path / name)


def test_clipped_rows_have_the_moment_of_what_was_clipped():
    rows = PublicSample.read(np.array([[3.0, 4.0], [0.3, 0.4]])).coded(clipping_norm=10.0, gain=1.0, constant=True)
    clipped = rows.clipped(1.0)
    np.testing.assert_allclose(clipped.second_moment, clipped.points.T @ clipped.points / 2)
    assert (clipped.total, rows.clipped(math.inf).total) == (None, 2.0)
    assert np.abs(clipped.second_moment - rows.second_moment).max() > 1


def test_public_rows_are_held_to_the_bound_as_peoples_are():
    sample = PublicSample.read(np.array([[3.0, 4.0], [0.3, 0.4]]))
    held = sample.coded(clipping_norm=1.0, gain=2.0, constant=True)
    np.testing.assert_allclose(held.points, [[1.2, 1.6, 1], [0.6, 0.8, 1]])
    np.testing.assert_allclose(held.second_moment, held.points.T @ held.points / 2)
    wide = sample.coded(clipping_norm=10.0, gain=1.0, constant=False)
    np.testing.assert_allclose(wide.second_moment, sample.moment[:2, :2])


def test_spread_is_the_mean_variance_of_an_entry():
    points = np.column_stack([ROWS, np.ones(300)])
    found = Rows(points, np.full(300, 1 / 300), 300.0, points.T @ points / 300)
    entries = points[:, :, None] * points[:, None, :]
    assert found.spread == pytest.approx(entries.var(axis=0).mean())


def test_normal_vectors_stay_within_their_reach():
    """1,000 sets of 1,000 vectors: at most 5% may have one beyond; 5 standard errors more is 8.5%."""
    rng = np.random.default_rng(3)
    root = np.array([[1.0, 0.0], [0.5, 0.2]])
    clipping_norm = normal_norm_bound(root @ root.T, people=1000, failure=0.05)
    longest = [np.linalg.norm(rng.normal(size=(1000, 2)) @ root.T, axis=1).max() for _ in range(1000)]
    assert np.mean(np.array(longest) > clipping_norm) < 0.085
    # The paper's is never smaller; half the reach does not do.
    assert normal_norm_bound(root @ root.T, 1000, published=True) > clipping_norm
    assert np.mean(np.array(longest) > clipping_norm / 2) > 0.085


def test_other_learners_refuse_public_covariates_without_a_feature_too():
    rows = pd.DataFrame(RECORDS)[["a"]]
    with pytest.raises(UserError, match="no column 'b'"):
        LDPSGDRegressor(guarantee=GaussianDP(1.0), features=["a", "b"], seed=1, public=rows)
