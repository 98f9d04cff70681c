"""Searches, statements and followed topics as work whose results are streamed."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.console.decoding import Shown, shown_record
from sparklog.console.masks import Masks
from sparklog.console.wire_formats import NamedSchema
from sparklog.consumer import Consumer
from sparklog.errors import InvalidArgumentError, SparklogError, StoreError, UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.state import TopicState
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.sql.answer_limits import in_pieces
from sparklog.sql.apart import ApartQuery, Origin
from sparklog.sql.confined import ConfinedQuery
from sparklog.sql.search import FoundRecord, Search, TopicSearch
from sparklog.texts import as_json, as_text, with_text

__all__ = ["EXPORTS", "SearchJob", "StatementJob", "TailJob", "exported", "in_one_line", "search_of", "told"]

EXPORTS = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
"""The forms in which the rows of a statement leave, and their media types."""
_POLL_MS = 500
_QUIET_POLLS = 30
_MOST_A_POLL = 200
_TAIL_BYTES = 4_096
_GROUP_BYTES = 8 * 2**20
_GROUP_BATCHES = 1_000


def in_one_line(error: BaseException) -> str:
    """The message of an error, in one line."""
    return " ".join((str(error) or type(error).__name__).split())


def told(error: SparklogError, masks: Masks, *, by_search: bool = False) -> str:
    """The message of an error that was raised while records were read: the words of what can't be read may be those of
    a record, so while fields are masked only kinds of errors are told that name no content.

    Args:
        by_search: whether it was a search, whose conditions see nothing that is masked, so neither do their errors.
    """
    kinds = (StoreError, UnknownTopicOrPartitionError, *((InvalidArgumentError,) if by_search else ()))
    if not masks or isinstance(error, kinds):
        return in_one_line(error)
    return f"{type(error).__name__}: the reason isn't told while fields are masked"


class SearchJob:
    """A search in a topic, rendered step by step."""

    def __init__(
        self,
        open_search: Callable[[], TopicSearch],
        render: Callable[[Iterator[list[FoundRecord]], Callable[[], TopicSearch]], Iterator[bytes]],
        give_back: Callable[[], None],
    ) -> None:
        """Begins nothing.

        Args:
            open_search: loads the topic's log.
            render: makes the answer of the steps; the search itself reports its progress.
            give_back: called at the end.
        """
        self._open = open_search
        self._render = render
        self._give_back = give_back
        self._search: TopicSearch | None = None
        self._is_cancelled = False

    def __iter__(self) -> Iterator[bytes]:
        search = self._open()
        self._search = search
        if self._is_cancelled:
            search.cancel()
        yield from self._render(iter(search), lambda: search)

    def cancel(self) -> None:
        """End it soon."""
        self._is_cancelled = True
        if self._search is not None:
            self._search.cancel()

    def close(self) -> None:
        """Give the place back."""
        self._give_back()


class StatementJob:
    """A statement over topics, rendered batch by batch."""

    def __init__(
        self,
        cluster: Cluster,
        text: str,
        render: Callable[[Callable[[], pa.Schema], Iterator[pa.RecordBatch]], Iterator[bytes]],
        give_back: Callable[[], None],
        *,
        versions: Mapping[str, int] | None = None,
        origin: Origin | None = None,
    ) -> None:
        """Begins nothing.

        Args:
            versions: topics that are shown as of an older version.
            origin: how a process of its own opens the cluster; None: the statement runs in this one.
            render: makes the answer: its first argument runs the statement and returns the columns, the second one are
                the rows.
            give_back: called at the end.
        """
        self._cluster = cluster
        self._text = text
        self._render = render
        self._give_back = give_back
        self._versions = versions
        self._origin = origin
        self._lock = threading.Lock()
        self._query: ConfinedQuery | ApartQuery | None = None
        self._is_cancelled = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._render(self._run, self._batches())

    def _run(self) -> pa.Schema:
        query = self._opened()
        with self._lock:
            self._query = query
            if self._is_cancelled:
                query.cancel()
        return query.run()

    def _opened(self) -> ConfinedQuery | ApartQuery:
        if self._origin is None:
            return ConfinedQuery(self._cluster, self._text, versions=self._versions)
        return ApartQuery(self._origin, self._text, versions=self._versions)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._query is not None:
            yield from in_pieces(self._query.batches())

    def cancel(self) -> None:
        """End it soon."""
        with self._lock:
            self._is_cancelled = True
            if self._query is not None:
                self._query.cancel()

    def close(self) -> None:
        """Let go of the connection, and give the place back."""
        try:
            if self._query is not None:
                self._query.close()
        finally:
            self._give_back()


class TailJob:
    """The records that come to a topic from now on, as server-sent events. Source: HTML standard, section 9.2."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        partition: int | None,
        how: str,
        masks: Masks,
        schema: NamedSchema | None = None,
        give_back: Callable[[], None],
    ) -> None:
        """Begins nothing.

        Args:
            partition: None for all.
            how: one of :data:`~sparklog.console.decoding.DECODINGS`.
        """
        self._cluster = cluster
        self._topic = topic
        self._partition = partition
        self._how = how
        self._masks = masks
        self._schema = schema
        self._give_back = give_back
        self._consumer: Consumer | None = None
        self._is_cancelled = False

    def __iter__(self) -> Iterator[bytes]:
        consumer = Consumer(cluster=self._cluster, enable_auto_commit=False, auto_offset_reset="latest")
        self._consumer = consumer
        numbers = consumer.partitions_for_topic(self._topic)
        if numbers is None or (self._partition is not None and self._partition not in numbers):
            raise InvalidArgumentError(f"topic {self._topic!r} isn't there, or has no partition {self._partition}")
        wanted = sorted(numbers) if self._partition is None else [self._partition]
        partitions = [TopicPartition(self._topic, number) for number in wanted]
        consumer.assign(partitions)
        for at, end in consumer.end_offsets(partitions).items():
            consumer.seek(at, end)
        yield _event("begun", {"partitions": wanted})
        quiet = 0
        while not self._is_cancelled:
            try:
                polled = consumer.poll(timeout_ms=_POLL_MS, max_records=_MOST_A_POLL)
            except SparklogError as error:
                yield _event("failed", {"error": told(error, self._masks)})
                return
            records = [record for found in polled.values() for record in found]
            quiet = 0 if records else quiet + 1
            if records:
                yield b"".join(_event("record", self._plain(record)) for record in records)
            elif quiet % _QUIET_POLLS == 0:
                yield b": still here\n\n"

    def _plain(self, record: ConsumerRecord) -> dict[str, Any]:
        found = shown_record(_as_found(record), how=self._how, masks=self._masks, schema=self._schema)
        return {
            **found,
            "key": _plain_shown(found["key"]),
            "value": _plain_shown(found["value"]),
            "headers": [{"name": name, "value": _plain_shown(one)} for name, one in found["headers"]],
        }

    def cancel(self) -> None:
        """End within the time of a poll."""
        self._is_cancelled = True

    def close(self) -> None:
        """Close the consumer, and give the place back."""
        try:
            if self._consumer is not None:
                self._consumer.close()
        finally:
            self._give_back()


def exported(kind: str, run: Callable[[], pa.Schema], batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    """The rows of a statement in a form of :data:`EXPORTS`.

    Raises ``InvalidArgumentError``: another form, or what DuckDB says.
    """
    if kind not in EXPORTS:
        raise InvalidArgumentError(f"format: got {kind!r}, expected one of {', '.join(EXPORTS)}")
    schema = run()
    if not schema.names:
        raise InvalidArgumentError("the statement has no rows to export")
    yield from {"csv": _csv, "json": _json_lines, "parquet": _parquet}[kind](schema, batches)


def _csv(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    sink = io.StringIO()
    writer = csv.writer(sink, lineterminator="\r\n")  # source: RFC 4180
    writer.writerow(schema.names)
    for batch in batches:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            writer.writerow(["" if value is None else as_text(value) for value in row])
        yield _taken(sink)
    yield _taken(sink)


def _json_lines(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    yield b""
    for batch in batches:
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        lines = [as_json(dict(zip(schema.names, row, strict=True))) for row in rows]
        yield "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")


def _parquet(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[bytes]:
    sink = _Sink()
    waiting: list[pa.RecordBatch] = []
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches:
            waiting.append(batch)
            if sum(one.nbytes for one in waiting) >= _GROUP_BYTES or len(waiting) >= _GROUP_BATCHES:
                writer.write_table(pa.Table.from_batches(waiting, schema))  # a row group, which isn't kept any longer
                waiting = []
            yield sink.taken()
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting, schema))
    yield sink.taken()


class _Sink(io.RawIOBase):
    """Takes what is written, and gives it back piece by piece."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._size += len(part)
        return len(part)

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _taken(sink: io.StringIO) -> bytes:
    text = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return text.encode(errors="backslashreplace")


def _as_found(record: ConsumerRecord) -> FoundRecord:
    key, value = record.key, record.value
    return FoundRecord(
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=None if record.timestamp < 0 else record.timestamp,
        key=None if key is None else key[:_TAIL_BYTES],
        value=value[:_TAIL_BYTES] if isinstance(value, bytes) else value,
        headers=list(record.headers),
        key_size=-1 if key is None else len(key),
        value_size=len(value) if isinstance(value, bytes) else -1,
    )


def _plain_shown(one: Shown) -> dict[str, Any]:
    return {"kind": one.kind, "text": one.text, "size": one.size, "is_cut": one.is_cut, "note": one.note}


def _event(name: str, data: dict[str, Any]) -> bytes:
    text = json.dumps(with_text(data))  # in ASCII: no line ends but its own
    return f"event: {name}\ndata: {text}\n\n".encode()


def search_of(cluster: Cluster, topic: str, search: Search, state: TopicState | None) -> Callable[[], TopicSearch]:
    """A function that opens a search, in the newest version of the topic by default."""
    return lambda: TopicSearch(cluster, topic, search, state=state)
