"""Another engine's ``RESTORE`` brings back what compaction had dropped; no key comes back to life by that."""

from __future__ import annotations

import pytest

from sparklog.compaction.clean_arrow import Clean, clean_with_arrow
from sparklog.compaction.commit_replacement import Outcome
from sparklog.compaction.compact import compact_topic
from sparklog.delta.actions import AddFile, RemoveFile
from sparklog.delta.log import DeltaLog
from sparklog.log.state import load_state
from tests.compaction.support import append_pairs, live, pairs_of
from tests.compaction.test_clean_shuffled import clean_shuffled
from tests.support import DAY_MS, T0_MS, a_topic, a_writer, foreign_commit


def restore(log: DeltaLog, version: int) -> None:
    """As Delta does: add what was live then and isn't now, remove what is live now and wasn't then."""
    then: dict[str, AddFile] = {}
    for number in range(version + 1):
        entry = log.read_entry(number)
        assert entry is not None
        for action in entry.actions:
            if isinstance(action, AddFile):
                then[action.path] = action
            elif isinstance(action, RemoveFile):
                then.pop(action.path, None)
    now = {file.path: file for file in live(log)}
    removes = [
        RemoveFile(path=path, deletion_ms=T0_MS, partition_values=file.partition_values(), size_bytes=file.size_bytes)
        for path, file in now.items()
        if path not in then
    ]
    adds = (add for path, add in then.items() if path not in now)
    foreign_commit(log, *removes, *adds, operation="RESTORE")


@pytest.mark.parametrize("clean", [clean_with_arrow, clean_shuffled], ids=["arrow", "shuffled"])
@pytest.mark.parametrize("more", [[], [("d", "1")]], ids=["by its tombstones", "dirty again"])
def test_a_tombstone_that_is_due_takes_what_a_restore_brought_back(clean: Clean, more: list[tuple[str, str]]) -> None:
    log = a_topic(configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0})
    writer = a_writer(log)
    for pairs in ([("a", "1"), ("b", "1")], [("a", None)], [("c", "1")], [("newest", "n")]):
        append_pairs(writer, pairs)
    before = load_state(log).position.version
    compact_topic(log, "t", now_ms=T0_MS, clean=clean)
    assert pairs_of(log) == [(1, "b", "1"), (2, "a", None), (3, "c", "1"), (4, "newest", "n")]
    restore(log, before)
    assert pairs_of(log)[0] == (0, "a", "1")
    for pair in more:
        append_pairs(a_writer(log), [pair])
    report = compact_topic(log, "t", now_ms=T0_MS + 2 * DAY_MS, clean=clean)
    assert [one.outcome for one in report.partitions] == [Outcome.DONE]
    left = [(key, value) for _, key, value in pairs_of(log)]
    assert left == [("b", "1"), ("c", "1"), ("newest", "n"), *more]
