"""What may be done to a group's rows: every interleaving that rule G1 closes, and Kafka's rules for offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import (
    CommitFailedError,
    IllegalGenerationError,
    InvalidArgumentError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    SparklogError,
    UnknownMemberIdError,
)
from sparklog.groups.offsets.changes import (
    GENERATION_FENCE,
    SAME_COMMIT_MS,
    Change,
    CommitOffsets,
    CommitUnowned,
    DeleteAll,
    DeleteOffsets,
    ExpireOffsets,
    TakePartitions,
)
from sparklog.groups.offsets.rows import Rows, Stamp
from sparklog.model import OffsetAndMetadata
from tests.groups.offsets.support import ANN, BOB, P0, P1, P2, a_fence, a_row, commit, offsets_of, take, unowned
from tests.support import T0_MS

LATER = T0_MS + 1_000


def after(rows: Rows, *changes: Change) -> Rows:
    for change in changes:
        rows = change.apply(rows, LATER)
    return rows


# --- G1


def test_a_member_commits_what_it_has_taken() -> None:
    rows = after({}, take(ANN, P0, P1), commit(ANN, {P0: 7}))
    assert rows == {P0: a_row(7, at_ms=LATER), P1: a_row(None, at_ms=LATER)}


def test_a_sleeper_commits_nothing_once_another_took_its_partition() -> None:
    rows = after({}, take(ANN, P0), commit(ANN, {P0: 7}), take(BOB, P0))
    with pytest.raises(CommitFailedError, match=r"offset 9 of t-0 .* member 'bob' of generation 2, .* 'ann' of gen"):
        commit(ANN, {P0: 9}).apply(rows, LATER)
    assert offsets_of(after(rows, commit(BOB, {P0: 8}))) == {P0: 8}


def test_a_sleeper_that_got_its_partition_back_cannot_commit_under_its_old_stamp() -> None:
    """The sleeper skips the generation in which another owned its partition, and is given it again."""
    rows = after({}, take(ANN, P0), take(BOB, P0), commit(BOB, {P0: 20}), take(Stamp(3, "ann"), P0))
    with pytest.raises(CommitFailedError):
        commit(ANN, {P0: 9}).apply(rows, LATER)
    assert offsets_of(after(rows, commit(Stamp(3, "ann"), {P0: 21}))) == {P0: 21}


def test_keeping_a_partition_over_generations_keeps_the_old_stamp() -> None:
    rows = after({}, take(ANN, P0, P1), take(BOB, P1))
    assert offsets_of(after(rows, commit(ANN, {P0: 3}))) == {P0: 3, P1: None}


def test_a_commit_is_all_or_nothing() -> None:
    rows = after({}, take(ANN, P0, P1), take(BOB, P1))
    with pytest.raises(CommitFailedError, match="t-1"):
        commit(ANN, {P0: 3, P1: 3}).apply(rows, LATER)


@pytest.mark.parametrize("rows", [{}, {P0: a_row(1, stamp=Stamp(1, ""))}], ids=["gone", "of no member"])
def test_a_commit_needs_a_row_with_its_stamp(rows: Rows) -> None:
    with pytest.raises(CommitFailedError, match="owned by no"):
        commit(ANN, {P0: 3}).apply(rows, LATER)


def test_a_commit_without_a_stamp_is_of_a_partition_that_was_never_taken() -> None:
    change = CommitOffsets(offsets={P0: OffsetAndMetadata(1)}, stamps={}, topic_ids={})
    for rows in ({}, {P0: a_row()}):
        with pytest.raises(CommitFailedError):
            change.apply(rows, LATER)


def test_an_older_generation_that_takes_late_is_refused() -> None:
    rows = after({}, take(BOB, P0))
    with pytest.raises(IllegalGenerationError, match=r"t-0 .* 'ann' of generation 1: .* 'bob' of generation 2"):
        take(ANN, P1, P0).apply(rows, LATER)


def test_two_members_of_one_generation_dont_take_one_partition() -> None:
    rows = after({}, take(BOB, P0))
    with pytest.raises(IllegalGenerationError):
        take(Stamp(2, "ann"), P0).apply(rows, LATER)


def test_taking_twice_changes_nothing() -> None:
    rows = after({}, take(ANN, P0), commit(ANN, {P0: 4}))
    assert take(ANN, P0).apply(rows, LATER) is rows


def test_taking_keeps_what_was_committed_and_when() -> None:
    assert after({P0: a_row(5)}, take(BOB, P0)) == {P0: a_row(5, stamp=BOB)}
    assert after({P0: a_row(None)}, take(BOB, P0)) == {P0: a_row(None, stamp=BOB, at_ms=LATER)}


@pytest.mark.parametrize("stamp", [ANN, BOB])
def test_taking_a_partition_of_another_topic_of_the_name_forgets_the_offset(stamp: Stamp) -> None:
    rows = after({P0: a_row(5)}, take(stamp, P0, topic_id="new"))
    assert rows == {P0: a_row(None, stamp=stamp, topic_id="new", at_ms=LATER)}


def test_a_member_takes_over_from_an_administrator() -> None:
    rows = after({}, unowned({P0: 5}, generation=1), take(BOB, P0))
    assert rows == {P0: a_row(5, stamp=BOB, at_ms=LATER)}


# --- commits


def test_a_commit_may_name_the_topics_id_and_else_keeps_it() -> None:
    change = CommitOffsets(
        offsets={P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)},
        stamps={P0: ANN, P1: ANN},
        topic_ids={P0: "new"},
    )
    rows = after({P0: a_row(), P1: a_row()}, change)
    assert [rows[p].topic_id for p in (P0, P1)] == ["new", "id"]


def test_an_offset_may_go_back() -> None:
    """As in Kafka: a consumer that seeks back and commits means it."""
    assert offsets_of(after({P0: a_row(9)}, commit(ANN, {P0: 3}))) == {P0: 3}


def test_the_same_commit_again_writes_nothing_for_an_hour_and_then_its_time() -> None:
    rows = {P0: a_row(5)}
    assert commit(ANN, {P0: 5}).apply(rows, T0_MS + SAME_COMMIT_MS - 1) is rows
    assert unowned({P0: 5}, generation=7).apply(rows, LATER) is not rows
    later = T0_MS + SAME_COMMIT_MS
    assert commit(ANN, {P0: 5}).apply(rows, later) == {P0: a_row(5, at_ms=later)}
    assert commit(ANN, {P0: 5}, metadata="x").apply(rows, LATER) == {P0: a_row(5, metadata="x", at_ms=LATER)}


@pytest.mark.parametrize(
    ("committed", "error"),
    [
        (OffsetAndMetadata(-1), InvalidArgumentError),
        (OffsetAndMetadata(2**63), InvalidArgumentError),
        (OffsetAndMetadata("1"), InvalidArgumentError),  # type: ignore[arg-type]
        (OffsetAndMetadata(1, None), InvalidArgumentError),  # type: ignore[arg-type]
        (OffsetAndMetadata(1, "\ud800"), InvalidArgumentError),
        (OffsetAndMetadata(1, "", -2), InvalidArgumentError),
        (OffsetAndMetadata(1, "", 2**31), InvalidArgumentError),
        (OffsetAndMetadata(1, "x" * 4_097), OffsetMetadataTooLargeError),
        (OffsetAndMetadata(1, "ü" * 2_049), OffsetMetadataTooLargeError),
    ],
)
def test_what_cant_be_committed_is_refused_by_name(committed: OffsetAndMetadata, error: type[SparklogError]) -> None:
    changes: list[Change] = [
        CommitOffsets(offsets={P0: committed}, stamps={P0: ANN}, topic_ids={}),
        CommitUnowned(offsets={P0: committed}, topic_ids={}, generation=1),
    ]
    for change, rows in zip(changes, ({P0: a_row()}, {}), strict=True):
        with pytest.raises(error, match="to commit for t-0"):
            change.apply(rows, LATER)


def test_the_greatest_offset_and_the_longest_metadata_are_committed() -> None:
    most = OffsetAndMetadata(2**63 - 1, "ü" * 2_048, 2**31 - 1)
    rows = after({}, CommitUnowned(offsets={P0: most}, topic_ids={}, generation=0))
    assert (rows[P0].committed, rows[P0].topic_id) == (most, "")


# --- without members


def test_who_is_no_member_commits_while_the_group_has_none() -> None:
    rows = after({}, unowned({P0: 1}), unowned({P0: 2, P1: 2}))
    assert rows == {p: a_row(2, stamp=Stamp(0, ""), at_ms=LATER) for p in (P0, P1)}
    assert offsets_of(after({P0: a_row(1)}, unowned({P0: 4}, generation=2))) == {P0: 4}


@pytest.mark.parametrize("generation", [0, 1])
def test_who_is_no_member_commits_nothing_once_a_member_has_taken_any_partition(generation: int) -> None:
    rows = after({}, take(ANN, P1))
    with pytest.raises(UnknownMemberIdError, match=f"'ann' of generation 1, .* empty generation {generation}"):
        unowned({P0: 1}, generation=generation).apply(rows, LATER)


def test_an_administrator_fences_the_members_of_the_generation_before() -> None:
    rows = after({}, take(ANN, P0), unowned({P0: 100}, generation=2))
    with pytest.raises(CommitFailedError, match="no member of generation 2"):
        commit(ANN, {P0: 7}).apply(rows, LATER)
    with pytest.raises(IllegalGenerationError):
        take(ANN, P0).apply(rows, LATER)


def test_deleting_offsets_passes_over_those_that_arent_there() -> None:
    rows: Rows = {P0: a_row(), P1: a_row()}
    assert DeleteOffsets(partitions=[P0, P2]).apply(rows, LATER) == {P1: a_row()}
    assert DeleteOffsets(partitions=[P2]).apply(rows, LATER) is rows
    assert set(rows) == {P0, P1}


def test_deleting_a_group_is_refused_once_a_member_has_taken_a_partition() -> None:
    rows: Rows = {P0: a_row(stamp=ANN), P1: a_row(stamp=BOB)}
    for generation, owner in ((1, "t-0 .* 'ann' of generation 1"), (2, "t-1 .* 'bob' of generation 2")):
        with pytest.raises(NonEmptyGroupError, match=f"{owner}, .* empty generation {generation}"):
            DeleteAll(generation=generation).apply(rows, LATER)
    assert DeleteAll(generation=3).apply(rows, LATER) == a_fence(3, at_ms=LATER)
    empty: Rows = {}
    assert DeleteAll(generation=0).apply(empty, LATER) is empty


@pytest.mark.parametrize("since", [commit(ANN, {P0: 6}), take(BOB, P0), DeleteOffsets(partitions=[P0])])
def test_what_was_touched_since_it_was_judged_doesnt_expire(since: Change) -> None:
    rows: Rows = {P0: a_row(), P1: a_row()}
    assert P1 not in after(rows, since, ExpireOffsets(seen=rows))
    assert (P0 in after(rows, since)) == (P0 in after(rows, since, ExpireOffsets(seen=rows)))


def test_a_sleeper_brings_nothing_back_once_the_group_was_deleted() -> None:
    """It was about to take a partition; the group is deleted meanwhile, and another begins under its name."""
    rows = after({}, take(ANN, P0), commit(ANN, {P0: 7}), DeleteAll(generation=3))
    assert rows == a_fence(3, at_ms=LATER)
    for generation in (1, 2, 3):
        for partition in (P0, P1):
            with pytest.raises(IllegalGenerationError, match=rf"{partition.partition} .* after 3"):
                take(Stamp(generation, "ann"), partition).apply(rows, LATER)
    assert offsets_of(after(rows, take(Stamp(4, "ann"), P0), commit(Stamp(4, "ann"), {P0: 1})))[P0] == 1


@pytest.mark.parametrize("forget", [DeleteOffsets(partitions=[P0]), ExpireOffsets(seen={P0: a_row(5, stamp=BOB)})])
def test_a_sleeper_brings_no_row_back_that_a_newer_generation_had(forget: Change) -> None:
    rows = after({P0: a_row(5, stamp=BOB)}, forget)
    assert rows == a_fence(1, at_ms=LATER)
    with pytest.raises(IllegalGenerationError):
        take(ANN, P0).apply(rows, LATER)
    assert P0 in after(rows, take(BOB, P0))


def test_the_fence_only_rises_and_stays_whatever_is_deleted() -> None:
    rows = after({}, DeleteAll(generation=3))
    for change in (
        DeleteAll(generation=3),
        DeleteAll(generation=2),
        DeleteOffsets(partitions=[GENERATION_FENCE]),
        ExpireOffsets(seen=rows),
    ):
        assert change.apply(rows, LATER + 1) is rows
    assert after(rows, unowned({P0: 1}, generation=4), DeleteOffsets(partitions=[P0])) == a_fence(4, at_ms=LATER)


def test_the_fence_is_no_member_to_those_that_assign_partitions_themselves() -> None:
    rows = after({}, DeleteAll(generation=3), unowned({P0: 1}, generation=0))
    assert offsets_of(rows) == {GENERATION_FENCE: None, P0: 1}
    assert after(rows, DeleteAll(generation=3)) == a_fence(3, at_ms=LATER)


def test_a_row_below_the_fence_is_taken_again_by_the_member_that_took_it() -> None:
    """The answer was lost, and other rows have expired since."""
    rows = after({P0: a_row(5, stamp=ANN), P1: a_row(5, stamp=BOB)}, DeleteOffsets(partitions=[P1]))
    assert after(rows, take(ANN, P0)) is rows


# --- properties

stamps = st.builds(Stamp, st.integers(0, 3), st.sampled_from(["ann", "bob", "eve"]))
partitions = st.sampled_from([P0, P1])


@pytest.mark.slow
@given(
    st.lists(
        st.one_of(
            st.builds(take, stamps, partitions),
            st.builds(lambda stamp, p, offset: commit(stamp, {p: offset}), stamps, partitions, st.integers(0, 9)),
            st.builds(lambda p, g: unowned({p: 1}, generation=g), partitions, st.integers(0, 3)),
        ),
        max_size=30,
    )
)
def test_stamps_never_go_back_and_offsets_move_only_under_the_stamp_that_is_there(changes: list[Change]) -> None:
    rows: Rows = {}
    for change in changes:
        before = dict(rows)
        try:
            rows = change.apply(rows, LATER)
        except SparklogError:
            continue
        for partition, row in before.items():
            assert rows[partition].stamp.generation >= row.stamp.generation
            if isinstance(change, CommitOffsets) and rows[partition] != row:
                assert rows[partition].stamp == row.stamp == change.stamps[partition]
            if isinstance(change, TakePartitions):
                assert rows[partition].committed == row.committed
        assert before.keys() <= rows.keys()
