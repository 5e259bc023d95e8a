"""A River wrapper that lets each person answer once, or once in each window of time."""

from __future__ import annotations

import datetime
import math
import os
from collections import Counter
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from unicodedata import normalize

from river import base

from murk._internal.locks import ForkSafeLock, locked
from murk.errors import UserError
from murk.inference.confidence_sequences import wider_level
from murk.inference.estimate import RANDOM_SCALING, Intervals
from murk.privacy import Guarantee, PrivacyLoss, cap_of
from murk.task.windows import NONE, ONCE, check_window, noise_of, repeats_of_counts, utc_day, window_of

if TYPE_CHECKING:
    from murk.learners.base import PersonEstimator, Record
    from murk.task.windows import Repeats

_ERROR_CODE = "MURK-LEARN-001"

_EPOCH: Final = datetime.date(1970, 1, 1)


def _cost(guarantee: Guarantee, cap: Guarantee) -> PrivacyLoss:
    return cap_of(guarantee if guarantee.kind == cap.kind else guarantee.to(cap.kind))


class OncePerPerson(base.Wrapper, base.Estimator):
    """Let a learner learn one answer of each person, or one per window, from a stream with any number of records.

    The first record of a person in a window is their answer. Three kinds of records are refused before they are read,
    and counted by ``n_refused``: further ones in the window, records of windows before the person's newest one, and
    records that ``lifetime`` does not allow. So people count equally, not records. Intervals allow for people who
    answer in several windows (see ``murk.task.windows``).

    Names that differ in white space alone count as one name. Names are stored as hashes of 16 bytes under a key of this
    object. Accounts live as long as the object: a new object knows nobody. Where accounts must last, use a
    `murk.producers.Producer` with its ledger.

    Parameters
    ----------
    model
        One of Murk's estimators that learn from people.
    window
        ``day``, ``week``, ``month`` or a number of days such as ``90d``, in UTC; ``none``: a person answers once.
    lifetime
        A person's cap over all windows; None for no cap.

    Examples
    --------
    >>> from murk.learners import MeanRegressor
    >>> from murk.privacy import GaussianDP
    >>> mean = MeanRegressor(guarantee=GaussianDP(mu=1.0), target_bounds=(0, 10), seed=1)
    >>> model = OncePerPerson(mean, window="week", lifetime=GaussianDP(mu=1.5))
    >>> for day in ("2024-01-01", "2024-01-02", "2024-01-08", "2024-01-01", "2024-01-15"):
    ...     model.learn_one({}, 5.0, person="ada", at=day)
    >>> model.n_releases, model.n_refused
    (2, 3)
    """

    def __init__(self, model: PersonEstimator[Any], window: str = NONE, lifetime: Guarantee | None = None) -> None:
        self.model, self.window, self.lifetime = model, window, lifetime
        try:
            check_window(window)
        except ValueError as error:
            raise UserError(f"window={window!r} is not a window; {error}") from None
        if window == NONE and lifetime is not None:
            raise UserError(f"lifetime={lifetime!r}: without window= a person answers once; remove it, or give window=")
        self._turns = ForkSafeLock()
        self._key = os.urandom(32)
        # Guarantees that were given with answers: they decide how much of an answer's variance is noise.
        self._own: dict[Guarantee, None] = {}
        # The newest window, what was spent, and the number of answers, by hashed name.
        self._accounts: dict[bytes, tuple[int, PrivacyLoss | None, int]] = {}
        self.n_refused = 0
        """Number of records that were refused."""

    @property
    def _wrapped_model(self) -> PersonEstimator[Any]:
        return self.model

    @property
    def n_releases(self) -> int:
        """Number of releases learned from."""
        return self.model.n_releases

    def learn_one(self, x: Record, y: Any, guarantee: Guarantee | None = None, *, person: str, at: Any = None) -> None:
        """Learn a person's answer, unless they have answered in the window of ``at`` (a date, time or text; else now).

        Raises UserError, and learns nothing, for a person without a name, an invalid time or one more than a day ahead,
        or a guarantee that cannot be compared with the cap.
        """
        text = " ".join(normalize("NFKC", person).split()) if isinstance(person, str) else ""
        if not text:
            raise UserError(f"person= is a {type(person).__name__} without a name: give the name of the record's owner")
        name = blake2b(text.encode(), key=self._key, digest_size=16).digest()
        # Book the answer before it is learned: an error may lose an answer, but never allows a further one.
        if self._pay(name, self._number(at), guarantee):
            self.model.learn_one(x, y, guarantee)

    @locked
    def _pay(self, name: bytes, number: int, guarantee: Guarantee | None) -> bool:
        """Book an answer in a window; return whether the window and the cap allow the answer."""
        newest, spent, answers = self._accounts.get(name, (None, None, 0))
        over = False
        if self.lifetime is not None:
            cost = _cost(guarantee or self.model.guarantee, self.lifetime)
            spent = cost if spent is None else spent + cost
            over = not spent <= cap_of(self.lifetime)
        if over or (newest is not None and number <= newest):
            self.n_refused += 1
            return False
        self._accounts[name] = number, spent, answers + 1
        if guarantee is not None:
            self._own[guarantee] = None
        return True

    def _number(self, at: Any) -> int:
        if self.window == NONE:
            if at is not None:
                raise UserError(f"at={at!r}: without a window a person answers once; remove it, or give window=")
            return 0
        today = (datetime.datetime.now(datetime.UTC).date() - _EPOCH).days
        day = today if at is None else utc_day(at)
        if day is None or day > today + 1:
            raise UserError(f"at={at!r}: {'not a date or time' if day is None else 'more than a day ahead'}")
        return window_of(self.window, day)

    @property
    def repeats(self) -> Repeats:
        """Largest number of answers of a person, and the factor by which repeated answers increase variances."""
        counts = Counter(answers for _, _, answers in self._accounts.values())
        return repeats_of_counts(counts, self._guarantees) if counts else ONCE

    @property
    def _guarantees(self) -> list[Guarantee]:
        return [self.model.guarantee, *(self.model.levels or {}).values(), *self._own]

    def coefficients(self) -> dict[str, float]:
        """Return the model's coefficients by name."""
        return self.model.coefficients()

    def confidence_intervals(self, level: float = 0.95) -> Intervals:
        """Return confidence intervals by name, which allow for people who have answered in several windows.

        Random scaling estimates the variance from the path of estimates. The path shows the noise, but may not show the
        correlation of a person's answers. With a noise variance v and the factor f of `repeats`, half-widths of random
        scaling are multiplied by the root of ``f (v + 1) / v``.
        """
        repeats = self.repeats
        if self.model.estimate().method != RANDOM_SCALING or repeats.most == 1:
            return self.model.confidence_intervals(wider_level(level, repeats))
        found, noise = self.model.confidence_intervals(level), min(map(noise_of, self._guarantees))
        factor = math.sqrt(repeats.effect * (noise + 1.0) / noise) if noise else math.inf
        middles = {name: (low + high) / 2.0 for name, (low, high) in found.items() if high < math.inf}
        wider = {name: (factor * (found[name][1] - middle), middle) for name, middle in middles.items()}
        items = {name: (middle - half, middle + half) for name, (half, middle) in wider.items()}
        note = f"{found.note}; {factor:.3g} times as wide, as people have answered up to {repeats.most} times"
        return Intervals({**found, **items}, method=found.method, level=level, note=note)

    def predict_one(self, x: Record, **kwargs: Any) -> Any:
        """Return the model's prediction."""
        return self.model.predict_one(x, **kwargs)

    def predict_proba_one(self, x: Record, **kwargs: Any) -> dict[Any, float]:
        """Return the model's probability of each label."""
        probabilities: dict[Any, float] = self.model.predict_proba_one(x, **kwargs)
        return probabilities

    @classmethod
    def _unit_test_params(cls) -> Any:
        from murk.learners.scores import ScoreClassifier
        from murk.privacy import GaussianDP

        yield {"model": ScoreClassifier(guarantee=GaussianDP(mu=1.0), seed=1)}

    def _unit_test_skips(self) -> set[str]:
        return set()
