"""The calls about groups by the names that kafka-python had for them before version 3, with the answers of then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sparklog.kafka import errors
from sparklog.kafka.admin.groups import ErrorClass, GroupCalls
from sparklog.kafka.errors import UnknownError
from sparklog.kafka.structs import GroupInformation, MemberAssignment, MemberInformation, MemberMetadata
from sparklog.model import OffsetAndMetadata, TopicPartition

__all__ = ["OlderGroupCalls"]

_UNKNOWN = -1
"""Source: Kafka ``Errors.UNKNOWN_SERVER_ERROR``."""


class OlderGroupCalls(GroupCalls):
    """The calls. ``group_coordinator_id`` and ``broker_ids`` have no effect: there are no brokers."""

    def list_consumer_groups(self, broker_ids: Iterable[int] | None = None) -> list[tuple[str, str]]:
        """All groups, as :meth:`list_groups` returns them: ``[(group, protocol type)]``."""
        return [(group["group_id"], group["protocol_type"]) for group in self.list_groups()]

    def list_consumer_group_offsets(
        self,
        group_id: str,
        group_coordinator_id: int | None = None,
        partitions: Iterable[TopicPartition] | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The committed offsets of one group, as :meth:`list_group_offsets` returns them."""
        return self.list_group_offsets({group_id: partitions})[group_id]

    def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> list[GroupInformation]:
        """Groups in the order of ``group_ids``, with what :meth:`describe_groups` returns."""
        wanted = [group_ids] if isinstance(group_ids, str) else list(group_ids)
        described = self.describe_groups(wanted)
        return [_information(described[group]) for group in wanted]

    def delete_consumer_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None
    ) -> list[tuple[str, ErrorClass]]:
        """Delete groups that have no members: ``[(group, class of the error)]``, ``NoError`` for success."""
        outcomes = self.delete_groups(group_ids)
        return [
            (group, errors.NoError if outcome == "OK" else getattr(errors, outcome, UnknownError))
            for group, outcome in outcomes.items()
        ]


def _information(group: dict[str, Any]) -> GroupInformation:
    is_unknown = group["error"] is not None and group["group_state"] != "Dead"  # of then: Dead without an error
    return GroupInformation(
        error_code=_UNKNOWN if is_unknown else 0,
        group=group["group_id"],
        state=group["group_state"],
        protocol_type=group["protocol_type"],
        protocol=group["protocol_data"],
        members=[_member(member) for member in group["members"]],
        authorized_operations=group["authorized_operations"],
    )


def _member(member: dict[str, Any]) -> MemberInformation:
    assigned = member["member_assignment"]["assigned_partitions"]
    return MemberInformation(
        member_id=member["member_id"],
        client_id=member["client_id"],
        client_host=member["client_host"],
        member_metadata=MemberMetadata(0, list(member["member_metadata"]["topics"]), b""),
        member_assignment=MemberAssignment(0, [(one["topic"], list(one["partitions"])) for one in assigned], b""),
    )
