"""A topic that is loaded anew: its log must go on from what was known of it (rule L17, ground)."""

from __future__ import annotations

from sparklog.delta.log import DeltaLog
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.state import TopicState, load_state
from sparklog.storage.log_ground import check_follows, no_log
from sparklog.storage.position import Position

__all__ = ["load_again", "reload_state"]


def reload_state(state: TopicState) -> TopicState:
    """The topic of a state, loaded whole as of now, with the same observer.

    Raises:
        StoreReplacedError: its log is gone, or doesn't go on from the state (rule L17, ground); not where another topic
            of this name is there.
        NotATopicError, UnsupportedVersionError, CorruptLogError, StoreError.
    """
    loaded = load_again(state.log, state.position, topic_id=state.head.topic_id)
    loaded.observer = state.observer
    if loaded.observer is not None:
        loaded.observer.note_loaded(loaded)
    return loaded


def load_again(log: DeltaLog, lost: Position, *, topic_id: str) -> TopicState:
    """The topic, loaded whole as of now, after the position of who knew it as ``topic_id`` was lost. Raises as
    :func:`reload_state`."""
    log.check_cluster(is_doubtful=True)
    try:
        loaded = load_state(log)
    except UnknownTopicOrPartitionError as error:
        raise no_log(log, lost) from error
    if loaded.head.topic_id == topic_id:
        check_follows(log, lost, loaded.position)
    return loaded
