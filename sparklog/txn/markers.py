"""Letting topics forget transactional ids that nobody uses any more (rule L7).

A marker says which transaction of an id a topic has last. It keeps whoever carries out a decision late from doing it
twice, so it stays for as long as somebody may: seven days from when the id was taken from its producer, the longest
stall that is allowed, and eight more, as a plain producer's state does. Numbers never restart, so an id that is taken
up again needs none of its old markers.
"""

from __future__ import annotations

from dataclasses import replace

from sparklog.delta.actions import FAR_FUTURE_MS, SetTransaction
from sparklog.log.cluster import Cluster
from sparklog.log.commit import Commit, commit
from sparklog.log.producer_state import PRODUCER_EXPIRATION_MS
from sparklog.log.publishing import transactional_id_of
from sparklog.log.state import TopicState
from sparklog.txn.entries import open_transaction_log
from sparklog.txn.overview import age_ms, at_once, store_time_ms

__all__ = ["expire_markers"]


def expire_markers(cluster: Cluster, state: TopicState, *, dry_run: bool = False, timeout_ms: float) -> list[str]:
    """Let the markers in a topic expire that are of ids which were taken from their producers seven days ago.

    From now on they count as other producers' states do: a checkpoint leaves out what is older than eight days.

    Where the topic has markers, it costs the store's time, and a LIST and a GET for each of them, 32 at a time, and a
    LIST more for each id that was taken; a commit where there is something to do.

    Args:
        state: whole.
        dry_run: only tell of which, by this machine's clock: to learn the store's takes a write.
        timeout_ms: for the commit.
    Returns:
        The ids, sorted.
    Raises:
        KafkaTimeoutError, CommitStateUnknownError, CorruptLogError, UnsupportedVersionError, StoreError.
    """
    lasting = _lasting(state)
    if not lasting:
        return []
    now_ms = state.log.clock.now_ms() if dry_run else store_time_ms(cluster)

    def is_over(transactional_id: str) -> bool:
        log = open_transaction_log(cluster, transactional_id)
        newest, _ = log.open_newest()
        return newest is not None and newest.is_expired and age_ms(log, newest, now_ms=now_ms) > PRODUCER_EXPIRATION_MS

    ids = sorted(lasting)
    over = {name: lasting[name] for name, gone in zip(ids, at_once(is_over, ids), strict=True) if gone}
    if over and not dry_run:
        _expire(state, over, timeout_ms=timeout_ms)
    return [*over]


def _lasting(state: TopicState) -> dict[str, SetTransaction]:
    """The markers that don't expire, by transactional id."""
    found = ((transactional_id_of(marker.app_id), marker) for marker in state.transactions.values())
    return {name: marker for name, marker in found if name is not None and marker.last_updated_ms == FAR_FUTURE_MS}


def _expire(state: TopicState, over: dict[str, SetTransaction], *, timeout_ms: float) -> None:
    clock = state.log.clock

    def decide(now: TopicState) -> Commit | None:
        """Those that are still as they were seen: an id that was taken up again has a newer one."""
        still = [marker for marker in over.values() if now.transactions.get(marker.app_id) == marker]
        now_ms = clock.now_ms()
        actions = [replace(marker, last_updated_ms=now_ms) for marker in still]
        return Commit(actions=actions, head=now.head, operation="EXPIRE TRANSACTIONS") if still else None

    commit(state, decide, deadline_ticks_ms=clock.ticks_ms() + timeout_ms, sync=True)
