"""A delay topic as one process follows it: what waits in it (decision 0033)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sparklog.errors import CorruptRecordError, OffsetOutOfRangeError
from sparklog.log import Cluster, TopicFollower
from sparklog.log.cluster import topic_names
from sparklog.log.delay_topics import DELAY_PREFIX
from sparklog.processing.schedule import Place, Schedule
from sparklog.producer.delayed_records import ForeignRecordError, Waiting, delay_topic, parse_delayed

__all__ = ["DelayedTopic", "delayed_topics", "read_schedule"]

_READ_RECORDS = 1_000


@dataclass(slots=True)
class DelayedTopic:
    """A delay topic as one process follows it."""

    topic: str
    """The topic that the records are for."""
    follower: TopicFollower
    schedule: Schedule
    positions: dict[int, int]
    """By partition: the next offset to be read."""
    broken: dict[int, CorruptRecordError] = field(default_factory=dict)
    """The partitions that aren't read any further, as there is a record that sparklog didn't write."""

    @classmethod
    def open(cls, cluster: Cluster, topic: str) -> DelayedTopic:
        """Read it to its end. Raises ``UnknownTopicOrPartitionError``: nothing was ever delayed; as :meth:`follow`."""
        name = delay_topic(topic)
        opened = cls(topic, TopicFollower(cluster.topic_log(name), name), Schedule(), {})
        opened.follow()
        return opened

    def follow(self) -> None:
        """Apply all that is there by now. Raises the errors of reading a topic."""
        self.follower.poll()
        while not self.follower.caught_up:
            self.follower.poll()
        head = self.follower.head
        for partition, (start, end) in enumerate(zip(head.log_start_offsets, head.log_end_offsets, strict=True)):
            if self.positions.get(partition, 0) < start:
                self.broken.pop(partition, None)  # somebody has removed it
            if partition in self.broken:
                continue
            try:
                self._follow(partition, max(self.positions.get(partition, 0), start), end)
            except ForeignRecordError as error:
                self.broken[partition] = error

    def _follow(self, partition: int, at: int, end: int) -> None:
        while at < end:
            table = self.follower.read(partition, at, max_records=_READ_RECORDS)
            if table.num_rows == 0:  # compacted away
                break
            for offset, key, value, headers in _rows(table):
                where = f"{self.follower.topic}-{partition}, offset {offset},"
                self.schedule.apply(parse_delayed(key, value, headers, where), partition=partition, offset=offset)
                self.positions[partition] = offset + 1
            at = self.positions[partition]
        self.positions[partition] = max(at, end)

    def read(self, places: Sequence[Place]) -> dict[bytes, Waiting]:
        """The records at these places, by id.

        Raises:
            OffsetOutOfRangeError: one was removed: another mover has ended it.
        """
        wanted = {(place.partition, place.offset) for place in places}
        records: dict[bytes, Waiting] = {}
        while wanted:
            partition, first = min(wanted)
            near = sum(at == partition and first <= offset < first + _READ_RECORDS for at, offset in wanted)
            table = self.follower.read(partition, first, max_records=_READ_RECORDS if near > 1 else 1)
            before = len(wanted)
            for offset, key, value, headers in _rows(table):
                if (partition, offset) in wanted:
                    wanted.remove((partition, offset))
                    record = parse_delayed(key, value, headers, f"{self.follower.topic}-{partition}, offset {offset},")
                    if isinstance(record, Waiting):
                        records[record.id] = record
            if len(wanted) == before:
                raise OffsetOutOfRangeError(f"{self.follower.topic}-{partition}: the record at {first} was removed")
        return records


def delayed_topics(cluster: Cluster) -> list[str]:
    """The topics for which records were ever delayed, sorted. One listing."""
    names = set(topic_names(cluster))
    topics = (name.removeprefix(DELAY_PREFIX) for name in names if name.startswith(DELAY_PREFIX))
    return sorted(name for name in topics if name in names)


def read_schedule(cluster: Cluster, topic: str) -> list[tuple[Place, Waiting]]:
    """All delayed records of a topic that wait, the earliest first.

    Raises:
        UnknownTopicOrPartitionError: nothing was ever delayed. And what reading a topic raises.
    """
    delayed = DelayedTopic.open(cluster, topic)
    for error in delayed.broken.values():
        raise error
    places = list(delayed.schedule.waiting())
    records = delayed.read(places)
    return [(place, records[place.id]) for place in places]


def _rows(table: pa.Table) -> Iterator[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    columns = [table[name].to_pylist() for name in ("offset", "key", "value", "headers")]
    for offset, key, value, headers in zip(*columns, strict=True):
        yield offset, key, value, [(each["key"], each["value"]) for each in headers or ()]
