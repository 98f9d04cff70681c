"""Records into data files, one or more for each partition, in bounded memory whatever the number of either."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.delta.parquet_seals import close_sealed
from sparklog.errors import StoreError
from sparklog.log.data.encode import parquet_options
from sparklog.log.data.file_stats import FileStats
from sparklog.log.data.object_paths import object_path
from sparklog.log.data.value_columns import DATA, Leaf
from sparklog.paths import new_data_file
from sparklog.storage.base import ObjectStore

__all__ = ["FinishedFile", "PartitionedWriter", "discard_files"]

_LOGGER = logging.getLogger(__name__)
_GATHERED_BYTES = 8 * 1024 * 1024
"""Records are gathered up to as much, and then written: a row group for each partition."""
_GATHERED_ROWS = 1_048_576
_OPEN_BYTES = 48 * 1024 * 1024
"""Bytes that all files that are being written hold together. So no file is larger than this and a row group."""
_OPEN_FILE_BYTES = 64 * 1024
"""Bytes that a file that is being written takes beside its bytes."""

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedFile:
    """A data file that lies in the store, but in no log."""

    path: str
    """Relative to the table's folder."""
    size_bytes: int
    stats: FileStats


def discard_files(store: ObjectStore, table: str, paths: Sequence[str]) -> None:
    """Delete files that no log will ever name. Where that fails, the sweep of orphans does it after a week.

    Args:
        table: the folder of the topic's table.
        paths: relative to it.
    """
    if not paths:
        return
    try:
        store.delete([object_path(table, path) for path in paths])
    except StoreError as error:
        _LOGGER.info("%d files in %s could not be deleted and are orphans: %s", len(paths), table, error)


@dataclass(slots=True)
class _OpenFile:
    sink: io.BytesIO
    """Arrow's own stream doubles its memory each time that it is full."""
    writer: pq.ParquetWriter
    stats: FileStats

    @property
    def held_bytes(self) -> int:
        return self.sink.tell() + _OPEN_FILE_BYTES


class PartitionedWriter:
    """Writes records to the files of their *bins*. A bin is a partition, or one of several parts of a partition.

    Memory: 8 MiB of records three times over (as they came, in order, encoded), and 48 MiB of encoded files. Where
    records belong to many bins, the files are the smaller: what all bins have written is bounded, not what one has. The
    largest files are finished first, so that bins with few records go on gathering.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: str,
        *,
        schema: pa.Schema,
        compression: str,
        bins_per_partition: int,
        sort_by_offset: bool,
        leaves: Sequence[Leaf] = (),
    ) -> None:
        """
        Args:
            table: the folder of the topic's table.
            schema: of the files: columns of a topic.
            compression: of the Parquet pages, by Kafka's name.
            bins_per_partition: bin ``n`` belongs to partition ``n // bins_per_partition``.
            sort_by_offset: sort the records that are written together by offset delta; else they keep their order.
            leaves: those of a typed topic's values that get statistics.
        """
        self._store = store
        self._table = table
        self._schema = schema
        self._compression = compression
        self._values = schema.field(DATA).type if DATA in schema.names else None
        self._leaves = leaves
        self._bins_per_partition = bins_per_partition
        self._sort_by_offset = sort_by_offset
        self._gathered: list[pa.Table] = []
        self._gathered_bins: list[I64] = []
        self._gathered_bytes = 0
        self._open: dict[int, _OpenFile] = {}
        self._finished: dict[int, list[FinishedFile]] = {}

    def write(self, records: pa.Table, bins: I64) -> None:
        """Add records.

        Args:
            records: with the columns of the schema, in its types, and those that :class:`FileStats` counts.
            bins: of each record.
        Raises ``StoreError``.
        """
        self._gathered.append(records)
        self._gathered_bins.append(bins)
        self._gathered_bytes += records.nbytes
        if self._gathered_bytes >= _GATHERED_BYTES or sum(map(len, self._gathered_bins)) >= _GATHERED_ROWS:
            self._write_gathered()
            if sum(file.held_bytes for file in self._open.values()) >= _OPEN_BYTES:
                self._finish(self._largest(leaving_bytes=_OPEN_BYTES // 2))

    def close(self) -> dict[int, list[FinishedFile]]:
        """Put all that is left. The files of each partition, by partition; in the order in which they were finished."""
        if self._gathered:
            self._write_gathered()
        self._finish([*self._open])
        of_partitions: dict[int, list[FinishedFile]] = {}
        for number in sorted(self._finished):
            of_partitions.setdefault(number // self._bins_per_partition, []).extend(self._finished[number])
        return of_partitions

    def discard(self) -> None:
        """Delete what was put."""
        put = [file.path for files in self._finished.values() for file in files]
        self._open, self._finished = {}, {}
        discard_files(self._store, self._table, put)

    def _write_gathered(self) -> None:
        records, bins = pa.concat_tables(self._gathered), np.concatenate(self._gathered_bins)
        self._gathered, self._gathered_bins, self._gathered_bytes = [], [], 0
        if self._sort_by_offset:
            order = np.lexsort((records["offset_delta"].to_numpy(), bins))
        else:
            order = np.argsort(bins, kind="stable")
        records = records.take(order)
        numbers, starts = np.unique(bins[order], return_index=True)
        for number, start, end in zip(
            numbers.tolist(), starts.tolist(), [*starts[1:].tolist(), len(bins)], strict=True
        ):
            file = self._open.get(number)
            part = records.slice(start, end - start)
            if file is None:
                if len(self._open) >= _OPEN_BYTES // _OPEN_FILE_BYTES:  # what is gathered may belong to any number
                    self._finish(self._largest(leaving_bytes=_OPEN_BYTES // 2))
                sink = io.BytesIO()
                options = parquet_options(self._compression, self._schema, part)
                file = self._open[number] = _OpenFile(
                    sink, pq.ParquetWriter(sink, self._schema, **options), FileStats(self._values, self._leaves)
                )
            file.stats.add(part)
            file.writer.write_table(part.select(self._schema.names), row_group_size=len(part))

    def _largest(self, *, leaving_bytes: int) -> list[int]:
        """The largest files, so many that the others take no more than so many bytes."""
        found: list[int] = []
        left = sum(file.held_bytes for file in self._open.values())
        for number, file in sorted(self._open.items(), key=lambda item: item[1].held_bytes, reverse=True):
            if left <= leaving_bytes:
                break
            found.append(number)
            left -= file.held_bytes
        return found

    def _finish(self, numbers: Iterable[int]) -> None:
        """Put these files, all at once where the store can."""
        objects: dict[str, bytes] = {}
        for number in numbers:
            file = self._open.pop(number)
            data = close_sealed(file.writer, file.sink)
            path = new_data_file(number // self._bins_per_partition)
            objects[object_path(self._table, path)] = data
            finished = FinishedFile(path=path, size_bytes=len(data), stats=file.stats)
            self._finished.setdefault(number, []).append(finished)
        if objects:
            self._store.put_many(objects, sync=True)
