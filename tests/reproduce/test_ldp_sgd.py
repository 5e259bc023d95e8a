"""What the experiments of LDP-SGD measure by is right: slopes, loss gaps, the clipped root, and the paper's file."""

import numpy as np
import pytest

from murk.errors import UserError
from murk.reproduce.experiment import Setting
from murk.reproduce.ldp_sgd import COLUMNS
from murk.reproduce.ldp_sgd.insurance import coded, generated, records
from murk.reproduce.ldp_sgd.rates import distance_rates, gap_rates, slope
from murk.reproduce.ldp_sgd.simulate import truth
from murk.reproduce.ldp_sgd.trajectories import LossGap


def test_the_slope_of_a_power_is_its_exponent():
    at = [1000, 2000, 5000, 10_000]
    curve = 3.0 * np.array(at, dtype=float) ** -0.7
    found = slope(at, np.array([curve, 2 * curve, 0.5 * curve]))
    assert found.value == pytest.approx(-0.7)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    noisy = slope(at, np.random.default_rng(1).exponential(curve, size=(50, 4)))
    assert 0.01 < noisy.error < 0.2
    assert abs(noisy.value + 0.7) < 4 * noisy.error


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
    with pytest.raises(UserError, match="column smoker has other values"):
        coded("smoker", ["sometimes"])
    with pytest.raises(UserError, match="row 2, column age: no number"):
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
