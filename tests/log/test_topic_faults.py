"""Every store call of every operation: the process dies there, its answer is lost there, or it sleeps there.

After each, a fresh reader sees what was acknowledged once, what was not acknowledged once or not at all, and the
topic goes on: the operation can be done again and appends work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.errors import SparklogError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.log.topic import (
    alter_topic,
    create_partitions,
    create_topic,
    delete_records,
    delete_topic,
    describe_topic,
)
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, crashes
from sparklog.testing.interrupted_store import InterruptedStore
from tests.depth import each_nth
from tests.support import DAY_MS, T0_MS, a_log, a_topic, a_writer, append, contents, unsequenced_file

Step = Callable[[DeltaLog], object]

ACKNOWLEDGED = [(0, "a0"), (1, "a1"), (2, "a2"), (3, "a3")]


@dataclass(frozen=True)
class Operation:
    """Something that a process does to a topic which holds ``ACKNOWLEDGED``, and what a reader may see afterwards."""

    name: str
    act: Step
    before: list[tuple[int, str]]
    """What is readable if it was not carried out."""
    after: list[tuple[int, str]]
    """What is readable once it was."""
    setup: Step = lambda log: None
    again: Step | None = None
    """What finishes it after a crash; by default the same act."""


def append_one(log: DeltaLog) -> object:
    return append(a_writer(log), "new0", "new1")


def two_old_days(log: DeltaLog) -> None:
    clock = log.clock
    assert isinstance(clock, ManualClock)
    clock.advance(2 * DAY_MS)
    write_checkpoint(log)


def foreign_file(log: DeltaLog) -> None:
    unsequenced_file(log, "f0", "f1")


def already_there(act: Step) -> Step:
    """The act again, for which it is as good if it had been carried out before."""

    def again(log: DeltaLog) -> None:
        try:
            act(log)
        except (TopicAlreadyExistsError, UnknownTopicOrPartitionError):
            return
        except SparklogError as error:
            if "partitions only grow" not in str(error):
                raise

    return again


OPERATIONS = [
    Operation(
        name="append",
        act=append_one,
        before=ACKNOWLEDGED,
        after=[*ACKNOWLEDGED, (4, "new0"), (5, "new1")],
        again=lambda log: None,
    ),
    Operation(name="checkpoint", act=write_checkpoint, before=ACKNOWLEDGED, after=ACKNOWLEDGED),
    Operation(
        name="cleanup",
        setup=two_old_days,
        act=lambda log: clean_log(log, retention_ms=DAY_MS),
        before=ACKNOWLEDGED,
        after=ACKNOWLEDGED,
    ),
    Operation(
        name="sequencing",
        setup=foreign_file,
        act=sequence_topic,
        before=ACKNOWLEDGED,
        after=[*ACKNOWLEDGED, (4, "f0"), (5, "f1")],
    ),
    Operation(
        name="delete records",
        act=lambda log: delete_records(log, "t", {0: 2}),
        before=ACKNOWLEDGED,
        after=ACKNOWLEDGED[2:],
    ),
    Operation(
        name="alter",
        act=lambda log: alter_topic(log, "t", {"retention.ms": 5}),
        before=ACKNOWLEDGED,
        after=ACKNOWLEDGED,
    ),
    Operation(
        name="create partitions",
        act=lambda log: create_partitions(log, "t", 3),
        before=ACKNOWLEDGED,
        after=ACKNOWLEDGED,
        again=already_there(lambda log: create_partitions(log, "t", 3)),
    ),
]


def prepared(operation: Operation) -> tuple[MemoryStore, ManualClock]:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    for value in ("a0", "a1", "a2", "a3"):
        append(writer, value)
    operation.setup(log)
    return memory, clock


def calls_of(operation: Operation) -> list[str]:
    """The ops of the store calls that the operation makes, in order."""
    memory, clock = prepared(operation)
    store = FaultyStore(memory)
    operation.act(a_log(store, clock))
    return [call.op for call in store.calls]


CHANGES = ("put", "create", "delete", "sync", "sync_all")


def crashes_in(ops: list[str]) -> Iterator[Fault]:
    """Before every call, and after every call that changes something: after a read is before the next call."""
    return (f for f in crashes(len(ops)) if f.kind is FaultKind.CRASH_BEFORE or ops[f.at or 0] in CHANGES)


def troubles_in(ops: list[str]) -> Iterator[Fault]:
    lost = (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.CONFLICT, FaultKind.THROTTLED)
    for number, op in enumerate(ops):
        if op in ("sync", "sync_all"):
            continue  # an fsync that fails is no passing refusal: see test_commit_faults.py
        kinds = (*lost, FaultKind.OWN_SUCCESS) if op == "create" else lost if op in CHANGES else (FaultKind.THROTTLED,)
        yield from (Fault(kind=kind, at=number) for kind in kinds)


def refusals_in(ops: list[str]) -> Iterator[Fault]:
    for number, op in enumerate(ops):
        kinds = {"delete": (FaultKind.READ_ONLY,), "put": (FaultKind.DISK_FULL, FaultKind.READ_ONLY)}
        yield from (Fault(kind=kind, at=number) for kind in kinds.get("put" if op == "create" else op, ()))


def each(faults: Callable[[list[str]], Iterator[Fault]]) -> list[object]:
    return [
        pytest.param(operation, fault, id=f"{operation.name}: {fault.kind.name.lower()} at call {fault.at}")
        for operation in OPERATIONS
        for fault in each_nth(faults(calls_of(operation)), 6)
    ]


def check_goes_on(memory: MemoryStore, clock: ManualClock, *, expected: list[tuple[int, str]]) -> None:
    """The topic reads as expected, by the newest commit and whole alike, and takes another append."""
    log = a_log(memory, clock)
    assert contents(log)[0] == expected
    light, whole = open_state(log).head, load_state(log).head
    assert light.log_end_offsets == whole.log_end_offsets
    assert light.log_start_offsets == whole.log_start_offsets
    end = whole.log_end_offsets[0]
    assert append(a_writer(log), "goes on").base_offsets == (end,)
    assert contents(log)[0] == [*expected, (end, "goes on")]


@pytest.mark.parametrize(("operation", "fault"), each(crashes_in))
def test_a_process_that_dies_at_any_store_call_leaves_the_topic_whole(operation: Operation, fault: Fault) -> None:
    memory, clock = prepared(operation)
    with pytest.raises(SimulatedCrash):
        operation.act(a_log(FaultyStore(memory, fault), clock))

    seen = contents(a_log(memory, clock))[0]
    assert seen in (operation.before, operation.after)
    (operation.again or operation.act)(a_log(memory, clock))
    check_goes_on(memory, clock, expected=seen if operation.again and operation.name == "append" else operation.after)


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "fault"), each(troubles_in))
def test_a_lost_answer_or_a_passing_refusal_at_any_store_call_changes_nothing(
    operation: Operation, fault: Fault
) -> None:
    memory, clock = prepared(operation)
    operation.act(a_log(FaultyStore(memory, fault, clock=clock), clock))
    check_goes_on(memory, clock, expected=operation.after)


@pytest.mark.parametrize(("operation", "fault"), each(refusals_in))
def test_a_full_or_read_only_disk_at_any_call_is_reported_and_leaves_the_topic_whole(
    operation: Operation, fault: Fault
) -> None:
    memory, clock = prepared(operation)
    store = FaultyStore(memory, fault)
    with pytest.raises(SparklogError, match="injected"):
        operation.act(a_log(store, clock))
    expected = contents(a_log(memory, clock))[0]
    assert expected in (operation.before, operation.after)
    check_goes_on(memory, clock, expected=expected)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("operation", "at"),
    [
        pytest.param(o, n, id=f"{o.name} at call {n}")
        for o in OPERATIONS
        if o.name != "cleanup"
        for n in each_nth(range(len(calls_of(o))), 8)
    ],
)
def test_a_process_may_sleep_two_days_of_commits_and_cleanups_at_any_store_call(
    operation: Operation, at: int, after: bool
) -> None:
    memory, clock = prepared(operation)

    def two_days_pass() -> None:
        log = a_log(memory, clock)
        writer = a_writer(log)
        for _ in range(6):
            clock.advance(DAY_MS / 3)
            append(writer, "meanwhile", timeout_ms=10**12)
        write_checkpoint(log)
        append(writer, "meanwhile")
        clean_log(log, retention_ms=DAY_MS)

    store = InterruptedStore(memory)
    store.interrupt(two_days_pass, at=at, after=after)
    told = True
    try:
        operation.act(a_log(store, clock))
    except SparklogError:
        told = False  # it timed out; it must not have done half of it

    seen = contents(a_log(memory, clock))[0]
    offsets = [offset for offset, _ in seen]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    assert sum(value == "meanwhile" for _, value in seen) == 7
    own = [(value) for _, value in seen if value != "meanwhile"]
    allowed = [[value for _, value in operation.after], [value for _, value in operation.before]]
    assert own in (allowed[:1] if told else allowed)


CREATE_TOPIC = ["get", "list", "create"]


def created(log: DeltaLog) -> object:
    return create_topic(log, "t", num_partitions=2)


@pytest.mark.parametrize(
    "fault", list(crashes_in(CREATE_TOPIC)), ids=lambda fault: f"{fault.kind.name.lower()} at call {fault.at}"
)
def test_a_process_that_dies_while_it_creates_a_topic_leaves_one_or_none(fault: Fault) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    with pytest.raises(SimulatedCrash):
        created(a_log(FaultyStore(memory, fault), clock))
    already_there(created)(a_log(memory, clock))
    assert describe_topic(a_log(memory, clock), "t").partition_count == 2
    check_goes_on(memory, clock, expected=[])


def test_the_walk_over_create_topic_covers_all_its_calls() -> None:
    store = FaultyStore(MemoryStore())
    created(a_log(store))
    assert [call.op for call in store.calls] == CREATE_TOPIC


@pytest.mark.parametrize(
    "fault", list(troubles_in(CREATE_TOPIC)), ids=lambda fault: f"{fault.kind.name.lower()} at call {fault.at}"
)
def test_a_lost_answer_while_creating_a_topic_doesnt_make_it_exist_already(fault: Fault) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    created(a_log(FaultyStore(memory, fault), clock))
    check_goes_on(memory, clock, expected=[])


def deleted_and_created(log: DeltaLog) -> None:
    already_there(lambda log: delete_topic(log, "t"))(log)
    already_there(created)(log)


def calls_of_deleting_and_creating() -> list[str]:
    store = FaultyStore(MemoryStore())
    log = a_topic(store)
    append(a_writer(log), "old")
    before = len(store.calls)
    deleted_and_created(log)
    return [call.op for call in store.calls[before:]]


@pytest.mark.parametrize(
    "fault",
    each_nth([*crashes_in(calls_of_deleting_and_creating()), *troubles_in(calls_of_deleting_and_creating())], 2),
    ids=lambda fault: f"{fault.kind.name.lower()} at call {fault.at}",
)
def test_deleting_and_creating_again_survives_a_fault_at_any_store_call(fault: Fault) -> None:
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock)
    append(a_writer(log), "old")
    store = FaultyStore(memory, fault, clock=clock)
    try:
        deleted_and_created(a_log(store, clock))
    except SimulatedCrash:
        seen = open_state(log).head
        if not seen.deleted:
            assert contents(log)[0] in ([(0, "old")], [])
        deleted_and_created(log)
    else:
        assert store.crashed is False
    check_goes_on(memory, clock, expected=[])
