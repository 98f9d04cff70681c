"""What a consumer counts about itself, under Kafka's names."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.clock import Clock
from sparklog.metrics import Sensor
from sparklog.model import TopicPartition

__all__ = ["ConsumerMetrics"]


class ConsumerMetrics:
    """Recorded once per fetch or poll. May be read from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records = Sensor(clock)
        self._bytes = Sensor(clock)
        self._latency = Sensor(clock)
        self._fetched_records = Sensor(clock)
        self._fetched_bytes = Sensor(clock)
        self._between = Sensor(clock)
        self._idle = Sensor(clock)
        self._lag = Sensor(clock)
        self._partitions: dict[TopicPartition, tuple[Sensor, Sensor, int, int]] = {}
        self._began_ticks_ms: float | None = None
        self._ended_ticks_ms = 0.0

    def fetched(self, took_ms: float, size_bytes: int, record_count: int) -> None:
        """The fetcher read records."""
        self._latency.record(took_ms)
        self._fetched_bytes.record(size_bytes)
        self._fetched_records.record(record_count)

    def poll_begins(self) -> None:
        """The application polls."""
        now = self._clock.ticks_ms()
        if self._began_ticks_ms is not None:
            between = now - self._began_ticks_ms
            self._between.record(between)
            if between > 0:
                self._idle.record((self._ended_ticks_ms - self._began_ticks_ms) / between)
        self._began_ticks_ms = now

    def poll_ends(self) -> None:
        """The application goes on."""
        self._ended_ticks_ms = self._clock.ticks_ms()

    def consumed(self, partition: TopicPartition, record_count: int, size_bytes: int, *, lag: int, lead: int) -> None:
        """Records were returned. ``lag``, ``lead``: the position before the log end, and beyond the log start."""
        self._records.record(record_count)
        self._bytes.record(size_bytes)
        self._lag.record(lag)
        known = self._partitions.get(partition)
        lags, leads = known[:2] if known else (Sensor(self._clock), Sensor(self._clock))
        lags.record(lag)
        leads.record(lead)
        self._partitions[partition] = (lags, leads, lag, lead)

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget all partitions but these."""
        kept = set(partitions)
        self._partitions = {p: known for p, known in self._partitions.items() if p in kept}

    def snapshot(self, *, assigned_count: int) -> dict[str, dict[str, float]]:
        """All values by group and name; NaN for a mean or a maximum of nothing."""
        groups: dict[str, dict[str, float]] = {
            "consumer-metrics": {
                "poll-idle-ratio-avg": self._idle.mean(),
                "time-between-poll-avg": self._between.mean(),
                "time-between-poll-max": self._between.maximum(),
            },
            "consumer-coordinator-metrics": {"assigned-partitions": float(assigned_count)},
            "consumer-fetch-manager-metrics": {
                "records-consumed-rate": self._records.rate(),
                "records-consumed-total": self._records.total,
                "bytes-consumed-rate": self._bytes.rate(),
                "bytes-consumed-total": self._bytes.total,
                "fetch-rate": self._latency.count_rate(),
                "fetch-total": float(self._latency.count),
                "fetch-latency-avg": self._latency.mean(),
                "fetch-latency-max": self._latency.maximum(),
                "fetch-size-avg": self._fetched_bytes.mean(),
                "fetch-size-max": self._fetched_bytes.maximum(),
                "records-per-request-avg": self._fetched_records.mean(),
                "records-lag-max": self._lag.maximum(),
            },
        }
        for (topic, number), (lags, leads, lag, lead) in self._partitions.copy().items():
            groups[f"consumer-fetch-manager-metrics.{topic}-{number}"] = {
                "records-lag": float(lag),
                "records-lag-avg": lags.mean(),
                "records-lag-max": lags.maximum(),
                "records-lead": float(lead),
                "records-lead-avg": leads.mean(),
            }
        return groups
