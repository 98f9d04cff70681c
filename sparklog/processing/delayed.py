"""The mover of delayed records: delivers what is due to its topic, exactly once (decision 0033)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.errors import (
    InvalidArgumentError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    SparklogError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from sparklog.interrupts import SafeEvent
from sparklog.log import Cluster, TopicFollower, open_cluster
from sparklog.log.cluster import topic_names
from sparklog.log.topic import delete_records
from sparklog.logs import about, without_content
from sparklog.processing.schedule import Place, Schedule
from sparklog.producer import Producer
from sparklog.producer.delayed_records import DELAY_PREFIX, Waiting, delay_topic, parse_delayed

__all__ = ["DelayMover", "DelayedError", "MoverTakenOverError", "delayed_topics", "read_schedule"]

_LOGGER = logging.getLogger("sparklog.processing")
_READ_RECORDS = 1_000
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_TRIM_MS = 300_000.0
"""Between two removals of what is done from the beginning of the delay topic."""
_TRIM_TIMEOUT_MS = 10_000.0
T = TypeVar("T")


class DelayedError(SparklogError):
    """A delayed record can't be delivered as it is; names it. Nothing is skipped: the mover stops until it is mended or
    cancelled."""


class _RefusedTogetherError(Exception):
    """The topic refuses one of several records: each is to be sent alone, to learn which."""


class MoverTakenOverError(SparklogError):
    """Another mover of the same topic has started; this one can't deliver any more."""

    fatal = True


@dataclass(slots=True)
class DelayedTopic:
    """A delay topic as one process follows it."""

    topic: str
    """The topic that the records are for."""
    follower: TopicFollower
    schedule: Schedule
    positions: dict[int, int]
    """By partition: the next offset to be read."""

    @classmethod
    def open(cls, cluster: Cluster, topic: str) -> DelayedTopic:
        """Read it to its end. Raises ``UnknownTopicOrPartitionError``: nothing was ever delayed; as :meth:`follow`."""
        name = delay_topic(topic)
        opened = cls(topic, TopicFollower(cluster.topic_log(name), name), Schedule(), {})
        opened.follow()
        return opened

    def follow(self) -> None:
        """Apply all that is there by now.

        Raises:
            CorruptRecordError: a record that sparklog didn't write. And the errors of reading a topic.
        """
        self.follower.poll()
        while not self.follower.caught_up:
            self.follower.poll()
        head = self.follower.head
        for partition, (start, end) in enumerate(zip(head.log_start_offsets, head.log_end_offsets, strict=True)):
            at = max(self.positions.get(partition, 0), start)
            while at < end:
                table = self.follower.read(partition, at, max_records=_READ_RECORDS)
                if table.num_rows == 0:  # compacted away
                    break
                for offset, key, value, headers in _rows(table):
                    where = f"{self.follower.topic}-{partition}, offset {offset},"
                    self.schedule.apply(parse_delayed(key, value, headers, where), partition=partition, offset=offset)
                at = table["offset"][-1].as_py() + 1
                self.positions[partition] = at
            self.positions[partition] = max(at, end)

    def read(self, places: Sequence[Place]) -> dict[bytes, Waiting]:
        """The records at these places, by id.

        Raises:
            OffsetOutOfRangeError: one was removed: another mover has ended it.
        """
        wanted = {(place.partition, place.offset) for place in places}
        records: dict[bytes, Waiting] = {}
        while wanted:
            partition, first = min(wanted)
            near = sum(at == partition and first <= offset < first + _READ_RECORDS for at, offset in wanted)
            table = self.follower.read(partition, first, max_records=_READ_RECORDS if near > 1 else 1)
            before = len(wanted)
            for offset, key, value, headers in _rows(table):
                if (partition, offset) in wanted:
                    wanted.remove((partition, offset))
                    record = parse_delayed(key, value, headers, f"{self.follower.topic}-{partition}, offset {offset},")
                    if isinstance(record, Waiting):
                        records[record.id] = record
            if len(wanted) == before:
                raise OffsetOutOfRangeError(f"{self.follower.topic}-{partition}: the record at {first} was removed")
        return records


class DelayMover:
    """Delivers the delayed records of one topic, each exactly once, even if processes die.

    What is due is sent to the topic in one transaction with the records that end it in the delay topic. A mover that
    begins fences its predecessor off, then reads what waits: so nothing that was delivered is there any more.

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
    ) -> None:
        """Reads nothing yet.

        Args:
            topic: the records are for; they wait in ``delayed.<topic>``.
            batch_size: records of a transaction, at most.
            poll_interval_s: how late a record may be delivered, beside what a transaction takes.
            max_outage_s: how long to try again where the store can't be reached.
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
        self._stopping = SafeEvent()
        self._delayed: DelayedTopic | None = None
        self._producer: Producer | None = None
        self._trimmed_ticks_ms = float("-inf")
        self._delivered_count = self._cancelled_count = 0
        self._waiting_count = 0
        self._alone_count = 0
        """So many records are delivered one by one, as one among them was refused."""

    def run(self) -> None:
        """Deliver records as they become due, until :meth:`stop` is called.

        Raises:
            DelayedError, MoverTakenOverError.
            SparklogError: the store can't be reached for ``max_outage_s``, or refuses for good.
        """
        while not self._stopping.is_set():
            if self.run_once() == 0:
                self._stopping.wait(self._poll_interval_s)

    def run_once(self) -> int:
        """Deliver one batch of records that are due; returns their number. Raises as :meth:`run`."""
        return self._despite_outages(self._move)

    def run_until_done(self) -> int:
        """Deliver all records that are due now; returns their number. Raises as :meth:`run`."""
        total = 0
        while not self._stopping.is_set() and (count := self.run_once()):
            total += count
        return total

    def stop(self) -> None:
        """Make :meth:`run` end after its current batch. From any thread, and from signal handlers."""
        self._stopping.set()

    def metrics(self) -> dict[str, float]:
        """``records-waiting`` as of the last look; ``records-delivered-total`` and ``records-cancelled-total`` (and the
        cancellations themselves) since the mover was made."""
        return {
            "records-waiting": float(self._waiting_count),
            "records-delivered-total": float(self._delivered_count),
            "records-cancelled-total": float(self._cancelled_count),
        }

    def close(self) -> None:
        """Abort a transaction that isn't committed, and close the connections."""
        self.stop()
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
        due = delayed.schedule.due(now_ms, most=1 if self._alone_count else self._batch_size)
        self._waiting_count = len(delayed.schedule)
        if due or cancelled:
            try:
                self._commit(producer, delayed, due, cancelled)
            except _RefusedTogetherError:
                self._begin_anew()
                self._alone_count = len(due)
                return self._move()  # only once: what is sent alone is named
            except BaseException:
                self._begin_anew()  # whether it is committed isn't known: the next schedule shows it
                raise
            for place in (*due, *cancelled):
                delayed.schedule.end(place.id)
            self._alone_count = max(0, self._alone_count - len(due))
            self._delivered_count += len(due)
            self._cancelled_count += len(cancelled)
            self._waiting_count = len(delayed.schedule)
        self._trim(delayed)
        return len(due)

    def _opened(self) -> tuple[DelayedTopic, Producer] | None:
        """The schedule as of now, and the only producer that delivers; None: nothing was ever delayed."""
        try:
            if self._producer is None:
                TopicFollower(self._cluster.topic_log(delay_topic(self.topic)), delay_topic(self.topic))
                producer = Producer(self._cluster, transactional_id=f"delayed-{self.topic}")
                self._producer = producer  # whatever fails now, it is closed before the next one is made
                producer.init_transactions()
            if self._delayed is None:
                self._delayed = DelayedTopic.open(self._cluster, self.topic)
            else:
                self._delayed.follow()
        except UnknownTopicOrPartitionError:
            self._begin_anew()
            return None
        except BaseException:
            self._begin_anew()
            raise
        return self._delayed, self._producer

    def _commit(
        self, producer: Producer, delayed: DelayedTopic, due: Sequence[Place], cancelled: Sequence[Place]
    ) -> None:
        """Deliver what is due, and end it, in one transaction."""
        records = delayed.read(due)
        try:
            producer.begin_transaction()
            for place in due:
                self._send(producer, place, records[place.id])
            for place in (*due, *cancelled):
                producer.send(delayed.follower.topic, None, place.id, partition=place.partition)
            try:
                producer.commit_transaction()
            except TransactionAbortableError as error:
                refusal = error.__cause__
                if refusal is None or _may_pass(refusal):
                    raise
                if len(due) == 1:
                    raise self._refused(due[0], refusal) from error
                raise _RefusedTogetherError from error
        except ProducerFencedError as error:
            raise MoverTakenOverError(f"another mover of topic {self.topic!r} has begun: {error}") from error

    def _send(self, producer: Producer, place: Place, record: Waiting) -> None:
        try:
            producer.send(
                self.topic, record.value, record.key, record.headers or None, record.partition, record.timestamp_ms
            )
        except SparklogError as error:
            is_unknown = isinstance(error, UnknownTopicOrPartitionError)
            if not is_unknown and (error.retriable or error.fatal or error.requires_abort):
                raise
            raise self._refused(place, error) from error

    def _refused(self, place: Place, error: BaseException) -> DelayedError:
        return DelayedError(
            f"the record of {delay_topic(self.topic)}-{place.partition}, offset {place.offset}, id "
            f"{place.id.decode(errors='replace')}, can't be delivered to topic {self.topic!r}: {error}; nothing is "
            "skipped: mend it, or cancel the record"
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
        starts = delayed.follower.head.log_start_offsets
        below = {
            partition: delayed.schedule.first_offset(partition, delayed.positions.get(partition, 0))
            for partition in range(len(starts))
        }
        below = {partition: offset for partition, offset in below.items() if offset > starts[partition]}
        if not below:
            return
        try:
            delete_records(delayed.follower.log, delayed.follower.topic, below, timeout_ms=_TRIM_TIMEOUT_MS)
        except SparklogError as error:  # it costs room; the next time comes
            name = delayed.follower.topic
            _LOGGER.warning(
                "topic %s: what was delivered could not be removed: %s", name, error, extra=about(topic=name)
            )

    def _despite_outages(self, call: Callable[[], T]) -> T:
        """Call, and again where the store can't be reached now, for ``max_outage_s`` at most."""
        deadline = self._clock.deadline_in(self._max_outage_s * 1_000)
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                return call()
            except SparklogError as error:
                if not _may_pass(error) or deadline.has_passed or self._stopping.is_set():
                    raise
                _LOGGER.warning(
                    "delayed records of %s: tried again in %.1f s: %s",
                    self.topic,
                    pause_s,
                    without_content(error),
                    extra=about(topic=self.topic),
                )
            self._stopping.wait(pause_s)
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def delayed_topics(cluster: Cluster) -> list[str]:
    """The topics for which records were ever delayed, sorted. One listing."""
    names = set(topic_names(cluster))
    topics = (name.removeprefix(DELAY_PREFIX) for name in names if name.startswith(DELAY_PREFIX))
    return sorted(name for name in topics if name in names)


def read_schedule(cluster: Cluster, topic: str) -> list[tuple[Place, Waiting]]:
    """All delayed records of a topic that wait, the earliest first.

    Raises:
        UnknownTopicOrPartitionError: nothing was ever delayed. And what reading a topic raises.
    """
    delayed = DelayedTopic.open(cluster, topic)
    places = list(delayed.schedule.waiting())
    records = delayed.read(places)
    return [(place, records[place.id]) for place in places]


def _rows(table: pa.Table) -> Iterator[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    columns = [table[name].to_pylist() for name in ("offset", "key", "value", "headers")]
    for offset, key, value, headers in zip(*columns, strict=True):
        yield offset, key, value, [(each["key"], each["value"]) for each in headers or ()]


def _may_pass(error: Any) -> bool:
    """May the same call succeed later?"""
    return isinstance(error, SparklogError) and not error.fatal and (error.retriable or error.requires_abort)
