"""Produce requests of one turn of the loop are sent together, and each is answered as if it were alone."""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog import Admin, NewTopic, TopicPartition
from sparklog._native import CORE
from sparklog.gateway import produce_rounds
from sparklog.gateway.apis import APIS, PRODUCE
from sparklog.gateway.backend import Backend
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.produce_rounds import gathers, rounds_of
from sparklog.gateway.produced_frame import produced_frame
from sparklog.gateway.records import BatchError, batch_headers, decode_batches, decode_parts
from sparklog.gateway.records.batches import CODECS, HEADER_BYTES, batch_with_header
from sparklog.gateway.records.compression import decompress
from sparklog.gateway.settings import GatewaySettings
from sparklog.gateway.users import Rules
from sparklog.gateway.wire import WireError, message
from sparklog.gateway.wire.frames import read_request_header, response_frame
from sparklog.log.cluster import open_cluster
from sparklog.log.follow import TopicFollower
from sparklog.storage import MemoryStore
from tests.gateway.test_refused_records import records
from tests.gateway.test_server import batch

REQUEST, RESPONSE = message("ProduceRequest"), message("ProduceResponse")
VERSIONS = range(APIS[PRODUCE].first, APIS[PRODUCE].last + 1)
needs_core = pytest.mark.skipif(CORE is None, reason="without a compiled core each request is sent alone")


def numbered(data, producer_id, sequence):
    (header,) = batch_headers(data)
    return bytes(batch_with_header(replace(header, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)))


def body(topics, acks=-1):
    topic_data = [
        {"name": name, "partition_data": [{"index": index, "records": data} for index, data in partitions]}
        for name, partitions in topics
    ]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1_000, "topic_data": topic_data}


def frame(asked, version=9, correlation_id=7, client_id=b"wire"):
    head = struct.pack(">hhi", PRODUCE, version, correlation_id)
    head += struct.pack(">h", -1 if client_id is None else len(client_id)) + (client_id or b"")
    head += b"\0" if version in REQUEST.flexible else b""
    return head + bytes(REQUEST.encode(asked, version))


def by_definition(data):
    """What the core finds, by the codec and in Python; None: it isn't an ordinary request, or none at all."""
    try:
        version = int.from_bytes(data[2:4], "big")
        header = read_request_header(memoryview(data), REQUEST)
        asked = REQUEST.decode(header.body, version, is_exact=False)
        topics = []
        for topic in asked["topic_data"]:
            found = []
            for partition in topic["partition_data"]:
                (one,) = batch_headers(partition["records"])
                is_numbered = one.producer_id >= 0
                is_special = one.is_control or one.is_transactional or not one.count
                is_wrong = is_numbered and (
                    one.producer_epoch < 0 or one.base_sequence < 0 or one.count != one.last_offset_delta + 1
                )
                if is_special or is_wrong:
                    return None
                codec = one.attributes & 7
                time = one.max_timestamp_ms if one.is_log_append_time else None
                numbers = one.producer_id, one.producer_epoch, one.base_sequence
                data = partition["index"], bytes(partition["records"]), codec
                found.append((*data, one.last_offset_delta, one.count, one.base_timestamp_ms, time, *numbers))
            if not found or not topic["name"]:
                return None
            topics.append((topic["name"], found))
        if asked["transactional_id"] is not None or not topics:
            return None
        return version, header.correlation_id, asked["acks"], topics
    except (WireError, BatchError, ValueError, TypeError):
        return None


def by_core(data):
    assert CORE is not None
    found = CORE.produce_request(data)
    if found is None:
        return None
    version, correlation_id, acks, topics = found
    parts = [
        (name, [(index, data[begin:end], *rest) for index, begin, end, *rest in partitions])
        for name, partitions in topics
    ]
    return version, correlation_id, acks, parts


RECORDS = st.builds(
    lambda values, codec, numbers: (
        numbered(batch(*values, codec=codec), *numbers) if numbers else batch(*values, codec=codec)
    ),
    st.lists(st.binary(max_size=20), min_size=1, max_size=3),
    st.sampled_from([None, None, "gzip", "lz4"]),
    st.none() | st.tuples(st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)),
)
TOPICS = st.lists(
    st.tuples(
        st.text(max_size=130), st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), RECORDS | st.none()), max_size=3)
    ),
    max_size=3,
)


@needs_core
@settings(deadline=None)
@given(TOPICS, st.sampled_from(VERSIONS), st.integers(-(2**15), 2**15 - 1), st.none() | st.binary(max_size=9))
def test_the_core_finds_what_the_definition_does(topics, version, acks, client_id):
    client_id = None if client_id is None else client_id.hex().encode()
    data = frame(body(topics, acks), version, -5, client_id)
    assert by_core(data) == by_definition(data)


@needs_core
@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_with_bytes_changed_is_what_the_definition_says_or_none(version):
    chance = random.Random(version)
    whole = frame(body([("jobs", [(0, batch(b"a", b"b")), (3, numbered(batch(b"c"), 5, 6))])]), version)
    for _ in range(500):
        data = bytearray(whole)
        for _ in range(chance.choice([1, 1, 2, 4])):
            data[chance.randrange(len(data))] = chance.choice([0, 1, 2, 127, 128, 255, chance.randrange(256)])
        data = data[: chance.choice([len(data)] * 3 + [chance.randrange(len(data))])]
        if data[:2] == b"\0\0" and int.from_bytes(data[2:4], "big") in VERSIONS and len(data) >= 10:
            assert by_core(bytes(data)) == by_definition(bytes(data))
        else:
            assert by_core(bytes(data)) is None


@needs_core
def test_other_requests_are_left_to_the_definition():
    data = frame(body([("jobs", [(0, batch(b"a"))])]))
    assert by_core(data) is not None
    assert by_core(b"\0\1" + data[2:]) is None  # Fetch
    assert by_core(frame({**body([("jobs", [(0, batch(b"a"))])]), "transactional_id": "x"})) is None
    assert by_core(frame(body([("jobs", [(0, batch(b"a") + batch(b"b"))])]))) is None
    assert by_core(data[:2] + b"\0\x0d" + data[4:]) is None  # a version that has ids in place of names


@needs_core
@settings(deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_parts_are_decoded_as_batches_are(parts):
    assert CORE is not None
    _, _, _, [(_, found)] = CORE.produce_request(frame(body([("t", [*enumerate(parts)])])))
    data = []
    for one, part in zip(found, parts, strict=True):
        codec, own = CODECS[one[3]], memoryview(part)[HEADER_BYTES:]
        data.append(own if codec is None else decompress(own, codec, limit_bytes=1_000))
    rows = decode_parts(found, data)
    assert rows is not None
    headers = [one for part in parts for one in batch_headers(part)]
    expected = decode_batches(headers, limit_bytes=10_000)
    assert rows.table.drop_columns(["partition"]).equals(expected.drop_columns(["offset"]))
    assert rows.table["partition"].to_pylist() == [n for n, one in enumerate(headers) for _ in range(one.count)]


@settings(deadline=None)
@given(
    st.sampled_from(VERSIONS),
    st.integers(-(2**31), 2**31 - 1),
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=200),
            st.lists(
                st.tuples(
                    st.integers(-(2**31), 2**31 - 1),
                    st.integers(-1, 2**62),
                ),
                max_size=130,
            ),
        ),
        max_size=4,
    ),
)
def test_an_answer_by_template_is_the_one_by_definition(version, correlation_id, topics):
    responses = [
        {
            "name": name,
            "partition_responses": [{"index": index, "base_offset": one} for index, one in parts],
        }
        for name, parts in topics
    ]
    expected = response_frame(RESPONSE, version, correlation_id, {"responses": responses})
    names = [(name, [index for index, _ in parts]) for name, parts in topics]
    found = produced_frame(version, correlation_id, names, [one for _, parts in topics for _, one in parts])
    assert found in (bytes(expected), None)
    is_long = any(len(name.encode()) > 126 for name, _ in topics) or sum(len(parts) for _, parts in topics) > 126
    assert is_long or found is not None


def answers(found):
    """Of a frame: the offset of each partition, or its error's code."""
    value = found if isinstance(found, dict) else RESPONSE.decode(memoryview(found)[9:], 9)
    parts = [one for topic in value["responses"] for one in topic["partition_responses"]]
    return [one.get("error_code") or one["base_offset"] for one in parts]


class Rounds:
    """A gateway's rounds, without connections."""

    def __init__(self, cluster, **chosen):
        self.backend = Backend(cluster, GatewaySettings(**chosen), None)
        self.rounds = rounds_of(self.backend)

    async def open(self, *topics, acks=(-1, 1)):
        for each in acks:
            for topic in topics:
                await self.backend.run(partial(self.backend.producer(each)._pipelines.get, topic))

    def send(self, data, topic="t", partition=0, acks=-1, rules=None, connection=None):
        asked = memoryview(frame(body([(topic, [(partition, data)])], acks)))
        return self.rounds.begin(asked, rules, connection)

    async def told(self, sent):
        return answers(await asyncio.wait_for(sent.done, 60))


@pytest.fixture
def cluster():
    opened = open_cluster(MemoryStore())
    day = {"message.timestamp.after.max.ms": 86_400_000}
    Admin(opened).create_topics([NewTopic("t", 2), NewTopic("u", 1), NewTopic("timed", 1, configs=day)])
    return opened


def play(cluster, script, opened=("t", "u", "timed"), **chosen):
    async def run():
        gateway = Rounds(cluster, **chosen)
        try:
            await gateway.open(*opened)
            return await script(gateway)
        finally:
            await gateway.backend.close()

    return asyncio.run(run())


def version_of(cluster, topic="t"):
    return TopicFollower(cluster.topic_log(topic), topic).head.delta_version


@needs_core
def test_requests_of_one_turn_are_committed_at_once_and_answered_each(cluster):
    before = version_of(cluster)

    async def script(gateway):
        sent = [gateway.send(batch(b"%d" % number, b"x"), partition=number % 2) for number in range(6)]
        sent.append(gateway.send(numbered(batch(b"n", codec="gzip"), 5, 0)))
        two = frame(body([("t", [(1, batch(b"p")), (0, batch(b"q"))])]))
        sent.append(gateway.rounds.begin(memoryview(two), None))
        return [await gateway.told(one) for one in sent]

    assert play(cluster, script) == [[0], [0], [2], [2], [4], [4], [6], [6, 7]]
    assert version_of(cluster) == before + 1


def test_rounds_gather_only_where_many_send_much_without_waiting():
    assert gathers(8, 16, 131_072)
    assert not gathers(7, 70, 131_072)  # a few clients, however many requests
    assert not gathers(32, 33, 10_000_000)  # who wait for each answer: nothing more would come
    assert not gathers(32, 200, 131_071)


BUSY = [(connection, number) for number in range(2) for connection in range(8)]
LARGE = batch(b"x" * 20_000)


def held_after(cluster, monkeypatch, script):
    """Play with a gateway that has just sent a round after which the next one is held for an hour."""
    monkeypatch.setattr(produce_rounds, "_GATHER_S", 3_600)

    async def run(gateway):
        sent = [gateway.send(LARGE, connection=connection) for connection, _ in BUSY]
        assert [await gateway.told(one) for one in sent] == [[number] for number in range(16)]
        return await script(gateway)

    return play(cluster, run)


@needs_core
def test_a_round_that_is_held_is_sent_once_it_is_large(cluster, monkeypatch):
    before = version_of(cluster)

    async def script(gateway):
        sent = [gateway.send(LARGE, connection=number) for number in range(200)]
        for _ in range(5):
            await asyncio.sleep(0)
        assert not any(one.is_sent for one in sent)  # four times as much as in a round that isn't held
        sent += [gateway.send(LARGE, connection=number) for number in range(25)]
        return [await gateway.told(one) for one in sent]

    assert held_after(cluster, monkeypatch, script) == [[number] for number in range(16, 241)]
    assert version_of(cluster) <= before + 3


@needs_core
@pytest.mark.parametrize(
    ("large", "count", "most_bytes"),
    [(batch(bytes(600_000), codec="zstd"), 1, 1_800_000), (batch(*[b""] * 20_000), 20_000, 4_400_000)],
    ids=["compressed", "tiny records"],
)
def test_a_round_that_is_held_is_read_in_pieces_that_take_little(cluster, monkeypatch, large, count, most_bytes):
    """What is compressed becomes longer, and a record takes more in columns than its bytes."""
    sizes: list[int] = []

    def noting(batches, parts):
        rows = decode_parts(batches, parts)
        sizes.append(0 if rows is None else rows.size_bytes)
        return rows

    async def script(gateway):
        monkeypatch.setattr(produce_rounds, "decode_parts", noting)
        sent = [gateway.send(large, connection=number) for number in range(30)]
        await gateway.rounds.close()
        return [await gateway.told(one) for one in sent]

    assert held_after(cluster, monkeypatch, script) == [[16 + number * count] for number in range(30)]
    assert len(sizes) >= 2
    assert max(sizes) <= most_bytes


@needs_core
def test_a_round_that_is_held_is_sent_when_the_gateway_ends(cluster, monkeypatch):
    async def script(gateway):
        sent = gateway.send(batch(b"a"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not sent.is_sent
        await gateway.rounds.close()
        return await gateway.told(sent)

    assert held_after(cluster, monkeypatch, script) == [16]


@needs_core
def test_a_round_that_begins_once_the_hold_is_over_is_no_larger_than_others(cluster, monkeypatch):
    """Its records come in one turn of the loop, which would read four times as much at once."""
    counts: list[int] = []

    def noting(batches, parts):
        counts.append(len(batches))
        return decode_parts(batches, parts)

    monkeypatch.setattr(produce_rounds, "_GATHER_S", 0.001)

    async def script(gateway):
        busy = [gateway.send(LARGE, connection=connection) for connection, _ in BUSY]
        assert [await gateway.told(one) for one in busy] == [[number] for number in range(16)]
        await asyncio.sleep(0.01)
        monkeypatch.setattr(produce_rounds, "decode_parts", noting)
        sent = [gateway.send(LARGE, connection=number) for number in range(100)]
        return [await gateway.told(one) for one in sent]

    assert play(cluster, script) == [[number] for number in range(16, 116)]
    assert max(counts) <= 1_100_000 // 20_000 + 1


@needs_core
def test_whoever_waits_for_each_answer_is_never_held(cluster, monkeypatch):
    monkeypatch.setattr(produce_rounds, "_GATHER_S", 3_600)

    async def script(gateway):
        for first in (0, 32, 64):
            both = memoryview(frame(body([("t", [(0, LARGE), (1, LARGE)])])))
            sent = [gateway.rounds.begin(both, None, number) for number in range(32)]
            offsets = [[first + number, first + number] for number in range(32)]
            assert [await gateway.told(one) for one in sent] == offsets

    play(cluster, script)


@needs_core
def test_a_refused_record_refuses_its_own_request_alone(cluster):
    late = records(b"a", b"b", times=[1_000, 2**44])

    async def script(gateway):
        sent = [gateway.send(one, "timed") for one in (records(b"k"), late, numbered(records(b"l", b"m"), 5, 0))]
        told = [await gateway.told(one) for one in sent]
        return [*told, await gateway.told(gateway.send(numbered(records(b"l", b"m"), 5, 0), "timed"))]

    assert play(cluster, script) == [[0], [ErrorCode.INVALID_TIMESTAMP], [1], [1]]


@needs_core
def test_batches_that_are_repeated_or_leave_a_gap_in_one_turn_are_judged_each(cluster):
    async def script(gateway):
        sent = [gateway.send(numbered(batch(b"a", b"b"), 5, sequence)) for sequence in (0, 0, 2, 9)]
        sent.append(gateway.send(numbered(batch(b"c"), 6, 0)))
        return [await gateway.told(one) for one in sent]

    assert play(cluster, script) == [[0], [0], [2], [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER], [4]]


@needs_core
def test_one_request_that_cant_be_read_fails_alone_and_the_others_keep_their_order(cluster):
    (header,) = batch_headers(batch(b"z"))
    broken = bytes(batch_with_header(replace(header, records=memoryview(b"\x0a" * len(header.records)))))
    squeezed = bytes(batch_with_header(replace(header, attributes=1)))  # says gzip, and isn't

    async def script(gateway):
        given = [batch(b"a"), broken, batch(b"b"), squeezed, batch(b"c")]
        sent = [gateway.send(one) for one in given]
        sent.append(gateway.send(batch(b"d")))
        await asyncio.sleep(0)
        assert gateway.send(batch(b"e")) is None  # while the others are sent one by one
        for one in sent:
            await one.wait_until_sent()
        while (last := gateway.send(batch(b"e"))) is None:  # until that has ended
            await asyncio.sleep(0)
        sent.append(last)
        return [await gateway.told(one) for one in sent]

    corrupt = ErrorCode.CORRUPT_MESSAGE
    assert play(cluster, script) == [[0], [corrupt], [1], [corrupt], [2], [3], [4]]


@needs_core
@pytest.mark.parametrize("beside", [[], [0]], ids=["alone", "beside another"])
@pytest.mark.parametrize("partition", [-1, -7, -(2**31)])
def test_a_partition_below_0_is_told_so_and_others_are_stored(cluster, partition, beside, caplog):
    """✗ It joined the round: -1 was no error, and anything less ended the sending of all who were in it."""

    async def script(gateway):
        sent = [gateway.send(batch(b"a"), partition=number) for number in [partition, *beside]]
        return [await gateway.told(one) for one in sent]

    assert play(cluster, script) == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], *([0] for _ in beside)]
    assert [one for one in caplog.records if one.levelname in ("ERROR", "CRITICAL")] == []


@needs_core
def test_an_unknown_partition_is_told_so_and_others_are_stored(cluster):
    async def script(gateway):
        sent = [gateway.send(batch(b"a"), partition=number) for number in (0, 7, -1)]
        return [await gateway.told(one) for one in sent]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert play(cluster, script) == [[0], [unknown], [unknown]]


@needs_core
def test_requests_wait_for_room_in_their_order(cluster, monkeypatch):
    async def script(gateway):
        pipeline = gateway.backend.producer(-1)._pipelines.get("t")
        real, refusals = pipeline.queue.try_add_tables, iter([False] * 3)
        monkeypatch.setattr(pipeline.queue, "try_add_tables", lambda given: next(refusals, True) and real(given))
        sent = [gateway.send(batch(b"%d" % number)) for number in range(4)]
        await asyncio.sleep(0)
        assert not sent[0].is_sent
        assert gateway.send(batch(b"4")) is None
        return [await gateway.told(one) for one in sent]

    assert play(cluster, script) == [[number] for number in range(4)]


@needs_core
def test_a_connection_that_waits_for_room_holds_up_no_other(cluster, monkeypatch):
    async def script(gateway):
        pipeline = gateway.backend.producer(-1)._pipelines.get("t")
        has_room = threading.Event()
        real = pipeline.queue.add_tables

        def add_tables(tables):
            if tables[0].count == 2:  # as if these were too large
                assert has_room.wait(60)
            real(tables)

        monkeypatch.setattr(pipeline.queue, "add_tables", add_tables)
        monkeypatch.setattr(pipeline, "try_add_rows", lambda *given, **checked: None)
        large, behind = (gateway.send(one, connection="first") for one in (batch(b"a", b"b"), batch(b"c")))
        other = gateway.send(batch(b"d"), connection="second")
        told = [await gateway.told(other)]
        assert not large.is_sent
        has_room.set()
        return [*told, await gateway.told(large), await gateway.told(behind)]

    assert play(cluster, script) == [[0], [1], [3]]


@needs_core
def test_what_is_large_once_it_is_decompressed_is_read_in_several_turns(cluster):
    large = batch(bytes(600_000), codec="zstd")

    async def script(gateway):
        sent = [gateway.send(large) for _ in range(12)]
        await asyncio.sleep(0)
        told_first = [one.is_sent for one in sent]
        answers = [await gateway.told(one) for one in sent]
        return sum(told_first), answers

    sent_first, answers = play(cluster, script)
    assert sent_first == 2
    assert answers == [[number] for number in range(12)]


@needs_core
def test_what_isnt_ordinary_is_left_alone(cluster):
    async def script(gateway):
        wrong_crc = bytearray(batch(b"a"))
        wrong_crc[-1] ^= 1
        return [
            gateway.send(bytes(wrong_crc)),
            gateway.send(batch(b"a"), acks=2),
            gateway.send(batch(b"a"), rules=Rules(write=("u*",))),
        ]

    assert play(cluster, script) == [None] * 3


@needs_core
def test_without_acknowledgement_there_is_no_answer_and_the_record_is_stored(cluster):
    async def script(gateway):
        sent = gateway.send(batch(b"a"), acks=0)
        return await asyncio.wait_for(sent.done, 60)

    assert play(cluster, script) is None
    end = TopicPartition("t", 0)
    assert Admin(cluster).list_offsets({end: -1})[end].offset == 1


@needs_core
def test_closing_sends_what_was_read(cluster):
    sent = []

    async def script(gateway):
        sent.append(gateway.send(batch(b"a")))
        sent.append(gateway.send(batch(b"a"), "u"))

    play(cluster, script)
    ends = Admin(cluster).list_offsets({TopicPartition(topic, 0): -1 for topic in ("t", "u")})
    assert [found.offset for found in ends.values()] == [1, 1]


@needs_core
def test_a_topic_that_is_gone_is_told_so(cluster):
    async def script(gateway):
        await gateway.backend.run(lambda: Admin(cluster).delete_topics(["t"]))
        sent = [gateway.send(batch(b"a")), gateway.send(batch(b"b"))]
        return [await gateway.told(one) for one in sent]

    assert play(cluster, script) == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]] * 2


@needs_core
def test_first_requests_wait_for_their_topic_together(cluster, monkeypatch):
    opens, may_open = [], threading.Event()

    async def script(gateway):
        pipelines = gateway.backend.producer(-1)._pipelines
        real = pipelines.get

        def slow(topic):
            opens.append(topic)
            assert may_open.wait(60)
            return real(topic)

        monkeypatch.setattr(pipelines, "get", slow)
        before = version_of(cluster)
        sent = []
        for number in range(20):
            sent.append(gateway.send(batch(b"%d" % number), connection=number % 3))
            await asyncio.sleep(0)
        assert not any(one.is_sent for one in sent)
        may_open.set()
        told = [await gateway.told(one) for one in sent]
        later = await gateway.told(gateway.send(batch(b"later")))
        return told, later, version_of(cluster) - before

    assert play(cluster, script, opened=()) == ([[number] for number in range(20)], [20], 2)
    assert opens == ["t"]


@needs_core
def test_first_requests_to_an_absent_topic_are_told_so(cluster):
    async def script(gateway):
        sent = [gateway.send(batch(b"a"), "absent"), gateway.send(batch(b"b"), "absent")]
        told = [await gateway.told(one) for one in sent]
        assert all(one.is_sent for one in sent)  # nothing of the connection waits for them any more
        await gateway.backend.run(lambda: Admin(cluster).create_topics([NewTopic("absent", 1)]))
        return told, await gateway.told(gateway.send(batch(b"c"), "absent"))

    assert play(cluster, script, opened=()) == ([[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]] * 2, [0])


@needs_core
def test_a_defect_in_opening_a_topic_is_told_and_lasts_for_one_try(cluster, monkeypatch, caplog):
    async def script(gateway):
        pipelines = gateway.backend.producer(-1)._pipelines
        with monkeypatch.context() as patched:
            patched.setattr(pipelines, "get", lambda topic: 1 // 0)
            told = await gateway.told(gateway.send(batch(b"a")))
        return told, await gateway.told(gateway.send(batch(b"b")))

    assert play(cluster, script, opened=()) == ([ErrorCode.UNKNOWN_SERVER_ERROR], [0])
    assert "topic t couldn't be opened" in caplog.text


@needs_core
@pytest.mark.parametrize("refusals", [0, 1])
def test_the_rest_of_a_request_whose_first_part_is_held_up_is_sent(cluster, refusals):
    """Its first partition makes the round so large that it is sent at once, and one by one where there is no room."""
    large, small = batch(b"x" * 600_000), batch(b"y" * 300_000)

    async def script(gateway):
        queue = gateway.backend.producer(-1)._pipelines.get("t").queue
        real, refused = queue.try_add_tables, [False] * refusals
        queue.try_add_tables = lambda given: refused.pop() if refused else real(given)
        sent = [gateway.send(large, connection="a"), gateway.send(small, connection="b")]
        both = memoryview(frame(body([("t", [(0, small), (1, batch(b"rest"))])])))
        sent.append(gateway.rounds.begin(both, None, "c"))
        return [await gateway.told(one) for one in sent]

    assert play(cluster, script) == [[0], [1], [2, 0]]


@needs_core
def test_a_round_is_held_no_longer_once_all_that_is_unanswered_waits_in_it(cluster, monkeypatch):
    """Clients that have as many requests under way as they send without an answer send nothing more."""
    monkeypatch.setattr(produce_rounds, "_GATHER_S", 3_600.0)

    async def script(gateway):
        first = [gateway.send(batch(b"x" * 20_000), connection=number % 8) for number in range(16)]
        await asyncio.sleep(0)  # the round is sent, and the next one held
        second = [gateway.send(batch(b"y"), connection=number) for number in range(8)]
        return [await asyncio.wait_for(gateway.told(one), 60) for one in [*first, *second]]

    assert play(cluster, script) == [[number] for number in range(24)]


@needs_core
def test_closing_sends_what_waits_for_its_topic(cluster):
    async def script(gateway):
        gateway.send(batch(b"a"))
        gateway.send(batch(b"b"), acks=0)

    play(cluster, script, opened=())
    end = TopicPartition("t", 0)
    assert Admin(cluster).list_offsets({end: -1})[end].offset == 2
