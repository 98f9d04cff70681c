"""An administrator's calls about share groups, beside members that may be at work.

A change of a group's offsets in a partition is one entry of that partition's log, as a member's change is (rule S4).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from sparklog.clock import Deadline
from sparklog.errors import (
    GroupIdNotFoundError,
    KafkaTimeoutError,
    NonEmptyGroupError,
    UnknownTopicOrPartitionError,
)
from sparklog.groups.admin.description import GroupState
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.roster import read_members_in
from sparklog.groups.sharing.entries import clean_share_log, encode_entry, open_share_log
from sparklog.groups.sharing.states import RecordState, SharePartition, empty_partition
from sparklog.log import Cluster, describe_topic
from sparklog.log.store_time import store_time_ms
from sparklog.model import TopicPartition
from sparklog.parallel import parallel_map
from sparklog.paths import SHARE_GROUPS_FOLDER, decode_id, new_probe, share_group_members, share_partitions
from sparklog.storage.each_alone import each_alone
from sparklog.storage.entry_log import Created, PositionLost

__all__ = [
    "ShareGroupDescription",
    "ShareMemberDescription",
    "SharePartitionDescription",
    "all_share_groups",
    "alter_share_offsets",
    "clean_share_groups",
    "delete_share_group",
    "delete_share_offsets",
    "describe_share_group",
    "named_share_groups",
    "share_group_names",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberDescription:
    """A member that lives."""

    member_id: str
    client_id: str
    host: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionDescription:
    """How far a share group is in a partition."""

    partition: TopicPartition
    start_offset: int
    """Everything below is done with."""
    end_offset: int
    """Nothing was acquired from here on."""
    log_end_offset: int | None
    """None: the topic, or the one that the group began, isn't there any more."""
    available: int
    """Records in flight that are to be delivered again."""
    acquired: int
    """Records that members have in hand."""

    @property
    def lag(self) -> int | None:
        """Records that aren't done with. Source: KIP-1226."""
        if self.log_end_offset is None:
            return None
        return max(0, self.log_end_offset - self.end_offset) + self.available + self.acquired


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupDescription:
    """A share group as it was at a moment."""

    group_id: str
    state: GroupState
    """``Stable`` with members, ``Empty`` without, ``Dead`` where there is no such group."""
    members: tuple[ShareMemberDescription, ...] = ()
    partitions: tuple[SharePartitionDescription, ...] = ()


def share_group_names(cluster: Cluster) -> list[str]:
    """The names of the share groups that have members, or offsets in some partition: those of
    :func:`named_share_groups`."""
    return [*named_share_groups(cluster)]


def named_share_groups(cluster: Cluster) -> dict[str, Exception | None]:
    """The share groups that have members, or offsets in some partition, each with why it can't be read, if it can't.
    Some LISTs for each group.

    Raises:
        StoreError: the store can't be read.
    """
    groups = _folders(cluster)
    looks = each_alone(cluster.store, lambda group: _exists(cluster, group), groups)
    return {
        group: look if isinstance(look, Exception) else None
        for group, look in zip(groups, looks, strict=True)
        if look is not False
    }


def describe_share_group(cluster: Cluster, group: str) -> ShareGroupDescription:
    """A group's members and how far it is. A LIST for each partition, and a look at each topic.

    Raises:
        CorruptLogError, UnsupportedVersionError, StoreError.
    """
    members = _members(cluster, group)
    states = _states(cluster, group)
    ends = _log_ends(cluster, {at.topic for at in states})
    partitions = tuple(_describe(at, state, ends) for at, state in sorted(states.items()))
    state = GroupState.STABLE if members else GroupState.EMPTY if partitions else GroupState.DEAD
    return ShareGroupDescription(group_id=group, state=state, members=members, partitions=partitions)


def all_share_groups(cluster: Cluster) -> dict[str, ShareGroupDescription | Exception]:
    """All share groups as :func:`describe_share_group` has them; the error for one that can't be read.

    Raises:
        StoreError: the store can't be read.
    """
    groups = _folders(cluster)
    looks = each_alone(cluster.store, lambda group: describe_share_group(cluster, group), groups)
    return {
        group: look
        for group, look in zip(groups, looks, strict=True)
        if isinstance(look, Exception) or look.state is not GroupState.DEAD
    }


def alter_share_offsets(
    cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int], *, deadline: Deadline
) -> None:
    """Let a group without members go on at these offsets; what was in flight is forgotten.

    Raises:
        NonEmptyGroupError: it has members.
        UnknownTopicOrPartitionError: a partition doesn't exist.
        KafkaTimeoutError, CommitStateUnknownError, CorruptLogError, StoreError.
    """
    _refuse_members(cluster, group)
    topics = {topic: describe_topic(cluster.topic_log(topic), topic) for topic in sorted({at.topic for at in offsets})}
    for at in offsets:
        if not 0 <= at.partition < topics[at.topic].partition_count:
            raise UnknownTopicOrPartitionError(f"unknown partition: {at.topic}-{at.partition}")
    for at, offset in offsets.items():
        _create(cluster, group, at, empty_partition(topics[at.topic].topic_id, offset), deadline=deadline)


def delete_share_offsets(cluster: Cluster, group: str, topics: Collection[str], *, deadline: Deadline) -> None:
    """Forget the offsets of a group without members in topics: it begins there anew.

    Raises as :func:`alter_share_offsets`; ``GroupIdNotFoundError``: it has no offsets in any of them."""
    _refuse_members(cluster, group)
    states = {at: state for at, state in _states(cluster, group).items() if at.topic in topics}
    if not states:
        raise GroupIdNotFoundError(f"share group {group!r} has no offsets in {', '.join(sorted(topics))}")
    for at in states:
        _create(cluster, group, at, None, deadline=deadline)


def delete_share_group(cluster: Cluster, group: str, *, deadline: Deadline) -> None:
    """Delete a group that has no members. Raises as :func:`delete_share_offsets`."""
    _refuse_members(cluster, group)
    states = _states(cluster, group)
    if not states:
        raise GroupIdNotFoundError(f"unknown share group: {group!r}")
    for at in states:
        _create(cluster, group, at, None, deadline=deadline)


def clean_share_groups(cluster: Cluster) -> dict[str, Exception]:
    """Delete entries of all share groups' logs that are no longer needed; by name the groups in which that failed.

    Raises:
        StoreError: the store can't be read.
    """

    def clean(group: str) -> None:
        for at in _partitions(cluster, group):
            clean_share_log(open_share_log(cluster, group, at))

    groups = _folders(cluster)
    cleaned = each_alone(cluster.store, clean, groups)
    return {group: one for group, one in zip(groups, cleaned, strict=True) if isinstance(one, Exception)}


def _folders(cluster: Cluster) -> list[str]:
    """The share groups for which there is a folder. One LIST."""
    return sorted(decode_id(part.rstrip("/")) for part in cluster.store.list_names(SHARE_GROUPS_FOLDER))


def _members(cluster: Cluster, group: str) -> tuple[ShareMemberDescription, ...]:
    """The members that live, by the store's own time."""
    folder = share_group_members(group)
    written: dict[str, int] = {}
    for file in cluster.store.list(folder):
        member_id = decode_id(file.path[len(folder) :].partition("/")[0])
        written[member_id] = max(written.get(member_id, 0), file.modified_ms)
    if not written:
        return ()
    now_ms = store_time_ms(cluster, new_probe())
    states = read_members_in(cluster.store, folder, sorted(written)).values()
    living = [
        state for state in states if state is not None and now_ms - written[state.member_id] <= state.session_timeout_ms
    ]
    return tuple(map(_member, living))


def _member(state: MemberState) -> ShareMemberDescription:
    return ShareMemberDescription(
        member_id=state.member_id, client_id=state.client_id, host=state.host, topics=state.topics
    )


def _refuse_members(cluster: Cluster, group: str) -> None:
    members = _members(cluster, group)
    if members:
        raise NonEmptyGroupError(
            f"share group {group!r} has members: {', '.join(member.member_id for member in members)}"
        )


def _partitions(cluster: Cluster, group: str) -> list[TopicPartition]:
    """The partitions of which a group has logs."""
    folder = share_partitions(group)
    topics = [name.rstrip("/") for name in cluster.store.list_names(folder)]
    numbers = parallel_map(lambda topic: cluster.store.list_names(f"{folder}{topic}/"), topics)
    return sorted(
        TopicPartition(topic, int(name.rstrip("/")))
        for topic, names in zip(topics, numbers, strict=True)
        for name in names
        if name.rstrip("/").isdigit()
    )


def _states(cluster: Cluster, group: str) -> dict[TopicPartition, SharePartition]:
    """The newest state of each partition in which a group has one."""

    def newest(at: TopicPartition) -> SharePartition | None:
        entry, _ = open_share_log(cluster, group, at).open_newest()
        return None if entry is None else entry.partition

    partitions = _partitions(cluster, group)
    states = zip(partitions, parallel_map(newest, partitions), strict=True)
    return {at: state for at, state in states if state is not None}


def _exists(cluster: Cluster, group: str) -> bool:
    return bool(_states(cluster, group)) or bool(_members(cluster, group))


def _log_ends(cluster: Cluster, topics: Collection[str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    def look(topic: str) -> tuple[str, tuple[int, ...]] | None:
        try:
            described = describe_topic(cluster.topic_log(topic), topic)
        except UnknownTopicOrPartitionError:
            return None
        return described.topic_id, tuple(described.log_end_offsets)

    names = sorted(topics)
    looks = zip(names, parallel_map(look, names), strict=True)
    return {topic: facts for topic, facts in looks if facts is not None}


def _describe(
    at: TopicPartition, state: SharePartition, ends: Mapping[str, tuple[str, tuple[int, ...]]]
) -> SharePartitionDescription:
    topic_id, log_ends = ends.get(at.topic, ("", ()))
    is_there = topic_id == state.topic_id and at.partition < len(log_ends)

    def count(kind: RecordState) -> int:
        return sum(each.offset_count for each in state.ranges if each.state is kind)

    return SharePartitionDescription(
        partition=at,
        start_offset=state.start_offset,
        end_offset=state.end_offset,
        log_end_offset=log_ends[at.partition] if is_there else None,
        available=count(RecordState.AVAILABLE),
        acquired=count(RecordState.ACQUIRED),
    )


def _create(
    cluster: Cluster, group: str, at: TopicPartition, state: SharePartition | None, *, deadline: Deadline
) -> None:
    """Create the next entry of a partition's log, whatever the ones before say."""
    log = open_share_log(cluster, group, at)
    tokens: set[str] = set()
    while True:
        _, position = log.open_newest()
        try:
            done = log.create_next(position, partial(encode_entry, state), tokens=tokens, deadline=deadline, sync=True)
        except PositionLost:
            done = None
        if isinstance(done, Created):
            return
        if deadline.has_passed:
            raise KafkaTimeoutError(f"{log.folder} changed again and again; try again")
