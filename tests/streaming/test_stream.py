"""A streaming query's micro-batches, and what its tasks read; in memory, without Spark."""

import json
import logging

import pytest

from sparklog.admin import HIGH_WATERMARK, Admin, NewTopic
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.names import entry_path
from sparklog.errors import (
    InvalidConfigurationError,
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.cluster import open_cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.follow import TopicFollower
from sparklog.model import TopicPartition
from sparklog.producer import Producer
from sparklog.storage import MemoryStore
from sparklog.streaming.planning import split_into_tasks
from sparklog.streaming.positions import Positions
from sparklog.streaming.resolving import plan_batch
from sparklog.streaming.source_options import source_options
from sparklog.streaming.stream import StreamPlanner
from sparklog.streaming.task_reading import SOURCE_SCHEMA, read_task
from sparklog.testing import ManualClock
from tests.support import T0_MS, a_writer, entry_lines, foreign_entry, records, unsequenced_file, within


@pytest.fixture
def cluster():
    clock = ManualClock(start_ms=T0_MS)
    cluster = open_cluster(MemoryStore(clock=clock), clock=clock)
    Admin(cluster).create_topics([NewTopic("t", 2)])
    return cluster


def put(cluster, *batches, topic="t"):
    """One commit: values by partition."""
    writer = a_writer(cluster.topic_log(topic), topic=topic)
    uploaded = writer.upload([(partition, records(*values)) for partition, values in batches])
    writer.append(uploaded, deadline=within(writer, 1_000))


def options(*, streaming=True, **given):
    subscription = {} if {"assign", "subscribePattern"} & given.keys() else {"subscribe": "t"}
    text = {name: str(value) for name, value in given.items()}
    return source_options({"path": "/c", **subscription, **text}, streaming=streaming)


def planner(cluster, **given):
    return StreamPlanner(cluster, options(**{"startingOffsets": "earliest", **given}))


def values(cluster, tasks, **how):
    found = []
    for task in tasks:
        for batch in read_task(cluster.topic_log(task.topic), task, ["partition", "offset", "value"], **how):
            found += [(row["partition"], row["offset"], row["value"].decode()) for row in batch.to_pylist()]
    return found


def batches(cluster, planner, start, *, limited=True):
    """Micro-batches until there is nothing more."""
    while (end := planner.next(start, limited=limited)) != start:
        yield "".join(value for _, _, value in values(cluster, planner.plan(start, end)))
        start = end


def batch_values(cluster, **given):
    ranges = plan_batch(cluster, options(streaming=False, **given))
    return values(cluster, split_into_tasks([one for one in ranges if one.segments], None))


def test_a_batch_reads_what_is_there(cluster):
    put(cluster, (0, "ab"), (1, "x"))
    put(cluster, (0, "cd"))
    unsequenced_file(cluster.topic_log("t"), "not yet")
    assert batch_values(cluster) == [(0, 0, "a"), (0, 1, "b"), (0, 2, "c"), (0, 3, "d"), (1, 0, "x")]
    assert batch_values(cluster, subscribePattern="t|u") == batch_values(cluster)
    assert batch_values(cluster, assign='{"t": [1]}') == [(1, 0, "x")]


def test_a_batch_begins_and_ends_where_it_is_told(cluster):
    put(cluster, (0, "abcd"), (1, "xy"))
    starting, ending = '{"t": {"0": 1, "1": -2}}', '{"t": {"0": 3, "1": -1}}'
    found = batch_values(cluster, startingOffsets=starting, endingOffsets=ending)
    assert found == [(0, 1, "b"), (0, 2, "c"), (1, 0, "x"), (1, 1, "y")]
    assert batch_values(cluster, startingTimestamp=T0_MS + 1, endingTimestamp=T0_MS + 2) == [(0, 1, "b"), (1, 1, "y")]
    by_time = json.dumps({"t": {"0": T0_MS + 3, "1": 0}})
    assert batch_values(cluster, startingOffsetsByTimestamp=by_time) == [(0, 3, "d"), (1, 0, "x"), (1, 1, "y")]
    with pytest.raises(OffsetOutOfRangeError, match="no record of t-0"):
        batch_values(cluster, startingTimestamp=T0_MS + 9)
    assert batch_values(cluster, startingTimestamp=T0_MS + 9, startingOffsetsByTimestampStrategy="latest") == []


def test_limits_name_every_partition_that_is_read_and_no_other(cluster):
    with pytest.raises(InvalidConfigurationError, match=r"startingOffsets must name.*t-1$"):
        batch_values(cluster, startingOffsets='{"t": {"0": 0}}')
    with pytest.raises(InvalidConfigurationError, match=r"t-1$"):
        batch_values(cluster, assign='{"t": [0]}', endingOffsetsByTimestamp='{"t": {"0": 0, "1": 0}}')
    with pytest.raises(UnknownTopicOrPartitionError, match="no partition 2"):
        batch_values(cluster, assign='{"t": [2]}')


def test_a_batch_that_begins_at_what_was_deleted_fails_unless_loss_is_fine(cluster, caplog):
    put(cluster, (0, "abc"))
    Admin(cluster).delete_records({TopicPartition("t", 0): 2})
    given = {"startingOffsets": '{"t": {"0": 1, "1": 0}}'}
    with pytest.raises(OffsetOutOfRangeError, match="offset 1 of t-0 is out of range: log start 2, log end 3"):
        batch_values(cluster, **given)
    assert batch_values(cluster, **given, failOnDataLoss="false") == [(0, 2, "c")]
    assert "offset 1 of t-0" in caplog.text
    assert batch_values(cluster) == [(0, 2, "c")]


def test_records_are_shown_with_kafkas_columns(cluster):
    put(cluster, (1, "a"))
    [task] = split_into_tasks([one for one in plan_batch(cluster, options(streaming=False)) if one.segments], None)
    [batch] = read_task(cluster.topic_log("t"), task, SOURCE_SCHEMA.names)
    assert batch.schema.equals(SOURCE_SCHEMA)
    [row] = batch.to_pylist()
    assert int(row.pop("timestamp").timestamp() * 1_000) == T0_MS
    assert row == {
        "key": b"a",
        "value": b"a",
        "topic": "t",
        "partition": 1,
        "offset": 0,
        "timestampType": 0,
        "headers": None,
    }


def test_a_query_goes_on_where_it_was(cluster):
    put(cluster, (0, "ab"))
    stream = planner(cluster)
    start = stream.initial()
    end = stream.next(start, limited=True)
    assert values(cluster, stream.plan(start, end)) == [(0, 0, "a"), (0, 1, "b")]
    assert stream.next(end, limited=True) == end
    put(cluster, (1, "x"))
    put(cluster, (0, "c"))
    after = stream.next(end, limited=True)
    assert values(cluster, stream.plan(end, after)) == [(0, 2, "c"), (1, 0, "x")]
    again = planner(cluster)
    assert values(cluster, again.plan(start, end)) == [(0, 0, "a"), (0, 1, "b")]
    assert again.next(end, limited=True) == after


def test_a_query_begins_at_the_end_unless_told(cluster):
    put(cluster, (0, "ab"))
    stream = StreamPlanner(cluster, options())
    start = stream.initial()
    assert stream.next(start, limited=True) == start
    put(cluster, (0, "c"))
    assert list(batches(cluster, stream, start)) == ["c"]


def test_a_batch_never_splits_a_commit(cluster):
    for number in range(6):
        put(cluster, (0, f"{number}"), (1, f"{number}{number}"))
    for limit, expected in ((1, 6), (3, 6), (6, 3), (7, 3), (11, 2), (18, 1)):
        stream = planner(cluster, maxOffsetsPerTrigger=limit)
        found = list(batches(cluster, stream, stream.initial()))
        assert len(found) == expected
        assert all(batch.count(number) in (0, 3) for batch in found for number in "012345")
        assert sorted("".join(found)) == sorted("012345" * 3)


def test_a_commit_of_many_files_that_is_more_than_the_limit_is_one_batch(cluster):
    put(cluster, (0, "a"), (0, "a"), (0, "a"), (1, "a"))
    put(cluster, (0, "b"), (0, "b"), (1, "b"), (1, "b"))
    stream = planner(cluster, maxOffsetsPerTrigger=1)
    assert list(batches(cluster, stream, stream.initial())) == ["aaaa", "bbbb"]


def test_a_large_commit_is_split_if_the_query_allows_it(cluster):
    put(cluster, (0, "a"))
    put(cluster, (0, "bcdefghijk"), (1, "BCDEF"))
    put(cluster, (1, "l"))
    put(cluster, (0, "m"))
    found, start = [], planner(cluster).initial()
    while True:
        stream = planner(cluster, maxOffsetsPerTrigger=4, splitLargeCommits="true")  # another process
        end = stream.next(start, limited=True)
        if end == start:
            break
        found.append("".join(value for _, _, value in values(cluster, stream.plan(start, end))))
        start = Positions.from_json(json.loads(json.dumps(end.to_json())))
    assert found == ["a", "bcBC", "deDE", "fghF", "ijkl", "m"]
    one_process = planner(cluster, maxOffsetsPerTrigger=4, splitLargeCommits="true")
    assert list(batches(cluster, one_process, one_process.initial())) == found
    whole = planner(cluster, maxOffsetsPerTrigger=4)
    assert list(batches(cluster, whole, whole.initial())) == ["a", "bcdefghijkBCDEF", "ml"]


def test_a_limit_holds_where_the_log_has_forgotten_its_commits_and_they_may_be_split(cluster):
    log = cluster.topic_log("t")
    put(cluster, (0, "abcdefgh"), (1, "ABCDEFGH"))
    write_checkpoint(log)
    cluster.store.delete([entry_path(log.table, version) for version in range(1)])
    put(cluster, (0, "i"))
    stream = planner(cluster, maxOffsetsPerTrigger=5, splitLargeCommits="true")
    found = list(batches(cluster, stream, stream.initial()))
    assert max(map(len, found)) <= 5
    assert sorted("".join(found)) == sorted("abcdefghABCDEFGHi")


def test_tasks_of_a_batch_have_no_more_records_than_they_may(cluster):
    put(cluster, (0, "abcde"), (1, "x"))
    stream = planner(cluster, maxRecordsPerPartition=2)
    start = stream.initial()
    tasks = stream.plan(start, stream.next(start, limited=True))
    assert [(task.partition, task.start, task.end) for task in tasks] == [(0, 0, 1), (0, 1, 3), (0, 3, 5), (1, 0, 1)]
    assert "".join(value for _, _, value in values(cluster, tasks)) == "abcdex"


def test_a_batch_never_splits_a_commit_after_a_checkpoint_and_a_restart(cluster):
    for number in range(4):
        put(cluster, (0, f"{number}"), (1, f"{number}{number}"))
    write_checkpoint(cluster.topic_log("t"))
    put(cluster, (0, "4"), (1, "44"))
    found, start = [], planner(cluster).initial()
    while True:
        stream = planner(cluster, maxOffsetsPerTrigger=6)  # another process
        end = stream.next(start, limited=True)
        if end == start:
            break
        found.append(sorted(value for _, _, value in values(cluster, stream.plan(start, end))))
        start = end
    assert found == [list("000111"), list("222333"), list("444")]


def test_where_the_log_has_forgotten_its_commits_a_batch_ends_with_a_file(cluster):
    log = cluster.topic_log("t")
    for number in range(4):
        put(cluster, (0, f"{number}"), (1, f"{number}{number}"))
    write_checkpoint(log)
    cluster.store.delete([entry_path(log.table, version) for version in range(4)])  # as cleanup does after a day
    for number in range(4, 6):
        put(cluster, (0, f"{number}"), (1, f"{number}{number}"))
    stream = planner(cluster, maxOffsetsPerTrigger=6)
    found = list(batches(cluster, stream, stream.initial()))
    assert "".join(sorted("".join(found))) == "".join(sorted("012345" * 3))
    assert len(found) > 2
    assert sorted(found[-1]) == list("444555")


def test_what_lies_below_the_mark_of_a_cleanup_ends_no_batch(cluster):
    """Rule L3: a bulk delete has left version 2, and somebody who slept has created version 3 anew."""
    log = cluster.topic_log("t")
    put(cluster, (0, "a"))
    stream = planner(cluster, maxOffsetsPerTrigger=2)
    behind_a = stream.next(stream.initial(), limited=True)
    for number in range(4):
        put(cluster, (0, f"{number}{number}"))
    write_checkpoint(log)
    stray = entry_lines(log, 3)
    stray[0]["commitInfo"]["sparklog"]["log_end_offsets"][0] -= 1
    log.mark_cleaned(4)
    cluster.store.delete([entry_path(log.table, version) for version in (0, 1, 3)])
    cluster.store.create(entry_path(log.table, 3), "\n".join(map(json.dumps, stray)).encode())
    found = list(batches(cluster, planner(cluster, maxOffsetsPerTrigger=2), behind_a))
    assert found == ["00", "11", "22", "33"]


def test_entries_of_other_engines_are_part_of_the_batch_around_them(cluster):
    log = cluster.topic_log("t")
    put(cluster, (0, "a"))
    foreign_entry(log, 2, [])
    put(cluster, (0, "b"))
    stream = planner(cluster, maxOffsetsPerTrigger=1)
    assert list(batches(cluster, stream, stream.initial())) == ["a", "b"]
    foreign_entry(log, 4, [])
    put(cluster, (0, "c"))
    assert list(batches(cluster, stream, stream.newest())) == ["c"]


def test_available_now_goes_no_further_than_what_was_there(cluster):
    put(cluster, (0, "a"))
    put(cluster, (0, "b"))
    stream = planner(cluster, maxOffsetsPerTrigger=1, subscribePattern=".*")
    stream.freeze()
    start = stream.initial()
    put(cluster, (0, "c"))
    Admin(cluster).create_topics(["u"])
    put(cluster, (0, "d"), topic="u")
    assert list(batches(cluster, stream, start)) == ["a", "b"]


def test_a_trigger_without_limits_reads_all(cluster):
    put(cluster, (0, "a"))
    put(cluster, (0, "b"))
    stream = planner(cluster, maxOffsetsPerTrigger=1)
    assert list(batches(cluster, stream, stream.initial(), limited=False)) == ["ab"]


def test_a_batch_waits_for_the_least_it_is_to_read_but_not_for_ever(cluster):
    put(cluster, (0, "a"))
    stream = planner(cluster, minOffsetsPerTrigger=2, maxTriggerDelay="10s")
    start = stream.next(stream.initial(), limited=True)  # the first one doesn't wait
    put(cluster, (0, "b"))
    assert stream.next(start, limited=True) == start
    cluster.clock.advance(10_000)
    assert stream.next(start, limited=True) != start
    put(cluster, (0, "c"))
    assert list(batches(cluster, stream, start)) == ["bc"]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_first_batch_that_is_run_again_begins_where_it_began(cluster, starting):
    put(cluster, (0, "abc"), (1, "d"))
    stream = planner(cluster, startingOffsets=starting)
    start = stream.initial()
    put(cluster, (0, "e"))
    end = Positions.from_json(json.loads(json.dumps(stream.next(start, limited=True).to_json())))
    expected = stream.plan(start, end)
    put(cluster, (0, "f"))
    again = planner(cluster, startingOffsets=starting)
    assert again.plan(again.initial(), end) == expected
    Admin(cluster).delete_records({TopicPartition("t", 0): 4})
    after_loss = planner(cluster, startingOffsets=starting)
    with pytest.raises(OffsetOutOfRangeError, match="t-0"):
        after_loss.plan(after_loss.initial(), end)


def test_new_partitions_and_topics_are_read_from_their_beginning(cluster):
    stream = planner(cluster, subscribePattern="t.*")
    start = stream.initial()
    Admin(cluster).create_partitions({"t": 3})
    put(cluster, (2, "a"))
    Admin(cluster).create_topics(["t2", "other"])
    put(cluster, (0, "b"), topic="t2")
    put(cluster, (0, "c"), topic="other")
    cluster.clock.advance(5_000)
    assert list(batches(cluster, stream, start)) == ["ab"]


def test_records_that_were_deleted_below_a_query_are_never_passed_over_silently(cluster, caplog):
    put(cluster, (0, "abc"), (1, "x"))
    stream = planner(cluster)
    start = stream.initial()
    Admin(cluster).delete_records({TopicPartition("t", 0): 2})
    with pytest.raises(OffsetOutOfRangeError, match="offset 0 of t-0 is out of range: log start 2"):
        stream.next(start, limited=True)
    assert list(batches(cluster, planner(cluster, failOnDataLoss="false"), start)) == ["cx"]
    assert "offset 0 of t-0" in caplog.text


def test_a_topic_that_was_deleted_and_created_again_is_another(cluster):
    put(cluster, (0, "abc"))
    stream = planner(cluster)
    start = stream.next(stream.initial(), limited=True)
    Admin(cluster).delete_topics(["t"])
    with pytest.raises(UnknownTopicOrPartitionError, match="deleted"):
        stream.next(start, limited=True)
    Admin(cluster).create_topics([NewTopic("t", 2)])
    put(cluster, (0, "d"))
    with pytest.raises(UnknownTopicOrPartitionError, match="another of its name"):
        stream.next(start, limited=True)
    assert list(batches(cluster, planner(cluster, failOnDataLoss="false"), start)) == ["d"]


def test_a_topic_that_is_gone_or_no_longer_asked_for_isnt_passed_over_silently(cluster, caplog):
    Admin(cluster).create_topics(["t2"])
    put(cluster, (0, "a"), (1, "b"))
    put(cluster, (0, "c"), topic="t2")
    start = planner(cluster, subscribePattern="t.*").initial()
    for given in ({}, {"assign": '{"t": [0], "t2": [0]}'}):
        with pytest.raises(UnknownTopicOrPartitionError, match=r"(topic 't2'|t-1) was read and isn't any more"):
            planner(cluster, **given).next(start, limited=True)
    Admin(cluster).delete_topics(["t2"])
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 't2' was read"):
        planner(cluster, subscribePattern="t.*").next(start, limited=True)
    stream = planner(cluster, subscribePattern="t.*", failOnDataLoss="false")
    end = stream.next(start, limited=True)
    assert list(end.topics) == ["t"]
    assert "topic 't2' was read" in caplog.text


def test_a_file_that_was_replaced_since_it_was_planned_is_found_again(cluster):
    put(cluster, (0, "abc"))
    stream = planner(cluster)
    start = stream.initial()
    tasks = stream.plan(start, stream.next(start, limited=True))
    log = cluster.topic_log("t")
    [old] = [object_path(log.table, segment.path) for segment in tasks[0].segments]
    data = cluster.store.read(old)
    new = f"{old}.new.parquet"
    cluster.store.put(new, data)
    add = next(line["add"] for line in entry_lines(log, 1) if "add" in line)
    moved = {**add, "path": f"{add['path']}.new.parquet", "dataChange": False}
    remove = {"path": add["path"], "dataChange": False, "deletionTimestamp": T0_MS}
    foreign_entry(log, 2, [{"remove": remove}, {"add": moved}])
    cluster.store.delete([old])
    assert [value for _, _, value in values(cluster, tasks)] == ["a", "b", "c"]
    cluster.store.delete([new])
    with pytest.raises(ObjectNotFoundError):
        values(cluster, tasks)


def test_records_that_are_deleted_while_a_task_reads_are_told(cluster):
    put(cluster, (0, "abc"))
    stream = planner(cluster)
    start = stream.initial()
    tasks = stream.plan(start, stream.next(start, limited=True))
    log = cluster.topic_log("t")
    Admin(cluster).delete_records({TopicPartition("t", 0): HIGH_WATERMARK})
    cluster.store.delete([object_path(log.table, segment.path) for segment in tasks[0].segments])
    with pytest.raises(OffsetOutOfRangeError, match="records 0 to 2 of t-0 were deleted"):
        values(cluster, tasks)
    assert values(cluster, tasks, fail_on_data_loss=False) == []
    Admin(cluster).delete_topics(["t"])
    with pytest.raises(UnknownTopicOrPartitionError):
        values(cluster, tasks)


def test_a_groups_offsets_follow_the_query_once_a_batch_is_done(cluster, caplog):
    put(cluster, (0, "abc"), (1, "x"))
    stream = planner(cluster, groupId="g")
    start = stream.initial()
    end = stream.next(start, limited=True)
    assert Admin(cluster).list_groups() == []
    assert stream.next(end, limited=True) == end  # Spark asks for more: all before it is done
    committed = Admin(cluster).list_group_offsets("g")
    assert {at.partition: found.offset for at, found in committed.items()} == {0: 3, 1: 1}
    put(cluster, (0, "d"))
    after = stream.next(end, limited=True)
    stream.done(after)
    [group] = Admin(cluster).describe_groups(["g"])
    assert [one.lag for one in group.partitions] == [0, 0]
    caplog.set_level(logging.WARNING)
    Admin(cluster).delete_topics(["t"])
    stream.done(end)
    assert "offsets of group 'g' weren't committed" in caplog.text


def test_many_commits_are_read_ahead_only_as_far_as_a_batch_goes(cluster):
    for number in range(80):
        put(cluster, (0, chr(48 + number)))
    stream = planner(cluster, maxOffsetsPerTrigger=10)
    found = list(batches(cluster, stream, stream.initial()))
    assert [len(batch) for batch in found] == [10] * 8
    assert "".join(found) == "".join(chr(48 + number) for number in range(80))


def test_cuts_that_were_forgotten_are_read_again(cluster, monkeypatch):
    monkeypatch.setattr("sparklog.streaming.topic_following._MAX_CUTS", 5)
    stream = planner(cluster, maxOffsetsPerTrigger=2)
    start = stream.initial()
    for number in range(20):
        put(cluster, (0, chr(65 + number)))
    assert list(batches(cluster, stream, start)) == [chr(65 + n) + chr(66 + n) for n in range(0, 20, 2)]


def test_the_follower_stands_still_while_it_is_frozen(cluster):
    stream = planner(cluster)
    stream.freeze()
    put(cluster, (0, "a"))
    assert TopicFollower(cluster.topic_log("t"), "t").head.log_end_offsets == (1, 0)
    assert stream.newest().topics["t"].offsets == {0: 0, 1: 0}


def typed_planner(cluster, read, **given):
    """A query that has these columns of a typed topic's values."""
    return StreamPlanner(
        cluster,
        options(startingOffsets="earliest", **given),
        lambda schemas: [name for name in schemas.newest.arrow.names if name not in read],
    )


def put_typed(cluster, value):
    with Producer(cluster) as producer:
        producer.send("typed", value).get()


@pytest.fixture
def typed():
    cluster = open_cluster(MemoryStore())  # a producer needs a clock that goes on
    Admin(cluster).create_topics([NewTopic("typed", 1, value_schema="id BIGINT")])
    put_typed(cluster, {"id": 1})
    return cluster


def test_a_query_ends_when_its_topic_gets_a_field(typed):
    stream = typed_planner(typed, ["id"], subscribe="typed")
    at = stream.next(stream.initial(), limited=True)
    assert at.topics["typed"].schema_id == 1
    Admin(typed).alter_value_schema("typed", "id BIGINT, city STRING")
    put_typed(typed, {"id": 2, "city": "Rom"})
    with pytest.raises(InvalidConfigurationError, match=r"schema 2 of its values .* lack: city\. Restart the query"):
        stream.next(at, limited=True)
    # A restart with the columns of before is refused, too, as the checkpoint holds what the query knew.
    kept = Positions.from_json(json.loads(json.dumps(at.to_json())))
    with pytest.raises(InvalidConfigurationError, match="lack: city"):
        typed_planner(typed, ["id"], subscribe="typed").next(kept, limited=True)
    after = typed_planner(typed, ["id", "city"], subscribe="typed").next(kept, limited=True)
    assert (after.topics["typed"].offsets, after.topics["typed"].schema_id) == ({0: 2}, 2)


def test_a_query_goes_on_without_new_fields_by_an_option(typed, caplog):
    stream = typed_planner(typed, ["id"], subscribe="typed", newFields="ignore")
    at = stream.next(stream.initial(), limited=True)
    Admin(typed).alter_value_schema("typed", "id BIGINT, city STRING")
    put_typed(typed, {"id": 2, "city": "Rom"})
    after = stream.next(at, limited=True)
    assert (after.topics["typed"].offsets, after.topics["typed"].schema_id) == ({0: 2}, 2)
    assert [text for text in caplog.messages if "doesn't read the columns city" in text]


def test_a_query_of_some_columns_begins_without_the_others(typed, caplog):
    stream = typed_planner(typed, [], subscribe="typed")
    assert stream.next(stream.initial(), limited=True).topics["typed"].offsets == {0: 1}
    assert [text for text in caplog.messages if "doesn't read the columns id" in text]


def test_a_topic_that_becomes_typed_ends_a_query_of_its_fields(cluster):
    stream = typed_planner(cluster, [], subscribe="t")
    at = stream.initial()
    assert at.topics["t"].schema_id == 0
    Admin(cluster).alter_value_schema("t", "id BIGINT")
    put(cluster, (0, "a"))
    with pytest.raises(InvalidConfigurationError, match=r"schema 1 of its values .* lack: id"):
        stream.next(at, limited=True)


def test_checkpoints_from_before_schemas_were_kept_go_on(typed):
    stream = typed_planner(typed, [], subscribe="typed")
    before = stream.initial().to_json()
    del before["@schema_ids"]
    assert stream.next(Positions.from_json(before), limited=True).topics["typed"].schema_id == 1
    assert "@schema_ids" not in planner(typed, subscribe="typed").initial().to_json()
