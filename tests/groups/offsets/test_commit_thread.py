"""The thread that keeps a consumer's offset table: what it does in which order, and what it tells of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparklog.clock import SystemClock
from sparklog.errors import CommitFailedError, KafkaTimeoutError, StoreUnavailableError, UnstableOffsetCommitError
from sparklog.groups.admin.unowned_commits import EmptyGroup, UnownedCommit
from sparklog.groups.offsets import offset_table
from sparklog.groups.offsets.changes import Change, CommitUnowned
from sparklog.groups.offsets.commit_thread import OffsetCommitThread
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import Deciding, PendOffsets
from sparklog.groups.offsets.rows import CommittedPartitions, Decider, Rows, Stamp
from sparklog.log.cluster import Cluster
from sparklog.model import OffsetAndMetadata
from tests.groups.membership.support import NO_TRANSACTIONS
from tests.groups.offsets.support import P0, P1, P2, a_cluster, commit, do, take, unowned

LONG_MS = 60_000
LONG_S = LONG_MS / 1_000
DECIDER = Decider("id", 0, 1)


@contextmanager
def a_commit_thread(cluster: Cluster, deciding: Deciding = NO_TRANSACTIONS) -> Iterator[OffsetCommitThread]:
    commit_thread = OffsetCommitThread(cluster, "g", deciding)
    try:
        yield commit_thread
    finally:
        commit_thread.stop()
        assert commit_thread.join(LONG_S)


class Held:
    """A change that isn't made before it is let go; what is asked for meanwhile waits for its turn together."""

    def __init__(self, commit_thread: OffsetCommitThread, change: Change) -> None:
        self._has_begun, self._may_go = threading.Event(), threading.Event()

        def make() -> Change:
            self._has_begun.set()
            assert self._may_go.wait(LONG_S)
            return change

        self.future = commit_thread.change(make, timeout_ms=LONG_MS)
        assert self._has_begun.wait(LONG_S)

    def let_go(self) -> None:
        self._may_go.set()


def offsets(rows: Rows) -> list[int | None]:
    return [
        row.committed.offset if row.committed else None for _, row in sorted(rows.items(), key=lambda item: item[0])
    ]


def a_system_cluster() -> Cluster:
    return a_cluster(clock=SystemClock())


ALL = {"g": frozenset({P1})}
"""What the transaction of :func:`a_cluster_with_a_transaction` committed."""


def a_cluster_with_a_transaction() -> Cluster:
    """It has left an offset of P1 pending."""
    cluster = a_system_cluster()
    pend = PendOffsets(offsets={P1: OffsetAndMetadata(9)}, decider=DECIDER, owner=Stamp(0, ""), topic_ids={P1: "id"})
    do(OffsetTable(cluster, "g"), pend)
    return cluster


# Maintenance


def test_no_commit_waits_for_maintenance_and_the_end_does(monkeypatch: pytest.MonkeyPatch):
    """✗ The thread that commits also deletes what an hour of commits has left: whoever commits meanwhile waits for
    thousands of deletions, and its commit times out."""
    has_begun, may_end = threading.Event(), threading.Event()

    def slowly(log: object, version: int, *, sweeps: bool) -> int:
        has_begun.set()
        assert may_end.wait(LONG_S)
        return version

    monkeypatch.setattr(offset_table, "maintain_offsets", slowly)
    monkeypatch.setattr(offset_table, "_MAX_DELAY_MS", 0)
    cluster = a_system_cluster()
    table = OffsetTable(cluster, "g")
    for number in range(99):  # the next makes a checkpoint due
        do(table, unowned({P0: number}))
    commit_thread = OffsetCommitThread(cluster, "g", NO_TRANSACTIONS)
    commit_thread.change(unowned({P0: 100}), timeout_ms=LONG_MS).result(LONG_S)
    assert has_begun.wait(LONG_S)
    for number in range(101, 104):
        rows = commit_thread.change(unowned({P0: number}), timeout_ms=LONG_MS).result(LONG_S)
    assert offsets(rows) == [103]
    commit_thread.stop()
    assert not commit_thread.join(0.05)  # it would be cut off in the middle if the process ended now
    may_end.set()
    assert commit_thread.join(LONG_S)


# Turns


def test_a_change_withdrawn_before_its_turn_is_never_carried_out():
    with a_commit_thread(a_system_cluster()) as commit_thread:
        begun = Held(commit_thread, unowned({P0: 1}))
        waiting = commit_thread.change(unowned({P0: 2}), timeout_ms=LONG_MS)
        assert (commit_thread.withdraw(begun.future), commit_thread.withdraw(waiting)) == (False, True)
        assert isinstance(waiting.exception(0), KafkaTimeoutError)
        begun.let_go()
        assert offsets(begun.future.result(LONG_S)) == [1]
        assert offsets(commit_thread.fetch([P0], timeout_ms=LONG_MS).result(LONG_S)) == [1]
        assert not commit_thread.withdraw(begun.future)


def test_a_change_that_was_carried_out_succeeds_whatever_becomes_of_those_beside_it():
    """✗ One of two commits needs a transaction decided, which fails: both are told that they failed."""
    cluster = a_cluster_with_a_transaction()

    def fail(_: Decider) -> CommittedPartitions:
        raise StoreUnavailableError("transactions can't be read")

    with a_commit_thread(cluster, Deciding(decide=fail, look=fail, finish=fail)) as commit_thread:
        begun = Held(commit_thread, unowned({P2: 0}))
        both = [commit_thread.change(unowned({partition: 5}), timeout_ms=LONG_MS) for partition in (P0, P1)]
        begun.let_go()
        assert both[0].result(LONG_S)[P0].committed == OffsetAndMetadata(5)
        assert isinstance(both[1].exception(LONG_S), StoreUnavailableError)


def test_what_a_transaction_had_left_pending_is_decided_and_the_commit_repeated():
    cluster = a_cluster_with_a_transaction()
    with a_commit_thread(
        cluster, Deciding(decide=lambda _: ALL, look=lambda _: ALL, finish=lambda _: ALL)
    ) as commit_thread:
        begun = Held(commit_thread, unowned({P2: 0}))
        both = [commit_thread.change(unowned({partition: 5}), timeout_ms=LONG_MS) for partition in (P0, P1)]
        begun.let_go()
        assert offsets(both[1].result(LONG_S)) == [5, 5, 0]
        assert both[0].result(LONG_S)


def test_a_commit_that_waited_for_a_transaction_does_not_undo_a_later_commit():
    """✗ The later one has nothing to wait for and is carried out first: the offset goes back to the older one's."""
    cluster = a_cluster_with_a_transaction()
    with a_commit_thread(
        cluster, Deciding(decide=lambda _: ALL, look=lambda _: ALL, finish=lambda _: ALL)
    ) as commit_thread:
        begun = Held(commit_thread, unowned({P2: 0}))
        changes = [unowned({P0: 4}), unowned({P0: 5, P1: 5, P2: 5}), unowned({P0: 6}), unowned({P1: 7, P2: 7})]
        futures = [commit_thread.change(change, timeout_ms=LONG_MS) for change in changes]
        begun.let_go()
        for future in futures:
            future.result(LONG_S)
        assert offsets(commit_thread.fetch([], timeout_ms=LONG_MS).result(LONG_S)) == [6, 7, 7]


# Beside members that have come and gone


class Emptiness(EmptyGroup):
    """Members were in the group up to each of these generations."""

    def __init__(self, *generations: int | Exception) -> None:
        super().__init__(a_system_cluster(), "g")
        self.looks: list[int | Exception] = [*generations]

    def generation(self, *, beyond: int | None = None) -> int:
        found = self.looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def by_hand(commit_thread: OffsetCommitThread, group: EmptyGroup, offset: int) -> Callable[[], Rows]:
    one = UnownedCommit(group, {P0: OffsetAndMetadata(offset)}, {P0: "id"})
    future = commit_thread.change(one.make, timeout_ms=LONG_MS, again=one.again)
    return lambda: future.result(LONG_S)


def test_a_commit_by_hand_is_repeated_in_its_order_after_members_have_come_and_gone():
    """✗ Members came and left; the next commit fails once though nobody is in the group."""
    cluster = a_system_cluster()
    do(OffsetTable(cluster, "g"), take(Stamp(3, "ann"), P0))
    group = Emptiness(0, 0, 2, 2, 4, 4)
    with a_commit_thread(cluster) as commit_thread:
        begun = Held(commit_thread, commit(Stamp(3, "ann"), {P0: 7}))
        both = [by_hand(commit_thread, group, offset) for offset in (8, 9)]
        begun.let_go()
        both[0]()
        assert offsets(both[1]()) == [9]
        assert offsets(commit_thread.fetch([P0], timeout_ms=LONG_MS).result(LONG_S)) == [9]


@pytest.mark.parametrize("looks", [(0, CommitFailedError("members")), (0, 1, 2, 2)], ids=["members", "again and again"])
def test_a_commit_by_hand_beside_members_fails_as_kafkas(looks: tuple[int | Exception, ...]):
    """Source: Kafka ``ConsumerCoordinator.OffsetCommitResponseHandler``: UNKNOWN_MEMBER_ID."""
    cluster = a_system_cluster()
    do(OffsetTable(cluster, "g"), take(Stamp(3, "ann"), P0))
    with a_commit_thread(cluster) as commit_thread, pytest.raises(CommitFailedError, match="members"):
        by_hand(commit_thread, Emptiness(*looks), 8)()


def test_only_what_members_caused_is_tried_again():
    one = UnownedCommit(Emptiness(), {P0: OffsetAndMetadata(8)}, {P0: "id"})
    assert one.again(UnstableOffsetCommitError("a transaction")) is None


def test_an_empty_generation_is_looked_for_once_and_again_only_behind_it():
    cluster = a_system_cluster()
    group = EmptyGroup(cluster, "g")
    one = UnownedCommit(group, {P0: OffsetAndMetadata(8)}, {P0: "id"})
    assert isinstance(one.make(), CommitUnowned)
    cluster.store.close()
    assert group.generation() == group.generation(beyond=7) == 0
