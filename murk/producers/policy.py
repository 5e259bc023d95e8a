"""A device's policy: the mechanisms and the spending that it allows tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murk.errors import UserError
from murk.privacy import CompositeMechanism, GaussMixMechanism, GramMechanism, NewtonMechanism, PrivacyLoss, cap_of
from murk.privacy.mechanisms import KINDS
from murk.producers.ledger.prices import Charge

if TYPE_CHECKING:
    from murk.privacy import Guarantee
    from murk.privacy.mechanisms import Costed
    from murk.stream.task.task import Task


@dataclass(frozen=True)
class Admission:
    """A policy's decision on a task.

    ``charges`` maps allowed levels to the cost of a release, and ``refused`` the others to the reason. ``caps`` are
    (level, amount) pairs for `Ledger.book`; ``lifetime`` is the cap over all tasks, if any.
    """

    charges: Mapping[str, Charge]
    refused: Mapping[str, str]
    caps: tuple[tuple[str, PrivacyLoss], ...]
    lifetime: PrivacyLoss | None


@dataclass(frozen=True)
class Policy:
    """Limits on what a device releases, whatever a server asks for.

    A release must fit every cap: the one over all tasks, the one for the task, and the task's own promise
    (``privacy.per_person``, or one release at the person's level).

    >>> from murk.privacy import GaussianDP
    >>> Policy(lifetime=GaussianDP(2.0)).lifetime
    GaussianDP(mu=2.0)

    Parameters
    ----------
    lifetime
        A person's cap over all tasks; None for no such cap.
    per_task
        Largest cap per person that a task may promise; None for no such limit.
    mechanisms
        Kinds of mechanism that may be used; all by default. ("composite" releases several things at once, each with
        its own mechanism; "gaussmix" is for organisations, and `Producer` never uses it.)
    public_sample
        Whether people may be set aside for a task's public sample: their features (without the target) are then
        published unprotected, and they release nothing. False by default; the command line asks before publishing.
    """

    lifetime: Guarantee | None = None
    per_task: Guarantee | None = None
    mechanisms: tuple[str, ...] = (
        *KINDS, CompositeMechanism.kind, GaussMixMechanism.kind, GramMechanism.kind, NewtonMechanism.kind,
    )  # fmt: skip
    public_sample: bool = False

    def admit(self, task: Task, mechanisms: Mapping[str, Costed]) -> Admission:
        """Decide which levels of a task, each with its mechanism, may be used, and under which caps.

        Raises UserError if the task asks for more per person than the policy allows, or no level may be used.
        """
        lifetime = None if self.lifetime is None else cap_of(self.lifetime)
        most = None if self.per_task is None else cap_of(self.per_task)
        asked = None if task.privacy.per_person is None else cap_of(task.privacy.per_person)
        if asked and most and asked.currency == most.currency and not asked <= most:
            raise UserError(
                f"the task {task.name!r} asks for up to {asked} of each person, and this device's policy "
                f"allows {most} per task: the task must ask for less, or the policy allow more"
            )
        charges, refused = {}, {}
        for level, guarantee in task.privacy.levels.items():
            mechanism = mechanisms[level]
            central = None if task.shuffle is None else task.shuffle.promised(guarantee)
            charge = Charge.of(level, guarantee, mechanism, central)
            reason = self._reason_refused(mechanism, {"over all tasks": lifetime, "for a task": most})
            if reason is None:
                charges[level] = charge
            else:
                refused[level] = reason
        if not charges:
            why = "; ".join(f"level {level!r}: {reason}" for level, reason in refused.items())
            raise UserError(f"this device's policy allows no release to the task {task.name!r}: {why}")
        # Promises in different currencies are both kept; in the same currency, the task's is the smaller one.
        caps = [("", asked)] if asked else [(one.level, cap_of(one.guarantee)) for one in charges.values()]
        if most and not (asked and asked.currency == most.currency):
            caps.append(("", most))
        return Admission(charges, refused, tuple(caps), lifetime)

    def _reason_refused(self, mechanism: Costed, caps: Mapping[str, PrivacyLoss | None]) -> str | None:
        if mechanism.kind not in self.mechanisms:
            return f"the mechanism {mechanism.kind!r} is not among {', '.join(self.mechanisms)}"
        for scope, cap in caps.items():
            if cap is None:
                continue
            try:
                cost = mechanism.cost(cap.currency)
            except UserError as error:
                return f"the policy's cap {scope} ({cap}) cannot be applied to it: {error}"
            if not cost <= cap:
                return f"a release costs {cost}, and the policy allows {cap} {scope}"
        return None
