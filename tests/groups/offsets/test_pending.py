"""Offsets that a transaction left pending, beside everything else that may be done to rows (rules T1, T2, G1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.errors import (
    CommitFailedError,
    CorruptLogError,
    InvalidArgumentError,
    OffsetMetadataTooLargeError,
    UnstableOffsetCommitError,
)
from sparklog.groups.offsets.changes import Change, DeleteAll, DeleteOffsets, ExpireOffsets
from sparklog.groups.offsets.offset_files import decode_rows, encode_rows
from sparklog.groups.offsets.pending import PendOffsets, SettlePending, pending_deciders, settle_pending
from sparklog.groups.offsets.rows import CommittedPartitions, Decider, OffsetRow, Pending, Rows, Stamp
from sparklog.model import OffsetAndMetadata, TopicPartition
from tests.groups.offsets.support import (
    ANN,
    BOB,
    P0,
    P1,
    P2,
    a_row,
    a_table,
    change,
    commit,
    do,
    offsets_of,
    take,
    unowned,
)
from tests.support import T0_MS

LATER = T0_MS + 1_000
TX = Decider("tx", 0, 2)
NEXT = Decider("tx", 0, 4)
OTHER = Decider("other", 7, 2)


def after(rows: Rows, *changes: Change) -> Rows:
    for one in changes:
        rows = one.apply(rows, LATER)
    return rows


def pend(
    offsets: Mapping[TopicPartition, int], *, decider: Decider = TX, owner: Stamp = ANN, metadata: str = ""
) -> PendOffsets:
    return PendOffsets(
        offsets={partition: OffsetAndMetadata(offset, metadata) for partition, offset in offsets.items()},
        decider=decider,
        owner=owner,
        topic_ids={} if owner.member else dict.fromkeys(offsets, "id"),
    )


def settle(is_committed: bool, decider: Decider = TX) -> SettlePending:
    return SettlePending(decider=decider, committed=frozenset({P0, P1, P2} if is_committed else ()))


def pending_of(rows: Rows) -> dict[TopicPartition, int]:
    return {partition: row.pending.committed.offset for partition, row in rows.items() if row.pending is not None}


def a_pending_row(offset: int = 9, decider: Decider = TX) -> OffsetRow:
    return replace(a_row(), pending=Pending(decider=decider, committed=OffsetAndMetadata(offset)))


# --- one transaction


def test_pending_offsets_count_once_their_transaction_is_committed() -> None:
    taken = after({}, take(ANN, P0, P1), commit(ANN, {P0: 5}))
    rows = after(taken, pend({P0: 9, P1: 3}, metadata="m"))
    assert offsets_of(rows) == {P0: 5, P1: None}
    assert pending_of(rows) == {P0: 9, P1: 3}
    assert {row.stamp for row in rows.values()} == {ANN}
    done = settle(True).apply(rows, LATER + 1)
    assert done == {
        P0: a_row(9, at_ms=LATER + 1, metadata="m"),
        P1: a_row(3, at_ms=LATER + 1, metadata="m"),
    }
    assert after(rows, settle(False)) == taken


def test_settling_twice_or_for_another_transaction_does_nothing() -> None:
    rows = after({}, take(ANN, P0), pend({P0: 9}))
    for other in (NEXT, OTHER, Decider("tx", 1, 2)):
        for is_committed in (True, False):
            assert settle(is_committed, other).apply(rows, LATER) is rows
    done = after(rows, settle(True))
    assert settle(True).apply(done, LATER) is done
    assert settle(False).apply(done, LATER) is done


def test_offsets_may_be_given_again_and_for_more_partitions_within_a_transaction() -> None:
    rows = after({}, take(ANN, P0, P1), pend({P0: 9}))
    assert pend({P0: 9}).apply(rows, LATER) is rows
    rows = after(rows, pend({P0: 12, P1: 4}))
    assert pending_of(rows) == {P0: 12, P1: 4}
    assert offsets_of(after(rows, settle(True))) == {P0: 12, P1: 4}


def test_what_the_same_id_left_of_an_older_transaction_is_dead() -> None:
    rows = after({}, take(ANN, P0), pend({P0: 9}), pend({P0: 12}, decider=NEXT))
    assert settle(True).apply(rows, LATER) is rows
    assert offsets_of(after(rows, settle(True, NEXT))) == {P0: 12}


def test_of_two_ids_the_second_has_the_first_decided() -> None:
    rows = after({}, take(ANN, P0, P1), pend({P0: 9}))
    with pytest.raises(UnstableOffsetCommitError, match=r"transaction 2 of .*'tx' may move the offset of t-0 to 9"):
        pend({P0: 10, P1: 1}, decider=OTHER).apply(rows, LATER)
    with pytest.raises(UnstableOffsetCommitError):  # a zombie's of the same id
        pend({P0: 10}, decider=Decider("tx", 0, 1)).apply(rows, LATER)
    assert pending_of(after(rows, settle(False), pend({P0: 10, P1: 1}, decider=OTHER))) == {P0: 10, P1: 1}


# --- who may (rule G1)


@pytest.mark.parametrize(
    ("row", "owner", "named"),
    [
        (None, ANN, "owned by nobody, expected member 'ann' of generation 1"),
        (a_row(stamp=BOB), ANN, "owned by member 'bob' since generation 2"),
        (a_row(stamp=BOB), Stamp(9, "ann"), "owned by member 'bob' since generation 2"),
        (a_row(stamp=Stamp(1, "")), ANN, "owned by member '' since generation 1"),
        (a_row(stamp=Stamp(3, "ann")), ANN, "owned by member 'ann' since generation 3"),
    ],
    ids=["gone", "another's", "another's, though the caller knows a newer generation", "of no member", "taken anew"],
)
def test_offsets_of_a_partition_that_isnt_the_members_any_more_are_refused(
    row: OffsetRow | None, owner: Stamp, named: str
) -> None:
    rows = {P0: row} if row else {}
    with pytest.raises(CommitFailedError, match=f"t-0 can't be part of the transaction: the partition is {named}"):
        pend({P0: 9}, owner=owner).apply(rows, LATER)


def test_a_partition_that_was_kept_over_generations_has_its_old_stamp() -> None:
    rows = after({}, take(ANN, P0), pend({P0: 9}, owner=Stamp(7, "ann")))
    assert rows[P0].stamp == ANN
    assert pending_of(rows) == {P0: 9}


def test_offsets_are_pended_all_or_none() -> None:
    rows = after({}, take(ANN, P0), take(BOB, P1))
    with pytest.raises(CommitFailedError, match="t-1"):
        pend({P0: 9, P1: 9}).apply(rows, LATER)


def test_a_consumer_that_assigns_partitions_itself_pends_under_the_empty_generation() -> None:
    nobody = Stamp(4, "")
    rows = after({P0: a_row(5, stamp=Stamp(1, "ann"))}, pend({P0: 9, P1: 2}, owner=nobody))
    assert {partition: row.stamp for partition, row in rows.items()} == {P0: nobody, P1: nobody}
    assert offsets_of(rows) == {P0: 5, P1: None}
    assert offsets_of(after(rows, settle(True))) == {P0: 9, P1: 2}
    with pytest.raises(CommitFailedError):  # and fences the member that had it
        commit(Stamp(1, "ann"), {P0: 6}).apply(rows, LATER)


def test_without_a_member_nothing_is_pended_while_the_group_has_some() -> None:
    for stamp in (Stamp(4, "ann"), Stamp(5, "bob")):
        with pytest.raises(CommitFailedError, match="group has members"):
            pend({P1: 9}, owner=Stamp(4, "")).apply({P0: a_row(stamp=stamp)}, LATER)


@pytest.mark.parametrize(
    ("offset", "metadata", "error"),
    [(-1, "", InvalidArgumentError), (2**63, "", InvalidArgumentError), (1, "x" * 4_097, OffsetMetadataTooLargeError)],
)
def test_what_may_not_be_committed_may_not_be_pended(offset: int, metadata: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        pend({P0: offset}, metadata=metadata).apply(after({}, take(ANN, P0)), LATER)


# --- beside other changes


def test_a_new_owner_keeps_what_is_pending_until_it_is_decided() -> None:
    rows = after({}, take(ANN, P0, P1), commit(ANN, {P0: 5}), pend({P0: 9, P1: 3}), take(BOB, P0, P1))
    assert {row.stamp for row in rows.values()} == {BOB}
    assert pending_of(rows) == {P0: 9, P1: 3}
    committed = after(rows, settle(True))
    assert offsets_of(committed) == {P0: 9, P1: 3}
    assert offsets_of(after(rows, settle(False))) == {P0: 5, P1: None}
    assert {row.stamp for row in committed.values()} == {BOB}


def test_a_zombie_pends_nothing_once_its_partition_was_taken() -> None:
    rows = after({}, take(ANN, P0), pend({P0: 9}), take(BOB, P0), settle(False))
    with pytest.raises(CommitFailedError):
        pend({P0: 9}).apply(rows, LATER)


def test_a_topic_of_the_same_name_has_nothing_pending() -> None:
    rows = after({}, take(ANN, P0), pend({P0: 9}), take(BOB, P0, topic_id="new"))
    assert pending_of(rows) == {}
    assert offsets_of(after(rows, settle(True))) == {P0: None}


def test_a_members_own_commit_overtakes_what_it_left_pending() -> None:
    """Of two commits the later one counts. Source: Kafka ``OffsetMetadataManager.replay``."""
    rows = after({}, take(ANN, P0, P1), pend({P0: 9, P1: 3}), commit(ANN, {P0: 6}))
    assert pending_of(rows) == {P1: 3}
    assert offsets_of(after(rows, settle(True))) == {P0: 6, P1: 3}


def test_committing_what_is_committed_already_overtakes_too() -> None:
    rows = after({}, take(ANN, P0), commit(ANN, {P0: 6}), pend({P0: 9}), commit(ANN, {P0: 6}))
    assert pending_of(rows) == {}


@pytest.mark.parametrize(
    "other",
    [unowned({P0: 1}, generation=1), DeleteOffsets(partitions=[P1, P0]), DeleteAll(generation=1)],
    ids=["commit without a member", "delete offsets", "delete the group"],
)
def test_whoever_owns_nothing_has_it_decided_first(other: Change) -> None:
    rows = after({}, take(Stamp(1, ""), P1), pend({P0: 9}, owner=Stamp(1, "")))
    with pytest.raises(UnstableOffsetCommitError, match="may move the offset of t-0 to 9: it must be decided before"):
        other.apply(rows, LATER)
    other.apply(after(rows, settle(True)), LATER)
    other.apply(after(rows, settle(False)), LATER)


def test_other_partitions_are_free() -> None:
    rows = after({}, pend({P0: 9}, owner=Stamp(1, "")))
    rows = after(rows, unowned({P1: 1}, generation=1), DeleteOffsets(partitions=[P1, P2]))
    assert pending_of(rows) == {P0: 9}


def test_an_offset_that_was_pended_since_it_was_judged_doesnt_expire() -> None:
    judged = after({}, take(ANN, P0))
    rows = after(judged, pend({P0: 9}))
    assert ExpireOffsets(seen=judged).apply(rows, LATER) is rows


def test_a_row_that_was_taken_away_is_left_alone_by_a_late_roll_forward() -> None:
    rows = after({}, take(ANN, P0, P1), pend({P0: 9, P1: 3}))
    gone = {P1: rows[P1]}
    assert offsets_of(after(gone, settle(True))) == {P1: 3}


# --- having them decided


def test_everything_pending_of_some_partitions_is_decided_once_each() -> None:
    table = a_table()
    do(table, take(ANN, P0, P1, P2), pend({P0: 1, P1: 2}), pend({P2: 3}, decider=OTHER))
    rows = do(table, take(BOB, P0, P1, P2))
    assert pending_deciders(rows, [P0, P1]) == {TX}
    assert pending_deciders(rows, [TopicPartition("none", 0)]) == set()
    asked: list[Decider] = []

    def decide(decider: Decider) -> CommittedPartitions:
        asked.append(decider)
        return {"g": frozenset({P2})} if decider == OTHER else {}

    settled = settle_pending(table, rows, [P0, P1], decide, deadline=table.log.clock.deadline_in(None))
    assert (asked, pending_of(settled), offsets_of(settled)) == ([TX], {P2: 3}, {P0: None, P1: None, P2: None})
    settled = settle_pending(table, settled, [P0, P1, P2], decide, deadline=table.log.clock.deadline_in(None))
    assert (asked, pending_of(settled), offsets_of(settled)) == ([TX, OTHER], {}, {P0: None, P1: None, P2: 3})
    assert settle_pending(table, settled, [P0, P1, P2], decide, deadline=table.log.clock.deadline_in(None)) is settled


def test_what_appears_while_others_are_decided_is_decided_too_and_not_for_ever() -> None:
    table = a_table()
    rows = do(table, take(ANN, P0), pend({P0: 1}))
    deciders = iter([NEXT, OTHER])

    def meanwhile(decider: Decider) -> CommittedPartitions:
        found = next(deciders, None)
        if found is not None:
            do(table, settle(False, decider), pend({P0: 7}, decider=found))
        return {"g": frozenset({P0})}

    settled = settle_pending(table, rows, [P0], meanwhile, deadline=table.log.clock.deadline_in(None))
    assert offsets_of(settled) == {P0: 7}

    numbers = iter(range(4, 100))
    rows = do(table, pend({P0: 1}))
    last = TX

    def again_and_again(decider: Decider) -> CommittedPartitions:
        nonlocal last
        last = Decider("tx", 0, next(numbers))
        do(table, pend({P0: 7}, decider=last))
        return {}

    with pytest.raises(UnstableOffsetCommitError, match="t-0 to 7"):
        settle_pending(table, rows, [P0], again_and_again, deadline=table.log.clock.deadline_in(None))
    assert last.number == 8


def test_pending_rows_survive_the_way_through_a_file() -> None:
    rows = {
        P0: a_pending_row(2**63 - 1, Decider("ü", 32_766, 2**63 - 1)),
        P1: replace(a_row(None), pending=Pending(decider=TX, committed=OffsetAndMetadata(0, "\x00 ü", leader_epoch=3))),
        P2: a_row(5),
    }
    assert decode_rows("x", encode_rows(rows)) == rows


def test_a_pending_offset_without_its_numbers_is_named() -> None:
    table = pq.read_table(pa.BufferReader(encode_rows({P0: a_pending_row()})))
    for name in ("pending_producer_epoch", "pending_entry", "pending_offset"):
        at = table.column_names.index(name)
        sink = pa.BufferOutputStream()
        pq.write_table(table.set_column(at, name, pa.nulls(1, table[name].type)), sink)
        with pytest.raises(CorruptLogError, match=r"offset file x: .*partition=0\) has a pending offset"):
            decode_rows("x", bytes(sink.getvalue()))


def test_a_table_keeps_them_and_so_do_readers() -> None:
    table = a_table()
    done = change(table, take(ANN, P0), pend({P0: 9}), pend({P0: 10}, decider=OTHER))
    assert [type(error) for error in done.errors] == [type(None), type(None), UnstableOffsetCommitError]
    assert table.fetch() == a_table(table.log.store).fetch() == done.rows
    assert pending_of(done.rows) == {P0: 9}
