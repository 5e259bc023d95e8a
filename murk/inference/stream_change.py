"""What a report says of a stream whose parts contradict one model of one group of people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from murk._internal.numbers import listed

REMEDY: Final = (
    "let people release in a random order (`murk run` and `murk produce` do so with a file), give the task a feature "
    "that explains the change, or set `forget`, if only the newest people count"
)


@dataclass(frozen=True)
class StreamChange:
    """How a stream contradicts one model of one group of people.

    >>> print(StreamChange(1.4, True, ("age",)).words)
    People's features changed over the stream, above all age: second moments that were released at different times \
differ by more than noise. So effects of different people are mixed, and where the model is not exact, the change can \
look like changed coefficients. Answers of different times disagree by more than chance, and intervals are 1.4 times \
as wide because of it. Remedies: let people release in a random order (`murk run` and `murk produce` do so with a \
file), give the task a feature that explains the change, or set `forget`, if only the newest people count.
    """

    widened: float = 1.0  # factor of half-widths, since answers of different times disagree; 1 if they do not
    features_changed: bool = False  # whether released second moments show that people's features changed
    features: tuple[str, ...] = ()  # features whose means changed, the clearest first

    @property
    def words(self) -> str:
        """What changed, what follows, and the remedies, in sentences."""
        parts = []
        if self.features_changed:
            most = f", above all {listed(self.features[:3])}" if self.features else ""
            parts.append(
                f"People's features changed over the stream{most}: second moments that were released at different "
                "times differ by more than noise. So effects of different people are mixed, and where the model is not "
                "exact, the change can look like changed coefficients."
            )
        if self.widened > 1.0:
            parts.append(
                "Answers of different times disagree by more than chance, and intervals are "
                f"{self.widened:.1f} times as wide because of it."
            )
            if not self.features_changed:
                parts.append(
                    "No change of people's features stands out from noise: they changed in ways that the features do "
                    "not show, the coefficients changed, or some answers are forged."
                )
        return " ".join([*parts, f"Remedies: {REMEDY}."])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, including the words."""
        return {
            "widened": self.widened,
            "features_changed": self.features_changed,
            "features": list(self.features),
            "words": self.words,
        }
