"""The state machine of a classic group: its members, and the generation that each of them knows.

Everything happens in the event loop's thread, and time comes in by :meth:`ClassicGroup.tick`, as steps: a process that
was suspended takes nobody for dead for it (rule G3, observed time). Source of all rules: Kafka ``ClassicGroup``,
``GroupMetadataManager.classicGroupJoin`` and those around it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any

from sparklog.gateway.coordination.classic_members import (
    JoinRequest,
    Member,
    PendingMember,
    answer,
    join_error,
    new_member_id,
    selected_protocol,
    topics_of,
)
from sparklog.gateway.coordination.consumer_protocol import CONSUMER
from sparklog.gateway.error_codes import ErrorCode
from sparklog.logs import short

__all__ = ["ClassicGroup", "ClassicState"]

_LOGGER = logging.getLogger("sparklog.gateway")
_PENDING_HOLDS_MS = 1_000.0
"""A client that gets its member id joins with it at once. If it hasn't after so long, a rebalance goes on without it:
Kafka waits for its session timeout, but there a client doesn't change its coordinator while it joins."""


class ClassicState(str, Enum):
    """States of a classic group, by Kafka's names."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """A group of members that hear of each other by this coordinator alone.

    Args:
        generation: numbers of its generations begin after this one.
        settle: makes the partitions of topics this coordinator's, before any member is assigned them; gives
            the error that all members are answered with.
        initial_delay_ms: how long the first member waits for others.
        max_size: bound of members.
    """

    def __init__(
        self,
        group_id: str,
        *,
        generation: int,
        settle: Callable[[frozenset[str]], Awaitable[ErrorCode]],
        initial_delay_ms: float,
        max_size: int,
    ) -> None:
        self.group_id = group_id
        self.generation = generation
        self.state = ClassicState.EMPTY
        self.protocol_type = ""
        self.protocol: str | None = None
        """The assignor of this generation."""
        self.leader = ""
        self.members: dict[str, Member] = {}
        self._pending: dict[str, PendingMember] = {}
        """Member ids that were given and aren't in use yet."""
        self._settle = settle
        self._initial_delay_ms = initial_delay_ms
        self._max_size = max_size
        self._waited_ms = 0.0
        """In this state."""
        self._is_delayed = False
        self._settling: dict[int, asyncio.Task[None]] = {}
        """Assignments that are being made, by their generation."""

    @property
    def is_unused(self) -> bool:
        """Is nobody in it, nor about to be?"""
        return not self.members and not self._pending

    def topics(self) -> frozenset[str]:
        """The topics that members subscribe to; none for other groups than those of consumers."""
        return topics_of(self.members.values()) if self.protocol_type == CONSUMER else frozenset()

    # Joining.

    async def join(self, request: JoinRequest, connection_end: asyncio.Future[None] | None = None) -> dict[str, Any]:
        """Answer JoinGroup, once all members have joined or their time is over.

        Args:
            connection_end: done once the client's connection has ended. A new member then is out at once: its client
                can't know that it is one, and would be assigned partitions until its session ends.
        """
        member = self._begin_join(request)
        if not isinstance(member, Member):
            return member
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        if member.joining is not None:  # the client has asked again
            answer(member.joining, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.joining = future
        self._complete_if_all_joined()
        is_new = not member.was_answered and member.instance_id is None
        try:
            if is_new and connection_end is not None:
                ends: list[asyncio.Future[Any]] = [future, connection_end]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                if not future.done():
                    self._remove(member.member_id, "its client has gone")
            return await future
        except asyncio.CancelledError:
            if member.joining is future:
                member.joining = None
            raise

    def _begin_join(self, request: JoinRequest) -> Member | dict[str, Any]:
        """The member that waits for the others from now on, or the answer."""
        refused = self._refusal(request)
        if refused is not None:
            return join_error(refused, request.member_id)
        static = self._static_member(request.instance_id)
        if not request.member_id and static is not None:
            return self._replace(static, request)
        if not request.member_id and len(self.members) + len(self._pending) >= self._max_size:
            return join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
        if not request.member_id and request.needs_member_id and request.instance_id is None:
            member_id = new_member_id(request)
            self._pending[member_id] = PendingMember(float(request.session_timeout_ms))
            return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        if static is not None and static.member_id != request.member_id:
            return join_error(ErrorCode.FENCED_INSTANCE_ID, request.member_id)
        member = self.members.get(request.member_id)
        if member is not None and member.instance_id == request.instance_id:
            return self._rejoin(member, request)
        if request.member_id and request.member_id not in self._pending:
            return join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
        return self._add(request)

    def _refusal(self, request: JoinRequest) -> ErrorCode | None:
        others = [member for member in self.members.values() if not self._is_same(member, request)]
        if not request.protocols or not request.protocol_type:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not others:
            return None
        names = {name for name, _ in request.protocols}
        common = names.intersection(*({name for name, _ in member.protocols} for member in others))
        if request.protocol_type != self.protocol_type or not common:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _is_same(self, member: Member, request: JoinRequest) -> bool:
        if request.member_id:
            return member.member_id == request.member_id
        return member.instance_id is not None and member.instance_id == request.instance_id

    def _static_member(self, instance_id: str | None) -> Member | None:
        if instance_id is None:
            return None
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)

    def _add(self, request: JoinRequest) -> Member:
        member_id = request.member_id or new_member_id(request)
        self._pending.pop(member_id, None)
        member = Member.of(request, member_id)
        self.protocol_type = request.protocol_type
        self.members[member_id] = member
        self.leader = self.leader or member_id
        self._prepare(f"member {member_id} joins")
        return member

    def _rejoin(self, member: Member, request: JoinRequest) -> Member | dict[str, Any]:
        is_same = member.protocols == request.protocols
        if is_same and self.state is ClassicState.COMPLETING:  # the answer to its JoinGroup was lost
            member.silence_ms = 0.0
            return self._joined(member)
        is_leader = member.member_id == self.leader
        if is_same and self.state is ClassicState.STABLE and not is_leader:
            member.silence_ms = 0.0
            return self._joined(member)
        member.take_over(request)
        self.protocol_type = request.protocol_type
        self._prepare(f"member {member.member_id} joins again")
        return member

    def _replace(self, former: Member, request: JoinRequest) -> Member | dict[str, Any]:
        """A static member comes back: it has its predecessor's place under a new member id."""
        chosen_before = former.metadata(self.protocol)
        del self.members[former.member_id]
        former.end(ErrorCode.FENCED_INSTANCE_ID)
        is_leader = self.leader == former.member_id
        member_id = new_member_id(request)
        member = Member.of(request, member_id, assignment=former.assignment)
        self.members[member_id] = member
        if is_leader:
            self.leader = member_id
        is_kept = (
            selected_protocol(self.members.values()) == self.protocol
            and member.metadata(self.protocol) == chosen_before
        )
        if self.state is not ClassicState.STABLE or not is_kept:
            self._prepare(f"static member {request.instance_id} came back as {member_id}")
            return member
        joined = self._joined(member)
        if is_leader and request.may_skip_assignment:
            return {**joined, "skip_assignment": True}
        # An older client that leads would assign anew: the answer's leader is then no member. Source: KIP-345.
        return {**joined, "leader": former.member_id if is_leader else self.leader, "members": []}

    # Generations.

    def _prepare(self, why: str) -> None:
        """Begin a rebalance: every member has to join again."""
        if self.state is ClassicState.PREPARING:
            return
        _LOGGER.info("group %s rebalances after generation %d: %s", self.group_id, self.generation, short(why))
        for member in self.members.values():
            syncing, member.syncing = member.syncing, None
            if syncing is not None:
                answer(syncing, {"error_code": ErrorCode.REBALANCE_IN_PROGRESS})
        self._is_delayed = self.state is ClassicState.EMPTY and self._initial_delay_ms > 0
        self.state, self._waited_ms = ClassicState.PREPARING, 0.0
        if self._is_delayed:
            asyncio.get_running_loop().call_later(self._initial_delay_ms / 1_000, self._end_delay)

    def _end_delay(self) -> None:
        self._is_delayed = False
        self._complete_if_all_joined()

    def _complete_if_all_joined(self) -> None:
        is_held = any(pending.age_ms < _PENDING_HOLDS_MS for pending in self._pending.values())
        is_all = not is_held and all(member.joining is not None for member in self.members.values())
        if self.state is ClassicState.PREPARING and not self._is_delayed and is_all:
            self._complete()

    def _complete(self) -> None:
        """End the joining: those that haven't joined are out, but for static ones."""
        for member in [*self.members.values()]:
            if member.joining is None and member.instance_id is None:
                del self.members[member.member_id]
        if not self.members:
            self._become_empty()
            return
        joined = [member for member in self.members.values() if member.joining is not None]
        self._waited_ms = 0.0
        if not joined:  # static members alone, whose sessions go on
            return
        self.generation += 1
        self.protocol = selected_protocol(self.members.values())
        self.state = ClassicState.COMPLETING
        if self.leader not in {member.member_id for member in joined}:
            self.leader = joined[0].member_id
        for member in joined:
            future, member.joining, member.silence_ms = member.joining, None, 0.0
            if future is not None:
                member.was_answered = True
                answer(future, self._joined(member))

    def _joined(self, member: Member) -> dict[str, Any]:
        is_leader = member.member_id == self.leader
        members = [
            {
                "member_id": each.member_id,
                "group_instance_id": each.instance_id,
                "metadata": each.metadata(self.protocol),
            }
            for each in self.members.values()
        ]
        return {
            "generation_id": self.generation,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "leader": self.leader,
            "member_id": member.member_id,
            "members": members if is_leader else [],
        }

    def _become_empty(self) -> None:
        self.generation += 1
        self.state, self._waited_ms = ClassicState.EMPTY, 0.0
        self.protocol, self.leader = None, ""

    # Assignments.

    async def sync(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> dict[str, Any]:
        """Answer SyncGroup: the leader's ``assignments`` become everybody's."""
        code = self.check(member_id, instance_id, generation)
        if code is ErrorCode.NONE and (
            protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol)
        ):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code is ErrorCode.NONE and self.state is ClassicState.PREPARING:
            code = ErrorCode.REBALANCE_IN_PROGRESS
        if code is not ErrorCode.NONE:
            return {"error_code": code}
        member = self.members[member_id]
        member.silence_ms = 0.0
        if self.state is ClassicState.STABLE:
            return self._synced(member)
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        member.syncing = future
        if member_id == self.leader and generation not in self._settling:
            self._settling[generation] = asyncio.ensure_future(self._make_stable(generation, dict(assignments)))
        try:
            return await future
        except asyncio.CancelledError:  # the client has gone
            if member.syncing is future:
                member.syncing = None
            raise

    async def _make_stable(self, generation: int, assignments: dict[str, bytes]) -> None:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            code = await self._settle(self.topics())
        finally:
            del self._settling[generation]
            if self.state is ClassicState.COMPLETING and self.generation == generation:
                self._end_sync(code, assignments)

    def _end_sync(self, code: ErrorCode, assignments: dict[str, bytes]) -> None:
        is_settled = code is ErrorCode.NONE
        if is_settled:
            self.state, self._waited_ms = ClassicState.STABLE, 0.0
        for member in self.members.values():
            member.assignment = assignments.get(member.member_id, b"") if is_settled else b""
            syncing, member.syncing, member.silence_ms = member.syncing, None, 0.0
            if syncing is not None:
                answer(syncing, self._synced(member) if is_settled else {"error_code": code})
        if not is_settled:
            self._prepare(f"its assignment couldn't be made: {code.name}")

    def _synced(self, member: Member) -> dict[str, Any]:
        return {
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol,
            "assignment": member.assignment,
        }

    # What members ask later.

    def check(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Is this a member, of this generation?"""
        static = self._static_member(instance_id)
        if static is not None and static.member_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members or (instance_id is not None and static is None):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if generation == self.generation else ErrorCode.ILLEGAL_GENERATION

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Answer Heartbeat."""
        code = self.check(member_id, instance_id, generation)
        if code is not ErrorCode.NONE:
            return code
        self.members[member_id].silence_ms = 0.0
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is ClassicState.PREPARING else ErrorCode.NONE

    def may_commit(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """May this member commit offsets now? Source: Kafka ``ClassicGroup.validateOffsetCommit``."""
        code = self.check(member_id, instance_id, generation)
        if code is not ErrorCode.NONE:
            return code
        self.members[member_id].silence_ms = 0.0
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is ClassicState.COMPLETING else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Answer LeaveGroup, of one member; an administrator names a static one by its instance id alone."""
        static = self._static_member(instance_id)
        if instance_id is not None and static is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if static is not None and member_id not in ("", static.member_id):
            return ErrorCode.FENCED_INSTANCE_ID
        leaving = static.member_id if static is not None else member_id
        if self._pending.pop(leaving, None) is not None:
            self._complete_if_all_joined()
            return ErrorCode.NONE
        if leaving not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(leaving, "it leaves")
        return ErrorCode.NONE

    def _remove(self, member_id: str, why: str) -> None:
        member = self.members.pop(member_id)
        member.end(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.leader == member_id:
            self.leader = next(iter(self.members), "")
        if self.state is ClassicState.PREPARING:
            if not self.members and not self._pending:
                self._become_empty()
            self._complete_if_all_joined()
        else:
            self._prepare(f"member {member_id} was removed: {why}")
            self._complete_if_all_joined()

    # Time.

    def tick(self, elapsed_ms: float) -> None:
        """Let time pass: sessions end, and those who are waited for for too long are waited for no more."""
        for member_id, pending in [*self._pending.items()]:
            pending.age_ms += elapsed_ms
            if pending.age_ms >= pending.session_timeout_ms:
                del self._pending[member_id]
        for member in [*self.members.values()]:
            member.silence_ms = 0.0 if member.is_waiting else member.silence_ms + elapsed_ms
            if member.silence_ms > member.session_timeout_ms and member.member_id in self.members:
                self._remove(member.member_id, "its session ended")
        self._waited_ms += elapsed_ms
        longest_ms = max((member.rebalance_timeout_ms for member in self.members.values()), default=0)
        is_late = self._waited_ms > longest_ms
        if self.state is ClassicState.PREPARING:
            if is_late and not self._is_delayed:
                self._complete()
            else:
                self._complete_if_all_joined()
        elif self.state is ClassicState.COMPLETING and is_late and not self._settling:
            for member_id in [each.member_id for each in self.members.values() if each.syncing is None]:
                if member_id in self.members:
                    self._remove(member_id, "it didn't take its assignment")

    def end(self, code: ErrorCode) -> None:
        """Answer all that waits: this is no longer the coordinator."""
        members, self.members, self._pending = self.members, {}, {}
        self.state = ClassicState.EMPTY
        for member in members.values():
            member.end(code)
