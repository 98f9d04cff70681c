"""The admin client's calls about the schemas of a typed topic's values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from sparklog import schemas
from sparklog.log.cluster import Cluster
from sparklog.log.topic import TopicDescription, alter_value_schema, check_value_schema, describe_topic
from sparklog.paths import check_topic_name
from sparklog.schemas import ValueSchema, Verdict

__all__ = ["ValueSchemaCalls"]


class ValueSchemaCalls(ABC):
    """The calls of :class:`~sparklog.admin.Admin` about value schemas."""

    @abstractmethod
    def _cluster(self, *, create: bool = False) -> Cluster: ...

    @abstractmethod
    def _bound_ms(self, timeout_ms: float | None) -> float: ...

    def _describe(self, topic: str) -> TopicDescription:
        return describe_topic(self._cluster().topic_log(check_topic_name(topic)), topic)

    def alter_value_schema(self, topic: str, schema: Any, *, timeout_ms: float | None = None) -> TopicDescription:
        """Let a topic's values have another schema from now on; an untyped topic becomes typed. A schema that equals
        the newest changes nothing.

        Args:
            schema: an Arrow schema, or whatever else :func:`sparklog.schemas.value_schema` takes.
        Raises:
            InvalidConfigurationError: it isn't compatible with the schemas before it, by the topic's
                ``value.compatibility``; says why.
            InvalidArgumentError: it can't be a schema. UnknownTopicOrPartitionError.
        """
        parsed = schemas.value_schema(schema)
        log = self._cluster().topic_log(check_topic_name(topic))
        return alter_value_schema(log, topic, parsed, timeout_ms=self._bound_ms(timeout_ms))

    def describe_value_schemas(self, topic: str) -> dict[int, ValueSchema]:
        """All schemas that a topic's values had, by id, the newest last; none for an untyped topic.

        Raises ``UnknownTopicOrPartitionError``.
        """
        described = self._describe(topic)
        return dict(enumerate(described.value_schemas, 1))

    def check_value_schema(self, topic: str, schema: Any) -> Verdict:
        """Could :meth:`alter_value_schema` set this schema? With the reasons where it couldn't. Changes nothing.

        Raises ``UnknownTopicOrPartitionError``; InvalidArgumentError: it can't be a schema.
        """
        parsed = schemas.value_schema(schema)
        return check_value_schema(self._cluster().topic_log(check_topic_name(topic)), topic, parsed)
