"""The memory of a relay: rows that it has sent, to know them again if they come back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from sparklog.outbox.positions import REMEMBERED_BATCHES, Position
from sparklog.outbox.rows import Seen, digest_of

__all__ = ["Memory"]

_MOST_ROWS = 100_000


class Memory:
    """The batches that were sent last: 1,000 of them at most, and 100,000 rows, but always the newest."""

    def __init__(self, positions: Iterable[Position] = ()) -> None:
        """Remember batches in their order; those of the format 1 say nothing by which a row is known again."""
        self._batches: deque[Position] = deque()
        self._found: dict[tuple[str, ...], dict[str, Position]] = {}
        """By columns, and by the digest of these columns."""
        self._row_count = 0
        self._is_first = True
        for position in positions:
            if position.place is None:
                self._is_first = False
            else:
                self.add(position)

    @property
    def newest(self) -> Position | None:
        """The batch that was sent last."""
        return self._batches[-1] if self._batches else None

    def next_numbers(self) -> tuple[int, int]:
        """The number of the next batch, and of the first that is remembered then."""
        newest = self.newest
        number = (1 if self._is_first else 2) if newest is None else newest.number + 1
        earliest = self._batches[0].number if self._batches else number
        return number, max(earliest, number - REMEMBERED_BATCHES + 1)

    def is_set_back(self, counter: int | None) -> bool:
        """May rows have come back that were sent and aren't remembered, since the database's counter went back?"""
        newest = self.newest
        if newest is None or newest.counter is None or counter is None:
            return False
        return counter < newest.counter and self._batches[0].number > 1

    def add(self, position: Position) -> None:
        """Remember a batch, and forget the earliest, if they are too many."""
        self._batches.append(position)
        self._row_count += len(position.sent)
        found = self._found.setdefault(position.sent.columns, {})
        found.update((digest, position) for _, digest in position.sent.digests)
        while len(self._batches) > REMEMBERED_BATCHES or (self._row_count > _MOST_ROWS and len(self._batches) > 1):
            self._forget(self._batches.popleft())

    def batch_of(self, row: Seen, columns: tuple[str, ...], digest: str) -> Position | None:
        """The batch in which the row was sent; None if it isn't remembered.

        Args:
            columns, digest: the columns that the table has now, and the row's digest of them.
        """
        for known, found in self._found.items():
            position = found.get(digest if known == columns else digest_of(row, known))
            if position is not None:
                return position
        return None

    def _forget(self, position: Position) -> None:
        self._row_count -= len(position.sent)
        found = self._found[position.sent.columns]
        for _, digest in position.sent.digests:
            if found.get(digest) is position:
                del found[digest]
        if not found:
            del self._found[position.sent.columns]
