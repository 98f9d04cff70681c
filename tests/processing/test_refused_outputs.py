"""Outputs that a topic refuses: their input becomes a dead letter, or its partition stops, and that alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.errors import HandlerError
from sparklog.log import Cluster
from sparklog.processing import App, Batch, Fixed, Record, Retry, Send
from tests.processing.support import (
    a_world,
    an_app,
    committed,
    done,
    offsets,
    records,
    running,
    send,
    texts,
    until,
    wait_for,
    with_poison,
)

REFUSED: dict[str, Any] = {
    "a type": Send("typed", {"id": "text"}),
    "bytes that are no value": Send("typed", b"{"),
    "a field": Send("typed", {"other": 1}),
    "no such topic": Send("nowhere", b"x"),
    "no such partition": Send("out", b"x", partition=7),
    "a partition beyond any": Send("out", b"x", partition=2**70),
    "no name of a topic": Send("a b/c", b"x"),
    "a name of half a character": Send("\ud800", b"x"),
    "too long a name": Send("x" * 300, b"x"),
    "a size": Send("out", b"x" * 2_000_000),
    "no key": Send("compacted", b"x"),
    "a timestamp": Send("dated", b"x", timestamp_ms=1),
    "a timestamp beyond any": Send("out", b"x", timestamp_ms=2**70),
    "a header": Send("out", b"x", headers=[("\ud800", b"x")]),
}


def a_place(*letters: str, configs: dict[str, str] | None = None, schema: pa.Schema | None = None) -> Cluster:
    """Topic ``in`` has two partitions; a dead-letter topic has what is given."""
    cluster = a_world("in", "out", partitions=2)
    ids = pa.schema([("id", pa.int64())])
    with Admin(cluster) as admin:
        admin.create_topics(
            [
                NewTopic("typed", 1, value_schema=ids),
                NewTopic("compacted", 1, configs={"cleanup.policy": "compact"}),
                NewTopic("dated", 1, configs={"message.timestamp.before.max.ms": "1000"}),
                *(NewTopic(name, 2, configs=configs or {}, value_schema=schema) for name in letters),
            ]
        )
    return cluster


def a_worker(cluster: Cluster, output: Send, **given: Any) -> App:
    app = an_app(cluster, patience_s=60)

    @app.subscriber("in", **given)
    def handle(record: Record[str]) -> list[Send]:
        return [Send("out", record.value), *([output] if record.value == "poison" else [])]

    return app


@pytest.mark.parametrize("kind", REFUSED)
def test_the_input_of_a_refused_output_becomes_a_dead_letter(kind):
    """✗ The same commit is tried for patience_s, or the worker ends, and nothing of any partition is committed."""
    cluster = a_place("dlq.in")
    with_poison(cluster)
    app = a_worker(cluster, REFUSED[kind], dead_letter=True)
    with running(app):
        done(app, 23)
        assert app.health().error is None
    assert offsets(cluster) == {0: 3, 1: 20}
    assert sorted(texts(cluster, "out")) == sorted(["a", "b", *map(str, range(20))])
    [letter] = records(cluster, "dlq.in")
    found = dict(letter.headers)
    assert (letter.value, found["__dlq.errors.offset"]) == (b"poison", b"1")
    assert b"handle made of it can't be sent to topic" in (found["__dlq.errors.message"] or b"")
    assert (found["__dlq.errors.exception"] or b"").startswith(b"sparklog.errors.")


@pytest.mark.parametrize("kind", ["a type", "no such topic", "no key", "a size"])
def test_without_a_dead_letter_topic_that_partition_alone_stops(kind, caplog):
    """Across restarts: what is read later is processed and committed, too."""
    cluster = a_place()
    with_poison(cluster)
    for count in (20, 25, 30):
        app = a_worker(cluster, REFUSED[kind])
        app.start()
        send_on(cluster, count - 20 and 5)
        until(lambda count=count: offsets(cluster) == {0: 1, 1: count})
        until(lambda app=app: app.health().stopped)
        health = app.health()
        assert health.error == health.stopped[0]
        assert health.is_alive
        assert health.is_ready
        with pytest.raises(HandlerError, match=message(REFUSED[kind].topic)) as error:
            app.stop()
        assert (error.value.topic_partition.partition, error.value.offset) == (0, 1)
        assert health.stopped == (str(error.value),)
    assert texts(cluster, "out").count("a") == 1
    assert "b" not in texts(cluster, "out")
    assert "handle: what was made of in-0, offset 1, can't be sent to topic" in caplog.text


@pytest.mark.parametrize("kind", ["typed", "compacted", "deleted"])
def test_a_dead_letter_topic_that_refuses_the_letter_stops_that_partition_alone(kind):
    """✗ The worker ends after patience_s with an error that names no record."""
    cluster = {
        "typed": lambda: a_place("dlq.in", schema=pa.schema([("id", pa.int64())])),
        "compacted": lambda: a_place("dlq.in", configs={"cleanup.policy": "compact"}),
        "deleted": lambda: a_place("dlq.in"),
    }[kind]()
    app = an_app(cluster, patience_s=60)

    @app.subscriber("in", dead_letter=True, retry=Retry(attempts=2, backoff=Fixed(0.001)))
    def handle(record: Record[str]) -> Send:
        if record.value == "poison":
            raise ValueError("odd")
        return Send("out", record.value)

    app.start()
    wait_for(lambda: app.health().is_ready, app)
    if kind == "deleted":
        with Admin(cluster) as admin:
            admin.delete_topics(["dlq.in"])
    with_poison(cluster)
    until(lambda: offsets(cluster) == {0: 1, 1: 20})
    with pytest.raises(HandlerError, match=message("dlq.in")):
        app.stop()
    assert sorted(texts(cluster, "out")) == sorted(["a", *map(str, range(20))])


@pytest.mark.slow
def test_each_of_many_records_has_one_outcome():
    """Of each third an output is refused, in all ways, at once and later; two workers, and others after them."""
    cluster, kinds = a_place("dlq.in"), list(REFUSED)
    values = [f"{number % 5}:{number}" for number in range(300)]
    send(cluster, "in", values[:150], keyed=True)

    def a_member() -> App:
        app = an_app(cluster, patience_s=60)

        @app.subscriber("in", dead_letter=True, concurrency=3, order_by="key")
        def handle(record: Record[str]) -> list[Send]:
            number = int(record.value.partition(":")[2])
            refused = [REFUSED[kinds[number % len(kinds)]]] if number % 3 == 0 else []
            return [Send("out", record.value, key=record.key), *refused]

        return app

    with running(first := a_member()):
        wait_for(lambda: committed(cluster, "in") > 20, first)
        with running(second := a_member()):
            send(cluster, "in", values[150:], keyed=True)
            wait_for(lambda: committed(cluster, "in") > 200, first, second)
    with running(last := a_member()):
        wait_for(lambda: committed(cluster, "in") == 300, last)
    assert sorted(texts(cluster, "dlq.in")) == sorted(values[::3])
    assert sorted(texts(cluster, "out")) == sorted(set(values) - set(values[::3]))
    for key in "01234":
        own = [int(text[2:]) for text in texts(cluster, "out") if text.startswith(key)]
        assert own == sorted(own)


def test_a_worker_whose_partitions_have_all_stopped_ends():
    cluster = a_place()
    with_poison(cluster, good=0)
    with Producer(cluster) as producer:
        producer.send("in", b"poison", partition=1)
    app = a_worker(cluster, REFUSED["no such topic"])
    with pytest.raises(HandlerError, match="nowhere"):
        app.run()
    assert offsets(cluster) == {0: 1}


def test_each_record_of_a_batch_whose_output_is_refused_becomes_a_dead_letter():
    """✗ The last one alone: the others are neither sent nor moved."""
    cluster = a_place("dlq.in")
    send_values(cluster, ["1", "oops", "2", "3"])
    app = an_app(cluster)

    @app.subscriber("in", dead_letter=True, batch_size=10)
    def handle(batch: Batch[int]) -> Send:
        return Send("typed", {"id": "text"})

    with running(app):
        done(app, 4)
    assert sorted(texts(cluster, "dlq.in")) == ["1", "2", "3", "oops"]
    assert committed(cluster, "in") == 4


def test_a_batch_whose_output_is_refused_stops_before_its_first_record():
    cluster = a_place()
    send_values(cluster, ["1", "2", "3"])
    app = an_app(cluster)

    @app.subscriber("in", batch_size=10)
    def handle(batch: Batch[int]) -> Send:
        return Send("nowhere", b"x")

    app.start()
    until(lambda: app.health().stopped)
    with pytest.raises(HandlerError, match=r"in-0, offsets 0 to 2, can't be sent to topic 'nowhere'"):
        app.stop()
    assert committed(cluster, "in") == 0


def test_a_record_that_its_delay_topic_refuses_becomes_a_dead_letter():
    """Somebody changes the topic while the worker runs: at its start it would refuse it."""
    cluster = a_place("dlq.in", "in-retry-1h")
    app = an_app(cluster, patience_s=60)

    @app.subscriber("in", dead_letter=True, retry=Retry(attempts=2, backoff=Fixed(3_600), topics=True))
    def handle(record: Record[str]) -> None:
        if record.value == "poison":
            raise ValueError("odd")

    with running(app):
        wait_for(lambda: app.health().is_ready, app)
        with Admin(cluster) as admin:
            admin.alter_configs({"in-retry-1h": {"cleanup.policy": "compact"}})
        with_poison(cluster)
        done(app, 23)
    assert texts(cluster, "dlq.in") == ["poison"]


@pytest.mark.parametrize("has_letters", [True, False])
def test_a_share_group_goes_on_with_all_other_records(has_letters, caplog):
    """✗ The worker ends at the first record of which something is to be sent to a topic that isn't there."""
    cluster = a_place(*(["dlq.in"] if has_letters else []))
    with_poison(cluster)
    app = an_app(cluster, group_type="share", consumer={}, patience_s=60)

    @app.subscriber("in", concurrency=2, dead_letter=True if has_letters else None)
    def handle(record: Record[str]) -> Send:
        return Send("nowhere" if record.value == "poison" else "out", record.value)

    app.start()
    expected = sorted(["a", "b", *map(str, range(20))])
    until(lambda: sorted(texts(cluster, "out")) == expected)
    if has_letters:
        until(lambda: texts(cluster, "dlq.in") == ["poison"])
        app.stop()
        return
    until(lambda: app.health().stopped)
    with pytest.raises(HandlerError, match=message("nowhere")):
        app.stop()


def message(topic: str) -> str:
    return rf"handle: what was made of in-0, offset 1, can't be sent to topic '{topic}': .*; nothing is skipped"


def send_on(cluster: Cluster, count: int) -> None:
    with Producer(cluster) as producer:
        for number in range(count):
            producer.send("in", b"%d" % number, partition=1)


def send_values(cluster: Cluster, values: list[str]) -> None:
    with Producer(cluster) as producer:
        for value in values:
            producer.send("in", value.encode(), partition=0)
