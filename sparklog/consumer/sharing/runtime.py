"""The work of a share consumer: it acknowledges and acquires records, by one log entry for each partition."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable

from sparklog.clock import Deadline
from sparklog.config import ShareConsumerConfig
from sparklog.consumer.records import RecordMaker
from sparklog.consumer.sharing.deliveries import Deliveries
from sparklog.consumer.sharing.member import ShareMember
from sparklog.consumer.sharing.metrics import ShareConsumerMetrics
from sparklog.consumer.sharing.shared_topic import SharedPartition, SharedTopic
from sparklog.errors import (
    CommitStateUnknownError,
    GroupIdNotFoundError,
    InvalidRecordStateError,
    KafkaTimeoutError,
    SparklogError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from sparklog.groups.sharing.changes import Acknowledgement, AcknowledgeType, ShareChange, ShareDecision
from sparklog.groups.sharing.exchange import Outcome
from sparklog.groups.sharing.spreading import spread
from sparklog.groups.sharing.states import StateRange
from sparklog.log import Cluster
from sparklog.log.follow import poll_all
from sparklog.model import ConsumerRecord, DeliveredRecord, TopicPartition
from sparklog.parallel import parallel_results

__all__ = ["Acknowledged", "ShareRuntime"]

_LOGGER = logging.getLogger("sparklog.consumer")
_FIRST_WAIT_MS = 2.0
_LONGEST_WAIT_MS = 100.0
"""Between two looks at topics in which nothing is new."""
_LOOK_MS = 500.0
"""Between two looks at a partition's log in which nothing could be acquired."""

Acknowledged = Callable[[dict[TopicPartition, SparklogError | None]], object]
"""Called with the outcome of acknowledgements, by partition."""
Found = dict[TopicPartition, list[ConsumerRecord]]


class ShareRuntime:
    """Used by the consumer's own thread alone, but for :meth:`wake` and what is read of :attr:`metrics`."""

    def __init__(self, cluster: Cluster, config: ShareConsumerConfig) -> None:
        self.cluster = cluster
        self.config = config
        self.topics: frozenset[str] = frozenset()
        self.deliveries = Deliveries()
        self.metrics = ShareConsumerMetrics(cluster.clock)
        self.on_acknowledged: Acknowledged | None = None
        self._clock = cluster.clock
        self._open: dict[str, SharedTopic] = {}
        self._outcomes: dict[TopicPartition, SparklogError | None] = {}
        self._errors: deque[SparklogError] = deque()
        """Errors that the next polls raise, one each."""
        self._found: Found = {}
        """The records that were acquired by the poll under way, whichever step of it has acquired them."""
        self._found_bytes = 0
        self._turn = 0
        self._is_woken = False
        self._maker = RecordMaker(
            config.key_deserializer, config.value_deserializer, wants_python=config.value_format == "python"
        )
        self._member = ShareMember(
            cluster,
            config.group,
            config.client_id or "",
            interval_ms=config.share_heartbeat_interval_ms,
            session_timeout_ms=max(config.share_session_timeout_ms, config.share_record_lock_duration_ms),
        )

    def wake(self) -> None:
        """Let the call that waits now, or else the next one, raise ``WakeupError``. From any thread."""
        self._is_woken = True

    def subscribe(self, topics: Iterable[str]) -> None:
        """Take records of these topics from now on. Records of others that are in hand are acknowledged as before."""
        self.topics = frozenset(topics)

    def poll(self, max_records: int, timeout_ms: float) -> Found:
        """Send what was acknowledged, and acquire records: those of one partition after the other's."""
        self.metrics.poll_begins()
        try:
            records = self._poll(max_records, timeout_ms)
        finally:
            self.metrics.poll_ends()
        if records:
            self.metrics.consumed(sum(map(len, records.values())), self._found_bytes)
        return records

    def _poll(self, max_records: int, timeout_ms: float) -> Found:
        self.deliveries.release_unshown()
        if self._errors:
            raise self._errors.popleft()
        self._found, self._found_bytes = {}, 0
        deadline = self._clock.deadline_in(timeout_ms)
        bound = self._clock.deadline_in(max(timeout_ms, float(self.config.default_api_timeout_ms)))
        wait_ms = _FIRST_WAIT_MS
        self._join(bound)
        while True:
            self._pass(max_records, bound)
            self._call_back()
            if self._found:
                return self._found
            if self._errors:
                raise self._errors.popleft()
            self._check_woken()
            if deadline.has_passed:
                return {}
            self._clock.sleep_ms(min(wait_ms, deadline.left_ms))
            wait_ms = min(2 * wait_ms, _LONGEST_WAIT_MS)
            self._check_woken()
            self._refresh(bound)

    def commit(self, timeout_ms: float | None) -> dict[TopicPartition, SparklogError | None]:
        """Send what was acknowledged; the outcome by partition. Shows that the member lives, as polls do: it may hold
        records by renewing their locks for long, and take no more."""
        outcomes = self._send(timeout_ms)
        if self._member.beat_quietly(self.topics):
            self.metrics.heartbeat()
        return outcomes

    def _send(self, timeout_ms: float | None) -> dict[TopicPartition, SparklogError | None]:
        bound = float(self.config.default_api_timeout_ms) if timeout_ms is None else timeout_ms
        deadline = self._clock.deadline_in(bound)
        for partition in self.deliveries.waiting():
            try:
                self._serve_by_name(partition, deadline)
            except KafkaTimeoutError as error:  # nothing is known yet of what was sent before
                self._outcomes[partition] = error
        outcomes = dict(self._outcomes)
        self._call_back()
        return outcomes

    def close(self, timeout_ms: float) -> None:
        """Release what is in hand, and leave the group."""
        try:
            self.deliveries.mark_rest(AcknowledgeType.RELEASE)
            self._send(timeout_ms)
        finally:
            self._member.leave_quietly()

    # Membership and topics.

    def _join(self, deadline: Deadline) -> None:
        self._beat(now=self._open.keys() != self.topics)
        for name in sorted(self.topics - self._open.keys()):
            topic = SharedTopic(self.cluster, name, self.config)
            topic.open(deadline=deadline)
            self._open[name] = topic
        self._refresh(deadline)

    def _beat(self, *, now: bool = False) -> None:
        if self._member.beat(self.topics, now=now):
            self.metrics.heartbeat()

    def _refresh(self, deadline: Deadline) -> None:
        """Look at the topics: one call to the store for all."""
        self._beat()
        topics = [topic for name, topic in self._open.items() if name in self.topics]
        for topic, result in zip(topics, poll_all([topic.follower for topic in topics]), strict=True):
            if isinstance(result, UnknownTopicOrPartitionError):
                self._restart(topic)
            elif isinstance(result, Exception):
                raise result
            topic.open(deadline=deadline)

    def _restart(self, topic: SharedTopic) -> None:
        try:
            topic.restart()
        except UnknownTopicOrPartitionError:
            del self._open[topic.name]
            for partition in topic.partitions.values():
                self.deliveries.forget(partition.at)
            raise

    def _own(self) -> list[SharedPartition]:
        """The partitions that this member takes from first, another one first each time."""
        counts = {name: len(topic.partitions) for name, topic in self._open.items() if name in self.topics}
        mine = spread(self._member.subscriptions(), counts).get(self._member.member_id, frozenset())
        partitions = [self._open[topic].partitions[number] for topic, number in sorted(mine)]
        self._turn += 1
        return (
            partitions[self._turn % len(partitions) :] + partitions[: self._turn % len(partitions)]
            if partitions
            else []
        )

    # Acknowledging and acquiring.

    def _pass(self, max_records: int, deadline: Deadline) -> None:
        """Serve each own partition once; where nothing was found, one of the others', whose member may be busy."""
        left = max_records
        own = self._own()
        # Side by side. Whose look fails is looked at again below, and says so.
        parallel_results(SharedPartition.look, [partition for partition in own if self._is_look_due(partition)])
        for partition in own:
            try:
                left -= self._take(partition, left, deadline)
            except SparklogError as error:
                if not self._found:
                    raise
                self._errors.append(error)  # what was found is returned first
                break
            if left <= 0:
                break
        if not self._errors:
            self._send_waiting(deadline)
        if not self._found:
            self._serve_another(own, max_records, deadline)

    def _send_waiting(self, deadline: Deadline) -> None:
        """Send what was acknowledged of partitions from which nothing was acquired now."""
        for at in self.deliveries.waiting():
            try:
                self._serve_by_name(at, deadline)
            except SparklogError as error:
                self._errors.append(error)

    def _serve_another(self, own: list[SharedPartition], max_records: int, deadline: Deadline) -> None:
        """Serve one of the partitions that other members take from first."""
        for topic in [topic for name, topic in self._open.items() if name in self.topics]:
            for partition in topic.partitions.values():
                if partition in own or not self._is_look_due(partition):
                    continue
                partition.look()
                self._take(partition, max_records, deadline)
                return

    def _is_look_due(self, partition: SharedPartition) -> bool:
        return self._clock.ticks_ms() - partition.looked_ticks_ms >= _LOOK_MS

    def _serve_by_name(self, at: TopicPartition, deadline: Deadline) -> None:
        topic = self._open.get(at.topic)
        if topic is None or at.partition not in topic.partitions:
            self.deliveries.forget(at)
            return
        self._serve(topic.partitions[at.partition], 0, deadline)

    def _take(self, partition: SharedPartition, max_records: int, deadline: Deadline) -> int:
        """Serve a partition, and count what was acquired."""
        began, bytes_before = self._clock.ticks_ms(), self._found_bytes
        count = self._serve(partition, max_records, deadline)
        if count:
            self.metrics.fetched(self._clock.ticks_ms() - began, self._found_bytes - bytes_before, count)
        return count

    def _serve(self, partition: SharedPartition, max_records: int, deadline: Deadline) -> int:
        """Send what was acknowledged of a partition, and acquire up to ``max_records``, by one entry; how many it
        were."""
        exchange, at = partition.exchange, partition.at
        count = self._settle(partition, deadline)
        if count:
            return count
        if self._is_look_due(partition):
            partition.look()
        if exchange.state is None:  # the group was deleted
            partition.begin(self.config.share_auto_offset_reset, deadline=deadline)
        acknowledgements = self.deliveries.acknowledgements(at)
        read_of, _ = partition.facts(False)
        change = ShareChange(
            acknowledgements=acknowledgements,
            over=exchange.over(self._member.gone(partition.holders)),
            acquisition=partition.acquisition(self._member.member_id, max_records) if max_records else None,
            delivery_limit=self.config.group_share_delivery_count_limit,
        )
        if not (acknowledgements or change.over or change.acquisition):
            return 0
        try:
            decision = exchange.submit(change, partition.facts, read_of=read_of, deadline=deadline)
        except CommitStateUnknownError as error:
            if acknowledgements:
                self._outcomes[at] = error
                return 0
            raise
        except (GroupIdNotFoundError, UnknownTopicOrPartitionError):
            self._forget(at)
            raise
        except KafkaTimeoutError as error:
            if acknowledgements:
                self._outcomes[at] = error
            return 0
        count = self._finish(partition, change, decision)
        if not count and acknowledgements and max_records:  # what was released may be delivered now
            return self._serve(partition, max_records, deadline)
        return count

    def _settle(self, partition: SharedPartition, deadline: Deadline) -> int:
        """Find out what became of the last entry, where that isn't known (rule S4)."""
        settled = partition.exchange.settle(deadline=deadline)
        if settled is None or settled.outcome is Outcome.TAKEN:
            return 0
        if settled.outcome is Outcome.CREATED:
            return self._finish(partition, settled.change, settled.decision)
        state = partition.exchange.state
        acknowledgements = settled.change.acknowledgements
        held = [state is not None and state.holds(each.first, each.last, each.lock) for each in acknowledgements]
        lost = [each for each, is_held in zip(acknowledgements, held, strict=True) if not is_held]
        if lost:  # what is held still is sent again
            self.deliveries.sent(partition.at, lost, [False] * len(lost), renewed=0)
            self.metrics.acknowledged(_count(lost), _count(lost))
            self._outcomes[partition.at] = CommitStateUnknownError(
                f"whether {len(lost)} acknowledgements of {partition.at} counted will never be known: the group's log "
                "was cleaned meanwhile; the records may be delivered again"
            )
        return 0

    def _finish(self, partition: SharedPartition, change: ShareChange, decision: ShareDecision) -> int:
        """Take note of an entry that was created: what was acknowledged, and what was acquired (rule S3). Returns how
        many records that are."""
        if change.acknowledgements:
            pairs = zip(change.acknowledgements, decision.accepted, strict=True)
            refused = [each for each, is_accepted in pairs if not is_accepted]
            self.metrics.acknowledged(_count(change.acknowledgements), _count(refused))
            error: InvalidRecordStateError | None = self.deliveries.sent(
                partition.at, change.acknowledgements, decision.accepted, renewed=decision.number
            )
            self._outcomes[partition.at] = error
        count = 0
        for acquired in decision.acquired:
            self.deliveries.deliver(partition.at, acquired)
            records = self._records(partition, acquired)
            if records:
                self._found.setdefault(partition.at, []).extend(records)
            count += len(records)
        return count

    def _records(self, partition: SharedPartition, acquired: StateRange) -> list[ConsumerRecord]:
        """The records of a range. One that can't be deserialized is released, and the next poll says so."""
        topic = self._open[partition.at.topic]
        records: list[ConsumerRecord] = []
        for batch in partition.window.records(acquired.first, acquired.last):
            while len(batch):
                made, error = self._maker.make(batch, partition.at, topic.timestamp_type, topic.values)
                records += [DeliveredRecord.of(record, acquired.delivery_count) for record in made]
                self._found_bytes += batch.slice(0, len(made)).nbytes
                if error is None:
                    break
                self.deliveries.mark(partition.at, error.offset, AcknowledgeType.RELEASE)
                self._errors.append(error)
                batch = batch.slice(len(made) + 1)
        return records

    def _forget(self, at: TopicPartition) -> None:
        acknowledgements = self.deliveries.acknowledgements(at)
        if acknowledgements:
            self.metrics.acknowledged(_count(acknowledgements), _count(acknowledgements))
            self._outcomes[at] = InvalidRecordStateError(f"acknowledged too late: the topic or group of {at} is gone")
        self.deliveries.forget(at)

    def _call_back(self) -> None:
        outcomes, self._outcomes = self._outcomes, {}
        if outcomes and self.on_acknowledged is not None:
            self.on_acknowledged(outcomes)

    def _check_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")


def _count(acknowledgements: Iterable[Acknowledgement]) -> int:
    """The records that they are of."""
    return sum(each.last - each.first + 1 for each in acknowledgements)
