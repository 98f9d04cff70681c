"""Metrics of a consumer, under Kafka's names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

from sparklog.clock import Clock
from sparklog.consumer.observer import ConsumerObserver
from sparklog.consumer.poll_times import PollTimes, seconds_since
from sparklog.metrics import MetricGroup, Sensor
from sparklog.model import TopicPartition

__all__ = ["ASSIGNED", "LOST", "REVOKED", "ConsumerMetrics"]

ASSIGNED, REVOKED, LOST = "assigned", "revoked", "lost"
"""Events that a rebalance listener is called with."""

_S_PER_HOUR = 3_600
_FETCH_GROUP = "consumer-fetch-manager-metrics"


class _Topic:
    def __init__(self, clock: Clock) -> None:
        self.records = Sensor(clock)
        self.bytes = Sensor(clock)


class ConsumerMetrics:
    """Recorded once per fetch, poll, commit or heartbeat. May be read from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.observer: ConsumerObserver | None = None
        self._records = Sensor(clock)
        self._bytes = Sensor(clock)
        self._latency = Sensor(clock)
        self._fetched_records = Sensor(clock)
        self._fetched_bytes = Sensor(clock)
        self._polls = PollTimes(clock)
        self._lag = Sensor(clock)
        self._lead = Sensor(clock)
        self._commits = Sensor(clock)
        self._heartbeats = Sensor(clock)
        self._rebalances = Sensor(clock)
        self._failed_rebalances = Sensor(clock)
        self._listener = {event: Sensor(clock) for event in (ASSIGNED, REVOKED, LOST)}
        self._heartbeat_ticks_ms: float | None = None
        self._rebalance_ticks_ms: float | None = None
        self._partitions: dict[TopicPartition, tuple[Sensor, Sensor, int, int]] = {}
        self._topics: dict[str, _Topic] = {}

    def fetched(self, took_ms: float, size_bytes: int, record_count: int) -> None:
        """Count records that the fetcher read."""
        now_ms = self._clock.ticks_ms()
        self._latency.record(took_ms, now_ms=now_ms)
        self._fetched_bytes.record(size_bytes, now_ms=now_ms)
        self._fetched_records.record(record_count, now_ms=now_ms)

    def poll_begins(self) -> None:
        """Note that the application polls."""
        if self.observer is not None:
            self.observer.poll_begins()
        self._polls.poll_begins()

    def poll_ends(self, error: BaseException | None) -> None:
        """Note that a poll returns to the application, or raises."""
        if self.observer is not None:
            self.observer.poll_ends(error)
        self._polls.poll_ends()

    def consumed(self, partition: TopicPartition, record_count: int, size_bytes: int, *, lag: int, lead: int) -> None:
        """Count records that were returned; ``lag``, ``lead``: position before the log end, beyond the log start."""
        if self.observer is not None:
            self.observer.consumed(partition, record_count)
        now_ms = self._clock.ticks_ms()  # once: it costs as much as a value
        self._records.record(record_count, now_ms=now_ms)
        self._bytes.record(size_bytes, now_ms=now_ms)
        self._lag.record(lag, now_ms=now_ms)
        self._lead.record(lead, now_ms=now_ms)
        topic = self._topics.get(partition.topic)
        if topic is None:
            topic = self._topics[partition.topic] = _Topic(self._clock)
        topic.records.record(record_count, now_ms=now_ms)
        topic.bytes.record(size_bytes, now_ms=now_ms)
        known = self._partitions.get(partition)
        lags, leads = known[:2] if known else (Sensor(self._clock), Sensor(self._clock))
        lags.record(lag, now_ms=now_ms)
        leads.record(lead, now_ms=now_ms)
        self._partitions[partition] = (lags, leads, lag, lead)

    def keep(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget all partitions but these."""
        kept = set(partitions)
        self._partitions = {p: known for p, known in self._partitions.items() if p in kept}
        topics = {partition.topic for partition in kept}
        self._topics = {name: topic for name, topic in self._topics.items() if name in topics}

    def committing(self, partitions: Collection[TopicPartition]) -> Callable[[Future[Any]], None]:
        """A commit begins. Returns what counts it at its end: carried out, or refused."""
        began = self._clock.ticks_ms()
        observed = None if self.observer is None else self.observer.commit(partitions)

        def ended(future: Future[Any]) -> None:
            self._commits.record(self._clock.ticks_ms() - began)
            if observed is not None:
                observed(CancelledError() if future.cancelled() else future.exception())

        return ended

    def heartbeat(self) -> None:
        """Count a heartbeat: the others could see that this member lives."""
        self._heartbeats.record(1)
        self._heartbeat_ticks_ms = self._clock.ticks_ms()

    def rebalanced(self) -> None:
        """Count a rebalance: the application acts upon another generation."""
        self._rebalances.record(1)
        self._rebalance_ticks_ms = self._clock.ticks_ms()

    def rebalance_failed(self) -> None:
        """Count a rebalance by which the group went on without this member."""
        self._failed_rebalances.record(1)

    def listener_called(self, event: str, took_ms: float) -> None:
        """Count a call of the rebalance listener."""
        self._listener[event].record(took_ms)

    def groups(self, *, assigned_count: int) -> list[MetricGroup]:
        """All values: of the consumer, of each topic and partition; NaN for a mean or a maximum of nothing."""
        return [
            MetricGroup(name="consumer-metrics", values=self._polls.values()),
            MetricGroup(name="consumer-coordinator-metrics", values=self._of_the_group(assigned_count)),
            MetricGroup(name=_FETCH_GROUP, values=self._of_fetches()),
            *(
                MetricGroup(name=_FETCH_GROUP, labels={"topic": name}, values=_consumed(topic.records, topic.bytes))
                for name, topic in self._topics.copy().items()
            ),
            *self._of_partitions(),
        ]

    def _of_fetches(self) -> dict[str, float]:
        return {
            **_consumed(self._records, self._bytes),
            "fetch-rate": self._latency.count_rate(),
            "fetch-total": float(self._latency.count),
            "fetch-latency-avg": self._latency.mean(),
            "fetch-latency-max": self._latency.maximum(),
            "fetch-size-avg": self._fetched_bytes.mean(),
            "fetch-size-max": self._fetched_bytes.maximum(),
            "records-per-request-avg": self._fetched_records.mean(),
            "records-lag-max": self._lag.maximum(),
            "records-lead-min": self._lead.minimum(),
        }

    def _of_partitions(self) -> Iterator[MetricGroup]:
        for (topic, number), (lags, leads, lag, lead) in self._partitions.copy().items():
            values = {
                "records-lag": float(lag),
                "records-lag-avg": lags.mean(),
                "records-lag-max": lags.maximum(),
                "records-lead": float(lead),
                "records-lead-avg": leads.mean(),
                "records-lead-min": leads.minimum(),
            }
            yield MetricGroup(name=_FETCH_GROUP, labels={"topic": topic, "partition": str(number)}, values=values)

    def _of_the_group(self, assigned_count: int) -> dict[str, float]:
        return {
            "assigned-partitions": float(assigned_count),
            "commit-latency-avg": self._commits.mean(),
            "commit-latency-max": self._commits.maximum(),
            "commit-rate": self._commits.count_rate(),
            "commit-total": float(self._commits.count),
            "heartbeat-rate": self._heartbeats.count_rate(),
            "heartbeat-total": float(self._heartbeats.count),
            "last-heartbeat-seconds-ago": seconds_since(self._clock, self._heartbeat_ticks_ms),
            "rebalance-rate-per-hour": self._rebalances.count_rate() * _S_PER_HOUR,
            "rebalance-total": float(self._rebalances.count),
            "last-rebalance-seconds-ago": seconds_since(self._clock, self._rebalance_ticks_ms),
            "failed-rebalance-rate-per-hour": self._failed_rebalances.count_rate() * _S_PER_HOUR,
            "failed-rebalance-total": float(self._failed_rebalances.count),
            **{f"partition-{event}-latency-avg": sensor.mean() for event, sensor in self._listener.items()},
            **{f"partition-{event}-latency-max": sensor.maximum() for event, sensor in self._listener.items()},
        }


def _consumed(records: Sensor, size_bytes: Sensor) -> dict[str, float]:
    return {
        "records-consumed-rate": records.rate(),
        "records-consumed-total": records.total,
        "bytes-consumed-rate": size_bytes.rate(),
        "bytes-consumed-total": size_bytes.total,
    }
