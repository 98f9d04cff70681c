"""Damaged files among those that the compiled core reads together: it reads what the reading of one file reads."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog._native import CORE
from sparklog.log.data.plain_reading import read_plain_rows
from sparklog.log.data.plain_runs import PlainRun
from sparklog.storage.local import LocalStore
from tests.depth import by_depth
from tests.log.test_plain_reading import MOST, a_file, a_segment
from tests.log.test_plain_runs import one_by_one, read, records

pytestmark = pytest.mark.skipif(CORE is None, reason="the native core isn't compiled")

FILES = [
    (a_file(20), 20),
    (a_file(17, values=[b""] * 17), 17),
    (a_file(130, values=[b"x" * (at % 7) if at % 3 else None for at in range(130)]), 130),
    (a_file(40, values=[b"y" * 300] * 40), 40),
    (a_file(257, values=[None] * 257), 257),
]
BYTES = st.one_of(
    st.sampled_from([b"", b"\0", b"\x80", b"\xff", b"\xff\xff\xff\x7f", b"\xff" * 4, b"\0" * 4, b"\0\0\0\x80"]),
    st.binary(max_size=8),
)
CHANGES = st.lists(st.tuples(st.booleans(), st.integers(0, 2**12), st.integers(0, 8), BYTES), min_size=1, max_size=4)
"""Of each: from the end? where, how many bytes go, and which come."""


def changed(data: bytes, changes: list[tuple[bool, int, int, bytes]]) -> bytes:
    for from_end, place, count, new in changes:
        at = place % (len(data) + 1)
        at = len(data) - at if from_end else at
        data = data[:at] + new + data[at + count :]
    return data


@settings(max_examples=by_depth(gate=100, nightly=20_000), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(FILES), st.none() | CHANGES), min_size=1, max_size=4), st.integers(0, 2**40))
def test_damaged_files_are_read_as_one_by_one_or_left_over(tmp_path_factory, given_files, base_offset):
    store = LocalStore(tmp_path_factory.getbasetemp() / "damaged")
    files: dict[str, tuple[bytes, int]] = {}
    run, next_offset = PlainRun(), base_offset
    for place, ((data, count), changes) in enumerate(given_files):
        files[f"{place}"] = data if changes is None else changed(data, changes), count
        store.put(f"{place}", files[f"{place}"][0])
        assert run.add(f"{place}", a_segment(data, count, base_offset=next_offset), 2**30)
        next_offset += count
    (found,) = read(store, run)
    all_files = [*files.items()]
    if found.rows is not None:
        assert records(found) == one_by_one(dict(all_files[: found.file_count]), base_offset)
    if found.file_count < len(files):
        data, count = files[f"{found.file_count}"]
        other: Any = found.other
        assert (b"" if other is None else bytes(other)) == data
        is_larger = sum(len(each) for each, _ in files.values()) > run.stored_bytes  # so there may be no room
        assert not data or is_larger or read_plain_rows(data, count, 0, MOST) is None
