"""Another engine upgrades the table's Delta protocol, or breaks the topic's properties, and takes it back: clients that
run fail as long as it lasts, and then go on by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparklog.delta.actions import Action, Metadata, Protocol, SetTransaction
from sparklog.delta.listing import list_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import check_protocol
from sparklog.errors import NotATopicError, SparklogError, UnsupportedVersionError
from sparklog.log.append import TopicWriter
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state
from sparklog.log.topic import alter_topic
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock
from tests.support import (
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    foreign_entry,
    foreign_file,
    foreign_records,
    records,
    said_to_be_placed,
    within,
)

OURS = Protocol(min_reader_version=1, min_writer_version=2)
COLUMN_MAPPING = Protocol(min_reader_version=2, min_writer_version=5)
DELETION_VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("appendOnly", "deletionVectors", "invariants"),
)
CHANGE_FEED = Protocol(min_reader_version=1, min_writer_version=4)
LISTED = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "invariants"))


@pytest.mark.parametrize(
    ("protocol", "reads", "writes"),
    [
        (OURS, True, True),
        (Protocol(min_reader_version=1, min_writer_version=1), True, True),
        (LISTED, True, True),
        (replace(LISTED, writer_features=()), True, True),
        (replace(LISTED, min_reader_version=3, reader_features=()), True, True),
        (replace(LISTED, writer_features=("appendOnly", "changeDataFeed")), True, False),
        (replace(LISTED, writer_features=None), True, False),
        (replace(LISTED, min_writer_version=8), True, False),
        (replace(LISTED, min_reader_version=3, reader_features=None), False, False),
        (CHANGE_FEED, True, False),
        (COLUMN_MAPPING, False, False),
        (DELETION_VECTORS, False, False),
        (replace(LISTED, min_reader_version=2), False, False),
    ],
    ids=str,
)
def test_a_protocol_is_known_by_its_version_or_by_the_features_it_lists(
    protocol: Protocol, reads: bool, writes: bool
) -> None:
    for write, is_known in ((False, reads), (True, writes)):
        if is_known:
            check_protocol("t", protocol, write=write)
            continue
        with pytest.raises(UnsupportedVersionError, match=f"t needs Delta {'writer' if reads else 'reader'} version"):
            check_protocol("t", protocol, write=write)


def test_a_table_that_lists_only_what_we_know_is_written_and_read() -> None:
    log = a_topic()
    commit(log, replace(LISTED, min_reader_version=3, reader_features=()))
    append(a_writer(log), "a")
    alter_topic(log, "t", {"retention.ms": 5})
    assert contents(log)[0] == [(0, "a")]


def commit(log: DeltaLog, *actions: Action) -> None:
    """As another engine, which doesn't mind what sparklog understands."""
    listing = list_log(log)
    assert listing is not None
    version = listing.newest_version + 1
    foreign_entry(log, version, [action.to_json() for action in (*actions, *said_to_be_placed(version, actions))])


def metadata(log: DeltaLog) -> Metadata:
    return load_state(log).require_whole().metadata


def without_id(found: Metadata) -> Metadata:
    kept = {name: value for name, value in found.configuration.items() if name != "sparklog.topic.id"}
    return replace(found, configuration=kept)


Commits = Callable[[Metadata], list[Action]]
"""Of the metadata before: an action each."""

BREAKS: dict[str, tuple[Commits, Commits, type[SparklogError]]] = {
    "newer reader": (lambda _: [COLUMN_MAPPING], lambda _: [OURS], UnsupportedVersionError),
    "one newer reader after the other": (
        lambda _: [COLUMN_MAPPING, DELETION_VECTORS],
        lambda _: [LISTED],
        UnsupportedVersionError,
    ),
    "no topic any more": (lambda before: [without_id(before)], lambda before: [before], NotATopicError),
}


@pytest.mark.parametrize("what", BREAKS)
def test_running_clients_fail_while_it_lasts_and_then_go_on(what: str) -> None:
    """✗ They stand before the entry for ever, while whoever begins anew works."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    breaks, mends, expected = BREAKS[what]
    before = metadata(log)
    counted = CountingStore(memory)
    follower, writer = TopicFollower(a_log(counted, clock), "t"), a_writer(log)
    append(writer, "before")
    follower.poll()
    for action in breaks(before):
        commit(log, action)
    for _ in range(3):
        counted.reset()
        with pytest.raises(expected):
            follower.poll()
        assert counted.counts() == {"get": 1}
        with pytest.raises(expected):
            append(writer, "meanwhile", timeout_ms=1_000)
        with pytest.raises(expected):
            writer.refresh()
    with pytest.raises(expected):
        TopicFollower(log, "t")
    for action in mends(before):
        commit(log, action)
    commit(log, foreign_file(log, foreign_records("by another engine"), base_offset=1))
    assert append(writer, "after").base_offsets == (2,)
    for _ in range(4):
        follower.poll()
    expected_records = ["before", "by another engine", "after"]
    assert follower.read(0, 0)["value"].to_pylist() == [value.encode() for value in expected_records]
    assert contents(log)[0] == list(enumerate(expected_records))


@pytest.mark.parametrize("what", BREAKS)
def test_an_append_that_slept_through_the_upgrade_and_its_end_succeeds(what: str) -> None:
    """However many commits lie between the two."""
    log = a_topic()
    breaks, mends, expected = BREAKS[what]
    before = metadata(log)
    writer = a_writer(log)
    append(writer, "before")
    for action in breaks(before):
        commit(log, action)
    with pytest.raises(expected):
        append(writer, "meanwhile")
    for number in range(5):
        commit(log, SetTransaction(app_id="another engine", version=number, last_updated_ms=T0_MS))
    for action in mends(before):
        commit(log, action)
    assert append(writer, "after").base_offsets == (1,)


def test_a_writer_goes_on_after_a_newer_writer_version_was_taken_back() -> None:
    log = a_topic()
    writer = a_writer(log)
    append(writer, "before")
    commit(log, CHANGE_FEED)
    staged = writer.upload([(0, records("after"))])
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match="writer version 4"):
            writer.append(staged, deadline=within(writer, 1_000))
    commit(log, OURS)
    assert writer.append(staged, deadline=within(writer, 1_000)).base_offsets == (1,)


def test_an_append_that_loses_its_race_to_the_upgrade_fails_and_the_next_goes_on() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    overtaken = OvertakenStore(memory, lambda: commit(log, COLUMN_MAPPING))
    writer: TopicWriter = a_writer(a_log(overtaken, clock))
    with pytest.raises(UnsupportedVersionError, match="reader version 2"):
        append(writer, "meanwhile")
    commit(log, OURS)
    assert append(writer, "after").base_offsets == (0,)
    assert contents(log)[0] == [(0, "after")]
