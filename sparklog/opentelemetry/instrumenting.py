"""Which clients are traced and measured: single ones, or all that a process makes."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from sparklog.consumer import Consumer
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.errors import InvalidTypeError
from sparklog.new_clients import on_new_client
from sparklog.opentelemetry.consuming import ConsumerTelemetry
from sparklog.opentelemetry.producing import ProducerTelemetry
from sparklog.opentelemetry.telemetry import Telemetry, telemetry_of
from sparklog.producer import Producer
from sparklog.producer.metrics import ProducerMetrics

__all__ = ["SparklogInstrumentor", "instrument", "uninstrument"]


def instrument(
    *clients: Any, tracer_provider: TracerProvider | None = None, meter_provider: MeterProvider | None = None
) -> None:
    """Trace and measure clients from now on. One that is instrumented stays as it is.

    Set up the SDK before: without one this does nothing.

    Args:
        clients: producers and consumers, also those of ``sparklog.kafka``, and those for asyncio before they are
            started.
        tracer_provider: the process' own by default, as ``meter_provider``.
    Raises:
        InvalidTypeError: another object.
    """
    telemetry = telemetry_of(tracer_provider, meter_provider)
    for client in clients:
        if isinstance(client, (Producer, Consumer)):
            _instrument(client, telemetry)
        elif hasattr(client, "_make"):
            started = getattr(client, "_producer", None) or getattr(client, "_consumer", None)
            if started is not None:
                _instrument(started, telemetry)
            else:
                _instrument_when_made(client, telemetry)
        else:
            raise InvalidTypeError(f"instrument: got {type(client).__name__}, expected producers and consumers")


def uninstrument(*clients: Any) -> None:
    """Trace and measure clients no more; spans that are under way end when they would."""
    for client in clients:
        inner = getattr(client, "_producer", None) or getattr(client, "_consumer", None) or client
        if isinstance(inner, (Producer, Consumer)):
            _metrics_of(inner).observer = None


class SparklogInstrumentor:
    """Instruments all producers and consumers that the process makes, as other libraries' instrumentors do.

    ``opentelemetry-instrument`` finds it by its entry point. There is one: every call returns the same object.
    """

    _instance: SparklogInstrumentor | None = None
    _end: Callable[[], None] | None = None

    def __new__(cls) -> SparklogInstrumentor:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Are new clients instrumented?"""
        return self._end is not None

    def instrumentation_dependencies(self) -> Collection[str]:
        """None: the instrumented clients come with this."""
        return ()

    def instrument(self, **settings: Any) -> None:
        """Instrument each client that is made from now on, as :func:`instrument` does.

        Args:
            settings: ``tracer_provider`` and ``meter_provider``; others have no effect.
        """
        if self._end is not None:
            return
        tracers, meters = settings.get("tracer_provider"), settings.get("meter_provider")
        self._end = on_new_client(lambda client: _instrument(client, telemetry_of(tracers, meters)))

    def uninstrument(self, **settings: Any) -> None:
        """Leave clients alone that are made from now on. Settings have no effect."""
        if self._end is not None:
            self._end()
            self._end = None


def _metrics_of(client: Producer | Consumer) -> ProducerMetrics | ConsumerMetrics:
    return client._metrics if isinstance(client, Producer) else client._runtime.metrics


def _instrument(client: Any, telemetry: Telemetry) -> None:
    if not telemetry.is_on or _metrics_of(client).observer is not None:
        return
    if isinstance(client, Producer):
        if telemetry.tracer is not None:
            client._pipelines.forbid_plain()
        client._metrics.observer = ProducerTelemetry(
            telemetry, client_id=client._config.client_id, cluster_id=client._cluster.cluster_id
        )
        return
    runtime = client._runtime
    runtime.metrics.observer = ConsumerTelemetry(
        telemetry,
        client_id=runtime.config.client_id,
        group_id=runtime.config.group_id,
        cluster_id=runtime.cluster.cluster_id,
    )


def _instrument_when_made(client: Any, telemetry: Telemetry) -> None:
    """For a client for asyncio, which makes its own one when it is started."""
    make = client._make

    def made() -> Any:
        inner = make()
        _instrument(inner, telemetry)
        return inner

    client._make = made
