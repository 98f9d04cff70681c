"""Which offsets an append gets, and what may be appended."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config import TopicConfig
from sparklog.delta.actions import AddFile, SetTransaction
from sparklog.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.announced.plan import OwnFlush
from sparklog.log.append_plan import plan_append
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.data.encode import EncodedBatch
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.log.data.segments import segment_of_add
from sparklog.log.head import TopicHead
from sparklog.log.producer_state import ProducerEntry, producer_entry

PRODUCER = 9


def a_head(ends, **changes):
    fields = {
        "delta_version": 4,
        "topic_id": "id",
        "deleted": False,
        "config": TopicConfig(),
        "log_start_offsets": (0,) * len(ends),
        "log_end_offsets": tuple(ends),
        "live_file_count": 10,
        "unsequenced_count": 2,
    }
    return TopicHead(**{**fields, **changes})


def a_file(partition=0, count=1, *, path=None, base_sequence=0):
    stamp = ProducerStamp(PRODUCER, 0, base_sequence)
    batch = EncodedBatch(data=b"x" * 9, record_count=count, min_timestamp_ms=5, max_timestamp_ms=6, stamp=stamp)
    path = path or f"{partition}-{count}"
    return UploadedFile.of(path, partition, batch, uploaded_ms=77)


def plan(head, files, *, known=None, epoch=0, counter=0, topic_id="id"):
    entry = ProducerEntry(producer_epoch=epoch, counter=counter)
    own = [OwnFlush(announcer=None, number=0, files=(file,)) for file in files]
    planned = plan_append(
        head, known, own, topic="t", topic_id=topic_id, producer_id=PRODUCER, entry=entry, now_ms=1_000
    )
    return planned and (planned.commit, tuple(planned.base_offsets[file.path] for file in files))


@pytest.mark.slow
@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1, max_size=8),
)
def test_offsets_are_dense_and_in_the_order_of_the_files(ends, wanted):
    files = [a_file(partition % len(ends), count, path=str(n)) for n, (partition, count) in enumerate(wanted)]
    head = a_head(ends)
    commit, base_offsets = plan(head, files)
    expected: dict[int, list[int]] = {partition: [] for partition in range(len(ends))}
    for file, base in zip(files, base_offsets, strict=True):
        expected[file.partition] += range(base, base + file.record_count)
    for partition, end in enumerate(ends):
        given_out = expected[partition]
        assert given_out == list(range(end, end + len(given_out)))
        assert commit.head.log_end_offsets[partition] == end + len(given_out)
    assert commit.head.log_start_offsets == head.log_start_offsets
    assert commit.head.live_file_count == head.live_file_count + len(files)


def test_a_plan_changes_nothing_but_what_it_returns():
    head, files = a_head([5]), [a_file(0, 2)]
    before = replace(head), list(files)
    first, second = plan(head, files), plan(head, files)
    assert (head, files) == before
    assert first == second


def test_the_commit_is_a_blind_append_of_the_files_and_the_producers_state():
    commit, _ = plan(a_head([5, 7]), [a_file(1, 2, path="a"), a_file(1, 3, path="b")], counter=6)
    *adds, txn = commit.actions
    assert [add.path for add in adds] == ["a", "b"]
    assert [dict(add.partition_values) for add in adds] == [
        {"partition": "1", "base_offset": "7"},
        {"partition": "1", "base_offset": "9"},
    ]
    assert isinstance(txn, SetTransaction)
    assert producer_entry({txn.app_id: txn}, PRODUCER) == ProducerEntry(producer_epoch=0, counter=6)
    assert txn.last_updated_ms == 1_000
    assert commit.blind_append  # rule L13
    assert commit.operation == "WRITE"


def test_an_add_tells_everything_that_readers_search_by():
    commit, _ = plan(a_head([5]), [a_file(0, 3, base_sequence=40)])
    add = commit.actions[0]
    assert isinstance(add, AddFile)
    assert (add.size_bytes, add.modification_ms, add.data_change) == (9, 77, True)
    assert add.stats == {
        "numRecords": 3,
        "minValues": {
            "offset_delta": 0,
            "timestamp": "1970-01-01T00:00:00.005Z",
            "producer_id": PRODUCER,
            "sequence": 40,
        },
        "maxValues": {
            "offset_delta": 2,
            "timestamp": "1970-01-01T00:00:00.006Z",
            "producer_id": PRODUCER,
            "sequence": 42,
        },
        "nullCount": {"offset_delta": 0, "timestamp": 0, "producer_id": 0, "sequence": 0},
    }
    segment = segment_of_add(add, 5)
    assert (segment.first_offset, segment.last_offset, segment.has_stats) == (5, 7, True)


@pytest.mark.parametrize(
    ("base_sequence", "count", "bounds"),
    [
        (2**31 - 3, 3, (2**31 - 3, 2**31 - 1)),
        (2**31 - 3, 4, (0, 2**31 - 1)),
        (2**31 - 1, 1, (2**31 - 1, 2**31 - 1)),
        (2**31 - 1, 2, (0, 2**31 - 1)),
        (0, 1, (0, 0)),
    ],
)
def test_the_bounds_of_sequences_that_wrap_hold_every_one(base_sequence, count, bounds):
    stats = a_file(0, count, base_sequence=base_sequence).to_add(0).stats
    assert stats is not None
    assert (stats["minValues"]["sequence"], stats["maxValues"]["sequence"]) == bounds


@pytest.mark.parametrize(
    "head", [a_head([0], deleted=True), a_head([0], topic_id="another")], ids=["deleted", "created again"]
)
def test_a_topic_that_was_deleted_takes_nothing_even_if_it_was_created_again(head):
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 't' with id id was deleted"):
        plan(head, [a_file()])


def test_a_deleted_topic_is_told_even_where_the_log_holds_the_counter():
    known = ProducerEntry(producer_epoch=0, counter=3)
    with pytest.raises(UnknownTopicOrPartitionError):
        plan(a_head([0], topic_id="another"), [a_file()], known=known, counter=3)


@pytest.mark.parametrize("partition", [2, 3, -1])
def test_an_unknown_partition_is_refused_by_number_and_nothing_is_planned(partition):
    with pytest.raises(UnknownTopicOrPartitionError, match=f"no partition {partition}; it has 0 to 1"):
        plan(a_head([0, 0]), [a_file(0), a_file(partition)])


@pytest.mark.parametrize("counter", [3, 0])
def test_what_the_log_already_holds_is_not_planned_again(counter):
    assert plan(a_head([5]), [a_file()], known=ProducerEntry(producer_epoch=0, counter=3), counter=counter) is None


def test_a_gap_and_an_old_epoch_are_refused():
    known = ProducerEntry(producer_epoch=1, counter=3)
    with pytest.raises(OutOfOrderSequenceError):
        plan(a_head([5]), [a_file()], known=known, epoch=1, counter=5)
    with pytest.raises(InvalidProducerEpochError):
        plan(a_head([5]), [a_file()], known=known, epoch=0, counter=4)
