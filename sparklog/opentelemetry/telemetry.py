"""A process' tracer and instruments, as far as there is an SDK that wants to know."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from opentelemetry import metrics, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from sparklog._version import __version__
from sparklog.opentelemetry.conventions import (
    BUCKETS_S,
    CONSUMED_MESSAGES,
    ERROR_TYPE,
    OPERATION_DURATION,
    PROCESS_DURATION,
    SCHEMA_URL,
    SENT_MESSAGES,
    Attributes,
    error_type,
    span_name,
)

__all__ = ["Telemetry", "end_span", "telemetry_of"]

_NO_SDK = ("ProxyTracerProvider", "NoOpTracerProvider", "_ProxyMeterProvider", "NoOpMeterProvider")
"""The API's own classes in place of an SDK's; one of them is private."""


class Telemetry:
    """The tracer, None where nobody traces, and the instruments. For several threads."""

    def __init__(self, tracers: trace.TracerProvider, meters: metrics.MeterProvider) -> None:
        self.tracer: trace.Tracer | None = None
        if type(tracers).__name__ not in _NO_SDK:
            self.tracer = tracers.get_tracer("sparklog", __version__, schema_url=SCHEMA_URL)
        self.is_measured = type(meters).__name__ not in _NO_SDK
        meter = meters.get_meter("sparklog", __version__, schema_url=SCHEMA_URL)
        self.sent = meter.create_counter(SENT_MESSAGES, "{message}", "Messages that producers sent, or failed to.")
        self.consumed = meter.create_counter(CONSUMED_MESSAGES, "{message}", "Messages that polls returned.")
        self.operation_duration = meter.create_histogram(
            OPERATION_DURATION,
            "s",
            "Duration of sends, polls and commits.",
            explicit_bucket_boundaries_advisory=BUCKETS_S,
        )
        self.process_duration = meter.create_histogram(
            PROCESS_DURATION, "s", "Duration of processing.", explicit_bucket_boundaries_advisory=BUCKETS_S
        )

    @property
    def is_on(self) -> bool:
        """Does anybody want to know anything?"""
        return self.tracer is not None or self.is_measured

    def measure(self, took_s: float, attributes: Attributes, error: BaseException | None) -> None:
        """Record the duration of an operation."""
        failed = {} if error is None else {ERROR_TYPE: error_type(error)}
        self.operation_duration.record(max(0.0, took_s), {**attributes, **failed})

    @contextmanager
    def operation(self, attributes: Attributes) -> Iterator[None]:
        """A call of a client: a span around it, and its duration. Lets errors pass."""
        span = None
        if self.tracer is not None:
            span = self.tracer.start_span(span_name(attributes), kind=SpanKind.CLIENT, attributes=attributes)
        began = time.monotonic()
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            self.measure(time.monotonic() - began, attributes, failure)
            if span is not None:
                end_span(span, failure)
            failure = None  # it holds this frame


def end_span(span: Span, error: BaseException | None = None) -> None:
    """End a span, which failed if there is an error. Its message isn't recorded: it may quote a record."""
    if error is not None and span.is_recording():
        span.set_attribute(ERROR_TYPE, error_type(error))
        span.set_status(Status(StatusCode.ERROR))
    span.end()


def telemetry_of(tracers: trace.TracerProvider | None, meters: metrics.MeterProvider | None) -> Telemetry:
    """The telemetry of providers; by default of those that are the process' now."""
    return _telemetry(tracers or trace.get_tracer_provider(), meters or metrics.get_meter_provider())


@lru_cache(maxsize=8)
def _telemetry(tracers: trace.TracerProvider, meters: metrics.MeterProvider) -> Telemetry:
    """One for each pair: an SDK warns of an instrument that is made twice."""
    return Telemetry(tracers, meters)
