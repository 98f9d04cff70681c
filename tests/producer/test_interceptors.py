"""Interceptors: what they may change, what they are called with, and what a failing one does."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.errors import InvalidTimestampError, MessageSizeTooLargeError
from sparklog.producer import ProducerRecord
from tests.producer.support import FAR_FUTURE_MS, LONG_S, Interceptor, a_producer, a_topic, values


def test_interceptors_change_what_is_sent_and_are_told_of_its_end() -> None:
    log: list[object] = []
    cluster = a_topic()
    settings: dict[str, Any] = {"interceptors": [Interceptor(log, "a"), Interceptor(log, "b")]}
    with a_producer(cluster, value_serializer=str.encode, max_request_size=5, **settings) as producer:
        producer.send("t", "x")
        producer.flush(LONG_S)
        producer.send("t", "y", timestamp_ms=FAR_FUTURE_MS)
        producer.flush(LONG_S)
        with pytest.raises(MessageSizeTooLargeError):
            producer.send("t", "large")
    assert values(cluster) == [b"xab"]
    acknowledged = [("ack", name, 0, None) for name in "ab"]
    failed = [("ack", name, None, InvalidTimestampError) for name in "ab"]
    refused = [("ack", name, None, MessageSizeTooLargeError) for name in "ab"]
    assert log == [
        *[("send", "a", "x"), ("send", "b", "xa"), *acknowledged],
        *[("send", "a", "y"), ("send", "b", "ya"), *failed],
        *[("send", "a", "large"), ("send", "b", "largea"), *refused],
        *[("close", "a"), ("close", "b")],
    ]


def test_an_interceptor_may_send_to_another_topic() -> None:
    from sparklog.log import create_topic

    class Redirect:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(topic="u")

    cluster = a_topic()
    create_topic(cluster.topic_log("u"), "u")
    with a_producer(cluster, interceptors=[Redirect()]) as producer:
        assert producer.send("t", b"v").get(LONG_S).topic == "u"
    assert values(cluster, "u") == [b"v"]


def test_interceptors_that_fail_are_logged_and_passed_over(caplog: Any) -> None:
    class Bad:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ValueError("bad on_send")

        def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
            raise ValueError("bad on_acknowledgement")

        def close(self) -> None:
            raise ValueError("bad close")

    class Forgetful:
        def on_send(self, record: ProducerRecord) -> None:
            """Returns nothing."""

    log: list[object] = []
    cluster = a_topic()
    settings: dict[str, Any] = {"interceptors": [Bad(), Forgetful(), Interceptor(log)]}
    with a_producer(cluster, value_serializer=str.encode, **settings) as producer:
        assert producer.send("t", "x").get(LONG_S).offset == 0
        producer.flush(LONG_S)
    assert values(cluster) == [b"x"]
    assert log == [("send", "", "x"), ("ack", "", 0, None), ("close", "")]
    told = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert told == [
        "bad on_send",
        "on_send returned NoneType, expected a ProducerRecord",
        "bad on_acknowledgement",
        "bad close",
    ]
