"""A statement that takes as much memory as it can takes that of its own process, and no more than it is given."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.errors import InvalidArgumentError
from sparklog.producer import Producer
from sparklog.sql.answer_limits import in_pieces
from sparklog.sql.apart import ApartQuery, Origin


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    root = str(tmp_path_factory.mktemp("cluster"))
    Admin(root).create_topics([NewTopic("orders")])
    with Producer(root) as producer:
        for number in range(3):
            producer.send("orders", b"%d" % number).get(60)
    return Origin(root, {})


def rows(origin: Origin, text: str) -> list[dict[str, object]]:
    query = ApartQuery(origin, text)
    try:
        query.run()
        return [row for batch in query.batches() for row in batch.to_pylist()]
    finally:
        query.close()


@pytest.mark.slow
def test_rows_come_from_another_process(origin: Origin) -> None:
    found = rows(origin, "select decode(value) as value from orders order by 1")
    assert found == [{"value": "0"}, {"value": "1"}, {"value": "2"}]
    with pytest.raises(InvalidArgumentError, match="does not exist"):
        rows(origin, "select * from nowhere")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems don't bound a process")
@pytest.mark.parametrize(
    "text",
    [
        "select repeat('x', 400000000)",
        "select length(range(50000000))",
        "select length(replace(repeat('x', 20000), 'x', repeat('y', 20000)))",
    ],
)
def test_memory_is_refused_beyond_the_limit(origin: Origin, text: str) -> None:
    query = ApartQuery(origin, text)
    try:
        with pytest.raises(InvalidArgumentError, match=r"[Mm]emory"):
            [query.run(), *query.batches()]
        status = Path(f"/proc/{query._process.pid}/status")
        lines = status.read_text().splitlines() if status.exists() else []
        assert all(int(line.split()[1]) < 500_000 for line in lines if line.startswith("VmHWM"))
    finally:
        query.close()


@pytest.mark.slow
def test_a_cancelled_statement_is_killed(origin: Origin) -> None:
    query = ApartQuery(origin, "select max(hash(range)) from range(100000000000)")
    timer = threading.Timer(0.5, query.cancel)
    timer.start()
    with pytest.raises(InvalidArgumentError, match="cancelled"):
        [query.run(), *query.batches()]
    query.close()
    assert query._process.returncode is not None


def pieces(*columns: Sequence[object]) -> Iterator[pa.RecordBatch]:
    arrays = [pa.array(column) for column in columns]
    return in_pieces([pa.record_batch(arrays, [f"c{number}" for number in range(len(arrays))])])


def test_large_rows_leave_one_by_one() -> None:
    texts = ["x" * 400_000] * 9
    found = list(pieces(texts))
    assert [text for batch in found for text in batch["c0"].to_pylist()] == texts
    assert max(batch.nbytes for batch in found) <= 2**20 + 1_000


@pytest.mark.parametrize("cell", ["x" * 1_100_000, [0] * 20_000, [{"a": None}] * 20_000, [None] * 20_000])
def test_a_large_cell_is_named(cell: object) -> None:
    with pytest.raises(InvalidArgumentError, match="column 'c1': a cell takes"):
        list(pieces([1, 2], [cell, cell]))


def test_a_large_row_is_told() -> None:
    with pytest.raises(InvalidArgumentError, match="a row of 5 columns"):
        list(pieces(*([["x" * 1_000_000]] * 5)))
