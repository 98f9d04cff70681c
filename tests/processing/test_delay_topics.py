"""Topics of retries keep what waits for any time, take what their source takes, and lose what was delivered."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from sparklog import Admin, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from sparklog.compaction import maintain
from sparklog.errors import InvalidConfigurationError
from sparklog.log import Cluster
from sparklog.model import ConsumerRecord
from sparklog.processing import App, Fixed, Limits, Record, Retry
from sparklog.processing.moves import Origin, Output, delay
from tests.processing.support import a_world, an_app, committed, records, send, texts, wait_for

DAY_MS = 86_400_000
RETRIES = "orders-retry-240h"


def an_app_with_delays(cluster: Cluster, delay_s: float = 10 * 86_400, **settings: Any) -> tuple[App, list[str]]:
    app, seen = an_app(cluster, **settings), []

    @app.subscriber("orders", retry=Retry(attempts=2, backoff=Fixed(delay_s), topics=True), dead_letter=True)
    def handler(record: Record[str]) -> None:
        seen.append(record.value)
        if record.value.startswith("bad") and record.attempt == 1:
            raise TimeoutError("away")

    return app, seen


def moved(value: str, *, group: str = "g", due_ms: int = 0) -> Output:
    """A record as a worker moves it to the topic of retries."""
    record = ConsumerRecord("orders", 0, -1, 0, 5, 0, None, value.encode(), [], None, -1, len(value), -1)
    origin = Origin(topic="orders", partition=0, offset=0, timestamp=0)
    return delay(record, RETRIES, origin=origin, group_id=group, attempts=1, due_ms=due_ms, error=TimeoutError("x"))


def put(cluster: Cluster, *outputs: Output, timestamp_ms: int | None = None) -> None:
    with Producer(cluster) as producer:
        for output in outputs:
            producer.send(output.topic, output.value, output.key, output.headers, 0, timestamp_ms)


def ranges(cluster: Cluster, topic: str = RETRIES) -> tuple[int, int]:
    with Admin(cluster) as admin:
        [described] = admin.describe_topics([topic])
    return described.log_start_offsets[0], described.log_end_offsets[0]


OF_LATER = [
    {},
    {"retention.ms": 1},
    {"retention.bytes": 1},
    {"retention.ms": 1, "retention.bytes": 1, "segment.ms": 1},
]


@pytest.mark.parametrize("configs", OF_LATER)
def test_what_waits_is_kept_whatever_retention_says(configs):
    """✗ The default of seven days, or a setting that somebody made later, removes records that wait for their next
    try."""
    cluster = a_world("orders")
    app, _ = an_app_with_delays(cluster)
    assert app.create_topics() == [RETRIES, "dlq.orders"]
    put(cluster, moved("a"), moved("b"), timestamp_ms=int(time.time() * 1000) - 30 * DAY_MS)
    with Admin(cluster) as admin:
        admin.alter_configs({RETRIES: configs})
    maintain(cluster, full=True)
    assert ranges(cluster) == (0, 2)


def test_a_delay_topic_of_an_earlier_version_keeps_what_waits_too():
    cluster = a_world("orders", RETRIES)
    put(cluster, moved("a"), timestamp_ms=int(time.time() * 1000) - 8 * DAY_MS)
    maintain(cluster, full=True)
    assert ranges(cluster) == (0, 1)


def test_what_every_group_that_it_was_moved_by_has_committed_is_removed():
    cluster = a_world("orders", RETRIES)
    put(cluster, moved("a"), moved("b", group="h"), moved("c"))
    put(cluster, moved("d"))

    def commit(group: str, offset: int) -> None:
        with Admin(cluster) as admin:
            admin.alter_group_offsets(group, {TopicPartition(RETRIES, 0): OffsetAndMetadata(offset)})

    commit("g", 3)
    for group, offset, start in (("h", 0, 1), ("h", 2, 3), ("g", 4, 4)):
        commit(group, offset)
        maintain(cluster)
        assert ranges(cluster) == (start, 4)
    assert records(cluster, RETRIES) == []


def test_records_of_other_programs_in_a_topic_of_such_a_name_go_by_its_retention():
    cluster = a_world("orders", RETRIES)
    now_ms = int(time.time() * 1000)
    with Producer(cluster) as producer:
        producer.send(RETRIES, b"old", timestamp_ms=now_ms - 8 * DAY_MS)
        producer.send(RETRIES, b"new", timestamp_ms=now_ms)
    maintain(cluster, full=True)
    assert ranges(cluster) == (1, 2)


def test_a_worker_makes_a_delay_topic_take_what_its_source_takes():
    """✗ A record as large as its topic allows can't wait: it becomes a dead letter without its value."""
    cluster = a_world("orders")
    app, seen = an_app_with_delays(cluster, delay_s=0.05)
    app.create_topics()
    with Admin(cluster) as admin:
        admin.alter_configs({"orders": {"max.message.bytes": 3_000_000}})
    with Producer(cluster, max_request_size=4_000_000) as producer:
        producer.send("orders", b"bad" + b"x" * 2_900_000).get(10)
    app.start()
    wait_for(lambda: len(seen) == 2, app)
    app.stop()
    assert records(cluster, "dlq.orders") == []


@pytest.mark.parametrize("setting", ["schema", "compact"])
def test_a_delay_topic_that_would_refuse_or_lose_records_is_refused_at_the_start(setting):
    cluster = a_world("orders", "dlq.orders")
    schema = pa.schema([("id", pa.int64())]) if setting == "schema" else None
    configs = {"cleanup.policy": "compact"} if setting == "compact" else {}
    with Admin(cluster) as admin:
        admin.create_topics([NewTopic(RETRIES, 1, configs=configs, value_schema=schema)])
    app, _ = an_app_with_delays(cluster)
    with pytest.raises(InvalidConfigurationError, match=RETRIES):
        app.create_topics()
    app.start()
    with pytest.raises(InvalidConfigurationError, match="'orders' wait for their next"):
        app.stop(30)


def test_create_topics_gives_delay_topics_of_earlier_versions_their_settings():
    cluster = a_world("orders", RETRIES)
    app, _ = an_app_with_delays(cluster)
    assert app.create_topics() == ["dlq.orders"]
    with Admin(cluster) as admin:
        [described] = admin.describe_topics([RETRIES])
        assert described.config["retention.ms"] == -1
        assert described.config["retention.bytes"] == -1
        assert described.config["max.message.bytes"] == 1_048_588 + 65_536
        version = described.delta_version
        app.create_topics()
        assert admin.describe_topics([RETRIES])[0].delta_version == version


def test_what_a_worker_has_delivered_is_removed_by_maintenance():
    cluster = a_world("orders")
    app, seen = an_app_with_delays(cluster, delay_s=0.05)
    app.create_topics()
    send(cluster, "orders", ["bad 1", "bad 2"])
    app.start()
    wait_for(lambda: len(seen) == 4, app)
    app.stop()
    maintain(cluster)
    assert ranges(cluster, "orders-retry-50ms") == (2, 2)
    assert texts(cluster, "dlq.orders") == []


def test_whatever_waits_other_records_are_handled_at_once():
    """✗ Once 64 MiB wait for their next try, nothing is read any more."""
    cluster = a_world("orders")
    app, seen = an_app_with_delays(cluster, delay_s=3_600, limits=Limits(size_bytes=500_000))
    app.create_topics()
    with Producer(cluster) as producer:
        for number in range(40):
            producer.send("orders", b"bad %d" % number + b" " * 50_000)
    app.start()
    wait_for(lambda: app.metrics()["processing-metrics"]["records-delayed-total"] == 40, app)
    for number in range(20):
        send(cluster, "orders", [f"good {number}" + " " * 50_000])
    wait_for(lambda: len(seen) == 60, app)
    in_flight = app.health().in_flight
    app.stop()
    assert in_flight <= 10
    assert [value.strip() for value in seen[40:]] == [f"good {number}" for number in range(20)]
    assert committed(cluster, "orders-retry-1h") == 0


def test_what_waits_beyond_what_is_kept_is_handled_when_it_is_due():
    cluster = a_world("orders")
    app, seen = an_app_with_delays(cluster, delay_s=0.3, limits=Limits(size_bytes=500_000))
    app.create_topics()
    with Producer(cluster) as producer:
        for number in range(40):
            producer.send("orders", b"bad %d" % number + b" " * 50_000)
    app.start()
    wait_for(lambda: len(seen) == 80, app)
    app.stop()
    assert sorted(value.strip() for value in seen) == sorted(f"bad {number}" for number in range(40) for _ in "12")
    assert committed(cluster, "orders-retry-300ms") == 40


@pytest.mark.parametrize("is_running", [False, True])
def test_records_of_a_deleted_topic_are_not_handled_for_a_later_one(is_running):
    """✗ They outlive it in the topics of retries, and are handled as records of the new one."""
    cluster = a_world("orders")
    app, seen = an_app_with_delays(cluster, delay_s=0.5 if is_running else 0.05)
    created = app.create_topics()
    send(cluster, "orders", ["bad old"])
    app.start()
    wait_for(lambda: app.metrics()["processing-metrics"]["records-delayed-total"] == 1, app)
    if not is_running:
        app.stop()
        if len(seen) > 1:  # a slow machine: it was due before it stopped
            return
    with Admin(cluster) as admin:
        admin.delete_topics(["orders"])
        admin.create_topics([NewTopic("orders", 1)])
    send(cluster, "orders", ["bad new"])
    if not is_running:
        app, seen = an_app_with_delays(cluster, delay_s=0.05)
        app.start()
    wait_for(lambda: seen.count("bad new") == 2, app)
    wait_for(lambda: committed(cluster, created[0]) == 2, app)
    app.stop()
    assert seen == ["bad old"] * is_running + ["bad new"] * 2


def test_a_record_of_an_earlier_version_names_no_topic_and_is_handled():
    cluster = a_world("orders")
    app, seen = an_app_with_delays(cluster)
    app.create_topics()
    put(cluster, moved("an old one"))
    app.start()
    wait_for(lambda: seen == ["an old one"], app)
    app.stop()
