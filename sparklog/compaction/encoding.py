"""Records that are already in the log, into new data files: column by column as they are, in bounded memory."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.delta.parquet_seals import close_sealed
from sparklog.log.data.encode import parquet_options
from sparklog.log.data.file_stats import FileStats
from sparklog.log.data.schema import data_schema
from sparklog.log.data.value_columns import DATA, Leaf, leaves_of

__all__ = ["DataFileWriter"]

ROW_GROUP_BYTES = 16 * 1024 * 1024
"""The size of a row group before it is encoded: as much is kept in memory, and a reader of ranges asks for one at a
time."""
_TYPED_GROUP_BYTES = 3 * 1024 * 1024
"""The same of values that are columns: queries skip row groups by the bounds of each …"""
_COLUMN_BYTES = 256 * 1024
"""… but many columns need larger ones, whose facts in the footer would else be too many. So much of each on average."""
_ROW_GROUP_ROWS = 1_048_576


class DataFileWriter:
    """Writes one data file as producers do, but row group by row group: consumers read such in pieces.

    Args:
        compression: of the Parquet pages, by Kafka's name.
        with_headers: False where no record has any: then the file has no such column, as a producer's.
        values: the type of the records' ``data``; None where they have no such column.
        leaves: those of the values that get statistics.
    """

    def __init__(
        self,
        *,
        compression: str,
        with_headers: bool,
        values: pa.StructType | None = None,
        leaves: Sequence[Leaf] = (),
    ) -> None:
        schema = data_schema(values)
        self._schema = schema if with_headers else schema.remove(schema.get_field_index("headers"))
        self._sink = io.BytesIO()
        self._stats = FileStats(values, leaves)
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = self._waiting_rows = 0
        self._compression = compression
        self._writer: pq.ParquetWriter | None = None

    @property
    def record_count(self) -> int:
        """The number of records that were written, encoded or not."""
        return self._stats.record_count

    @property
    def encoded_bytes(self) -> int:
        """The size of what is encoded already."""
        return int(self._sink.tell())

    @property
    def waiting_bytes(self) -> int:
        """The size of what isn't encoded yet, as it is in memory."""
        return self._waiting_bytes

    def write(self, records: pa.Table) -> None:
        """Append records: the columns of a topic, in its types, by offset delta."""
        if records.num_rows == 0:
            return
        self._stats.add(records)
        self._waiting.append(records.select(self._schema.names))
        self._waiting_bytes += records.nbytes
        self._waiting_rows += records.num_rows
        if self._waiting_bytes >= ROW_GROUP_BYTES or self._waiting_rows >= _ROW_GROUP_ROWS:
            self.flush()

    def close(self) -> tuple[bytes, Mapping[str, Any]]:
        """The file, and its statistics as Delta's ``add`` holds them."""
        self.flush()
        return close_sealed(self._opened(None), self._sink), self._stats.to_delta()

    def flush(self) -> None:
        """Encode what waits, as a row group."""
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._waiting, self._waiting_bytes, self._waiting_rows = [], 0, 0
            self._opened(table).write_table(table, row_group_size=self._group_rows(table))

    def _group_rows(self, records: pa.Table) -> int:
        """The rows of a row group of these records: so many that the groups are alike, and none is too large."""
        if DATA not in self._schema.names:
            return int(records.num_rows)
        leaf_count = len([*leaves_of(self._schema.field(DATA).type)])
        most_bytes = max(_TYPED_GROUP_BYTES, _COLUMN_BYTES * leaf_count)
        return math.ceil(int(records.num_rows) / max(1, round(int(records.nbytes) / most_bytes)))

    def _opened(self, first_records: pa.Table | None) -> pq.ParquetWriter:
        """The writer, whose options the first records decide."""
        if self._writer is None:
            options = parquet_options(self._compression, self._schema, first_records)
            self._writer = pq.ParquetWriter(self._sink, self._schema, **options)
        return self._writer
