"""What tests of jobs need: topics with files of chosen sizes and times, everything that is stored of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sparklog.compaction.last_runs import RunSummary, summary_of
from sparklog.compaction.reports import MaintenanceReport
from sparklog.delta.log import DeltaLog
from sparklog.log.append import TopicWriter
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.record_reading import read_segment
from sparklog.log.data.segments import Segment
from sparklog.log.state import load_state
from tests.support import T0_MS, append, records, within

Key = str | None


def a_segment(first_offset: int = 0, count: int = 10, **changes: Any) -> Segment:
    """A file of a producer: numbered from 0, 1,000 bytes, of :data:`T0_MS`."""
    values: dict[str, Any] = {
        "path": f"partition=0/{first_offset}.parquet",
        "partition": 0,
        "base_offset": first_offset,
        "size_bytes": 1_000,
        "modification_ms": T0_MS,
        "record_count": count,
        "min_offset_delta": 0,
        "max_offset_delta": count - 1,
        "min_timestamp_ms": T0_MS,
        "max_timestamp_ms": T0_MS,
    }
    return Segment(**(values | changes))


def row_of(*sizes: int, count: int = 10, **changes: Any) -> list[Segment]:
    """Files of these sizes, one after the other."""
    return [a_segment(number * count, count, size_bytes=size, **changes) for number, size in enumerate(sizes)]


def live(log: DeltaLog, partition: int = 0) -> list[Segment]:
    """The live files of a partition in offset order."""
    return load_state(log).require_whole().index.partition(partition)


def append_each(writer: TopicWriter, *values: str, partition: int = 0) -> None:
    """A commit, and so a file, for each value."""
    for value in values:
        append(writer, value, partition=partition)


def append_at(writer: TopicWriter, timestamp_ms: int, *values: str, partition: int = 0) -> None:
    """One file, whose first record is of that time."""
    batch = records(*values, timestamp_ms=timestamp_ms)
    writer.append(writer.upload([(partition, batch)]), deadline=within(writer, 120_000))


def append_pairs(
    writer: TopicWriter, pairs: Sequence[tuple[Key, str | None]], *, partition: int = 0, timestamp_ms: int = T0_MS
) -> None:
    """One file of these keys and values."""
    batch = pa.table(
        {
            "key": pa.array([None if key is None else key.encode() for key, _ in pairs], pa.binary()),
            "value": pa.array([None if value is None else value.encode() for _, value in pairs], pa.binary()),
            "timestamp": pa.array([timestamp_ms] * len(pairs), pa.int64()),
        }
    )
    writer.append(writer.upload([(partition, batch)]), deadline=within(writer, 120_000))


def stored(log: DeltaLog, partition: int = 0) -> list[dict[str, Any]]:
    """Every column of every record of a partition, by offset, whatever files they are in."""
    return [row for segment in live(log, partition) for row in read_segment(log, segment).to_pylist()]


def pairs_of(log: DeltaLog, partition: int = 0) -> list[tuple[int, Key, str | None]]:
    """Offset, key and value of every record of a partition."""

    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    return [(row["offset"], text(row["key"]), text(row["value"])) for row in stored(log, partition)]


def delete_files(log: DeltaLog, segments: Sequence[Segment]) -> None:
    """As vacuum does in the end."""
    log.store.delete([object_path(log.table, segment.path) for segment in segments])


def a_run(**given: Any) -> RunSummary:
    """A run that found nothing to do, but for what is given."""
    return (
        summary_of(
            MaintenanceReport(topics=(), transactions=(), groups=(), errors={}, dry_run=False),
            ended_ms=T0_MS,
            took_ms=5.0,
        )
        if not given
        else replace(a_run(), **given)
    )
