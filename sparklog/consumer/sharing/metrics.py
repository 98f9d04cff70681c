"""Metrics of a share consumer, under Kafka's names."""

from __future__ import annotations

from sparklog.clock import Clock
from sparklog.consumer.poll_times import PollTimes, seconds_since
from sparklog.metrics import MetricGroup, Sensor

__all__ = ["ShareConsumerMetrics"]


class ShareConsumerMetrics:
    """Recorded once per acquisition, poll, entry or heartbeat. May be read from any thread.

    Source of the names: Java ``ShareFetchMetricsRegistry``, and KIP-932 for the other groups.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records = Sensor(clock)
        self._bytes = Sensor(clock)
        self._latency = Sensor(clock)
        self._fetched_records = Sensor(clock)
        self._fetched_bytes = Sensor(clock)
        self._acknowledgements = Sensor(clock)
        self._refused = Sensor(clock)
        self._polls = PollTimes(clock)
        self._heartbeats = Sensor(clock)
        self._heartbeat_ticks_ms: float | None = None

    def poll_begins(self) -> None:
        """Note that the application polls."""
        self._polls.poll_begins()

    def poll_ends(self) -> None:
        """Note that a poll returns to the application, or raises."""
        self._polls.poll_ends()

    def fetched(self, took_ms: float, size_bytes: int, record_count: int) -> None:
        """Count records that were acquired of one partition."""
        self._latency.record(took_ms)
        self._fetched_bytes.record(size_bytes)
        self._fetched_records.record(record_count)

    def consumed(self, record_count: int, size_bytes: int) -> None:
        """Count records that a poll returns."""
        self._records.record(record_count)
        self._bytes.record(size_bytes)

    def acknowledged(self, record_count: int, refused_count: int) -> None:
        """Count records whose acknowledgement has an outcome; of ``refused_count`` it doesn't count, or may not."""
        self._acknowledgements.record(record_count)
        if refused_count:
            self._refused.record(refused_count)

    def heartbeat(self) -> None:
        """Count a heartbeat: the others could see that this member lives."""
        self._heartbeats.record(1)
        self._heartbeat_ticks_ms = self._clock.ticks_ms()

    def groups(self) -> list[MetricGroup]:
        """All values; NaN for a mean or a maximum of nothing."""
        heartbeats = {
            "heartbeat-rate": self._heartbeats.count_rate(),
            "heartbeat-total": float(self._heartbeats.count),
            "last-heartbeat-seconds-ago": seconds_since(self._clock, self._heartbeat_ticks_ms),
        }
        return [
            MetricGroup(name="consumer-share-metrics", values=self._polls.values()),
            MetricGroup(name="consumer-share-coordinator-metrics", values=heartbeats),
            MetricGroup(name="consumer-share-fetch-manager-metrics", values=self._of_records()),
        ]

    def _of_records(self) -> dict[str, float]:
        return {
            "records-consumed-rate": self._records.rate(),
            "records-consumed-total": self._records.total,
            "bytes-consumed-rate": self._bytes.rate(),
            "bytes-consumed-total": self._bytes.total,
            "acknowledgements-send-rate": self._acknowledgements.rate(),
            "acknowledgements-send-total": self._acknowledgements.total,
            "acknowledgements-error-rate": self._refused.rate(),
            "acknowledgements-error-total": self._refused.total,
            "fetch-rate": self._latency.count_rate(),
            "fetch-total": float(self._latency.count),
            "fetch-latency-avg": self._latency.mean(),
            "fetch-latency-max": self._latency.maximum(),
            "fetch-size-avg": self._fetched_bytes.mean(),
            "fetch-size-max": self._fetched_bytes.maximum(),
            "records-per-request-avg": self._fetched_records.mean(),
            "records-per-request-max": self._fetched_records.maximum(),
        }
