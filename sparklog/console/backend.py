"""Shared by the pages of a process: the opened cluster, the thread that looks at it, how many queries may run."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakSet

from sparklog.admin import Admin
from sparklog.console.history import History
from sparklog.console.settings import ConsoleSettings
from sparklog.console.statements import TopicShape
from sparklog.console.streaming import Job
from sparklog.errors import InvalidArgumentError, RetriableError, StoreError, UnknownTopicOrPartitionError
from sparklog.exporter import ExporterApp
from sparklog.groups.admin.inspection import group_folders
from sparklog.log.cluster import Cluster
from sparklog.log.state import open_state
from sparklog.observe import ClusterFigures, ClusterWatch, GroupFigures, Problem, TopicFigures, TransactionFigures
from sparklog.observe.watching import Watching, WatchStatus
from sparklog.paths import TOPICS_FOLDER, check_topic_name

__all__ = ["Backend", "BusyError"]

_LOGGER = logging.getLogger("sparklog.console")
_FIRST_LOOK_S = 1.1
"""How long the first pages wait for what the first look finds first; later ones never wait. Names alone, of a thousand
topics while the look is under way, take a third of a second more."""


J = TypeVar("J", bound=Job)


class BusyError(RetriableError):
    """So many queries are under way already; a later one may begin."""


class Backend:
    """A cluster, as a console sees it. For several threads."""

    def __init__(self, open_cluster: Callable[[], Cluster], settings: ConsoleSettings) -> None:
        """Opens nothing.

        Args:
            open_cluster: called when the cluster is first needed, and again as long as it fails.
        """
        self.settings = settings
        self.exporter = ExporterApp()
        self.history = History()
        self.secret = secrets.token_bytes(32)
        """Makes the tokens of this process."""
        self._open_cluster = open_cluster
        self._cluster: Cluster | None = None
        self._opening = threading.Lock()
        self._queries = threading.BoundedSemaphore(settings.most_queries)
        self._tails = threading.BoundedSemaphore(settings.most_tails)
        self._jobs: WeakSet[Job] = WeakSet()
        self._jobs_lock = threading.Lock()
        self._watching = Watching(
            lambda: ClusterWatch(self.cluster()),
            interval_ms=settings.interval_ms,
            on_figures=self._keep,
            tells_parts=True,
        )
        self.exporter.watch(self._watching)

    def start(self) -> None:
        """Begin to look at the cluster."""
        self._watching.start()

    def stop(self) -> None:
        """Look no more, and end what is under way."""
        self.end_jobs()
        self._watching.stop()

    def end_jobs(self) -> None:
        """End all searches, statements and followed topics, soon."""
        with self._jobs_lock:
            jobs = list(self._jobs)
        for job in jobs:
            job.cancel()

    def ending(self, job: J) -> J:
        """A job that ends with this console."""
        with self._jobs_lock:
            self._jobs.add(job)
        return job

    def look(self) -> None:
        """Look once, in the caller's thread, where the thread isn't started: for tests."""
        self._watching.look()

    def cluster(self) -> Cluster:
        """The cluster. Raises what opening it raises."""
        if self._cluster is None:
            with self._opening:
                if self._cluster is None:
                    self._cluster = self._open_cluster()
        return self._cluster

    def require_cluster(self) -> None:
        """Open the cluster, unless the store is away: that may pass. Raises ``InvalidArgumentError``: there is none."""
        try:
            self.cluster()
        except StoreError as error:
            if not error.retriable:
                raise
            _LOGGER.warning("the store is away, trying again: %s", error)

    def admin(self) -> Admin:
        """A client for administration; nothing needs to be closed."""
        return Admin(self.cluster())

    def status(self) -> WatchStatus:
        """The result of the newest look; the first call waits for a moment."""
        status = self._watching.status()
        if status.figures is None and status.error is None and status.part is None:
            self._watching.wait_for_anything(_FIRST_LOOK_S)
            status = self._watching.status()
        return status

    def figures(self) -> ClusterFigures | None:
        """The figures of the newest look that succeeded; None before the first."""
        return self.status().figures

    def seen(self) -> ClusterFigures | None:
        """The figures of the newest look, or the part that the first one has found so far; None before."""
        status = self.status()
        return status.figures or status.part

    def topic_figures(self, topic: str) -> TopicFigures | None:
        """The figures of a topic; None where no look has found it yet."""
        figures = self.figures()
        return None if figures is None else next((one for one in figures.topics if one.name == topic), None)

    def group_figures(self, group: str) -> GroupFigures | None:
        """The figures of a group; None where no look has found it yet."""
        figures = self.figures()
        return None if figures is None else next((one for one in figures.groups if one.group_id == group), None)

    def transaction_figures(self, name: str) -> TransactionFigures | None:
        """The figures of a transactional id; None where no look has found it yet."""
        found = self.figures()
        ids = () if found is None else found.transactions
        return next((one for one in ids if one.transactional_id == name), None)

    def problem(self, kind: str, name: str) -> Problem | None:
        """Why a thing can't be read; None where it can, or isn't known."""
        figures = self.figures()
        problems = () if figures is None else figures.problems
        return next((one for one in problems if (one.kind, one.name) == (kind, name)), None)

    def names(self) -> tuple[list[str], list[str]]:
        """The folders of topics and of groups, by two listings: what is known before the first look has ended."""
        cluster = self.cluster()
        return sorted(cluster.store.list_names(TOPICS_FOLDER)), sorted(group_folders(cluster))

    def shape(self, topic: str) -> TopicShape:
        """The shape of a topic as of its newest commit. Raises ``UnknownTopicOrPartitionError``."""
        check_topic_name(topic)
        head = open_state(self.cluster().topic_log(topic)).head
        if head.deleted:
            raise UnknownTopicOrPartitionError(f"unknown topic: {topic!r} was deleted")
        return TopicShape(
            name=topic,
            partition_count=head.partition_count,
            values=head.values,
            masks=self.settings.masks,
            named_schema=self.settings.value_schemas.get(topic),
        )

    def query_slot(self) -> Callable[[], None]:
        """Take one of the places for queries; returns what gives it back. Raises ``BusyError``."""
        return _taken(self._queries, f"{self.settings.most_queries} searches are under way: try again")

    def tail_slot(self) -> Callable[[], None]:
        """Take one of the places for those who follow a topic; returns what gives it back. Raises ``BusyError``."""
        return _taken(self._tails, f"{self.settings.most_tails} readers follow topics already: try again")

    def check_sql(self) -> None:
        """Raise ``InvalidArgumentError`` where statements aren't run."""
        if self.settings.masks:
            raise InvalidArgumentError("SQL is off: fields are masked, and a statement could show them")

    def _keep(self, figures: ClusterFigures) -> None:
        self.exporter.keep(figures)
        self.history.add(figures)


def _taken(places: threading.BoundedSemaphore, otherwise: str) -> Callable[[], None]:
    if not places.acquire(blocking=False):
        raise BusyError(otherwise)
    is_given_back = threading.Event()

    def give_back() -> None:
        if not is_given_back.is_set():
            is_given_back.set()
            places.release()

    return give_back
