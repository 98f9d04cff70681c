"""The position of a relay: the ids of the rows that its newest transaction has sent.

It is a record of a topic of its own, written by the same transaction: so it is there if and only if the rows are sent.
Only the newest batch matters: a batch is begun once the rows of the one before are settled in the database.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from sparklog.admin import Admin, NewTopic
from sparklog.consumer import Consumer
from sparklog.errors import CorruptRecordError, TopicAlreadyExistsError
from sparklog.log.cluster import Cluster
from sparklog.model import TopicPartition

__all__ = ["decode_position", "encode_position", "ensure_position_topic", "position_topic", "read_position"]

_FORMAT = 1
_READ_TIMEOUT_MS = 30_000


def position_topic(name: str) -> str:
    """The topic of the positions of the relay ``name``."""
    return f"outbox.relay.{name}"


def ensure_position_topic(cluster: Cluster, name: str) -> None:
    """Create it unless it is there. Raises as ``Admin.create_topics``."""
    topic = position_topic(name)
    with Admin(cluster) as admin, suppress(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=1, configs={"cleanup.policy": "compact"})])


def encode_position(ids: Sequence[str]) -> bytes:
    """The bytes of a position."""
    return json.dumps({"format": _FORMAT, "ids": list(ids)}, separators=(",", ":")).encode()


def decode_position(data: bytes | None, topic: str) -> list[str]:
    """The ids of a position. Raises ``CorruptRecordError``: it is none, or of a newer format."""
    try:
        body = json.loads(data or b"")
        if body["format"] == _FORMAT and all(isinstance(each, str) for each in body["ids"]):
            return list(body["ids"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError(f"the newest record of topic {topic!r} is no relay's position: {error}") from error
    raise CorruptRecordError(f"the newest record of topic {topic!r} is of a format that this version doesn't know")


def read_position(cluster: Cluster, name: str) -> list[str]:
    """The ids that the relay's newest transaction has sent; none before the first.

    To be asked once no earlier relay can commit any more.

    Raises:
        CorruptRecordError, KafkaTimeoutError, StoreError.
    """
    topic = position_topic(name)
    partition = TopicPartition(topic, 0)
    with Consumer(cluster=cluster, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        begin, end = (
            offsets[partition]
            for offsets in (consumer.beginning_offsets([partition]), consumer.end_offsets([partition]))
        )
        if end <= begin:
            return []
        consumer.seek(partition, end - 1)  # the newest record of a key is never compacted away
        records = consumer.poll(timeout_ms=_READ_TIMEOUT_MS).get(partition, [])
    if not records:
        raise CorruptRecordError(f"topic {topic!r} has no record at offset {end - 1}, its newest, though it ends there")
    return decode_position(records[-1].value, topic)
