"""The lag of streaming queries, which Spark shows of its own sources alone: a listener reports it."""

from __future__ import annotations

import logging
import threading
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from sparklog.logs import about
from sparklog.metrics import ClientMetrics, MetricGroup
from sparklog.streaming.lag import SourceLag, source_lag

__all__ = ["LagListener"]

_LOGGER = logging.getLogger("sparklog.spark")


class LagListener(StreamingQueryListener):
    """Reports how far the session's streaming queries are behind the topics that they read:
    ``spark.streams.addListener(LagListener())``.

    After each micro-batch that Spark reports, the figures are written to the log ``sparklog.spark`` at level INFO, with
    the names that Spark's Kafka source has for them, and are given by :meth:`lags`. ``sparklog.prometheus.collect``
    takes a listener as it takes clients. Any thread may use it.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._lags: dict[str, tuple[str, list[SourceLag]]] = {}
        """By run of a query: its name, and the lag of each of its sources."""

    def lags(self) -> dict[str, list[dict[str, Any]]]:
        """The newest figures of the queries that run, by the query's name, or its id if it has none: of each source of
        sparklog's ``topics``, ``minOffsetsBehindLatest``, ``maxOffsetsBehindLatest``, ``avgOffsetsBehindLatest``, and
        ``offsetsBehindLatest``, their sum, in offsets."""
        with self._changing:
            known = [*self._lags.values()]
        return {name: [_figures(one) for one in sources] for name, sources in known}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing is known yet."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Note and log the lag of each source."""
        progress = event.progress
        found = [source_lag(source.endOffset, source.latestOffset) for source in progress.sources]
        lags = [one for one in found if one is not None]
        if not lags:
            return
        name = progress.name or str(progress.id)
        with self._changing:
            self._lags[str(progress.runId)] = (name, lags)
        for one in lags:
            figures = ", ".join(f"{figure}={value:g}" for figure, value in one.metrics.items())
            extra = about(query=name, topic=",".join(one.topics), **one.metrics)
            _LOGGER.info("query %s, %s: %s", name, ",".join(one.topics), figures, extra=extra)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """The figures stay as they are."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Forget the query's figures."""
        with self._changing:
            self._lags.pop(str(event.runId), None)

    def _client_metrics(self) -> ClientMetrics:
        with self._changing:
            known = [*self._lags.values()]
        groups = [
            MetricGroup(
                name="sparklog-streaming-metrics",
                values={"offsets-behind-latest": float(behind)},
                labels={"query": name, "topic": topic, "partition": str(partition)},
            )
            for name, sources in known
            for one in sources
            for (topic, partition), behind in one.by_partition.items()
        ]
        return ClientMetrics(kind="listener", client_id=None, is_closed=False, groups=groups)


def _figures(lag: SourceLag) -> dict[str, Any]:
    return {"topics": list(lag.topics), **lag.metrics, "offsetsBehindLatest": float(lag.total)}
