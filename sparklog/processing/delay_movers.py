"""The movers of several topics in one process: what fails in one hinders no other."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType

from sparklog.errors import SparklogError
from sparklog.interrupts import SafeEvent
from sparklog.log import Cluster
from sparklog.logs import about
from sparklog.processing.delayed import DelayMover, MoverTakenOverError, delayed_topics, despite_outages
from sparklog.storage.each_alone import check_of_one

__all__ = ["DelayMovers"]

_LOGGER = logging.getLogger("sparklog.processing")
_AGAIN_MS = 60_000.0
"""A topic that failed is tried again after so long."""
_MAX_OUTAGE_S = 300.0


class DelayMovers:
    """The movers of the topics that are named, or of all, new ones among them. For one thread."""

    def __init__(self, cluster: Cluster, topics: Sequence[str], *, batch_size: int, stopping: SafeEvent) -> None:
        """Args:
        topics: none: all for which records were ever delayed.
        stopping: ends what waits.
        """
        self._cluster = cluster
        self._topics = topics
        self._batch_size = batch_size
        self._stopping = stopping
        self._movers: dict[str, DelayMover] = {}
        self._failed: dict[str, tuple[float, SparklogError]] = {}
        """By topic: when it is tried again, in ticks, and the error."""
        self._closed_count = 0.0
        """Delivered by movers that were closed."""
        self.has_begun = False
        """May a record have been delivered?"""

    def run_until_done(self) -> None:
        """Deliver all that is due now.

        Raises:
            MoverTakenOverError: another process delivers one of the topics.
            SparklogError: the store can't be reached for five minutes, or refuses for good.
        """
        for topic in self._topics or self._found():
            if self._stopping.is_set():
                break
            until, _ = self._failed.get(topic, (float("-inf"), None))
            if self._cluster.clock.ticks_ms() >= until:
                self._run_one(topic)

    @property
    def errors(self) -> dict[str, SparklogError]:
        """The topics of which something can't be delivered now, each with an error that names it."""
        stopped = {topic: error for topic, mover in self._movers.items() for error in mover.stopped.values()}
        return {**stopped, **{topic: error for topic, (_, error) in self._failed.items()}}

    @property
    def delivered_count(self) -> float:
        """Records that were delivered."""
        return self._closed_count + sum(mover.metrics()["records-delivered-total"] for mover in self._movers.values())

    def __enter__(self) -> DelayMovers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for mover in self._movers.values():
            mover.close()

    def _found(self) -> list[str]:
        return despite_outages(
            lambda: delayed_topics(self._cluster),
            self._cluster.clock,
            max_outage_s=_MAX_OUTAGE_S,
            stopping=self._stopping,
            what="the topics with delayed records",
        )

    def _run_one(self, topic: str) -> None:
        self.has_begun = True
        if topic not in self._movers:
            self._movers[topic] = DelayMover(
                self._cluster, topic, batch_size=self._batch_size, max_outage_s=_MAX_OUTAGE_S, stopping=self._stopping
            )
        try:
            self._movers[topic].run_until_done()
            self._failed.pop(topic, None)
        except MoverTakenOverError:
            raise
        except SparklogError as error:
            check_of_one(self._cluster.store, error)
            _LOGGER.error("topic %s: delayed records wait: %s", topic, error, extra=about(topic=topic))
            mover = self._movers.pop(topic)
            self._closed_count += mover.metrics()["records-delivered-total"]
            mover.close()
            self._failed[topic] = self._cluster.clock.ticks_ms() + _AGAIN_MS, error
