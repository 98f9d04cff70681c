"""Files of many plain records with consecutive offsets, read by one call of the compiled core.

The call reads files, footers and columns. As separate steps, each would wait for Python's lock, which an application
that computes keeps for five milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pyarrow as pa

from sparklog._native import CORE
from sparklog.log.data.copied_rows import CopiedRows
from sparklog.log.data.few_rows import FEW_RECORDS
from sparklog.log.data.parquet_bytes import footer_parts
from sparklog.log.data.plain_reading import PLAIN_CHUNKS
from sparklog.log.data.segments import Segment
from sparklog.storage.base import FilesRead, ObjectStore

__all__ = ["PlainRun", "RunRead", "read_plain_runs"]

_MOST_FILES = 256
_LEAST_BUFFER_BYTES = 65_536
"""A file of other records that is smaller is returned as ``bytes``."""
_LEAST_RECORD_BYTES = 8
"""The bytes of a record's time in a file."""
_NUMBERS = ("rows", *(f"{name}{end}" for name in ("offset_delta", "timestamp", "key", "value") for end in ("", "_at")))
"""The numbers of a footer that the core asks for, in its order."""


@dataclass(slots=True)
class PlainRun:
    """Files with consecutive offsets, by the log, which may be files of many plain records."""

    paths: list[str] = field(default_factory=list)
    """In the store."""
    counts: list[int] = field(default_factory=list)
    base_offset: int = 0
    """The first offset of the first file."""
    next_offset: int = 0
    """The offset behind the last file."""
    stored_bytes: int = 0

    def add(self, path: str, segment: Segment, most_bytes: int) -> bool:
        """Add a file. False: it can't be one of these, doesn't follow them, or there would be too many of them, or more
        than ``most_bytes``, which a first file may exceed."""
        base, count = segment.base_offset, segment.record_count
        if base is None or count is None or segment.partition is None:
            return False
        if not FEW_RECORDS < count <= segment.size_bytes // _LEAST_RECORD_BYTES:  # memory is taken for so many
            return False
        if segment.first_offset != base or segment.last_offset != base + count - 1:
            return False
        if not self.paths:
            self.base_offset = base
        elif base != self.next_offset or self.stored_bytes + segment.size_bytes > most_bytes:
            return False
        if len(self.paths) == _MOST_FILES:
            return False
        self.paths.append(path)
        self.counts.append(count)
        self.next_offset = base + count
        self.stored_bytes += segment.size_bytes
        return True

    @property
    def room_bytes(self) -> int:
        """The most memory that the records take: their bytes in the files, and each row's bits and ends again."""
        return self.stored_bytes + 10 * sum(self.counts) + 1_024


@dataclass(frozen=True, slots=True)
class RunRead:
    """The part of a run that was read."""

    file_count: int
    """The number of files whose records these are; the files after them must be read in another way."""
    rows: CopiedRows | None
    """None: no file's records were read."""
    other: Any
    """The bytes of the next file, as a store's ``read_buffers`` returns them, if it exists and has other records."""


def read_plain_runs(store: ObjectStore, runs: Sequence[PlainRun], most_bytes: int) -> list[RunRead] | None:
    """Read runs of files. None: the store isn't a local folder or there is no core, and nothing was read.

    Args:
        most_bytes: the largest file that is read in this way.
    Raises:
        InvalidArgumentError: a path is invalid.
    """
    if CORE is None or not runs:
        return None
    asked = tuple((tuple(run.counts), run.room_bytes) for run in runs)

    def read(files: tuple[bytes, ...]) -> FilesRead[list[Any] | None]:
        found = CORE.read_plain_runs(files, asked, _pattern(), most_bytes, _LEAST_BUFFER_BYTES)
        if found is None:
            return FilesRead(None, 0, 0)
        others = [other for *_, other in found if other is not None]
        file_count = sum(done for done, *_ in found) + len(others)
        return FilesRead(found, file_count, sum(each[1] for each in found) + sum(len(other) for other in others))

    found = store.read_files_by([path for run in runs for path in run.paths], read)
    if found is None or found.result is None:
        return None
    return [_of(run, *each) for run, each in zip(runs, found.result, strict=True)]


def _of(
    run: PlainRun,
    file_count: int,
    _: int,
    memory: Any,
    parts: tuple[int, ...],
    nulls: tuple[int, int],
    other: Any,
) -> RunRead:
    if not file_count:
        return RunRead(0, None, other)
    count = sum(run.counts[:file_count])
    return RunRead(file_count, CopiedRows(pa.py_buffer(memory), parts, nulls, count, 0, run.base_offset, count), other)


@cache
def _pattern() -> Any:
    """The footer of such a file as the core takes it: with an index in place of each number's name."""
    indexes = {name: index for index, name in enumerate(_NUMBERS)}
    parts: list[bytes | int] = []
    for part in footer_parts(PLAIN_CHUNKS):
        if isinstance(part, str):
            parts.append(indexes.setdefault(part, len(indexes)))
        else:
            parts.append(-part if isinstance(part, int) else part)
    return CORE.FooterPattern(tuple(parts))  # type: ignore[union-attr]
