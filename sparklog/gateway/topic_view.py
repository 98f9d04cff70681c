"""Topics as Fetch reads them: one follower each, and the record batches that were encoded last."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from sparklog.errors import InvalidRecordError, ObjectNotFoundError, UnknownTopicOrPartitionError
from sparklog.gateway.leader_epochs import leader_epoch
from sparklog.gateway.records import encode_batches, encode_empty_batch
from sparklog.gateway.records.plain_files import encode_plain_file
from sparklog.log.carried_files import CarriedLately
from sparklog.log.cluster import Cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_reading import milliseconds
from sparklog.log.data.record_streaming import is_read_whole, open_segments
from sparklog.log.data.segments import Segment
from sparklog.log.follow import TopicFollower
from sparklog.log.head import TopicHead
from sparklog.log.typed_records import ValueReading
from sparklog.schemas import UnwritableError

__all__ = ["BatchCache", "Fetched", "TopicView"]

_BATCH_BYTES = 250_000
"""The keys and values of a batch: four whole batches fit into :data:`_ASKED_BYTES`."""
_PIECE_BYTES = 1_048_576
_MOST_PLAIN_BYTES = 4 * _PIECE_BYTES
"""A larger file isn't encoded at once."""
_MAX_POLLS = 100
"""Each of up to 32 commits. A topic that grows faster than it is followed is read further at the next Fetch."""
_AHEAD_BYTES = 2_097_152
"""Encoded at a time for the next Fetch of a reader, which finds it in the cache."""
_ASKED_BYTES = 1_048_576
"""Bytes that clients take of a partition at a time by default."""
_LONG_MS = 1_000.0
"""After so long a Fetch has what was read by then: many small files could take longer than clients wait."""
_LEADER_EPOCH = slice(12, 16)
"""Where a batch has its leader epoch, of which the checksum doesn't depend. Source: Kafka ``DefaultRecordBatch``."""
_KEPT_BATCH_BYTES = 700
"""About what a batch in the cache takes beside its bytes."""


@dataclass(frozen=True, slots=True)
class _Batch:
    """An encoded batch of a partition."""

    last_offset: int
    data: bytearray
    paths: frozenset[str]
    """The files that it was read from: once one of them isn't live any more, some of its records may be gone."""
    is_sent: bool = False
    """Are these the bytes that a producer has sent through this gateway? Those of its file otherwise."""


_NO_FILES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fetched:
    """The records that a partition has from an offset on."""

    records: list[bytearray]
    """Whole batches; the first one holds the offset, or is the next there is."""
    log_start_offset: int
    log_end_offset: int
    next_offset: int | None = None
    """The offset that the reader asks for next, where there is more than what it was given."""


class BatchCache:
    """Batches of all partitions, those used last; within a bound. For several threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._size_bytes = 0
        self._batches: OrderedDict[tuple[str, int, int], _Batch] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, topic_id: str, partition: int, offset: int) -> _Batch | None:
        """The batch that was kept for an offset."""
        key = (topic_id, partition, offset)
        with self._lock:
            batch = self._batches.get(key)
            if batch is not None:
                self._batches.move_to_end(key)
            return batch

    def keep(self, topic_id: str, partition: int, offset: int, batch: _Batch) -> None:
        """Keep the batch that a reader gets who asks for an offset; forget those used longest ago where they are too
        many."""
        key = (topic_id, partition, offset)
        _set_leader_epoch(batch, topic_id)
        with self._lock:
            self._forget(self._batches.pop(key, None))
            self._batches[key] = batch
            self._size_bytes += len(batch.data) + _KEPT_BATCH_BYTES
            while self._size_bytes > self._limit_bytes:
                self._forget(self._batches.popitem(last=False)[1])

    def keep_sent(self, topic_id: str, partition: int, offset: int, data: bytearray, path: str) -> None:
        """Keep a batch as it was sent, which lies in a file of that path."""
        self.keep(topic_id, partition, offset, _Batch(_last_offset(data), data, frozenset((path,)), is_sent=True))

    def _forget(self, batch: _Batch | None) -> None:
        self._size_bytes -= 0 if batch is None else len(batch.data) + _KEPT_BATCH_BYTES


class TopicView:
    """One topic for all Fetches of a gateway. Its methods may block; several threads may call them."""

    def __init__(self, cluster: Cluster, topic: str, cache: BatchCache) -> None:
        """Load the topic. Raises ``UnknownTopicOrPartitionError``, ``StoreError``."""
        self.name = topic
        self._follower = TopicFollower(cluster.topic_log(topic), topic)
        self._cache = cache
        self._lock = threading.Lock()
        self._carried = CarriedLately()
        self._sent_ends: dict[int, tuple[int, int]] = {}
        """By partition, where the newest batch ends that is kept as it was sent, and the version that it is in."""

    @property
    def version(self) -> int:
        """The newest version that is known."""
        return self._follower.head.delta_version

    @property
    def topic_id(self) -> uuid.UUID:
        """Another one than that of a topic of the same name that was deleted before."""
        return _id_of(self._follower.head.topic_id)

    def has_id(self, topic_id: str) -> bool:
        """Is it the topic of an id, as logs have it?"""
        return self._follower.head.topic_id == topic_id

    def poll(self, expected: int = 0) -> list[int]:
        """Learn what is new, to the end of the log: what was committed before a Fetch came is in its answer. Returns
        the versions that were new.

        Args:
            expected: how many are likely to be.
        Raises ``UnknownTopicOrPartitionError``: the topic was deleted.
        """
        versions: list[int] = []
        with self._lock:
            for _ in range(_MAX_POLLS):
                entries = self._follower.poll(expected)
                self._carried.add(entries)
                versions += [entry.version for entry in entries]
                if self._follower.caught_up:
                    break
                expected = 0
        return versions

    def at_end(self, partition: int, offset: int) -> Fetched | None:
        """The answer where nothing lies behind an offset, as of the newest version that is known; None: something does,
        or the offset is wrong. Never blocks."""
        head = self._follower.head
        if not 0 <= partition < head.partition_count:
            return None
        sent_end, version = self._sent_ends.get(partition, (-1, -1))
        if offset != head.log_end_offsets[partition] and not (offset == sent_end and head.delta_version < version):
            return None
        return Fetched([], head.log_start_offsets[partition], offset)

    def note_sent(self, partition: int, end: int, version: int) -> None:
        """Readers may have records up to ``end`` before a look finds the version that they are in."""
        self._sent_ends[partition] = (end, version)

    def has_kept(self, partition: int, offset: int) -> bool:
        """Is there something that :meth:`kept` would return? Never blocks."""
        return self._kept(self._follower.head, partition, offset) is not None

    def has_sent(self, partition: int, offset: int) -> bool:
        """Is there a batch for an offset as it was sent? Then what follows is mostly there, too. Never blocks."""
        batch = self._kept(self._follower.head, partition, offset)
        return batch is not None and batch.is_sent

    def kept(self, partition: int, offset: int, max_bytes: int, *, least_one: bool) -> Fetched | None:
        """Take what is kept from an offset on, which may be more than the newest version that is known has: what was
        produced here has its offset from the log, too. None: nothing, or less than there is room for, and files have
        more; or there is no room. Never blocks.

        Args:
            max_bytes: as in :meth:`fetch`.
        """
        head = self._follower.head
        taken: list[bytearray] = []
        left, at = max_bytes, offset
        while left > 0 or (least_one and not taken):
            batch = self._kept(head, partition, at)
            if batch is None and taken and at < head.log_end_offsets[partition]:
                return None
            if batch is None or (len(batch.data) > left and (taken or not least_one)):
                break
            taken.append(batch.data)
            left -= len(batch.data)
            at = batch.last_offset + 1
        if not taken:
            return None
        end = head.log_end_offsets[partition]
        return Fetched(taken, head.log_start_offsets[partition], max(end, at), at if at < end else None)

    def _kept(self, head: TopicHead, partition: int, offset: int) -> _Batch | None:
        if not 0 <= partition < head.partition_count or offset < head.log_start_offsets[partition]:
            return None
        batch = self._cache.find(head.topic_id, partition, offset)
        if batch is None or (batch.is_sent and not _tells_as_sent(head)):
            return None
        # Behind the end that is known no entry says yet which files are live: this one was committed a moment ago.
        is_live = offset >= head.log_end_offsets[partition] or self._follower.holds(batch.paths)
        return batch if is_live else None

    def ends(self, partition: int) -> Fetched:
        """No records, but where the partition starts and ends, as of the newest version that is known. Never blocks.

        Raises ``UnknownTopicOrPartitionError``."""
        head = self._follower.head
        if not 0 <= partition < head.partition_count:
            raise UnknownTopicOrPartitionError(f"there is no partition {partition}")
        return Fetched([], head.log_start_offsets[partition], head.log_end_offsets[partition])

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
            self._follower.segment_groups(partition, offset)  # checks the offset
            end = head.log_end_offsets[partition]
            start = head.log_start_offsets[partition]
            if offset >= end or (max_bytes <= 0 and not least_one):
                return Fetched([], start, end)
            taken: list[bytearray] = []
            left, at = max_bytes, offset
            ahead: dict[int, _Batch] = {}
            clock = self._follower.log.clock
            until_ticks_ms = clock.ticks_ms() + _LONG_MS
            while at < end and (left > 0 or not taken):
                try:
                    batch = ahead.get(at) or self._kept(head, partition, at)
                    if batch is None:
                        if taken and clock.ticks_ms() > until_ticks_ms:
                            break
                        ahead = self._ahead(head.topic_id, partition, at, until_ticks_ms, min(left, _AHEAD_BYTES))
                        batch = ahead.get(at)
                except InvalidRecordError:
                    if not taken:
                        raise
                    break
                if batch is None or (len(batch.data) > left and (taken or not least_one)):
                    break
                taken.append(batch.data)
                left -= len(batch.data)
                at = batch.last_offset + 1
            return Fetched(taken, start, end, at if taken and at < end else None)

    def read_ahead(self, partition: int, offset: int) -> None:
        """Encode what the next Fetch of a reader will ask for, unless that is kept already. Raises as :meth:`fetch`."""
        with self._lock:
            head, size = self._follower.head, 0
            self._follower.segment_groups(partition, offset)  # checks the offset
            while offset < head.log_end_offsets[partition] and size < _ASKED_BYTES:
                kept = self._kept(head, partition, offset)
                if kept is None:
                    until_ticks_ms = self._follower.log.clock.ticks_ms() + _LONG_MS
                    self._ahead(head.topic_id, partition, offset, until_ticks_ms, _AHEAD_BYTES)
                    break
                offset, size = kept.last_offset + 1, size + len(kept.data)

    def _ahead(
        self, topic_id: str, partition: int, offset: int, until_ticks_ms: float, size_bytes: int
    ) -> dict[int, _Batch]:
        """Batches from an offset on, each by the offset that its reader asks for; they are kept, too."""
        try:
            batches = self._read(partition, offset, until_ticks_ms, size_bytes)
        except ObjectNotFoundError:  # a file was replaced meanwhile (rule L10, orphans)
            self._follower.reload()
            batches = self._read(partition, offset, until_ticks_ms, size_bytes)
        by_offset, at = {}, offset
        for batch in batches:
            if batch.paths:
                self._cache.keep(topic_id, partition, at, batch)
            else:  # no file tells for how long it holds: a topic that is restored may have records there again
                _set_leader_epoch(batch, topic_id)
            by_offset[at] = batch
            at = batch.last_offset + 1
        return by_offset

    def _read(self, partition: int, offset: int, until_ticks_ms: float, size_bytes: int) -> list[_Batch]:
        """Batches of about a size, one at least, or those of the first files where the time is over. Where no records
        are left up to the end of the log, as others have deleted them, an empty one takes the reader there."""
        batches: list[_Batch] = []
        size = 0
        log = self._follower.log
        head = self._follower.head
        reading = ValueReading.of(head)
        is_append_time = head.config["message.timestamp.type"] == "LogAppendTime"
        for group in self._follower.segment_groups(partition, offset):
            paths = frozenset(segment.path for segment in group)
            data = self._files(group) if is_read_whole(group) else None
            if reading is None and data is not None and len(group) == 1:
                plain = _plain(group[0], data[0], offset, is_append_time=is_append_time)
                if plain is not None:
                    batches += [_Batch(_last_offset(encoded), encoded, paths) for encoded in plain]
                    size += sum(map(len, plain))
                    if size >= size_bytes or (batches and log.clock.ticks_ms() > until_ticks_ms):
                        return batches
                    continue
            values = None if reading is None else reading.type
            opened = open_segments(log, group, data, start_offset=offset, piece_bytes=_PIECE_BYTES, values=values)
            for piece in opened.pieces:
                readable = piece if reading is None else _as_bytes(reading, piece, is_first=not batches)
                for encoded in _encoded(readable, is_append_time=is_append_time):
                    batches.append(_Batch(_last_offset(encoded), encoded, paths))
                    size += len(encoded)
                if size >= size_bytes or readable.num_rows < piece.num_rows:
                    return batches
            if batches and log.clock.ticks_ms() > until_ticks_ms:
                return batches
        at, end = batches[-1].last_offset + 1 if batches else offset, head.log_end_offsets[partition]
        if at < end:
            batches.append(_Batch(end - 1, encode_empty_batch(at, end - 1), _NO_FILES))
        return batches

    def _files(self, group: Sequence[Segment]) -> Sequence[Any]:
        """The bytes of segments' files; None of one that is gone."""
        log = self._follower.log
        carried = [self._carried.take(segment.path, size_bytes=segment.size_bytes) for segment in group]
        wanted = [object_path(log.table, file.path) for file, data in zip(group, carried, strict=True) if data is None]
        read = iter(log.store.read_buffers(wanted) if wanted else ())
        return [next(read) if data is None else data for data in carried]


@lru_cache(maxsize=1_000)
def _id_of(text: str) -> uuid.UUID:
    """An id, which each Fetch asks for, parsed once."""
    return uuid.UUID(text)


def _tells_as_sent(head: TopicHead) -> bool:
    """Do readers get a topic's records with the times and values that producers have sent?"""
    return not head.value_schema_id and head.config["message.timestamp.type"] != "LogAppendTime"


def _as_bytes(reading: ValueReading, piece: pa.RecordBatch, *, is_first: bool) -> pa.RecordBatch:
    """A typed topic's records as consumers of bytes get them, up to the first whose value can't be bytes of its format.

    Raises ``UnwritableError``: it is the first of all that is read."""
    try:
        return reading.as_bytes(piece)
    except UnwritableError as error:
        if is_first and error.place == 0:
            raise
        return reading.as_bytes(piece.slice(0, error.place))


def _plain(segment: Segment, data: Any, offset: int, *, is_append_time: bool) -> list[bytearray] | None:
    """The batches of a file of many plain records, from an offset on; None: it is another file, or gone."""
    if data is None or segment.record_count is None:
        return None
    return encode_plain_file(
        data,
        segment.record_count,
        base_offset=segment.base_offset or 0,
        start_offset=offset,
        batch_bytes=_BATCH_BYTES,
        most_bytes=_MOST_PLAIN_BYTES,
        is_append_time=is_append_time,
    )


def _encoded(piece: pa.RecordBatch, *, is_append_time: bool) -> list[bytearray]:
    if not piece.num_rows:
        return []
    table = pa.Table.from_batches([piece])
    times = milliseconds(table["timestamp"]).fill_null(-1)
    table = table.set_column(table.column_names.index("timestamp"), "timestamp", times)
    return [*encode_batches(table, batch_bytes=_BATCH_BYTES, is_append_time=is_append_time)]


def _set_leader_epoch(batch: _Batch, topic_id: str) -> None:
    batch.data[_LEADER_EPOCH] = leader_epoch(topic_id).to_bytes(4, "big")


def _last_offset(encoded: bytearray) -> int:
    """The last offset of a batch: its base offset and its last offset delta."""
    return int.from_bytes(encoded[:8], "big") + int.from_bytes(encoded[23:27], "big")
