"""The data files of a group's offset table: columns, bytes, names, and which of them may be deleted (pure).

**Names.** A file is called ``<version, 20 digits>-<random>.parquet``, after the one version of the table that it was
uploaded for. A writer that loses the race for that version uploads another file for the next. So once the log holds an
entry of version v, a file that is named for v or an earlier version and isn't live can never become so: the entry's
name is taken, and where cleanup has freed it, nobody trusts what is created under it again (rule L1, trust). A file
that is named for a later version may belong to a writer that sleeps between its upload and its commit, however long; it
stays.

**Sweeping.** Every commit replaces the only live file. A replaced one is kept for an hour, for engines that are reading
the version before (rule G4, one listing). The store says since when it is replaced: its successor's modification time
against that of the live file, both by the store's own clock. Nobody's clock is asked.
"""

from __future__ import annotations

import io
import json
import re
import secrets
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from typing import Any

from sparklog.arrow import is_arrow_loaded, pa, pq
from sparklog.delta.flat_parquet import NotFlatError, read_flat
from sparklog.delta.flat_writing import write_flat
from sparklog.delta.parquet_reading import open_parquet
from sparklog.delta.parquet_seals import WRITER_OPTIONS, close_sealed
from sparklog.errors import CorruptLogError
from sparklog.groups.offsets.rows import Decider, OffsetRow, Pending, Rows, Stamp
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.storage import ObjectInfo

__all__ = [
    "FORMAT_PROPERTY",
    "FORMAT_VERSION",
    "REPLACED_KEEP_MS",
    "SCHEMA_STRING",
    "decode_rows",
    "encode_rows",
    "file_version",
    "new_offset_file",
    "plan_sweep",
    "table_properties",
]

FORMAT_VERSION = 2
"""The version of the offset table; raised whenever an older sparklog would lose what a newer one wrote."""
FORMAT_PROPERTY = "sparklog.offsets.format.version"
REPLACED_KEEP_MS = 3_600_000
"""Source: protocol rule G4, one listing."""

_COLUMNS = {
    "topic": "string",
    "topic_id": "string",
    "partition": "integer",
    "offset": "long",
    "metadata": "string",
    "leader_epoch": "integer",
    "owner_generation": "long",
    "owner_member": "string",
    "commit_timestamp": "timestamp",
    "pending_transactional_id": "string",
    "pending_producer_epoch": "integer",
    "pending_entry": "long",
    "pending_offset": "long",
    "pending_metadata": "string",
    "pending_leader_epoch": "integer",
}
"""The columns, with their types as Delta names them."""
_FEW_ROWS = 32
"""So many are written by hand, in a tenth of the time that Arrow takes; of more, Arrow makes smaller files."""
_REQUIRED = ("topic", "partition", "commit_timestamp")
"""The columns that a row can't do without; any other that a foreign engine left out has a default."""

SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _COLUMNS.items()],
    }
)
"""The schema as Delta writes it."""

_NAME = re.compile(r"(\d{20})-[0-9a-f]{32}\.parquet")


def table_properties() -> dict[str, str]:
    """The table properties of every offset table."""
    return {
        FORMAT_PROPERTY: str(FORMAT_VERSION),
        "delta.enableExpiredLogCleanup": "false",  # rule L3, cleanup: only our cleanup deletes log entries
        "delta.checkpointInterval": str(2**31 - 1),  # checkpoints are written by maintenance
        # rule L7, producer state: 7, and a day for clocks that differ
        "delta.setTransactionRetentionDuration": "interval 8 days",
        "delta.dataSkippingNumIndexedCols": "0",  # there is but one file to skip
    }


def encode_rows(rows: Rows) -> bytes:
    """A data file that holds ``rows``, by topic and partition."""
    ordered = sorted(rows.items())
    offsets = [row.committed for _, row in ordered]
    pending = [row.pending for _, row in ordered]
    columns: list[list[Any]] = [
        [partition.topic for partition, _ in ordered],
        [row.topic_id for _, row in ordered],
        [partition.partition for partition, _ in ordered],
        [committed.offset if committed else None for committed in offsets],
        [committed.metadata if committed else None for committed in offsets],
        [committed.leader_epoch if committed else None for committed in offsets],
        [row.stamp.generation for _, row in ordered],
        [row.stamp.member for _, row in ordered],
        [row.commit_timestamp_ms * 1_000 for _, row in ordered],
        [offset.decider.transactional_id if offset else None for offset in pending],
        [offset.decider.producer_epoch if offset else None for offset in pending],
        [offset.decider.number if offset else None for offset in pending],
        [offset.committed.offset if offset else None for offset in pending],
        [offset.committed.metadata if offset else None for offset in pending],
        [offset.committed.leader_epoch if offset else None for offset in pending],
    ]
    if 0 < len(ordered) <= _FEW_ROWS:
        with suppress(struct.error):  # a number is out of range, as Arrow says in the same way for more of them
            return write_flat(_COLUMNS, columns)
    schema = _schema()
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    sink = io.BytesIO()
    writer = pq.ParquetWriter(sink, schema, compression="snappy", write_statistics=False, **WRITER_OPTIONS)
    writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
    return close_sealed(writer, sink)


@lru_cache(maxsize=1)
def _schema() -> pa.Schema:
    types = {
        "string": pa.string(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema([pa.field(name, types[kind]) for name, kind in _COLUMNS.items()])


def decode_rows(path: str, data: bytes) -> dict[TopicPartition, OffsetRow]:
    """Read a data file, of ours or of another engine.

    Raises:
        CorruptLogError: truncated or no Parquet; a column of another type, missing or unknown; a row without topic,
            partition or time, or with a number out of range; two rows of one partition. Names the file and what is
            wrong in it.
    """
    values = (None if is_arrow_loaded() else _flat_values(data)) or _values(path, data)
    rows: dict[TopicPartition, OffsetRow] = {}
    for topic, topic_id, number, offset, metadata, epoch, generation, member, micros, *pending in zip(
        *values.values(), strict=True
    ):
        partition = TopicPartition(topic, number)
        if topic is None or number is None or micros is None:
            raise CorruptLogError(f"offset file {path} has a row without one of {', '.join(_REQUIRED)}: {partition}")
        if number < 0 or (offset or 0) < 0 or (generation or 0) < 0:
            raise CorruptLogError(
                f"offset file {path}: {partition} has offset {offset} and owner_generation {generation}, "
                "expected numbers from 0 on"
            )
        if partition in rows:
            raise CorruptLogError(f"offset file {path} has several rows of {partition}, expected one")
        rows[partition] = OffsetRow(
            topic_id=topic_id or "",
            stamp=Stamp(generation or 0, member or ""),
            committed=None
            if offset is None
            else OffsetAndMetadata(offset, metadata or "", -1 if epoch is None else epoch),
            commit_timestamp_ms=micros // 1_000,
            pending=None if pending[0] is None else _pending(path, partition, *pending),
        )
    return rows


def _pending(
    path: str,
    partition: TopicPartition,
    transactional_id: str,
    producer_epoch: int | None,
    number: int | None,
    offset: int | None,
    metadata: str | None,
    leader_epoch: int | None,
) -> Pending:
    if producer_epoch is None or number is None or offset is None:
        raise CorruptLogError(
            f"offset file {path}: {partition} has a pending offset {offset} of {transactional_id!r}, epoch "
            f"{producer_epoch}, entry {number}; expected numbers"
        )
    committed = OffsetAndMetadata(offset, metadata or "", -1 if leader_epoch is None else leader_epoch)
    return Pending(decider=Decider(transactional_id, producer_epoch, number), committed=committed)


def new_offset_file(version: int) -> str:
    """A fresh name for the data file that ``version`` of the table is to add, relative to the table's folder."""
    return f"{version:020d}-{secrets.token_hex(16)}.parquet"


def file_version(name: str) -> int | None:
    """The version that a file was uploaded for; None for a file that isn't ours."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def plan_sweep(
    files: Iterable[ObjectInfo], *, newest_version: int, live_paths: Collection[str], newest_modified_ms: int
) -> Iterator[str]:
    """The paths of the files that may be deleted. Reads no further in ``files`` than to the first one to be kept.

    Args:
        files: what lies in the table's folder, by path.
        newest_version: the newest that the caller has read itself.
        live_paths: in the store, of that version.
        newest_modified_ms: when the newest of the live files was written, by the store.
    """
    before: list[ObjectInfo] = []
    for version, group in groupby(files, key=lambda file: file_version(file.path.rpartition("/")[2])):
        successors = list(group)
        if version is None:  # another engine's
            continue
        if newest_modified_ms - max(file.modified_ms for file in successors) < REPLACED_KEEP_MS:
            return
        yield from (file.path for file in before if file.path not in live_paths)
        if version >= newest_version:
            return
        before = successors


def _flat_values(data: bytes) -> Mapping[str, list[Any]] | None:
    """The values of a file as we write them, read without Arrow; None for any other."""
    try:
        return read_flat(data, _COLUMNS)
    except NotFlatError:
        return None


def _values(path: str, data: bytes) -> Mapping[str, list[Any]]:
    """The values by column. Raises ``CorruptLogError``."""
    try:
        table = open_parquet(data).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptLogError(f"corrupt offset file {path} ({len(data)} bytes): {error}") from error
    values = {field.name: _column(path, table, field) for field in _schema()}
    unknown = set(table.column_names) - set(values)
    if unknown:  # the next commit would drop it
        raise CorruptLogError(f"offset file {path} has unknown columns {', '.join(sorted(unknown))}")
    return values


def _column(path: str, table: pa.Table, field: pa.Field) -> list[Any]:
    """A column's values, times as microseconds since the epoch; nulls where an older or a foreign file lacks it."""
    if field.name not in table.column_names:
        if field.name in _REQUIRED:
            raise CorruptLogError(f"offset file {path} has no column {field.name}")
        return [None] * table.num_rows
    try:
        column = table[field.name].cast(field.type)
        if pa.types.is_timestamp(field.type):
            column = column.cast(pa.int64())
        return column.to_pylist()  # type: ignore[no-any-return]
    except (pa.ArrowException, ValueError) as error:  # ValueError: text that is no UTF-8
        seen = table[field.name].type
        raise CorruptLogError(
            f"offset file {path}: column {field.name} is of type {seen}, expected {field.type}: {error}"
        ) from error
