"""A store that refuses, loses answers, is down for ever, or dies under a producer: what was acknowledged is there once,
in order, and everything else is told to have failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    KafkaTimeoutError,
    SparklogError,
    StoreFullError,
    StorePermissionError,
    StoreUnavailableError,
)
from sparklog.log import Cluster
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, WrappedStore, crashes
from sparklog.testing.interrupted_store import InterruptedStore
from tests.depth import each_nth
from tests.producer.support import (
    IMPATIENT,
    LONG_S,
    Switch,
    a_cluster,
    a_producer,
    a_topic,
    assert_empty,
    error_of,
    rows,
    through,
    values,
)
from tests.support import a_writer
from tests.support import append as append_with

T = TypeVar("T")

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
PASSING = (FaultKind.THROTTLED, FaultKind.CONFLICT, FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST)


def entries(memory: MemoryStore) -> int:
    """How many entries the topic's log has."""
    return sum(found.path.endswith(".json") for found in memory.list("topics/"))


@pytest.mark.parametrize("op", ["put", "create", "get", "list"])
@pytest.mark.parametrize("kind", PASSING, ids=lambda kind: kind.name)
def test_after_a_few_refusals_records_are_delivered_once_and_in_order(kind: FaultKind, op: str) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory, ManualClock())
    store = FaultyStore(memory, Fault(kind=kind, ops=[op], times=4))
    with a_producer(through(store, cluster), batch_size=0, **QUICK) as producer:
        sent = [producer.send("t", str(number).encode()) for number in range(20)]
        assert [future.get(LONG_S).offset for future in sent] == list(range(20))
        assert_empty(producer)
    assert values(cluster) == [str(number).encode() for number in range(20)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("in_flight", [1, 2, 5])
def test_through_any_mixture_of_trouble_order_holds_and_nothing_is_stored_twice(in_flight: int, seed: int) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory, ManualClock(), partitions=2)
    faults = [Fault(kind=kind, chance=0.1, times=None) for kind in (*PASSING, FaultKind.OWN_SUCCESS)]
    store = FaultyStore(memory, *faults, seed=seed)
    settings: dict[str, Any] = {"max_in_flight_requests_per_connection": in_flight, **QUICK}
    with a_producer(through(store, cluster), batch_size=0, **settings) as producer:
        sent = [producer.send("t", str(number).encode(), partition=number % 2) for number in range(30)]
        told = [future.get(LONG_S) for future in sent]
        producer.flush(LONG_S)  # a future is done a moment before its room is given back
        assert_empty(producer)
    for partition in (0, 1):
        assert values(cluster, partition=partition) == [str(number).encode() for number in range(partition, 30, 2)]
        offsets = [one.offset for one in told if one.partition == partition]
        assert offsets == list(range(15))


@pytest.mark.parametrize(("op", "expected"), [("put", KafkaTimeoutError), ("create", CommitStateUnknownError)])
def test_a_store_down_beyond_the_delivery_timeout_fails_records_and_stores_nothing(
    op: str, expected: type[KafkaTimeoutError]
) -> None:
    """That nothing is stored is only certain where no entry of the log was tried (rule L2)."""
    memory, clock = MemoryStore(), ManualClock()  # the delivery is over by the waits between attempts alone
    cluster = a_topic(memory, clock)
    switch = Switch(FaultKind.THROTTLED, op)
    told: list[object] = []
    with a_producer(through(FaultyStore(memory, switch.fault), cluster), **IMPATIENT) as producer:
        producer.send("t", b"before").get(LONG_S)
        before = entries(memory)
        switch.on()
        sent = [producer.send("t", b"lost", b"k", partition=0) for _ in range(3)]
        for number, future in enumerate(sent):
            future.add_errback(lambda error, number=number: told.append(number))
        for future in sent:
            with pytest.raises(KafkaTimeoutError) as caught:
                future.get(LONG_S)
            assert type(caught.value) is expected
            assert future.retriable() == expected.retriable
        producer.flush(LONG_S)
        assert told == [0, 1, 2]
        assert_empty(producer)
        assert entries(memory) == before
        switch.off()
        assert producer.send("t", b"after").get(LONG_S).offset == 1
    assert values(cluster) == [b"before", b"after"]


@pytest.mark.parametrize("op", ["put", "create"])
def test_a_store_down_within_the_delivery_timeout_only_delays_records(op: str) -> None:
    """Also for longer than a store repeats its calls of itself."""
    memory, clock = MemoryStore(), ManualClock()
    cluster = a_topic(memory, clock)
    until = clock.ticks_ms() + 100_000
    refusing = Fault(kind=FaultKind.THROTTLED, ops=[op], times=None, when=lambda call: clock.ticks_ms() < until)
    with a_producer(through(FaultyStore(memory, refusing), cluster)) as producer:
        assert producer.send("t", b"v").get(LONG_S).offset == 0
        assert until <= clock.ticks_ms() < until + 2_000
    assert values(cluster) == [b"v"]


@pytest.mark.parametrize("op", ["get", "list"])
def test_opening_a_topic_ends_after_max_block_ms(op: str) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    clock = ManualClock()
    switch = Switch(FaultKind.THROTTLED, op)
    with a_producer(a_cluster(FaultyStore(memory, switch.fault), clock), max_block_ms=5_000) as producer:
        switch.on()
        with pytest.raises(StoreUnavailableError):
            producer.send("t", b"v")
        assert clock.ticks_ms() <= 5_001
        switch.off()
        producer.send("t", b"v").get(LONG_S)
    assert values(cluster) == [b"v"]


@pytest.mark.parametrize("op", ["put", "get"])
def test_without_retries_a_store_call_is_made_once(op: str) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    switch = Switch(FaultKind.THROTTLED, op)
    store = FaultyStore(memory, switch.fault)
    with a_producer(through(store, cluster), retries=0) as producer:
        producer.partitions_for("t")
        switch.on()
        before = len(store.calls)
        if op == "put":
            assert isinstance(error_of(producer.send("t", b"v")), KafkaTimeoutError)
            assert [call.op for call in store.calls[before:]] == ["put"]
        else:
            with pytest.raises(StoreUnavailableError):
                producer.partitions_for("t")
        switch.off()
        assert producer.send("t", b"v").get(LONG_S).offset == 0


@pytest.mark.parametrize("op", ["put", "create"])
@pytest.mark.parametrize(
    ("kind", "expected"), [(FaultKind.DISK_FULL, StoreFullError), (FaultKind.READ_ONLY, StorePermissionError)]
)
def test_what_the_store_refuses_for_good_fails_at_once_with_its_own_error(
    kind: FaultKind, expected: type[SparklogError], op: str
) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    store = FaultyStore(memory, Fault(kind=kind, ops=[op]))
    with a_producer(through(store, cluster)) as producer:
        assert type(error_of(producer.send("t", b"refused"))) is expected
        assert producer.send("t", b"after").get(LONG_S).offset == 0
        assert_empty(producer)
    assert [call.op for call in store.calls].count(op) <= 3
    assert values(cluster) == [b"after"]


@pytest.mark.parametrize("op", ["put", "create"])
@pytest.mark.parametrize(
    "error", [RuntimeError("a defect"), MemoryError(), SystemExit(3)], ids=lambda e: type(e).__name__
)
def test_what_nobody_expected_fails_its_records_and_nobody_waits_for_ever(
    error: BaseException, op: str, caplog: pytest.LogCaptureFixture
) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    broken = threading.Event()

    class Broken(WrappedStore):
        def _call(self, made: str, path: str, call: Callable[[], T]) -> T:
            if made == op and broken.is_set():
                raise error
            return call()

    with a_producer(through(Broken(memory), cluster)) as producer:
        producer.partitions_for("t")
        broken.set()
        found = error_of(producer.send("t", b"v"))
        assert isinstance(found, IllegalStateError)
        assert found.__cause__ is error
        assert "sending to topic 't' failed unexpectedly" in str(found)
        broken.clear()
        assert producer.send("t", b"after").get(LONG_S).offset == 0
        producer.flush(LONG_S)
        assert_empty(producer)
    assert caplog.records[0].levelname == "CRITICAL"


# Every store call of a producer's life: the process dies there, its answer is lost there, it sleeps there.

TABLES = [pa.table({"value": [f"{n}-{p}".encode() for p in (0, 1)], "partition": [0, 1]}) for n in range(4)]


def send_tables(cluster: Cluster, **settings: Any) -> list[int]:
    """Send four tables of two partitions, one after another; the numbers of those that were acknowledged."""
    acknowledged = []
    try:
        with Producer(cluster, acks=1, linger_ms=0, **{**QUICK, **settings}) as producer:
            for number, table in enumerate(TABLES):
                try:
                    producer.send_batch("t", table).get(LONG_S)
                except SparklogError:
                    continue
                acknowledged.append(number)
            producer.flush(LONG_S)
            assert_empty(producer)
    except BaseException as error:
        if type(error).__name__ != "SimulatedCrash":
            raise
    return acknowledged


def stored_tables(cluster: Cluster) -> list[int]:
    """The numbers of the tables that are in the log; of each all of it."""
    found = rows(cluster)
    numbers = [[int((value or b"").split(b"-")[0]) for _, _, value in found[partition]] for partition in (0, 1)]
    assert numbers[0] == numbers[1]
    return numbers[0]


def calls_of_sending() -> list[str]:
    memory = MemoryStore()
    cluster = a_topic(memory, partitions=2)
    store = FaultyStore(memory)
    assert send_tables(through(store, cluster)) == [0, 1, 2, 3]
    return [call.op for call in store.calls]


CALLS = calls_of_sending()


@pytest.mark.parametrize("fault", each_nth(crashes(len(CALLS)), 2), ids=lambda fault: f"{fault.kind.name} {fault.at}")
def test_a_process_that_dies_at_any_call_leaves_whole_tables_and_all_acknowledged(fault: Fault) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory, ManualClock(), partitions=2)
    store = FaultyStore(memory, fault)
    acknowledged = send_tables(through(store, cluster))
    assert store.crashed
    stored = stored_tables(cluster)
    assert stored in (acknowledged, [*acknowledged, len(acknowledged)])
    again = send_tables(cluster)  # another process
    assert stored_tables(cluster) == stored + again


@pytest.mark.parametrize(
    "fault",
    each_nth(
        (
            Fault(kind=kind, at=at)
            for at, op in enumerate(CALLS)
            for kind in (*PASSING, *([FaultKind.OWN_SUCCESS] if op == "create" else []))
        ),
        2,
    ),
    ids=lambda fault: f"{fault.kind.name} {fault.at}",
)
def test_an_answer_that_is_lost_at_any_call_changes_nothing(fault: Fault) -> None:
    memory = MemoryStore()
    cluster = a_topic(memory, ManualClock(), partitions=2)
    assert send_tables(through(FaultyStore(memory, fault), cluster)) == [0, 1, 2, 3]
    assert stored_tables(cluster) == [0, 1, 2, 3]


@pytest.mark.parametrize("others", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["alone", "others append"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", each_nth(range(len(CALLS)), 2))
def test_a_process_that_sleeps_an_hour_at_any_call_tells_the_truth(at: int, after: bool, others: bool) -> None:
    memory, clock = MemoryStore(), ManualClock()
    cluster = a_topic(memory, clock, partitions=2)
    store = InterruptedStore(memory)

    def meanwhile() -> None:
        clock.advance(3_600_000)
        if others:
            append_with(a_writer(cluster.topic_log("t")), "9-others", partition=0)
            append_with(a_writer(cluster.topic_log("t")), "9-others", partition=1)

    store.interrupt(meanwhile, at=at, after=after)
    acknowledged = send_tables(through(store, cluster))
    stored = [number for number in stored_tables(cluster) if number != 9]
    assert stored == acknowledged
    assert len(acknowledged) >= 3  # one may be late
