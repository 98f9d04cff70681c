"""A topic that is made anew under its name: Kafka's clients notice by its leader epoch, which has risen."""

from __future__ import annotations

import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.log.topic_ids import first_topic_id, incarnation_of, next_topic_id
from tests.gateway.test_server import Wire, batch, cluster, fetched, fetching, produce, produced, servers, values, wire

__all__ = ["Wire", "cluster", "servers", "wire"]


def make_anew(cluster):
    Admin(cluster).delete_topics(["jobs"])
    Admin(cluster).create_topics([NewTopic("jobs", 2)])


def epochs_in(wire):
    (topic,) = wire.call("Metadata", 9, {"topics": [{"name": "jobs"}]})["topics"]
    return {partition["leader_epoch"] for partition in topic["partitions"]}


def fetch(wire, offset, *, version=11, current_leader_epoch=-1):
    body = fetching(offset)
    body["topics"][0]["partitions"][0]["current_leader_epoch"] = current_leader_epoch
    return fetched(wire.call("Fetch", version, body))


def end_of(wire, epoch, *, current=-1, version=4):
    asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    body = {"replica_id": -1, "topics": [{"topic": "jobs", "partitions": [asked]}]}
    (found,) = wire.call("OffsetForLeaderEpoch", version, body)["topics"][0]["partitions"]
    return found["error_code"], found["leader_epoch"], found["end_offset"]


def test_the_epoch_rises_with_each_topic_of_the_name(cluster, wire):
    assert epochs_in(wire) == {0}
    for number in (1, 2):
        make_anew(cluster)
        assert epochs_in(wire) == {number}


def test_a_client_that_knows_an_older_topic_is_told(cluster, wire):
    with Producer(cluster) as producer:
        for _ in range(3):
            producer.send("jobs", b"old", partition=0).get(10)
    assert fetch(wire, 3, current_leader_epoch=0)["error_code"] == 0
    make_anew(cluster)
    with Producer(cluster) as producer:
        for _ in range(5):
            producer.send("jobs", b"new", partition=0).get(10)
    while (code := fetch(wire, 3, current_leader_epoch=0)["error_code"]) == 3:  # it was deleted, as it was seen first
        pass
    assert code == 74
    assert fetch(wire, 3, current_leader_epoch=2)["error_code"] == 75
    assert end_of(wire, 0, current=1) == (0, 0, 0)  # so a position of 3 lies beyond its end: read from 0 on
    assert end_of(wire, 1, current=1) == (0, 1, 5)
    assert end_of(wire, 2, current=1) == (0, -1, -1)
    assert end_of(wire, 0, current=0) == (74, -1, -1)
    found = fetch(wire, 0, current_leader_epoch=1)
    assert values(found["records"]) == [b"new"] * 5


@pytest.mark.parametrize("is_through_gateway", [True, False])
def test_batches_have_the_epoch(cluster, wire, is_through_gateway):
    make_anew(cluster)
    if is_through_gateway:
        assert produced(wire.call("Produce", 9, produce(batch(b"a"))))["error_code"] == 0
    else:
        with Producer(cluster) as producer:
            producer.send("jobs", b"a", partition=0).get(10)
    found = fetch(wire, 0)
    assert int.from_bytes(found["records"][12:16], "big") == 1
    assert values(found["records"]) == [b"a"]


def test_list_offsets_tells_the_epoch_and_refuses_an_older_one(cluster, wire):
    make_anew(cluster)
    codes = []
    for current in (-1, 1, 0, 2):
        asked = {"partition_index": 0, "current_leader_epoch": current, "timestamp": -2}
        body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "jobs", "partitions": [asked]}]}
        (found,) = wire.call("ListOffsets", 5, body)["topics"][0]["partitions"]
        codes.append((found["error_code"], found["leader_epoch"] if not found["error_code"] else None))
    assert codes == [(0, 1), (0, 1), (74, None), (75, None)]


def test_ids_count_the_topics_of_a_name():
    topic_id = first_topic_id()
    assert incarnation_of(topic_id) == 0
    for number in range(1, 4):
        topic_id = next_topic_id(topic_id, first_topic_id())
        assert len(topic_id) == 32
        assert incarnation_of(topic_id) == number
    assert incarnation_of(next_topic_id(f"7fffffff{topic_id[8:]}", first_topic_id())) == 2**31 - 1
    assert [incarnation_of(text) for text in ("", "in-id", "f" * 32)] == [0, 0, 0]
