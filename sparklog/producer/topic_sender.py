"""The thread that takes a topic's batches from its queue, encodes and uploads them. It appends nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sparklog.clock import Clock, Deadline
from sparklog.config import ProducerConfig
from sparklog.errors import KafkaTimeoutError, SparklogError, StoreError, UnknownTopicOrPartitionError
from sparklog.log import StagedFile
from sparklog.producer.batch import Batch
from sparklog.producer.in_flight import InFlightBatches, UploadResult
from sparklog.producer.metrics import ProducerMetrics
from sparklog.producer.partitioner import StickyPartition
from sparklog.producer.prepared_batch import PreparedBatch, prepare
from sparklog.producer.topic_committer import TopicCommitter
from sparklog.producer.topic_queue import TopicQueue
from sparklog.producer.writable_topic import WritableTopic, unexpected_error
from sparklog.workers import Worker

__all__ = ["TopicSender"]


class TopicSender:
    """A topic's first thread. What it has uploaded it hands over, in the order of sending.

    While a commit is under way the next batch is uploaded and more records gather: batching adapts by itself.
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
        """Create the thread, which isn't started.

        Args:
            hand_over: called with what was uploaded, or couldn't be.
        """
        self.worker = Worker(f"sender-{topic.name}", self._run)
        self._topic = topic
        self._queue = queue
        self._in_flight = in_flight
        self._committer = committer
        self._hand_over = hand_over
        self._config = config
        self._clock = clock
        self._metrics = metrics
        self._sticky = StickyPartition(config.batch_size)
        self._is_ending = False

    def end_when_empty(self) -> None:
        """Let the thread end once the queue, which takes no more, is empty. The lock is held."""
        self._is_ending = True

    def _run(self) -> None:
        while True:
            batches = self._next_batches()
            if not batches:
                break
            self._hand_over(self._upload(batches))
        self._committer.end_when_done()

    def _next_batches(self) -> Sequence[Batch]:
        """Wait for batches to send; empty at the end."""
        queue, in_flight = self._queue, self._in_flight
        with queue.lock:
            while True:
                wait_ms: float | None = None
                if in_flight.count < self._config.max_in_flight_requests_per_connection:
                    is_idle = not self._committer.has_uploaded
                    wait_ms = queue.wait_ms(now_ticks_ms=self._clock.ticks_ms(), idle=is_idle)
                if wait_ms == 0.0:
                    batches = queue.take_batches()
                    if not batches:
                        continue
                    in_flight.begin_upload(batches)
                    return batches
                if self._is_ending and not queue.has_records:
                    return []
                queue.changed.wait(None if wait_ms is None else wait_ms / 1000)

    def _upload(self, batches: Sequence[Batch]) -> UploadResult:
        """Encode and upload; an error is part of the result: the batches fail when it is their turn."""
        began = self._clock.ticks_ms()
        waits_since = began if self._queue.gathers else batches[0].created_ticks_ms  # what gathers may wait for long
        deadline = Deadline(self._clock, waits_since + self._config.delivery_timeout_ms)
        files: Sequence[StagedFile] = []
        prepared: PreparedBatch | None = None
        try:
            if self._topic.is_gone:
                raise UnknownTopicOrPartitionError(f"topic {self._topic.name!r} was deleted")
            if deadline.has_passed:
                raise self._too_late(batches, "it waited for the batches before it")
            head = self._topic.head
            prepared = prepare(
                batches,
                head.config,
                partition_count=head.partition_count,
                sticky=self._sticky,
                now_ms=self._clock.now_ms(),
            )
            if prepared.parts:
                files = self._topic.upload_parts(prepared.parts, deadline=deadline)
            result = UploadResult(batches=batches, prepared=prepared.without_records(), files=files)
            self._metrics.encoded(batches, queued_ms=began - batches[0].created_ticks_ms, files=files)
        except StoreError as error:
            too_late = self._too_late(batches, str(error)) if error.retriable else error
            return self._failed(batches, prepared, too_late)
        except SparklogError as error:
            return self._failed(batches, prepared, error)
        except BaseException as error:
            unexpected = self._in_flight.aborted or unexpected_error(self._topic.name, error)
            return self._failed(batches, prepared, unexpected)
        return result

    def _failed(self, batches: Sequence[Batch], prepared: PreparedBatch | None, error: SparklogError) -> UploadResult:
        """The result of a failed upload. Others may publish what was announced: it goes to the committer with its
        files."""
        files = self._topic.failed_upload()
        kept = prepared.without_records() if prepared is not None and files else None
        return UploadResult(batches=batches, prepared=kept, files=files, error=error)

    def _too_late(self, batches: Sequence[Batch], why: str) -> KafkaTimeoutError:
        count = sum(batch.count for batch in batches)
        return KafkaTimeoutError(
            f"{count} records of topic {self._topic.name!r} were not stored with "
            f"delivery_timeout_ms={self._config.delivery_timeout_ms} and retries={self._config.retries}: {why}"
        )
