"""The worker: polls, hands records to the threads of handlers, commits what is done.

Everything but handlers runs in one thread.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sparklog.clock import Clock
from sparklog.consumer import Consumer, ConsumerRebalanceListener
from sparklog.errors import SparklogError, UnknownTopicOrPartitionError
from sparklog.log import Cluster, open_cluster
from sparklog.logs import about, without_content
from sparklog.model import TopicPartition
from sparklog.opentelemetry.automatic import instrument_if_traced, process_telemetry
from sparklog.processing.commits import Commits
from sparklog.processing.deduplication import AlreadyProcessedError
from sparklog.processing.health import Counts, Health, State
from sparklog.processing.moves import DeadLetter
from sparklog.processing.pacing import CommitPace, Patience, may_pass
from sparklog.processing.retry_topics import SourceTopics, fit_retry_topics
from sparklog.processing.room import MOST_BYTES, buffer_bytes_for
from sparklog.processing.subscriber import Subscriber
from sparklog.processing.threads import HandlerThreads, HandlerWatch, LoopThread, called_by
from sparklog.processing.transactional_ids import transactional_id_of
from sparklog.processing.work import Limits, Pending, Work
from sparklog.producer import Producer

__all__ = ["AppSettings", "AppWorker", "opened", "report_dead_letter"]

_LOGGER = logging.getLogger("sparklog.processing")
_IDLE_POLL_MS, _BUSY_POLL_MS = 200.0, 10.0
_CLOSE_S = 30.0
_SPAN = re.compile(r"[0-9]+(?:ms|s|m|h)")
"""A delay in the name of a delay topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSettings:
    """The settings of an app; :class:`~sparklog.processing.app.App` describes them."""

    cluster: str | Path | Cluster
    group_id: str
    is_shared: bool = False
    """Is the group a share group?"""
    storage_options: Mapping[str, Any] | None = None
    clock: Clock | None = None
    transactional_id: str | None = None
    auto_offset_reset: str = "earliest"
    commit_interval_ms: float = 100.0
    most_per_commit: int = 5_000
    drain_timeout_s: float = 30.0
    handler_timeout_s: float = 300.0
    patience_s: float = 120.0
    limits: Limits = field(default_factory=Limits)
    consumer: Mapping[str, Any] = field(default_factory=dict)
    producer: Mapping[str, Any] = field(default_factory=dict)
    on_dead_letter: Callable[[DeadLetter], object] | None = None


def opened(settings: AppSettings) -> tuple[Cluster, bool]:
    """The cluster of an app; whether its store is the worker's to close."""
    cluster = settings.cluster
    if isinstance(cluster, Cluster):
        return cluster, False
    return open_cluster(cluster, storage_options=settings.storage_options, clock=settings.clock, create=False), True


def report_dead_letter(settings: AppSettings, letter: DeadLetter) -> None:
    """Call the app's ``on_dead_letter`` with a dead letter that was moved; what it raises is logged."""
    if settings.on_dead_letter is None:
        return
    try:
        settings.on_dead_letter(letter)
    except Exception:  # the record is moved and committed: to stop would help nobody
        _LOGGER.exception("on_dead_letter failed for %s", letter.origin)


class AppWorker:
    """Used by its own thread alone, but for :meth:`stop`, :meth:`health` and :meth:`metrics`."""

    def __init__(self, settings: AppSettings, subscribers: Sequence[Subscriber]) -> None:
        self.state = State.NEW
        self.error: BaseException | None = None
        """The error that it ended with."""
        self._settings = settings
        self._cluster, self._owns_store = opened(settings)
        self._clock = settings.clock or self._cluster.clock
        self._loop = LoopThread()
        self._work = Work(
            subscribers,
            group_id=settings.group_id,
            clock=self._clock,
            limits=settings.limits,
            run_async=self._loop.run,
            telemetry=process_telemetry(
                group_id=settings.group_id, cluster_id=self._cluster.cluster_id, passing=(AlreadyProcessedError,)
            ),
        )
        self._threads = HandlerThreads(self._work.stations)
        self._watch = HandlerWatch(self._threads, self._clock, settings.handler_timeout_s)
        self._consumer = Consumer(
            cluster=self._cluster,
            clock=settings.clock,
            **{
                "max_poll_records": 5_000,  # each poll may wait for threads of handlers that compute
                **settings.consumer,
                "group_id": settings.group_id,
                "auto_offset_reset": settings.auto_offset_reset,
                "enable_auto_commit": False,
                "isolation_level": "read_committed",
            },
        )
        instrument_if_traced(self._consumer)
        self._commits = Commits(self._work, self._consumer, self._make_producer)
        self._pace = CommitPace(settings.commit_interval_ms, settings.most_per_commit)
        self._commit_patience = Patience(settings.patience_s * 1_000)
        self._poll_patience = Patience(settings.patience_s * 1_000)
        self._buffer_bytes = buffer_bytes_for(self._cluster, ())
        self._sources = SourceTopics(self._cluster, self._clock)
        self._paused: set[TopicPartition] = set()
        self._is_stopping = False
        self._round_ticks_ms = self._clock.ticks_ms()
        self._counts = Counts()
        self._max_poll_interval_ms = float(settings.consumer.get("max_poll_interval_ms", 300_000))

    def run(self) -> None:
        """Work until :meth:`stop`, or until an error, which is kept in ``error``. Ends what it has begun."""
        try:
            self.state = State.STARTING
            self._check_topics()
            for station in self._work.stations:
                fit_retry_topics(self._cluster, station.subscriber.delay_topics())
            moves_to = [topic for station in self._work.stations for topic in station.subscriber.moves_to()]
            self._buffer_bytes = buffer_bytes_for(self._cluster, moves_to)
            self._warn_of_other_delay_topics()
            listener = _Partitions(self._work.assign, self._revoked, self._lost)
            self._consumer.subscribe(self._work.topics, listener=listener)
            self._threads.start()
            self.state = State.RUNNING
            while not self._is_stopping:
                self._round()
        except BaseException as error:
            self.error = error
        self._end()
        self.state = State.STOPPED if self.error is None else State.FAILED

    def stop(self) -> None:
        """End after the round that is under way. From any thread."""
        self._is_stopping = True

    @property
    def is_calling(self) -> bool:
        """Is the caller one of its handlers, which it has called?"""
        return called_by.get() is self._threads

    def health(self) -> Health:
        """How it fares. From any thread."""
        now, error = self._clock.ticks_ms(), self.error
        stopped = tuple(map(str, self._work.stopped.values()))
        since_ms = now - self._round_ticks_ms
        is_ending = self.state in (State.DRAINING, State.STOPPED)
        assigned = len(self._work.frontiers)
        return Health(
            state=self.state,
            is_alive=error is None and (is_ending or since_ms <= self._max_poll_interval_ms),
            is_ready=self.state is State.RUNNING and assigned > 0,
            assigned=assigned,
            in_flight=sum(frontier.in_flight for frontier in list(self._work.frontiers.values())),
            oldest_handler_ms=self._watch.oldest_ms(now),
            last_round_ms=since_ms,
            stopped=stopped,
            error=next(iter(stopped), None) if error is None else str(error) or type(error).__name__,
        )

    def metrics(self) -> dict[str, dict[str, float]]:
        """Totals since it began: group to name to value. From any thread."""
        counts, slots = self._counts, self._threads.slots
        return {
            "processing-metrics": {
                "records-processed-total": float(counts.records),
                "records-sent-total": float(counts.sent),
                "records-dead-lettered-total": float(counts.dead_letters),
                "records-delayed-total": float(counts.delayed),
                "handler-calls-total": float(sum(slot.tries for slot in slots)),
                "handler-failures-total": float(sum(slot.failures for slot in slots)),
                "commits-total": float(counts.commits),
                "transactions-total": float(counts.transactions),
                "commits-failed-total": float(counts.failed_commits),
                "records-in-flight": float(self.health().in_flight),
                "partitions-stopped": float(len(self._work.stopped)),
            }
        }

    def _round(self) -> None:
        """Poll once, take up what came, commit if it is time."""
        self._round_ticks_ms = now = self._clock.ticks_ms()
        if self._poll_patience.may_try(now):
            try:
                self._read(now)
                self._poll_patience.succeeded()
            except SparklogError as error:
                self._poll_patience.failed(error, self._clock.ticks_ms())
                self._warn("group %s: a poll failed, and is tried again: %s", error)
        else:
            self._clock.sleep_ms(_BUSY_POLL_MS)
        self._work.wake_due()
        self._watch.look()
        self._commit_if_due()
        stopped = self._work.stopped
        if stopped and len(stopped) == len(self._work.frontiers):  # there is nothing left to do
            raise next(iter(stopped.values()))
        self._pause(stopped)

    def _read(self, now: float) -> None:
        """Poll once, and take up what came; what waits beyond what is kept is read again later."""
        polled = self._consumer.poll(timeout_ms=self._poll_ms(now))
        try:
            self._sources.look(self._work, polled)
        except SparklogError:
            for at, records in polled.items():
                self._consumer.seek(at, records[0].offset)
            raise
        assigned = self._consumer._runtime.assigned
        back = self._work.feed(polled, assigned.topic_ids(polled), assigned.take_gap_ends())
        if back:
            self._consumer.pause(*back)
            self._paused |= back.keys()
        for at, offset in back.items():
            self._consumer.seek(at, offset)

    def _poll_ms(self, now: float) -> float:
        """How long a poll may wait: not long while handlers work, whose ends it doesn't notice."""
        is_busy = any(slot.entry is not None for slot in self._threads.slots) or self._work.pending.count
        if is_busy or self._commits.is_ending or any(not each.lanes.ready.empty() for each in self._work.stations):
            return _BUSY_POLL_MS
        due = self._work.wake_due()
        return _IDLE_POLL_MS if due is None else min(_IDLE_POLL_MS, max(1.0, due - now))

    def _commit_if_due(self) -> None:
        now = self._clock.ticks_ms()
        done = self._work.collect()
        is_due = self._commits.is_ending or self._pace.is_due(done.count + done.gaps, now_ticks_ms=now)
        if not is_due or not self._commit_patience.may_try(now):
            return
        try:
            self._commit()
        except SparklogError as error:
            self._counts.failed_commits += 1
            self._commit_patience.failed(error, self._clock.ticks_ms())
            self._warn("group %s: a commit failed, and is tried again: %s", error)

    def _commit(self) -> None:
        began = self._clock.ticks_ms()
        done = self._commits.commit()
        if done is None:
            return
        self._commit_patience.succeeded()
        self._pace.committed(began_ticks_ms=began, now_ticks_ms=self._clock.ticks_ms())
        self._count(done)
        for letter in done.letters:
            report_dead_letter(self._settings, letter)

    def _count(self, done: Pending) -> None:
        counts, letters = self._counts, len(done.letters)
        counts.commits += 1
        counts.records += done.count
        counts.dead_letters += letters
        counts.sent += sum(len(entry.outputs) for entry in done.moves)
        counts.delayed += sum(entry.is_delayed for entry in done.moves)
        counts.transactions = self._commits.transaction_count

    def _pause(self, stopped: Collection[TopicPartition]) -> None:
        """Read no more of partitions that have enough under way, or are stopped."""
        full = self._work.full(self._paused).union(stopped)
        if full != self._paused:
            assigned = self._consumer.assignment()
            self._consumer.pause(*(full - self._paused) & assigned)
            self._consumer.resume(*(self._paused - full) & assigned)
            self._paused = full & assigned

    # Partitions that come and go.

    def _revoked(self, partitions: Collection[TopicPartition]) -> None:
        """End what is being handled of them, commit what is done, forget the rest: their next owner reads it again."""
        is_busy = self._work.halt(partitions)
        # This is inside of a poll: what takes longer than max_poll_interval_ms would cost all partitions.
        wait_ms = min(self._settings.drain_timeout_s * 1_000, self._max_poll_interval_ms / 2)
        deadline = self._clock.deadline_in(0.0 if self._watch.is_hung else wait_ms)
        while is_busy() and not deadline.has_passed:
            self._clock.sleep_ms(1)
        try:
            self._commit()
            if self._work.collect().passed:  # the first may have asked only how the commit before it ended
                self._commit()
        except SparklogError as error:
            self._warn(
                "group %s: what was done of partitions that are taken away isn't committed, and is done again: %s",
                error,
            )
            if not may_pass(error):
                self._threads.failures.append(error)
        finally:
            if self.state is State.DRAINING:
                self._keep_error()
            self._lost(partitions)

    def _lost(self, partitions: Collection[TopicPartition]) -> None:
        """Forget partitions that another member owns."""
        self._work.drop(partitions)
        self._paused -= set(partitions)

    # Beginning and end.

    def _check_topics(self) -> None:
        wanted = dict.fromkeys(self._work.topics, "it is subscribed to")
        for station in self._work.stations:
            subscriber = station.subscriber
            wanted.update(dict.fromkeys(subscriber.delay_topics(), f"retries of {subscriber.name} wait there"))
            letters = [subscriber.dead_letter_of(topic) for topic in subscriber.topics]
            wanted.update({each: f"dead letters of {subscriber.name} go there" for each in letters if each is not None})
        for topic, why in wanted.items():
            if self._consumer.partitions_for_topic(topic) is None:
                raise UnknownTopicOrPartitionError(
                    f"unknown topic: {topic!r} ({why}); create it, or have app.create_topics() do so"
                )

    def _warn_of_other_delay_topics(self) -> None:
        """Report delay topics in which another version of this worker has left records, and which this one doesn't
        read."""
        known = set(self._work.topics)
        names = [f"{topic}-retry-" for station in self._work.stations for topic in station.subscriber.topics]
        for topic in sorted(self._consumer.topics() - known):
            if not any(topic.startswith(name) and _SPAN.fullmatch(topic[len(name) :]) for name in names):
                continue
            numbers = sorted(self._consumer.partitions_for_topic(topic) or ())
            partitions = [TopicPartition(topic, number) for number in numbers]
            starts, ends = self._consumer.beginning_offsets(partitions), self._consumer.end_offsets(partitions)
            # What another group alone has there is counted, too: only the record itself names its group.
            left = sum(ends[at] - max(self._consumer.committed(at) or 0, starts[at]) for at in partitions)
            if left > 0:
                _LOGGER.warning(
                    "group %s: %d records wait in %r, which no handler of this worker reads. They are of another "
                    "group, or of an earlier Retry(…): then run a worker with that Retry until they are processed",
                    self._settings.group_id,
                    left,
                    topic,
                    extra=about(group=self._settings.group_id, topic=topic),
                )

    def _make_producer(self) -> Producer:
        settings = self._settings
        transactional_id = settings.transactional_id or transactional_id_of(settings.group_id, uuid.uuid4().hex[:12])
        producer_settings = {
            "max_request_size": MOST_BYTES,
            "buffer_memory": self._buffer_bytes,
            **settings.producer,
            "transactional_id": transactional_id,
        }
        producer = Producer(self._cluster, clock=settings.clock, **producer_settings)
        instrument_if_traced(producer)
        return producer

    def _warn(self, text: str, error: BaseException) -> None:
        group = self._settings.group_id
        _LOGGER.warning(text, group, without_content(error), extra=about(group=group))

    def _keep_error(self) -> None:
        """End with the error with which a partition has stopped, unless there is one already."""
        self.error = self.error or next(iter(self._work.stopped.values()), None)

    def _end(self) -> None:
        """Hand over what it has, and close everything. What fails is logged, if it is not what ended the worker."""
        self.state = State.DRAINING
        self._keep_error()
        self._threads.stop()
        steps: list[Callable[[], object]] = [
            self._consumer.close,
            partial(self._commits.close, _CLOSE_S),
            self._loop.stop,
        ]
        if self._owns_store:
            steps.append(self._cluster.store.close)
        for step in steps:
            try:
                step()
            except BaseException as error:
                self._warn("group %s: closing failed: %s", error)
                self.error = self.error or error
        if self._threads.failures:
            self.error = self.error or self._threads.failures[0]


class _Partitions(ConsumerRebalanceListener):
    """Informs a worker which partitions come and go."""

    def __init__(
        self,
        assigned: Callable[[Collection[TopicPartition]], object],
        revoked: Callable[[Collection[TopicPartition]], object],
        lost: Callable[[Collection[TopicPartition]], object],
    ) -> None:
        self._assigned, self._revoked, self._lost = assigned, revoked, lost

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._assigned(assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._revoked(revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._lost(lost)
