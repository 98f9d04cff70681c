"""For parts of sparklog that trace themselves where the process traces: imports the API only if somebody else has."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklog.opentelemetry.processing import ProcessTelemetry

__all__ = ["instrument_if_traced", "process_telemetry", "resumed"]


def _is_traced() -> bool:
    """Has anybody imported the API, who may have set up an SDK?"""
    return "opentelemetry.trace" in sys.modules or "opentelemetry.metrics" in sys.modules


def instrument_if_traced(client: Any) -> None:
    """Instrument a client where the process has an SDK."""
    if _is_traced():
        from sparklog.opentelemetry.instrumenting import instrument

        instrument(client)


def process_telemetry(
    *, group_id: str, cluster_id: str, passing: tuple[type[BaseException], ...]
) -> ProcessTelemetry | None:
    """The telemetry of the work on records; None where the process has no SDK."""
    if not _is_traced():
        return None
    from sparklog.opentelemetry.processing import ProcessTelemetry
    from sparklog.opentelemetry.telemetry import telemetry_of

    telemetry = telemetry_of(None, None)
    if not telemetry.is_on:
        return None
    return ProcessTelemetry(telemetry, group_id=group_id, cluster_id=cluster_id, passing=passing)


def resumed(span: Any) -> AbstractContextManager[None]:
    """Have what is sent in the block belong to a span of :func:`process_telemetry`."""
    from sparklog.opentelemetry.processing import resumed as resume

    return resume(span)
