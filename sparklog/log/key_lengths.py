"""Keys of object stores have a bound: does all that a topic, a group or a transactional id can need fit under a root?

This is asked when it is opened, before anything is written there."""

from __future__ import annotations

from sparklog.delta.names import checkpoint_path
from sparklog.errors import InvalidArgumentError, InvalidTopicError
from sparklog.paths import (
    encode_id,
    group_offsets_table,
    member_heartbeat,
    member_state,
    new_data_file,
    share_entry,
    share_group_members,
    topic_table,
    transaction_entry,
    transaction_marker,
)
from sparklog.storage.base import ObjectStore

__all__ = [
    "check_group_lengths",
    "check_root_length",
    "check_share_group_lengths",
    "check_topic_length",
    "check_transactional_id_length",
]

_NUMBER = 10**20 - 1
_IN_TABLE = max(
    len(checkpoint_path("", 0)),
    len("/" + new_data_file(9999)),
    len("/" + "0" * 20 + "-" + "0" * 32 + ".parquet"),
)
"""Bytes behind a table's folder: of a checkpoint, a data file, or a file of offsets."""
_SHORTEST = "t"


def check_root_length(store: ObjectStore) -> None:
    """Raise ``InvalidArgumentError`` unless a cluster's root leaves room for a topic whose name has one character."""
    _check(store, _topic_bytes(_SHORTEST), "a topic whose name has one character", InvalidArgumentError)


def check_topic_length(store: ObjectStore, topic: str) -> None:
    """Raise ``InvalidTopicError`` unless all that a topic can need fits under the root."""
    _check(store, _topic_bytes(topic), f"topic {topic!r}", InvalidTopicError)


def check_group_lengths(store: ObjectStore, group: str, member_prefix: str) -> None:
    """Raise ``InvalidArgumentError`` unless all that a consumer group can need fits under the root.

    Args:
        member_prefix: that the ids of its members begin with.
    """
    member = f"{member_prefix}-{'0' * 36}"
    longest = max(
        len(group_offsets_table(group)) + _IN_TABLE,
        len(member_heartbeat(group, member)),
        len(member_state(group, member)),
    )
    _check(store, longest, f"group {group!r} with members called {member_prefix!r}", InvalidArgumentError)


def check_share_group_lengths(store: ObjectStore, group: str, topic: str) -> None:
    """Raise ``InvalidArgumentError`` unless all that a share group can need for a topic fits under the root."""
    member = len(share_group_members(group)) + len(encode_id("0" * 36)) + len("/heartbeat")
    longest = max(member, len(share_entry(group, topic, 9999, _NUMBER)))
    _check(store, longest, f"share group {group!r} with topic {topic!r}", InvalidArgumentError)


def check_transactional_id_length(store: ObjectStore, transactional_id: str) -> None:
    """Raise ``InvalidArgumentError`` unless all that a transactional id can need fits under the root."""
    longest = max(len(transaction_entry(transactional_id, _NUMBER)), len(transaction_marker(transactional_id, _NUMBER)))
    _check(store, longest, f"transactional id {transactional_id!r}", InvalidArgumentError)


def _topic_bytes(topic: str) -> int:
    return len(topic_table(topic)) + _IN_TABLE


def _check(store: ObjectStore, needed: int, what: str, error: type[InvalidArgumentError | InvalidTopicError]) -> None:
    most = store.longest_path_bytes
    if most is not None and needed > most:
        raise error(
            f"{what} can need keys of {needed} bytes below {store.uri}, whose prefix leaves {max(0, most)} of those "
            "that a key may have: take a shorter prefix, or a shorter name"
        )
