"""The settings of topics of retries: they keep what waits, and take all that their source takes (decision 0099)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from sparklog.admin import Admin
from sparklog.clock import Clock
from sparklog.config import TopicConfig
from sparklog.consumer.lookups import Lookups
from sparklog.errors import InvalidConfigurationError
from sparklog.log import Cluster
from sparklog.log.topic import TopicDescription, alter_topic, describe_topic
from sparklog.logs import about
from sparklog.model import TopicPartition
from sparklog.processing.work import Work

__all__ = ["SourceTopics", "fit_retry_topic", "fit_retry_topics", "retry_topic_settings"]

_LOGGER = logging.getLogger("sparklog.processing")
_OVERHEAD_BYTES = 65_536
"""How much larger a record may be while it waits: by the headers that say why it does."""
_MOST_BYTES = 2**31 - 1
_LOOK_MS = 200.0


def retry_topic_settings(source: TopicConfig) -> dict[str, object]:
    """The settings with which a topic of retries is made, for records of a topic with these settings."""
    return {
        "cleanup.policy": "delete",
        "retention.ms": -1,
        "retention.bytes": -1,
        "max.message.bytes": _needed_bytes(source),
    }


def fit_retry_topic(admin: Admin, name: str, source: TopicDescription) -> None:
    """Give a topic of retries that exists the settings that a new one has, but for what it takes more.

    Raises:
        InvalidConfigurationError: it has a schema, or is compacted: it would refuse records, or lose them.
        StoreError.
    """
    [there] = admin.describe_topics([name])
    _check(there, source.name)
    wanted = retry_topic_settings(source.config)
    wanted["max.message.bytes"] = max(_needed_bytes(source.config), there.config.integer("max.message.bytes"))
    changes = {setting: value for setting, value in wanted.items() if there.config[setting] != value}
    if changes:
        admin.alter_configs({name: changes})


def fit_retry_topics(cluster: Cluster, sources: Mapping[str, str], *, timeout_ms: float = 60_000.0) -> None:
    """Make sure that topics of retries take whatever their sources take: raise ``max.message.bytes`` where it is too
    small, since the topic was made before its source's was raised, or by an earlier version.

    Args:
        sources: topic of retries to the topic that its records come from.
    Raises:
        InvalidConfigurationError: one has a schema, or is compacted: it would refuse records, or lose them.
        UnknownTopicOrPartitionError, StoreError.
    """
    for name, source in sources.items():
        there = describe_topic(cluster.topic_log(name), name)
        _check(there, source)
        needed = _needed_bytes(describe_topic(cluster.topic_log(source), source).config)
        if there.config.integer("max.message.bytes") < needed:
            alter_topic(cluster.topic_log(name), name, {"max.message.bytes": needed}, timeout_ms=timeout_ms)
            _LOGGER.info(
                "topic %s: max.message.bytes is %d now: it takes what %s takes",
                name,
                needed,
                source,
                extra=about(topic=name),
            )


class SourceTopics:
    """Which topics records of delay topics came from: a GET for each look, five times a second at most, while records
    are due."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._lookups = Lookups(cluster)
        self._clock = clock
        self._looked_ticks_ms: dict[str, float] = {}

    def look(self, work: Work, polled: Collection[TopicPartition]) -> None:
        """Let a worker know the ids of the topics of which records are due, or were just polled. Raises what reading
        a topic does."""
        for topic in work.sources_due(polled):
            began = self._clock.ticks_ms()
            if began - self._looked_ticks_ms.get(topic, float("-inf")) < _LOOK_MS:
                continue
            topic_id = self._lookups.topic_id(TopicPartition(topic, 0))
            if topic_id is not None:  # else there is no later one of its name either
                work.note_source(topic, topic_id)
            self._looked_ticks_ms[topic] = began


def _needed_bytes(source: TopicConfig) -> int:
    return min(_MOST_BYTES, source.integer("max.message.bytes") + _OVERHEAD_BYTES)


def _check(there: TopicDescription, source: str) -> None:
    where = f"topic {there.name!r}, where records of {source!r} wait for their next try,"
    if there.value_schemas:
        raise InvalidConfigurationError(
            f"{where} has a schema of values: expected none, as it would refuse records whose values aren't of it"
        )
    policy = str(there.config["cleanup.policy"])
    if "compact" in policy.split(","):
        raise InvalidConfigurationError(
            f"{where} has cleanup.policy={policy!r}: expected 'delete', as compaction would remove records that wait"
        )
