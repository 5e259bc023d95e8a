"""The topics of a log: their names, required settings, creation, checks and repair."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import errors
from kafka.admin import ConfigResource, ConfigResourceType

from murk.errors import MurkError, UserError
from murk.stream.log.interface import segment_seconds
from murk.stream.log.kafka.connection.clients import PATIENCE_MS
from murk.stream.log.kafka.connection.errors import translate_errors
from murk.stream.wire.codec import MAX_MESSAGE, MAX_STATE
from murk.task.task import Task

_ERROR_CODE = "MURK-KAFKA-001"

_RELEASES = re.compile(r"murk-(.+)-releases")
_RETENTION = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.ms",
    "message.timestamp.type",
    "min.insync.replicas",
)
_ENVELOPE = 16_384  # bytes of a message's key and headers and of its batch's header


class Names:
    """Names of a log's topics, consumer group and transactional ids; a ``model`` has some of its own.

    The names of logs and models have no dots, so that no two of them share a topic.

    >>> Names("third-child").states, Names("third-child").owner(0), Names("third-child", "age").states
    ('murk-third-child-states', 'murk-third-child-0', 'murk-third-child.age-states')
    """

    def __init__(self, log: str, model: str | None = None) -> None:
        self.log, self.model = log, model
        self.releases, self.models, states = (f"murk-{log}-{kind}" for kind in ("releases", "models", "states"))
        self.dead = f"murk-{log}-dead-letters"
        self.all = self.releases, self.models, states, self.dead
        self.announcer, self.shuffler = f"murk-{log}-task", f"murk-{log}-shuffler"
        self.group = f"murk-{log}" if model is None else f"murk-{log}.{model}"
        self.states, self.estimates = f"{self.group}-states", f"{self.group}-estimates"

    def owner(self, partition: int) -> str:
        """Return the transactional id of a partition's owner."""
        return f"{self.group}-{partition}"


@dataclass(frozen=True)
class Spec:
    """Required settings of a topic."""

    partitions: int
    configs: Mapping[str, str]  # settings that must have these values
    least: Mapping[str, int]  # settings that must have at least these values (-1: unlimited)
    advice: Mapping[str, str] = field(default_factory=dict)  # settings at creation, which the operator may change

    @property
    def creation(self) -> dict[str, str]:
        """Settings for creating the topic."""
        return {**self.advice, **self.required}

    @property
    def required(self) -> dict[str, str]:
        """Settings that the topic must have."""
        return {**self.configs, **{key: str(value) for key, value in self.least.items()}}


def specs(names: Names, task: Task, *, estimates: bool = False) -> dict[str, Spec]:
    """Return the required settings of a log's topics, by topic."""
    partitions = task.log.partitions
    size = {"max.message.bytes": MAX_MESSAGE + _ENVELOPE}
    kept = {**size, "retention.ms": 1000 * task.log.retention}
    # The active segment is never compacted: small segments keep the topic small for new readers.
    advice = {"segment.bytes": str(16 * 2**20), "min.cleanable.dirty.ratio": "0.1"}
    # By default a segment stays active for a week or until it has 1 GiB.
    brief = {"segment.ms": str(1000 * segment_seconds(task.log.retention))}
    # With another setting the broker compresses messages, with codecs that a reader may not have.
    packing = {"compression.type": "producer"}
    compacted = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime", **packing}
    return {
        # Expiry is judged by the broker's clock, which a sender cannot set back.
        names.releases: Spec(
            partitions, {"cleanup.policy": "delete", "message.timestamp.type": "LogAppendTime", **packing}, kept, brief
        ),
        names.models: Spec(partitions, compacted, size, advice),
        names.states: Spec(partitions, compacted, {"max.message.bytes": MAX_STATE + _ENVELOPE}, advice),
        names.dead: Spec(partitions, {"cleanup.policy": "delete", **packing}, kept, brief),
        **({names.estimates: Spec(1, compacted, size, advice)} if estimates else {}),
    }


def topics_command(url: str) -> str:
    """Return the command that makes the topics of the log at a URL, which has the log's name if it is known.

    >>> topics_command("kafka://localhost:9092/third-child")
    'murk topics TASK --log kafka://localhost:9092/third-child'
    """
    return f"murk topics TASK --log {url}"


def find(admin: Any, url: str) -> list[str]:
    """Return the names of the logs on a cluster."""
    with translate_errors(url, "listing topics"):
        topics = admin.list_topics()
    return sorted(match[1] for topic in topics if (match := _RELEASES.fullmatch(topic)))


class Topics:
    """The topics of a log, seen and changed through a client ``admin``; ``url`` names the log in messages."""

    def __init__(self, admin: Any, url: str, names: Names) -> None:
        self._admin, self._url, self._names = admin, url, names

    def describe(self, needed: Collection[str] | None = None) -> dict[str, dict[str, Any]]:
        """Describe a log's existing topics; this user must see those ``needed`` (by default releases and models)."""
        with translate_errors(self._url, "looking at topics"):
            described = self._admin.describe_topics(list(self._names.all))
        existing = {}
        for topic in described:
            if topic["error_code"] == 0:
                existing[topic["name"]] = topic
            elif topic["name"] in (needed or (self._names.releases, self._names.models)):
                self._raise_unless_missing(topic)
        return existing

    def has_estimates(self) -> bool:
        """Return whether there is a topic of estimates that this user may see."""
        with translate_errors(self._url, "looking at topics"):
            try:
                return bool(self._admin.describe_topics([self._names.estimates])[0]["error_code"] == 0)
            except errors.UnknownTopicOrPartitionError:
                return False

    def create(self, task: Task, replication: int = -1, *, estimates: bool = False) -> list[str]:
        """Create missing topics and return their names."""
        missing = set(self._names.all) - self.describe(self._names.all).keys()
        if estimates and not self.has_estimates():
            missing.add(self._names.estimates)
        required = specs(self._names, task, estimates=estimates)
        return self._create({topic: required[topic] for topic in missing}, replication)

    def _create(self, required: Mapping[str, Spec], replication: int) -> list[str]:
        if not required:
            return []
        wanted = {
            topic: {"num_partitions": spec.partitions, "replication_factor": replication, "configs": spec.creation}
            for topic, spec in required.items()
        }
        with translate_errors(self._url, "creating topics"):
            try:
                self._admin.create_topics(wanted, timeout_ms=PATIENCE_MS, wait_for_metadata=True)
            except errors.InvalidReplicationFactorError as error:
                copies = f"{replication} copies" if replication > 0 else "the brokers' default number of copies"
                remedy = "lower --replication, or start more brokers"
                raise UserError(f"{self._url} has too few brokers for {copies} of a partition: {remedy}") from error
            except errors.TopicAlreadyExistsError:
                # Another process creates them at this moment.
                self._admin.wait_for_topics(list(wanted), timeout_ms=PATIENCE_MS)
        return sorted(wanted)

    def create_for_model(self, task: Task) -> None:
        """Create a model's missing topics, replicated as the states are; raise `UserError` if one does not fit."""
        names = Names(self._names.log)
        standing = self._describe_one(names.states)
        if standing is None:
            raise UserError(f"{names.states} is missing: create it with `{topics_command(self._url)}`")
        required = specs(self._names, task, estimates=Topics(self._admin, self._url, names).has_estimates())
        missing = {}
        for topic in required.keys() - set(names.all):
            described, spec = self._describe_one(topic), required[topic]
            if described is None:
                missing[topic] = spec
            elif (have := len(described["partitions"])) < spec.partitions:
                self._grow({topic: spec.partitions})
            elif have > spec.partitions:
                remedy = "delete it, then run `murk fit` again"
                raise UserError(f"{topic} of {self._url} has {have} partitions, not {spec.partitions}: {remedy}")
        self._create(missing, copies_of(standing))

    def _grow(self, partitions: Mapping[str, int]) -> None:
        """Add partitions to topics, up to a number of each."""
        with translate_errors(self._url, "adding partitions"):
            try:
                self._admin.create_partitions(dict(partitions), timeout_ms=PATIENCE_MS)
            except errors.InvalidPartitionsError:
                # Another process adds them at this moment; `problems` says what is still wrong.
                return

    def _describe_one(self, topic: str) -> dict[str, Any] | None:
        """Describe a topic; None if it does not exist."""
        with translate_errors(self._url, "looking at topics"):
            try:
                described: dict[str, Any] = self._admin.describe_topics([topic])[0]
            except errors.UnknownTopicOrPartitionError:
                return None
        if described["error_code"]:
            self._raise_unless_missing(described)
            return None
        return described

    def partitions_of(self, topic: str) -> int:
        """Return a topic's number of partitions; 0 if it does not exist."""
        described = self._describe_one(topic)
        return 0 if described is None else len(described["partitions"])

    def problems(self, task: Task, *, estimates: bool = False) -> list[str]:
        """Return what is wrong with a log's topics, one sentence each; ``estimates`` requires theirs as well."""
        described = self.describe(self._names.all)
        if self.has_estimates():
            estimates = True
            with translate_errors(self._url, "looking at topics"):
                described[self._names.estimates] = self._admin.describe_topics([self._names.estimates])[0]
        wrong: list[str] = []
        configs = self._configs(described)
        for topic, spec in specs(self._names, task, estimates=estimates).items():
            if topic not in described:
                option = " --estimates" if topic == self._names.estimates else ""
                wrong.append(f"{topic} is missing: create it with `{topics_command(self._url)}{option}`")
                continue
            have = len(described[topic]["partitions"])
            if have != spec.partitions and topic == self._names.estimates:
                wrong.append(f"{topic} has {have} partitions and needs 1: delete it, and create it again")
            elif have != spec.partitions:
                remedy = f"`{topics_command(self._url)}` adds the others"
                if have > spec.partitions:
                    remedy = f"set log.partitions to {have}, or use another log"
                wrong.append(f"{topic} has {have} partitions and the task asks for {spec.partitions}: {remedy}")
            for key, (now, needed) in _misfits(spec, configs[topic]).items():
                least = "at least " if key in spec.least else ""
                wrong.append(
                    f"{topic} has {key}={now} and needs {least}{needed}: `{topics_command(self._url)}` sets it"
                )
            offline = [part["partition_index"] for part in described[topic]["partitions"] if part["leader_id"] < 0]
            if offline:
                wrong.append(f"{topic} has no leader for its partitions {offline}: are all brokers up?")
        return wrong

    def retention_settings(self) -> dict[str, tuple[str, dict[str, str] | str]]:
        """Return each topic's name and its retention settings and replication, or why they cannot be read."""
        settings: dict[str, tuple[str, dict[str, str] | str]] = {}
        estimates = ["estimates"] if self.has_estimates() else []
        for kind in ("releases", "models", "states", "dead", *estimates):
            topic = str(getattr(self._names, kind))
            try:
                about = self._describe_one(topic)
                configs = {} if about is None else self._configs([topic])[topic]
            except MurkError as error:
                settings[kind] = topic, str(error)
                continue
            shown = {key: str(configs.get(key)) for key in _RETENTION}
            settings[kind] = topic, "it is missing" if about is None else {**shown, "copies": str(copies_of(about))}
        return settings

    def repair(self, task: Task) -> None:
        """Change settings that do not fit, and add partitions; none can be removed."""
        estimates, required = self.has_estimates(), specs(self._names, task)
        few = {
            topic: required[topic].partitions
            for topic, about in self.describe(self._names.all).items()
            if len(about["partitions"]) < required[topic].partitions
        }
        if few:
            self._grow(few)
        configs = self._configs([*self._names.all, *([self._names.estimates] if estimates else [])])
        changes = [
            ConfigResource(ConfigResourceType.TOPIC, topic, configs={key: needed for key, (_, needed) in wrong.items()})
            for topic, spec in specs(self._names, task, estimates=estimates).items()
            if (wrong := _misfits(spec, configs[topic]))
        ]
        if changes:
            with translate_errors(self._url, "changing the topics' settings"):
                answers = self._admin.alter_configs(changes, raise_on_unknown=False)
                # The library returns refusals as text instead of raising.
                refused = {
                    topic: str(text) for kind in answers.values() for topic, text in kind.items() if text != "OK"
                }
                if any("AuthorizationFailed" in text for text in refused.values()):
                    raise errors.TopicAuthorizationFailedError(set(refused))
            if refused:
                raise MurkError(f"{self._url}: the broker refuses the topics' settings: {'; '.join(refused.values())}")

    def identity(self) -> str | None:
        """Return the id that the broker drew when the topic of releases was created, or None."""
        topic = self._describe_one(self._names.releases)
        return None if topic is None else str(topic["topic_id"])

    def identities(self) -> dict[str, str]:
        """Return the ids that the broker drew when it created the topics."""
        return {name: str(topic["topic_id"]) for name, topic in self.describe(self._names.all).items()}

    def _raise_unless_missing(self, topic: Mapping[str, Any]) -> None:
        error = errors.for_code(topic["error_code"])
        if error is not errors.UnknownTopicOrPartitionError:
            with translate_errors(self._url, "looking at topics"):
                raise error({topic["name"]})

    def _configs(self, topics: Collection[str]) -> dict[str, dict[str, Any]]:
        if not topics:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
        with translate_errors(self._url, "reading the topics' settings"):
            answers = self._admin.describe_configs(resources, config_filter="all")
            configs = {topic: settings for kind in answers.values() for topic, settings in kind.items()}
            if refused := {topic for topic in topics if not configs.get(topic)}:
                # Every topic has settings; the library does not report that access was denied.
                raise errors.TopicAuthorizationFailedError(refused)
        return {
            topic: {key: entry["value"] if isinstance(entry, dict) else entry for key, entry in settings.items()}
            for topic, settings in configs.items()
        }

    def copies(self) -> int:
        """Return the smallest replication factor of the log's topics; 0 if there are none."""
        return min(map(copies_of, self.describe(self._names.all).values()), default=0)


def copies_of(described: Mapping[str, Any]) -> int:
    """Return the smallest replication factor of a topic's partitions."""
    return min(len(part["replica_nodes"]) for part in described["partitions"])


def _misfits(spec: Spec, configs: Mapping[str, Any]) -> dict[str, tuple[Any, str]]:
    misfits = {key: (configs.get(key), value) for key, value in spec.configs.items() if configs.get(key) != value}
    for key, least in spec.least.items():
        now = configs.get(key)
        if now is None or -1 != int(now) < least:
            misfits[key] = now, str(least)
    return misfits
