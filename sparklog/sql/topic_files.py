"""The data files of a topic as Arrow reads them one by one, each with the log's statistics of its records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from sparklog.delta.log import DeltaLog
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.data.value_columns import DATA, leaves_of
from sparklog.log.state import TopicState
from sparklog.sql.file_bounds import known_times, known_values
from sparklog.sql.segment_rows import SegmentRows, live_segments

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


@dataclass(frozen=True, slots=True)
class TopicFile(SegmentRows):
    """A live data file of a topic, and the log's statistics of its records."""

    make_known: Callable[[SegmentRows], Any]

    @property
    def known(self) -> Any:
        """An Arrow expression that holds for every record, over the columns of :func:`file_schema`. It is made here, as
        of very many files few are read."""
        return self.make_known(self)


def topic_files(log: DeltaLog, state: TopicState) -> list[TopicFile]:
    """The live files of a topic that may have records at or above the log start offset of their partition."""
    head, whole = state.head, state.require_whole()
    leaves = [] if head.values is None else list(leaves_of(head.values))

    def known(rows: SegmentRows) -> Any:
        expression = (
            _equal("partition", rows.partition)
            & _equal("log_start_offset", rows.log_start_offset)
            & _equal("base_offset", rows.segment.base_offset)
            & known_times(rows.segment)
        )
        if not leaves:
            return expression
        stats = whole.statistics.get(rows.segment.path, {})
        return expression & known_values(stats, leaves, lambda leaf: ds.field(DATA, *leaf))

    return [
        TopicFile(rows.path, rows.segment, rows.partition, rows.log_start_offset, known)
        for rows in live_segments(log, state)
    ]


def file_schema(state: TopicState) -> pa.Schema:
    """The columns of the files, and what is constant in each: ``partition``, ``base_offset``, ``log_start_offset``. A
    record's offset is ``base_offset + offset_delta``."""
    return _SCHEMA if state.head.values is None else _SCHEMA.append(pa.field(DATA, state.head.values))


def parquet_format() -> Any:
    """The way in which Arrow reads data files of any writer."""
    return ds.ParquetFileFormat(
        read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit="us"),
        default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True),
    )


def _equal(name: str, value: Any) -> Any:
    return ds.field(name) == pa.scalar(value, _SCHEMA.field(name).type)
