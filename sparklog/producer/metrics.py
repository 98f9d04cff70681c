"""A producer's metrics, under Kafka's names and in Kafka's groups. Source: Kafka ``SenderMetricsRegistry``."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from sparklog.clock import Clock
from sparklog.log import StagedFile
from sparklog.metrics import MetricGroup, Sensor
from sparklog.producer.batch import Batch
from sparklog.producer.buffer import Buffer
from sparklog.producer.observer import ProducerObserver
from sparklog.producer.outcome import Outcome
from sparklog.storage.request_counts import RequestCounts

__all__ = ["ProducerMetrics"]

_LOGGER = logging.getLogger("sparklog.producer")
_TRANSACTION_CALLS = ("init", "begin", "send-offsets", "commit", "abort")


class _Topic:
    def __init__(self, clock: Clock) -> None:
        self.sent = Sensor(clock)
        """Bytes, counted by records."""
        self.failed = Sensor(clock)


class ProducerMetrics:
    """Recorded once per batch, not per record."""

    def __init__(self, clock: Clock, buffer: Buffer) -> None:
        self._clock = clock
        self._buffer = buffer
        self.observer: ProducerObserver | None = None
        self._topics: dict[str, _Topic] = {}
        self._batch_bytes = Sensor(clock)
        self._queue_ms = Sensor(clock)
        self._request_ms = Sensor(clock)
        self._records_per_request = Sensor(clock)
        self._record_bytes = Sensor(clock)
        self._file_bytes = Sensor(clock)
        self._failed = Sensor(clock)
        self._flush_ns = Sensor(clock)
        self._transaction_ns = {call: Sensor(clock) for call in _TRANSACTION_CALLS}

    def add_topic(self, topic: str) -> None:
        """Before anything of the topic is recorded."""
        self._topics.setdefault(topic, _Topic(self._clock))

    def encoded(self, batches: Sequence[Batch], *, queued_ms: float, files: Sequence[StagedFile]) -> None:
        """Batches were encoded and uploaded."""
        now_ms = self._clock.ticks_ms()
        self._batch_bytes.record(sum([batch.size_bytes for batch in batches]), now_ms=now_ms)
        self._queue_ms.record(queued_ms, now_ms=now_ms)
        self._records_per_request.record(sum([batch.count for batch in batches]), now_ms=now_ms)
        size = sum([len(file.batch.data) for file in files])
        self._file_bytes.record(size, count=max(1, len(files)), now_ms=now_ms)

    def appended(self, *, latency_ms: float) -> None:
        """A commit was made."""
        self._request_ms.record(latency_ms)

    def settled(self, topic: str, batches: Sequence[Batch]) -> None:
        """Batches are stored, or uploaded within a transaction, or failed."""
        sensors, now_ms = self._topics[topic], self._clock.ticks_ms()
        for batch in batches:
            outcome, count = batch.outcome or batch.uploaded_outcome, batch.count
            failed = count if outcome is None or outcome.error else len(outcome.refused or ())
            if failed:
                self._failed.record(failed, now_ms=now_ms)
                sensors.failed.record(failed, now_ms=now_ms)
            if count > failed:
                size = batch.size_bytes
                sensors.sent.record(size, count=count - failed, now_ms=now_ms)
                self._record_bytes.record(size, count=count, greatest=size / count, now_ms=now_ms)
            if self.observer is not None:
                self._observe(self.observer, batch, outcome, failed)

    def _observe(self, observer: ProducerObserver, batch: Batch, outcome: Outcome | None, failed: int) -> None:
        try:
            observer.settled(
                batch.topic,
                sent=batch.count - failed,
                failed=failed,
                error=_error_of(outcome),
                took_s=(self._clock.ticks_ms() - batch.created_ticks_ms) / 1_000,
            )
        except Exception:  # the thread that commits must go on, whatever an SDK does
            _LOGGER.exception("an observer of a producer failed")

    def flushed(self, duration_ms: float) -> None:
        """A flush took so long."""
        self._flush_ns.record(duration_ms * 1e6)

    @contextmanager
    def transaction_call(self, call: str) -> Iterator[None]:
        """Count the time of a call for transactions: ``init``, ``begin``, ``send-offsets``, ``commit`` or ``abort``."""
        began, observer = self._clock.ticks_ms(), self.observer
        try:
            with observer.transaction_call(call) if observer is not None else nullcontext():
                yield
        finally:
            self._transaction_ns[call].record((self._clock.ticks_ms() - began) * 1e6)

    def groups(self, *, requests_in_flight: int, asked: RequestCounts) -> list[MetricGroup]:
        """All values: of the producer, of its commits, of each topic, and of its store.

        Args:
            asked: what was asked of the store.
        """
        topics = list(self._topics.items())
        producer = {
            "record-send-rate": sum(topic.sent.count_rate() for _, topic in topics),
            "record-send-total": float(sum(topic.sent.count for _, topic in topics)),
            "record-error-rate": self._failed.rate(),
            "record-error-total": self._failed.total,
            "record-size-avg": self._record_bytes.mean(),
            "record-size-max": self._record_bytes.maximum(),
            "record-queue-time-avg": self._queue_ms.mean(),
            "record-queue-time-max": self._queue_ms.maximum(),
            "records-per-request-avg": self._records_per_request.mean(),
            "batch-size-avg": self._batch_bytes.mean(),
            "batch-size-max": self._batch_bytes.maximum(),
            "request-rate": self._request_ms.count_rate(),
            "request-total": float(self._request_ms.count),
            "request-latency-avg": self._request_ms.mean(),
            "request-latency-max": self._request_ms.maximum(),
            "requests-in-flight": float(requests_in_flight),
            "outgoing-byte-rate": self._file_bytes.rate(),
            "outgoing-byte-total": self._file_bytes.total,
            "request-size-avg": self._file_bytes.mean(),
            "compression-rate-avg": _ratio(self._file_bytes.total, self._batch_bytes.total),
            "buffer-total-bytes": float(self._buffer.limit_bytes),
            "buffer-available-bytes": float(max(0, self._buffer.limit_bytes - self._buffer.used_bytes)),
            "waiting-threads": float(self._buffer.waiting_count),
            "bufferpool-wait-time-ns-total": self._buffer.waited_ms * 1e6,
            "buffer-exhausted-total": float(self._buffer.exhausted_count),
            "flush-time-ns-total": self._flush_ns.total,
            **{f"txn-{call}-time-ns-total": sensor.total for call, sensor in self._transaction_ns.items()},
        }
        of_topics = [
            MetricGroup(
                name="producer-topic-metrics",
                labels={"topic": name},
                values={
                    "record-send-rate": topic.sent.count_rate(),
                    "record-send-total": float(topic.sent.count),
                    "byte-rate": topic.sent.rate(),
                    "byte-total": topic.sent.total,
                    "record-error-rate": topic.failed.rate(),
                    "record-error-total": topic.failed.total,
                },
            )
            for name, topic in topics
        ]
        return [
            MetricGroup(name="producer-metrics", values=producer),
            MetricGroup(name="sparklog-producer-metrics", values=self._of_commits()),
            *of_topics,
            *asked.groups(),
        ]

    def _of_commits(self) -> dict[str, float]:
        """How many there were and how long they took, in units and names that Prometheus wants."""
        return {
            "commits-total": float(self._request_ms.count),
            "commit-seconds-total": self._request_ms.total / 1_000,
            "commit-seconds-max": self._request_ms.maximum() / 1_000,
            "flushes-total": float(self._flush_ns.count),
            "flush-seconds-total": self._flush_ns.total / 1e9,
            "flush-seconds-max": self._flush_ns.maximum() / 1e9,
        }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _error_of(outcome: Outcome | None) -> BaseException | None:
    """The error of a batch, or of one of its records that were refused."""
    if outcome is None:
        return None
    return outcome.error or next(iter((outcome.refused or {}).values()), None)
