"""Pages of a sealed Parquet file that is read by ranges: what their headers say is compared with the footer.

The checksum of a page, which is in its header, protects what follows the header and nothing of it. A bit of a header
that changed may stand for fewer values, more of them, another kind of page that readers pass over, or no checksum at
all; most readers, Arrow's among them, then return fewer records, or others. A sealed footer says how many values each
column chunk has, how large it is, and how many of its pages have which encoding.

So each chunk is read as a whole, and compared before a byte of it is handed out. Who wrote the file bounds its size.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparklog.arrow import pa
from sparklog.checksums import crc32
from sparklog.delta.parquet_pages import RLE
from sparklog.delta.thrift import ThriftError, read_struct

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

__all__ = ["CheckedPages"]

_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_DICTIONARY_ENCODINGS = (0, 2)
"""The encodings of a dictionary's values; the second, an old name of the first, is read in the same way."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """A column of a row group, as the footer has it."""

    number: tuple[int, int]
    """The numbers of the row group, and of the column in it."""
    path: str
    start: int
    end: int
    values: int
    raw_bytes: int
    """The size before its pages were compressed, headers included."""
    is_compressed: bool
    has_dictionary: bool


class CheckedPages(io.RawIOBase):
    """A sealed file of which parts are read. Each page that is read is as it was when the file was sealed, or reading
    it raises ``pa.ArrowInvalid``, which names the column, the place, what was seen and what was expected."""

    def __init__(self, source: Any, footer: FileMetaData) -> None:
        """
        Args:
            source: a file of Arrow's, or of Python's.
            footer: compared with its seal.
        """
        super().__init__()
        self._source = source
        self._footer = footer
        self._size_bytes = int(source.seek(0, io.SEEK_END))
        self._chunks = sorted(_chunks_of(footer), key=lambda chunk: chunk.start)
        self._starts = [chunk.start for chunk in self._chunks]
        self._held: dict[int, bytes] = {}
        """Chunks of which the end wasn't read yet, by where they begin."""
        self._stated: Mapping[tuple[int, int], Mapping[int, int]] | None = None
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size_bytes}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size_bytes if size < 0 else min(self._at + size, self._size_bytes)
        parts: list[bytes] = []
        while self._at < end:
            part = self._read_some(end)
            if not part:
                break  # the file has become shorter, which the reader finds
            parts.append(part)
            self._at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        if not self.closed:
            self._held.clear()
            self._source.close()
        super().close()

    def _read_some(self, end: int) -> bytes:
        """Bytes that follow, up to ``end``: of one chunk, or between two."""
        place = bisect_right(self._starts, self._at) - 1
        if place < 0 or self._at >= self._chunks[place].end:
            stop = min(end, self._starts[place + 1]) if place + 1 < len(self._starts) else end
            return self._read_at(self._at, stop)
        chunk = self._chunks[place]
        if chunk.start not in self._held:
            self._fetch(place, end)
        data = self._held[chunk.start]
        stop = min(end, chunk.end)
        if stop == chunk.end:
            del self._held[chunk.start]
        return data[self._at - chunk.start : stop - chunk.start]

    def _fetch(self, place: int, end: int) -> None:
        """Read and check a chunk, and by the same request those that follow without a gap and begin before ``end``."""
        last = place
        while last + 1 < len(self._chunks) and self._chunks[last].end == self._starts[last + 1] < end:
            last += 1
        first_at = self._starts[place]
        data = self._read_at(first_at, self._chunks[last].end)
        for chunk in self._chunks[place : last + 1]:
            own = data if last == place else data[chunk.start - first_at : chunk.end - first_at]
            self._check(chunk, own)
            self._held[chunk.start] = own

    def _read_at(self, start: int, end: int) -> bytes:
        self._source.seek(start)
        data: bytes = self._source.read(end - start)
        return data

    def _check(self, chunk: _Chunk, data: bytes) -> None:
        """Raise unless the pages of a chunk are as the footer and their checksums say."""
        what = f"column {chunk.path}, bytes {chunk.start} to {chunk.end}"
        if len(data) != chunk.end - chunk.start:
            raise pa.ArrowInvalid(f"{what}: {len(data)} bytes are there")
        values = raw_bytes = at = 0
        encodings: Counter[int] = Counter()
        while at < len(data):
            place = chunk.start + at
            try:
                page = _Page.read(data, at)
            except ThriftError as error:
                raise pa.ArrowInvalid(f"{what}: at {place} is no header of a page: {error}") from error
            wrong = page.fault(data, chunk, is_first=at == 0)
            if wrong is not None:
                raise pa.ArrowInvalid(f"{what}: the page at {place} has {wrong}")
            if not page.is_dictionary:
                values += page.values
                encodings[page.encoding] += 1
            raw_bytes += page.begin - at + page.raw_bytes
            at = page.end
        if values != chunk.values:
            raise pa.ArrowInvalid(f"{what}: its pages have {values} values, and the footer states {chunk.values}")
        if raw_bytes != chunk.raw_bytes:
            raise pa.ArrowInvalid(
                f"{what}: its pages have {raw_bytes} bytes before compression, and the footer states {chunk.raw_bytes}"
            )
        stated = self._encodings_of(chunk)
        if encodings != stated if stated is not None else len(encodings) > 1:
            raise pa.ArrowInvalid(
                f"{what}: numbers of its pages by encoding: {dict(encodings)}, and the footer states "
                f"{'one encoding' if stated is None else dict(stated)}"
            )

    def _encodings_of(self, chunk: _Chunk) -> Mapping[int, int] | None:
        """The numbers of a chunk's data pages by encoding; None: the footer doesn't have them, as all are the same."""
        if self._stated is None:
            self._stated = _stated_encodings(self._footer)
        return self._stated.get(chunk.number)


@dataclass(frozen=True, slots=True)
class _Page:
    """A page, as its header has it."""

    kind: Any
    values: Any
    encoding: Any
    level_encodings: tuple[Any, ...]
    """The encodings of definitions and repetitions; none of a dictionary."""
    raw_bytes: Any
    bytes: Any
    sum: Any
    begin: int
    """The place behind its header, among the bytes of its chunk."""

    @classmethod
    def read(cls, data: bytes, at: int) -> _Page:
        """Raises ``ThriftError``."""
        header, begin = read_struct(data, at)
        is_dictionary = header.get(1) == _DICTIONARY_PAGE
        of_kind = header.get(7 if is_dictionary else 5)
        own = of_kind if isinstance(of_kind, dict) else {}
        levels = () if is_dictionary else (own.get(3), own.get(4))
        return cls(header.get(1), own.get(1), own.get(2), levels, header.get(2), header.get(3), header.get(4), begin)

    @property
    def is_dictionary(self) -> bool:
        return bool(self.kind == _DICTIONARY_PAGE)

    @property
    def end(self) -> int:
        return self.begin + int(self.bytes)

    def fault(self, data: bytes, chunk: _Chunk, *, is_first: bool) -> str | None:
        """The fault of it, with what was expected; None: it has none."""
        if self.kind != _DATA_PAGE and not (self.is_dictionary and is_first and chunk.has_dictionary):
            expected = "a dictionary" if is_first and chunk.has_dictionary else "values"
            return f"kind {self.kind!r}, where a page of {expected} is expected"
        if is_first and chunk.has_dictionary != self.is_dictionary:
            return "values, where the footer states a dictionary"
        numbers = (self.values, self.encoding, self.raw_bytes, self.bytes, *self.level_encodings)
        if not all(isinstance(number, int) and number >= 0 for number in numbers):
            return f"{self.values!r} values, encoding {self.encoding!r}, {self.bytes!r} bytes"
        if self.end > len(data):
            return f"{self.bytes} bytes, and {len(data) - self.begin} follow its header"
        if not chunk.is_compressed and self.raw_bytes != self.bytes:
            return f"{self.raw_bytes} bytes before compression, and {self.bytes} though it isn't compressed"
        if any(encoding != RLE for encoding in self.level_encodings):
            return f"levels of encodings {self.level_encodings}, expected {RLE}"
        if self.is_dictionary and self.encoding not in _DICTIONARY_ENCODINGS:
            return f"encoding {self.encoding}, expected one of {_DICTIONARY_ENCODINGS} for a dictionary"
        if not isinstance(self.sum, int):
            return "no checksum, expected one: the file is sealed"
        found = crc32(memoryview(data)[self.begin : self.end])
        if found != self.sum & 0xFFFFFFFF:
            return f"checksum {found:08x}, and its header states {self.sum & 0xFFFFFFFF:08x}"
        return None


def _chunks_of(footer: FileMetaData) -> Iterator[_Chunk]:
    for group_number in range(footer.num_row_groups):
        group = footer.row_group(group_number)
        for number in range(group.num_columns):
            column = group.column(number)
            start = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
            if column.total_compressed_size <= 0:
                continue
            yield _Chunk(
                (group_number, number),
                column.path_in_schema,
                start,
                start + column.total_compressed_size,
                column.num_values,
                column.total_uncompressed_size,
                column.compression != "UNCOMPRESSED",
                column.has_dictionary_page,
            )


def _stated_encodings(footer: FileMetaData) -> Mapping[tuple[int, int], Mapping[int, int]]:
    """The numbers of data pages by encoding, by chunk, where the footer has them: fields of it that Arrow doesn't show.
    Source: Parquet's ``ColumnMetaData.encoding_stats``."""
    sink = io.BytesIO()
    footer.write_metadata_file(sink)
    written, _ = read_struct(sink.getvalue(), len(b"PAR1"))
    found = {}
    for group_number, group in enumerate(written.get(4, ())):
        for number, column in enumerate(group.get(1, ())):
            stats = column.get(3, {}).get(13)
            if stats is not None:
                pages = ((stat.get(1), stat.get(2), stat.get(3)) for stat in stats)
                found[group_number, number] = {
                    encoding: count for kind, encoding, count in pages if kind == _DATA_PAGE and count
                }
    return found
