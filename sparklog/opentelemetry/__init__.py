"""Traces and metrics by OpenTelemetry's messaging conventions; the extra ``otel`` installs the API that this needs.

Without an SDK nothing is traced nor measured, and clients are as fast as without this.
"""

from typing import TYPE_CHECKING

from sparklog.lazy_imports import import_on_use

if TYPE_CHECKING:
    from sparklog.opentelemetry.instrumenting import SparklogInstrumentor, instrument, uninstrument
    from sparklog.opentelemetry.processing import process
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.opentelemetry.instrumenting": ("SparklogInstrumentor", "instrument", "uninstrument"),
            "sparklog.opentelemetry.processing": ("process",),
        },
    )

__all__ = ["SparklogInstrumentor", "instrument", "process", "uninstrument"]
