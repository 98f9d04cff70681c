"""Records that wait in delay topics: however many there are, nothing else waits for them, and memory is bounded."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparklog.model import ConsumerRecord, Headers, TopicPartition
from sparklog.processing import Fixed, Limits, Record, Retry
from sparklog.processing.moves import ATTEMPTS, DUE
from sparklog.processing.subscriber import make_subscriber
from sparklog.processing.waiting import WaitingRecords
from sparklog.processing.work import Work
from sparklog.testing import ManualClock
from sparklog.testing.processing import AppDriver
from tests.processing.support import an_app

HOUR_MS = 3_600_000
ORDERS, RETRIES = TopicPartition("orders", 0), TopicPartition("orders-retry-1h", 0)


def a_record(at: TopicPartition, offset: int, due_ms: int = 0, size: int = 100_000) -> ConsumerRecord:
    headers: Headers = [(ATTEMPTS, b"1"), (DUE, b"%d" % due_ms)] if at.topic != "orders" else []
    return ConsumerRecord(at.topic, at.partition, -1, offset, 0, 0, None, bytes(size), headers, None, -1, size, 60)


def a_work(clock: ManualClock, size_bytes: int = 8_000_000) -> Work:
    def handler(record: Record[bytes]) -> None:
        """Never called here."""

    subscriber = make_subscriber(
        handler,
        ("orders",),
        retry=Retry(attempts=2, backoff=Fixed(3_600), topics=True),
        dead_letter=True,
        concurrency=1,
        order_by=None,
        batch_size=500,
        value_type=None,
        decode=None,
    )
    limits = Limits(size_bytes=size_bytes)
    work = Work([subscriber], group_id="g", clock=clock, limits=limits, run_async=lambda awaitable: None)
    work.assign([ORDERS, RETRIES])
    return work


def test_what_waits_stops_its_own_partition_alone_and_takes_a_part_of_the_memory():
    """✗ It counts with all, and nothing of any topic is read until it is due."""
    clock = ManualClock()
    work = a_work(clock)
    due_ms = clock.now_ms() + HOUR_MS
    back = work.feed({RETRIES: [a_record(RETRIES, number, due_ms) for number in range(500)]})
    kept = work.frontiers[RETRIES].in_flight
    assert 10 <= kept < 20
    assert back == {RETRIES: kept}
    assert work.full(()) == {RETRIES}
    assert work.feed({ORDERS: [a_record(ORDERS, number) for number in range(59)]}) == {}
    assert work.full({RETRIES}) == {RETRIES}
    work.feed({ORDERS: [a_record(ORDERS, 59)]})
    assert work.full({RETRIES}) == {ORDERS, RETRIES}  # three quarters of Limits: with what waits it is all
    assert sum(each.in_flight_bytes for each in work.frontiers.values()) <= 8_000_000


def test_it_is_read_again_once_it_is_due():
    clock = ManualClock()
    work = a_work(clock)
    due_ms = clock.now_ms() + HOUR_MS
    records = [a_record(RETRIES, number, due_ms) for number in range(500)]
    kept = work.feed({RETRIES: records})[RETRIES]
    assert work.wake_due() == clock.ticks_ms() + HOUR_MS
    clock.advance(HOUR_MS - 1)
    assert work.full(()) == {RETRIES}
    clock.advance(1)
    assert work.full(()) == set()
    assert work.feed({RETRIES: records[kept:]}) == {}  # all are due
    assert work.full(()) == {ORDERS, RETRIES}  # and are under way now, as any others


def test_more_is_read_when_half_of_what_is_kept_is_due():
    clock = ManualClock()
    work = a_work(clock)
    now_ms = clock.now_ms()
    records = [a_record(RETRIES, number, now_ms + 1_000 * (number + 1)) for number in range(100)]
    kept = work.feed({RETRIES: records})[RETRIES]
    clock.advance(1_000 * (kept // 2 - 1))
    assert work.full(()) == {RETRIES}
    clock.advance(3_000)
    assert work.full(()) == set()
    assert work.feed({RETRIES: records[kept:]})[RETRIES] > kept + kept // 2


def test_a_record_waits_no_longer_than_its_topics_delay_since_it_was_first_read():
    """The clock of whoever moved it is a day ahead. ✗ Each time that it is read again it waits an hour more."""
    clock = ManualClock()
    work = a_work(clock)
    due_ms = clock.now_ms() + 24 * HOUR_MS
    records = [a_record(RETRIES, number, due_ms) for number in range(60)]
    position, hours = 0, 0
    position = work.feed({RETRIES: records}).get(RETRIES, 60)
    while position < 60 and hours < 3:
        clock.advance(HOUR_MS)
        hours += 1
        assert work.full(()) == set()
        position = work.feed({RETRIES: records[position:]}).get(RETRIES, 60)
    assert (position, hours) == (60, 1)
    assert work.frontiers[RETRIES].is_due(clock.ticks_ms())


@given(
    dues=st.lists(st.integers(0, 5_000), min_size=1, max_size=60),
    sizes=st.lists(st.sampled_from([0, 10, 3_000, 30_000]), min_size=60, max_size=60),
    chunk=st.integers(1, 20),
    step_ms=st.integers(1, 2_000),
)
def test_each_record_is_taken_once_when_it_is_due_and_memory_is_bounded(dues, sizes, chunk, step_ms):
    clock = ManualClock()
    room = 40_000
    waiting = WaitingRecords(clock, {"orders-retry-1h": HOUR_MS}, 4 * room)
    waiting.begin(RETRIES)
    start_ms = clock.now_ms()
    records = [a_record(RETRIES, n, start_ms + due, sizes[n]) for n, due in enumerate(dues)]
    position, taken = 0, list[tuple[int, float]]()
    for _ in range(200_000 // step_ms):
        if position == len(records):
            break
        if RETRIES not in waiting.held():
            found, back = waiting.take(RETRIES, records[position : position + chunk])
            taken += [(record.offset, due) for record, due in found]
            position = min(position + chunk, len(records)) if back is None else back
        assert waiting.value_bytes() <= room
        clock.advance(step_ms)
    assert [offset for offset, _ in taken] == [*range(len(records))]
    assert all(abs(due - dues[offset]) <= 1 for offset, due in taken)


def test_in_a_driver_all_are_handled_when_they_are_due_in_order():
    app = an_app(None, limits=Limits(size_bytes=400_000))  # type: ignore[arg-type]
    handled: list[Any] = []

    @app.subscriber("orders", retry=Retry(attempts=2, backoff=Fixed(3_600), topics=True), dead_letter=True)
    def handler(record: Record[bytes]) -> None:
        if record.attempt == 1 and record.value[:1] == b"b":
            raise TimeoutError
        handled.append(record.value[:3])

    driver = AppDriver(app)
    for number in range(50):
        driver.send("orders", b"b%02d" % number + bytes(20_000))
    driver.run()
    driver.send("orders", b"g")
    driver.run()
    assert handled == [b"g"]
    driver.advance(HOUR_MS)
    assert handled[1:] == [b"b%02d" % number for number in range(50)]
