"""An administrator's calls about groups, beside members that may be at work (rule G5,
administrators).

Nothing here is trusted to be true a moment later: what is changed is fenced by an empty generation, or is refused by
the offset table where a member has taken the partition since.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from sparklog.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidTopicError,
    NonEmptyGroupError,
    NotATopicError,
    StoreUnavailableError,
    TopicShrunkError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    as_sparklog_error,
)
from sparklog.groups.admin.description import (
    GroupDescription,
    current_offsets,
    describe,
    topics_of,
    undescribed,
)
from sparklog.groups.admin.emptiness import SeenNow, StoreNow, empty_generation
from sparklog.groups.admin.inspection import InspectedGroup, group_folders, inspect_group
from sparklog.groups.membership.roster import list_members, read_members
from sparklog.groups.offsets.changes import Change, CommitUnowned, DeleteAll, ExpireOffsets
from sparklog.groups.offsets.offset_state import look_once, offset_log
from sparklog.groups.offsets.offset_table import OffsetTable
from sparklog.groups.offsets.pending import Deciding, pending_deciders, settle_pending, stable_rows
from sparklog.groups.offsets.rows import Rows
from sparklog.log import Cluster, TopicDescription, describe_topic
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.parallel import parallel_map
from sparklog.paths import member_heartbeat, member_state
from sparklog.storage.each_alone import each_alone

__all__ = [
    "alter_offsets",
    "committed_offsets",
    "delete_group",
    "delete_offsets",
    "describe_groups",
    "has_members",
    "remove_members",
]

_ATTEMPTS = 5


def describe_groups(
    cluster: Cluster, groups: Sequence[str] | None = None, *, by_store_time: bool = False
) -> list[GroupDescription]:
    """Groups as of now, in the order of ``groups``; one that isn't there is ``Dead``. All that are there by default,
    sorted.

    Each costs two LISTs and two or three GETs, and a GET for each member; each topic is looked at once, whatever the
    number of groups that read it. 32 looks at a time. A group that can't be read, or a topic, hides no other group: it
    is ``Unknown``, with the error. Writes nothing.

    Args:
        by_store_time: judge whether members live by the store's clock, which is asked for once, by a write; else by
            this machine's.
    Raises:
        InvalidArgumentError: a name that no group may have.
        StoreError.
    """
    now = StoreNow(cluster) if by_store_time else SeenNow(cluster)
    wanted_groups = group_folders(cluster) if groups is None else groups
    seen = each_alone(cluster.store, lambda group: inspect_group(cluster, group, now), wanted_groups)
    wanted = {
        topic for look in seen if isinstance(look, InspectedGroup) for topic in topics_of(look.members, look.rows)
    }
    names = sorted(wanted)
    looks = each_alone(cluster.store, lambda name: _topics(cluster, [name]), names)
    topics = dict(zip(names, looks, strict=True))
    described = [_described(group, look, topics) for group, look in zip(wanted_groups, seen, strict=True)]
    return [look for look in described if groups is not None or look.exists]


def has_members(group: str) -> UnknownMemberIdError:
    """The error that says why an administrator can't set offsets. Source: Kafka ``ClassicGroup.validateOffsetCommit``,
    generation -1."""
    return UnknownMemberIdError(
        f"group {group!r} has members: its offsets can be set while it has none; stop its consumers first (a static "
        "member stays until its session ends)"
    )


def committed_offsets(cluster: Cluster, group: str, deciding: Deciding) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets of a group for partitions that exist, sorted; none for a group that isn't there."""
    rows = look_once(offset_log(cluster, group))
    rows = stable_rows(group, rows, [*rows], deciding.look, now_ms=cluster.clock.now_ms(), waits=False)
    return current_offsets(rows, _topics(cluster, topics_of({}, rows)))


def alter_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    deciding: Deciding,
    *,
    timeout_ms: float,
) -> None:
    """Commit offsets into an empty group, all or none (rule G5, administrators). A group that isn't there is created. A
    transaction that left offsets of these partitions pending is decided before.

    Raises:
        UnknownMemberIdError: the group has members.
        UnknownTopicOrPartitionError, OffsetMetadataTooLargeError, InvalidArgumentError, KafkaTimeoutError, StoreError.
    """
    topics = _topics(cluster, {topic for topic, _ in offsets})
    for partition in offsets:
        _check_exists(partition, topics)
    if not offsets:
        return
    generation = empty_generation(cluster, group, has_members(group))
    topic_ids = {partition: topics[partition.topic].topic_id for partition in offsets}
    change = CommitUnowned(offsets=offsets, topic_ids=topic_ids, generation=generation)
    table = OffsetTable(cluster, group)
    _settle(cluster, table, offsets, deciding, timeout_ms)
    _change(cluster, table, change, timeout_ms)


def delete_offsets(
    cluster: Cluster, group: str, partitions: Collection[TopicPartition], deciding: Deciding, *, timeout_ms: float
) -> None:
    """Forget what a group has committed for partitions, all or none. Where nothing is committed it is no error.

    Raises:
        GroupIdNotFoundError: there is no such group.
        GroupSubscribedToTopicError: a member subscribes to one of the topics.
        KafkaTimeoutError, StoreError.
    """
    table, wanted = OffsetTable(cluster, group), set(partitions)
    for _ in range(_ATTEMPTS):
        rows = table.fetch()  # before the members are looked at: a member that takes a partition later changes its row
        seen = inspect_group(cluster, group)
        if not seen.exists:
            raise _unknown(group)
        for member_id, state in seen.members.items():
            subscribed = sorted({topic for topic, _ in wanted}.intersection(state.topics))
            if subscribed:
                raise GroupSubscribedToTopicError(
                    f"offsets of topic {subscribed[0]!r} weren't deleted: member {member_id!r} of group {group!r} "
                    "subscribes to it"
                )
        if pending_deciders(rows, wanted):
            _settle(cluster, table, wanted, deciding, timeout_ms)
            continue
        judged = {partition: rows[partition] for partition in wanted if partition in rows}
        if not _change(cluster, table, ExpireOffsets(seen=judged), timeout_ms).keys() & wanted:
            return
    raise StoreUnavailableError(f"offsets of group {group!r} changed under {_ATTEMPTS} attempts to delete them")


def delete_group(cluster: Cluster, group: str, deciding: Deciding, *, timeout_ms: float) -> None:
    """Delete a group that has no members: its offsets, and what dead members left behind.

    A further generation says so and stays, so that numbers never restart (rule L8, one log); the name may be used
    again.

    Raises:
        GroupIdNotFoundError: there is no such group, or it is deleted already.
        NonEmptyGroupError: it has members.
        KafkaTimeoutError, StoreError: whether it is deleted is unknown; the same call again may say so.
    """
    if not inspect_group(cluster, group).exists:
        raise _unknown(group)
    remnants = list_members(cluster.store, group)
    refusal = NonEmptyGroupError(f"group {group!r} wasn't deleted: it has members; stop its consumers first")
    generation = empty_generation(cluster, group, refusal, deleted=True)
    table = OffsetTable(cluster, group)
    _settle(cluster, table, None, deciding, timeout_ms)
    _change(cluster, table, DeleteAll(generation=generation), timeout_ms)
    _delete_members(cluster, group, remnants)


def remove_members(cluster: Cluster, group: str, members: Iterable[str]) -> list[str]:
    """Put members out of a group; the others share their partitions. Returns their member ids.

    What a member has taken it can't commit any more once another has; a consumer that still runs joins again. So this
    is for static members that were closed for good: their partitions wait until their sessions end.

    Args:
        members: member ids, or instance ids of static members.
    Raises:
        UnknownMemberIdError: the group has no such member; nobody is put out.
        StoreError.
    """
    states = read_members(cluster.store, group, sorted(list_members(cluster.store, group)))
    member_ids: dict[str, None] = {}
    for wanted in members:
        matching = [i for i, state in states.items() if wanted == i or (state and state.instance_id == wanted)]
        if not matching:
            raise UnknownMemberIdError(f"group {group!r} has no member {wanted!r}")
        member_ids.update(dict.fromkeys(matching))
    _delete_members(cluster, group, member_ids)
    return list(member_ids)


def _described(
    group: str,
    seen: InspectedGroup | Exception,
    topics: Mapping[str, Mapping[str, TopicDescription] | Exception],
) -> GroupDescription:
    if not isinstance(seen, InspectedGroup):
        return undescribed(group, as_sparklog_error(seen))
    known: dict[str, TopicDescription] = {}
    for topic in topics_of(seen.members, seen.rows):
        facts = topics[topic]
        if isinstance(facts, Exception):
            return undescribed(group, as_sparklog_error(facts))
        known.update(facts)
    return describe(group, seen.newest, seen.members, seen.rows, known)


def _topics(cluster: Cluster, names: Collection[str]) -> dict[str, TopicDescription]:
    """The descriptions of those topics that exist. A GET, a LIST and a GET each, 32 at a time."""

    def look(name: str) -> TopicDescription | None:
        try:
            return describe_topic(cluster.topic_log(name), name)
        except TopicShrunkError:
            raise
        except (UnknownTopicOrPartitionError, NotATopicError, InvalidTopicError):
            return None

    return {topic.name: topic for topic in parallel_map(look, sorted(names)) if topic is not None}


def _check_exists(partition: TopicPartition, topics: Mapping[str, TopicDescription]) -> None:
    name, number = partition
    if name not in topics:
        raise UnknownTopicOrPartitionError(f"unknown topic: {name!r}")
    count = topics[name].partition_count
    if not 0 <= number < count:
        raise UnknownTopicOrPartitionError(f"topic {name!r} has no partition {number}; it has 0 to {count - 1}")


def _change(cluster: Cluster, table: OffsetTable, change: Change, timeout_ms: float) -> Rows:
    """Carry out one change; the rows afterwards. Raises why it was refused."""
    changed = table.change([change], deadline=cluster.clock.deadline_in(timeout_ms))
    if table.maintenance_due:
        table.maintain()
    for error in changed.errors:
        if error is not None:
            raise error
    return changed.rows


def _settle(
    cluster: Cluster,
    table: OffsetTable,
    partitions: Collection[TopicPartition] | None,
    deciding: Deciding,
    timeout_ms: float,
) -> None:
    """Have transactions decided that left offsets of these partitions pending, or of any: of members that are gone,
    since the group is empty."""
    rows = table.fetch()
    wanted = [*rows] if partitions is None else partitions
    if pending_deciders(rows, wanted):
        deadline = cluster.clock.deadline_in(timeout_ms)
        settle_pending(table, rows, wanted, deciding.decide, deadline=deadline)


def _delete_members(cluster: Cluster, group: str, member_ids: Iterable[str]) -> None:
    gone = [path for i in member_ids for path in (member_state(group, i), member_heartbeat(group, i))]
    if gone:
        cluster.store.delete(gone)


def _unknown(group: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(f"unknown group: {group!r}")
