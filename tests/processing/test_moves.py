"""Headers of records that are moved: the user's stay, ours come and go. Dead letters that go round end."""

from __future__ import annotations

import pytest

from sparklog import Producer
from sparklog.errors import HandlerError, InvalidArgumentError, InvalidTypeError
from sparklog.processing import App, Batch, Fixed, Record, Retry, Send, letter_of
from sparklog.processing.dead_letters import Found, letter_table, replay
from sparklog.testing.processing import AppDriver
from tests.processing.support import a_world, an_app, done, offsets, records, running, texts, until

USERS = [
    ("kafka_original-topic", b"spring"),
    ("retry_topic-x", b"1"),
    ("kafka_exception-cause", b"2"),
    ("__dlq.errors.mine", b"3"),
    ("kafka_dlt-original-consumer-group", b"4"),
    ("retry_topic-attempts", b"7"),
    ("kafka_original-topic-2", None),
    ("id", b"5"),
    ("id", b"6"),
    ("__dlq.replayed.mine", b"8"),
]
"""Other programs set headers with these beginnings, and Spring's with these very names."""


@pytest.mark.parametrize(
    "retry", [None, Retry(attempts=3, backoff=Fixed(1)), Retry(attempts=3, backoff=Fixed(1), topics=True)]
)
def test_a_letter_keeps_the_headers_of_its_record(retry):
    """✗ All that begin as ours are dropped."""
    app, attempts = App("nowhere", group_id="g"), list[int]()

    @app.subscriber("in", retry=retry, dead_letter=True)
    def handle(record: Record[str]) -> None:
        attempts.append(record.attempt)
        raise ValueError("odd")

    driver = AppDriver(app)
    driver.send("in", "a", headers=USERS)
    for _ in range(4):
        driver.advance(1_000)
    [record] = driver.records("dlq.in")
    letter = letter_of(record)
    assert sorted(letter.headers, key=str) == sorted(USERS, key=str)
    assert [each for each in letter.headers if each[0] == "id"] == [("id", b"5"), ("id", b"6")]
    assert (letter.origin.topic, letter.origin.offset, letter.message) == ("in", 0, "odd")
    assert letter.attempts == (1 if retry is None else 3)
    assert attempts == ([1] if retry is None else [1, 2, 3])
    assert driver.dead_letters[0].headers == letter.headers


@pytest.mark.slow
def test_a_replayed_letter_has_the_headers_of_its_record():
    cluster = a_world("in", "dlq.in")
    app, seen = an_app(cluster), list[list[tuple[str, bytes | None]]]()

    @app.subscriber("in", dead_letter=True)
    def handle(record: Record[str]) -> None:
        seen.append(record.headers)
        raise ValueError("odd")

    from sparklog import Producer

    with Producer(cluster) as producer:
        producer.send("in", b"a", headers=USERS)
    with running(app):
        done(app, 1)
        for count in (2, 3, 4):
            replay(cluster, "dlq.in", execute=True)
            done(app, count)
    assert [each for each in seen[3] if not each[0].startswith("__dlq.replayed.") or each in USERS] == USERS
    sizes = [len(letter.headers) for letter in records(cluster, "dlq.in")]
    assert sizes[1:] == [sizes[1]] * 3  # it grows no more


def test_a_letter_that_is_sent_back_with_all_its_headers_does_not_grow():
    """A handler of dead letters passes on all headers, again and again."""
    app = App("nowhere", group_id="g")

    @app.subscriber("in", retry=Retry(attempts=2, backoff=Fixed(0.001), topics=True), dead_letter=True)
    def fail(record: Record[str]) -> None:
        raise ValueError("odd")

    @app.subscriber("dlq.in")
    def repair(record: Record[str]) -> Send | None:
        return Send("in", record.value, headers=record.headers) if record.offset < 10 else None

    driver = AppDriver(app)
    driver.send("in", "a", headers=USERS)
    for _ in range(30):
        driver.advance(10)
    sizes = [sum(len(name) + len(value or b"") for name, value in each.headers) for each in driver.records("dlq.in")]
    assert len(sizes) == 11
    assert max(sizes[2:]) - min(sizes[2:]) < 10


def test_subscribers_whose_dead_letters_go_in_a_circle_are_refused():
    """✗ A record that fails goes round for ever."""
    app = App("nowhere", group_id="g")
    app.subscriber("a", dead_letter="b")(print)
    app.subscriber("b", dead_letter="c")(print)
    with pytest.raises(InvalidArgumentError, match="a circle, a → b → c → a"):
        app.subscriber("c", dead_letter="a")(print)
    with pytest.raises(InvalidArgumentError, match="a circle, "):
        app.subscriber("d", dead_letter="d-retry-1s", retry=Retry(attempts=2, backoff=Fixed(1), topics=True))(print)
    app.subscriber("c", dead_letter=True)(print)
    app.subscriber("in", dead_letter=True)(print)
    with pytest.raises(InvalidArgumentError, match=r"a circle, in → dlq.in → in"):
        app.subscriber("dlq.in", dead_letter="in")(print)


def test_a_circle_over_several_apps_ends():
    """Each app knows its own subscribers alone."""
    apps = []
    for source, letters in (("a", "b"), ("b", "a")):
        app = App("nowhere", group_id=source)

        @app.subscriber(source, dead_letter=letters)
        def fail(record: Record[str]) -> None:
            raise ValueError("odd")

        apps.append(app)
    drivers = [AppDriver(app) for app in apps]
    drivers[0].send("a", "x")
    for moves in range(100):
        here, there = drivers[moves % 2], drivers[(moves + 1) % 2]
        here.run()
        letter = here.records("ba"[moves % 2])[-1]
        assert letter_of(letter).moves == moves + 1
        there.send(letter.topic, letter.value, headers=letter.headers)
    with pytest.raises(
        HandlerError, match=r"a-0, offset 50, at try 1: ValueError\('odd'\); .* a dead letter 100 times"
    ):
        drivers[0].run()


FAILS = Retry(attempts=2, backoff=Fixed(0.001))


@pytest.mark.parametrize("kind", ["record", "batch", "undecodable", "share"])
def test_a_record_that_says_it_goes_round_stops_its_partition_alone(kind):
    """Anybody can send such a header. ✗ The worker ends before it, and so does the next."""
    cluster, handled = a_world("in", "out", "dlq.in", partitions=2), list[str]()
    with Producer(cluster) as producer:
        for value in ("1", "bad" if kind == "undecodable" else "-1", "3"):
            headers = [("__dlq.errors.moves", b"100")] if value in ("-1", "bad") else []
            producer.send("in", value.encode(), headers=headers, partition=0)
        for number in range(10, 20):
            producer.send("in", b"%d" % number, partition=1)
    app = an_app(cluster, **({"group_type": "share", "consumer": {}} if kind == "share" else {}))

    def doubled(value: int) -> Send:
        handled.append(str(value))
        if value < 0:
            raise ValueError("odd")
        return Send("out", 2 * value)

    if kind in ("batch", "undecodable"):

        @app.subscriber("in", dead_letter=True, retry=FAILS)
        def of_batch(batch: Batch[int]) -> list[Send]:
            return [doubled(value) for value in batch.values]
    else:

        @app.subscriber("in", dead_letter=True, retry=FAILS)
        def of_record(record: Record[int]) -> Send:
            return doubled(record.value)

    app.start()
    good = {2, *range(20, 40, 2), *([6] if kind == "share" else [])}
    until(lambda: {int(text) for text in texts(cluster, "out")} == good)
    until(lambda: app.health().stopped)
    assert app.health().is_alive
    with pytest.raises(HandlerError, match=r"in-0, offset 1, .* dead letter 100 times"):
        app.stop()
    assert sorted(int(text) for text in texts(cluster, "out")) == sorted(good)
    assert texts(cluster, "dlq.in") == []
    if kind == "record":
        assert offsets(cluster) == {0: 1, 1: 10}
        assert "3" not in handled


@pytest.mark.parametrize("number", [b"9" * 5_000, b"9" * 400, b"1000000000000000000000", b"-5", b"1_0", b"\xb2", b""])
def test_numbers_that_others_have_written_hinder_nothing(number):
    """✗ A worker, and every command about its dead letters, ends with ValueError, OverflowError or ArrowInvalid."""
    app = App("nowhere", group_id="g")

    @app.subscriber("in", dead_letter=True, retry=Retry(attempts=2, backoff=Fixed(1), topics=True))
    def handle(record: Record[str]) -> None:
        raise ValueError("odd")

    names = ("moves", "partition", "offset", "delivery.count")
    headers = [
        *(("__dlq.errors." + name, number) for name in names),
        *(("kafka_original-" + name, number) for name in ("partition", "offset", "timestamp")),
        *((name, number) for name in ("retry_topic-attempts", "retry_topic-backoff-timestamp")),
        *(("kafka_original-topic", b"x"), ("retry_topic-original-timestamp", number), ("__dlq.errors.topic", b"x")),
    ]
    driver = AppDriver(app)
    driver.send("in", "a", headers=headers)
    driver.send("in-retry-1s", "b", headers=headers)
    for _ in range(4):
        driver.advance(1_000)
    driver.send("dlq.in", "c", headers=headers)
    letters = sorted(driver.records("dlq.in"), key=lambda letter: letter.value)
    assert [letter.value for letter in letters] == [b"a", b"b", b"c"]
    assert letter_table([Found(each, letter_of(each)) for each in letters]).num_rows == 3
    assert letter_of(letters[0]).origin.topic == "in"


def test_headers_that_can_be_read_only_once_are_refused():
    """✗ They are checked, and then there are none left to be sent."""
    with pytest.raises(InvalidTypeError, match="headers of generator, expected a list or a tuple"):
        Send("out", b"x", headers=(pair for pair in [("a", b"b")]))  # type: ignore[arg-type]


def test_a_handler_repairs_dead_letters_or_reports_them(capsys):
    """The example of docs/processing.md."""
    app = App("nowhere", group_id="repairs")

    @app.subscriber("orders", dead_letter=True)
    def handle(record: Record[dict]) -> Send | None:  # type: ignore[type-arg]
        if "id" not in record.value:
            raise ValueError("no id")
        return Send("done", record.value["id"])

    @app.subscriber("dlq.orders")
    def repair(record: Record[bytes]) -> Send | None:
        letter = letter_of(record)
        assert letter == letter_of(record.raw)
        if letter.exception == "json.decoder.JSONDecodeError" and b"'" in record.value:
            return Send(letter.origin.topic, record.value.replace(b"'", b'"'), key=letter.key, headers=letter.headers)
        print(f"{letter.origin.topic}@{letter.origin.offset} {letter.exception}: {letter.message}")
        return None

    driver = AppDriver(app)
    driver.send("orders", "{'id': 7}", headers=[("mine", b"1")])
    driver.send("orders", {})
    driver.run()
    assert driver.values("done") == [b"7"]
    assert driver.records("orders")[2].headers == [("mine", b"1")]
    assert capsys.readouterr().out == "orders@1 ValueError: no id\n"
