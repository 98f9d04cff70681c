"""A sender whose uploads are refused: the error that its records fail with."""

from __future__ import annotations

from sparklog.storage import MemoryStore
from sparklog.testing import Fault, FaultKind, FaultyStore
from tests.producer.support import (
    IMPATIENT,
    LONG_S,
    Switch,
    a_producer,
    a_topic,
    error_of,
    through,
)


def test_the_message_of_a_timeout_tells_topic_setting_and_reason() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    switch = Switch(FaultKind.THROTTLED, "put")
    with a_producer(through(FaultyStore(memory, switch.fault), cluster), **IMPATIENT) as producer:
        producer.partitions_for("t")
        switch.on()
        error = error_of(producer.send("t", b"v"))
    for part in ("1 records of topic 't'", "delivery_timeout_ms=200", "503"):
        assert part in str(error)


def test_without_retries_the_first_refusal_fails_a_record_and_says_so() -> None:
    memory = MemoryStore()
    cluster = a_topic(memory)
    refusing = Fault(kind=FaultKind.THROTTLED, ops=["put"])
    with a_producer(through(FaultyStore(memory, refusing), cluster), retries=0) as producer:
        assert "retries=0" in str(error_of(producer.send("t", b"v")))
        assert producer.send("t", b"next").get(LONG_S).offset == 0
