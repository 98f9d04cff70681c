"""What is sent, until it is acknowledged: records or rows that were gathered, and the futures that wait for them.

A batch is filled by the caller's threads, taken by its topic's sender, and settled once: with the partition and offset
of every record, with an error for all, or with errors for some.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.errors import IllegalStateError, SparklogError
from sparklog.log.schema import HEADERS
from sparklog.model import Headers

__all__ = ["I32", "I64", "Batch", "Outcome", "RecordBatch", "TableBatch", "Unacknowledged", "Written", "bounded_s"]

_LOGGER = logging.getLogger("sparklog.producer")

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]

_LONGEST_WAIT_S = threading.TIMEOUT_MAX / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Where the records of a batch are, in the order in which they were given."""

    partitions: I32
    """-1 for a record that was refused, and with ``acks=0``."""
    offsets: I64
    """-1 likewise."""
    timestamps_ms: I64
    key_sizes: I32
    """Bytes; -1 for null."""
    value_sizes: I32


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a batch ended."""

    written: Written | None = None
    error: SparklogError | None = None
    """Of the whole batch."""
    refused: Mapping[int, SparklogError] | None = None
    """Of single records, by their place in the batch."""

    def error_of(self, index: int) -> SparklogError | None:
        return self.error or (self.refused or {}).get(index)

    def require_written(self) -> Written:
        if self.written is None:
            raise IllegalStateError("a batch that failed has no offsets")
        return self.written


class Batch(ABC):
    """Records of one topic on their way; completed exactly once."""

    def __init__(self, topic: str, *, created_ticks_ms: float, size_bytes: int = 0) -> None:
        self.topic = topic
        self.created_ticks_ms = created_ticks_ms
        self.size_bytes = size_bytes
        """As counted against ``buffer_memory``."""
        self.outcome: Outcome | None = None
        self._uploaded: Callable[[], Outcome] | None = None
        self.hurry: Callable[[], None] = _no_hurry
        """Called by whoever waits: within a transaction records would gather until it is committed."""
        self._settled = threading.Event()
        self._lock = threading.Lock()
        self._waiting: list[tuple[int, Callable[[Outcome], None]]] = []
        self._keep: Callable[[Batch], None] | None = None

    @property
    @abstractmethod
    def count(self) -> int:
        """Records in it."""

    @abstractmethod
    def take_table(self) -> pa.Table:
        """The records, once: they aren't kept here.

        Columns timestamp (int64 ms), key, value, headers, partition (int32, null where it is not yet decided).
        """

    @abstractmethod
    def header_size(self, index: int) -> int:
        """Bytes of a record's headers; -1 without."""

    @abstractmethod
    def drop_records(self) -> None:
        """Give the records' memory back: they won't be needed."""

    def wait(self, timeout_s: float | None) -> bool:
        """Whether the batch is settled, or uploaded within a transaction, after at most so long."""
        return self._settled.wait(bounded_s(timeout_s))

    def settle(self, outcome: Outcome) -> None:
        """Wake everybody who waits for it. The callbacks are run by :meth:`run_callbacks`, so that a callback may wait
        for another batch."""
        self.drop_records()
        with self._lock:
            self.outcome = outcome
        self._settled.set()

    @property
    def uploaded(self) -> Outcome | None:
        """Within a transaction: what is known once it is uploaded, without offsets."""
        return None if self._uploaded is None else self._uploaded()

    def hold(self, uploaded: Callable[[], Outcome], keep: Callable[[Batch], None]) -> bool:
        """It is uploaded, and settled when its transaction ends; only futures and callbacks still want to know.

        Args:
            uploaded: tells what is known of it.
            keep: called once somebody asks to be called back: from then on it may not be forgotten.
        Returns:
            Whether somebody has asked already.
        """
        self.drop_records()
        with self._lock:
            self._uploaded, self._keep = uploaded, keep
            is_awaited = bool(self._waiting)
        self._settled.set()
        return is_awaited

    def fail_after_fork(self, error: SparklogError) -> None:
        """In the child, where the one thread is: whoever waits there would wait for ever."""
        self._lock, self._settled = threading.Lock(), threading.Event()
        if self.outcome is None:
            self._waiting = []
            self.outcome = Outcome(error=error)
        self._settled.set()

    def run_callbacks(self) -> None:
        """By record; one that fails is logged."""
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
                self._waiting.append((index, callback))
                if self._keep is not None:
                    self._keep(self)
                return
        _run(callback, self.outcome)


class RecordBatch(Batch):
    """Records that ``send`` gathered, column by column. Filled under the buffer's lock."""

    def __init__(self, topic: str, *, created_ticks_ms: float) -> None:
        super().__init__(topic, created_ticks_ms=created_ticks_ms)
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.times_ns: list[int] = []
        """When each was sent."""
        self.timestamps_ms: dict[int, int] = {}
        """Of the records whose timestamp the caller gave, by their place."""
        self.headers: dict[int, Headers] = {}
        """Of the records that have some, by their place."""
        self.header_sizes: dict[int, int] = {}
        self.partitions: dict[int, int] = {}
        """Of the records whose partition the caller chose."""
        self.notified = False
        """Whether the sender was told that the batch is full."""
        self._count = 0

    @property
    def count(self) -> int:
        return len(self.values) or self._count

    def take_table(self) -> pa.Table:
        count = len(self.values)
        columns = {
            "timestamp": self._timestamps(),
            "key": pa.array(self.keys, pa.binary()),
            "value": pa.array(self.values, pa.binary()),
            "headers": _headers_column(self.headers, count),
            "partition": _partition_column(self.partitions, count),
        }
        self.drop_records()
        return pa.table(columns)

    def drop_records(self) -> None:
        self._count = self.count
        self.keys, self.values, self.times_ns = [], [], []
        self.timestamps_ms, self.headers, self.partitions = {}, {}, {}

    def header_size(self, index: int) -> int:
        return self.header_sizes.get(index, -1)

    def _timestamps(self) -> pa.Array:
        timestamps = np.array(self.times_ns, np.int64) // 1_000_000
        if self.timestamps_ms:
            timestamps[list(self.timestamps_ms)] = list(self.timestamps_ms.values())
        return pa.array(timestamps)


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
    def one(cls, topic: str, *, timestamp_ms: int, key_size: int, value_size: int, header_size: int) -> Unacknowledged:
        """Of ``send``; sizes as in :class:`Written`."""
        return cls(
            topic,
            timestamps_ms=np.array([timestamp_ms], np.int64),
            key_sizes=np.array([key_size], np.int32),
            value_sizes=np.array([value_size], np.int32),
            header_size=header_size,
        )

    @classmethod
    def rows(cls, topic: str, count: int) -> Unacknowledged:
        """Of ``send_batch``, which tells only partitions and offsets."""
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


def bounded_s(timeout_s: float | None) -> float:
    """A time to wait as locks accept it: they refuse Kafka's Long.MAX_VALUE milliseconds, infinity and less than 0.

    There is a limit for None, too: a wait without one is not interrupted by Ctrl-C where a library (Polars 2.1 is one)
    has SIGINT restart what it interrupts.
    """
    return _LONGEST_WAIT_S if timeout_s is None else min(max(0.0, timeout_s), _LONGEST_WAIT_S)


def _headers_column(headers: Mapping[int, Headers], count: int) -> pa.Array:
    if not headers:
        return pa.nulls(count, HEADERS)
    return pa.array([headers.get(index) for index in range(count)], HEADERS)


def _partition_column(partitions: Mapping[int, int], count: int) -> pa.Array:
    if not partitions:
        return pa.nulls(count, pa.int32())
    return pa.array([partitions.get(index) for index in range(count)], pa.int32())


def _no_hurry() -> None:
    """Nothing waits longer than it must."""


def _index(waiting: tuple[int, Callable[[Outcome], None]]) -> int:
    return waiting[0]


def _run(callback: Callable[[Outcome], None], outcome: Outcome) -> None:
    try:
        callback(outcome)
    except Exception:
        _LOGGER.exception("a callback of a producer failed")
