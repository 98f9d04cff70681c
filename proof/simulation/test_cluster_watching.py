"""What watches the simulated worlds sees what it is to see."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest

from proof.simulation.cluster.hand_overs import HandOvers
from proof.simulation.cluster.settling import look_for_low_starts
from proof.simulation.cluster.watching import Watch, WatchedStore
from sparklog.delta.actions import Action, AddFile, RemoveFile, encode_entry
from sparklog.groups.membership.membership import MemberSettings, Membership
from sparklog.groups.membership.reconciliation import HeldPartition
from sparklog.groups.offsets.changes import (
    Change,
    CommitOffsets,
    CommitUnowned,
    DeleteAll,
    ExpireOffsets,
    TakePartitions,
)
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import PendOffsets, SettlePending
from sparklog.groups.offsets.rows import Decider, OffsetRow, Pending, Rows, Stamp
from sparklog.log import Cluster
from sparklog.log.data.segments import format_timestamp
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.paths import transaction_entry
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import ManualClock
from sparklog.testing.history import Isolation, Outcome, Recorder
from sparklog.txn.entries import Header, TransactionEntry, encode_transaction, first_entry, next_header
from sparklog.txn.session import TIMED_OUT
from sparklog.txn.states import TransactionState


class Log:
    """Of one transactional id, as processes write it before a watch."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.told: list[str] = []
        self.counts: Counter[str] = Counter()
        self.watch = Watch(self.told.append, now_ms=lambda: self.now_ms, counts=self.counts)
        self.store = MemoryStore()

    def create(self, who: str, entry: TransactionEntry) -> TransactionEntry:
        token = f"{who}{entry.version}"
        store = WatchedStore(self.store, who, self.watch)
        store.create(transaction_entry("x", entry.version), encode_transaction(entry, token))
        return replace(entry, token=token)


def an_epoch(log: Log, who: str, before: TransactionEntry | None = None) -> TransactionEntry:
    if before is None:
        return log.create(who, first_entry(Header(producer_id=1, producer_epoch=0, timeout_ms=1_000), now_ms=0))
    return log.create(who, before.follow(TransactionState.EMPTY, header=next_header(before.header), now_ms=0))


def test_whoever_lost_its_id_to_another_may_be_fenced_and_nobody_else():
    log = Log()
    first = an_epoch(log, "p")
    log.watch.check_fenced("p", "x")
    assert log.told == ["p was fenced, but nobody took x from it"]
    log.told.clear()
    an_epoch(log, "q", first)
    log.watch.check_fenced("p", "x")
    assert log.told == []


@pytest.mark.parametrize(("age_ms", "is_early"), [(998.0, True), (1_001.0, False)])
def test_a_time_out_before_its_time_is_told(age_ms, is_early):
    log = Log()
    first = an_epoch(log, "p")
    log.now_ms = age_ms
    log.create("r", first.follow(TransactionState.PREPARE_ABORT, reason=f"{TIMED_OUT} after …", now_ms=0))
    assert bool(log.told) is is_early


def test_an_entry_that_does_not_follow_is_told_and_a_stray_is_counted():
    log = Log()
    first = an_epoch(log, "p")
    second = an_epoch(log, "q", first)
    log.create("p", replace(second, version=3, previous="another"))
    assert log.told == ["transactions/x: entry 3 doesn't follow the one before it"]
    log.store.delete([transaction_entry("x", 1)])
    log.told.clear()
    an_epoch(log, "late")
    assert (log.told, log.counts["strays"]) == ([], 1)


def test_an_entry_that_is_created_again_is_told():
    log = Log()
    first = an_epoch(log, "p")
    log.store.delete([transaction_entry("x", 1)])
    log.create("q", first)
    assert log.told == [f"{transaction_entry('x', 1)} was the newest of its log, and is created again"]


def test_a_step_that_no_transaction_takes_is_told():
    log = Log()
    first = an_epoch(log, "p")
    log.create("p", replace(first, version=2, previous=first.token, state=TransactionState.COMPLETE_COMMIT))
    [told] = log.told
    assert told.startswith("transactions/x: a transaction that is Empty can't become CompleteCommit")


P = TopicPartition("t", 0)
OF_P, OF_Q = Stamp(1, "member-p"), Stamp(2, "member-q")
DECIDER = Decider("x", 0, 1)


@dataclass(frozen=True)
class Anything:
    """A row becomes this one, whatever the rules say."""

    row: OffsetRow

    def apply(self, rows: Rows, now_ms: int) -> Rows:
        return {**rows, P: self.row}


class Group:
    """One group's offset table, as processes write it before a watch."""

    def __init__(self) -> None:
        self.log = Log()
        self.told = self.log.told
        self.clock = ManualClock()
        self.tables: dict[str, OffsetTable] = {}

    def change(self, who: str, *changes: Change) -> OffsetRow | None:
        """A process does it; the row afterwards."""
        store = RetryingStore(WatchedStore(self.log.store, who, self.log.watch), clock=self.clock)
        cluster = Cluster(cluster_id="c", store=store, clock=self.clock)
        table = self.tables.setdefault(who, OffsetTable(cluster, "g"))
        changed = table.change(changes, deadline=self.clock.deadline_in(1_000))
        assert changed.errors == (None,) * len(changes)
        return changed.rows.get(P)


def take(stamp: Stamp, topic_id: str = "id") -> TakePartitions:
    return TakePartitions(topic_ids={P: topic_id}, stamp=stamp)


def commit(stamp: Stamp, offset: int) -> CommitOffsets:
    return CommitOffsets(offsets={P: OffsetAndMetadata(offset)}, stamps={P: stamp}, topic_ids={})


def pend(stamp: Stamp, offset: int) -> PendOffsets:
    return PendOffsets(offsets={P: OffsetAndMetadata(offset)}, decider=DECIDER, owner=stamp, topic_ids={})


def taken(by: str = "p", stamp: Stamp = OF_P) -> tuple[Group, OffsetRow]:
    """A group whose partition one process has taken, with 5 committed."""
    group = Group()
    group.change(by, take(stamp))
    row = group.change(by, commit(stamp, 5))
    assert row is not None
    assert group.told == []
    return group, row


def test_owners_that_follow_each_other_break_no_rule():
    group, _ = taken()
    group.change("p", pend(OF_P, 7))
    group.change("q", take(OF_Q))
    group.change("q", SettlePending(decider=DECIDER, committed=frozenset({P})))
    group.change("q", commit(OF_Q, 9), take(Stamp(3, "member-q")))
    row = group.change("anybody", CommitUnowned(offsets={P: OffsetAndMetadata(2)}, topic_ids={}, generation=4))
    assert row is not None
    assert (row.stamp, row.committed) == (Stamp(4, ""), OffsetAndMetadata(2))
    assert group.told == []
    assert group.log.counts["versions of offset tables"] == 7


def test_a_topic_that_is_created_anew_begins_anew():
    group, _ = taken()
    row = group.change("q", take(OF_Q, "another"))
    assert row is not None
    assert row.committed is None
    group.change("q", commit(OF_Q, 1))
    assert group.told == []


def test_rows_that_go_are_no_breach_and_are_known():
    group, row = taken()
    assert not group.log.watch.has_forgotten("g", P)
    assert group.change("sweep", ExpireOffsets(seen={P: row})) is None
    assert group.log.watch.has_forgotten("g", P)
    assert not group.log.watch.has_forgotten("another", P)
    group.change("p", take(OF_P))
    group.change("p", commit(OF_P, 1))
    group.change("admin", DeleteAll(generation=3))
    group.change("q", take(Stamp(4, "member-q")))
    assert group.told == []


def test_an_offset_that_another_than_the_owner_moves_is_told():
    group, row = taken("q", OF_Q)
    group.change("p", Anything(replace(row, committed=OffsetAndMetadata(6))))
    [told] = group.told
    assert told.startswith("groups/g/offsets: p moved the offset of ")
    assert told.endswith(f"but q owns it under {OF_Q}")


def test_a_pending_offset_of_another_than_the_owner_is_told():
    group, row = taken("q", OF_Q)
    row = replace(row, pending=Pending(decider=DECIDER, committed=OffsetAndMetadata(6)))
    group.change("p", Anything(row))
    assert len(group.told) == 1
    group.change("r", SettlePending(decider=DECIDER, committed=frozenset({P})))  # that may be anybody
    assert len(group.told) == 1


def test_what_is_settled_is_what_was_pending():
    group, row = taken()
    row = group.change("p", pend(OF_P, 7)) or row
    group.change("r", Anything(replace(row, committed=OffsetAndMetadata(8), pending=None)))
    assert len(group.told) == 1


def test_who_takes_a_partition_moves_no_offset():
    group, row = taken()
    group.change("q", Anything(replace(row, stamp=OF_Q, committed=OffsetAndMetadata(6))))
    assert len(group.told) == 1


def test_an_offset_that_a_member_commits_before_it_took_the_partition_is_told():
    group = Group()
    row = OffsetRow(topic_id="id", stamp=OF_P, committed=OffsetAndMetadata(1), commit_timestamp_ms=0)
    group.change("p", Anything(row))
    [told] = group.told
    assert told.endswith("but nobody owns it")


@pytest.mark.parametrize("stamp", [Stamp(1, "member-p"), Stamp(2, "another"), Stamp(0, "")], ids=str)
def test_a_stamp_that_is_older_or_anothers_in_the_same_generation_is_told(stamp):
    group, row = taken("q", OF_Q)
    group.change("p", Anything(replace(row, stamp=stamp)))
    [told] = group.told
    assert " is owned under " in told


def test_a_stamp_that_is_older_than_that_of_a_row_that_went_is_told():
    group, row = taken("q", OF_Q)
    group.change("sweep", ExpireOffsets(seen={P: row}))
    group.change("p", Anything(replace(row, stamp=OF_P, committed=None)))
    [told] = group.told
    assert told == f"groups/g/offsets: {P} is owned under {OF_P} after {OF_Q}"


def test_an_offset_that_goes_back_or_is_lost_is_told():
    group, _ = taken()
    row = group.change("p", commit(OF_P, 4))
    assert row is not None
    group.change("p", Anything(replace(row, committed=None)))
    assert [" went back from " in told for told in group.told] == [True, True]


def test_a_version_that_does_not_add_its_one_file_is_told():
    group, _ = taken()
    gone = RemoveFile(path="a", deletion_ms=0, size_bytes=1)
    data = encode_entry(
        actions=[gone], token="x", info={}, operation="", blind_append=False, timestamp_ms=0, version=""
    )
    path = "groups/g/offsets/_delta_log/00000000000000000002.json"
    WatchedStore(group.log.store, "p", group.log.watch).create(path, data)
    assert group.told == [f"{path} adds 0 files, expected the one that has all rows"]


@pytest.mark.parametrize(
    ("start", "outcome", "forgets", "is_low"),
    [
        (4, Outcome.COMMITTED, False, True),
        (5, Outcome.COMMITTED, False, False),
        (4, Outcome.UNKNOWN, False, False),
        (4, Outcome.COMMITTED, True, False),
    ],
)
@pytest.mark.parametrize("transacts", [False, True])
def test_a_start_below_what_was_told_to_be_committed_is_told(start, outcome, forgets, is_low, transacts):
    told: list[str] = []
    recorder = Recorder()
    first, second = (
        recorder.consumer(name, group="g", isolation=Isolation.READ_COMMITTED, from_start=True) for name in "pq"
    )
    if transacts:
        producer = recorder.producer("x", transactional_id="x")
        producer.begin()
        producer.send_offsets("g", {P: 5})
        producer.ended(outcome)
    else:
        first.committed(first.committing({P: 5}), outcome)
    second.assigned({P: start})
    looked_at = look_for_low_starts(recorder.history(), lambda group, partition: forgets, told.append)
    assert looked_at == (outcome is Outcome.COMMITTED and not forgets)
    assert told == [f"low start: q was given {P} at {start}, below 5, which its group had committed"] * is_low


@pytest.mark.parametrize("is_handed_over_first", [True, False])
def test_a_start_is_judged_by_what_was_committed_when_it_was_handed_over(is_handed_over_first):
    """A process may sleep between the two for as long as it likes."""
    told: list[str] = []
    recorder = Recorder()
    first, second = (recorder.consumer(name, group="g", from_start=True) for name in ("p/consumer1", "q/consumer1"))
    hand_overs = HandOvers(lambda: recorder._order, lambda: "q")
    with hand_overs.watching():
        member = a_member_with(P)
        if is_handed_over_first:
            assert member.hand_over()
        first.committed(first.committing({P: 5}))
        if not is_handed_over_first:
            assert member.hand_over()
        assert not member.hand_over()
    second.assigned({P: 0})
    looked_at = look_for_low_starts(
        recorder.history(), lambda group, partition: False, told.append, handed_over=hand_overs.order_of
    )
    low = [f"low start: q/consumer1 was given {P} at 0, below 5, which its group had committed"]
    assert (looked_at, told) == ((0, []) if is_handed_over_first else (1, low))


def a_member_with(partition: TopicPartition) -> Membership:
    """A member that took a partition and hasn't handed it over yet."""
    settings = MemberSettings(
        group_id="g",
        instance_id=None,
        client_id="c",
        host="h",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=2_000,
        max_poll_interval_ms=300_000,
        metadata_max_age_ms=300_000,
        assignors={},
    )
    member = Membership(settings, ManualClock())
    row = OffsetRow(topic_id="t", stamp=OF_Q, committed=None, commit_timestamp_ms=0)
    member.reconciliation.held[partition] = HeldPartition(stamp=OF_Q, row=row)
    return member


def test_totals_that_are_not_what_the_entries_add_up_to_are_told():
    log = Log()
    store = WatchedStore(log.store, "p", log.watch)

    def create(version: int, totals: list[int | None], *actions: Action) -> None:
        data = encode_entry(
            actions=actions,
            token=f"p{version}",
            info={"totals": totals},
            operation="WRITE",
            blind_append=True,
            timestamp_ms=0,
            version="0",
        )
        store.create(f"topics/t/_delta_log/{version:020d}.json", data)

    file = AddFile(
        path="a",
        partition_values={"partition": "0", "base_offset": "0"},
        size_bytes=7,
        modification_ms=0,
        stats={
            "numRecords": 1,
            "minValues": {"offset_delta": 0, "timestamp": format_timestamp(5)},
            "maxValues": {"offset_delta": 0, "timestamp": format_timestamp(5)},
        },
    )
    create(0, [0, 0, 0, None])
    create(1, [1, 7, 1, 5], file)
    create(2, [0, 0, 0, None], RemoveFile(path="a", deletion_ms=0))
    assert log.told == []
    create(3, [2, 14, 2, 5], file)
    [told] = log.told
    assert ": totals: 2 files, 14 bytes, 2 records" in told
    assert told.endswith("expected 1 files, 7 bytes, 1 records, 5 ms the oldest")
    assert log.counts["totals carried"] == 4
