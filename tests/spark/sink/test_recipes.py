"""The recipes of docs/spark.md run as they are printed."""

import json
import re
import time
from pathlib import Path

import pytest

from sparklog import Admin, Producer
from sparklog.admin import NewTopic
from sparklog.processing import letter_of
from tests.spark.spark_support import consumed

pytestmark = pytest.mark.spark

NOON_MS = int(time.time() // 86_400 * 86_400_000) - 12 * 3_600_000  # of yesterday
PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def recipe(heading):
    """The code below a heading of the page."""
    _, _, text = PAGE.read_text().partition(f"\n### {heading}\n")
    [code] = re.findall(r"^```py\n(.*?)^```$", text.partition("\n### ")[0].partition("\n## ")[0], re.M | re.S)
    return code


def topics(root, *names):
    with Admin(root) as admin:
        admin.create_topics([NewTopic(name, 2) for name in names])


def send(root, *records):
    """Each is a value and perhaps an id."""
    with Producer(root) as producer:
        for value, *ids in records:
            producer.send("orders", value, headers=[("id", one.encode()) for one in ids])


def run(code, spark, tmp_path):
    """Run a recipe, whose cluster is ./data, until it has read all there is."""
    from pyspark.sql.functions import expr, session_window

    names = {"spark": spark, "expr": expr, "session_window": session_window}
    exec(compile(code.replace(".start(", ".trigger(availableNow=True).start("), str(PAGE), "exec"), names)
    for query in spark.streams.active:
        assert query.awaitTermination(500)
        assert query.exception() is None


def values(root, topic):
    return sorted(record.value for record in consumed(root, topic))


def test_bad_rows_go_to_a_dead_letter_topic_in_the_same_transaction(spark, tmp_path):
    root = str(tmp_path / "data")
    topics(root, "orders", "bills", "dlq.orders")
    code = recipe("Bad rows to a dead-letter topic").replace("./data", root).replace("./checkpoint", f"{tmp_path}/c")
    send(root, (b'{"id": 1, "amount": 5}',), (b"no json",), (b'{"id": 2}',))
    run(code, spark, tmp_path)
    assert values(root, "bills") == [b'{"id":1,"amount":5}']
    assert values(root, "dlq.orders") == [b"no json", b'{"id": 2}']
    for letter in consumed(root, "dlq.orders"):
        told = letter_of(letter)
        assert (told.origin.topic, told.message) == ("orders", "no bill: expected id and amount")
        assert told.origin.offset in (0, 1, 2)
    forget_last_batch(tmp_path / "c")
    send(root, (b'{"id": 3, "amount": 7}',))
    run(code, spark, tmp_path)
    assert values(root, "bills") == [b'{"id":1,"amount":5}', b'{"id":3,"amount":7}']
    assert len(values(root, "dlq.orders")) == 2


def test_each_message_id_is_stored_once(spark, tmp_path):
    root = str(tmp_path / "data")
    topics(root, "orders", "orders-once")
    code = recipe("One row for each message").replace("./data", root).replace("./checkpoint", f"{tmp_path}/c")
    send(root, (b"a", "1"), (b"a again", "1"), (b"b", "2"), (b"no id",))
    run(code, spark, tmp_path)
    found = values(root, "orders-once")
    assert (len(found), found[-2:]) == (3, [b"b", b"no id"])
    send(root, (b"b again", "2"), (b"c", "3"))
    run(code, spark, tmp_path)
    assert values(root, "orders-once") == sorted([*found, b"c"])


def forget_last_batch(checkpoint):
    """As if the driver had died when a batch was in the topics, and not yet noted to be."""
    last = max((path for path in (checkpoint / "commits").glob("[0-9]*")), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)


def at(minutes):
    return NOON_MS + minutes * 60_000


def placed(code, tmp_path):
    return code.replace("./data", str(tmp_path / "data")).replace("./checkpoint", f"{tmp_path}/c")


@pytest.mark.deep  # Spark's own state; in each run test_each_message_id_is_stored_once has some
def test_two_topics_are_joined(spark, tmp_path):
    root = str(tmp_path / "data")
    topics(root, "orders", "payments", "paid")
    with Producer(root) as producer:
        for topic, key, minutes in (("orders", b"a", 0), ("payments", b"a", 50), ("payments", b"b", 0)):
            producer.send(topic, topic.encode() + key, key=key, timestamp_ms=at(minutes)).get()
        producer.send("orders", b"ordersb", key=b"b", timestamp_ms=at(30)).get()
        producer.send("orders", b"ordersc", key=b"c", timestamp_ms=at(0)).get()
        producer.send("payments", b"paymentsc", key=b"c", timestamp_ms=at(90)).get()  # too late
    run(placed(recipe("Two topics joined"), tmp_path), spark, tmp_path)
    assert values(root, "paid") == [b"ordersa by paymentsa", b"ordersb by paymentsb"]


@pytest.mark.deep
def test_sessions_end_after_a_pause(spark, tmp_path):
    root = str(tmp_path / "data")
    topics(root, "clicks", "sessions")
    with Producer(root) as producer:
        for minutes in (0, 10, 25, 120, 400):  # the last one brings the watermark on
            producer.send("clicks", b"x", key=b"a", timestamp_ms=at(minutes)).get()
    run(placed(recipe("Sessions"), tmp_path), spark, tmp_path)
    assert sorted(json.loads(value)["count"] for value in values(root, "sessions")) == [1, 3]
