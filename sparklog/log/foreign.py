"""Files that other engines wrote without offsets: what is kept of them, and what is filled in (rules F1, L13).

A file that says its partition, numbers its records and gives each a timestamp is copied byte for byte. Any other is
encoded again, once, with what is missing as a producer would have had it: the partition from the key, the numbers from
the order of the rows. One that says no partition becomes a file for each partition that its keys belong to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.config import TopicConfig
from sparklog.delta.actions import AddFile
from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptRecordError, InvalidRecordError
from sparklog.log.encode import MAX_TIMESTAMP_MS, open_parquet, parquet_options
from sparklog.log.head import TopicHead
from sparklog.log.murmur2 import key_partitions, murmur2
from sparklog.log.reading import conform, milliseconds, object_path
from sparklog.log.schema import DATA_SCHEMA, TIMESTAMP
from sparklog.log.segments import Segment, format_timestamp
from sparklog.paths import new_data_file

__all__ = ["ForeignFile", "Piece", "check_partition", "read_foreign"]

MAX_OFFSET_DELTA = 2**48
"""Greater numbers aren't kept: they would soon use up the offsets of a log that never restarts (rule L8)."""

_KEPT_COLUMNS = ("offset_delta", "timestamp", "producer_id", "sequence")
"""Those whose bounds a commit tells; at most 28 bytes of a record."""

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a foreign file has of one partition, under a path of its own."""

    partition: int
    add: AddFile
    """The copy, but for the base offset."""
    range: tuple[int, int]
    """Least and greatest offset delta of the copy."""
    numbers: tuple[int, int] | None
    """Least and greatest offset delta as the writer gave them; None if they can't be used."""
    renumbered: bool
    """The copy's deltas run from 0, in the order of the writer's, or else of the rows in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFile:
    """An unsequenced file and what was made of it."""

    segment: Segment
    """As it is live in the table."""
    pieces: tuple[Piece, ...]
    """One or more, each partition once."""

    @property
    def record_count(self) -> int:
        """Over all pieces."""
        return sum(int((piece.add.stats or {})["numRecords"]) for piece in self.pieces)


def check_partition(segment: Segment, head: TopicHead) -> None:
    """Raises ``InvalidRecordError``: the file says a partition that the topic doesn't have."""
    if segment.partition is not None and not 0 <= segment.partition < head.partition_count:
        raise InvalidRecordError(f"its partition is {segment.partition}, the topic has 0 to {head.partition_count - 1}")


def read_foreign(log: DeltaLog, segment: Segment, head: TopicHead) -> ForeignFile:
    """Read a file, and put its copy, or what it has of each partition, beside it. In no log yet.

    Not in bounded memory: a file that is copied takes about twice its size, one that is encoded anew five times, and
    either a decoded row group.

    Raises:
        InvalidRecordError: no record, a partition that isn't there, a timestamp or header that can't be one.
        CorruptRecordError: no Parquet, truncated, or a column of a type that can't be the topic's; names the file.
        InvalidArgumentError: the file lies outside of the table.
        ObjectNotFoundError: the file is gone.
        StoreError: the store refuses.
    """
    check_partition(segment, head)
    path = object_path(log.table, segment.path)
    source = _Source(path, log.store.read(path))
    fill_ms = _missing_timestamp(segment, head.config, now_ms=log.clock.now_ms())
    codec = str(head.config["compression.type"])
    with source.decoding(pa.ArrowException):
        facts = _examine(source, segment, head, fill_ms=fill_ms)
        if facts.is_kept:
            contents = dict.fromkeys(facts.rows, source.data)
        else:
            contents = _encode(source, facts, fill_ms=fill_ms, compression="snappy" if codec == "producer" else codec)
    paths = {partition: new_data_file(partition) for partition in contents}
    log.store.put_many({object_path(log.table, paths[p]): data for p, data in contents.items()}, sync=True)
    return ForeignFile(
        segment=segment,
        pieces=tuple(
            _piece(segment, facts, partition, path=paths[partition], size_bytes=len(data))
            for partition, data in contents.items()
        ),
    )


class _Source:
    """A file's bytes, decoded row group by row group; a single one is decoded once."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        with self.decoding(pa.ArrowException, OSError, ValueError):
            self._parquet = open_parquet(pa.BufferReader(data))
        self._only: dict[str, pa.ChunkedArray] | None = None

    def groups(self) -> Iterator[dict[str, pa.ChunkedArray]]:
        """The columns of the topic's schema, of each row group. Raises ``CorruptRecordError``."""
        if self._only is not None:
            yield self._only
            return
        count = self._parquet.num_row_groups
        for number in range(count):
            if self._parquet.metadata.row_group(number).num_rows == 0:
                continue  # Arrow's writers make such of an empty table
            with self.decoding(pa.ArrowException, OSError, ValueError):
                table = self._parquet.read_row_group(number, DATA_SCHEMA.names)
            columns = {name: conform(self.path, table, name) for name in DATA_SCHEMA.names}
            _check_headers(table, columns["headers"])
            if count == 1:
                self._only = columns
            yield columns

    @contextmanager
    def decoding(self, *errors: type[Exception]) -> Iterator[None]:
        """What Arrow can't do with the file is a ``CorruptRecordError``, so that it hinders no other."""
        try:
            yield
        except errors as error:
            raise CorruptRecordError(f"corrupt data file {self.path} ({len(self.data)} bytes): {error}") from error


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What is known of a file's records, in the order of its rows."""

    columns: Mapping[str, pa.ChunkedArray]
    """``_KEPT_COLUMNS``; every timestamp is filled in, the offset deltas are the copy's."""
    given: I64 | None
    """The offset deltas as the writer gave them; None if they can't be used."""
    partitions: I32
    rows: Mapping[int, npt.NDArray[np.intp]]
    """The same by partition, ascending: which rows it has."""
    is_kept: bool
    """The copy is byte for byte."""
    renumbered: bool
    has_headers: bool


def _examine(source: _Source, segment: Segment, head: TopicHead, *, fill_ms: int) -> _Facts:
    """Raises as :func:`read_foreign`."""
    kept: dict[str, list[pa.Array]] = {name: [] for name in _KEPT_COLUMNS}
    partitions: list[I32] = []
    null_key_count, has_headers = 0, False
    for columns in source.groups():
        for name in _KEPT_COLUMNS:
            kept[name] += columns[name].chunks
        partitions.append(_partitions(columns["key"], segment, head.partition_count))
        null_key_count += columns["key"].null_count
        has_headers = has_headers or columns["headers"].null_count < len(columns["headers"])
    found = {name: pa.chunked_array(chunks, DATA_SCHEMA.field(name).type) for name, chunks in kept.items()}
    if len(found["offset_delta"]) == 0:
        raise InvalidRecordError("it holds no record")
    if null_key_count and "compact" in str(head.config["cleanup.policy"]).split(","):
        raise InvalidRecordError(f"{null_key_count} of its records have no key, and the topic is compacted by keys")
    is_timed = found["timestamp"].null_count == 0
    found["timestamp"] = _filled(found["timestamp"], fill_ms)
    _check_timestamps(found["timestamp"])
    given = _usable_numbers(found["offset_delta"])
    of_rows = np.concatenate(partitions)
    renumbered = given is None or segment.partition is None
    if renumbered:
        found["offset_delta"] = pa.chunked_array([pa.array(_ranks(of_rows, given))])
    return _Facts(
        columns=found,
        given=given,
        partitions=of_rows,
        rows=_rows(of_rows),
        is_kept=is_timed and not renumbered,
        renumbered=renumbered,
        has_headers=has_headers,
    )


def _partitions(keys: pa.ChunkedArray, segment: Segment, partition_count: int) -> I32:
    """The partition of each record, as a producer would choose it where the file doesn't say.

    Those without a key stay together, as a sticky partitioner has them: which partition it is follows from the file's
    name, so that whoever sequences the file chooses the same.
    """
    if segment.partition is not None:
        return np.full(len(keys), segment.partition, np.int32)
    partitions = np.concatenate([np.empty(0, np.int32), *(key_partitions(c, partition_count) for c in keys.chunks)])
    sticky = (murmur2(segment.path.encode()) & 0x7FFFFFFF) % partition_count
    partitions[np.asarray(keys.is_null())] = sticky
    return partitions


def _usable_numbers(deltas: pa.ChunkedArray) -> I64 | None:
    """The offset deltas if they are distinct, none is missing or negative, and none is out of reason (rule F1)."""
    if deltas.null_count:
        return None
    numbers = np.asarray(deltas)
    is_usable = numbers.min() >= 0 and numbers.max() <= MAX_OFFSET_DELTA and len(np.unique(numbers)) == len(numbers)
    return numbers if is_usable else None


def _rows(partitions: I32) -> dict[int, npt.NDArray[np.intp]]:
    order = np.argsort(partitions, kind="stable")
    numbers, starts = np.unique(partitions[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True))


def _ranks(partitions: I32, numbers: I64 | None) -> I64:
    """Of each record its place among those of its partition: by its number, or else by its row."""
    order = np.lexsort((np.arange(len(partitions)) if numbers is None else numbers, partitions))
    counts = np.unique(partitions, return_counts=True)[1]
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    ranks = np.empty(len(partitions), np.int64)
    ranks[order] = np.arange(len(partitions)) - starts
    return ranks


def _encode(source: _Source, facts: _Facts, *, fill_ms: int, compression: str) -> dict[int, bytes]:
    """The records of each partition as the bytes of a file, rows in their order, row group by row group."""
    schema = DATA_SCHEMA if facts.has_headers else DATA_SCHEMA.remove(DATA_SCHEMA.get_field_index("headers"))
    sinks: dict[int, pa.BufferOutputStream] = {}
    writers: dict[int, pq.ParquetWriter] = {}
    start = 0
    for columns in source.groups():
        count = len(columns["key"])
        columns = {
            **columns,
            "timestamp": _filled(columns["timestamp"], fill_ms),
            "offset_delta": facts.columns["offset_delta"].slice(start, count),
        }
        partitions = facts.partitions[start : start + count]
        by_partition = _rows(partitions)
        table = pa.table({name: columns[name] for name in schema.names}, schema=schema)
        table = table.take(np.concatenate([*by_partition.values()]))
        first = 0
        for partition, own in by_partition.items():
            if partition not in writers:
                sinks[partition] = pa.BufferOutputStream()
                writers[partition] = pq.ParquetWriter(sinks[partition], schema, **parquet_options(compression))
            writers[partition].write_table(table.slice(first, len(own)))
            first += len(own)
        start += count
    while writers:
        writers.popitem()[1].close()
    return {partition: bytes(sinks.pop(partition).getvalue()) for partition in sorted(sinks)}  # one twice at a time


def _piece(segment: Segment, facts: _Facts, partition: int, *, path: str, size_bytes: int) -> Piece:
    rows = facts.rows[partition]
    is_all = len(rows) == len(facts.partitions)
    stats = _stats(facts.columns if is_all else {name: column.take(rows) for name, column in facts.columns.items()})
    low, high = (int(stats[f"{side}Values"]["offset_delta"]) for side in ("min", "max"))
    given = None if facts.given is None else facts.given[rows]
    return Piece(
        partition=partition,
        add=AddFile(
            path=path,
            partition_values={"partition": str(partition), "base_offset": None},
            size_bytes=size_bytes,
            modification_ms=segment.modification_ms,
            stats=stats,
        ),
        range=(low, high),
        numbers=None if given is None else (int(given.min()), int(given.max())),
        renumbered=facts.renumbered,
    )


def _stats(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, Any]:
    numbers = {name: columns[name] for name in ("offset_delta", "producer_id", "sequence")}
    bounds = {name: pc.min_max(column).as_py() for name, column in numbers.items() if column.null_count < len(column)}
    times = pc.min_max(milliseconds(columns["timestamp"])).as_py()
    bounds["timestamp"] = {side: format_timestamp(times[side]) for side in ("min", "max")}
    return {
        "numRecords": len(columns["offset_delta"]),
        "minValues": {name: bound["min"] for name, bound in bounds.items()},
        "maxValues": {name: bound["max"] for name, bound in bounds.items()},
        "nullCount": {name: columns[name].null_count for name in bounds},
    }


def _missing_timestamp(segment: Segment, config: TopicConfig, *, now_ms: int) -> int:
    """What a record without a timestamp gets: of ``LogAppendTime`` the time of the copy's upload (rule F4), else the
    time when its file was written, which is the nearest that is known to when it was made."""
    if config["message.timestamp.type"] == "LogAppendTime":
        return now_ms
    return min(max(0, segment.modification_ms), MAX_TIMESTAMP_MS)


def _filled(timestamps: pa.ChunkedArray, fill_ms: int) -> pa.ChunkedArray:
    return pc.fill_null(timestamps, pa.scalar(fill_ms * 1000, TIMESTAMP)) if timestamps.null_count else timestamps


def _check_timestamps(timestamps: pa.ChunkedArray) -> None:
    bounds = pc.min_max(timestamps.cast(pa.int64())).as_py()
    if bounds["min"] < 0 or bounds["max"] // 1000 > MAX_TIMESTAMP_MS:
        raise InvalidRecordError(
            f"its timestamps run from {bounds['min']} to {bounds['max']} µs, expected 0 to {MAX_TIMESTAMP_MS} ms"
        )


def _check_headers(table: pa.Table, headers: pa.ChunkedArray) -> None:
    """A cast fills fields of other names with null. Source of the second rule: Kafka ``RecordHeader``'s constructor."""
    if "headers" not in table.column_names or headers.null_count == len(headers):
        return
    given = table["headers"].type
    kind = getattr(given, "value_type", None)
    names = {field.name for field in kind} if kind is not None and pa.types.is_struct(kind) else set()
    if names != {"key", "value"} or pc.struct_field(pc.list_flatten(headers), "key").null_count:
        raise InvalidRecordError(
            f"its headers are {given}, expected a list of key: string and value: binary, and no header without a key"
        )
