"""A member of a share group: it sends heartbeats, and observes the other members (rule G3, observed time).

Nothing that must be right depends on it: whose lock counts is in the partitions' logs. So a member beats when it polls
or commits, without a thread of its own, and its session is never shorter than its locks last.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Mapping
from uuid import uuid4

from sparklog.errors import StoreError
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.roster import Roster
from sparklog.log import Cluster
from sparklog.paths import share_group_members

__all__ = ["ShareMember"]

_LOGGER = logging.getLogger("sparklog.groups")
_PREFIX_LENGTH = 60


class ShareMember:
    """One consumer in its share group. Owned by one thread.

    Args:
        interval_ms: between two heartbeats.
        session_timeout_ms: after so long a silence the others take it for dead.
    """

    def __init__(
        self, cluster: Cluster, group: str, client_id: str, *, interval_ms: float, session_timeout_ms: int
    ) -> None:
        self._clock = cluster.clock
        self._group = group
        self._client_id = client_id
        self._interval_ms = interval_ms
        self._session_timeout_ms = session_timeout_ms
        self._roster = Roster(
            cluster.store,
            cluster.clock,
            group,
            heartbeat_interval_ms=interval_ms,
            folder=share_group_members(group),
        )
        self._written: MemberState | None = None
        self._due_ticks_ms = 0.0
        self._listed_ticks_ms = -1.0
        """When the newest listing began."""
        self.member_id = self._new_id()

    def beat(self, topics: Collection[str], *, now: bool = False) -> bool:
        """Show that it lives, and look who else does, if that is due; ``now``: in any case. True: it was done.

        One PUT and one LIST, and a GET for each member that is new.

        Raises:
            StoreError: the next call tries again.
        """
        began = self._clock.ticks_ms()
        if began < self._due_ticks_ms and not now and self._written is not None:
            return False
        tracker = self._roster.tracker
        if self._written is not None and self._listed_ticks_ms >= 0:
            own = tracker.members.get(self._written.member_id)
            if own is None or own.marks.state is None:
                _LOGGER.warning("share group %s: member %s was removed by the others", self._group, self.member_id)
                self.member_id = self._new_id()
        state = self._state(topics)
        if state == self._written:
            self._roster.write_heartbeat(self.member_id)
        else:
            self._roster.write_state(state)
            self._written = state
        self._listed_ticks_ms = self._clock.ticks_ms()
        self._roster.refresh()
        self._due_ticks_ms = began + self._interval_ms
        self._roster.delete(*(member_id for member_id, member in [*tracker.members.items()] if member.is_dead))
        return True

    def beat_quietly(self, topics: Collection[str]) -> bool:
        """The same of a member that the others know; where the store refuses, the next call tries again."""
        if self._written is None:
            return False
        try:
            return self.beat(topics)
        except StoreError as error:
            _LOGGER.info("share group %s: the heartbeat of member %s failed: %s", self._group, self.member_id, error)
            return False

    def subscriptions(self) -> dict[str, frozenset[str]]:
        """The topics of each living member by its id, this one among them."""
        topics = {
            member_id: frozenset(member.state.topics)
            for member_id, member in self._roster.tracker.members.items()
            if member.state is not None and not member.is_dead
        }
        if self._written is not None:
            topics[self._written.member_id] = frozenset(self._written.topics)
        return topics

    def gone(self, holders: Mapping[str, float]) -> frozenset[str]:
        """The members that hold locks and are gone: who locks records has written its state before.

        Args:
            holders: by member id, when a look ended that showed it. A listing that began before may not have it yet.
        """
        listed = self._roster.tracker.members
        return frozenset(
            member_id
            for member_id, seen_ticks_ms in holders.items()
            if seen_ticks_ms < self._listed_ticks_ms and member_id != self.member_id and member_id not in listed
        )

    def leave(self) -> None:
        """Take the own objects away. Raises ``StoreError``."""
        written, self._written = self._written, None
        if written is not None:
            self._roster.delete(written.member_id)

    def leave_quietly(self) -> None:
        """The same; where the store refuses, the others see the session end."""
        try:
            self.leave()
        except StoreError as error:
            _LOGGER.info(
                "share group %s: member %s could not leave; its session ends by itself: %s",
                self._group,
                self.member_id,
                error,
            )

    def _new_id(self) -> str:
        return f"{(self._client_id or 'consumer')[:_PREFIX_LENGTH]}-{uuid4()}"

    def _state(self, topics: Collection[str]) -> MemberState:
        return MemberState(
            member_id=self.member_id,
            instance_id=None,
            client_id=self._client_id,
            host=socket.gethostname(),
            topics=tuple(sorted(topics)),
            assignors=(),
            session_timeout_ms=self._session_timeout_ms,
            generation=0,
            claims=frozenset(),
        )
