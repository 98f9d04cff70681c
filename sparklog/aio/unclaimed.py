"""Records that were polled for asyncio and that no caller has yet, by partition. In memory alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.consumer.assignment import Handover, PartitionState
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.record_buffer import Only, Records
from sparklog.consumer.runtime import ConsumerRuntime
from sparklog.model import ConsumerRecord, TopicPartition

__all__ = ["FoundBatches", "UnclaimedRecords"]


class UnclaimedRecords:
    """Records by partition, of which each moves the position of its partition when a caller claims it.

    Used by the loop and by the client's thread, each under the lock of ``fetch_state``. What was sought, or taken away,
    since it was polled is dropped; what is paused stays.
    """

    def __init__(self, fetch_state: FetchState) -> None:
        self._fetch_state = fetch_state
        self._polled: dict[TopicPartition, _Polled] = {}

    def poll(self, runtime: ConsumerRuntime, limit: int, timeout_ms: float, only: Only) -> bool:
        """Poll records in the client's thread, of partitions that have nothing here. Returns whether there are some."""
        handover = Handover()
        try:
            found = runtime.poll(limit, handover, timeout_ms, only)
        except BaseException:
            with self._fetch_state.lock:
                self._fetch_state.assignment.give_back(handover)
            raise
        with self._fetch_state.lock:
            for partition, state in handover.states.items():
                if not state.is_handed_by(handover):
                    continue  # sought meanwhile
                if found.get(partition):
                    self._polled[partition] = _Polled(state, handover, found[partition])
                else:  # offsets without records, or an interceptor has kept all
                    state.hand_out(None)
        if found:
            runtime.record_iterator = self
        return bool(found)

    def claim(self, limit: int, only: Only) -> Records:
        """Up to ``limit`` records, for a caller who gets them now.

        Args:
            only: none but of these partitions; None: of all.
        """
        found: Records = {}
        if not self._polled:
            return found
        with self._fetch_state.lock:
            for partition, polled in [*self._polled.items()]:
                if limit <= 0:
                    break
                if (only is None or partition in only) and self._is_wanted(partition, polled):
                    found[partition] = claimed = polled.claim(limit)
                    limit -= len(claimed)
                    if polled.is_claimed:
                        del self._polled[partition]
        return found

    def claim_one(self) -> ConsumerRecord | None:
        """The next record of all partitions, for a caller who gets it now."""
        if self._polled:
            with self._fetch_state.lock:
                for partition, polled in [*self._polled.items()]:
                    if self._is_wanted(partition, polled):
                        record = polled.claim_one()
                        if polled.is_claimed:
                            del self._polled[partition]
                        return record
        return None

    def give_back(self) -> None:
        """Have the records fetched again that nobody has claimed."""
        with self._fetch_state.lock:
            for polled in self._polled.values():
                self._fetch_state.assignment.give_back(polled.handover)
            self._polled = {}
            self._fetch_state.request_update()

    def _is_wanted(self, partition: TopicPartition, polled: _Polled) -> bool:
        state = polled.state
        if not state.is_handed_by(polled.handover) or self._fetch_state.assignment.get(partition) is not state:
            del self._polled[partition]
            return False
        return not state.paused


class _Polled:
    """Records of one partition; the first of them wait no longer."""

    __slots__ = ("_next", "_records", "handover", "state")

    def __init__(self, state: PartitionState, handover: Handover, records: list[ConsumerRecord]) -> None:
        self.state = state
        self.handover = handover
        self._records = records
        self._next = 0

    @property
    def is_claimed(self) -> bool:
        return self._next >= len(self._records)

    def claim(self, limit: int) -> list[ConsumerRecord]:
        first, self._next = self._next, min(len(self._records), self._next + limit)
        self._move()
        whole = first == 0 and self.is_claimed
        return self._records if whole else self._records[first : self._next]

    def claim_one(self) -> ConsumerRecord:
        record = self._records[self._next]
        self._next += 1
        self._move()
        return record

    def _move(self) -> None:
        self.state.hand_out(None if self.is_claimed else self._records[self._next - 1].offset + 1)


class FoundBatches:
    """Arrow batches by partition that a poll took, until its caller claims all of them at once."""

    def __init__(self, batches: Mapping[TopicPartition, Any], handover: Handover) -> None:
        self._batches = batches
        self._handover = handover

    def claim(self, runtime: ConsumerRuntime) -> dict[TopicPartition, Any]:
        """The batches of which nothing was sought, paused or taken away since."""
        found = {}
        with runtime.fetch_state.lock:
            for partition, batch in self._batches.items():
                state = runtime.fetch_state.assignment.get(partition)
                if state is not None and state.is_handed_by(self._handover) and not state.paused:
                    state.hand_out(None)
                    found[partition] = batch
            if len(found) < len(self._batches):
                self._give_back(runtime)
            self._handover.is_done = True
        return found

    def give_back(self, runtime: ConsumerRuntime) -> None:
        """Have all of them fetched again: the caller who waited is gone."""
        with runtime.fetch_state.lock:
            self._give_back(runtime)
            self._handover.is_done = True

    def _give_back(self, runtime: ConsumerRuntime) -> None:
        runtime.fetch_state.assignment.give_back(self._handover)
        runtime.fetch_state.request_update()
