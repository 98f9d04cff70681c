"""docs/any_writer.md tells the truth about Spark: what it says to type runs, and gives the records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog import Admin, Consumer, NewTopic
from sparklog.delta.checkpoint import write_checkpoint
from sparklog.delta.log import DeltaLog
from sparklog.log.cluster import open_cluster
from sparklog.log.data.murmur2 import key_partitions
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import load_state
from tests.support import contents

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parent.parent.parent / "docs" / "any_writer.md"
BLOCK = re.compile(r"^```(?:py|sql)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
ANN, BOB, CARL = key_partitions(pa.array([b"ann", b"bob", b"carl"]), 3).tolist()


def example(root: Path, word: str) -> str:
    """The page's first example that has this word, for a cluster that isn't in the working directory of the JVM."""
    found = next(block["code"] for block in BLOCK.finditer(PAGE.read_text()) if word in block["code"])
    return found.replace("./data", str(root))


def do(spark: Any, root: Path, word: str) -> None:
    exec(compile(example(root, word), str(PAGE), "exec"), {"spark": spark})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Admin(tmp_path / "data") as admin:
        admin.create_topics([NewTopic("orders", 3)])
    return tmp_path / "data"


def the_log(root: Path) -> DeltaLog:
    return open_cluster(root).topic_log("orders")


def values(root: Path) -> dict[int, list[str]]:
    return {p: [value for _, value in found] for p, found in contents(the_log(root), topic="orders").items()}


def sequence(root: Path) -> int:
    """How many records have offsets now and had none."""
    with Admin(root) as admin:
        result = admin.sequence("orders")
    assert result.refused == {}
    return result.record_count


def assert_spark_agrees(spark: Any, root: Path) -> None:
    """Spark sees the records that a consumer sees, each once, before and after a checkpoint."""
    expected = sorted((p, *record) for p, found in contents(the_log(root), topic="orders").items() for record in found)
    for _ in range(2):
        query = f"SELECT partition, base_offset + offset_delta, STRING(value) FROM delta.`{root}/topics/orders`"
        assert sorted(tuple(row) for row in spark.sql(query).collect()) == expected
        write_checkpoint(the_log(root))


def test_what_the_page_says_to_type_gives_records(spark: Any, root: Path) -> None:
    spark.sql(example(root, "INSERT INTO"))
    assert values(root) == {0: [], 1: [], 2: []}
    assert sequence(root) == 3
    expected: dict[int, list[str]] = {0: [], 1: [], 2: []}
    for partition, value in ((ANN, "12"), (BOB, "5"), (ANN, "7")):
        expected[partition].append(value)
    assert values(root) == expected

    do(spark, root, "writeTo")
    assert sequence(root) == 1
    expected[CARL].append("3")
    assert values(root) == expected

    do(spark, root, "CAST(NULL AS INT) AS partition")
    assert sequence(root) == 4
    assert sum(map(len, values(root).values())) == 8
    assert_spark_agrees(spark, root)


def test_a_file_that_spark_has_numbered_is_copied_as_it_is(spark: Any, root: Path) -> None:
    do(spark, root, "AS offset_delta")
    before = load_state(the_log(root)).require_whole().index.by_path
    assert sequence(root) == 6
    after = load_state(the_log(root)).require_whole().index.by_path
    assert contents(the_log(root), topic="orders")[1] == [(number, str(number)) for number in range(6)]
    assert not before.keys() & after.keys()
    assert files(root, before) == files(root, after)
    assert {segment.base_offset for segment in after.values()} == {0}
    assert_spark_agrees(spark, root)


def files(root: Path, paths: Any) -> list[bytes]:
    log = the_log(root)
    return sorted(log.store.read(object_path(log.table, path)) for path in paths)


def test_a_consumer_reads_what_spark_inserts_and_nobody_sequences(spark: Any, root: Path) -> None:
    with Consumer("orders", cluster=root, auto_offset_reset="earliest") as consumer:
        assert consumer.poll(timeout_ms=100) == {}
        spark.sql(example(root, "INSERT INTO"))
        found: list[Any] = []
        while len(found) < 3:
            records = consumer.poll(timeout_ms=60_000)
            assert records, f"got {len(found)} records, expected 3"
            found += [record for of_one in records.values() for record in of_one]
    assert [record.value for record in found if record.key == b"ann"] == [b"12", b"7"]
    assert sorted(record.value for record in found) == [b"12", b"5", b"7"]


LATE: dict[str, str] = {
    "delete": "DELETE FROM {table} WHERE base_offset IS NULL AND value = BINARY('b')",
    "optimize": "OPTIMIZE {table}",
}


@pytest.mark.parametrize("statement", LATE.values(), ids=LATE)
def test_what_spark_does_to_rows_without_a_partition_leaves_each_there_once(
    spark: Any, root: Path, statement: str
) -> None:
    """Before a sequencing it counts; afterwards it does no harm."""
    table = f"delta.`{root}/topics/orders`"
    insert = f"INSERT INTO {table} (value) VALUES ('a'), ('b'), ('c')"
    gone = ["b"] if statement.startswith("DELETE") else []
    spark.sql(insert)
    spark.sql(statement.format(table=table))
    sequence(root)
    readable = contents(the_log(root), topic="orders")
    found = sorted(value for rows in readable.values() for _, value in rows)
    assert found == [value for value in "abc" if value not in gone]
    spark.sql(statement.format(table=table))
    sequence(root)
    assert contents(the_log(root), topic="orders") == readable
