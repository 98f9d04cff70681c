"""Requests of a topic's clients, counted: a rehearsal in memory, on simulated time, by the code that producers and
consumers run."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from sparklog.clock import Clock
from sparklog.config import ConsumerConfig
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.fetcher import Fetcher
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.consumer.segment_fetcher import ReadLimits
from sparklog.delta.names import entry_path
from sparklog.log import Cluster, TopicWriter, create_topic
from sparklog.log.maintenance import Checkpoints
from sparklog.model import TopicPartition
from sparklog.paths import topic_table
from sparklog.prices import Requests
from sparklog.storage import CreateResult, MemoryStore, ObjectInfo
from sparklog.storage.retrying import RetryingStore

__all__ = ["Workload", "commit_requests", "reading_requests"]

_TOPIC = "t"
_LOG_FOLDER = entry_path(topic_table(_TOPIC), 0).rpartition("/")[0]
_COMMITS = 100
"""Commits of a rehearsal of the producer: as many as a checkpoint follows."""
_MOST_COMMITS = 50
"""Commits of a rehearsal of the consumer."""
_SHORTEST_MS, _LONGEST_MS = 60_000.0, 600_000.0
"""The simulated time of a rehearsal of the consumer: three commits, if it isn't too long."""
_BATCH_BYTES = 1_048_576
"""The default of ``batch_size``."""
_MOST_FILE_BYTES = 65_536
"""Larger files cost as many requests, and memory of the rehearsal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The records that are written to a topic, and how quickly the store answers."""

    rate: float
    """Records a second, over all producers; more than 0."""
    record_bytes: int
    partitions: int
    has_keys: bool
    """Are records spread over the partitions by their keys? Else those of one commit go to one."""
    producers: int
    linger_ms: float
    fetch_max_wait_ms: float
    put_ms: float
    get_ms: float

    @property
    def commit_interval_ms(self) -> float:
        """The time from one commit of the topic to the next: a producer gathers for ``linger_ms``, or until it has
        ``batch_size``, while its last commit is under way, and until it has a record."""
        rate_ms = self.rate / self.producers / 1_000
        full_ms = _BATCH_BYTES / max(1, self.record_bytes) / rate_ms
        each_ms = max(self.put_ms, min(self.linger_ms, full_ms), 1 / rate_ms)
        return max(each_ms / self.producers, self.put_ms)  # all of them share the topic's one log

    @property
    def files_per_commit(self) -> float:
        """The expected number of partitions to which the records of one commit go."""
        records = max(1.0, self.rate * self.commit_interval_ms / 1_000)
        if not self.has_keys:
            return 1.0
        return self.partitions * (1.0 - math.pow(1 - 1 / self.partitions, records))

    @property
    def file_bytes(self) -> int:
        """The expected size of a file's records."""
        return math.ceil(self.rate * self.commit_interval_ms / 1_000 / self.files_per_commit * self.record_bytes)


def commit_requests(workload: Workload) -> Requests:
    """The requests of a commit, and its share of checkpoints: mean of 100 commits."""
    topic = _RehearsedTopic(workload)
    topic.commit()  # the first finds the topic as it was created
    topic.store.begin_count()
    for _ in range(_COMMITS):
        topic.commit()
    return topic.store.log.plus(topic.store.files).times(1 / _COMMITS)


def reading_requests(workload: Workload) -> tuple[Requests, Requests]:
    """The requests in a second of a consumer that reads the whole topic: for looks at the log, and for data files."""
    topic = _RehearsedTopic(workload)
    interval_ms = workload.commit_interval_ms
    duration_ms = min(max(_SHORTEST_MS, 3 * interval_ms), _LONGEST_MS, _MOST_COMMITS * interval_ms)
    consumer = _RehearsedConsumer(topic)
    consumer.run(min(duration_ms, _SHORTEST_MS))  # it opens the topic, and finds its pace
    topic.store.begin_count()
    consumer.run(duration_ms)
    consumer.close()
    share = 1_000 / duration_ms
    return topic.store.log.times(share), topic.store.files.times(share)


class _SimulatedClock(Clock):
    def __init__(self) -> None:
        self._ticks_ms = 0.0

    def now_ms(self) -> int:
        return 1_700_000_000_000 + int(self._ticks_ms)

    def ticks_ms(self) -> float:
        return self._ticks_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._ticks_ms += max(0.0, duration_ms)


class _CountedStore(MemoryStore):
    """Counts requests while it is open to be counted; a look at a log takes its time."""

    def __init__(self, clock: _SimulatedClock, *, get_ms: float) -> None:
        super().__init__(clock=clock)
        self._simulated = clock
        self._get_ms = get_ms
        self._counting = threading.Lock()
        self.is_counted = True
        self.log = self.files = Requests()

    @property
    def is_remote(self) -> bool:
        return True

    def begin_count(self) -> None:
        """Count from zero again."""
        self.log = self.files = Requests()

    def read(self, path: str) -> bytes:
        self._count(path, Requests(gets=1))
        return super().read(path)

    def read_range(self, path: str, start: int, end: int) -> bytes:
        self._count(path, Requests(gets=1))
        return super().read_range(path, start, end)

    def read_many(self, paths: Sequence[str]) -> Sequence[bytes | None]:
        if self.is_counted and any(_is_log(path) for path in paths):
            self._simulated.sleep_ms(self._get_ms)
        return super().read_many(paths)

    def put(self, path: str, data: bytes, *, sync: bool = False) -> None:
        self._count(path, Requests(puts=1))
        super().put(path, data, sync=sync)

    def create(self, path: str, data: bytes, *, sync: bool = False) -> CreateResult:
        self._count(path, Requests(puts=1))
        return super().create(path, data, sync=sync)

    def list_names(self, prefix: str) -> list[str]:
        self._count(prefix, Requests(lists=1))
        return super().list_names(prefix)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        self._count(prefix, Requests(lists=1))
        return super().list(prefix, after=after)

    def _count(self, path: str, requests: Requests) -> None:
        with self._counting:
            if not self.is_counted:
                return
            if _is_log(path):
                self.log = self.log.plus(requests)
            else:
                self.files = self.files.plus(requests)


def _is_log(path: str) -> bool:
    return path.startswith(_LOG_FOLDER)


class _RehearsedTopic:
    """A topic in memory to which batches are appended as the workload has them."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.clock = _SimulatedClock()
        self.store = _CountedStore(self.clock, get_ms=workload.get_ms)
        self.cluster = Cluster(
            cluster_id="rehearsal", store=RetryingStore(self.store, clock=self.clock), clock=self.clock
        )
        log = self.cluster.topic_log(_TOPIC)
        create_topic(log, _TOPIC, num_partitions=workload.partitions)
        checkpoints = Checkpoints(run=lambda work: work(), max_delay_ms=0.0)
        self._writer = TopicWriter(log, _TOPIC, checkpoints=checkpoints)
        self._files_due = 0.0
        self._next_partition = 0

    def commit(self) -> None:
        """Append a batch: as many files as the records of a commit go to partitions, on the average."""
        self._files_due += self.workload.files_per_commit
        count = max(1, math.floor(self._files_due))
        self._files_due -= count
        first, self._next_partition = self._next_partition, self._next_partition + count
        value = b"v" * min(self.workload.file_bytes, _MOST_FILE_BYTES)
        records = pa.table({"key": [b"k"], "value": [value], "timestamp": pa.array([self.clock.now_ms()], pa.int64())})
        files = [((first + number) % self.workload.partitions, records) for number in range(count)]
        self._writer.append(self._writer.upload(files), deadline=self.clock.deadline_in(60_000))


class _RehearsedConsumer:
    """A consumer's fetcher, whose thread is the caller's, beside a producer that isn't counted."""

    def __init__(self, topic: _RehearsedTopic) -> None:
        self._topic = topic
        config = ConsumerConfig.parse(
            {"auto_offset_reset": "earliest", "fetch_max_wait_ms": int(topic.workload.fetch_max_wait_ms)}
        )
        self._state = FetchState(topic.clock)
        self._fetcher = Fetcher(topic.cluster, config, self._state, ConsumerMetrics(topic.clock), ReadLimits())
        self._next_commit_ms = topic.clock.ticks_ms()
        partitions = [TopicPartition(_TOPIC, number) for number in range(topic.workload.partitions)]
        with self._state.lock:
            self._state.assignment.replace(dict.fromkeys(partitions, config.auto_offset_reset))
            self._state.request_update()

    def run(self, duration_ms: float) -> None:
        """Let time pass: commits as they are due, and what the fetcher does about them."""
        clock = self._topic.clock
        end_ms = clock.ticks_ms() + duration_ms
        while clock.ticks_ms() < end_ms:
            self._commit_until(clock.ticks_ms())
            is_busy = self._fetcher.round(clock.ticks_ms())
            self._take_all()
            if not is_busy:
                with self._state.lock:
                    if self._fetcher.has_news:  # what was taken has made room
                        continue
                    due_ms = self._fetcher.next_due_ticks_ms()
                clock.sleep_ms(min(due_ms, self._next_commit_ms, end_ms) - clock.ticks_ms())

    def close(self) -> None:
        """Wait for what is under way."""
        self._fetcher.close()

    def _commit_until(self, ticks_ms: float) -> None:
        store = self._topic.store
        while self._next_commit_ms <= ticks_ms:
            store.is_counted = False
            try:
                self._topic.commit()
            finally:
                store.is_counted = True
            self._next_commit_ms += self._topic.workload.commit_interval_ms

    def _take_all(self) -> None:
        with self._state.lock:
            for state in self._state.assignment:
                while state.chunks:
                    self._state.assignment.take(
                        state, state.chunks[0].next_records(state.chunks[0].left_count).num_rows
                    )
            self._state.notify_room()
