"""The next classic checkpoint of a table, from the one before it and the entries behind that. Pure.

What didn't change since the last checkpoint is copied column by column, without becoming Python values: so a checkpoint
costs what changed, and some microseconds for each file that the table has. Source: Delta protocol, "Checkpoints",
"Action Reconciliation".

Only logs of reader version 1 and writer version 2 are understood, without anything that this module doesn't know. Of
any other the ``deltalake`` package writes the checkpoint (:mod:`sparklog.delta.by_deltalake`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.delta.checkpoint_rows import ADD, METADATA, PROTOCOL, REMOVE, SET_TRANSACTION, CheckpointPartFile
from sparklog.delta.parquet_seals import WRITER_OPTIONS, close_sealed
from sparklog.delta.producer_states import LEAST_STATES, STATES_GROUP_KEY, states_mask
from sparklog.delta.properties import removal_retention_ms, transaction_retention_ms

__all__ = ["EncodedCheckpoint", "NotUnderstoodError", "next_checkpoint"]

_REMOVE = pa.struct([*REMOVE, ("extendedFileMetadata", pa.bool_())])
"""A removed file as it is written: without its size and partition, which nobody who reads a checkpoint needs."""
_SCHEMA = pa.schema(
    [("txn", SET_TRANSACTION), ("add", ADD), ("remove", _REMOVE), ("metaData", METADATA), ("protocol", PROTOCOL)]
)
_KNOWN_FIELDS: Mapping[str, frozenset[str]] = {
    "add": frozenset(ADD.names),
    "remove": frozenset(
        [*_REMOVE.names, "partitionValues", "size", "stats", "tags"]  # the last four aren't kept
    ),
    "txn": frozenset(SET_TRANSACTION.names),
    "metaData": frozenset(METADATA.names),
    "protocol": frozenset(PROTOCOL.names),
}
_ROWS_PER_GROUP = 16_384
_DICTIONARIES = ["add.partitionValues.key_value.key", "add.partitionValues.key_value.value"]
"""The columns that repeat few values; paths and statistics don't."""

Action = dict[str, Any]
_Maps = Mapping[str, "_Maps | None"]
"""The fields of a struct that need converting: None for a map; for a struct that contains maps, those of its own."""
_decode = json.JSONDecoder().raw_decode


class NotUnderstoodError(Exception):
    """The log holds what this module doesn't know; the message says what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedCheckpoint:
    """A checkpoint of a single file."""

    data: bytes
    row_count: int
    """Its actions."""
    add_count: int
    """The number of them that are live files."""


@dataclass(slots=True, kw_only=True)
class _Tail:
    """The sum of the entries behind a checkpoint: of each file and application the newest action."""

    files: dict[str, tuple[str, Action]] = field(default_factory=dict)
    """By path: ``add`` or ``remove``, and its fields."""
    transactions: dict[str, Action] = field(default_factory=dict)
    """By appId."""
    metadata: Action | None = None
    protocol: Action | None = None

    def apply_entry(self, entry: bytes) -> None:
        """Go on by one entry. A path that it both removes and adds is live afterwards."""
        added: dict[str, tuple[str, Action]] = {}
        for kind, fields in _actions(entry):
            if kind == "add":
                added[fields["path"]] = (kind, fields)
            elif kind == "remove":
                self.files[fields["path"]] = (kind, fields)
            elif kind == "txn":
                self.transactions[fields["appId"]] = fields
            elif kind == "metaData":
                self.metadata = fields
            else:
                self.protocol = fields
        self.files.update(added)

    def rows(self, kind: str) -> list[Action]:
        """The files whose newest action is of this kind."""
        return [fields for found, fields in self.files.values() if found == kind]


def next_checkpoint(parts: Mapping[str, bytes], entries: Iterable[bytes], *, now_ms: int) -> EncodedCheckpoint:
    """The checkpoint of a table as of the last of ``entries``.

    Removed files and ``txn`` actions that are older than the table's properties say are left out, as Delta has it.

    Args:
        parts: the files of the checkpoint before, by path; empty where there is none.
        entries: every entry behind it, oldest first.
        now_ms: what retentions are counted from, milliseconds since the epoch.
    Raises:
        NotUnderstoodError: the log holds what this module doesn't know.
        CorruptLogError: the checkpoint before can't be read.
    """
    tail = _Tail()
    try:
        for entry in entries:
            tail.apply_entry(entry)
        return _merge([CheckpointPartFile(path, data) for path, data in parts.items()], tail, now_ms)
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError, pa.ArrowException) as error:
        raise NotUnderstoodError(f"an action isn't as it should be: {error!r}") from error


def _actions(entry: bytes) -> Iterator[tuple[str, Action]]:
    for encoded in entry.split(b"\n"):
        if encoded.startswith(b'{"commitInfo":') or not (line := encoded.strip().decode("utf-8", "surrogatepass")):
            continue
        found, end = _decode(line)  # ``json.loads`` finds out the encoding of each line first
        if end != len(line):
            raise ValueError(f"more than one action in a line: {line[end:]}")
        for kind, fields in found.items():
            if kind == "commitInfo":
                continue
            if kind not in _KNOWN_FIELDS:
                raise NotUnderstoodError(f"action {kind}")
            if not _KNOWN_FIELDS[kind].issuperset(fields):
                unknown = {name for name, value in fields.items() if value is not None} - _KNOWN_FIELDS[kind]
                if unknown:
                    raise NotUnderstoodError(f"{kind} with {', '.join(sorted(unknown))}")
            yield kind, fields


def _merge(parts: Sequence[CheckpointPartFile], tail: _Tail, now_ms: int) -> EncodedCheckpoint:
    for part in parts:
        _check_columns(part)
    metadata = _newest(tail.metadata, parts, "metaData", METADATA)
    protocol = _newest(tail.protocol, parts, "protocol", PROTOCOL)
    if protocol["minReaderVersion"] != 1 or protocol["minWriterVersion"] > 2:
        raise NotUnderstoodError(f"protocol {protocol}")
    configuration = dict(metadata.get("configuration") or ())
    removed_since_ms = _since(now_ms, removal_retention_ms(configuration))
    updated_since_ms = _since(now_ms, transaction_retention_ms(configuration))
    writer = _Writer()
    transactions = [
        found.filter(_is_since(found.field("lastUpdated"), updated_since_ms, if_null=True))
        for found in _merged(parts, "txn", SET_TRANSACTION, "appId", tail.transactions, tail.transactions.values())
    ]
    states: Sequence[pa.StructArray] = ()
    masks = [states_mask(found) for found in transactions]
    if sum(mask.true_count for mask in masks) >= LEAST_STATES:
        states = [found.filter(mask) for found, mask in zip(transactions, masks, strict=True)]
        transactions = [found.filter(pc.invert(mask)) for found, mask in zip(transactions, masks, strict=True)]
    writer.write_header(protocol, metadata, transactions)
    for found in _merged(parts, "add", ADD, "path", tail.files, tail.rows("add")):
        writer.write("add", found)
    writer.flush()
    for found in _merged(parts, "remove", REMOVE, "path", tail.files, tail.rows("remove")):
        is_young = _is_since(found.field("deletionTimestamp"), removed_since_ms, if_null=removed_since_ms is None)
        kept = found.filter(is_young)
        is_extended = pa.repeat(False, len(kept))
        writer.write("remove", pa.StructArray.from_arrays([*kept.flatten(), is_extended], fields=list(_REMOVE)))
    writer.flush()
    writer.write_states(states)
    return writer.finish()


def _check_columns(part: CheckpointPartFile) -> None:
    counts = part.columns_with_values()
    for name, count in counts.items():
        kind, _, rest = name.partition(".")
        field_name = rest.partition(".")[0]
        # Spark writes the same once more, typed; its table may be set to write statistics in that way alone.
        is_derived = kind == "add" and (
            field_name == "partitionValues_parsed"
            or (field_name == "stats_parsed" and count <= counts.get("add.stats", 0))
        )
        if not is_derived and field_name not in _KNOWN_FIELDS.get(kind, ()):
            raise NotUnderstoodError(f"column {name} of {part.path}")


def _newest(newer: Action | None, parts: Sequence[CheckpointPartFile], kind: str, fields: pa.StructType) -> Action:
    """The one action of its kind: that of the tail, else that of the checkpoint before.

    A checkpoint that has none isn't whole, so nothing is made of it, whatever the tail has: its live files may be
    missing as well.
    """
    rows = [row for part in parts for row in part.rows(kind, fields)]
    if newer and (rows or not parts):
        return newer
    if len(rows) != 1:
        raise NotUnderstoodError(f"{len(rows)} actions {kind}")
    return rows[0]


def _merged(
    parts: Sequence[CheckpointPartFile],
    kind: str,
    fields: pa.StructType,
    key: str,
    replaced: Iterable[str],
    added: Iterable[Action],
) -> Iterator[pa.StructArray]:
    """The actions of one kind that the checkpoint before has and the tail doesn't replace, and those of the tail."""
    gone = pa.array(list(replaced), pa.string())
    for part in parts:
        for found in part.batches(kind, fields):
            is_gone = pc.is_in(found.field(key), value_set=gone)
            yield found.filter(pc.invert(is_gone)) if pc.any(is_gone).as_py() else found
    yield _array(added, fields)


def _array(actions: Iterable[Action], fields: pa.StructType) -> pa.StructArray:
    maps = _maps_of(fields)
    return pa.array([_with_pairs(action, maps) for action in actions] if maps else list(actions), fields)


@cache
def _maps_of(fields: pa.StructType) -> _Maps:
    found: dict[str, _Maps | None] = {}
    for one in fields:
        if pa.types.is_map(one.type):
            found[one.name] = None
        elif pa.types.is_struct(one.type) and (inner := _maps_of(one.type)):
            found[one.name] = inner
    return found


def _with_pairs(action: Action, maps: _Maps) -> Action:
    """The action with its maps as lists of pairs, which Arrow converts. Arrow ignores fields that its type lacks."""
    found = dict(action)
    for name, inner in maps.items():
        value = action.get(name)
        if isinstance(value, dict):
            found[name] = list(value.items()) if inner is None else _with_pairs(value, inner)
    return found


def _since(now_ms: int, retention_ms: int | None) -> int | None:
    return None if retention_ms is None else now_ms - retention_ms


def _is_since(times_ms: pa.Array, since_ms: int | None, *, if_null: bool) -> pa.Array:
    """A mask of the times that are later than one; all of them where nothing is ever forgotten."""
    if since_ms is None:
        return pa.repeat(True, len(times_ms))
    return pc.fill_null(pc.greater(times_ms, since_ms), if_null)


class _Writer:
    """Writes a checkpoint's row groups: what the table is, its live files, its removed files, apart from each other."""

    def __init__(self) -> None:
        self._sink = io.BytesIO()
        self._parquet = pq.ParquetWriter(
            self._sink,
            _SCHEMA,
            compression="zstd",
            use_dictionary=_DICTIONARIES,
            column_encoding={"txn.appId": "DELTA_LENGTH_BYTE_ARRAY", "txn.lastUpdated": "DELTA_BINARY_PACKED"},
            store_schema=False,
            **WRITER_OPTIONS,
        )
        self._kind = ""
        self._waiting: list[pa.StructArray] = []
        self._row_count = 0
        self._group_count = 0
        self._add_count = 0

    def write_header(self, protocol: Action, metadata: Action, transactions: Sequence[pa.StructArray]) -> None:
        """Write one row group: the protocol, the metadata, and every ``txn`` action."""
        count = sum(map(len, transactions))
        self._write_group(
            2 + count,
            {
                "protocol": [_array([protocol], PROTOCOL), pa.nulls(1 + count, PROTOCOL)],
                "metaData": [pa.nulls(1, METADATA), _array([metadata], METADATA), pa.nulls(count, METADATA)],
                "txn": [pa.nulls(2, SET_TRANSACTION), *transactions],
            },
        )

    def write(self, kind: str, found: pa.StructArray) -> None:
        """Add actions, all of one kind until :meth:`flush`."""
        self._kind = kind
        self._waiting.append(found)
        self._add_count += len(found) if kind == "add" else 0
        if sum(map(len, self._waiting)) >= _ROWS_PER_GROUP:
            self.flush()

    def flush(self) -> None:
        """End the row group."""
        count = sum(map(len, self._waiting))
        if count:
            self._write_group(count, {self._kind: self._waiting})
        self._waiting = []

    def write_states(self, states: Sequence[pa.StructArray]) -> None:
        """Write states of producers, if there are some, into a row group of their own, which the footer names."""
        if states:
            self._parquet.add_key_value_metadata({STATES_GROUP_KEY: str(self._group_count).encode()})
            self._write_group(sum(map(len, states)), {"txn": states})

    def finish(self) -> EncodedCheckpoint:
        """The checkpoint."""
        self.flush()
        data = close_sealed(self._parquet, self._sink)
        return EncodedCheckpoint(data=data, row_count=self._row_count, add_count=self._add_count)

    def _write_group(self, count: int, columns: Mapping[str, Sequence[pa.Array]]) -> None:
        chunks = [pa.chunked_array(columns.get(one.name) or [pa.nulls(count, one.type)], one.type) for one in _SCHEMA]
        self._parquet.write_table(pa.table(chunks, schema=_SCHEMA), row_group_size=count)
        self._row_count += count
        self._group_count += 1
