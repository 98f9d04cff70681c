"""An entry of another topic is refused by readers, writers and the check; a repair sets it aside, or names it where
others stand on it (rule L8, one log)."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog import Admin, Consumer, NewTopic, Producer, TopicPartition
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.errors import CorruptLogError, SparklogError, StoreError
from sparklog.integrity import check_cluster, repair_cluster
from sparklog.integrity.findings import Code
from sparklog.integrity.other_topics import set_aside
from sparklog.log import Cluster, open_cluster
from sparklog.log.follow import TopicFollower
from sparklog.log.state import load_state, open_state
from sparklog.log.topic import delete_topic
from sparklog.storage.retrying import RetryingStore
from tests.support import resealed

OLD = 6
"""Entries of the topic that was there before."""


def make(root: Path) -> str:
    with Admin(str(root)) as admin:
        admin.create_topics([NewTopic("t", num_partitions=1)])
    return load_state(open_cluster(str(root)).topic_log("t")).head.topic_id


def send(root: Path, *values: bytes) -> list[int]:
    with Producer(str(root), delivery_timeout_ms=4_000, request_timeout_ms=2_000) as producer:
        return [producer.send("t", value).get(timeout=20).offset for value in values]


def read(root: Path) -> list[tuple[int, bytes]]:
    with Consumer(cluster=str(root), auto_offset_reset="earliest") as consumer:
        where = TopicPartition("t", 0)
        consumer.assign([where])
        end = consumer.end_offsets([where])[where]
        found: list[tuple[int, bytes]] = []
        while consumer.position(where) < end:
            found += [(one.offset, one.value) for some in consumer.poll(timeout_ms=500).values() for one in some]
        return found


def entry(root: Path, version: int) -> Path:
    return root / f"topics/t/_delta_log/{version:020d}.json"


class Replaced:
    """A cluster whose folder was emptied and made again: what the old topic's log and files were, and both ids."""

    def __init__(self, folder: Path) -> None:
        self.root, self.old = folder / "c", folder / "old"
        self.old_id = make(self.root)
        send(self.root, *(b"old-%d" % number for number in range(OLD)))
        self.root.rename(self.old)
        self.new_id = make(self.root)

    def ghost(self, version: int, change: Callable[[dict[str, Any]], None] = lambda info: None) -> None:
        """The old topic's newest entry, with its files, as a version of the new topic's log."""
        lines = entry(self.old, OLD).read_text().splitlines()
        first = json.loads(lines[0])
        first["commitInfo"]["sparklog"]["token"] = f"{version:032x}"
        change(first["commitInfo"]["sparklog"])
        entry(self.root, version).write_bytes(resealed(("\n".join([json.dumps(first), *lines[1:]]) + "\n").encode()))
        for file in (self.old / "topics/t").rglob("*.parquet"):
            to = self.root / "topics/t" / file.relative_to(self.old / "topics/t")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)

    def matches(self) -> str:
        return f"(?s){self.old_id}.*{self.new_id}"

    def cluster(self) -> Cluster:
        return open_cluster(str(self.root))

    def repair(self) -> tuple[list[str], list[str]]:
        repaired = repair_cluster(self.cluster(), check_cluster(self.cluster()))
        return repaired.done, repaired.failed

    def grow_old(self) -> None:
        """More than a minute passes for the store."""
        for path in (self.root / "topics/t/_delta_log").glob("*.json"):
            os.utime(path, (path.stat().st_mtime - 61, path.stat().st_mtime - 61))

    def codes(self) -> set[Code]:
        return {one.code for one in check_cluster(str(self.root)).findings}


@pytest.fixture
def replaced(tmp_path: Path) -> Replaced:
    return Replaced(tmp_path)


def test_the_newest_entry_of_another_topic_is_refused_by_all_and_set_aside(replaced: Replaced) -> None:
    send(replaced.root, b"a", b"b")
    follower = TopicFollower(replaced.cluster().topic_log("t"), "t")
    with Producer(str(replaced.root), delivery_timeout_ms=3_000, request_timeout_ms=1_000) as running:
        running.send("t", b"c").get(timeout=20)
        replaced.ghost(4)
        for call in (
            lambda: read(replaced.root),
            lambda: send(replaced.root, b"x"),
            lambda: running.send("t", b"x").get(timeout=20),
            lambda: [follower.poll() for _ in range(3)],
            lambda: open_state(replaced.cluster().topic_log("t")),
            lambda: delete_topic(replaced.cluster().topic_log("t"), "t"),
        ):
            with pytest.raises(SparklogError, match=replaced.matches()):
                call()
        assert Code.TOPIC_ID_WRONG in replaced.codes()
        done, failed = replaced.repair()
        assert not done
        assert "repair again" in failed[0]
        replaced.grow_old()
        done, failed = replaced.repair()
        assert not failed
        assert "set version 4 aside" in done[0]
        assert [*(replaced.root / "topics/t/_delta_log/_set_aside").iterdir()]
        assert running.send("t", b"d").get(timeout=20).offset == 3
    for _ in range(6):
        follower.poll()
    assert follower.head.log_end_offsets == (4,)
    assert [value for _, value in read(replaced.root)] == [b"a", b"b", b"c", b"d"]
    assert not check_cluster(str(replaced.root), deep=True).errors


@pytest.mark.parametrize("count", [1, 3])
def test_entries_of_another_topic_beyond_a_gap_are_set_aside(replaced: Replaced, count: int) -> None:
    send(replaced.root, b"a", b"b")
    for number in range(count):
        replaced.ghost(10 + number)
    assert {Code.LOG_GAP, Code.TOPIC_ID_WRONG} <= replaced.codes()
    replaced.grow_old()
    done, failed = replaced.repair()
    assert not failed
    assert len(done) == count
    assert read(replaced.root) == [(0, b"a"), (1, b"b")]
    assert send(replaced.root, b"c") == [2]
    assert not check_cluster(str(replaced.root), deep=True).errors


def test_a_run_of_another_topics_entries_is_not_taken_for_the_topic(replaced: Replaced) -> None:
    send(replaced.root, b"a")
    for version in (2, 3, 4):
        replaced.ghost(version)
    for call in (lambda: read(replaced.root), lambda: send(replaced.root, b"x")):
        with pytest.raises(SparklogError, match=replaced.matches()):
            call()
    replaced.grow_old()
    replaced.repair()
    assert read(replaced.root) == [(0, b"a")]


def old_client(info: dict[str, Any]) -> None:
    del info["cluster_id"]


@pytest.mark.parametrize("by", ["the topic", "an older client"])
def test_a_log_in_which_entries_stand_on_one_of_another_topic_stays_readable(replaced: Replaced, by: str) -> None:
    send(replaced.root, b"a", b"b", b"c")
    follower = TopicFollower(replaced.cluster().topic_log("t"), "t")
    own = entry(replaced.root, 3).read_text()
    if by == "the topic":
        replaced.ghost(3)
        entry(replaced.root, 4).write_text(own)
    else:
        replaced.ghost(4)
        replaced.ghost(5, old_client)
    found = read(replaced.root)
    assert {value for _, value in found} >= {b"a", b"b", b"c", b"old-5"}
    follower.poll()
    before = {path.name for path in (replaced.root / "topics/t/_delta_log").iterdir()}
    assert Code.TOPIC_ID_WRONG in replaced.codes()
    done, failed = replaced.repair()
    assert not failed
    assert "named the entries of another topic that stay" in done[0]
    assert {path.name for path in (replaced.root / "topics/t/_delta_log").iterdir()} > before
    assert Code.TOPIC_ID_WRONG not in replaced.codes()
    assert Code.TOPIC_ID_ACCEPTED in replaced.codes()
    assert read(replaced.root) == found
    assert send(replaced.root, b"d") == [OLD], "no offset that was given by either is given again"
    for _ in range(4):
        follower.poll()
    assert follower.head.log_end_offsets == (OLD + 1,)


def test_check_lists_offsets_that_were_given_twice(replaced: Replaced) -> None:
    send(replaced.root, *(b"%d" % number for number in range(8)))
    own = entry(replaced.root, 8).read_text()
    replaced.ghost(8)
    entry(replaced.root, 9).write_text(own)
    replaced.repair()
    twice = [one for one in check_cluster(str(replaced.root)).errors if one.code is Code.OFFSETS_OVERLAP]
    assert re.search(rf"\b{OLD - 1} to {OLD - 1}\b", str(twice[0]))


def test_a_topic_that_is_created_again_goes_on_in_its_log(tmp_path: Path) -> None:
    root = tmp_path / "c"
    first = make(root)
    send(root, b"a")
    with Admin(str(root)) as admin:
        admin.delete_topics(["t"])
    second = make(root)
    assert first != second
    assert send(root, b"b") == [0]
    assert open_state(open_cluster(str(root)).topic_log("t")).head.topic_id == second
    assert read(root) == [(0, b"b")]
    assert not check_cluster(str(root), deep=True).errors


def test_an_entry_of_another_topic_below_a_checkpoint_is_history(replaced: Replaced) -> None:
    send(replaced.root, b"a", b"b")
    own = entry(replaced.root, 2).read_text()
    replaced.ghost(2)
    entry(replaced.root, 3).write_text(own)
    write_checkpoint(replaced.cluster().topic_log("t"))
    assert {value for _, value in read(replaced.root)} == {b"a", b"b", b"old-5"}
    assert send(replaced.root, b"c") == [2], "as the newest entry says: a repair would have raised the end"


@pytest.mark.parametrize("acks", ["all", 1])
def test_a_producer_that_opens_by_an_entry_of_another_topic_gets_the_error(replaced: Replaced, acks: Any) -> None:
    send(replaced.root, b"a", b"b")
    replaced.ghost(3)
    with (
        Producer(str(replaced.root), acks=acks, delivery_timeout_ms=3_000, request_timeout_ms=1_000) as producer,
        pytest.raises(SparklogError, match=replaced.matches()),
    ):
        producer.send("t", b"x").get(timeout=20)
    assert not entry(replaced.root, 4).exists()


def test_a_durable_producer_also_finds_an_entry_that_states_its_own_cluster(replaced: Replaced) -> None:
    send(replaced.root, b"a", b"b")
    cluster_id = json.loads((replaced.root / "cluster.json").read_text())["cluster_id"]
    replaced.ghost(3, lambda info: info.update(cluster_id=cluster_id))
    with pytest.raises(SparklogError, match=replaced.matches()):
        send(replaced.root, b"x")
    assert not entry(replaced.root, 4).exists()


def test_a_repair_that_dies_before_the_deletion_is_finished_by_the_next(
    replaced: Replaced, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(replaced.root, b"a")
    replaced.ghost(2)
    replaced.grow_old()

    def die(store: object, paths: object) -> None:
        raise StoreError("the process dies here")

    with monkeypatch.context() as patch:
        patch.setattr(RetryingStore, "delete", die)
        assert set_aside_or_error(replaced)
    assert entry(replaced.root, 2).exists()
    assert [*(replaced.root / "topics/t/_delta_log/_set_aside").iterdir()]
    replaced.repair()
    assert read(replaced.root) == [(0, b"a")]
    assert not check_cluster(str(replaced.root), deep=True).errors


def set_aside_or_error(replaced: Replaced) -> str:
    try:
        set_aside(replaced.cluster().topic_log("t"), now_ms=int(time.time() * 1000), timeout_ms=5_000)
    except StoreError as error:
        return str(error)
    return ""


def test_an_entry_that_follows_on_the_set_aside_one_stops_the_repair(replaced: Replaced) -> None:
    send(replaced.root, b"a")
    replaced.ghost(2)
    report = check_cluster(str(replaced.root))
    replaced.ghost(3)
    replaced.grow_old()
    repair_cluster(replaced.cluster(), report)
    assert read(replaced.root) == [(0, b"a")]
    with pytest.raises(FileNotFoundError):
        entry(replaced.root, 3).read_text()


def test_a_corrupt_log_error_names_the_version(replaced: Replaced) -> None:
    replaced.ghost(1)
    with pytest.raises(CorruptLogError, match=r"topics/t, version 1, is an entry of another topic"):
        load_state(replaced.cluster().topic_log("t"))
