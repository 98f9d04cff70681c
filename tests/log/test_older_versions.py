"""A topic as of an older version is what it was then, for as long as the log tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.errors import InvalidArgumentError, UnknownTopicOrPartitionError
from sparklog.log.state import TopicState, load_state
from sparklog.log.topic import alter_topic, delete_records
from sparklog.storage import MemoryStore, ObjectInfo, ObjectStore
from sparklog.testing import ManualClock, WrappedStore
from tests.support import T0_MS, a_log, a_topic, a_writer, append, two_days_of_others, unsequenced_file


def told(state: TopicState) -> Any:
    """What a reader takes from a state, whether its files come from a checkpoint or from entries."""
    files = state.require_whole()
    statistics = {
        path: json.loads(found) if isinstance(found, str) else found for path, found in files.statistics.items()
    }
    segments = {path: replace(one, delta_version=-1) for path, one in files.index.by_path.items()}
    return state.head, segments, statistics


def whole(log: DeltaLog, version: int | None = None) -> Any:
    return told(load_state(log, statistics=True, version=version))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start_ms=T0_MS)


@pytest.fixture
def log(clock: ManualClock) -> DeltaLog:
    return a_topic(MemoryStore(clock=clock), clock, num_partitions=2)


def test_each_version_is_what_the_topic_was_then(log: DeltaLog, clock: ManualClock) -> None:
    writer = a_writer(log)
    then = [whole(log)]

    def note() -> None:
        clock.advance(1_000)
        version = load_state(log).position.version
        assert version == len(then)
        then.append(whole(log))

    append(writer, "a", "b")
    note()
    append(writer, "c", partition=1)
    note()
    write_checkpoint(log)
    unsequenced_file(log, "z")
    note()
    alter_topic(log, "t", {"retention.ms": "5000"})
    note()
    delete_records(log, "t", {0: 1})
    note()
    append(writer, "d")
    note()
    write_checkpoint(log)
    for version, expected in enumerate(then):
        assert whole(log, version) == expected
    assert whole(log, len(then) - 1) == whole(log)


def test_a_version_that_is_not_there_is_told(log: DeltaLog) -> None:
    append(a_writer(log), "a")
    with pytest.raises(InvalidArgumentError, match="the newest is 1"):
        load_state(log, version=2)
    with pytest.raises(UnknownTopicOrPartitionError):
        load_state(replace(log, table="topics/nosuch"), version=0)


def test_of_what_the_log_has_cleaned_nothing_is_made_up() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    two_days_of_others(memory, clock)
    newest = load_state(log).position.version
    there = [version for version in range(newest + 1) if log.read_entry(version) is not None]
    assert there[0] > 0
    for version in range(newest + 1):
        if version < newest - 1:  # the one checkpoint is of the last but one
            with pytest.raises(InvalidArgumentError, match=f"as of version {version}"):
                load_state(log, version=version)
        else:
            assert load_state(log, version=version).position.version == version


def test_a_checkpoint_that_cannot_be_read_is_passed_over(log: DeltaLog, clock: ManualClock) -> None:
    writer = a_writer(log)
    append(writer, "a")
    write_checkpoint(log)
    append(writer, "b")
    expected = whole(log)
    append(writer, "c")
    [path] = [one.path for one in log.store.list(f"{log.table}/_delta_log/") if "checkpoint.parquet" in one.path]
    log.store.put(path, b"torn")
    assert whole(log, 2) == expected


class CleanedMeanwhile(WrappedStore):
    """A store in which others act right after the first listing of the log."""

    def __init__(self, store: ObjectStore, others_act: Callable[[], object]) -> None:
        super().__init__(store)
        self._others_act: Callable[[], object] | None = others_act

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        found = [*super().list(prefix, after=after)]
        act, self._others_act = self._others_act, None
        if act is not None:
            act()
        return iter(found)


def test_a_version_that_is_cleaned_while_it_is_read_is_told_and_not_made_up() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    append(a_writer(a_topic(memory, clock)), "a")
    log = a_log(CleanedMeanwhile(memory, lambda: two_days_of_others(memory, clock)), clock)
    with pytest.raises(InvalidArgumentError, match="as of version 1"):
        load_state(log, version=1)
