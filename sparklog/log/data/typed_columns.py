"""Columns of typed values as Parquet's pages, made of Arrow's buffers by whole columns, without Arrow's writer.

A column is put into the order of its records once for all files of an upload, and looked up in a dictionary once; the
pages of a file are copies of a part. Values, encodings and statistics are those that Arrow's writer gives, but that
places in a dictionary are either all packed or all runs.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog._native import CORE
from sparklog.log.data.arrow_buffers import binary_buffers, buffer_numbers, is_valid, take_rows
from sparklog.log.data.parquet_bytes import (
    PLAIN,
    RLE,
    RLE_DICTIONARY,
    Chunk,
    data_page,
    dictionary_page,
    late_page,
    part_bytes,
    run,
    statistics,
    varint,
)

__all__ = ["SAMPLE", "LeafColumn", "LeafPart", "leaf_pages", "levels_page", "repeats"]

_PAGE_BYTES = 1_048_576
"""The size of a page, as Arrow has it; a single larger value is a page."""
_ROWS_A_PAGE = _PAGE_BYTES // 8
_MOST_BOUND_BYTES = 4_096
"""The longest value that is a bound, as Arrow has it."""
_MOST_DIFFERENT = 32_768
"""Texts in a dictionary, at most: their places have 15 bits, of which four fit into a word."""
_PLACES_A_GROUP = 8
_LEAST_RUN = 64
"""Places in a dictionary are written as runs where so many are equal, in the mean."""
SAMPLE = 512
"""Values that are looked at for texts that repeat."""
_LEAST_SAMPLE = 128
_REPEATING = 0.85
"""The largest part of a sample that may be different: of 512 texts that are drawn of some 1,500."""

_Levels = npt.NDArray[np.uint8]
_THERE = 2
"""The level of a value that is there; 1: it is null; 0: what it is in is."""

_NUMBERS: Mapping[pa.DataType, tuple[str, str]] = MappingProxyType(
    {
        pa.int8(): ("i1", "<i4"),
        pa.int16(): ("i2", "<i4"),
        pa.int32(): ("i4", "<i4"),
        pa.int64(): ("i8", "<i8"),
        pa.float32(): ("f4", "<f4"),
        pa.float64(): ("f8", "<f8"),
        pa.timestamp("us", "UTC"): ("i8", "<i8"),
        pa.date32(): ("i4", "<i4"),
    }
)
"""The numbers that an array holds, and those in a file."""


@dataclass(frozen=True, slots=True)
class LeafPart:
    """A column of values in a file."""

    parts: list[Any]
    """Its pages with their headers, as bytes."""
    chunk: Chunk
    null_count: int
    bounds: tuple[Any, Any] | None
    """The least and the greatest value, as :meth:`~sparklog.log.data.value_stats.ValueStats.facts` has them."""


class LeafColumn(Protocol):
    """A column of values in the order of the rows."""

    def part(self, start: int, count: int) -> LeafPart:
        """So many of them from ``start`` on."""


def repeats(column: pa.Array | pa.ChunkedArray) -> bool:
    """Are there fewer different texts in a column than texts, so that a dictionary of them is smaller and is read
    faster? Judged by the first of them."""
    sample = column.slice(0, SAMPLE)
    count = len(sample) - sample.null_count
    return bool(count >= _LEAST_SAMPLE and len(sample.unique()) <= _REPEATING * count)


def leaf_pages(
    column: pa.Array, order: npt.NDArray[np.int64] | None, is_there: npt.NDArray[np.bool_] | None, times: pa.Array
) -> LeafColumn:
    """A column of values, put into an order: pages are made of parts of it.

    Args:
        column: null wherever what it is in is null.
        order: the place of each row in the column; None: as they are.
        is_there: isn't what it is in null? In the order of the rows. None: it never is.
        times: as many numbers of 64 bits as there are values.
    """
    levels: _Levels | None = None
    if column.null_count:
        levels = _in_order(is_valid(column), order).view(np.uint8) + np.uint8(1)
        if is_there is not None:
            levels[~is_there] = 0
    if column.type in _NUMBERS:
        given, stored = _NUMBERS[column.type]
        return _Numbers(_in_order(_values(column, given), order).astype(stored, copy=False), levels)
    if pa.types.is_boolean(column.type):
        return _Flags(_in_order(_flags(column), order), levels)
    if pa.types.is_string(column.type) and repeats(column if order is None else take_rows(column, order[:SAMPLE])):
        coded = column.dictionary_encode()
        texts = coded.dictionary
        if len(texts) <= _MOST_DIFFERENT and texts.nbytes <= _PAGE_BYTES:
            codes = _values(coded.indices, "i4")
            if column.null_count:
                codes = np.where(is_valid(column), codes, 0)
            return _Coded(texts, _in_order(codes, order), levels)
    taken = column if order is None else take_rows(column, order)
    rows = CORE.PlainRows(times.buffers()[1], times.offset, len(times), *[binary_buffers(taken)] * 2, None)  # type: ignore[union-attr]
    return _Texts(taken, rows, levels)


def _in_order(values: npt.NDArray[Any], order: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
    if order is None:
        return values
    # Arrow's memory: new memory of numpy's is the system's, which takes as long to find its pages as they take to fill.
    found = np.frombuffer(pa.allocate_buffer(len(order) * values.itemsize), values.dtype)
    return np.take(values, order, out=found, mode="clip")  # without a second copy; all places are there


def _values(column: pa.Array, kind: str) -> npt.NDArray[Any]:
    if column.null_count == len(column):  # there may be no buffer
        return np.zeros(len(column), kind)
    return buffer_numbers(column, 1, kind)


def _flags(column: pa.Array) -> npt.NDArray[np.bool_]:
    if column.null_count == len(column):
        return np.zeros(len(column), np.bool_)
    bits = np.frombuffer(column.buffers()[1], np.uint8)
    first, end = column.offset, column.offset + len(column)
    flags = np.unpackbits(bits[first // 8 : (end + 7) // 8], bitorder="little")
    return flags[first % 8 : first % 8 + len(column)].view(np.bool_)


def levels_page(levels: _Levels, width: int) -> bytes:
    """Definition levels of so many bits, with their size: a run, or packed."""
    first = int(levels[0])
    if (levels == first).all():
        found = run(len(levels), first)
    else:
        groups = -(-len(levels) // _PLACES_A_GROUP)
        found = varint(groups << 1 | 1) + _packed(levels, width)
    return struct.pack("<I", len(found)) + found


def _packed(numbers: npt.NDArray[Any], width: int) -> bytes:
    """Numbers of so many bits, 15 at most, one behind the other, the lowest bit first; as many zeros after them as
    make the next multiple of eight numbers."""
    if width == 1:
        return np.packbits(numbers.astype(np.bool_), bitorder="little").tobytes()
    if width == 8:
        return numbers.astype(np.uint8).tobytes() + bytes(-len(numbers) % _PLACES_A_GROUP)
    words = np.zeros((-(-len(numbers) // _PLACES_A_GROUP), _PLACES_A_GROUP), np.uint64)
    words.reshape(-1)[: len(numbers)] = numbers
    half = np.uint64(4 * width)
    low, high = (
        words[:, at] | words[:, at + 1] << np.uint64(width) | words[:, at + 2] << np.uint64(2 * width)
        | words[:, at + 3] << np.uint64(3 * width)
        for at in (0, 4)
    )  # fmt: skip
    found = np.empty((len(words), 2), "<u8")
    found[:, 0] = low | high << half
    found[:, 1] = high >> (np.uint64(64) - half)
    return found.view(np.uint8)[:, :width].tobytes()


def _pages(
    levels: _Levels | None, start: int, count: int, values: Callable[[Any], bytes], encoding: int = PLAIN
) -> tuple[list[Any], int, int]:
    """The pages of some rows of values that have a fixed size: their parts, how many there are, and how many values are
    null.

    Args:
        values: the bytes of the values at these places, a slice or an array.
    """
    parts: list[Any] = []
    nulls = pages = 0
    for first in range(start, start + count, _ROWS_A_PAGE):
        end = min(first + _ROWS_A_PAGE, start + count)
        of_page = None if levels is None else levels[first:end]
        if of_page is None or (of_page == _THERE).all():
            before, content = _run_of_levels(end - first), values(slice(first, end))
        else:
            places = np.flatnonzero(of_page == _THERE) + first
            nulls += end - first - len(places)
            before, content = levels_page(of_page, 2), values(places)
        parts.append(data_page(end - first, (before, content), encoding))
        pages += 1
    return parts, pages, nulls


def _run_of_levels(count: int) -> bytes:
    found = run(count, _THERE)
    return struct.pack("<I", len(found)) + found


def _present(values: npt.NDArray[Any], levels: _Levels | None, start: int, count: int) -> npt.NDArray[Any]:
    """The values of some rows that aren't null."""
    some = values[start : start + count]
    return some if levels is None else some[levels[start : start + count] == _THERE]


def _size(parts: Sequence[bytes]) -> int:
    return sum(map(len, parts))


@dataclass(frozen=True, slots=True)
class _Numbers:
    values: npt.NDArray[Any]
    levels: _Levels | None

    def part(self, start: int, count: int) -> LeafPart:
        parts, _, nulls = _pages(self.levels, start, count, lambda places: self.values[places].tobytes())
        some = _present(self.values, self.levels, start, count)
        low, high, bounds = _ends(some) if len(some) else (None, None, None)
        return LeafPart(parts, Chunk(_size(parts), statistics(nulls, low, high)), nulls, bounds)


def _ends(some: npt.NDArray[Any]) -> tuple[bytes | None, bytes | None, tuple[Any, Any] | None]:
    """The least and the greatest number as a footer has them, and as a commit may."""
    low, high = some.min(), some.max()
    if some.dtype.kind != "f":
        return low.tobytes(), high.tobytes(), (int(low), int(high))
    bounds = (float(low), float(high)) if np.isfinite(low) and np.isfinite(high) else None
    if np.isnan(low):  # a footer passes over NaN
        low, high = np.fmin.reduce(some), np.fmax.reduce(some)
        if np.isnan(low):
            return None, None, None
    kind = some.dtype.type
    low, high = kind(-0.0) if low == 0 else low, kind(0.0) if high == 0 else high
    return low.tobytes(), high.tobytes(), bounds


@dataclass(frozen=True, slots=True)
class _Flags:
    values: npt.NDArray[np.bool_]
    levels: _Levels | None

    def part(self, start: int, count: int) -> LeafPart:
        parts, _, nulls = _pages(
            self.levels, start, count, lambda at: np.packbits(self.values[at], bitorder="little").tobytes()
        )
        some = _present(self.values, self.levels, start, count)
        low, high = (some.all().tobytes(), some.any().tobytes()) if len(some) else (None, None)
        return LeafPart(parts, Chunk(_size(parts), statistics(nulls, low, high)), nulls, None)


@dataclass(frozen=True, slots=True)
class _Coded:
    """Texts as places in a dictionary. A file has those that are in it alone."""

    texts: pa.StringArray
    codes: npt.NDArray[np.int32]
    levels: _Levels | None

    def part(self, start: int, count: int) -> LeafPart:
        is_used = np.bincount(_present(self.codes, self.levels, start, count), minlength=len(self.texts)) > 0
        places = np.flatnonzero(is_used)
        if not len(places):
            parts, _, nulls = _pages(self.levels, start, count, lambda places: b"")
            return LeafPart(parts, Chunk(_size(parts), statistics(nulls, None, None)), nulls, None)
        texts = self.texts if len(places) == len(self.texts) else self.texts.take(pa.array(places))
        dictionary = dictionary_page(_plain(texts), len(texts))
        moved = np.cumsum(is_used, dtype=np.int32) - 1
        width = max(1, (len(texts) - 1).bit_length())
        parts, pages, nulls = _pages(
            self.levels, start, count, lambda at: _coded(moved.take(self.codes[at]), width), RLE_DICTIONARY
        )
        low, high, bounds = _text_ends(texts)
        size = len(dictionary) + _size(parts)
        encodings = (PLAIN, RLE, RLE_DICTIONARY)
        chunk = Chunk(size, statistics(nulls, low, high), encodings, len(dictionary), pages)
        return LeafPart([dictionary, *parts], chunk, nulls, bounds)


def _plain(texts: pa.StringArray) -> bytes:
    """Texts, each after its length."""
    count = len(texts)
    rows = CORE.PlainRows(np.zeros(count, np.int64), 0, count, *[binary_buffers(texts)] * 2, None)  # type: ignore[union-attr]
    _, size, _ = rows.next_page(0, 0, count, 1 << 40)
    found: bytes = rows.assemble([(1, 0, count, size)], size)
    return found


def _coded(places: npt.NDArray[np.int32], width: int) -> bytes:
    """Places in a dictionary, of so many bits."""
    begin = bytes([width])
    if not len(places):
        return begin
    is_end = places[1:] != places[:-1]
    if np.count_nonzero(is_end) * _LEAST_RUN <= len(places):
        firsts = [0, *(np.flatnonzero(is_end) + 1).tolist(), len(places)]
        size = (width + 7) // 8
        runs = (
            varint((end - first) << 1) + int(places[first]).to_bytes(size, "little")
            for first, end in itertools.pairwise(firsts)
        )
        return begin + b"".join(runs)
    groups = -(-len(places) // _PLACES_A_GROUP)
    return begin + varint(groups << 1 | 1) + _packed(places, width)


def _text_ends(texts: pa.Array) -> tuple[bytes | None, bytes | None, tuple[str, str] | None]:
    """The least and the greatest text as a footer has them, and as a commit may."""
    ends = pc.min_max(texts.view(pa.binary())).as_py()
    low, high = ends["min"], ends["max"]
    try:
        bounds = low.decode(), high.decode()
    except UnicodeDecodeError:
        bounds = None
    shown_low, shown_high = (one if len(one) <= _MOST_BOUND_BYTES else None for one in (low, high))
    return shown_low, shown_high, bounds


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts, or bytes, one after the other."""

    column: pa.Array
    rows: Any
    levels: _Levels | None

    def part(self, start: int, count: int) -> LeafPart:
        some = self.column.slice(start, count)
        nulls = some.null_count
        low, high, bounds = _text_ends(some) if nulls < count else (None, None, None)
        if pa.types.is_binary(some.type):
            bounds = None
        parts = [*self._pages(start, count)]
        size = part_bytes(parts)
        return LeafPart([self.rows.assemble(parts, size)], Chunk(size, statistics(nulls, low, high)), nulls, bounds)

    def _pages(self, start: int, count: int) -> Iterator[Any]:
        at, end = start, start + count
        while at < end:
            rows, size, _ = self.rows.next_page(0, at, end - at, _PAGE_BYTES)
            before = _run_of_levels(rows) if self.levels is None else levels_page(self.levels[at : at + rows], 2)
            yield from late_page(rows, before, size)
            if size:
                yield (1, at, rows, size)
            at += rows
