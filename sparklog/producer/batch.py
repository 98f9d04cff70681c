"""Batches of a topic: records or rows that were sent, until they are acknowledged, and the futures that wait for them.

A batch is filled by the caller's threads, taken by its topic's sender, and settled once: with the partition and offset
of every record, with an error for all, or with errors for some.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparklog.errors import IllegalStateError, SparklogError
from sparklog.interrupts import EventCount
from sparklog.log.data.schema import HEADERS
from sparklog.log.data.value_columns import DATA
from sparklog.model import Headers
from sparklog.producer.accumulator import Accumulator, Few, columns_of, few_of
from sparklog.producer.outcome import I32, I64, Outcome, Piece, Written

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "Batch",
    "Details",
    "RecordBatch",
    "TableBatch",
    "Unacknowledged",
    "count_encoded",
    "settle_batches",
]

_LOGGER = logging.getLogger("sparklog.producer")

_ENCODED_RECORD_BYTES = 24
"""Memory of a record whose batch is encoded, beside its part of the file: its partition, its place in the file, its
timestamp, the sizes of its key and value. Its offset comes as its file goes."""

Details = tuple["int | None", "Headers | None", int, "int | None", Any]
"""A record beside its key and value, as ``send`` was given it: timestamp in ms (None: when it was sent), headers (None
without), their size in bytes (-1 without), partition (None: by key), and of a typed topic the value that is no bytes
(None: it is, or is a tombstone). A named tuple would take ten times as long."""


class Batch(ABC):
    """Records of one topic on their way; completed exactly once."""

    def __init__(self, topic: str, *, created_ticks_ms: float, size_bytes: int = 0) -> None:
        self.topic = topic
        self.created_ticks_ms = created_ticks_ms
        self.size_bytes = size_bytes
        """The size as counted against ``buffer_memory`` until it is encoded."""
        self.encoded_bytes: int | None = None
        """Bytes of its part of the encoded files, and of what its futures need; None: it isn't encoded yet."""
        self.pieces: Sequence[Piece] = ()
        """Its records, where they are batches of other producers, one behind the other; empty: each is on its own."""
        self.is_finished = False
        """It is settled, its callbacks have run, and its room was given back."""
        self.is_overdue = False
        """It was given up, as its time is over, while a thread may still be at work for it, and hold its bytes. Guarded
        by the buffer's lock."""
        self.is_told = False
        """Whoever waited for it while it was overdue has been told: it is settled, and its callbacks have run."""
        self.outcome: Outcome | None = None
        self._uploaded: Callable[[], Outcome] | None = None
        self.begin_flush: Callable[[], None] = _nothing_to_flush
        """Called by whoever waits for it: within a transaction records would gather until it is committed."""
        self._progress = EventCount()
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, Callable[[Outcome], None]]] = []
        self._keep: Callable[[Batch], None] | None = None
        self._watching: list[Callable[[], None]] = []
        self.awaited: tuple[asyncio.AbstractEventLoop, list[Callable[[], object]]] | None = None
        """An event loop, which alone uses this, and its callbacks for when it is settled."""

    @property
    def held_bytes(self) -> int:
        """Bytes that it takes of ``buffer_memory`` at this moment."""
        return self.size_bytes if self.encoded_bytes is None else self.encoded_bytes

    @property
    @abstractmethod
    def count(self) -> int:
        """Records in it."""

    @abstractmethod
    def take_table(self) -> pa.Table:
        """The records, once: they aren't kept here.

        Columns timestamp (int64 ms), key, value, headers, partition (int32, null where it is not yet decided).
        """

    def take_values(self) -> Mapping[int, Any]:
        """After :meth:`take_table`, once: the values of a typed topic that are no bytes, by place."""
        return {}

    @abstractmethod
    def header_size(self, index: int) -> int:
        """Bytes of a record's headers; -1 without."""

    @abstractmethod
    def drop_records(self) -> None:
        """Give the records' memory back: they won't be needed."""

    def wait_for_outcome(self, timeout_s: float | None) -> bool:
        """Whether the batch is settled, or uploaded within a transaction, after at most so long."""
        return self._progress.wait_for(lambda: self.outcome is not None or self._uploaded is not None, timeout_s)

    def settle(self, outcome: Outcome) -> None:
        """Wake everybody who waits for it. The callbacks are run by :meth:`run_callbacks`, so that a callback may wait
        for another batch. What it was settled with first counts."""
        self.drop_records()
        with self._lock:
            if self.outcome is not None:
                return
            self.outcome = outcome
            watching = self._take_watching()
        self._progress.notify_all()
        for callback in watching:
            callback()

    def when_known(self, callback: Callable[[], None]) -> None:
        """Call back once the batch is settled, or uploaded within a transaction; at once if it is.

        Args:
            callback: called once, in whichever thread; it must not wait, nor raise.
        """
        with self._lock:
            if self.outcome is None and self._uploaded is None:
                self._watching.append(callback)
                return
        callback()

    @property
    def uploaded_outcome(self) -> Outcome | None:
        """The batch's outcome once it is uploaded within a transaction, without offsets; None before."""
        return None if self._uploaded is None else self._uploaded()

    def mark_uploaded(self, outcome: Callable[[], Outcome], keep: Callable[[Batch], None]) -> bool:
        """Note that it is uploaded within a transaction; it is settled when that ends. Until then only futures and
        callbacks need it.

        Args:
            outcome: returns what is known of it.
            keep: called once somebody asks to be called back: from then on it may not be forgotten.
        Returns:
            Whether somebody has asked already.
        """
        self.drop_records()
        with self._lock:
            self._uploaded, self._keep = outcome, keep
            is_awaited = bool(self._waiting)
            watching = self._take_watching()
        self._progress.notify_all()
        for callback in watching:
            callback()
        return is_awaited

    def _take_watching(self) -> list[Callable[[], None]]:
        """The callbacks that are due, each once. Under the lock."""
        watching, self._watching = self._watching, []
        return watching

    def fail_after_fork(self, error: SparklogError) -> None:
        """Fail it, in a forked child: whoever waits there would wait for ever."""
        self._lock, self._progress = threading.Lock(), EventCount()
        if self.outcome is None:
            self._waiting = []
            self.outcome = Outcome(error=error)

    def run_callbacks(self) -> None:
        """Run the callbacks in the order of the records; one that fails is logged."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
        if self.outcome is not None:
            for _, callback in sorted(waiting, key=_index):  # registered by several threads, perhaps
                try:
                    _run(callback, self.outcome)
                except BaseException:  # sys.exit() in a callback, say, must not end the producer's thread
                    _LOGGER.exception("a callback of a producer failed")

    def when_done(self, index: int, callback: Callable[[Outcome], None]) -> None:
        """Call back once the batch is complete, in the order of the records; at once if it is."""
        with self._lock:
            if self.outcome is None:
                if self._keep is not None:  # first: an interrupt may come between the two
                    self._keep(self)
                self._waiting.append((index, callback))
                return
        _run(callback, self.outcome)


class RecordBatch(Batch):
    """Records that ``send`` gathered."""

    def __init__(self, topic: str, *, created_ticks_ms: float) -> None:
        self.records = Accumulator()
        super().__init__(topic, created_ticks_ms=created_ticks_ms)
        self._taken: Any = None
        """The records once :meth:`few_records` has taken them."""
        self._header_sizes: dict[int, int] = {}
        self._values: dict[int, Any] = {}

    @property
    def size_bytes(self) -> int:
        """The size as counted against ``buffer_memory`` until it is encoded."""
        return self.records.size_bytes

    @size_bytes.setter
    def size_bytes(self, size_bytes: int) -> None:
        self.records.size_bytes = size_bytes

    @property
    def room_bytes(self) -> int:
        """How large it may grow before the buffer and the sender have to be asked again; no less than it is."""
        return self.records.room_bytes

    @room_bytes.setter
    def room_bytes(self, room_bytes: int) -> None:
        self.records.room_bytes = room_bytes

    @property
    def count(self) -> int:
        return self.records.count

    def take_table(self) -> pa.Table:
        return pa.table(self.take_columns())

    def few_records(self) -> Few | None:
        """The records, of which there are a few; None: they are more than keys and values. They are left to
        :meth:`take_columns`, or until they are dropped."""
        self._taken = taken = self.records.take()
        return few_of(taken)

    def take_columns(self) -> dict[str, pa.Array]:
        """The columns of :meth:`take_table`, once: of a few records a table costs more than all that is done with
        it."""
        taken, self._taken = self._taken, None
        timestamps, keys, values, given, typed = columns_of(self.records.take() if taken is None else taken)
        self._header_sizes = {index: size for index, (_, _, size, _, _) in given.items() if size >= 0}
        count = len(keys)
        headers = {index: headers for index, (_, headers, _, _, _) in given.items()}
        partitions = {index: partition for index, (_, _, _, partition, _) in given.items()}
        self._values = {index: value for index, (_, _, _, _, value) in given.items() if value is not None}
        columns = {
            "timestamp": _with_given_timestamps(timestamps, given),
            "key": keys,
            "value": values,
            "headers": _column(headers, count, HEADERS),
            "partition": _column(partitions, count, pa.int32()),
        }
        return columns if typed is None else columns | {DATA: typed}

    def take_values(self) -> Mapping[int, Any]:
        values, self._values = self._values, {}
        return values

    def drop_records(self) -> None:
        self.records.drop()
        self._taken = None
        self._values = {}

    def header_size(self, index: int) -> int:
        return self._header_sizes.get(index, -1)


class TableBatch(Batch):
    """A table that ``send_batch`` was given."""

    def __init__(self, topic: str, table: pa.Table, *, created_ticks_ms: float, size_bytes: int) -> None:
        super().__init__(topic, created_ticks_ms=created_ticks_ms, size_bytes=size_bytes)
        self._table: pa.Table | None = table
        self._count: int = table.num_rows

    @property
    def count(self) -> int:
        return self._count

    def take_table(self) -> pa.Table:
        if self._table is None:
            raise IllegalStateError(f"the records of a batch of {self.topic} were given back already")
        table, self._table = self._table, None
        return table

    def drop_records(self) -> None:
        self._table = None

    def header_size(self, index: int) -> int:
        return -1


class Unacknowledged(Batch):
    """Records that nobody waits for (``acks=0``): done from the start, without offsets."""

    def __init__(
        self, topic: str, *, timestamps_ms: I64, key_sizes: I32, value_sizes: I32, header_size: int = -1
    ) -> None:
        super().__init__(topic, created_ticks_ms=0.0)
        self._count = len(timestamps_ms)
        self._header_size = header_size
        self.settle(
            Outcome(
                written=Written(
                    partitions=np.full(self._count, -1, np.int32),
                    offsets=np.full(self._count, -1, np.int64),
                    timestamps_ms=timestamps_ms,
                    key_sizes=key_sizes,
                    value_sizes=value_sizes,
                )
            )
        )

    @classmethod
    def of_record(
        cls, topic: str, *, timestamp_ms: int, key_size: int, value_size: int, header_size: int
    ) -> Unacknowledged:
        """A record of ``send``; sizes as in :class:`Written`."""
        return cls(
            topic,
            timestamps_ms=np.array([timestamp_ms], np.int64),
            key_sizes=np.array([key_size], np.int32),
            value_sizes=np.array([value_size], np.int32),
            header_size=header_size,
        )

    @classmethod
    def of_rows(cls, topic: str, count: int) -> Unacknowledged:
        """Rows of ``send_batch``, which reports only partitions and offsets."""
        nothing = np.full(count, -1, np.int32)
        return cls(topic, timestamps_ms=nothing.astype(np.int64), key_sizes=nothing, value_sizes=nothing)

    @property
    def count(self) -> int:
        return self._count

    def take_table(self) -> pa.Table:
        raise IllegalStateError("what nobody waits for isn't sent again")

    def drop_records(self) -> None:
        """There are none."""

    def header_size(self, index: int) -> int:
        return self._header_size


def count_encoded(batches: Sequence[Batch], file_bytes: int) -> None:
    """Count batches that were encoded together as what they take from then on: their records are held no more.

    Args:
        file_bytes: of all files of theirs.
    """
    size = sum([batch.size_bytes for batch in batches])
    for batch in batches:
        of_files = file_bytes * batch.size_bytes // max(1, size)
        batch.encoded_bytes = min(batch.size_bytes, of_files + batch.count * _ENCODED_RECORD_BYTES)


def settle_batches(outcomes: Sequence[tuple[Batch, Outcome]], callbacks: threading.RLock) -> None:
    """Settle all of the batches, then run their callbacks, in order.

    Args:
        callbacks: held while callbacks run: no two of a producer run at once.
    """
    for batch, outcome in outcomes:
        batch.settle(outcome)
    for batch, _ in outcomes:
        with callbacks:
            batch.run_callbacks()


def _with_given_timestamps(times: pa.Array, given: Mapping[int, Details]) -> pa.Array:
    stated = {index: time_ms for index, (time_ms, _, _, _, _) in given.items() if time_ms is not None}
    if not stated:
        return times
    timestamps = np.array(times, np.int64)
    for index, timestamp_ms in stated.items():
        timestamps[index] = timestamp_ms
    return pa.array(timestamps)


def _column(values: Mapping[int, Any], count: int, kind: pa.DataType) -> pa.Array:
    """``values`` by place, all others null."""
    if all(value is None for value in values.values()):
        return pa.nulls(count, kind)
    return pa.array([values.get(index) for index in range(count)], kind)


def _nothing_to_flush() -> None:
    """Nothing waits longer than it must."""


def _index(waiting: tuple[int, Callable[[Outcome], None]]) -> int:
    return waiting[0]


def _run(callback: Callable[[Outcome], None], outcome: Outcome) -> None:
    try:
        callback(outcome)
    except Exception:
        _LOGGER.exception("a callback of a producer failed")
