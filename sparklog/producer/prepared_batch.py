"""Preparing gathered batches for their upload: one table per partition, and how each batch ends afterwards.

Pure: the topic's settings, the time and the sticky partition are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from sparklog._native import CORE
from sparklog.config import TopicConfig
from sparklog.errors import InvalidRecordError, InvalidTimestampError, SparklogError, UnknownTopicOrPartitionError
from sparklog.log.data.arrow_buffers import binary_lengths, is_valid, one_array
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.data.few_rows import FewRows
from sparklog.log.data.producer_batch import FileRows, PlacedBatch
from sparklog.log.data.schema import TIMESTAMP
from sparklog.log.data.sorted_rows import SomeRows, SortedRows
from sparklog.log.data.value_columns import DATA, SCHEMA_ID
from sparklog.producer.batch import Batch, RecordBatch
from sparklog.producer.outcome import I32, I64, Numbers, Outcome, Piece, RefusedWithOthersError, Written
from sparklog.producer.partitioner import StickyPartition, key_partitions
from sparklog.producer.typed_values import ValueEncoding, sizes_of

__all__ = ["PreparedBatch", "choose_partitions", "prepare", "refuse", "sort_by_partition"]

_COLUMNS = ("timestamp", "key", "value", "headers", "partition")


@dataclass(frozen=True, kw_only=True)  # without slots: it is weakly referred to
class PreparedBatch:
    """Batches of a queue that are uploaded together: checked, and cut into one table for each partition."""

    counts: Sequence[int]
    """Records of each batch."""
    parts: Sequence[tuple[int, SomeRows | FewRows]]
    """Partition and its records, in the order of sending; each partition once, none empty. Nothing once uploaded."""
    part_counts: Sequence[int]
    """Records of each part."""
    partitions: Numbers
    """The partition of each record, in the order of sending, over all batches; -1 for one that is refused."""
    order: I64 | I32
    """Which record (by its place) each row of the parts is, one part after the other."""
    timestamps_ms: Numbers
    key_sizes: Numbers
    value_sizes: Numbers
    refused: Mapping[int, SparklogError] = field(default_factory=dict)
    """By place over all batches."""
    part_batches: Sequence[tuple[PlacedBatch, ...]] = ()
    """For each part, the batches in it that their producers have numbered; empty: there are none."""

    @property
    def record_count(self) -> int:
        """Records that weren't refused."""
        return len(self.order)

    def without_records(self) -> PreparedBatch:
        """The same without the tables, once these are encoded: what waits for its commit takes memory for its files,
        and as little as can be for each record."""
        return PreparedBatch(**{**vars(self), "parts": (), "order": self.order.astype(np.int32, copy=False)})

    def outcomes(self, base_offsets: Sequence[int] | None, part_rows: Sequence[FileRows | None] = ()) -> list[Outcome]:
        """How each batch ends once the parts are in the log at these offsets.

        Args:
            base_offsets: one for each part, -1 where nobody knows it; None before there are any.
            part_rows: for each part, where some of its rows weren't stored; empty: all were.
        """
        is_whole = len(self.counts) == len(self.part_counts) == 1 and not (self.refused or any(part_rows))
        if is_whole and base_offsets and base_offsets[0] >= 0:  # one batch in one file: in its order
            return [self._whole(base_offsets[0])]
        offsets: I64 = np.full(len(self.partitions), -1, np.int64)
        refused = dict(self.refused)
        start = 0
        for part, count in enumerate(self.part_counts):
            places = self.order[start : start + count]
            base_offset = base_offsets[part] if base_offsets else -1
            rows = part_rows[part] if part_rows else None
            if rows is not None:
                offsets[places] = rows.offsets
                refused |= {int(place): error for wrong, error in rows.refused for place in places[wrong]}
            elif base_offset >= 0:
                offsets[places] = np.arange(base_offset, base_offset + count)
            start += count
        outcomes = []
        start = 0
        for count in self.counts:
            end = start + count
            written = Written(
                partitions=self.partitions[start:end],
                offsets=offsets[start:end],
                timestamps_ms=self.timestamps_ms[start:end],
                key_sizes=self.key_sizes[start:end],
                value_sizes=self.value_sizes[start:end],
            )
            outcomes.append(Outcome(written=written, refused=_between(refused, start, end) or None))
            start = end
        return outcomes

    def _whole(self, base_offset: int) -> Outcome:
        """How the only batch ends, whose records all lie one behind the other from an offset on."""
        offsets: Numbers = range(base_offset, base_offset + self.counts[0])
        if not isinstance(self.partitions, list):  # they aren't few
            offsets = np.arange(base_offset, base_offset + self.counts[0], dtype=np.int64)
        return Outcome(
            written=Written(
                partitions=self.partitions,
                offsets=offsets,
                timestamps_ms=self.timestamps_ms,
                key_sizes=self.key_sizes,
                value_sizes=self.value_sizes,
            )
        )

    def failures(self, error: SparklogError) -> list[Outcome]:
        """How each batch ends if nothing of it counts: a record that was refused has its own reason."""
        outcomes = []
        start = 0
        for count in self.counts:
            own = _between(self.refused, start, start + count)
            refused = {place: own.get(place, error) for place in range(count)} if own else None
            outcomes.append(Outcome(refused=refused) if refused else Outcome(error=error))
            start += count
        return outcomes


def _between(refused: Mapping[int, SparklogError], start: int, end: int) -> dict[int, SparklogError]:
    return {place - start: error for place, error in refused.items() if start <= place < end}


def prepare(
    batches: Sequence[Batch],
    config: TopicConfig,
    *,
    partition_count: int,
    sticky: StickyPartition,
    now_ms: int,
    encoding: ValueEncoding | None = None,
    renew: Callable[[Collection[str]], ValueEncoding | None] | None = None,
) -> PreparedBatch:
    """Put batches together: check their records, choose partitions, and sort by them. The batches lose their records.

    Args:
        now_ms: every record's timestamp where the topic has ``message.timestamp.type=LogAppendTime``.
        encoding: of a typed topic's values.
        renew: takes what is wrong with values, which may be of a newer schema; returns the encoding as of now, None
            where it is still ``encoding``.
    """
    found, undecodable = _take_columns(batches, encoding, renew)
    timestamps_column, keys, values, headers, chosen = (found[name] for name in _COLUMNS)
    topic, is_append_time = batches[0].topic, config["message.timestamp.type"] == "LogAppendTime"
    timestamps: I64 = np.full(len(keys), now_ms, np.int64) if is_append_time else np.asarray(timestamps_column)
    refused = {**refuse(topic, timestamps, keys, config, now_ms=now_ms), **undecodable}
    refused |= _whole_batches(batches, refused)
    value_sizes = binary_lengths(values) if encoding is None else sizes_of(pa.table(dict(found)))
    partitions = choose_partitions(keys, value_sizes, chosen, partition_count, sticky)
    partitions[list(refused)] = -1
    # Once for all parts: a cast of a small column costs more in its call than in its rows.
    in_us = pa.array(timestamps * 1000).view(TIMESTAMP) if not refused else pa.array(timestamps)
    columns = {"timestamp": in_us, "key": keys, "value": values}
    if headers.null_count < len(headers):
        columns["headers"] = headers
    if encoding is not None:
        columns |= {name: found[name] for name in (DATA, SCHEMA_ID)}
    order, parts = sort_by_partition(pa.table(columns), partitions)
    return PreparedBatch(
        counts=[batch.count for batch in batches],
        parts=parts,
        part_counts=[part.num_rows for _, part in parts],
        partitions=partitions,
        order=order,
        timestamps_ms=timestamps,
        key_sizes=binary_lengths(keys),
        value_sizes=value_sizes,
        refused=refused,
        part_batches=_part_batches(
            batches, partitions, order, [(partition, part.num_rows) for partition, part in parts]
        ),
    )


def _whole_batches(batches: Sequence[Batch], refused: Mapping[int, SparklogError]) -> dict[int, SparklogError]:
    """The other records of pieces, which are stored whole, of which one is refused, as in Kafka."""
    found: dict[int, SparklogError] = {}
    for start, piece in _pieces(batches) if refused else ():
        own = _between(refused, start, start + piece.count)
        if own:
            error = RefusedWithOthersError(f"{len(own)} other records of its batch were refused: {_first(own)}")
            found |= {start + place: error for place in range(piece.count) if place not in own}
    return found


def _pieces(batches: Sequence[Batch]) -> Iterator[tuple[int, Piece]]:
    """The pieces of all batches, and the places of their first records."""
    start = 0
    for batch in batches:
        at = start
        for piece in batch.pieces:
            yield at, piece
            at += piece.count
        start += batch.count


def _first(errors: Mapping[int, SparklogError]) -> SparklogError:
    return next(iter(errors.values()))


def _part_batches(
    batches: Sequence[Batch], partitions: I32, order: I64, parts: Sequence[tuple[int, int]]
) -> Sequence[tuple[PlacedBatch, ...]]:
    """For each part, the batches that their producers have numbered, and their first rows in it.

    Args:
        partitions: of each record, over all batches; -1 for one that is refused.
        order: the record that each row of the parts is.
        parts: the partition of each part, and how many rows it has.
    """
    numbered = [(start, piece.numbered) for start, piece in _pieces(batches) if piece.numbered is not None]
    if not numbered:
        return ()
    rows: I64 = np.empty(len(partitions), np.int64)
    rows[order] = np.concatenate([np.arange(count) for _, count in parts]) if parts else 0
    starts = np.array([start for start, _ in numbered], np.int64)
    found: dict[int, list[PlacedBatch]] = {partition: [] for partition, _ in parts}
    places = zip(partitions[starts].tolist(), rows[starts].tolist(), numbered, strict=True)
    for partition, row, (_, batch) in places:
        if partition >= 0:
            found[partition].append(PlacedBatch(batch=batch, start=row))
    return [tuple(found[partition]) for partition, _ in parts]


def _take_columns(
    batches: Sequence[Batch],
    encoding: ValueEncoding | None,
    renew: Callable[[Collection[str]], ValueEncoding | None] | None,
) -> tuple[Mapping[str, pa.Array], dict[int, SparklogError]]:
    """The columns of all batches, and the records whose values can't be the topic's, by place over all of them."""
    first = batches[0]
    if encoding is None and len(batches) == 1 and isinstance(first, RecordBatch):
        columns = first.take_columns()
        _check_untyped(first.topic, columns, first.take_values())
        return columns, {}
    table, refused = _take_table(batches, encoding, renew)
    return {name: one_array(table[name]) for name in table.column_names}, refused


def _check_untyped(topic: str, columns: Collection[str], values: Mapping[int, Any]) -> None:
    """Raise ``UnknownTopicOrPartitionError`` for values of a typed topic whose name an untyped one has taken: their
    bytes would be tombstones."""
    if values or DATA in columns:
        raise UnknownTopicOrPartitionError(f"topic {topic!r} is not typed any more")


def _take_table(
    batches: Sequence[Batch],
    encoding: ValueEncoding | None,
    renew: Callable[[Collection[str]], ValueEncoding | None] | None,
) -> tuple[pa.Table, dict[int, SparklogError]]:
    """The records of all batches, and those whose values can't be the topic's, by place over all of them."""
    taken = [(batch, batch.take_table(), batch.take_values()) for batch in batches]
    if encoding is None:
        for batch, table, values in taken:
            _check_untyped(batch.topic, table.schema.names, values)
        return _joined([table for _, table, _ in taken]), {}
    encoded = [encoding.encode(table, values) for _, table, values in taken]
    unfit = frozenset[str]().union(*(each.unfit for each in encoded))
    newer = renew(unfit) if renew is not None and unfit else None
    if newer is not None:
        encoded = [newer.encode(table, values) for _, table, values in taken]
    refused: dict[int, SparklogError] = {}
    start = 0
    for each in encoded:
        refused |= {start + place: error for place, error in each.refused.items()}
        start += each.table.num_rows
    return _joined([each.table for each in encoded]), refused


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def refuse(
    topic: str, timestamps_ms: I64, keys: pa.Array, config: TopicConfig, *, now_ms: int
) -> dict[int, SparklogError]:
    """The records that the topic's settings don't allow, by place, with the reason.

    Source: Kafka ``LogValidator.validateTimestamp``, ``validateKey``. Kafka refuses the whole batch of such a record.
    """
    refused: dict[int, SparklogError] = {}
    if config["message.timestamp.type"] != "LogAppendTime":
        low = max(0, now_ms - config.integer("message.timestamp.before.max.ms"))
        high = min(MAX_TIMESTAMP_MS, now_ms + config.integer("message.timestamp.after.max.ms"))
        for place in ((timestamps_ms < low) | (timestamps_ms > high)).nonzero()[0]:
            refused[int(place)] = InvalidTimestampError(
                f"topic {topic!r}: timestamp {timestamps_ms[place]} ms, expected {low} to {high} by its settings "
                "message.timestamp.before.max.ms and after.max.ms"
            )
    if keys.null_count and "compact" in str(config["cleanup.policy"]).split(","):
        for place in (~is_valid(keys)).nonzero()[0]:
            refused[int(place)] = InvalidRecordError(
                f"topic {topic!r} has cleanup.policy={config['cleanup.policy']}: expected a record with a key"
            )
    return refused


def choose_partitions(
    keys: pa.Array, value_sizes: I32, chosen: pa.Array, partition_count: int, sticky: StickyPartition
) -> I32:
    """The partition of each record: the one it asks for, or that of its key, or for all without either a sticky one.

    Args:
        keys: binary.
        value_sizes: bytes of each value, -1 for null.
        chosen: the partition that each record asks for, int32, or null.
    """
    if chosen.null_count == 0:
        return np.array(chosen, np.int32)
    if keys.null_count < len(keys):
        partitions = key_partitions(keys, partition_count) if partition_count > 1 else np.zeros(len(keys), np.int32)
    else:
        partitions = np.empty(len(keys), np.int32)
    if keys.null_count:
        keyless = ~is_valid(keys)
        sizes = int(value_sizes[keyless & (value_sizes > 0)].sum())
        partitions[keyless] = sticky.take(partition_count, sizes)
    if chosen.null_count < len(chosen):
        partitions[is_valid(chosen)] = np.asarray(chosen.drop_null())
    return partitions


def sort_by_partition(table: pa.Table, partitions: I32) -> tuple[I64, list[tuple[int, SomeRows]]]:
    """The rows by partition, within one in their order, without those of partition -1. None is copied yet; rows that
    are in that order already aren't sorted."""
    if len(partitions) and partitions[0] >= 0 and (partitions[1:] >= partitions[:-1]).all():
        return np.arange(len(partitions)), _cut(SortedRows(table), partitions)
    if CORE is not None and len(partitions):
        buffer, _ = CORE.order_of(np.ascontiguousarray(partitions), int(partitions.max()) + 1)
        order: I64 = np.frombuffer(buffer, np.int64)
    else:
        # int16 sorts by radix, an order faster; there are at most 10,000 partitions
        order = np.argsort(partitions.astype(np.int16), kind="stable").astype(np.int64)
        order = order[int((partitions < 0).sum()) :]
    return order, _cut(SortedRows(table, order), partitions[order])


def _cut(rows: SortedRows, partitions: I32) -> list[tuple[int, SomeRows]]:
    """The rows of each partition; theirs are in ascending order."""
    if not len(partitions):
        return []
    ends = [*(np.flatnonzero(partitions[1:] != partitions[:-1]) + 1).tolist(), len(partitions)]
    starts = [0, *ends[:-1]]
    return [(int(partitions[start]), rows.part(start, end - start)) for start, end in zip(starts, ends, strict=True)]
