"""Preparing gathered batches for their upload: one table per partition, and how each batch ends afterwards.

Pure: the topic's settings, the time and the sticky partition are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.config import TopicConfig
from sparklog.errors import InvalidRecordError, InvalidTimestampError, SparklogError
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.data.schema import TIMESTAMP
from sparklog.producer.batch import I32, I64, Batch, Outcome, Written
from sparklog.producer.partitioner import StickyPartition, key_partitions

__all__ = ["PreparedBatch", "choose_partitions", "prepare", "refuse", "sort_by_partition"]

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)  # without slots: it is weakly referred to
class PreparedBatch:
    """Batches of a queue that are uploaded together: checked, and cut into one table for each partition."""

    counts: Sequence[int]
    """Records of each batch."""
    parts: Sequence[tuple[int, pa.Table]]
    """Partition and its records, in the order of sending; each partition once, none empty. Nothing once uploaded."""
    part_counts: Sequence[int]
    """Records of each part."""
    partitions: I32
    """The partition of each record, in the order of sending, over all batches; -1 for one that is refused."""
    order: I64
    """Which record (by its place) each row of the parts is, one part after the other."""
    timestamps_ms: I64
    key_sizes: I32
    value_sizes: I32
    refused: Mapping[int, SparklogError] = field(default_factory=dict)
    """By place over all batches."""

    @property
    def record_count(self) -> int:
        """Records that weren't refused."""
        return len(self.order)

    def without_records(self) -> PreparedBatch:
        """The same without the tables, once these are uploaded: what waits for its commit takes memory for its files
        alone."""
        return replace(self, parts=())

    def outcomes(self, base_offsets: Sequence[int] | None) -> list[Outcome]:
        """How each batch ends once the parts are in the log at these offsets.

        Args:
            base_offsets: one for each part, -1 where nobody knows it; None before there are any.
        """
        offsets: I64 = np.full(len(self.partitions), -1, np.int64)
        start = 0
        for count, base_offset in zip(self.part_counts, base_offsets or [-1] * len(self.part_counts), strict=True):
            end = start + count
            if base_offset >= 0:
                offsets[self.order[start:end]] = np.arange(base_offset, base_offset + count)
            start = end
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
            outcomes.append(Outcome(written=written, refused=self._refused(start, end) or None))
            start = end
        return outcomes

    def failures(self, error: SparklogError) -> list[Outcome]:
        """How each batch ends if nothing of it counts: a record that was refused has its own reason."""
        outcomes = []
        start = 0
        for count in self.counts:
            own = self._refused(start, start + count)
            refused = {place: own.get(place, error) for place in range(count)} if own else None
            outcomes.append(Outcome(refused=refused) if refused else Outcome(error=error))
            start += count
        return outcomes

    def _refused(self, start: int, end: int) -> dict[int, SparklogError]:
        return {place - start: error for place, error in self.refused.items() if start <= place < end}


def prepare(
    batches: Sequence[Batch], config: TopicConfig, *, partition_count: int, sticky: StickyPartition, now_ms: int
) -> PreparedBatch:
    """Put batches together: check their records, choose partitions, and sort by them. The batches lose their records.

    Args:
        now_ms: every record's timestamp where the topic has ``message.timestamp.type=LogAppendTime``.
    """
    table = pa.concat_tables([batch.take_table() for batch in batches]).combine_chunks()
    topic = batches[0].topic
    if config["message.timestamp.type"] == "LogAppendTime":
        table = table.set_column(0, "timestamp", pa.array(np.full(table.num_rows, now_ms, np.int64)))
    timestamps = _numbers(table["timestamp"])
    refused = refuse(topic, table, config, now_ms=now_ms)
    partitions = choose_partitions(table, partition_count, sticky)
    partitions[list(refused)] = -1
    # Once for all parts: a cast of a small column costs more in its call than in its rows.
    in_us = pa.array(timestamps * 1000).view(TIMESTAMP) if not refused else table["timestamp"]
    table = table.set_column(0, "timestamp", in_us)
    unused = ["partition", "headers"] if table["headers"].null_count == table.num_rows else ["partition"]
    order, parts = sort_by_partition(table.drop_columns(unused), partitions)
    return PreparedBatch(
        counts=[batch.count for batch in batches],
        parts=parts,
        part_counts=[part.num_rows for _, part in parts],
        partitions=partitions,
        order=order,
        timestamps_ms=timestamps,
        key_sizes=_sizes(table["key"]),
        value_sizes=_sizes(table["value"]),
        refused=refused,
    )


def refuse(topic: str, table: pa.Table, config: TopicConfig, *, now_ms: int) -> dict[int, SparklogError]:
    """The records that the topic's settings don't allow, by place, with the reason.

    Source: Kafka ``LogValidator.validateTimestamp``, ``validateKey``. Kafka refuses the whole batch of such a record.
    """
    refused: dict[int, SparklogError] = {}
    if config["message.timestamp.type"] != "LogAppendTime":
        timestamps = _numbers(table["timestamp"])
        low = max(0, now_ms - config.integer("message.timestamp.before.max.ms"))
        high = min(MAX_TIMESTAMP_MS, now_ms + config.integer("message.timestamp.after.max.ms"))
        for place in np.flatnonzero((timestamps < low) | (timestamps > high)):
            refused[int(place)] = InvalidTimestampError(
                f"topic {topic!r}: timestamp {timestamps[place]} ms, expected {low} to {high} by its settings "
                "message.timestamp.before.max.ms and after.max.ms"
            )
    keys = table["key"]
    if keys.null_count and "compact" in str(config["cleanup.policy"]).split(","):
        for place in np.flatnonzero(_bools(pc.is_null(keys))):
            refused[int(place)] = InvalidRecordError(
                f"topic {topic!r} has cleanup.policy={config['cleanup.policy']}: expected a record with a key"
            )
    return refused


def choose_partitions(table: pa.Table, partition_count: int, sticky: StickyPartition) -> I32:
    """The partition of each row: the one it asks for, or that of its key, or for all without either a sticky one.

    Args:
        table: columns ``key`` (binary), ``value`` (binary), ``partition`` (int32), in one chunk.
    """
    keys = _array(table["key"])
    chosen = table["partition"]
    if chosen.null_count == 0:
        return np.array(_array(chosen.cast(pa.int32())), np.int32)
    if keys.null_count < len(keys):
        partitions = key_partitions(keys, partition_count) if partition_count > 1 else np.zeros(len(keys), np.int32)
    else:
        partitions = np.empty(len(keys), np.int32)
    if keys.null_count:
        keyless = _bools(pc.is_null(keys))
        sizes = pc.sum(pc.binary_length(table["value"].filter(pc.is_null(keys)))).as_py() or 0
        partitions[keyless] = sticky.take(partition_count, sizes)
    if chosen.null_count < len(chosen):
        given = _bools(pc.is_valid(chosen))
        partitions[given] = np.asarray(chosen.drop_null().cast(pa.int32()).combine_chunks())
    return partitions


def sort_by_partition(table: pa.Table, partitions: I32) -> tuple[I64, list[tuple[int, pa.Table]]]:
    """The rows by partition, within one in their order, without those of partition -1."""
    if len(partitions) and partitions[0] >= 0 and (partitions == partitions[0]).all():
        return np.arange(len(partitions)), [(int(partitions[0]), table)]
    # int16 sorts by radix, an order faster; there are at most 10,000 partitions
    order: I64 = np.argsort(partitions.astype(np.int16), kind="stable").astype(np.int64)
    order = order[int((partitions < 0).sum()) :]
    by_partition = table.take(pa.array(order))
    numbers, counts = np.unique(partitions[order], return_counts=True)
    ends = np.cumsum(counts)
    return order, [
        (int(number), by_partition.slice(int(end - count), int(count)))
        for number, count, end in zip(numbers, counts, ends, strict=True)
    ]


def _sizes(column: pa.ChunkedArray) -> I32:
    return np.asarray(pc.fill_null(pc.binary_length(column), -1).cast(pa.int32()).combine_chunks())


def _numbers(column: pa.ChunkedArray) -> I64:
    return np.asarray(_array(column))


def _bools(column: Any) -> Bools:
    return np.asarray(_array(column).cast(pa.uint8())).astype(bool)


def _array(column: Any) -> pa.Array:
    """A column of a table of one chunk."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column
