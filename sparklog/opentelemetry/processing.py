"""Traces and measures what an application does with records."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import context, trace
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind

from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.opentelemetry.conventions import (
    ERROR_TYPE,
    MESSAGE_COUNT,
    OFFSET,
    attributes,
    error_type,
    of_partitions,
    span_name,
)
from sparklog.opentelemetry.headers import links_to
from sparklog.opentelemetry.telemetry import Telemetry, end_span, telemetry_of

__all__ = ["ProcessTelemetry", "process", "resumed"]


class ProcessTelemetry:
    """Traces and measures the processing of records by one group. For several threads.

    Args:
        passing: errors that are no failures.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        group_id: str | None,
        cluster_id: str | None,
        passing: tuple[type[BaseException], ...] = (),
    ) -> None:
        self._telemetry = telemetry
        self._attributes = attributes("process", group_id=group_id, cluster_id=cluster_id)
        self._passing = passing

    @contextmanager
    def process(self, records: Sequence[Any]) -> Iterator[Span]:
        """The work on records, one or more: a span, under way in the block, with links to what sent them."""
        found = {**self._attributes, **of_partitions({TopicPartition(one.topic, one.partition) for one in records})}
        span = self._start(found, records)
        token = context.attach(trace.set_span_in_context(span))
        began = time.monotonic()
        failure: BaseException | None = None
        try:
            yield span
        except BaseException as error:
            failure = None if isinstance(error, self._passing) else error
            raise
        finally:
            context.detach(token)
            failed = {} if failure is None else {ERROR_TYPE: error_type(failure)}
            self._telemetry.process_duration.record(time.monotonic() - began, {**found, **failed})
            if isinstance(failure, Exception):
                span.record_exception(failure)
            end_span(span, failure)
            failure = None  # it holds this frame

    def _start(self, found: dict[str, str | int], records: Sequence[Any]) -> Span:
        tracer = self._telemetry.tracer
        if tracer is None:
            return INVALID_SPAN
        of_records = {OFFSET: records[0].offset} if len(records) == 1 else {MESSAGE_COUNT: len(records)}
        return tracer.start_span(
            span_name(found), kind=SpanKind.CONSUMER, attributes={**found, **of_records}, links=links_to(records)
        )


@contextmanager
def resumed(span: Any) -> Iterator[None]:
    """Have what is sent in the block belong to a span that may be over."""
    token = context.attach(trace.set_span_in_context(span))
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def process(*records: ConsumerRecord, consumer: Any = None) -> Iterator[Span]:
    """A span around what you do with a record, or with several together: ``with process(record, consumer=consumer):``.

    It links to the spans that sent the records; what is sent in the block belongs to it. Its duration is measured as
    ``messaging.process.duration``. Workers of :mod:`sparklog.processing` do so by themselves.

    Args:
        records: one or more, of whichever client.
        consumer: the one that read them, for its group's name.
    Returns:
        The span; one that records nothing without an SDK.
    """
    telemetry = telemetry_of(None, None)
    if not telemetry.is_on or not records:
        yield INVALID_SPAN
        return
    inner = getattr(consumer, "_consumer", consumer)  # a consumer for asyncio has one
    group_id = None if inner is None else inner._runtime.config.group_id
    cluster_id = None if inner is None else inner._runtime.cluster.cluster_id
    with ProcessTelemetry(telemetry, group_id=group_id, cluster_id=cluster_id).process(records) as span:
        yield span
