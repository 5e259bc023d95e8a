"""One answer of each person, or one in each window, of a River stream."""

import datetime
import pickle
import sys
import threading

import pytest
from river import compose

from murk.errors import UserError
from murk.learners import LDPSGDClassifier, MeanRegressor, OncePerPerson, ScoreClassifier
from murk.privacy import GaussianDP


def mean(**more):
    return MeanRegressor(guarantee=GaussianDP(mu=1.0), target_bounds=(0, 10), missing=False, seed=1, **more)


def test_a_person_answers_once():
    model = OncePerPerson(mean())
    for person in ("ada", "bob", " ada", "ADA", "ada"):
        model.learn_one({}, 3.0, person=person)
    assert (model.n_releases, model.n_refused) == (3, 2)
    assert model.repeats.most == 1
    with pytest.raises(UserError, match="without a window"):
        model.learn_one({}, 3.0, person="cy", at="2024-01-01")


def test_intervals_allow_for_the_guarantees_that_people_chose():
    model = OncePerPerson(mean(), window="month")
    for month in range(1, 5):
        for person in range(40):
            model.learn_one({}, 3.0, GaussianDP(mu=4.0), person=f"p{person}", at=f"2024-0{month}-02")
    # (v + m) / (v + 1) of the least noise, that of randomized response: v is about 0.1.
    assert model.repeats.effect > 3.5


def test_threads_spend_nobodys_answer_twice():
    model, interval = OncePerPerson(mean()), sys.getswitchinterval()

    def learn():
        for person in range(200):
            model.learn_one({}, 3.0, person=f"p{person}")

    threads = [threading.Thread(target=learn) for _ in range(4)]
    try:
        sys.setswitchinterval(1e-6)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert (model.n_releases, model.n_refused) == (200, 600)


def test_windows_never_go_back_and_the_cap_holds():
    model = OncePerPerson(mean(), window="month", lifetime=GaussianDP(mu=1.5))
    given = [("a", "2024-03-02"), ("a", "2024-03-31"), ("a", "2024-02-01"), ("a", "2024-04-01"), ("a", "2024-05-01")]
    learned = []
    for person, at in given:
        before = model.n_releases
        model.learn_one({}, 5.0, person=person, at=at)
        learned.append(model.n_releases - before)
    # mu^2 = 2.25 is spent after two answers.
    assert learned == [1, 0, 0, 1, 0]
    model.learn_one({}, 5.0, guarantee=GaussianDP(mu=0.3), person="a", at="2024-05-01")
    assert model.n_releases == 3
    for at in ("yesterday", datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=3)):
        with pytest.raises(UserError, match=r"not a date|ahead"):
            model.learn_one({}, 5.0, person="b", at=at)
    for person in ("", " ", None):
        with pytest.raises(UserError, match="name"):
            model.learn_one({}, 5.0, person=person, at="2024-05-01")
    assert model.n_releases == 3


def test_intervals_allow_for_people_who_answer_again():
    once, again = OncePerPerson(mean(), window="week"), OncePerPerson(mean(), window="week")
    for number in range(400):
        once.learn_one({}, 5.0, person=f"p{number}")
        at = datetime.date(2024, 1, 1) + datetime.timedelta(days=7 * (number // 100))
        again.learn_one({}, 5.0, person=f"p{number % 100}", at=at)
    assert once.coefficients() == again.coefficients()
    halves = [high - low for low, high in (each.confidence_intervals()["mean"] for each in (once, again))]
    assert again.repeats.most == 4
    assert halves[1] / halves[0] == pytest.approx(again.repeats.effect**0.5)


def test_a_pipeline_passes_on_who_and_when():
    learner = ScoreClassifier(guarantee=GaussianDP(mu=1.0), features=["x_a"], seed=1)
    model = compose.Prefixer("x_") | OncePerPerson(learner, window="day")
    assert isinstance(model, compose.Pipeline)
    for at in ("2024-01-01", "2024-01-01", "2024-01-02"):
        model.learn_one({"a": 0.5}, True, person="ada", at=at)
    assert model.predict_proba_one({"a": 0.5}).keys() == {False, True}
    (*_, last) = model.steps.values()
    assert last.n_releases == 2
    # A copy goes on with the same accounts.
    copied = pickle.loads(pickle.dumps(last))
    copied.learn_one({"x_a": 0.5}, True, person="ada", at="2024-01-02")
    assert (copied.n_releases, copied.n_refused) == (2, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"window": "fortnight"}, "is not a window"), ({"lifetime": GaussianDP(mu=2.0)}, "without window=")],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        OncePerPerson(mean(), **settings)


def test_random_scaling_allows_for_people_who_answer_again():
    """Its levels are few, and its variance is of a path that does not show what people have in common."""
    learner = LDPSGDClassifier(guarantee=GaussianDP(2.0), features=["a"], seed=1, intervals="random-scaling")
    model = OncePerPerson(learner, window="week")
    for week in range(3):
        at = datetime.date(2024, 1, 1) + datetime.timedelta(days=7 * week)
        for person in range(400):
            model.learn_one({"a": person % 7 / 7}, person % 3 > 0, person=f"p{person}", at=at)
    narrow, wide = learner.confidence_intervals(), model.confidence_intervals()
    for name, (low, high) in narrow.items():
        # v = 4 / mu^2 = 1, and m = 3: (v + m) / v = 4.
        assert wide[name][1] - wide[name][0] == pytest.approx(2.0 * (high - low))
        assert sum(wide[name]) == pytest.approx(low + high)
    assert "2 times as wide, as people have answered up to 3 times" in wide.note
    assert wide.level == narrow.level == 0.95
    with pytest.raises(UserError, match=r"at the levels 0\.80, 0\.90 and 0\.95"):
        model.confidence_intervals(0.99)


def test_random_scaling_of_people_who_answer_once_is_as_it_is():
    learner = LDPSGDClassifier(guarantee=GaussianDP(2.0), features=["a"], seed=1, intervals="random-scaling")
    model = OncePerPerson(learner)
    for person in range(1_100):
        model.learn_one({"a": person % 7 / 7}, person % 3 > 0, person=f"p{person}")
    assert model.confidence_intervals() == learner.confidence_intervals()
