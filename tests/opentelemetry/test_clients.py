"""What producers and consumers trace and measure, and what records carry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from sparklog import Consumer, Producer, aio
from sparklog.errors import (
    InvalidTypeError,
    MessageSizeTooLargeError,
    RecordDeserializationError,
    TransactionAbortedError,
)
from sparklog.kafka import KafkaConsumer, KafkaProducer
from sparklog.log import Cluster
from sparklog.opentelemetry import SparklogInstrumentor, instrument, process, uninstrument
from tests.opentelemetry.support import LONG_S, Telemetered, attributes_of, read, telemetered
from tests.producer.support import a_topic


@pytest.fixture
def here() -> Telemetered:
    return telemetered()


@pytest.fixture
def cluster() -> Cluster:
    return a_topic()


@pytest.fixture
def producer(here: Telemetered, cluster: Cluster) -> Iterator[Producer]:
    with Producer(cluster, client_id="shop") as made:
        instrument(made, **here.providers)
        yield made


def a_consumer(cluster: Cluster, **settings: Any) -> Consumer:
    given = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
    return Consumer("t", cluster=cluster, **given)


def headers_of(cluster: Cluster, count: int = 1) -> list[dict[str, bytes | None]]:
    with a_consumer(cluster) as consumer:
        return [dict(record.headers) for record in read(consumer, count)]


def traceparent(span: trace.SpanContext) -> bytes:
    """Source: W3C Trace Context, "traceparent header"."""
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}".encode()


def test_a_record_is_sent_in_a_span_and_carries_it(here: Telemetered, cluster: Cluster, producer: Producer) -> None:
    with here.tracers.get_tracer("app").start_as_current_span("order") as order:
        future = producer.send("t", b"v", headers=[("a", b"1")])
    assert here.spans("send") == []
    future.get(LONG_S)
    producer.flush(LONG_S)
    sent = here.span("send t")
    assert attributes_of(sent) == {
        "messaging.system": "sparklog",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.client.id": "shop",
        "messaging.sparklog.cluster.id": cluster.cluster_id,
    }
    assert (sent.kind, sent.status.status_code) == (SpanKind.PRODUCER, StatusCode.UNSET)
    assert sent.parent is not None
    assert sent.parent.span_id == order.get_span_context().span_id
    assert headers_of(cluster) == [{"a": b"1", "traceparent": traceparent(sent.context)}]


def test_a_record_that_is_forwarded_belongs_to_its_trace(
    here: Telemetered, cluster: Cluster, producer: Producer
) -> None:
    producer.send("t", b"v").get(LONG_S)
    with a_consumer(cluster) as consumer:
        (record,) = read(consumer, 1)
        producer.send("t", record.value, headers=record.headers).get(LONG_S)
    producer.flush(LONG_S)
    first, second = here.spans("send t")
    assert second.parent is not None
    assert (second.context.trace_id, second.parent.span_id) == (first.context.trace_id, first.context.span_id)
    assert headers_of(cluster, 2)[1] == {"traceparent": traceparent(second.context)}


def test_a_send_that_fails_says_so_without_its_content(here: Telemetered, producer: Producer) -> None:
    with pytest.raises(MessageSizeTooLargeError):
        producer.send("t", b"secret" * 1_000_000)
    sent = here.span("send t")
    assert sent.status.status_code is StatusCode.ERROR
    assert attributes_of(sent)["error.type"] == "MessageSizeTooLargeError"
    assert "secret" not in sent.to_json()


def test_a_table_is_one_span(here: Telemetered, cluster: Cluster, producer: Producer) -> None:
    producer.send_batch("t", pa.table({"value": [b"v"] * 3})).get(LONG_S)
    producer.flush(LONG_S)
    sent = here.span("send t")
    assert attributes_of(sent)["messaging.batch.message_count"] == 3
    assert headers_of(cluster, 3) == [{}, {}, {}]


def test_what_is_not_sampled_is_carried_and_not_kept(cluster: Cluster) -> None:
    here = telemetered(ALWAYS_OFF)
    with Producer(cluster) as producer:
        instrument(producer, **here.providers)
        for number in range(3):
            producer.send("t", b"%d" % number)
    assert here.spans() == []
    flags = [int((headers["traceparent"] or b"")[-2:], 16) for headers in headers_of(cluster, 3)]
    assert [flag & trace.TraceFlags.SAMPLED for flag in flags] == [0, 0, 0]


def test_messages_and_durations_are_measured(here: Telemetered, producer: Producer) -> None:
    for _ in range(3):
        producer.send("t", b"v")
    producer.send("t", b"late", timestamp_ms=2**60)
    producer.flush(LONG_S)
    sent = here.measured("messaging.client.sent.messages")
    common = {
        "messaging.system": "sparklog",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.client.id": "shop",
        "messaging.sparklog.cluster.id": producer._cluster.cluster_id,
    }
    assert sorted((found.get("error.type", ""), count) for found, count in sent) == [
        ("", 3),
        ("InvalidTimestampError", 1),
    ]
    assert all(found.items() >= common.items() for found, _ in sent)
    ((_, count),) = here.measured("messaging.client.operation.duration")
    assert count >= 1


def test_an_sdk_that_fails_keeps_no_record_from_its_end(
    here: Telemetered, producer: Producer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **settings: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(producer._metrics.observer, "settled", fail)
    for _ in range(2):
        producer.send("t", b"v").get(LONG_S)
        producer.flush(LONG_S)
    assert "an observer of a producer failed" in caplog.text


def test_a_poll_that_fails_is_a_span(here: Telemetered, cluster: Cluster, producer: Producer) -> None:
    producer.send("t", b"no number").get(LONG_S)
    with a_consumer(cluster, value_deserializer=int) as consumer:
        instrument(consumer, **here.providers)
        with pytest.raises(RecordDeserializationError):
            consumer.poll(LONG_S * 1_000)
    failed = here.span("poll")
    assert attributes_of(failed)["error.type"] == "RecordDeserializationError"
    assert "no number" not in failed.to_json()


def test_a_transaction_is_traced_to_its_end(here: Telemetered, cluster: Cluster) -> None:
    with Producer(cluster, transactional_id="tx") as producer:
        instrument(producer, **here.providers)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v")
        producer.flush(LONG_S)
        assert here.spans("send") == []  # nobody knows yet how it ends
        producer.commit_transaction()
        producer.begin_transaction()
        lost = producer.send("t", b"v")
        producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            lost.get(LONG_S)
    committed, aborted = here.spans("send t")
    assert committed.status.status_code is StatusCode.UNSET
    assert attributes_of(aborted)["error.type"] == "TransactionAbortedError"
    names = [span.name for span in here.spans() if "transaction" in span.name]
    assert names == ["init_transactions", "commit_transaction", "abort_transaction"]


def test_a_poll_links_to_what_sent_its_records(here: Telemetered, cluster: Cluster, producer: Producer) -> None:
    for _ in range(2):
        producer.send("t", b"v")
    producer.flush(LONG_S)
    with a_consumer(cluster, group_id="g", client_id="c") as consumer:
        instrument(consumer, **here.providers)
        assert len(read(consumer, 2)) == 2
        consumer.poll()
        consumer.commit()
    polled, committed = here.span("poll t"), here.span("commit t")
    common = {
        "messaging.system": "sparklog",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "g",
        "messaging.client.id": "c",
        "messaging.sparklog.cluster.id": cluster.cluster_id,
    }
    polling = {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
    committing = {"messaging.operation.name": "commit", "messaging.operation.type": "settle"}
    assert attributes_of(polled) == {**common, **polling, "messaging.batch.message_count": 2}
    assert attributes_of(committed) == {**common, **committing}
    sent = {span.context.span_id for span in here.spans("send t")}
    assert {link.context.span_id for link in polled.links} == sent
    assert (polled.kind, committed.kind) == (SpanKind.CLIENT, SpanKind.CLIENT)
    assert here.measured("messaging.client.consumed.messages") == [({**common, **polling}, 2)]
    durations = {
        found["messaging.operation.name"]: n for found, n in here.measured("messaging.client.operation.duration")
    }
    assert (durations["poll"], durations["commit"]) == (1, 1)


def test_arrow_data_and_iteration_are_counted(here: Telemetered, cluster: Cluster, producer: Producer) -> None:
    for _ in range(3):
        producer.send("t", b"v")
    producer.flush(LONG_S)
    with a_consumer(cluster) as one, a_consumer(cluster) as other:
        instrument(one, other, **here.providers)
        while not one.poll_batches(LONG_S * 1_000):
            pass
        assert next(other).offset == 0
    assert [attributes_of(span)["messaging.batch.message_count"] for span in here.spans("poll t")] == [3, 3]


def test_what_is_done_with_a_record_links_to_what_sent_it(
    here: Telemetered, cluster: Cluster, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", here.tracers)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", here.meters)
    producer.send("t", b"v").get(LONG_S)
    with a_consumer(cluster, group_id="g") as consumer:
        (record,) = read(consumer, 1)

        def work() -> None:
            producer.send("t", b"w").get(LONG_S)
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"), process(record, consumer=consumer) as under_way:
            work()
        with process(record, record):
            pass
    producer.flush(LONG_S)
    one, several = here.spans("process t")
    first, second = here.spans("send t")
    assert attributes_of(one) == {
        "messaging.system": "sparklog",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.consumer.group.name": "g",
        "messaging.sparklog.cluster.id": cluster.cluster_id,
        "messaging.sparklog.message.offset": 0,
        "error.type": "ValueError",
    }
    assert (one.kind, one.parent, one.status.status_code) == (SpanKind.CONSUMER, None, StatusCode.ERROR)
    assert [link.context.span_id for link in one.links] == [first.context.span_id]
    assert second.parent is not None
    assert second.parent.span_id == under_way.get_span_context().span_id
    assert attributes_of(several)["messaging.batch.message_count"] == 2
    assert sum(count for _, count in here.measured("messaging.process.duration")) == 2


def test_without_an_sdk_nothing_changes(cluster: Cluster) -> None:
    with Producer(cluster) as producer, a_consumer(cluster) as consumer:
        instrument(producer, consumer)
        assert (producer._metrics.observer, consumer._runtime.metrics.observer) == (None, None)
        producer.send("t", b"v").get(LONG_S)
        assert producer._pipelines.plain_queues
        (record,) = read(consumer, 1)
        assert record.headers == []
        with process(record, consumer=consumer) as span:
            assert not span.is_recording()


def test_where_only_metrics_are_wanted_records_go_the_fast_way(here: Telemetered, cluster: Cluster) -> None:
    with Producer(cluster) as producer:
        instrument(producer, meter_provider=here.meters)
        producer.send("t", b"v").get(LONG_S)
        assert producer._pipelines.plain_queues
        producer.flush(LONG_S)
    assert [count for _, count in here.measured("messaging.client.sent.messages")] == [1]


def test_the_instrumentor_takes_every_client_that_is_made(here: Telemetered, cluster: Cluster) -> None:
    instrumentor = SparklogInstrumentor()
    assert instrumentor is SparklogInstrumentor()
    instrumentor.instrument(**here.providers)
    instrumentor.instrument()
    try:
        assert instrumentor.is_instrumented_by_opentelemetry
        with Producer(cluster) as producer, a_consumer(cluster) as consumer:
            producer.send("t", b"v").get(LONG_S)
            read(consumer, 1)
            producer.flush(LONG_S)
            uninstrument(producer, consumer)
            producer.send("t", b"v").get(LONG_S)
    finally:
        instrumentor.uninstrument()
        instrumentor.uninstrument()
    with Producer(cluster) as producer:
        producer.send("t", b"v").get(LONG_S)
    assert sorted(span.name for span in here.spans()) == ["poll t", "send t"]


@pytest.mark.slow
def test_clients_of_kafka_pythons_names_are_traced(here: Telemetered, tmp_path: object) -> None:
    from sparklog import Admin, NewTopic

    with Admin(str(tmp_path)) as admin:
        admin.create_topics([NewTopic("t", 1)])
    producer = KafkaProducer(bootstrap_servers=str(tmp_path))
    consumer = KafkaConsumer("t", bootstrap_servers=str(tmp_path), auto_offset_reset="earliest")
    instrument(producer, consumer, **here.providers)
    producer.send("t", b"v").get(LONG_S)
    assert next(consumer).headers[0][0] == "traceparent"
    producer.close()
    consumer.close()
    assert {span.name for span in here.spans()} == {"send t", "poll t"}


def test_clients_for_asyncio_belong_to_their_callers_spans(here: Telemetered, cluster: Cluster) -> None:
    async def use() -> None:
        producer, consumer = aio.Producer(cluster), aio.Consumer("t", cluster=cluster, auto_offset_reset="earliest")
        instrument(producer, consumer, **here.providers)
        async with producer, consumer:
            tracer = here.tracers.get_tracer("app")
            with tracer.start_as_current_span("order"):
                await producer.send_and_wait("t", b"v")
                await producer.send_and_wait("t", b"v")
                await producer.flush()
            found = 0
            with tracer.start_as_current_span("work"):
                while found < 2:
                    found += sum(map(len, (await consumer.poll(LONG_S * 1_000)).values()))

    asyncio.run(use())
    for name, parent in (("send t", "order"), ("poll t", "work")):
        outer = here.span(parent)
        spans = here.spans(name)
        assert spans
        assert {span.parent and span.parent.span_id for span in spans} == {outer.context.span_id}


def test_what_is_no_client_is_refused() -> None:
    with pytest.raises(InvalidTypeError, match="got str, expected producers and consumers"):
        instrument("t")
