"""Commits of a worker: outputs and offsets in one transaction, or only offsets if there are no outputs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext

from sparklog.consumer import Consumer
from sparklog.errors import (
    HandlerError,
    InvalidArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTypeError,
    MessageSizeTooLargeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.logs import without_content
from sparklog.opentelemetry.automatic import resumed
from sparklog.processing.frontier import Entry
from sparklog.processing.moves import Output
from sparklog.processing.work import Pending, Work
from sparklog.producer import FutureRecordMetadata, Producer

__all__ = ["OF_THE_RECORD", "Commits", "nowhere_to_send", "send_output"]

_LOGGER = logging.getLogger("sparklog.processing")
OF_THE_RECORD = (
    MessageSizeTooLargeError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTypeError,
    InvalidArgumentError,
)
"""Errors of ``send`` that only this record has."""


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
        self._ending: Pending | None = None
        """The contents of the transaction that ``commit_transaction`` was called for, and whose outcome isn't known."""
        self.transaction_count = 0

    @property
    def is_ending(self) -> bool:
        """Is there a transaction whose outcome isn't known? Then :meth:`commit` asks for it first."""
        return self._ending is not None

    def commit(self) -> Pending | None:
        """Commit what is done, or learn how the commit before ended. Returns what is committed; None: there is nothing.

        Raises:
            HandlerError: something can't be sent, and its record has nowhere to go.
            SparklogError: nothing is lost: what isn't committed waits for the next call. Whether that may succeed says
                :func:`~sparklog.processing.pacing.may_pass`.
        """
        if self._ending is not None:
            return self._end(self._ending)
        taken = self._work.take()
        try:
            if not taken.offsets:
                return None
            if not taken.moves:
                self._consumer.commit(taken.committable)
                return taken
            self._fill_transaction(taken)
        except BaseException:
            self._work.give_back(taken)
            raise
        self._ending = taken
        return self._end(taken)

    def close(self, timeout_s: float) -> None:
        """Abort what is open, and close the producer."""
        if self._producer is not None:
            self._producer.close(timeout_s)

    def _fill_transaction(self, taken: Pending) -> None:
        """Send everything, and the offsets, in a transaction that is open afterwards; what a record's outputs don't
        allow is settled, and all of it begun again."""
        producer = self._ready_producer()
        while True:
            producer.begin_transaction()
            try:
                refused = self._send_all(producer, taken)
                if refused is None:
                    producer.send_offsets_to_transaction(taken.committable, self._consumer.group_metadata())
                    return
            except BaseException:
                self._abort(producer)
                raise
            self._abort(producer)
            self._work.refuse(*refused)  # it has other outputs now: each entry is refused twice at most

    def _send_all(self, producer: Producer, taken: Pending) -> tuple[Entry, SparklogError] | None:
        """Send all outputs; if one is refused even alone: its entry, and the reason."""
        self._partition_counts.clear()
        for entry in taken.moves:
            with nullcontext() if entry.span is None else resumed(entry.span):
                refused = self._send_outputs(producer, entry)
            if refused is not None:
                return entry, refused
        return None

    def _send_outputs(self, producer: Producer, entry: Entry) -> SparklogError | None:
        """Send an entry's outputs; where one can't be sent by itself: why."""
        for output in entry.outputs:
            try:
                self._send(producer, output)
            except OF_THE_RECORD as error:
                return error
            except (UnknownTopicOrPartitionError, InvalidTopicError) as error:
                raise nowhere_to_send(entry, output.topic, error) from error
        return None

    def _send(self, producer: Producer, output: Output) -> None:
        send_output(producer, output, self._partition_count(producer, output.topic))

    def _partition_count(self, producer: Producer, topic: str) -> int:
        """The number of a topic's partitions. It is looked at once in each transaction: what is sent to a topic that
        was deleted since the producer has opened it would be nowhere, while the offset is committed."""
        count = self._partition_counts.get(topic)
        if count is None:
            count = self._partition_counts[topic] = len(producer.partitions_for(topic))
        return count

    def _end(self, taken: Pending) -> Pending:
        producer = self._ready_producer()
        try:
            producer.commit_transaction()
        except SparklogError as error:
            if error.requires_abort:
                self._ending = None
                self._abort(producer)
                self._work.give_back(taken)
            raise
        self._ending = None
        self.transaction_count += 1
        return taken

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


def nowhere_to_send(entry: Entry, topic: str, error: SparklogError) -> HandlerError:
    """The error that stops a worker before a record of which something goes to a topic that can't be."""
    at, offset = entry.frontier.partition, entry.record.offset
    return HandlerError(
        f"what was made of {at.topic}-{at.partition}, offset {offset}, can't be sent to topic {topic!r}: {error}; the "
        "worker stops before this record, nothing is skipped",
        topic_partition=at,
        offset=offset,
    )
