"""The mover of delayed records: delivers what is due to its topic, exactly once (decision 0033)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sparklog.clock import Clock
from sparklog.errors import (
    CommitStateUnknownError,
    CorruptRecordError,
    InvalidArgumentError,
    ProducerFencedError,
    SparklogError,
    StoreReplacedError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from sparklog.interrupts import SafeEvent
from sparklog.log import Cluster, TopicFollower, open_cluster
from sparklog.log.topic import delete_records
from sparklog.logs import about, without_content
from sparklog.processing.commits import OF_THE_RECORD
from sparklog.processing.delayed_letters import DelayedError, Refusals
from sparklog.processing.delayed_topic import DelayedTopic, delayed_topics, read_schedule
from sparklog.processing.schedule import Place
from sparklog.producer import FutureRecordMetadata, Producer
from sparklog.producer.delayed_records import Waiting, delay_topic

__all__ = ["DelayMover", "DelayedError", "MoverTakenOverError", "delayed_topics", "despite_outages", "read_schedule"]

_LOGGER = logging.getLogger("sparklog.processing")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_TRIM_MS = 300_000.0
"""Between two removals of what is done from the beginning of the delay topic."""
_TRIM_TIMEOUT_MS = 10_000.0
_LARGEST: dict[str, Any] = {"max_request_size": 2**31 - 1, "buffer_memory": 2**31 - 1}
"""Any record that waits was allowed by the producer that sent it; ``batch_size`` bounds how much is read at once."""
T = TypeVar("T")


class MoverTakenOverError(SparklogError):
    """Another mover of the same topic has started; this one can't deliver any more."""

    fatal = True


class DelayMover:
    """Delivers the delayed records of one topic, each exactly once, even if processes die.

    What is due is sent to the topic in one transaction with the records that end it in the delay topic. A mover that
    begins fences its predecessor off, then reads what waits: so nothing that was delivered is there any more.

    A record that its topic refuses when it is due is moved to the dead letters, ``dlq.<topic>``. Where that isn't
    possible its partition of the delay topic stands still (:attr:`stopped`), and is tried again each minute.

    Times are compared with this machine's clock. Not to be used by two threads at once, except :meth:`stop` and
    :meth:`metrics`.
    """

    def __init__(
        self,
        cluster: str | Path | Cluster,
        topic: str,
        *,
        batch_size: int = 1_000,
        poll_interval_s: float = 1.0,
        max_outage_s: float = 300.0,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        stopping: SafeEvent | None = None,
    ) -> None:
        """Reads nothing yet.

        Args:
            topic: the records are for; they wait in ``delayed.<topic>``.
            batch_size: records of a transaction, at most.
            poll_interval_s: how late a record may be delivered, beside what a transaction takes.
            max_outage_s: how long to try again where the store can't be reached, or isn't the one that it was.
            stopping: stops it, as :meth:`stop` does, with others.
        Raises:
            InvalidArgumentError: of the arguments; there is no cluster. StoreError.
        """
        if batch_size < 1 or poll_interval_s <= 0 or max_outage_s < 0:
            raise InvalidArgumentError(
                f"batch_size={batch_size}, poll_interval_s={poll_interval_s}, max_outage_s={max_outage_s}: expected 1 "
                "or more, more than 0, and 0 or more"
            )
        self.topic = topic
        self._owns_store = not isinstance(cluster, Cluster)
        self._cluster = (
            cluster
            if isinstance(cluster, Cluster)
            else open_cluster(cluster, storage_options=storage_options, clock=clock, create=False)
        )
        self._clock = clock or self._cluster.clock
        self._batch_size = batch_size
        self._poll_interval_s = poll_interval_s
        self._max_outage_s = max_outage_s
        self._stopping = stopping or SafeEvent()
        self._delayed: DelayedTopic | None = None
        self._producer: Producer | None = None
        self._trimmed_ticks_ms = float("-inf")
        self._delivered_count = self._cancelled_count = self._letter_count = self._gone_count = 0
        self._waiting_count = 0
        self._refusals = Refusals(topic, self._clock)

    def run(self) -> None:
        """Deliver records as they become due, until :meth:`stop` is called.

        Raises:
            DelayedError: the topic is gone. MoverTakenOverError.
            SparklogError: the store can't be reached for ``max_outage_s``, or refuses for good.
        """
        while not self._stopping.is_set():
            if self.run_once() == 0:
                self._stopping.wait(self._poll_interval_s)

    def run_once(self) -> int:
        """Deliver one batch of records that are due; returns the number that is done. Raises as :meth:`run`."""
        return despite_outages(
            self._move,
            self._clock,
            max_outage_s=self._max_outage_s,
            stopping=self._stopping,
            what=f"delayed records of {self.topic}",
        )

    def run_until_done(self) -> int:
        """Deliver all records that are due now; returns their number. Raises as :meth:`run`."""
        total = 0
        while not self._stopping.is_set() and (count := self.run_once()):
            total += count
        return total

    def stop(self) -> None:
        """Make :meth:`run` end after its current batch. From any thread, and from signal handlers."""
        self._stopping.set()

    @property
    def stopped(self) -> dict[int, DelayedError]:
        """The partitions of the delay topic that stand still, each with the error that names the record."""
        broken = {} if self._delayed is None else dict(self._delayed.broken)
        return {**{at: DelayedError(str(error)) for at, error in broken.items()}, **self._refusals.stopped()}

    def metrics(self) -> dict[str, float]:
        """``records-waiting`` and ``partitions-stopped`` as of the last look; since the mover was made
        ``records-delivered-total``, ``records-cancelled-total`` (and the cancellations themselves),
        ``records-dead-lettered-total``, and ``records-of-deleted-topics-total``, which nobody gets."""
        return {
            "records-waiting": float(self._waiting_count),
            "records-delivered-total": float(self._delivered_count),
            "records-cancelled-total": float(self._cancelled_count),
            "records-dead-lettered-total": float(self._letter_count),
            "records-of-deleted-topics-total": float(self._gone_count),
            "partitions-stopped": float(len(self.stopped)),
        }

    def close(self) -> None:
        """Abort a transaction that isn't committed, and close the connections."""
        self._begin_anew(timeout_s=30.0)
        if self._owns_store:
            self._cluster.store.close()

    def __enter__(self) -> DelayMover:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _move(self) -> int:
        now_ms = self._clock.now_ms()  # before it is read what is cancelled: so a cancellation in time always counts
        opened = self._opened()
        if opened is None:
            return 0
        delayed, producer = opened
        cancelled = delayed.schedule.cancelled(most=self._batch_size)
        due: Sequence[Place] = delayed.schedule.due(now_ms, most=self._batch_size, but_not=self.stopped.keys())
        self._waiting_count = len(delayed.schedule)
        if due or cancelled:
            try:
                due = self._deliver(producer, delayed, due, cancelled)
            except BaseException:
                self._begin_anew()  # whether it is committed isn't known: the next schedule shows it
                raise
            for place in (*due, *cancelled):
                delayed.schedule.end(place.id)
            self._cancelled_count += len(cancelled)
            self._waiting_count = len(delayed.schedule)
        self._trim(delayed)
        return len(due)

    def _opened(self) -> tuple[DelayedTopic, Producer] | None:
        """The schedule as of now, and the only producer that delivers; None: nothing was ever delayed."""
        try:
            if self._producer is None:
                TopicFollower(self._cluster.topic_log(delay_topic(self.topic)), delay_topic(self.topic))
                producer = Producer(self._cluster, transactional_id=f"delayed-{self.topic}", **_LARGEST)
                self._producer = producer  # whatever fails now, it is closed before the next one is made
                producer.init_transactions()
            broken = 0 if self._delayed is None else len(self._delayed.broken)
            if self._delayed is None:
                self._delayed = DelayedTopic.open(self._cluster, self.topic)
            else:
                self._delayed.follow()
            for error in [*self._delayed.broken.values()][broken:]:
                _LOGGER.error("a partition stands still: %s", error, extra=about(topic=self.topic))
        except UnknownTopicOrPartitionError:
            self._begin_anew()
            return None
        except BaseException:
            self._begin_anew()
            raise
        return self._delayed, self._producer

    def _deliver(
        self, producer: Producer, delayed: DelayedTopic, due: Sequence[Place], cancelled: Sequence[Place]
    ) -> Sequence[Place]:
        """Deliver what is due, and end it, in one transaction. What is refused goes to the dead letters, or stops its
        partition. Returns what is done."""
        records = delayed.read(due)
        topic_id = self._topic_id(producer) if due else ""
        while due or cancelled:
            refused = self._commit(producer, delayed, due, cancelled, records, topic_id)
            if not refused:
                letters = self._refusals.done(due)
                gone = [place for place in due if records[place.id].topic_id not in (None, topic_id)]
                self._note_gone(gone)
                self._letter_count += letters
                self._delivered_count += len(due) - letters - len(gone)
                break
            # Each record is refused twice at most: as it is, and as a letter.
            due = self._refusals.without_stopped(refused, due)
        return due

    def _topic_id(self, producer: Producer) -> str:
        try:
            return producer._topic_id(self.topic)
        except UnknownTopicOrPartitionError as error:
            raise DelayedError(
                f"records of {delay_topic(self.topic)!r} are due, and can't be delivered: {error}; create the topic, "
                f"or delete {delay_topic(self.topic)!r}"
            ) from error

    def _commit(
        self,
        producer: Producer,
        delayed: DelayedTopic,
        due: Sequence[Place],
        cancelled: Sequence[Place],
        records: Mapping[bytes, Waiting],
        topic_id: str,
    ) -> dict[bytes, SparklogError]:
        """Send and commit all. Returns what was refused, by id; then nothing is committed."""
        try:
            producer.begin_transaction()
            sent, refused = self._send_all(producer, due, records, topic_id)
            if not refused:
                for place in (*due, *cancelled):
                    producer.send(delayed.follower.topic, None, place.id, partition=place.partition)
                try:
                    producer.commit_transaction()
                    return {}
                except TransactionAbortableError as error:
                    producer.abort_transaction()  # only now records have their own errors
                    refused = {name: each.exception for name, each in sent if isinstance(each.exception, OF_THE_RECORD)}
                    if not refused:
                        raise self._why(error) from error
                    return refused
            producer.abort_transaction()
            return refused
        except ProducerFencedError as error:
            raise MoverTakenOverError(f"another mover of topic {self.topic!r} has begun: {error}") from error

    def _send_all(
        self, producer: Producer, due: Sequence[Place], records: Mapping[bytes, Waiting], topic_id: str
    ) -> tuple[list[tuple[bytes, FutureRecordMetadata]], dict[bytes, SparklogError]]:
        """Send what is due, or its dead letters; nothing of what was sent to a topic that was deleted since."""
        sent: list[tuple[bytes, FutureRecordMetadata]] = []
        refused: dict[bytes, SparklogError] = {}
        for place in due:
            record = records[place.id]
            if record.topic_id not in (None, topic_id):
                continue
            try:
                if (reason := self._refusals.reason(place.id)) is not None:
                    future = self._refusals.send_letter(producer, self._cluster, place, record, reason)
                else:
                    future = producer.send(
                        self.topic,
                        record.value,
                        record.key,
                        record.headers or None,
                        record.partition,
                        record.timestamp_ms,
                    )
                sent.append((place.id, future))
            except SparklogError as error:
                is_unknown = isinstance(error, UnknownTopicOrPartitionError)  # a partition: the topic is there
                if error.fatal or (_may_pass(error) and not is_unknown):
                    raise
                refused[place.id] = error
        return sent, refused

    def _why(self, error: TransactionAbortableError) -> SparklogError:
        """The error of a transaction that failed for another reason than a record."""
        reason = error.__cause__
        if reason is None or _may_pass(reason):
            return error
        return DelayedError(f"records of {delay_topic(self.topic)!r} can't be delivered: {reason}")

    def _note_gone(self, gone: Sequence[Place]) -> None:
        if gone:
            self._gone_count += len(gone)
            _LOGGER.warning(
                "%d records of %s aren't delivered: they are of an earlier topic %s, which was deleted",
                len(gone),
                delay_topic(self.topic),
                self.topic,
                extra=about(topic=self.topic),
            )

    def _begin_anew(self, timeout_s: float = 0.0) -> None:
        producer, self._producer, self._delayed = self._producer, None, None
        if producer is not None:
            producer.close(timeout_s)

    def _trim(self, delayed: DelayedTopic) -> None:
        """Remove what is done from the beginning of the delay topic, now and then: a mover that begins reads all."""
        now = self._clock.ticks_ms()
        if now - self._trimmed_ticks_ms < _TRIM_MS:
            return
        self._trimmed_ticks_ms = now
        head = delayed.follower.head
        starts = head.log_start_offsets
        below = {
            partition: delayed.schedule.first_offset(partition, delayed.positions.get(partition, 0))
            for partition in range(len(starts))
        }
        below = {partition: offset for partition, offset in below.items() if offset > starts[partition]}
        if not below:
            return
        log, name = delayed.follower.log, delayed.follower.topic
        try:
            delete_records(log, name, below, topic_id=head.topic_id, timeout_ms=_TRIM_TIMEOUT_MS)
        except SparklogError as error:  # it costs room; the next time comes
            _LOGGER.warning(
                "topic %s: what was delivered could not be removed: %s", name, error, extra=about(topic=name)
            )


def despite_outages(call: Callable[[], T], clock: Clock, *, max_outage_s: float, stopping: SafeEvent, what: str) -> T:
    """Call, and again where the store can't be reached now, or isn't the one that it was, for ``max_outage_s`` at
    most."""
    deadline = clock.deadline_in(max_outage_s * 1_000)
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return call()
        except SparklogError as error:
            if not _may_pass(error) or deadline.has_passed or stopping.is_set():
                raise
            _LOGGER.warning("%s: tried again in %.1f s: %s", what, pause_s, without_content(error))
        stopping.wait(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _may_pass(error: Any) -> bool:
    """May the same call succeed later? A folder that isn't mounted may be mounted again, and how a commit ended is
    learned by the next mover's beginning; what is stored and can't be read stays so."""
    return (
        isinstance(error, SparklogError)
        and not error.fatal
        and not isinstance(error, CorruptRecordError)
        and (error.retriable or error.requires_abort or isinstance(error, StoreReplacedError | CommitStateUnknownError))
    )
