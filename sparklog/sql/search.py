"""Finding records of one topic: newest or oldest first, file by file, and no file that the log rules out.

Files come in the order of their newest (or oldest) record, and a record is handed out once no file that is left can
hold an earlier one: so the order is exact, and a search that has found enough reads nothing more.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.delta.parquet_reading import by_ranges, read_footer
from sparklog.delta.parquet_seals import is_sealed
from sparklog.errors import CorruptRecordError, InvalidArgumentError
from sparklog.log.cluster import Cluster
from sparklog.log.data.schema import TIMESTAMP
from sparklog.log.data.value_columns import DATA, Leaf, leaf_column, view_columns
from sparklog.log.state import TopicState
from sparklog.sql.dataset import TOPIC_COLUMNS, load_living
from sparklog.sql.file_bounds import not_ruled_out
from sparklog.sql.files import is_local, missing_file
from sparklog.sql.topic_files import TopicFile, file_schema, parquet_format, topic_files
from sparklog.sql.where import Where

__all__ = ["FieldCondition", "FoundRecord", "Search", "SearchProgress", "Seen", "TopicSearch"]

_AT_ONCE = 16
"""Files that are read side by side behind a network."""
_BATCH_ROWS = 32_768
_LEAST_ROWS = 64
_BATCH_BYTES = 16 * 2**20
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": lambda field, value: field == value,
    "!=": lambda field, value: field != value,
    "<": lambda field, value: field < value,
    "<=": lambda field, value: field <= value,
    ">": lambda field, value: field > value,
    ">=": lambda field, value: field >= value,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldCondition:
    """A comparison of a field of a typed topic's values with a text, which is read as the field's type."""

    leaf: Leaf
    comparison: str
    """``=``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``."""
    text: str


class Seen(Protocol):
    """The part of records that a search may see, where that isn't all."""

    def compared(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that :attr:`Search.where` may compare, of the same number of rows."""

    def values(self, values: pa.Array) -> pa.Array:
        """Typed values as they are returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The records that are looked for: those for which every condition that is given holds."""

    partitions: frozenset[int] | None = None
    """None for all."""
    first_offset: int | None = None
    """The smallest offset (inclusive); then they come by offset, oldest first."""
    since_ms: int | None = None
    """The smallest timestamp (inclusive), ms since the epoch."""
    until_ms: int | None = None
    """The largest timestamp (exclusive)."""
    key: bytes | None = None
    field: FieldCondition | None = None
    where: str = ""
    """A condition in DuckDB's SQL over the columns of the topic's view; empty for none. Whoever builds it from what
    others gave writes that as literals."""
    seen: Seen | None = None
    """The part that the search may see; None: all. Then :attr:`where` alone compares keys, values and headers, after
    this was applied to them: neither another condition nor the statistics of a file may."""
    newest_first: bool = True
    limit: int = 100
    """At most so many records; 1 or more."""
    most_bytes: int = 2**20
    """A key or value that is longer is cut to so many bytes; its size is returned."""

    def __post_init__(self) -> None:
        if self.seen is not None and (self.key is not None or self.field is not None):
            raise InvalidArgumentError("a search that doesn't see all of a record has conditions in SQL alone")


class FoundRecord(NamedTuple):
    """A record that was found."""

    partition: int
    offset: int
    timestamp_ms: int | None
    """None where a foreign writer gave none."""
    key: bytes | None
    """Cut to :attr:`Search.most_bytes`."""
    value: Any
    """Bytes, cut likewise; of a typed topic a dict, or bytes that couldn't be decoded. None for a tombstone."""
    headers: list[tuple[str, bytes | None]]
    key_size: int
    """Bytes; -1 without a key."""
    value_size: int
    """Bytes; -1 without a value, and for a dict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """How far a search is."""

    file_count: int
    """The topic's live files."""
    skipped_count: int
    """Files that the log rules out: by partition, offset, time or the statistics of typed values."""
    read_count: int = 0
    scanned_count: int = 0
    """Records of the files that were read."""
    found_count: int = 0
    """Records that were handed out."""
    is_done: bool = False


class TopicSearch:
    """A search in a topic, as of when it was made. One thread iterates; any may cancel it."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        search: Search,
        *,
        version: int | None = None,
        state: TopicState | None = None,
    ) -> None:
        """Loads the topic's log unless a state is given, and reads no file.

        Args:
            version: search the topic as of that version; the newest for None.
            state: search the topic as it is here, with its files' statistics.
        Raises:
            InvalidArgumentError: no such field, a text that can't be its type, or a version that the log doesn't
                contain, or that is of another topic.
            UnknownTopicOrPartitionError, and what reading a log raises.
        """
        if search.limit < 1:
            raise InvalidArgumentError(f"limit: got {search.limit}, expected 1 or more")
        log = cluster.topic_log(topic)
        state = load_living(log, topic, version) if state is None else state
        self._store = cluster.store
        self._missing = partial(missing_file, topic, state.head.delta_version)
        self._search = search
        self._schema = file_schema(state)
        self._condition = _condition(search, self._schema)
        self._filesystem = cluster.store.arrow_filesystem()
        files = topic_files(log, state)
        kept = _may_match(files, search, self._condition, self._schema)
        self._files = sorted(kept, key=self._first_key)
        self._is_cancelled = False
        self._is_over = False
        """Is the result no longer awaited?"""
        self.progress = SearchProgress(file_count=len(files), skipped_count=len(files) - len(kept))

    def cancel(self) -> None:
        """End the search before the next batch of records. From any thread."""
        self._is_cancelled = True

    def __iter__(self) -> Iterator[list[FoundRecord]]:
        """The records that are found, in order, some at a time; an empty list where a file had none.

        Raises:
            InvalidArgumentError: what DuckDB says of the condition.
            ObjectNotFoundError: a data file was deleted; names it, the topic and the version.
            CorruptRecordError: a data file can't be read; names it.
            StoreError.
        """
        waiting: list[FoundRecord] = []
        left = self._search.limit
        with Where(self._search.where) as where, closing(self._results(where)) as results:
            for number, (file, records) in enumerate(results):
                waiting = sorted([*waiting, *records], key=self._record_key)[:left]
                has_more = number + 1 < len(self._files)
                bound = self._first_key(self._files[number + 1]) if has_more else math.inf
                ready = [record for record in waiting if self._record_key(record)[0] <= bound]
                waiting = waiting[len(ready) :]
                left -= len(ready)
                self._advance(read_count=1, scanned_count=file.segment.record_count or 0, found_count=len(ready))
                yield ready
                if left <= 0:
                    break
        self.progress = replace(self.progress, is_done=not self._is_cancelled)

    def _results(self, where: Where) -> Generator[tuple[TopicFile, list[FoundRecord]], None, None]:
        """The records that are found in each file, in the files' order. The longer it takes, the more at once."""
        readers = (os.cpu_count() or 1) if self._filesystem is not None and is_local(self._filesystem) else _AT_ONCE
        pool = ThreadPoolExecutor(readers, thread_name_prefix="sparklog-search")
        files = iter(self._files)
        waiting: deque[tuple[TopicFile, Future[list[FoundRecord]]]] = deque()
        read_count = 0
        try:
            while not self._is_cancelled:
                for file in islice(files, max(0, min(readers, read_count) + 1 - len(waiting))):
                    waiting.append((file, pool.submit(self._read, file, where)))
                if not waiting:
                    return
                file, future = waiting.popleft()
                records = future.result()
                read_count += 1
                if not self._is_cancelled:
                    yield file, records
        finally:
            self._is_over = True
            pool.shutdown(wait=True, cancel_futures=True)

    def _advance(self, **counts: int) -> None:
        sums = {name: getattr(self.progress, name) + count for name, count in counts.items()}
        self.progress = replace(self.progress, **sums)

    def _first_key(self, file: TopicFile) -> float:
        """A bound of the sort keys of a file's records from below; as they are sorted by ascending keys."""
        segment = file.segment
        if self._search.first_offset is not None:
            return segment.first_offset
        if self._search.newest_first:
            return -math.inf if segment.max_timestamp_ms is None else -segment.max_timestamp_ms
        return -math.inf if segment.min_timestamp_ms is None else segment.min_timestamp_ms

    def _record_key(self, record: FoundRecord) -> tuple[float, ...]:
        if self._search.first_offset is not None:
            return (record.offset, record.partition)
        sign = -1 if self._search.newest_first else 1
        time = -math.inf if record.timestamp_ms is None else record.timestamp_ms
        return (sign * time, record.partition, sign * record.offset)

    def _read(self, file: TopicFile, where: Where) -> list[FoundRecord]:
        """The first records of a file that are looked for, at most as many as are wanted."""
        base = file.segment.base_offset or 0
        condition = self._condition & (pc.field("offset_delta") >= file.log_start_offset - base)
        if self._search.first_offset is not None:
            condition &= pc.field("offset_delta") >= self._search.first_offset - base
        try:
            fragment = self._fragment(file)
            if where.is_empty:
                condition &= self._wanted_deltas(fragment, condition)
            records: list[FoundRecord] = []
            for batch in self._batches(file, fragment, condition):
                if not where.is_empty:
                    batch = batch.take(pa.array(where.rows(self._compared(batch)), pa.int64()))
                some = [_record(row, self._search.most_bytes) for row in self._seen(self._first(batch)).to_pylist()]
                records = sorted([*records, *some], key=self._record_key)[: self._search.limit]
                if self._is_cancelled or self._is_over:
                    break
            return records
        except FileNotFoundError as error:
            raise self._missing(file.path) from error
        except (pa.ArrowException, OSError) as error:
            raise CorruptRecordError(f"data file {file.path} can't be read: {error}") from error

    def _compared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns that a condition in SQL compares: those of the topic's view."""
        view = _view(batch)
        return view if self._search.seen is None else self._search.seen.compared(view)

    def _seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records as they are returned."""
        if self._search.seen is None or DATA not in batch.schema.names:
            return batch
        return batch.set_column(batch.schema.get_field_index(DATA), DATA, self._search.seen.values(batch[DATA]))

    def _wanted_deltas(self, fragment: Any, condition: Any) -> Any:
        """A condition for the first records of a file, as many as are wanted: known without reading keys and values."""
        scanner = fragment.scanner(schema=self._schema, columns=["offset_delta", "timestamp"], filter=condition)
        deltas = self._first(scanner.to_table())["offset_delta"].combine_chunks()
        if not len(deltas):
            return pc.scalar(False)
        bounds, field = pc.min_max(deltas), pc.field("offset_delta")
        return (field >= bounds["min"]) & (field <= bounds["max"]) & field.isin(deltas)

    def _first(self, rows: pa.Table | pa.RecordBatch) -> Any:
        """The rows that come first, as many as are wanted."""
        if rows.num_rows <= self._search.limit:
            return rows
        by_offset = self._search.first_offset is not None
        order = "descending" if self._search.newest_first and not by_offset else "ascending"
        names = ["offset_delta"] if by_offset else ["timestamp", "offset_delta"]
        return rows.take(pc.sort_indices(rows, [(name, order) for name in names])[: self._search.limit])

    def _batches(self, file: TopicFile, fragment: Any, condition: Any) -> Iterator[pa.RecordBatch]:
        names = [name for name in self._schema.names if name != "log_start_offset"]
        scanner = fragment.scanner(
            schema=self._schema, columns=names, filter=condition, batch_size=_batch_rows(file), batch_readahead=2
        )
        for batch in scanner.to_batches():
            if batch.num_rows:
                yield batch.append_column("offset", pc.add(batch["base_offset"], batch["offset_delta"]))

    def _fragment(self, file: TopicFile) -> Any:
        """A file as Arrow reads it. Raises ``ObjectNotFoundError``: maintenance has deleted it meanwhile."""
        if self._filesystem is not None:
            found = self._filesystem.open_input_file(file.path)
            footer = read_footer(found)
            _check_rows(file, footer.num_rows)
            return parquet_format().make_fragment(by_ranges(found, footer), partition_expression=file.known)
        [data] = self._store.read_many([file.path])
        if data is None:
            raise self._missing(file.path)
        if is_sealed(data) is False:
            raise CorruptRecordError(f"corrupt data file {file.path}: its bytes aren't those that were written")
        _check_rows(file, read_footer(pa.BufferReader(data)).num_rows)
        return parquet_format().make_fragment(pa.BufferReader(data), partition_expression=file.known)


def _check_rows(file: TopicFile, rows: int) -> None:
    stated = file.segment.record_count
    if stated not in (None, rows):
        raise CorruptRecordError(f"corrupt data file {file.path}: it has {rows} rows, and the log states {stated}")


def _condition(search: Search, schema: pa.Schema) -> Any:
    """The conditions that Arrow itself can decide, file by file and row group by row group."""
    condition = pc.scalar(True)
    if search.partitions is not None:
        condition &= pc.field("partition").isin(pa.array(sorted(search.partitions), pa.int32()))
    time = pc.field("timestamp")
    if search.since_ms is not None:
        condition &= time >= pa.scalar(search.since_ms * 1_000, TIMESTAMP)
    if search.until_ms is not None:
        condition &= time < pa.scalar(search.until_ms * 1_000, TIMESTAMP)
    if search.key is not None:
        condition &= pc.field("key") == pa.scalar(search.key, pa.binary())
    if search.field is not None:
        condition &= _field_condition(search.field, schema)
    return condition


def _field_condition(wanted: FieldCondition, schema: pa.Schema) -> Any:
    name = ".".join(wanted.leaf)
    kind = schema.field(DATA).type if DATA in schema.names else None
    for part in wanted.leaf:
        if kind is None or not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            raise InvalidArgumentError(f"the topic's values have no field {name!r}")
        kind = kind.field(part).type
    try:
        value = pa.scalar(wanted.text, pa.string()).cast(kind)
    except pa.ArrowException as error:
        raise InvalidArgumentError(f"field {name} is {kind}: got {wanted.text!r} to compare it with") from error
    return _COMPARISONS[wanted.comparison](pc.field(DATA, *wanted.leaf), value)


def _may_match(files: list[TopicFile], search: Search, condition: Any, schema: pa.Schema) -> list[TopicFile]:
    wanted = [file for file in files if _may_have(file, search)]
    if search.field is None:  # nothing is left that Arrow could conclude
        return wanted
    return [wanted[place] for place in not_ruled_out([file.known for file in wanted], schema, condition)]


def _may_have(file: TopicFile, search: Search) -> bool:
    """May a file have records of the partitions, offsets and times that are wanted?"""
    segment = file.segment
    if search.partitions is not None and file.partition not in search.partitions:
        return False
    if search.first_offset is not None and segment.has_stats and segment.last_offset < search.first_offset:
        return False
    oldest_ms, newest_ms = segment.min_timestamp_ms, segment.max_timestamp_ms
    if search.since_ms is not None and newest_ms is not None and newest_ms < search.since_ms:
        return False
    return search.until_ms is None or oldest_ms is None or oldest_ms < search.until_ms


def _batch_rows(file: TopicFile) -> int:
    """How many records of a file to read together: fewer where they are large."""
    mean_bytes = file.segment.size_bytes / max(1, file.segment.record_count or 1)
    return round(max(_LEAST_ROWS, min(_BATCH_ROWS, _BATCH_BYTES / max(1.0, mean_bytes))))


def _view(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The columns of the topic's view: a typed topic's values field by field."""
    if DATA not in batch.schema.names:
        return batch
    values = batch[DATA]
    names = view_columns([field.name for field in values.type], TOPIC_COLUMNS)
    batch = batch.drop_columns([DATA])
    for field, column in names.items():
        batch = batch.append_column(column, leaf_column(values, (field,)))
    return batch


def _record(row: dict[str, Any], most_bytes: int) -> FoundRecord:
    key, value, time = row["key"], row["value"], row["timestamp"]
    if value is None:
        value = row.get(DATA)
    is_bytes = isinstance(value, bytes)
    return FoundRecord(
        partition=row["partition"],
        offset=row["offset"],
        timestamp_ms=None if time is None else round(time.timestamp() * 1_000),
        key=None if key is None else key[:most_bytes],
        value=value[:most_bytes] if is_bytes else value,
        headers=[(header["key"], header["value"]) for header in row["headers"] or ()],
        key_size=-1 if key is None else len(key),
        value_size=len(value) if is_bytes else -1,
    )
