"""Objects that were deleted by others, say by a rule that goes by age: what check says of each kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.names import entry_path, last_checkpoint_path
from sparklog.errors import InvalidArgumentError
from sparklog.integrity import check_cluster
from sparklog.log.cluster import open_cluster
from sparklog.model import TopicPartition
from sparklog.storage import MemoryStore
from tests.integrity.support import a_plain_world, commit_offset

LOG = "topics/t/_delta_log/"


def a_world() -> MemoryStore:
    """A topic with a checkpoint in the middle of its log, and a group."""
    memory, _, cluster, log = a_plain_world(appends=20)
    memory.put("cluster.json", b'{"cluster_id": "c", "format_version": 1}')
    write_checkpoint(log)
    for offset in (3, 4):
        commit_offset(cluster, TopicPartition("t", 0), offset)
    return memory


def named(*paths: str) -> Callable[[MemoryStore], list[str]]:
    return lambda memory: list(paths)


def below(*folders: str, without: str = "\0") -> Callable[[MemoryStore], list[str]]:
    return lambda memory: [
        found.path for folder in folders for found in memory.list(folder) if without not in found.path
    ]


@pytest.mark.parametrize(
    ("gone", "code"),
    [
        (lambda memory: [next(f.path for f in memory.list("topics/t/partition=0/"))], "file-missing"),
        (named(*(entry_path("topics/t", version) for version in range(5))), "log-begins-late"),
        (named(*(entry_path("topics/t", version) for version in range(20))), "log-begins-late"),
        (below(LOG, without="0020.json"), "log-gap"),
        (named(last_checkpoint_path("topics/t")), "hint-missing"),
        (below("groups/h/generations/", "groups/h/members/"), "generations-behind"),
        (named(entry_path("groups/h/offsets", 0)), "group-unreadable"),
        (
            lambda memory: [f.path for f in memory.list("groups/h/offsets/") if f.path.endswith(".parquet")],
            "group-unreadable",
        ),
    ],
)
def test_what_is_gone_is_named(gone: Callable[[MemoryStore], list[str]], code: str) -> None:
    memory = a_world()
    assert check_cluster(open_cluster(memory)).errors == ()
    memory.delete(gone(memory))
    assert code in {finding.code.value for finding in check_cluster(open_cluster(memory)).findings}


def test_a_cluster_without_its_file_is_named() -> None:
    memory = a_world()
    memory.delete(["cluster.json"])
    with pytest.raises(InvalidArgumentError, match=r"there is no cluster\.json, but there are objects"):
        open_cluster(memory, create=False)


def test_a_log_that_a_cleanup_has_shortened_begins_late_for_a_reason() -> None:
    memory = a_world()
    log = open_cluster(memory).topic_log("t")
    log.mark_cleaned(5)
    memory.delete([entry_path("topics/t", version) for version in range(5)])
    assert check_cluster(open_cluster(memory)).findings == ()
