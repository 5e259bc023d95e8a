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

A task file is the public specification that devices, learners and monitors share, in YAML. Unknown and repeated keys
are refused; the error names the nearest known key. A key whose default is `null` may be `null`. `murk init` writes a
task file for your columns ([start](start.md)).

The smallest task:

```yaml
{MINIMAL}```

A longer one:

```yaml
{FULL}```

*`make generate` writes this page from the model that checks task files.*
"""

GUARANTEES: Final = {
    "pure": "epsilon-local differential privacy: no outcome is more than e^epsilon times likelier for one "
    "record than for another",
    "approx": "(epsilon, delta)-local differential privacy: the same, but for a probability of delta",
    "gdp": "Gaussian differential privacy: two records are as hard to tell apart as N(0, 1) and N(mu, 1), or harder",
    "zcdp": "zero-concentrated differential privacy: the Renyi divergence of order a between two records' "
    "releases is at most rho a",
}

TAIL: Final = """
A release never has more privacy loss than its guarantee: calibration rounds towards privacy.

## Words and numbers

- Text (names, `categories`, `classes`, `positive`, `negative`) is read as written: `no` is the word no, `01` stays 01.
  Quote text with YAML's special characters, as in `name: "income: gross"`.
- Booleans are `true` and `false`; numbers are decimal, as in `1e-6`. A duration is a whole number and `d`, `h`, `m`
  or `s`: `7d`, `12h`, `30m`, `45s`.
- Aliases (`*name`), tags (`!name`) and characters that are not printable are refused, except line feeds, tabs and
  carriage returns before line feeds.
- A record's text matches a category with the same text or the same number, as `1` and `1.0` (integers exactly). White
  space around the text is ignored.
- A boolean, or the text true or false in any capitals, matches the declared pair of `true`/`false`, `yes`/`no` and
  `on`/`off`, else `1`/`0`. Number features of a file refuse booleans; a device codes them as 1 or 0.
- A number in a text has decimal digits: `12`, `-1.5`, `1e3`; not `1_000` or other scripts' digits.
- A date is a date or time of a data frame or Parquet file, or text as in `2024-05-31` or `2024-05-31T12:30`. A time
  counts as the day in its own time zone. A date matches a category by its text. For a number feature it is refused.

## Protocols

| protocol | released | guarantees | page |
|---|---|---|---|
| `gradients` | by each person, at the newest model | all | [LDP-SGD](ldp-sgd.md) |
| `scores` | by each person, at the model of a round | all | [scores](scores.md) |
| `examples` | by each person, once | all (pure: outer products, cells, Laplace noise) | [IWP-SGD](iwp-sgd.md) |
| `moments` | by each person, once | all | [public-data GLM](public-glm.md) |
| `summaries` | by each organisation, by window | approx; but for mixtures also gdp, zcdp | [GaussMix](gaussmix.md) |

A task accepts only the block of its own protocol. Of the keys of `learner`, `examples` use `step`, `averaging`,
`weighting` and `radius`, and `summaries` uses `weighting`. `moments` and `summaries` accept `radius`, and ignore it.
`scores` accept none. `summaries` and `moments` learn a binary or a real target, the others also several classes. Of
these, `scores` learn log odds with public covariates, else average effects; `examples` learn both, by `release: cells`.
Keys that contradict `as_published: true` are refused.

## Public covariates

Nobody's features are public unless `public` says so. `file` names features that everybody may know already. `set_aside`
publishes the features of that many people, without any guarantee; these people release nothing. `moments` need public
covariates only for `solver: score`, `design: gaussian` and `covariance: pooled`.

The file must not contain people who will release. Murk compares its rows with the people's, by the coded features and
all common columns except names and row numbers. If it recognises people, a simulation and `--check` refuse the file.
With real noise Murk only warns whoever agrees to the publication, since the result depends on records. It recognises
people if both files have the same rows in any order, or the same sequence of 32 runs of equal rows; if the file's rows
are a part of the people's in the same order; or if both share more rare rows than chance explains (with probability
below 1e-6), or a single row if there are at least 100 people of whom at most 1% have a row like somebody else's. Murk
does not recognise a random part of the people in another order, with few features of few values.

## Coding

- A number maps [`low`, `high`] to [-1, 1]. Values outside are clamped, and counted on the device only.
- Two categories become -1 and +1 under the feature's name. Of more categories, each but the first becomes a feature
  named like `origin=JFK`: +1 for this category and -1 otherwise.
- A date is coded as a number: the days since `low`. With `as:` it may also be a weekday, compared with Monday and named
  like `asked=Tuesday`, or a month, compared with January.
- The constant 1 comes last, named `intercept`. With several classes a coefficient is named `class:feature`. Duplicate
  names, and names that end in `:intercept`, are refused.
- A binary target is 1 or 0 (in examples and sketches +1 or -1). Classes are numbered in order. A real target maps
  [`low`, `high`] to [-1, 1].
- Coefficients are in coded units. Per `unit` of a number a coefficient is 2 `unit` / (`high` - `low`) times as large;
  for a category against the first it is twice as large.

Missing and bad values:

- No value may decide whether a release arrives. So with real noise, missing values, undeclared categories and
  non-finite numbers are coded as 0, or as the feature's `missing`. The holder of a file sees their number.
- A simulation (`--seed`) and `--check`, which sends nothing, stop at undeclared and non-finite values, and with
  `missing: error` at missing ones.
- A row that cannot be read, names nobody (`--person`), or has an unknown level or a budget below the grid, is released
  as a record without values, at the first level (on a grid, level `0`). If a column names organisations, the row is
  left out. A simulation and `--check` stop at it.
- A missing or undeclared target is released as zeros, randomized like any other (second moments with a number that says
  so). Many such targets bias joint and separate releases of second moments and of real-target examples, and scores
  without rounds of more than 34 coefficients.

## How long releases are kept

The log keeps a release for `log.retention` after its arrival. A log in a file also keeps releases that are not yet
learned, and the newest `duplicates` releases of each partition. Brokers delete by time alone.

## The hash

Every release carries its task's hash: the SHA-256 of the task as canonical JSON, with all defaults, whether noise is
simulated, and the public covariates, but without `log`. So retention may change while a task runs, but not the meaning
of a release.
"""
