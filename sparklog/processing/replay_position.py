"""Which dead letters of a partition were replayed: an offset below which all were, and ranges beyond it.

It is what the replay's consumer group commits: the offset, and the ranges as the offset's metadata. So a replay of some
letters (``where``) leaves the others to a later one, and each is replayed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sparklog.errors import InvalidArgumentError
from sparklog.model import OffsetAndMetadata

__all__ = ["ReplayPosition"]

_MOST_BYTES = 4_096
"""The bound of an offset's metadata. Source: Kafka ``offset.metadata.max.bytes``."""
_FORMAT = re.compile(r"replayed:(\d+-\d+(,\d+-\d+)*)?")


@dataclass(frozen=True, slots=True)
class ReplayPosition:
    """The letters of one partition that were replayed."""

    offset: int = 0
    """Everything below was."""
    ranges: tuple[tuple[int, int], ...] = ()
    """Offsets beyond that were, as (first, last), both inclusive; ascending, with letters between them that weren't."""

    @classmethod
    def of(cls, committed: OffsetAndMetadata | None) -> ReplayPosition:
        """The position that was committed. Raises ``InvalidArgumentError``: another program committed it."""
        if committed is None:
            return cls()
        if not committed.metadata:
            return cls(committed.offset)
        if _FORMAT.fullmatch(committed.metadata) is None:
            raise InvalidArgumentError(
                f"the group's committed metadata is {committed.metadata!r}, expected that of a replay: "
                "give another --group"
            )
        ranges = committed.metadata.removeprefix("replayed:")
        pairs = [each.split("-") for each in ranges.split(",") if each]
        return cls(committed.offset, tuple((int(first), int(last)) for first, last in pairs))

    def holds(self, offset: int) -> bool:
        """Was the letter at this offset replayed?"""
        return offset < self.offset or any(first <= offset <= last for first, last in self.ranges)

    def after(self, replayed: Iterable[int], passed: Iterable[int]) -> ReplayPosition:
        """The position after more was replayed.

        Args:
            replayed: offsets of letters that are replayed now, in any order.
            passed: of all letters that were looked at, those among them, ascending; between two that follow one another
                there are no others.
        """
        now = set(replayed)
        runs: list[list[int]] = []
        is_open = False
        for offset in passed:
            if offset in now or self.holds(offset):
                if is_open:
                    runs[-1][1] = offset
                else:
                    runs.append([offset, offset])
                is_open = True
            else:
                is_open = False
        looked = list(passed)
        offset = self.offset
        if runs and looked and runs[0][0] == looked[0]:
            offset = max(offset, runs.pop(0)[1] + 1)
        beyond = [pair for pair in self.ranges if looked and pair[0] > looked[-1]]
        return ReplayPosition(offset, (*((first, last) for first, last in runs), *beyond))

    @property
    def committable(self) -> OffsetAndMetadata:
        """The position as it is committed.

        Raises:
            InvalidArgumentError: the ranges don't fit: what was replayed is scattered too widely.
        """
        text = "replayed:" + ",".join(f"{first}-{last}" for first, last in self.ranges) if self.ranges else ""
        if len(text) > _MOST_BYTES:
            raise InvalidArgumentError(
                f"the letters that were or are to be replayed are {len(self.ranges)} ranges of offsets, more "
                f"than an offset's metadata of {_MOST_BYTES} bytes can hold; replay more of them, or fewer (--max)"
            )
        return OffsetAndMetadata(self.offset, text)
