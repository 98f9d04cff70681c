"""Putting records in the order of their offsets, however many there are: in memory, or by way of a temporary folder.

Only other engines write the rows of a file in any order, or files whose offsets overlap; and only where that is more
than fits in memory are sorted runs spilled, and merged. Source: external merge sort, Knuth, TAOCP volume 3, 5.4.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["RUN_BYTES", "by_offset"]

RUN_BYTES = 32 * 1024 * 1024
"""The size of records that are sorted in memory."""
_PIECE_BYTES = 4 * 1024 * 1024
_BATCH_BYTES = 128 * 1024
"""The part of each run that is in memory while runs are merged: 1,000 runs are 32 GB."""
_COLUMN = "offset_delta"

Offsets = npt.NDArray[np.int64]


def by_offset(pieces: Iterable[pa.Table], *, run_bytes: int = RUN_BYTES) -> Iterator[pa.Table]:
    """Tables with a column ``offset_delta``, none of them null, as tables that are in its order, within and between.

    What doesn't fit in memory goes through files in the system's temporary folder, which needs room for all of it,
    decoded; they are deleted at the end, or when the iterator is closed.

    Args:
        run_bytes: of records that are sorted at once; three times as much is held in memory.
    Raises:
        OSError: there is no room; and whatever ``pieces`` raise.
    """
    waiting: list[pa.Table] = []
    size = 0
    with ExitStack() as stack:
        runs: list[Path] = []
        for piece in pieces:
            waiting.append(piece)
            size += piece.nbytes
            if size >= run_bytes:
                if not runs:
                    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sparklog-sort-")))
                runs.append(_spill(waiting, folder / str(len(runs))))
                waiting, size = [], 0
        if not runs:
            yield from _slices(_sorted(waiting)) if waiting else ()
            return
        if waiting:
            runs.append(_spill(waiting, folder / str(len(runs))))
            waiting = []
        yield from _merged([stack.enter_context(_Run(path)) for path in runs])


def _sorted(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).sort_by(_COLUMN).combine_chunks()


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    rows = _rows_of(table, _PIECE_BYTES)
    yield from (table.slice(first, rows) for first in range(0, table.num_rows, rows))


def _rows_of(table: pa.Table, size_bytes: int) -> int:
    """About how many rows of a table are so many bytes; at least one."""
    return max(1, int(table.num_rows) * size_bytes // max(1, int(table.nbytes)))


def _spill(tables: Sequence[pa.Table], path: Path) -> Path:
    table = _sorted(tables)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=_rows_of(table, _BATCH_BYTES))
    return path


class _Run:
    """A sorted run, read batch by batch."""

    def __init__(self, path: Path) -> None:
        self._source = pa.OSFile(str(path), "rb")
        self._batches: Any = pa.ipc.open_stream(self._source)
        self._batch: pa.RecordBatch | None = None
        self._offsets: Offsets = np.empty(0, np.int64)
        self._at = 0
        self._next()

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    @property
    def is_over(self) -> bool:
        return self._batch is None

    @property
    def last(self) -> int:
        """The last offset of the batch that is in memory."""
        return int(self._offsets[-1])

    def take(self, last: int) -> Iterator[pa.RecordBatch]:
        """The records up to offset ``last`` (inclusive), which isn't beyond :attr:`last`."""
        batch = self._batch
        end = int(np.searchsorted(self._offsets, last, side="right"))
        if batch is not None and end > self._at:
            yield batch.slice(self._at, end - self._at)
            self._at = end
        if end == len(self._offsets):
            self._next()

    def _next(self) -> None:
        self._batch = next((batch for batch in self._batches if batch.num_rows), None)
        self._at = 0
        if self._batch is not None:
            self._offsets = self._batch.column(_COLUMN).to_numpy()


def _merged(runs: Sequence[_Run]) -> Iterator[pa.Table]:
    """The records of all runs, by offset."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    while left := [run for run in runs if not run.is_over]:
        last = min(run.last for run in left)  # up to here no run has anything that isn't in memory
        taken = [batch for run in left for batch in run.take(last)]
        gathered += taken
        size += sum(batch.nbytes for batch in taken)
        if size >= _PIECE_BYTES:
            yield _sorted([pa.Table.from_batches(gathered)])
            gathered, size = [], 0
    if gathered:
        yield _sorted([pa.Table.from_batches(gathered)])
