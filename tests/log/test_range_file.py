"""A file that is read by ranges: the same bytes in whatever steps, and by how many requests."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import StoreUnavailableError
from sparklog.log.data import range_file, record_streaming
from sparklog.log.data.range_file import RangeFile
from sparklog.log.data.record_streaming import open_segments
from sparklog.storage import MemoryStore
from sparklog.storage.retrying import RetryingStore
from sparklog.testing import ManualClock
from sparklog.testing.wrapped_store import WrappedStore
from tests.log.test_record_streaming import a_segment, at
from tests.support import a_log, foreign_records

KIB = 1024
DATA = bytes(number % 251 for number in range(100 * KIB))


class Ranges(WrappedStore):
    """A store, remote or not, that knows which ranges were read, and how many at once at most."""

    def __init__(self, *, is_remote: bool = True, data: bytes = DATA) -> None:
        super().__init__(MemoryStore())
        self._store.put("f", data)
        self._is_remote = is_remote
        self._lock = threading.Lock()
        self.ranges: list[tuple[int, int]] = []
        self.fails = 0

    @property
    def is_remote(self) -> bool:
        return self._is_remote

    def read_range(self, path: str, start: int, end: int) -> bytes:
        with self._lock:
            self.ranges.append((start, end))
            self.fails -= 1
            if self.fails == 0:
                raise StoreUnavailableError("slow down")
        return self._store.read_range(path, start, end)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kibibytes in place of mebibytes."""
    monkeypatch.setattr(range_file, "AHEAD_BYTES", 8 * KIB)
    monkeypatch.setattr(range_file, "_LEAST_WINDOW_BYTES", 64)
    monkeypatch.setattr(range_file, "_REQUEST_BYTES", 2 * KIB)


def read_at(file: RangeFile, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)


def test_what_is_expected_is_fetched_side_by_side_and_in_fewer_requests_than_reads() -> None:
    store = Ranges()
    file = RangeFile(store, "f", len(DATA))
    file.expect([(0, 10 * KIB), (10 * KIB, 40 * KIB)])
    for at_ in range(0, 10 * KIB, KIB):
        assert read_at(file, at_, KIB) == DATA[at_ : at_ + KIB]
        rest = 10 * KIB + 3 * at_
        assert read_at(file, rest, 3 * KIB) == DATA[rest : rest + 3 * KIB]
    assert sorted(store.ranges)[0] == (0, 2 * KIB)
    assert len(store.ranges) <= 40 // 2 + 5
    assert sum(end - start for start, end in store.ranges) == 40 * KIB


def test_no_more_is_held_than_the_bound_and_what_a_read_needs() -> None:
    file = RangeFile(Ranges(), "f", len(DATA))
    file.expect([(0, 10 * KIB), (10 * KIB, 90 * KIB)])
    for step in range(80):
        for start in (step * KIB // 8, (10 + step) * KIB):
            read_at(file, start, KIB if start >= 10 * KIB else KIB // 8)
            assert sum(one.held_bytes for one in file._expected) <= 1.5 * 8 * KIB


def test_without_a_remote_store_each_read_is_a_request() -> None:
    store = Ranges(is_remote=False)
    file = RangeFile(store, "f", len(DATA))
    file.expect([(0, 10 * KIB)])
    assert read_at(file, 0, KIB) + read_at(file, KIB, KIB) == DATA[: 2 * KIB]
    assert store.ranges == [(0, KIB), (KIB, 2 * KIB)]


@given(
    cuts=st.lists(st.integers(0, 100 * KIB), min_size=2, max_size=5, unique=True).map(sorted),
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5_000), st.booleans()), max_size=40),
)
def test_whatever_is_read_of_what_was_expected_has_the_files_bytes(
    cuts: list[int], steps: list[tuple[int, int, bool]]
) -> None:
    file = RangeFile(Ranges(), "f", len(DATA))
    file.expect([*pairwise(cuts)])
    places = [*cuts]
    for number, size, jumps in steps:
        place = number % len(places)
        start = places[place] + (7 if jumps else 0)
        assert read_at(file, start, size) == DATA[start : start + size]
        places[place] = start + size


def test_adjacent_ranges_are_each_fetched_once() -> None:
    store = Ranges()
    file = RangeFile(store, "f", len(DATA))
    file.expect([(0, 10 * KIB), (10 * KIB, 40 * KIB), (40 * KIB, 50 * KIB)])
    for start, end in ((0, 10 * KIB), (10 * KIB, 25 * KIB), (25 * KIB, 40 * KIB), (40 * KIB, 50 * KIB)):
        assert read_at(file, start, end - start) == DATA[start:end]
    assert sum(end - start for start, end in store.ranges) == 50 * KIB


def test_a_file_that_is_shorter_than_the_log_says_ends_where_it_ends() -> None:
    file = RangeFile(Ranges(), "f", 2 * len(DATA))
    file.expect([(98 * KIB, 150 * KIB)])
    assert read_at(file, 98 * KIB, 10 * KIB) == DATA[98 * KIB :]
    assert file.read(KIB) == b""


def test_after_a_request_that_failed_the_same_bytes_can_be_read_again() -> None:
    store = Ranges()
    file = RangeFile(store, "f", len(DATA))
    file.expect([(0, 10 * KIB), (10 * KIB, 40 * KIB)])
    store.fails = 3
    with pytest.raises(StoreUnavailableError):
        read_at(file, 0, KIB)
    assert read_at(file, 0, KIB) == DATA[:KIB]
    assert read_at(file, 10 * KIB, 9 * KIB) == DATA[10 * KIB : 19 * KIB]


@pytest.mark.parametrize("start_offset", [0, 2_500])
def test_a_large_file_of_a_bucket_is_read_in_pieces_by_requests_side_by_side(start_offset: int) -> None:
    log = a_log()
    values = [f"{number:0100}" for number in range(5_000)]
    segment = a_segment(log, foreign_records(*values), use_dictionary=False, row_group_size=2_000)
    store = Ranges(data=log.store.read(f"{log.table}/{segment.path}"))
    store._store.put(f"{log.table}/{segment.path}", store._store.read("f"))
    far = type(log)(store=RetryingStore(store, clock=ManualClock()), table=log.table, clock=log.clock)
    opened = open_segments(far, [segment], None, start_offset=start_offset, piece_bytes=20_000)
    assert opened.held_bytes > 8 * KIB * KIB
    assert at(opened.pieces) == [*enumerate(values)][start_offset:]
    assert sum(end - start for start, end in store.ranges) < 2.2 * segment.size_bytes


def test_small_row_groups_are_expected_together(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log()
    values = [f"{number:0100}" for number in range(5_000)]
    segment = a_segment(log, foreign_records(*values), use_dictionary=False, row_group_size=500)
    store = Ranges(data=log.store.read(f"{log.table}/{segment.path}"))
    store._store.put(f"{log.table}/{segment.path}", store._store.read("f"))
    far = type(log)(store=store, table=log.table, clock=log.clock)
    monkeypatch.setattr(range_file, "AHEAD_BYTES", 8 * KIB * KIB)
    expected: list[int] = []
    expect = RangeFile.expect

    def noting(file: RangeFile, ranges: Sequence[tuple[int, int]]) -> None:
        expected.append(len(ranges))
        expect(file, ranges)

    monkeypatch.setattr(RangeFile, "expect", noting)
    for ahead_bytes, most in ((200_000, 5), (8 * KIB * KIB, 1), (1, 10)):
        monkeypatch.setattr(record_streaming, "AHEAD_BYTES", ahead_bytes)
        expected.clear()
        opened = open_segments(far, [segment], None, start_offset=0, piece_bytes=20_000)
        assert at(opened.pieces) == [*enumerate(values)]
        assert most // 2 < len(expected) <= most
        assert sum(expected) % 10 == 0  # the columns of each row group, once
