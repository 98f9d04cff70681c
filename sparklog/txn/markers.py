"""Removing the markers of expired transactional ids from topics (rule L7, producer state).

A marker says which transaction of an id a topic has last. It keeps whoever carries out a decision late from doing it
twice, so it stays for as long as somebody may: seven days from when the id was taken from its producer, the longest
stall that is allowed, and eight more, as a plain producer's state does. Numbers never restart, so an id that is taken
up again needs none of its old markers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sparklog.delta.actions import FAR_FUTURE_MS, SetTransaction
from sparklog.log.commit import Commit, commit
from sparklog.log.producer_state import PRODUCER_EXPIRATION_MS
from sparklog.log.publishing import transactional_id_of
from sparklog.log.state import TopicState
from sparklog.txn.barrier import IdSeen

__all__ = ["expire_markers"]


def expire_markers(
    state: TopicState, ids: Callable[[], Mapping[str, IdSeen]], *, dry_run: bool = False, timeout_ms: float
) -> tuple[list[str], TopicState]:
    """Let the markers in a topic expire that are of ids which were taken from their producers seven days ago.

    From now on they count as other producers' states do: a checkpoint leaves out what is older than eight days.

    Args:
        state: whole.
        ids: what the newest entries of the transactional ids say, now or earlier; asked for where there are markers.
        dry_run: only return which.
        timeout_ms: for the commit.
    Returns:
        The ids, sorted, and the topic's state to go on with.
    Raises:
        SparklogError: the log of one of these ids can't be understood.
        KafkaTimeoutError, CommitStateUnknownError, CorruptLogError, UnsupportedVersionError, StoreError.
    """
    lasting = _lasting(state)
    if not lasting:
        return [], state
    seen = ids()
    over = {}
    for name in sorted(lasting.keys() & seen.keys()):
        look = seen[name]
        if look.error is not None:
            raise look.error.with_traceback(None)
        if look.expired_for_ms is not None and look.expired_for_ms > PRODUCER_EXPIRATION_MS:
            over[name] = lasting[name]
    if over and not dry_run:
        state = _expire(state, over, timeout_ms=timeout_ms)
    return [*over], state


def _lasting(state: TopicState) -> dict[str, SetTransaction]:
    """The markers that don't expire, by transactional id."""
    named = ((transactional_id_of(marker.app_id), marker) for marker in state.transactions.values())
    return {name: marker for name, marker in named if name is not None and marker.last_updated_ms == FAR_FUTURE_MS}


def _expire(state: TopicState, over: dict[str, SetTransaction], *, timeout_ms: float) -> TopicState:
    clock = state.log.clock

    def decide(now: TopicState) -> Commit | None:
        """Drops the markers that are still as they were seen: an id that was taken up again has a newer one."""
        still = [marker for marker in over.values() if now.transactions.get(marker.app_id) == marker]
        now_ms = clock.now_ms()
        actions = [replace(marker, last_updated_ms=now_ms) for marker in still]
        return Commit(actions=actions, head=now.head, operation="EXPIRE TRANSACTIONS") if still else None

    return commit(state, decide, deadline=clock.deadline_in(timeout_ms), sync=True).state
