"""The data files of a group's offset table: columns, bytes, names, and which of them may be deleted (pure).

**Names.** A file is called ``<version, 20 digits>-<random>.parquet``, after the one version of the table that it was
uploaded for. A writer that loses the race for that version uploads another file for the next. So once the log holds an
entry of version v, a file that is named for v or an earlier version and isn't live can never become so: the entry's
name is taken, and where cleanup has freed it, nobody trusts what is created under it again (rule L1, trust). A file
that is named for a later version may belong to a writer that sleeps between its upload and its commit, however long; it
stays.

**Sweeping.** Every commit replaces the only live file. A replaced one is kept for an hour, for engines that are reading
the version before (rule G4, one listing). Since when it is replaced, the store tells: its successor's modification time
against that of the live file, both by the store's own clock. Nobody's clock is asked.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

import pyarrow as pa
import pyarrow.parquet as pq

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

_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("metadata", pa.string()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("owner_generation", pa.int64()),
        pa.field("owner_member", pa.string()),
        pa.field("commit_timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("pending_transactional_id", pa.string()),
        pa.field("pending_producer_epoch", pa.int32()),
        pa.field("pending_entry", pa.int64()),
        pa.field("pending_offset", pa.int64()),
        pa.field("pending_metadata", pa.string()),
        pa.field("pending_leader_epoch", pa.int32()),
    ]
)
_DELTA_TYPES = {
    pa.string(): "string",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.timestamp("us", tz="UTC"): "timestamp",
}
_REQUIRED = ("topic", "partition", "commit_timestamp")
"""The columns that a row can't do without; any other that a foreign engine left out has a default."""

SCHEMA_STRING = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": field.name, "type": _DELTA_TYPES[field.type], "nullable": True, "metadata": {}}
            for field in _SCHEMA
        ],
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
    columns = [
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
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA), sink, compression="snappy", write_statistics=False)
    return bytes(sink.getvalue())


def decode_rows(path: str, data: bytes) -> dict[TopicPartition, OffsetRow]:
    """Read a data file, of ours or of another engine.

    Raises:
        CorruptLogError: truncated or no Parquet; a column of another type, missing or unknown; a row without topic,
            partition or time, or with a number out of range; two rows of one partition. Names the file and what is
            wrong in it.
    """
    try:
        table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptLogError(f"corrupt offset file {path} ({len(data)} bytes): {error}") from error
    values = {field.name: _column(path, table, field) for field in _SCHEMA}
    unknown = set(table.column_names) - set(values)
    if unknown:  # the next commit would drop it
        raise CorruptLogError(f"offset file {path} has unknown columns {', '.join(sorted(unknown))}")
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


def _column(path: str, table: pa.Table, field: pa.Field) -> list[object]:
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
