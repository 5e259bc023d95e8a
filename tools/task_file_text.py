"""The words around the tables of the task file's reference."""

from typing import Final

MINIMAL: Final = """\
name: third-child
features:
  - {name: age, low: 21, high: 35}
  - {name: same_sex, categories: [no, yes]}
target: {name: third_child, kind: binary, positive: yes, negative: no}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""

FULL: Final = """\
name: hours-worked
features:
  - {name: age, low: 21, high: 35}
  - {name: income, low: 0, high: 200000, unit: 10000, typical: [0, 60000]}  # coefficients per 10,000
  - {name: region, categories: [north, east, south, west]}
  - {name: "asked, on", kind: date, low: 2024-01-01, high: 2024-12-31, as: [number, weekday], unit: month}
target: {name: weeks_worked, kind: real, low: 0, high: 52}
protocol: gradients
missing: error
privacy:
  guarantee: {gdp: {mu: 1.0}}                                   # the level named default
  levels: {strict: {gdp: {mu: 0.5}}, open: {gdp: {mu: 2.0}}}    # people choose one of these
  per_person: {gdp: {mu: 4.0}}                                  # a person's cap for this task
  mechanism: gaussian
learner: {radius: 5, huber_c: 0.5, step: noise-aware}
max_staleness: {releases: 100, share: 0.02}
public: {set_aside: 2000}
log: {partitions: 1, retention: 30d}
"""

HEAD: Final = f"""\
# Task files

A task is the public specification that devices, learners and monitors share: what a record holds and within
which bounds, what is learned, and what each person is promised. It is a YAML file, and every key is checked:
an unknown one is refused with the nearest known one named, and so is a key given twice.

The smallest task:

```yaml
{MINIMAL}```

One that says more:

```yaml
{FULL}```

*This page is written by `make generate` from the model that checks task files.*
"""

GUARANTEES: Final = {
    "pure": "epsilon-local differential privacy: no outcome is more than e^epsilon times likelier for one "
    "record than for another",
    "approx": "(epsilon, delta)-local differential privacy: the same, but for a probability of delta",
    "gdp": "Gaussian differential privacy: telling two records apart is no easier than telling N(0, 1) from N(mu, 1)",
    "zcdp": "zero-concentrated differential privacy: the Renyi divergence of order a between two records' "
    "releases is at most rho a",
}

TAIL: Final = """
A release never carries more loss than its guarantee: calibration rounds against the learner.

## Words and numbers

- Names, `categories`, `classes`, `positive` and `negative` are text exactly as written: `no` stays the word
  no, and `01` stays 01. Elsewhere only `true` and `false` are booleans, and numbers are decimal (`1e-6` is a
  number).
- A name may have any printable characters. Quote one that has any that YAML reads (`: # , [ ] { } & * ! | > ' " % @`
  and the backtick), as in `name: "income: gross"`; messages say where.
- A record's value matches a category that is written the same or is the same number (`1`, `1.0`). A boolean of a
  frame, of JSON or of Parquet, and the text true or false in capitals or not, also matches `true` or `false`, `yes` or
  `no`, `on` or `off`, whichever is declared, else `1` or `0`: with `categories: [no, yes]`, `TRUE` is yes. Where a
  number is declared, a file with a boolean is refused; a device codes it as 1 or 0. White space around a text is no
  part of it.
- A number in a text is written in decimal digits, as in `12`, `-1.5` or `1e3`; `1_000`, digits of other scripts and
  words for infinity are no numbers. Integers are compared exactly, however large.
- A date in a record is a date or a time of a frame or of Parquet, or text as in `2024-05-31` or `2024-05-31T12:30`; of
  a time it is the day on the clock that it was written by. Days before the year 1 and beyond 9999 are earlier and later
  than all bounds. Both are refused where a number is declared. A date matches a category that is written as it.
- A duration is a whole number and one of `d`, `h`, `m`, `s`: `7d`, `12h`, `30m`, `45s`.
- Aliases (`*name`) and tags (`!name`) are refused.
- A character that is not printable is refused, with its line, but for line feeds, tabs, and carriage returns before
  line feeds: others end a line for YAML where no editor shows it, or show the text around them in another order.

## Protocols

| protocol | released | guarantees | page |
| --- | --- | --- | --- |
| `gradients` | by each person, at the newest model | pure, approx, gdp, zcdp | [LDP-SGD](ldp-sgd.md) |
| `scores` | by each person, at the model of an epoch | pure, approx, gdp, zcdp | [scores](scores.md) |
| `examples` | by each person, once | pure, approx, gdp, zcdp (pure by outer products alone) | [IWP-SGD](iwp-sgd.md) |
| `moments` | by each person, once | pure, approx, gdp, zcdp | [public-data GLM](public-glm.md) |
| `sketch` | by each organisation, once a window | approx; of `moments` also gdp, zcdp | [GaussMix](gaussmix.md) |

Only the block of the task's own protocol may be given; of `learner`, examples read `step`, `averaging`, `weighting`
and `radius`, moments and sketches none of it (`radius` may stand there), and scores take none. Examples, moments and
sketches learn a binary or a real target; scores do, too, and several classes: their log odds where
covariates are public, else average effects.

## Public covariates

Nobody's features are public unless `public` says so. `file` names features that everybody may know already; `set_aside`
makes those of so many of the people public, as they are and under no guarantee, and these people release nothing.
`moments` do without, but for `solver: score`, `design: gaussian` and `covariance: pooled`.

The file may not hold people who are to release; that it is their own file is refused. Their source is compared with
it, by the declared features as coded and by all columns that both have (but for names and numbers of rows). A
simulation and `--check` refuse what is recognised. With real noise it is told to whoever is asked to agree to the
publication, and decides nothing: it is a function of people's records. Recognised is

- a file of the same rows, whatever their order, format, compression or further columns;
- one with a piece of the source: 32 runs of equal rows in a row that are in neither file twice;
- a part of the source's rows in their order, where other people's rows would be that with a probability below 1e-6;
- one that shares rare rows: of rows that occur twice in both files together a share 2 r / (1 + r)^2 would be split
  between two samples of one population, r the ratio of their sizes, and of rows that occur once r / (1 + r) would be in
  the file; recognised is what exceeds the one, or falls short of the other, by chance once in 1e6;
- one that shares any row where hardly two people are alike (of at least 100, at most 1% have a row that another one
  has, too): more than four times as many as rows that recur within the files let one expect. A public sample can do
  without those few who look in everything like one of the people.

What this cannot see is a random part of the people in another order and of few features with few values each: it looks
like any other sample.

## Coding

- A number maps [`low`, `high`] to [-1, 1]; values outside are clamped, and counted on the device only.
- Two categories become -1 and +1 under the feature's own name. Of more, each but the first becomes a feature
  that is +1 for it and -1 otherwise, named `origin=JFK`.
- A date is the number of days since `low`, coded as a number is; or by `as:` a weekday, compared with Monday and named
  `asked=Tuesday`, or a month, compared with January; or several of these.
- The constant 1 comes last, named `intercept`. With several classes a coefficient is named `class:feature`. Two
  coefficients of one name, and a name that ends in `:intercept`, are refused: rename a feature or a class.
- Missing values, undeclared categories and what is not a finite number are 0, on a device and, with real noise, of a
  file's people, whatever `missing` says: everybody sees whether releases arrive, so no value may decide it. How many
  there are is told to whoever holds the file. A simulation (`--seed`) and `--check`, which reads the file and sends
  nothing, stop at undeclared and non-finite values, and under `missing: error` at missing ones, too.
- A row that cannot be read (more or fewer cells than the header, no JSON object), that names nobody where `--person`
  says which column does, or whose level is none of the task's, is a record without any value, and released as one.
  Where a column names organisations, such a row is left out. A simulation and `--check` stop at it.
- A missing or undeclared target gives a gradient, a score or a direction of zero, a row of zeros in a sketch or an
  example, second moments of zero beside a number that says so, which is randomized and released like any other:
  nobody is left out because of what their record says. Many missing targets bias second moments that are released
  jointly or separately (there they count as the middle of the range), directions of more than 34 coefficients, and
  examples of a real target that are released jointly or separately.
- A binary target is 1 or 0 (in examples and sketches +1 or -1), classes are numbered in their order, a real target
  maps [`low`, `high`] to [-1, 1].
- Coefficients are in coded units. Per unit of a number they are 2 `unit` / (`high` - `low`) times as much; for a
  category against the first, twice as much.
- In a simulation, and of public covariates, a column with one value in all rows or with none is said when work on a
  log begins: nothing can be learned of it. Of real people's records it is not, since nobody looks.

## How long releases are kept

`log.retention` is how long the log keeps a release after it arrived. A log in a file also keeps those that are not
learned yet and the newest `duplicates` of each partition (65,536 by default): a task with fewer releases than that
deletes none as long as the file exists; and none leaves the file before those that were appended with it, up to 256.
Brokers delete by time alone.

## The hash

Every release carries its task's hash: the SHA-256 of the task as canonical JSON, all defaults filled in, with
whether noise is simulated and the public covariates, and without `log`. How long a log keeps releases may
change while a task runs; what a release means may not. Two files that mean the same have the same hash,
whatever the order of their keys and whether they write the defaults out.
"""
