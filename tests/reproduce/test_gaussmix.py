"""Verdicts and checks of the reproductions of GaussMix turn when their numbers do."""

import numpy as np
import pytest

from reproductions.experiment import Measured
from reproductions.gaussmix import regression as r
from reproductions.gaussmix.logistic import verdict_of as accuracies
from reproductions.gaussmix.records import subspace
from reproductions.gaussmix.thresholds import DELTA, analyses, kept, least_is

BEST_FIRST = [r.MURK, r.MIXING, r.NEW, r.ANALYTIC, r.ADASSP, r.SHEFFET, "zero"]


def errors(names, draws=10):
    """Each method's errors above those of the one before."""
    found = {name: {1.0: [place + 0.01 * draw for draw in range(draws)]} for place, name in enumerate(names, 1)}
    return {r.FEWER: found[r.MIXING], **found} if r.MIXING in found else found


def test_linear_mixing_outperforms_where_it_is_ahead_of_all_its_rivals():
    everywhere = r.verdict_of({"one": errors(BEST_FIRST), "two": errors(BEST_FIRST)})
    assert everywhere.startswith("Seen that")
    assert everywhere.endswith("all three on one, two.")
    last = [name for name in BEST_FIRST if name not in (r.MIXING, "zero")] + [r.MIXING, "zero"]
    somewhere = r.verdict_of({"one": errors(BEST_FIRST), "two": errors(last)})
    assert somewhere.startswith("Seen in part")
    assert "(corrected) on two," in somewhere
    assert r.verdict_of({"two": errors(last)}).startswith("Not seen")


def test_the_verdict_says_where_linear_mixing_is_behind_each_and_behind_nothing_at_all():
    last = errors([*(name for name in BEST_FIRST if name != r.MIXING), r.MIXING])
    first = errors(BEST_FIRST)
    first[r.FEWER], last[r.FEWER] = first[r.MIXING], {1.0: [99.0] * 10}
    said = r.verdict_of({"one": first, "two": last})
    assert "It is behind Sheffet on two, behind Sheffet, new analysis on two, behind AdaSSP on two," in said
    assert "behind predicting 0 on two, with k = 1.5 d on two." in said
    first[r.FEWER] = {1.0: [98.0] * 10}
    assert "with k = 1.5 d on one, two." in r.verdict_of({"one": first, "two": last})


def test_lines_are_named_by_the_column_that_they_are_of():
    found = errors([*BEST_FIRST, r.FEWER, "exact"])
    case = r.Case("one", lambda rng: None, "reduced")
    names = [line.name for line in r.panel(case, found).series]
    table = {row.what: row for row in r.rows_of(case, found | errors(r.PRINTED.values()))}
    assert "Sheffet, corrected" in names
    assert "Sheffet, new analysis, corrected" in names
    assert "AdaSSP, as printed" in names
    y = {line.name: line.y[0] for line in r.panel(case, found).series}
    assert y["Sheffet, corrected"] == table["one, Sheffet, k = 2.5 d"].corrected.value
    assert y["AdaSSP, as printed"] == table["one, AdaSSP"].as_published.value


def test_ahead_is_nine_of_ten_draws():
    found = errors([r.MIXING, r.NEW])
    found[r.MIXING][1.0][0] = 9.0
    assert r.ahead(found, r.MIXING, r.NEW)
    found[r.MIXING][1.0][1] = 9.0
    assert not r.ahead(found, r.MIXING, r.NEW)
    assert not r.ahead(found, r.NEW, r.MIXING)


def test_ratios_are_checked_against_the_independent_simulation():
    rng = np.random.default_rng(1)
    # Scaled errors have the same ratios; those of a rival that is 15% worse have not.
    draws = [{name: error * scale for name, error in r.SEEN.items()} for scale in rng.uniform(0.5, 2.0, 4)]
    assert all(check.holds for check in r.ratios(draws))
    worse = [{**draw, r.ADASSP: 1.15 * draw[r.ADASSP]} for draw in draws]
    assert [check.holds for check in r.ratios(worse)] == [name != r.ADASSP for name in r.RIVALS]


def test_both_adassps_allow_for_the_same_failure(monkeypatch):
    made = []

    class Kept(r.AdaSSP):
        def release(self, X, y, draws):
            made.append((self.failure, self.calibration))
            return super().release(X, y, draws)

    monkeypatch.setattr(r, "AdaSSP", Kept)
    rng = np.random.default_rng(2)
    r.errors(subspace(rng, features=16), 1.0, rng, 1, all_of=True)
    assert made == [(r.FAILURE, "published"), (r.FAILURE, "analytic")]


def test_uniform_records_have_the_spread_of_the_public_code():
    # y is the line's part plus uniform noise of variance 1/300: the part has variance 4 x its square on [-sqrt 12,
    # sqrt 12], 1/3 on [-1, 1]. Over 2,048 test records, 5 standard errors of a mean square are 20%.
    records = subspace(np.random.default_rng(3), uniform=True, features=16, line=0.25)
    assert records.unit * records.test[-1, -1] == pytest.approx(4.0 * 0.25 + 1 / 300, rel=0.2)


def test_analyses_are_seen_by_their_numbers():
    assert analyses([1.7, 3.9], 1.7, {3.0: 2 * DELTA}).startswith("Seen:")
    assert "not a bound at gamma = 3" in analyses([1.7, 3.9], 1.7, {3.0: 2 * DELTA, 10.0: DELTA / 2})
    assert analyses([0.9, 3.9], 1.7, {3.0: DELTA / 2}).startswith("Seen in part")
    assert "is a bound" in analyses([0.9, 0.8], 1.7, {3.0: DELTA / 2})
    assert analyses([0.9, 0.8], 1.7, {}).startswith("Not seen")
    assert "lemma 1's is 1.7 times the epsilon of a sketch's exact distribution" in analyses([1.7, 3.9], 1.7, {})


def test_formulas_keep_what_they_promise_or_do_not():
    assert "keep what they promise." in kept(1.9, 1.05, 0.5)
    assert "algorithm 1" in kept(1.9, 2.8, 0.5)
    assert "theorem 1" in kept(1.9, 1.0, 150.0)


def test_a_sketch_with_noise_of_another_size_fails_its_check():
    rng, g = np.random.default_rng(4), 2.84
    # 8,000 squares: a standard error of 1.6%, and 20% too much noise is 12 of them. False alarm: 6e-5.
    right, wrong = g * rng.normal(size=8000) ** 2, 1.2 * g * rng.normal(size=8000) ** 2
    assert least_is(g, Measured.mean(right)).holds
    assert not least_is(g, Measured.mean(wrong)).holds


def test_accuracies_are_seen_where_they_are_decided():
    ahead, behind, even = Measured(0.05, 0.01), Measured(-0.05, 0.01), Measured(0.02, 0.01)
    assert accuracies({"A": {1.0: [ahead] * 3}}).startswith("Seen on")
    mixed = accuracies({"A": {1.0: [ahead, even, ahead], 10.0: [behind, even, even]}})
    assert mixed.startswith("Seen in part")
    assert "it is so at epsilon = 1 for A, and less accurate at epsilon = 10 for A" in mixed
    assert "less at no epsilon." in mixed
    assert "epsilon = no" not in mixed
    assert accuracies({"A": {1.0: [even, even, even]}}).startswith("Not seen")


def test_on_a_file_each_rival_is_ahead_behind_or_neither():
    first = r.verdict_of_file("wine", errors([r.MIXING, *(name for name in BEST_FIRST if name != r.MIXING)]))
    assert first == (
        "Seen that LinearMixing outperforms its rivals on wine: at epsilon = 1, on nine of ten draws, it is ahead of "
        "Sheffet, Sheffet with the new analysis, AdaSSP."
    )
    mixed = errors([r.MURK, r.NEW, r.MIXING, r.SHEFFET, r.ANALYTIC, "zero"])
    mixed[r.ADASSP] = {1.0: mixed[r.MIXING][1.0][::-1]}
    found = r.verdict_of_file("wine", mixed)
    assert found.startswith("Seen in part")
    assert "ahead of Sheffet; behind Sheffet with the new analysis, Murk's second moments; neither" in found
    assert found.endswith("nor behind AdaSSP.")
    last = r.verdict_of_file("wine", errors([*(name for name in BEST_FIRST if name != r.MIXING), r.MIXING]))
    assert last.startswith("Not seen")
