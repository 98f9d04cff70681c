"""A tracer and a meter of the SDK that keep everything in memory, and clients on a cluster in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from sparklog import Consumer

LONG_S = 60.0


@dataclass
class Telemetered:
    """What was traced and measured."""

    tracers: TracerProvider
    meters: MeterProvider
    exporter: InMemorySpanExporter = field(default_factory=InMemorySpanExporter)
    reader: InMemoryMetricReader = field(default_factory=InMemoryMetricReader)

    @property
    def providers(self) -> dict[str, Any]:
        return {"tracer_provider": self.tracers, "meter_provider": self.meters}

    def spans(self, name: str = "") -> list[ReadableSpan]:
        """Those that have ended, by the beginning of their names."""
        return [span for span in self.exporter.get_finished_spans() if span.name.startswith(name)]

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans() if span.name == name]
        return found

    def measured(self, metric: str) -> list[tuple[dict[str, Any], float]]:
        """The attributes and the sum, or the count of a histogram, of each point of a metric."""
        data = self.reader.get_metrics_data()
        found = [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for one in scope.metrics
            if one.name == metric
            for point in one.data.data_points
        ]
        return [(dict(point.attributes or {}), _number(point)) for point in found]


def _number(point: Any) -> float:
    return float(point.count if hasattr(point, "count") else point.value)


def telemetered(sampler: Sampler = ALWAYS_ON) -> Telemetered:
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(sampler, shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    meters = MeterProvider([reader], shutdown_on_exit=False)
    return Telemetered(tracers, meters, exporter, reader)


def attributes_of(span: ReadableSpan) -> Mapping[str, Any]:
    return dict(span.attributes or {})


def read(consumer: Consumer, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        for records in consumer.poll(LONG_S * 1_000).values():
            found += records
    return found
