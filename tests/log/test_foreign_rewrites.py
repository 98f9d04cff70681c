"""Another engine may not give offsets: its files are refused, and a partition whose records it moved stops until that
is undone (rule F6, moved records)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.compaction.maintenance import maintain
from sparklog.delta.actions import SetTransaction
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.errors import CorruptLogError
from sparklog.integrity import check_cluster
from sparklog.integrity.findings import Code
from sparklog.log import open_cluster
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state
from sparklog.sql import connect

BEFORE = 6
"""The version of the topic when an engine comes."""
Act = Callable[[DeltaTable], object]


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A topic of two partitions with three records each, in six commits."""
    root = str(tmp_path / "c")
    with Admin(root) as admin:
        admin.create_topics([NewTopic("t", num_partitions=2)])
    with Producer(root) as producer:
        for number in range(6):
            producer.send("t", b"v%d" % number, partition=number % 2)
            producer.flush()
    return root


def table(root: str) -> DeltaTable:
    return DeltaTable(f"{root}/topics/t")


def row(base_offset: int, *, partition: int = 0, value: bytes = b"own") -> pa.Table:
    return pa.table(
        {
            "value": [value],
            "partition": pa.array([partition], pa.int32()),
            "base_offset": pa.array([base_offset], pa.int64()),
            "offset_delta": pa.array([0], pa.int64()),
        }
    )


def insert(base_offset: int) -> Act:
    return lambda table: write_deltalake(table, row(base_offset), mode="append", schema_mode="merge")


def read(root: str, partition: int) -> list[tuple[int, bytes]]:
    """All records of a partition, by a new consumer."""
    with Consumer(cluster=root, auto_offset_reset="earliest", consumer_timeout_ms=5_000) as consumer:
        where = TopicPartition("t", partition)
        consumer.assign([where])
        end = consumer.end_offsets([where])[where]
        found: list[tuple[int, bytes]] = []
        while consumer.position(where) < end:
            found += [(one.offset, one.value) for some in consumer.poll(timeout_ms=500).values() for one in some]
        return found


def send(root: str, value: bytes, partition: int) -> int:
    with Producer(root) as producer:
        return producer.send("t", value, partition=partition).get(timeout=20).offset


def checkpoint(root: str) -> None:
    write_checkpoint(open_cluster(root).topic_log("t"))


def codes(root: str, *, deep: bool = False) -> set[Code]:
    return {one.code for one in check_cluster(root, deep=deep).errors}


@pytest.mark.parametrize("base_offset", [0, 10])
def test_a_file_with_offsets_of_its_own_is_refused_and_all_else_goes_on(root: str, base_offset: int) -> None:
    insert(base_offset)(table(root))
    expected = [(0, b"v0"), (1, b"v2"), (2, b"v4")]
    assert read(root, 0) == expected
    assert send(root, b"next", 0) == 3
    assert read(root, 0) == [*expected, (3, b"next")]
    checkpoint(root)
    assert read(root, 0) == [*expected, (3, b"next")], "also where a checkpoint hides the commit"
    found = connect(root).execute('SELECT "offset", value FROM t WHERE partition = 0 ORDER BY 1').fetchall()
    assert [tuple(one) for one in found] == [*expected, (3, b"next")]
    assert not [error for report in maintain(open_cluster(root), full=True).topics for error in report.errors.values()]
    assert Code.FOREIGN_FILE_REFUSED in codes(root)


def test_check_finds_doubled_offsets_though_the_row_has_no_timestamp(root: str) -> None:
    insert(0)(table(root))
    assert {Code.OFFSETS_OVERLAP, Code.FOREIGN_FILE_REFUSED} <= codes(root)


def test_a_running_consumer_and_producer_go_on_past_a_refused_file(root: str) -> None:
    with Producer(root) as producer, Consumer(cluster=root, auto_offset_reset="earliest") as consumer:
        producer.send("t", b"v6", partition=0).get(timeout=20)
        consumer.assign([TopicPartition("t", 0)])
        insert(4)(table(root))
        assert producer.send("t", b"v7", partition=0).get(timeout=20).offset == 4
        found: list[tuple[int, bytes]] = []
        while len(found) < 5:
            found += [(one.offset, one.value) for some in consumer.poll(timeout_ms=500).values() for one in some]
    assert found == [(0, b"v0"), (1, b"v2"), (2, b"v4"), (3, b"v6"), (4, b"v7")]


def test_a_refused_file_stays_so_when_rewritten_until_its_base_offset_is_null(root: str) -> None:
    insert(20)(table(root))
    table(root).update(updates={"value": "arrow_cast('new', 'Binary')"}, predicate="base_offset = 20")
    assert read(root, 0) == [(0, b"v0"), (1, b"v2"), (2, b"v4")]
    table(root).update(updates={"base_offset": "null"}, predicate="base_offset = 20")
    with Admin(root) as admin:
        assert admin.sequence("t").record_count == 1
    assert read(root, 0)[-1] == (3, b"new")
    assert codes(root, deep=True) == set()


MOVES: dict[str, Act] = {
    "partition": lambda table: table.update(updates={"partition": "1"}, predicate="partition = 0"),
    "base_offset": lambda table: table.update(updates={"base_offset": "5"}, predicate="partition = 0"),
    "offset_delta": lambda table: table.update(updates={"offset_delta": "offset_delta + 1"}, predicate="partition = 0"),
}


@pytest.mark.parametrize("what", MOVES)
def test_a_partition_whose_records_were_moved_stops_until_that_is_undone(root: str, what: str) -> None:
    MOVES[what](table(root))
    others = [(0, b"v1"), (1, b"v3"), (2, b"v5")]
    for is_hidden in (False, True):
        if is_hidden:
            checkpoint(root)
        with pytest.raises(
            CorruptLogError, match=rf"partition 0 of topics/t .*version {BEFORE + 1}, by delta-rs"
        ) as info:
            read(root, 0)
        assert f"RESTORE TABLE … TO VERSION AS OF {BEFORE}" in str(info.value)
        assert read(root, 1) == others
        assert Code.PARTITION_STOPPED in codes(root)
        if not is_hidden:
            assert send(root, b"v6", 1) == 3, "appends go on"
            others.append((3, b"v6"))
    table(root).restore(BEFORE)  # which also removes what was appended since
    assert read(root, 0) == [(0, b"v0"), (1, b"v2"), (2, b"v4")]
    assert read(root, 1) == others[:3]
    assert send(root, b"v8", 0) == 3
    assert Code.PARTITION_STOPPED not in codes(root)


def test_a_running_consumer_stops_before_moved_records_and_reads_on_elsewhere(root: str) -> None:
    with Consumer(cluster=root, auto_offset_reset="earliest", max_poll_records=1) as consumer:
        consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        consumer.pause(TopicPartition("t", 0))
        while not consumer.poll(timeout_ms=500):
            pass
        MOVES["partition"](table(root))
        send(root, b"v6", 1)
        consumer.resume(TopicPartition("t", 0))
        others: list[bytes] = []
        stops = 0
        while len(others) < 3 or not stops:
            try:
                polled = consumer.poll(timeout_ms=500)
            except CorruptLogError as error:
                stops += "partition 0" in str(error)
                continue
            for where, some in polled.items():
                assert where.partition == 1
                others += [one.value for one in some]
        assert consumer.position(TopicPartition("t", 0)) == 0
    assert others == [b"v3", b"v5", b"v6"]


def test_maintenance_passes_over_a_stopped_partition_and_says_so(root: str) -> None:
    with Producer(root) as producer:
        for number in range(60):
            producer.send("t", b"w%d" % number, partition=number % 2)
            producer.flush()
    MOVES["base_offset"](table(root))
    report = maintain(open_cluster(root), full=True).topics[0]
    assert "partition 0" in str(next(iter(report.errors.values())))
    assert report.optimize is not None
    assert {one.partition for one in report.optimize.ranges} == {1}
    assert [one[1] for one in read(root, 1)][:3] == [b"v1", b"v3", b"v5"]


@pytest.mark.parametrize(
    "legal",
    [
        lambda table: table.delete("value = arrow_cast('v0', 'Binary')"),
        lambda table: table.delete(),
        lambda table: table.update(updates={"value": "arrow_cast('x', 'Binary')"}),
        lambda table: table.optimize.compact(),
        lambda table: table.optimize.z_order(["timestamp"]),
        lambda table: table.restore(3),
        lambda table: write_deltalake(table, pa.table({"value": [b"only"]}), mode="overwrite", schema_mode="merge"),
    ],
    ids=["delete", "delete all", "update", "compact", "z-order", "restore", "overwrite"],
)
def test_what_an_engine_may_do_leaves_nothing_refused(root: str, legal: Act) -> None:
    legal(table(root))
    state = load_state(open_cluster(root).topic_log("t"))
    index = state.require_whole().index
    assert not index.refused()
    assert not index.stopped()
    assert send(root, b"next", 0) == 3
    assert Code.PARTITION_STOPPED not in codes(root)


def test_the_next_commit_records_the_verdicts_once(root: str) -> None:
    log = open_cluster(root).topic_log("t")
    follower = TopicFollower(log, "t")
    while follower.poll():
        pass
    MOVES["base_offset"](table(root))
    follower.poll()
    assert set(follower.state.require_whole().index.stopped()) == {0}
    send(root, b"a", 1)
    send(root, b"b", 1)
    recorded = [
        [a.app_id for a in entry.actions if isinstance(a, SetTransaction) and a.app_id.startswith("sparklog.refused.")]
        for entry in log.read_entries(BEFORE + 2, 2)
        if entry is not None
    ]
    assert recorded[0]
    assert not recorded[1]


def test_an_engines_own_checkpoint_of_its_commit_hides_nothing(root: str) -> None:
    MOVES["partition"](table(root))
    table(root).create_checkpoint()
    with pytest.raises(CorruptLogError, match="partition 0"):
        read(root, 0)
    send(root, b"v6", 1)
    with pytest.raises(CorruptLogError, match="partition 0"):
        read(root, 0)


def test_an_engine_that_packs_a_refused_file_with_our_records_stops_the_partition(root: str) -> None:
    insert(0)(table(root))
    table(root).optimize.compact()
    with pytest.raises(CorruptLogError, match="partition 0"):
        read(root, 0)


def test_only_a_deep_check_finds_offsets_exchanged_within_a_file(tmp_path: Path) -> None:
    root = str(tmp_path / "c")
    with Admin(root) as admin:
        admin.create_topics([NewTopic("t", num_partitions=1)])
    with Producer(root, linger_ms=1_000) as producer:
        for number in range(3):
            producer.send("t", b"v%d" % number)
    table(root).update(updates={"offset_delta": "2 - offset_delta"})
    assert codes(root) == set()
    assert Code.OFFSETS_MOVED in codes(root, deep=True)


def group_reads(root: str) -> list[tuple[int, int]]:
    """Partition and offset of each record that a group reads next, committed."""
    with Consumer(
        "t",
        cluster=root,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=1_500,
    ) as consumer:
        found = [(one.partition, one.offset) for one in consumer]
        consumer.commit()
        return sorted(found)


RETURNS: dict[str, Act] = {
    **MOVES,
    "some_records": lambda table: table.update(
        updates={"partition": "1"}, predicate="partition = 0 AND value = arrow_cast('v2', 'Binary')"
    ),
    "all_into_one_base_offset": lambda table: table.update(updates={"base_offset": "0"}),
    "beside_other_values": lambda table: table.update(
        updates={"partition": "1", "value": "arrow_cast('else', 'Binary')"}, predicate="partition = 0"
    ),
}


@pytest.mark.parametrize("is_hidden", [False, True])
@pytest.mark.parametrize("what", RETURNS)
def test_restore_returns_moved_records_beside_later_appends(root: str, what: str, is_hidden: bool) -> None:
    """The way back that a stopped partition's error names."""
    assert len(group_reads(root)) == 6
    RETURNS[what](table(root))
    assert [send(root, b"v6", 0), send(root, b"v7", 1)] == [3, 3]
    if is_hidden:
        checkpoint(root)
    with pytest.raises(CorruptLogError, match=f"topics restore t --version {BEFORE}`"):
        read(root, 0)
    with Admin(root) as admin:
        tried = admin.restore_topic("t", BEFORE, dry_run=True)
        done = admin.restore_topic("t", BEFORE)
        assert (done.record_counts, done.misplaced) == (tried.record_counts, tried.misplaced)
        assert done.misplaced
        assert not done.lost
        again = admin.restore_topic("t", BEFORE)
        assert (again.record_count, again.misplaced, again.delta_version) == (0, (), done.delta_version)
    assert read(root, 0) == [(0, b"v0"), (1, b"v2"), (2, b"v4"), (3, b"v6")]
    assert read(root, 1) == [(0, b"v1"), (1, b"v3"), (2, b"v5"), (3, b"v7")]
    assert group_reads(root) == [(0, 3), (1, 3)]
    assert not [error for report in maintain(open_cluster(root), full=True).topics for error in report.errors.values()]
    assert codes(root, deep=True) == set()
    assert [send(root, b"v8", 0), send(root, b"v9", 1)] == [4, 4]


AFTER_A_MOVE: dict[str, Act] = {
    "moved back": lambda table: table.update(updates={"partition": "0"}, predicate="partition = 1 AND value < x'7635'"),
    "packed with others": lambda table: table.optimize.compact(),
    "moved on": lambda table: table.update(updates={"base_offset": "7"}, predicate="partition = 1"),
}


@pytest.mark.parametrize("then", AFTER_A_MOVE)
def test_partitions_stay_stopped_while_rewrites_of_what_was_moved_are_live(root: str, then: str) -> None:
    MOVES["partition"](table(root))
    AFTER_A_MOVE[then](table(root))
    assert send(root, b"v6", 0) == 3
    with pytest.raises(CorruptLogError, match=f"partition 0 .*topics restore t --version {BEFORE}`"):
        read(root, 0)
    with Admin(root) as admin:
        admin.restore_topic("t", BEFORE)
    assert read(root, 0) == [(0, b"v0"), (1, b"v2"), (2, b"v4"), (3, b"v6")]
    assert read(root, 1) == [(0, b"v1"), (1, b"v3"), (2, b"v5")]
    assert codes(root, deep=True) == set()


def test_misplaced_files_stay_where_the_files_that_they_replaced_are_gone(root: str) -> None:
    MOVES["partition"](table(root))
    live = load_state(open_cluster(root).topic_log("t")).require_whole().index.by_path
    gone = next(
        path
        for path in (Path(root) / "topics/t/partition=0").glob("*.parquet")
        if f"partition=0/{path.name}" not in live
    )
    gone.unlink()
    with Admin(root) as admin:
        done = admin.restore_topic("t", BEFORE)
    assert [one.partition for one in done.lost] == [0]
    assert done.record_count == 2
    assert not done.misplaced
    with pytest.raises(CorruptLogError, match="partition 0"):
        read(root, 0)
