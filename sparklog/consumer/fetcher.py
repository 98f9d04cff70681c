"""The fetcher: a thread that follows the topics and reads ahead what the consumer will ask for next."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.locating import SearchByTime, locate
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.consumer.partitions import Chunk
from sparklog.consumer.reading import Fetched, ReadLimits, SegmentFetcher, Want, empty_batch
from sparklog.consumer.shared import Shared
from sparklog.consumer.topics import FollowedTopics
from sparklog.errors import NotATopicError, OffsetOutOfRangeError, SparklogError, UnknownTopicOrPartitionError
from sparklog.log import Cluster
from sparklog.model import TopicPartition

__all__ = ["Fetcher", "FetcherThread"]

_SHORTEST_WAIT_MS = 1.0
_LONGEST_WAIT_MS = (10.0, 100.0)
"""An idle fetcher waits three times as long as a look took, but at most between these."""
_WAIT_GROWTH = 1.5
_LOOK_MS = 1_000.0
_ABSENT_MS = 1_000.0
"""A consumer that hasn't polled for so long is busy: nothing new is looked for until it comes back."""


class Fetcher:
    """One round after the other: see what is new, find positions, read. Owned by one thread."""

    def __init__(
        self, cluster: Cluster, config: ConsumerConfig, shared: Shared, metrics: ConsumerMetrics, limits: ReadLimits
    ) -> None:
        self._config = config
        self._shared = shared
        self._metrics = metrics
        self._clock: Clock = cluster.clock
        self._topics = FollowedTopics(cluster)
        self._reader = SegmentFetcher(cluster.store, limits)
        self._epochs: dict[TopicPartition, int] = {}
        """Of the partitions as they were before this round's look at the topics."""
        self._sated: frozenset[str] = frozenset()
        """Topics whose partitions all have enough buffered."""
        self._look_ticks_ms = 0.0
        """When to look at the topics although what is known of them isn't read yet."""
        self._retry_ticks_ms: dict[str, float] = {}
        self._listed_ticks_ms: float | None = None
        self._turn = 0
        """Goes up with each reading for a partition."""

    def round(self) -> bool:
        """Do what there is to do. True: something was, and there may be more.

        Raises:
            StoreError: the store can't be read now.
        """
        shared = self._shared
        is_news = self._answer()
        with shared.lock:
            is_changed = shared.is_changed
            if is_changed:
                self._epochs = {state.partition: state.epoch for state in shared.assignment}
            shared.is_changed = shared.has_room = False
            wants = self._wants()
            is_known = bool(wants) and not (is_changed or is_news) and self._clock.ticks_ms() < self._look_ticks_ms
        try:
            if is_known:
                return self._read(wants)
            self._list_if_due()
            found = self._look(is_changed=is_changed) or is_news or is_changed
            if found:
                self._search(self._locate())
                with shared.lock:
                    wants = self._wants()
            return self._read(wants) or found
        except Exception:
            with shared.lock:
                shared.is_changed = True  # what was wanted still is
            raise

    def close(self) -> None:
        """Wait for what is under way in the background."""
        self._topics.close()

    def has_wants(self) -> bool:
        """Is there room for something that is known to be there? Under the lock."""
        return bool(self._wants())

    def _answer(self) -> bool:
        """Answer what was asked. True: more was seen of the topics meanwhile."""
        shared = self._shared
        with shared.lock:
            requests = [*shared.requests]
            shared.requests.clear()
            wanted = shared.wanted_topics() if requests else frozenset()
        if not requests:
            return False
        for request in requests:
            request.run(self._topics)
        with shared.lock:
            shared.tell()
        return self._publish(wanted)

    @property
    def has_work(self) -> bool:
        """Is there a topic to look at? Under the lock."""
        wanted = self._shared.wanted_topics() - self._sated - self._shared.errors.keys()
        return "" not in self._shared.errors and (bool(wanted) or self._shared.pattern is not None)

    def _list_if_due(self) -> None:
        shared, now = self._shared, self._clock.ticks_ms()
        with shared.lock:
            pattern, matched = shared.pattern, shared.matched
        is_due = self._listed_ticks_ms is None or now - self._listed_ticks_ms >= self._config.metadata_max_age_ms
        if pattern is None or not (is_due or matched is None):
            return
        names = frozenset(name for name in self._topics.names() if pattern.match(name))
        found = {name for name in names if self._topics.is_followed(name) or self._open(name)}
        self._listed_ticks_ms = now
        with shared.lock:
            if shared.pattern is pattern:
                shared.matched = frozenset(found)
                shared.views_version += 1
                shared.tell()

    def _open(self, topic: str) -> bool:
        """Is this one of the names under which there is a topic?"""
        try:
            self._topics.poll(topic)
        except (UnknownTopicOrPartitionError, NotATopicError):
            return False
        return True

    def _look(self, *, is_changed: bool) -> bool:
        """See what is new in the topics. True: something."""
        shared = self._shared
        with shared.lock:
            wanted = shared.wanted_topics()
            skipped = {*shared.errors, *(() if is_changed else self._sated)}
        self._topics.keep(wanted)
        now = self._clock.ticks_ms()
        self._look_ticks_ms = now + _LOOK_MS
        found = False
        due = {topic for topic in wanted - skipped if now >= self._retry_ticks_ms.get(topic, now)}
        for topic in sorted(due - self._topics.quiet(due)):
            if shared.is_stopped:
                break
            try:
                found = self._topics.poll(topic) or found
            except Exception as error:
                self._retry_ticks_ms[topic] = now + self._config.retry_backoff_ms
                self._fail(topic, error)
        self._topics.meet_foreign_files()
        return self._publish(wanted) or found

    def _publish(self, wanted: frozenset[str]) -> bool:
        """Let the consumer see the topics. True: something is new."""
        views = {topic: self._topics.view(topic) for topic in wanted if self._topics.is_followed(topic)}
        shared = self._shared
        with shared.lock:
            before = shared.views
            if views != before:
                shared.views = views
                counts = [{t: (v.topic_id, v.partition_count) for t, v in each.items()} for each in (before, views)]
                if counts[0] != counts[1]:
                    shared.views_version += 1
                    shared.tell()
            return views != before

    def _fail(self, topic: str, error: Exception) -> None:
        shared = self._shared
        with shared.lock:
            if topic not in shared.wanted_topics():
                return
            if isinstance(error, UnknownTopicOrPartitionError) and shared.matched is not None:
                shared.matched -= {topic}
            shared.errors[topic] = error
            shared.tell()

    def _locate(self) -> list[SearchByTime]:
        shared = self._shared
        searches = []
        with shared.lock:
            for state in shared.assignment:
                view = shared.views.get(state.partition.topic)
                # One that was sought since the topics were looked at may know more than we do.
                if view is None or self._epochs.get(state.partition) != state.epoch:
                    continue
                search = locate(shared.assignment, state, view, policy=self._config.auto_offset_reset)
                self._epochs[state.partition] = state.epoch
                if search is not None:
                    searches.append(search)
            shared.tell()
        return searches

    def _search(self, searches: Sequence[SearchByTime]) -> None:
        shared = self._shared
        for search in searches:
            state = search.state
            topic, partition = state.partition
            follower = self._topics.follower(topic)
            timestamp_ms = self._clock.now_ms() - search.duration_ms
            try:
                found = follower.offset_for_time(partition, max(0, timestamp_ms))
            except SparklogError as error:
                with shared.lock:
                    if state.epoch == search.epoch:
                        shared.assignment.fail(state, error)
                continue
            with shared.lock:
                if state.epoch == search.epoch:
                    end = follower.head.log_end_offsets[partition]
                    state.position = state.fetch_offset = end if found is None else found.offset
                    shared.tell()

    def _read(self, wants: list[Want]) -> bool:
        with self._shared.lock:
            room = self._config.fetch_max_bytes - self._shared.assignment.buffered_bytes
            self._forget_open(room)
        if not wants:
            return False
        room -= self._reader.held_bytes
        if room <= 0:  # go on with what is open rather than open more
            opened = self._reader.opened
            wants = [want for want in wants if want.state.partition in opened] or wants[:1]
        followers = {want.state.partition.topic: self._topics.follower(want.state.partition.topic) for want in wants}
        began = self._clock.ticks_ms()
        size_bytes = record_count = 0
        for fetched in self._reader.read(wants, followers, max(1, room)):
            self._turn += 1
            fetched.want.state.turn = self._turn
            self._deliver(fetched)
            size_bytes += sum(batch.nbytes for batch in fetched.batches)
            record_count += sum(batch.num_rows for batch in fetched.batches)
        if record_count:
            self._metrics.fetched(self._clock.ticks_ms() - began, size_bytes, record_count)
        if self._reader.is_behind:
            self._reader.is_behind = False
            self._look_ticks_ms = 0.0
        return True

    def _forget_open(self, room: int) -> None:
        """Close the segments of partitions that were sought or taken away; those of paused ones where room is short."""
        assignment = self._shared.assignment
        is_short = self._reader.held_bytes >= room
        gone = []
        for partition, epoch in self._reader.opened.items():
            state = assignment.get(partition)
            if state is None or state.epoch != epoch or (state.paused and is_short):
                gone.append(partition)
        self._reader.forget(gone)

    def _wants(self) -> list[Want]:
        """What there is room for; the emptiest partitions first, and of those the ones that have waited longest."""
        shared, config = self._shared, self._config
        has_room = shared.assignment.buffered_bytes < max(1, config.fetch_max_bytes)
        hungry: set[str] = set()
        wants = []
        for state in shared.assignment:
            topic, partition = state.partition
            is_full = not has_room or state.buffered_bytes >= max(1, config.max_partition_fetch_bytes)
            if not is_full:
                hungry.add(topic)
            view = shared.views.get(topic)
            if is_full or view is None or self._epochs.get(state.partition) != state.epoch:
                continue
            if state.paused or state.is_leaving or state.error is not None or state.fetch_offset is None:
                continue
            end = view.log_end_offsets[partition] if partition < view.partition_count else -1
            if end >= 0 and view.log_start_offsets[partition] <= state.fetch_offset < end:
                room = max(1, config.max_partition_fetch_bytes - state.buffered_bytes)
                want = Want(state=state, epoch=state.epoch, offset=state.fetch_offset, end_offset=end, room_bytes=room)
                wants.append(want)
        self._sated = frozenset(shared.assignment.topics() - hungry)
        wants.sort(key=lambda want: (want.state.buffered_bytes, want.state.turn))
        return wants

    def _deliver(self, fetched: Fetched) -> None:
        shared, want = self._shared, fetched.want
        state = want.state
        with shared.lock:
            if state.epoch != want.epoch or state.partition not in shared.assignment:
                return  # sought or taken away meanwhile
            size_bytes = sum(batch.nbytes for batch in fetched.batches)
            if shared.assignment.is_too_much(state, size_bytes, keep_bytes=self._config.fetch_max_bytes // 2):
                self._reader.forget([state.partition])
                return
            now = self._clock.ticks_ms()
            for batch in fetched.batches:
                last_offset = batch.column(0)[-1].as_py()
                chunk = Chunk(
                    batch=batch, next_offset=last_offset + 1, size_bytes=int(batch.nbytes), fetched_ticks_ms=now
                )
                shared.assignment.deliver(state, chunk)
            if not fetched.batches and fetched.error is None and want.offset == state.fetch_offset:
                want.offset = self._skip_gap(want, now)
            state.fetch_offset = want.offset
            if fetched.error is not None:
                shared.assignment.fail(state, fetched.error)
            shared.tell()

    def _skip_gap(self, want: Want, now: float) -> int:
        """Go on at the log end where the log holds no more records up to it: somebody deleted them."""
        topic, partition = want.state.partition
        try:
            if next(self._topics.follower(topic).segments(partition, want.offset), None) is not None:
                return want.offset
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):  # the next look at the topic says so
            return want.offset
        chunk = Chunk(batch=empty_batch(), next_offset=want.end_offset, size_bytes=0, fetched_ticks_ms=now)
        self._shared.assignment.deliver(want.state, chunk)
        return want.end_offset


class FetcherThread:
    """Lets a fetcher do its rounds until it is stopped; rests where there is nothing to do."""

    def __init__(self, fetcher: Fetcher, shared: Shared, clock: Clock, *, longest_wait_ms: float) -> None:
        self._fetcher = fetcher
        self._shared = shared
        self._clock = clock
        self._cap_ms = max(_SHORTEST_WAIT_MS, longest_wait_ms)
        self._thread = threading.Thread(target=self._run, name="sparklog-fetcher", daemon=True)

    def start(self) -> None:
        """Begin, once."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended after it was stopped. True: it has."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._do_rounds()
        self._fetcher.close()

    def _do_rounds(self) -> None:
        shared = self._shared
        wait_ms = _SHORTEST_WAIT_MS
        while not shared.is_stopped:
            began = self._clock.ticks_ms()
            try:
                is_busy = self._fetcher.round()
            except Exception as error:
                is_busy = False
                with shared.lock:
                    shared.errors[""] = error
                    shared.tell()
            took_ms = self._clock.ticks_ms() - began
            with shared.lock:
                is_busy = is_busy or shared.is_changed or (shared.has_room and self._fetcher.has_wants())
                if shared.requests or (is_busy and "" not in shared.errors):
                    wait_ms = _SHORTEST_WAIT_MS
                    continue
                self._rest(wait_ms)
            low, high = _LONGEST_WAIT_MS
            wait_ms = min(wait_ms * _WAIT_GROWTH, max(low, min(3 * took_ms, high)), self._cap_ms)

    def _rest(self, wait_ms: float) -> None:
        shared = self._shared
        if shared.is_stopped:
            return
        is_absent = not shared.polling and self._clock.ticks_ms() - shared.polled_ticks_ms > _ABSENT_MS
        if is_absent or not self._fetcher.has_work:
            shared.is_parked = True
            shared.work.wait()
            shared.is_parked = False
        else:
            shared.work.wait(wait_ms / 1000)
