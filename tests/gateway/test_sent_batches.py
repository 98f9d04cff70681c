"""What was produced here is kept for readers as it was sent, and nothing else is told than what the store would."""

from __future__ import annotations

import asyncio
import random
import struct
import threading
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog import Admin, NewTopic, Producer, TopicPartition, _native
from sparklog.compaction.maintenance import Step, maintain
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.fetch import fetch, fetching_of
from sparklog.gateway.produce_rounds import rounds_of
from sparklog.gateway.records import batch_headers, decode_batches, encode_batches
from sparklog.gateway.records.batches import HEADER_BYTES, LOG_APPEND_TIME_BIT, batch_with_header
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.topic_view import TopicView
from sparklog.log.cluster import open_cluster
from sparklog.log.data.schema import HEADERS
from sparklog.storage import MemoryStore
from tests.gateway.test_fetch import COMPACTED
from tests.gateway.test_produce_rounds import answers, body, frame, numbered
from tests.gateway.test_refused_records import records as keyed
from tests.gateway.test_server import batch, fetched, fetching, values

CORE: Any = _native.CORE
pytestmark = pytest.mark.skipif(CORE is None, reason="without a compiled core nothing is kept as it was sent")
A_MINUTE_MS = 60_000


class Gateway:
    """A gateway without connections, which somebody fetches from."""

    def __init__(self, cluster, **chosen):
        self.backend = Backend(cluster, GatewaySettings(**chosen), None)
        self.fetching = fetching_of(self.backend)
        self.rounds = rounds_of(self.backend)

    async def produce(self, data, topic="jobs"):
        await self.backend.run(lambda: self.backend.producer(-1)._pipelines.get(topic))
        sent = self.rounds.begin(memoryview(frame(body([(topic, [(0, data)])]))), None)
        assert sent is not None
        return answers(await asyncio.wait_for(sent.done, 60))

    async def fetch(self, offset, **asked):
        body = fetching(offset, **asked)
        request = Request(13 if "topic_id" in asked else 11, body, "", ("", 0))
        answer = fetched(await asyncio.wait_for(fetch(self.backend, request), 60))
        answer["values"] = values(b"".join(answer["records"])) if answer["records"] else []
        return answer


@pytest.fixture
def cluster():
    return open_cluster(MemoryStore())


def created(cluster, **chosen):
    Admin(cluster).create_topics([NewTopic("jobs", 1, **chosen)])


def play(cluster, script, **chosen):
    async def run():
        gateway = Gateway(cluster, **chosen)
        try:
            return await script(gateway)
        finally:
            await gateway.backend.close()

    return asyncio.run(run())


@pytest.fixture
def reads(monkeypatch):
    """Offsets from which files were read."""
    found: list[int] = []
    real = TopicView._read

    def noted(view: TopicView, partition: int, offset: int, *rest: Any) -> Any:
        found.append(offset)
        return real(view, partition, offset, *rest)

    monkeypatch.setattr(TopicView, "_read", noted)
    return found


@pytest.fixture
def looks(monkeypatch):
    """Looks at topics, by how many commits they have found."""
    found: list[int] = []
    real = TopicView.poll

    def noted(view: TopicView, expected: int) -> list[int]:
        versions = real(view, expected)
        found.append(len(versions))
        return versions

    monkeypatch.setattr(TopicView, "poll", noted)
    return found


TABLES = st.lists(
    st.tuples(st.integers(0, 2**42), st.none() | st.binary(max_size=70), st.none() | st.binary(max_size=200)),
    min_size=1,
    max_size=6,
)


def table_of(rows, first=0):
    times, keys, found = zip(*rows, strict=True)
    columns = {
        "offset": pa.array(range(first, first + len(rows)), pa.int64()),
        "timestamp": pa.array(times, pa.int64()),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(found, pa.binary()),
    }
    return pa.table(columns | {"headers": pa.nulls(len(rows), HEADERS)})


@given(TABLES, st.integers(0, 2**62))
def test_a_batch_as_it_was_sent_is_what_its_file_would_give(rows, offset):
    (sent,) = encode_batches(table_of(rows))
    (expected,) = encode_batches(table_of(rows, offset))
    assert CORE.sent_batch(sent, offset) == expected
    (header,) = batch_headers(sent)
    of_a_producer = batch_with_header(replace(header, producer_id=5, producer_epoch=1, base_sequence=3))
    assert CORE.sent_batch(of_a_producer, offset)[HEADER_BYTES:] == expected[HEADER_BYTES:]


@given(TABLES, st.integers(0, 2**32))
def test_a_batch_with_bytes_changed_is_kept_only_if_encoding_it_makes_the_same(rows, seed):
    """Its checksum is right, as if it had been sent so: no reader gets what another encoding than ours would be."""
    chosen = random.Random(seed)
    (data,) = encode_batches(table_of(rows))
    for _ in range(20):
        changed = bytearray(data)
        for _ in range(chosen.randint(1, 2)):
            changed[chosen.randrange(21, len(changed))] = chosen.choice([0, 1, 2, 127, 128, 255, chosen.randrange(256)])
        struct.pack_into(">I", changed, 17, CORE.crc32c(memoryview(changed)[21:]))
        kept = CORE.sent_batch(changed, 0)
        if kept is not None:
            (header,) = batch_headers(kept)
            assert header.count == header.last_offset_delta + 1
            (made,) = encode_batches(decode_batches([header], limit_bytes=1 << 20), batch_bytes=1 << 20)
            of_none = batch_with_header(replace(header, producer_id=-1, producer_epoch=-1, base_sequence=-1))
            assert made == of_none


def test_other_batches_are_not_kept():
    (header,) = batch_headers(batch(b"a", b"b"))
    assert CORE.sent_batch(batch(b"a", b"b"), 0) is not None
    wrong = [
        replace(header, max_timestamp_ms=header.max_timestamp_ms + 1),
        replace(header, attributes=LOG_APPEND_TIME_BIT),
        replace(header, last_offset_delta=7),
        replace(header, count=1, last_offset_delta=0),
    ]
    for one in wrong:
        assert CORE.sent_batch(batch_with_header(one), 0) is None
    assert CORE.sent_batch(batch(b"a" * 100, codec="gzip"), 0) is None
    assert CORE.sent_batch(batch(b"a")[:-1], 0) is None
    assert CORE.sent_batch(b"", 0) is None
    with_header = table_of([(5, b"k", b"v")]).drop_columns(["headers"])
    with_header = with_header.append_column("headers", pa.array([[{"key": "h", "value": b"x"}]], HEADERS))
    assert CORE.sent_batch(next(encode_batches(with_header)), 0) is None
    longer = bytearray(batch(b"a"))  # the length of the record takes a byte more than it must
    longer[HEADER_BYTES : HEADER_BYTES + 1] = bytes([longer[HEADER_BYTES] | 128, 0])
    (size,) = struct.unpack_from(">i", longer, 8)
    struct.pack_into(">i", longer, 8, size + 1)
    struct.pack_into(">I", longer, 17, CORE.crc32c(memoryview(longer)[21:]))
    (odd,) = batch_headers(longer)
    assert decode_batches([odd], limit_bytes=1 << 20)["value"].to_pylist() == [b"a"]
    assert CORE.sent_batch(longer, 0) is None


def test_what_was_produced_here_is_read_from_no_file(cluster, reads):
    created(cluster)

    async def script(gateway):
        assert (await gateway.fetch(0))["values"] == []
        assert await gateway.produce(batch(b"a", b"b")) == [0]
        assert await gateway.produce(batch(b"c")) == [2]
        found = await gateway.fetch(0)
        assert (found["values"], found["high_watermark"]) == ([b"a", b"b", b"c"], 3)
        await gateway.fetching.view("jobs")
        assert (await gateway.fetch(2))["values"] == [b"c"]  # also where the log says so
        assert [one.base_offset for one in batch_headers(b"".join((await gateway.fetch(0))["records"]))] == [0, 2]
        assert reads == []
        assert (await gateway.fetch(1))["values"] == [b"b", b"c"]  # from inside a batch
        assert reads == [1]

    play(cluster, script)


def test_a_reader_is_answered_while_a_look_takes_long(cluster, monkeypatch):
    """The store may take long to say what others have committed: what was committed here is known."""
    created(cluster)
    goes_on = threading.Event()
    begun = threading.Event()

    async def script(gateway):
        await gateway.fetch(0)
        real = TopicView.poll

        def slow(view: TopicView, expected: int) -> list[int]:
            begun.set()
            assert goes_on.wait(60)
            return real(view, expected)

        monkeypatch.setattr(TopicView, "poll", slow)
        waiting = asyncio.ensure_future(gateway.fetch(0, max_wait_ms=A_MINUTE_MS))
        assert await asyncio.to_thread(begun.wait, 60)
        try:
            assert await gateway.produce(batch(b"a")) == [0]
            assert (await waiting)["values"] == [b"a"]
            assert (await gateway.fetch(0, max_wait_ms=A_MINUTE_MS))["values"] == [b"a"]
        finally:
            goes_on.set()

    play(cluster, script)


def test_a_reader_ahead_of_a_look_may_ask_for_what_follows(cluster, monkeypatch):
    """It has records that were committed since the look began, and asks for those behind them."""
    created(cluster)
    goes_on = threading.Event()
    begun = threading.Event()

    async def script(gateway):
        await gateway.fetch(0)
        assert await gateway.produce(batch(b"a")) == [0]
        await gateway.fetching.view("jobs")
        assert gateway.fetching._topics["jobs"].is_ours
        real = TopicView.poll

        def late(view: TopicView, expected: int) -> list[int]:
            found = real(view, expected)
            begun.set()
            assert goes_on.wait(60)
            return found

        monkeypatch.setattr(TopicView, "poll", late)
        looking = asyncio.ensure_future(gateway.fetching.view("jobs"))
        assert await asyncio.to_thread(begun.wait, 60)
        try:
            assert await gateway.produce(batch(b"b")) == [1]
            assert (await gateway.fetch(1, max_wait_ms=A_MINUTE_MS * 10))["values"] == [b"b"]
            waiting = asyncio.ensure_future(gateway.fetch(2, max_wait_ms=A_MINUTE_MS * 10))
            assert await gateway.produce(batch(b"c")) == [2]
            assert (await waiting)["values"] == [b"c"]
        finally:
            goes_on.set()
        await looking

    play(cluster, script, fetch_poll_ms=A_MINUTE_MS * 5)


def test_a_topic_to_which_only_this_gateway_writes_is_looked_at_from_time_to_time(cluster, looks):
    created(cluster)

    async def script(gateway):
        await gateway.fetch(0)
        at = 0
        for number in range(3):
            await gateway.produce(batch(b"%d" % number))
            await gateway.fetching.view("jobs")
            assert looks.pop() == 1
            assert not looks  # one look has found the commit, and that nothing follows
        for number in range(20):
            await gateway.produce(batch(b"x"))
            found = await gateway.fetch(3 + number, max_wait_ms=A_MINUTE_MS * 10)
            assert found["values"] == [b"x"]
            at = found["high_watermark"]
        assert at == 23
        assert looks == []
        # Who doesn't wait is told what is there now, whoever wrote it.
        with Producer(cluster) as producer:
            await asyncio.to_thread(lambda: producer.send("jobs", b"other").get(60))
        assert (await gateway.fetch(23))["values"] == [b"other"]
        assert sum(looks) == 21
        assert not gateway.fetching._topics["jobs"].is_ours

    play(cluster, script, fetch_poll_ms=A_MINUTE_MS * 5)


@pytest.mark.parametrize("by_id", [False, True], ids=["by name", "by id"])
def test_a_commit_wakes_the_readers_of_its_topic_alone(cluster, looks, by_id):
    """A look at a topic is a request of the store: one to which nobody writes isn't looked at for what others get."""
    created(cluster)
    Admin(cluster).create_topics([NewTopic("busy", 1)])

    async def script(gateway):
        jobs = {"topic_id": uuid.UUID(gateway.backend.describe("jobs").topic_id)} if by_id else {}
        await gateway.fetch(0, **jobs)
        waiting = asyncio.ensure_future(gateway.fetch(0, max_wait_ms=A_MINUTE_MS * 10, **jobs))
        while not looks:
            await asyncio.sleep(0)
        for number in range(20):
            assert await gateway.produce(batch(b"x"), "busy") == [number]
        assert (len(looks), waiting.done()) == (1, False)
        assert await gateway.produce(batch(b"a")) == [0]
        assert (await waiting)["values"] == [b"a"]

    play(cluster, script, fetch_poll_ms=A_MINUTE_MS * 5)


@pytest.mark.parametrize("topic", ["jobs", "quiet"])
def test_a_commit_to_any_of_its_topics_wakes_a_fetch(cluster, looks, topic):
    created(cluster)
    Admin(cluster).create_topics([NewTopic("quiet", 1)])

    async def script(gateway):
        asked = fetching(0, max_wait_ms=A_MINUTE_MS * 10)
        asked["topics"] += fetching(0, topic="quiet")["topics"]
        for name in ("jobs", "quiet"):
            await gateway.fetching.view(name)
        looks.clear()
        waiting = asyncio.ensure_future(fetch(gateway.backend, Request(11, asked, "", ("", 0))))
        while len(looks) < 2:
            await asyncio.sleep(0)
        assert await gateway.produce(batch(b"a"), topic) == [0]
        answer = await asyncio.wait_for(waiting, 60)
        assert [one["topic"] for one in answer["responses"] if one["partitions"][0]["records"]] == [topic]

    play(cluster, script, fetch_poll_ms=A_MINUTE_MS * 5)


def test_what_others_commit_is_found_beside_what_is_produced_here(cluster):
    """A reader of two partitions, of which one always has something new from here."""
    Admin(cluster).create_topics([NewTopic("jobs", 2)])

    async def script(gateway):
        asked = fetching(0, max_wait_ms=A_MINUTE_MS)
        (part,) = asked["topics"][0]["partitions"]
        offsets = [0, 0]
        with Producer(cluster) as producer:
            await asyncio.to_thread(lambda: producer.send("jobs", b"other", partition=1).get(60))
        for number in range(10_000):
            await gateway.produce(batch(b"%d" % number))
            parts = [{**part, "partition": index, "fetch_offset": at} for index, at in enumerate(offsets)]
            asked["topics"][0]["partitions"] = parts
            answer = await asyncio.wait_for(fetch(gateway.backend, Request(11, asked, "", ("", 0))), 60)
            found = [values(b"".join(one["records"])) for one in answer["responses"][0]["partitions"]]
            offsets = [at + len(one) for at, one in zip(offsets, found, strict=True)]
            if found[1]:
                assert found[1] == [b"other"]
                return
        pytest.fail("it was never told")

    play(cluster, script, fetch_poll_ms=1)


def test_what_was_compacted_away_is_not_kept(cluster):
    created(cluster, configs=COMPACTED)

    async def script(gateway):
        await gateway.fetch(0)
        for key in (b"k", b"k", b"k", b"active"):
            await gateway.produce(keyed(key))
        assert len((await gateway.fetch(0))["values"]) == 4
        assert maintain(cluster, ["jobs"], steps=[Step.COMPACT]).failures == []
        await gateway.fetching.view("jobs")
        found = decode_batches([*batch_headers(b"".join((await gateway.fetch(0))["records"]))], limit_bytes=1 << 20)
        assert found["offset"].to_pylist() == [2, 3]

    play(cluster, script)


def test_records_that_were_deleted_are_not_kept(cluster):
    created(cluster)

    async def script(gateway):
        await gateway.fetch(0)
        for value in (b"a", b"b"):
            await gateway.produce(batch(value))
        Admin(cluster).delete_records({TopicPartition("jobs", 0): 1})
        assert (await gateway.fetch(0))["error_code"] == 1
        assert (await gateway.fetch(1))["values"] == [b"b"]

    play(cluster, script)


def test_times_of_the_log_and_typed_values_are_those_of_the_files(cluster, reads):
    created(cluster, configs={"message.timestamp.type": "LogAppendTime"})
    Admin(cluster).create_topics([NewTopic("typed", 1, value_schema="n INT", configs={"value.format": "json"})])

    async def script(gateway):
        await gateway.fetch(0)
        await gateway.fetch(0, topic="typed")
        await gateway.produce(batch(b"a"))
        found = await gateway.fetch(0)
        assert all(one.is_log_append_time for one in batch_headers(b"".join(found["records"])))
        await gateway.produce(batch(b'{"n":  1}'), "typed")
        assert len((await gateway.fetch(0, topic="typed"))["values"]) == 1

    play(cluster, script)
    assert reads == [0, 0]


def test_a_batch_that_is_repeated_is_kept_where_it_lies(cluster, reads):
    created(cluster)

    async def script(gateway):
        await gateway.fetch(0)
        first = numbered(batch(b"a"), 5, 0)
        assert [await gateway.produce(one) for one in (first, numbered(batch(b"b"), 5, 1), first)] == [[0], [1], [0]]
        await gateway.fetching.view("jobs")
        assert (await gateway.fetch(0))["values"] == [b"a", b"b"]

    play(cluster, script)
    assert reads == []


def test_an_id_gets_nothing_of_the_topic_that_came_after_its_own(cluster):
    created(cluster)

    async def script(gateway):
        old = uuid.UUID(gateway.backend.describe("jobs").topic_id)
        await gateway.fetch(0, topic_id=old)
        await gateway.produce(batch(b"old"))
        assert (await gateway.fetch(0, topic_id=old, max_wait_ms=A_MINUTE_MS))["values"] == [b"old"]
        Admin(cluster).delete_topics(["jobs"])
        created(cluster)
        for _ in range(2):  # the first may be how the producer learns of it
            await gateway.produce(batch(b"new"))
        new = uuid.UUID(gateway.backend.describe("jobs").topic_id)
        assert (await gateway.fetch(0, topic_id=old))["error_code"] == 100
        assert set((await gateway.fetch(0, topic_id=new))["values"]) == {b"new"}

    play(cluster, script)


def test_nothing_is_kept_where_nobody_fetches(cluster):
    created(cluster)

    async def script(gateway):
        del gateway.backend.extras["fetch"]
        await gateway.produce(batch(b"a"))
        assert len(gateway.fetching._cache._batches) == 0

    play(cluster, script)


def test_a_fetch_has_what_lies_in_files_behind_what_is_kept(cluster, reads):
    created(cluster)

    async def script(gateway):
        await gateway.fetch(0)
        await gateway.produce(batch(b"a"))
        with Producer(cluster) as producer:
            await asyncio.to_thread(lambda: producer.send("jobs", b"b").get(60))
        await gateway.produce(batch(b"c"))
        await gateway.fetching.view("jobs")
        assert (await gateway.fetch(0, max_wait_ms=A_MINUTE_MS))["values"] == [b"a", b"b", b"c"]

    play(cluster, script)
    assert reads == [1]


def test_what_is_kept_is_bounded(cluster, reads):
    created(cluster)

    async def script(gateway):
        await gateway.fetch(0)
        for _ in range(5):
            await gateway.produce(batch(b"x" * 1_000))
        assert len(gateway.fetching._cache._batches) == 2
        await gateway.fetching.view("jobs")
        at = 0
        while at < 5:
            at += len((await gateway.fetch(at))["values"])

    play(cluster, script, cache_bytes=4_000)
    assert reads[0] == 0


def test_what_is_sent_to_a_topic_that_nobody_reads_is_not_kept(cluster):
    created(cluster)
    Admin(cluster).create_topics([NewTopic("unread", 1)])
    kept: list[str] = []

    async def script(gateway):
        real = gateway.fetching.keep_sent

        def noted(topic_id, *rest):
            kept.append(topic_id)
            real(topic_id, *rest)

        gateway.fetching.keep_sent = noted
        await gateway.fetch(0)
        await gateway.produce(batch(b"a"), "unread")
        await gateway.produce(batch(b"b"))
        return await gateway.fetch(0), await gateway.fetch(0, topic="unread")

    read, first = play(cluster, script)
    assert kept == [Admin(cluster).describe_topics(["jobs"])[0].topic_id]
    assert (read["values"], first["values"]) == ([b"b"], [b"a"])
