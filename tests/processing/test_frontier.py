from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparklog.clock import Clock
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.processing.frontier import Entry, Frontier
from sparklog.processing.lanes import Lane, Lanes, OrderBy
from sparklog.testing import ManualClock

AT = TopicPartition("t", 0)


def a_record(offset: int, key: bytes | None = None, value: bytes = b"v") -> ConsumerRecord:
    return ConsumerRecord("t", 0, -1, offset, 0, 0, key, value, [], None, -1, len(value), -1)


@given(st.permutations(range(12)), st.integers(0, 12))
def test_only_the_done_beginning_is_passed(order, done_count):
    frontier = Frontier(AT)
    entries = [Entry(a_record(2 * offset), frontier) for offset in range(12)]
    frontier.add(entries, 12)
    passed: list[Entry] = []
    for done, at in enumerate(order[:done_count], 1):
        entries[at].is_done = True
        passed += frontier.advance()
        expected = next((number for number, entry in enumerate(entries) if not entry.is_done), 12)
        assert passed == entries[:expected]
        assert frontier.in_flight == 12 - expected
        assert frontier.in_flight_bytes == 12 - expected
        assert len(passed) <= done


def a_lane_world(order_by: OrderBy, keys: list[bytes | None], clock: Clock | None = None) -> tuple[Lanes, list[Entry]]:
    lanes, frontier = Lanes(order_by, clock or ManualClock(), most=2), Frontier(AT)
    entries = [Entry(a_record(offset, key), frontier) for offset, key in enumerate(keys)]
    lanes.add(entries)
    return lanes, entries


KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=20)


@given(st.sampled_from(["partition", "key", "none"]), KEYS, st.data())
def test_lanes_keep_their_order_and_lose_nothing(order_by, keys, data):
    """Takes and releases in any order, some entries again; what is taken is never in a lane that is taken."""
    lanes, entries = a_lane_world(order_by, keys)
    ready, done = list[Lane | None](), list[Entry]()
    taken = list[tuple[Lane, list[Entry]]]()
    again = 10
    while True:
        while not lanes.ready.empty():
            ready.append(lanes.ready.get())
        if not ready and not taken:
            break
        if ready and (not taken or data.draw(st.booleans())):
            lane = ready.pop(data.draw(st.integers(0, len(ready) - 1)))
            assert lane is not None
            assert lane.id not in [other.id for other, _ in taken]
            taken.append((lane, lanes.take(lane)))
        else:
            lane, held = taken.pop(data.draw(st.integers(0, len(taken) - 1)))
            rest = held[data.draw(st.integers(0, len(held))) :] if again else []
            again -= bool(again)
            done += held[: len(held) - len(rest)]
            lanes.release(lane, rest)
    assert sorted(entry.record.offset for entry in done) == list(range(len(entries)))
    lanes_of = {"partition": lambda entry: 0, "key": lambda entry: entry.record.key, "none": lambda entry: object()}
    for own in {lanes_of[order_by](entry) for entry in done} - {None}:
        offsets = [entry.record.offset for entry in done if lanes_of[order_by](entry) == own]
        assert offsets == sorted(offsets)


def test_a_lane_that_is_due_later_waits():
    clock = ManualClock()
    lanes, entries = a_lane_world("partition", [b"a", b"b"], clock)
    lane = lanes.ready.get_nowait()
    assert lane is not None
    assert lanes.take(lane) == entries
    entries[0].due_ticks_ms = 500
    lanes.release(lane, entries)
    assert lanes.wake_due() == 500
    assert lanes.ready.empty()
    clock.advance(500)
    assert lanes.wake_due() is None
    assert lanes.ready.get_nowait() is lane


def test_what_isnt_begun_of_a_partition_that_goes_is_forgotten():
    lanes, entries = a_lane_world("key", [b"a", b"a", b"a", b"b"])
    running = lanes.ready.get_nowait()
    assert running is not None
    held = lanes.take(running)
    assert held == entries[:2]
    held[0].frontier.is_live = False
    lanes.drop([AT])
    assert lanes.is_running([AT])
    other = lanes.ready.get_nowait()
    assert other is not None
    assert lanes.take(other) == []
    lanes.release(running, held)
    assert not lanes.is_running([AT])
    assert lanes.ready.empty()


def test_a_lane_that_runs_on_holds_back_its_next_owner_here():
    """A partition is taken away and given back while a handler of it still runs: its key is not handled twice at a
    time."""
    lanes, _ = a_lane_world("key", [b"a"])
    running = lanes.ready.get_nowait()
    assert running is not None
    lanes.take(running)
    lanes.drop([AT])
    lanes.add([Entry(a_record(0, b"a"), Frontier(AT))])
    assert lanes.ready.empty()
    lanes.release(running)
    assert lanes.ready.get_nowait() is running
