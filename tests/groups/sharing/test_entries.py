"""Entries of a share group's log: as bytes, created, cleaned."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparklog.errors import CorruptLogError, UnsupportedVersionError
from sparklog.groups.sharing.entries import KEEP_MS, ShareEntry, ShareLog, clean_share_log, encode_entry, open_share_log
from sparklog.groups.sharing.states import RecordState, SharePartition, empty_partition, overwritten
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.paths import share_entry
from sparklog.storage import MemoryStore
from sparklog.storage.entry_log import Created, PositionLost, Taken
from sparklog.storage.position import Position
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import ManualClock
from tests.groups.sharing.test_changes import ACCEPT, RELEASE, acknowledge, acquire, acquired_at, wants


def a_log(clock: ManualClock | None = None) -> ShareLog:
    clock = clock or ManualClock()
    store = RetryingStore(MemoryStore(clock=clock), clock=clock)
    return open_share_log(Cluster(cluster_id="c", store=store, clock=clock), "g/ü", TopicPartition("t", 3))


def create(log: ShareLog, position: Position, partition: SharePartition | None) -> Created | Taken[ShareEntry]:
    return log.create_next(
        position,
        lambda token: encode_entry(partition, token),
        tokens=set(),
        deadline=log.clock.deadline_in(None),
        sync=True,
    )


def fill(log: ShareLog, count: int) -> Position:
    _, position = log.open_newest()
    for number in range(count):
        outcome = create(log, position, empty_partition("t1", number))
        assert isinstance(outcome, Created)
        position = outcome.position
    return position


@pytest.mark.parametrize(
    "partition",
    [
        None,
        empty_partition("t1", 7),
        acquired_at(),
        acknowledge(acquired_at(), 2, (3, 5, 1, ACCEPT), (7, 7, 1, RELEASE)).partition,
        acquire(acquired_at(), 2, wants(4, (12, 13), (15, 20), member="bé")).partition,
    ],
    ids=["deleted", "empty", "acquired", "split", "two members"],
)
def test_an_entry_reads_back_as_it_was_written(partition):
    read = a_log().decode(3, encode_entry(partition, "token"))
    assert (read.version, read.token, read.partition) == (3, "token", partition)


def test_a_full_window_of_single_records_takes_some_dozen_kilobytes():
    state = acquire(empty_partition("t1", 0), 1, wants(2000, until=2000)).partition
    part = replace(state.ranges[0], state=RecordState.AVAILABLE, lock=0)
    released = overwritten(state, (replace(part, first=offset, last=offset) for offset in range(0, 2000, 2)))
    assert len(released.ranges) == 2000
    assert len(encode_entry(released, "t" * 32)) < 40_000


@pytest.mark.parametrize(
    "ranges",
    [[[0, "V", 1, 0]], [[3, "Q", 1, 9]], [[3, "V", 1, 1]], [[3, "X", 1, 0]], [[3, "V", 1]], 7],
    ids=["empty", "lock that isn't there", "lock of nobody's", "state", "short", "no list"],
)
def test_what_makes_no_sense_is_told_with_its_path(ranges):
    body = {"format": 1, "token": "t", "topic_id": "i", "start": 0, "ranges": ranges, "locks": {"1": ["a", 5]}}
    with pytest.raises(CorruptLogError, match=r"share-groups/g%2F%C3%BC/partitions/t/3/0{19}5\.json"):
        a_log().decode(5, json.dumps(body).encode())


def test_a_newer_format_is_refused():
    with pytest.raises(UnsupportedVersionError, match="has format 2; this sparklog knows up to 1: upgrade it"):
        a_log().decode(1, b'{"format": 2}')


def test_of_two_who_create_one_number_one_has_it():
    log = a_log()
    _, position = log.open_newest()
    assert isinstance(create(log, position, acquired_at()), Created)
    other = create(log, position, empty_partition("t1", 0))
    assert isinstance(other, Taken)
    assert other.entry.partition == acquired_at()


def test_cleaning_keeps_the_newest_two_and_what_a_sleeper_of_minutes_needs():
    clock = ManualClock()
    log = a_log(clock)
    fill(log, 5)
    assert clean_share_log(log) == 0
    clock.advance(KEEP_MS + 1)
    fill(log, 1)
    assert clean_share_log(log) == 4  # the fifth's successor is young
    assert (log.numbers(), log.cleaned_below()) == ([5, 6], 5)
    clock.advance(KEEP_MS + 1)
    assert (clean_share_log(log), log.numbers()) == (0, [5, 6])


def test_who_slept_while_the_log_was_cleaned_creates_nothing_that_counts():
    clock = ManualClock()
    log = a_log(clock)
    asleep = fill(log, 2)
    fill(log, 3)
    clock.advance(KEEP_MS + 1)
    fill(log, 2)
    assert clean_share_log(log) > 0
    assert share_entry("g/ü", "t", 3, 3) not in {found.path for found in log.store.list(log.folder)}
    with pytest.raises(PositionLost):
        create(log, asleep, acquired_at())
    newest, _ = log.open_newest()
    assert newest is not None
    assert newest.version == 7
