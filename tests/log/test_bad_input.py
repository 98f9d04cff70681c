"""What is broken, foreign or refused: the error names it, nothing that was acknowledged is lost, the rest goes on."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sparklog.delta.actions import AddFile, Protocol
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.errors import (
    CorruptLogError,
    CorruptRecordError,
    InvalidArgumentError,
    NotATopicError,
    StoreFullError,
    StorePermissionError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from sparklog.log.data.object_paths import object_path
from sparklog.log.follow import TopicFollower
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
from sparklog.storage import LocalStore, MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock
from tests.support import (
    T0_MS,
    a_log,
    a_topic,
    a_writer,
    append,
    contents,
    foreign_commit,
    foreign_file,
    foreign_records,
    inline_checkpoints,
    records,
    within,
)


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path):
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


def values(table):
    return [value.decode() for value in table["value"].to_pylist()]


# Data files


@pytest.mark.parametrize("stats", [True, False], ids=["with statistics", "without"])
@pytest.mark.parametrize("keep", [0, 10, -1], ids=lambda keep: f"first {keep} bytes")
def test_a_truncated_file_is_named_and_the_other_partitions_stay_readable(store, keep, stats):
    log = a_topic(store, num_partitions=2)
    writer = a_writer(log)
    append(writer, "a", partition=1)
    if stats:
        append(writer, "lost", "lost too")
        path = load_state(log).require_whole().index.partition(0)[0].path
    else:
        add = foreign_file(log, foreign_records("lost", "lost too"), base_offset=0)
        foreign_commit(log, add)
        path = add.path
    append(writer, "b", partition=1)
    follower = TopicFollower(log, "t")
    path = object_path(log.table, path)
    log.store.put(path, log.store.read(path)[:keep])
    for reader in (follower, TopicFollower(log, "t")):
        with pytest.raises(CorruptRecordError, match=path):
            reader.read(0, 0)
        with pytest.raises(CorruptRecordError, match=path):
            reader.offset_for_time(0, T0_MS)
        assert values(reader.read(1, 0)) == ["a", "b"]
    append(writer, "c", partition=1)
    follower.poll()
    assert values(follower.read(1, 2)) == ["c"]
    assert follower.head.log_end_offsets == (2, 3)


@pytest.mark.parametrize(
    "path",
    [
        "s3://elsewhere/x.parquet",
        "file:///etc/passwd",
        "file:/etc/passwd",
        "/etc/passwd",
        "../other/x.parquet",
        "a/../../other/x.parquet",
        "%2e%2e/other/x.parquet",
        "a//x.parquet",
    ],
)
def test_a_file_outside_of_the_table_is_refused_by_name_and_everything_else_goes_on(path):
    log = a_topic(num_partitions=2)
    writer, follower = a_writer(log, sync=True), TopicFollower(log, "t")
    append(writer, "a", partition=1)
    stats = {
        "numRecords": 1,
        "minValues": {"offset_delta": 0, "timestamp": "2023-11-14T22:13:20Z"},
        "maxValues": {"offset_delta": 0, "timestamp": "2023-11-14T22:13:20Z"},
    }
    add = replace(foreign_file(log, foreign_records("x"), base_offset=0), path=path)
    foreign_commit(log, add)
    foreign_commit(log, replace(add, path=path + "2", stats=stats))
    append(writer, "b", partition=1)
    append(writer, "c", partition=1)
    while follower.poll():
        pass
    for reader in (follower, TopicFollower(log, "t")):
        with pytest.raises(InvalidArgumentError, match=f"topics/t: data file {path}2? lies outside of the table"):
            reader.read(0, 0)
        assert values(reader.read(1, 0)) == ["a", "b", "c"]


def test_a_path_with_a_colon_in_a_folder_is_no_scheme():
    assert object_path("topics/t", "partition=0/a:b.parquet") == "topics/t/partition=0/a:b.parquet"
    assert object_path("topics/t", "a%3Ab.parquet") == "topics/t/a:b.parquet"


# Log entries

OPENERS = {
    "open": open_state,
    "load": load_state,
    "describe": lambda log: describe_topic(log, "t"),
    "follow": lambda log: TopicFollower(log, "t"),
    "write": a_writer,
    "create": lambda log: create_topic(log, "t"),
    "alter": lambda log: alter_topic(log, "t", {"retention.ms": 1}),
}


def without_last_line(data):
    return b"\n".join(data.splitlines()[:-1]) + b"\n"


DAMAGES = {
    "empty": lambda data: b"",
    "blank": lambda data: b"\n\n",
    "half": lambda data: data[: len(data) // 2],
    "a byte": lambda data: data[:1],
    "cut at the end of a line": without_last_line,
    "no JSON": lambda data: b"Lorem ipsum",
    "no UTF-8": lambda data: b"\xff\xfe" + data,
    "a list": lambda data: b"[]\n" + data,
    "a number": lambda data: b"7",
    "an add that is none": lambda data: b'{"add": 5}',
    "an add without a path": lambda data: b'{"add": {"size": 1}}',
    "a commitInfo that is none": lambda data: b'{"commitInfo": 5}',
    "a garbled commitInfo": lambda data: b'{"commitInfo": {"sparklog": 5}}',
    "zeros": lambda data: b"\0" * len(data),
}


def a_damaged_topic(damage, store=None, clock=None):
    """Its newest entry, version 2, is damaged. Returns also a writer and a follower that stand at version 1."""
    log = a_topic(store, clock)
    writer = a_writer(log)
    append(writer, "a")
    behind, follower = a_writer(log), TopicFollower(log, "t")
    append(writer, "b")
    path = entry_path(log.table, 2)
    log.store.put(path, damage(log.store.read(path)))
    return log, behind, follower


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_entry_is_named_by_whoever_opens_follows_or_appends(damage):
    log, behind, follower = a_damaged_topic(damage)
    name = entry_path(log.table, 2)
    for opener in OPENERS.values():
        with pytest.raises(CorruptLogError, match=name):
            opener(log)
    for _ in range(2):
        with pytest.raises(CorruptLogError, match=name):
            follower.poll()
        with pytest.raises(CorruptLogError, match=name):
            append(behind, "c")
    assert values(follower.read(0, 0)) == ["a"]


def test_a_damaged_entry_that_is_mended_stops_nobody_any_more():
    log, behind, follower = a_damaged_topic(lambda data: data)
    path = entry_path(log.table, 2)
    data = log.store.read(path)
    log.store.put(path, data[:20])
    with pytest.raises(CorruptLogError):
        append(behind, "c")
    with pytest.raises(CorruptLogError):
        follower.poll()
    log.store.put(path, data)
    append(behind, "c")
    while follower.poll():
        pass
    assert values(follower.read(0, 0)) == ["a", "b", "c"]


def test_a_damaged_entry_of_old_stops_only_those_who_need_it():
    log = a_topic()
    writer = a_writer(log)
    for value in "abc":
        append(writer, value)
    path = entry_path(log.table, 2)
    log.store.put(path, log.store.read(path)[:50])
    append(a_writer(log), "d")  # opened from the newest commit alone
    another = a_log(log.store)  # who created the entry a moment ago needn't read it
    for opener in (load_state, OPENERS["follow"], OPENERS["alter"], write_checkpoint):
        with pytest.raises(CorruptLogError, match=path):
            opener(another)


def test_a_missing_entry_is_named():
    log = a_topic()
    writer = a_writer(log)
    for value in "abc":
        append(writer, value)
    log.store.delete([entry_path(log.table, 2)])
    with pytest.raises(CorruptLogError, match="topics/t: version 2 is missing, though version 3 exists"):
        load_state(log)


# Tables that are no topic


@pytest.mark.parametrize("partition_by", [None, ["partition", "base_offset"]], ids=["plain", "partitioned as ours"])
def test_a_delta_table_that_is_no_topic_is_told_and_left_alone(tmp_path, partition_by):
    folder = tmp_path / "topics" / "t"
    write_deltalake(
        folder, pa.table({"partition": [0], "base_offset": [0], "value": [b"x"]}), partition_by=partition_by
    )
    log = a_log(LocalStore(tmp_path))
    before = [info.path for info in log.store.list("")]
    for opener in OPENERS.values():
        with pytest.raises(NotATopicError, match=r"topics/t is (a Delta table but )?no sparklog topic"):
            opener(log)
    assert [info.path for info in log.store.list("")] == before


@pytest.mark.parametrize("name", [None, "notes.txt", "_delta_log/notes.txt", "partition=0/x.parquet"])
def test_a_folder_without_a_table_is_an_unknown_topic(store, name):
    log = a_log(store)
    if name is not None:
        log.store.put(f"topics/t/{name}", b"x")
    for opener in ("open", "load", "describe", "follow", "write", "alter"):
        with pytest.raises(UnknownTopicOrPartitionError, match=r"there is no table at .*topics/t"):
            OPENERS[opener](log)
    create_topic(log, "t")
    append(a_writer(log), "a")
    assert contents(log) == {0: [(0, "a")]}


# Tables of tomorrow


def newer_entry(log):
    """An entry of a newer sparklog."""
    lines = log.store.read(entry_path(log.table, 1)).splitlines()
    info = json.loads(lines[0])
    info["commitInfo"]["sparklog"]["format"] = 3
    log.store.put(entry_path(log.table, 2), b"\n".join([json.dumps(info).encode(), *lines[1:]]))


def newer_topic(log):
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, "sparklog.format.version": "3"}))


def newer_reader(log):
    foreign_commit(log, Protocol(min_reader_version=2, min_writer_version=5))


def newer_writer(log):
    foreign_commit(log, Protocol(min_reader_version=1, min_writer_version=7))


@pytest.mark.parametrize(
    ("upgrade", "message"),
    [
        (newer_entry, r"0002\.json has format 3; this sparklog knows up to 2: upgrade"),
        (newer_topic, r"topics/t has topic format 3; this sparklog knows up to 2: upgrade"),
        (newer_reader, r"topics/t needs Delta reader version 2 .*; sparklog knows reader version 1, "),
    ],
)
def test_what_a_newer_version_wrote_is_refused_by_whoever_opens_follows_or_appends(upgrade, message):
    log = a_topic()
    writer, follower = a_writer(log), TopicFollower(log, "t")
    append(writer, "a")
    follower.poll()
    upgrade(log)
    for opener in OPENERS.values():
        with pytest.raises(UnsupportedVersionError, match=message):
            opener(log)
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match=message):
            follower.poll()
        with pytest.raises(UnsupportedVersionError, match=message):
            append(writer, "b")
    assert values(follower.read(0, 0)) == ["a"]
    assert len(list(log.store.list("topics/t/_delta_log/"))) == 3


WRITES: dict[str, Callable[[DeltaLog], object]] = {
    "open": a_writer,
    "alter": lambda log: alter_topic(log, "t", {"retention.ms": 1}),
    "grow": lambda log: create_partitions(log, "t", 2),
    "delete records": lambda log: delete_records(log, "t", {0: 1}),
    "sequence": sequence_topic,
    "delete": lambda log: delete_topic(log, "t"),
}


def test_a_table_for_newer_writers_only_is_read_and_followed_but_never_written():
    log = a_topic()
    writer, follower = a_writer(log), TopicFollower(log, "t")
    append(writer, "a")
    newer_writer(log)
    unsequenced = foreign_commit(log, foreign_file(log, foreign_records("unsequenced")))
    message = r"topics/t needs Delta writer version 7; sparklog knows writer version 6, "
    staged = writer.upload([(0, records("b"))])
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match=message):
            writer.append(staged, deadline=within(writer, 1_000))
    for write in WRITES.values():
        with pytest.raises(UnsupportedVersionError, match=message):
            write(log)
    assert open_state(log).position.version == unsequenced
    while follower.poll():
        pass
    for reader in (follower, TopicFollower(log, "t")):
        assert values(reader.read(0, 0)) == ["a"]
        assert reader.head == open_state(log).head == load_state(log).head
    assert describe_topic(log, "t").log_end_offsets == (1,)
    foreign_commit(log, foreign_file(log, foreign_records("by a newer writer"), base_offset=1))
    follower.poll()
    assert values(follower.read(0, 0)) == ["a", "by a newer writer"]
    with pytest.raises(TopicAlreadyExistsError):
        create_topic(log, "t")


def test_a_deleted_topic_is_not_created_again_in_a_table_for_newer_writers_only():
    log = a_topic()
    delete_topic(log, "t")
    newer_writer(log)
    with pytest.raises(UnsupportedVersionError, match="writer version 7"):
        create_topic(log, "t")


def test_a_table_that_is_open_to_our_writer_version_again_is_written_again():
    log = a_topic()
    newer_writer(log)
    foreign_commit(log, Protocol(min_reader_version=1, min_writer_version=2))
    append(a_writer(log), "a")
    assert contents(log) == {0: [(0, "a")]}


# Stores that refuse to write

REFUSALS = [(FaultKind.DISK_FULL, StoreFullError), (FaultKind.READ_ONLY, StorePermissionError)]


def refused_at(kind, number):
    """The ``number``-th write is refused, and no other."""
    return Fault(kind=kind, ops=["put", "create"], skip=number, times=1)


def writes(store):
    return [call for call in store.calls if call.op in ("put", "create")]


@pytest.mark.parametrize(("kind", "error"), REFUSALS, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.parametrize("number", [0, 1, 2], ids=["first file", "second file", "entry"])
def test_an_append_that_is_refused_shows_nothing_and_the_writer_works_again(kind, error, number):
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock, num_partitions=2)
    append(a_writer(log), "before")
    faulty = FaultyStore(memory, refused_at(kind, number))
    writer = a_writer(a_log(faulty, clock))
    batches = [(0, records("a", "b")), (1, records("c"))]
    with pytest.raises(error, match=kind.value) as caught:
        writer.append(writer.upload(batches), deadline=within(writer, 1_000))
    assert not caught.value.retriable
    assert len(writes(faulty)) == number + 1
    assert contents(log) == {0: [(0, "before")], 1: []}
    assert open_state(log).position.version == 1
    done = writer.append(writer.upload(batches), deadline=within(writer, 1_000))
    assert (done.base_offsets, done.delta_version) == ((1, 0), 2)
    append(writer, "d")
    assert contents(log) == {0: [(0, "before"), (1, "a"), (2, "b"), (3, "d")], 1: [(0, "c")]}
    found = TopicFollower(log, "t").read(0, 1)
    assert found["sequence"].to_pylist() == [0, 1, 2]  # of one producer id, without a gap
    assert set(found["producer_id"].to_pylist()) == {writer.producer_id}


@pytest.mark.parametrize(("kind", "error"), REFUSALS, ids=lambda value: getattr(value, "name", ""))
def test_files_whose_commit_was_refused_may_be_appended_as_they_are(kind, error):
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    writer = a_writer(a_log(FaultyStore(memory, Fault(kind=kind, ops=["create"])), clock))
    files = writer.upload([(0, records("a"))])
    with pytest.raises(error):
        writer.append(files, deadline=within(writer, 1_000))
    writer.append(files, deadline=within(writer, 1_000))
    assert contents(log) == {0: [(0, "a")]}


@pytest.mark.parametrize(("kind", "error"), REFUSALS, ids=lambda value: getattr(value, "name", ""))
def test_a_topic_whose_creation_is_refused_is_not_there_and_can_be_created_later(kind, error):
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_log(FaultyStore(memory, refused_at(kind, 0)), clock)
    with pytest.raises(error, match=kind.value):
        create_topic(log, "t")
    with pytest.raises(UnknownTopicOrPartitionError):
        describe_topic(log, "t")
    create_topic(log, "t")
    assert describe_topic(log, "t").delta_version == 0


@pytest.mark.parametrize(("kind", "error"), REFUSALS, ids=lambda value: getattr(value, "name", ""))
@pytest.mark.parametrize("number", [0, 1], ids=["checkpoint", "its hint"])
def test_a_checkpoint_that_is_refused_harms_nobody_and_the_next_is_written(kind, error, number):
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    append(writer, "a")
    with pytest.raises(error, match=kind.value):
        write_checkpoint(a_log(FaultyStore(memory, refused_at(kind, number)), clock))
    assert contents(log) == {0: [(0, "a")]}
    append(writer, "b")
    assert write_checkpoint(log) == 2
    assert open_state(log).checkpoint_version == 2
    assert contents(log) == {0: [(0, "a"), (1, "b")]}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind, _ in REFUSALS], ids=lambda kind: kind.name)
def test_an_append_whose_checkpoint_is_refused_succeeds_and_it_is_written_later(kind, caplog):
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    store = FaultyStore(memory, Fault(kind=kind, path="checkpoint", ops=["put", "create"]))
    writer = a_writer(a_log(store, clock), checkpoints=inline_checkpoints())
    with caplog.at_level(logging.WARNING):
        for number in range(100):
            append(writer, str(number))
    assert kind.value in caplog.text
    assert "checkpoint of topics/t failed" in caplog.text
    assert open_state(log).checkpoint_version == -1
    for number in range(100, 110):  # a tenth of the threshold later
        append(writer, str(number))
    assert open_state(log).checkpoint_version == 109
    assert contents(log) == {0: [(number, str(number)) for number in range(110)]}


def test_a_read_only_topic_can_be_read_and_followed():
    memory, clock = MemoryStore(), ManualClock(start_ms=T0_MS)
    log = a_topic(memory, clock)
    writer = a_writer(log)
    append(writer, "a")
    read_only = a_log(FaultyStore(memory, Fault(kind=FaultKind.READ_ONLY, times=None)), clock)
    follower = TopicFollower(read_only, "t")
    append(writer, "b")
    assert len(follower.poll()) == 1
    assert values(follower.read(0, 0)) == ["a", "b"]
    assert describe_topic(read_only, "t").log_end_offsets == (2,)
    with pytest.raises(StorePermissionError):
        append(a_writer(read_only), "c")


def test_a_foreign_commit_that_says_nothing_of_us_is_no_damage():
    log = a_topic()
    writer, follower = a_writer(log), TopicFollower(log, "t")
    add = AddFile(path="x.parquet", partition_values={}, size_bytes=1, modification_ms=1)
    log.store.create(
        entry_path(log.table, 1),
        json.dumps({"domainMetadata": {"x": 1}}).encode()
        + b"\n\n"
        + json.dumps({**add.to_json(), "cdc": {"path": "y"}}).encode(),
    )
    assert len(follower.poll()) == 1
    append(writer, "a")
    assert contents(log) == {0: [(0, "a")]}
