"""The fetcher: follows the topics and reads ahead the records that the consumer will ask for next."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.announcements import Announcements
from sparklog.consumer.arrivals import Arrivals
from sparklog.consumer.assignment import Chunk
from sparklog.consumer.carried_ahead import CarriedAhead
from sparklog.consumer.fetch_positions import TimestampSearch, begin_at, first_records, set_fetch_offset
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.followed_topics import FollowedTopics, Polled
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.consumer.poll_schedule import PollSchedule
from sparklog.consumer.read_plans import ReadRequest
from sparklog.consumer.segment_fetcher import ReadLimits, ReadResult, SegmentFetcher, empty_batch
from sparklog.errors import (
    OffsetOutOfRangeError,
    StoreError,
    UnknownTopicOrPartitionError,
    is_no_topic,
)
from sparklog.log import Cluster
from sparklog.log.data.few_rows import offset_at
from sparklog.model import TopicPartition
from sparklog.parallel import parallel_map

__all__ = ["Fetcher"]

_LONGEST_WAIT_MS = 1_000.0
"""The longest rest, where no earlier time is known at which there is something to do."""
_LOOK_MS = 1_000.0
"""The time between two looks at the topics, as long as records that are known to be there are read."""


class Fetcher:
    """Works in rounds: look at the topics, find offsets to fetch from, read. Owned by one thread."""

    def __init__(
        self,
        cluster: Cluster,
        config: ConsumerConfig,
        fetch_state: FetchState,
        metrics: ConsumerMetrics,
        limits: ReadLimits,
    ) -> None:
        self._config = config
        self._fetch_state = fetch_state
        self._metrics = metrics
        self._clock: Clock = cluster.clock
        self._announcements = Announcements(fetch_state)
        self._topics = FollowedTopics(
            cluster, self._opened, self._announcements.announce, value_schema_id=config.value_schema_id
        )
        self._schedule = PollSchedule(config.fetch_max_wait_ms)
        self._reader = SegmentFetcher(cluster.store, cluster.clock, limits, value_schema_id=config.value_schema_id)
        self._carried = CarriedAhead(fetch_state, self._reader, max_bytes=config.fetch_max_bytes)
        self._arrivals = Arrivals(
            self._announcements, fetch_state, self._topics, self._schedule, self._reader, metrics, config, cluster.clock
        )
        self._due_ticks_ms = -math.inf
        """When something is due, whatever is announced, as of the newest rest since a round; not known before that."""
        self._has_arrived = False
        """Was there nothing to do since that rest but what :class:`Arrivals` did?"""
        self._epochs: dict[TopicPartition, int] = {}
        """Epochs of the partitions before this round's look at the topics."""
        self._changed: set[str] = set()
        """Topics of partitions that were assigned or sought since they were looked at."""
        self._full_topics: frozenset[str] = frozenset()
        """Topics whose partitions all have enough buffered."""
        self.is_limited = False
        """Has a partition enough buffered, so that there is more to read once records are taken? Under the lock."""
        self._has_requests = False
        """Did the newest :meth:`_read_requests` give any? Only news of topics and the consumer change that."""
        self._look_ticks_ms = 0.0
        """When to look at the topics although records that are known to be there aren't read yet."""
        self._retry_ticks_ms: dict[str, float] = {}
        self._listed_ticks_ms: float | None = None
        self._looked_at_topics: frozenset[str] = frozenset()
        """The topics that were wanted at the last look."""
        self._unconfirmed: set[str] = set()
        """Names that match the pattern and under which no topic was found yet."""
        self._turn = 0  # goes up with each read for a partition

    def round(self, until_ticks_ms: float = math.inf) -> bool:
        """Do what there is to do. True: something was, and there may be more.

        Args:
            until_ticks_ms: topics that are due by then are looked at; all of them by default.
        Raises:
            StoreError: the store can't be read now.
        """
        if self._take_arrivals():
            return False
        fetch_state = self._fetch_state
        has_opened = self._topics.have_opened
        with fetch_state.lock:
            is_changed = fetch_state.is_update_requested
            if is_changed:
                self._note_changes()
            requests = self._read_requests() if is_changed or self._may_have_room or self._has_requests else []
            fetch_state.is_update_requested = fetch_state.has_room = False
            is_known = (
                bool(requests) and not (is_changed or has_opened) and self._clock.ticks_ms() < self._look_ticks_ms
            )
        try:
            if is_known:
                return self._read(requests)
            self._list_if_due()
            found = self._look(until_ticks_ms) or is_changed
            if found:
                self._search(self._set_fetch_offsets())
                with fetch_state.lock:
                    requests = self._read_requests()
            return self._read(requests) or (found and not requests)
        except BaseException:
            with fetch_state.lock:
                fetch_state.is_update_requested = True  # what was wanted still is
            raise

    def _take_arrivals(self) -> bool:
        """Do without a round where all that there is to do was announced, and is little. False: make a round."""
        has_rested = self._due_ticks_ms > -math.inf and not (self._has_requests or self.is_limited)
        is_done = has_rested and not (self._changed or self._retry_ticks_ms or self._topics.is_opening)
        if is_done and self._arrivals.take(self._epochs, turn=self._turn + 1, due_ticks_ms=self._due_ticks_ms):
            self._turn, self._has_arrived = self._turn + 1, True
            self._due_ticks_ms = min(self._due_ticks_ms, self._arrivals.due_ticks_ms)
            return True
        self._due_ticks_ms, self._has_arrived = -math.inf, False
        return False

    def close(self) -> None:
        """Wait for what is under way in the background."""
        self._reader.close()
        self._topics.close()

    @property
    def has_news(self) -> bool:
        """Is there something to do whatever is due: the consumer wants something else, a topic was opened, or there is
        room for something that is known to be there? Under the lock."""
        fetch_state = self._fetch_state
        return (
            fetch_state.is_update_requested
            or self._topics.have_opened
            or (self._may_have_room and bool(self._read_requests()))
        )

    @property
    def _may_have_room(self) -> bool:
        """Were records taken, so that there may be room for what there was none for? Under the lock."""
        return self._fetch_state.has_room and (self.is_limited or self._has_requests)

    @property
    def has_announced(self) -> bool:
        """Has the store announced something new in a topic that may be looked at now? Under the lock."""
        announced = self._announcements.among(self._to_look_at)
        return bool(announced) and bool(announced - self._retry_ticks_ms.keys() - self._topics.opening)

    @property
    def has_work(self) -> bool:
        """Is there a topic to look at? Under the lock."""
        return "" not in self._fetch_state.errors and (
            bool(self._to_look_at()) or self._fetch_state.pattern is not None
        )

    def next_due_ticks_ms(self) -> float:
        """When there is something to look at next, as far as is known. Under the lock."""
        if self._has_arrived and self._due_ticks_ms > self._clock.ticks_ms():
            return self._due_ticks_ms
        topics = self._to_look_at() - self._topics.opening
        retries = [self._retry_ticks_ms[topic] for topic in topics & self._retry_ticks_ms.keys()]
        due = self._schedule.next_due_ms(topics - self._retry_ticks_ms.keys())
        latest = self._clock.ticks_ms() + _LONGEST_WAIT_MS
        self._due_ticks_ms = min(latest, due, self._next_listing_ticks_ms(), *retries)
        return self._due_ticks_ms

    def _opened(self) -> None:
        """Wake the fetcher's thread: a topic was opened, or can't be. Called by another thread."""
        with self._fetch_state.lock:
            self._fetch_state.fetcher_condition.notify()

    def _note_changes(self) -> None:
        """Note which partitions are assigned, and which of them begin elsewhere than before. Under the lock."""
        epochs = {state.partition: state.epoch for state in self._fetch_state.assignment}
        self._changed |= {at.topic for at, epoch in epochs.items() if self._epochs.get(at) != epoch}
        self._epochs = epochs

    def _to_look_at(self) -> frozenset[str]:
        """The wanted topics, without those that have enough buffered or an error to be raised. Under the lock."""
        return self._fetch_state.wanted_topics() - self._full_topics - self._fetch_state.errors.keys()

    def _next_listing_ticks_ms(self) -> float:
        if self._fetch_state.pattern is None:
            return math.inf
        if self._listed_ticks_ms is None or self._fetch_state.matched_topics is None:
            return -math.inf
        return self._listed_ticks_ms + self._config.metadata_max_age_ms

    def _list_if_due(self) -> None:
        fetch_state, now = self._fetch_state, self._clock.ticks_ms()
        with fetch_state.lock:
            pattern = fetch_state.pattern
            is_due = now >= self._next_listing_ticks_ms()
        if pattern is None or not is_due:
            return
        names = frozenset(name for name in self._topics.names() if pattern.match(name))
        self._listed_ticks_ms = now
        self._unconfirmed = {name for name in names if not self._topics.is_followed(name)}
        with fetch_state.lock:
            fetch_state.set_matched_topics(pattern, names)

    def _look(self, until_ticks_ms: float) -> bool:
        """Look at the topics that are due. True: something is new."""
        fetch_state = self._fetch_state
        with fetch_state.lock:
            wanted = fetch_state.wanted_topics()
            asked = (self._to_look_at() | self._changed & wanted) - fetch_state.errors.keys()
        self._keep(wanted)
        now = self._clock.ticks_ms()
        self._look_ticks_ms = now + _LOOK_MS
        until_ticks_ms = max(until_ticks_ms, now)
        asked = frozenset(topic for topic in asked if self._retry_ticks_ms.get(topic, now) <= until_ticks_ms)
        self._open(asked)
        announced = self._announcements.take(asked)
        self._schedule.announced(announced, now_ms=now)
        at_once = asked & (self._changed | self._topics.behind() | announced)
        due = self._schedule.due(asked, until_ticks_ms) - at_once
        taken, left = self._take_shared(due) if due else (Polled(), due)
        polled = self._poll(at_once | left, announced)
        self._changed = (self._changed & wanted) - polled.news.keys()
        news = {**taken.news, **polled.news}
        for topic in news.keys() & self._retry_ticks_ms.keys():
            del self._retry_ticks_ms[topic]
        self._fail_all({**taken.errors, **polled.errors})
        self._fetch_state.note_looks(news.keys())
        self._carried.hold(polled.entries, self._topics.follower, self._epochs)
        self._topics.meet_foreign_files(news)
        return self._publish() or any(news.values())

    def _keep(self, wanted: frozenset[str]) -> None:
        if wanted != self._looked_at_topics:
            self._topics.keep(wanted)
            self._schedule.keep(wanted)
            self._announcements.keep(wanted)
            self._looked_at_topics = wanted

    def _open(self, topics: Iterable[str]) -> None:
        opened = self._topics.open(topics)
        self._unconfirmed -= opened.news.keys()
        outages = {t: e for t, e in opened.errors.items() if isinstance(e, StoreError) and e.retriable}
        if len(outages) < 2:
            self._fail_all(opened.errors)
            return
        # A store that can't be read now isn't an error of each topic: it is raised once.
        self._fail_all({topic: error for topic, error in opened.errors.items() if topic not in outages})
        self._retry_later(outages)
        raise next(iter(outages.values()))

    def _poll(self, topics: Iterable[str], announced: Set[str]) -> Polled:
        began = self._clock.ticks_ms()
        polled = self._topics.poll(topics, announced)
        ended = self._clock.ticks_ms()
        self._schedule.looked(polled.news, now_ms=ended, took_ms=ended - began, ended=polled.ended)
        return polled

    def _take_shared(self, due: set[str]) -> tuple[Polled, set[str]]:
        """Take what other consumers of this process have found out about topics that are due.

        Returns:
            What was taken; and the topics that are left to look at. One that another consumer looks at just now is not:
            it stays due. So of all that are due the first one looks, and news comes as soon to all of them.
        """
        looks = self._topics.shared_looks(due)
        taken = self._topics.take_shared(looks)
        for topic, is_new in taken.news.items():
            self._schedule.looked({topic: is_new}, now_ms=looks[topic].ended_ticks_ms, took_ms=None)
        left = due - looks.keys()
        others = self._topics.being_looked_at(left)
        self._schedule.postpone(others, now_ms=self._clock.ticks_ms())
        return taken, left - others

    def _retry_later(self, topics: Iterable[str]) -> None:
        at_ms = self._clock.ticks_ms() + self._config.retry_backoff_ms
        self._retry_ticks_ms.update(dict.fromkeys(topics, at_ms))

    def _fail_all(self, errors: Mapping[str, Exception]) -> None:
        self._retry_later(errors)
        for topic, error in errors.items():
            self._fail(topic, error)

    def _publish(self) -> bool:
        """Give the consumer the views of the topics. True: something is new."""
        views = self._topics.views()
        with self._fetch_state.lock:
            return self._fetch_state.set_views(views)

    def _fail(self, topic: str, error: Exception) -> None:
        # A name that was listed need not be a topic's: those of deleted ones stay, and folders may be others'.
        was_never_there = topic in self._unconfirmed and is_no_topic(error)
        with self._fetch_state.lock:
            self._fetch_state.fail(topic, error, was_never_there=was_never_there)

    def _set_fetch_offsets(self) -> list[TimestampSearch]:
        fetch_state = self._fetch_state
        searches, is_any_set = [], False
        with fetch_state.lock:
            for state in fetch_state.assignment:
                before = state.fetch_offset, state.error
                view = fetch_state.views.get(state.partition.topic)
                # A partition that was sought since the topics were looked at: its offset may lie beyond their views.
                if view is None or self._epochs.get(state.partition) != state.epoch:
                    continue
                search = set_fetch_offset(fetch_state.assignment, state, view, policy=self._config.auto_offset_reset)
                self._epochs[state.partition] = state.epoch
                if search is not None:
                    searches.append(search)
                is_any_set |= (state.fetch_offset, state.error) != before
            if is_any_set:  # else the consumer is woken once, by what is read
                fetch_state.notify()
        return searches

    def _search(self, searches: Sequence[TimestampSearch]) -> None:
        by_topic: dict[str, list[TimestampSearch]] = {}
        for search in searches:
            by_topic.setdefault(search.state.partition.topic, []).append(search)
        now_ms = self._clock.now_ms() if by_topic else 0
        followers = {topic: self._topics.follower(topic) for topic in by_topic}
        for found in parallel_map(lambda topic: first_records(followers[topic], by_topic[topic], now_ms), by_topic):
            for search, first in found:
                topic, partition = search.state.partition
                begin_at(self._fetch_state, search, first, end=followers[topic].head.log_end_offsets[partition])

    def _read(self, requests: list[ReadRequest]) -> bool:
        """True: there is more to read, as far as is known."""
        with self._fetch_state.lock:
            room = self._config.fetch_max_bytes - self._fetch_state.assignment.buffered_bytes
            self._forget_open(room)
        if not requests:
            return False
        room -= self._reader.held_bytes
        if room <= 0:  # go on with what is open or held ahead rather than open more
            held = self._reader.held
            requests = [request for request in requests if request.state.partition in held] or requests[:1]
        followers = {
            request.state.partition.topic: self._topics.follower(request.state.partition.topic) for request in requests
        }
        began = self._clock.ticks_ms()
        size_bytes = record_count = 0
        for fetched in self._reader.read(requests, followers, max(1, room)):
            self._turn += 1
            fetched.request.state.turn = self._turn
            self._deliver(fetched)
            size_bytes += fetched.size_bytes
            record_count += sum(batch.num_rows for batch in fetched.batches)
        if record_count:
            self._metrics.fetched(self._clock.ticks_ms() - began, size_bytes, record_count)
        is_behind, self._reader.is_behind = self._reader.is_behind, False
        if is_behind:
            self._topics.look_anew()
            self._look_ticks_ms = 0.0
        with self._fetch_state.lock:  # a round that finds nothing costs half as much as one that reads a record
            return is_behind or self._fetch_state.is_update_requested or bool(self._read_requests())

    def _forget_open(self, room: int) -> None:
        """Drop the segments of partitions that were sought or taken away; those of paused ones where room is short."""
        assignment = self._fetch_state.assignment
        is_short = self._reader.held_bytes >= room
        gone = []
        for partition, epoch in self._reader.held.items():
            state = assignment.get(partition)
            if state is None or state.epoch != epoch or (state.paused and is_short):
                gone.append(partition)
        self._reader.forget(gone)

    def _read_requests(self) -> list[ReadRequest]:
        """Reads that there is room for; the emptiest partitions first, of those the ones that have waited longest.

        Under the lock.
        """
        fetch_state, config = self._fetch_state, self._config
        buffered_bytes = fetch_state.assignment.buffered_bytes
        max_bytes, only = config.fetch_max_bytes, fetch_state.only
        topics_with_room: set[str] = set()
        is_limited = False
        requests = []
        for state in fetch_state.assignment:
            topic, partition = state.partition
            has_room = buffered_bytes < max(1, max_bytes if only is None or state.partition in only else max_bytes // 2)
            is_full = not has_room or state.buffered_bytes >= max(1, config.max_partition_fetch_bytes)
            is_limited = is_limited or is_full
            if not is_full:
                topics_with_room.add(topic)
            view = fetch_state.views.get(topic)
            if is_full or view is None or self._epochs.get(state.partition) != state.epoch:
                continue
            if state.paused or state.is_leaving or state.error is not None or state.fetch_offset is None:
                continue
            end = view.log_end_offsets[partition] if partition < view.partition_count else -1
            if end >= 0 and view.log_start_offsets[partition] <= state.fetch_offset < end:
                room = max(1, config.max_partition_fetch_bytes - state.buffered_bytes)
                request = ReadRequest(
                    state=state, epoch=state.epoch, offset=state.fetch_offset, end_offset=end, room_bytes=room
                )
                requests.append(request)
        self._full_topics = frozenset(fetch_state.assignment.topics() - topics_with_room)
        self.is_limited = is_limited
        self._has_requests = bool(requests)
        requests.sort(key=lambda request: (request.state.buffered_bytes, request.state.turn))
        return requests

    def _deliver(self, fetched: ReadResult) -> None:
        fetch_state, request = self._fetch_state, fetched.request
        state = request.state
        with fetch_state.lock:
            if state.epoch != request.epoch or state.partition not in fetch_state.assignment:
                return  # sought or taken away meanwhile
            if fetch_state.assignment.is_too_much(
                state, fetched.size_bytes, keep_bytes=self._config.fetch_max_bytes // 2
            ):
                self._reader.forget([state.partition])
                return
            now = self._clock.ticks_ms()
            for batch, size_bytes in zip(fetched.batches, fetched.sizes, strict=True):
                last_offset = offset_at(batch, -1)
                chunk = Chunk(batch=batch, next_offset=last_offset + 1, size_bytes=size_bytes, fetched_ticks_ms=now)
                fetch_state.assignment.deliver(state, chunk)
            if not fetched.batches and fetched.error is None and request.offset == state.fetch_offset:
                request.offset = self._skip_gap(request, now)
            state.fetch_offset = request.offset
            if fetched.error is not None:
                fetch_state.assignment.fail(state, fetched.error)
            fetch_state.notify()

    def _skip_gap(self, request: ReadRequest, now: float) -> int:
        """Go on at the log end where the log holds no more records up to it: somebody deleted them."""
        topic, partition = request.state.partition
        try:
            if next(self._topics.follower(topic).segments(partition, request.offset), None) is not None:
                return request.offset
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):  # the next look at the topic says so
            return request.offset
        chunk = Chunk(batch=empty_batch(), next_offset=request.end_offset, size_bytes=0, fetched_ticks_ms=now)
        self._fetch_state.assignment.deliver(request.state, chunk)
        return request.end_offset
