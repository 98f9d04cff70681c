"""The thread that appends what a topic's sender has uploaded, and settles the batches' futures."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from sparklog.clock import Clock, Deadline
from sparklog.config import ProducerConfig
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import AppendResult
from sparklog.logs import about, without_content
from sparklog.producer.batch import Batch, settle_batches
from sparklog.producer.in_flight import InFlightBatches, UploadResult
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.outcome import Outcome, Stored
from sparklog.producer.overdue import overdue_errors
from sparklog.producer.topic_queue import TopicQueue
from sparklog.producer.writable_topic import WritableTopic, announces, unexpected_error

__all__ = ["TopicCommitter"]

_NOTHING = AppendResult(base_offsets=(), delta_version=-1)
_LOGGER = logging.getLogger("sparklog.producer")
WITHDRAW_MS = 5_000
"""For how long withdrawals of announced records are tried; by as much a future may be late."""


class TopicCommitter:
    """The work of a topic's committer, done by one of its threads at a time. Whatever is uploaded when it begins goes
    into one commit.

    A batch that isn't in the log ``delivery_timeout_ms`` after its first record fails.
    """

    def __init__(
        self,
        topic: WritableTopic,
        queue: TopicQueue,
        in_flight: InFlightBatches,
        *,
        config: ProducerConfig,
        clock: Clock,
        metrics: ProducerMetrics,
        callbacks: threading.RLock,
    ) -> None:
        """
        Args:
            callbacks: held while callbacks run: no two of a producer run at once.
        """
        self.is_needed: Callable[[], bool] = _never
        """Must a thread stay although nothing more is sent, for calls that are still to come? Asked with the lock
        held."""
        self.others_wait: Callable[[], bool] = _never
        """Do other topics wait for a thread?"""
        self.is_at_work = False
        """Is a thread the committer now? Guarded by the lock."""
        self._topic = topic
        self._queue = queue
        self._in_flight = in_flight
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._callbacks = callbacks
        self._more = threading.Condition(queue.lock)
        """Notified when there is more to commit, or other things to do. The committer alone waits for it."""
        self._uploaded: deque[UploadResult] = deque()
        self._committing: Sequence[UploadResult] = ()
        """The results that the committer has taken. Guarded by the lock."""
        self._calls: deque[Callable[[], None]] = deque()

    @property
    def has_uploaded(self) -> bool:
        """Does anything that was uploaded wait for its commit? The lock is held."""
        return bool(self._uploaded)

    @property
    def may_begin(self) -> bool:
        """Is there something for a thread to do by :meth:`work`? The lock is held."""
        return not self.is_at_work and bool(self._uploaded or self._calls)

    @property
    def is_done(self) -> bool:
        """Is nothing left to do, once nothing more is sent? The lock is held."""
        is_empty = not (self.is_at_work or self._uploaded or self._calls)
        return is_empty and not (self._in_flight.aborted is None and self.is_needed())

    def add(self, result: UploadResult) -> None:
        """Commit this once it is its turn; what failed before its upload waits for its turn as well.

        For a topic's thread, which asks afterwards whether it :attr:`may_begin`."""
        with self._queue.lock:
            if self._in_flight.end_upload(result.batches) is None:
                return
            self._uploaded.append(result.if_overdue())
            self._more.notify_all()

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the committer make a call: it alone commits. The lock is held."""
        self._calls.append(call)
        self._more.notify_all()
        self._queue.changed.notify()

    def look_again(self) -> None:
        """Let the threads ask again whether they are needed. The lock is held."""
        self._queue.changed.notify()

    def close(self) -> None:
        """End the writer: the last thread has ended."""
        self._topic.close()
        self._queue.close()

    def abort(self, error: SparklogError, *, in_callback: bool) -> None:
        """Give up what isn't being appended at this moment: it fails with ``error``, and is not stored.

        Args:
            in_callback: called by a callback: they fail after the callbacks that come before theirs. While a callback
                runs elsewhere, theirs are left to whoever commits next: it may never end.
        """
        with self._queue.lock:
            self._in_flight.aborted = error
            waiting = self._queue.take_all_batches()
            if waiting:
                self._in_flight.note_taken()
            unknown = CommitStateUnknownError(
                f"topic {self._topic.name!r}: {error}; other producers may have stored these records, or may yet"
            )
            aborted = [
                UploadResult(batches=result.batches, error=unknown)
                if self._topic.is_announced(result.files)
                else result.aborted(error)
                for result in self._uploaded
            ]
            uploading_error = unknown if self._topic.stop_announcing() else error
            aborted += [UploadResult(batches=one.batches, error=uploading_error) for one in self._in_flight.uploads]
            if waiting:
                aborted.append(UploadResult(batches=waiting, error=error))
            self._in_flight.uploads.clear()
            self._uploaded.clear()
            self._more.notify_all()
            self._queue.changed.notify()
            if in_callback or not self._callbacks.acquire(blocking=False):
                self._uploaded.extend(aborted)
                for result in () if in_callback else aborted:
                    for batch in result.batches:
                        batch.settle(Outcome(error=result.error))
                return
        try:
            self._fail(aborted, error)
        finally:
            self._callbacks.release()

    def give_up_overdue(self, *, before_ticks_ms: float) -> list[tuple[Batch, SparklogError]]:
        """Give up batches whose time was over at a moment, in their order, each with the error that it is to be settled
        with, and that stays true whatever the threads that have them come to do. The lock is held."""
        if self._in_flight.aborted is not None:
            return []
        overdue: list[tuple[Batch, SparklogError]] = []

        def give_up(batches: Sequence[Batch], since: float, error: SparklogError) -> bool:
            is_late = since <= before_ticks_ms and not any(batch.outcome is not None for batch in batches)
            if is_late:
                for batch in batches:
                    batch.is_overdue = True
                overdue.extend((batch, error) for batch in batches)
            return is_late

        late, unknown = overdue_errors(self._topic.name, self._config)
        for result in self._committing:
            give_up(result.batches, result.batches[0].created_ticks_ms, unknown)
        for result in self._uploaded:
            error = unknown if self._topic.is_announced(result.files) else late
            give_up(result.batches, result.batches[0].created_ticks_ms, error)
        for upload in self._in_flight.uploads:
            is_named = upload.put_ticks_ms is not None and announces(self._config)
            since = upload.taken_ticks_ms or upload.batches[0].created_ticks_ms
            give_up(upload.batches, since, unknown if is_named else late)
        for batch in self._queue.take_overdue(before_ticks_ms=before_ticks_ms):
            give_up([batch], batch.created_ticks_ms, late)
        return overdue

    def tell_overdue(self, overdue: Sequence[tuple[Batch, SparklogError]]) -> None:
        """Settle what :meth:`give_up_overdue` gave up. Room is given back for what no thread has."""
        batches = [batch for batch, _ in overdue]
        settle_batches([(batch, Outcome(error=error)) for batch, error in overdue], self._callbacks)
        self._metrics.settled(self._topic.name, batches)
        with self._queue.lock:
            self._uploaded = deque(result.if_overdue() for result in self._uploaded)
        self._queue.note_told(batches)

    def work(self) -> None:
        """Be the committer until nothing is left to commit, or other topics wait for a thread. For a thread that found
        that it :attr:`may_begin`, and has set :attr:`is_at_work` before it gave up the lock."""
        try:
            while self._commit_next():
                if self.others_wait():
                    with self._queue.lock:
                        self.is_at_work = False
                    return
        except BaseException:  # a defect: others go on
            with self._queue.lock:
                self.is_at_work = False
                self._queue.changed.notify()
            raise

    def _commit_next(self) -> bool:
        """Commit what is uploaded, and make the calls that were asked for. False: nothing was left, and this thread is
        the committer no more."""
        with self._queue.lock:
            self._wait_for_more()
            uploaded = list(self._uploaded)
            self._uploaded.clear()
            calls = list(self._calls)
            self._calls.clear()
            self._committing = uploaded
            self.is_at_work = bool(uploaded or calls)
            if not self.is_at_work:
                return False
            self._queue.notify_sender()
        taken = uploaded
        try:
            for call in calls:
                call()
            while uploaded:
                uploaded = self._commit(uploaded)
                if self._in_flight.aborted is not None:
                    self._fail(uploaded, self._in_flight.aborted)
                    break
        except BaseException as error:  # a defect, after which nobody commits these
            self._give_up(taken, error)
            raise
        return True

    def _give_up(self, taken: Sequence[UploadResult], error: BaseException) -> None:
        """End batches that were taken for a commit, of which it isn't known how far they came, without all that may
        have the defect: who waits for them, or for their room, goes on."""
        unknown = CommitStateUnknownError(
            f"topic {self._topic.name!r}: it isn't known whether these records are stored"
        )
        unknown.__cause__ = unexpected_error(self._topic.name, error)
        for result in taken:
            if any(batch.outcome is None for batch in result.batches):
                for batch in result.batches:
                    if batch.outcome is None:
                        batch.settle(Outcome(error=unknown))
                with self._queue.lock:
                    self._in_flight.note_settled()
            for batch in result.batches:
                with self._callbacks:
                    batch.run_callbacks()
                self._queue.finish_batch(batch)

    def _wait_for_more(self) -> None:
        """Wait for uploads that are about to end, with what is uploaded already; not for long. The lock is held."""
        if not self._in_flight.is_slow:
            return
        since = self._clock.ticks_ms()
        while self._uploaded and not self._calls:
            wait_ms = self._in_flight.wait_for_more_ms(now_ticks_ms=self._clock.ticks_ms(), since_ticks_ms=since)
            if wait_ms <= 0.0:
                return
            self._more.wait(wait_ms / 1000)

    def _commit(self, uploaded: Sequence[UploadResult]) -> list[UploadResult]:
        """Commit all at once, up to the first that is to be withdrawn. Returns those whose turn comes after that, and
        those that are to be tried again: others of the same commit came too late."""
        to_withdraw = [number for number, result in enumerate(uploaded) if result.error is not None and result.files]
        if not to_withdraw:
            return self._append(uploaded)
        if to_withdraw[:1] == [0]:
            self._fail(uploaded[:1], IllegalStateError("its upload failed"))
            return [*uploaded[1:]]
        count = to_withdraw[0]
        return [*self._append(uploaded[:count]), *uploaded[count:]]

    def _append(self, uploaded: Sequence[UploadResult]) -> list[UploadResult]:
        """Commit all at once. Returns those that are to be tried again."""
        files = [file for result in uploaded for file in result.files]
        waits_since = min([result.batches[0].created_ticks_ms for result in uploaded])
        deadline = Deadline(self._clock, waits_since + self._config.delivery_timeout_ms)
        outcomes: list[Sequence[Outcome]] = []
        try:
            appended = self._topic.append_files(files, deadline=deadline) if files else _NOTHING
            start = 0
            for result in uploaded:
                end = start + len(result.files)
                of_batches = result.outcomes(appended.base_offsets[start:end], appended.rows[start:end])
                if any(batch.pieces for batch in result.batches):
                    of_batches = self._with_files(result, of_batches, appended, start)
                outcomes.append(of_batches)
                start = end
        except CommitStateUnknownError as error:
            self._fail(uploaded, error)
        except KafkaTimeoutError as error:
            return self._fail_late(uploaded, error)
        except SparklogError as error:
            if isinstance(error, UnknownTopicOrPartitionError):
                self._topic.mark_gone()
            self._fail(uploaded, error)
        except BaseException as error:
            self._fail(uploaded, unexpected_error(self._topic.name, error))
        else:
            for result, of_batches in zip(uploaded, outcomes, strict=True):
                self._settle(result.batches, of_batches)
        return []

    def _with_files(
        self, result: UploadResult, outcomes: Sequence[Outcome], appended: AppendResult, start: int
    ) -> Sequence[Outcome]:
        """Outcomes that state where pieces are. ``start`` is the index of the first file in the append."""
        files = {}
        for number, file in enumerate(result.files, start):
            if number >= len(appended.rows) or appended.rows[number] is None:
                base_offset = appended.base_offsets[number]
                files[file.partition] = (file.path, range(base_offset, base_offset + file.facts.record_count))
        stored = Stored(topic_id=self._topic.topic_id, delta_version=appended.delta_version, files=files)
        return [one if one.error is not None else replace(one, stored=stored) for one in outcomes]

    def _fail_late(self, uploaded: Sequence[UploadResult], error: SparklogError) -> list[UploadResult]:
        """Nothing of them is stored, but what others may have published: fail those whose time is over, and the first
        in any case."""
        now = self._clock.ticks_ms() - self._config.delivery_timeout_ms
        late = [result for result in uploaded if result.batches[0].created_ticks_ms <= now] or [uploaded[0]]
        self._fail(late, error)
        return [result for result in uploaded if result not in late]

    def _fail(self, uploaded: Sequence[UploadResult], error: SparklogError) -> None:
        """Fail batches, which aren't stored; what was announced may be, and is withdrawn first (rule L14, announced
        uploads): all of them within :data:`WITHDRAW_MS`."""
        deadline = self._clock.deadline_in(WITHDRAW_MS)
        for result in uploaded:
            failure = result.error or error
            if result.files and self._topic.is_announced(result.files):
                self._settle(result.batches, self._withdraw(result, failure, deadline))
            else:
                self._topic.forget_files(result.files)
                self._settle(result.batches, [Outcome(error=failure)] * len(result.batches))

    def _withdraw(self, result: UploadResult, failure: SparklogError, deadline: Deadline) -> Sequence[Outcome]:
        """How batches end that were announced, and failed: others may have published them, which is success."""
        try:
            is_too_late = deadline.has_passed and not self._topic.is_published(result.files)
            if is_too_late or self._in_flight.aborted is not None:  # nobody waits for it
                self._topic.forget_files(result.files)
                raise CommitStateUnknownError(
                    f"topic {self._topic.name!r}: {failure}; other producers may have stored these records, or may yet"
                )
            base_offsets = self._topic.withdraw_files(result.files, deadline=deadline)
        except CommitStateUnknownError as error:
            return [Outcome(error=error)] * len(result.batches)
        except UnknownTopicOrPartitionError as error:
            self._topic.mark_gone()
            return [Outcome(error=error)] * len(result.batches)
        except BaseException as error:
            unknown = CommitStateUnknownError(
                f"topic {self._topic.name!r}: whether announced records were stored is unknown: {error}"
            )
            unknown.__cause__ = unexpected_error(self._topic.name, error)
            return [Outcome(error=unknown)] * len(result.batches)
        if base_offsets is None or result.prepared is None:
            return [Outcome(error=failure)] * len(result.batches)
        return result.prepared.outcomes(base_offsets)

    def _settle(self, batches: Sequence[Batch], outcomes: Sequence[Outcome]) -> None:
        """Settle batches that the sender took together, and give their room back."""
        for batch, outcome in zip(batches, outcomes, strict=True):
            batch.settle(outcome)
        with self._queue.lock:
            self._in_flight.note_settled()
        if not any(batch.is_overdue for batch in batches):
            self._metrics.settled(self._topic.name, batches)  # first: who has flushed finds them counted
        for batch in batches:
            with self._callbacks:
                batch.run_callbacks()
            self._queue.finish_batch(batch)
        if self._config.acks == 0:
            _log_failures(self._topic.name, outcomes)


def _log_failures(topic: str, outcomes: Sequence[Outcome]) -> None:
    extra = about(topic=topic)
    for outcome in outcomes:
        if outcome.error is not None:
            _LOGGER.warning(
                "records of topic %s with acks=0 were lost: %s", topic, without_content(outcome.error), extra=extra
            )
        elif outcome.refused:
            first = next(iter(outcome.refused.values()))
            count, why = len(outcome.refused), without_content(first)
            _LOGGER.warning("%d records of topic %s with acks=0 were refused: %s", count, topic, why, extra=extra)


def _never() -> bool:
    """Nobody makes calls in this thread, nor waits for it."""
    return False
