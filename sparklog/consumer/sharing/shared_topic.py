"""A topic of a share group: its follower and reader, and the group's log for each of its partitions."""

from __future__ import annotations

from sparklog.clock import Deadline
from sparklog.config import ResetPolicy, ShareConsumerConfig
from sparklog.consumer.sharing.reading import PartitionReader, Window
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.groups.sharing.changes import Acquisition
from sparklog.groups.sharing.exchange import PartitionExchange
from sparklog.groups.sharing.states import RecordState
from sparklog.log import Cluster, TopicFollower
from sparklog.log.typed_records import ValueReading
from sparklog.model import CREATE_TIME, LOG_APPEND_TIME, TopicPartition
from sparklog.parallel import parallel_map

__all__ = ["SharedPartition", "SharedTopic"]


class SharedTopic:
    """One topic of a subscription. Owned by one thread.

    Raises ``UnknownTopicOrPartitionError`` and what reading a log raises, as all methods do.
    """

    def __init__(self, cluster: Cluster, name: str, config: ShareConsumerConfig) -> None:
        self._cluster = cluster
        self._config = config
        self.name = name
        self.follower = TopicFollower(cluster.topic_log(name), name)
        self._first_count = self.follower.head.partition_count
        self.partitions: dict[int, SharedPartition] = {}

    @property
    def topic_id(self) -> str:
        """The id of the topic that is followed."""
        return self.follower.head.topic_id

    @property
    def timestamp_type(self) -> int:
        """The type of its records' timestamps."""
        is_append_time = self.follower.head.config["message.timestamp.type"] == "LogAppendTime"
        return LOG_APPEND_TIME if is_append_time else CREATE_TIME

    @property
    def values(self) -> ValueReading | None:
        """How its values are read, where it is typed."""
        return ValueReading.of(self.follower.head, self._config.value_schema_id)

    def refresh(self) -> None:
        """Look at the topic anew; one that was deleted and made again is another one, which is read from then on."""
        try:
            self.follower.poll()
        except UnknownTopicOrPartitionError:
            self.restart()

    def restart(self) -> None:
        """Follow the topic that has the name now. Raises ``UnknownTopicOrPartitionError``: there is none."""
        self.follower = TopicFollower(self._cluster.topic_log(self.name), self.name)
        count = self.follower.head.partition_count
        self.partitions = {number: each for number, each in self.partitions.items() if number < count}
        for each in self.partitions.values():
            each.restart()

    def open(self, *, deadline: Deadline) -> None:
        """Open the logs of partitions that weren't yet, and begin those that aren't there, all side by side.

        So where the group begins is settled for all partitions by its first member. Partitions that come later begin at
        their first record: all that they hold is younger than the subscription.
        """
        count = self.follower.head.partition_count
        new = [SharedPartition(self._cluster, self, number, self._config) for number in range(count)]
        new = [each for each in new if each.at.partition not in self.partitions]
        if not new:
            return
        parallel_map(lambda each: each.exchange.look(), new)
        has_begun = any(each.exchange.state is not None for each in (*new, *self.partitions.values()))
        earliest = ResetPolicy("earliest")
        policy = earliest if has_begun or count > self._first_count else self._config.share_auto_offset_reset
        parallel_map(lambda each: each.begin(policy, deadline=deadline), new)
        self.partitions |= {each.at.partition: each for each in new}


class SharedPartition:
    """One partition of a topic: the group's log of it, and its records."""

    def __init__(self, cluster: Cluster, topic: SharedTopic, partition: int, config: ShareConsumerConfig) -> None:
        self._clock = cluster.clock
        self._topic = topic
        self._config = config
        self.at = TopicPartition(topic.name, partition)
        self.exchange = PartitionExchange(
            cluster, config.group, self.at, interval_ms=config.share_heartbeat_interval_ms
        )
        self.looked_ticks_ms = cluster.clock.ticks_ms()
        """When the newest look at the group's log ended."""
        self.holders: dict[str, float] = {}
        """The members that hold locks, and when the look ended that showed it first."""
        self.window = Window(first=0, end=0, batches=())
        """The records that the last acquisition was of."""
        self.restart()

    def restart(self) -> None:
        """Begin to read anew: the topic is another one."""
        self.reader = PartitionReader(self._topic.follower, self.at.partition, schema_id=self._config.value_schema_id)

    def facts(self, anew: bool) -> tuple[str, int]:
        """The topic's id, and the partition's log start offset; as of a new look at the topic where that is asked."""
        if anew:
            self._topic.refresh()
        head = self._topic.follower.head
        if self.at.partition >= head.partition_count:
            raise UnknownTopicOrPartitionError(
                f"{self.at.topic}-{self.at.partition}: the new topic has no such partition"
            )
        return head.topic_id, head.log_start_offsets[self.at.partition]

    def begin(self, policy: ResetPolicy, *, deadline: Deadline) -> None:
        """Create the group's first entry here where there is none."""
        if self.exchange.state is None:
            self.exchange.begin(self.facts, self._start_offset(policy), deadline=deadline)

    def look(self) -> None:
        """Read the entries that have come."""
        self.exchange.look()
        now, state = self._clock.ticks_ms(), self.exchange.state
        self.looked_ticks_ms = now
        members = set() if state is None else {lock.member for lock in state.locks.values()}
        self.holders = {member: self.holders.get(member, now) for member in members}

    def acquisition(self, member: str, max_records: int) -> Acquisition | None:
        """The records that a member would have now, as it has read them; None where there is nothing to have."""
        offset = self._next_offset()
        if offset is None:
            return None
        window = self.reader.window(offset, max_records)
        if window.end <= offset:
            return None
        self.window = window
        return Acquisition(
            member=member,
            lock_ms=float(self._config.share_record_lock_duration_ms),
            max_records=max_records,
            max_open=self._config.group_share_partition_max_record_locks,
            read_from=window.first,
            read_until=window.end,
            runs=window.runs(),
        )

    def _next_offset(self) -> int | None:
        """The first offset that may be acquired; None where there is none."""
        state, head = self.exchange.state, self._topic.follower.head
        if state is None:
            return None
        if state.topic_id != head.topic_id:
            return head.log_start_offsets[self.at.partition]
        for each in state.ranges:
            if each.state is RecordState.AVAILABLE:
                return each.first
        end, start = head.log_end_offsets[self.at.partition], head.log_start_offsets[self.at.partition]
        return max(state.end_offset, start) if state.end_offset < end else None

    def _start_offset(self, policy: ResetPolicy) -> int:
        head, partition = self._topic.follower.head, self.at.partition
        if policy.kind == "earliest":
            return head.log_start_offsets[partition]
        if policy.kind == "latest":
            return head.log_end_offsets[partition]
        since = self._clock.now_ms() - policy.duration_ms
        first = self._topic.follower.offset_for_time(partition, max(0, since))
        return head.log_end_offsets[partition] if first is None else first.offset
