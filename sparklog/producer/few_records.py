"""A few plain records on their way to a file without Arrow, which costs more than all else where they come one by one.

What has more to it, or is to be refused, is left to :func:`~sparklog.producer.prepared_batch.prepare`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from sparklog.config import TopicConfig
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.data.few_rows import FEW_RECORDS, FewRows
from sparklog.log.data.murmur2 import few_key_partitions
from sparklog.producer.batch import Batch, RecordBatch
from sparklog.producer.outcome import I32
from sparklog.producer.partitioner import StickyPartition
from sparklog.producer.prepared_batch import PreparedBatch

__all__ = ["prepare_few"]


def prepare_few(
    batches: Sequence[Batch], config: TopicConfig, *, partition_count: int, sticky: StickyPartition, now_ms: int
) -> PreparedBatch | None:
    """Do the work of :func:`~sparklog.producer.prepared_batch.prepare` for a few plain records of an untyped topic.

    Returns:
        None: they are others, and nothing was changed.
    """
    batch = batches[0]
    if len(batches) > 1 or batch.count > FEW_RECORDS or batch.pieces or not isinstance(batch, RecordBatch):
        return None
    found = batch.few_records()
    if found is None:
        return None
    timestamps, keys, values = found
    if config["message.timestamp.type"] == "LogAppendTime":
        timestamps = [now_ms] * len(timestamps)
    elif not _may_be_stored(timestamps, config, now_ms):
        return None
    if None in keys and "compact" in str(config["cleanup.policy"]).split(","):
        return None
    value_sizes = [-1 if value is None else len(value) for value in values]
    partitions = _partitions(keys, value_sizes, partition_count, sticky)
    order = sorted(range(len(keys)), key=partitions.__getitem__)
    rows = FewRows(range(len(keys)), [1000 * time_ms for time_ms in timestamps], keys, values)
    parts = _parts(rows, partitions, order)
    batch.drop_records()
    return PreparedBatch(
        counts=[len(keys)],
        parts=parts,
        part_counts=[part.num_rows for _, part in parts],
        partitions=partitions,
        order=_as_they_are(len(order)) if len(parts) == 1 else np.array(order, np.int32),
        timestamps_ms=timestamps,
        key_sizes=[-1 if key is None else len(key) for key in keys],
        value_sizes=value_sizes,
    )


@cache
def _as_they_are(count: int) -> I32:
    """The order of records that stay where they are."""
    order = np.arange(count, dtype=np.int32)
    order.flags.writeable = False
    return order


def _may_be_stored(timestamps_ms: Sequence[int], config: TopicConfig, now_ms: int) -> bool:
    low = max(0, now_ms - config.integer("message.timestamp.before.max.ms"))
    high = min(MAX_TIMESTAMP_MS, now_ms + config.integer("message.timestamp.after.max.ms"))
    return low <= min(timestamps_ms) and max(timestamps_ms) <= high


def _partitions(
    keys: Sequence[bytes | None], value_sizes: Sequence[int], partition_count: int, sticky: StickyPartition
) -> list[int]:
    if partition_count == 1 and None not in keys:
        return [0] * len(keys)
    keyless = -1
    if None in keys:
        sizes = sum(size for key, size in zip(keys, value_sizes, strict=True) if key is None and size > 0)
        keyless = sticky.take(partition_count, sizes)
    keyed = [key for key in keys if key is not None]
    partitions = iter(few_key_partitions(keyed, partition_count) if partition_count > 1 and keyed else [0] * len(keyed))
    return [keyless if key is None else next(partitions) for key in keys]


def _parts(rows: FewRows, partitions: list[int], order: Sequence[int]) -> list[tuple[int, FewRows]]:
    """The rows of each partition, in their order."""
    first = partitions[0]
    if partitions.count(first) == len(partitions):
        return [(first, rows)]
    found: dict[int, list[int]] = {}
    for place in order:
        found.setdefault(partitions[place], []).append(place)
    return [
        (
            partition,
            FewRows(
                range(len(places)),
                [rows.timestamps_us[place] for place in places],
                [rows.keys[place] for place in places],
                [rows.values[place] for place in places],
            ),
        )
        for partition, places in found.items()
    ]
