"""A task's rows as data files, the options and columns of the sink, and the commit of a batch query: without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.clock import Clock
from sparklog.errors import (
    CommitStateUnknownError,
    IllegalStateError,
    InvalidArgumentError,
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    SparklogError,
    StorePermissionError,
    TransactionTimedOutError,
    UnknownTopicOrPartitionError,
)
from sparklog.log import Cluster, create_partitions, create_topic, delete_topic
from sparklog.log.follow import TopicFollower
from sparklog.paths import transaction_log
from sparklog.producer.partitioner import StickyPartition, key_partitions
from sparklog.spark.sink import sink_writing
from sparklog.spark.sink.sink_commit import (
    QueryRun,
    commit_batch,
    commit_job,
    commit_numbered,
    gathered,
    small_files,
)
from sparklog.spark.sink.sink_options import NumberedWrite, SinkOptions, check_columns, field_columns, sink_options
from sparklog.spark.sink.sink_writing import TaskFiles, TaskWriter, by_topic, spread_keyless
from sparklog.spark.sink.small_tasks import SMALL_BYTES, TaskOutput, most_bytes, take_few, write_rows
from sparklog.storage import MemoryStore, ObjectStore
from sparklog.storage.retrying import RetryingStore
from sparklog.streaming.cluster_cache import cached_cluster, shared_store
from sparklog.streaming.cluster_ref import ClusterRef
from sparklog.testing import Fault, FaultKind, FaultyStore, ManualClock, SimulatedCrash, crashes
from sparklog.txn.committing import UploadCommitter
from tests.support import DAY_MS, T0_MS

OPTIONS = SinkOptions(uri="memory://")


def a_cluster(store: ObjectStore | None = None, clock: Clock | None = None) -> Cluster:
    clock = clock or ManualClock(start_ms=T0_MS)
    store = store if store is not None else MemoryStore(clock=clock)
    return Cluster(cluster_id="c", store=RetryingStore(store, clock=clock), clock=clock)


def two_topics(**configs: object) -> Cluster:
    """``t`` of three partitions, with these settings, and ``u`` of one."""
    cluster = a_cluster()
    create_topic(cluster.topic_log("t"), "t", num_partitions=3, configs=configs)
    create_topic(cluster.topic_log("u"), "u", num_partitions=1)
    return cluster


def write(cluster: Cluster, *batches: dict[str, Any], topic: str | None = "t", **options: Any) -> tuple[TaskFiles, ...]:
    """What one task does with Arrow batches of these columns."""
    writer = TaskWriter(cluster, SinkOptions(uri="memory://", topic=topic, **options), {})
    return writer.write([pa.record_batch(batch) for batch in batches])


def rows(cluster: Cluster, topic: str = "t") -> list[dict[str, Any]]:
    follower = TopicFollower(cluster.topic_log(topic), topic)
    found: list[dict[str, Any]] = []
    for partition in range(follower.head.partition_count):
        table = follower.read(partition, 0, max_records=1_000_000)
        found += [{"partition": partition, **row} for row in table.to_pylist()]
    return found


def values(cluster: Cluster, topic: str = "t") -> list[bytes]:
    return [row["value"] for row in rows(cluster, topic)]


def data_files(cluster: Cluster) -> list[str]:
    return [found.path for found in cluster.store.list("topics/") if "/partition=" in found.path]


# --- rows


def test_all_columns_arrive() -> None:
    cluster = two_topics()
    time = pa.array([T0_MS * 1000 + 1_999, None], pa.timestamp("us", "UTC"))
    headers = pa.array(
        [[("a", b"1"), ("a", None)], None], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    columns = {
        "key": pa.array(["k", None], pa.large_string()),
        "value": pa.array([None, b""], pa.large_binary()),
        "headers": headers,
        "partition": pa.array([2, 0], pa.int32()),
        "timestamp": time,
        "topic": ["u", "u"],
        "offset": [7, 8],
        "timestampType": pa.array([0, 0], pa.int32()),
    }
    commit_job(cluster, None, write(cluster, columns))
    first, second = rows(cluster)  # the option topic goes before the column
    assert first["partition"] == 0
    assert (first["key"], first["value"], first["headers"]) == (None, b"", None)
    assert first["timestamp"].timestamp() * 1000 == T0_MS
    assert second["partition"] == 2
    assert (second["key"], second["value"]) == (b"k", None)
    assert second["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert second["timestamp"].timestamp() * 1000 == T0_MS + 1


def test_keys_go_where_the_producer_sends_them() -> None:
    cluster = two_topics()
    keys = [f"key {number}" for number in range(300)]
    commit_job(cluster, None, write(cluster, {"key": keys, "value": keys}))
    expected = key_partitions(pa.array([key.encode() for key in keys], pa.binary()), 3)
    assert {row["key"].decode(): row["partition"] for row in rows(cluster)} == dict(zip(keys, expected, strict=True))


def test_rows_go_to_their_topics_in_their_order() -> None:
    cluster = two_topics()
    batches = [
        {"topic": ["t", "u", "t"], "value": ["1", "2", "3"], "partition": pa.array([1, None, 1], pa.int32())},
        {"topic": ["u", "t", "u"], "value": ["4", "5", "6"], "partition": pa.array([0, 1, 0], pa.int32())},
    ]
    files = write(cluster, *batches, topic=None)
    assert [(one.topic, len(one.files)) for one in files] == [("t", 1), ("u", 1)]
    commit_job(cluster, None, files)
    assert values(cluster, "t") == [b"1", b"3", b"5"]
    assert values(cluster, "u") == [b"2", b"4", b"6"]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=30))
def test_by_topic_keeps_every_row_and_the_order_within_a_topic(topics: list[str]) -> None:
    table = pa.table({"topic": topics, "value": list(range(len(topics)))})
    found = {name: part["value"].to_pylist() for name, part in by_topic(table, None)}
    assert found == {name: [at for at, one in enumerate(topics) if one == name] for name in set(topics)}


def test_many_keyless_rows_are_spread_and_few_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_writing, "STICKY_BYTES", 100)
    is_loose = np.array([place not in (20, 40) for place in range(41)])
    sizes = np.full(41, 10, np.int32)
    partitions = np.full(41, 2, np.int32)
    partitions[20] = 1
    spread_keyless(is_loose, sizes, partitions, 4, StickyPartition(100))
    runs = [set(partitions[:9].tolist()), set(partitions[9:19].tolist()), set(partitions[21:29].tolist())]
    assert all(len(run) == 1 for run in runs)
    assert len(set.union(*runs)) > 1
    assert partitions[20] == 1
    assert partitions[40] == 2
    few = np.full(8, 3, np.int32)
    spread_keyless(is_loose[:8], sizes[:8], few, 4, StickyPartition(100))
    assert set(few.tolist()) == {3}


def test_what_a_task_gathers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_writing, "GATHERED_BYTES", 10_000)
    cluster = two_topics()
    numbers = [f"{number:0100d}" for number in range(1_000)]
    [done] = write(cluster, {"topic": ["u"] * 1_000, "value": numbers}, {"topic": [], "value": []}, topic=None)
    assert 6 <= len(done.files) <= 11
    assert sum(file.record_count for file in done.files) == 1_000
    assert [file.stamp.base_sequence for file in done.files] == [
        sum(file.record_count for file in done.files[:at]) for at in range(len(done.files))
    ]
    commit_job(cluster, None, [done])
    assert [value.decode() for value in values(cluster, "u")] == numbers


def test_a_task_without_rows_writes_nothing() -> None:
    cluster = two_topics()
    assert write(cluster) == ()
    assert write(cluster, {"value": pa.array([], pa.string())}) == ()
    commit_job(cluster, None, [])


def test_the_log_s_time_is_the_one_of_the_upload() -> None:
    cluster = two_topics(**{"message.timestamp.type": "LogAppendTime"})
    commit_job(
        cluster, None, write(cluster, {"value": ["v"], "timestamp": pa.array([10**15], pa.timestamp("us", "UTC"))})
    )
    assert rows(cluster)[0]["timestamp"].timestamp() * 1000 == T0_MS


@pytest.mark.parametrize(
    ("columns", "topic", "configs", "error", "message"),
    [
        ({"value": ["v"], "topic": [None]}, None, {}, InvalidArgumentError, "1 rows have a null topic"),
        ({"value": ["v"]}, "nowhere", {}, UnknownTopicOrPartitionError, "nowhere"),
        ({"value": ["v"], "topic": ["a b"]}, None, {}, InvalidTopicError, "a b"),
        ({"value": ["v"], "partition": [3]}, "t", {}, InvalidArgumentError, "write to 't': column partition has 3"),
        ({"value": ["v" * 50]}, "t", {"max.message.bytes": 20}, MessageSizeTooLargeError, "kafka.max.request.size"),
        ({"value": ["v"]}, "t", {"cleanup.policy": "compact"}, InvalidRecordError, "expected a record with a key"),
        (
            {"value": ["v"], "timestamp": pa.array([0], pa.timestamp("us", "UTC"))},
            "t",
            {"message.timestamp.before.max.ms": 1_000},
            InvalidTimestampError,
            "timestamp 0 ms",
        ),
    ],
)
def test_rows_that_no_topic_takes_are_refused_and_leave_no_file(
    columns: dict[str, Any], topic: str | None, configs: dict[str, object], error: type[SparklogError], message: str
) -> None:
    cluster = two_topics(**configs)
    good = {name: values[:0] for name, values in columns.items()}
    with pytest.raises(error, match=message):
        write(cluster, good, columns, topic=topic)
    if topic is None:  # the rows before it are uploaded by then
        cut = TaskWriter(cluster, OPTIONS, {})
        cut._flush([pa.record_batch({"value": ["v"], "topic": ["u"]})])
        with pytest.raises(error):
            cut.write([pa.record_batch(columns)])
    assert data_files(cluster) == []


def test_a_process_follows_its_topics() -> None:
    """New partitions, and a topic that was deleted and created again, are seen by the next task of a process."""
    cluster = two_topics()
    known: dict[str, Any] = {}
    options = SinkOptions(uri="memory://", topic="u")

    def task(partition: int) -> tuple[TaskFiles, ...]:
        batch = pa.record_batch({"value": ["v"], "partition": pa.array([partition], pa.int32())})
        return TaskWriter(cluster, options, known).write([batch])

    [first] = task(0)
    create_partitions(cluster.topic_log("u"), "u", 2)
    [second] = task(1)
    assert second.topic_id == first.topic_id
    delete_topic(cluster.topic_log("u"), "u")
    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartitionError):
            task(0)
    create_topic(cluster.topic_log("u"), "u", num_partitions=1)
    [third] = task(0)
    assert third.topic_id != first.topic_id
    with pytest.raises(UnknownTopicOrPartitionError, match="deleted and created again"):
        gathered([first, third])


# --- batch queries


def two_tasks(cluster: Cluster, topics: str) -> list[TaskFiles]:
    """Task 0 writes "0", task 1 "1", to each topic."""
    return [
        one
        for task in "01"
        for one in write(cluster, {"topic": list(topics), "value": [task] * len(topics)}, topic=None)
    ]


@pytest.mark.slow
def test_a_job_that_dies_is_there_whole_or_not_at_all() -> None:
    for topics in ("u", "tu"):
        reached = set()
        for fault in crashes(100):
            cluster = two_topics()
            files = two_tasks(cluster, topics)
            store = FaultyStore(cluster.store, fault)
            try:
                commit_job(a_cluster(store, cluster.clock), None, files)
            except SimulatedCrash:
                reached.add(bool(values(cluster, "u")))
                assert sorted(values(cluster, "u")) in ([], [b"0", b"1"])
                assert topics == "tu" or not cluster.store.list_names("transactions/")
            else:
                break
        else:
            raise AssertionError("never got through")
        assert reached == {False, True}


@pytest.mark.slow
def test_a_lost_answer_changes_nothing_for_a_job() -> None:
    for topics in ("u", "tu"):
        for kind in (FaultKind.LOST_ANSWER, FaultKind.LOST_REQUEST, FaultKind.OWN_SUCCESS, FaultKind.THROTTLED):
            for skip in range(4):
                cluster = two_topics()
                files = two_tasks(cluster, topics)
                store = FaultyStore(cluster.store, Fault(kind=kind, ops=("create",), skip=skip))
                commit_job(a_cluster(store, cluster.clock), None, files)
                assert values(cluster, "u") == [b"0", b"1"]
                assert sorted(values(cluster, "t")) == ([b"0", b"1"] if "t" in topics else [])


def test_a_job_that_cant_be_committed_leaves_no_file_unless_it_may_be() -> None:
    for topics in ("u", "tu"):
        cluster = two_topics()
        files = two_tasks(cluster, topics)
        assert len(data_files(cluster)) >= 2 * len(topics)
        delete_topic(cluster.topic_log("u"), "u")
        with pytest.raises(UnknownTopicOrPartitionError):
            commit_job(cluster, None, files)
        assert data_files(cluster) == []

        for kind, error in (
            (FaultKind.LOST_ANSWER, CommitStateUnknownError),
            (FaultKind.THROTTLED, CommitStateUnknownError),
            (FaultKind.READ_ONLY, StorePermissionError),
        ):
            cluster = two_topics()
            files = two_tasks(cluster, topics)
            fault = Fault(kind=kind, ops=("create",), times=None, skip=1 if topics == "tu" else 0)
            with pytest.raises(error):
                commit_job(a_cluster(FaultyStore(cluster.store, fault), cluster.clock), None, files)
            assert bool(data_files(cluster)) is (error is CommitStateUnknownError)


def test_a_job_that_is_decided_and_not_carried_out_says_so() -> None:
    cluster = two_topics()
    files = two_tasks(cluster, "tu")
    fault = Fault(kind=FaultKind.THROTTLED, ops=("create",), path="topics/", times=None)
    with pytest.raises(CommitStateUnknownError, match=r"has committed this job.*Don't run the job again"):
        commit_job(a_cluster(FaultyStore(cluster.store, fault), cluster.clock), "nightly", files)
    assert len(data_files(cluster)) >= 4
    commit_job(cluster, "nightly", two_tasks(cluster, "u"))  # whoever comes next carries it out
    assert values(cluster, "u") == [b"0", b"1", b"0", b"1"]
    assert sorted(values(cluster, "t")) == [b"0", b"1"]
    assert cluster.store.list_names("transactions-open/") == []
    assert len(cluster.store.list_names(transaction_log("nightly"))) == 6


def test_a_job_that_slept_for_a_day_is_refused() -> None:
    for topics in ("u", "tu"):
        cluster = two_topics()
        files = two_tasks(cluster, topics)
        cluster.clock.sleep_ms(DAY_MS + 1)
        with pytest.raises(TransactionTimedOutError, match="write the records again"):
            commit_job(cluster, None, files)
        assert values(cluster, "u") == []
        assert data_files(cluster) == []


# --- rows of tasks that have few


def few(*batches: dict[str, Any]) -> TaskOutput:
    """What a task with few rows tells the driver."""
    rows, rest = take_few([pa.record_batch(batch) for batch in batches], SMALL_BYTES)
    assert rows is not None
    assert not list(rest)
    return TaskOutput(rows=rows)


def test_few_rows_of_many_tasks_are_one_file_for_each_partition() -> None:
    cluster = two_topics()
    tasks = [[f"{task}-{number}" for number in range(100)] for task in range(20)]
    outputs = [few({"key": keys, "value": keys, "offset": list(range(100))}) for keys in tasks]
    assert data_files(cluster) == []
    written = write_rows(cluster, SinkOptions(uri="memory://", topic="t"), {}, outputs)
    assert len(data_files(cluster)) == 3
    commit_job(cluster, None, written)
    keys = [key for task in tasks for key in task]
    partitions = key_partitions(pa.array([key.encode() for key in keys], pa.binary()), 3)
    expected = [(p, key) for p in range(3) for key, chosen in zip(keys, partitions, strict=True) if chosen == p]
    assert [(row["partition"], row["key"].decode()) for row in rows(cluster)] == expected  # tasks in their order


def test_rows_and_files_keep_the_order_of_their_tasks() -> None:
    cluster = two_topics()
    to_u = SinkOptions(uri="memory://", topic="u")
    outputs = [
        few({"value": ["0"]}),
        few({"value": ["1"]}, {"value": ["2"]}),
        TaskOutput(files=write(cluster, {"value": ["3"]}, topic="u")),
        few({"value": ["4"]}),
        TaskOutput(),
    ]
    commit_job(cluster, None, write_rows(cluster, to_u, {}, [output for output in outputs if output]))
    assert values(cluster, "u") == [b"0", b"1", b"2", b"3", b"4"]
    assert len(data_files(cluster)) == 3


def test_more_than_a_few_rows_are_left_to_the_task() -> None:
    batches = [pa.record_batch({"value": [b"x" * 1_000] * 100}) for _ in range(5)]
    rows, rest = take_few(iter(batches), 250_000)
    assert rows is None
    assert list(rest) == batches
    assert take_few(iter([]), 1)[0] == take_few(iter([batches[0].slice(0, 0)]), 1)[0] == b""


def test_what_all_tasks_together_hand_to_the_driver_is_bounded() -> None:
    """However many there are: Spark fails a job whose results are more than 1 GiB."""
    assert most_bytes(0) == most_bytes(255) == SMALL_BYTES
    assert sum(most_bytes(task) for task in range(1_000)) < 160 * 2**20
    assert sum(most_bytes(task) for task in range(100_000)) < 450 * 2**20


def test_rows_that_no_topic_takes_leave_no_file_of_any_task() -> None:
    cluster = two_topics()
    outputs = [
        few({"value": ["v"], "topic": ["u"]}),
        TaskOutput(files=write(cluster, {"value": ["v"], "topic": ["u"]}, topic=None)),
        few({"value": ["v"], "topic": ["nowhere"]}),
    ]
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        write_rows(cluster, OPTIONS, {}, outputs)
    assert data_files(cluster) == []


def test_many_small_files_are_told_with_the_remedy() -> None:
    cluster = two_topics()
    numbers = [str(number) for number in range(30)]
    many = [one for _ in range(9) for one in write(cluster, {"key": numbers, "value": numbers})]
    assert small_files(many[:8]) is None
    assert "27 files of 1 KiB on average for 3 partitions" in str(small_files(many))
    assert "by_partition(frame, cluster, topic)" in str(small_files(many))
    large = [replace(one, files=tuple(replace(file, size_bytes=2**26) for file in one.files)) for one in many]
    assert small_files(large) is None


# --- micro-batches


def test_a_micro_batch_is_there_once_and_its_query_is_known_by_id_and_target() -> None:
    cluster = two_topics()

    def store(batch_id: int, value: str, *, topic: str = "u", query_id: str = "q") -> bool:
        """What the driver of a run does that begins with this batch."""
        run = QueryRun(query_id=query_id, run_id=f"{query_id} {batch_id} {value}")
        files = write(cluster, {"value": [value]}, topic=topic)
        return commit_batch(UploadCommitter(cluster, "spark-q", holder=run.run_id), run, batch_id, files, topic=topic)

    assert store(0, "a")
    assert store(1, "b")
    assert not store(1, "b again")
    with pytest.raises(IllegalStateError, match="goes to topic 't', but its number 1 was committed to topic 'u'"):
        store(2, "c", topic="t")  # a copy of the checkpoint
    with pytest.raises(IllegalStateError, match="batch 1 is committed already"):
        store(0, "a")  # a checkpoint that was taken back
    assert store(0, "d", query_id="another")  # a new checkpoint with the same transactional id
    assert (values(cluster, "t"), values(cluster, "u")) == ([], [b"a", b"b", b"d"])


# --- writes that an application has numbered


def numbered(cluster: Cluster, version: int, value: str, *, topic: str | None = "u", names: str = "u") -> bool:
    """What the driver does with a row that goes to each of the topics in ``names``."""
    write_ = NumberedWrite(app_id="app", version=version)
    committer = UploadCommitter(cluster, write_.transactional_id(topic))
    files = write(cluster, {"value": [value] * len(names), "topic": list(names)}, topic=topic)
    return commit_numbered(cluster, committer, write_, files, topic=topic)


def test_a_numbered_write_is_there_once_however_often_it_is_repeated() -> None:
    cluster = two_topics()
    assert numbered(cluster, 3, "a")
    assert not numbered(cluster, 3, "a")
    assert numbered(cluster, 4, "b")
    assert not numbered(cluster, 3, "too late")
    assert values(cluster, "u") == [b"a", b"b"]
    assert len(data_files(cluster)) == 2  # what was skipped is deleted


def test_numbers_count_for_each_target_by_itself() -> None:
    """As in Delta, whose numbers are a table's: ``foreachBatch`` may write a batch to several topics."""
    cluster = two_topics()
    assert numbered(cluster, 3, "a", topic="u", names="u")
    assert numbered(cluster, 3, "b", topic="t", names="t")
    assert numbered(cluster, 3, "c", topic=None, names="tu")
    assert not numbered(cluster, 3, "c", topic=None, names="tu")
    assert sorted(values(cluster, "t")) == [b"b", b"c"]
    create_topic(cluster.topic_log("v"), "v", num_partitions=1)
    with pytest.raises(
        IllegalStateError, match=r"now it has rows for v, which would be lost. Give each of an applicat"
    ):
        numbered(cluster, 3, "d", topic=None, names="v")
    assert values(cluster, "v") == []


@pytest.mark.slow
def test_a_numbered_write_repeated_after_death_at_any_store_call_is_there_once() -> None:
    seen = set()
    for fault in (fault for fault in crashes(100) if fault.kind is FaultKind.CRASH_BEFORE):  # after is before the next
        cluster = two_topics()
        assert numbered(cluster, 0, "a", topic=None, names="tu")
        store = FaultyStore(cluster.store, fault)
        try:
            numbered(a_cluster(store, cluster.clock), 1, "b", topic=None, names="tu")
        except SimulatedCrash:
            seen.add(numbered(cluster, 1, "b", topic=None, names="tu"))
            assert (values(cluster, "u"), sorted(values(cluster, "t"))) == ([b"a", b"b"], [b"a", b"b"])
        else:
            break
    else:
        raise AssertionError("never got through")
    assert seen == {True, False}


def test_a_numbered_write_that_fails_leaves_no_file_unless_it_may_be_committed() -> None:
    for kind, error in (
        (FaultKind.LOST_ANSWER, CommitStateUnknownError),
        (FaultKind.THROTTLED, CommitStateUnknownError),
        (FaultKind.READ_ONLY, StorePermissionError),
    ):
        cluster = two_topics()
        fault = Fault(kind=kind, ops=("create",), times=None, skip=1)
        with pytest.raises(error):
            numbered(a_cluster(FaultyStore(cluster.store, fault), cluster.clock), 0, "a")
        assert bool(data_files(cluster)) is (error is CommitStateUnknownError)
        numbered(cluster, 0, "a")
        assert values(cluster, "u") == [b"a"]


# --- options and columns


def options_of(given: dict[str, str]) -> SinkOptions:
    return sink_options(given, streaming=False)


def test_the_options_of_the_kafka_sink() -> None:
    found = sink_options(
        {
            "Kafka.Bootstrap.Servers": "./data",
            "Topic": "t",
            "kafka.acks": "all",
            "kafka.compression.type": "ZSTD",
            "kafka.max.request.size": "2000000",
            "includeHeaders": "true",
            "checkpointLocation": "/c",
            "queryName": "q",
        },
        streaming=True,
    )
    assert found == SinkOptions(uri="./data", topic="t", compression="zstd", max_request_size=2_000_000)
    assert options_of({"path": "p", "transactionalId": "me", "compression": "lz4"}) == SinkOptions(
        uri="p", transactional_id="me", compression="lz4"
    )
    assert options_of({"path": "p", "storageOptions": '{"secret": "s"}'}).storage_options == {"secret": "s"}
    numbered = options_of({"path": "p", "txnAppId": "app", "txnVersion": "7"}).numbered
    assert numbered == NumberedWrite(app_id="app", version=7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs the cluster's root"),
        ({"path": "p", "topik": "t"}, "no option topik"),
        ({"path": "p", "topic": "a b"}, "invalid topic name"),
        ({"path": "p", "compression": "brotli"}, "compression='brotli': expected one of none, gzip"),
        ({"path": "p", "transactionalId": ""}, "transactionalId=''"),
        ({"path": "p", "kafka.max.request.size": "1k"}, "kafka.max.request.size='1k'"),
        ({"path": "p", "txnAppId": "a"}, "got txnAppId='a' and txnVersion=None: expected both"),
        ({"path": "p", "txnAppId": "", "txnVersion": "1"}, "expected both"),
        ({"path": "p", "txnAppId": "a", "txnVersion": "-1"}, "txnVersion='-1': expected a whole number from 0 on"),
        ({"path": "p", "txnAppId": "a", "txnVersion": str(2**63)}, "that fits 63 bits"),
        ({"path": "p", "txnAppId": "a", "txnVersion": "1", "transactionalId": "i"}, "expected one of them"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message):
        options_of(given)


def test_a_stream_numbers_its_batches_by_itself() -> None:
    with pytest.raises(InvalidConfigurationError, match="txnAppId and txnVersion number batch writes"):
        sink_options({"path": "p", "txnAppId": "a", "txnVersion": "1"}, streaming=True)


def test_each_target_of_an_application_has_an_id_of_its_own() -> None:
    ids = [
        NumberedWrite(app_id=app_id, version=1).transactional_id(topic)
        for app_id, topic in [("a", None), ("a", "b"), ("a-b", None), ("ü" * 500, "t" * 249), ("ü" * 501, "t" * 249)]
    ]
    assert len(set(ids)) == len(ids)
    assert [transaction_log(one) for one in ids]  # none is too long
    assert ids[1].startswith("spark-app-a-b-")
    assert NumberedWrite(app_id="a", version=2).transactional_id("b") == ids[1]


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"key": "string"}, "t", "no column value in key"),
        ({"value": "string"}, None, "give the option topic, or a column topic"),
        ({"value": "string", "Key": "string"}, "t", "unknown column Key; it writes key string or binary; value"),
        ({"value": "struct<a:int>"}, "t", "column value is struct<a:int>, expected string or binary"),
        ({"value": "string", "topic": "int"}, None, "column topic is int, expected string"),
        ({"value": "string", "partition": "bigint"}, "t", "column partition is bigint, expected int"),
        ({"value": "string", "headers": "map<string,binary>"}, "t", "column headers is map<string,binary>"),
        ({"value": "string", "timestamp": "timestamp_ntz"}, "t", "column timestamp is timestamp_ntz"),
    ],
)
def test_wrong_columns_are_named(columns: dict[str, str], topic: str | None, message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message):
        check_columns(list(columns.items()), topic=topic)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": "bigint", "value": "string"}, "got the column value beside fields of values .id.; expected one or the"),
        ({"key": "string"}, "no column value in key"),
        ({"idd": "bigint"}, "unknown column idd; it writes .*; the fields of the topic's values: id, value_topic"),
        ({"id": "bigint", "topic": "int"}, "column topic is int"),
    ],
)
def test_wrong_columns_of_a_typed_topic_are_named(columns: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=message):
        check_columns(list(columns.items()), topic="t", fields=["id", "topic"])


def test_fields_of_a_typed_topic_are_columns_or_a_struct() -> None:
    fields = ["id", "topic"]
    check_columns([("key", "string"), ("id", "bigint"), ("value_topic", "string")], topic="t", fields=fields)
    check_columns([("value", "struct<id:bigint>")], topic="t", fields=fields)
    check_columns([("value", "binary")], topic="t", fields=fields)
    assert field_columns(["key", "id", "topic", "value_topic"], fields) == {"id": "id", "value_topic": "topic"}


def test_a_column_may_not_be_there_twice() -> None:
    with pytest.raises(InvalidConfigurationError, match="more than one column value"):
        check_columns([("value", "string"), ("value", "binary")], topic="t")


def test_the_columns_of_the_source_may_be_written_as_they_are() -> None:
    check_columns(
        [
            ("key", "binary"),
            ("value", "string collate UNICODE"),
            ("topic", "string"),
            ("partition", "int"),
            ("offset", "bigint"),
            ("timestamp", "timestamp"),
            ("timestampType", "int"),
            ("headers", "array<struct<key:string,value:binary>>"),
        ],
        topic=None,
    )


def test_a_process_keeps_a_cluster_open_as_long_as_it_is_that_cluster(tmp_path: Any) -> None:
    from sparklog.log import open_cluster

    open_cluster(tmp_path)
    place = ClusterRef(str(tmp_path))
    first = cached_cluster(place)
    assert cached_cluster(ClusterRef(str(tmp_path))) is first
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "cluster.json").write_bytes((tmp_path / "cluster.json").read_bytes())
    assert cached_cluster(ClusterRef(str(copy))) is not first
    (tmp_path / "cluster.json").unlink()
    with pytest.raises(InvalidArgumentError):
        cached_cluster(place)
    open_cluster(tmp_path)
    assert cached_cluster(place) is not first


def test_a_process_has_one_client_of_each_store(monkeypatch: pytest.MonkeyPatch) -> None:
    place = ClusterRef("s3://bucket/prefix", {"key": "k", "secret": "s"})
    first = shared_store(place)
    assert shared_store(ClusterRef("s3://bucket/prefix", {"key": "k", "secret": "s"})) is first
    assert shared_store(ClusterRef("s3://bucket/prefix", {"key": "another", "secret": "s"})) is not first
    assert shared_store(ClusterRef("s3://bucket/other", {"key": "k", "secret": "s"})) is not first
    monkeypatch.setattr("os.getpid", lambda: -1)  # after a fork
    assert shared_store(place) is not first
