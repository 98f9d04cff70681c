"""Going on by the entries that others committed: a topic's state, carried on to the log's tail."""

from __future__ import annotations

from sparklog.delta.actions import Entry
from sparklog.errors import NotATopicError, UnsupportedVersionError
from sparklog.log.state import TopicState
from sparklog.storage.entry_log import Look
from sparklog.storage.position import advance

__all__ = ["apply_look", "catch_up", "catch_up_to_tail"]

_FIRST_AHEAD = 2
_MAX_AHEAD = 64


def catch_up(state: TopicState, *, ahead: int) -> list[Entry]:
    """Read and apply up to ``ahead`` entries beyond the state; returns them. Raises as :func:`apply_look`."""
    return apply_look(state, state.log.look(state.position, ahead=ahead))


def apply_look(state: TopicState, look: Look[Entry]) -> list[Entry]:
    """Apply the entries that a look beyond the state has found; returns them.

    Raises:
        PositionLost: what was found isn't to be trusted (rule L1, trust); or the table may be readable again.
        UnsupportedVersionError, NotATopicError: what another engine did to it can't be understood, as long as it lasts.
    """
    for entry in look.entries:  # the tail's anchor belongs to the last of them alone: applying one may fail
        state.end_gap()  # whoever was away for a while mustn't wait for gaps of the past
        state.apply_entry(entry, advance(state.position, version=entry.version, token=entry.token))
    state.position = look.position
    if state.unreadable is not None:
        raise state.unreadable.with_traceback(None)
    return list(look.entries)


def catch_up_to_tail(state: TopicState) -> None:
    """Read and apply all entries beyond the state, the more at a time, the more there are.

    Raises as :func:`apply_look`; what can't be understood, only where the tail is so: further on it may be mended.
    """
    ahead = _FIRST_AHEAD
    is_tail = False
    while not is_tail:
        before = state.position.version
        try:
            catch_up(state, ahead=ahead)
        except (UnsupportedVersionError, NotATopicError):
            if state.position.version - before < ahead:
                raise
        is_tail = state.position.version - before < ahead
        ahead = min(ahead * 2, _MAX_AHEAD)
