"""A merge closes the hole that a removed file leaves, and another engine's RESTORE puts the file back into it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparklog import Consumer, Producer, TopicPartition
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.delta.names import entry_path
from sparklog.integrity import check_cluster
from sparklog.log import Cluster, create_topic, open_cluster
from sparklog.paths import topic_table
from sparklog.storage import MemoryStore

AT = TopicPartition("t", 0)
ALL = OptimizePolicy(min_files=2, growth=1.01)
Action = dict[str, Any]


@pytest.fixture
def memory() -> MemoryStore:
    """A topic of twelve records, each in its own file."""
    memory = MemoryStore()
    cluster = open_cluster(memory)
    create_topic(cluster.topic_log("t"), "t")
    with Producer(cluster) as producer:
        for number in range(12):
            producer.send("t", b"v%d" % number).get()
    return memory


def newest(memory: MemoryStore) -> int:
    listed = (found.path for found in memory.list(f"{topic_table('t')}/_delta_log/"))
    return max(int(path[-25:-5]) for path in listed if path.endswith("0.json") or path[-6:-5].isdigit())


def live(memory: MemoryStore) -> dict[int, Action]:
    """The live files, by the offset with which they begin."""
    found: dict[str, Action] = {}
    for version in range(newest(memory) + 1):
        for line in memory.read(entry_path(topic_table("t"), version)).splitlines():
            action = json.loads(line)
            if "add" in action:
                found[action["add"]["path"]] = action
            elif "remove" in action:
                found.pop(action["remove"]["path"], None)
    return {int(action["add"]["partitionValues"]["base_offset"]): action for action in found.values()}


def by_another_engine(memory: MemoryStore, operation: str, actions: list[Action]) -> None:
    info = {"commitInfo": {"operation": operation, "engineInfo": "Other/1.0"}}
    content = "\n".join(map(json.dumps, [info, *actions])).encode()
    memory.create(entry_path(topic_table("t"), newest(memory) + 1), content)


def read(cluster: Cluster) -> list[tuple[int, bytes]]:
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([AT])
        found: list[tuple[int, bytes]] = []
        while consumer.position(AT) < consumer.end_offsets([AT])[AT]:
            found += [(one.offset, one.value) for some in consumer.poll(timeout_ms=500).values() for one in some]
    return found


def removed(action: Action) -> Action:
    return {"remove": {"path": action["add"]["path"], "deletionTimestamp": 0, "dataChange": True}}


def put_back_after_a_merge(memory: MemoryStore, offsets: list[int]) -> Cluster:
    before = live(memory)
    by_another_engine(memory, "RESTORE", [removed(before[offset]) for offset in offsets])
    cluster = open_cluster(memory)
    assert optimize_topic(cluster.topic_log("t"), "t", policy=ALL).ranges
    by_another_engine(memory, "RESTORE", [before[offset] for offset in offsets])
    return cluster


@pytest.mark.parametrize("offsets", [[5], [5, 6], [0], [2, 4, 9]])
def test_files_that_lie_in_anothers_range_are_fine_where_each_offset_is_in_one(
    memory: MemoryStore, offsets: list[int]
) -> None:
    cluster = put_back_after_a_merge(memory, offsets)
    expected = [(number, b"v%d" % number) for number in range(12)]
    assert read(cluster) == expected
    assert check_cluster(cluster).findings == ()
    optimize_topic(cluster.topic_log("t"), "t", policy=ALL)
    assert read(cluster) == expected
    assert check_cluster(cluster).findings == ()


def test_an_offset_in_two_of_them_is_found(memory: MemoryStore) -> None:
    before = live(memory)
    cluster = put_back_after_a_merge(memory, [5, 6])
    by_another_engine(memory, "RESTORE", [removed(before[6])])
    by_another_engine(memory, "RESTORE", [before[4]])  # which was merged
    [finding] = [one for one in check_cluster(cluster).errors if one.code.value == "offsets-overlap"]
    assert before[4]["add"]["path"] in str(finding)


def test_files_that_cant_be_read_are_told_as_overlapping(memory: MemoryStore) -> None:
    before = live(memory)
    cluster = put_back_after_a_merge(memory, [5])
    memory.delete([f"{topic_table('t')}/{before[5]['add']['path']}"])
    assert "offsets-overlap" in {one.code.value for one in check_cluster(cluster).errors}
