"""Fetched records on their way to the application: as records or as batches, fairly between partitions."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.assignment import HANDED_OVER, Chunk, Handover, PartitionState
from sparklog.consumer.fetch_positions import is_out_of_range
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.consumer.records import RecordMaker
from sparklog.errors import RecordDeserializationError
from sparklog.log.data.few_rows import as_batch
from sparklog.model import CREATE_TIME, ConsumerRecord, TopicPartition

__all__ = ["GivesBack", "Only", "RecordBuffer", "RecordIterator", "Records"]

_LOGGER = logging.getLogger("sparklog.consumer")

Records = dict[TopicPartition, list[ConsumerRecord]]
Only = Container[TopicPartition] | None
"""The partitions whose records are wanted; None: all."""


class GivesBack(Protocol):
    """Hands out records that were polled."""

    def give_back(self) -> None:
        """Have the records fetched again that weren't handed out."""


class RecordBuffer:
    """Takes records out of the partitions' chunks. Used by the consumer's own thread alone."""

    def __init__(self, fetch_state: FetchState, config: ConsumerConfig, metrics: ConsumerMetrics, clock: Clock) -> None:
        self._fetch_state = fetch_state
        self._metrics = metrics
        self._clock = clock
        self._maker = RecordMaker(
            config.key_deserializer, config.value_deserializer, wants_python=config.value_format == "python"
        )
        self._interceptors: Sequence[Any] = config.interceptors
        self._min_bytes = min(config.fetch_min_bytes, config.fetch_max_bytes)
        self._max_bytes = max(1, config.fetch_max_bytes)
        self._max_wait_ms = config.fetch_max_wait_ms

    @property
    def waits_for_bytes(self) -> bool:
        """Are records kept until there are ``fetch_min_bytes``?"""
        return self._min_bytes > 1

    def ready_in_ms(self, only: Only = None) -> float | None:
        """The time, in ms, to wait for ``fetch_min_bytes``; 0 where there is enough, None where there is nothing.

        Records that were fetched are returned after ``fetch_max_wait_ms`` at the latest.
        """
        with self._fetch_state.lock:
            ready = self._fetch_state.assignment.ready(only)
            if not ready:
                return None
            if self._min_bytes <= 1 or sum(state.buffered_bytes for state in ready) >= self._min_bytes:
                return 0.0
            oldest = min(state.chunks[0].fetched_ticks_ms for state in ready)
        return max(0.0, oldest + self._max_wait_ms - self._clock.ticks_ms())

    def records(self, max_records: int, handover: Handover | None, only: Only = None) -> Records:
        """Up to ``max_records`` records: of the partition whose turn it is all that there are, then of the next.

        Args:
            handover: with it the positions move on; None: whoever hands out the records moves them.
            only: none but these partitions; None: all.
        Raises:
            RecordDeserializationError: the first record can't be deserialized; those before one are returned first.
        """
        polled: Records = {}
        left = max_records
        for state in self._ready(only):
            records, error = self._records(state, left, handover)
            if records:
                polled[state.partition] = records
                left -= len(records)
            if error is not None and not polled:
                with self._fetch_state.lock:
                    self._fetch_state.assignment.put_last(state)
                raise error
            if error is not None:
                with self._fetch_state.lock:
                    self._fetch_state.assignment.put_first(state)
            if error is not None or left <= 0:
                break
        polled = self._intercepted(polled) if polled else polled
        if not polled and handover is not None:  # offsets without records, or an interceptor has kept all: nothing is
            with self._fetch_state.lock:  # on its way to the caller, and the poll goes on
                handover.hand_out()
        return polled

    def batches(self, max_records: int | None, handover: Handover) -> dict[TopicPartition, pa.RecordBatch]:
        """The first chunk of each partition, up to ``max_records`` records together; the positions move on with
        ``handover``."""
        polled: dict[TopicPartition, pa.RecordBatch] = {}
        left = max_records
        for state in self._ready():
            if left is not None and left <= 0:
                break
            with self._fetch_state.lock:
                self._skip_empty(state)
                if not state.chunks:
                    continue
                chunk = state.chunks[0]
                count = chunk.left_count if left is None else min(left, chunk.left_count)
                self._take(state, chunk, count, handover)
                view = self._fetch_state.views.get(state.partition.topic)
            batch = as_batch(chunk.batch.slice(chunk.taken_count - count, count))
            polled[state.partition] = batch if view is None or view.values is None else view.values.as_structs(batch)
            left = None if left is None else left - count
        return polled

    def skip_empty(self, state: PartitionState) -> None:
        """Move the position over offsets that hold no records any more, if those come next."""
        with self._fetch_state.lock:
            self._skip_empty(state)

    def want(self, only: Only) -> None:
        """Let the fetcher know whose records are wanted now: the others take half of the room at most.

        Where they have all of it, what was fetched of them is dropped, and fetched again.
        """
        fetch_state = self._fetch_state
        if only is None and fetch_state.only is None:
            return
        with fetch_state.lock:
            assignment = fetch_state.assignment
            if only != fetch_state.only:
                fetch_state.only = only
                fetch_state.request_update()
            if only is None or assignment.buffered_bytes < self._max_bytes or assignment.ready(only):
                return
            for state in assignment.ready():
                if state.position is not None:
                    assignment.seek(state, state.position)
            fetch_state.request_update()

    def _ready(self, only: Only = None) -> list[PartitionState]:
        with self._fetch_state.lock:
            return self._fetch_state.assignment.ready(only)

    def _skip_empty(self, state: PartitionState) -> None:
        while not state.is_handing_over and state.chunks and state.chunks[0].left_count == 0:
            self._take(state, state.chunks[0], 0, HANDED_OVER)

    def _records(
        self, state: PartitionState, limit: int, handover: Handover | None
    ) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
        view = self._fetch_state.views.get(state.partition.topic)
        timestamp_type = view.timestamp_type if view else CREATE_TIME
        taken: list[ConsumerRecord] = []
        while len(taken) < limit and (chunk := self._first(state)) is not None:
            if chunk.left_count == 0:
                if (taken and handover is None) or not self._take(state, chunk, 0, handover or HANDED_OVER):
                    break
                continue
            if chunk.columns is not None and (view is None or view.values is None):
                count, first = min(limit - len(taken), chunk.left_count), chunk.taken_count
                made, error = self._maker.make_part(chunk.columns, first, count, state.partition, timestamp_type)
            else:
                batch = chunk.next_records(limit - len(taken))
                made, error = self._maker.make(batch, state.partition, timestamp_type, view.values if view else None)
            if (made or error) and not self._take(state, chunk, len(made), handover):
                break
            taken = taken + made if taken else made
            if error is not None:
                return taken, error
        return taken, None

    def _first(self, state: PartitionState) -> Chunk | None:
        with self._fetch_state.lock:
            return state.chunks[0] if state.chunks else None

    def _take(self, state: PartitionState, chunk: Chunk, count: int, handover: Handover | None) -> bool:
        """Take the next records of a partition's first chunk.

        Returns:
            False: the chunk isn't there any more. A deserializer sought, or another topic has taken the name.
        """
        fetch_state = self._fetch_state
        with fetch_state.lock:
            if not state.chunks or state.chunks[0] is not chunk:
                return False
            if count or chunk.left_count == 0:
                fetch_state.assignment.take(state, count, handover)
                if chunk.left_count == 0:  # until then all of its memory is taken
                    fetch_state.notify_room()
            view = fetch_state.views.get(state.partition.topic)
            # The log start rose meanwhile, and nothing new need ever come by which the fetcher would reset the offset.
            if view is not None and is_out_of_range(state, view):
                fetch_state.request_update()
        is_gap = chunk.row_count == 0
        if (count == 0 and not is_gap) or view is None or state.partition.partition >= view.partition_count:
            return True
        size_bytes = chunk.size_bytes * count // max(1, chunk.row_count)
        reached = chunk.next_offset if is_gap else chunk.offset_at(chunk.taken_count - 1) + 1
        start, end = (offsets[state.partition.partition] for offsets in (view.log_start_offsets, view.log_end_offsets))
        self._metrics.consumed(
            state.partition, count, size_bytes, lag=max(0, end - reached), lead=max(0, reached - start)
        )
        return True

    def _intercepted(self, records: Records) -> Records:
        if self._metrics.observer is not None:
            self._metrics.observer.received(records)
        for interceptor in self._interceptors:
            try:
                records = interceptor.on_consume(records)
            except Exception:  # as Java's ConsumerInterceptors: logged, and the records go on as they are
                _LOGGER.warning("interceptor %r failed in on_consume", interceptor, exc_info=True)
        return records


class RecordIterator:
    """Iterates over the records of a poll; each moves its partition's position when it is returned."""

    def __init__(self, fetch_state: FetchState, found: Records) -> None:
        self._fetch_state = fetch_state
        self._left: dict[TopicPartition, PartitionState] = {}
        for partition in found:
            state = fetch_state.assignment.get(partition)
            if state is not None:
                self._left[partition] = state
        self._epochs = {partition: state.epoch for partition, state in self._left.items()}
        self._records = self._iterate(found)

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return self._records

    def give_back(self) -> None:
        """Have the records fetched again that weren't returned."""
        for partition in [*self._left]:
            self._give_back(partition)

    def _iterate(self, found: Records) -> Iterator[ConsumerRecord]:
        for partition, records in found.items():
            state = self._left.get(partition)
            if state is None:
                continue
            epoch = self._epochs[partition]
            for record in records:
                if state.epoch != epoch or state.paused:  # sought, taken away or paused meanwhile
                    self._give_back(partition)
                    break
                state.position = record.offset + 1
                yield record
            self._left.pop(partition, None)

    def _give_back(self, partition: TopicPartition) -> None:
        state = self._left.pop(partition, None)
        if state is None or state.epoch != self._epochs[partition] or state.position is None:
            return
        with self._fetch_state.lock:
            self._fetch_state.assignment.seek(state, state.position)
            self._fetch_state.request_update()
