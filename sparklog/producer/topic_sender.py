"""The work of threads for a topic: each takes batches from the queue, encodes and uploads them, and then commits what
is uploaded, unless another thread is at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from sparklog.clock import Clock, Deadline
from sparklog.config import ProducerConfig
from sparklog.errors import KafkaTimeoutError, SparklogError, StoreError, UnknownTopicOrPartitionError
from sparklog.interrupts import SafeEvent
from sparklog.log import StagedFile, StagedUpload
from sparklog.producer.batch import Batch
from sparklog.producer.few_records import prepare_few
from sparklog.producer.in_flight import InFlightBatches, UploadResult
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.ordered_results import OrderedResults
from sparklog.producer.partitioner import StickyPartition
from sparklog.producer.prepared_batch import PreparedBatch, prepare
from sparklog.producer.shared_threads import Look, SharedThreads
from sparklog.producer.topic_committer import TopicCommitter
from sparklog.producer.topic_queue import TopicQueue
from sparklog.producer.typed_values import ValueEncoding
from sparklog.producer.writable_topic import WritableTopic, unexpected_error

__all__ = ["TopicSender"]


class _Upload(NamedTuple):
    """Batches that were taken together, as far as they have come."""

    batches: Sequence[Batch]
    deadline: Deadline
    began_ticks_ms: float
    prepared: PreparedBatch | None = None
    staged: StagedUpload | None = None
    """None where every record was refused, or after an error."""
    error: SparklogError | None = None


class TopicSender:
    """The work of a producer's threads for a topic. What they have uploaded they hand over, in the order of sending.

    A thread takes a batch all the way to the log: where nothing else is under way, no other one is woken for it. While
    it commits, another uploads the next batch and more records gather: batching adapts by itself. Where an upload takes
    long, others begin meanwhile, up to ``max_in_flight_requests_per_connection``, and on another machine's store as
    many more of batches that are worth an upload of their own: one thread after the other takes batches, encodes and
    numbers them, so they are staged in the order of sending, then sends them beside the others.
    Two threads at once work for a topic, of which one at a time uploads, until the store turns out to be slow. Which
    ones they are doesn't matter: all topics of a producer share its threads.

    One thread is notified of what there is to do. So each that leaves something undone notifies another one.
    """

    def __init__(
        self,
        topic: WritableTopic,
        queue: TopicQueue,
        in_flight: InFlightBatches,
        committer: TopicCommitter,
        threads: SharedThreads,
        *,
        hand_over: Callable[[UploadResult], None],
        config: ProducerConfig,
        clock: Clock,
        metrics: ProducerMetrics,
    ) -> None:
        """
        Args:
            hand_over: called with what was uploaded, or couldn't be.
        """
        self._topic = topic
        self._queue = queue
        self._in_flight = in_flight
        self._committer = committer
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._results = OrderedResults(hand_over)
        self._sticky = StickyPartition(config.batch_size)
        self._threads = threads
        self._turns = queue.changed
        self._turns.look, self._turns.fail = self._look, self._end_by
        committer.others_wait = lambda: threads.is_exhausted
        self._closed = SafeEvent()
        """Set once no thread will work for the topic any more."""
        self._is_ending = False
        """Guarded by the buffer's lock, as are the next values."""
        self._is_ended = False
        """Is nothing left to do but to close the topic?"""
        self._is_staging = False
        """Does a thread stage the batches that it has taken?"""
        self._uploading_count = 0
        """Threads that have taken batches, up to their hand-over."""
        self._most_uploading = 1
        """How many may at once: where uploads are quick what comes meanwhile gathers."""
        self._putting_count = 0
        self._newest_put_ticks_ms = float("-inf")
        """When the newest upload began to be sent."""

    def start(self) -> None:
        """Let threads work for the topic: two, or one where no other can be started, which does the work of both.
        Raises ``NoThreadError`` where there is none."""
        self._threads.add(self._turns, 2)

    def join(self, deadline: Deadline) -> bool:
        """Wait until no thread will work for the topic any more. False: not in time."""
        return self._closed.wait(deadline.left_ms / 1000)

    @property
    def owns_current_thread(self) -> bool:
        """Is this called by a callback, in a thread that works for the topic?"""
        return self._threads.works_for(self._turns)

    def end_when_empty(self) -> None:
        """Let the topic be closed once the queue, which takes no more, is empty. The lock is held."""
        self._is_ending = True

    def _close(self) -> None:
        try:
            self._committer.close()
        finally:
            with self._queue.lock:
                self._threads.remove(self._turns)
            self._closed.set()

    def _end_by(self, error: BaseException) -> None:
        """Leave what is to be done to other threads, with one place less; where none is left, all of it fails, as
        nobody would do it."""
        failure = self._failure(error)
        with self._queue.lock:
            self._threads.remove_place(self._turns)
            is_last = self._turns.places <= 0 and not self._closed.is_set()
            if is_last:
                self._is_ended = True
                self._queue.refuse_records(failure)
        if is_last:
            self._committer.abort(failure, in_callback=False)
            self._close()

    def _look(self) -> Look:
        """Decide what a thread is to do: commit what is uploaded, or send batches, which it has taken, or close the
        topic. The lock is held. A thread that waits for more holds no bytes."""
        queue, in_flight, committer = self._queue, self._in_flight, self._committer
        if committer.may_begin:
            committer.is_at_work = True
            queue.notify_sender()
            return Look(committer.work)
        wait_ms: float | None = None
        while self._may_begin():
            is_idle = not committer.has_uploaded
            wait_ms = queue.wait_ms(
                now_ticks_ms=self._clock.ticks_ms(), idle=is_idle, not_before_ticks_ms=self._partial_ticks_ms()
            )
            if wait_ms != 0.0:
                break
            batches = queue.take_batches()
            if batches:
                in_flight.begin_upload(batches, taken_ticks_ms=self._clock.ticks_ms() if queue.gathers else 0.0)
                self._is_staging = True
                self._uploading_count += 1
                return Look(partial(self._send_batches, batches))
        if self._is_ending and not queue.has_records and self._may_end():
            self._is_ended = True
            return Look(self._close)
        return Look(wait_ms=wait_ms)

    def _send_batches(self, batches: Sequence[Batch]) -> None:
        """Stage, send and hand over batches that were taken."""
        number = self._results.begin()
        try:
            upload = self._stage(batches)
            with self._queue.lock:
                self._is_staging = False
                if self._uploading_count < self._most_uploading:
                    self._queue.notify_sender()
            self._results.end(number, self._put(upload))
        finally:
            with self._queue.lock:
                self._uploading_count -= 1

    def _may_end(self) -> bool:
        """May the topic be closed, where nothing waits to be sent? The last thread that works for it looks once all is
        done. The lock is held."""
        is_done = self._committer.is_done and not self._in_flight.uploads
        return is_done and self._turns.at_work_count == 1 and not self._is_ended

    def _may_begin(self) -> bool:
        """May one more upload begin? The lock is held.

        As many batches as requests may be in flight may be on their way to the log. Batches beyond these gather until
        they are worth an upload, and then wait for none of the commits, which take as long as an upload: while memory
        (``buffer_memory``) lasts, uploads alone bound how much is sent.
        """
        if self._is_staging or self._uploading_count >= self._most_uploading:
            return False
        in_flight = self._in_flight
        if in_flight.count < self._config.max_in_flight_requests_per_connection:
            return True
        return len(in_flight.uploads) < self._most_uploads and self._queue.has_whole_batch

    @property
    def _most_uploads(self) -> int:
        """How many uploads of a topic may be under way at once, where whole batches wait.

        On another machine's store what they take is mostly its latency. With five at once, each a batch of 6 MiB, it
        alone would bound a producer that fills a folder faster.
        """
        return self._config.max_in_flight_requests_per_connection * (2 if self._in_flight.is_remote else 1)

    def _partial_ticks_ms(self) -> float:
        """The moment from which on a batch that isn't full may be sent. The lock is held.

        It waits until the newest upload that is under way has taken as long as the one before: commits follow one
        another, so an upload that ends in the midst of one would wait for its end, and cost a request more.
        """
        if not self._putting_count:
            return float("-inf")
        return self._newest_put_ticks_ms + self._in_flight.put_ms

    def _stage(self, batches: Sequence[Batch]) -> _Upload:
        """Encode and number batches; an error is part of the result: the batches fail when it is their turn."""
        began = self._clock.ticks_ms()
        waits_since = began if self._queue.gathers else batches[0].created_ticks_ms  # what gathers may wait for long
        deadline = Deadline(self._clock, waits_since + self._config.delivery_timeout_ms)
        try:
            if self._topic.is_gone:
                raise UnknownTopicOrPartitionError(f"topic {self._topic.name!r} was deleted")
            if deadline.has_passed:
                raise self._too_late(batches, "it waited for the batches before it")
            prepared = self._prepare(batches, deadline)
            staged = self._topic.stage_parts(prepared.parts, prepared.part_batches) if prepared.parts else None
            self._queue.note_encoded(batches, 0 if staged is None else staged.size_bytes)
            return _Upload(
                batches=batches,
                deadline=deadline,
                began_ticks_ms=began,
                prepared=prepared.without_records(),
                staged=staged,
            )
        except BaseException as error:
            return _Upload(batches=batches, deadline=deadline, began_ticks_ms=began, error=self._failure(error))

    def _prepare(self, batches: Sequence[Batch], deadline: Deadline) -> PreparedBatch:
        head, now_ms = self._topic.head, self._clock.now_ms()
        into: dict[str, Any] = {"partition_count": head.partition_count, "sticky": self._sticky, "now_ms": now_ms}
        encoding = ValueEncoding.of(self._topic.name, head)
        few = prepare_few(batches, head.config, **into) if encoding is None else None
        return few or prepare(
            batches,
            head.config,
            **into,
            encoding=encoding,
            renew=lambda why: self._topic.newer_encoding(encoding, why, deadline),
        )

    def _put(self, upload: _Upload) -> UploadResult:
        """Send what was staged; an error is part of the result."""
        batches, prepared, staged = upload.batches, upload.prepared, upload.staged
        if upload.error is not None or prepared is None:
            return UploadResult(batches=batches, error=upload.error)
        files: Sequence[StagedFile] = ()
        try:
            if staged is not None:
                files = self._send(batches, staged, upload.deadline)
            self._metrics.encoded(batches, queued_ms=upload.began_ticks_ms - batches[0].created_ticks_ms, files=files)
            return UploadResult(batches=batches, prepared=prepared, files=files)
        except BaseException as error:
            failure = self._failure(error)
            if isinstance(error, StoreError) and error.retriable:
                failure = self._too_late(batches, str(error))
            # Others may publish what was announced: it goes to the committer with its files.
            is_nowhere = staged is None or (isinstance(error, StoreError) and error.is_refusal)
            kept = files or ([] if staged is None or is_nowhere else staged.files_if_failed)
            return UploadResult(batches=batches, prepared=prepared if kept else None, files=kept, error=failure)

    def _send(self, batches: Sequence[Batch], staged: StagedUpload, deadline: Deadline) -> Sequence[StagedFile]:
        began = self._clock.ticks_ms()
        with self._queue.lock:
            self._in_flight.begin_put(batches, now_ticks_ms=began)
            self._putting_count += 1
            self._newest_put_ticks_ms = began
            self._start_another_if_useful()
        try:
            files = self._topic.put_staged(staged, deadline=deadline)
            put_ms = self._clock.ticks_ms() - began
        finally:
            with self._queue.lock:
                self._putting_count -= 1
        with self._queue.lock:
            self._in_flight.put_ms = put_ms
        return files

    def _start_another_if_useful(self) -> None:
        """Let a thread more work for the topic where all are sending and that takes long: a thread costs less than to
        wait for each upload. The lock is held."""
        count = self._most_uploading
        if count >= self._most_uploads or self._putting_count < count or not self._in_flight.is_slow or self._is_ending:
            return
        if self._threads.add_place(self._turns):
            self._most_uploading += 1

    def _failure(self, error: BaseException) -> SparklogError:
        if isinstance(error, SparklogError):
            return error
        return self._in_flight.aborted or unexpected_error(self._topic.name, error)

    def _too_late(self, batches: Sequence[Batch], why: str) -> KafkaTimeoutError:
        count = sum(batch.count for batch in batches)
        return KafkaTimeoutError(
            f"{count} records of topic {self._topic.name!r} were not stored with "
            f"delivery_timeout_ms={self._config.delivery_timeout_ms} and retries={self._config.retries}: {why}"
        )
