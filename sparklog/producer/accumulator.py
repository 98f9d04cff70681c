"""What waits to be sent: the producer's one buffer, and in it a queue of batches for each topic.

Everything here is guarded by the buffer's lock; the methods that callers' threads and senders use take it themselves.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from sparklog.clock import Clock
from sparklog.errors import KafkaTimeoutError, SparklogError
from sparklog.model import Headers
from sparklog.producer.batch import Batch, RecordBatch, TableBatch, bounded_s
from sparklog.producer.future import FutureRecordMetadata

__all__ = ["MAX_BATCH_BYTES", "RECORD_OVERHEAD_BYTES", "Buffer", "TopicQueue", "memory_bytes"]

RECORD_OVERHEAD_BYTES = 112
"""What a record takes in memory beside its key and value: two bytes objects, an int and their places in lists."""
_DETAIL_BYTES = 96
"""What a timestamp or partition that the caller gave takes more: an entry of a dict. Headers are two entries."""
_HEADER_BYTES = 160
"""What a header takes beside its name and value: a tuple and the objects in it."""
MAX_BATCH_BYTES = 6_291_456
"""A batch that is larger isn't added to, so that encoding it takes a small part of ``buffer_memory``."""


def memory_bytes(size_bytes: int, headers: Headers | None, timestamp_ms: int | None, partition: int | None) -> int:
    """What a record counts against ``buffer_memory``.

    Args:
        size_bytes: of its key, value and headers.
    """
    size_bytes += RECORD_OVERHEAD_BYTES
    if headers:
        size_bytes += 2 * _DETAIL_BYTES + _HEADER_BYTES * len(headers)
    return size_bytes + _DETAIL_BYTES * ((timestamp_ms is not None) + (partition is not None))


class Buffer:
    """``buffer_memory``: who sends waits here for room; who delivers gives it back."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.lock = threading.Lock()
        self.used_bytes = 0
        self.waiting_count = 0
        """Threads that wait for room."""
        self._room = threading.Condition(self.lock)
        self._senders: list[threading.Condition] = []

    def new_condition(self) -> threading.Condition:
        """A sender's condition on the buffer's lock, notified too when somebody waits for room."""
        with self.lock:
            condition = threading.Condition(self.lock)
            self._senders.append(condition)
            return condition

    def drop_condition(self, condition: threading.Condition) -> None:
        """Of a sender that ended."""
        with self.lock:
            self._senders.remove(condition)

    def wait_for_room(self, size_bytes: int, *, timeout_ms: float, given_up: Callable[[], bool]) -> None:
        """Return, with the lock held as before, when ``size_bytes`` fit in, or when nothing else is in the buffer.

        Nothing lingers meanwhile, in whichever topic.

        Args:
            given_up: whether there is nothing to wait for any more; looked at after :meth:`wake_all`.
        Raises:
            KafkaTimeoutError: no room in ``max_block_ms``.
        """
        self.waiting_count += 1
        try:
            done = self._room.wait_for(lambda: given_up() or self._fits(size_bytes), bounded_s(timeout_ms / 1000))
        finally:
            self.waiting_count -= 1
        if not done:
            raise KafkaTimeoutError(
                f"no room for {size_bytes} bytes in max_block_ms={timeout_ms:.0f}: {self.used_bytes} of "
                f"buffer_memory={self.limit_bytes} wait to be delivered"
            )

    def release(self, size_bytes: int) -> None:
        """Give room back. The lock is held."""
        self.used_bytes -= size_bytes
        if self.waiting_count:
            self._room.notify_all()

    def wake_all(self) -> None:
        """Let those who wait look again. The lock is held."""
        self._room.notify_all()

    def _fits(self, size_bytes: int) -> bool:
        if self.used_bytes + size_bytes <= self.limit_bytes or self.used_bytes == 0:
            return True
        for condition in self._senders:
            condition.notify_all()
        return False


class TopicQueue:
    """One topic's batches: an open one that records are added to, and closed ones in their order."""

    def __init__(
        self,
        topic: str,
        buffer: Buffer,
        clock: Clock,
        *,
        batch_size: int,
        linger_ms: int,
        max_block_ms: int,
        gathers: bool = False,
    ) -> None:
        """
        Args:
            gathers: records wait until there are enough for a large file, or until somebody waits for them: within a
                transaction nobody can see them before.
        """
        self.topic = topic
        self.unfinished: dict[Batch, None] = {}
        """Every batch that isn't settled, with its callbacks run, in their order."""
        self.changed = buffer.new_condition()
        """Notified when the sender or whoever flushes may have something to do."""
        self.max_record_bytes = 0
        """Bytes of key, value and headers, as the topic allows them; -1: nothing more, the topic is gone."""
        self._buffer = buffer
        self._clock = clock
        self._gathers = gathers
        self._max_batch_bytes = max(batch_size, MAX_BATCH_BYTES)
        if gathers:  # a part of the buffer, so that others find room in it meanwhile
            self._max_batch_bytes = max(batch_size, min(MAX_BATCH_BYTES, buffer.limit_bytes // 4))
        self._batch_size = self._max_batch_bytes if gathers else batch_size
        self._linger_ms = linger_ms
        self._max_block_ms = max_block_ms
        self._open: RecordBatch | None = None
        self._closed: deque[Batch] = deque()
        self._ended: SparklogError | None = None
        self.check_open: Callable[[], None] = _always_open
        """Raises while nothing may be added. It is asked when a batch begins: after :meth:`hurry`, for any record."""
        self._now_ns = clock.now_ns
        self._acquire, self._release = buffer.lock.acquire, buffer.lock.release

    def add_plain(self, key: object, value: object) -> FutureRecordMetadata | None:
        """Add a record that has nothing but its bytes, as of now. This is what ``send`` costs: every line counts.

        Returns:
            None where it isn't as plain as that, or too large: see :meth:`add`.
        Raises:
            As :meth:`add`.
        """
        if type(value) is bytes and type(key) is bytes:
            size = len(value) + len(key)
        elif (value is None or type(value) is bytes) and (key is None or type(key) is bytes):
            size = (len(value) if value else 0) + (len(key) if key else 0)
        else:
            return None
        if size > self.max_record_bytes:
            return None
        size += RECORD_OVERHEAD_BYTES
        buffer = self._buffer
        self._acquire()  # half the price of a with block
        try:
            if buffer.used_bytes + size > buffer.limit_bytes:
                self._wait_for_room(size)
            batch = self._open
            if batch is None:
                batch = self._begin()
            index = len(batch.values)
            batch.keys.append(key)
            batch.values.append(value)
            batch.times_ns.append(self._now_ns())
            buffer.used_bytes += size
            batch.size_bytes += size
            if batch.size_bytes >= self._batch_size:
                self._filled(batch)
        finally:
            self._release()
        return FutureRecordMetadata(batch, index)

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None,
        size_bytes: int,
        headers: Headers | None = None,
        partition: int | None = None,
        header_size: int = -1,
    ) -> FutureRecordMetadata:
        """Add a record.

        Args:
            timestamp_ms: now if None.
        Raises:
            KafkaTimeoutError: the buffer is full for ``max_block_ms``.
            SparklogError: what the queue was ended with.
        """
        buffer = self._buffer
        with buffer.lock:
            if buffer.used_bytes + size_bytes > buffer.limit_bytes:
                self._wait_for_room(size_bytes)
            batch = self._open or self._begin()
            index = len(batch.values)
            batch.keys.append(key)
            batch.values.append(value)
            batch.times_ns.append(self._now_ns())
            if timestamp_ms is not None:
                batch.timestamps_ms[index] = timestamp_ms
            if headers:
                batch.headers[index] = headers
                batch.header_sizes[index] = header_size
            if partition is not None:
                batch.partitions[index] = partition
            buffer.used_bytes += size_bytes
            batch.size_bytes += size_bytes
            if batch.size_bytes >= self._batch_size:
                self._filled(batch)
        return FutureRecordMetadata(batch, index)

    def add_tables(self, batches: Sequence[TableBatch]) -> None:
        """Add the pieces of a table behind the records that were added before: all of them, once there is room for all.

        A table that is larger than the buffer waits until nothing else is in it. Raises as :meth:`add`.
        """
        size = sum(batch.size_bytes for batch in batches)
        with self._buffer.lock:
            self._raise_if_ended()
            if self._buffer.used_bytes + size > self._buffer.limit_bytes:
                self._wait_for_room(size)
            self.close_open()
            self._buffer.used_bytes += size
            self.unfinished.update(dict.fromkeys(batches))
            self._closed.extend(batches)
            self.changed.notify_all()

    def close_open(self) -> None:
        """Make the open batch wait no longer for more records. The lock is held."""
        if self._open is not None:
            self._closed.append(self._open)
            self._open = None
            self.changed.notify_all()

    def wait_ms(self, *, now_ticks_ms: float, idle: bool) -> float | None:
        """How long the sender has to wait for a batch: 0 when there is one, None as long as nothing is there.

        Pure; the lock is held.

        Args:
            idle: nothing that was sent before waits for its commit. While something does, records gather, unless a
                batch is full: waiting costs no time then, and makes larger files.
        """
        if self._closed:
            return 0.0
        if self._open is None:
            return None
        if self._open.size_bytes >= self._batch_size or self._buffer.waiting_count:
            return 0.0
        if not idle or self._gathers:
            return None
        return max(0.0, self._open.created_ticks_ms + self._linger_ms - now_ticks_ms)

    def take(self) -> list[Batch]:
        """The next batches, together not larger than one may be. The lock is held."""
        if not self._closed:
            self.close_open()
        taken: list[Batch] = []
        size = 0
        while self._closed and (not taken or size + self._closed[0].size_bytes <= self._max_batch_bytes):
            taken.append(self._closed.popleft())
            size += taken[-1].size_bytes
        return taken

    def take_all(self) -> list[Batch]:
        """Every batch that wasn't taken. The lock is held."""
        self.close_open()
        taken = list(self._closed)
        self._closed.clear()
        return taken

    @property
    def has_records(self) -> bool:
        """Whether something is left to take. The lock is held."""
        return bool(self._closed) or self._open is not None

    def hurry(self) -> None:
        """Let what is gathered wait no longer."""
        with self._buffer.lock:
            self.close_open()

    def flush(self, deadline_ticks_ms: float | None) -> bool:
        """Wait until everything that was added before is settled and its callbacks have run; False: not in time."""
        with self._buffer.lock:
            self.close_open()
            before = list(self.unfinished)

            def all_settled() -> bool:
                while before and before[-1] not in self.unfinished:
                    before.pop()
                return not before

            timeout_s = None if deadline_ticks_ms is None else (deadline_ticks_ms - self._clock.ticks_ms()) / 1000
            return self.changed.wait_for(all_settled, bounded_s(timeout_s))

    def finish(self, batch: Batch) -> None:
        """The batch is settled and its callbacks have run: give its room back."""
        with self._buffer.lock:
            del self.unfinished[batch]
            self._buffer.release(batch.size_bytes)
            self.changed.notify_all()

    def end(self, error: SparklogError) -> None:
        """Take no more records: adding raises ``error``. The lock is held."""
        self._ended = error
        self.close_open()
        self._buffer.wake_all()
        self.changed.notify_all()

    def fail_after_fork(self, error: SparklogError) -> None:
        """In the child: nobody there keeps the promises that were made before, and locks may be held by nobody."""
        for batch in list(self.unfinished):
            batch.fail_after_fork(error)

    def _begin(self) -> RecordBatch:
        self._raise_if_ended()
        batch = RecordBatch(self.topic, created_ticks_ms=self._clock.ticks_ms())
        if self._gathers:
            batch.hurry = self.hurry
        self._open = batch
        self.unfinished[batch] = None
        self.changed.notify_all()
        return batch

    def _filled(self, batch: RecordBatch) -> None:
        if batch.size_bytes >= self._max_batch_bytes:
            self.close_open()
        elif not batch.notified:
            batch.notified = True
            self.changed.notify_all()

    def _wait_for_room(self, size_bytes: int) -> None:
        self._buffer.wait_for_room(size_bytes, timeout_ms=self._max_block_ms, given_up=lambda: self._ended is not None)
        self._raise_if_ended()

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        self.check_open()


def _always_open() -> None:
    """Records may be sent at any time."""
