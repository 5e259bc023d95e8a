"""What is said while people answer a survey, before there is any model."""

import numpy as np

from murk.learners import ScoreClassifier
from murk.privacy import GaussianDP
from murk.results.text import as_text, describe_learned


def test_while_people_answer_a_survey_reports_say_so() -> None:
    rng = np.random.default_rng(1)
    model = ScoreClassifier(guarantee=GaussianDP(2.0), features=["a", "b"], seed=1)
    assert model.estimate().note == "nothing was learned yet"
    X = rng.uniform(-1, 1, (60, 2))
    model.learn_many(X, X[:, 0] > 0)
    estimate = model.estimate()
    most = estimate.survey
    assert 60 < most < 1_000
    assert f"at most {most:,}, answer a survey of where each feature lies" in estimate.note
    assert {need.words for need in estimate.needs().values()} == {
        f"people beyond the survey, of at most {most:,}: more can be forecast after it"
    }
    # Nothing was learned that forged answers could have moved.
    text = as_text(describe_learned(model.summary().report))
    assert "How far" not in text
    assert not text.endswith("\n")
    X = rng.uniform(-1, 1, (most, 2))
    model.learn_many(X, X[:, 0] > 0)
    assert model.estimate().survey == 0
    assert "survey" not in model.estimate().note
