"""Records that wait to be sent: the producer's one buffer, and in it a queue of batches for each topic.

Everything here is guarded by the buffer's lock; the methods that callers' threads and senders use take it themselves.

A KeyboardInterrupt may end a caller's method between any two of its instructions. So each of them changes something by
one step that no interrupt can part, and that step is the last: what it notifies, it notifies before (nobody looks until
the lock is free), and what can be computed from the batches is kept nowhere else. No caller waits with the lock held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from sparklog.clock import Clock, Deadline
from sparklog.errors import KafkaTimeoutError, SparklogError
from sparklog.interrupts import EventCount
from sparklog.producer.accumulator import FutureBase, Gatherer
from sparklog.producer.batch import Batch, Details, RecordBatch, TableBatch, count_encoded
from sparklog.producer.buffer import Buffer
from sparklog.producer.future import FutureRecordMetadata
from sparklog.producer.record_memory import RECORD_OVERHEAD_BYTES
from sparklog.producer.shared_threads import Turns

__all__ = ["MAX_BATCH_BYTES", "TopicQueue"]

MAX_BATCH_BYTES = 6_291_456
"""A batch that is larger isn't added to, so that encoding it takes a small part of ``buffer_memory``."""
_WHOLE_BATCHES = 10
"""So many batches that are worth an upload of their own have room in the buffer. With larger ones more of it is left
over, for one that isn't large enough yet: where uploads take long, a buffer that is full bounds how much is sent."""


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
        future_type: type[FutureBase] = FutureRecordMetadata,
    ) -> None:
        """
        Args:
            gathers: records wait until there are enough for a large file, or until somebody waits for them: within a
                transaction nobody can see them before.
            future_type: what :attr:`add_plain` returns; made without a call of ``__init__``.
        """
        self.topic = topic
        self.changed = Turns()
        """Notified when a thread may have something to do for the topic: one of them, as a thread that is woken for
        nothing costs more than most of what is done for a small commit."""
        self._finished = EventCount()
        """Notified when batches are finished: flushing waits for that."""
        self._buffer = buffer
        self.lock = buffer.lock
        """The buffer's, which guards its queues and what is in flight."""
        self._clock = clock
        self.gathers = gathers
        """Do records wait for more of them as long as nobody waits for them?"""
        self._max_batch_bytes = max(batch_size, MAX_BATCH_BYTES)
        if gathers:  # a part of the buffer, so that others find room in it meanwhile
            self._max_batch_bytes = max(batch_size, min(MAX_BATCH_BYTES, buffer.limit_bytes // 4))
        self._whole_batch_bytes = min(self._max_batch_bytes, max(1, buffer.limit_bytes // _WHOLE_BATCHES))
        self._batch_size = self._max_batch_bytes if gathers else batch_size
        self._linger_ms = linger_ms
        self._max_block_ms = max_block_ms
        self._waiting: deque[Batch] = deque()
        """Batches that the sender hasn't taken, in their order. An interrupt may have left some without a record."""
        self._taken: dict[Batch, None] = {}
        """Batches that it has taken and that aren't finished, in their order."""
        self._ended: SparklogError | None = None
        self.check_open: Callable[[], None] = _always_open
        """Raises while nothing may be added. Called when a batch begins: after :meth:`begin_flush`, for any record."""
        self._now_ns = clock.now_ns
        self._gatherer = Gatherer(future_type, clock.now_ns, buffer.lock, RECORD_OVERHEAD_BYTES)
        self.add_plain: Callable[[object, object], FutureRecordMetadata | None] = self._gatherer.add_plain
        """Adds a record that has nothing but its bytes, as of now, to the batch that is open.

        Returns None where it isn't as plain as that, or too large, or there is no room: see :meth:`add`. The compiled
        core takes no lock for it: it adds in one step, and to nothing that isn't open in that step."""
        self.add_detailed: Callable[..., FutureRecordMetadata | None] = self._gatherer.add_detailed
        """Adds a record with a dict of a typed topic's fields that are of plain types, and with details: key, value,
        details, bytes of key and headers, and what it counts beside its value. Returns None as :attr:`add_plain`."""
        buffer.add(self)

    @property
    def max_record_bytes(self) -> int:
        """Bytes of key, value and headers, as the topic allows them; -1: nothing more, the topic is gone."""
        return self._gatherer.max_record_bytes

    @max_record_bytes.setter
    def max_record_bytes(self, size_bytes: int) -> None:
        self._gatherer.max_record_bytes = size_bytes

    @property
    def overhead_bytes(self) -> int:
        """Bytes that a record counts against ``buffer_memory`` beside its key and value."""
        return self._gatherer.overhead_bytes

    def set_packer(self, packer: Any, *, decoded_bytes: int = 0) -> None:
        """Let :attr:`add_plain` take dicts of a typed topic's newest schema: as :func:`~sparklog.schemas.packer_of`
        makes it, or None.

        Args:
            decoded_bytes: what a record counts for the columns that its value becomes.
        """
        self._gatherer.packer = packer
        self._gatherer.overhead_bytes = RECORD_OVERHEAD_BYTES + decoded_bytes

    @property
    def _open(self) -> RecordBatch | None:
        """The last of ``_waiting``, while records are added to it."""
        batch: RecordBatch | None = self._gatherer.open
        return batch

    @_open.setter
    def _open(self, batch: RecordBatch | None) -> None:
        self._gatherer.open = batch

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        size_bytes: int,
        details: Details | None = None,
    ) -> FutureRecordMetadata:
        """Add a record.

        Args:
            size_bytes: what it counts against ``buffer_memory``.
        Raises:
            KafkaTimeoutError: the buffer is full for ``max_block_ms``.
            SparklogError: what the queue was ended with.
        """
        deadline: Deadline | None = None
        while True:
            with self.lock:
                batch = self._open
                if batch is None or batch.size_bytes + size_bytes > batch.room_bytes:
                    batch = self._batch_with_room(size_bytes)
                if batch is not None:
                    future = FutureRecordMetadata()
                    future._batch = batch
                    now_ns = self._now_ns()
                    place = batch.records.append(key, value, now_ns, details, size_bytes)
                    if place is not None:
                        future._index = place
                        return future
                    continue  # a thread that takes no lock was faster
            deadline = self._wait_for_room(size_bytes, deadline)

    def add_tables(self, batches: Sequence[TableBatch]) -> None:
        """Add the pieces of a table behind the records that were added before: all of them, once there is room for all.

        A table that is larger than the buffer waits until nothing else is in it. Raises as :meth:`add`.
        """
        size = sum(batch.size_bytes for batch in batches)
        deadline: Deadline | None = None
        while not self.try_add_tables(batches):
            deadline = self._wait_for_room(size, deadline)

    def try_add_tables(self, batches: Sequence[TableBatch]) -> bool:
        """Add them, if there is room for all; False: there isn't. Raises what the queue was ended with."""
        size = sum(batch.size_bytes for batch in batches)
        with self.lock:
            self._raise_if_ended()
            if not self._buffer.take_room(size, at_most=size):
                return False
            self.close_open()
            self._waiting.extend(batches)
            return True

    def close_open(self) -> None:
        """Make the open batch wait no longer for more records. The lock is held."""
        self.changed.notify()
        self._open = None

    def notify_sender(self) -> None:
        """Let a thread look whether it may take what waits: something else was staged or committed, or is about to be.
        The lock is held."""
        if self._waiting:
            self.changed.notify()

    def wait_ms(self, *, now_ticks_ms: float, idle: bool, not_before_ticks_ms: float = float("-inf")) -> float | None:
        """The time that the sender has to wait for a batch: 0 when there is one, None as long as nothing is there.

        Pure; the lock is held.

        Args:
            idle: nothing that was sent before waits for its commit. While something does, records gather, unless a
                batch is full: waiting costs no time then, and makes larger files.
            not_before_ticks_ms: a batch that isn't full, and that nobody flushes, waits until then.
        """
        if not self._waiting:
            return None
        if self._open is None or len(self._waiting) > 1:
            return 0.0
        if self._open.size_bytes >= self._batch_size or self._buffer.waiting_count:
            return 0.0
        if not idle or self.gathers:
            return None
        return max(
            0.0, self._open.created_ticks_ms + self._linger_ms - now_ticks_ms, not_before_ticks_ms - now_ticks_ms
        )

    def take_batches(self) -> list[Batch]:
        """The next batches, together not larger than one may be; none where those that were due have no records. For
        the sender. The lock is held."""
        if self._waiting and self._waiting[0] is self._open:
            self._open = None
        taken: list[Batch] = []
        size, is_any_empty = 0, False
        while self._waiting and self._waiting[0] is not self._open:
            batch = self._waiting[0]
            if taken and size + batch.size_bytes > self._max_batch_bytes:
                break
            if batch.count:
                taken.append(batch)
                size += batch.size_bytes
                self._taken[batch] = None
            else:
                batch.is_finished = is_any_empty = True
            self._waiting.popleft()
        if is_any_empty:  # nobody settles these: whoever flushes, or waits for their room, looks again now
            self._finished.notify_all()
            self._buffer.notify_room()
        return taken

    def take_all_batches(self) -> list[Batch]:
        """Every batch that wasn't taken. For the sender and the committer. The lock is held."""
        self.close_open()
        taken: list[Batch] = []
        while self._waiting:
            taken += self.take_batches()
        return taken

    @property
    def has_records(self) -> bool:
        """Whether something is left to take. The lock is held."""
        return bool(self._waiting)

    @property
    def has_whole_batch(self) -> bool:
        """Does as much wait as is worth an upload, whatever else is on its way? The lock is held."""
        return sum(batch.size_bytes for batch in self._waiting) >= self._whole_batch_bytes

    def note_encoded(self, batches: Sequence[Batch], file_bytes: int) -> None:
        """Batches that were taken together are encoded into files of so many bytes: what else they took is free."""
        count_encoded(batches, file_bytes)
        self._buffer.notify_room()

    def unfinished(self) -> list[Batch]:
        """Every batch that isn't settled, with its callbacks run, in their order."""
        return [*self._taken, *self._waiting]

    def begin_flush(self) -> None:
        """Let the records that were gathered wait no longer for more of them."""
        with self.lock:
            self.close_open()

    def flush(self, deadline: Deadline) -> bool:
        """Wait until everything that was added before is settled and its callbacks have run; False: not in time."""
        with self.lock:
            self.close_open()
            before = self.unfinished()

        def is_finished() -> bool:
            while before and (before[-1].is_finished or before[-1].is_told):
                before.pop()
            return not before

        return self._finished.wait_for(is_finished, deadline.left_ms / 1000)

    def finish_batch(self, batch: Batch) -> None:
        """The batch is settled and its callbacks have run: give its room back. Again does nothing."""
        with self.lock:
            self.notify_sender()
            self._taken.pop(batch, None)
            batch.is_finished = True
        self._finished.notify_all()
        self._buffer.notify_room()

    def take_overdue(self, *, before_ticks_ms: float) -> list[Batch]:
        """Batches that nobody takes though their time is over: the threads are held up. The lock is held."""
        late = [batch for batch in self._waiting if batch.created_ticks_ms <= before_ticks_ms and not self.gathers]
        if self._open in late:
            self.close_open()
        self._waiting = deque(batch for batch in self._waiting if batch not in late)
        return late

    def note_told(self, batches: Sequence[Batch]) -> None:
        """Whoever flushes waits no longer for these; room is given back for what no thread has."""
        for batch in batches:
            batch.is_told = True
            if batch not in self._taken:
                self.finish_batch(batch)
        self._finished.notify_all()

    def held_bytes(self) -> int:
        """Bytes of the buffer that the batches take, with the room that the open one has ahead. The lock is held."""
        if not (self._waiting or self._taken):  # asked of all of many topics, whenever a batch begins
            return 0
        spare = 0 if self._open is None else max(0, self._open.room_bytes - self._open.size_bytes)
        return spare + sum(batch.held_bytes for batch in self.unfinished())

    def give_back_room(self) -> None:
        """Let the next record ask for room. The lock is held."""
        if self._open is not None:
            self._open.room_bytes = 0

    def refuse_records(self, error: SparklogError) -> None:
        """Take no more records: adding raises ``error``. The lock is held."""
        self.close_open()
        self.changed.notify()
        self._ended = error
        self._buffer.notify_room()

    def close(self) -> None:
        """Leave the buffer: nothing will be added or taken any more."""
        self._buffer.remove(self)

    def fail_after_fork(self, error: SparklogError) -> None:
        """Fail all batches, in a forked child: it has no thread that sends them, and locks may be held by nobody."""
        for batch in self.unfinished():
            batch.fail_after_fork(error)

    def _batch_with_room(self, size_bytes: int) -> RecordBatch | None:
        """The open batch with more room, or a new one; None: the buffer has none for the record. The lock is held."""
        batch = self._open
        if batch is None or batch.size_bytes >= self._max_batch_bytes:
            return self._begin(size_bytes)
        size_after = batch.size_bytes + size_bytes
        mark = self._batch_size if size_after < self._batch_size else self._max_batch_bytes
        batch.room_bytes = 0
        room = self._buffer.take_room(size_bytes, at_most=mark - 1 - batch.size_bytes)
        if room == 0:
            return None
        if size_after >= self._batch_size > batch.size_bytes:
            self.changed.notify()
        batch.room_bytes = batch.size_bytes + room
        return batch

    def _begin(self, size_bytes: int) -> RecordBatch | None:
        self._raise_if_ended()
        room_bytes = self._buffer.take_room(size_bytes, at_most=self._batch_size - 1)
        if room_bytes == 0:
            return None
        batch = RecordBatch(self.topic, created_ticks_ms=self._clock.ticks_ms())
        batch.room_bytes = room_bytes
        if self.gathers:  # somebody will wait for it, or it becomes full
            batch.begin_flush = self.begin_flush
        else:  # late: who is woken waits for the lock
            self.changed.notify()
        self._waiting.append(batch)
        self._open = batch
        return batch

    def _wait_for_room(self, size_bytes: int, deadline: Deadline | None) -> Deadline:
        """Wait until the record fits in; others may be faster than the caller, who waits again then.

        Returns the moment at which ``max_block_ms`` are over."""
        began = self._clock.ticks_ms()
        deadline = deadline or self._clock.deadline_in(self._max_block_ms)
        has_room = self._buffer.wait_for_room(size_bytes, deadline.left_ms, given_up=lambda: self._ended is not None)
        with self.lock:
            self._buffer.waited_ms += self._clock.ticks_ms() - began
            self._buffer.exhausted_count += not has_room
        if not has_room:
            raise KafkaTimeoutError(
                f"no room for {size_bytes} bytes in max_block_ms={self._max_block_ms}: {self._buffer.used_bytes} of "
                f"buffer_memory={self._buffer.limit_bytes} wait to be delivered"
            )
        return deadline

    def _raise_if_ended(self) -> None:
        if self._ended is not None:
            raise self._ended.with_traceback(None)
        self.check_open()


def _always_open() -> None:
    """Records may be sent at any time."""
