"""A topic's threads: each takes batches from the queue, encodes and uploads them, and then commits what is uploaded,
unless another thread is at it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sparklog.clock import Clock, Deadline
from sparklog.config import ProducerConfig
from sparklog.errors import KafkaTimeoutError, SparklogError, StoreError, UnknownTopicOrPartitionError
from sparklog.log import StagedFile, StagedUpload
from sparklog.producer.batch import Batch
from sparklog.producer.few_records import prepare_few
from sparklog.producer.in_flight import InFlightBatches, UploadResult
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.ordered_results import OrderedResults
from sparklog.producer.partitioner import StickyPartition
from sparklog.producer.prepared_batch import PreparedBatch, prepare
from sparklog.producer.topic_committer import TopicCommitter
from sparklog.producer.topic_queue import TopicQueue
from sparklog.producer.typed_values import ValueEncoding
from sparklog.producer.writable_topic import WritableTopic, unexpected_error
from sparklog.workers import Worker

__all__ = ["TopicSender"]

_LOGGER = logging.getLogger("sparklog.producer")


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
    """A topic's threads. What they have uploaded they hand over, in the order of sending.

    A thread takes a batch all the way to the log: where nothing else is under way, no other one is woken for it. While
    it commits, another uploads the next batch and more records gather: batching adapts by itself. Where an upload takes
    long, others begin meanwhile, up to ``max_in_flight_requests_per_connection``, and on another machine's store as
    many more of batches that are worth an upload of their own: one thread after the other takes batches, encodes and
    numbers them, so they are staged in the order of sending, then sends them beside the others.
    There are two threads, of which one at a time uploads, until the store turns out to be slow.

    One thread is notified of what there is to do. So each that leaves something undone notifies another one.
    """

    def __init__(
        self,
        topic: WritableTopic,
        queue: TopicQueue,
        in_flight: InFlightBatches,
        committer: TopicCommitter,
        *,
        hand_over: Callable[[UploadResult], None],
        config: ProducerConfig,
        clock: Clock,
        metrics: ProducerMetrics,
    ) -> None:
        """Create the first two threads, which aren't started.

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
        self._is_ending = False
        self._workers = [Worker(f"sender-{topic.name}-{number}", self._run) for number in range(2)]
        """The threads that were started, and the first. Guarded by the buffer's lock, as are the next values."""
        self._ended_count = 0
        self._is_closed = False
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
        """Start the first threads, or one, which does the work of both. Raises ``RuntimeError`` where no thread can be
        started."""
        first, second = self._workers
        first.start()
        try:
            second.start()
        except RuntimeError as error:
            _LOGGER.info("topic %s has one thread: %s", self._topic.name, error)
            with self._queue.lock:
                self._workers.remove(second)

    def join(self, deadline: Deadline) -> bool:
        """Wait until all threads have ended. False: not in time."""
        with self._queue.lock:
            workers = [*self._workers]
        have_ended = [worker.join(deadline.left_ms / 1000) for worker in workers]
        return all(have_ended)

    @property
    def owns_current_thread(self) -> bool:
        """Is this called by a callback, which runs in one of these threads?"""
        return any(worker.is_current for worker in self._workers)

    def end_when_empty(self) -> None:
        """Let the threads end once the queue, which takes no more, is empty. The lock is held."""
        self._is_ending = True

    def _run(self) -> None:
        try:
            while self._do_next():
                pass
        except BaseException as error:  # a defect
            self._end_by(error)
            raise
        finally:
            with self._queue.lock:
                closes = self._ended_count == len(self._workers) and not self._is_closed
                self._is_closed = self._is_closed or closes
            if closes:
                self._committer.close()

    def _end_by(self, error: BaseException) -> None:
        """Leave what is to be done to the other threads; where none is left, all of it fails, as nobody would do it."""
        failure = self._failure(error)
        with self._queue.lock:
            self._ended_count += 1
            is_last = self._ended_count == len(self._workers)
            if is_last:
                self._queue.refuse_records(failure)
            self._queue.changed.notify_all()
        if is_last:
            self._committer.abort(failure, in_callback=False)

    def _do_next(self) -> bool:
        """Commit what is uploaded, or take batches, stage, send and hand them over; False: at the end. A thread that
        waits for more holds no bytes."""
        batches = self._next_batches()
        if batches is None:
            return False
        if not batches:
            self._committer.work()
            return True
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
        return True

    def _next_batches(self) -> Sequence[Batch] | None:
        """Wait for batches to send, which this thread is to stage; empty: it is to commit now; None: at the end."""
        queue, in_flight, committer = self._queue, self._in_flight, self._committer
        with queue.lock:
            while True:
                if committer.may_begin:
                    committer.is_at_work = True
                    queue.notify_sender()
                    return []
                wait_ms: float | None = None
                if self._may_begin():
                    is_idle = not committer.has_uploaded
                    wait_ms = queue.wait_ms(
                        now_ticks_ms=self._clock.ticks_ms(), idle=is_idle, not_before_ticks_ms=self._partial_ticks_ms()
                    )
                if wait_ms == 0.0:
                    batches = queue.take_batches()
                    if not batches:
                        continue
                    in_flight.begin_upload(batches, taken_ticks_ms=self._clock.ticks_ms() if queue.gathers else 0.0)
                    self._is_staging = True
                    self._uploading_count += 1
                    return batches
                if self._is_ending and not queue.has_records and self._may_end():
                    self._ended_count += 1
                    queue.changed.notify_all()
                    return None
                queue.changed.wait(None if wait_ms is None else wait_ms / 1000)

    def _may_end(self) -> bool:
        """May this thread end, where nothing waits to be sent? The last one stays until all is done. The lock is
        held."""
        is_last = self._ended_count + 1 == len(self._workers)
        return not is_last or (self._committer.is_done and not self._in_flight.uploads)

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
        """Start a thread more where all are sending and that takes long: a thread costs less than to wait for each
        upload. The lock is held."""
        count = self._most_uploading
        if count >= self._most_uploads or self._putting_count < count or not self._in_flight.is_slow or self._is_ending:
            return
        another = Worker(f"sender-{self._topic.name}-{len(self._workers)}", self._run)
        try:
            another.start()
        except RuntimeError as error:
            _LOGGER.info("uploads of topic %s go on one after the other: %s", self._topic.name, error)
            return
        self._workers.append(another)
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
