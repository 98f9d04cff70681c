"""Topics with records, which a run fills once: one in a folder, one on the broker, for all who only read them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.harness import progress, run
from benchmarks.kafka_broker import Broker
from benchmarks.peers import kafka_topic, sparklog_topic
from benchmarks.produce import TOPIC, send_kafka, send_sparklog
from benchmarks.shared import lent

__all__ = ["filled_folder", "filled_on_broker"]


@contextmanager
def filled_folder(count: int, value_size: int) -> Iterator[str]:
    """A cluster whose topic ``TOPIC`` has so many records; others may be created beside it."""
    with lent(("folder", count, value_size), partial(_folder, count, value_size)) as root:
        yield root


@contextmanager
def filled_on_broker(broker: Broker, count: int, value_size: int) -> Iterator[str]:
    """A topic of the broker with so many records."""
    with lent((broker, count, value_size), partial(_on_broker, broker, count, value_size)) as topic:
        yield topic


@contextmanager
def _folder(count: int, value_size: int) -> Iterator[str]:
    progress("filling a topic")
    with tempfile.TemporaryDirectory() as root:
        sparklog_topic(root, TOPIC)
        run(send_sparklog, root=root, count=count, value_size=value_size, linger_ms=50)
        yield root


@contextmanager
def _on_broker(broker: Broker, count: int, value_size: int) -> Iterator[str]:
    progress("filling Kafka")
    topic = kafka_topic(broker.bootstrap)
    there = {"bootstrap": broker.bootstrap, "topic": topic, "broker_pid": broker.pid}
    run(send_kafka, **there, count=count, value_size=value_size, linger_ms=50, callback=False)
    yield topic
