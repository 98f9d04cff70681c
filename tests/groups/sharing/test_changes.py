"""The rules of a share partition's state, beside a plain one that knows each offset by itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.groups.sharing import changes as changes_module
from sparklog.groups.sharing.changes import (
    Acknowledgement,
    AcknowledgeType,
    Acquisition,
    ShareChange,
    ShareDecision,
    ShareFacts,
    StaleTopic,
    decide,
)
from sparklog.groups.sharing.entries import decode_entry, encode_entry
from sparklog.groups.sharing.states import RecordState, SharePartition, StateRange, empty_partition, overwritten
from tests.depth import by_depth

ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
LIMIT = 3


def facts(*, start: int = 0, topic_id: str = "t1", as_of: int = 0) -> ShareFacts:
    return ShareFacts(topic_id=topic_id, log_start_offset=start, as_of=as_of)


def wants(
    count: int, *runs: tuple[int, int], member: str = "a", read_from: int = 0, until: int = 100, most: int = 2000
) -> Acquisition:
    return Acquisition(
        member=member,
        lock_ms=30_000,
        max_records=count,
        max_open=most,
        read_from=read_from,
        read_until=until,
        runs=runs or ((read_from, until - 1),),
    )


def acquire(state: SharePartition, number: int, wanted: Acquisition) -> ShareDecision:
    return decide(state, ShareChange(acquisition=wanted, delivery_limit=LIMIT), facts(), number=number)


def acknowledge(
    state: SharePartition, number: int, *given: tuple[int, int, int, AcknowledgeType], over: tuple[int, ...] = ()
) -> ShareDecision:
    acks = [Acknowledgement(first=first, last=last, lock=lock, kind=kind) for first, last, lock, kind in given]
    change = ShareChange(acknowledgements=acks, over=over, delivery_limit=LIMIT)
    return decide(state, change, facts(), number=number)


def written(state: SharePartition) -> list[tuple[int, int, str, int, int]]:
    return [(r.first, r.last, r.state.value, r.delivery_count, r.lock) for r in state.ranges]


def acquired_at(number: int = 1, count: int = 10) -> SharePartition:
    return acquire(empty_partition("t1", 0), number, wants(count)).partition


def test_records_are_acquired_in_order_and_counted():
    first = acquire(empty_partition("t1", 5), 1, wants(10))
    assert written(first.partition) == [(5, 14, "acquired", 1, 1)]
    second = acquire(first.partition, 2, wants(3, member="b"))
    assert [(each.first, each.last) for each in second.acquired] == [(15, 17)]
    assert {number: lock.member for number, lock in second.partition.locks.items()} == {1: "a", 2: "b"}


def test_the_start_moves_over_what_is_done_with_and_no_further():
    state = acquired_at(count=10)
    middle = acknowledge(state, 2, (3, 5, 1, ACCEPT)).partition
    assert (middle.start_offset, len(middle.ranges)) == (0, 3)
    begin = acknowledge(middle, 3, (0, 2, 1, REJECT)).partition
    assert (begin.start_offset, written(begin)) == (6, [(6, 9, "acquired", 1, 1)])
    done = acknowledge(begin, 4, (6, 9, 1, ACCEPT)).partition
    assert (done.start_offset, done.ranges, dict(done.locks)) == (10, (), {})


def test_one_entry_acknowledges_the_last_batch_and_acquires_the_next():
    given = Acknowledgement(first=0, last=9, lock=1, kind=ACCEPT)
    change = ShareChange(acknowledgements=[given], acquisition=wants(5), delivery_limit=LIMIT)
    decision = decide(acquired_at(), change, facts(), number=2)
    assert (decision.accepted, decision.partition.start_offset) == ((True,), 10)
    assert written(decision.partition) == [(10, 14, "acquired", 1, 2)]


def test_an_acknowledgement_counts_only_while_its_lock_holds():
    state = acknowledge(acquired_at(), 2, over=(1,)).partition
    assert written(state) == [(0, 9, "available", 1, 0)]
    again = acquire(state, 3, wants(10)).partition  # by the same member: another lock all the same
    late = acknowledge(again, 4, (0, 9, 1, ACCEPT))
    assert (late.accepted, late.partition) == ((False,), again)
    assert acknowledge(again, 4, (0, 9, 3, ACCEPT)).accepted == (True,)


@pytest.mark.parametrize("given", [(8, 12, 1, ACCEPT), (0, 9, 0, ACCEPT), (0, 9, 7, RENEW), (50, 60, 1, REJECT)])
def test_an_acknowledgement_of_more_than_its_lock_holds_changes_nothing(given):
    state = acquired_at()
    decision = acknowledge(state, 2, given)
    assert (decision.accepted, decision.partition) == ((False,), state)


def test_a_record_is_archived_after_the_last_delivery():
    state = empty_partition("t1", 0)
    for delivery in range(LIMIT):
        state = acquire(state, 2 * delivery + 1, wants(1)).partition
        assert state.ranges[0].delivery_count == delivery + 1
        state = acknowledge(state, 2 * delivery + 2, (0, 0, 2 * delivery + 1, RELEASE)).partition
    assert (state.start_offset, state.ranges) == (1, ())


def test_a_lock_that_is_renewed_is_another_lock_without_another_delivery():
    renewed = acknowledge(acquired_at(count=4), 2, (1, 2, 1, RENEW)).partition
    assert written(renewed) == [
        (0, 0, "acquired", 1, 1),
        (1, 2, "acquired", 1, 2),
        (3, 3, "acquired", 1, 1),
    ]
    over = acknowledge(renewed, 3, over=(1,)).partition
    assert [each[2] for each in written(over)] == ["available", "acquired", "available"]


def test_what_is_available_again_comes_before_what_is_new():
    state = acknowledge(acquired_at(count=4), 2, (1, 1, 1, RELEASE), (3, 3, 1, RELEASE)).partition
    got = acquire(state, 3, wants(3)).acquired
    assert [(each.first, each.last, each.delivery_count) for each in got] == [(1, 1, 2), (3, 3, 2), (4, 4, 1)]


def test_no_more_is_in_flight_than_is_allowed_but_what_is_available_again():
    state = acquire(empty_partition("t1", 0), 1, wants(50, most=8))
    assert [(each.first, each.last) for each in state.acquired] == [(0, 7)]
    full = acquire(state.partition, 2, wants(50, most=8, member="b"))
    assert (full.acquired, full.partition) == ((), state.partition)
    released = acknowledge(state.partition, 2, (2, 4, 1, RELEASE)).partition
    again = acquire(released, 3, wants(50, most=8, member="b"))
    assert [(each.first, each.last) for each in again.acquired] == [(2, 4)]


def test_what_compaction_removed_is_done_with():
    got = acquire(empty_partition("t1", 0), 1, wants(10, (2, 3), (6, 6), until=10))
    assert [(each.first, each.last) for each in got.acquired] == [(2, 3), (6, 6)]
    assert (got.partition.start_offset, got.partition.end_offset) == (2, 10)
    assert acknowledge(got.partition, 2, (2, 3, 1, ACCEPT), (6, 6, 1, ACCEPT)).partition.start_offset == 10


def test_nothing_beyond_what_was_read_is_acquired_or_taken_for_a_gap():
    behind = acquired_at(count=4)
    released = acknowledge(behind, 2, (0, 3, 1, RELEASE)).partition
    part = acquire(released, 3, wants(10, read_from=2, until=6))
    assert [(each.first, each.last) for each in part.acquired] == [(2, 3), (4, 5)]
    assert written(part.partition)[0] == (0, 1, "available", 1, 0)
    ahead = acquire(released, 3, wants(10, read_from=6, until=9))
    assert (ahead.acquired, ahead.partition) == ((), released)


def test_what_retention_deletes_is_archived_and_its_lock_counts_no_more():
    state = acquired_at(count=10)
    moved = decide(state, ShareChange(), facts(start=4), number=2).partition
    assert written(moved) == [(4, 9, "acquired", 1, 1)]
    whole = Acknowledgement(first=0, last=9, lock=1, kind=ACCEPT)
    assert decide(state, ShareChange(acknowledgements=[whole]), facts(start=4), number=2).accepted == (False,)
    assert decide(state, ShareChange(), facts(start=40), number=2).partition == empty_partition("t1", 40)


def test_of_a_topic_made_anew_nothing_is_in_flight_and_who_slept_looks_again():
    state, anew = acquired_at(count=10), facts(topic_id="t2", as_of=1)
    decision = decide(
        state,
        ShareChange(acknowledgements=[Acknowledgement(first=0, last=9, lock=1, kind=ACCEPT)]),
        anew,
        number=2,
    )
    assert (decision.accepted, decision.partition) == ((False,), empty_partition("t2", 0))
    with pytest.raises(StaleTopic, match="topic id t1, expected t2 or a newer one"):
        decide(decision.partition, ShareChange(), facts(topic_id="t1", as_of=1), number=3)


def test_neighbours_that_are_acknowledged_differently_leave_no_empty_range_between():
    """The first find of the simulation: such an entry couldn't be read any more."""
    state = acknowledge(acquired_at(), 2, (2, 4, 1, ACCEPT), (5, 6, 1, RELEASE), (7, 7, 1, ACCEPT)).partition
    assert [(each.first, each.last, each.state.value) for each in state.ranges] == [
        (0, 1, "acquired"),
        (2, 4, "acknowledged"),
        (5, 6, "available"),
        (7, 7, "acknowledged"),
        (8, 9, "acquired"),
    ]
    path = "share-groups/g/partitions/t/0/1.json"
    assert decode_entry(1, path, encode_entry(state, "token")).partition == state


def test_acknowledgements_of_each_record_copy_the_state_once(monkeypatch):
    """✗ Two thousand single records, every other acknowledged, took seconds of CPU: each acknowledgement copied all."""
    copies = []

    def counted(*args, **settings):
        copies.append(args)
        return overwritten(*args, **settings)

    monkeypatch.setattr(changes_module, "overwritten", counted)
    state = acquire(empty_partition("t1", 0), 1, wants(2_000, until=2_000)).partition
    copies.clear()
    decision = acknowledge(state, 2, *[(offset, offset, 1, ACCEPT) for offset in range(1, 2_000, 2)])
    assert (decision.accepted, len(copies)) == ((True,) * 1_000, 1)
    assert written(decision.partition)[:2] == [(0, 0, "acquired", 1, 1), (1, 1, "acknowledged", 0, 0)]
    assert len(decision.partition.ranges) == 2_000


def test_an_acknowledgement_sees_what_one_before_it_has_changed():
    decision = acknowledge(acquired_at(), 2, (0, 5, 1, RENEW), (4, 4, 1, ACCEPT), (5, 6, 1, ACCEPT), (0, 3, 2, RELEASE))
    assert decision.accepted == (True, False, False, True)
    assert written(decision.partition) == [
        (0, 3, "available", 1, 0),
        (4, 5, "acquired", 1, 2),
        (6, 9, "acquired", 1, 1),
    ]


def test_where_nothing_changes_the_state_is_the_same_object():
    state = acquired_at()
    assert decide(state, ShareChange(over=(7,), acquisition=wants(5, until=5)), facts(), number=2).partition is state


@pytest.mark.parametrize("bad", [[(3, 4), (4, 5)], [(-1, 2)], [(12, 13)], [(5, 4)]])
def test_ranges_that_overlap_or_leave_a_gap_are_refused(bad):
    changes = [StateRange(first=first, last=last, state=RecordState.AVAILABLE, delivery_count=1) for first, last in bad]
    with pytest.raises(ValueError, match="expected"):
        overwritten(acquired_at(count=10), changes)


@dataclass
class Plain:
    """A state that knows each offset by itself."""

    start: int = 0
    known: dict[int, tuple[str, int, int]] = field(default_factory=dict)
    """State, deliveries, lock."""

    def advance(self) -> None:
        while self.known.get(self.start, ("", 0, 0))[0] in ("acknowledged", "archived"):
            del self.known[self.start]
            self.start += 1

    def release(self, offset: int) -> None:
        count = self.known[offset][1]
        self.known[offset] = ("archived", 0, 0) if count >= LIMIT else ("available", count, 0)

    def acknowledge(self, first: int, last: int, lock: int, kind: AcknowledgeType, number: int) -> bool:
        offsets = range(first, last + 1)
        if not all(self.known.get(offset, ("", 0, 0))[2] == lock for offset in offsets):
            return False
        for offset in offsets:
            if kind is RELEASE:
                self.release(offset)
            elif kind is RENEW:
                self.known[offset] = ("acquired", self.known[offset][1], number)
            else:
                self.known[offset] = ("acknowledged" if kind is ACCEPT else "archived", 0, 0)
        self.advance()
        return True

    def acquire(self, number: int, count: int, there: set[int], read_from: int, until: int, most: int) -> list[int]:
        got: list[int] = []
        end = max(self.known, default=self.start - 1) + 1
        room = most - sum(state[0] in ("available", "acquired") for state in self.known.values())
        new = range(end, until) if read_from <= end else range(0)
        old = [offset for offset, state in sorted(self.known.items()) if state[0] == "available"]
        for offset in [*(o for o in old if read_from <= o < until), *new]:
            is_new = offset >= end
            if len(got) >= count or (is_new and room <= 0):
                break
            if offset not in there:
                self.known[offset] = ("acknowledged", 0, 0)
                continue
            room -= is_new
            self.known[offset] = ("acquired", self.known.get(offset, ("", 0, 0))[1] + 1, number)
            got.append(offset)
        self.advance()
        return got

    def rows(self) -> list[tuple[int, str, int, int]]:
        return [(offset, *self.known[offset]) for offset in sorted(self.known)]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("acquire"), st.integers(1, 6), st.integers(0, 20), st.integers(1, 12), st.integers(1, 15)),
        st.tuples(
            st.just("acknowledge"),
            st.lists(
                st.tuples(
                    st.integers(0, 20), st.integers(0, 4), st.integers(1, 12), st.sampled_from([*AcknowledgeType])
                ),
                min_size=1,
                max_size=5,
            ),
        ),
        st.tuples(st.just("over"), st.integers(1, 12)),
    ),
    max_size=12,
)


@given(steps=STEPS, missing=st.sets(st.integers(0, 30), max_size=10))
@settings(max_examples=by_depth(gate=150, nightly=300), deadline=None)
def test_ranges_say_the_same_as_single_offsets(steps, missing):
    state, plain = empty_partition("t1", 0), Plain()
    there = {*range(40)} - missing
    for number, (what, *how) in enumerate(steps, 1):
        if what == "acquire":
            count, read_from, length, most = how
            until = read_from + length
            runs = [(offset, offset) for offset in range(read_from, until) if offset in there]
            decision = acquire(
                state,
                number,
                Acquisition(
                    member="a",
                    lock_ms=1,
                    max_records=count,
                    max_open=most,
                    read_from=read_from,
                    read_until=until,
                    runs=runs,
                ),
            )
            got = [offset for each in decision.acquired for offset in range(each.first, each.last + 1)]
            assert got == plain.acquire(number, count, there, read_from, until, most)
        elif what == "acknowledge":
            [several] = how
            given = [(first, first + more, lock, kind) for first, more, lock, kind in several]
            decision = acknowledge(state, number, *given)
            assert decision.accepted == tuple(plain.acknowledge(*each, number) for each in given)
        else:
            decision = acknowledge(state, number, over=(how[0],))
            for offset, known in [*plain.known.items()]:
                if known[2] == how[0]:
                    plain.release(offset)
            plain.advance()
        state = decision.partition
        rows = [(o, r.state.value, r.delivery_count, r.lock) for r in state.ranges for o in range(r.first, r.last + 1)]
        assert (state.start_offset, rows) == (plain.start, plain.rows())
        assert state.locks.keys() == {row[3] for row in rows} - {0}
        assert not any(after.follows(before) for before, after in zip(state.ranges, state.ranges[1:], strict=False))
