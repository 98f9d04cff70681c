"""The positions up to which a streaming query has read, as its checkpoint keeps them. Pure.

JSON as that of Spark's Kafka source, ``{"orders": {"0": 23, "1": 42}}``, and beside the topics, under names that no
topic can have, what distinguishes a topic from another that was created under its name, and where its commits are::

    {"@topic_ids": {"orders": "<32 hex>"}, "@delta_versions": {"orders": 17}}

and, where a query has the fields of a typed topic's values as columns, ``"@schema_ids": {"orders": 2}``, the newest
schema of its values that the query knows.

The end of a query's first micro-batch also says where it began, ``"@begins"``, in the same form: Spark keeps that of no
Python source, and asks anew when it runs the batch again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sparklog.errors import CorruptLogError

__all__ = ["Positions", "TopicPosition"]

_IDS = "@topic_ids"
_VERSIONS = "@delta_versions"
_SCHEMAS = "@schema_ids"
_BEGINS = "@begins"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPosition:
    """The position up to which a topic is read."""

    topic_id: str
    offsets: Mapping[int, int]
    """The next to read, by partition; only of those that the query reads."""
    delta_version: int = -1
    """The version of the newest commit that lies wholly before this; -1 where that isn't known."""
    schema_id: int = -1
    """The newest schema of the topic's values that a query with their fields as columns knows, 0 for an untyped topic;
    -1: not known, or the query has no such columns."""


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions up to which the topics are read."""

    topics: Mapping[str, TopicPosition] = field(default_factory=dict)
    begins: Mapping[str, TopicPosition] | None = None
    """At the end of a query's first micro-batch: where that micro-batch began."""

    def to_json(self) -> dict[str, Any]:
        """The same for equal positions: Spark compares their text."""
        topics = sorted(self.topics.items())
        found: dict[str, Any] = {
            topic: {str(partition): offset for partition, offset in sorted(at.offsets.items())} for topic, at in topics
        }
        found[_IDS] = {topic: at.topic_id for topic, at in topics}
        found[_VERSIONS] = {topic: at.delta_version for topic, at in topics}
        schema_ids = {topic: at.schema_id for topic, at in topics if at.schema_id >= 0}
        if schema_ids:
            found[_SCHEMAS] = schema_ids
        if self.begins is not None:
            found[_BEGINS] = Positions(self.begins).to_json()
        return found

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Positions:
        """Read what a checkpoint holds. Raises ``CorruptLogError``."""
        try:
            ids, versions, schema_ids = body[_IDS], body[_VERSIONS], body.get(_SCHEMAS, {})
            topics = {
                topic: TopicPosition(
                    topic_id=ids[topic],
                    offsets={int(partition): int(offset) for partition, offset in offsets.items()},
                    delta_version=int(versions[topic]),
                    schema_id=int(schema_ids.get(topic, -1)),
                )
                for topic, offsets in body.items()
                if not topic.startswith("@")
            }
            begins = cls.from_json(body[_BEGINS]).topics if _BEGINS in body else None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CorruptLogError(
                f"the query's checkpoint holds {body!s:.200}, which isn't what format('sparklog') writes "
                f"there ({error!r}); was it another source's?"
            ) from error
        return cls(topics, begins)
