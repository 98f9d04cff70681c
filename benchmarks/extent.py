"""How much of the work a run does."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

__all__ = ["Extent"]

T = TypeVar("T")


class Extent(Enum):
    """Its value is what a report says of it."""

    QUICK = "a tenth, too little to judge targets by"
    """To see that it runs."""
    USUAL = "all that has a target, and its peers"
    """In at most a quarter of an hour for all benchmarks."""
    FULL = "all there is"
    """More cases, more records, and longer."""

    def of(self, quick: T, usual: T, full: T) -> T:
        """The one of the three that is for this extent."""
        return {Extent.QUICK: quick, Extent.USUAL: usual, Extent.FULL: full}[self]

    @property
    def is_quick(self) -> bool:
        return self is Extent.QUICK

    @property
    def is_full(self) -> bool:
        return self is Extent.FULL
