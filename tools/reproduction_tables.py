"""Short tables for the pages of ``docs/reproductions``, from the rows of a result.

A result has one row for each setting and quantity. A page shows them pivoted: `LAYOUTS` says for each figure which
part of a row's text becomes the row and which the column of a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reproductions.experiment import Row

NOT_PRINTED = ("figure only", "formula only", "not in the paper")
"""Texts of `Row.published` that no table shows."""


class Rule:
    """Where the numbers of the rows that match a pattern go.

    Parameters
    ----------
    pattern
        Matches the whole of `Row.what`; its groups fill the placeholders of ``row`` and ``columns``.
    row
        The leading cells of the table's row.
    columns
        Attribute of `Row`, or group of the pattern, to the head of the column that shows it.
    """

    def __init__(self, pattern: str, row: str | Sequence[str], **columns: str) -> None:
        self.pattern, self.columns = re.compile(pattern), columns
        self.row = (row,) if isinstance(row, str) else tuple(row)


@dataclass(frozen=True)
class Table:
    """A table: heads of its leading columns, rules, and the order of its other columns and its rows if not as met.

    ``hidden`` matches the leading cells, joined by commas, of rows that the page omits and the result's files have.
    """

    heads: Sequence[str]
    rules: Sequence[Rule]
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    hidden: str | None = None


@dataclass(frozen=True)
class Layout:
    """The tables of a figure, and for rows with another tag than the rest a pattern and words around the tag."""

    tables: Sequence[Table]
    tags: Mapping[str, str] = field(default_factory=dict)


def tables(layout: Layout, rows: Sequence[Row]) -> list[str]:
    """Return the tables of a figure as Markdown.

    Raises
    ------
    ValueError
        If two numbers go to one cell, a number to none, or a row or column has no place in the table's order.
    """
    kinds = ("published", "as_published", "corrected", "default")
    left = {(number, kind) for number, row in enumerate(rows) for kind in kinds if _cell(row, kind)}
    made = [_markdown(table, rows, left) for table in layout.tables]
    if left:
        raise ValueError(f"no table shows {[f'{rows[number].what}: {kind}' for number, kind in sorted(left)]}")
    return made


def tag_line(layout: Layout, rows: Sequence[Row]) -> str:
    """Return the tags of a figure: those of most rows first, then the exceptions that its layout names."""
    if len({row.tag for row in rows}) == 1:
        return f"*{rows[0].tag}*"
    phrases: dict[str, None] = {}
    for words in ("{}", *layout.tags.values()):
        phrases |= {words.format(f"*{row.tag}*"): None for row in rows if _tag_words(layout, row) == words}
    return "; ".join(phrases)


def line(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in (one.replace("|", r"\|") for one in cells))


def _tag_words(layout: Layout, row: Row) -> str:
    return next((words for pattern, words in layout.tags.items() if re.search(pattern, row.what)), "{}")


def _cell(row: Row, kind: str) -> str:
    value = getattr(row, kind)
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None or value in NOT_PRINTED else str(value)


def _markdown(table: Table, rows: Sequence[Row], left: set[tuple[int, str]]) -> str:
    """Make a table, and take what it shows out of ``left``."""
    cells: dict[tuple[str, ...], dict[str, str]] = {}
    for number, row in enumerate(rows):
        for rule in table.rules:
            match = rule.pattern.fullmatch(row.what)
            if match is None:
                continue
            groups = {name: text or "" for name, text in match.groupdict().items()}
            for kind, column in rule.columns.items():
                if kind not in groups and (number, kind) not in left:
                    continue
                left.discard((number, kind))
                name, head = tuple(cell.format(**groups) for cell in rule.row), column.format(**groups)
                if head in cells.setdefault(name, {}):
                    raise ValueError(f"{row.what}: row {name}, column {head!r} has a number already")
                cells[name][head] = groups.get(kind) or _cell(row, kind)
    columns = list(dict.fromkeys(head for row_cells in cells.values() for head in row_cells))
    names = [name for name in cells if table.hidden is None or not re.fullmatch(table.hidden, ", ".join(name))]
    if table.columns:
        columns.sort(key=table.columns.index)
    if table.rows:
        names.sort(key=lambda name: table.rows.index(name[0]))
    heads = [*table.heads, *columns]
    body = [[*name, *(cells[name].get(column, "") for column in columns)] for name in names]
    return "\n".join([line(heads), "|" + "---|" * len(heads), *map(line, body)])


_MURK = "Murk's default"
_KINDS = {"as_published": "as published", "corrected": "corrected", "default": _MURK}
_JOINT = _KINDS | {"corrected": "joint release"}
_ALPHA = r"alpha = (?P<alpha>[\d.,/]+)"
_WHICH = "(?P<which>iterate|average)"


def _rates(what: str, order: str, **columns: str) -> Table:
    return Table(["alpha"], [
        Rule(f"{_ALPHA}: slope of the {_WHICH}'s {what}", "{alpha}",
             **{kind: f"{{which}}: {column}" for kind, column in columns.items()}),
        Rule(rf"{order}, of the .*, {_ALPHA}: from the table's rates (?P<rate>[\d.]+)", "{alpha}",
             rate=f"{order}: from the {'rates' if order == 'r' else 'bounds'}", corrected=f"{order}: measured"),
    ])  # fmt: skip


def _trajectories() -> Layout:
    gap = r"d = (?P<d>5), alpha = (?P<alpha>1/2), (?P<mu>[^:]*): "
    return Layout([
        Table(["d", "alpha", "mu"], [
            Rule(rf"d = (?P<d>\d+), {_ALPHA}, (?:mu = )?(?P<mu>[^:]*): {_WHICH}", ["{d}", "{alpha}", "{mu}"],
                 as_published="{which}", default=_MURK),
            Rule(f"{gap}loss gap of the {_WHICH}", ["{d}", "{alpha}", "{mu}, loss gap"], as_published="{which}"),
            Rule(f"{gap}squared loss gap of the {_WHICH}", ["{d}", "{alpha}", "{mu}, squared"],
                 as_published="{which}"),
        ], hidden=r"5, 1/2, (3|.*, squared)|(10|20), (?!1/2, 2).*"),
    ])  # fmt: skip


def _insurance(hidden: str | None = None) -> Layout:
    row = rf"{_ALPHA}, (?:mu = )?(?P<mu>[^:]*): .* of the {_WHICH}"
    return Layout([
        Table(["alpha", "mu"], [Rule(row, ["{alpha}", "{mu}"], as_published="{which}", default=_MURK)],
              hidden=hidden),
    ])  # fmt: skip


def _generated(hidden: str = "") -> Layout:
    less = "minus SGD, real data"
    case = "(?P<case>p = [^:]*): "
    return Layout([
        Table(["test loss"], [
            Rule(f"{case}(?P<method>.*), {less}", f"{{method}}, {less}", as_published="{case}", corrected="{case}"),
            Rule(f"{case}IWP-SGD, {less}", f"{_MURK}, {less}", default="{case}"),
            Rule(f"{case}IWP-SGD, product, {less}", f"IWP-SGD, product, {less}", default="{case}"),
            Rule(f"{case}IWP-SGD", _MURK, default="{case}"),
            Rule(f"{case}IWP-SGD, product", "IWP-SGD, product", default="{case}"),
            Rule(f"{case}(?P<method>.*)", "{method}", as_published="{case}"),
        ], rows=[
            "theta = 0", "optimum", "SGD, real data", "SGD, noisy data", "IWP-SGD", "IWP-SGD, product", _MURK,
            *(f"{method}, {less}" for method in ("SGD, noisy data", "IWP-SGD", "IWP-SGD, product", _MURK)),
        ], hidden=f".*, minus SGD, real data|{hidden}"),
    ])  # fmt: skip


def _people(head: str, hidden: str = "SGD, noisy data, averaged model") -> Layout:
    return Layout([
        Table([head], [
            Rule(rf"(?P<case>[^:]*): {head}, (?P<method>.*)", "{method}", as_published="{case}"),
            Rule(rf"(?P<case>[^:]*): {head}, IWP-SGD", _MURK, default="{case}"),
            Rule("(?P<case>[^:]*): theta of (?P<method>.*), along theta of SGD on real data",
                 "share of the way: {method}", as_published="{case}"),
        ], hidden=hidden)
    ])  # fmt: skip


def _moments() -> Layout:
    fixed, grown = r"\w+, p = 10, n = 290,000, epsilon = (?P<epsilon>\d+)", r"\w+, epsilon = 10, n = 480,000, p = "
    return Layout([
        Table(["p", "n", "epsilon"], [
            Rule(fixed, ["10", "290,000", "{epsilon}"], **_JOINT),
            Rule(f"{fixed}: distance of directions.*", ["10", "290,000", "{epsilon}, distance of directions"],
                 **_JOINT),
            Rule(rf"{grown}(?P<p>\d+)", ["{p}", "480,000", "10"], **_JOINT),
        ], hidden="10, 290,000, [35]|1[02], 480,000, .*|.*, distance of directions")
    ])  # fmt: skip


_COMMON = r"Sheffet(, new analysis)?|LinearMixing, k = 1\.5 d"
"""Rows of linear regression that tables omit."""
_PRINTED = rf"{_COMMON}|(Sheffet|AdaSSP), corrected"
"""The same for the papers' own files, without corrected rivals."""


def _sketches(end: str, column: str, tags: Mapping[str, str], hidden: str = _COMMON) -> Layout:
    """Errors of linear regression by data set, whose rows end with ``end``."""
    case, moments = "(?P<case>.+?), ", f"{_MURK}: second moments"
    return Layout([
        Table(["test MSE, epsilon = 1"], [
            Rule(rf"{case}(?P<method>LinearMixing, k = [\d.]+ d){end}", "{method}", as_published=column),
            Rule(f"{case}LinearMixing, k = 2.5 d{end}", moments, default=column),
            Rule(f"{case}(?P<method>Sheffet(?:, new analysis)?), k = 2.5 d{end}", "{method}", as_published=column),
            Rule(f"{case}(?P<method>Sheffet(?:, new analysis)?), k = 2.5 d{end}", "{method}, corrected",
                 corrected=column),
            Rule(f"{case}(?P<method>AdaSSP|predicting 0|no privacy){end}", "{method}", as_published=column),
            Rule(f"{case}AdaSSP{end}", "AdaSSP, corrected", corrected=column),
        ], rows=[
            "LinearMixing, k = 2.5 d", "LinearMixing, k = 1.5 d", "Sheffet", "Sheffet, corrected",
            "Sheffet, new analysis", "Sheffet, new analysis, corrected", "AdaSSP", "AdaSSP, corrected", moments,
            "predicting 0", "no privacy",
        ], hidden=hidden),
    ], tags)  # fmt: skip


def _images(hidden: str | None = None) -> Layout:
    case, objective = r"for (?P<case>\S+)", "objective perturbation"
    accuracy = rf"{case}, epsilon = (?P<epsilon>[\d.]+): accuracy of "
    loss = f"{case}, epsilon = 31.6: log loss of "
    sketch, cells = f"{loss}the sketch, k = 4 d, the", ["{case}", "{epsilon}"]
    return Layout([
        Table(["accuracy", "epsilon"], [
            Rule(f"{accuracy}the sketch", cells, as_published="sketch, best k", default=_MURK),
            Rule(f"{accuracy}the sketch with k = 4 d, .*", cells, as_published="sketch, k = 4 d"),
            Rule(f"{accuracy}{objective}", cells, as_published=objective),
        ], ["sketch, best k", "sketch, k = 4 d", objective, _MURK], hidden=r".*, 1\.78"),
        Table(["stand-in for"], [
            Rule(f"{case}: accuracy (?:of the )?(?P<method>without privacy|majority class)", "{case}",
                 as_published="{method}"),
            Rule(f"{sketch} quadratic through the Chebyshev nodes", "{case}",
                 as_published="log loss: sketch, Chebyshev nodes", default=f"log loss: {_MURK}"),
            Rule(f"{sketch} closest quadratic.*", "{case}", as_published="log loss: sketch, closest quadratic"),
            Rule(f"{loss}{objective}", "{case}", as_published=f"log loss: {objective}"),
        ], [
            "without privacy", "majority class", "log loss: sketch, Chebyshev nodes",
            "log loss: sketch, closest quadratic", f"log loss: {objective}", f"log loss: {_MURK}",
        ]),
        Table([""], [
            Rule(f"processor time of {objective} over the method's",
                 f"processor time of {objective} over the sketch's", as_published="value"),
            Rule(f"processor time of {objective} over the method's",
                 f"processor time of {objective} over {_MURK}'s", default="value"),
            Rule("(?P<what>.*)", "{what}", as_published="value"),
        ], hidden=hidden),
    ], {"^largest distance": "the distances of the quadratics are {}"})  # fmt: skip


PLAIN = Layout([Table([""], [Rule("(?P<what>.*)", "{what}", published="published", **_KINDS)])])
"""All rows as they are, for a figure without a layout."""

LAYOUTS: Mapping[str, Layout] = {
    "002/fig1": Layout([
        Table(["coefficient (truth 1)"], [
            Rule(r"(?P<learner>A?SGD), (?P<name>\w+) \(truth 1\): (?P<kind>.*)", "{name}",
                 as_published="{learner}, {kind}", default=f"{{learner}}, {_MURK}"),
            Rule(r"root of the clipped mean, (?P<name>\w+)", "{name}", as_published="root of the clipped mean"),
        ], hidden="x[23]")
    ]),
    "002/fig2": Layout([
        Table(["budget"], [
            Rule(f"(?P<budget>.*): {_WHICH}", "{budget}", as_published="{which}", default="Murk's average"),
        ])
    ]),
    "002/table1": Layout([
        _rates(r"squared distance \(linear\)", "r", published="published", as_published="as published",
               corrected="corrected"),
        _rates(r"loss gap \(logistic\)", "R", published="published bound", corrected="measured"),
    ]),
    "002/thm3-6": Layout([
        Table(["theorem", "alpha", "mu"], [
            Rule("theorem (?P<theorem>.), alpha = (?P<alpha>.*), mu = (?P<mu>.): (?P<what>.*)",
                 ["{theorem}", "{alpha}", "{mu}"], published="{what}", corrected="{what}"),
        ], ["bound", "measured", "measured over bound"], hidden=".*, 2|[356], 2/3, 1|[35], 1/3, 1")
    ]),
    "002/fig4": Layout([
        Table(["d", "noise"], [
            Rule(rf"d = (?P<d>\d+), (?P<noise>Laplace.*|GDP.*): {_WHICH}", ["{d}", "{noise}"],
                 as_published="{which}", default="Murk's average"),
            Rule(rf"d = (?P<d>\d+), l2 ball in place of Laplace noise, epsilon = 3: {_WHICH}",
                 ["{d}", "l2 ball, epsilon = 3 (not in the paper)"], default="{which}"),
        ], hidden=".*, Laplace, epsilon = 2"),
        Table(["computed exactly"], [
            Rule("(?P<what>.*)", "{what}", published="published", as_published="as published, here",
                 corrected="corrected"),
        ], hidden="delta .* epsilon = [12]"),
    ], {"^(?!d = )": "the second table is {}"}),
    "002/fig5": _trajectories(),
    "002/fig6": _trajectories(),
    "002/fig7": _insurance(),
    **{f"002/fig{number}": _insurance("[12]/3, 2") for number in (8, 9)},
    "000/fig1": _generated(),
    "000/fig2": _people("exponential loss"),
    "000/fig3": Layout([
        Table(["t"], [
            Rule(r"bias_(?P<terms>\d) at t = (?P<t>\d+)", "{t}", as_published="K = {terms}, sampled",
                 corrected="K = {terms}, quadrature"),
        ], [f"K = {terms}, {how}" for how in ("sampled", "quadrature") for terms in (1, 2, 3)]),
        Table(["t at epsilon = 1, delta = 1e-5, unit ball"], [
            Rule("t at [^:]*: (?P<what>.*)", "{what}", published="published", as_published="printed noise",
                 corrected="least noise"),
        ]),
    ]),
    "000/fig4": _people("accuracy", "share .*"),
    "000/fig5": _generated("optimum|IWP-SGD, product"),
    "000/fig6": _people("log loss", ".*averaged model|share .*"),
    "000/fig7": _people("accuracy", "share .*|.*averaged model"),
    "000/fig8": _people("squared loss", ".*averaged model"),
    "000/thm4.2": Layout([
        Table(["bias of the risk"], [
            Rule("(?P<loss>quadratic|exponential), (?P<end>.*): bias of the risk", "{end}",
                 as_published="{loss}, theorem", corrected="{loss}, quadrature"),
        ], hidden="epsilon_x = epsilon_y = 1|both to infinity"),
        Table(["log loss, v = 10"], [
            Rule("log loss at score 0, v = 10: (?P<what>.*)", "{what}", as_published="sum", corrected="quadrature"),
        ], hidden="first [13] terms"),
    ]),
    "000/thm5.3": Layout([
        Table(["loss", "p", "epsilon", "radius"], [
            Rule("(?P<loss>.*), p = (?P<p>.*), epsilon = (?P<epsilon>.*), radius (?P<radius>.)/sigma: (?P<what>.*)",
                 ["{loss}", "{p}", "{epsilon}", "{radius}/sigma"], corrected="{what}"),
        ], hidden=".*, [23]/sigma")
    ]),
    "000/thm5.5": Layout([
        Table(["n"], [
            Rule("n = (?P<n>.*): squared distance", "{n}", as_published="right bound", corrected="error"),
            Rule("(?P<what>slope) of .*", "{what}, over the step's logarithm", published="right bound",
                 corrected="error"),
        ], hidden="16384|32768|65536"),
        Table(["noise"], [Rule("(?P<what>.*): error", "{what}", as_published="printed", corrected="error")],
              hidden="epsilon_y = (5|10)"),
        Table(["second moment"], [
            Rule("(?P<case>.*): second moment, (?P<what>.*)", "{case}", corrected="{what}"),
        ]),
        Table(["case"], [
            Rule("(?P<case>.*): (?P<what>(printed|right) step)", "{case}", published="{what}", corrected="{what}"),
            Rule("(?P<case>.*): squared distance, (?P<what>.*)", "{case}", corrected="distance: {what}"),
        ]),
    ]),
    "003/fig1": Layout([
        Table(["model", "epsilon"], [
            Rule(r"(?P<model>\w+), p = 10, n = 290,000, epsilon = (?P<epsilon>\d+)", ["{model}", "{epsilon}"],
                 **_JOINT),
            Rule(r"(?P<model>\w+), p = 10, n = 290,000, epsilon = (?P<epsilon>\d+): distance of directions.*",
                 ["{model}", "{epsilon}, distance of directions"], **_JOINT),
        ], hidden=".*, [35]")
    ]),
    "003/fig2": Layout([
        Table(["model", "p"], [
            Rule(r"(?P<model>\w+), epsilon = 10, n = 480,000, p = (?P<p>\d+)", ["{model}", "{p}"], **_JOINT),
        ], hidden=".*, 1[02]")
    ]),
    **{f"003/fig{number}": _moments() for number in (3, 4, 5)},
    "003/fig6": Layout([
        Table(["accuracy", "epsilon"], [
            Rule(r"(?P<task>[^,(]+)(?: \(.*\))?, n = [\d,]+, epsilon = (?P<epsilon>\d+): accuracy",
                 ["{task}", "{epsilon}"], **_JOINT),
            Rule(r"(?P<task>[^,]+), n = [\d,]+, without noise: accuracy", ["{task}", "no noise"], **_JOINT),
        ], [*_JOINT.values()], hidden=".*, 5")
    ], {"epsilon = 20:": "epsilon = 20 {}"}),
    "003/fig7": Layout([
        Table(["model", "public rows", "epsilon"], [
            Rule(r"(?P<model>\w+), n = 200,000, (?P<rows>\S+) public rows, epsilon = (?P<epsilon>\d+)",
                 ["{model}", "{rows}", "{epsilon}"], **_JOINT),
        ], hidden=".*, 3|logistic, .*, 5|cubic, 160,000, 5")
    ]),
    "003/thm19-26": Layout([
        Table([""], [
            Rule("(?P<what>.*)", "{what}", published="printed", as_published="here", corrected="with the right w_ols"),
        ], hidden="Theorem 2[06] .*|.*(bound|constant) of Phi''")
    ]),
    "004/fig1": Layout([
        Table([""], [Rule("(?P<what>.*)", "{what}", **_KINDS)], [*_KINDS.values()], hidden=".*, gamma = 100?")
    ]),
    "004/constants": Layout([
        Table([""], [Rule("(?P<what>.*)", "{what}", **_KINDS)], [*_KINDS.values()],
              hidden=".*, k = 400, .*|gamma of the sketch alone.*|true delta.*epsilon = 1")
    ]),
    "004/thm3": Layout([
        Table(["excess loss", "epsilon"], [
            Rule("(?P<case>.*), epsilon = (?P<epsilon>[\\d.]+): (?P<what>.*)", ["{case}", "{epsilon}"],
                 corrected="{what}"),
        ], hidden="(smooth curves|synthetic).*|.*, (0.1|10)"),
        Table(["excess log loss, epsilon"], [
            Rule("epsilon = (?P<epsilon>.*): (?P<what>.*)", "{epsilon}", corrected="{what}"),
            Rule("(excess log loss of )?(?P<what>theta = 0|the quadratic.*|largest score.*)", "{what}",
                 corrected="measured"),
        ], hidden="10"),
    ], {"^epsilon|^excess|^largest|mothers|curves": "images, mothers and smooth curves {}"}),
    "004/hessian": Layout([
        Table(["data", "epsilon"], [
            Rule("(?P<case>.*), epsilon = (?P<epsilon>[\\d.]+): (?P<what>.*)", ["{case}", "{epsilon}"],
                 corrected="{what}"),
        ], hidden=".*, (1|3.162)")
    ], {"mothers|curves": "mothers and smooth curves {}"}),
    "004/fig2": _sketches("", "{case}", {"mothers|curves": "mothers and smooth curves {}"}),
    "004/fig2 --data": _sketches(
        " in `(?P<file>.*)`", "{case} (`{file}`)", {"alone": "the spectra alone are a {}"}, _PRINTED
    ),
    "004/fig3": _images(),
    "004/fig4": _sketches("", "{case}", {"^uniform": "uniform data {}"}),
    "004/fig4 --data": _sketches(
        " in `(?P<file>.*)`", "{case} (`{file}`)", {"hour": "`hour.csv` is a {}"}, _PRINTED
    ),
    "004/fig5": _images("largest distance .*"),
}  # fmt: skip
