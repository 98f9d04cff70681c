"""The log: names of its loggers, what records say beside their text, and that none tells what was sent or read."""

from __future__ import annotations

import ast
import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog import Consumer, Producer
from sparklog.errors import InvalidRecordError, RecordDeserializationError, SparklogError, TransactionAbortableError
from sparklog.log import create_topic
from sparklog.logs import about, without_content
from sparklog.model import TopicPartition
from sparklog.processing import Record
from sparklog.schemas import value_schema
from sparklog.storage import MemoryStore
from tests.consumer.support import a_cluster
from tests.processing.support import a_world, an_app, done, running

PACKAGE = Path(__file__).parent.parent / "sparklog"
PAGE = (PACKAGE.parent / "docs" / "monitoring.md").read_text()
SECRET = "s3cr3t"
TYPED = value_schema(pa.schema([("a", pa.int64())]))
LONG_S = 60.0


def told(caplog: pytest.LogCaptureFixture) -> str:
    """All that a handler might write: texts, tracebacks, extras."""
    formatter = logging.Formatter("%(name)s %(message)s %(sparklog)s", defaults={"sparklog": ""})
    return "\n".join(formatter.format(record) for record in caplog.records if record.name.startswith("sparklog"))


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.DEBUG)
    return lambda: told(caplog)


def calls() -> list[tuple[Path, ast.Call]]:
    """All calls of loggers."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text()
        if "_LOGGER" in source:
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("_LOGGER."):
                    found.append((path, node))
    return found


def test_every_logger_is_below_sparklog_and_named_on_the_page() -> None:
    names = set()
    for path in PACKAGE.rglob("*.py"):
        for name in re.findall(r"getLogger\(([^)]*)\)", path.read_text()):
            module = ".".join(["sparklog", *path.relative_to(PACKAGE).with_suffix("").parts])
            names.add(module if name == "__name__" else name.strip('"'))
    assert all(name.split(".")[0] == "sparklog" for name in names)
    rooms = {".".join(name.split(".")[:2]) for name in names} - {"sparklog"}
    section = PAGE.partition("\n## Logs\n")[2]
    assert set(re.findall(r"`(sparklog\.[a-z_]+)`", section)) == rooms


def test_texts_are_constants_whose_values_are_arguments() -> None:
    """So a handler may group records by their texts, and nothing is put together that nobody logs."""
    assert len(calls()) > 80
    wrong = [
        f"{path.name}:{call.lineno}" for path, call in calls() if isinstance(call.args[0], ast.JoinedStr | ast.BinOp)
    ]
    assert wrong == []


def test_a_record_says_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("sparklog.test").warning("lost", extra=about(group="g", topic="t"))
    assert caplog.records[0].__dict__["sparklog"] == {"group": "g", "topic": "t"}


def test_errors_are_told_without_what_a_record_holds() -> None:
    refused = InvalidRecordError(f"field a: got {SECRET!r}, expected int")
    assert without_content(refused) == "InvalidRecordError"
    assert without_content(SparklogError("the store is away")) == "the store is away"
    aborted = TransactionAbortableError(f"a record can't be stored: {refused}")
    aborted.__cause__ = refused
    assert without_content(aborted) == "TransactionAbortableError, by InvalidRecordError"


@pytest.mark.parametrize("acks", [0, 1])
def test_what_is_sent_is_not_logged(log: Callable[[], str], acks: int) -> None:
    cluster = a_cluster(MemoryStore())
    create_topic(cluster.topic_log("t"), "t")
    create_topic(cluster.topic_log("typed"), "typed", value_schema=TYPED)

    class Failing:
        def on_send(self, record: Any) -> Any:
            raise ValueError("mine")

    secret = SECRET.encode()
    with Producer(cluster, acks=acks, interceptors=[Failing()]) as producer:
        producer.send("t", secret, key=secret, headers=[(SECRET, secret)]).add_callback(lambda _: 1 / 0)
        producer.send("typed", b'{"a": "%s"}' % secret)
        producer.send("t", secret, timestamp_ms=2**60)
        producer.flush(LONG_S)
    assert "interceptor" in log()
    assert ("were refused" in log()) == (acks == 0)
    assert SECRET not in log()


def test_what_is_read_is_not_logged(log: Callable[[], str]) -> None:
    cluster = a_cluster(MemoryStore())
    create_topic(cluster.topic_log("t"), "t")
    with Producer(cluster) as producer:
        producer.send("t", SECRET.encode(), key=SECRET.encode(), headers=[(SECRET, SECRET.encode())])

    class Failing:
        def on_consume(self, records: Any) -> Any:
            raise ValueError("mine")

    given: dict[str, Any] = {"cluster": cluster, "group_id": "g", "auto_offset_reset": "earliest"}
    with Consumer("t", interceptors=[Failing()], **given) as consumer:
        while not consumer.poll(LONG_S * 1_000):
            pass
        consumer.seek(TopicPartition("t", 0), 99)
        while not consumer.poll(LONG_S * 1_000):
            pass
    deserializing = Consumer("t", value_deserializer=lambda value: int(value), **{**given, "group_id": "h"})
    with deserializing as consumer, pytest.raises(RecordDeserializationError):
        consumer.poll(LONG_S * 1_000)
    assert "out of range" in log()
    assert "on_consume" in log()
    assert SECRET not in log()


def test_no_test_is_shown_what_a_thread_that_another_has_left_logs(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("left by tests/test_other.py::test: sparklog-fetcher", "sparklog-fetcher"):
        thread = threading.Thread(target=logging.getLogger("sparklog").error, args=[name], name=name)
        thread.start()
        thread.join(LONG_S)
    assert caplog.messages == ["sparklog-fetcher"]


@pytest.mark.slow
def test_what_is_processed_is_not_logged(log: Callable[[], str]) -> None:
    cluster = a_world("in", "dead")
    with Producer(cluster) as producer:
        for value in (b"1", SECRET.encode()):
            producer.send("in", value, key=SECRET.encode(), headers=[(SECRET, SECRET.encode())])
    app = an_app(cluster, on_dead_letter=lambda letter: 1 / 0)

    @app.subscriber("in", dead_letter="dead")
    def handle(record: Record[int]) -> None:
        """Values that are no numbers can't be decoded."""

    with running(app):
        done(app, 2)
    assert "on_dead_letter failed" in log()
    assert SECRET not in log()
