"""The words around the fields and examples of the wire's reference."""

from typing import Final

from murk.stream.wire.codec import Reason

HEAD: Final = """\
# Wire format

The reference for other languages. All messages are JSON in UTF-8 on the topics of a log, neither compressed nor signed.
A device does three things:

1. It reads the task and the newest model from `murk-NAME-models`.
2. It [makes a release](#make-a-release), with code in plain Python.
3. It appends the release to its partition on `murk-NAME-releases`.

Over [HTTP](guides/http.md) a gateway does steps 1 and 3 for the device.

*`make generate` writes this page from the code; `python -m tools.wire` prints all JSON Schemas.*

## Topics

A task with P partitions has four topics, and a fifth if estimates are published. `NAME` is the task's name, unless
the log URL gives another one.

| topic | partition | key | value | headers |
|---|---|---|---|---|
| `murk-NAME-releases` | the release's partition | none | a release | none |
| `murk-NAME-models` | the partition | its number as text; 0 for shared models | the partition's newest model | none |
| `murk-NAME-models` | 0 | `task` | the task | none |
| `murk-NAME-models` | 0 | `topics` | JSON: the topics' ids by name | none |
| `murk-NAME-states` | the partition | its number as text | its newest state | `offset`, `owner` |
| `murk-NAME-dead-letters` | the message's own | `PARTITION:OFFSET` of the message | the message | `reason`, `detail` |
| `murk-NAME-estimates` | 0, the only one | `estimate` | the newest estimate | none |

- Models, states and estimates are compacted: only the newest value of a key counts.
- All messages except releases are written in transactions: read them with `isolation.level=read_committed`.
- Readers use a release's partition, value and append time (`LogAppendTime`). A device sends no key or header, which
  could identify a person, and no timestamp finer than `time`.
- Headers are UTF-8. `offset` is the state's offset, as decimal text; `owner` names its writer.
- A message has at most 1,000,000 bytes, a state at most 8 MiB.
- The embedded log (`sqlite:///PATH`) keeps the same messages in tables.

## Messages

The examples belong to the smallest task in [task files](task-file.md), with d = 3 coefficients: `age`, `same_sex` and
the intercept.

- Integers have no decimal point and no exponent: `1.0` is refused, which JSON Schema cannot express.
- Each key occurs exactly once, and unknown keys are refused. Order and white space do not matter.
- Models, states and estimates also have `schema`, `kind` and `task`.

### Fields of every release
"""

ALWAYS: Final = ("schema", "kind", "task")
"""Fields of every message; the page explains them once."""

RELEASE: Final = {
    "schema": "number of the [format](#versions)",
    "kind": "the message's kind, which follows from the task",
    "id": "128 random bits from the operating system, independent of person and record",
    "task": "SHA-256 of the [task](#a-task) without `log`",
    "level": "privacy level of the release: `default`, a key of `privacy.levels`, or the number of a point of its grid",
    "partition": "the partition, drawn uniformly and independently of person and record",
    "payload": "the integers that the mechanism released; for organisations base64 of little-endian 64-bit integers",
    "time": "seconds since 1970, rounded down to a multiple of the task's `granularity`; with `track` in the task, the "
    "first second of the answer's window, whenever it is sent",
    "expires": "when resending ends, rounded down in the same way",
    "simulated": "whether the noise is seeded, as the task says",
}
"""Fields that every release has, and their meaning."""

_RECORDS: Final = "number of records in the window; this number is public"
# Further fields by kind. A release has those above too; other messages have the first three of them.
FIELDS: Final[dict[str, dict[str, str]]] = {
    "gradient": {"version": "version of the device's model: the number of releases that the partition had learned"},
    "score": {
        "version": "version of the device's model: the number of releases at which its round begins",
        "query": "`score`: p integers, for K classes (K - 1) p. `scatter`, `curvature`: the upper triangle of a "
        "symmetric p x p matrix, row by row. `covered`, `above`: one integer",
        "item": "with `above` the number of the query in the model's list, else 0",
    },
    "example": {},
    "moment": {},
    "target": {},
    "sketch": {
        "rows": "number k of rows in the mixture; `payload` has them one after another",
        "records": _RECORDS,
        "spread": "the noise's standard deviation over the bound C of a record",
    },
    "gram": {"records": _RECORDS},
    "newton": {"records": _RECORDS, "model": "coefficients estimated from the first sum, the constant last"},
    "model": {
        "partition": "the partition, or the first of the partitions that share models",
        "version": "number of releases that the partition, or all partitions that share models, had learned",
        "parameters": "finite numbers",
    },
    "state": {
        "identity": "identity of the log",
        "partition": "the partition",
        "offset": "first offset of the partition that the learner has not read",
        "last_id": "id of the newest valid release among the last `duplicates` offsets, if there is one",
        "counters": "numbers of messages: `learned`, `duplicates`, `dead` by reason, `levels`; `staleness`: gradients "
        "by age (0, 1, 2-3, 4-7, ...)",
        "history": "earlier estimates",
        "learner": "the learner's own state; arrays are base64 of little-endian float64",
        "adopted": "a further model's, if it continued from a state of the task's own learner: the offset where it did",
    },
    "estimate": {
        "name": "the task's name",
        "simulated": "whether the noise is seeded",
        "releases": "number of releases learned, which never decreases",
        "level": "nominal level of the intervals",
        "method": "method of the intervals",
        "note": "measured coverage of the intervals, in words",
        "standard_error": "root of the summed squared standard errors; null if one is unknown",
        "coefficients": "by name, in coded units; `learned` is false if noise hides the coefficient; `effect` is per "
        "`unit` of the feature on its `scale` (the exponential of `log odds` is an odds ratio), or null",
    },
}

# By kind: a title, and what stands between it and the example.
MESSAGES: Final[dict[str, tuple[str, str]]] = {
    "gradient": (
        "A gradient",
        "`protocol: gradients`. A person's gradient at the newest model of their partition. `payload` has d integers.",
    ),
    "score": (
        "A score",
        "`protocol: scores`. A person's answer to one query at a round's model ([scores](#scores)), or with "
        "`interactive: false` always at the model of version 0.",
    ),
    "example": (
        "An example",
        "`protocol: examples` ([IWP-SGD](iwp-sgd.md)). A person's features and target. x is the d coded features with "
        "the constant last. y is the target, -1 or +1 for a label.\n\n"
        "| `examples: {release}` | `payload` |\n|---|---|\n"
        "| `outer` | (d + 1) (d + 2) / 2 integers: the upper triangle of v v', row by row, off-diagonal numbers times "
        "sqrt(2). v = (x, y) / sqrt(1 + x'x), or 0 without a target |\n"
        "| `directions` | d + 2 integers. Let n be the norm of x. The numbers are x / n without the constant (for a "
        "label times y), 1 / n, y / n (its integer clamped to that of 1 / n), and 0. Without a target all are "
        "0 but the last, 1414 steps / 1000 rounded down |\n"
        "| `joint` | for a label d integers y x, which do not show the label; for a real target x and the scaled "
        "target, with `gaussian` or, if the task says so, `laplace` noise |\n"
        "| `separate` | x and then y, each with its own mechanism |\n\n"
        "[IWP-SGD](iwp-sgd.md#which-release) has the rule for `null`.",
    ),
    "moment": (
        "Moments",
        "`protocol: moments` ([public-data GLM](public-glm.md)). A person's second moments. x is the coded features "
        "with the constant last, y is in [-1, 1], r is the bound on the norm of x, and b = sqrt(2) r.\n\n"
        "| `moments: {release}` | `payload` |\n|---|---|\n"
        "| `observed` | the upper triangle of x x', row by row, off-diagonal numbers times sqrt(2), then b x y. The "
        "square of the constant is replaced by r. Without a target it is -r, and all other numbers are 0 |\n"
        "| `joint` | as `observed` without the square of the constant; y is 0 without a target |\n"
        "| `separate` | as `joint` without the factors sqrt(2) and b |",
    ),
    "target": (
        "A target",
        "`protocol: univariate`, for tasks without features ([shares and means](scores.md#without-features)) or with "
        "[known columns](known.md). A person's target. With `missing_share: 0` there is no integer for a missing "
        "target.\n\n"
        "| mechanism | target | `payload` |\n|---|---|---|\n"
        "| subset selection | classes | for each class, and then a missing target, 1 if it is in the subset, else 0 |\n"
        "| window selection | a number | the number of the window, from 0 |\n"
        "| Gaussian | classes | for each class, and then a missing target, an integer: the height at the person's own, "
        "0 elsewhere, and noise |\n"
        "| Gaussian | a number | for the lower and the upper bound, and then a missing target, an integer: of a number "
        "at share t of the range (1 - t) and t heights, 0 elsewhere, and noise |\n\n"
        "With [quantiles](scores.md#quantiles) the first integer is the number j of a threshold, from 0 to 63, at "
        "j / 64 of the range. The others are those of two classes: at or below the threshold, and above it.\n\n"
        "With [known columns](known.md) the first integer is the number of their combination of values, which is sent "
        "as it is, and the target's integers follow. Each column has a number from 0: the position of its category, or "
        "the number of categories for a missing or undeclared value, unless `missing` names a category. Combinations "
        "are numbered in the order in which the last column's number changes fastest. In an experiment with metrics, "
        "the number of the drawn metric, 0 for the target, comes before that of the combination, and a payload that is "
        "shorter than the longest is filled up with zeros.",
    ),
    "sketch": (
        "A mixture",
        "`protocol: summaries` with `method: linear-mixing` or `mixing` ([GaussMix](gaussmix.md#mixtures)). The mixed "
        "records of an organisation's window. The example is shortened to two rows.",
    ),
    "gram": (
        "Second moments of an organisation",
        "`protocol: summaries` with `method: moments`, the default ([second moments](gaussmix.md#second-moments)). Let "
        "z be the coded features, the constant and the target. `payload` has the upper triangle, row by row, of the "
        "sum of z z' over a window, with noise.",
    ),
    "newton": (
        "A Newton step",
        "`protocol: summaries` with `method: newton` ([a Newton step](gaussmix.md#a-newton-step)). Two sums of z z' "
        "with noise. The first is over the window's first `summaries.first` records, with z as above. The second is "
        "over all others, with z = (sqrt(h w) x, sqrt(h / w) (y - q)). x is the coded features and the constant, y is "
        "0 or 1, q is the probability by `model`, w = q (1 - q) and h = min(1, e^(1 - |log odds|)). A record without a "
        "label is zero. `payload` has both upper triangles, row by row.",
    ),
    "model": (
        "A model",
        "The iterate of a partition: d numbers, at which devices compute gradients. With `protocol: scores`, the model "
        "of a [round](#scores). Numbers are float64 in shortest decimal form: reading them as float64 is exact.",
    ),
    "task": (
        "A task",
        "The resolved [task](task-file.md): every key with its value, keys sorted, no spaces, numbers as Python's "
        "`repr` writes them. Its hash is the SHA-256 of these bytes without the key `log`. If a parser turns `35.0` "
        "into `35`, its hash is wrong: take the hash from a model instead.",
    ),
    "state": (
        "A state",
        "The state of a partition's learner at `offset`. Only the partition's owner writes it; monitors read it. "
        "`history` has an estimate at 16 releases and then four per doubling (with organisations from the first "
        "release). It has at most 200 estimates and 256 KiB, and none with more than some 1,500 coefficients. A replay "
        "of the log writes the same bytes.",
    ),
    "estimate": (
        "An estimate",
        "The estimate of all partitions, for [dashboards and other programs](deploy.md#estimates-as-json).",
    ),
    "dead letter": (
        "A dead letter",
        "A message that was not learned: any bytes; the first 65,536 bytes are kept. The [table "
        "below](#what-a-receiver-refuses) has the values of `reason`; `detail` is printable ASCII.",
    ),
}

# In the order in which they are looked for; the first that applies is the one.
CAUSES: Final[dict[Reason, str]] = {
    "too-large": "longer than 512 + 22 d bytes, with d the number of integers of the longest release; in base64 "
    "longer "
    "than 512 + 4 bytes for every 3 of 8 d",
    "malformed": "not a single JSON object in UTF-8, or a repeated key",
    "schema": "a field missing, unknown, of another type or out of range; another `schema` or `kind`",
    "wrong-task": "`task` is not the hash of the log's task",
    "simulated": "`simulated` differs from the task's",
    "partition": "`partition` is not below the number of partitions, or not the message's partition",
    "level": "`level` is not a level of the task",
    "dimension": "the length of `payload` is not the task's or the query's; `rows` is not the task's",
    "magnitude": "an entry of the payload, or its norm, exceeds the [mechanism's](#mechanisms) limit",
    "expired": "the log appended the message after `expires`, in whole seconds",
    "duplicate": "`id` is among the previous `duplicates` offsets of the partition, learned or not, or the same "
    "release came before and has not expired. The message is "
    "counted and dropped, without a dead letter",
    "future": "`version` exceeds the releases that the partition learned; with shared models, the newest version. Or, "
    "with `track`, `time` is more than a day after the log's",
    "stale": "`version` is older than max(`max_staleness.releases`, `max_staleness.share` of its releases); "
    "for scores, not of the newest 8 rounds",
    "version": "no model of this version was published",
    "query": "the model of this version does not draw `query`, or has no query of the number `item`",
}

RULES: Final = """
**Versions of models.** A partition's version v is the number of releases that it has learned. With f =
`max_staleness.releases` // 64, published versions are the multiples of the largest power of two not above max(1, v //
200, min(f, v // 100)). A device copies the version of the model that it read.

**A device** refuses a model of another task or partition, without d finite numbers, longer than the task's `radius`
(`null` is 3, for a real target 1.5; an estimated scale is checked separately), or of more than 512 + 26 d bytes. It
decides before it reads the record. Without a model it uses version 0: zeros, and an estimated scale at `scale_start` /
4.

**A learner** that takes over a partition continues from its state and `offset`. It stops if the state is unreadable, is
of another task, partition or log (`identity`), or has a `last_id` other than the last release's before `offset`.

## Scores

Rounds begin at the versions 0, 3000, 6000, 12000, ... after a [survey](#survey), each with a new model. With
`"models": "shared"` in the task, all partitions use the models of partition 0, versions count the releases of all
partitions, and rounds may be skipped. With p coded features (the constant included) a model has p + p^2 + 7 numbers,
for K classes (K - 1) p + p^2 + 7. The first model has version 0; if there is a survey, it is the first
one after the survey:

| numbers | meaning | allowed | first model |
|---|---|---|---|
| p or (K - 1) p | origin a | within 1e4 | 0 |
| p^2 | transform W, row by row | within 1e8 | identity; with `covariates` M^-1/2; after a survey by its answers |
| 1 | length R | above 0, to 1e4 | see below |
| 1 | exponent g | 0 to 1 | the task's `exponent`; `null` is 1 |
| 2 | shares of `scatter` and `curvature` | at least 0, sum at most 1 | 0, 1/2; classes 3/8, 1/8; `covariates` 0, 1/10 |
| 1 | list of a [survey](#survey) | 0 (no survey) to 3 | 0 |
| 1 | middle m of a real target | within 1 | 0; after a survey by its answers |
| 1 | half width w of a real target | 1e-6 to 1; with a survey from 0 | 1; after a survey by its answers |

In the first model R is 1e4 with `covariates`, for classes then 1.3 sqrt(p); without them 32 / (p s), at least 1.3
sqrt(p) and at most 2 sqrt(p). Here s^2 is the noise variance of a matrix number at level `default`. Numbers of version
0 have 9 significant digits. A device draws 64 random bits before it reads its record. An integer below floor(2^64 share
of scatter) selects a scatter, below floor(2^64 both shares) a curvature, otherwise a score. With z = W x, t = a'x and c
= min(1, R / |z|) / |z|:

- `score`: r c z, with C = 1. For a binary target r = min(1, e^(-g t)) for 1 and -min(1, e^(g t)) for 0; for a real one
  r is (y - m) / w cut to [-1, 1]. For K classes the numbers are r_1 c z, r_2 c z, ..., with r = H'(e_y - q) / max_k
  |e_k - q|. H
  is as for [softmax](#gradients), A is the (K - 1) x p matrix of a, row by row, and q are the probabilities of the
  scores g H A x. Without a target r = 0.
- `scatter` and `curvature`: p (p + 1) / 2 numbers of v v', off-diagonal ones times sqrt(2), with v = sqrt(2 w c / M) z.
  M = min(R, 2 sqrt(p)) replaces R, also in c. For a scatter w = 1/2. For a curvature w = q (1 - q) (r(1) - r(0)) with
  q = 1 / (1 + e^-t), for a real target and classes 1/2, without a target 0. `gaussian` noise divides a number by
  sqrt(2) / (2 steps - sqrt(p (p + 1) / 2) - 2) and rounds it to the nearest integer; other mechanisms take the vector
  with C = 1.

**Prediction sets.** With `predictions` in the task, a model ends with further numbers: b, as long as a (within 1e4;
version 0: 0); the threshold t, from 0 to 2 (version 0: 0.0829107418 for a real target, else 0.196082856); and the share
of `covered` (at least 0, at most 1 with the other shares; version 0: the task's `predictions.share`). An integer from
floor(2^64 both shares) up to floor(2^64 all three) selects `covered`: one number, with C = 1, 1 or -1. It is 1 if |y -
m| <= t for a real target, m being x'b cut to [-1, 1], and for labels if (1 - t) / q <= 1, q being the label's
probability at b. Without a target it is 2 `predictions.coverage` - 1.

### Survey

Without `covariates`, in a task with features, the first models are a survey's: they have the list 1, 2 or 3 and shares
of 0. All people answer `above`: is one feature above a threshold? The queries are numbered from 0: for each column j
of W with a diagonal entry other than 0, and then for a real target if w is not 0, one for each threshold c of the list.

| list | thresholds |
|---|---|
| 1 | -15/16, -13/16, ..., 15/16 |
| 2 | -1.4, -0.7, 0, 0.7, 1.4 |
| 3 | -2, -1, -0.3, 0.3, 1, 2 |

Of n queries, the device answers the one of number floor(u n / 2^32), u being the first 32 of its 64 random bits, and
writes the number as `item`. The answer is one number with C = 1: 1 if W_jj x_j + W_jp > c (each product and sum rounded
to float64), for the target if (y - m) / w > c, else -1; 0 without a target.

Version 0 has list 1. The diagonal entries of its W are 1 for numbers and the constant and 3 for categories, the others
are 0; R and g are 1. It asks about a real target, with m = 0 and w = 1, unless there are `predictions` or several
partitions with models of their own; then w is 0. Let v be the noise variance of an answer at level `default`, and
e = 20 (1 + v). The first round ends at version ceil(e times the number of columns asked). If numbers are among them,
five more rounds follow, each ceil(e times the number of these) long. With `shuffle` no round is shorter than a crowd.
With `people` in the task, e is smaller if all rounds would take more than a tenth of them. In rounds that the survey
does not need, models have list 0. The first other round begins where the survey's last round ends.

**Without rounds** (`scores: {interactive: false}`) all answers are at version 0, and no model is read. One
person in ten answers a `curvature`, or nobody if p (p + 1) / 2 exceeds 600.
"""

BY_HAND: Final = """\
## Make a release

1. *Draw the partition* uniformly from the P partitions, and choose the level without looking at the record. Keep both.
2. *Code the record* to x: the features in [-1, 1] and the constant 1 (see [task files](task-file.md)). With
   `covariates`, M^-1/2 x replaces x, with M the mean of x x' over their points and a symmetric root.
3. *Compute* the [gradient](#gradients) at the model's iterate, or another protocol's vector.
4. *Quantise and add noise* as the [mechanism](#mechanisms) prescribes.
5. *Write the message.* `time` is now and `expires` now + `expiry`, both rounded down to the task's `granularity`;
   with `track`, `time` is the first second of the answer's window.
6. *Store the bytes* and the debit of the person's budget on disk before sending. Resend the same bytes to the same
   partition until the broker confirms them or `expires` has passed. Never draw new noise for the same record: the
   mean of several releases reveals more.

### Gradients

The gradient g is never longer than C. The weight w is 1 / max(1, |x|) for `norm`.

- `balanced`: g = r w x, C = 1. With t = theta'x, r = -min(1, exp(-t)) if y = 1 and min(1, exp(t)) if y = 0.
- `logistic`: g = (1 / (1 + exp(-theta'x)) - y) w x, C = 1.
- `softmax` of K classes: g = H'(q - e_y) w x', row by row, C = sqrt(2). theta is a matrix of K - 1 rows, row by row;
  q are the probabilities of the scores H theta x. H (K x (K - 1)) holds the orthonormal Helmert contrasts: column r
  compares class r + 1 with the mean of those before it.
- `huber`, scale known: g = -psi(u) w x with u = (y - theta'x) / scale, and C = c = `huber_c`. psi clamps u to [-c, c].
  `squared` and `median` are the same with scale 1 and c = 2 or 0.05.
- `huber`, scale estimated: the same with scale = 4 times theta's last number, and one more number, 4 ((k/2 - psi(u)^2
  / 2) w - m). Here m = k/2 - c^2/4, k = E min(Z^2, c^2) for a standard normal Z, and C = sqrt(c^2 + c^4).

Without a target g is zero (with an estimated scale 0, ..., 0, -4 m) and is released like any other. With `mallows` w =
min(1, 2 / |x|^2), and without covariates C is sqrt(2) for `balanced` and `logistic`, 2 for `softmax`, and sqrt(2) c and
sqrt(2 c^2 + c^4) for `huber`. With `clip` w = 1, and g is shortened to C = `clip`.

### Mechanisms

S = 2^20 is the width of the noise. Noise must be exact and come from the operating system's randomness: a rounded
normal number violates the guarantee. The steps must be exactly these, since the learner multiplies by them. To
*quantise* g at a spacing, divide each number by it and truncate towards zero. Then take single steps off the largest
number until the norm is at most `steps`.

- `gaussian`, the default of gdp and zcdp. Payload: g quantised at spacing C / steps to l2 norm steps, plus noise P(n) ~
  exp(-n^2 / 2 S^2) in each coordinate. Decoded: payload times C / steps. Limits: magnitudes steps + 13 S, squared norms
  d S^2 + steps^2 + 2 S sqrt(32 (d S^2 + 2 steps^2)) + 64 S^2. Steps for zcdp: the largest integer not above sqrt(rho
  S^2 / 2), rho rounded down to 1e-12. For gdp: the same with rho = mu^2 / 2, and not above sqrt(mu^2 (S^2 - 9) / 4),
  mu^2 rounded down to 1e-12. For approx: the largest for which mu = 2 steps / sqrt(S^2 - 9) satisfies (epsilon, delta).
- `laplace`. Payload: g quantised at spacing sqrt(d) C / steps to l1 norm steps, plus noise P(n) ~ exp(-|n| / S).
  Decoded: payload times sqrt(d) C / steps. Limits: magnitudes steps + 90 S, l1 norms steps + S (d + 8 sqrt(d) + 32) +
  d. Steps: the largest integer not above epsilon S / 2, epsilon rounded down to 1e-12.
- `l2-ball`. Draw a vector of `gaussian` noise. Let e be g with probability (1 + |g| / C) / 2, else -g. Of the vector
  and its negative, the one that points towards e is the payload with probability t / 2^64, else the other; t is the
  largest integer with t / (2^64 - t) at most e^epsilon. Decoded: the payload's direction times B = C (e^epsilon + 1) /
  (e^epsilon - 1) sqrt(pi)/2 d Gamma((d + 1)/2) / Gamma(d/2 + 1). Limits: magnitudes 13 S, squared norms as for
  `gaussian` with steps = 0.
- `privunit`. Draw n such vectors, and e as before. Order the n vectors and their n negatives by the angle to e. Each of
  the k nearest vectors is the payload with probability a / 2^64, each of the 2 n - k others with probability b / 2^64.
  b is the smallest multiple of k for which a = (2^64 - (2 n - k) b) / k is at most b e^epsilon. Decoded: the payload's
  direction times C / m, with m = A (p - (1 - p) k / (2 n - k)) and p = k a / 2^64. A is the mean of the k largest of n
  independent |first coordinates| of uniform unit vectors. Limits: as for `l2-ball`, with 32 + log(2 n a / 2^64),
  rounded up, in place of 32. n and k follow from d and epsilon (`murk.privacy.mechanisms.privunit.fitted`): (23, 16)
  for d = 11 and epsilon = 1, (54, 8) for epsilon = 4.

`best`, the default of pure and approx, tries the mechanisms that give the guarantee in this order. A later one replaces
an earlier one if its variance per coordinate (B^2 / d for the l2 ball, (C / m)^2 / d for PrivUnit) is below 0.99 times
the earlier one's. `null` in a task is `gaussian`, or `l2-ball` if delta is 0. A pure mechanism under zcdp has epsilon =
sqrt(2 rho), under gdp log(Phi(mu/2) / Phi(-mu/2)), at most mu (mu^2 rounded down to 1e-12).

### Code

In Python's standard library, for a binary target, numbers and categories (no dates), `norm` weights and a guarantee in
gdp or zcdp:
"""

SENDING: Final = """
`document` is the value under the key `task`. `model` is the newest value under the partition's key, or
None. With kafka-python:

```py
producer = KafkaProducer(bootstrap_servers="broker:9092", acks="all", enable_idempotence=False)
message = release(document, model, partition, {"age": 28, "same_sex": "yes", "third_child": "no"})
when = 1000 * json.loads(message)["time"]
sent = producer.send(f"murk-{name}-releases", message, partition=partition, timestamp_ms=when)
sent.get(timeout=60)
```

An idempotent producer's id would link a person's releases. The id in the message removes duplicates.
"""

VERSIONS: Final = """\
## Versions

`schema` is 1 for every kind. Any change of content or meaning takes a new number, even a new key. Readers refuse
unknown numbers: a release becomes a dead letter (`schema`), a device releases nothing, a learner stops at the state.
The task's `schema` is part of its hash, so releases of different meanings never mix.

## Schemas for a registry

`deploy/schemas` has one file per schema, with kind and number in its `$id`: `urn:murk:wire:gradient:1`. Messages have
no magic byte: register schemas for lookup only, under topic and kind (`murk-NAME-releases-gradient`), without the
registry's serializers. The compatibility mode is `NONE` for releases, models, estimates and dead letters, whose schemas
never change, and `BACKWARD` for states and the task ([upgrades](deploy.md#upgrades)).

[`deploy/asyncapi.yaml`](../deploy/asyncapi.yaml) describes topics, messages and who writes them as AsyncAPI 3.0, with
these schemas.
"""
