"""What can't be read is a finding that names it; all else is checked, in a bounded time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from sparklog.errors import StoreError, StorePermissionError, StoreUnavailableError
from sparklog.integrity import Code, check_cluster
from sparklog.log import Cluster, open_cluster
from sparklog.testing import WrappedStore
from tests.integrity.support import a_full_world

T = TypeVar("T")


class Sick(WrappedStore):
    """A store that doesn't return what lies under some prefixes, and lists no folder that they are in."""

    refused: tuple[str, ...] = ("\0",)
    refusal: type[StoreError] = StorePermissionError

    def _call(self, op: str, path: str, call: Callable[[], T]) -> T:
        walks_into = op == "list" and path and any(one.endswith("/") and one.startswith(path) for one in self.refused)
        if path.startswith(self.refused) or walks_into:
            raise self.refusal(f"{op} {path}: refused")
        return call()

    def list_names(self, prefix: str) -> object:  # type: ignore[override]
        if prefix.startswith(self.refused):
            raise self.refusal(f"list {prefix}: refused")
        return self._store.list_names(prefix)


def world() -> tuple[Cluster, Sick]:
    memory, clock, cluster = a_full_world()
    memory.put("cluster.json", f'{{"format_version": 1, "cluster_id": "{cluster.cluster_id}"}}'.encode())
    sick = Sick(memory)
    return open_cluster(sick, clock=clock), sick


@pytest.mark.parametrize("refusal", [StorePermissionError, StoreUnavailableError])
@pytest.mark.parametrize(
    ("refused", "code"),
    [
        ("topics/t/", Code.TOPIC_UNREADABLE),
        ("topics/t/_delta_log/", Code.TOPIC_UNREADABLE),
        ("topics/t/partition=0/", Code.OBJECT_UNREADABLE),
        ("topics/t/_delta_log/00000000000000000000.json", Code.OBJECT_UNREADABLE),
    ],
)
def test_of_a_topic(refusal: type[StoreError], refused: str, code: Code) -> None:
    cluster, sick = world()
    whole = check_cluster(cluster, deep=True)
    assert whole.errors == ()
    sick.refused, sick.refusal = (refused,), refusal
    began = cluster.clock.ticks_ms()
    report = check_cluster(cluster, deep=True)
    assert {one.code for one in report.errors} == {code}
    assert {one.subject.topic for one in report.errors} == {"t"}
    assert all("refused" in one.seen for one in report.errors)
    assert report.is_partial
    assert report.counts.topics == whole.counts.topics
    assert report.counts.groups == whole.counts.groups
    assert cluster.clock.ticks_ms() - began < 300_000


@pytest.mark.parametrize("kind", ["groups", "transactions", "transactions-open"])
def test_of_a_group_and_of_a_transactional_id(kind: str) -> None:
    cluster, sick = world()
    cluster.store.put("transactions-open/tx/1", b"")
    whole = check_cluster(cluster)
    folders = cluster.store.list_names(f"{kind}/")
    sick.refused = (f"{kind}/{folders[0]}/",)
    report = check_cluster(cluster)
    code = Code.GROUP_UNREADABLE if kind == "groups" else Code.TRANSACTION_UNREADABLE
    assert {one.code for one in report.errors} == {code}
    assert report.is_partial
    assert report.counts.topics == whole.counts.topics
    assert report.counts.groups == whole.counts.groups
    assert report.counts.transactional_ids == whole.counts.transactional_ids


def test_damage_beside_it_is_no_partial_check() -> None:
    cluster, sick = world()
    cluster.store.put(cluster.topic_log("u").path_of(0), b"{torn")
    sick.refused = ("topics/t/",)
    report = check_cluster(cluster)
    assert {(one.code, one.is_unread) for one in report.errors} >= {(Code.TOPIC_UNREADABLE, True)}
    assert not report.is_partial


def test_a_store_that_cannot_be_read_is_no_finding() -> None:
    cluster, sick = world()
    sick.refused, sick.refusal = ("",), StoreUnavailableError
    with pytest.raises(StoreUnavailableError):
        check_cluster(cluster)
