"""Batches that their producers have numbered: stored once, in their order, by whichever writer."""

from __future__ import annotations

import pytest

from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.cleanup import clean_log
from sparklog.delta.names import entry_path
from sparklog.errors import (
    CommitStateUnknownError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
)
from sparklog.log.data.producer_batch import PlacedBatch, ProducerBatch
from sparklog.log.state import load_state
from sparklog.log.topic import create_partitions, create_topic, delete_records, delete_topic
from sparklog.storage import MemoryStore
from sparklog.testing import CountingStore, ManualClock
from tests.support import T0_MS, a_log, a_topic, a_writer, contents, copy_of, entry_lines, records, within

LAST = 2**31 - 1
DAY_MS = 86_400_000


def batch(sequence, count=1, *, producer=7, epoch=0):
    return ProducerBatch(producer_id=producer, producer_epoch=epoch, base_sequence=sequence, count=count)


def stage(writer, *batches, partition=0):
    """One file of batches; a value tells its producer and sequence."""
    placed: list[PlacedBatch] = []
    values: list[str] = []
    for one in batches:
        placed.append(PlacedBatch(batch=one, start=len(values)))
        values += [f"{one.producer_id}:{one.base_sequence + number}" for number in range(one.count)]
    staged = writer.stage([(partition, records(*values))], numbered_by_producers=[tuple(placed)])
    return writer.put(staged)


def append(writer, *batches, partition=0):
    """Offsets of all rows, or the only error."""
    files = stage(writer, *batches, partition=partition)
    done = writer.append(files, deadline=within(writer, 120_000))
    rows = done.rows[0] if done.rows else None
    if rows is None:
        return [*range(done.base_offsets[0], done.base_offsets[0] + files[0].facts.record_count)]
    if rows.refused:
        return [error for _, error in rows.refused]
    return rows.offsets.tolist()


def an_old_topic(*, stored=True):
    """One that may have forgotten producers."""
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock)
    if stored:
        append(a_writer(log), batch(0, producer=99))
    clock.advance(8 * DAY_MS)
    return log


def values(log):
    return [value for _, value in contents(log)[0]]


def test_what_follows_is_stored_and_what_is_there_has_its_offset():
    log = a_topic()
    writer = a_writer(log)
    assert append(writer, batch(0, 2)) == [0, 1]
    assert append(writer, batch(2, 3)) == [2, 3, 4]
    assert append(writer, batch(0, 2)) == [0, 1]
    assert append(writer, batch(2, 3)) == [2, 3, 4]
    assert append(writer, batch(5)) == [5]
    assert values(log) == [f"7:{number}" for number in range(6)]


@pytest.mark.parametrize("wrong", [batch(3), batch(1), batch(1, 2), batch(0, 3), batch(0)])
def test_what_neither_follows_nor_is_there_as_it_is_is_refused(wrong):
    log = a_topic()
    writer = a_writer(log)
    append(writer, batch(0, 2))
    (error,) = append(writer, wrong)
    assert isinstance(error, OutOfOrderSequenceError)
    assert "expected 2" in str(error)
    assert append(writer, batch(2)) == [2]


def test_the_last_ten_batches_are_known():
    writer = a_writer(a_topic())
    for sequence in range(12):
        append(writer, batch(sequence))
    assert [append(writer, batch(sequence)) for sequence in range(2, 12)] == [[n] for n in range(2, 12)]
    (error,) = append(writer, batch(1))
    assert isinstance(error, OutOfOrderSequenceError)


def test_epochs_rise_and_begin_at_0():
    writer = a_writer(a_topic())
    append(writer, batch(0, epoch=1))
    (early,) = append(writer, batch(1, epoch=2))
    assert isinstance(early, OutOfOrderSequenceError)
    assert append(writer, batch(0, epoch=2)) == [1]
    (old,) = append(writer, batch(1, epoch=1))
    assert isinstance(old, InvalidProducerEpochError)
    assert append(writer, batch(1, epoch=2)) == [2]


def test_sequences_go_on_at_0_behind_the_greatest():
    writer = a_writer(an_old_topic())
    assert append(writer, batch(LAST - 1, 3)) == [1, 2, 3]
    assert append(writer, batch(1)) == [4]
    assert append(writer, batch(LAST - 1, 3)) == [1, 2, 3]


def test_producers_that_were_forgotten_go_on_anywhere_but_not_behind_what_failed():
    writer = a_writer(an_old_topic())
    assert append(writer, batch(400)) == [1]
    stage(writer, batch(5, producer=8))  # its commit fails, say
    (error,) = append(writer, batch(6, producer=8))
    assert isinstance(error, OutOfOrderSequenceError)
    assert append(writer, batch(5, producer=8)) == [2]
    stage(writer, batch(5, producer=10))
    stage(writer, batch(4, producer=10))  # the other one has overtaken it
    (error,) = append(writer, batch(5, producer=10))
    assert isinstance(error, OutOfOrderSequenceError)
    assert append(writer, batch(4, producer=10)) == [3]
    assert append(writer, batch(5, producer=10)) == [4]
    stage(writer, batch(LAST, producer=11))
    (error,) = append(writer, batch(0, producer=11))  # behind the greatest
    assert isinstance(error, OutOfOrderSequenceError)


@pytest.mark.parametrize("has_records", [False, True])
@pytest.mark.parametrize("is_young", [False, True])
def test_a_producer_that_cannot_have_been_forgotten_begins_at_0(has_records, is_young):
    """Else a batch that overtakes the first keeps that out for ever. Source: KAFKA-15591."""
    log = an_old_topic(stored=has_records) if not is_young else a_topic()
    if is_young and has_records:
        append(a_writer(log), batch(0, producer=99))
    first = 1 if has_records else 0
    if has_records and not is_young:
        assert append(a_writer(log), batch(3)) == [1]  # as in Kafka
        return
    one, other = a_writer(log), a_writer(log)
    (error,) = append(one, batch(3))
    assert isinstance(error, OutOfOrderSequenceError)
    assert "expected 0" in str(error)
    assert append(other, batch(0, 3)) == [first, first + 1, first + 2]
    assert append(one, batch(3)) == [first + 3]


def test_a_batch_behind_one_that_another_writer_has_stored_is_stored():
    """A writer refuses nothing before it has read on: the first batch may have come to the log since."""
    log = a_topic()
    one, other = a_writer(log), a_writer(log)
    append(one, batch(0, producer=8))
    append(other, batch(0))
    assert append(one, batch(1)) == [2]


def test_a_producer_whose_records_were_all_deleted_goes_on():
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock)
    append(a_writer(log), batch(0, 2))
    delete_records(log, "t", {0: 2})
    assert append(a_writer(log), batch(2)) == [2]
    clock.advance(9 * DAY_MS)
    delete_records(log, "t", {0: 3})
    write_checkpoint(log)  # without it, as it is too old
    assert append(a_writer(log), batch(9)) == [3]


def test_a_partition_that_is_added_later_begins_with_each_producer_at_0():
    log = an_old_topic()
    create_partitions(log, "t", 2)
    writer = a_writer(log)
    (error,) = append(writer, batch(3), partition=1)
    assert isinstance(error, OutOfOrderSequenceError)
    assert append(writer, batch(0, 3), partition=1) == [0, 1, 2]


def test_producers_and_partitions_are_counted_each_by_itself():
    writer = a_writer(a_topic(num_partitions=2))
    assert append(writer, batch(0), batch(0, producer=8), batch(1)) == [0, 1, 2]
    assert append(writer, batch(0), partition=1) == [0]
    assert append(writer, batch(1, producer=8)) == [3]


def test_of_one_file_the_rest_is_stored_and_the_same_batch_once():
    log = a_topic()
    writer = a_writer(log)
    append(writer, batch(0))
    files = stage(writer, batch(0), batch(0, producer=8), batch(5), batch(0, producer=8), batch(1, 2))
    done = writer.append(files, deadline=within(writer, 120_000))
    (rows,) = done.rows
    assert rows is not None
    assert rows.offsets.tolist() == [0, 1, -1, 1, 2, 3]
    assert [(where.start, where.stop) for where, _ in rows.refused] == [(2, 3)]
    assert values(log) == ["7:0", "8:0", "7:1", "7:2"]
    assert writer.append(stage(writer, batch(3)), deadline=within(writer, 120_000)).base_offsets == (4,)


def test_a_writer_looks_further_back_for_a_batch_that_is_repeated_late():
    log = a_topic()
    first = a_writer(log)
    append(first, batch(0, 2))
    append(first, batch(2))
    for sequence in range(300):
        append(first, batch(sequence, producer=8))
    counting = CountingStore(log.store)
    second = a_writer(a_log(counting, log.clock))
    assert append(second, batch(300, producer=8)) == [303]
    assert append(second, batch(0, 2)) == [0, 1]
    counting.reset()
    assert append(second, batch(2)) == [2]
    assert append(second, batch(3)) == [304]
    assert counting.counts() == {"put": 2, "create": 1}  # what was read once is known


def test_a_repeated_batch_is_stored_though_its_entry_was_cleaned_away():
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock)
    first = a_writer(log)
    append(first, batch(0, 2))
    append(first, batch(2, 3))
    for number in range(3):
        clock.advance(DAY_MS)
        append(first, batch(number, producer=8))
    write_checkpoint(log)
    append(first, batch(3, producer=8))
    cleaned = clean_log(log, retention_ms=DAY_MS)
    assert cleaned is not None
    assert cleaned.cleaned_below > 2
    second = a_writer(log)
    (error,) = append(second, batch(2, 3))
    assert isinstance(error, DuplicateSequenceError)
    assert "sequence 2 to 4 is stored" in str(error)
    for wrong in (batch(0, 2), batch(4), batch(6)):
        (error,) = append(second, wrong)
        assert isinstance(error, (OutOfOrderSequenceError, DuplicateSequenceError))
    assert append(second, batch(5)) == [9]
    (error,) = append(second, batch(4, 2))  # the newest batch is known now, and is another one
    assert isinstance(error, OutOfOrderSequenceError)


def cleaned(log, clock):
    """Days pass, and the log cleanup deletes the entries of before."""
    other = a_writer(log)
    for number in range(3):
        clock.advance(DAY_MS)
        append(other, batch(number, producer=id(other)))
    write_checkpoint(log)
    append(other, batch(3, producer=id(other)))
    done = clean_log(log, retention_ms=DAY_MS)
    assert done is not None
    return done.cleaned_below


def test_an_entry_of_a_sleeper_below_the_cleanups_mark_is_not_believed():
    clock = ManualClock(start_ms=T0_MS)
    store = MemoryStore(clock=clock)
    log = a_topic(store, clock)
    append(a_writer(log), batch(0))
    twin = a_log(copy_of(store), clock)
    append(a_writer(twin), batch(1))  # what the sleeper is about to create
    append(a_writer(log), batch(0, producer=8))
    assert cleaned(log, clock) > 2
    path = entry_path(log.table, 2)
    store.create(path, twin.store.read(path))
    assert append(a_writer(log), batch(1)) == [6]
    assert values(log).count("7:1") == 1


def test_a_writer_whose_position_was_cleaned_away_knows_what_a_fresh_one_does():
    clock = ManualClock(start_ms=T0_MS)
    log = a_topic(MemoryStore(clock=clock), clock)
    first, idle = a_writer(log), a_writer(log)
    append(first, batch(0))
    append(idle, batch(1))
    assert cleaned(log, clock) > 2
    for sequence in range(2, 6):
        append(first, batch(sequence))
    write_checkpoint(log)
    (error,) = append(idle, batch(2))
    assert isinstance(error, CommitStateUnknownError)  # its position was lost at the create: the client repeats it
    assert [append(idle, batch(sequence)) for sequence in range(2, 6)] == [[6], [7], [8], [9]]


def test_an_undecodable_entry_before_the_checkpoint_ends_the_search():
    log = a_topic()
    first = a_writer(log)
    for sequence in range(12):
        append(first, batch(sequence))
    for sequence in range(300):
        append(first, batch(sequence, producer=8))
    write_checkpoint(log)
    log.store.put(entry_path(log.table, 5), b"")
    writer = a_writer(log)
    done = writer.append(stage(writer, batch(0), batch(300, producer=8)), deadline=within(writer, 120_000))
    (rows,) = done.rows
    assert rows is not None
    assert rows.offsets.tolist() == [-1, 312]


def test_another_writer_knows_what_is_there_before_and_behind_a_checkpoint():
    log = a_topic()
    first = a_writer(log)
    append(first, batch(0, 2))
    write_checkpoint(log)
    append(first, batch(2))
    second = a_writer(log)
    assert append(second, batch(2)) == [2]
    assert append(second, batch(0, 2)) == [0, 1]
    assert append(second, batch(3)) == [3]
    assert append(first, batch(4)) == [4]  # it has to read first what the second stored
    assert append(first, batch(3)) == [3]


def test_a_batch_that_two_writers_commit_is_stored_once():
    log = a_topic()
    first, second = a_writer(log), a_writer(log)
    for writer in (first, second):
        append(writer, batch(0, producer=id(writer)))
    both = stage(first, batch(0, 2)), stage(second, batch(0, 2))
    done = [one.append(files, deadline=within(one, 9_000)) for one, files in zip((first, second), both, strict=True)]
    assert done[0].base_offsets == (2,)
    (rows,) = done[1].rows
    assert rows is not None
    assert rows.offsets.tolist() == [2, 3]
    assert values(log)[2:] == ["7:0", "7:1"]


def test_a_writer_that_lost_a_race_refuses_nothing_before_it_has_read_on():
    """Whoever acknowledged two batches to a client by one writer accepts the next of them by another."""
    log = a_topic()
    behind, other = a_writer(log), a_writer(log)
    append(behind, batch(0, producer=9))  # it has loaded the topic: producer 7 has stored nothing
    append(other, batch(0, 2))
    append(other, batch(2, 3))
    assert append(behind, batch(5)) == [6]
    assert values(log) == ["9:0", *(f"7:{number}" for number in range(6))]


def test_a_topic_of_the_same_name_knows_nothing_of_the_one_before():
    log = a_topic()
    append(a_writer(log), batch(0, 5))
    delete_topic(log, "t")
    create_topic(log, "t", num_partitions=1)
    assert append(a_writer(log), batch(0, 5)) == [0, 1, 2, 3, 4]


def test_the_log_says_what_was_stored():
    log = a_topic()
    append(a_writer(log), batch(0, 3, epoch=1))
    append(a_writer(log), batch(3, 2, epoch=1))
    lines = entry_lines(log, 2)
    topic_id = load_state(log).head.topic_id
    assert lines[0]["commitInfo"]["sparklog"]["producer_batches"] == [[7, 1, 0, 3, 2, 3]]
    numbers = {line["txn"]["appId"]: line["txn"]["version"] for line in lines if "txn" in line}
    assert numbers[f"batches:{topic_id}.0.7"] == (1 << 32) + 4


def test_a_writer_that_has_the_topic_loaded_asks_for_nothing_more():
    log = a_topic()
    writer = a_writer(log)
    append(writer, batch(0))
    store = CountingStore(log.store)
    counted = a_writer(a_log(store, log.clock))
    append(counted, batch(1))
    store.reset()
    append(counted, batch(2))
    assert store.counts() == {"put": 1, "create": 1}


def test_the_writers_own_counter_goes_on_where_nothing_of_an_append_was_stored():
    log = a_topic()
    writer = a_writer(log)
    append(writer, batch(0))
    append(writer, batch(0))
    assert append(writer, batch(1)) == [1]
    assert append(writer, batch(2)) == [2]
