"""The gallery of the documentation: six tasks, what is learned of each, and its picture.

``python -m tools.gallery`` draws the pictures anew (a few minutes) and writes the page; ``make generate`` writes the
page alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from murk import Task

if TYPE_CHECKING:
    from murk import Result

DOCS: Final = Path(__file__).parents[1] / "docs"
PICTURES: Final = DOCS / "gallery"
SEED: Final = 1

HEAD: Final = """\
# Gallery

Six tasks, each with its file, the call that learns it, and the picture by `Result.plot`. The people are the 1980 US
census sample that Murk contains; only those of the last task are invented. All noise is simulated (`seed=`) and
protects nobody. `everybody` is `pandas.read_csv(murk.demo.DATA).sample(frac=1, random_state=1)`.

*`python -m tools.gallery` makes this page and its pictures.*
"""


@dataclass(frozen=True)
class Piece:
    """A task of the gallery.

    Parameters
    ----------
    name, title, words
        Of its picture's file; its heading; what is to be seen, below the picture.
    task
        Its file.
    source
        How the page names its people.
    people
        Makes them: at most so many, drawn at random.
    kind
        Which picture.
    options
        Further arguments of `murk.run`.
    """

    name: str
    title: str
    words: str
    task: str
    source: str
    people: Callable[[int], Any]
    kind: Literal["forest", "curve"] = "forest"
    options: tuple[tuple[str, str], ...] = ()

    @property
    def call(self) -> str:
        """The call that learns it, as the page shows it."""
        more = "".join(f", {name}={value!r}" for name, value in self.options)
        return f'result = murk.run("{self.name}.yaml", {self.source}, seed={SEED}{more})\nresult.plot("{self.kind}")\n'

    def learn(self, most: int = 1_000_000) -> Result:
        """Learn it, of at most so many people."""
        import murk

        options: dict[str, Any] = dict(self.options)
        return murk.run(Task.parse(self.task, source=f"{self.name}.yaml"), self.people(most), seed=SEED, **options)


def mothers(most: int) -> Any:
    """Return the mothers of the census sample."""
    import pandas as pd

    from murk.demo import DATA

    everybody = pd.read_csv(DATA)
    return everybody.sample(frac=1, random_state=SEED)[:most]


def visitors(most: int) -> Any:
    """Return invented visitors, who come again less often after a Saturday."""
    import numpy as np
    import pandas as pd

    count = min(most, 60_000)
    rng = np.random.default_rng(SEED)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 366, count), unit="D")
    chance = 0.45 - 0.2 * (day.day_of_week == 5) + 0.1 * (day.day_of_week == 2)
    return pd.DataFrame({"visited": day, "came again": rng.random(count) < chance})


PIECES: Final = (
    Piece(
        "third-child",
        "Does it matter whether two children are of the same sex?",
        "It does: the interval of the odds ratio does not contain 1. The learner saw nobody's record.",
        """\
name: third-child
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35, unit: 5}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 2.0}}}
""",
        "everybody",
        mothers,
    ),
    Piece(
        "weeks-worked",
        "A number: weeks of work, and how the answer came about",
        "The estimate and its 95% interval over the number of releases, both computed from releases alone.",
        """\
name: weeks-worked
features:
  - {name: third_child, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35, unit: 5}
target: {name: weeks_worked, kind: real, low: 0, high: 52}
privacy: {guarantee: {gdp: {mu: 2.0}}}
""",
        "everybody",
        mothers,
        kind="curve",
    ),
    Piece(
        "own-levels",
        "People choose their own promise",
        "One third of the people each chose mu = 0.5, 1 and 4 (here drawn at random). Less noisy releases weigh more.",
        """\
name: own-levels
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35, unit: 5}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
privacy:
  guarantee: {gdp: {mu: 1.0}}
  levels: {strict: {gdp: {mu: 0.5}}, open: {gdp: {mu: 4.0}}}
""",
        "everybody",
        mothers,
        options=(("level", "lot"),),
    ),
    Piece(
        "examples",
        "One release of each person, before anybody knows the question",
        "Features and answer are randomized together once (`protocol: examples`): no model has to reach the device.",
        """\
name: examples
features:
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35, unit: 5}
target: {name: third_child, kind: binary, positive: "yes", negative: "no"}
protocol: examples
privacy: {guarantee: {gdp: {mu: 2.0}}}
""",
        "everybody",
        mothers,
    ),
    Piece(
        "organisation",
        "An organisation that may see its people's records",
        "One release for all their records together, at epsilon = 1: the noise hardly shows.",
        """\
name: organisation
features:
  - {name: third_child, categories: ["no", "yes"]}
  - {name: same_sex, categories: ["no", "yes"]}
  - {name: age, low: 21, high: 35, unit: 5}
target: {name: weeks_worked, kind: real, low: 0, high: 52}
protocol: summaries
summaries: {window: 20000}
privacy:
  guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}
""",
        "everybody[:20_000]",
        lambda most: mothers(min(most, 20_000)),
    ),
    Piece(
        "weekdays",
        "Dates: on which day do visitors come who come again?",
        "The invented visitors come again with a probability 20 points lower after a Saturday and 10 points higher "
        "after a Wednesday. All days are compared with Monday and share its error: here each odds ratio is a little "
        "too high.",
        """\
name: weekdays
features:
  - {name: visited, kind: date, as: weekday}
target: {name: came again, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 4.0}}}
""",
        "visitors",
        visitors,
    ),
)


def page() -> str:
    """Return the page, as Markdown."""
    parts = [HEAD]
    parts.extend(
        f"\n## {piece.title}\n\n```yaml\n{piece.task}```\n\n```{{code-block}} python\n{piece.call}```\n\n"
        f"![{piece.title}](gallery/{piece.name}.png)\n\n{piece.words}\n"
        for piece in PIECES
    )
    return "".join(parts)


def main() -> None:
    """Draw all pictures, and write the page."""
    PICTURES.mkdir(exist_ok=True)
    for piece in PIECES:
        result = piece.learn()
        path = PICTURES / f"{piece.name}.png"
        result.plot(piece.kind).savefig(path, dpi=100, metadata={"Software": None})
        sys.stdout.write(f"{path}: {result!r}\n")
    (DOCS / "gallery.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
