"""Traces and measures a consumer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import chain

from opentelemetry import trace
from opentelemetry.trace import SpanKind

from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.opentelemetry.conventions import MESSAGE_COUNT, attributes, of_partitions, span_name
from sparklog.opentelemetry.headers import links_to
from sparklog.opentelemetry.telemetry import Telemetry, end_span

__all__ = ["ConsumerTelemetry"]


class ConsumerTelemetry:
    """A :class:`~sparklog.consumer.observer.ConsumerObserver`, for the thread that uses the consumer.

    A span for each poll that returned something or failed, and for each commit. Records are counted once for each
    partition of a poll.
    """

    def __init__(self, telemetry: Telemetry, *, client_id: str | None, group_id: str | None, cluster_id: str) -> None:
        self._telemetry = telemetry
        self._of = partial(attributes, client_id=client_id, group_id=group_id, cluster_id=cluster_id)
        self._began_ns = 0
        self._counts: Counter[TopicPartition] = Counter()
        self._links: Sequence[trace.Link] = ()

    def poll_begins(self) -> None:
        """See :class:`~sparklog.consumer.observer.ConsumerObserver`."""
        self._began_ns = time.time_ns()
        self._counts.clear()
        self._links = ()

    def received(self, records: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """See :class:`~sparklog.consumer.observer.ConsumerObserver`."""
        if self._telemetry.tracer is not None:
            self._links = links_to(chain.from_iterable(records.values()))

    def consumed(self, partition: TopicPartition, record_count: int) -> None:
        """See :class:`~sparklog.consumer.observer.ConsumerObserver`."""
        self._counts[partition] += record_count

    def poll_ends(self, error: BaseException | None) -> None:
        """See :class:`~sparklog.consumer.observer.ConsumerObserver`."""
        if not self._counts and error is None:
            return
        for partition, count in self._counts.items():
            self._telemetry.consumed.add(count, {**self._of("poll"), **of_partitions([partition])})
        found = {**self._of("poll"), **of_partitions(self._counts)}
        self._telemetry.measure((time.time_ns() - self._began_ns) / 1e9, found, error)
        if self._telemetry.tracer is not None:
            span = self._telemetry.tracer.start_span(
                span_name(found),
                kind=SpanKind.CLIENT,
                attributes={**found, MESSAGE_COUNT: self._counts.total()},
                links=self._links,
                start_time=self._began_ns,
            )
            end_span(span, error)

    def commit(self, partitions: Collection[TopicPartition]) -> Callable[[BaseException | None], None]:
        """See :class:`~sparklog.consumer.observer.ConsumerObserver`."""
        found = {**self._of("commit"), **of_partitions(partitions)}
        tracer, began = self._telemetry.tracer, time.monotonic()
        span = None if tracer is None else tracer.start_span(span_name(found), kind=SpanKind.CLIENT, attributes=found)

        def ended(error: BaseException | None) -> None:
            self._telemetry.measure(time.monotonic() - began, found, error)
            if span is not None:
                end_span(span, error)

        return ended
