"""The check of a typed topic: what the log says of values, by which engines skip files, is what the files hold."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sparklog import Admin, NewTopic
from sparklog.integrity import Code, check_cluster
from sparklog.log import create_topic, open_cluster
from sparklog.log.data.value_columns import DATA
from sparklog.producer import Producer
from sparklog.schemas import value_schema
from tests.integrity.support import codes, edit_entry, found, set_stats
from tests.producer.support import a_cluster

NOW = datetime(2024, 5, 1, 12, 0, 0, 123_456, tzinfo=UTC)
FIELDS = [
    ("id", pa.int64()),
    ("price", pa.decimal128(10, 2)),
    ("weight", pa.float32()),
    ("name", pa.string()),
    ("at", pa.timestamp("us", "UTC")),
    ("day", pa.date32()),
    ("place", pa.struct([("city", pa.string()), ("x", pa.float64())])),
]
SCHEMA = value_schema(pa.schema(FIELDS))
KIND = pa.struct(list(SCHEMA.arrow))
ROWS = [
    {
        "id": number,
        "price": Decimal("0.10") + number,
        "weight": 0.1,
        "name": "n" * 40,
        "at": NOW + timedelta(microseconds=number),
        "day": date(2024, 1, 1 + number),
        "place": {"city": "Ü", "x": -0.0} if number else None,
    }
    for number in range(3)
]


@pytest.fixture
def cluster():
    cluster = a_cluster()
    create_topic(cluster.topic_log("t"), "t", value_schema=SCHEMA)
    with Producer(cluster) as producer:
        producer.send_batch("t", pa.Table.from_pylist([{"value": row} for row in ROWS], pa.schema([("value", KIND)])))
    return cluster


def test_statistics_of_producers_and_of_other_engines_are_true(cluster, tmp_path):
    assert found(cluster, deep=True) == set()
    Admin(str(tmp_path)).create_topics([NewTopic("t", value_schema=SCHEMA, num_partitions=1)])
    rows = pa.table({DATA: pa.array(ROWS, KIND)})
    write_deltalake(str(tmp_path / "topics" / "t"), rows, mode="append", schema_mode="merge")
    assert Code.STATS_WRONG not in codes(check_cluster(open_cluster(str(tmp_path)), deep=True))


@pytest.mark.parametrize(
    ("side", "wrong", "what"),
    [
        ("minValues", {"id": 1}, "id from 0 on; expected as the log says: from 1 on"),
        ("maxValues", {"id": 1}, "id up to 2"),
        ("maxValues", {"price": 2.09}, "price up to Decimal('2.10')"),
        ("minValues", {"weight": 0.2}, "weight from 0.1"),
        ("maxValues", {"name": "n" * 32}, "name up to"),
        ("minValues", {"at": "2024-05-01T12:00:00.124Z"}, "at from"),
        ("maxValues", {"at": "2024-05-01T12:00:00.122Z"}, "at up to"),
        ("maxValues", {"day": "2024-01-02"}, "day up to day 19725"),
        ("maxValues", {"place": {"city": "Z"}}, "place.city up to 'Ü'"),
        ("nullCount", {"id": 3}, "0 nulls of id"),
        ("nullCount", {"place": {"x": 0}}, "1 nulls of place.x"),
    ],
)
def test_statistics_that_the_values_contradict_are_found(cluster, side, wrong, what):
    edit_entry(cluster.topic_log("t"), 1, lambda lines: set_stats(lines, {side: {DATA: wrong}}))
    assert found(cluster, deep=False) == set()
    report = check_cluster(cluster, deep=True)
    assert codes(report) == {"stats-wrong"}
    [finding] = report.errors
    assert what in str(finding)


def test_bounds_wider_than_the_values_are_fine(cluster):
    wide = {
        "minValues": {DATA: {"id": -5, "name": "a", "at": "2024-05-01T12:00:00Z", "place": {"x": -1}}},
        "maxValues": {DATA: {"id": 50, "name": "z", "at": "2024-05-01T12:00:00.123Z", "place": {"x": 1e300}}},
    }
    edit_entry(cluster.topic_log("t"), 1, lambda lines: set_stats(lines, wide))
    assert found(cluster, deep=True) == set()


def test_statistics_that_make_no_sense_are_passed_over(cluster):
    odd = {"minValues": {DATA: {"id": "x", "at": 7, "day": "x", "price": "1", "place": 3, "nobody": 1}}}
    edit_entry(cluster.topic_log("t"), 1, lambda lines: set_stats(lines, odd))
    assert found(cluster, deep=True) == set()
