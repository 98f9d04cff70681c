"""Traces and measures a producer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind

from sparklog.model import RecordMetadata
from sparklog.opentelemetry.conventions import (
    ERROR_TYPE,
    MESSAGE_COUNT,
    PARTITION_ID,
    attributes,
    error_type,
    span_name,
)
from sparklog.opentelemetry.headers import Headers, sent_context, with_context
from sparklog.opentelemetry.telemetry import Telemetry, end_span
from sparklog.producer import BatchMetadata, FutureBatchMetadata, FutureRecordMetadata, ProducerRecord

__all__ = ["ProducerTelemetry"]

_CALLS = {
    "init": "init_transactions",
    "send-offsets": "send_offsets_to_transaction",
    "commit": "commit_transaction",
    "abort": "abort_transaction",
}
"""Calls that reach the store."""


class ProducerTelemetry:
    """A :class:`~sparklog.producer.observer.ProducerObserver`. For several threads.

    A span for each record, from ``send`` until it is acknowledged, whose context the record carries; of a table one
    span, and no context in its rows. Counts and durations are measured once for each batch.
    """

    def __init__(self, telemetry: Telemetry, *, client_id: str | None, cluster_id: str) -> None:
        self._telemetry = telemetry
        self._of = partial(attributes, client_id=client_id, cluster_id=cluster_id)
        self._sends: dict[str, tuple[str, dict[str, str | int]]] = {}
        """By topic: the name of its spans, and their attributes."""

    def send(
        self, record: ProducerRecord, send: Callable[[ProducerRecord], FutureRecordMetadata]
    ) -> FutureRecordMetadata:
        """See :class:`~sparklog.producer.observer.ProducerObserver`."""
        if self._telemetry.tracer is None:
            return send(record)
        span = self._start(self._telemetry.tracer, record.topic, record.headers)
        try:
            headers = with_context(record.headers, trace.set_span_in_context(span))
            future = send(record._replace(headers=headers))
        except BaseException as error:
            end_span(span, error)
            raise
        _end_with(span, future)
        return future

    def send_table(self, topic: str, row_count: int, send: Callable[[], FutureBatchMetadata]) -> FutureBatchMetadata:
        """See :class:`~sparklog.producer.observer.ProducerObserver`."""
        if self._telemetry.tracer is None:
            return send()
        span = self._start(self._telemetry.tracer, topic, None)
        span.set_attribute(MESSAGE_COUNT, row_count)
        try:
            future = send()
        except BaseException as error:
            end_span(span, error)
            raise
        _end_with(span, future)
        return future

    def transaction_call(self, call: str) -> AbstractContextManager[None]:
        """See :class:`~sparklog.producer.observer.ProducerObserver`."""
        return self._telemetry.operation(self._of(_CALLS[call])) if call in _CALLS else nullcontext()

    def settled(self, topic: str, *, sent: int, failed: int, error: BaseException | None, took_s: float) -> None:
        """See :class:`~sparklog.producer.observer.ProducerObserver`."""
        _, found = self._of_send(topic)
        if sent:
            self._telemetry.sent.add(sent, found)
        if failed and error is not None:
            self._telemetry.sent.add(failed, {**found, ERROR_TYPE: error_type(error)})
        self._telemetry.measure(took_s, found, None if sent else error)

    def _start(self, tracer: trace.Tracer, topic: str, headers: Headers | None) -> Span:
        """A span below the one that is under way, or else below the one that the record carries already."""
        parent: Context | None = None
        if not trace.get_current_span().get_span_context().is_valid:
            parent = sent_context(headers)
        name, found = self._of_send(topic)
        return tracer.start_span(name, parent, kind=SpanKind.PRODUCER, attributes=found)

    def _of_send(self, topic: str) -> tuple[str, dict[str, str | int]]:
        known = self._sends.get(topic)
        if known is None:
            found = self._of("send", topic=topic)
            known = self._sends[topic] = span_name(found), found
        return known


def _end_with(span: Span, future: FutureRecordMetadata | FutureBatchMetadata) -> None:
    """End a span when a future is done."""
    if span.is_recording():
        future.add_both(partial(_acknowledged, span))
    else:  # it isn't sampled
        span.end()


def _acknowledged(span: Span, result: RecordMetadata | BatchMetadata | BaseException) -> None:
    if isinstance(result, BaseException):
        end_span(span, result)
        return
    if isinstance(result, RecordMetadata) and result.partition >= 0:
        span.set_attribute(PARTITION_ID, str(result.partition))
    span.end()
