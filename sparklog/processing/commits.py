"""Commits of a worker: outputs and offsets in one transaction, or only offsets if there are no outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from sparklog.consumer import Consumer
from sparklog.errors import (
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTypeError,
    MessageSizeTooLargeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.logs import about, without_content
from sparklog.opentelemetry.automatic import resumed
from sparklog.processing.frontier import Entry, Frontier
from sparklog.processing.moves import Output
from sparklog.processing.work import OF_THE_TOPIC, Pending, Work
from sparklog.producer import FutureRecordMetadata, Producer

__all__ = ["OF_THE_RECORD", "REFUSED_AT_ONCE", "REFUSED_LATER", "Commits", "report_refusal", "send_output"]

_LOGGER = logging.getLogger("sparklog.processing")
_CLOSE_REFUSED_S = 1.0
OF_THE_RECORD = (
    MessageSizeTooLargeError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTypeError,
    InvalidArgumentError,
)
"""Errors with which a topic refuses a record, and no other."""
REFUSED_LATER = (*OF_THE_RECORD, *OF_THE_TOPIC)
"""The errors of a record's future that stay the same with each try."""
REFUSED_AT_ONCE = (*REFUSED_LATER, UnknownTopicOrPartitionError, InvalidTopicError)
"""The errors of ``send``, which looks whether topic and partition are there. Later the same error says that a topic
was deleted meanwhile: the next ``send`` finds out."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An output that can't be sent."""

    entry: Entry
    output: Output
    error: SparklogError


class Commits:
    """Commits what a :class:`~sparklog.processing.work.Work` has done. For one thread.

    Args:
        make_producer: makes the transactional producer, when something is to be sent for the first time.
    """

    def __init__(self, work: Work, consumer: Consumer, make_producer: Callable[[], Producer]) -> None:
        self._work = work
        self._consumer = consumer
        self._make_producer = make_producer
        self._producer: Producer | None = None
        self._has_begun = False
        """Has the producer its transactional id?"""
        self._must_abort = False
        """Did an abort fail that is to be done before anything else?"""
        self._partition_counts: dict[str, int] = {}
        """By topic, in the transaction that is being filled."""
        self._sent: list[tuple[Entry, Output, FutureRecordMetadata]] = []
        """The outputs in the transaction."""
        self._ending: Pending | None = None
        """The contents of the transaction that ``commit_transaction`` was called for, and whose outcome isn't known."""
        self.transaction_count = 0

    @property
    def is_ending(self) -> bool:
        """Is there a transaction whose outcome isn't known? Then :meth:`commit` asks for it first."""
        return self._ending is not None

    def commit(self) -> Pending | None:
        """Commit what is done, or learn how the commit before ended. Returns what is committed; None: there is nothing.

        What topics refuse is settled: a record of which an output is refused becomes a dead letter, or its partition
        stops before it (:attr:`~sparklog.processing.work.Work.stopped`). All else is committed.

        Raises:
            SparklogError: nothing is lost: what isn't committed waits for the next call. Whether that may succeed says
                :func:`~sparklog.processing.pacing.may_pass`.
        """
        taken = self._ending
        is_filled = taken is not None
        if taken is None:
            taken = self._work.take()
        while True:  # each time some entries get other outputs, each three times at most, or are left out
            refused = [] if is_filled else self._fill(taken)
            if not refused and self._ending is not None:
                refused = self._end(taken)
            if not refused:
                return taken if taken.passed else None
            self._settle(refused, taken)
            is_filled = False

    def close(self, timeout_s: float) -> None:
        """Abort what is open, and close the producer."""
        if self._producer is not None:
            self._producer.close(timeout_s)

    def _fill(self, taken: Pending) -> list[_Refusal]:
        """Commit offsets that nothing is sent with; else send everything, and the offsets, in a transaction that is to
        be ended then. Returns what is refused: then nothing was done."""
        try:
            if taken.moves:
                refused = self._fill_transaction(taken)
                self._ending = None if refused else taken
                return refused
            if taken.passed:
                self._consumer.commit(taken.committable)
        except BaseException:
            self._work.give_back(taken)
            raise
        return []

    def _fill_transaction(self, taken: Pending) -> list[_Refusal]:
        producer = self._ready_producer()
        producer.begin_transaction()
        try:
            refused = self._send_all(producer, taken)
            if not refused:
                producer.send_offsets_to_transaction(taken.committable, self._consumer.group_metadata())
                return []
        except BaseException as error:
            self._abort(producer)
            refused = self._refused_by_topics() if isinstance(error, SparklogError) and error.requires_abort else []
            if not refused:
                raise
            return refused
        self._abort(producer)
        return refused

    def _send_all(self, producer: Producer, taken: Pending) -> list[_Refusal]:
        """Send all outputs. Returns those that are refused at once."""
        self._partition_counts.clear()
        self._sent.clear()
        refused = []
        for entry in taken.moves:
            with nullcontext() if entry.span is None else resumed(entry.span):
                for output in entry.outputs:
                    try:
                        self._sent.append((entry, output, self._send(producer, output)))
                    except REFUSED_AT_ONCE as error:
                        refused.append(_Refusal(entry, output, error))
                        break
        return refused

    def _refused_by_topics(self) -> list[_Refusal]:
        """The outputs that topics have refused in a transaction that was aborted for it; none where that failed."""
        found: dict[Entry, _Refusal] = {}
        for entry, output, future in self._sent:
            error = future.exception
            if isinstance(error, REFUSED_LATER):
                found.setdefault(entry, _Refusal(entry, output, error))
        return list(found.values())

    def _settle(self, refused: Sequence[_Refusal], taken: Pending) -> None:
        """Let refused entries be dead letters, or stop their partitions; they are in the order of their offsets."""
        for each in refused:
            if each.entry.frontier.error is not None:  # it is left out with the one that has stopped its partition
                continue
            stopped = self._work.refuse(taken, each.entry, each.output, each.error)
            handler = self._work.handler_of(each.entry)
            report_refusal(handler, each.entry, each.output, each.error, is_moved=stopped is None)

    def _send(self, producer: Producer, output: Output) -> FutureRecordMetadata:
        return send_output(producer, output, self._partition_count(producer, output.topic))

    def _partition_count(self, producer: Producer, topic: str) -> int:
        """The number of a topic's partitions. It is looked at once in each transaction: what is sent to a topic that
        was deleted since the producer has opened it would be nowhere, while the offset is committed."""
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = len(producer.partitions_for(topic))
        return count

    def _end(self, taken: Pending) -> list[_Refusal]:
        """Commit the transaction. Returns what topics have refused: then it was aborted."""
        producer = self._ready_producer()
        refused = []
        try:
            producer.commit_transaction()
        except SparklogError as error:
            if _is_committed(producer, error):
                self._stop_behind(producer, error)
            elif not error.requires_abort:
                raise
            else:
                self._ending = None
                self._abort(producer)
                refused = self._refused_by_topics()
                if not refused:
                    self._work.give_back(taken)
                    raise
        self.transaction_count += not refused
        self._ending = None
        self._sent.clear()
        return refused

    def _stop_behind(self, producer: Producer, error: SparklogError) -> None:
        """Stop the partitions of which something is committed, in a topic that refuses all records: it appears once
        that topic is repaired and somebody, such as maintenance, carries out the transaction. The producer has to be
        left: its next transaction would wait for that, too."""
        unseen: dict[Frontier, tuple[Entry, Output]] = {}
        for entry, output, future in self._sent:
            if not future.is_done:
                unseen.setdefault(entry.frontier, (entry, output))
        for entry, output in unseen.values():
            stopped = self._work.stop_behind(entry, output, error)
            _LOGGER.error("%s", without_content(stopped), extra=about(topic=entry.frontier.partition.topic))
        self._producer, self._has_begun = None, False
        producer.close(_CLOSE_REFUSED_S)

    def _abort(self, producer: Producer) -> None:
        """Abort, after an error that is to be raised: what fails here is done before the next transaction."""
        self._must_abort = True
        try:
            producer.abort_transaction()
        except SparklogError as error:
            _LOGGER.warning("a transaction could not be aborted yet: %s", without_content(error))
        else:
            self._must_abort = False

    def _ready_producer(self) -> Producer:
        if self._producer is None:
            self._producer = self._make_producer()
        if not self._has_begun:
            self._producer.init_transactions()
            self._has_begun = True
        if self._must_abort:
            self._producer.abort_transaction()
            self._must_abort = False
        return self._producer


def _is_committed(producer: Producer, error: SparklogError) -> bool:
    """After an error of ``commit_transaction``: is the transaction committed, and missing only in topics that refuse
    all records, whatever is sent there?"""
    transactions = producer._transactions
    return isinstance(error, OF_THE_TOPIC) and transactions is not None and transactions.is_refused_by_topics


def send_output(producer: Producer, output: Output, partition_count: int) -> FutureRecordMetadata:
    """Send a record to a topic of so many partitions. Raises what ``Producer.send`` does."""
    partition = output.partition if output.near_partition is None else output.near_partition % partition_count
    return producer.send(
        output.topic,
        value=output.value,
        key=output.key,
        headers=output.headers or None,
        partition=partition,
        timestamp_ms=output.timestamp_ms,
    )


def report_refusal(handler: str, entry: Entry, output: Output, error: SparklogError, *, is_moved: bool) -> None:
    """Log that an output can't be sent, and what follows."""
    at = entry.frontier.partition
    _LOGGER.log(
        logging.WARNING if is_moved else logging.ERROR,
        "handler %s: what was made of %s-%d, offset %d, can't be sent to topic %r: %s; %s",
        handler,
        at.topic,
        at.partition,
        entry.record.offset,
        output.topic,
        without_content(error),
        "it goes to the dead letters" if is_moved else "it has nowhere to go: nothing behind it is processed there",
        extra=about(topic=at.topic),
    )
