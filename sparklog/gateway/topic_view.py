"""Topics as Fetch reads them: one follower each, and the record batches that were encoded last."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field

import pyarrow as pa

from sparklog.errors import InvalidRecordError, ObjectNotFoundError
from sparklog.gateway.records import encode_batches
from sparklog.log.cluster import Cluster
from sparklog.log.data.record_reading import milliseconds, object_path
from sparklog.log.data.record_streaming import is_read_whole, open_segments
from sparklog.log.follow import TopicFollower
from sparklog.log.typed_records import ValueReading
from sparklog.schemas import UnwritableError

__all__ = ["BatchCache", "Fetched", "TopicView"]

_BATCH_BYTES = 262_144
_PIECE_BYTES = 1_048_576
_MAX_POLLS = 100
"""Each of up to 32 commits. A topic that grows faster than it is followed is read further at the next Fetch."""
_AHEAD_BYTES = 2_097_152
"""Encoded at a time, so that the next Fetch of a reader finds it in the cache."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Encoded batches of a partition that follow each other."""

    batches: list[tuple[int, int, bytes]]
    """The first offset of each, the last one, and its bytes."""
    size_bytes: int
    paths: frozenset[str]
    """The files that they were read from: once one of them isn't live any more, some of their records may be gone."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """The records that a partition has from an offset on."""

    records: bytes
    """Whole batches; the first one holds the offset, or is the next there is."""
    log_start_offset: int
    log_end_offset: int


@dataclass
class BatchCache:
    """Spans of all partitions, those used last; within a bound. For several threads."""

    limit_bytes: int
    _spans: OrderedDict[tuple[str, int, int], _Span] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def find(self, topic_id: str, partition: int, offset: int) -> tuple[tuple[str, int, int], _Span] | None:
        """The span that begins at an offset, and its key."""
        key = (topic_id, partition, offset)
        with self._lock:
            found = self._spans.get(key)
            if found is None:
                return None
            self._spans.move_to_end(key)
            return key, found

    def keep(self, topic_id: str, partition: int, offset: int, span: _Span) -> None:
        """Keep a span of what follows an offset; forget those used longest ago where they are too many."""
        with self._lock:
            self._spans[topic_id, partition, offset] = span
            while self._spans and sum(one.size_bytes for one in self._spans.values()) > self.limit_bytes:
                self._spans.popitem(last=False)


class TopicView:
    """One topic for all Fetches of a gateway. Its methods may block; several threads may call them."""

    def __init__(self, cluster: Cluster, topic: str, cache: BatchCache) -> None:
        """Load the topic. Raises ``UnknownTopicOrPartitionError``, ``StoreError``."""
        self._follower = TopicFollower(cluster.topic_log(topic), topic)
        self._cache = cache
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        """The newest version that is known."""
        return self._follower.head.delta_version

    @property
    def topic_id(self) -> uuid.UUID:
        """Another one than that of a topic of the same name that was deleted before."""
        return uuid.UUID(self._follower.head.topic_id)

    def poll(self) -> None:
        """Learn what is new, to the end of the log: what was committed before a Fetch came is in its answer.

        Raises ``UnknownTopicOrPartitionError``: the topic was deleted.
        """
        with self._lock:
            for _ in range(_MAX_POLLS):
                self._follower.poll()
                if self._follower.caught_up:
                    break

    def fetch(self, partition: int, offset: int, max_bytes: int, *, least_one: bool) -> Fetched:
        """Whole batches from an offset on.

        Args:
            max_bytes: of the batches; where ``least_one`` is true the first may be larger.
        Raises:
            OffsetOutOfRangeError, UnknownTopicOrPartitionError, StoreError.
            InvalidRecordError: the value of a typed topic at the offset can't be bytes of its ``value.format``.
        """
        with self._lock:
            head = self._follower.head
            groups = self._follower.segment_groups(partition, offset)  # checks the offset
            end = head.log_end_offsets[partition]
            start = head.log_start_offsets[partition]
            if offset >= end:
                return Fetched(b"", start, end)
            del groups
            taken: list[bytes] = []
            left, at = max_bytes, offset
            while at < end and (left > 0 or not taken):
                try:
                    span = self._span(head.topic_id, partition, at)
                except InvalidRecordError:
                    if not taken:
                        raise
                    break
                before = at
                for _, last, data in span.batches:
                    if len(data) > left and (taken or not least_one):
                        return Fetched(b"".join(taken), start, end)
                    taken.append(data)
                    left -= len(data)
                    at = last + 1
                if at == before:
                    break
            return Fetched(b"".join(taken), start, end)

    def _span(self, topic_id: str, partition: int, offset: int) -> _Span:
        found = self._cache.find(topic_id, partition, offset)
        if found is not None and self._follower.holds(found[1].paths):
            return found[1]
        try:
            span = self._read(partition, offset)
        except ObjectNotFoundError:  # a file was replaced meanwhile (rule L10, orphans)
            self._follower.reload()
            span = self._read(partition, offset)
        if span.batches:
            self._cache.keep(topic_id, partition, offset, span)
            # What a reader asks for next, if it takes fewer of them than there are.
            for number in range(1, len(span.batches)):
                rest = span.batches[number:]
                size = sum(len(data) for _, _, data in rest)
                self._cache.keep(topic_id, partition, rest[0][0], _Span(rest, size, span.paths))
        return span

    def _read(self, partition: int, offset: int) -> _Span:
        batches: list[tuple[int, int, bytes]] = []
        size = 0
        log = self._follower.log
        head, paths = self._follower.head, set[str]()
        reading = ValueReading.of(head)
        is_append_time = head.config["message.timestamp.type"] == "LogAppendTime"
        for group in self._follower.segment_groups(partition, offset):
            paths |= {segment.path for segment in group}
            data = None
            if is_read_whole(group):
                data = [log.store.read(object_path(log.table, segment.path)) for segment in group]
            values = None if reading is None else reading.type
            opened = open_segments(log, group, data, start_offset=offset, piece_bytes=_PIECE_BYTES, values=values)
            for piece in opened.pieces:
                readable = piece if reading is None else _as_bytes(reading, piece, is_first=not batches)
                for encoded, first, last in _encoded(readable, is_append_time=is_append_time):
                    batches.append((first, last, encoded))
                    size += len(encoded)
                if size >= _AHEAD_BYTES or readable.num_rows < piece.num_rows:
                    return _Span(batches, size, frozenset(paths))
        return _Span(batches, size, frozenset(paths))


def _as_bytes(reading: ValueReading, piece: pa.RecordBatch, *, is_first: bool) -> pa.RecordBatch:
    """A typed topic's records as consumers of bytes get them, up to the first whose value can't be bytes of its format.

    Raises ``UnwritableError``: it is the first of all that is read."""
    try:
        return reading.as_bytes(piece)
    except UnwritableError as error:
        if is_first and error.place == 0:
            raise
        return reading.as_bytes(piece.slice(0, error.place))


def _encoded(piece: pa.RecordBatch, *, is_append_time: bool) -> list[tuple[bytes, int, int]]:
    if not piece.num_rows:
        return []
    table = pa.Table.from_batches([piece])
    times = milliseconds(table["timestamp"]).fill_null(-1)
    table = table.set_column(table.column_names.index("timestamp"), "timestamp", times)
    found = []
    for encoded in encode_batches(table, batch_bytes=_BATCH_BYTES, is_append_time=is_append_time):
        first = int.from_bytes(encoded[:8], "big")
        found.append((encoded, first, first + int.from_bytes(encoded[23:27], "big")))
    return found
