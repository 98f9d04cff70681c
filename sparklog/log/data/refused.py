"""Files that another engine put under offsets of its own: which aren't read, and which partitions stop because of them
(rule F6, moved records). Frozen, without I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sparklog.errors import CorruptLogError

__all__ = ["NO_REWRITES", "ForeignRewrites", "Stop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A commit of another engine that moved records of a partition."""

    partition: int
    """The partition whose records it removed."""
    version: int
    """The version of the commit."""
    engine: str
    """The engine and the operation, as the commit names them."""

    def error(self, table: str) -> CorruptLogError:
        """The error of whoever reads or maintains the partition. It names the statement that undoes the commit."""
        topic = table.rpartition("/")[2]
        return CorruptLogError(
            f"partition {self.partition} of {table} is neither read nor maintained: version {self.version}, by "
            f"{self.engine}, removed records from it and put them under other offsets or partitions. Undo it by "
            f"RESTORE TABLE … TO VERSION AS OF {self.version - 1}; if records were appended since, by `sparklog topics "
            f"restore {topic} --version {self.version - 1}`, which keeps them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRewrites:
    """The facts that the commits of other engines left. They only grow: whether a fact still matters, the live files
    say."""

    refused: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    """By path: the version of the commit that put the file under offsets which it didn't remove."""
    stops: tuple[Stop, ...] = ()
    """A stop lasts as long as a file which its version put elsewhere is live."""
    judged_version: int = -1
    """The newest commit of another engine that was judged; -1 where none is known."""

    def stopped(self, live: Collection[str]) -> dict[int, Stop]:
        """The partitions that stop, with the newest reason of each.

        Args:
            live: the paths of the live files.
        """
        lasting = {version for path, version in self.refused.items() if path in live}
        return {one.partition: one for one in self.stops if one.version in lasting}


NO_REWRITES = ForeignRewrites()
