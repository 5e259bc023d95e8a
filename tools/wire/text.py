"""The words around the schemas and examples of the wire's reference."""

from typing import Final

from murk.stream.messages.codec import Reason

HEAD: Final = """\
# What is on the wire

Everything that devices, learners and monitors tell one another stands on a log's topics, in formats that are
public: anyone who follows this page takes part, in any language and with any Kafka client. All messages are JSON
in UTF-8; nothing is pickled, compressed or signed.

*This page is written by `make generate` from the models that check the messages; in a checkout,
`python -m tools.wire` prints the schemas alone, as one JSON object.*

## Topics

A task of P partitions has four topics, and a fifth where somebody wants the estimate as JSON. `NAME` is the task's
name, or the one that the log's URL gives.

| topic | partition | key | value | headers | timestamp |
| --- | --- | --- | --- | --- | --- |
| `murk-NAME-releases` | the release's chain | none | a release | none | the broker's append time |
| `murk-NAME-models` | the chain | the chain, as decimal text | its newest model; a shared one under 0 | none | any |
| `murk-NAME-models` | 0 | `task` | the task's document | none | any |
| `murk-NAME-models` | 0 | `topics` | JSON: by name the ids of the topics it was announced on | none | any |
| `murk-NAME-states` | the chain | the chain, as decimal text | the chain's newest state | `offset`, `owner` | any |
| `murk-NAME-dead-letters` | the message's own | `PARTITION:OFFSET` of it | the message | `reason`, `detail` | any |
| `murk-NAME-estimates` | 0, the only one | `estimate` | the newest estimate | none | any |

- Models, states and estimates are compacted: the newest value of a key is what counts, and all others may be gone.
  Models, states, estimates and dead letters are written in transactions: read them with
  `isolation.level=read_committed`. Releases are not, and a transaction that somebody leaves open on them would only
  hold its readers up.
- Of a release nothing but partition, value and the broker's append time (`LogAppendTime`) is looked at. A key or
  a header would be one more thing to tell a person by, so a device sends none, and as the record's own timestamp
  nothing finer than `time` (the broker puts its own in the place of it).
- A state's header `offset` is the state's own, as decimal text, and `owner` says who wrote it. A dead letter's value
  is the message as it stood, or its first 65,536 bytes. Headers are UTF-8.
- Learners alone write models, states, estimates and dead letters, and anyone who sets a task up writes its document:
  give devices the right to write releases and to read models, and no other.
- A message is at most 1,000,000 bytes, a state at most 8 MiB.
- The embedded log (`sqlite:///PATH`) holds the same messages, in tables instead of topics.

## Messages

The examples are of the smallest task of [task files](task-file.md), whose coefficients are d = 3: `age`,
`same_sex` and the intercept.
"""

# By kind: a title, and what stands between it and the example.
MESSAGES: Final[dict[str, tuple[str, str]]] = {
    "gradient": (
        "A release of a gradient",
        "What leaves a person's device: their gradient, privatized. Integers are written without point and exponent "
        "(`1.0` is refused, which JSON Schema cannot say), every key is there once, and unknown keys are refused. "
        "The order of keys and white space do not matter. The task's `protocol` says which kind of release its "
        "log takes; this is that of `gradients`.",
    ),
    "score": (
        "A release of a score",
        "`protocol: scores`: a person's answer to one question, at the model of an epoch (see scores in epochs, "
        "below). With `protocol: moments` and `release: directions` all are at that of version 0.",
    ),
    "example": (
        "A release of an example",
        "`protocol: examples`, with `release: outer` (the default of the quadratic and squared losses under `pure`, "
        "and up to 64 coded features under `approx`, `gdp` with mu up to 3 and `zcdp` with rho up to 4.5, but under "
        "these two not for labels with public covariates and mu up to 2): (d + 1) (d + 2) / 2 numbers. The upper "
        "triangle, row after row, of v "
        "v' with its numbers off the diagonal times sqrt 2; v is the features, the constant 1 and the target (of a "
        "label -1 or +1) over the root of 1 + the square of the length of features and constant, and zeros where the "
        "target is missing. With `release: directions` (their default otherwise): d + 2 numbers. The features "
        "over the record's length, the constant's 1 in it, and of a label times -1 or +1; then 1 and the target, both"
        " over that length, the target cut off at the other as integers; then 0. Where the target is missing, all are"
        " 0 but the last, which is 1414 steps / 1000, rounded down. With `release: joint`, d: the features and the "
        "constant, times the label; nothing says which label it was. See [IWP-SGD](iwp-sgd.md).",
    ),
    "moment": (
        "A release of moments",
        "`protocol: moments`, with `release: observed`: the upper triangle of x x', row after row, with its "
        "numbers off the diagonal times sqrt 2, and then b x y, of coded features with the constant last, y "
        "in [-1, 1] (of a label -1 or +1), r the bound of the length of x and b = sqrt 2 r. In place of the "
        "constant's own number stands r, or -r where the target is missing, all others being 0 then. With "
        "`joint`: without that number, y being 0 where it is missing. With `separate`: as `joint`, without "
        "the factors. See [public-data GLM](public-glm.md).",
    ),
    "sketch": (
        "A release of a sketch",
        "`protocol: sketch` with `method: linear-mixing` or `mixing`: one window of an organisation's records, mixed. "
        "See [GaussMix](gaussmix.md). The payload is base64, since decimal text would take twice the room; the "
        "example is shortened.",
    ),
    "gram": (
        "A release of an organisation's moments",
        "`protocol: sketch` with `method: moments` (the default): the sum of z z' over one window of an organisation's "
        "records, z a record's coded features, the constant and the target, with noise. See [GaussMix](gaussmix.md). "
        "The payload is the upper triangle, row after row, in base64 as a sketch's.",
    ),
    "newton": (
        "A release of a Newton step",
        "`protocol: sketch` with `method: newton`: the sums of z z' over the first records of a window (the task's "
        "`sketch.first`) and over all others, with noise; z is of the first ones as with `method: moments`, and of the "
        "others (sqrt(h w) x, sqrt(h / w) (y - q)), x the coded features and the constant, y the label, 0 or 1, q the "
        "chance that `model` gives it, w = q (1 - q), and h = min(1, e^(1 - |log odds|)). `model` holds its "
        "coefficients, the constant's last; it is made of the first sum as released. A record without a label is zeros "
        "in both. See [GaussMix](gaussmix.md). The payload is both upper triangles, the first part's first, each row "
        "after row, in base64 as a sketch's.",
    ),
    "iterate": (
        "A model",
        "The iterate of one chain, which is where gradients are taken; its length is the task's dimension d. (With "
        "`protocol: scores` it is the model of an epoch, see below.) The numbers are float64 in shortest decimal form: "
        "read as float64 they are exact.",
    ),
    "task": (
        "A task",
        "The resolved task: every key with its value, keys sorted, no spaces, numbers as Python's `repr` writes "
        "them. What the keys mean, and which values go together, is in [task files](task-file.md). The hash that "
        "every message carries is the SHA-256 of these bytes without the key `log`. A parser that turns `35.0` "
        "into `35` does not give it: take it from a model message, or from anyone who runs the task.",
    ),
    "state": (
        "A state",
        "What a chain's learner is, as of `offset`, in one message with what became of everything before it: "
        "messages read = learned + duplicates + dead letters. A monitor reads it; nobody but the chain's owner "
        "writes it. Its `trail` is how the estimate has moved: a point at 16 releases and then four an octave (of "
        "organisations' releases from the first one on), every second one left out where they would be more than 200, "
        "or 256 KiB; of "
        "more than about 1,500 coefficients none is kept. At which counts follows from the count alone, and times are "
        "the log's own, so that anyone who replays the log has the same bytes.",
    ),
    "estimate": (
        "An estimate",
        "What was learned by all chains together, for [dashboards and neighbours](deploy.md#estimates-as-json). "
        "Nothing of Murk reads it. It is a function of the chains' states, hence of releases and public settings.",
    ),
    "dead letter": (
        "A dead letter",
        "What was on the log and was not learned. The value is whatever somebody sent, and may be no JSON at all.",
    ),
}

# In the order in which they are looked for; the first that applies is the one.
CAUSES: Final[dict[Reason, str]] = {
    "too-large": "longer than 512 + 22 d bytes, where d is the number of integers in a release, of scores in the "
    "longest (a sketch, and an organisation's moments: 512 + 4 bytes for every 3 of 8 d)",
    "malformed": "not one JSON object in UTF-8, or a key given twice",
    "schema": "a field missing, unknown, of another type or out of its range; another `schema` or `kind`",
    "wrong-task": "`task` is not the hash of the log's task",
    "simulated": "`simulated` is not what the task's document says: a log carries simulated releases, or real ones",
    "chain": "`chain` is not below the number of partitions, or not the partition that the release stands on",
    "level": "`level` is not one of the task's (`default`, and the keys of `privacy.levels`)",
    "dimension": "`payload` has not d numbers, of scores not as many as its `question`; a sketch's `rows` are not the "
    "task's",
    "magnitude": "a number of the payload, or its squared norm, lies beyond what honest noise reaches (see the "
    "mechanisms below)",
    "expired": "the log appended it later than `expires`, in whole seconds",
    "duplicate": "never a dead letter: an id that stands among the previous `duplicates` offsets of the partition, "
    "whatever became of that message, is counted as a duplicate and dropped",
    "future": "`version` is larger than the number of releases that the chain has learned; where chains share models, "
    "than that of the newest model",
    "stale": "`version` is older than max(`max_staleness.releases`, `max_staleness.share` of the chain's count); of "
    "scores, it is not of the newest 8 epochs",
    "version": "no model of this version was ever published",
}

RULES: Final = """
A chain's **version** is the number of releases that it has learned. The published versions are the multiples of
a spacing: the largest power of two not above max(1, v // 200, min(f, v // 100)) at version v, where
f = `max_staleness.releases` // 64. A device has no need of that: it copies the version of the model it has read.

A **device** takes no gradient at a model that is not of its task and chain, not of d finite numbers, or longer
than the task's `radius` (`null` is 3, and 1.5 for a real target; an estimated scale is checked apart); longer than
512 + 26 d bytes is not read. It looks at all this before it looks at its record, and what it does then does not
depend on what the record holds. Before there is a model, gradients are taken at version 0: all zeros, and an
estimated scale at `scale_start` / 4.

**Scores in epochs.** With `protocol: scores` a chain publishes a model at the versions 0, 3000, 6000, 12000, ... alone
(where the task's document says `"models": "shared"`, chain 0 for all chains: a device of any chain reads the model
under chain 0, versions count the releases of all chains, and some of these versions may be left out),
each the beginning of an epoch, and a release names the epoch whose model it was made at: it is learned however old that
is, as long as its epoch is one of the newest 8. With p coded features (the constant among them) a model is
p + p^2 + 4 numbers (of K classes (K - 1) p + p^2 + 4): the origin a; the transform W, row after row; a length R; an
exponent g from 0 to 1; and the shares of the people who are asked for a `scatter` and for a `curvature`; all others are
asked for their `score`. A device
draws 64 random bits before it looks at its record: an integer below floor(2^64 share of scatter) is a scatter, below
floor(2^64 share of both) a curvature. Before there is a model it answers at version 0: a = 0, W the identity (where
the task has `covariates` M^-1/2), R = 1e4 (of classes 1.3 sqrt(p); without `covariates` 32 / (p s), but no less than
1.3 sqrt(p) and no more than 2 sqrt(p), s^2 being the variance of a matrix number's noise at level `default`), g = the
task's `exponent` (`null` is 1), no scatters, and a half of curvatures (with `covariates` a tenth); each number to 9
significant digits. It refuses a model that is not of finite numbers within these ranges (a up to 1e4, W up to 1e8, R
above 0 and up to 1e4). With z = W x, t = a'x and
c = min(1, R / |z|) / |z|:

- `score`: r c z, p numbers no longer than C = 1. Of a binary target r = min(1, e^(-g t)) for 1 and -min(1, e^(g t))
  for 0; of a real one r is the coded target. Of K classes r is a vector, and the (K - 1) p numbers are r_1 c z, then
  r_2 c z, and so on: r = H'(e_y - q) / max_k |e_k - q|, with H as in step 3 below, a being A, (K - 1) x p, row by row,
  and q the probabilities of the scores g H A x. Without a target all are 0.
- `scatter` and `curvature`: v v', with v = sqrt(2 w c / M) z, with
  M = min(R, 2 sqrt(p)) in the place of R in c, too; the upper triangle row after row, p (p + 1) / 2 numbers,
  those off the diagonal times sqrt(2). w = 1/2 for a scatter; for a curvature w = q (1 - q) (r(1) - r(0)), where
  q = 1 / (1 + e^-t), of a real target and of classes 1/2, and without a target 0. For `gaussian` noise steps are as
  below, and a number is divided by sqrt(2) / (2 steps - sqrt(p (p + 1) / 2) - 2) and rounded to the nearest integer;
  other mechanisms take these numbers as any vector with C = 1.

**Directions.** With `protocol: moments` and `moments: {release: directions}` releases are scores, all of version 0, and
there are no models: the one epoch does not end. A device answers as at version 0 above, whatever a log holds; one in
ten answers a `curvature`, but nobody where p (p + 1) / 2 is above 600: a `curvature` is then refused.

A **learner** that takes a chain over goes on from the state and from `offset`. It refuses a state of another
task, chain or log (`identity`), one whose `last_id` is not that of the last release before `offset`, and one
that it cannot read; it never starts again by itself.
"""

BY_HAND: Final = """\
## A release by hand

1. *Draw the chain* uniformly from the P partitions, and the level without looking at the record; keep both.
2. *Code the record* to x in [-1, 1]^p and the constant 1 (see [task files](task-file.md)). Where the task has
   `covariates`, M^-1/2 x takes the place of x, symmetric root, M being the mean of x x' over their points.
3. *Take the gradient* g at the model's iterate. Its length never exceeds the bound C. The weight w is
   1 / max(1, norm of x) for `norm`, and then

   - `balanced`: g = r w x, and C = 1; with t = theta'x, r is -min(1, exp(-t)) where y = 1 and min(1, exp(t)) where
     y = 0.
   - `logistic`: g = (1 / (1 + exp(-theta'x)) - y) w x, and C = 1.
   - `softmax` of K classes: g = H'(p - e_y) w x', row after row, and C = sqrt(2); theta is (K - 1) x p, row after
     row, the scores are H theta x, p their probabilities. H (K x (K - 1)) holds the orthonormal Helmert contrasts:
     column r compares class r + 1 with the mean of those before it.
   - `huber`, scale known: g = -psi(u) w x, and C = c; c is `huber_c`, u = (y - theta'x) / scale, and psi(u) is u
     cut to [-c, c]. `squared` and `median` are this with scale = 1 and c = 2 or 0.05, whatever `huber_c` and `scale`
     say.
   - `huber`, scale estimated: the same with scale = 4 times theta's last number, and one number more,
     4 ((k/2 - psi(u)^2 / 2) w - m), where m = k/2 - c^2/4 and k = E min(Z^2, c^2), Z standard normal;
     C = sqrt(c^2 + c^4).

   Without a target the gradient is zero (for an estimated scale: 0, ..., 0, -4 m), and is released like any
   other. For `mallows` w = min(1, 2 / norm^2), and C = sqrt(2), 2, sqrt(2) c and sqrt(2 c^2 + c^4) (without
   covariates). For `clip` w = 1, g is shortened to `clip`, and C = `clip`.
4. *Quantise and add noise.* S = 2^20 is the width of the noise. What leaves is integers:

   - `gaussian` (the default for gdp and zcdp): the payload is g / (C / steps), fractions dropped, its l2 norm
     at most steps, plus in each coordinate noise of the distribution P(x) ~ exp(-x^2 / 2 S^2). It stands for payload
     times C / steps, and honest magnitudes are at most steps + 13 S, honest squared norms at most
     d S^2 + steps^2 + 2 S sqrt(32 (d S^2 + 2 steps^2)) + 64 S^2. For zcdp steps is the largest integer not above
     sqrt(rho S^2 / 2), rho rounded down to 1e-12; for gdp the same with rho = mu^2 / 2, and not above
     sqrt(mu^2 (S^2 - 9) / 4) either, mu^2 rounded down to 1e-12; for approx the largest at which
     mu = 2 steps / sqrt(S^2 - 9) keeps (epsilon, delta).
   - `laplace`: the payload is g / (sqrt(d) C / steps), fractions dropped, its l1 norm at most steps, plus noise of the
     distribution P(x) ~ exp(-|x| / S). It stands for payload times sqrt(d) C / steps; magnitudes are at most steps + 90
     S, norms at most steps + S (d + 8 sqrt(d) + 32) + d;
     steps is the largest integer not above epsilon S / 2, epsilon rounded down to 1e-12.
   - `l2-ball`: draw a vector of noise as for `gaussian`; let e be g with probability
     (1 + norm of g / C) / 2, else -g. With probability t / 2^64 the payload is that one of the vector and its negative
     which points e's way, else the other; t is the largest integer with t / (2^64 - t) at most e^epsilon. It stands
     for its direction times B; magnitudes are at most 13 S, squared norms as for `gaussian` with steps = 0.
   - `privunit`: draw n such vectors of noise and let e be as before. Of the n vectors and their n negatives, order by
     the angle to e; let a word be uniform below 2^64. The payload is one of the k nearest, each for a of the words, or
     one of the 2 n - k others, each for b of them: b is the smallest multiple of k for which
     a = (2^64 - (2 n - k) b) / k is at most b e^epsilon. It stands for its direction times C / m,
     m = A (p - (1 - p) k / (2 n - k)), p = k a / 2^64, A the mean of the k largest of n independent |first coordinates|
     of uniform unit vectors; magnitudes are at most 13 S, squared norms as for `gaussian` with steps = 0 and
     32 + log(2 n a / 2^64), rounded up, in place of 32. n and k follow from d and epsilon:
     `murk.privacy.mechanisms.privunit_calibration.fitted`, such as (23, 16) for d = 11 and epsilon = 1, (54, 8) for 4.

   For the l2 ball B = C (e^epsilon + 1) / (e^epsilon - 1) sqrt(pi)/2 d Gamma((d + 1)/2) / Gamma(d/2 + 1). `best`, the
   default for pure and approx, goes through those that give the guarantee in this order: the next takes the place of
   the one before it where its variance is below 0.99 of that one's (a coordinate's: B^2 / d for the l2 ball,
   (C / m)^2 / d for PrivUnit). A document's `null` is `gaussian`, and `l2-ball` where delta is 0. For a pure mechanism
   zcdp gives epsilon = sqrt(2 rho), and gdp log(Phi(mu/2) / Phi(-mu/2)), at most mu (mu^2 rounded down to
   1e-12). The steps have to be these very ones: the learner multiplies by its own. The noise has to be exact,
   from the operating system's randomness: a rounded normal number tells more than was promised.
5. *Write the message.* `id`: 128 random bits, of the operating system. `time`: now, truncated to a multiple of
   the task's `granularity` in seconds. `expires`: now + `expiry`, truncated alike. `simulated`: as the task says.
6. *Keep the bytes* and the debit from the person's budget on disk before sending. What is sent again is these
   bytes, to the same partition, until the broker has confirmed them or `expires` has passed; noise is never
   drawn again for the same record, since the mean of several releases would tell more than was promised.

In Python, with its standard library alone, for a binary target, features that are numbers or categories (no dates),
`norm` weights and a guarantee in gdp or zcdp:
"""

SENDING: Final = """
`document` is the value under the key `task`, `model` the newest value under the key of the chain (or None). With
kafka-python:

```py
producer = KafkaProducer(bootstrap_servers="broker:9092", acks="all", enable_idempotence=False)
message = release(document, model, chain, {"age": 28, "same_sex": "yes", "third_child": "no"})
sent = producer.send(f"murk-{name}-releases", message, partition=chain, timestamp_ms=json.loads(message)["time"] * 1000)
sent.get(timeout=60)
```

An idempotent producer numbers its records under an id of its own, which would link a person's releases; the id
in the message is what removes duplicates.
"""

VERSIONS: Final = """\
## Versions

Every message says its `schema`, and so does the task's document; a state's is 2, all others are 1. A change of what a
message holds or means, a new key included, is a new number, and nothing reads a number that it does not know:

- a release becomes a dead letter with the reason `schema`;
- a device refuses the model or the task, and releases nothing;
- a learner stops at the state and says so: use the version of Murk that wrote it, or start a new log.

A state of schema 1, which has no `trail`, is read as one with an empty trail, and written as schema 2.

The task's schema is part of its hash, so that releases of one meaning are never learned as those of another. A
learner's own state has a `schema` too, and a fingerprint of its settings.

## Schemas for a registry

`deploy/schemas` has each schema of this page as a file of its own, with an `$id` that holds kind and number:
`urn:murk:wire:gradient:1`. Messages are plain JSON without a registry's head of magic byte and number, so register a
schema for those who look it up, under the topic's name and the kind (`murk-NAME-releases-gradient`, say), and leave
serializers of the registry out.

- **Releases, models, estimates, dead letters: `NONE`.** What a number means never changes. A change of any kind, a new
  key included, is a new number, and a new file beside the old one. A test compares each schema with the one that was
  published under its `$id`.
- **States, the task: `BACKWARD`.** A newer version of Murk reads what an older one wrote; an older one refuses what it
  does not know, in words ([upgrades](deploy.md#upgrades)).
"""
