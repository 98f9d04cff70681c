"""The short path of one small commit: announced by the store to a consumer that has read everything before it.

That is what a record is that comes by itself. A round of the fetcher asks every topic and partition what there is to
do; here only the one that was told of is asked. All that isn't exactly so is left to the round, which follows at once:
it finds the topic as far on as it was looked at, and the partition as it was.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.announcements import Announcements
from sparklog.consumer.assignment import Chunk, PartitionState
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.followed_topics import FollowedTopics
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.consumer.poll_schedule import PollSchedule
from sparklog.consumer.segment_fetcher import SegmentFetcher
from sparklog.delta.actions import AddFile, Entry, SetTransaction
from sparklog.errors import SparklogError
from sparklog.log.data.few_rows import FewRows
from sparklog.log.data.segments import Segment
from sparklog.log.head import TopicHead
from sparklog.model import TopicPartition

__all__ = ["Arrivals"]

_LOGGER = logging.getLogger(__name__)
_PAUSE_MS = 100.0
"""After a commit or a file of another kind rounds are made for so long: where that is the rule, to look for arrivals
first would only cost more."""


class Arrivals:
    """Takes in what was announced. Owned by the fetcher's thread."""

    def __init__(
        self,
        announcements: Announcements,
        fetch_state: FetchState,
        topics: FollowedTopics,
        schedule: PollSchedule,
        reader: SegmentFetcher,
        metrics: ConsumerMetrics,
        config: ConsumerConfig,
        clock: Clock,
    ) -> None:
        self._announcements = announcements
        self._fetch_state = fetch_state
        self._topics = topics
        self._schedule = schedule
        self._reader = reader
        self._metrics = metrics
        self._most_bytes = config.fetch_max_bytes // 2
        self._most_of_partition_bytes = config.max_partition_fetch_bytes
        self._clock = clock
        self._not_before_ticks_ms = -math.inf
        self.due_ticks_ms = math.inf
        """When the topic whose news was taken in last is due to be looked at, whatever is announced."""

    def take(self, epochs: Mapping[TopicPartition, int], *, turn: int, due_ticks_ms: float) -> bool:
        """Take in what was announced of one topic. False: a round must be made for it, or nothing was announced.

        Whoever calls this knows that there was nothing left to do when it rested, whatever was announced.

        Args:
            epochs: those in which the partitions' positions belong to the topics that are followed.
            turn: the number of this read.
            due_ticks_ms: when something else is due, as of when it rested.
        """
        now = self._clock.ticks_ms()
        if not self._not_before_ticks_ms <= now < due_ticks_ms:
            return False
        fetch_state = self._fetch_state
        with fetch_state.lock:
            if fetch_state.is_update_requested or fetch_state.errors:
                return False
            topic = self._announcements.take_single()
        if topic is None:
            return False
        is_taken = False
        try:
            is_taken = self._topics.is_followed(topic) and self._take(topic, epochs, turn, now)
        except SparklogError:  # the round meets it, too, and tells it
            _LOGGER.debug("%s: what arrived is left to a round", topic, exc_info=True)
        finally:
            if not is_taken:
                self._announcements.put_back(topic)
        return is_taken

    def _take(self, topic: str, epochs: Mapping[TopicPartition, int], turn: int, now: float) -> bool:
        known = self._topics.follower(topic).head
        entries = self._topics.poll_announced(topic)
        follower = self._topics.follower(topic)
        if not follower.caught_up:
            return False
        if not entries:  # a checkpoint appeared, say, or a round had found what was announced; or it was loaded anew
            return self._topics.views() is self._fetch_state.views
        self._schedule.arrived(topic, now_ms=now)
        self.due_ticks_ms = self._schedule.next_due_ms((topic,))
        added = _only_file(entries[0])
        head = follower.head
        if len(entries) > 1:
            return False
        self._not_before_ticks_ms = now + _PAUSE_MS
        if added is None or head.unsequenced_count or head.schemas is not None:
            return False
        segment = follower.state.require_whole().index.by_path.get(added.path)
        if segment is None or segment.partition is None:
            return False
        if not _moves_one_end(known, head, segment.partition):
            return False
        partition = TopicPartition(topic, segment.partition)
        epoch, offset, rows = epochs.get(partition), 0, None
        with self._fetch_state.lock:
            state = self._fetch_state.assignment.get(partition)
            if state is not None:
                if not _is_read(state) or state.epoch != epoch or state.topic_id != head.topic_id:
                    return False
                offset = state.fetch_offset or 0
        if state is not None:
            rows = self._reader.read_arrived(follower, segment, offset)
            if rows is None or head.log_end_offsets[segment.partition] != segment.last_offset + 1:
                return False
        self._not_before_ticks_ms = -math.inf
        return self._publish(topic, state, epoch, rows, segment, turn, now)

    def _publish(
        self,
        topic: str,
        state: PartitionState | None,
        epoch: int | None,
        rows: FewRows | None,
        segment: Segment,
        turn: int,
        began_ticks_ms: float,
    ) -> bool:
        """Let the consumer have the topic as it is now, and the rows of its partition, all by one step under the lock.

        Args:
            state: None: the partition isn't this consumer's.
        """
        fetch_state, assignment, views = self._fetch_state, self._fetch_state.assignment, self._topics.views()
        looked_ms, now = self._clock.now_ms(), self._clock.ticks_ms()
        size_bytes = 0 if rows is None else rows.nbytes
        with fetch_state.lock:
            if fetch_state.is_update_requested:
                return False
            if state is not None and rows is not None:
                is_as_before = state.epoch == epoch and assignment.get(state.partition) is state and _is_read(state)
                if not (is_as_before and self._has_room(state, size_bytes)):
                    return False
                chunk = Chunk(batch=rows, next_offset=rows.offsets[-1] + 1, size_bytes=size_bytes, fetched_ticks_ms=now)
                assignment.deliver(state, chunk)
                state.fetch_offset, state.turn = segment.last_offset + 1, turn
            fetch_state.looked_ms[topic] = looked_ms
            fetch_state.set_views(views)
            if rows is not None:
                fetch_state.notify()
        if rows is not None:
            self._metrics.fetched(now - began_ticks_ms, size_bytes, rows.num_rows)
        return True

    def _has_room(self, state: PartitionState, size_bytes: int) -> bool:
        """Is there room after this for more, whichever partitions the application waits for? Under the lock."""
        return (
            state.buffered_bytes + size_bytes < self._most_of_partition_bytes
            and self._fetch_state.assignment.buffered_bytes + size_bytes < self._most_bytes
        )


def _only_file(entry: Entry) -> AddFile | None:
    """The file of a commit of ours that adds one, and does nothing else but to count; None: it is another commit."""
    file = None
    for action in entry.actions:
        if isinstance(action, AddFile) and file is None:
            file = action
        elif not isinstance(action, SetTransaction):
            return None
    return None if entry.info is None else file


def _moves_one_end(before: TopicHead, after: TopicHead, partition: int) -> bool:
    """Are all offsets at which partitions start and end as before, but for the end of this partition?"""
    ends, known = after.log_end_offsets, before.log_end_offsets
    is_as_before = ends[:partition] == known[:partition] and ends[partition + 1 :] == known[partition + 1 :]
    return is_as_before and len(ends) == len(known) and after.log_start_offsets == before.log_start_offsets


def _is_read(state: PartitionState) -> bool:
    """Is the partition fetched from an offset that is known? Under the lock."""
    return not (state.paused or state.is_leaving) and state.error is None and state.fetch_offset is not None
