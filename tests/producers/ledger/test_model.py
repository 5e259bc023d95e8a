"""Random sequences of what people and programs do to a ledger, against a model of a few lines."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from murk.privacy import PrivacyLoss
from murk.producers.ledger.ledger import Ledger
from murk.producers.ledger.names import ReleaseRequests
from tests.producers.ledger.accounts import LOG, OTHER, TASK, charge, rho, spend

TASKS = {TASK: {"low": 7, "high": 20}, OTHER: {"low": 5}}
CAPS = {TASK: 45, OTHER: 22}
LIFETIME = 50

people = st.sampled_from(["ann", "bob", "cid"])
keys = st.none() | st.sampled_from(["1", "2", "3", "4"])
requests = st.lists(st.tuples(people, keys, st.sampled_from(["low", "high"])), min_size=1, max_size=5)


class Interrupted(Exception):
    """What a program dies of in the middle of a block."""


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.caps = dict(CAPS)
        self.lifetime = LIFETIME
        self.spent: dict[tuple[str, str], int] = {}
        self.known: set[tuple[str, str, str]] = set()
        self.withdrawn: set[tuple[str, str | None]] = set()
        self.waiting: list[tuple[str, str, int]] = []
        self.released = self.refused = 0
        self.open()

    def open(self) -> None:
        self.ledger = Ledger(Path(self.folder.name) / "ledger.db")
        # Durability is not what is tested here.
        self.ledger._file._connection.execute("PRAGMA synchronous = OFF")
        for task, levels in TASKS.items():
            self.ledger.bind(LOG, task, name=f"task-{task[0]}")
            charges = [charge(level, rho=cost, epsilon=1) for level, cost in levels.items()]
            caps = [("", rho(self.caps[task])), ("", PrivacyLoss("epsilon", 1_000, 0))]
            self.ledger.book(task, charges, caps=caps, lifetime=rho(self.lifetime))

    def expected(self, task: str, person: str, key: str | None, level: str) -> str:
        if key is not None and (task, person, key) in self.known:
            return "known"
        if (person, None) in self.withdrawn or (person, task) in self.withdrawn:
            return "withdrawn"
        cost = TASKS[task][level]
        own = {one: amount for (who, one), amount in self.spent.items() if who == person}
        if sum(own.values()) + cost > self.lifetime:
            return "lifetime"
        return "task" if own.get(task, 0) + cost > self.caps[task] else "released"

    @rule(task=st.sampled_from(list(TASKS)), block=requests)
    def release(self, task: str, block: list[tuple[str, str | None, str]]) -> None:
        block = [(person, key, level if level in TASKS[task] else "low") for person, key, level in block]
        spending = spend(self.ledger, ReleaseRequests(*self.columns(block)), task)
        number = spending.numbers.start
        for place, (person, key, level) in enumerate(block):
            outcome = self.expected(task, person, key, level)
            if outcome == "known":
                assert place in spending.known
            elif outcome == "released":
                assert place in spending.granted
                self.spent[person, task] = self.spent.get((person, task), 0) + TASKS[task][level]
                self.waiting.append((task, person, number))
                self.released += 1
                number += 1
                if key is not None:
                    self.known.add((task, person, key))
            else:
                assert spending.refusals[place].scope == outcome
                self.refused += 1

    @rule(task=st.sampled_from(list(TASKS)), block=requests)
    def release_and_die(self, task: str, block: list[tuple[str, str | None, str]]) -> None:
        block = [(person, key, "low") for person, key, _ in block]
        try:
            with self.ledger.spending(task, ReleaseRequests(*self.columns(block))):
                raise Interrupted
        except Interrupted:
            pass

    @rule(count=st.integers(1, 4))
    def confirm(self, count: int) -> None:
        self.ledger.confirm([number for _, _, number in self.waiting[:count]])
        del self.waiting[:count]

    @rule(person=people, task=st.none() | st.sampled_from(list(TASKS)))
    def withdraw(self, person: str, task: str | None) -> None:
        gone = [one for one in self.waiting if one[1] == person and task in (None, one[0])]
        assert self.ledger.withdraw(person, task_hash=task) == len(gone)
        self.waiting = [one for one in self.waiting if one not in gone]
        self.withdrawn.add((person, task))

    @rule(task=st.sampled_from(list(TASKS)), by=st.integers(1, 10))
    def tighten(self, task: str, by: int) -> None:
        self.caps[task] = max(0, self.caps[task] - by)
        self.lifetime = max(0, self.lifetime - by // 3)
        self.ledger.close()
        self.open()

    @rule()
    def reopen(self) -> None:
        self.ledger.close()
        self.open()

    @invariant()
    def agrees(self) -> None:
        totals = self.ledger.totals()
        assert (totals.releases, totals.refused) == (self.released, self.refused)
        queued = [one.number for task in TASKS for one in self.ledger.queued(task)]
        self.ledger.delete_confirmed()
        assert sorted(one.number for task in TASKS for one in self.ledger.queued(task)) == sorted(
            number for _, _, number in self.waiting
        )
        assert set(queued) >= {number for _, _, number in self.waiting}
        for person in ("ann", "bob", "cid"):
            account = self.ledger.account(person)
            assert account.caps[0].spent == rho(sum(amount for (who, _), amount in self.spent.items() if who == person))
            for task in account.tasks:
                assert task.caps[1].spent == rho(self.spent.get((person, task.hash), 0))

    @staticmethod
    def columns(
        block: list[tuple[str, str | None, str]],
    ) -> tuple[list[str | None], list[str], list[str]]:
        return [key for _, key, _ in block], [person for person, _, _ in block], [one for _, _, one in block]

    def teardown(self) -> None:
        self.ledger.close()
        self.folder.cleanup()


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
