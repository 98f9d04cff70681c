"""A long array of an answer, whose elements are made when they are encoded. Pure, but for pauses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

from sparklog.gateway.element_limits import IN_THE_LOOP

__all__ = ["Pieces"]

_TOGETHER = 100
_TURN_S = 0.000_5
"""Pause after so many: other threads, such as the event loop's, come to their turn at once."""

S = TypeVar("S")


class Pieces(Sequence[dict[str, Any]], Generic[S]):
    """Elements made of some items, one after the other, and not kept: a million partitions would take gigabytes."""

    def __init__(
        self, items: Sequence[S], make: Callable[[S], dict[str, Any]], error_codes: Sequence[int] = ()
    ) -> None:
        """
        Args:
            make: an element of an item.
            error_codes: of the elements, those that aren't ``NONE``.
        """
        self.error_codes = error_codes
        self._items = items
        self._make = make

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(index, slice):
            return [*map(self._make, self._items[index])]
        return self._make(self._items[index])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        pauses = len(self._items) > IN_THE_LOOP.of_array  # else it is encoded in the event loop
        for number, item in enumerate(self._items, 1):
            yield self._make(item)
            if pauses and number % _TOGETHER == 0:
                time.sleep(_TURN_S)
