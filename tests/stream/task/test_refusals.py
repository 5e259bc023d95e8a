"""Mistakes in task files: refused with the place and the remedy."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from murk.errors import UserError
from murk.task import errors, yaml
from murk.task.errors import user_error
from murk.task.task import Task
from murk.task.yaml import MOST_BYTES, read_texts, read_yaml
from tests.stream.tasks import GUARANTEE, LOGISTIC

REFUSED = [
    # unknown keys name the nearest known one
    ("{gdp:", "{gpd:", "line 7: privacy.guarantee.gpd: unknown key; did you mean 'gdp'?"),
    ("mu: 1.0", "nu: 1.0", "line 7: privacy.guarantee.gdp.nu: unknown key; did you mean 'mu'?"),
    ("privacy:", "privcy:", "line 7: privcy: unknown key; did you mean 'privacy'?"),
    (
        "privacy:",
        "learner: {wieghts: norm}\nprivacy:",
        "learner.wieghts: unknown key; did you mean 'weights'?",
    ),
    (
        "privacy:",
        "learner: {step: {eta: 1, alfa: 1}}\nprivacy:",
        "learner.step.alfa: unknown key; did you mean 'alpha'",
    ),
    ("privacy:", "log: {partitons: 1}\nprivacy:", "log.partitons: unknown key; did you mean 'partitions'?"),
    ("high: 35", "hihg: 35", "features[0].hihg: unknown key; did you mean 'high'?"),
    ("privacy:", "zzz: 1\nprivacy:", "line 7: zzz: unknown key; known here: name, about, features, target,"),
    (
        "privacy:",
        "about: {why: x}\nprivacy:",
        "about.why: unknown key; known here: purpose, controller, contact, notice",
    ),
    ("privacy:", "about: {notice: 'javascript:alert(1)'}\nprivacy:", "is not the address of a page; write it as in"),
    ("privacy:", "about: {notice: http://example.org}\nprivacy:", "is not the address of a page"),
    ("privacy:", "about: {notice: https://exa mple.org}\nprivacy:", "is not the address of a page"),
    # bounds
    (", high: 35", "", "line 3: features[0].high: missing, and required; bounds are public"),
    ("low: 21", "low: 35", "features[0].low: low 35 is not below high 35; give low < high"),
    ("low: 21", "low: .nan", "features[0].low: nan is not finite"),
    ("high: 35", "high: .inf", "features[0].high: inf is not finite"),
    ("high: 35", "high: 1e999", "features[0].high: inf is not finite"),
    ("low: 21, high: 35", "low: -1e308, high: 1e308", "the distance from low to high overflows"),
    ("low: 21", "low: '21'", "features[0].low: '21' is text; write a number, without quotes"),
    ("low: 21", "low: yes", "features[0].low: 'yes' is text"),
    ("low: 21", "low: true", "features[0].low: True is not a number"),
    ("low: 21", "low: [21]", "features[0].low: [21] is not a number"),
    ("low: 21", "low:", "features[0].low: None is not a number"),
    # categories and names
    ("low: 21, high: 35", "low: 21, high: 35, categories: [a, b]", "either bounds or categories; remove one"),
    ("[no, yes]", "[no]", "features[1].categories: has 1 items; at least 2 are required"),
    ("[no, yes]", "[no, no]", "features[1].categories: 'no' is given twice; remove one"),
    ("[no, yes]", "[no, '']", "features[1].categories[1]: is empty"),
    ("[no, yes]", "[no, {a: b}]", "features[1].categories[1]: {'a': 'b'} is not text"),
    ("[no, yes]", "yes", "features[1].categories: 'yes' is not a list"),
    ("[no, yes]", '[no, "y\\x00"]', "unprintable characters"),
    ("name: same_sex", "name: age", "line 4: features[1].name: 'age' is feature 1 too; remove or rename one"),
    (
        "name: same_sex",
        "name: intercept",
        "features[1].name: its coded name 'intercept' is the constant's name",
    ),
    (
        "name: same_sex",
        "name: origin=JFK",
        "features[2].name: its coded name 'origin=JFK' is a coded name of feature 2",
    ),
    (
        "name: same_sex",
        "name: 'x:intercept'",
        "features[1].name: its coded name 'x:intercept' ends like that of a class's constant; rename it",
    ),
    ("name: third_child", "name: age", "target.name: 'age' is a feature too"),
    ("name: third-child", "name: Third_Child", "line 1: name: 'Third_Child' is not a task's name"),
    ("name: third-child", "name: " + "a" * 65, "is not a task's name; use 1 to 64"),
    ("name: third-child\n", "", "name: missing, and required"),
    # target
    (
        "kind: binary",
        "kind: binry",
        "line 6: target.kind: 'binry' is not a kind of target; did you mean 'binary'?",
    ),
    ("kind: binary, ", "", "target.kind: missing, and required; use one of binary, classes, real"),
    ("positive: yes, ", "", "target.positive: missing, and required; give the value that counts as 1"),
    ("negative: no", "negative: yes", "target.negative: 'yes' is the positive value too"),
    ("positive: yes, negative: no", "classes: [a, b]", "target.classes: unknown key"),
    ("kind: binary, positive: yes, negative: no", "kind: real, low: 0", "target.high: missing, and required"),
    # what is publicly known of them
    ("positive: yes, ", "positive: yes, rate: 6, ", "target.rate: 6 is too large; it must be below 1"),
    ("positive: yes, ", "positive: yes, rate: 0, ", "target.rate: 0 is too small; it must be above 0"),
    ("positive: yes, ", "positive: yes, rate: 6%, ", "target.rate: '6%' is text; write a number"),
    ("positive: yes, ", "positive: yes, typical: [0, 1], ", "target.typical: unknown key"),
    ("low: 21, high", "low: 21, typical: [20, 30], high", "features[0].typical: [20.0, 30.0] is not a range within"),
    ("low: 21, high", "low: 21, typical: [30, 25], high", "features[0].typical: [30.0, 25.0] is not a range within"),
    ("low: 21, high", "low: 21, typical: 25, high", "features[0].typical: 25 is not a list"),
    ("low: 21, high", "low: 21, typical: [25], high", "features[0].typical[1]: missing, and required"),
    ("low: 21, high", "low: 21, typical: [22, 24, 30], high", "features[0].typical: has 3 items; at most 2"),
    (
        "kind: binary, positive: yes, negative: no",
        "kind: real, low: 0, high: 5, typical: [0, 6]",
        "target.typical: [0.0, 6.0] is not a range within the bounds 0.0 to 5.0",
    ),
    *(
        ("kind: binary, positive: yes, negative: no", f"kind: classes, classes: [a, b, c], rate: {rate}", message)
        for rate, message in (
            ("{a: 0.9, b: 0.1}", "target.rate: no share of the class 'c'"),
            ("{a: 0.9, b: 0.05, d: 0.05}", "target.rate: 'd' is not one of the classes; "),
            ("{a: 0.9, b: 0.9, c: 0.1}", "target.rate: the shares add up to 1.9"),
            ("[0.9, 0.1]", "target.rate: 2 shares of 3 classes"),
            ("[0.9, 0.1, 0]", "target.rate[2]: 0 is too small"),
            ("0.9", "target.rate: 0.9 is not a list"),
        )
    ),
    # guarantees and levels
    (GUARANTEE, "{}", "line 7: privacy.guarantee: missing, and required; say what a release promises"),
    (
        GUARANTEE,
        "{guarantee: 1.0}",
        "privacy.guarantee: 1.0 is not a guarantee; write one of pure, approx, gdp, zcdp",
    ),
    (
        GUARANTEE,
        "{guarantee: {gdp: 1.0}}",
        "privacy.guarantee.gdp: 1.0 is not a mapping; write {gdp: {mu: ...}}",
    ),
    (
        GUARANTEE,
        "{guarantee: {approx: {epsilon: 1}}}",
        "privacy.guarantee.approx.delta: missing, and required",
    ),
    ("mu: 1.0", "mu: '1.0'", "privacy.guarantee.gdp.mu: '1.0' is not a number"),
    ("mu: 1.0", "mu: -1.0", "privacy.guarantee.gdp: "),
    ("mu: 1.0", "mu: .nan", "privacy.guarantee.gdp: "),
    (
        "}}}\n",
        "}}, levels: {default: {gdp: {mu: 2}}}}\n",
        "privacy.levels.default: reserved for privacy.guarantee",
    ),
    (
        "}}}\n",
        "}}, levels: {a b: {gdp: {mu: 2}}}}\n",
        "privacy.levels.a b: a level's name has at most 32 letters",
    ),
    ("}}}\n", "}}, levels: {open: {gdp: {nu: 2}}}}\n", "privacy.levels.open.gdp.nu: unknown key"),
    (
        "}}}\n",
        "}}, mechanism: gausian}\n",
        "privacy.mechanism: 'gausian' is not a mechanism; did you mean 'gaussian'?",
    ),
    # settings
    (
        "protocol: gradients",
        "protocol: mixtures",
        "protocol: 'mixtures' is not a protocol; known here: gradients, scores, examples, moments, summaries",
    ),
    ("protocol: gradients", "protocol: gradient", "protocol: 'gradient' is not a protocol; did you mean 'gradients'?"),
    ("privacy:", "missing: drop\nprivacy:", "missing: 'drop' is not one of 'midpoint' or 'error'"),
    (
        "privacy:",
        "learner: {weights: clip}\nprivacy:",
        "learner.clip: missing, and required with weights: clip",
    ),
    (
        "privacy:",
        "learner: {clip: 1}\nprivacy:",
        "learner.clip: 1 has no effect with weights: norm; remove it",
    ),
    (
        "privacy:",
        "learner: {huber_c: 1}\nprivacy:",
        "learner.huber_c: has no effect with objective 'balanced'",
    ),
    ("privacy:", "learner: {step: fast}\nprivacy:", "learner.step: 'fast' is not one of 'noise-aware'"),
    ("privacy:", "learner: {radius: 0}\nprivacy:", "learner.radius: 0 is too small; it must be above 0"),
    ("privacy:", "learner: 3\nprivacy:", "learner: 3 is not a mapping"),
    (
        "privacy:",
        "max_staleness: {share: 0.001}\nprivacy:",
        "max_staleness.share: 0.001 is too small; it must be at least",
    ),
    ("privacy:", "duplicates: 0\nprivacy:", "duplicates: 0 is too small; it must be at least 1"),
    ("privacy:", "duplicates: 1.5\nprivacy:", "duplicates: 1.5 is not a whole number"),
    (
        "privacy:",
        "expiry: 7\nprivacy:",
        "expiry: 7 has no unit: write a whole number and one of d, h, m, s, as in 7d",
    ),
    ("privacy:", "expiry: 7 weeks\nprivacy:", "expiry: '7 weeks' is not a duration"),
    ("privacy:", "expiry: 0d\nprivacy:", "expiry: '0d' is out of range"),
    ("privacy:", "expiry: 12h\nprivacy:", "expiry: 12h is below granularity 1d"),
    (
        "privacy:",
        "expiry: 8d\nlog: {retention: 8d}\nprivacy:",
        "log.retention: 8d is below expiry 8d and 1d, by which a device's clock may be ahead, so that a release sent",
    ),
    (
        "privacy:",
        "expiry: 36h\nlog: {retention: 48h}\nprivacy:",
        "again after the log has removed it would count twice; raise it to 60h or lower expiry",
    ),
    ("privacy:", "log: {retention: 6d}\nprivacy:", "log.retention: 6d is below expiry 7d and 1d"),
    (
        "privacy:",
        "expiry: 3660d\nprivacy:",
        "expiry: 3660d is above 3659d, the longest retention 3660d less 1d; lower it",
    ),
    ("privacy:", "public: {}\nprivacy:", "public: neither file nor set_aside; give exactly one"),
    (
        "privacy:",
        "public: {file: a, set_aside: 9}\nprivacy:",
        "public: both file and set_aside; give exactly one",
    ),
    ("privacy:", "simulated: true\nprivacy:", "line 7: simulated: chosen when a task is run"),
    ("privacy:", "covariates: {}\nprivacy:", "line 7: covariates: resolved by Murk"),
    ("privacy:", "schema: 1\nprivacy:", "line 7: schema: written by Murk alone"),
    # YAML itself
    ("privacy:", "name: again\nprivacy:", "line 7: name: given twice, first in line 1; remove one"),
    ("low: 21", "low: 21, low: 22", "line 3: features[0].low: given twice"),
    ("privacy:", "log: *there\nprivacy:", "line 7: not readable as YAML: aliases (*name) are not read"),
    ("privacy:", "log: !!python/name:os.system 1\nprivacy:", "line 7: not readable as YAML: the tag"),
    ("privacy:", "log: !!int '1'\nprivacy:", "line 7: not readable as YAML: the tag"),
    ("privacy:", f"log: {'[' * 50}1{']' * 50}\nprivacy:", "line 7: not readable as YAML: nested too deeply"),
    ("privacy:", "? [a]\n: 1\nprivacy:", "line 7: : a key that is not a word"),
    ("protocol: gradients", "protocol: [gradients]", "protocol: ['gradients'] is not"),
    ("protocol: gradients", "protocol: {a: 1}", "protocol: {'a': 1} is not"),
    ("privacy:", '"\\x1b[2J": 1\nprivacy:', "'\\x1b[2J': unknown key"),
    ("privacy:", "\tlog: 1\nprivacy:", "line 7: not readable as YAML"),
    ("privacy:", "log: [1\nprivacy:", "not readable as YAML"),
    (
        "name: age,",
        "name: income: gross,",
        'quote the name or value if it has a character that YAML reads, as in name: "',
    ),
    (
        "name: age,",
        "name: %age,",
        "line 3: not readable as YAML: found character '%' that cannot start any token; quote",
    ),
    ("name: age,", "name: *age,", "aliases (*name) are not read; write it out; quote the name or value"),
    ("name: age,", "name: 'age,", "quote the name or value"),
    ("name: age,", "name: age #1,", "quote the name or value"),
    (
        "name: age,",
        "name: age, first,",
        "known here: name, low, high, unit, typical, missing, missing_share, label, description If it belongs to",
    ),
    ("privacy:", "log: \x07\nprivacy:", "line 7: not readable as YAML"),
    ("privacy:", "---\nprivacy:", "not readable as YAML"),
    (LOGISTIC, "", "empty; a task needs name, features, target and privacy.guarantee"),
    (LOGISTIC, "- a\n", "line 1: not a mapping; write keys and values"),
    (LOGISTIC, "text", "line 1: not a mapping"),
]


@pytest.mark.parametrize(("old", "new", "message"), REFUSED, ids=lambda value: str(value)[:40].replace("\n", " "))
def test_mistakes_are_refused_with_place_and_remedy(old: str, new: str, message: str) -> None:
    assert old in LOGISTIC
    with pytest.raises(UserError) as caught:
        Task.parse(LOGISTIC.replace(old, new, 1), source="my.yaml")
    assert str(caught.value).startswith("my.yaml")
    assert message in str(caught.value)


UNSEEN = ["\x85", "\u2028", "\u2029", "\r", "\x0b", "\x0c", "\x00", "\x1b", "\x7f", "\xa0", "\xad", "\u200b", "\u200e",
          "\u202e", "\u2066", "\u3000", "\ufeff", "\ufffe", "\ud800", "\ue000", "\U000e0070", "\u034f", "\u115f",
          "\u2800", "\u3164", "\ufe0f", "\uffa0"]  # fmt: skip


@pytest.mark.parametrize("unseen", UNSEEN, ids=ascii)
@pytest.mark.parametrize("line", ["# a comment@public: {set_aside: 100}", "log: {}@# x", "max_stal@eness: {}"])
def test_a_character_that_is_not_seen_is_refused(unseen: str, line: str) -> None:
    """Some end a line for YAML alone, and so a comment; others show a key as another one, or hide it."""
    with pytest.raises(UserError) as caught:
        Task.parse(f"{LOGISTIC}{line.replace('@', unseen)}\n", source="my.yaml")
    number, at = LOGISTIC.count("\n") + 1, line.index("@") + 1
    found = str(caught.value)
    assert found.startswith(f"my.yaml, line {number}: not readable as YAML: character {at}, U+{ord(unseen):04X}")
    assert found.isprintable()


def test_line_ends_and_tabs_are_read() -> None:
    text = LOGISTIC.replace("\n", "\r\n") + "# \t\u00e9\U0001f600\n"
    assert Task.parse(text) == Task.parse(LOGISTIC)
    assert Task.parse("\ufeff" + LOGISTIC) == Task.parse(LOGISTIC)


def test_keys_of_a_hostile_document_give_no_orders_to_a_terminal() -> None:
    """The document that a log carries is anybody's; what a command says of it goes to a terminal."""
    content = json.loads(Task.parse(LOGISTIC).document())
    for key in ("\x1b[2J", "a\nmurk: all is well", "\u202e", "\ud800", "x" * 10_000):
        with pytest.raises(UserError) as caught:
            Task.from_document(json.dumps({**content, "learner": {key: 1}}).encode())
        assert "learner." in str(caught.value)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 600


def test_every_mistake_is_named_in_its_own_line() -> None:
    text = LOGISTIC.replace(", high: 35", "").replace("kind: binary", "kind: bin") + "duplicates: x\n"
    with pytest.raises(UserError) as caught:
        Task.parse(text)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == ["task, line 3", "task, line 6", "task, line 9"]


def test_at_most_16_levels() -> None:
    levels = ", ".join(f"l{index}: {{gdp: {{mu: 1.0}}}}" for index in range(17))
    with pytest.raises(UserError, match=r"privacy.levels: has 17 levels: at most 16"):
        Task.parse(LOGISTIC.replace("}}}\n", f"}}}}, levels: {{{levels}}}}}\n"))


def test_file_is_named_and_unreadable_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text(LOGISTIC)
    assert Task.load(path) == Task.load(str(path)) == Task.parse(LOGISTIC)
    path.write_bytes(b"\xef\xbb\xbf" + LOGISTIC.encode())
    assert Task.load(path) == Task.parse(LOGISTIC)
    path.write_text(LOGISTIC.replace("age", "age, x: 1"))
    with pytest.raises(UserError, match=r"t.yaml, line 3: features\[0\].x: unknown key"):
        Task.load(path)
    path.write_bytes(b"name: \xff")
    with pytest.raises(UserError, match=r"t.yaml: not UTF-8 text \(at byte 6\); save it as UTF-8"):
        Task.load(path)
    with pytest.raises(UserError, match="cannot be read"):
        Task.load(tmp_path / "absent.yaml")
    with pytest.raises(UserError, match="cannot be read"):
        Task.load(tmp_path)
    with pytest.raises(UserError, match="characters; at most"):
        Task.parse("#" * 1_000_001)


WRONG = [
    (Annotated[float, Field(gt=1)], 1.0, "1.0 is too small; it must be above 1"),
    (Annotated[float, Field(ge=1)], 0.5, "0.5 is too small; it must be at least 1"),
    (Annotated[float, Field(lt=1)], 1.0, "1.0 is too large; it must be below 1"),
    (Annotated[float, Field(le=1)], 1.5, "1.5 is too large; it must be at most 1"),
    (Annotated[list[int], Field(min_length=2)], [1], "has 1 items; at least 2 are required"),
    (Annotated[list[int], Field(max_length=1)], [1, 2], "has 2 items; at most 1 are allowed"),
    (Annotated[str, Field(min_length=1)], "", "is empty; write some text"),
    (Annotated[str, Field(max_length=2)], "abc", "is longer than 2 characters; shorten it"),
    (Annotated[float, Field(allow_inf_nan=False)], float("nan"), "nan is not finite; write a finite number"),
    (float, "1", "'1' is text; write a number, without quotes or units"),
    (int, "1", "'1' is text; write a whole number, without quotes or units"),
    (float, None, "None is not a number"),
    (int, 1.5, "1.5 is not a whole number"),
    (str, 1, "1 is not text; write it in quotes"),
    (bool, 1, "1 is neither true nor false"),
    (list[int], 1, "1 is not a list; write [a, b] or one item a line, each after a dash"),
    (dict[str, int], 1, "1 is not a mapping; write keys and values, as in 'key: value'"),
    (Literal["a", "b"], "c", "'c' is not one of 'a' or 'b'"),
    (bytes, 1, "1: Input should be a valid bytes"),
]


@pytest.mark.parametrize(("kind", "value", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_what_is_wrong_with_a_value_is_said_in_words(kind: Any, value: object, message: str) -> None:
    with pytest.raises(ValidationError) as found:
        TypeAdapter(kind, config=ConfigDict(strict=True)).validate_python(value)
    assert str(user_error(found.value, "a task", {})) == f"a task: {message}"


def test_a_file_has_a_largest_size() -> None:
    largest = "name: a\n" + "#" * (MOST_BYTES - 8)
    assert read_yaml(largest, "a task")[0] == {"name": "a"}
    with pytest.raises(UserError, match=f"a task: {MOST_BYTES + 1} characters; at most {MOST_BYTES} are read"):
        read_yaml(largest + "#", "a task")


@pytest.mark.parametrize("text", [
    "a: [" + "[]," * 60_000 + "]", "a: [" + "a," * 60_000 + "]", "- a\n" * 60_000, "a: {" + "b: ," * 60_000 + "}",
    "".join(f"k{number}: 1\n" for number in range(30_000)), "a: [" + "{}, [[]], " * 20_000 + "]",
])  # fmt: skip
@pytest.mark.parametrize("read", [read_yaml, read_texts])
def test_a_file_of_too_many_nodes_is_left_before_they_are_made(text, read, monkeypatch):
    """Each of a megabyte's takes a thousand times its bytes in time and memory."""
    monkeypatch.setattr(yaml, "MOST_NODES", 500)
    made = []
    for name in ("ScalarNode", "SequenceNode", "MappingNode"):
        kind = getattr(yaml.yaml.composer, name)
        monkeypatch.setattr(
            yaml.yaml.composer, name, lambda *words, kind=kind, **more: made.append(1) or kind(*words, **more)
        )
    with pytest.raises(UserError, match=r"a task, line \d+: not readable as YAML: more than 500 keys and values"):
        read(text, "a task")
    assert 400 < len(made) <= 500


@pytest.mark.parametrize(("text", "words"), [
    ("a: &x 1\nb: *x", "line 2: .* aliases"), ("!!python/object:os.system x", "tag"), ("[" * 100, "nested too deeply"),
    ("- " * 100, "nested too deeply"), ("a: " * 2, "line 1"), ("x" * (MOST_BYTES + 1), "at most"),
])  # fmt: skip
def test_other_yaml_files_have_the_limits_of_a_task(text, words):
    with pytest.raises(UserError, match=words):
        read_texts(text, "a file")


def test_of_many_mistakes_few_are_put_into_words(monkeypatch):
    said = []
    actual = errors._message
    monkeypatch.setattr(errors, "_message", lambda *words: said.append(1) or actual(*words))
    features = ", ".join("7" for _ in range(5_000))
    with pytest.raises(UserError, match=r"and \d{4} more"):
        Task.parse(f"name: a\nfeatures: [{features}]\ntarget: {{name: t, kind: binary}}\nprivacy: {{}}\n")
    assert len(said) == errors.MOST_SHOWN
