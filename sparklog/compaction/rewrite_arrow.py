"""Reading the files of a range and writing their records anew: the one part of a job that another engine may do.

A *rewrite* is a function from ranges to what was written for each, see :data:`Rewrite`; plans and commits don't know
which it was. Here it is pyarrow, one range after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparklog.compaction.encoding import DataFileWriter
from sparklog.compaction.file_ranges import FileRange
from sparklog.compaction.open_range import PRODUCER, OpenRange
from sparklog.delta.actions import AddFile
from sparklog.delta.log import DeltaLog
from sparklog.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    InvalidRecordError,
    ObjectNotFoundError,
    SparklogError,
)
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.schema import DATA_SCHEMA
from sparklog.log.data.value_columns import DATA
from sparklog.paths import new_data_file

__all__ = [
    "NOT_REWRITABLE",
    "PRODUCER",
    "OpenRange",
    "RangeWriter",
    "Rewrite",
    "Rewritten",
    "RewrittenFile",
    "rewrite_with_arrow",
]

NOT_REWRITABLE = (CorruptRecordError, InvalidArgumentError, InvalidRecordError)
"""The errors raised for a file that can't be rewritten as it is: other ranges can."""
_LEAST_FILE_BYTES = 1024 * 1024
"""No file is divided that would be smaller. Source: the least ``segment.bytes``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenFile:
    """A file that lies in the store, but in no log: what the commit that publishes it has to say of it."""

    path: str
    """Relative to the table's folder."""
    partition: int
    base_offset: int
    size_bytes: int
    modification_ms: int
    """Wall time of the upload."""
    stats: Mapping[str, Any]
    """The statistics as Delta's ``add`` holds them."""

    def to_add(self, *, data_change: bool) -> AddFile:
        """The action that publishes the file."""
        return AddFile(
            path=self.path,
            partition_values={"partition": str(self.partition), "base_offset": str(self.base_offset)},
            size_bytes=self.size_bytes,
            modification_ms=self.modification_ms,
            data_change=data_change,
            stats=self.stats,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The outcome of rewriting one range."""

    range: FileRange
    files: tuple[RewrittenFile, ...]
    """By offset; uploaded and durable; what they hold lies within the range. None where no record is left."""
    began_ticks_ms: float
    """Ticks of the log's clock, before the first upload: a day later the files aren't published any more (rule L10,
    orphans)."""
    error: SparklogError | None = None
    """Why there are no files: a file of the range is gone, or can't be rewritten as it is."""


Rewrite = Callable[[DeltaLog, Sequence[FileRange], str], Generator[Rewritten, None, None]]
"""Writes the records of each range into one file, or several where one would be too large; in any order of the ranges.

Its arguments: the topic's log, the ranges, the topic's ``compression.type``. Whoever goes through the ranges one by one
does none in vain: those that somebody else has changed by then are passed over. It yields each range as soon as it is
uploaded; one whose files are gone or can't be rewritten with the error, and raises for everything else. Closed early,
it ends what is still at work.
"""


def rewrite_with_arrow(
    log: DeltaLog, ranges: Sequence[FileRange], compression: str
) -> Generator[Rewritten, None, None]:
    """A :data:`Rewrite` in this process, one range after the other. Threads gain nothing: with small files most of the
    time is spent in Python.

    Memory: 64 MiB of files as they are stored, and one new file, ``file_bytes`` of the range at most; some 50 MiB
    beside these, and some 100 where records have to be put in order.
    """
    return (_attempt(log, found, compression) for found in ranges)


def _attempt(log: DeltaLog, file_range: FileRange, compression: str) -> Rewritten:
    began = log.clock.ticks_ms()
    try:
        files = _rewrite(log, file_range, compression)
    except (*NOT_REWRITABLE, ObjectNotFoundError) as error:
        return Rewritten(range=file_range, files=(), began_ticks_ms=began, error=error)
    return Rewritten(range=file_range, files=files, began_ticks_ms=began)


def _rewrite(log: DeltaLog, file_range: FileRange, compression: str) -> tuple[RewrittenFile, ...]:
    records = OpenRange.read(log, file_range)
    writer = RangeWriter.of(log, file_range, records, compression)
    for piece in records.pieces(once=True):
        writer.write(piece)
    if writer.record_count != file_range.record_count:
        offsets = f"offsets {file_range.first_offset} to {file_range.last_offset}"
        raise CorruptRecordError(
            f"{log.table}, partition {file_range.partition}, {offsets}: found "
            f"{writer.record_count} records, the log tells of {file_range.record_count}"
        )
    return writer.close()


class RangeWriter:
    """Writes records of a range into new files, none of which is larger than the range says, and uploads each as soon
    as it is whole, durably and under a new name. What is uploaded and not committed, is swept a week later."""

    def __init__(self, log: DeltaLog, file_range: FileRange, *, codec: str, with_headers: bool) -> None:
        """
        Args:
            codec: of the Parquet pages, by Kafka's name.
            with_headers: False where no record has any.
        """
        self._log = log
        self._range = file_range
        self._codec = codec
        self._with_headers = with_headers
        self._most_bytes = (
            max(file_range.file_bytes, _LEAST_FILE_BYTES) * 31 // 32
        )  # beside its records a file has a footer
        self._files: list[RewrittenFile] = []
        self._file: DataFileWriter | None = None
        self._values: pa.StructType | None = None
        """The type of the newest records' values; None: they have no column for them."""
        self._base_offset = file_range.base_offset
        """The offset that the records of the file being written are numbered from."""
        self.record_count = 0

    @classmethod
    def of(cls, log: DeltaLog, file_range: FileRange, records: OpenRange, compression: str) -> RangeWriter:
        """A writer for records of a range, or for a part of them.

        Args:
            compression: of the topic: a codec, or :data:`PRODUCER`.
        """
        return cls(log, file_range, codec=records.codec(compression), with_headers=records.has_headers())

    def write(self, records: pa.Table) -> None:
        """Append records: the columns of a topic, in its types, by offset delta, which is relative to the
        range's base offset."""
        self.record_count += records.num_rows
        values = records.schema.field(DATA).type if DATA in records.schema.names else None
        if self._file is not None and values != self._values:
            self._upload()  # a file has one type of values
        self._values = values
        while records.num_rows:
            file = self._open_file(records)
            count = self._fitting(file, records)
            if not count:
                self._upload()
                continue
            file.write(self._numbered(records.slice(0, count)))
            records = records.slice(count)

    def close(self) -> tuple[RewrittenFile, ...]:
        """Upload what is left. Returns all files, by offset; none where nothing was written."""
        if self._file is not None:
            self._upload()
        return tuple(self._files)

    def _open_file(self, records: pa.Table) -> DataFileWriter:
        if self._file is None:
            if self._files:
                self._base_offset = self._range.base_offset + records["offset_delta"][0].as_py()
            self._file = DataFileWriter(
                compression=self._codec,
                with_headers=self._with_headers,
                values=self._values,
                leaves=self._range.leaves,
            )
        return self._file

    def _fitting(self, file: DataFileWriter, records: pa.Table) -> int:
        """How many of the records the file has room for, even if none can be compressed; 0: it is full."""
        room = self._most_bytes - file.encoded_bytes - file.waiting_bytes
        if records.nbytes > room and file.waiting_bytes:
            file.flush()
            room = self._most_bytes - file.encoded_bytes
        if records.nbytes <= room:
            return int(records.num_rows)
        count = records.num_rows * max(0, room) // records.nbytes
        if file.record_count and (count == 0 or room < self._most_bytes // 8):
            return 0
        return int(max(1, count))

    def _numbered(self, records: pa.Table) -> pa.Table:
        """Number records by deltas that are relative to the file's base offset."""
        shift = self._range.base_offset - self._base_offset
        if not shift:
            return records
        deltas = pa.array(records["offset_delta"].to_numpy() + shift)
        at = records.schema.get_field_index("offset_delta")
        return records.set_column(at, DATA_SCHEMA.field("offset_delta"), deltas)

    def _upload(self) -> None:
        if self._file is None:
            return
        data, stats = self._file.close()
        self._file = None
        path = new_data_file(self._range.partition)
        self._log.store.put(object_path(self._log.table, path), data, sync=True)
        self._files.append(
            RewrittenFile(
                path=path,
                partition=self._range.partition,
                base_offset=self._base_offset,
                size_bytes=len(data),
                modification_ms=self._log.clock.now_ms(),
                stats=stats,
            )
        )
