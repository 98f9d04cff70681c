"""Reading the rows of a classic checkpoint by columns, only those that are asked for.

Every row of a checkpoint is one action: of the columns ``add``, ``remove``, ``txn``, ``metaData`` and ``protocol`` one
is set. Checkpoints of ours keep live files, removed files and the rest in row groups of their own, so whoever wants the
live files decodes nothing of those that were removed; other engines mix them, and their checkpoints are read as well.
Source: Delta protocol, "Checkpoint Schema".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.delta.checkpoint_content import CheckpointContent
from sparklog.delta.parquet_reading import open_parquet
from sparklog.delta.producer_states import STATES_GROUP_KEY, CheckpointStates
from sparklog.errors import CorruptLogError

__all__ = [
    "ADD",
    "METADATA",
    "PROTOCOL",
    "REMOVE",
    "SET_TRANSACTION",
    "CheckpointPartFile",
    "live_files",
    "read_checkpoint",
]

_STRINGS = pa.map_(pa.string(), pa.string())
ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _STRINGS),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("tags", _STRINGS),
    ]
)
REMOVE = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
"""All that a checkpoint must state of a removed file. Source: Delta protocol, "Add File and Remove File"."""
SET_TRANSACTION = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _STRINGS)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", _STRINGS),
        ("createdTime", pa.int64()),
    ]
)
PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
_LIVE = pa.struct([ADD.field(name) for name in ("path", "partitionValues", "size", "modificationTime", "stats")])
_LIVE_COLUMNS = ("path", "partition_values", "size_bytes", "modification_time", "stats")
_ALWAYS_SET = {
    "add": "add.path",
    "remove": "remove.path",
    "txn": "txn.appId",
    "metaData": "metaData.id",
    "protocol": "protocol.minReaderVersion",
}
"""By kind of action: a column that has a value wherever the row is of that kind."""
_BATCH_ROWS = 8_192


class CheckpointPartFile:
    """One file of a checkpoint."""

    def __init__(self, path: str, data: bytes) -> None:
        """
        Args:
            path: in the store, for messages.
            data: all its bytes.
        Raises:
            CorruptLogError: it is no Parquet file.
        """
        self.path = path
        with _Naming(path):
            self._file = open_parquet(data)
            schema = self._file.schema
            self._leaves = {schema.column(number).path: number for number in range(len(schema))}

    def batches(self, kind: str, fields: pa.StructType, *, groups_end: int | None = None) -> Iterator[pa.StructArray]:
        """All actions of one kind, some 8,000 at a time: an array without nulls that has exactly these fields.

        A field that the file doesn't have is null. Row groups without such actions aren't decoded.

        Args:
            kind: the name of the action, which is the name of its column.
            fields: of the action, and their types.
            groups_end: of the row groups before this one alone; None: of all.
        Raises:
            CorruptLogError: names the file.
        """
        groups = [group for group in self._groups_with(_ALWAYS_SET[kind]) if groups_end is None or group < groups_end]
        columns = [f"{kind}.{field.name}" for field in fields if self._has(f"{kind}.{field.name}")]
        if not groups or not columns:
            return
        with _Naming(self.path):
            for batch in self._file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=columns, use_threads=False):
                found = batch.column(0)
                if found.null_count:
                    found = found.filter(found.is_valid())
                if len(found):
                    found = _with_fields(found, fields)
                    found.validate(full=True)  # so that the error about text which is no UTF-8 names its file
                    yield found

    def rows(self, kind: str, fields: pa.StructType, *, groups_end: int | None = None) -> list[dict[str, Any]]:
        """The rows of :meth:`batches` as Python values: maps are lists of pairs."""
        with _Naming(self.path):
            return [row for batch in self.batches(kind, fields, groups_end=groups_end) for row in batch.to_pylist()]

    @property
    def states_group(self) -> int | None:
        """The number of the first row group that has nothing but states of producers; None: there is none."""
        noted = (self._file.metadata.metadata or {}).get(STATES_GROUP_KEY, b"")
        is_there = noted.isdigit() and int(noted) < self._file.metadata.num_row_groups
        return int(noted) if is_there else None

    def states(self, data: bytes) -> CheckpointStates | None:
        """The states of producers in those row groups, not decoded; None without any. ``data``: of the file."""
        group = self.states_group
        return None if group is None else CheckpointStates(data, self._file, group)

    def columns_with_values(self) -> dict[str, int]:
        """The leaf columns that have a value in some row, or of which the file doesn't say whether they have, and in
        how many rows at most."""
        with _Naming(self.path):
            groups = range(self._file.metadata.num_row_groups)
            counts = {
                name: sum(_value_count(self._file.metadata, group, number) for group in groups)
                for name, number in self._leaves.items()
            }
        return {name: count for name, count in counts.items() if count}

    def _has(self, name: str) -> bool:
        return any(leaf == name or leaf.startswith(f"{name}.") for leaf in self._leaves)

    def _groups_with(self, leaf: str) -> list[int]:
        """The row groups in which a leaf column may have a value."""
        number = self._leaves.get(leaf)
        if number is None:
            return []
        metadata = self._file.metadata
        return [group for group in range(metadata.num_row_groups) if _value_count(metadata, group, number)]


def read_checkpoint(parts: Mapping[str, bytes]) -> CheckpointContent:
    """The rows of a checkpoint but its live files; see :data:`~sparklog.delta.checkpoint_content.CheckpointReader`."""
    files = [CheckpointPartFile(path, data) for path, data in parts.items()]
    states = [file.states(data) for file, data in zip(files, parts.values(), strict=True)]
    return CheckpointContent(
        parts=files,
        states=tuple(one for one in states if one is not None),
        transactions=[row for file in files for row in file.rows("txn", SET_TRANSACTION, groups_end=file.states_group)],
        metadata=[row for file in files for row in file.rows("metaData", METADATA)],
        protocol=[row for file in files for row in file.rows("protocol", PROTOCOL)],
    )


def live_files(parts: Iterable[CheckpointPartFile]) -> pa.Table:
    """The files that are live at a checkpoint, a row each; see :attr:`sparklog.delta.snapshot.Snapshot.files`.

    Args:
        parts: the checkpoint's files.
    Raises:
        CorruptLogError: names the file.
    """
    schema = pa.schema([pa.field(name, _LIVE.field(n).type) for n, name in enumerate(_LIVE_COLUMNS)])
    batches = [
        pa.RecordBatch.from_arrays(batch.flatten(), schema=schema)
        for part in parts
        for batch in part.batches("add", _LIVE)
    ]
    return pa.Table.from_batches(batches, schema)


def _value_count(metadata: pq.FileMetaData, group: int, leaf: int) -> int:
    """The number of values of a column in a row group; all that it may have, where the file doesn't say."""
    column = metadata.row_group(group).column(leaf)
    statistics = column.statistics
    is_known = statistics is not None and statistics.has_null_count
    return int(column.num_values - (statistics.null_count if is_known else 0))


def _with_fields(found: pa.StructArray, fields: pa.StructType) -> pa.StructArray:
    there = dict(zip((field.name for field in found.type), found.flatten(), strict=True))
    arrays = [
        there[field.name].cast(field.type) if field.name in there else pa.nulls(len(found), field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(fields))


class _Naming:
    """A context within which whatever Arrow raises becomes a ``CorruptLogError`` that names the file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, (pa.ArrowException, OSError, ValueError)):  # ValueError: text that is no UTF-8
            raise CorruptLogError(f"corrupt checkpoint {self._path}: {error}") from error
