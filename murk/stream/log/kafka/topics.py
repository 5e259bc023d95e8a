"""The topics of a log: what they are called, how they must be, and what is wrong with those that are not."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidReplicationFactorError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from murk.errors import MurkError, UserError
from murk.stream.log.base import MAX_MESSAGE, MAX_STATE, segment_seconds
from murk.stream.log.kafka.connection.clients import PATIENCE_MS
from murk.stream.log.kafka.connection.errors import translate_errors
from murk.stream.task.task import Task

_RELEASES = re.compile(r"murk-(.+)-releases")
_RETENTION = (
    "cleanup.policy", "retention.ms", "retention.bytes", "segment.ms", "message.timestamp.type", "min.insync.replicas",
)  # fmt: skip
# A message's key, headers and its batch's own head.
_ENVELOPE = 16_384


@dataclass(frozen=True)
class Names:
    """What belongs to the log of a name.

    Examples
    --------
    >>> Names("third-child").states, Names("third-child").owner(0)
    ('murk-third-child-states', 'murk-third-child-0')
    """

    log: str

    @property
    def releases(self) -> str:
        """Topic of the releases."""
        return f"murk-{self.log}-releases"

    @property
    def models(self) -> str:
        """Topic of the newest iterates and the task's document."""
        return f"murk-{self.log}-models"

    @property
    def states(self) -> str:
        """Topic of the chains' states."""
        return f"murk-{self.log}-states"

    @property
    def dead(self) -> str:
        """Topic of the dead letters."""
        return f"murk-{self.log}-dead-letters"

    @property
    def estimates(self) -> str:
        """Topic of the newest estimate, which a log may have or not."""
        return f"murk-{self.log}-estimates"

    @property
    def all(self) -> tuple[str, str, str, str]:
        """The four topics that every log has."""
        return self.releases, self.models, self.states, self.dead

    @property
    def group(self) -> str:
        """Consumer group of the learners."""
        return f"murk-{self.log}"

    def owner(self, chain: int) -> str:
        """Transactional id of a chain's owner."""
        return f"murk-{self.log}-{chain}"

    @property
    def announcer(self) -> str:
        """Transactional id of the announcer."""
        return f"murk-{self.log}-task"


@dataclass(frozen=True)
class Spec:
    """How a topic must be.

    Parameters
    ----------
    partitions
        Number of partitions, exactly.
    configs
        Settings, exactly.
    least
        Settings that may be larger (-1: without a limit).
    advice
        Settings that it is created with, and that are the operator's to change.
    """

    partitions: int
    configs: Mapping[str, str]
    least: Mapping[str, int]
    advice: Mapping[str, str] = field(default_factory=dict)

    @property
    def creation(self) -> dict[str, str]:
        """Settings to create it with."""
        return {**self.advice, **self.required}

    @property
    def required(self) -> dict[str, str]:
        """Settings that it must have."""
        return {**self.configs, **{key: str(value) for key, value in self.least.items()}}


def specs(names: Names, task: Task, *, estimates: bool = False) -> dict[str, Spec]:
    """How the topics of a task's log must be, by topic; with that of estimates, where the log has it."""
    partitions = task.log.partitions
    size = {"max.message.bytes": MAX_MESSAGE + _ENVELOPE}
    kept = {**size, "retention.ms": 1000 * task.log.retention}
    # The segment that is written to is never compacted: small ones keep what a newcomer reads through small.
    advice = {"segment.bytes": str(16 * 2**20), "min.cleanable.dirty.ratio": "0.1"}
    # By a broker's own default one is written to for a week, or until it has 1 GiB.
    brief = {"segment.ms": str(1000 * segment_seconds(task.log.retention))}
    # By another setting the broker packs what it is sent, by codecs that a reader may not have.
    packing = {"compression.type": "producer"}
    compacted = {"cleanup.policy": "compact", **packing}
    return {
        # Expiry is judged by the broker's clock, which a sender cannot set back.
        names.releases: Spec(
            partitions,
            {"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime", **packing},
            kept,
            brief,
        ),
        names.models: Spec(partitions, compacted, size, advice),
        names.states: Spec(partitions, compacted, {"max.message.bytes": MAX_STATE + _ENVELOPE}, advice),
        names.dead: Spec(partitions, {"cleanup.policy": "delete", **packing}, kept, brief),
        **({names.estimates: Spec(1, compacted, size, advice)} if estimates else {}),
    }


def find(admin: Any, url: str) -> list[str]:
    """Names of the logs on a cluster."""
    with translate_errors(url, "listing topics"):
        topics = admin.list_topics()
    return sorted(found[1] for topic in topics if (found := _RELEASES.fullmatch(topic)))


def describe(admin: Any, url: str, names: Names, needed: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
    """Describe those of a log's topics that are there and that this user may see.

    Parameters
    ----------
    admin, url, names
        Whose topics.
    needed
        Topics that this user must be allowed to see; by default those two without which nobody has any use
        for a log. Devices see no states, and need not.
    """
    with translate_errors(url, "looking at topics"):
        described = admin.describe_topics(list(names.all))
    found = {}
    for topic in described:
        if topic["error_code"] == 0:
            found[topic["name"]] = topic
        elif topic["name"] in (needed or (names.releases, names.models)):
            _refuse(topic, url)
    return found


def has_estimates(admin: Any, url: str, names: Names) -> bool:
    """Whether there is a topic of estimates that this user may see."""
    with translate_errors(url, "looking at topics"):
        try:
            return bool(admin.describe_topics([names.estimates])[0]["error_code"] == 0)
        except UnknownTopicOrPartitionError:
            return False


def create(
    admin: Any, url: str, names: Names, task: Task, replication: int = -1, *, estimates: bool = False
) -> list[str]:
    """Create those topics that are missing, and give their names."""
    missing = set(names.all) - describe(admin, url, names, names.all).keys()
    if estimates and not has_estimates(admin, url, names):
        missing.add(names.estimates)
    wanted = {
        topic: {"num_partitions": spec.partitions, "replication_factor": replication, "configs": spec.creation}
        for topic, spec in specs(names, task, estimates=estimates).items()
        if topic in missing
    }
    if not wanted:
        return []
    with translate_errors(url, "creating topics"):
        try:
            admin.create_topics(wanted, timeout_ms=PATIENCE_MS, wait_for_metadata=True)
        except InvalidReplicationFactorError as error:
            asked = (
                f"{replication} copies of each partition" if replication > 0 else "the brokers' own number of copies"
            )
            raise UserError(
                f"{url}: {asked}, and there are fewer brokers than that: give a smaller --replication, or start more"
            ) from error
        except TopicAlreadyExistsError:
            # Somebody else creates the same ones at this moment.
            admin.wait_for_topics(list(wanted), timeout_ms=PATIENCE_MS)
    return sorted(wanted)


def problems(admin: Any, url: str, names: Names, task: Task, *, estimates: bool = False) -> list[str]:
    """Say what is wrong with a log's topics; nothing when all is well. ``estimates`` asks for theirs as well."""
    described = describe(admin, url, names, names.all)
    if has_estimates(admin, url, names):
        estimates = True
        with translate_errors(url, "looking at topics"):
            described[names.estimates] = admin.describe_topics([names.estimates])[0]
    found: list[str] = []
    configs = _configs(admin, url, described)
    for topic, spec in specs(names, task, estimates=estimates).items():
        if topic not in described:
            option = " --estimates" if topic == names.estimates else ""
            found.append(f"{topic} is missing: create it with `murk topics{option}`")
            continue
        have = len(described[topic]["partitions"])
        if topic == names.estimates:
            if have != spec.partitions:
                found.append(f"{topic} has {have} partitions and needs 1: delete it, and create it again")
        elif have != spec.partitions:
            found.append(
                f"{topic} has {have} partitions and the task asks for {spec.partitions}: each is a chain, so set "
                f"log.partitions to {have}, or use another log"
            )
        for key, (now, needed) in _misfits(spec, configs[topic]).items():
            least = "at least " if key in spec.least else ""
            found.append(f"{topic} has {key}={now} and needs {least}{needed}: `murk topics` sets it")
        offline = [part["partition_index"] for part in described[topic]["partitions"] if part["leader_id"] < 0]
        if offline:
            found.append(f"{topic} has no leader for its partitions {offline}: are all brokers up?")
    return found


def retention_settings(admin: Any, url: str, names: Names) -> dict[str, tuple[str, dict[str, str] | str]]:
    """How long each topic keeps what, and in how many copies; or why that cannot be read, topic by topic."""
    found: dict[str, tuple[str, dict[str, str] | str]] = {}
    kinds = ["releases", "models", "states", "dead"]
    if has_estimates(admin, url, names):
        kinds.append("estimates")
    for kind in kinds:
        topic = str(getattr(names, kind))
        try:
            with translate_errors(url, "looking at topics", gone=""):
                [about] = admin.describe_topics([topic])
            if about["error_code"]:
                _refuse(about, url)
                found[kind] = topic, "it is missing"
                continue
            configs = _configs(admin, url, [topic])[topic]
        except UnknownTopicOrPartitionError:
            found[kind] = topic, "it is missing"
            continue
        except MurkError as error:
            found[kind] = topic, str(error)
            continue
        copies = min(len(part["replica_nodes"]) for part in about["partitions"])
        shown = {key: str(configs.get(key)) for key in _RETENTION}
        found[kind] = topic, {**shown, "copies": str(copies)}
    return found


def repair(admin: Any, url: str, names: Names, task: Task) -> None:
    """Set what settings can fix (all but the number of partitions), and nothing that fits: it is the operator's."""
    estimates = has_estimates(admin, url, names)
    configs = _configs(admin, url, [*names.all, *([names.estimates] if estimates else [])])
    changes = [
        ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: needed for key, (_, needed) in wrong.items()})
        for topic, spec in specs(names, task, estimates=estimates).items()
        if (wrong := _misfits(spec, configs[topic]))
    ]
    if changes:
        with translate_errors(url, "changing the topics' settings"):
            answers = admin.alter_configs(changes, raise_on_unknown=False)
            # The library gives back what was refused as text, and raises nothing.
            refused = {topic: str(text) for kind in answers.values() for topic, text in kind.items() if text != "OK"}
            if any("AuthorizationFailed" in text for text in refused.values()):
                raise TopicAuthorizationFailedError(set(refused))
        if refused:
            raise MurkError(f"{url}: the broker refuses settings: {'; '.join(refused.values())}")


def identity(admin: Any, url: str, names: Names) -> str | None:
    """Return the id that the broker drew when the topic of releases was created; None where there is none.

    Raises
    ------
    UnreachableError
        When the broker does not answer.
    UserError
        When it does not let this user see the topic.
    """
    try:
        with translate_errors(url, "looking at topics", gone=""):
            topic = admin.describe_topics([names.releases])[0]
    except UnknownTopicOrPartitionError:
        return None
    if topic["error_code"]:
        _refuse(topic, url)
        return None
    return str(topic["topic_id"])


def identities(admin: Any, url: str, names: Names) -> dict[str, str]:
    """Return the ids that the broker drew when it created the topics, of those that are there."""
    return {topic: str(found["topic_id"]) for topic, found in describe(admin, url, names, names.all).items()}


def _refuse(topic: Mapping[str, Any], url: str) -> None:
    """Raise for a topic that could not be looked at, for another reason than that it is not there."""
    error = for_code(topic["error_code"])
    if error is not UnknownTopicOrPartitionError:
        with translate_errors(url, "looking at topics"):
            raise error({topic["name"]})


def _misfits(spec: Spec, configs: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    """What a setting is and must be, for those that do not fit."""
    found = {key: (configs.get(key), value) for key, value in spec.configs.items() if configs.get(key) != value}
    for key, least in spec.least.items():
        now = configs.get(key)
        if now is None or -1 != int(now) < least:
            found[key] = now, str(least)
    return found


def _configs(admin: Any, url: str, topics: Collection[str]) -> dict[str, dict[str, Any]]:
    """Settings of topics that are there."""
    if not topics:
        return {}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    with translate_errors(url, "reading the topics' settings"):
        answers = admin.describe_configs(resources, config_filter="all")
        found = {topic: settings for kind in answers.values() for topic, settings in kind.items()}
        if refused := {topic for topic in topics if not found.get(topic)}:
            # Every topic has settings; the library keeps to itself that they may not be seen.
            raise TopicAuthorizationFailedError(refused)
    return {
        topic: {key: entry["value"] if isinstance(entry, dict) else entry for key, entry in settings.items()}
        for topic, settings in found.items()
    }
