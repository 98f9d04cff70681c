"""Random lives of a streaming query: whatever happens around it, each record once, in order, and no commit split."""

import random
from collections import Counter

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.names import entry_path
from sparklog.log.cluster import open_cluster
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import open_state
from sparklog.storage import MemoryStore
from sparklog.streaming.positions import Positions
from sparklog.streaming.source_options import source_options
from sparklog.streaming.stream import StreamPlanner
from sparklog.streaming.task_reading import read_task
from sparklog.testing import ManualClock
from tests.depth import each_nth
from tests.support import DAY_MS, T0_MS, a_writer, foreign_entry, records, unsequenced_file, within


class Life:
    """A topic, those who write to it, and a query that is restarted now and then."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.clock = ManualClock(start_ms=T0_MS)
        self.cluster = open_cluster(MemoryStore(clock=self.clock), clock=self.clock)
        Admin(self.cluster).create_topics([NewTopic("t", 2)])
        self.log = self.cluster.topic_log("t")
        self.writer = a_writer(self.log)
        self.limit = self.random.choice([1, 2, 5, 20])
        self.partitions = 2
        self.commit_count = 0
        self.cleaned_below = 0
        self.versions: dict[str, int] = {}
        self.batches: list[Counter[str]] = []
        self.next_offsets: dict[int, int] = {}
        self.restart()
        self.position = self.through_json(self.stream.initial())

    def restart(self):
        options = {"path": "/c", "subscribe": "t", "startingOffsets": "earliest", "maxOffsetsPerTrigger": self.limit}
        text = {name: str(value) for name, value in options.items()}
        self.stream = StreamPlanner(self.cluster, source_options(text, streaming=True))

    def through_json(self, positions):
        return Positions.from_json(positions.to_json())

    def commit(self):
        name = f"c{self.commit_count}"
        self.commit_count += 1
        where = [p for p in range(self.partitions) if self.random.random() < 0.7] or [0]
        batches = [(p, records(*[name] * self.random.randint(1, 3))) for p in where]
        result = self.writer.append(self.writer.upload(batches), deadline=within(self.writer, 1_000))
        assert result is not None
        self.versions[name] = open_state(self.log).head.delta_version

    def foreign(self):
        name = f"f{self.commit_count}"
        self.commit_count += 1
        unsequenced_file(self.log, name, name, partition=self.random.randrange(self.partitions))
        sequence_topic(self.log)
        self.versions[name] = open_state(self.log).head.delta_version

    def nothing(self):
        foreign_entry(self.log, open_state(self.log).head.delta_version + 1, [])

    def grow(self):
        if self.partitions < 4:
            self.partitions += 1
            Admin(self.cluster).create_partitions({"t": self.partitions})
            self.writer = a_writer(self.log)

    def checkpoint(self):
        write_checkpoint(self.log)

    def clean(self):
        """As cleanup does a day later, of all below a checkpoint."""
        self.clock.advance(DAY_MS)
        write_checkpoint(self.log)
        newest = open_state(self.log).head.delta_version
        self.cluster.store.delete([entry_path(self.log.table, version) for version in range(newest)])
        self.cleaned_below = newest

    def trigger(self):
        end = self.through_json(self.stream.next(self.position, limited=self.random.random() < 0.9))
        if end == self.position:
            return
        if self.random.random() < 0.3:
            self.restart()  # and carry out the batch that was planned
        seen: Counter[str] = Counter()
        for task in self.stream.plan(self.position, end):
            for batch in read_task(self.log, task, ["partition", "offset", "value"]):
                for row in batch.to_pylist():
                    assert row["offset"] == self.next_offsets.get(row["partition"], 0)
                    self.next_offsets[row["partition"]] = row["offset"] + 1
                    seen[row["value"].decode()] += 1
        assert seen
        self.check_whole(seen)
        self.batches.append(seen)
        self.position = end

    def check_whole(self, seen):
        before = {name for batch in self.batches for name in batch}
        split = {name for name in seen if name in before}
        assert all(self.versions[name] < self.cleaned_below for name in split), (split, self.cleaned_below)

    def step(self):
        steps = [self.commit] * 8 + [self.trigger] * 6 + [self.foreign, self.nothing, self.grow, self.checkpoint]
        self.random.choice([*steps, self.restart, self.clean])()
        self.clock.advance(self.random.choice([0, 100, 70_000]))


def live(seed, *, steps):
    life = Life(seed)
    for _ in range(steps):
        life.step()
    for _ in range(400):
        before = life.position
        life.trigger()
        if life.position == before and life.stream.next(before, limited=False) == before:
            break
    ends = open_state(life.log).head.log_end_offsets
    assert life.next_offsets == {partition: end for partition, end in enumerate(ends) if end}


@pytest.mark.parametrize("seed", range(3))
def test_each_record_is_read_once_in_order_and_no_commit_is_split(seed):
    live(seed, steps=40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", each_nth(range(100, 130), 6))
def test_so_it_is_in_longer_lives(seed):
    live(seed, steps=80)
