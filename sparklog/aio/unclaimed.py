"""Records that were polled for asyncio and that no caller has received yet, by partition. In memory only."""

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
                self._fetch_state.give_back(handover)
            raise
        with self._fetch_state.lock:
            self._polled = {partition: polled for partition, polled in self._polled.items() if not polled.is_stale}
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
                if (only is None or partition in only) and polled.is_wanted:
                    found[partition] = claimed = polled.claim(limit)
                    limit -= len(claimed)
                    if not polled.left_count:
                        del self._polled[partition]
        return found

    def claim_one(self, only: Only = None) -> ConsumerRecord | None:
        """The next record, for a caller who gets it now; see :meth:`claim`."""
        if self._polled:
            with self._fetch_state.lock:
                for partition, polled in self._polled.items():
                    if (only is None or partition in only) and polled.is_wanted:
                        record = polled.claim_one()
                        if not polled.left_count:
                            del self._polled[partition]
                        return record
        return None

    def give_back(self) -> None:
        """Have the records fetched again that nobody has claimed."""
        with self._fetch_state.lock:
            for polled in self._polled.values():
                self._fetch_state.give_back(polled.handover)
            self._polled = {}


class _Polled:
    """Records of one partition that no caller has yet."""

    __slots__ = ("_records", "handover", "left_count", "state")

    def __init__(self, state: PartitionState, handover: Handover, records: list[ConsumerRecord]) -> None:
        self.state = state
        self.handover = handover
        self.left_count = len(records)
        self._records = records

    @property
    def is_stale(self) -> bool:
        """Was the partition sought or taken away since?"""
        return not self.state.is_handed_by(self.handover)

    @property
    def is_wanted(self) -> bool:
        return self.state.is_handed_by(self.handover) and not self.state.paused

    def claim(self, limit: int) -> list[ConsumerRecord]:
        first = len(self._records) - self.left_count
        records = self._records[first : first + limit]
        self.left_count -= len(records)
        self.state.hand_out(records[-1].offset + 1 if self.left_count else None)
        return records

    def claim_one(self) -> ConsumerRecord:
        record = self._records[-self.left_count]
        self.left_count -= 1
        self.state.hand_out(record.offset + 1 if self.left_count else None)
        return record


class FoundBatches:
    """Arrow batches by partition that a poll took, until its caller claims all of them at once."""

    def __init__(self, batches: Mapping[TopicPartition, Any], handover: Handover) -> None:
        self._batches = batches
        self._handover = handover

    def claim(self, runtime: ConsumerRuntime) -> dict[TopicPartition, Any]:
        """The batches of which nothing was sought, paused or taken away since."""
        found = {}
        with runtime.fetch_state.lock:
            for partition, state in self._handover.states.items():
                if state.is_handed_by(self._handover) and not state.paused:
                    state.hand_out(None)
                    found[partition] = self._batches[partition]
            self._end(runtime)
        return found

    def give_back(self, runtime: ConsumerRuntime) -> None:
        """Have all of them fetched again: the caller who waited is gone."""
        with runtime.fetch_state.lock:
            self._end(runtime)

    def _end(self, runtime: ConsumerRuntime) -> None:
        """Have fetched again what nobody has got."""
        if any(state.is_handed_by(self._handover) for state in self._handover.states.values()):
            runtime.fetch_state.give_back(self._handover)
        self._handover.is_done = True
