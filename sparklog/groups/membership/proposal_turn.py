"""The order in which members propose the next generation. Pure.

All members see at about the same time that another generation is needed. They propose in the order of their ids, one
round after the other, so that as a rule one generation is created and not one for each member.
"""

from __future__ import annotations

__all__ = ["ProposalTurn"]

_MOST_RANKS = 4
"""Rounds that a member waits for those before it to propose."""
_MOST_DELAY_ROUNDS = 10
"""Where members keep coming, a generation is proposed all the same after so many rounds."""


class ProposalTurn:
    """One member's turn to propose. Owned by one thread."""

    def __init__(self) -> None:
        self.need: object | None = None
        """The change that needs another generation, as of the last round; None where none is needed."""
        self._same_need_rounds = 0
        """Rounds since the need became what it is."""
        self._needy_rounds = 0
        """Rounds since any generation is needed."""

    def reset(self) -> None:
        """Begin anew, as no generation is needed."""
        self.need, self._same_need_rounds, self._needy_rounds = None, 0, 0

    def skip_round(self) -> None:
        """Let a round pass in which this member can't propose."""
        self.need = None

    def is_due(self, need: object, *, rank: int, is_alone: bool) -> bool:
        """Count a round in which a generation is needed. True: propose it now.

        Args:
            need: as of :func:`~sparklog.groups.membership.proposals.need_of`.
            rank: how many of the living members come before this one.
            is_alone: whether there is no other member.
        """
        self._needy_rounds += 1
        self._same_need_rounds = self._same_need_rounds + 1 if need == self.need else 0
        self.need = need
        is_over_due = self._needy_rounds > _MOST_DELAY_ROUNDS
        return is_alone or self._same_need_rounds > min(rank, _MOST_RANKS) or is_over_due
