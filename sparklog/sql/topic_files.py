"""The data files of a topic as Arrow reads them one by one, each with what the log knows of its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from sparklog.delta.log import DeltaLog
from sparklog.log.data.record_reading import object_path
from sparklog.log.data.schema import DATA_SCHEMA, TIMESTAMP
from sparklog.log.data.segments import Segment
from sparklog.log.data.value_bounds import value_bounds
from sparklog.log.data.value_columns import DATA, Leaf, leaves_of
from sparklog.log.state import TopicState

__all__ = ["TopicFile", "file_schema", "parquet_format", "topic_files"]

_READ = ("offset_delta", "timestamp", "key", "value", "headers")
_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("base_offset", pa.int64()),
        pa.field("log_start_offset", pa.int64()),
        *(DATA_SCHEMA.field(name) for name in _READ),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFile:
    """A live data file of a topic, and what the log tells of its records."""

    path: str
    """Relative to the store's root."""
    segment: Segment
    partition: int
    log_start_offset: int
    """Records below it were deleted."""
    known: Any
    """An Arrow expression that holds for every record, over the columns of :func:`file_schema`."""


def topic_files(log: DeltaLog, state: TopicState) -> list[TopicFile]:
    """The live files of a topic that may have records at or above the log start offset of their partition."""
    head, whole = state.head, state.require_whole()
    leaves = [] if head.values is None else list(leaves_of(head.values))
    return [
        TopicFile(
            path=object_path(log.table, segment.path),
            segment=segment,
            partition=partition,
            log_start_offset=start,
            known=_equal("partition", partition)
            & _equal("log_start_offset", start)
            & _known(segment)
            & _known_values(whole.statistics.get(segment.path, {}), leaves),
        )
        for partition, start in enumerate(head.log_start_offsets)
        for segment in whole.index.from_offset(partition, start)
    ]


def file_schema(state: TopicState) -> pa.Schema:
    """The columns of the files, and what is constant in each: ``partition``, ``base_offset``, ``log_start_offset``. A
    record's offset is ``base_offset + offset_delta``."""
    return _SCHEMA if state.head.values is None else _SCHEMA.append(pa.field(DATA, state.head.values))


def parquet_format() -> Any:
    """The way in which Arrow reads data files, whoever wrote them."""
    return ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"))


def _equal(name: str, value: Any) -> Any:
    return ds.field(name) == pa.scalar(value, _SCHEMA.field(name).type)


def _known(segment: Segment) -> Any:
    """An expression of what the log tells of every record of a segment."""
    known = _equal("base_offset", segment.base_offset)
    time = ds.field("timestamp")
    if segment.min_timestamp_ms is not None:
        known &= (time >= _time(segment.min_timestamp_ms)) | time.is_null()
    if segment.max_timestamp_ms is not None:
        # Statistics are cut to milliseconds, foreign records may have microseconds. Two comparisons that each allow
        # null, since that is the form in which Arrow draws conclusions from them.
        known &= (time < _time(segment.max_timestamp_ms + 1)) | time.is_null()
    return known


def _known_values(stats: str | Mapping[str, Any], leaves: Sequence[tuple[Leaf, pa.DataType]]) -> Any:
    """An expression of what a file's statistics tell of the values of every record."""
    known = pc.scalar(True)
    for leaf, low, high in value_bounds(stats, leaves) if stats else ():
        field = ds.field(DATA, *leaf)
        if low is not None:
            known &= (field >= low) | field.is_null()
        if high is not None:
            known &= (field <= high) | field.is_null()
    return known


def _time(timestamp_ms: int) -> Any:
    return pa.scalar(timestamp_ms * 1_000, TIMESTAMP)
