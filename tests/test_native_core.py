"""The native core and pure Python: which of them runs, and that they do the same."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog import _native
from sparklog._native import CORE, build_core
from sparklog.consumer.records import RecordMaker
from sparklog.log.data import sorted_rows
from sparklog.log.data.murmur2 import murmur2_column, murmur2_numpy
from sparklog.log.data.record_streaming import RECORD_SCHEMA
from sparklog.log.data.varints import decode_varints, decode_varints_pure, encode_varints, encode_varints_pure
from sparklog.model import TopicPartition
from sparklog.producer import prepared_batch, pure_accumulator
from sparklog.producer.accumulator import native_columns

needs_core = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

BINARY = st.none() | st.binary(max_size=12)
I64 = st.integers(-(2**63), 2**63 - 1)
TIMES_NS = st.integers(-(10**12), 2**62)
DETAILS = st.none() | st.tuples(st.integers(0, 9), st.none(), st.just(-1), st.none())


def described(**environment: str) -> str:
    command = "from sparklog._native import DESCRIPTION; print(DESCRIPTION)"
    done = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_pure_python_can_be_asked_for() -> None:
    assert described(SPARKLOG_PURE="1") == "pure Python, as SPARKLOG_PURE asks for"


@needs_core
def test_a_core_of_another_source_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _native._choose() == (CORE, "native core")
    monkeypatch.setattr(build_core, "checksum", lambda _: "another")
    core, description = _native._choose()
    assert core is None
    assert "compiled from another source" in description


def test_without_a_core_there_is_pure_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKLOG_PURE", raising=False)
    monkeypatch.delattr(_native, "core", raising=False)
    monkeypatch.setitem(sys.modules, "sparklog._native.core", None)
    core, description = _native._choose()
    assert core is None
    assert description.startswith("pure Python: ")


def test_without_a_compiler_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(build_core.CannotCompileError, match=r"no C compiler: .*/nowhere/cc"):
        build_core._run(["/nowhere/cc"])
    with pytest.raises(build_core.CannotCompileError, match="failed"):
        build_core._run([sys.executable, "-c", "raise SystemExit(1)"])
    monkeypatch.setitem(sys.modules, "Cython", None)
    monkeypatch.setitem(sys.modules, "Cython.Compiler", None)
    with pytest.raises(build_core.CannotCompileError, match="no Cython"):
        build_core.build()


def test_without_a_compiler_nothing_is_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Cython makes takes seconds."""
    compiling = pytest.importorskip("Cython.Compiler.Main")
    monkeypatch.setattr(compiling, "compile_single", None)
    monkeypatch.setenv("CC", "/nowhere/cc")
    with pytest.raises(build_core.CannotCompileError, match="no C compiler: there is no /nowhere/cc"):
        build_core.build()


@pytest.mark.skipif(sys.platform != "linux", reason="glibc is Linux's")
def test_the_core_runs_on_the_oldest_glibc_that_wheels_are_for() -> None:
    """What a header of a new glibc replaces by a new symbol (``fstat``, ``fcntl``) would need that glibc."""
    if CORE is None or platform.libc_ver() > ("glibc", "2.36"):
        pytest.skip("pure Python, or a glibc whose headers were not tried")
    symbols = re.findall(rb"GLIBC_(\d+)\.(\d+)", Path(str(CORE.__file__)).read_bytes())
    assert max((int(major), int(minor)) for major, minor in symbols) <= (2, 17)


@needs_core
@given(st.lists(st.tuples(BINARY, BINARY, TIMES_NS, DETAILS), max_size=60))
def test_gathered_records_are_the_same_columns(records: list[tuple[Any, ...]]) -> None:
    native, pure = CORE.Accumulator(), pure_accumulator.Accumulator()  # type: ignore[union-attr]
    for accumulator in (native, pure):
        accumulator.room_bytes = 10 * len(records)
        assert [accumulator.append(key, value, now_ns, more, 10) for key, value, now_ns, more in records] == [
            *range(len(records))
        ]
        assert accumulator.append(None, b"no room", 0, None, 1) is None
        assert (accumulator.count, accumulator.size_bytes) == (len(records), 10 * len(records))
    columns, expected = native_columns(native), pure_accumulator.take_columns(pure)
    for column in columns[:3]:
        column.validate(full=True)
    assert [*columns] == [*expected]
    for accumulator in (native, pure):
        assert (accumulator.count, accumulator.room_bytes) == (len(records), 0)
    assert [len(column) for column in native_columns(native)[:4]] == [0] * 4
    assert native_columns(native)[4] is None


class ABatch:
    def __init__(self, records: Any) -> None:
        self.records = records


@needs_core
@given(st.lists(st.tuples(BINARY | st.just("text") | st.just(bytearray(b"x")), BINARY), max_size=30))
def test_plain_records_are_taken_and_refused_alike(records: list[tuple[Any, Any]]) -> None:
    found = []
    for module in (CORE, pure_accumulator):
        future_type = type("Future", (module.FutureBase,), {"__slots__": ()})  # type: ignore[union-attr]
        times = iter(range(1_000_000, 10**9, 1_000_000))
        gatherer = module.Gatherer(future_type, times.__next__, threading.Lock(), 100)  # type: ignore[union-attr]
        gatherer.max_record_bytes = 18
        assert gatherer.add_plain(b"", b"") is None
        batch = ABatch(module.Accumulator())  # type: ignore[union-attr]
        batch.records.room_bytes = 1_500
        gatherer.open = batch
        futures = [gatherer.add_plain(*record) for record in records]
        assert {type(future) for future in futures} <= {future_type, type(None)}
        assert {future._batch for future in futures if future} <= {batch}
        assert gatherer.open is batch
        gatherer.open = None
        assert gatherer.add_plain(b"", b"") is None
        columns = (native_columns if module is CORE else pure_accumulator.take_columns)(batch.records)
        found.append(([future and future._index for future in futures], batch.records.size_bytes, *columns[1:]))
    assert found[0] == found[1]


@needs_core
def test_a_record_that_was_gathered_has_the_systems_time() -> None:
    assert CORE is not None
    gatherer = CORE.Gatherer(CORE.FutureBase, time.time_ns, threading.Lock(), 0)
    gatherer.max_record_bytes = 10
    batch = ABatch(CORE.Accumulator())
    batch.records.room_bytes = 10
    gatherer.open = batch
    before = time.time_ns() // 1_000_000
    gatherer.add_plain(None, b"v")
    [timestamp] = native_columns(batch.records)[0].to_pylist()
    assert before <= timestamp <= time.time_ns() // 1_000_000


@needs_core
@pytest.mark.slow
def test_threads_that_gather_and_close_batches_lose_no_record() -> None:
    assert CORE is not None
    gatherer = CORE.Gatherer(CORE.FutureBase, time.time_ns, threading.Lock(), 1)
    gatherer.max_record_bytes = 100
    batches: list[ABatch] = []
    added: list[list[Any]] = [[], [], []]
    is_over = threading.Event()

    def send(name: int) -> None:
        for number in range(20_000):
            future = None
            while future is None:
                future = gatherer.add_plain(b"%d" % name, b"%d" % number)
            added[name].append(future)

    def close() -> None:
        while not is_over.is_set():
            batch = ABatch(CORE.Accumulator())
            batch.records.room_bytes = 10_000
            batches.append(batch)
            gatherer.open = batch
            time.sleep(0)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(3)]
    closer = threading.Thread(target=close)
    for thread in (*threads, closer):
        thread.start()
    for thread in threads:
        thread.join()
    is_over.set()
    closer.join()
    taken = {id(batch): native_columns(batch.records)[2].to_pylist() for batch in batches}
    assert sum(map(len, taken.values())) == 60_000
    for futures in added:
        assert [taken[id(future._batch)][future._index] for future in futures] == [b"%d" % at for at in range(20_000)]


ROW = st.fixed_dictionaries(
    {
        "offset": st.integers(0, 2**62),
        "timestamp": st.none() | st.integers(-(10**15), 10**17),
        "key": BINARY,
        "value": BINARY,
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": BINARY}), max_size=3),
    }
)


def odd(data: bytes) -> str:
    if len(data) % 5 == 4:
        raise ValueError(len(data))
    return data.hex()


@needs_core
@given(st.lists(ROW, max_size=20), st.integers(0, 20), st.booleans(), st.booleans())
def test_records_are_the_same(rows: list[Any], first: int, has_key: bool, has_value: bool) -> None:
    arrays = [pa.array([row[field.name] for row in rows], field.type) for field in RECORD_SCHEMA]
    batch = pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA).slice(first)
    calls: list[Any] = []

    def of_key(topic: str, headers: Any, data: bytes) -> Any:
        calls.append((topic, headers, data))
        return odd(data)

    maker = RecordMaker(of_key if has_key else None, (lambda _, __, data: odd(data)) if has_value else None)
    native, native_error = maker.make_native(batch, TopicPartition("t", 3), 1)
    native_calls, calls[:] = [*calls], []
    pure, pure_error = maker.make_pure(batch, TopicPartition("t", 3), 1)
    assert native == pure
    assert [[*map(type, record)] for record in native] == [[*map(type, record)] for record in pure]
    assert native_calls == calls
    assert str(native_error) == str(pure_error)


@needs_core
def test_the_garbage_collector_has_nothing_to_do_with_records_of_bytes() -> None:
    rows = {"offset": 1, "timestamp": 0, "key": b"k", "value": b"v", "headers": None}
    batch = pa.RecordBatch.from_pylist([rows], schema=RECORD_SCHEMA)
    [plain], _ = RecordMaker(None, None).make_native(batch, TopicPartition("t", 0), 0)
    [made], _ = RecordMaker(None, lambda _, __, data: [data]).make_native(batch, TopicPartition("t", 0), 0)
    assert (gc.is_tracked(plain), gc.is_tracked(made)) == (False, True)


@needs_core
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("is_on", [True, False])
def test_the_garbage_collector_rests_only_while_records_are_deserialized(error: Any, is_on: bool) -> None:
    rows = {"offset": 1, "timestamp": 0, "key": b"k", "value": b"v", "headers": None}
    batch = pa.RecordBatch.from_pylist([rows], schema=RECORD_SCHEMA)
    seen: list[bool] = []

    def deserialize(topic: str, headers: Any, data: bytes) -> bytes:
        seen.append(gc.isenabled())
        if error is not None:
            raise error
        return data

    was_on = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            RecordMaker(None, deserialize).make_native(batch, TopicPartition("t", 0), 0)
        assert (seen, gc.isenabled()) == ([False], is_on)
    finally:
        (gc.enable if was_on else gc.disable)()


@needs_core
@given(st.lists(st.binary(max_size=40) | st.none(), max_size=40), st.integers(0, 40))
def test_hashes_are_the_same(keys: list[bytes | None], first: int) -> None:
    column = pa.array(keys, pa.binary()).slice(first)
    assert murmur2_column(column).tolist() == murmur2_numpy(column).tolist()


@needs_core
@given(st.lists(st.tuples(st.integers(-1, 5), BINARY, st.binary(max_size=9)), max_size=40), st.booleans())
def test_rows_are_sorted_by_partition_alike(rows: list[tuple[int, Any, bytes]], in_order: bool) -> None:
    rows = sorted(rows, key=lambda row: row[0]) if in_order else rows
    partitions = np.array([row[0] for row in rows], np.int32)
    columns = {"key": pa.array([row[1] for row in rows], pa.binary()), "n": pa.array(np.arange(len(rows)))}
    table = pa.table({**columns, "value": pa.array([row[2] for row in rows], pa.binary())})
    order, parts = prepared_batch.sort_by_partition(table, partitions)
    tables = {number: part.table() for number, part in parts}
    with mock.patch.object(prepared_batch, "CORE", None), mock.patch.object(sorted_rows, "CORE", None):
        pure_order, pure_parts = prepared_batch.sort_by_partition(table, partitions)
        pure_tables = {number: part.table() for number, part in pure_parts}
    assert order.tolist() == pure_order.tolist()
    assert [*tables.items()] == [*pure_tables.items()]
    assert order.tolist() == [at for number in range(6) for at, row in enumerate(rows) if row[0] == number]
    for number, part in tables.items():
        part.validate(full=True)
        assert part["value"].to_pylist() == [row[2] for row in rows if row[0] == number]


# Source: the examples of Protocol Buffers' documentation of zigzag, and Kafka's ByteUtilsTest.
@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varints_are_kafkas(number: int, encoded: str) -> None:
    assert encode_varints([number]).hex() == encode_varints_pure([number]).hex() == encoded
    data = bytes.fromhex(encoded)
    assert decode_varints(data, 0, 1) == decode_varints_pure(data, 0, 1) == ([number], len(data))


@given(st.lists(I64), st.binary(max_size=3))
def test_varints_are_the_same_and_come_back(numbers: list[int], before: bytes) -> None:
    data = encode_varints(numbers)
    assert data == encode_varints_pure(numbers)
    for decode in (decode_varints, decode_varints_pure):
        assert decode(before + data + b"\x80", len(before), len(numbers)) == (numbers, len(before) + len(data))


@given(st.binary(max_size=25), st.integers(-1, 20), st.integers(-1, 4))
def test_what_is_no_varint_is_refused_alike(data: bytes, at: int, count: int) -> None:
    found = []
    for decode in (decode_varints, decode_varints_pure):
        try:
            found.append(str(decode(data, at, count)))
        except ValueError as error:
            found.append(str(error))
    assert found[0] == found[1]


def test_a_number_of_more_than_64_bits_is_no_varint() -> None:
    for encode in (encode_varints, encode_varints_pure):
        for number in (2**63, -(2**63) - 1):
            with pytest.raises(OverflowError):
                encode([number])
