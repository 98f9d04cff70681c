"""Runs of local files of many plain records, which the compiled core reads together."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog._native import CORE
from sparklog.log.data.encode import encode_batch
from sparklog.log.data.few_rows import as_batch
from sparklog.log.data.plain_reading import read_plain_rows
from sparklog.log.data.plain_runs import PlainRun, RunRead, read_plain_runs
from sparklog.storage.local import LocalStore
from sparklog.storage.memory import MemoryStore
from tests.log.test_plain_reading import MOST, a_file, a_segment
from tests.log.test_plain_records import MANY, STAMP, some_rows

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")


def a_run(files: dict[str, tuple[bytes, int]], base_offset: int = 0) -> PlainRun:
    run = PlainRun()
    for path, (data, count) in files.items():
        assert run.add(path, a_segment(data.ljust(8 * count), count, base_offset=base_offset), 2**30)
        base_offset += count
    return run


def read(store: LocalStore, *runs: PlainRun, most_bytes: int = MOST) -> list[RunRead]:
    found = read_plain_runs(store, runs, most_bytes)
    assert found is not None
    return found


def written(folder: Any, files: dict[str, tuple[bytes, int]]) -> LocalStore:
    store = LocalStore(folder)
    for path, (data, _) in files.items():
        store.put(path, data)
    return store


def one_by_one(files: dict[str, tuple[bytes, int]], base_offset: int = 0) -> pa.Table:
    batches = []
    for data, count in files.values():
        rows = read_plain_rows(data, count, base_offset, MOST)
        assert rows is not None
        batches.append(as_batch(rows))
        base_offset += count
    return pa.Table.from_batches(batches).combine_chunks()


def records(found: RunRead) -> pa.Table:
    assert found.rows is not None
    batch = as_batch(found.rows)
    batch.validate(full=True)
    return pa.Table.from_batches([batch])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(some_rows(), min_size=1, max_size=4), min_size=1, max_size=3), st.integers(0, 2**40))
def test_runs_are_read_as_their_files_one_by_one(tmp_path_factory, of_runs, base_offset):
    all_files = [
        {f"{run}/{place}": (bytes(encode_batch(rows, STAMP).data), rows.num_rows) for place, rows in enumerate(given)}
        for run, given in enumerate(of_runs)
    ]
    folder = tmp_path_factory.mktemp("runs")
    store = written(folder, {path: file for files in all_files for path, file in files.items()})
    for _ in range(2):  # in memory that was used before, too
        found = read(store, *(a_run(files, base_offset) for files in all_files))
        for files, of_run in zip(all_files, found, strict=True):
            assert (of_run.file_count, of_run.other) == (len(files), None)
            expected = one_by_one(files, base_offset)
            assert records(of_run) == expected
            assert of_run.rows is not None
            nulls = [expected[name].null_count for name in ("key", "value")]
            assert [*of_run.rows.null_counts] == nulls


LARGE = [b"x" * 3_000] * MANY
OTHERS = {
    "compressed": a_file(compression="zstd", values=[b"x" * 500] * MANY),
    "cut off": a_file()[:-1],
    "large and cut off": a_file(values=LARGE)[:-1],
    "without its beginning": a_file()[1:],
    "of another count": a_file(MANY + 2),
    "nothing but marks": b"PAR1\0\0\0\0PAR1",
    "one byte": b"P",
    "a long footer": b"PAR1\xff\xff\xff\xffPAR1",
}
MARK = b"\x80\x01\x04" + bytes([MANY]) + b"\x00"  # the first of ``offset_delta``, 0


def damaged(at: bytes, by: int, data: bytes | None = None) -> bytes:
    changed = bytearray(data or a_file())
    changed[changed.index(at) + by] ^= 2
    return bytes(changed)


if CORE is not None:  # other writers' files have no such bytes
    OTHERS["with other offsets"] = damaged(MARK, 4)
    OTHERS["with a damaged value"] = damaged(b"\x05\0\0\0value", 0)
    OTHERS["with a large damaged value"] = damaged(b"\xb8\x0b\0\0xxx", 1, a_file(values=LARGE))


@pytest.mark.parametrize("name", OTHERS)
def test_another_file_ends_a_run_and_its_bytes_are_there(tmp_path, name):
    data = OTHERS[name]
    before = {"a": (a_file(), MANY), "b": (a_file(values=LARGE), MANY)}
    after = {"d": (a_file(), MANY)}
    second = {"e": (a_file(), MANY), "f": (a_file(), MANY)}
    store = written(tmp_path, {**before, "c": (data, MANY), **after, **second})
    found = read(store, a_run({**before, "c": (data, MANY), **after}), a_run(second, 1_000))
    assert [each.file_count for each in found] == [2, 2]
    assert bytes(found[0].other) == data
    assert found[1].other is None
    assert records(found[0]) == one_by_one(before)
    assert records(found[1]) == one_by_one(second, 1_000)
    (alone,) = read(store, a_run({"c": (data, MANY), **after}))
    assert (alone.file_count, alone.rows, bytes(alone.other)) == (0, None, data)


@pytest.mark.parametrize("data", [None, b""], ids=["gone", "empty"])
def test_a_file_that_cannot_be_read_ends_a_run(tmp_path, data):
    before, after = {"a": (a_file(), MANY)}, {"c": (a_file(), MANY)}
    store = written(tmp_path, {**before, **after, **({} if data is None else {"b": (data, MANY)})})
    (found,) = read(store, a_run({**before, "b": (a_file(), MANY), **after}))
    assert (found.file_count, found.other) == (1, None)
    assert records(found) == one_by_one(before)


def test_a_file_that_is_too_large_ends_a_run(tmp_path):
    files = {"a": (a_file(), MANY), "b": (a_file(values=LARGE), MANY)}
    (found,) = read(written(tmp_path, files), a_run(files), most_bytes=10_000)
    assert (found.file_count, found.other) == (1, None)


def test_files_larger_than_the_log_says_are_left_over_where_there_is_no_room(tmp_path):
    files = {"a": (a_file(), MANY), "b": (a_file(values=LARGE), MANY)}
    run = a_run({"a": files["a"], "b": files["a"]})
    (found,) = read(written(tmp_path, files), run)
    assert (found.file_count, bytes(found.other)) == (1, files["b"][0])


def test_files_for_which_the_block_has_no_room_are_left_over(tmp_path):
    files = {f"{number}": (a_file(values=[b"x" * 180_000] * MANY), MANY) for number in range(4)}
    assert 2 * len(files["0"][0]) < 8 * 1024**2 < 4 * len(files["0"][0])
    (found,) = read(written(tmp_path, files), a_run(files))
    assert (found.file_count, found.other) == (2, None)
    runs = read(LocalStore(tmp_path), *(a_run({path: file}) for path, file in files.items()))
    assert [each.file_count for each in runs] == [1] * 4  # the block is used again by the next run


def test_only_files_that_go_on_one_after_the_other_make_a_run():
    data = a_file()
    run = a_run({"a": (data, MANY)}, 10)
    assert not run.add("b", a_segment(data, MANY, base_offset=10 + MANY + 1), 2**20)
    assert not run.add("b", a_segment(data, MANY, base_offset=10 + MANY), 2 * len(data) - 1)
    assert not run.add("b", a_segment(data, 2**62, base_offset=10 + MANY), 2**70)  # more than its bytes can hold
    assert not run.add("b", a_segment(data, 3, base_offset=10 + MANY), 2**20)
    assert run.add("b", a_segment(data, MANY, base_offset=10 + MANY), 2 * len(data))
    assert run.paths == ["a", "b"]


def test_a_store_without_files_reads_none():
    run = a_run({"a": (a_file(), MANY)})
    assert read_plain_runs(MemoryStore(), [run], MOST) is None
    assert read_plain_runs(MemoryStore(), [], MOST) is None


def test_the_core_refuses_what_makes_no_sense():
    core: Any = CORE
    pattern = core.FooterPattern((b"x", 0, -3))
    with pytest.raises(ValueError, match="part 99"):
        core.FooterPattern((99,))
    for paths, count, error in [((), 1, "0 files"), ((b"a",), 0, "0 rows"), ((b"a\0",), 1, "null byte")]:
        with pytest.raises(ValueError, match=error):
            core.read_plain_runs(paths, (((count,), 9),), pattern, 9, 9)
