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

A task file is the public specification that devices, learners and monitors share: the fields of a record and their
bounds, the model to learn, and the privacy guarantee. It is YAML. Unknown and repeated keys are refused, with the
nearest known key. `murk init` writes one for your columns ([start](start.md)).

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
    "gdp": "Gaussian differential privacy: telling two records apart is no easier than telling N(0, 1) from N(mu, 1)",
    "zcdp": "zero-concentrated differential privacy: the Renyi divergence of order a between two records' "
    "releases is at most rho a",
}

TAIL: Final = """
A release never has more privacy loss than its guarantee: calibration rounds towards privacy.

## Words and numbers

- Text (names, `categories`, `classes`, `positive`, `negative`) is taken as written: `no` is the word no, `01` stays
  01. Quote YAML's characters, as in `name: "income: gross"`.
- Booleans are `true` and `false`; numbers are decimal, as in `1e-6`. A duration is a whole number and `d`, `h`, `m`
  or `s`: `7d`, `12h`, `30m`, `45s`.
- Aliases (`*name`), tags (`!name`) and characters that are not printable are refused, except line feeds, tabs and
  carriage returns before line feeds.
- A record's text matches the category that is written the same or is the same number (`1`, `1.0`; integers exactly).
  White space around it is ignored.
- A boolean, or the text true or false in any capitals, matches `true`/`false`, `yes`/`no` or `on`/`off`, whichever is
  declared, else `1`/`0`. Where a number is declared a file with booleans is refused; a device codes 1 or 0.
- A number in a text has decimal digits: `12`, `-1.5`, `1e3`; not `1_000`, digits of other scripts or words for
  infinity.
- A date is a date or time of a frame or of Parquet, or text as in `2024-05-31` or `2024-05-31T12:30`; of a time, the
  day on its own clock. Days before the year 1 or after 9999 are beyond all bounds. It matches a category as written,
  and is refused where a number is declared.

## Protocols

| protocol | released | guarantees | page |
| --- | --- | --- | --- |
| `gradients` | by each person, at the newest model | pure, approx, gdp, zcdp | [LDP-SGD](ldp-sgd.md) |
| `scores` | by each person, at the model of an epoch | pure, approx, gdp, zcdp | [scores](scores.md) |
| `examples` | by each person, once | pure, approx, gdp, zcdp (pure by outer products alone) | [IWP-SGD](iwp-sgd.md) |
| `moments` | by each person, once | pure, approx, gdp, zcdp | [public-data GLM](public-glm.md) |
| `sketch` | by each organisation, once a window | approx; `moments` also gdp, zcdp | [GaussMix](gaussmix.md) |

Only the block of the task's own protocol is accepted. Of `learner`, examples use `step`, `averaging`, `weighting` and
`radius`; moments and sketches accept `radius` only, without using it; scores accept none. Examples, moments and
sketches learn a binary or a real target; scores also several classes: log odds
with public covariates, else average effects.

## Public covariates

Nobody's features are public unless `public` says so. `file` names features that everybody may know already.
`set_aside` publishes the features of that many people, without any guarantee; these people release nothing. `moments`
need neither, except for `solver: score`, `design: gaussian` and `covariance: pooled`.

The file must not hold people who are to release. Murk compares it with their source, by the coded features and by all
common columns except names and row numbers. A simulation and `--check` refuse what it recognises. With real noise
only whoever agrees to the publication is told, since the finding is a function of people's records. Recognised are

- the same rows, whatever their order, format, compression or further columns;
- 32 runs of equal consecutive rows that are in neither file twice;
- a part of the source's rows in order, with a chance below 1e-6;
- shared rare rows, with r the ratio of sizes and a chance of 1e-6: of the rows that occur twice in both together more
  than a share 2 r / (1 + r)^2 is split between them, or of the rows that occur once less than r / (1 + r) is in the
  file;
- any shared row where hardly two people are alike (of at least 100, at most 1% share a row with another): more than
  four times as many as rows that recur within the files suggest.

A random part of the people, in another order and with few features of few values, is not recognised.

## Coding

- A number maps [`low`, `high`] to [-1, 1]. Values outside are clamped, and counted on the device only.
- Two categories become -1 and +1 under the feature's name. Of more, each but the first becomes a feature, +1 for it
  and -1 otherwise, named `origin=JFK`.
- A date is its number of days since `low`, coded as a number; with `as:` also a weekday, compared with Monday and
  named `asked=Tuesday`, or a month, compared with January.
- The constant 1 comes last, named `intercept`. With several classes a coefficient is named `class:feature`. Duplicate
  names, and names that end in `:intercept`, are refused.
- A binary target is 1 or 0 (in examples and sketches +1 or -1). Classes are numbered in order. A real target maps
  [`low`, `high`] to [-1, 1].
- Coefficients are in coded units. Per unit of a number they are 2 `unit` / (`high` - `low`) times as large; for a
  category against the first, twice as large.

Missing and bad values:

- On a device, and with real noise in a file, missing values, undeclared categories and non-finite numbers are 0,
  unless the feature has a `missing` of its own, since no value may decide whether a release arrives. The file's
  holder is told how many there are.
- A simulation (`--seed`) and `--check`, which sends nothing, stop at undeclared and non-finite values, and with
  `missing: error` at missing ones.
- A row that cannot be read, names nobody (`--person`) or has an unknown level is released as a record without values.
  Where a column names organisations it is left out. A simulation and `--check` stop at it.
- A missing or undeclared target is released as zeros (second moments with a number that says so), randomized like any
  other. Many of them bias second moments released jointly or separately, directions of more than 34 coefficients, and
  real-target examples released jointly or separately.
- In a simulation, and for public covariates, columns with one value or none are reported.

## How long releases are kept

The log keeps a release for `log.retention` after its arrival. A log in a file also keeps unlearned releases and the
newest `duplicates` of each partition (65,536 by default), so a task with fewer releases deletes none; and it deletes
no release before those appended with it, up to 256. Brokers delete by time alone.

## The hash

Every release carries its task's hash: the SHA-256 of the task as canonical JSON with all defaults filled in, whether
noise is simulated, and the public covariates, but without `log`. So retention may change while a task runs; the
meaning of a release may not. The order of keys and written defaults do not change the hash.
"""
