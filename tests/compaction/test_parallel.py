"""Topics are dealt with several at a time; only one at a time is rewritten; an interrupt ends all of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

import pytest

from sparklog.compaction import OptimizePolicy, Step, maintain, rewrite_arrow, topic_steps
from sparklog.compaction.file_ranges import FileRange
from sparklog.compaction.maintenance import MaintenanceOptions, each_topic_at_once, ignore_steps
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.rewrite_arrow import Rewritten
from sparklog.compaction.run_context import MaintenanceRun
from sparklog.delta.listing import CheckpointHint
from sparklog.delta.log import DeltaLog
from sparklog.log import Cluster
from sparklog.log.sequencing.sequencing import sequence_state
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock, WrappedStore
from tests.compaction.support import append_each, live
from tests.support import T0_MS, a_writer, contents, foreign_commit, foreign_file, foreign_records
from tests.txn.support import a_cluster

PAIRS = OptimizePolicy(min_files=2, max_files=2, growth=1.1)
WAIT_S = 60

T = TypeVar("T")


def a_world(count: int, *, files: int = 5) -> tuple[MemoryStore, ManualClock, Cluster]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    for number in range(count):
        log = cluster.topic_log(f"t{number}")
        create_topic(log, f"t{number}")
        append_each(a_writer(log, topic=f"t{number}"), *map(str, range(files)))
    return memory, clock, cluster


class AtOnce:
    """Tells how many were within it at the same time at most."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1

    def counted(self, call: Callable[..., T]) -> Callable[..., T]:
        def within(*arguments: Any, **more: Any) -> T:
            with self:
                time.sleep(0.002)
                return call(*arguments, **more)

        return within


def test_an_interrupt_ends_the_steps_of_all_topics_and_each_is_whole() -> None:
    _, _, cluster = a_world(6)
    begun: list[tuple[str, Step]] = []

    def tell(topic: str, step: Step) -> None:
        begun.append((topic, step))
        if step is Step.COMPACT:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        maintain(cluster, policy=PAIRS, tell=tell)
    assert {step for _, step in begun}.isdisjoint({Step.OPTIMIZE, Step.VACUUM, Step.GROUPS})
    assert maintain(cluster, policy=PAIRS).failures == []
    for number in range(6):
        assert contents(cluster.topic_log(f"t{number}"), topic=f"t{number}") == {0: [*enumerate("01234")]}
        assert len(live(cluster.topic_log(f"t{number}"))) == 3


def test_an_interrupt_within_a_step_ends_it_between_two_commits() -> None:
    _, _, cluster = a_world(2, files=9)

    def told(_: str) -> None:
        raise KeyboardInterrupt

    log = cluster.topic_log("t0")
    with pytest.raises(KeyboardInterrupt):
        optimize_topic(log, "t0", policy=PAIRS, progress=told)
    assert len(live(log)) == 8
    assert contents(log, topic="t0") == {0: [*enumerate("012345678")]}


def test_topics_are_read_at_the_same_time_and_rewritten_one_after_the_other() -> None:
    memory, clock, _ = a_world(8)
    together = threading.Barrier(8, timeout=WAIT_S)
    is_first = threading.local()

    class Together(WrappedStore):
        """The first call of each thread waits until as many threads are at it."""

        def read(self, path: str) -> bytes:
            if threading.current_thread() is not threading.main_thread() and not hasattr(is_first, "seen"):
                is_first.seen = True
                together.wait()
            return super().read(path)

    at_once = AtOnce()

    def one_by_one(log: DeltaLog, ranges: Sequence[FileRange], compression: str) -> Generator[Rewritten, None, None]:
        with at_once:
            yield from rewrite_arrow.rewrite_with_arrow(log, ranges, compression)

    run = MaintenanceRun(a_cluster(Together(memory), clock), timeout_ms=60_000)
    wanted = MaintenanceOptions(steps=[Step.OPTIMIZE], policy=PAIRS, rewrite=one_by_one)
    found = each_topic_at_once(run, {f"t{number}": 0 for number in range(8)}, wanted, ignore_steps)
    reports = [one.report.optimize for one in found if one is not None]
    assert [len(one.ranges) for one in reports if one is not None] == [2] * 8
    assert at_once.most == 1


def test_topics_that_take_much_memory_are_loaded_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, cluster = a_world(4)
    hint = CheckpointHint(row_count=5_001)
    monkeypatch.setattr(topic_steps, "read_checkpoint_hint", lambda _: hint)
    at_once = AtOnce()
    monkeypatch.setattr(topic_steps, "load_state", at_once.counted(load_state))
    assert maintain(cluster).failures == []
    assert at_once.most == 1


def test_files_of_other_engines_are_copied_one_topic_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy takes 256 MiB of memory."""
    _, _, cluster = a_world(4)
    for number in range(4):
        log = cluster.topic_log(f"t{number}")
        foreign_commit(log, foreign_file(log, foreign_records("x")))
    at_once = AtOnce()
    monkeypatch.setattr(topic_steps, "sequence_state", at_once.counted(sequence_state))
    report = maintain(cluster)
    assert report.failures == []
    assert [one.sequence and one.sequence.sequenced_files for one in report.topics] == [1] * 4
    assert at_once.most == 1
