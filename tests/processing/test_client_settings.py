"""Settings with which a worker couldn't keep its promises are refused when the app is made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.processing import App, Record, Send
from tests.processing.support import a_world, an_app, done, running, send, texts

CONSUMER: dict[str, Any] = {
    "value_format": "python",
    "value.format": "python",
    "value_deserializer": json.loads,
    "key_deserializer": bytes.decode,
    "value_schema_id": 1,
    "group_id": "other",
    "isolation_level": "read_uncommitted",
}
CLASSIC: dict[str, Any] = {
    "auto_offset_reset": "latest",
    "enable_auto_commit": True,
    "enable.auto.commit": "true",
    "interceptors": [type("Changes", (), {"on_consume": lambda self, records: []})()],
}
SHARED: dict[str, Any] = {"share_auto_offset_reset": "latest", "share_acknowledgement_mode": "implicit"}
PRODUCER: dict[str, Any] = {
    "transactional_id": "t",
    "value_serializer": json.dumps,
    "key_serializer": str.encode,
    "acks": 0,
}


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_settings_that_break_a_promise_are_refused_by_name(kind):
    """✗ Letters lose their values, or the worker ends at the first record that fails."""
    for name, value in (CONSUMER | (CLASSIC if kind == "consumer" else SHARED)).items():
        with pytest.raises(InvalidConfigurationError, match=name):
            App("nowhere", group_id="g", group_type=kind, consumer={name: value})
    for name, value in PRODUCER.items():
        with pytest.raises(InvalidConfigurationError, match=name):
            App("nowhere", group_id="g", group_type=kind, producer={name: value})


def test_an_unknown_setting_is_refused_when_the_app_is_made():
    """✗ When something is to be sent for the first time."""
    with pytest.raises(InvalidConfigurationError, match="liner_ms"):
        App("nowhere", group_id="g", producer={"liner_ms": 1})
    with pytest.raises(InvalidConfigurationError, match="max_pol_records"):
        App("nowhere", group_id="g", consumer={"max_pol_records": 1})


def test_settings_that_change_nothing_of_it_are_accepted():
    same = {"value_format": "bytes", "key_deserializer": None, "enable_auto_commit": False, "group_id": "g"}
    more = {"isolation_level": "read_committed", "max_poll_records": 10, "session.timeout.ms": 60_000}
    App("nowhere", group_id="g", consumer={**same, **more}, producer={"linger_ms": 1, "acks": "all"})
    App("nowhere", group_id="g", group_type="share", consumer={"max_poll_records": 10}, producer={"acks": 1})


def test_settings_with_dots_are_those_with_underscores():
    """✗ The worker's own bound of a poll is another than its consumer's, or the setting "is given twice"."""
    dotted = {"max.poll.interval.ms": 60_000, "max.poll.records": 7, "group.id": "g"}
    app = App(
        "nowhere", group_id="g", consumer=dotted, producer={"max.request.size": 2_000_000, "buffer.memory": 2**26}
    )
    assert app.settings.consumer == {"max_poll_interval_ms": 60_000, "max_poll_records": 7, "group_id": "g"}
    assert app.settings.producer == {"max_request_size": 2_000_000, "buffer_memory": 2**26}
    with pytest.raises(InvalidConfigurationError, match="given twice"):
        App("nowhere", group_id="g", consumer={**dotted, "max_poll_records": 8})


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_worker_takes_settings_with_dots(kind):
    cluster = a_world("in", "out")
    send(cluster, "in", ["a"])
    consumer = {"max.poll.records": 7, **({"group.share.delivery.count.limit": 9} if kind == "share" else {})}
    producer = {"max.request.size": 2_000_000, "buffer.memory": 2**26}
    app = an_app(cluster, group_type=kind, consumer=consumer, producer=producer)

    @app.subscriber("in")
    def handle(record: Record[str]) -> Send:
        return Send("out", record.value)

    with running(app):
        done(app, 1)
    assert texts(cluster, "out") == ["a"]
