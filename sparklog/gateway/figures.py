"""Metrics of a gateway for Prometheus, and its health and readiness."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from sparklog._version import __version__
from sparklog.errors import SparklogError
from sparklog.exporter import STORE_METRICS, Metric, Response
from sparklog.exporter.metrics import Row
from sparklog.exporter.text import CONTENT_TYPE, lines
from sparklog.gateway.counts import GatewayFigures
from sparklog.log.cluster import Cluster
from sparklog.paths import CLUSTER_FILE
from sparklog.storage.retrying import Patience

__all__ = ["GATEWAY_METRICS", "GatewayFigures", "GatewayProbe"]

_LOOK_MS = 2_000.0
"""Longest look at the store, and time for which its outcome stands."""
_STALLED_S = 10.0
"""A loop that hasn't turned for so long is stalled."""


def _single_row(value: Callable[[GatewayFigures], float]) -> Callable[[GatewayFigures], Iterator[Row]]:
    def rows(figures: GatewayFigures) -> Iterator[Row]:
        yield (), value(figures)

    return rows


def _info(_: GatewayFigures) -> Iterator[Row]:
    yield (__version__,), 1


def _errors(figures: GatewayFigures) -> Iterator[Row]:
    yield from sorted(dict(figures.errors).items())


def _each(value: Callable[[GatewayFigures], Mapping[str, float]]) -> Callable[[GatewayFigures], Iterator[Row]]:
    return lambda figures: (((name,), number) for name, number in sorted(dict(value(figures)).items()))


GATEWAY_METRICS = (
    Metric("sparklog_gateway_info", "This gateway.", ("version",), _info),
    Metric(
        "sparklog_gateway_connections",
        "Connections that are open.",
        (),
        _single_row(lambda figures: figures.connections),
    ),
    Metric(
        "sparklog_gateway_connections_max",
        "Connections beyond which further ones are refused.",
        (),
        _single_row(lambda figures: figures.connections_max),
    ),
    Metric(
        "sparklog_gateway_connections_accepted_total",
        "Connections that were accepted.",
        (),
        _single_row(lambda figures: figures.accepted),
        "counter",
    ),
    Metric(
        "sparklog_gateway_connections_refused_total",
        "Connections that were closed at once: too many are open.",
        (),
        _single_row(lambda figures: figures.refused),
        "counter",
    ),
    Metric(
        "sparklog_gateway_disconnects_total",
        "Connections that the gateway ended; invalid: a request that can't be served, or of a client without rights; "
        "unavailable: one that can't be answered while the store is away.",
        ("reason",),
        _each(lambda figures: figures.disconnected),
        "counter",
    ),
    Metric(
        "sparklog_gateway_requests_total",
        "Requests that were answered, or needed no answer.",
        ("api",),
        _each(lambda figures: figures.requests),
        "counter",
    ),
    Metric(
        "sparklog_gateway_request_seconds_total",
        "Time from reading these requests to their answers; a Fetch may wait for records.",
        ("api",),
        _each(lambda figures: figures.request_seconds),
        "counter",
    ),
    Metric(
        "sparklog_gateway_errors_total",
        "Errors that were answered: of a request as a whole, or of one of its topics, partitions, groups and so on.",
        ("api", "error"),
        _errors,
        "counter",
    ),
    Metric(
        "sparklog_gateway_received_bytes_total",
        "Bytes of requests.",
        (),
        _single_row(lambda figures: figures.received_bytes),
        "counter",
    ),
    Metric(
        "sparklog_gateway_sent_bytes_total",
        "Bytes of answers.",
        (),
        _single_row(lambda figures: figures.sent_bytes),
        "counter",
    ),
    Metric(
        "sparklog_gateway_queued_bytes",
        "Requests that are read and not answered.",
        (),
        _single_row(lambda figures: figures.queued_bytes),
    ),
    Metric(
        "sparklog_gateway_connections_waiting",
        "Connections whose next request isn't read, as those that are read and not answered have all the memory that "
        "there is for them.",
        (),
        _single_row(lambda figures: figures.connections_waiting),
    ),
    Metric(
        "sparklog_gateway_fetch_sessions",
        "Sessions of Fetch that are kept.",
        (),
        _single_row(lambda figures: figures.fetch_sessions),
    ),
    Metric(
        "sparklog_gateway_fetch_sessions_evicted_total",
        "Sessions of Fetch that made room for others, whose clients name all their partitions again.",
        (),
        _single_row(lambda figures: figures.fetch_sessions_evicted),
        "counter",
    ),
    Metric(
        "sparklog_gateway_cluster_open",
        "1: it serves its cluster; 0: the store has been away since the start, and clients get retriable errors.",
        (),
        _single_row(lambda figures: int(figures.why_unopened() is None)),
    ),
    Metric(
        "sparklog_gateway_draining",
        "1: it takes no more connections, and is about to end.",
        (),
        _single_row(lambda figures: int(figures.is_draining)),
    ),
)


class GatewayProbe:
    """Answers Prometheus and probes, for :class:`~sparklog.exporter.ExporterServer`. For several threads."""

    def __init__(self, cluster: Cluster, figures: GatewayFigures) -> None:
        self._cluster = cluster
        self._figures = figures
        self._looking = threading.Lock()
        self._error: str | None = None
        self._looked_s = float("-inf")

    def respond(self, path: str, *, accepts_gzip: bool = False) -> Response:
        """The answer to a GET.

        ``/metrics``: everything. ``/healthz``: 200 as long as the loop turns; 503: restart the process. ``/readyz``:
        200 while the store can be read and the gateway isn't about to end; a look at the store is one request, each 2 s
        at most, and none before the cluster is open.

        Args:
            path: without a query.
            accepts_gzip: of no use for so little.
        """
        if path == "/metrics":
            asked = lines(STORE_METRICS, self._cluster.store.counts.by_kind())
            body = "".join([*lines(GATEWAY_METRICS, self._figures), *asked]).encode()
            return Response(status=200, content_type=CONTENT_TYPE, body=body)
        if path == "/healthz":
            stalled_s = time.monotonic() - self._figures.turned_s
            return _health(None if stalled_s < _STALLED_S else f"the event loop hasn't turned for {stalled_s:.0f} s")
        if path == "/readyz":
            return _health(self._unready())
        return Response(status=404, content_type="text/plain; charset=utf-8", body=b"not found\n")

    def _unready(self) -> str | None:
        """Why clients should go elsewhere; None: they needn't."""
        if self._figures.is_draining:
            return "the gateway is draining"
        return self._figures.why_unopened() or self._store_error()

    def _store_error(self) -> str | None:
        """Why the store can't be read; None: it can."""
        with self._looking:
            if time.monotonic() - self._looked_s > _LOOK_MS / 1_000:
                deadline = self._cluster.clock.deadline_in(_LOOK_MS)
                try:
                    with self._cluster.store.patience(Patience(deadline=deadline)):
                        is_there = self._cluster.store.exists(CLUSTER_FILE)
                    self._error = None if is_there else f"there is no cluster any more: {CLUSTER_FILE} is gone"
                except SparklogError as error:
                    self._error = " ".join(str(error).split())
                self._looked_s = time.monotonic()
            return self._error


def _health(error: str | None) -> Response:
    body = json.dumps({"status": "ok" if error is None else "failed", "error": error}).encode() + b"\n"
    return Response(status=200 if error is None else 503, content_type="application/json", body=body)
