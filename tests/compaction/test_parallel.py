"""Topics are dealt with several at a time; only one at a time is rewritten; an interrupt ends all of it."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence

import pytest

from sparklog.compaction import OptimizePolicy, Step, maintain, rewriting
from sparklog.compaction.maintain import Wanted, each_topic_at_once, quiet
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.rewriting import Rewritten
from sparklog.compaction.run import Run
from sparklog.compaction.units import FileRange
from sparklog.delta.listing import CheckpointHint
from sparklog.delta.log import DeltaLog
from sparklog.log import Cluster
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic
from sparklog.storage import MemoryStore
from sparklog.testing import ManualClock, WrappedStore
from tests.compaction.support import append_each, live
from tests.support import T0_MS, a_writer, contents
from tests.txn.support import a_cluster

PAIRS = OptimizePolicy(min_files=2, max_files=2, growth=1.1)
WAIT_S = 10


def a_world(count: int, *, files: int = 5) -> tuple[MemoryStore, ManualClock, Cluster]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    cluster = a_cluster(memory, clock)
    for number in range(count):
        log = cluster.topic_log(f"t{number}")
        create_topic(log, f"t{number}")
        append_each(a_writer(log, topic=f"t{number}"), *map(str, range(files)))
    return memory, clock, cluster


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

    rewriting_now, most = 0, 0
    lock = threading.Lock()

    def one_by_one(log: DeltaLog, ranges: Sequence[FileRange], compression: str) -> Generator[Rewritten, None, None]:
        nonlocal rewriting_now, most
        with lock:
            rewriting_now += 1
            most = max(most, rewriting_now)
        yield from rewriting.rewrite_with_arrow(log, ranges, compression)
        with lock:
            rewriting_now -= 1

    run = Run(a_cluster(Together(memory), clock), timeout_ms=60_000)
    wanted = Wanted(steps=[Step.OPTIMIZE], policy=PAIRS, rewrite=one_by_one)
    found = each_topic_at_once(run, {f"t{number}": 0 for number in range(8)}, wanted, quiet)
    reports = [one.report.optimize for one in found if one is not None]
    assert [len(one.ranges) for one in reports if one is not None] == [2] * 8
    assert most == 1


def test_topics_that_take_much_memory_are_loaded_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, cluster = a_world(4)
    monkeypatch.setattr(
        "sparklog.compaction.topic_steps.read_checkpoint_hint", lambda _: CheckpointHint(row_count=5_001)
    )
    loading, most = 0, 0
    lock = threading.Lock()

    def load(log: DeltaLog) -> object:
        nonlocal loading, most
        with lock:
            loading += 1
            most = max(most, loading)
        found = load_state(log)
        with lock:
            loading -= 1
        return found

    monkeypatch.setattr("sparklog.compaction.topic_steps.load_state", load)
    assert maintain(cluster).failures == []
    assert most == 1
