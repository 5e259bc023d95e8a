"""Sections on who is trusted, what is public, how long what is kept, withdrawing, and what is not promised."""

from __future__ import annotations

from murk.dossier.content import Claim, Sample, Section, Table
from murk.dossier.deployment import span
from murk.dossier.facts import Facts

_NOT_READ = "not read"


def trust(facts: Facts) -> Section:
    """Who is trusted with what."""
    organisation = facts.task.of_organisations
    holder = (
        ("the organisation", "its people's records, in memory while a window is open",
         "with the records, and with keeping its ledger", "-")
        if organisation
        else (
            "the person's device, or a gateway that acts for several people",
            "their records; who they are",
            "with the records, the randomness of its system, and keeping the ledger",
            "with anybody else's records",
        )
    )  # fmt: skip
    rows = (
        holder,
        ("whoever holds ledger and key", "of each name that they think of: what it released, when, and if it withdrew",
         "with not losing it (an older copy forgets spending), and with caps: whoever runs the gateway can raise them",
         "with any record, or value of one; it has counts of a file's rows that were clamped or missing, of one row in "
         "a file of one, and with the key tells whether a file of given contents was released from"),
        ("operator of the log (broker, its administrators)", "releases; connections and credentials, so who sends when",
         "with delivering; with not linking credentials to people", "with privacy: releases are protected before "
         "they arrive"),
        ("learner", "releases", "with the result being right", "with privacy"),
        ("monitor, dashboards, readers of results", "models, counts, intervals", "with nothing", "with privacy"),
        ("author of the task", "nothing", "with bounds that do not come from these people's data",
         "with the budget: a device's own caps hold whatever a task asks for"),
        ("other people who release", "the published models", "with honest answers: each can shift the result a little",
         "with privacy"),
    )  # fmt: skip
    return Section(
        "trust",
        "Who is trusted with what",
        (
            Table(("who", "sees", "trusted", "not trusted"), rows, ("release", "hostile", "caps", "names")),
            Claim(
                "A forged or hostile model costs accuracy, not privacy: it is checked before the record is read, and "
                "bound and noise are the same for every model.",
                ("hostile", "bound"),
            ),
        ),
    )


def public(facts: Facts) -> Section:
    """What everybody may see."""
    disclosure = facts.disclosure
    blocks: list[Claim | Table | Sample] = []
    if disclosure is not None:
        blocks.append(Claim(f"PUBLIC AS THEY ARE: {disclosure.describe()}", ("public",), "task"))
    elif facts.task.public is not None:
        block = facts.task.public
        what = (
            f"those of the file {block.file}" if block.file else f"those of {block.set_aside:,} people, drawn at random"
        )
        blocks.append(
            Claim(
                f"PUBLIC AS THEY ARE, once the task is announced: features (without the target), {what}, under no "
                "guarantee. The command that announces it says of how many people, and asks.",
                ("public",),
                "task",
            )
        )
    else:
        blocks.append(Claim("Nobody's features or answers are public: the task has no public sample.", ("public",)))
    blocks.append(
        Claim(
            "Public are also: the task itself with its bounds; the models, coefficients and intervals learned from "
            "releases, which disclose no more than the releases do; counts of releases, refusals and dead letters; "
            "the chosen level and the truncated time on each release; beside it the log keeps when it arrived, to the "
            "second or finer.",
            ("release", "composition"),
        )
    )
    blocks.append(
        Claim(
            "No value of a record and no name is in an error, a log line, a metric, a state or a page; figures that "
            "depend on values leave no device, and sums over accounts are about 20 people or more.",
            ("silence", "groups"),
        )
    )
    return Section("public", "What is public", tuple(blocks))


def retention(facts: Facts) -> Section:
    """How long what is kept, where, as it is really configured."""
    task, deployment, accounts = facts.task, facts.deployment, facts.accounts
    asked = span(task.log.retention)
    read = {} if deployment is None else deployment.stores
    intended = {
        "releases": f"at least {asked} (log.retention)",
        "models": "the newest of each chain",
        "states": "the newest of each chain",
        "dead": f"at least {asked}",
    }
    names = {"releases": "releases", "models": "models", "states": "learners' states", "dead": "dead letters"}
    if "estimates" in read:
        names["estimates"] = "published estimates"
    rows = [
        (
            names[kind],
            read[kind].kept if kind in read else f"{intended[kind]}; {_NOT_READ}",
            f"{read[kind].place}: {read[kind].settings}" if kind in read else _NOT_READ,
        )
        for kind in names
    ]
    rows += [
        ("releases not sent yet", f"on the {facts.device}, {span(task.expiry)} at most, then deleted", "task: expiry"),
        (
            "ledger (who spent what, on which days)",
            "as long as there may be another task: deleting it gives everybody a new budget",
            _ledger(facts) if accounts else f"{_NOT_READ}; beside the records, where nobody named another place",
        ),
        ("records", "Murk stores none", "-"),
    ]  # fmt: skip
    blocks: list[Claim | Table | Sample] = []
    if deployment is None:
        blocks.append(
            Claim(
                "No log was read (--log): what follows is what the task asks for, not what is configured.",
                (),
                "task",
            )
        )
    else:
        encrypted = {True: "encrypted", False: "NOT encrypted", None: "no network"}[deployment.encrypted]
        blocks.append(Claim(f"Read from {deployment.url}: {deployment.connection} ({encrypted}).", (), "deployment"))
    blocks.append(
        Table(("what", "how long", "where, and as read"), tuple(rows), ("expiry", "topics"),
              "task" if deployment is None else "deployment")
    )  # fmt: skip
    blocks.append(
        Claim(
            "However long releases, states and models are kept, and whoever copies them: they are protected as they "
            "stand, and the guarantee does not wear off.",
            ("composition", "noise"),
        )
    )
    return Section("retention", "How long what is kept", tuple(blocks))


def _ledger(facts: Facts) -> str:
    assert facts.accounts is not None
    accounts = facts.accounts
    if accounts.plain:
        names = "NAMES AS THEY ARE"
    elif accounts.rows and (accounts.rows == accounts.people or not accounts.keyed):
        names = "people as rows of a file"
    else:
        names = "names as keyed hashes" if accounts.keyed else "no names yet"
    if accounts.digests:
        names += "; UNKEYED DIGESTS OF FILES, from which a record can be guessed by whoever has all others"
    if accounts.keyed:
        names += "; the key lies beside it (LEDGER.key), so that a folder's backup has both"
    return f"{accounts.path}: {names}"


def withdrawal(facts: Facts) -> Section:
    """What withdrawing does."""
    return Section(
        "withdrawal",
        "Withdrawing",
        (
            Claim(
                "How: `murk ledger LEDGER --person NAME --withdraw`, or Ledger.withdraw in an app; from one task or "
                "from all. It takes effect at once where the ledger is, is dated, and cannot be taken back.",
                ("withdrawal",),
            ),
            Claim(
                f"What it stops: whatever waits to be sent is deleted, and the {facts.device} refuses every further "
                "release. What was spent is not refunded.",
                ("withdrawal", "caps"),
            ),
            Claim(
                "What stays: releases that were sent stay until retention removes them, and their share in states, "
                "models and results stays for good: nobody can take it out of a result. From the log they can be "
                "deleted while it lasts, by whoever runs it; Murk has no command for that.",
                ("release", "once"),
            ),
            Claim(
                "Whose a release is: it carries no name, and is pseudonymous, not anonymous. A gateway (`murk run`, "
                "`murk produce`) sends block by block in the order of its file, shuffled within each block: who has "
                "the file or the ledger, and reads the log, finds which block of people a release is from, in each of "
                "several tasks (2,048 rows at most, of scores an epoch's rest; of gradients a hundredth of the "
                "releases so far, one at a time at first, where that is whose it is). Who sees connections, or the "
                "times of arrival, can find more. The guarantee does not rest on that: it bounds what releases "
                "disclose of a record to anyone, also to who knows whose they are.",
                ("release", "attack", "order"),
            ),
            Claim(
                "Why that is within the guarantee: it is about what is released, for ever and with any later "
                "knowledge, and not about what is kept. Who withdraws has disclosed what the table above says, as "
                "everybody else, and no more. Whether that meets a right to erasure in a given case is for the "
                "controller to judge.",
                ("attack", "composition"),
            ),
            Claim(
                "Each person can see their own account, on one screen and without their name on it: `murk ledger "
                "LEDGER --person NAME`.",
                ("statement", "names"),
            ),
        ),
    )


def not_promised(facts: Facts) -> Section:
    """What nobody should read into it."""
    organisation = facts.task.of_organisations
    claims = [
        "That somebody takes part, how often, and on which days. (The level that they chose is on the release, too.)",
        "That nobody finds whose release is whose: ids are random, but order, time of arrival (the log keeps it to the "
        "second or finer), connections and credentials can tell. What it discloses of the record stays bounded.",
        "That a group's behaviour stays unknown: it is what is learned, and may say something of its members.",
        "That answers are honest, or that one device is one person: whoever floods the log can shift the result. Every "
        "report says how far forged releases could have moved it, in half widths of its intervals.",
        "That a cap holds against whoever runs the device or gateway: they can raise it (Ledger.loosen), or take "
        "another ledger.",
        "That a ledger put back from an older copy is noticed; what was spent since would be spent again. Copies of "
        "ledger and key together name people to whoever can guess the names.",
        "Anything against whoever controls the device itself, or its system's randomness.",
        "Anything about simulations (--seed): they protect nobody, say so on every release, and no log takes both "
        "kinds.",
    ]
    if organisation:
        claims.insert(0, "Anything towards the organisation: it holds the records, and is trusted with them.")
    blocks = [Claim(text, ("old-copy",) if "older copy" in text else ()) for text in claims]
    return Section("not-promised", "What is not promised", tuple(blocks))
