"""Apps in the driver: all that is decided, without threads and store."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import HandlerError, IllegalStateError, InvalidArgumentError, InvalidTypeError
from sparklog.processing import App, Batch, Exponential, Fixed, Limits, Record, Retry, Send
from sparklog.processing.deduplication import DEFAULT_GROUP, AlreadyProcessedError, current_group
from sparklog.testing.processing import AppDriver
from tests.depth import by_depth


@dataclass
class Order:
    id: int


def an_app(**settings: Any) -> App:
    return App("nowhere", group_id="g", **settings)


def headers_of(record: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in record.headers}


def test_what_a_handler_yields_is_sent_and_its_offset_committed():
    app = an_app()

    @app.subscriber("orders")
    def bill(record: Record[Order]) -> Iterator[Send]:
        yield Send("bills", {"bill": record.value.id}, key="k", headers=[("a", b"b")])
        yield Send("mails", f"bill {record.value.id} at {record.offset}")

    driver = AppDriver(app)
    driver.send("orders", {"id": 1})
    driver.send("orders", {"id": 2})
    driver.run()
    assert driver.values("bills") == [b'{"bill":1}', b'{"bill":2}']
    assert driver.records("bills")[0].headers == [("a", b"b")]
    assert driver.values("mails") == [b"bill 1 at 0", b"bill 2 at 1"]
    assert driver.committed("orders") == 2


@pytest.mark.parametrize("kind", ["function", "async", "async generator", "list", "one"])
def test_all_kinds_of_handlers(kind):
    app = an_app()
    first, second = Send("out", b"1"), Send("out", b"2")

    def function(record: Record[bytes]) -> tuple[Send, Send]:
        return first, second

    async def coroutine(record: Record[bytes]) -> list[Send]:
        return [first, second]

    async def generator(record: Record[bytes]) -> AsyncIterator[Send]:
        yield first
        yield second

    def one(record: Record[bytes]) -> Send:
        return first

    handlers = {
        "function": function,
        "async": coroutine,
        "async generator": generator,
        "list": lambda record: [first, second],
        "one": one,
    }
    app.subscriber("in")(handlers[kind])
    driver = AppDriver(app)
    driver.send("in", b"")
    driver.run()
    assert driver.values("out") == ([b"1"] if kind == "one" else [b"1", b"2"])


def test_a_record_is_tried_again_in_place_while_other_keys_go_on():
    app, tries = an_app(), Counter[bytes]()

    @app.subscriber("in", retry=Retry(attempts=3, backoff=Exponential(1, 60)), order_by="key")
    def handle(record: Record[bytes]) -> Send:
        tries[record.value] += 1
        assert record.attempt == tries[record.value]
        if record.value == b"a1" and record.attempt < 3:
            raise ValueError("not yet")
        return Send("out", record.value)

    driver = AppDriver(app)
    for value in ("a1", "b1", "a2", "b2"):
        driver.send("in", value, key=value[0])
    driver.run()
    assert tries == {b"a1": 1, b"b1": 1, b"b2": 1}
    assert driver.values("out") == []  # b's wait for the offset before them
    driver.advance(999)
    assert tries[b"a1"] == 1
    driver.advance(1)
    assert tries[b"a1"] == 2
    driver.advance(2_000)
    assert driver.values("out") == [b"a1", b"b1", b"a2", b"b2"]
    assert driver.committed("in") == 4


def test_a_record_goes_through_delay_topics_to_the_dead_letters():
    app = an_app()

    @app.subscriber("in", retry=Retry(attempts=3, backoff=Exponential(1, 60), topics=True), dead_letter="dlq.in")
    def handle(record: Record[bytes]) -> Send | None:
        if record.value == b"bad":
            raise ValueError(f"try {record.attempt}")
        return Send("out", record.value)

    driver = AppDriver(app)
    start = driver.clock.now_ms()
    driver.send("in", "bad", key="k", headers=[("mine", b"1")])
    driver.send("in", "good")
    driver.run()
    assert driver.values("out") == [b"good"]
    assert driver.committed("in") == 2
    [delayed] = driver.records("in-retry-1s")
    assert headers_of(delayed) == {
        "mine": "1",
        "retry_topic-attempts": "1",
        "retry_topic-backoff-timestamp": str(start + 1_000),
        "retry_topic-original-timestamp": str(start),
        "kafka_dlt-original-consumer-group": "g",
        "kafka_original-topic": "in",
        "kafka_original-partition": "0",
        "kafka_original-offset": "0",
        "kafka_original-timestamp": str(start),
        "kafka_exception-fqcn": "ValueError",
        "kafka_exception-message": "try 1",
    }
    driver.crash()  # what waits is in a topic
    driver.run()
    assert driver.committed("in-retry-1s") == 0
    driver.advance(1_000)
    assert headers_of(driver.records("in-retry-2s")[0])["retry_topic-attempts"] == "2"
    driver.advance(2_000)
    [dead] = driver.records("dlq.in")
    found = headers_of(dead)
    assert "ValueError: try 3" in found.pop("__dlq.errors.stacktrace")
    assert found == {
        "mine": "1",
        "__dlq.errors.topic": "in",
        "__dlq.errors.partition": "0",
        "__dlq.errors.offset": "0",
        "__dlq.errors.group": "g",
        "__dlq.errors.delivery.count": "3",
        "__dlq.errors.message": "try 3",
        "__dlq.errors.exception": "ValueError",
        "retry_topic-original-timestamp": str(start),
    }
    assert (dead.key, dead.value) == (b"k", b"bad")
    [letter] = driver.dead_letters
    assert (letter.origin.topic, letter.origin.offset, letter.attempts, letter.message) == ("in", 0, 3, "try 3")


def test_a_delayed_record_of_another_group_is_passed_over():
    apps = [App("nowhere", group_id=group) for group in ("g", "h")]
    seen = []
    for app in apps:

        @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(1), topics=True), dead_letter=True)
        def handle(record: Record[bytes]) -> None:
            seen.append(record.topic)
            raise ValueError

    drivers = [AppDriver(app) for app in apps]
    drivers[0].send("in", b"x")
    drivers[0].run()
    [delayed] = drivers[0].records("in-retry-1s")
    drivers[1].send("in-retry-1s", delayed.value, headers=delayed.headers)
    drivers[1].advance(1_000)
    assert drivers[1].committed("in-retry-1s") == 1
    assert seen == ["in"]


def test_a_poison_record_goes_to_the_dead_letters_at_once():
    app = an_app()

    @app.subscriber("in", retry=Retry(attempts=5), dead_letter=True)
    def handle(record: Record[Order]) -> Send:
        return Send("out", str(record.value.id))

    driver = AppDriver(app)
    for value in ('{"id": 1}', "{", '{"id": "2"}', '{"id": 3}'):
        driver.send("in", value)
    driver.run()
    assert driver.values("out") == [b"1", b"3"]
    assert driver.values("dlq.in") == [b"{", b'{"id": "2"}']
    assert [letter.attempts for letter in driver.dead_letters] == [1, 1]
    assert driver.dead_letters[1].message == "value.id: got str, expected int"


def test_a_tombstone_is_none_whatever_the_annotation_says():
    app, seen = an_app(), list[object]()

    @app.subscriber("in")
    def handle(record: Record[Order]) -> None:
        seen.append((record.key, record.value))

    driver = AppDriver(app)
    driver.send("in", None, key="k")
    driver.run()
    assert seen == [(b"k", None)]


def test_without_dead_letters_the_worker_stops_before_the_record():
    app, is_mended = an_app(), False

    @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(0)))
    def handle(record: Record[bytes]) -> Send:
        if record.value == b"bad" and not is_mended:
            raise ValueError("why")
        return Send("out", record.value)

    driver = AppDriver(app)
    for value in ("one", "bad", "two"):
        driver.send("in", value)
    with pytest.raises(
        HandlerError, match=r"handle failed at in-0, offset 1, after 2 tries: ValueError\('why'\)"
    ) as error:
        driver.run()
    assert (error.value.topic_partition, error.value.offset) == (("in", 0), 1)
    assert isinstance(error.value.__cause__, ValueError)
    assert (driver.committed("in"), driver.values("out")) == (1, [b"one"])
    is_mended = True
    driver.run()
    assert driver.values("out") == [b"one", b"bad", b"two"]


@pytest.mark.parametrize(
    ("result", "seen"),
    [(3, "returned int"), ("text", "returned str"), ({"a": 1}, "returned dict"), ([Send("out"), 3], "yielded int")],
)
def test_a_wrong_result_stops_the_worker(result, seen):
    app = an_app()
    app.subscriber("in", retry=Retry(attempts=3), dead_letter=True, value_type=bytes)(lambda record: result)
    driver = AppDriver(app)
    driver.send("in", b"x")
    with pytest.raises(HandlerError, match=f"<lambda> {seen}, expected"):
        driver.run()
    assert (driver.committed("in"), driver.values("dlq.in"), driver.values("out")) == (0, [], [])


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_error_for_the_process_stops_the_worker(error):
    app = an_app()

    @app.subscriber("in", retry=Retry(attempts=3), dead_letter=True)
    def handle(record: Record[bytes]) -> None:
        raise error

    driver = AppDriver(app)
    driver.send("in", b"x")
    with pytest.raises(HandlerError) as found:
        driver.run()
    assert found.value.__cause__ is error
    assert driver.committed("in") == 0


def test_a_batch_that_fails_is_tried_record_by_record():
    app, sizes = an_app(), []

    @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(1)), dead_letter=True, batch_size=4)
    def handle(batch: Batch[Order]) -> Send:
        sizes.append(len(batch))
        if any(order.id == 3 for order in batch.values):
            raise ValueError("three")
        return Send("out", ",".join(str(order.id) for order in batch.values))

    driver = AppDriver(app)
    for number in (1, 2, 3, 4, 5):
        driver.send("in", {"id": number})
    driver.run()
    assert sizes == [4]
    driver.advance(1_000)
    assert sizes == [4, 4, 1, 1, 1, 1, 1]
    assert driver.values("out") == [b"1", b"2", b"4", b"5"]
    assert driver.values("dlq.in") == [b'{"id":3}']


def test_a_batch_has_its_records_in_arrow():
    app, tables = an_app(), []

    @app.subscriber("in", dead_letter=True)
    def handle(batch: Batch[Order]) -> None:
        tables.append(batch.table)

    driver = AppDriver(app)
    driver.send("in", {"id": 1}, key="k", headers=[("a", None)])
    driver.send("in", "poison")
    driver.send("in", {"id": 2})
    driver.run()
    [table] = tables
    assert table["offset"].to_pylist() == [0, 2]
    assert table["key"].to_pylist() == [b"k", None]
    assert table["headers"].to_pylist() == [[{"key": "a", "value": None}], []]
    assert driver.values("dlq.in") == [b"poison"]


def test_what_the_inbox_knows_is_done():
    app, groups = an_app(), []

    @app.subscriber("in")
    def handle(record: Record[bytes]) -> None:
        groups.append(current_group.get())
        raise AlreadyProcessedError("known")

    driver = AppDriver(app)
    driver.send("in", b"x")
    driver.run()
    assert (driver.committed("in"), groups) == (1, ["g"])
    assert current_group.get() == DEFAULT_GROUP  # of the test's own thread, in which the driver runs


def test_no_more_than_the_limit_is_read_ahead():
    app = an_app(limits=Limits(records=3))
    app.subscriber("in", value_type=bytes)(lambda record: Send("out", record.value))
    driver = AppDriver(app)
    for number in range(20):
        driver.send("in", str(number))
    driver.run()
    assert len(driver.values("out")) == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency=0, expected 1 to 1000"),
        ({"order_by": "topic"}, "order_by='topic', expected 'partition', 'key' or 'none'"),
        ({"dead_letter": "in"}, "dead_letter='in' is a topic that it reads"),
        ({"batch_size": True}, "batch_size=True"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        an_app().subscriber("in", **options)(lambda record: None)


def test_wrong_handlers_are_refused():
    def by_bytes(record: bytes) -> None: ...

    def unknown(record: Record[Missing]) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    def keys(batch: Batch[bytes]) -> None: ...

    app = an_app()
    with pytest.raises(InvalidTypeError, match=r"expected Record\[…\] or Batch\[…\]"):
        app.subscriber("in")(by_bytes)
    with pytest.raises(InvalidTypeError, match="name 'Missing' is not defined"):
        app.subscriber("in")(unknown)
    with pytest.raises(InvalidTypeError, match="takes one argument"):
        app.subscriber("in")(lambda: None)  # type: ignore[type-var]
    with pytest.raises(InvalidArgumentError, match="expected 'partition'"):
        app.subscriber("in", order_by="key")(keys)
    app.subscriber("in")(keys)
    with pytest.raises(IllegalStateError, match="another handler reads in"):
        app.subscriber("in")(keys)


@pytest.mark.slow
@settings(max_examples=by_depth(gate=75, nightly=150))
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 4)), max_size=12),
    st.sampled_from(["partition", "key", "none"]),
    st.booleans(),
    st.data(),
)
def test_whatever_dies_when_each_record_has_one_outcome(
    sent: list[tuple[str, int]], order_by: Literal["partition", "key", "none"], topics: bool, data: st.DataObject
):
    """Crashes between any two steps, handlers that fail so and so often, lanes in any order: each record's outputs are
    there once, or it is once in the dead letters; in the order of its key, if it is tried again in place."""
    app = an_app()
    retry = Retry(attempts=3, backoff=Exponential(1, 60), topics=topics)

    @app.subscriber("in", retry=retry, dead_letter=True, order_by=order_by)
    def handle(record: Record[str]) -> Iterator[Send]:
        number, failures = map(int, record.value.split(":"))
        yield Send("out", f"{number}", key=record.key)
        if record.attempt <= failures:
            raise ValueError(f"try {record.attempt}")
        yield Send("out", f"{number} again", key=record.key)

    driver = AppDriver(app, choose=lambda count: data.draw(st.integers(0, count - 1)), partitions=2)
    for number, (key, failures) in enumerate(sent):
        driver.send("in", f"{number}:{failures}", key=key)
    for _ in range(data.draw(st.integers(0, 10))):
        driver._read()
        action = data.draw(st.sampled_from(["step", "step", "step", "commit", "crash", "wait"]))
        if action == "wait":
            driver.clock.advance(1_000)
        else:
            getattr(driver, action)()
    for _ in range(2 * len(sent) + 2):  # two retries of each, one after the other
        driver.advance(60_000)
    good = [number for number, (_, failures) in enumerate(sent) if failures < 3]
    expected = Counter(text for number in good for text in (f"{number}", f"{number} again"))
    assert Counter(value.decode() for value in driver.values("out")) == expected
    dead = sorted(int(value.split(b":")[0]) for value in driver.values("dlq.in"))
    assert dead == [number for number, (_, failures) in enumerate(sent) if failures >= 3]
    assert sum(driver.committed("in", number) for number in (0, 1)) == len(sent)
    if not topics:
        for key in "abc":
            own = [record.value.decode() for record in driver.records("out") if record.key == key.encode()]
            in_order = [number for number in good if sent[number][0] == key]
            assert own == [text for number in in_order for text in (f"{number}", f"{number} again")]
