"""What the experiments of LDP-SGD measure by is right: slopes, loss gaps, the clipped root, and the paper's file."""

import numpy as np
import pytest

from murk.errors import UserError
from reproductions.experiment import Measured, Setting
from reproductions.ldp_sgd import COLUMNS
from reproductions.ldp_sgd.insurance import claims, coded, generated, records, stuck, verdict_of
from reproductions.ldp_sgd.mechanisms import halved, weighed
from reproductions.ldp_sgd.rates import (
    _falls,
    _steeper,
    distance_rates,
    gap_rates,
    largest,
    loose,
    relative,
    slopes,
    told_apart,
)
from reproductions.ldp_sgd.simulate import (
    ALPHAS,
    KNOWN,
    LEVELS,
    RUNS,
    at_least,
    distances,
    near_known,
    nearer,
    published,
    replicate,
    truth,
)
from reproductions.ldp_sgd.trajectories import LossGap
from reproductions.ldp_sgd.trajectories import verdict_of as averaging
from tests.reproduce import plain_ldp_sgd as plain


def test_the_slope_of_a_power_is_its_exponent():
    at = [1000, 2000, 5000, 10_000]
    curves = np.array(at, dtype=float) ** np.array([[-0.7], [-1.0]])
    found = slopes(at, np.array([curves, 2 * curves, 0.5 * curves]))
    assert [one.value for one in found] == pytest.approx([-0.7, -1.0, 0.3])
    assert [one.error for one in found] == pytest.approx([0.0] * 3, abs=1e-9)
    noisy = slopes(at, np.random.default_rng(1).exponential(curves, size=(50, 2, 4)))
    assert 0.01 < noisy[0].error < 0.2
    # Curves of independent runs: the difference has the errors of both. False alarm at 4 standard errors: 6e-5.
    assert noisy[2].error == pytest.approx(np.hypot(noisy[0].error, noisy[1].error), rel=0.5)
    assert abs(noisy[0].value + 0.7) < 4 * noisy[0].error


def test_the_error_of_a_difference_is_of_slopes_of_the_same_runs():
    at = [1000, 2000, 5000, 10_000]
    curve = np.random.default_rng(2).exponential(np.array(at, dtype=float) ** -0.5, size=(30, 4))
    _, _, order = slopes(at, np.stack([curve, curve / np.array(at) ** 0.5], axis=1))
    assert order.value == pytest.approx(0.5)
    assert order.error == pytest.approx(0.0, abs=1e-9)


def test_relative_orders_are_as_expected_or_no_less_than_bounds():
    assert relative("r", Measured(0.4, 0.05), 0.5, 0.5).holds
    # Off by .45: twice the .2, and within 4 standard errors beyond it or not.
    assert relative("r", Measured(0.95, 0.07), 0.5, 0.5).holds
    assert not relative("r", Measured(0.95, 0.06), 0.5, 0.5).holds
    assert not relative("r", Measured(0.05, 0.06), 0.5, 0.5).holds
    assert relative("R", Measured(0.2, 0.1), 1 / 3, None).holds
    assert not relative("R", Measured(0.2, 0.03), 1 / 3, None).holds
    assert relative("R", Measured(0.9, 0.03), 1 / 3, None).holds
    assert "at least 0," in relative("R", Measured(0.9, 0.03), 5.5e-17, None).found


def test_a_slope_fails_where_it_is_off_beyond_its_noise_and_not_by_the_seed():
    # The slope at 1/4 is about -.43 in the last decade of a million: with a standard error of .09 it strays across
    # -.45, the rate's -.25 less .2, by the seed alone. One that is off by more than .2 and 4 standard errors fails.
    for value in (-0.43, -0.55, -0.25, -0.1):
        assert _falls(1 / 4, "iterate", Measured(value, 0.09), -0.25).holds
    assert not _falls(1 / 4, "iterate", Measured(-0.82, 0.09), -0.25).holds
    assert not _falls(1 / 4, "iterate", Measured(0.32, 0.09), -0.25).holds
    assert not _falls(1 / 4, "iterate", Measured(-0.55, 0.02), -0.25).holds
    found = _falls(1 / 4, "iterate", Measured(-0.43, 0.09), -0.25).found
    assert "within 0.2 and 4 standard errors, 0.36" in found
    # Below 1/2 an average's is anything from its bias' to that of noise.
    assert _falls(1 / 4, "average", Measured(-0.8, 0.02), -0.5).holds
    assert not _falls(1 / 4, "average", Measured(-1.3, 0.02), -0.5).holds
    assert not _falls(1 / 4, "average", Measured(-0.2, 0.02), -0.5).holds


def test_a_rising_loss_gap_is_not_taken_for_a_falling_one():
    for value in (-0.3, 0.1):
        assert _steeper(1 / 3, "iterate", Measured(value, 0.1), gap_rates(1 / 3)[0]).holds
    assert not _steeper(1 / 3, "iterate", Measured(0.1, 0.02), gap_rates(1 / 3)[0]).holds


def test_an_error_is_compared_as_far_as_its_noise_allows():
    theirs = Measured(0.016, 0.001)
    assert weighed(Measured(0.007, 0.004), theirs) == "not distinguishable from 0.016 ± 0.001"
    assert weighed(Measured(0.005, 0.0003), theirs) == "below 0.016 ± 0.001"
    assert weighed(Measured(0.050, 0.0003), theirs) == "above 0.016 ± 0.001"


def test_a_ratio_is_measured_by_the_means_of_logarithms():
    # A geometric mean of 2.5 and of 1.5, whatever the means are.
    noise = np.exp(np.tile([-1.0, 1.0], 8))
    assert at_least("it", np.ones(16), 2.5 * noise, 2.0).holds
    assert not at_least("it", np.ones(16), 1.5 * noise, 2.0).holds
    assert at_least("it", np.ones(16), 2.5 * noise, 2.0).found.startswith("2.5 times")


def test_neighbouring_decay_rates_are_told_apart_by_four_standard_errors():
    def slopes_of(error):
        return {alpha: (Measured(-alpha, error),) * 3 for alpha in (1 / 4, 1 / 3, 1 / 2)}

    assert "in 0." in told_apart(slopes_of(0.09))
    assert "in 1." in told_apart(slopes_of(0.02))
    assert "in 2." in told_apart(slopes_of(0.01))


def test_verdicts_on_rates_turn_with_their_numbers():
    assert "are loose" in loose(4, 4)
    assert "not seen to be loose" in loose(0, 4)
    half, third = (
        {alpha: Measured(float(alpha == best), 0.1) for alpha in (1 / 3, 1 / 2, 2 / 3)} for best in (1 / 2, 1 / 3)
    )
    assert largest(half, third).startswith("Seen:")
    assert largest(half, half).startswith("Seen in part")
    assert largest(third, half).startswith("Not seen")


def test_rates_meet_where_their_cases_do():
    for alpha in (1 / 2, 2 / 3):
        for rates in (distance_rates, gap_rates):
            assert rates(alpha - 1e-9) == pytest.approx(rates(alpha + 1e-9), abs=1e-6)
    assert gap_rates(1 / 3) == pytest.approx((0.0, -1 / 3))


@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_the_loss_gap_is_zero_at_the_truth_and_grows_with_the_square(kind):
    gap, target = LossGap(kind, 3), truth(kind, 3)
    move = np.random.default_rng(2).normal(size=(5, len(target)))
    assert gap(target[None])[0] == 0.0
    near, far = gap(target + 0.01 * move), gap(target + 0.02 * move)
    assert np.all(near > 0.0)
    assert far / near == pytest.approx(np.full(5, 4.0), rel=0.1)


def test_the_papers_file_is_coded_as_the_paper_says(tmp_path):
    assert coded("exercise_frequency", ["Never", "Occasionally", "Rarely", "Frequently"]).tolist() == [0, 1, 2, 3]
    assert coded("medical_history", ["", "None", "High blood pressure", "Heart disease"]).tolist() == [0, 0, 1, 3]
    assert coded("bmi", ["21.5"]).tolist() == [21.5]
    with pytest.raises(UserError, match="column smoker has values that"):
        coded("smoker", ["sometimes"])
    with pytest.raises(UserError, match="row 2, column age: not a number"):
        coded("age", ["old"])
    words = {
        "gender": "female", "smoker": "no", "region": "southwest", "medical_history": "Diabetes",
        "family_medical_history": "", "exercise_frequency": "Rarely", "occupation": "Blue collar",
        "coverage_level": "Premium",
    }  # fmt: skip
    lines = [",".join(COLUMNS)]
    for row in range(40):
        lines.append(",".join(words.get(name, str(20 + row % 7)) for name in COLUMNS))
    path = tmp_path / "insurance.csv"
    path.write_text("\n".join(lines) + "\n")
    found = records(Setting(data=path))
    assert found.X.shape == (40, 11)
    assert found.X[0, [1, 4, 5, 6, 7, 8, 9, 10]].tolist() == [0, 0, 3, 2, 0, 2, 2, 2]
    assert found.X[:, 0].mean() == pytest.approx(0.0, abs=1e-12)
    assert set(found.classes.tolist()) == {0, 1, 2}


def test_the_stand_in_has_the_papers_columns():
    columns = generated(500, np.random.default_rng(3))
    assert set(columns) == set(COLUMNS)
    assert all(len(values) == 500 for values in columns.values())


def test_the_stand_in_says_how_much_it_explains():
    whole = records(Setting(size="tiny"))
    # By least squares on its own columns, to the third digit.
    rows = np.column_stack([whole.X, np.ones(len(whole.X))])
    left = whole.charges - rows @ np.linalg.lstsq(rows, whole.charges, rcond=None)[0]
    assert whole.explained == pytest.approx(1.0 - left.var(), abs=0.002)


def ends(**changed):
    """Losses after the last person by which all that is said of figure 7 is so: 5 shuffles, (iterate, average)."""
    found = {}
    for place, level in enumerate(LEVELS):
        for alpha in ALPHAS:
            loss = 20.0 if alpha == 1.0 else (0.6 if level == "mu = 0.5" else 0.1 - 0.01 * place) + abs(alpha - 1 / 2)
            found[level, alpha] = np.tile([loss, loss * (1.1 if alpha >= 1 / 2 else 0.9)], (5, 1))
    return found | changed


STARTS = np.full(5, 21.0)


def test_what_is_said_of_insurance_is_seen_by_its_numbers():
    what = "mean squared error"
    assert verdict_of("On it", what, ends(), STARTS).startswith("Seen (on it)")
    turned = {
        0: {("mu = 1", 1 / 2): np.tile([11.0, 12.0], (5, 1))},
        1: {("mu = 2", 2 / 3): np.tile([0.3, 0.2], (5, 1))},
        2: {("mu = 3", 1 / 3): np.tile([0.02, 0.01], (5, 1))},
        3: {("mu = 2", 1.0): np.tile([2.0, 3.0], (5, 1))},
    }
    for place, change in turned.items():
        found = [seen for _, seen, _ in claims(what, ends() | change, STARTS)]
        assert not found[place]
        assert verdict_of("On it", what, ends() | change, STARTS).startswith("Seen in part")
    # Of cross-entropy the paper has the iterate best at 1/3, which is not so here.
    assert [seen for _, seen, _ in claims("cross-entropy", ends(), STARTS)] == [True, False, False, True]


def test_a_rate_that_learns_fails_the_check_of_alpha_1():
    assert stuck(ends(), STARTS).holds
    assert not stuck(ends() | {("mu = 2", 1.0): np.tile([2.0, 3.0], (5, 1))}, STARTS).holds


def test_averaging_is_judged_by_what_the_figure_is_of():
    rng = np.random.default_rng(5)

    def found(gain):
        return {
            (5, level, alpha): np.exp(rng.normal(0, 0.1, (10, 2, 1))) * np.array([[1.0], [1.0 / gain]])
            for level in LEVELS
            for alpha in ALPHAS
        }

    better, worse = found(5.0), found(0.2)
    assert averaging("linear", better, worse).startswith("Seen that")
    assert averaging("logistic", better, worse).startswith("Not seen")
    assert averaging("logistic", worse, better).startswith("Seen that")
    one = {key: worse[key] if key == (5, "mu = 1", 1 / 2) else each for key, each in better.items()}
    assert averaging("linear", one, worse).startswith("Seen in part")
    assert "behind at mu = 1, alpha = 1/2." in averaging("linear", one, worse)


@pytest.mark.parametrize(("kind", "level"), list(KNOWN))
@pytest.mark.parametrize("place", [0, 1])
def test_numbers_that_are_half_or_twice_the_known_fail(kind, level, place):
    # Logarithms scatter by about 0.7: 64 of them have a standard error of 0.09, a quarter of log 1.5. False alarm 1e-4.
    found = np.exp(KNOWN[kind, level][place].value + 0.7 * np.random.default_rng(6).normal(size=RUNS))
    assert near_known(kind, level, place, found).holds
    assert not near_known(kind, level, place, 2.0 * found).holds
    assert not near_known(kind, level, place, 0.5 * found).holds


def test_half_the_noise_has_half_the_error():
    ratio = np.exp(0.8 * np.random.default_rng(7).normal(size=64))
    assert halved(ratio / 2, np.ones(64)).holds
    assert not halved(ratio, np.ones(64)).holds


def test_nearer_is_decided_by_paired_logarithms():
    rng = np.random.default_rng(8)
    shared = np.exp(2.0 * rng.normal(size=10))
    assert nearer("it is", shared, 1.5 * shared * np.exp(0.1 * rng.normal(size=10))).holds
    assert not nearer("it is", shared, shared[::-1]).holds
    assert not nearer("it is", shared, 1.5 * shared, times=2.0).holds


@pytest.mark.filterwarnings("ignore:.* targets are beyond:murk.errors.DataWarning")
@pytest.mark.parametrize("kind", ["linear", "logistic"])
def test_the_independent_simulation_is_of_the_same_algorithm(kind):
    """Means of logarithms after 1,500 people, over 40 runs and 400: within 4.5 standard errors (false alarm 3e-5).

    The twin is at mu = 0.5 in place of 2.
    """
    setting, level = Setting(), "mu = 2"
    makers = {level: lambda seed: published(kind, 5, LEVELS[level], seed)}
    mine = np.log(distances(replicate(setting, kind, 5, makers, [1500], 40)[level], truth(kind, 5))[:, :, -1])
    for mu, same in ((2.0, True), (0.5, False)):
        other = np.log(plain.distances(kind, 5, mu, 1500, 400, seed=9)).T
        error = np.hypot(mine.std(axis=0) / np.sqrt(40), other.std(axis=0) / np.sqrt(400))
        assert bool(np.all(np.abs(mine.mean(axis=0) - other.mean(axis=0)) < 4.5 * error)) == same
