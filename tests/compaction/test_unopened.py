"""A topic that can't even be opened, whatever the reason, hinders no other."""

from __future__ import annotations

from collections.abc import Iterator

from sparklog.compaction import Step, maintain
from sparklog.errors import StorePermissionError
from sparklog.log.topic import create_topic
from sparklog.storage import MemoryStore, ObjectInfo
from sparklog.testing import ManualClock, WrappedStore
from tests.compaction.support import append_at
from tests.support import DAY_MS, T0_MS, a_writer
from tests.txn.support import a_cluster


class Denied(WrappedStore):
    """A store where one may neither read nor list below ``topics/bad/``."""

    def read(self, path: str) -> bytes:
        check(path)
        return super().read(path)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        check(prefix)
        return super().list(prefix, after=after)


def check(path: str) -> None:
    if path.startswith("topics/bad/"):
        raise StorePermissionError(f"access denied: {path}")


def test_a_topic_that_the_store_denies_is_told_and_the_others_are_maintained() -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    whole = a_cluster(memory, clock)
    for topic in ("a", "bad", "c"):
        create_topic(whole.topic_log(topic), topic)
        append_at(a_writer(whole.topic_log(topic), topic=topic), T0_MS - 30 * DAY_MS, "old")
    report = maintain(a_cluster(Denied(memory), clock))
    told = {topic.topic: topic for topic in report.topics}
    for topic in ("a", "c"):
        retention = told[topic].retention
        assert retention is not None
        assert (told[topic].errors, retention.removed_files) == ({}, 1)
    assert told["bad"].errors.keys() == {Step.SEQUENCE, Step.RETENTION, Step.COMPACT, Step.OPTIMIZE, Step.VACUUM}
    assert all(isinstance(error, StorePermissionError) for error in told["bad"].errors.values())
