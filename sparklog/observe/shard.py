"""A part of a cluster, for one of several that look at it together. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from sparklog.errors import InvalidArgumentError

__all__ = ["Shard"]


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a cluster's topics, groups and transactional ids, by their names."""

    index: int = 0
    """0 … ``count - 1``."""
    count: int = 1
    """1 or more."""

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise InvalidArgumentError(
                f"shard {self.index + 1} of {self.count}: expected 1 to {max(1, self.count)} of 1 or more"
            )

    def has(self, name: str) -> bool:
        """Does a name belong to it?"""
        return crc32(name.encode()) % self.count == self.index
