"""RESTORE and ALTER TABLE set a topic's properties back: whoever opens it refuses it, and a repair puts it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sparklog import Admin, Consumer, NewTopic, Producer
from sparklog.compaction.maintenance import maintain
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.errors import NotATopicError, SparklogError
from sparklog.integrity import check_cluster, repair_cluster
from sparklog.integrity.findings import Code
from sparklog.log import open_cluster
from sparklog.log.append import TopicWriter
from sparklog.log.follow import TopicFollower
from sparklog.log.shape_repair import repair_shape
from sparklog.log.state import load_state, open_state
from sparklog.sql import connect
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash
from tests.support import T0_MS, OvertakenStore, a_log, a_topic, a_writer, append, foreign_commit

SMALL = pa.schema([("id", pa.int64())])
LARGE = pa.schema([("id", pa.int64()), ("city", pa.string())])


class World:
    """A cluster in a folder, whose topic ``t`` another engine gets at."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.admin = Admin(root)

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(f"{self.root}/topics/t")

    def send(self, *values: object, partition: int = 0) -> list[int]:
        with Producer(self.root) as producer:
            futures = [producer.send("t", value, partition=partition) for value in values]
            return [future.get(20).offset for future in futures]

    def set(self, **properties: str) -> None:
        names = {f"sparklog.{name.replace('_', '.')}": value for name, value in properties.items()}
        self.table.alter.set_table_properties(names, raise_if_not_exists=False)

    def contents(self) -> list[tuple[int, int]]:
        """Partition and offset of each record that a new reader sees."""
        follower = TopicFollower(open_cluster(self.root).topic_log("t"), "t")
        found = []
        for partition, start in enumerate(follower.head.log_start_offsets):
            table = follower.read(partition, start, max_records=1_000)
            found += [(partition, offset) for offset in table["offset"].to_pylist()]
        return found

    def repair(self) -> list[str]:
        cluster = open_cluster(self.root)
        repaired = repair_cluster(cluster, check_cluster(cluster))
        assert repaired.failed == []
        return repaired.done


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(str(tmp_path / "c"))


def grown_then_restored(world: World) -> None:
    world.admin.create_topics([NewTopic("t", num_partitions=1)])
    world.send(b"a")
    version = world.table.version()
    world.admin.create_partitions({"t": 2})
    world.send(b"b", b"c", b"d", partition=1)
    world.table.restore(version)


def empty_partition_lost(world: World) -> None:
    world.admin.create_topics([NewTopic("t", num_partitions=1)])
    world.admin.create_partitions({"t": 3})
    world.set(partitions="1")


def partitions_set_back(world: World) -> None:
    world.admin.create_topics([NewTopic("t", num_partitions=2)])
    world.send(b"b", b"c", partition=1)
    world.set(partitions="1")


def typed_then_restored(world: World) -> None:
    world.admin.create_topics([NewTopic("t", value_schema=SMALL)])
    world.send({"id": 1})
    version = world.table.version()
    world.admin.alter_value_schema("t", LARGE)
    world.send({"id": 2, "city": "x"})
    world.table.restore(version)


def restored_to_before_it_was_typed(world: World) -> None:
    world.admin.create_topics([NewTopic("t")])
    world.send(b"a")
    version = world.table.version()
    world.admin.alter_value_schema("t", SMALL)
    world.send({"id": 2})
    world.table.restore(version)


def a_schema_exchanged(world: World) -> None:
    world.admin.create_topics([NewTopic("t", value_schema=SMALL)])
    other = {"type": "struct", "fields": [{"name": "x", "type": "string", "nullable": True, "metadata": {}}]}
    world.set(value_schema_1=json.dumps(other))


def format_set_back(world: World) -> None:
    world.admin.create_topics([NewTopic("t", value_schema=SMALL)])
    world.set(format_version="1")


def another_id(world: World) -> None:
    world.admin.create_topics([NewTopic("t")])
    world.send(b"a")
    world.set(topic_id="0" * 32)


def restored_to_the_topic_before(world: World) -> None:
    world.admin.create_topics([NewTopic("t", num_partitions=3)])
    world.send(b"old", b"old", b"old")
    version = world.table.version()
    world.admin.delete_topics(["t"])
    world.admin.create_topics([NewTopic("t", num_partitions=2)])
    world.send(b"new", partition=1)
    world.table.restore(version)


def partitions_garbled(to: str) -> Callable[[World], None]:
    def damage(world: World) -> None:
        partitions_of_three_records(world)
        world.set(partitions=to)

    return damage


def property_gone(name: str) -> Callable[[World], None]:
    def damage(world: World) -> None:
        partitions_of_three_records(world)
        log = Path(world.root) / "topics/t/_delta_log"
        lines = [json.loads(line) for file in sorted(log.glob("*.json")) for line in file.read_text().splitlines()]
        metadata = next(line for line in reversed(lines) if "metaData" in line)
        del metadata["metaData"]["configuration"][name]
        version = world.table.version() + 1
        (log / f"{version:020}.json").write_text(json.dumps({"commitInfo": {}}) + "\n" + json.dumps(metadata))

    return damage


def partitions_of_three_records(world: World) -> None:
    world.admin.create_topics([NewTopic("t", num_partitions=2)])
    world.send(b"a", b"b", b"c", partition=1)


BREAKS: dict[str, tuple[Callable[[World], None], str]] = {
    "restored to before it grew": (grown_then_restored, "TBLPROPERTIES.*'sparklog.partitions'='2'"),
    "partitions set back": (partitions_set_back, "TBLPROPERTIES.*'sparklog.partitions'='2'"),
    "an empty partition lost": (empty_partition_lost, "TBLPROPERTIES.*'sparklog.partitions'='3'"),
    "restored to before a schema": (typed_then_restored, "sparklog.value.schema.*check --repair"),
    "restored to before it was typed": (restored_to_before_it_was_typed, "sparklog.value.schema.*check --repair"),
    "a schema exchanged": (a_schema_exchanged, "schema 1 is another.*check --repair"),
    "format set back": (format_set_back, "TBLPROPERTIES.*'sparklog.format.version'='2'"),
    "another id": (another_id, "sparklog.topic.id.*check --repair"),
    "partitions that are no number": (partitions_garbled("two"), "whole numbers.*check --repair"),
    "partitions out of all bounds": (partitions_garbled("9" * 20), "10000 at most.*check --repair"),
    "partitions above the bound": (partitions_garbled("10001"), "10000 at most.*check --repair"),
    "partitions gone": (property_gone("sparklog.partitions"), "whole numbers.*check --repair"),
    "restored to the topic before": (restored_to_the_topic_before, "sparklog.topic.id.*check --repair"),
}
all_breaks = pytest.mark.parametrize(("damage", "way_back"), BREAKS.values(), ids=BREAKS)


@all_breaks
def test_whoever_opens_a_topic_that_shrank_refuses_it(
    world: World, damage: Callable[[World], None], way_back: str
) -> None:
    damage(world)
    log = open_cluster(world.root).topic_log("t")

    def poll() -> None:
        with Consumer("t", cluster=world.root, auto_offset_reset="earliest", consumer_timeout_ms=500) as consumer:
            list(consumer)

    def query() -> None:
        connect(world.root).execute("SELECT count(*) FROM t").fetchall()

    for act in (
        lambda: open_state(log),
        lambda: load_state(log),
        lambda: TopicWriter(log, "t", sync=False),
        lambda: world.send(b"x"),
        lambda: world.admin.describe_topics(["t"]),
        lambda: world.admin.create_partitions({"t": 9}),
        lambda: world.admin.sequence("t"),
        poll,
        query,
    ):
        with pytest.raises(SparklogError, match=way_back) as caught:
            act()
        assert isinstance(caught.value, NotATopicError) or "NotATopicError" in repr(caught.value.__cause__)


UNNAMED: dict[str, tuple[Callable[[World], None], str]] = {
    "id gone": (property_gone("sparklog.topic.id"), ""),
    "format gone": (property_gone("sparklog.format.version"), ""),
}
"""Whoever lists topics takes such a table for none."""


@pytest.mark.parametrize(("damage", "way_back"), (BREAKS | UNNAMED).values(), ids=BREAKS | UNNAMED)
def test_a_repair_puts_back_what_shrank_and_a_second_one_does_nothing(
    world: World, damage: Callable[[World], None], way_back: str
) -> None:
    damage(world)
    cluster = open_cluster(world.root)
    assert {one.code for one in check_cluster(cluster).errors} == {Code.TOPIC_SHRUNK}
    assert [line[:7] for line in world.repair()] == ["topic t"]
    after = load_state(cluster.topic_log("t"))
    assert open_state(cluster.topic_log("t")).head == after.head
    assert world.repair() == []
    assert load_state(cluster.topic_log("t")).position.version == after.position.version
    codes = {one.code for one in check_cluster(cluster, deep=True).errors}
    assert codes == set()  # though the entry of the other engine stays in the log
    world.admin.create_partitions({"t": 9})


def test_after_a_repair_offsets_go_on_and_what_was_removed_can_return(world: World) -> None:
    grown_then_restored(world)
    before = world.table.version() - 1
    world.repair()
    assert world.contents() == [(0, 0)]
    assert world.send(b"e", partition=1) == [3]
    assert dict(world.admin.restore_topic("t", before).record_counts) == {1: 3}
    assert world.contents() == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3)]


def test_the_statement_that_the_error_names_is_a_way_back(world: World) -> None:
    partitions_set_back(world)
    world.set(partitions="2")
    assert world.send(b"d", partition=1) == [2]
    assert world.contents() == [(1, 0), (1, 1), (1, 2)]


def test_after_a_repair_the_schemas_go_on(world: World) -> None:
    typed_then_restored(world)
    world.repair()
    assert list(world.admin.describe_value_schemas("t")) == [1, 2]
    assert world.send({"id": 3, "city": "y"}) == [2]


def test_the_files_of_an_earlier_topic_go_and_those_of_the_topic_return(world: World) -> None:
    restored_to_the_topic_before(world)
    world.repair()
    head = load_state(open_cluster(world.root).topic_log("t")).head
    assert (head.log_start_offsets, head.log_end_offsets) == ((0, 0), (0, 1))
    assert world.contents() == [(1, 0)]
    assert world.send(b"more", partition=0) == [0]


def test_a_topic_created_again_with_fewer_partitions_stays_open(world: World) -> None:
    world.admin.create_topics([NewTopic("t", num_partitions=3)])
    world.send(b"a", partition=2)
    world.admin.create_partitions({"t": 5})
    world.admin.delete_topics(["t"])
    world.admin.create_topics([NewTopic("t", num_partitions=1)])
    log = open_cluster(world.root).topic_log("t")
    write_checkpoint(log)
    assert load_state(log).head.log_end_offsets == (0,)
    assert world.send(b"b") == [0]
    assert {one.code for one in check_cluster(open_cluster(world.root)).errors} == set()


@pytest.mark.parametrize("damage", [grown_then_restored, typed_then_restored, restored_to_the_topic_before])
def test_it_is_refused_behind_a_checkpoint_that_another_engine_wrote(
    world: World, damage: Callable[[World], None]
) -> None:
    damage(world)
    world.table.create_checkpoint()
    with pytest.raises(NotATopicError, match=r"which only grow|partitions only grow|offsets of two topics"):
        load_state(open_cluster(world.root).topic_log("t"))


@pytest.mark.parametrize(
    "damage",
    [grown_then_restored, typed_then_restored, restored_to_before_it_was_typed, restored_to_the_topic_before],
)
def test_a_repair_looks_behind_the_checkpoint_that_sparks_restore_writes(
    world: World, damage: Callable[[World], None]
) -> None:
    damage(world)
    world.table.create_checkpoint()
    cluster = open_cluster(world.root)
    assert {one.code for one in check_cluster(cluster).errors} == {Code.TOPIC_SHRUNK}
    assert [line[:7] for line in world.repair()] == ["topic t"]
    after = load_state(cluster.topic_log("t"))
    assert open_state(cluster.topic_log("t")).head == after.head
    assert world.repair() == []
    assert check_cluster(cluster, deep=True).errors == ()
    world.admin.create_partitions({"t": 9})


def test_running_clients_go_on_after_a_repair(world: World) -> None:
    world.admin.create_topics([NewTopic("t", num_partitions=1)])
    with Producer(world.root) as producer:
        producer.send("t", b"a").get(20)
        version = world.table.version()
        world.admin.create_partitions({"t": 2})
        producer.send("t", b"b", partition=1).get(20)
        world.table.restore(version)
        with pytest.raises(NotATopicError, match="partitions only grow"):
            producer.send("t", b"c", partition=1).get(20)
        world.repair()
        assert producer.send("t", b"d", partition=1).get(20).offset == 1


def test_maintenance_and_listings_name_a_topic_that_shrank(world: World) -> None:
    partitions_set_back(world)
    assert world.admin.list_topics() == ["t"]
    report = maintain(open_cluster(world.root))
    assert any("partitions only grow" in str(error) for topic in report.topics for error in topic.errors.values())


def _in_memory() -> tuple[MemoryStore, ManualClock, DeltaLog]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, num_partitions=2)
    append(a_writer(log), "a", partition=1)
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, "sparklog.partitions": "1"}))
    return memory, clock, log


def test_two_repairs_at_once_are_one() -> None:
    memory, clock, log = _in_memory()
    others = OvertakenStore(memory, lambda: repair_shape(a_log(memory, clock)), times=1)
    assert not repair_shape(a_log(others, clock)).is_done
    assert load_state(log).head.log_end_offsets == (0, 1)
    assert load_state(log).position.version == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER, FaultKind.LOST_ANSWER])
@pytest.mark.parametrize("at", range(12))
def test_a_repair_that_dies_anywhere_is_done_by_the_next(at: int, kind: FaultKind) -> None:
    memory, clock, log = _in_memory()
    store = FaultyStore(memory, Fault(kind=kind, at=at), clock=clock)
    with suppress(SimulatedCrash):
        repair_shape(a_log(store, clock))
    repair_shape(a_log(memory, clock))
    assert load_state(log).head.log_end_offsets == (0, 1)
    assert load_state(log).position.version == 3
