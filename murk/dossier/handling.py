"""Sections on trust, public data, retention, withdrawal and non-guarantees."""

from collections.abc import Iterator

from murk.dossier.content import Block, Claim, Table
from murk.dossier.deployment import span
from murk.dossier.facts import Facts

_NOT_READ = "not read"
_STORES = {
    "releases": "releases", "models": "models", "states": "learners' states", "dead": "dead letters",
    "estimates": "published estimates",
}  # fmt: skip
_TRUSTED = (
    ("whoever holds ledger and key",
     "for each name that they can guess: what it released, when, and whether it withdrew",
     "with keeping it (an older copy forgets spending), and with caps: whoever runs the gateway can raise them",
     "with any record or value; but it counts a file's clamped and missing values (of one person, if the file has "
     "one row), and with the key it reveals whether a file of given contents was used"),
    ("operator of the log (broker, its administrators)",
     "releases; connections and credentials, which show who sends and when",
     "with delivering; with not linking credentials to people",
     "with privacy: releases are protected before they arrive"),
    ("learner", "releases", "with the result being right", "with privacy"),
    ("monitor, dashboards, readers of results", "models, counts, intervals", "with nothing", "with privacy"),
    ("author of the task", "nothing", "with bounds that do not come from these people's data",
     "with the budget: a device's own caps hold whatever a task asks for"),
    ("other people who release", "the published models", "with honest answers: each can shift the result a little",
     "with privacy"),
)  # fmt: skip
_SHUFFLER = (
    "shuffler, with its intake and store",
    "who sends, when, and each release with its noise",
    "with forgetting who sent what: the second guarantee relies on it",
    "with records: the first guarantee holds towards it, too",
)


def trust(facts: Facts) -> Iterator[Block]:
    """Yield the section on who is trusted with what."""
    if facts.task.of_organisations:
        holder = (
            "the organisation",
            "its people's records, in memory while a window is open",
            "with the records, and with keeping its ledger",
            "-",
        )
    else:
        holder = (
            "the person's device, or a gateway that acts for several people",
            "their records; who they are",
            "with the records, the randomness of its system, and keeping the ledger",
            "with anybody else's records",
        )
    others = _TRUSTED if facts.task.shuffle is None else (*_TRUSTED[:1], _SHUFFLER, *_TRUSTED[1:])
    yield Table(("who", "sees", "trusted", "not trusted"), (holder, *others), ("release", "hostile", "caps", "names"))
    yield Claim(
        "A forged or hostile model costs accuracy, not privacy: it is checked before the record is read, and bound and "
        "noise are the same for every model.",
        ("hostile", "bound"),
    )


def public(facts: Facts) -> Iterator[Block]:
    """Yield the section on public data."""
    disclosure, block = facts.disclosure, facts.task.public
    if disclosure is not None:
        yield Claim(f"PUBLIC AS THEY ARE: {disclosure.describe()}", ("public",), "task")
    elif block is not None:
        whose = f"of the file {block.file}" if block.file else f"of {block.set_aside:,} people, drawn at random"
        yield Claim(
            f"PUBLIC AS THEY ARE, once the task is announced: the features (without the target) {whose}, without any "
            "guarantee. The command that announces the task says of how many people, and asks its operator to confirm.",
            ("public",),
            "task",
        )
    else:
        yield Claim("Nobody's features or answers are public: the task has no public sample.", ("public",))
    yield Claim(
        "Also public are the task with its bounds; the models, coefficients and intervals learned from releases, which "
        "disclose no more than the releases; counts of releases, refusals and dead letters; and the level and the "
        "truncated time of each release. The log also keeps when it arrived, to the second or finer.",
        ("release", "composition"),
    )
    yield Claim(
        "No error, log line, metric, state or page contains a value of a record or a name. Figures that depend on "
        "values leave no device, and sums over accounts are about 20 people or more.",
        ("silence", "groups"),
    )


def retention(facts: Facts) -> Iterator[Block]:
    """Yield the section on retention, as configured where the deployment was read."""
    task, deployment, accounts = facts.task, facts.deployment, facts.accounts
    asked = span(task.log.retention)
    read = {} if deployment is None else deployment.stores
    newest, least = "the newest of each chain", f"at least {asked}"
    intended = {"releases": f"{least} (log.retention)", "models": newest, "states": newest, "dead": least}
    rows = []
    for kind, name in _STORES.items():
        if kind in read:
            rows.append((name, read[kind].kept, f"{read[kind].place}: {read[kind].settings}"))
        elif kind in intended:
            rows.append((name, f"{intended[kind]}; {_NOT_READ}", _NOT_READ))
    rows += [
        ("releases not sent yet", f"on the {facts.device}, {span(task.expiry)} at most, then deleted", "task: expiry"),
        (
            "ledger (who spent what, on which days)",
            "as long as there may be another task: deleting it gives everybody a new budget",
            _ledger(facts) if accounts else f"{_NOT_READ}; beside the records unless another place was chosen",
        ),
        ("records", "Murk stores none", "-"),
    ]
    if deployment is None:
        origin = Claim("No log was read (--log): the table shows what the task asks for.", (), "task")
    else:
        encrypted = {True: "encrypted", False: "NOT encrypted", None: "no network"}[deployment.encrypted]
        origin = Claim(f"Read from {deployment.url}: {deployment.connection} ({encrypted}).", (), "deployment")
    yield origin
    yield Table(("what", "how long", "where, and settings as read"), tuple(rows), ("expiry", "topics"), origin.source)
    yield Claim(
        "The guarantee does not depend on how long releases, states and models are kept, or on who copies them: they "
        "are protected as stored.",
        ("composition", "noise"),
    )


def _ledger(facts: Facts) -> str:
    accounts = facts.accounts
    assert accounts is not None
    if accounts.plain:
        names = "NAMES AS THEY ARE"
    elif accounts.rows and (accounts.rows == accounts.people or not accounts.keyed):
        names = "people as rows of a file"
    else:
        names = "names as keyed hashes" if accounts.keyed else "no names yet"
    if accounts.digests:
        names += "; UNKEYED DIGESTS OF FILES, from which whoever has all other records can guess one"
    if accounts.keyed:
        names += "; the key is beside it (LEDGER.key), so a backup of the folder has both"
    return f"{accounts.path}: {names}"


def withdrawal(facts: Facts) -> Iterator[Block]:
    """Yield the section on withdrawal."""
    yield Claim(
        "How: `murk ledger LEDGER --person NAME --withdraw`, or Ledger.withdraw in an app; from one task or from all. "
        "It takes effect immediately where the ledger is, is dated, and cannot be undone.",
        ("withdrawal",),
    )
    yield Claim(
        f"What it stops: whatever waits to be sent is deleted, and the {facts.device} refuses every further release. "
        "Spent budget is not refunded.",
        ("withdrawal", "caps"),
    )
    yield Claim(
        "What stays: releases that were sent stay until retention removes them. Their share in states, models and "
        "results stays for good, because nobody can remove it from a result. Whoever runs the log can delete releases "
        "from it; Murk has no command for that.",
        ("release", "once"),
    )
    if facts.task.shuffle is not None:
        yield Claim(
            "Who released what: a release carries no name, and the shuffler gives each one a new id, another place in "
            "the log and the time of its crowd. A release that waits for its crowd cannot be found by the person's "
            "name: it is withdrawn only as long as it waits on the device. The intake and the store are deleted and "
            "overwritten when a crowd is released. Whoever reads the intake before, or sees connections, knows who "
            "sent what.",
            ("shuffling",),
        )
    else:
        yield Claim(
            "Who released what: a release carries no name (pseudonymous, not anonymous). A gateway (`murk run`, `murk "
            "produce`) sends block by block in the order of its file, shuffled within each block. Whoever has the file "
            "or the ledger and reads the log can find the block of people that a release comes from, in each of "
            "several tasks. A block has at most 2,048 rows; for scores the rest of an epoch, at most 16,384; for "
            "gradients a hundredth of the releases so far, which is a single person at first. Whoever sees connections "
            "or times of arrival can find more. The guarantee does not rely on this: it bounds what releases disclose "
            "of a record even to those who know whose they are.",
            ("release", "attack", "order"),
        )
    yield Claim(
        "Why that is within the guarantee: it covers what is released, for ever and with any later knowledge, and does "
        "not depend on what is kept. People who withdraw have disclosed what the table above says, like everybody "
        "else, and no more. Whether that meets a right to erasure is for the controller to judge.",
        ("attack", "composition"),
    )
    yield Claim(
        "Each person can see their own account, on one screen and without their name on it: `murk ledger LEDGER "
        "--person NAME`.",
        ("statement", "names"),
    )


def not_promised(facts: Facts) -> Iterator[Block]:
    """Yield the section on non-guarantees."""
    if facts.task.of_organisations:
        yield Claim("Anything towards the organisation: it holds the records, and is trusted with them.")
    yield Claim(
        "That somebody takes part, how often, and on which days stays unknown. (The release also states the chosen "
        "level.)"
    )
    yield Claim(
        "That nobody finds whose release is whose: ids are random, but order, time of arrival (the log keeps it to the "
        "second or finer), connections and credentials can tell. What it discloses of the record stays bounded."
        if facts.task.shuffle is None
        else "That the shuffler does not know who released what, or tells nobody: towards whoever has both, only the "
        "first guarantee holds."
    )
    yield Claim(
        "That a group's behaviour stays unknown: it is what is learned, and may say something about its members."
    )
    yield Claim(
        "That answers are honest, or that one device is one person: whoever floods the log can shift the result. Every "
        "report says how far forged releases could have moved it, in half-widths of its intervals."
    )
    yield Claim(
        "That a cap holds against whoever runs the device or gateway: they can raise it (Ledger.loosen), or use "
        "another ledger."
    )
    yield Claim(
        "That a ledger restored from an older copy is noticed; what was spent since could be spent again. Copies of "
        "ledger and key together identify people to whoever can guess the names.",
        ("old-copy",),
    )
    yield Claim("Anything against whoever controls the device itself, or its system's randomness.")
    yield Claim(
        "Anything about simulations (--seed): they protect nobody, say so on every release, and no log accepts both "
        "kinds."
    )
