"""The steps of a producer's commits: what may follow what. Pure."""

from __future__ import annotations

from sparklog.delta.actions import AddFile
from sparklog.log.producer_state import ProducerEntry

__all__ = ["follows", "sequences_of"]


def follows(known: ProducerEntry, now: ProducerEntry) -> bool:
    """Is it the next commit of the epoch, or the first of a later one?"""
    if now.producer_epoch == known.producer_epoch:
        return now.counter == known.counter + 1
    return now.producer_epoch > known.producer_epoch and now.counter == 0


def sequences_of(add: AddFile, producer_id: int) -> tuple[int, int] | None:
    """The first and the last sequence that a file has of a producer; None where its statistics don't say."""
    low, high = ((add.stats or {}).get(side) for side in ("minValues", "maxValues"))
    if not isinstance(low, dict) or not isinstance(high, dict):
        return None
    first, last = low.get("sequence"), high.get("sequence")
    if low.get("producer_id") != producer_id or high.get("producer_id") != producer_id:
        return None
    return (first, last) if isinstance(first, int) and isinstance(last, int) else None
