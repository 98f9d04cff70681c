"""Commits carry what all live files of a topic hold, right or not at all (rule L16, totals)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.compaction import OptimizePolicy, maintain
from sparklog.delta.actions import Action, AddFile, RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.log import commit as commits
from sparklog.log import delete_records, delete_topic, sequence_topic
from sparklog.log.append import TopicWriter
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.log.data.segments import SegmentIndex, segment_of_add
from sparklog.log.head import TopicHead
from sparklog.log.live_totals import EMPTY, TOTALS_INFO, LiveTotals, totals_after, totals_of, totals_of_info
from sparklog.log.state import TopicState, load_state, open_state
from sparklog.log.topic import alter_topic, create_topic
from tests.compaction.support import append_at
from tests.support import (
    T0_MS,
    a_topic,
    a_writer,
    append,
    foreign_commit,
    foreign_file,
    foreign_records,
    unsequenced_file,
)
from tests.txn.support import a_cluster


def add(path: str, *, size: int = 10, records: int = 1, first_ms: int = T0_MS, base_offset: int = 0) -> AddFile:
    file = UploadedFile(
        path=path,
        partition=0,
        record_count=records,
        size_bytes=size,
        min_timestamp_ms=first_ms,
        max_timestamp_ms=first_ms + 1,
        stamp=ProducerStamp(1, 0, 0),
        uploaded_ms=T0_MS,
    )
    return file.to_add(base_offset)


def unsequenced(path: str) -> AddFile:
    return replace(add(path), partition_values={"partition": "0", "base_offset": None})


def remove(path: str) -> RemoveFile:
    return RemoveFile(path=path, deletion_ms=T0_MS)


def carried(log: DeltaLog) -> LiveTotals | None:
    """What the newest commit says."""
    return open_state(log).head.totals


def counted(log: DeltaLog) -> LiveTotals:
    """What the live files say."""
    return totals_of(load_state(log).require_whole().index.by_path.values())


# The pure part.

PATHS = st.sampled_from("abcdef")
ADDS = st.builds(
    add,
    PATHS,
    size=st.integers(1, 100),
    records=st.integers(1, 9),
    first_ms=st.integers(T0_MS, T0_MS + 20),
    base_offset=st.integers(0, 5),
)
ENTRIES = st.lists(st.one_of(ADDS, st.builds(unsequenced, PATHS), st.builds(remove, PATHS)), max_size=4)


@given(st.lists(ENTRIES, max_size=12))
def test_what_is_carried_on_is_what_the_live_files_hold(entries: list[list[Action]]) -> None:
    index, totals = SegmentIndex.of(()), EMPTY
    for actions in entries:
        paths = [action.path for action in actions if isinstance(action, AddFile)]
        if len({*paths}) < len(paths):
            continue  # nobody adds a file twice at once
        after = totals_after(totals, index, actions)
        index.remove_all(action.path for action in actions if isinstance(action, RemoveFile))
        for action in actions:
            if isinstance(action, AddFile):
                index.add(segment_of_add(action, 1))
        assert after == totals_of(index.by_path.values())
        totals = after


def test_who_adds_files_needs_no_others() -> None:
    before = LiveTotals(2, 30, 4, T0_MS)
    after = totals_after(before, None, [add("a", size=5, records=3, first_ms=T0_MS - 7), unsequenced("b")])
    assert after == LiveTotals(3, 35, 7, T0_MS - 7)
    assert totals_after(before, None, []) == before


@given(
    before=st.none()
    | st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9), st.none() | st.integers(T0_MS, T0_MS + 9)),
    files=st.lists(st.tuples(st.integers(1, 99), st.integers(1, 9), st.integers(T0_MS, T0_MS + 20)), max_size=3),
)
def test_what_a_writer_says_of_its_new_files_is_what_their_actions_say(before, files) -> None:
    known = before and LiveTotals(*before)
    actions = [add(str(n), size=size, records=records, first_ms=ms) for n, (size, records, ms) in enumerate(files)]
    told = totals_of(segment_of_add(action, 1) for action in actions)
    assert totals_after(known, None, actions, told) == totals_after(known, None, actions)


def test_what_cannot_be_known_is_not_told() -> None:
    before = LiveTotals(2, 30, 4, T0_MS)
    assert totals_after(before, None, [remove("a")]) is None
    assert totals_after(None, None, [add("a")]) is None
    without = replace(add("a"), stats={"numRecords": 1})  # its times are told by who loads the topic
    assert totals_after(before, SegmentIndex.of(()), [without]) is None


@pytest.mark.parametrize(
    "told", [None, 7, "many", [1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, "4"], [True, 2, 3, 4], [1.5, 2, 3, None]]
)
def test_what_a_later_version_may_mean_is_not_guessed(told: object) -> None:
    assert totals_of_info(told) is None


@pytest.mark.parametrize("totals", [EMPTY, LiveTotals(1, 2, 3, T0_MS)])
def test_what_is_written_is_read(totals: LiveTotals) -> None:
    assert totals_of_info(totals.to_info()) == totals


# Commits.


def test_a_new_topic_begins_with_nothing_and_appends_add_to_it() -> None:
    log = a_topic()
    assert carried(log) == EMPTY
    writer = a_writer(log)
    append(writer, "a", "b")
    append(writer, "c")
    found = carried(log)
    assert found == counted(log)
    assert found is not None
    assert (found.file_count, found.record_count, found.oldest_ms) == (2, 3, T0_MS)


def test_who_lost_a_race_counts_what_the_winner_has_added() -> None:
    log = a_topic()
    slow, quick = a_writer(log), a_writer(log)
    for number in range(4):
        append(quick, f"q{number}", "x")
        append(slow, f"s{number}")
        assert carried(log) == counted(log)
        assert counted(log).file_count == 2 * (number + 1)


def test_whatever_is_done_to_a_topic_the_newest_commit_says_what_is_left() -> None:
    log = a_topic(configs={"retention.ms": str(3_600_000), "cleanup.policy": "compact,delete"})
    cluster = a_cluster(log.store, log.clock)
    writer = a_writer(log)

    def check(*, file_count: int | None = None) -> None:
        assert carried(log) == counted(log)
        assert file_count in (None, counted(log).file_count)

    append_at(writer, T0_MS - 10 * 3_600_000, "old", "older")
    for number in range(6):
        append(writer, f"a{number}", f"b{number}")
    check(file_count=7)
    alter_topic(log, "t", {"retention.bytes": "1000000"})
    check(file_count=7)
    maintain(cluster, policy=OptimizePolicy(min_files=2))
    check()
    assert counted(log).oldest_ms == T0_MS
    append(a_writer(log), "later", "still later")
    delete_records(log, "t", {0: open_state(log).head.log_end_offsets[0] - 1})
    check(file_count=1)
    delete_topic(log, "t")
    assert carried(log) == EMPTY
    create_topic(log, "t", num_partitions=2)
    assert carried(log) == EMPTY
    append(a_writer(log), "anew", partition=1)
    check(file_count=1)


# Breaks of the chain.


@contextmanager
def an_older_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clients of a version that knows nothing of totals."""
    to_info = TopicHead.to_info

    def without(head: TopicHead) -> dict[str, object]:
        info = to_info(head)
        info.pop(TOTALS_INFO, None)
        return info

    with monkeypatch.context() as patch:
        patch.setattr(TopicHead, "to_info", without)
        yield


def test_an_older_client_breaks_the_chain_and_whoever_knows_all_files_begins_it_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = a_topic(configs={"min.cleanable.dirty.ratio": "0"})
    new = a_writer(log)
    append(new, "a")
    with an_older_version(monkeypatch):
        append(a_writer(log), "b")
    assert carried(log) is None
    append(new, "c")
    append(a_writer(log), "d")
    assert carried(log) is None  # who knows the newest commit alone can't count
    alter_topic(log, "t", {"retention.ms": "-1"})
    assert carried(log) == counted(log)
    append(new, "e")
    assert carried(log) == counted(log)
    assert counted(log).file_count == 5


def test_who_loaded_the_topic_and_had_nothing_to_commit_knows_them_from_then_on() -> None:
    log = a_topic()
    append(a_writer(log), "a")
    state = load_state(log)
    assert state.head.totals is None
    state.forget_others(1)
    assert state.head.totals == counted(log)


def test_so_does_another_engine_that_adds_or_removes_files() -> None:
    log = a_topic()
    writer = a_writer(log)
    append(writer, "a")
    append(writer, "b")
    gone = load_state(log).require_whole().index.partition(0)[0].path
    foreign_commit(log, remove(gone))
    append(writer, "c")
    assert carried(log) is None
    unsequenced_file(log, "f")
    append(writer, "d")
    assert carried(log) is None
    sequence_topic(log)
    assert carried(log) == counted(log)
    assert counted(log).record_count == 4


def test_files_without_offsets_do_not_count_yet() -> None:
    log = a_topic()
    append(a_writer(log), "a")
    unsequenced_file(log, "f")
    alter_topic(log, "t", {"retention.ms": "-1"})
    assert carried(log) == counted(log)
    assert counted(log).file_count == 1


def test_another_engine_that_changes_no_file_does_not_break_it() -> None:
    log = a_topic()
    writer = a_writer(log)
    append(writer, "a")
    foreign_commit(log, load_state(log).require_whole().metadata)
    append(writer, "b")
    assert carried(log) == counted(log)


def test_a_file_that_came_without_statistics_counts_once_it_was_looked_into() -> None:
    log = a_topic()
    append(a_writer(log), "a")
    added = foreign_file(log, foreign_records("f", "g"), base_offset=1)
    foreign_commit(log, replace(added, stats=None))
    alter_topic(log, "t", {"retention.ms": "-1"})
    found = carried(log)
    assert found == counted(log)
    assert found is not None
    assert found.record_count == 3


def test_a_checkpoint_changes_nothing() -> None:
    log = a_topic()
    writer = a_writer(log)
    append(writer, "a")
    write_checkpoint(log)
    append(TopicWriter(log, "t"), "b")
    assert carried(log) == counted(log)
    alter_topic(log, "t", {"retention.ms": "-1"})
    assert carried(log) == counted(log)


def test_what_a_decision_says_of_totals_does_not_count() -> None:
    log = a_topic()
    append(a_writer(log), "a")
    wrong = LiveTotals(9, 9, 9, 9)

    def decide(state: TopicState) -> commits.Commit | None:
        if state.position.version > 1:
            return None
        return commits.Commit(actions=[], head=replace(state.head, totals=wrong), operation="COMPACT")

    commits.commit(open_state(log), decide, deadline=log.clock.deadline_in(1_000), sync=False)
    assert carried(log) == counted(log)
