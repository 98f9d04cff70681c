"""Changes of a group member's assignment: partitions are added and revoked, and the rebalance listener is called."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.assignment import PartitionState
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.listener import ConsumerRebalanceListener
from sparklog.consumer.metrics import ASSIGNED, LOST, REVOKED, ConsumerMetrics
from sparklog.consumer.subscription import EARLIEST, HELD
from sparklog.groups.offsets.rows import OffsetRow, Rows
from sparklog.model import TopicPartition

__all__ = ["AssignmentChanges"]


class AssignmentChanges:
    """Used by the consumer's own thread alone; see ``Coordinator``, which says what changes."""

    def __init__(self, config: ConsumerConfig, fetch_state: FetchState, metrics: ConsumerMetrics, clock: Clock) -> None:
        self._config = config
        self._fetch_state = fetch_state
        self._metrics = metrics
        self._clock = clock

    def add(self, added: Mapping[TopicPartition, OffsetRow], first_counts: Mapping[str, int]) -> None:
        """Read these partitions, too, each from where the group has committed.

        Args:
            added: with the group's row of each.
            first_counts: how many partitions topics had when the group subscribed to them.
        """
        fetch_state = self._fetch_state
        with fetch_state.lock:
            kept = {state.partition: state.begin for state in fetch_state.assignment}
            fetch_state.assignment.replace({**kept, **dict.fromkeys(added, self._config.auto_offset_reset)})
            for partition, row in added.items():
                state = fetch_state.assignment.get(partition)
                if state is not None:
                    self._begin(state, row, first_counts)
            fetch_state.forget_unwanted_errors()
            fetch_state.request_update()
            self._metrics.keep(fetch_state.assignment.partitions())

    def remove(self, gone: Collection[TopicPartition], event: str, listener: ConsumerRebalanceListener | None) -> None:
        """Call the listener, then read these partitions no more, whatever it raises.

        Args:
            event: ``REVOKED`` or ``LOST``.
        """
        fetch_state = self._fetch_state
        with fetch_state.lock:
            known = sorted(set(gone) & fetch_state.assignment.partitions())
        try:
            if known:
                self.call_listener(known, event, listener)
        finally:
            with fetch_state.lock:
                kept = {s.partition: s.begin for s in fetch_state.assignment if s.partition not in gone}
                fetch_state.assignment.replace(kept)
                fetch_state.forget_unwanted_errors()
                fetch_state.request_update()
                self._metrics.keep(kept)

    def begin_held(self, rows: Rows) -> None:
        """Begin with the partitions that were held until the group's rows are known."""
        with self._fetch_state.lock:
            for state in [*self._fetch_state.assignment]:
                if state.begin == HELD and state.position is None:
                    self._begin(state, rows.get(state.partition), {})
            self._fetch_state.request_update()

    def call_listener(
        self, partitions: Collection[TopicPartition], event: str, listener: ConsumerRebalanceListener | None
    ) -> None:
        """Call the listener's method for ``ASSIGNED``, ``REVOKED`` or ``LOST``. Raises what that raises."""
        if listener is None:
            return
        call = {
            ASSIGNED: listener.on_partitions_assigned,
            REVOKED: listener.on_partitions_revoked,
            LOST: listener.on_partitions_lost,
        }[event]
        began = self._clock.ticks_ms()
        try:
            call(partitions)
        finally:
            self._metrics.listener_called(event, self._clock.ticks_ms() - began)

    def _begin(self, state: PartitionState, row: OffsetRow | None, first_counts: Mapping[str, int]) -> None:
        """Set where to go on with a partition: at the committed offset, else as the reset policy says.

        A new partition of a topic that the group subscribes to holds nothing older than the subscription: with
        ``latest`` what came before it was noticed would be passed over, so it is read from its beginning.
        """
        policy = self._config.auto_offset_reset
        if row is not None and row.committed is not None:
            self._fetch_state.assignment.seek(state, row.committed.offset)
            state.begin, state.topic_id = policy, row.topic_id or None
            return
        first_count = first_counts.get(state.partition.topic)
        is_later = first_count is not None and state.partition.partition >= first_count
        begin = EARLIEST if is_later and policy.kind != "none" else policy
        self._fetch_state.assignment.begin_anew(state, begin)
