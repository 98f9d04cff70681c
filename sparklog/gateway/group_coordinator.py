"""The groups that a gateway coordinates, and the coordinators of the other groups.

A group is coordinated by the gateway that is in it by sparklog's own protocol (:mod:`sparklog.gateway.group_stay`): it
joins as the first client does, and leaves after the last. Its clients' membership is in its memory alone; offsets are
committed under its stamps, so whoever coordinated before commits no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from sparklog.errors import InvalidArgumentError, SparklogError
from sparklog.gateway.backend import Backend
from sparklog.gateway.defects import log_defect
from sparklog.gateway.error_codes import ErrorCode, coordinator_code_of
from sparklog.gateway.group_coordinated import Coordinated
from sparklog.gateway.group_look import GroupLook, look_at_group, remove_dead
from sparklog.gateway.group_offsets import GroupOffsets, KnownTopics
from sparklog.gateway.group_stay import GroupStay, Standing
from sparklog.logs import short
from sparklog.model import ConsumerGroupMetadata, TopicPartition

__all__ = ["Coordinators", "coordinators"]

_LOGGER = logging.getLogger("sparklog.gateway")
_TICK_S = 0.1
_LOOK_KNOWN_MS = 1_000.0
_UNUSED_MS = 2_000.0
"""A group in which nobody is any more is left after so long."""
_IDLE_OFFSETS_MS = 60_000.0


class Coordinators:
    """All groups of one gateway. Belongs to the event loop."""

    def __init__(self, backend: Backend) -> None:
        self.topics = KnownTopics(backend.cluster)
        self.groups: dict[str, Coordinated] = {}
        """The groups that are coordinated here."""
        self._backend = backend
        self._offsets: dict[str, GroupOffsets] = {}
        self._starting: dict[str, asyncio.Task[ErrorCode]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._looks: dict[str, tuple[float, GroupLook]] = {}
        self._ticking = asyncio.ensure_future(self._tick_all())

    # Who coordinates.

    async def coordinator_of(self, group: str, own: str) -> str:
        """The address of a group's coordinator, which is ``own`` where no other gateway has it. May raise."""
        if self._coordinates(group) or group in self._starting:
            return own
        return (await self._look(group)).coordinator or own

    def _coordinates(self, group: str) -> bool:
        return group in self.groups and not self.groups[group].is_superseded

    async def absent(self, group: str) -> ErrorCode:
        """The error for a member of a group that isn't coordinated here."""
        try:
            look = await self._look(group)
        except InvalidArgumentError:
            return ErrorCode.INVALID_GROUP_ID
        except SparklogError as error:
            return coordinator_code_of(error)
        return ErrorCode.NOT_COORDINATOR if look.coordinator else ErrorCode.UNKNOWN_MEMBER_ID

    async def _look(self, group: str) -> GroupLook:
        now = self._backend.cluster.clock.ticks_ms()
        known = self._looks.get(group)
        if known is None or now - known[0] > _LOOK_KNOWN_MS:
            look = await self._backend.run_for_group(lambda: look_at_group(self._backend.cluster, group))
            self._looks[group] = known = (now, look)
        return known[1]

    async def begin(self, group: str, address: str) -> ErrorCode:
        """Coordinate a group from now on, unless another does; afterwards it is in :attr:`groups`.

        Args:
            address: where clients reach this gateway.
        """
        if self._coordinates(group):
            return ErrorCode.NONE
        if group in self.groups:  # its clients must not join it again and again until the next tick ends it
            self._begin_end(group)
        task = self._starting.get(group)
        if task is None and len(self.groups) + len(self._starting) >= self._backend.settings.max_groups:
            _LOGGER.warning("group %s was refused: this gateway already coordinates %d groups", group, len(self.groups))
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if task is None:
            task = self._starting[group] = asyncio.ensure_future(self._start(group, address))
            task.add_done_callback(lambda _: self._starting.pop(group))
        return await asyncio.shield(task)

    async def _start(self, group: str, address: str) -> ErrorCode:
        cluster, settings = self._backend.cluster, self._backend.settings
        if group in self._ending:
            await asyncio.shield(self._ending[group])
        try:
            self._looks.pop(group, None)
            look = await self._look(group)
            if look.coordinator:
                return ErrorCode.NOT_COORDINATOR
            if look.consumers:
                _LOGGER.warning("a client was refused: group %s has members that are sparklog's consumers", group)
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            await self._backend.run_for_group(lambda: remove_dead(cluster, group, look.dead))
        except SparklogError as error:
            _LOGGER.warning("group %s: %s", group, error)
            return coordinator_code_of(error)
        offsets = self._offsets_of(group)
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        stay = GroupStay(
            cluster,
            group,
            offsets.thread,
            address=address,
            session_timeout_ms=settings.coordinator_session_timeout_ms,
            heartbeat_interval_ms=settings.coordinator_heartbeat_interval_ms,
            commit_timeout_ms=settings.offset_commit_timeout_ms,
            notify=notify,
        )
        offsets.users += 1
        stay.begin()
        standing = await _settled(stay, changed, settings.coordinator_session_timeout_ms / 1_000)
        if standing is Standing.COORDINATES:
            self.groups[group] = Coordinated(self._backend, group, stay, offsets, self.topics)
            return ErrorCode.NONE
        await self._leave(group, stay, offsets)
        return _REFUSALS.get(standing, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def end(self, group: str) -> None:
        """Coordinate a group no more; returns once others may have it."""
        if group in self.groups:
            self._begin_end(group)
        if group in self._ending:
            await asyncio.shield(self._ending[group])

    def _begin_end(self, group: str) -> None:
        coordinated = self.groups.pop(group)
        coordinated.end()
        task = asyncio.ensure_future(self._leave(group, coordinated.stay, coordinated.offsets))
        self._ending[group] = task
        task.add_done_callback(lambda _: self._ending.pop(group))

    async def end_unused(self, group: str) -> None:
        """End it where nobody is in it; a member whose session has ended since the last tick is none."""
        if group not in self.groups:
            return
        self.groups[group].tick()
        if self.groups[group].is_unused:
            await self.end(group)

    async def _leave(self, group: str, stay: GroupStay, offsets: GroupOffsets) -> None:
        self._looks.pop(group, None)
        deadline = self._backend.cluster.clock.deadline_in(self._backend.settings.coordinator_session_timeout_ms)
        try:
            await self._backend.run(lambda: stay.leave(deadline))
        finally:
            self._looks.pop(group, None)
            offsets.users -= 1

    # Offsets.

    def _offsets_of(self, group: str) -> GroupOffsets:
        offsets = self._offsets.get(group)
        if offsets is None:
            self._make_room()
            timeout_ms = float(self._backend.settings.offset_commit_timeout_ms)
            offsets = self._offsets[group] = GroupOffsets(self._backend.cluster, group, timeout_ms=timeout_ms)
        offsets.used_ticks_ms = self._backend.cluster.clock.ticks_ms()
        return offsets

    def _make_room(self) -> None:
        """Let go of the offsets that weren't used for longest, where there are too many: each has a thread."""
        idle = [group for group, offsets in self._offsets.items() if not offsets.users]
        if idle and len(self._offsets) >= self._backend.settings.max_groups:
            oldest = min(idle, key=lambda group: self._offsets[group].used_ticks_ms)
            self._offsets.pop(oldest).thread.stop()

    @asynccontextmanager
    async def offsets(self, group: str) -> AsyncIterator[GroupOffsets]:
        """A group's offsets, kept while they are used."""
        offsets = self._offsets_of(group)
        offsets.users += 1
        try:
            yield offsets
        finally:
            offsets.users -= 1

    async def transaction_owner(
        self,
        group: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        topic_ids: Mapping[TopicPartition, str],
    ) -> ConsumerGroupMetadata | ErrorCode:
        """The member by which a client's offsets become part of a transaction, after its partitions were taken.

        Args:
            topic_ids: the partitions, and the ids of their topics.
        """
        if generation < 0 and not member_id:
            return ConsumerGroupMetadata(group_id=group, generation_id=-1, member_id="", group_instance_id=None)
        if group not in self.groups:
            return await self.absent(group)
        coordinated = self.groups[group]
        code = coordinated.may_commit(member_id, instance_id, generation)
        if code is not ErrorCode.NONE:
            return code
        try:
            await coordinated.stay.own(topic_ids, timeout_ms=self._backend.settings.offset_commit_timeout_ms)
        except SparklogError as error:
            coordinated.note(error)
            return coordinator_code_of(error)
        return coordinated.stay.metadata()

    # Time.

    async def _tick_all(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            for group, coordinated in [*self.groups.items()]:
                try:
                    self._tick(group, coordinated)
                except Exception:  # of one group; the others go on
                    log_defect(self._backend.log_repeats, "group %s", short(group))
            self._forget_idle(self._backend.cluster.clock.ticks_ms())

    def _tick(self, group: str, coordinated: Coordinated) -> None:
        if coordinated.is_superseded or coordinated.stay.standing() is not Standing.COORDINATES:
            _LOGGER.warning("this gateway no longer coordinates group %s", group)
            self._end_aside(group)
            return
        coordinated.tick()
        if coordinated.unused_ms > _UNUSED_MS:
            self._end_aside(group)

    def _end_aside(self, group: str) -> None:
        task = asyncio.ensure_future(self.end(group))
        task.add_done_callback(self._report)

    def _report(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log_defect(self._backend.log_repeats, "a group wasn't left", error=error)

    def _forget_idle(self, now_ms: float) -> None:
        self._looks = {group: seen for group, seen in self._looks.items() if now_ms - seen[0] <= _LOOK_KNOWN_MS}
        self.topics.forget_old()
        for group, offsets in [*self._offsets.items()]:
            if not offsets.users and now_ms - offsets.used_ticks_ms > _IDLE_OFFSETS_MS:
                del self._offsets[group]
                offsets.thread.stop()

    async def close(self) -> None:
        """Leave all groups, and deliver what was to be committed."""
        self._ticking.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)
        ends = [asyncio.ensure_future(self.end(group)) for group in [*self.groups, *self._ending]]
        if ends:
            await asyncio.wait(ends)
        for task in ends:
            self._report(task)
        for offsets in self._offsets.values():
            offsets.thread.stop()
        timeout_s = self._backend.settings.offset_commit_timeout_ms / 1_000
        for offsets in self._offsets.values():
            await self._backend.run(partial(offsets.thread.join, timeout_s))


_REFUSALS = {
    Standing.BESIDE_ANOTHER: ErrorCode.NOT_COORDINATOR,
    Standing.BESIDE_CONSUMERS: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
}


async def _settled(stay: GroupStay, changed: asyncio.Event, timeout_s: float) -> Standing:
    """Where a gateway stands once it is known, or its time is over."""
    until = asyncio.get_running_loop().time() + timeout_s
    while True:
        changed.clear()
        standing = stay.standing()
        left_s = until - asyncio.get_running_loop().time()
        if standing is not Standing.JOINING or left_s <= 0:
            return standing
        try:
            await asyncio.wait_for(changed.wait(), left_s)
        except TimeoutError:
            continue


def coordinators(backend: Backend) -> Coordinators:
    """The gateway's."""
    known: Coordinators | None = backend.extras.get("groups")
    if known is None:
        known = backend.extras["groups"] = Coordinators(backend)
    return known
