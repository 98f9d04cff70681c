"""A check costs topics plus transactional ids, and not one times the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sparklog.integrity import check, check_cluster
from sparklog.integrity.transactions import TransactionsSeen, see_transactions
from sparklog.log import Cluster
from sparklog.log.topic import create_topic
from tests.txn.support import Driver, a_cluster


class Counted(dict[str, Any]):
    """Counts how often somebody goes through everything."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        self.walks += 1
        return super().__iter__()

    def items(self) -> Any:
        self.walks += 1
        return super().items()

    def values(self) -> Any:
        self.walks += 1
        return super().values()


def walks(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> int:
    made: list[Counted] = []

    def see(here: Cluster) -> TransactionsSeen:
        seen = see_transactions(here)
        made.append(Counted(seen.logs))
        return TransactionsSeen(cluster=here, logs=made[-1])

    with monkeypatch.context() as patched:
        patched.setattr(check, "see_transactions", see)
        assert check_cluster(cluster).findings == ()
    [logs] = made
    return logs.walks


def test_all_transactional_ids_are_gone_through_once_whatever_the_number_of_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """✗ 10,000 topics and 100,000 ids take forty minutes."""
    cluster = a_cluster()
    for name in ("t", "u"):
        create_topic(cluster.topic_log(name), name)
    for name in ("one", "two"):
        driver = Driver(cluster, name, topics=("t", "u")).init()
        driver.begin()
        driver.send("t", "a")
        driver.commit()
    few = walks(monkeypatch, cluster)
    for number in range(20):
        create_topic(cluster.topic_log(f"more-{number}"), f"more-{number}")
    assert walks(monkeypatch, cluster) == few


def test_a_check_tells_how_far_it_has_come() -> None:
    cluster = a_cluster()
    for name in ("a", "b"):
        create_topic(cluster.topic_log(name), name)
    told: list[tuple[str, int, int]] = []
    check_cluster(cluster, tell=lambda *how_far: told.append(how_far))
    assert told == [("topics", 0, 2), ("topics", 1, 2), ("groups", 0, 0)]
    del told[:]
    check_cluster(cluster, ["a"], tell=lambda *how_far: told.append(how_far))
    assert told == [("topics", 0, 1)]
