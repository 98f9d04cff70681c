"""kafka-python's calls about consumer groups, and the shapes of their answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sparklog.admin import EARLIEST, LATEST, Admin, GroupDescription, MemberDescription
from sparklog.admin.many import listed
from sparklog.errors import SparklogError
from sparklog.groups.membership.member_state import encode_partitions
from sparklog.kafka.admin.requests import each
from sparklog.kafka.commits import without_nulls
from sparklog.kafka.enums import GroupState, GroupType, OffsetSpec, OffsetTimestamp
from sparklog.kafka.errors import (
    GroupSubscribedToTopicError,
    IllegalArgumentError,
    InvalidTopicError,
    NoError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    code_of,
    for_code,
)
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.parallel import parallel_map

__all__ = ["GroupCalls", "MemberToRemove"]

_OF_ONE_PARTITION = (
    UnknownTopicOrPartitionError,
    InvalidTopicError,
    OffsetMetadataTooLargeError,
    IllegalArgumentError,
)
"""The errors that one partition may have while the others are fine."""
_NOTHING_COMMITTED = OffsetAndMetadata(-1)
"""Source: Kafka ``OffsetFetchResponse``: the answer for a partition without a committed offset that was asked for."""

ErrorClass = type[SparklogError]


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member to put out of its group: one of the two ids is enough."""

    member_id: str | None = None
    group_instance_id: str | None = None
    """The instance id of a static member."""
    reason: str | None = None
    """Accepted without effect."""


class GroupCalls(ABC):
    """The calls. ``group_coordinator_id`` and ``broker_ids`` have no effect: there are no brokers."""

    @abstractmethod
    def _admin(self, *, create: bool = False) -> Admin: ...

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> list[dict[str, str]]:
        """All groups, or those of some states.

        Returns:
            ``[{"group_id": …, "protocol_type": "consumer", "group_state": "Stable", "group_type": "classic"}]``
        """
        states = {GroupState.value_for(state) for state in states_filter or GroupState}
        types = {GroupType.value_for(kind) for kind in types_filter or GroupType}
        return [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state.value,
                "group_type": GroupType.CLASSIC.value,
            }
            for group in self._admin().list_group_states()
            if group.state.value in states and GroupType.CLASSIC.value in types
        ]

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """Groups by name; one that isn't there is ``Dead`` and has an ``error``, one that can't be understood is
        ``Unknown`` and has one, too."""
        return {group.group_id: _group_answer(group) for group in self._admin().describe_groups(group_ids)}

    def list_group_offsets(
        self, group_specs: str | list[str] | Mapping[str, Iterable[TopicPartition] | None]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets by group: of the partitions that are named (-1 where nothing is committed), or all."""
        specs: Mapping[str, Iterable[TopicPartition] | None]
        if isinstance(group_specs, str):
            specs = {group_specs: None}
        else:
            specs = group_specs if isinstance(group_specs, Mapping) else dict.fromkeys(group_specs)
        if not specs:
            raise IllegalArgumentError("list_group_offsets: expected at least one group")
        admin = self._admin()
        asked = {
            group: None if partitions is None else [TopicPartition(*at) for at in listed(partitions)]
            for group, partitions in specs.items()
        }
        found = parallel_map(lambda item: admin.list_group_offsets(*item), [*asked.items()])
        return {
            group: {**dict.fromkeys(partitions or (), _NOTHING_COMMITTED), **offsets}
            for (group, partitions), offsets in zip(asked.items(), found, strict=True)
        }

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, ErrorClass]:
        """Commit offsets for a group that has no members; what became of each partition, as a class."""
        wanted = without_nulls(offsets)
        if not wanted:
            return {}
        try:
            self._admin().alter_group_offsets(group_id, wanted)
        except UnknownMemberIdError as error:
            return dict.fromkeys(wanted, _class_of(error))
        except _OF_ONE_PARTITION as error:
            if len(wanted) == 1:
                return dict.fromkeys(wanted, _class_of(error))
            alone = [self.alter_group_offsets(group_id, {at: committed}) for at, committed in wanted.items()]
            return {at: outcome for one in alone for at, outcome in one.items()}
        return dict.fromkeys(wanted, NoError)

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Set where a group without members goes on: an ``OffsetSpec``, a time, or an offset for each partition.

        What is outside of a log is moved to its nearer end; what was committed keeps its metadata.

        Returns:
            ``{partition: {"error": class, "offset": what was committed}}``
        """
        if not offset_specs:
            return {}
        admin = self._admin()
        asked = {at: _spec_of(at, spec) for at, spec in offset_specs.items()}
        current = admin.list_group_offsets(group_id, asked)
        earliest = admin.list_offsets(dict.fromkeys(asked, EARLIEST))
        latest = admin.list_offsets(dict.fromkeys(asked, LATEST))
        found = admin.list_offsets({at: spec for at, (spec, is_offset) in asked.items() if not is_offset})
        wanted: dict[TopicPartition, OffsetAndMetadata] = {}
        for at, (spec, is_offset) in asked.items():
            offset = spec if is_offset else found[at].offset
            within = latest[at].offset if offset < 0 else min(max(offset, earliest[at].offset), latest[at].offset)
            wanted[at] = current.get(at, OffsetAndMetadata(0))._replace(offset=within)
        outcomes = self.alter_group_offsets(group_id, wanted)
        return {at: {"error": outcomes[at], "offset": committed.offset} for at, committed in wanted.items()}

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, ErrorClass]:
        """Forget what a group has committed for partitions; what became of each, as a class.

        Raises ``GroupIdNotFoundError``.
        """
        wanted = listed(partitions)
        if not wanted:
            return {}
        try:
            self._admin().delete_group_offsets(group_id, wanted)
        except (GroupSubscribedToTopicError, InvalidTopicError) as error:
            topics = dict.fromkeys(at[0] for at in wanted)
            if len(topics) == 1:
                return dict.fromkeys(wanted, _class_of(error))
            alone = [self.delete_group_offsets(group_id, [at for at in wanted if at[0] == topic]) for topic in topics]
            return {at: outcome for one in alone for at, outcome in one.items()}
        return dict.fromkeys(wanted, NoError)

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Delete groups that have no members: ``{group: "OK" or the name of the error}``."""
        admin = self._admin()
        outcomes = each(listed(group_ids), lambda group: admin.delete_groups([group]))
        return {group: "OK" if error is None else _class_of(error).__name__ for group, _, error in outcomes}

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, ErrorClass]:
        """Put members out of a group: ``{member id or instance id: class}``. One that still runs joins again."""
        admin = self._admin()
        wanted = [one.member_id or one.group_instance_id or "" for one in members]
        # One by one: each is a generation of its own, and two would get in each other's way.
        outcomes = each(wanted, lambda member: admin.remove_group_members(group_id, [member]), at_once=1)
        return {member: NoError if error is None else _class_of(error) for member, _, error in outcomes}


def _group_answer(group: GroupDescription) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.assignor,
        "members": [_member_answer(member) for member in group.members],
        "authorized_operations": None,
        "error": _error_of(group),
    }


def _error_of(group: GroupDescription) -> str | None:
    if group.error is not None:
        return str(group.error)
    return None if group.exists else f"unknown group: {group.group_id!r}"


def _member_answer(member: MemberDescription) -> dict[str, Any]:
    owned = [{"topic": topic, "partitions": numbers} for topic, numbers in encode_partitions(member.assignment).items()]
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.host,
        "member_metadata": {"topics": list(member.topics), "user_data": "", "owned_partitions": owned},
        "member_assignment": {"assigned_partitions": owned, "user_data": ""},
    }


def _spec_of(at: TopicPartition, spec: object) -> tuple[int, bool]:
    """A spec for ``list_offsets``, or an offset; and whether it is one."""
    if isinstance(spec, OffsetSpec):
        return int(OffsetSpec.EARLIEST if spec is OffsetSpec.EARLIEST_LOCAL else spec), False
    if isinstance(spec, OffsetTimestamp):
        return int(spec), False
    if isinstance(spec, int) and not isinstance(spec, bool):
        return spec, True
    raise IllegalArgumentError(f"reset of {at}: got {spec!r}, expected OffsetSpec, OffsetTimestamp or an offset")


def _class_of(error: SparklogError) -> ErrorClass:
    """The class by which kafka-python reports an error."""
    code = code_of(error)
    return type(error) if code < 0 else for_code(code)
