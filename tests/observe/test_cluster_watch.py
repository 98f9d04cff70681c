"""A look at a cluster costs few requests, and says what the logs say."""

from __future__ import annotations

import math
from typing import NoReturn

import pytest

from sparklog import Admin
from sparklog.compaction import maintain
from sparklog.delta.actions import AddFile, Protocol
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.errors import (
    CorruptLogError,
    InvalidArgumentError,
    StoreError,
    StorePermissionError,
    StoreUnavailableError,
)
from sparklog.log.cluster import Cluster
from sparklog.log.live_totals import LiveTotals
from sparklog.log.state import load_state
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.observe import ClusterFigures, ClusterWatch, Shard, TopicFigures
from sparklog.observe.newest_topics import ListedTopic, listed_topic
from sparklog.observe.topic_watch import NewestTopic, TopicWatch, newest_topic
from sparklog.observe.watching import Watching, WatchStatus
from sparklog.paths import MAINTENANCE_RUNS
from tests.observe.support import Watched, watched
from tests.support import DAY_MS, T0_MS, a_writer, foreign_commit, two_days_of_others, unsequenced_file

LISTINGS = 5
"""Of topics, groups, transactional ids, markers of sessions, notes of maintenance."""


@pytest.fixture
def here() -> Watched:
    return watched()


def topic(figures: ClusterFigures, name: str) -> TopicFigures:
    return next(one for one in figures.topics if one.name == name)


def ends(figures: ClusterFigures, name: str) -> list[int]:
    return [one.log_end_offset for one in topic(figures, name).partitions]


def test_an_unchanged_topic_costs_one_request_and_a_changed_one_at_most_three(here: Watched) -> None:
    writers = [here.topic(f"t{number}") for number in range(20)]
    for writer in writers:
        here.append(writer, "a")
    watch = ClusterWatch(here.cluster)
    watch.look()
    here.requests()
    watch.look()
    assert here.requests() == len(writers) + LISTINGS
    for commits in (1, 2, 3, 50):
        here.clock.advance(1_000)
        for _ in range(commits):
            here.append(writers[7], "b")
        here.requests()
        watch.look()
        assert here.requests() <= len(writers) - 1 + 3 + LISTINGS


def test_a_topic_with_many_commits_is_followed_by_its_newest_one(here: Watched) -> None:
    busy = here.topic("busy")
    watch = ClusterWatch(here.cluster)
    watch.look()
    watch.look()  # nothing has happened: from now on the next entries are asked for one by one
    for _ in range(10):
        here.append(busy, "a")
    assert ends(watch.look(), "busy") == [3]  # three requests
    for look in range(1, 4):
        for _ in range(10):
            here.append(busy, "a", timestamp_ms=T0_MS)
        here.clock.advance(1_000)
        here.requests()
        found = watch.look()
        assert here.requests() <= 3 + LISTINGS
        assert ends(found, "busy") == [10 + 10 * look]
        assert topic(found, "busy").files_version == 3
    here.clock.advance(60_000)
    found = watch.look()
    assert topic(found, "busy").files_version == topic(found, "busy").delta_version == 40
    assert topic(found, "busy").partitions[0].file_count == 40
    here.requests()
    watch.look()
    assert here.requests() == 1 + LISTINGS


def test_a_busy_topic_in_which_nothing_happens_any_more_costs_one_request(here: Watched) -> None:
    busy = here.topic("busy")
    watch = ClusterWatch(here.cluster)
    watch.look()
    for _ in range(10):
        here.append(busy, "a")
    watch.look()
    watch.look()
    here.requests()
    assert ends(watch.look(), "busy") == [10]
    assert here.requests() == 1 + LISTINGS


def test_a_topic_that_was_cleaned_behind_a_silent_watch_is_loaded_anew(here: Watched) -> None:
    writer = here.topic("t")
    here.append(writer, "a")
    watch = ClusterWatch(here.cluster)
    watch.look()
    two_days_of_others(here.memory, here.clock)
    log = here.cluster.topic_log("t")
    assert log.read_entry(2) is None
    assert ends(watch.look(), "t") == list(load_state(log).head.log_end_offsets) == [14]


def test_the_age_of_a_checkpoint_is_known_by_the_time_of_the_store(
    here: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one that was there when the topic was loaded, and of one that came later; as the newest commit tells of it."""
    monkeypatch.setattr("sparklog.observe.topic_watch._OFTEN_CHECKPOINTED", 1)
    writer, log = here.topic("t"), here.cluster.topic_log("t")
    here.append(writer, "a")
    watch = ClusterWatch(here.cluster)
    assert topic(watch.look(), "t").checkpoint_ms is None
    here.clock.advance(5_000)
    here.append(writer, "b")
    write_checkpoint(log)
    written_ms = here.clock.now_ms()
    here.clock.advance(70_000)
    for _ in range(2):  # what came after the load may be known a look later
        found = topic(watch.look(), "t")
    assert (found.checkpoint_ms, found.uncheckpointed_count) == (written_ms, 0)
    loaded = topic(ClusterWatch(here.cluster).look(), "t")
    assert (loaded.checkpoint_ms, loaded.checkpoint_version) == (written_ms, 2)
    light = newest_topic(here.cluster, "t")
    assert isinstance(light, NewestTopic)
    assert light.figures.checkpoint_ms == written_ms


def test_a_checkpoint_of_a_topic_with_few_commits_is_known_half_an_hour_later(here: Watched) -> None:
    """Within the budget of each look: one request for a topic in which nothing was committed, three for another."""
    writer, log = here.topic("t"), here.cluster.topic_log("t")
    here.append(writer, "a")
    write_checkpoint(log)
    watch = ClusterWatch(here.cluster)
    for _ in range(2):
        watch.look()
    for commits, version in ((2, 3), (1, 4), (0, 4)):
        for minute in range(32):
            if minute == 29:  # the next look but one looks for a checkpoint
                for _ in range(commits):
                    here.append(writer, "b")
            if minute == 30 and commits:
                write_checkpoint(log)
            here.requests()
            found = topic(watch.look(), "t")
            assert here.requests() <= (3 if minute in (29, 30) and commits else 1) + LISTINGS
            here.clock.advance(60_000)
        assert (found.checkpoint_version, found.uncheckpointed_count) == (version, 0)
        assert found.record_count == ends(watch.look(), "t")[0] == version


@pytest.mark.parametrize("commits", [0, 1, 5])
def test_above_a_hundred_commits_behind_a_checkpoint_the_budget_is_the_same(
    here: Watched, monkeypatch: pytest.MonkeyPatch, commits: int
) -> None:
    """One request for a topic in which nothing was committed, three for another; a checkpoint is known in two
    minutes."""
    monkeypatch.setattr("sparklog.observe.topic_watch._OFTEN_CHECKPOINTED", 3)
    monkeypatch.setattr("sparklog.observe.topic_watch._MOST_LISTED", 6)
    monkeypatch.setattr("sparklog.observe.cluster_watch._FILES_EVERY_MS", math.inf)
    writer, log = here.topic("t"), here.cluster.topic_log("t")
    for _ in range(8):
        here.append(writer, "a")
    watch = ClusterWatch(here.cluster)
    watch.look()
    for look in range(16):
        here.clock.advance(15_000)
        if look < 4:
            for _ in range(commits):
                here.append(writer, "b")
        if look == 3:
            write_checkpoint(log)
        here.requests()
        found = topic(watch.look(), "t")
        assert here.requests() <= (3 if commits and look < 5 else 1) + LISTINGS
    expected = 8 + 4 * commits if commits else -1  # where nothing was committed, half an hour later
    assert found.checkpoint_version == expected


def test_figures_of_a_topic_are_those_of_its_log(here: Watched) -> None:
    writer = here.topic("t", num_partitions=2, retention_ms=DAY_MS)
    here.append(writer, "a", "b", timestamp_ms=T0_MS - 3_000)
    here.append(writer, "c", timestamp_ms=T0_MS - 1_000, partition=1)
    found = topic(ClusterWatch(here.cluster).look(), "t")
    first, second = found.partitions
    assert (first.log_start_offset, first.log_end_offset, first.record_count, first.file_count) == (0, 2, 2, 1)
    assert (first.oldest_ms, first.newest_ms) == (T0_MS - 3_000, T0_MS - 2_999)
    assert second.size_bytes > 0
    assert second.small_file_count == 1
    assert found.commit_ms == T0_MS
    assert found.uncheckpointed_count == 3
    assert found.retention_ms == DAY_MS
    assert not found.is_due("retention", now_ms=T0_MS)


def test_steps_of_maintenance_become_due_by_time_without_a_request(here: Watched) -> None:
    writer = here.topic("t", retention_ms=DAY_MS // 2)
    here.append(writer, "a", timestamp_ms=T0_MS)
    watch = ClusterWatch(here.cluster)
    assert not topic(watch.look(), "t").is_due("retention", now_ms=here.clock.now_ms())
    for _ in range(12):
        here.append(writer, "b", timestamp_ms=T0_MS)
    watch.look()
    here.clock.advance(60_000)
    found = topic(watch.look(), "t")
    assert found.is_due("optimize", now_ms=here.clock.now_ms())
    assert (found.merge_file_count, found.merge_bytes > 0) == (12, True)
    here.clock.advance(DAY_MS // 2)
    watch.look()
    here.requests()
    assert topic(watch.look(), "t").is_due("retention", now_ms=here.clock.now_ms())
    assert here.requests() == 1 + LISTINGS


def test_files_of_another_engine_wait_for_offsets(here: Watched) -> None:
    here.topic("t")
    watch = ClusterWatch(here.cluster)
    watch.look()
    unsequenced_file(here.cluster.topic_log("t"), "a", "b")
    found = topic(watch.look(), "t")
    assert found.unsequenced_count == 1
    assert found.is_due("sequence", now_ms=T0_MS)


def test_a_topic_that_cannot_be_read_is_named_and_the_others_are_there(here: Watched) -> None:
    writer = here.topic("good")
    here.topic("bad")
    here.memory.put("topics/bad/_delta_log/00000000000000000001.json", b"{torn")
    here.memory.put("topics/not-a-topic/file", b"")
    watch = ClusterWatch(here.cluster)
    found = watch.look()
    assert [one.name for one in found.topics] == ["good"]
    assert [(one.kind, one.name) for one in found.problems] == [("topic", "bad")]
    assert "00000000000000000001.json" in str(found.problems[0].error)
    here.append(writer, "a")
    assert ends(watch.look(), "good") == [1]
    here.memory.delete(["topics/bad/_delta_log/00000000000000000001.json"])
    here.clock.advance(60_000)
    assert [one.name for one in watch.look().topics] == ["bad", "good"]


@pytest.mark.parametrize("refusal", [StorePermissionError, StoreUnavailableError])
@pytest.mark.parametrize("is_known", [False, True])
def test_a_topic_that_the_store_does_not_return_is_named_and_the_others_are_there(
    here: Watched, refusal: type[StoreError], is_known: bool
) -> None:
    """A bad sector looks like a disk that is away for a moment."""
    writer = here.topic("good")
    here.topic("bad")
    watch = ClusterWatch(here.cluster)
    if is_known:
        watch.look()
    here.failing.closed, here.failing.refusal = "topics/bad/", refusal
    here.append(writer, "a")
    found = watch.look()
    assert ends(found, "good") == [1]
    assert [(one.kind, one.name) for one in found.problems] == [("topic", "bad")]
    assert [one.name for one in found.topics] == (["bad", "good"] if is_known else ["good"])


def test_notes_of_maintenance_that_cannot_be_listed_hide_nothing(here: Watched) -> None:
    here.topic("good")
    maintain(here.cluster)
    watch = ClusterWatch(here.cluster)
    before = watch.look()
    here.failing.closed = "maintenance/"
    found = watch.look()
    assert [one.name for one in found.topics] == ["good"]
    assert found.maintained_ms == before.maintained_ms
    assert "maintenance/: forbidden" in found.runs_error


def test_a_topic_that_another_engine_upgraded_stays_a_problem_until_it_is_mended(here: Watched) -> None:
    here.topic("t")
    watch = ClusterWatch(here.cluster)
    watch.look()
    log = here.cluster.topic_log("t")
    foreign_commit(log, Protocol(min_reader_version=9, min_writer_version=9))
    for _ in range(3):
        found = watch.look()
        assert [(one.kind, one.name) for one in found.problems] == [("topic", "t")]
        assert ends(found, "t") == [0]  # as it was known
        here.clock.advance(60_000)


def test_topics_come_and_go(here: Watched) -> None:
    watch = ClusterWatch(here.cluster)
    assert watch.look().topics == ()
    writer = here.topic("t")
    here.append(writer, "a")
    before = topic(watch.look(), "t")
    admin = Admin(here.cluster)
    admin.delete_topics(["t"])
    assert watch.look().topics == ()
    here.topic("t")
    after = topic(watch.look(), "t")
    assert after.topic_id != before.topic_id
    assert [one.log_end_offset for one in after.partitions] == [0]


def test_a_store_that_is_away_is_an_error_and_the_next_look_goes_on(here: Watched) -> None:
    writer = here.topic("t")
    watch = ClusterWatch(here.cluster, patience_ms=0)
    watch.look()
    here.append(writer, "a")
    here.failing.is_away = True
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            watch.look()
    here.failing.is_away = False
    assert ends(watch.look(), "t") == [1]


def test_a_topic_that_may_not_be_read_hides_no_other(here: Watched) -> None:
    writer = here.topic("open")
    here.topic("closed")
    watch = ClusterWatch(here.cluster, patience_ms=0)
    watch.look()
    here.append(writer, "a")
    here.failing.closed = "topics/closed/"
    found = watch.look()
    assert [(one.kind, one.name) for one in found.problems] == [("topic", "closed")]
    assert isinstance(found.problems[0].error, StorePermissionError)
    assert ends(found, "open") == [1]
    here.failing.closed = "-"
    here.clock.advance(60_000)
    assert watch.look().problems == ()


def test_a_foreign_file_whose_partition_makes_no_sense_hides_no_other_topic(here: Watched) -> None:
    writer = here.topic("good")
    here.topic("bad")
    add = AddFile(
        path="odd.parquet", partition_values={"partition": "x", "base_offset": None}, size_bytes=1, modification_ms=1
    )
    foreign_commit(here.cluster.topic_log("bad"), add)
    watch = ClusterWatch(here.cluster)
    for _ in range(2):
        here.append(writer, "a")
        found = watch.look()
        assert [one.name for one in found.topics] == ["good"]
        [problem] = found.problems
        assert (problem.kind, problem.name) == ("topic", "bad")
        assert isinstance(problem.error, CorruptLogError)
        assert "version 1 of topics/bad adds odd.parquet" in str(problem.error)
        here.clock.advance(60_000)


def test_a_foreign_file_whose_statistics_make_no_sense_hinders_nobody(here: Watched) -> None:
    here.topic("t")
    add = AddFile(path="odd.parquet", partition_values={}, size_bytes=1, modification_ms=1, stats={"numRecords": "x"})
    foreign_commit(here.cluster.topic_log("t"), add)
    found = ClusterWatch(here.cluster).look()
    assert (found.problems, [one.unsequenced_count for one in found.topics]) == ((), [1])


def test_a_defect_with_one_topic_hides_no_other(here: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    writers = {name: here.topic(name) for name in ("bad", "good")}
    watch = ClusterWatch(here.cluster)
    watch.look()
    look = TopicWatch.look_at_newest

    def fail(self: TopicWatch) -> None:
        if self.name == "bad":
            raise ZeroDivisionError("a defect")
        look(self)

    for writer in writers.values():
        here.append(writer, "a")
    with monkeypatch.context() as patched:
        patched.setattr(TopicWatch, "look_at_newest", fail)
        found = watch.look()
    assert ends(found, "good") == [1]
    assert [(one.kind, one.name) for one in found.problems] == [("topic", "bad")]
    assert "ZeroDivisionError('a defect')" in str(found.problems[0].error)
    here.clock.advance(60_000)
    found = watch.look()
    assert (found.problems, ends(found, "bad")) == ((), [1])


def test_shards_share_the_topics_out(here: Watched) -> None:
    names = [f"t{number}" for number in range(12)]
    for name in names:
        here.topic(name)
    found = [ClusterWatch(here.cluster, shard=Shard(index, 3)).look() for index in range(3)]
    assert sorted(one.name for each in found for one in each.topics) == sorted(names)
    assert all(each.topics for each in found)
    with pytest.raises(InvalidArgumentError, match="expected 1 to 3"):
        Shard(3, 3)


@pytest.fixture
def many(here: Watched, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """More topics and groups than are told of at once."""
    monkeypatch.setattr("sparklog.observe.cluster_watch._FEW_TOPICS", 2)
    for name in "abcde":
        here.append(here.topic(name, num_partitions=2), "x", "y")
    for group, topics in (("g1", "ad"), ("g2", "be"), ("g3", "a")):
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(1) for topic in topics}
        Admin(here.cluster).alter_group_offsets(group, offsets)
    return here


def test_the_first_look_tells_of_newest_commits_and_groups_before_it_has_loaded_all(many: Watched) -> None:
    parts: list[ClusterFigures] = []
    requests: list[int] = []
    watch = ClusterWatch(many.cluster)
    many.requests()

    def note(part: ClusterFigures) -> None:
        parts.append(part)
        requests.append(many.requests())

    whole = watch.look(on_part=note)
    (part, page), (before, between), after = parts, requests, many.requests()
    assert (part.is_part, whole.is_part) == (True, False)
    # Listings; of a topic a LIST and its newest entry; of a group its members, too.
    assert before == LISTINGS + 2 * 5 + 4 * 3
    assert (part.unread_topic_count, part.unread_group_count) == (0, 0)
    for first, then in zip(part.topics, whole.topics, strict=True):
        assert (first.has_files, then.has_files) == (False, True)
        for name in ("name", "topic_id", "delta_version", "commit_ms", "cleanup_policy", "retention_ms"):
            assert getattr(first, name) == getattr(then, name)
        for one, other in zip(first.partitions, then.partitions, strict=True):
            assert (one.log_start_offset, one.log_end_offset) == (other.log_start_offset, other.log_end_offset)
            assert (one.record_count, one.file_count) == (one.log_end_offset - one.log_start_offset, 0)
        assert (first.totals, first.totals_version) == (then.totals, then.totals_version)
        assert first.totals == LiveTotals(1, then.partitions[0].size_bytes, 2, T0_MS)
    assert part.groups == whole.groups  # what they read next is in the newest commits
    assert part.maintained_ms == whole.maintained_ms
    assert (part.is_first_page_whole, page.is_first_page_whole, page.is_part) == (False, True, True)
    assert page.topics == whole.topics  # what maintenance would do, too: as few topics are all on the first page
    assert watch.look(on_part=parts.append).topics == whole.topics
    assert len(parts) == 2
    many.requests()
    assert ClusterWatch(many.cluster).look().groups == whole.groups
    # Neither groups nor transactions are read twice, nor the topics that were loaded for the first page.
    assert between + after == many.requests() - 4 * 3 - (LISTINGS - 2)


def test_the_topics_that_are_shown_first_are_loaded_first(many: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics by name, and those that the groups with the most lag read next, where no newest commit has the record."""
    monkeypatch.setattr("sparklog.observe.first_page.FIRST_ROWS", 1)
    many.clock.advance(60_000)
    writer = a_writer(many.cluster.topic_log("e"), topic="e")
    many.append(writer, "z", timestamp_ms=T0_MS + 60_000)
    many.append(writer, "z", timestamp_ms=T0_MS + 60_000)
    parts: list[ClusterFigures] = []
    whole = ClusterWatch(many.cluster).look(on_part=parts.append)
    assert [one.name for one in parts[1].topics if one.has_files] == ["a", "e"]  # g2 has the most lag, in e
    assert [one.lag_ms for group in parts[0].groups for one in group.partitions if one.lag_ms is None] == [None]
    assert parts[1].groups == whole.groups
    assert topic(parts[1], "a") == topic(whole, "a")
    assert topic(parts[1], "b") == topic(parts[0], "b")


def test_no_more_topics_are_loaded_first_than_take_a_moment(many: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.observe.first_page._MOST_TOPICS", 2)
    parts: list[ClusterFigures] = []
    ClusterWatch(many.cluster).look(on_part=parts.append)
    assert [one.name for one in parts[1].topics if one.has_files] == ["a", "b"]


def test_topics_that_an_outage_hid_are_loaded_as_soon_as_the_store_is_back(many: Watched) -> None:
    """Not a minute later: the outage is no topic's problem."""
    watch = ClusterWatch(many.cluster, patience_ms=0)
    with pytest.raises(StoreUnavailableError):
        watch.look(on_part=lambda part: setattr(many.failing, "is_away", True))
    many.failing.is_away = False
    found = watch.look()
    assert [one.name for one in found.topics] == [*"abcde"]
    assert all(one.has_files for one in found.topics)
    assert found.problems == ()


def test_where_nothing_is_loaded_first_the_first_part_is_all(many: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.observe.first_page._MOST_TOPICS", 0)
    parts: list[ClusterFigures] = []
    ClusterWatch(many.cluster).look(on_part=parts.append)
    assert [(one.is_part, one.is_first_page_whole) for one in parts] == [(True, True)]


def test_a_lag_in_time_is_told_first_where_the_newest_commit_has_the_record(many: Watched) -> None:
    for number in range(3):
        many.clock.advance(60_000)
        many.append(a_writer(many.cluster.topic_log("a"), topic="a"), "z", timestamp_ms=T0_MS + number * 60_000)
    offsets = {TopicPartition("a", 0): OffsetAndMetadata(4), TopicPartition("b", 0): OffsetAndMetadata(2)}
    Admin(many.cluster).alter_group_offsets("g2", offsets)
    parts: list[ClusterFigures] = []
    whole = ClusterWatch(many.cluster).look(on_part=parts.append)

    def lags_ms(figures: ClusterFigures, name: str) -> dict[str, int | None]:
        [group] = (one for one in figures.groups if one.group_id == name)
        return {one.partition.topic: one.lag_ms for one in group.partitions}

    assert lags_ms(parts[0], "g3") == {"a": None}  # a record of four commits ago
    assert lags_ms(whole, "g3") == {"a": 179_999}
    assert lags_ms(parts[0], "g2") == lags_ms(whole, "g2") == {"a": 60_000, "b": 0, "e": 179_999}


def test_where_the_newest_commit_carries_no_totals_the_first_look_knows_none(
    many: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr("sparklog.log.commit.totals_after", lambda *_: None)
        many.append(a_writer(many.cluster.topic_log("b"), topic="b"), "z")
    parts: list[ClusterFigures] = []
    whole = ClusterWatch(many.cluster).look(on_part=parts.append)
    assert [one.name for one in parts[0].topics if one.totals is None] == ["b"]
    assert topic(parts[0], "b").record_count == 3
    assert topic(whole, "b").totals == LiveTotals(2, topic(whole, "b").partitions[0].size_bytes, 3, T0_MS)


def test_the_part_is_told_as_soon_as_it_is_there_and_gone_when_the_look_has_ended(many: Watched) -> None:
    told: list[WatchStatus] = []
    watching = Watching(
        lambda: ClusterWatch(many.cluster), interval_ms=1_000, on_part=told.append, tells_parts=True, clock=many.clock
    )
    watching.look()
    status, first_page = told
    assert status.figures is None
    assert first_page.part is not None
    assert first_page.part.is_first_page_whole
    assert status.part is not None
    assert status.part.is_part
    assert watching.status().part is None
    watching.look()
    assert len(told) == 2


def test_transactions_that_cannot_be_listed_fail_the_first_look_as_any_other(many: Watched) -> None:
    many.failing.closed = "transactions/"
    with pytest.raises(StorePermissionError):
        ClusterWatch(many.cluster).look(on_part=lambda part: None)


def test_of_very_many_topics_and_groups_the_first_by_name_are_told_of_first(
    many: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.observe.cluster_watch._MOST_FIRST_TOPICS", 4)
    monkeypatch.setattr("sparklog.observe.cluster_watch._MOST_FIRST_GROUPS", 2)
    parts: list[ClusterFigures] = []
    whole = ClusterWatch(many.cluster).look(on_part=parts.append)
    part = parts[0]
    assert [one.name for one in part.topics] == [*"abcd"]
    assert [one.group_id for one in part.groups] == ["g1"]  # g2 reads e, of which nothing is known
    assert (part.unread_topic_count, part.unread_group_count) == (1, 2)
    assert [one.group_id for one in whole.groups] == ["g1", "g2", "g3"]


def test_a_defect_with_one_topic_is_missing_at_first_and_a_problem_then(
    many: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_topic(cluster: Cluster, name: str) -> ListedTopic:
        return listed_topic(cluster, name) if name != "d" else raise_defect()

    def load(cluster: Cluster, name: str) -> TopicWatch:
        return TopicWatch(cluster, name) if name != "d" else raise_defect()

    parts: list[ClusterFigures] = []
    with monkeypatch.context() as patched:
        patched.setattr("sparklog.observe.newest_topics.listed_topic", open_topic)
        patched.setattr(ClusterWatch, "_load_topic", lambda self, name: load(self._cluster, name))
        whole = ClusterWatch(many.cluster).look(on_part=parts.append)
    assert ([one.name for one in parts[0].topics], parts[0].unread_topic_count) == ([*"abce"], 1)
    assert [one.name for one in whole.topics] == [*"abce"]
    assert [(one.kind, one.name) for one in whole.problems] == [("topic", "d")]


def raise_defect() -> NoReturn:
    raise ZeroDivisionError("a defect")


def test_what_cannot_be_read_is_missing_at_first_and_a_problem_then(many: Watched) -> None:
    Admin(many.cluster).delete_topics(["e"])
    foreign_commit(many.cluster.topic_log("c"))
    many.failing.closed = "topics/d/"
    parts: list[ClusterFigures] = []
    whole = ClusterWatch(many.cluster).look(on_part=parts.append)
    part = parts[0]
    assert [(one.name, one.has_files) for one in part.topics] == [("a", False), ("b", False), ("c", True)]
    assert [one.group_id for one in part.groups] == ["g2", "g3"]  # e was deleted, so nothing of it is read
    assert (part.unread_topic_count, part.unread_group_count, part.problems) == (1, 1, ())
    assert [(one.kind, one.name) for one in whole.problems] == [("topic", "d")]


def test_what_runs_of_maintenance_did_is_read_again_where_it_changed(here: Watched) -> None:
    here.topic("t")
    watch = ClusterWatch(here.cluster)
    assert watch.look().runs == ()
    maintain(here.cluster)
    here.requests()
    assert [one.topic_count for one in watch.look().runs] == [1]
    first = here.requests()
    assert len(watch.look().runs) == 1
    assert here.requests() == first - 1
    here.memory.put(MAINTENANCE_RUNS, b"{}")
    found = watch.look()
    assert (found.runs, found.runs_error) == ((), "not understood: KeyError")
    maintain(here.cluster, full=True)
    here.memory.delete([MAINTENANCE_RUNS])
    assert (watch.look().runs, watch.look().runs_error) == ((), "")


def test_runs_of_maintenance_that_may_not_be_read_hide_nothing_else(here: Watched) -> None:
    here.topic("t")
    maintain(here.cluster)
    watch = ClusterWatch(here.cluster)
    here.failing.closed = MAINTENANCE_RUNS
    assert "forbidden" in watch.look().runs_error
    here.failing.closed = "\0"
    assert len(watch.look().runs) == 1
