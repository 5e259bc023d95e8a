"""The producer: what runs on a person's side, from her record to the bytes that leave her device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.privacy.noise import Purpose, SecureNoise, below, identifiers
from murk.producers.claims import Claims
from murk.producers.delivery import Delivery
from murk.producers.models import Model, Models
from murk.producers.policy import Policy
from murk.producers.reports import BlockReport, Counts, FlushReport, Receipt
from murk.stream.codec import encode
from murk.stream.releases import GradientRelease, truncate_time
from murk.stream.resume import check_carries

if TYPE_CHECKING:
    from murk.learners.problem import GradientProblem
    from murk.privacy.noise import NoiseSource
    from murk.producers.ledger import Ledger
    from murk.producers.runs import Run
    from murk.producers.sources import Block, FileSource
    from murk.producers.spending import Spending
    from murk.stream.log import Log
    from murk.stream.task import Task

Key = TypeVar("Key", int, str)

SINGLES = 1 << 40
"""Where the simulated draws of records begin that come from no file: far beyond every row."""

CANDIDATES = 64
"""Words from which an integer below n is drawn; that all of them fail has a probability below 2^-64."""


class Producer:
    """Releases records of a task: bounds, pays, randomizes once, keeps the bytes, sends them.

    Whether, when and where something is sent depends on public things and on the ledger alone, never on a
    value. A model is checked before a record is looked at. What is missing is coded by the task's public
    rule, and a record without a usable target releases the mechanism of a zero gradient.

    Parameters
    ----------
    task
        The task, as the log carries it.
    log
        The log.
    ledger
        The accounts of the people whose records are released.
    noise
        Where noise comes from. By default `SecureNoise`; a task whose releases are simulated needs a
        `SimulatedNoise`, and only such a task takes one.
    policy
        What this device allows. A task's own promise is the cap unless the device sets
        ``Policy(lifetime=..., per_task=...)``: by default nothing caps what all tasks together spend.
    clock
        Time in seconds since 1970; it reaches the log truncated to the task's granularity.
    problem
        The task's gradient problem, where it is at hand.

    Attributes
    ----------
    counts
        Sums over the records that were looked at, for the device's own eyes.

    Raises
    ------
    UserError
        When the log carries another task, the ledger is tied to another log, the noise is of the other kind,
        or the policy does not allow what the task asks for.

    Examples
    --------
    >>> import tempfile
    >>> from murk.producers import Ledger
    >>> from murk.stream import Task, open_log
    >>> task = Task.parse('''
    ... name: weeks
    ... features: [{name: age, low: 20, high: 40}]
    ... target: {name: worked, kind: binary, positive: "yes"}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> folder = tempfile.mkdtemp()
    >>> with open_log(f"sqlite:///{folder}/log.db") as log, Ledger(f"{folder}/ledger.db") as ledger:
    ...     log.announce(task.document())
    ...     producer = Producer(task, log, ledger)
    ...     producer.release({"age": 31, "worked": "yes"}).outcome
    ...     producer.release({"age": 31, "worked": "yes"}).outcome
    'released'
    'refused'
    """

    def __init__(
        self,
        task: Task,
        log: Log,
        ledger: Ledger,
        *,
        noise: NoiseSource | None = None,
        policy: Policy | None = None,
        clock: Callable[[], float] = time.time,
        problem: GradientProblem | None = None,
    ) -> None:
        self.task = task
        self.counts = Counts()
        self._log = log
        self._ledger = ledger
        self._clock = clock
        self._noise = self._check_noise(noise)
        check_carries(log, task)
        if problem is None:
            from murk.learners.problem import problem_for

            problem = problem_for(task)
        self._problem = problem
        self._admission = (policy or Policy()).admit(task, problem.mechanisms)
        ledger.bind(log.identity, task.hash, name=task.name)
        ledger.book(
            task.hash,
            list(self._admission.charges.values()),
            caps=self._admission.caps,
            lifetime=self._admission.lifetime,
        )
        self._models = Models(log, task, problem)
        self._delivery = Delivery(log, ledger, task.hash)

    @property
    def levels(self) -> tuple[str, ...]:
        """Levels of the task's menu that this device may use."""
        return tuple(self._admission.charges)

    def release(
        self, record: Mapping[str, Any], *, person: str = "me", key: str | None = None, level: str = "default"
    ) -> Receipt:
        """Release one record, if the person's caps have room.

        Parameters
        ----------
        record
            Raw values by column. It is not looked at before the model was checked and the release was paid.
        person
            Whose it is: the name of her account in the ledger.
        key
            What the record is recognised by when it comes again; it must not be made from its values. None
            for a record that comes once.
        level
            The level of the task's menu that she chose, without looking at the record.

        Returns
        -------
        Receipt
            "released" also when the log could not be reached: the release then waits in the outbox.

        Raises
        ------
        UserError
            For a level that is not to be had, or a hostile model.
        MurkError
            When the log cannot be read or the ledger cannot be written: nothing was debited or released.
        """
        self._check_levels([level])
        # Draws of a simulation are told apart by the number that the release will get.
        index = np.array([SINGLES + self._ledger.next_number if self._noise.simulated else 0])
        chain = int(self._chains(index)[0])
        model = self._models.at_hand(chain)
        claims = Claims([key], [person], [level])
        with self._ledger.spending(self.task.hash, claims) as spend:
            if spend.granted:
                coded = self.task.coding.encode_record(record)
                x, y = coded.x[None, :], np.array([coded.y])
                self._freeze(spend, index, np.array([chain]), {chain: model}, x, y)
        if spend.refusals:
            return Receipt("refused", "none", spend.refusals[0].reason)
        if spend.known:
            self._delivery.try_flush(self._clock())
            queued = self._ledger.is_queued(self.task.hash, spend.known[0])
            return Receipt("known", "queued" if queued else "none", "this record was released before")
        self.counts.add(person, coded.clamped, coded.missing)
        reason = self._delivery.try_send(spend, self._clock())
        return Receipt("released", "queued" if reason else "sent", reason, level, chain, model.version)

    def begin(self, source: FileSource, *, excluded: Sequence[int] = ()) -> Run:
        """Take up the work through a file where it stands, or begin it; `release_block` needs it.

        Parameters
        ----------
        source
            The file.
        excluded
            Rows that release nothing (a public sample); used at the beginning, remembered later.

        Returns
        -------
        Run
            The next row, the excluded rows and the counters so far.
        """
        return self._ledger.begin_run(self.task.hash, source.digest, people=source.people, excluded=excluded)

    def release_block(self, block: Block) -> BlockReport:
        """Release a block of a file: one ledger transaction, one append.

        Gradients are taken at the newest iterate of each record's chain. Earlier releases that still wait in
        the outbox are sent first, so that the log's order is that of the ledger.

        Returns
        -------
        BlockReport
            What became of the records.

        Raises
        ------
        MurkError
            When ledger or log cannot be written. Nothing is lost: what was debited waits in the outbox and is
            sent first of all next time.
        """
        self._delivery.flush_backlog(self._clock())
        rows, simulated = block.rows, self._noise.simulated
        levels = self._lot(rows) if block.levels is None else block.levels
        self._check_levels(levels)
        chains = self._chains(rows)
        models = {chain: self._models.newest(chain) for chain in set(chains.tolist())}
        claims = Claims(
            rows.tolist(),
            block.people,
            levels,
            source=block.source,
            keep_levels=block.levels is None and block.people is not None,
        )
        with self._ledger.spending(self.task.hash, claims) as spend:
            granted = np.array(spend.granted, dtype=np.int64)
            if spend.granted:
                indices = rows[granted] if simulated else granted
                self._freeze(spend, indices, chains[granted], models, block.x[granted], block.y[granted])
            report = BlockReport(
                len(spend.granted),
                len(spend.refusals),
                len(spend.known),
                block.next_row,
                tuple(spend.refusals.values()),
            )
            spend.progress(
                block.next_row,
                {
                    "released": report.released,
                    "refused": report.refused,
                    "known": report.known,
                    "clamped": block.clamped,
                    "missing": block.missing,
                },
            )
        people: Sequence[object] = rows.tolist() if block.people is None else block.people
        self.counts.add_many(people, block.clamped, block.missing)
        self._delivery.send(spend)
        return report

    def flush(self) -> FlushReport:
        """Send what waits in the outbox, in its order; let go of what has expired.

        What already stands on the log is not appended again.

        Raises
        ------
        MurkError
            When the log cannot be reached; everything stays where it was.
        """
        return self._delivery.flush(self._clock())

    def _check_noise(self, noise: NoiseSource | None) -> NoiseSource:
        if noise is None:
            noise = SecureNoise()
        if noise.simulated and not self.task.simulated:
            raise UserError(
                f"the task {self.task.name!r} is for real releases, and simulated noise protects nobody: "
                "leave the seed out, or announce the task as simulated on a log of its own"
            )
        if self.task.simulated and not noise.simulated:
            raise UserError(
                f"the task {self.task.name!r} is a simulation: give it SimulatedNoise(seed), or announce it "
                "as real on a log of its own"
            )
        return noise

    def _check_levels(self, levels: Sequence[str]) -> None:
        for level in set(levels) - self._admission.charges.keys():
            reason = self._admission.refused.get(level)
            if reason is not None:
                raise UserError(f"this device's policy does not allow the level {level!r}: {reason}")
            menu = ", ".join(self.levels)
            raise UserError(f"the task {self.task.name!r} has no level {level!r}: choose one of {menu}")

    def _draw(self, indices: NDArray[np.int64], n: int, purpose: Purpose) -> NDArray[np.int64]:
        """Draw integers exactly uniform below n."""
        if n == 1:
            return np.zeros(len(indices), dtype=np.int64)
        exact = n & (n - 1) == 0
        return below(self._noise.words(indices, 1 if exact else CANDIDATES, purpose), n)

    def _chains(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._draw(indices, self._log.partitions, Purpose.CHAIN)

    def _lot(self, indices: NDArray[np.int64]) -> list[str]:
        menu = list(self.task.privacy.levels)
        return [menu[place] for place in self._draw(indices, len(menu), Purpose.LEVEL).tolist()]

    def _freeze(
        self,
        spend: Spending,
        indices: NDArray[np.int64],
        chains: NDArray[np.int64],
        models: Mapping[int, Model],
        x: NDArray[np.float64],
        y: NDArray[np.float64],
    ) -> None:
        """Randomize for those who were granted a release, and hand the bytes to the ledger."""
        problem, noise = self._problem, self._noise
        gradients = np.empty((len(x), problem.dimension))
        for own, chain in _groups(chains.tolist()):
            gradients[own] = problem.gradients(models[chain].iterate, x[own], y[own])
        payloads = np.empty(gradients.shape, dtype=np.int64)
        for own, level in _groups(spend.levels):
            payloads[own] = problem.mechanisms[level].randomize(gradients[own], noise, indices[own])
        names = chains.tolist()
        now = self._clock()
        messages = self._messages(identifiers(noise, indices), spend.levels, names, models, payloads.tolist(), now)
        spend.freeze(messages, names, [models[chain].end for chain in names], self._expiry(now))

    def _messages(
        self,
        names: Iterable[str],
        levels: Sequence[str],
        chains: Sequence[int],
        models: Mapping[int, Model],
        payloads: Sequence[list[int]],
        now: float,
    ) -> list[bytes]:
        task = self.task
        moment, expires = truncate_time(now, task.granularity), self._expiry(now)
        return [
            encode(
                GradientRelease(
                    id=name,
                    task=task.hash,
                    level=level,
                    chain=chain,
                    version=models[chain].version,
                    payload=payload,
                    time=moment,
                    expires=expires,
                    simulated=task.simulated,
                )
            )
            for name, level, chain, payload in zip(names, levels, chains, payloads, strict=True)
        ]

    def _expiry(self, now: float) -> int:
        return truncate_time(now + self.task.expiry, self.task.granularity)


def _groups(keys: Sequence[Key]) -> Iterator[tuple[slice | NDArray[np.int64], Key]]:
    """Give the places of each key; all of them as one slice, without a copy, where there is but one key."""
    distinct = set(keys)
    if len(distinct) == 1:
        yield slice(None), distinct.pop()
        return
    for key in distinct:
        yield np.array([place for place, one in enumerate(keys) if one == key], dtype=np.int64), key
