"""Workers trace themselves where the process has an SDK: from what was read to what is sent."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from sparklog import Producer
from sparklog.opentelemetry import instrument
from sparklog.processing import Batch, Record, Send
from tests.opentelemetry.support import Telemetered, attributes_of, telemetered
from tests.processing.support import a_world, an_app, done, records, running


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Telemetered:
    """The telemetry of the process."""
    found = telemetered()
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", found.tracers)
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", found.meters)
    return found


def send(cluster: object, *values: bytes) -> None:
    with Producer(cluster) as producer:  # type: ignore[arg-type]
        instrument(producer)
        for value in values:
            producer.send("in", value)


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent and span.parent.span_id


def test_a_record_is_followed_through_a_worker(here: Telemetered) -> None:
    cluster = a_world("in", "out")
    send(cluster, b"1")
    app = an_app(cluster)

    @app.subscriber("in")
    async def handle(record: Record[str]) -> Send:
        with trace.get_tracer("app").start_as_current_span("inner"):
            return Send("out", record.value)

    with running(app):
        done(app, 1)
    processed, inner, first, second = (here.span(name) for name in ("process in", "inner", "send in", "send out"))
    assert [link.context.span_id for link in processed.links] == [first.context.span_id]
    assert parent_of(inner) == parent_of(second) == processed.context.span_id
    (record,) = records(cluster, "out")
    assert dict(record.headers)["traceparent"].split(b"-")[2] == b"%016x" % second.context.span_id  # type: ignore[union-attr]
    found = attributes_of(processed)
    assert (found["messaging.consumer.group.name"], found["messaging.sparklog.message.offset"]) == ("g", 0)
    assert here.span("poll in").links
    assert here.spans("commit_transaction")
    assert sum(count for _, count in here.measured("messaging.process.duration")) == 1


@pytest.mark.slow
def test_a_record_that_fails_is_followed_to_the_dead_letters(here: Telemetered) -> None:
    cluster = a_world("in", "dead")
    send(cluster, b"1")
    app = an_app(cluster)

    @app.subscriber("in", dead_letter="dead")
    def handle(record: Record[str]) -> None:
        raise ValueError("no")

    with running(app):
        done(app, 1)
    processed, letter = here.spans("process in")[-1], here.span("send dead")
    assert processed.status.status_code is StatusCode.ERROR
    assert attributes_of(processed)["error.type"] == "ValueError"
    assert parent_of(letter) == processed.context.span_id


@pytest.mark.slow
def test_a_batch_is_one_span(here: Telemetered) -> None:
    cluster = a_world("in")
    send(cluster, b"1", b"2", b"3")
    app = an_app(cluster)
    seen: list[int] = []

    @app.subscriber("in")
    def handle(batch: Batch[str]) -> None:
        seen.append(len(batch))

    with running(app):
        done(app, 3)
    counts = [attributes_of(span).get("messaging.batch.message_count", 1) for span in here.spans("process in")]
    assert counts == seen


@pytest.mark.slow
def test_a_worker_imports_no_api_that_nobody_uses() -> None:
    program = """
import sys
from tests.processing.support import a_world, an_app, done, running, send
cluster = a_world("in")
send(cluster, "in", ["a"])
app = an_app(cluster)
app.subscriber("in")(lambda record: None)
with running(app):
    done(app, 1)
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "[]"
