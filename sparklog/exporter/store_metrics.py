"""Metrics of a process's requests to its store, under the names by which clients export them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sparklog.exporter.metrics import CLUSTER_METRICS, EXPORTER_METRICS, Metric, Row
from sparklog.exporter.text import BOUND_METRIC
from sparklog.storage.request_counts import RequestCount

__all__ = ["STORE_METRICS", "metric_names"]

_Counts = Mapping[str, RequestCount]
_BY_KIND = ("kind",)


def _kinds(value: Callable[[RequestCount], float]) -> Callable[[_Counts], Iterator[Row]]:
    return lambda counts: (((kind,), value(one)) for kind, one in counts.items())


def _races_lost(counts: _Counts) -> Iterator[Row]:
    if counts:
        yield (), sum(one.races_lost for one in counts.values())


STORE_METRICS: tuple[Metric[_Counts], ...] = (
    Metric(
        "sparklog_store_requests_total",
        "Requests to the store, each attempt; objects that go together are one each.",
        _BY_KIND,
        _kinds(lambda one: one.requests),
        "counter",
    ),
    Metric(
        "sparklog_store_bytes_total",
        "Bytes of objects that were read or written.",
        _BY_KIND,
        _kinds(lambda one: one.bytes),
        "counter",
    ),
    Metric(
        "sparklog_store_errors_total",
        "Calls of the store that failed.",
        _BY_KIND,
        _kinds(lambda one: one.errors),
        "counter",
    ),
    Metric(
        "sparklog_store_seconds_total",
        "Time that threads have waited for the store.",
        _BY_KIND,
        _kinds(lambda one: one.seconds),
        "counter",
    ),
    Metric(
        "sparklog_store_races_lost_total",
        "Creates that found the name taken: in a log, the next entry was another's.",
        (),
        _races_lost,
        "counter",
    ),
)
"""Metrics of all that uses a cluster in this process, by kind of request."""


def metric_names() -> set[str]:
    """The names of all metrics that an exporter shows."""
    shown: tuple[Metric[Any], ...] = (*CLUSTER_METRICS, BOUND_METRIC, *EXPORTER_METRICS, *STORE_METRICS)
    return {metric.name for metric in shown}
