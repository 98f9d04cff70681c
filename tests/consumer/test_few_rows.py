"""Records that were sent one by one, which no Arrow is needed for: a consumer gives what it gives otherwise."""

from typing import Any

import pytest

from sparklog.consumer import segment_fetcher
from sparklog.errors import RecordDeserializationError
from sparklog.producer import Producer
from tests.consumer.support import LONG_MS, Rounds, a_cluster, a_consumer, send, take, tp, with_topic

RECORDS = [(b"k", b"a"), (None, b"b"), (b"", None), (b"key", b"")]


@pytest.fixture(params=["by hand", "by Arrow"])
def cluster(request, monkeypatch):
    """A topic of single records, and of one that has headers, behind a larger file."""
    if request.param == "by Arrow":
        monkeypatch.setattr(segment_fetcher, "decode_few_records", lambda data, base_offset: None)
    cluster = with_topic(a_cluster(), "x" * 40)
    with Producer(cluster=cluster, linger_ms=60_000) as producer:
        for number, (key, value) in enumerate(RECORDS):
            producer.send("t", key=key, value=value, timestamp_ms=1_000 + number)
            if number != 2:  # the last two are in one file
                producer.flush()
        producer.send("t", value=b"h", headers=[("n", b"h")], timestamp_ms=2_000)
    return cluster


def fields(record):
    sizes = record.serialized_key_size, record.serialized_value_size, record.serialized_header_size
    return (*record[:9], *sizes)


def expected(offset, time, key, value, headers=()):
    sizes = [-1 if each is None else len(each) for each in (key, value)]
    return (
        "t",
        0,
        -1,
        offset,
        time,
        0,
        key,
        value,
        tuple(headers),
        *sizes,
        sum(len(n) + len(v) for n, v in headers) or -1,
    )


ALL = [
    *(expected(40 + number, 1_000 + number, key, value) for number, (key, value) in enumerate(RECORDS)),
    expected(44, 2_000, None, b"h", [("n", b"h")]),
]


@pytest.mark.parametrize("max_records", [1, 3, 500])
def test_records_sent_one_by_one_are_polled_whole(cluster, max_records):
    with a_consumer(cluster, "t") as consumer:
        found = take(consumer, 45, max_records=max_records)
        assert [fields(record)[:8] for record in found[40:]] == [each[:8] for each in ALL]
        assert [tuple(record.headers) for record in found[40:]] == [each[8] for each in ALL]
        assert [fields(record)[9:] for record in found[40:]] == [each[9:] for each in ALL]
        assert consumer.position(tp()) == 45


@pytest.mark.parametrize("offset", [41, 43])
def test_they_are_polled_as_batches_too(cluster, offset):
    with a_consumer(cluster) as consumer:
        consumer.assign([tp()])
        consumer.seek(tp(), offset)
        found: list[Any] = []
        while len(found) < 45 - offset:
            batches = consumer.poll_batches(timeout_ms=LONG_MS, max_records=2)
            found += [row for batch in batches.values() for row in batch.to_pylist()]
        assert [(row["offset"], row["key"], row["value"]) for row in found] == [
            (e[3], e[6], e[7]) for e in ALL[offset - 40 :]
        ]


def test_deserializers_are_called_and_may_fail(cluster):
    def value_of(data: bytes) -> str:
        if data == b"b":
            raise ValueError(data)
        return data.decode()

    with a_consumer(cluster, value_deserializer=value_of, key_deserializer=bytes.decode) as consumer:
        consumer.assign([tp()])
        consumer.seek(tp(), 40)
        assert [(r.key, r.value, r.serialized_value_size) for r in take(consumer, 1)] == [("k", "a", 1)]
        with pytest.raises(RecordDeserializationError) as failure:
            consumer.poll(timeout_ms=LONG_MS)
        assert failure.value.offset == 41
        consumer.seek(tp(), 42)
        assert [(r.key, r.value) for r in take(consumer, 3)] == [("", None), ("key", ""), (None, "h")]


def test_a_round_that_has_read_all_there_is_ends_the_rounds():
    cluster = with_topic(a_cluster(), "a")
    rounds = Rounds(cluster)
    rounds.assign(tp())
    rounds.run()
    rounds.take(tp())
    send(cluster, "b")
    assert not rounds.fetcher.round()
    assert rounds.take(tp()) == [(1, "b")]
