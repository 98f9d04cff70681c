"""The position of a relay: the rows that its newest transactions have sent, each with a digest of its contents.

It is a record of a topic of its own, written by the same transaction: so it is there if and only if the rows are sent.
The rows of the newest batch may still wait in the database. Those of earlier batches were settled before the next was
begun; the relay remembers them to know them again if they come back, as after a backup of the database was restored.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sparklog.admin import Admin, NewTopic
from sparklog.consumer import Consumer
from sparklog.errors import CorruptRecordError, TopicAlreadyExistsError
from sparklog.log.cluster import Cluster
from sparklog.model import TopicPartition
from sparklog.outbox.ids import Id
from sparklog.outbox.places import Place
from sparklog.outbox.settling import Sent

__all__ = [
    "REMEMBERED_BATCHES",
    "Position",
    "decode_position",
    "encode_position",
    "ensure_position_topic",
    "key_of",
    "newest_position",
    "other_relays",
    "position_topic",
    "read_position",
    "read_positions",
]

REMEMBERED_BATCHES = 1_000
"""So many keys the records of a relay have, by turns: no compaction takes a batch away that is remembered."""
_PREFIX = "outbox.relay."
_FORMAT, _FORMAT_OF_IDS = 2, 1
_READ_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A batch of rows that was sent."""

    number: int
    """The batch's: 1, 2, … or from 2 where records of the format 1 are before it, which have 0."""
    first: int
    """The number of the earliest batch that is remembered."""
    place: Place | None
    """The table of the rows; None in records of the format 1, which earlier versions wrote: it had ids alone."""
    sent: Sent
    """In the format 1 the digests are empty."""
    counter: int | None = None
    """The database's, as the rows were read."""


def position_topic(name: str) -> str:
    """The topic of the positions of the relay ``name``."""
    return f"{_PREFIX}{name}"


def key_of(name: str, number: int) -> bytes:
    """The key of a position."""
    return f"{name}/{number % REMEMBERED_BATCHES}".encode()


def ensure_position_topic(cluster: Cluster, name: str) -> None:
    """Create it unless it is there. Raises as ``Admin.create_topics``."""
    topic = position_topic(name)
    with Admin(cluster) as admin, suppress(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(topic, num_partitions=1, configs={"cleanup.policy": "compact"})])


def other_relays(cluster: Cluster, name: str) -> list[str]:
    """The names of the cluster's other relays. Raises ``StoreError``."""
    with Admin(cluster) as admin:
        topics = admin.list_topics()
    return sorted(
        each.removeprefix(_PREFIX) for each in topics if each.startswith(_PREFIX) and each != position_topic(name)
    )


def encode_position(position: Position) -> bytes:
    """The bytes of a position, in the newest format."""
    place = position.place
    body = {
        "format": _FORMAT,
        "number": position.number,
        "first": position.first,
        "table": None if place is None else place.to_json(),
        "counter": position.counter,
        "columns": position.sent.columns,
        "rows": [[_to_json(id), digest] for id, digest in position.sent.digests],
    }
    return json.dumps(body, separators=(",", ":")).encode()


def decode_position(data: bytes | None, topic: str) -> Position:
    """A position of either format. Raises ``CorruptRecordError``: it is none, or of a newer format."""
    try:
        body = json.loads(data or b"")
        if body["format"] == _FORMAT_OF_IDS and all(isinstance(each, str) for each in body["ids"]):
            sent = Sent((), [(each, "") for each in body["ids"]])
            return Position(number=0, first=0, place=None, sent=sent)
        if body["format"] == _FORMAT:
            rows = [(_from_json(id), str(digest)) for id, digest in body["rows"]]
            return Position(
                number=int(body["number"]),
                first=int(body["first"]),
                place=Place(**body["table"]),
                sent=Sent(tuple(map(str, body["columns"])), rows),
                counter=None if body["counter"] is None else int(body["counter"]),
            )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptRecordError(f"a record of topic {topic!r} is no relay's position: {error}") from error
    raise CorruptRecordError(f"a record of topic {topic!r} is of a format that this version doesn't know")


def newest_position(cluster: Cluster, name: str) -> Position | None:
    """The rows that the relay's newest transaction has sent; None before the first.

    To be asked once no earlier relay can commit any more.

    Raises:
        CorruptRecordError, KafkaTimeoutError, StoreError.
    """
    found = _read(cluster, name, 1)
    return found[-1] if found else None


def read_positions(cluster: Cluster, name: str) -> list[Position]:
    """The positions of the batches that are remembered, the newest last. Raises as :func:`newest_position`."""
    newest = newest_position(cluster, name)
    if newest is None:
        return []
    first, number = newest.first, newest.number
    found = [newest] if first >= number else _read(cluster, name, number - first + 1)
    return [each for each in found if each.number >= first]


def read_position(cluster: Cluster, name: str) -> list[Id]:
    """The ids that the relay's newest transaction has sent. Raises as :func:`newest_position`."""
    newest = newest_position(cluster, name)
    return [] if newest is None else [id for id, _ in newest.sent.digests]


def _read(cluster: Cluster, name: str, count: int) -> list[Position]:
    """The topic's last records, ``count`` offsets of them: each batch has one."""
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
        consumer.seek(partition, max(begin, end - count))
        found: list[Any] = []
        while consumer.position(partition) < end:
            records = consumer.poll(timeout_ms=_READ_TIMEOUT_MS).get(partition, [])
            if not records:
                break
            found += records
    if not found or found[-1].offset < end - 1:  # the newest record of a key is never compacted away
        raise CorruptRecordError(f"topic {topic!r} has no record at offset {end - 1}, its newest, though it ends there")
    return [decode_position(record.value, topic) for record in found]


def _to_json(id: Id) -> Any:
    return {"hex": id.hex()} if isinstance(id, bytes) else id


def _from_json(found: Any) -> Id:
    if isinstance(found, dict):
        return bytes.fromhex(found["hex"])
    if isinstance(found, int | str):
        return found
    raise TypeError(f"an id is {found!r}, expected a number, a text or an object with hex")
