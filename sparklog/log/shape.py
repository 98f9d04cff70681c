"""The shape of a topic, which only grows: its id, its number of partitions, the schemas of its values. Pure.

Another engine's ``ALTER TABLE`` or ``RESTORE`` can set the table's properties back. Offsets and ids of schemas would
then be given a second time, so whoever follows or opens such a topic refuses it, by an error that names the way back
(rule L6, start and end; rule L8, one log).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.errors import TopicShrunkError
from sparklog.log.value_schemas import SCHEMA_PROPERTY, SOURCE_PROPERTY, TopicSchemas

__all__ = [
    "DELETED_PROPERTY",
    "FORMAT_PROPERTY",
    "ID_PROPERTY",
    "MAX_PARTITIONS",
    "PARTITIONS_PROPERTY",
    "REPAIR",
    "Shape",
    "check_shape",
    "fingerprints",
]

FORMAT_PROPERTY = "sparklog.format.version"
ID_PROPERTY = "sparklog.topic.id"
PARTITIONS_PROPERTY = "sparklog.partitions"
DELETED_PROPERTY = "sparklog.deleted"
MAX_PARTITIONS = 10_000
"""The most partitions that a topic can have: every commit repeats all ends (rule L5, opening)."""
REPAIR = "`sparklog check --repair`"
"""The command that puts a topic's shape back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A shape that a topic is known to have had at some time, and must have ever since."""

    topic_id: str | None
    """None: any; empty: another one than the properties say, nobody knows which."""
    partition_count: int
    schemas: Mapping[int, int]
    """By id, from 1 on: the fingerprint of each schema that was given this id, as far as known."""
    schema_count: int
    """The greatest id that a schema was given; 0 for none."""


def fingerprints(schemas: TopicSchemas | None) -> dict[int, int]:
    """By id, a number of 63 bits for each schema and its source: the same for the same texts."""
    if schemas is None:
        return {}
    sources = (*schemas.sources, *[""] * (schemas.newest_id - len(schemas.sources)))
    return {
        number: int.from_bytes(hashlib.sha256(f"{len(text)}:{text}{source}".encode()).digest()[:8], "big") >> 1
        for number, (text, source) in enumerate(zip(schemas.texts, sources, strict=True), 1)
    }


def check_shape(
    where: str, known: Shape, topic_id: str, partition_count: int, schemas: TopicSchemas | None, *, by: str
) -> None:
    """Raise ``TopicShrunkError`` where a topic's properties say less than it is known to have.

    Args:
        where: the table and the version of the properties.
        by: how the rest is known, for the error.
    """
    if known.topic_id is not None and topic_id != known.topic_id:
        raise TopicShrunkError(
            f"{where}: a foreign engine changed {ID_PROPERTY} from {known.topic_id or 'a later one'!r} to {topic_id!r} "
            f"({by}): offsets of two topics would be mixed. {REPAIR} makes the topic usable again"
        )
    if partition_count < known.partition_count:
        raise TopicShrunkError(
            f"{where}: a foreign engine set {PARTITIONS_PROPERTY}={partition_count}, expected "
            f"{known.partition_count} or more: partitions only grow ({by}). ALTER TABLE … SET TBLPROPERTIES "
            f"('{PARTITIONS_PROPERTY}'='{known.partition_count}'), or {REPAIR}, makes the topic usable again"
        )
    found = fingerprints(schemas)
    wrong = [number for number, one in known.schemas.items() if found.get(number) != one]
    wrong += [number for number in range(1, known.schema_count + 1) if number not in found]
    if wrong:
        raise TopicShrunkError(
            f"{where}: a foreign engine changed {SCHEMA_PROPERTY}* or {SOURCE_PROPERTY}*, which only grow: schema "
            f"{min(wrong)} is {'another' if min(wrong) in found else 'missing'}, expected {known.schema_count} schemas "
            f"as they were ({by}). {REPAIR} makes the topic usable again"
        )
