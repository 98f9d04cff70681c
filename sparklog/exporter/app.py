"""The answers of an exporter, without a server: a page mounts them, :mod:`sparklog.exporter.server` serves them."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from itertools import chain

from sparklog.exporter.metrics import CLUSTER_METRICS, EXPORTER_METRICS
from sparklog.exporter.store_metrics import STORE_METRICS
from sparklog.exporter.text import BOUND_METRIC, CONTENT_TYPE, compressed, lines
from sparklog.observe import ClusterFigures
from sparklog.observe.watching import Watching, WatchStatus

__all__ = ["ExporterApp", "Response"]

_INDEX = b"""<!doctype html>
<html lang="en"><title>sparklog exporter</title>
<h1>sparklog exporter</h1>
<ul><li><a href="/metrics">/metrics</a><li><a href="/healthz">/healthz</a><li><a href="/readyz">/readyz</a></ul>
"""
_JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """An answer."""

    status: int
    """The code of HTTP."""
    content_type: str
    body: bytes
    is_gzip: bool = False
    """Is the body compressed?"""


class ExporterApp:
    """Answers from what was seen at the newest look; never calls the store. For several threads."""

    def __init__(self, *, most_series: int = 0) -> None:
        """
        Args:
            most_series: of one metric of the cluster; 0: as many as there are.
        """
        self._most_series = most_series
        self._cached = b""
        self._watching: Watching | None = None

    def keep(self, figures: ClusterFigures) -> None:
        """Render what a look has found; for :class:`~sparklog.observe.watching.Watching`'s ``on_figures``."""
        left_out: dict[str, int] = {}
        most = lines(CLUSTER_METRICS, figures, most_series=self._most_series, left_out=left_out)
        self._cached = compressed(chain(most, lines((BOUND_METRIC,), left_out)))

    def watch(self, watching: Watching) -> None:
        """Remember the thread whose state the health check reports."""
        self._watching = watching

    def respond(self, path: str, *, accepts_gzip: bool = False) -> Response:
        """The answer to a GET.

        ``/metrics``: everything. ``/healthz``: 200 as long as the process goes on; 503: restart it. ``/readyz``: 200
        while the figures aren't too old; 503: the store can't be read. ``/``: links to these.

        Args:
            path: without a query.
        """
        if path == "/metrics":
            return self._metrics(accepts_gzip=accepts_gzip)
        if path in ("/healthz", "/readyz"):
            return self._health(path, self._status())
        if path == "/":
            return Response(status=200, content_type="text/html; charset=utf-8", body=_INDEX)
        return Response(status=404, content_type="text/plain; charset=utf-8", body=b"not found\n")

    def _metrics(self, *, accepts_gzip: bool) -> Response:
        cached = self._cached
        status = self._status()
        own = "".join([*lines(EXPORTER_METRICS, status), *lines(STORE_METRICS, status.asked)])
        if accepts_gzip:
            body = cached + compressed(iter([own]))
            return Response(status=200, content_type=CONTENT_TYPE, body=body, is_gzip=True)
        text = gzip.decompress(cached) if cached else b""
        return Response(status=200, content_type=CONTENT_TYPE, body=text + own.encode())

    def _health(self, path: str, status: WatchStatus) -> Response:
        is_good = status.is_alive if path == "/healthz" else status.is_fresh
        body = {
            "status": "ok" if is_good else "failed",
            "up": status.is_up,
            "age_seconds": None if status.age_ms is None else round(status.age_ms / 1_000, 3),
            "looks": status.look_count,
            "failed_looks": status.failed_count,
            "error": None if status.error is None else " ".join(str(status.error).split()),
        }
        data = json.dumps(body).encode() + b"\n"
        return Response(status=200 if is_good else 503, content_type=_JSON, body=data)

    def _status(self) -> WatchStatus:
        if self._watching is None:
            return WatchStatus(
                figures=None, error=None, age_ms=None, is_alive=True, is_fresh=False, look_count=0, failed_count=0
            )
        return self._watching.status()
