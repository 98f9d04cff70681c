"""docs/any_writer.md tells the truth about engines that need no JVM: its examples run, and give the records."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import SchemaMismatchError

from sparklog import Admin, Consumer, Producer
from sparklog.log.cluster import open_cluster
from sparklog.log.data.murmur2 import key_partitions
from tests.support import contents

PAGE = Path(__file__).parent.parent.parent / "docs" / "any_writer.md"
BLOCK = re.compile(r"^```py\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = "data/topics/orders"


def example(*words: str) -> str:
    """The page's only Python example that has all these words."""
    (found,) = [block["code"] for block in BLOCK.finditer(PAGE.read_text()) if all(w in block["code"] for w in words)]
    return found


def do(*words: str, **names: Any) -> dict[str, Any]:
    exec(compile(example(*words), str(PAGE), "exec"), names)
    return names


@pytest.fixture
def admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Admin]:
    """Of the page's topic, in the working directory."""
    monkeypatch.chdir(tmp_path)
    admin = do("create_topics")["admin"]
    yield admin
    admin.close()


def readable() -> dict[int, list[tuple[int, str]]]:
    return contents(open_cluster("data").topic_log("orders"), topic="orders")


def partition_of(key: str) -> int:
    return int(key_partitions(pa.array([key.encode()]), 3)[0])


@pytest.mark.parametrize(
    ("words", "by_key"),
    [
        (("import pyarrow",), {"ann": ["12", "7"], "bob": ["5"]}),
        (("import polars",), {"carl": ["3"]}),
        (("import duckdb",), {"dora": ["0", "1", "2"]}),
    ],
    ids=str,
)
def test_what_the_page_says_to_type_gives_records(
    admin: Admin, words: tuple[str, ...], by_key: dict[str, list[str]]
) -> None:
    do(*words)
    assert readable() == {0: [], 1: [], 2: []}
    result = do("admin.sequence", admin=admin)["result"]
    assert (result.sequenced_count, result.refused) == (1, {})
    assert result.record_count == sum(map(len, by_key.values()))
    found = {partition: [value for _, value in rows] for partition, rows in readable().items()}
    for key, values in by_key.items():
        assert [value for value in found[partition_of(key)] if value in values] == values
    assert sum(map(len, found.values())) == result.record_count


@pytest.mark.slow
def test_a_consumer_reads_what_was_typed(admin: Admin) -> None:
    do("import pyarrow")
    with Consumer("orders", cluster="data", auto_offset_reset="earliest", consumer_timeout_ms=10_000) as consumer:
        found = [next(consumer) for _ in range(3)]
    assert sorted((record.key, record.value) for record in found) == [(b"ann", b"12"), (b"ann", b"7"), (b"bob", b"5")]


@pytest.mark.usefixtures("admin")
def test_without_schema_mode_deltalake_and_polars_refuse_what_leaves_columns_out() -> None:
    writes: list[Callable[[], object]] = [
        lambda: write_deltalake(TABLE, pa.table({"value": [b"v"]}), mode="append"),
        lambda: pl.DataFrame({"value": [b"v"]}).write_delta(TABLE, mode="append"),
    ]
    for write in writes:
        with pytest.raises(SchemaMismatchError, match="number of fields does not match: 1 vs 10"):
            write()
    assert DeltaTable(TABLE).version() == 0


def test_with_every_column_there_no_schema_mode_is_needed(admin: Admin) -> None:
    whole = DeltaTable(TABLE).schema().to_arrow()
    columns = {name: pa.nulls(2, pa.schema(whole).field(name).type) for name in pa.schema(whole).names}
    write_deltalake(TABLE, pa.table({**columns, "value": [b"a", b"b"]}), mode="append")
    assert admin.sequence("orders").record_count == 2


def test_a_misspelt_column_is_refused_and_the_page_says_how_to_mend_it(admin: Admin) -> None:
    write_deltalake(TABLE, pa.table({"key": ["ann"], "valeu": ["12"]}), mode="append", schema_mode="merge")
    (reason,) = admin.sequence("orders").refused.values()
    assert reason.startswith("its column 'valeu' holds values, and a topic has no such column (is 'value' meant?)")
    assert readable() == {0: [], 1: [], 2: []}
    do("arrow_cast")
    assert admin.sequence("orders").refused == {}
    assert readable()[partition_of("ann")] == [(0, "12")]
    # The table keeps the column, and whatever is written from now on has it, too.
    write_deltalake(TABLE, pa.table({"key": ["ann"], "value": ["13"]}), mode="append", schema_mode="merge")
    assert admin.sequence("orders").record_count == 1
    with Producer("data") as producer:
        producer.send("orders", b"14", key=b"ann").get(60)
    assert [value for _, value in readable()[partition_of("ann")]] == ["12", "13", "14"]


def test_rows_with_a_column_that_no_topic_has_can_be_deleted(admin: Admin) -> None:
    write_deltalake(TABLE, pa.table({"value": ["a"], "colour": ["red"]}), mode="append", schema_mode="merge")
    assert len(admin.sequence("orders").refused) == 1
    DeltaTable(TABLE).delete(predicate="base_offset IS NULL AND colour IS NOT NULL")
    assert admin.sequence("orders").refused == {}
    assert readable() == {0: [], 1: [], 2: []}


def test_rows_that_say_a_partition_that_is_not_there_can_be_mended(admin: Admin) -> None:
    table = pa.table({"partition": pa.array([7], pa.int32()), "value": [b"v"]})
    write_deltalake(TABLE, table, mode="append", schema_mode="merge")
    (reason,) = admin.sequence("orders").refused.values()
    assert reason == "its partition is 7, the topic has 0 to 2"
    DeltaTable(TABLE).update(updates={"partition": "0"}, predicate="base_offset IS NULL AND partition = 7")
    assert admin.sequence("orders").refused == {}
    assert readable()[0] == [(0, "v")]
