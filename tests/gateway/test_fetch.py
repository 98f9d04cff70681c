"""What Fetch shows: the topic as of now, whatever was sent before, and however it changed meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest

import sparklog.gateway
from sparklog import Admin, NewTopic, Producer
from sparklog.compaction.maintenance import Step, maintain
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.gateway import fetch as fetch_module
from sparklog.gateway import topic_view
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.fetch import fetch, fetching_of
from sparklog.gateway.records import batch_headers
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.topic_view import BatchCache, TopicView
from sparklog.gateway.wire import message
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from tests.consumer.remote_store import RemoteStore
from tests.consumer.support import a_cluster, send, with_topic
from tests.gateway.test_groups import AwayStore
from tests.gateway.test_server import Wire, batch, ends, fetched, fetching, produce, produced, values

COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}


@pytest.fixture
def cluster():
    return open_cluster(f"memory://fetch-{uuid.uuid4().hex}")


@pytest.fixture
def wire(cluster):
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        yield client
        client.close()


def records(wire, **by):
    return fetched(wire.call("Fetch", 13 if "topic_id" in by else 11, fetching(0, **by)))["records"]


def test_what_was_compacted_away_is_not_sent_again(cluster, wire):
    Admin(cluster).create_topics([NewTopic("jobs", 1, configs=COMPACTED)])
    with Producer(cluster) as producer:
        for number in range(3):
            producer.send("jobs", b"%d" % number, key=b"k", timestamp_ms=1_000).get(60)
        producer.send("jobs", b"now", key=b"active").get(60)
    assert values(records(wire)) == [b"0", b"1", b"2", b"now"]
    assert maintain(cluster, ["jobs"], steps=[Step.COMPACT]).failures == []
    assert values(records(wire)) == [b"2", b"now"]


def test_a_fetch_finds_all_that_was_committed_before_it(cluster, wire):
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    assert records(wire) in (b"", None)
    with Producer(cluster) as producer:
        for number in range(10):
            producer.send("jobs", b"%d" % number).get(60)
    assert len(values(records(wire))) == 10


def test_times_of_the_log_are_told_as_such_and_never_moved(cluster, wire):
    Admin(cluster).create_topics([NewTopic("jobs", 1, configs={"message.timestamp.type": "LogAppendTime"})])
    with Producer(cluster) as producer:
        for number in range(3):
            producer.send("jobs", b"%d" % number).get(60)
    found = [*batch_headers(records(wire))]
    assert all(one.is_log_append_time for one in found)
    # Clients take a batch's greatest timestamp for each of its records.
    assert [(one.base_timestamp_ms, one.count) for one in found if one.base_timestamp_ms != one.max_timestamp_ms] == []
    assert sum(one.count for one in found) == 3


def test_a_topic_that_is_deleted_under_a_waiting_fetch_is_told(cluster, wire):
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    wire.send("Fetch", 11, fetching(0, max_wait_ms=20_000))
    Admin(cluster).delete_topics(["jobs"])
    assert fetched(message("FetchResponse").decode(wire.receive()[4:], 11))["error_code"] == 3
    assert wire.call("Metadata", 9, {"topics": None})["topics"] == []


def test_an_id_never_names_the_topic_that_came_after_its_own(cluster, wire):
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    (old,) = wire.call("Metadata", 12, {"topics": [{"name": "jobs"}]})["topics"]
    assert records(wire, topic_id=old["topic_id"]) in (b"", None)
    Admin(cluster).delete_topics(["jobs"])
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    assert wire.call("Produce", 9, produce(batch(b"new")))["responses"]
    assert fetched(wire.call("Fetch", 13, fetching(0, topic_id=old["topic_id"])))["error_code"] == 100
    (new,) = wire.call("Metadata", 12, {"topics": [{"name": "jobs"}]})["topics"]
    assert values(records(wire, topic_id=new["topic_id"])) == [b"new"]
    assert fetched(wire.call("Fetch", 13, fetching(0, topic_id=old["topic_id"])))["error_code"] == 100
    asked = {"topics": [{"name": None, "topic_id": old["topic_id"]}]}
    assert wire.call("Metadata", 12, asked)["topics"][0]["error_code"] == 100
    assert wire.call("DeleteTopics", 6, {**asked, "timeout_ms": 20_000})["responses"][0]["error_code"] == 100
    assert Admin(cluster).list_topics() == ["jobs"]


def test_a_store_that_is_away_is_told_soon_and_nothing_is_lost():
    store = AwayStore(MemoryStore())
    Admin(open_cluster(store)).create_topics([NewTopic("jobs", 1)])
    with sparklog.gateway.serve(open_cluster(store), delivery_timeout_ms=100, look_timeout_ms=100) as servers:
        client = Wire(servers)
        until_stored(client, b"a")
        until_fetched(client, {b"a"})
        store.is_away = True
        assert fetched(client.call("Fetch", 11, fetching(0)))["error_code"] == 56
        assert client.call("Metadata", 9, {"topics": [{"name": "jobs"}]})["topics"][0]["error_code"] == 56
        (found,) = client.call("ListOffsets", 7, ends())["topics"][0]["partitions"]
        assert found["error_code"] == 56
        epochs = {"topic": "jobs", "partitions": [{"partition": 0, "leader_epoch": 0}]}
        (told,) = client.call("OffsetForLeaderEpoch", 4, {"topics": [epochs]})["topics"]
        assert told["partitions"][0]["error_code"] == 56
        assert produced(client.call("Produce", 9, produce(batch(b"b"))))["error_code"] == 7
        store.is_away = False
        until_stored(client, b"c")
        until_fetched(client, {b"a", b"c"}, {b"a", b"b", b"c"})
        client.close()


def until_stored(client, value):
    """Send it until it is acknowledged: a busy machine may take longer than the gateway's bounds."""
    while (code := produced(client.call("Produce", 9, produce(batch(value))))["error_code"]) == 7:
        pass
    assert code == 0


def until_fetched(client, *expected):
    """Fetch until it is answered in time. What was sent again may be there more than once."""
    while (found := fetched(client.call("Fetch", 11, fetching(0))))["error_code"] == 56:
        pass
    assert {*values(found["records"])} in expected


def test_a_topic_that_cannot_be_read_hides_no_other(cluster, wire):
    Admin(cluster).create_topics([NewTopic("jobs", 1), NewTopic("broken", 1)])
    table = cluster.topic_log("broken").table
    cluster.store.create(f"{table}/_delta_log/{1:020}.json", b"{}\nnot JSON\n")
    found = {one["name"]: one["error_code"] for one in wire.call("Metadata", 9, {"topics": None})["topics"]}
    assert found["jobs"] == 0
    assert found["broken"] != 0


def test_an_offset_that_a_look_did_not_see_which_began_before_is_looked_for_again(cluster):
    Admin(cluster).create_topics([NewTopic("jobs", 1)])

    async def play() -> Any:
        backend = Backend(cluster, GatewaySettings(), None)
        fetching = fetching_of(backend)
        before = await fetching.view("jobs")
        with Producer(cluster) as producer:
            producer.send("jobs", b"a").get(60)

        async def began_before() -> TopicView:
            return before

        look = fetching._polling["jobs"] = asyncio.ensure_future(began_before())
        look.add_done_callback(lambda _: fetching._polling.pop("jobs"))
        answer = await fetch(backend, Request(11, fetching_body, "", ("", 0)))
        await backend.close()
        return fetched(answer)

    fetching_body = fetching(1)  # the end of the log, by ListOffsets for one
    found = asyncio.run(play())
    assert (found.get("error_code", 0), found["high_watermark"]) == (0, 1)


def test_a_topic_is_looked_at_once_for_all_its_partitions(cluster, monkeypatch):
    Admin(cluster).create_topics([NewTopic("jobs", 5)])
    polls: list[TopicView] = []
    poll = TopicView.poll

    def noting(view: TopicView, expected: int) -> list[int]:
        polls.append(view)
        return poll(view, expected)

    monkeypatch.setattr(TopicView, "poll", noting)

    async def play() -> None:
        backend = Backend(cluster, GatewaySettings(), None)
        body = fetching(0)
        (part,) = body["topics"][0]["partitions"]
        body["topics"][0]["partitions"] = [{**part, "partition": number} for number in range(5)]
        for _ in range(3):  # the first one opens the topic
            await fetch(backend, Request(11, body, "", ("", 0)))
        await backend.close()

    asyncio.run(play())
    assert len(polls) == 2


def test_a_topic_that_makes_room_for_others_is_still_answered(cluster, monkeypatch):
    Admin(cluster).create_topics([NewTopic("jobs", 1), NewTopic("more", 1)])
    monkeypatch.setattr(fetch_module, "_MANY_TOPICS", 1)

    async def play() -> None:
        backend = Backend(cluster, GatewaySettings(), None)
        views = fetching_of(backend)
        known = await views.view("jobs")

        # Another topic takes its place while it is looked at.
        def forgetting(view: TopicView, expected: int) -> list[int]:
            views._topics.clear()
            return []

        monkeypatch.setattr(TopicView, "poll", forgetting)
        assert await views.view("jobs") is known
        await views.view("more")
        await views.view("jobs")
        assert len(views._topics) == 1
        await backend.close()

    asyncio.run(play())


def test_nothing_is_read_for_a_partition_that_there_is_no_room_for(cluster, monkeypatch):
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    with Producer(cluster) as producer:
        producer.send("jobs", b"a").get(60)
    view = TopicView(cluster, "jobs", BatchCache(1 << 20))
    monkeypatch.setattr(TopicView, "_read", lambda *_: pytest.fail("it was read"))
    found = view.fetch(0, 0, 0, least_one=False)
    assert (found.records, found.log_end_offset) == ([], 1)


def test_an_id_that_two_find_out_of_date_at_once_is_told_to_both(cluster, monkeypatch):
    admin = Admin(cluster)
    admin.create_topics([NewTopic("jobs", 1)])
    backend = Backend(cluster, GatewaySettings(), None)
    old = uuid.UUID(backend.describe("jobs").topic_id)
    admin.delete_topics(["jobs"])
    admin.create_topics([NewTopic("jobs", 1)])
    describe = Backend.describe
    monkeypatch.setattr(Backend, "describe", lambda one, name: (one.topic_names.pop(old), describe(one, name))[1])
    with pytest.raises(UnknownTopicOrPartitionError):
        backend.describe_by_id(old)
    asyncio.run(backend.close())


def test_a_partition_of_many_small_files_is_sent_piece_by_piece(cluster, monkeypatch):
    Admin(cluster).create_topics([NewTopic("jobs", 2)])
    with Producer(cluster) as producer:
        for number in range(4):
            producer.send("jobs", b"%d" % number, partition=number % 2).get(60)

    async def play() -> list[list[list[bytes]]]:
        backend = Backend(cluster, GatewaySettings(), None)
        found = []
        for offsets in ((0, 0), (1, 0), (2, 0)):
            body = fetching(0)
            (part,) = body["topics"][0]["partitions"]
            parts = [{**part, "partition": number, "fetch_offset": at} for number, at in enumerate(offsets)]
            body["topics"][0]["partitions"] = parts
            (topic,) = (await fetch(backend, Request(11, body, "", ("", 0))))["responses"]
            found.append([values(b"".join(one["records"])) for one in topic["partitions"]])
        await backend.close()
        return found

    monkeypatch.setattr(fetch_module, "_LONG_S", -1.0)
    monkeypatch.setattr(topic_view, "_LONG_MS", -1.0)
    assert asyncio.run(play()) == [[[b"0"], []], [[b"2"], []], [[], [b"1"]]]


def test_what_is_produced_during_a_look_is_not_waited_for(cluster, monkeypatch):
    """The look has begun before the record was stored: its Fetch looks again at once, and not when it polls next."""
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    looks = []

    async def play() -> None:
        backend = Backend(cluster, GatewaySettings(fetch_poll_ms=600_000), None)
        real = fetch_module._look

        async def look(*given: Any, **named: Any) -> Any:
            found = await real(*given, **named)
            looks.append(found[1])
            if len(looks) == 1:  # nothing was there; now something comes
                with Producer(cluster) as producer:
                    await asyncio.to_thread(producer.send("jobs", b"new").get, 20)
                fetching_of(backend).notify(["jobs"])
            return found

        monkeypatch.setattr(fetch_module, "_look", look)
        body = fetching(0, max_wait_ms=500_000)
        answer = await asyncio.wait_for(fetch(backend, Request(11, body, "", ("", 0))), 60)
        await backend.close()
        assert values(b"".join(answer["responses"][0]["partitions"][0]["records"])) == [b"new"]

    asyncio.run(play())
    assert len(looks) == 2


def test_what_a_reader_asks_for_next_is_read_ahead(cluster, monkeypatch):
    monkeypatch.setattr(topic_view, "_BATCH_BYTES", 100)
    monkeypatch.setattr(topic_view, "_AHEAD_BYTES", 500)
    monkeypatch.setattr(topic_view, "_ASKED_BYTES", 300)
    Admin(cluster).create_topics([NewTopic("jobs", 2)])
    with Producer(cluster) as producer:
        for number in range(40):
            producer.send("jobs", b"%03d" % number * 30, partition=number % 2).get(60)
    read: list[tuple[int, int]] = []
    real = TopicView._read

    def noted(view: TopicView, partition: int, offset: int, *rest: Any) -> Any:
        read.append((partition, offset))
        return real(view, partition, offset, *rest)

    monkeypatch.setattr(TopicView, "_read", noted)

    async def play() -> None:
        backend = Backend(cluster, GatewaySettings(), None)
        at = 0
        while at < 20:
            before = len(read)
            answer = await fetch(backend, Request(11, fetching(at, max_bytes=300), "", ("", 0)))
            assert at == 0 or len(read) == before  # all but the first find what they ask for
            for one in answer["responses"][0]["partitions"][0]["records"]:
                at += sum(header.count for header in batch_headers(one))
            if (reading := fetching_of(backend).ahead._reading) is not None:
                await asyncio.wait_for(asyncio.wait([reading]), 60)
        assert len(read) > 1
        await backend.close()

    asyncio.run(play())


def test_partitions_are_read_ahead_together(cluster, monkeypatch):
    Admin(cluster).create_topics([NewTopic("jobs", 20)])
    with Producer(cluster) as producer:
        for partition in range(20):
            producer.send("jobs", b"v", partition=partition).get(60)

    async def play() -> None:
        backend = Backend(cluster, GatewaySettings(), None)
        view = await fetching_of(backend).view("jobs")
        trips: list[Any] = []
        real = backend.run_look

        def counted(call: Any) -> Any:
            trips.append(call)
            return real(call)

        monkeypatch.setattr(backend, "run_look", counted)
        ahead = fetching_of(backend).ahead
        for partition in range(20):
            ahead.add(view, partition, 7 if partition == 3 else 0)  # behind the end: others are read all the same
        ahead.begin()
        assert ahead._reading is not None
        await asyncio.wait_for(asyncio.wait([ahead._reading]), 60)
        assert len(trips) == 3
        assert [partition for partition in range(20) if not view.has_kept(partition, 0)] == [3]
        await backend.close()

    asyncio.run(play())


def test_reading_ahead_of_what_is_gone_ends_quietly(cluster):
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    with Producer(cluster) as producer:
        producer.send("jobs", b"v").get(60)

    async def play() -> None:
        backend = Backend(cluster, GatewaySettings(), None)
        view = await fetching_of(backend).view("jobs")
        ahead = fetching_of(backend).ahead
        ahead.add(view, 0, 0)
        ahead.add(view, 0, 7)  # behind the end
        ahead.begin()
        ahead.add(view, 5, 0)  # no such partition
        assert ahead._reading is not None
        await asyncio.wait_for(asyncio.wait([ahead._reading]), 60)
        await backend.close()

    asyncio.run(play())


def test_a_fetch_asks_for_no_file_that_the_log_carried():
    store = RemoteStore()
    cluster = with_topic(a_cluster(store), "old")
    view = TopicView(cluster, "t", BatchCache(1 << 20))
    send(cluster, "ab", "c")
    view.poll()
    found = view.fetch(0, 3, 1 << 20, least_one=True)
    assert values(b"".join(found.records)) == [b"a", b"b", b"c"]
    assert store.read_at_turn == []
    first = view.fetch(0, 0, 1 << 20, least_one=True)
    assert values(b"".join(first.records)) == [b"o", b"l", b"d", b"a", b"b", b"c"]
    assert len(store.read_at_turn) == 3  # what was taken is read again
