"""Results of a poll for asyncio, until its caller takes it. In memory alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.consumer.assignment import Handover
from sparklog.consumer.runtime import ConsumerRuntime
from sparklog.model import TopicPartition

__all__ = ["Found"]


class Found:
    """Records by partition, or Arrow batches, that a poll took. Positions move when they are taken from here.

    Args:
        is_arrow: whether they are Arrow batches.
    """

    def __init__(self, records: Mapping[TopicPartition, Any], handover: Handover, *, is_arrow: bool) -> None:
        self.records = records
        self.is_arrow = is_arrow
        self._handover = handover

    def is_whole(self, runtime: ConsumerRuntime) -> bool:
        """Is all of it still wanted: nothing was sought, paused or taken away since?"""
        return len(self._wanted(runtime)) == len(self.records)

    def take(self, runtime: ConsumerRuntime) -> dict[TopicPartition, Any]:
        """Take what is still wanted, for the caller who gets it now. What isn't leaves no trace in any position."""
        wanted = self._wanted(runtime)
        with runtime.fetch_state.lock:
            for partition in self.records:
                state = runtime.fetch_state.assignment.get(partition)
                if partition in wanted or state is None or state._positions[2] is not self._handover:
                    continue
                if state.position is not None:  # paused: it is fetched again once it is resumed
                    runtime.fetch_state.assignment.seek(state, state.position)
                    runtime.fetch_state.request_update()
            self._handover.is_done = True
        return wanted

    def _wanted(self, runtime: ConsumerRuntime) -> dict[TopicPartition, Any]:
        found = {}
        with runtime.fetch_state.lock:
            for partition, records in self.records.items():
                state = runtime.fetch_state.assignment.get(partition)
                if state is None or state.paused or state.is_leaving or state._positions[2] is not self._handover:
                    continue
                found[partition] = records
        return found
