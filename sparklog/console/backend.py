"""Shared by the pages of a process: the opened cluster, the thread that looks at it, how many queries may run."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar
from weakref import WeakSet

from sparklog.admin import Admin
from sparklog.clock import SystemClock
from sparklog.console.history import History
from sparklog.console.opening import SharedOpening
from sparklog.console.settings import ConsoleSettings
from sparklog.console.statements import TopicShape
from sparklog.console.streaming import Job, StreamedResponse
from sparklog.console.threads import Threads, result_of
from sparklog.console.waiting import CURRENT, Waiting
from sparklog.errors import (
    InvalidArgumentError,
    RetriableError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.exporter import ExporterApp
from sparklog.groups.admin.inspection import group_folders
from sparklog.log.cluster import Cluster
from sparklog.log.head import TopicHead
from sparklog.log.state import TopicState, open_state
from sparklog.observe import ClusterFigures, ClusterWatch, GroupFigures, Problem, TopicFigures, TransactionFigures
from sparklog.observe.watching import Watching, WatchStatus
from sparklog.paths import CLUSTER_FILE, TOPICS_FOLDER, check_topic_name
from sparklog.sql.apart import Origin
from sparklog.sql.dataset import load_living
from sparklog.storage.request_counts import Activity

__all__ = ["Backend", "BusyError"]

_LOGGER = logging.getLogger("sparklog.console")
_FIRST_LOOK_S = 1.3
"""How long the first pages wait for what the first look finds first; later ones never wait. Names alone, of a thousand
topics while the look is under way, take a third of a second more."""
_FIRST_PAGE_S = 1.28
"""How long they wait for what an overview shows first, where its first part is there by then."""
_MOST_STATEMENTS = 2
"""Processes with a statement, which take half a GiB each at most."""
_START_MS = 1_000.0
"""For the store, before the console listens all the same."""
_GRACE_MS = 1_000.0
"""For answers that are under way when the console ends."""
_STOP_S = 0.5
"""For a look that is under way then."""

J = TypeVar("J", bound=Job)
T = TypeVar("T")


class BusyError(RetriableError):
    """So many queries are under way already; a later one may begin."""


class Backend:
    """A cluster, as a console sees it. For several threads."""

    def __init__(
        self, open_cluster: Callable[[], Cluster], settings: ConsoleSettings, *, origin: Origin | None = None
    ) -> None:
        """Opens nothing.

        Args:
            open_cluster: called when the cluster is first needed, and again as long as it fails.
            origin: how a process opens it that runs one statement; None: statements run in this process, whose memory
                they may use up.
        """
        self.settings = settings
        self.origin = origin
        self.exporter = ExporterApp()
        self.history = History()
        self.secret = secrets.token_bytes(32)
        """Makes the tokens of this process."""
        self._opening = SharedOpening(open_cluster)
        self._clock = SystemClock()
        self._ended_ms: float | None = None
        self._first_asked_ms: float | None = None
        self.overview_threads = Threads("overview", 8)
        """Threads of their own, so that pages that ask the store don't hold up the one that doesn't."""
        self.page_threads = Threads("page", 24)
        self.write_threads = Threads("write", 8)
        self._queries = threading.BoundedSemaphore(settings.most_queries)
        self._statements = threading.BoundedSemaphore(_MOST_STATEMENTS)
        self._tails = threading.BoundedSemaphore(settings.most_tails)
        self._jobs: WeakSet[Job] = WeakSet()
        self._jobs_lock = threading.Lock()
        self._watching = Watching(
            lambda: ClusterWatch(self._opening.cluster(patiently=True)),
            interval_ms=settings.interval_ms,
            on_figures=self._keep,
            tells_parts=True,
        )
        self.exporter.watch(self._watching)

    def start(self) -> None:
        """Begin to look at the cluster."""
        self._watching.start()

    def stop(self) -> None:
        """Look no more, and end what is under way. What hangs in a call to the store is left behind."""
        self.end_jobs()
        self._watching.stop(_STOP_S)

    def end_jobs(self) -> None:
        """End all searches, statements and followed topics, and the wait for any other answer, soon."""
        if self._ended_ms is None:
            self._ended_ms = self._clock.ticks_ms()
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
        """The cluster.

        Raises ``StoreUnavailableError`` where the store doesn't answer soon, and what opening it raises: of one attempt
        for all who ask.
        """
        return self._opening.cluster()

    async def answer(self, work: Callable[[], T], threads: Threads) -> T:
        """The result of work that asks the store, in one of some threads.

        Raises ``StoreUnavailableError`` where the store is silent or this console ends, and all that ``work`` raises.
        """
        silence_ms = self.settings.silence_timeout_ms
        waiting = Waiting(self._asked, silence_ms=silence_ms, reason=self._reason, clock=self._clock)

        def gives_up() -> Exception | None:
            return StoreUnavailableError("this console is ending") if self.is_over else waiting()

        before = CURRENT.set(waiting)
        try:
            future = threads.submit(work)
        finally:
            CURRENT.reset(before)
        try:
            return await result_of(future, gives_up)
        except BaseException:
            future.add_done_callback(_drop)
            raise

    async def carry_out(self, work: Callable[[], T]) -> T:
        """The outcome of a change: awaited for as long as it takes, or until this console ends."""

        def gives_up() -> Exception | None:
            if not self.is_over:
                return None
            return StoreOutcomeUnknownError(
                "this console is ending: whether it was done isn't known, look at what is there"
            )

        return await result_of(self.write_threads.submit(work), gives_up)

    @property
    def is_over(self) -> bool:
        """Was this console stopped, and has the time passed that it allows for answers under way?"""
        return self._ended_ms is not None and self._clock.ticks_ms() - self._ended_ms >= _GRACE_MS

    def ends_wait(self) -> Exception | None:
        """The error that ends the wait for a streamed answer: None as long as this console isn't over."""
        return StoreUnavailableError("this console is ending") if self.is_over else None

    def check_store(self) -> None:
        """Ask the store for something small. Raises what it raises: where it doesn't answer, nothing else needs to be
        begun."""
        cluster = self.cluster()
        cluster.store.read(CLUSTER_FILE)

    def require_cluster(self) -> None:
        """Open the cluster, unless the store doesn't answer soon: that may pass. Raises ``InvalidArgumentError``: there
        is none."""
        try:
            self._opening.cluster(wait_ms=_START_MS)
        except StoreError as error:
            if not error.retriable:
                raise
            _LOGGER.warning("the store is unavailable, trying again: %s", error)

    def admin(self) -> Admin:
        """A client for administration; nothing needs to be closed."""
        return Admin(self.cluster())

    def status(self) -> WatchStatus:
        """The result of the newest look; the first calls wait for a moment."""
        status = self._watching.status()
        is_whole = status.part is not None and status.part.is_first_page_whole
        if status.figures is None and status.error is None and not is_whole:
            if self._first_asked_ms is None:
                self._first_asked_ms = self._clock.ticks_ms()
            self._watching.wait_for_anything(self._left_s(_FIRST_LOOK_S))
            if self._watching.status().part is not None:
                self._watching.wait_for_anything(self._left_s(_FIRST_PAGE_S), first_page=True)
            status = self._watching.status()
        return status

    def _left_s(self, wait_s: float) -> float:
        """The rest of a wait that began when the first page was asked for."""
        began_ms = self._first_asked_ms
        return wait_s if began_ms is None else max(0.0, wait_s - (self._clock.ticks_ms() - began_ms) / 1_000)

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
        return self._shape_of(topic, head)

    def shape_at(self, topic: str, version: int | None) -> tuple[TopicShape, TopicState | None]:
        """The shape of a topic as of a version, and the topic as it was, to be searched; as of its newest commit, and
        None, for None. Raises as :func:`~sparklog.sql.dataset.load_living`."""
        if version is None:
            return self.shape(topic), None
        state = load_living(self.cluster().topic_log(check_topic_name(topic)), topic, version)
        return self._shape_of(topic, state.head), state

    def _shape_of(self, topic: str, head: TopicHead) -> TopicShape:
        return TopicShape(
            name=topic,
            partition_count=head.partition_count,
            values=head.values,
            masks=self.settings.masking,
            named_schema=self.settings.value_schemas.get(topic),
        )

    def query_slot(self) -> Callable[[], None]:
        """Take one of the places for queries; returns what gives it back. Raises ``BusyError``."""
        return _taken(self._queries, f"{self.settings.most_queries} searches are under way: try again")

    def statement_slot(self) -> Callable[[], None]:
        """Take one of the places for statements, which are fewer where each has a process of its own. As
        :meth:`query_slot`."""
        if self.origin is None:
            return self.query_slot()
        return _taken(self._statements, f"{_MOST_STATEMENTS} statements are under way: try again")

    def tail_slot(self) -> Callable[[], None]:
        """Take one of the places for those who follow a topic; returns what gives it back. Raises ``BusyError``."""
        return _taken(self._tails, f"{self.settings.most_tails} readers follow topics already: try again")

    def check_sql(self) -> None:
        """Raise ``InvalidArgumentError`` where statements aren't run."""
        if self.settings.masks:
            raise InvalidArgumentError("SQL is off: fields are masked, and a statement could show them")

    def _asked(self) -> Activity:
        cluster = self._opening.opened
        return Activity() if cluster is None else cluster.store.counts.activity()

    def _reason(self) -> str:
        error = self._watching.status().error
        return "" if error is None else " ".join(str(error).split())

    def _keep(self, figures: ClusterFigures) -> None:
        self.exporter.keep(figures)
        self.history.add(figures)


def _drop(future: Future[Any]) -> None:
    """Release the resources of an answer that was no longer awaited."""
    if not future.cancelled() and future.exception() is None:
        answer = future.result()
        if isinstance(answer, StreamedResponse):
            answer.job.close()


def _taken(places: threading.BoundedSemaphore, otherwise: str) -> Callable[[], None]:
    if not places.acquire(blocking=False):
        raise BusyError(otherwise)
    is_given_back = threading.Event()

    def give_back() -> None:
        if not is_given_back.is_set():
            is_given_back.set()
            places.release()

    return give_back
