"""A sequencing that makes several files of one, killed, cut off, or asleep at any store call; and two at once."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from sparklog.delta.actions import RemoveFile
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.log import DeltaLog
from sparklog.errors import KafkaTimeoutError, SparklogError
from sparklog.log.data.murmur2 import key_partitions
from sparklog.log.sequencing.sequencing import sequence_topic
from sparklog.log.state import load_state, open_state
from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, crashes
from sparklog.testing.interrupted_store import InterruptedStore
from tests.depth import each_nth
from tests.support import (
    DAY_MS,
    T0_MS,
    OvertakenStore,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    foreign_commit,
    foreign_file,
)

PARTITIONS = 3
KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]
VALUES = "012345"
PLACES = key_partitions(pa.array(KEYS), PARTITIONS).tolist()
OURS = {partition: [(0, f"own{partition}")] for partition in range(PARTITIONS)}
BOTH = {
    partition: [
        *rows,
        *((1 + at, value) for at, value in enumerate(v for v, p in zip(VALUES, PLACES, strict=True) if p == partition)),
    ]
    for partition, rows in OURS.items()
}
"""What is readable afterwards."""


def prepared() -> tuple[MemoryStore, ManualClock, str]:
    """A topic with a record in each partition, and a file without a partition; its path."""
    clock = ManualClock(start_ms=T0_MS)
    memory = MemoryStore(clock=clock)
    log = a_topic(memory, clock, num_partitions=PARTITIONS)
    writer = a_writer(log)
    for partition in range(PARTITIONS):
        append(writer, f"own{partition}", partition=partition)
    table = pa.table({"key": KEYS, "value": [value.encode() for value in VALUES]})
    add = foreign_file(log, table, partition=None)
    foreign_commit(log, add)
    return memory, clock, add.path


def calls() -> list[str]:
    memory, clock, _ = prepared()
    store = FaultyStore(memory)
    sequence_topic(a_log(store, clock))
    return [call.op for call in store.calls]


def check(memory: MemoryStore, clock: ManualClock, expected: dict[int, list[tuple[int, str]]]) -> None:
    log = a_log(memory, clock)
    assert contents(log) == expected
    assert open_state(log).head == load_state(log).head
    ends = load_state(log).head.log_end_offsets
    for partition in range(PARTITIONS):
        assert append(a_writer(log), "next", partition=partition).base_offsets == (ends[partition],)


def test_each_partition_has_some_of_the_file() -> None:
    assert set(PLACES) == set(range(PARTITIONS))
    assert calls().count("put") == PARTITIONS


@pytest.mark.parametrize(
    "fault", each_nth(crashes(len(calls())), 2), ids=lambda fault: f"{fault.kind.name.lower()} {fault.at}"
)
def test_killed_anywhere_the_file_is_sequenced_whole_or_not_and_the_next_finishes_it(fault: Fault) -> None:
    memory, clock, _ = prepared()
    with pytest.raises(SimulatedCrash):
        sequence_topic(a_log(FaultyStore(memory, fault), clock))
    assert contents(a_log(memory, clock)) in (OURS, BOTH)
    sequence_topic(a_log(memory, clock))
    check(memory, clock, BOTH)


@pytest.mark.parametrize(
    "kind", [FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.CONFLICT, FaultKind.OWN_SUCCESS]
)
@pytest.mark.parametrize("at", each_nth(range(len(calls())), 2))
def test_an_answer_that_is_lost_anywhere_changes_nothing_and_the_result_is_true(kind: FaultKind, at: int) -> None:
    memory, clock, _ = prepared()
    store = FaultyStore(memory, Fault(kind=kind, at=at), clock=clock)
    result = sequence_topic(a_log(store, clock))
    assert (result.sequenced_count, result.record_count, dict(result.refused)) == (1, 6, {})
    check(memory, clock, BOTH)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", each_nth(range(len(calls())), 5))
@pytest.mark.parametrize("other", ["nobody", "another sequencer", "a user's DELETE"])
def test_asleep_anywhere_for_two_days_of_commits_and_cleanups_nothing_is_there_twice(
    other: str, at: int, after: bool
) -> None:
    memory, clock, path = prepared()

    def two_days_pass() -> None:
        log = a_log(memory, clock)
        gone = path not in load_state(log).require_whole().index.by_path
        if other == "another sequencer":
            sequence_topic(log)
        elif other == "a user's DELETE" and not gone:
            foreign_commit(log, RemoveFile(path=path, deletion_ms=1))
        writer = a_writer(log)
        for _ in range(4):
            clock.advance(DAY_MS / 2)
            append(writer, "meanwhile", timeout_ms=10**12)
        write_checkpoint(log)
        append(writer, "meanwhile")
        clean_log(log, retention_ms=DAY_MS)

    store = InterruptedStore(memory)
    store.interrupt(two_days_pass, at=at, after=after)
    try:
        sequence_topic(a_log(store, clock))
    except SparklogError:
        sequence_topic(a_log(memory, clock))  # it timed out
    values = [value for rows in contents(a_log(memory, clock)).values() for _, value in rows]
    foreign = sorted(value for value in values if value in VALUES)
    assert foreign == [*VALUES] or (foreign == [] and other == "a user's DELETE")
    assert values.count("meanwhile") == 5
    for partition, rows in contents(a_log(memory, clock)).items():
        own = [value for _, value in rows if value in VALUES]
        assert own == sorted(own)
        assert all(PLACES[VALUES.index(value)] == partition for value in own)


def act(memory: MemoryStore, clock: ManualClock, others: Callable[[DeltaLog], object], *, times: int = 1) -> int:
    """Sequence, and let others act right before the create. How many files were sequenced."""
    store = OvertakenStore(memory, lambda: others(a_log(memory, clock)), times=times)
    return sequence_topic(a_log(store, clock)).sequenced_count


def test_of_two_sequencers_one_publishes_the_file() -> None:
    memory, clock, _ = prepared()
    assert act(memory, clock, sequence_topic) == 0
    check(memory, clock, BOTH)


def test_a_file_that_a_user_deletes_meanwhile_is_in_no_partition() -> None:
    memory, clock, path = prepared()
    assert act(memory, clock, lambda log: foreign_commit(log, RemoveFile(path=path, deletion_ms=1))) == 0
    check(memory, clock, OURS)


def test_appends_that_win_every_race_for_a_while_come_first() -> None:
    memory, clock, _ = prepared()
    writer = a_writer(a_log(memory, clock))
    assert act(memory, clock, lambda log: append(writer, "x", partition=1), times=5) == 1
    found = contents(a_log(memory, clock))
    assert [value for _, value in found[1]][1:6] == ["x"] * 5
    assert [offset for offset, _ in found[1]] == [*range(len(found[1]))]


def test_copies_that_were_put_more_than_a_day_ago_are_not_committed() -> None:
    """The sweep of orphans may have taken them (rule L10); the foreign file stays, and is sequenced anew."""
    memory, clock, _ = prepared()
    store = InterruptedStore(memory)
    store.interrupt(
        lambda: clock.advance(DAY_MS + 1), at=max(n for n, op in enumerate(calls()) if op == "put"), after=True
    )
    with pytest.raises(KafkaTimeoutError, match="begins anew: it took 24"):
        sequence_topic(a_log(store, clock))
    assert contents(a_log(memory, clock)) == OURS
    assert sequence_topic(a_log(memory, clock)).sequenced_count == 1
    check(memory, clock, BOTH)
