"""The position of a process in a log, and what it may believe of the next version (protocol rule L1, trust). Pure.

Cleanup deletes only entries whose *successor* has been there for ``log.retention.ms`` (at least ten times
``tail_trust_ms``), and only below a mark that it has written before. Two proofs follow; each is all that a look needs:

- *Young*: nothing beyond ``anchor`` existed less than ``tail_trust_ms`` ago. Then whatever lies beyond it is younger
  than that, and can't have been cleaned and created again.
- *Verified*: after the look, the entry at our own version still holds our token, and no mark lies above it. Then
  nothing behind it was ever deleted, and what the look found is the original. (In a log without marks, whose entries
  are deleted strictly from the oldest on, the token alone says so.)

A look that finds version + 1 *not there* moves the anchor; one that finds it doesn't, however often (a process that
catches up from far behind reads entries that may be a day old).

Both suppose that the log is still the one that was read. A store can be emptied, filled anew or set back under a
running process, whose own creates move the anchor all the same. So a position keeps from where and when its *ground*
was checked (rule L17, ground), which no look or create moves.
See docs/decisions/0001-trust-is-anchored-at-the-tail.md and 0011-old-entries-are-deleted-in-bulk-below-a-mark.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "DEFAULT_TAIL_TRUST_MS",
    "Checked",
    "Position",
    "PositionLost",
    "advance",
    "ground_is_due",
    "last_check",
    "needs_verification",
]

DEFAULT_TAIL_TRUST_MS = 60_000


class PositionLost(Exception):  # noqa: N818 - a signal between our own modules, never shown to a caller
    """The entry we stand on is gone or another one: what was learned counts for nothing; load the table again."""

    def __init__(self, path: str, *, nothing_tried: bool = False) -> None:
        """
        Args:
            nothing_tried: it was found before an entry was tried to be created, so none may be under way.
        """
        super().__init__(path)
        self.nothing_tried = nothing_tried


class Checked(NamedTuple):
    """The newest check of a log's ground (rule L17, ground)."""

    version: int
    """The entry that was found to be the one that is known, with none missing between it and the check before."""
    token: str
    ticks_ms: float
    """A tick of this process's clock at which the check began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The newest entry that a process has applied."""

    version: int
    token: str
    anchor_ticks_ms: float
    """A tick of this process's clock at which no version beyond this one existed yet, or none beyond an earlier
    position of the same unbroken chain."""
    is_durable: bool = field(default=False, compare=False)
    """Is the entry known to survive a power loss (rule L9, fsync)? Tables' states know more than this, and don't
    ask."""
    checked: Checked | None = field(default=None, compare=False)
    """When the ground was checked; None: when the log was opened, at the anchor, which hasn't moved since."""


def needs_verification(position: Position, *, learned_ticks_ms: float, tail_trust_ms: float) -> bool:
    """Must the entry at ``position`` be read again before what was learned at ``learned_ticks_ms`` counts?"""
    return learned_ticks_ms - position.anchor_ticks_ms > tail_trust_ms


def last_check(position: Position) -> Checked:
    """The newest check of the ground: the opening of the log is one."""
    return position.checked or Checked(position.version, position.token, position.anchor_ticks_ms)


def ground_is_due(position: Position, *, now_ticks_ms: float, tail_trust_ms: float) -> bool:
    """Was the ground last checked so long ago that it is checked before anything else (rule L17, ground)?"""
    checked = position.checked
    return now_ticks_ms - (position.anchor_ticks_ms if checked is None else checked.ticks_ms) > tail_trust_ms


def advance(
    position: Position, *, version: int, token: str, tail_seen_at: float | None = None, is_durable: bool = False
) -> Position:
    """The position after applying ``version``.

    ``tail_seen_at``: when a trusted look began that found nothing beyond ``version``; None if it wasn't looked for.
    """
    anchor = position.anchor_ticks_ms if tail_seen_at is None else tail_seen_at
    return Position(
        version=version,
        token=token,
        anchor_ticks_ms=anchor,
        is_durable=is_durable,
        checked=position.checked or last_check(position),
    )
