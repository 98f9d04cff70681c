"""A member's heartbeat rounds: each writes a heartbeat, lists the members, and acts upon new generations.

A steady round is three requests whatever the group's size: a heartbeat is written, the members are listed, the next
generation is asked for. The rules are pure, in modules of their own (``liveness``, ``proposals``, ``proposal_turn``,
``reconciliation``, ``round_pace``); here is the order of the steps. After each the process may die or sleep an hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from sparklog.clock import Clock
from sparklog.errors import CommitStateUnknownError, FencedInstanceIdError, InconsistentGroupProtocolError
from sparklog.groups.membership.generation_numbers import FollowedGenerations
from sparklog.groups.membership.generations import Generation, GenerationPlan, clean_generations
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.membership import Membership
from sparklog.groups.membership.proposal_turn import ProposalTurn
from sparklog.groups.membership.proposals import (
    common_assignors,
    empty_plan,
    is_incompatible,
    living_members,
    need_of,
    only_replaces,
    plan_generation,
    same_decision,
)
from sparklog.groups.membership.reconciliation import claimed_by_others
from sparklog.groups.membership.roster import Roster
from sparklog.groups.membership.round_pace import RoundPace
from sparklog.groups.membership.subscribed_topics import SubscribedTopics
from sparklog.groups.membership.topic_catalog import TopicCatalog
from sparklog.groups.offsets.rows import Rows, Stamp
from sparklog.log import Cluster
from sparklog.logs import warn_of_member
from sparklog.model import TopicPartition
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.retrying import Patience

__all__ = ["HeartbeatRounds", "Take"]

_LOGGER = logging.getLogger("sparklog.groups")
_FIRST_AHEAD = 1
_MAX_AHEAD = 16
_CLEAN_EVERY = 50
_CONFIRMING_INTERVALS = 2
"""A member that the newest generation left out counts as gone once it was silent for so many heartbeat intervals."""
_LEAST_PATIENCE_MS = 1_000.0

Take = Callable[[Mapping[TopicPartition, str], Stamp, Callable[["Rows | Exception"], None]], None]
"""Write a stamp into the rows of partitions (with their topic ids), then call back, perhaps from another thread."""


class HeartbeatRounds:
    """One consumer's heartbeat rounds in its group; owned by one thread."""

    def __init__(self, cluster: Cluster, membership: Membership, take: Take) -> None:
        settings = membership.settings
        self._membership = membership
        self._settings = settings
        self._store = cluster.store
        self._clock: Clock = cluster.clock
        self._take = take
        self._generations = FollowedGenerations(cluster, settings.group_id)
        self._roster = Roster(
            cluster.store,
            cluster.clock,
            settings.group_id,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
        )
        self._catalog = TopicCatalog(cluster)
        self._subscribed = SubscribedTopics(membership, self._catalog, cluster.clock)
        self.newest: Generation | None = None
        """The newest generation that it knows."""
        self._predecessor = ""
        """The member that this one replaces: it has the same instance id."""
        self._own_member_ids: set[str] = set()
        """The member ids of all of this consumer's stays in the group."""
        self._earlier_holders: set[str] = set()
        """Members with the same instance id that were there before this consumer first wrote its state. Of two
        consumers at most one counts the other among these."""
        self._written: MemberState | None = None
        """The member's own state, as it was written last."""
        self._turn = ProposalTurn()
        self._pace = RoundPace(heartbeat_interval_ms=float(settings.heartbeat_interval_ms))

    def run_round(self) -> float:
        """Do one round; returns after how many milliseconds the next is due.

        Raises:
            StoreError: the store can't be used now; the next round tries again.
            SparklogError: something that can't be understood lies in the group's folders; names it.
        """
        membership, interval_ms = self._membership, float(self._settings.heartbeat_interval_ms)
        membership.check_silence()
        membership.check_poll_interval()
        with self._store.patience(Patience(deadline=self._clock.deadline_in(max(interval_ms, _LEAST_PATIENCE_MS)))):
            self._delete_old_stays()
            wanted = membership.wanted
            if wanted is None or membership.is_parked:
                return interval_ms
            if membership.member_id not in self._own_member_ids:  # it is of other rounds, which hung
                membership.lose()
            self._generations.log.check_cluster()  # before it seems to be a member in another cluster
            self._write_heartbeat()  # before anything that a topic could hinder
            self._subscribed.resolve(wanted)
            if not membership.member_id:
                self._join()
            self._apply_new_generations()
            self._pass_stamps()
            self._list_members()  # after the generations: a member of the newest that isn't listed now is gone
            self._claim_and_take()
            if self._propose_if_due():
                self._claim_and_take()
            self._delete_dead_members()
        return self._next_wait()

    def leave(self) -> None:
        """Leave the group: take the own objects away and propose a generation without this member.

        A static member stays until its session ends, so that it can come back (Kafka's rule for ``close``).
        """
        membership = self._membership
        with membership.lock:
            member_id, membership.member_id = membership.member_id, ""
        if not member_id or self._settings.instance_id is not None:
            return
        self._roster.delete(member_id)
        self._apply_new_generations()
        self._roster.refresh()  # after the newest generation is known: each of its members is listed, or is gone
        newest = self.newest
        if newest is None or member_id not in newest.plan.members:
            return
        members = living_members(self._roster.tracker.members, newest.plan, me=None)
        if not members:
            self._propose(empty_plan(newest, now_ms=self._clock.now_ms()))
        elif frozenset(common_assignors(list(members.values()))[:1]) <= self._settings.assignors.keys():
            self._propose(self._plan_generation(members))

    # The member's own state, and the others'.

    def _join(self) -> None:
        # Before the newest generation is known: whoever a later one has is seen here, is known by then, or came later.
        if not self._own_member_ids and self._settings.instance_id is not None:
            self._earlier_holders = self._members_with_own_instance_id()
        self.newest = self._generations.open()
        plan = self.newest.plan if self.newest is not None else None
        holder = plan.holder_of(self._settings.instance_id) if plan is not None else ""
        if self._own_member_ids and self._is_successor(holder):
            self._fence()
            return
        self._predecessor = holder
        member_id = self._membership.new_member_id()
        self._own_member_ids.add(member_id)
        state = self._current_state(member_id)
        began = self._clock.ticks_ms()
        self._roster.write_state(state)
        self._written = state
        self._turn.reset()
        self._membership.joined(member_id, began_ticks_ms=began)

    def _members_with_own_instance_id(self) -> set[str]:
        """The members that are there now and have this consumer's instance id. One LIST, and a GET for each member."""
        self._roster.refresh()
        return {
            member_id
            for member_id, member in self._roster.tracker.members.items()
            if member.state is not None and member.state.instance_id == self._settings.instance_id
        }

    def _is_successor(self, holder: str) -> bool:
        """Did the member that holds the instance id come after this consumer, or at the same time?

        Args:
            holder: a member id, or the empty string where no member holds it.
        """
        return holder not in ("", self._predecessor) and holder not in self._own_member_ids | self._earlier_holders

    def _end_incompatible(self, plan: GenerationPlan) -> None:
        theirs = sorted({name for member in plan.members.values() for name in member.assignors})
        error = f"group {self._settings.group_id!r} assigns partitions by {', '.join(theirs)}"
        self._membership.end(
            InconsistentGroupProtocolError(f"{error}; this consumer supports {', '.join(self._settings.assignors)}")
        )

    def _current_state(self, member_id: str) -> MemberState:
        """This member's state as of now, which may not be written yet."""
        settings, membership = self._settings, self._membership
        with membership.lock:
            claims, generation = membership.reconciliation.claims(), membership.reconciliation.generation
        return MemberState(
            member_id=member_id,
            instance_id=settings.instance_id,
            client_id=settings.client_id,
            host=settings.host,
            topics=tuple(sorted(self._subscribed.topics)),
            assignors=tuple(settings.assignors),
            session_timeout_ms=settings.session_timeout_ms,
            generation=generation,
            claims=claims,
            replaces=self._predecessor,
            pattern=self._subscribed.pattern,
            reads_from_start=settings.reads_from_start,
        )

    def _has_unwritten_state(self) -> bool:
        """Has the member's state changed since it was written last?"""
        member_id = self._membership.member_id
        return bool(member_id) and self._current_state(member_id) != self._written

    def _write_heartbeat(self) -> None:
        """Write the member's state if it has changed, else only its heartbeat. One PUT."""
        member_id = self._membership.member_id
        if not member_id:
            return
        state = self._current_state(member_id)
        began = self._clock.ticks_ms()
        if state != self._written:
            self._roster.write_state(state)
            self._written = state
        else:
            self._roster.write_heartbeat(member_id)
        self._membership.heartbeat_written(member_id, began_ticks_ms=began)

    def _list_members(self) -> None:
        """List the members. A member that lists them after this began sees what this member wrote before."""
        member_id = self._membership.member_id
        if not member_id:
            return
        self._roster.refresh()
        own = self._roster.tracker.members.get(member_id)
        if own is None or own.marks.state is None:
            warn_of_member(_LOGGER, "group %s: member %s was removed by the others", self._settings.group_id, member_id)
            self._membership.lose(member_id)
        elif own.state is not None and own.state != self._written:
            # An earlier write, whose answer was lost, has landed late: the newest state must be written again.
            self._written = None

    # Generations.

    def _apply_new_generations(self) -> None:
        """Apply the generations that were created since the last round, in order. One GET where there is none."""
        ahead = _FIRST_AHEAD
        while self._generations.is_open:
            try:
                found = self._generations.look(ahead)
            except PositionLost:
                self._reopen_generations()
                return
            for generation in found:
                self._apply(generation)
            if len(found) < ahead:
                return
            ahead = min(2 * ahead, _MAX_AHEAD)

    def _reopen_generations(self) -> None:
        """Go on with the newest generation after some were missed: other members may have owned what this one had
        (rule G2, silence, losing everything)."""
        before = self.newest
        self.newest = self._generations.open()
        if before is None or self.newest is None or before.token != self.newest.token:
            self._membership.lose(self._membership.member_id)

    def _apply(self, generation: Generation) -> None:
        membership, before = self._membership, self.newest
        keeps = before is not None and only_replaces(before.plan, generation.plan)
        with membership.lock:  # whoever holds it sees the generation, and that this member acts upon it, or neither
            self.newest = generation
            member_id = membership.member_id
            target = generation.target_of(member_id)
            if not member_id:
                return
            if target is not None:
                self._subscribed.adopt(before.plan if before is not None else None, generation.plan, member_id)
                membership.reconciliation.apply(generation, target, topics=self._wanted_topics(), keeps=keeps)
                membership.notify()
                return
        holder = generation.plan.holder_of(self._settings.instance_id)
        if self._is_successor(holder):
            self._fence()
            return
        # A holder that was there before this consumer is replaced in its turn: the next state says so.
        self._predecessor = holder or self._predecessor
        if membership.is_in_generation(member_id):
            warn_of_member(_LOGGER, "group %s went on without member %s", self._settings.group_id, member_id)
            membership.lose(member_id)
        elif generation.plan.members and not common_assignors(
            [*generation.plan.members.values(), self._current_state(member_id)]
        ):
            self._end_incompatible(generation.plan)

    def _wanted_topics(self) -> frozenset[str]:
        """The topics that the application wants now, which may be others than when this round began."""
        wanted = self._membership.wanted
        if wanted is None:
            return frozenset()
        return self._subscribed.topics if wanted.pattern is not None else wanted.topics

    def _fence(self) -> None:
        """End the membership: another consumer has this one's instance id by now."""
        error = f"group_instance_id {self._settings.instance_id!r} of group {self._settings.group_id!r}"
        self._membership.end(FencedInstanceIdError(f"{error} was taken over by another consumer"))

    def _claim_and_take(self) -> None:
        """Take partitions that no other claims. New claims are written first, and the members listed again."""
        if self._has_unwritten_state():
            self._write_heartbeat()
            self._list_members()
        self._take_free()

    def _take_free(self) -> None:
        """Have stamps written into the rows of partitions that this member is to own and no other claims."""
        membership, newest, written = self._membership, self.newest, self._written
        if newest is None or written is None:
            return
        claimed = claimed_by_others(
            self._roster.tracker.members,
            newest.plan,
            own_id=membership.member_id,
            left_out_ms=_CONFIRMING_INTERVALS * self._settings.heartbeat_interval_ms,
        )
        with membership.lock:
            member_id = membership.member_id
            if member_id != written.member_id or newest.version != membership.reconciliation.generation:
                return
            free = membership.reconciliation.takeable(claimed, written=written.claims)
            if not free:
                return
            stamp = Stamp(newest.version, member_id)
            membership.reconciliation.begin_take(free, stamp)
        topic_ids = {partition: newest.plan.topics[partition.topic].topic_id for partition in free}
        self._take(topic_ids, stamp, partial(membership.take_finished, member_id, stamp))

    # Proposing.

    def _propose_if_due(self) -> bool:
        """Propose the next generation if one is needed and it is this member's turn. True: it was created."""
        membership, newest, written = self._membership, self.newest, self._written
        if written is None or written.member_id != membership.member_id:
            self._turn.skip_round()
            return False
        plan = newest.plan if newest is not None else None
        members = living_members(self._roster.tracker.members, plan, me=written)
        need = need_of(newest, members, self._catalog.seen, self._catalog.missing)
        if need is None or written.member_id not in members:
            self._turn.reset()
            if (
                plan is not None
                and written.member_id not in members
                and is_incompatible(self._roster.tracker.members, plan, written)
            ):
                self._end_incompatible(plan)
            return False
        rank = sorted(members).index(written.member_id)
        if not self._turn.is_due(need, rank=rank, is_alone=len(members) == 1):
            return False
        plan = self._plan_generation(members)
        return (newest is None or not same_decision(plan, newest.plan)) and self._propose(plan)

    def _plan_generation(self, members: Mapping[str, MemberState]) -> GenerationPlan:
        catalog = self._catalog
        catalog.refresh({topic for state in members.values() for topic in state.topics})
        return plan_generation(
            self.newest,
            members,
            catalog.seen,
            self._settings.assignors,
            now_ms=self._clock.now_ms(),
            missing=catalog.missing,
        )

    def _propose(self, plan: GenerationPlan) -> bool:
        """Create the next generation. One that another member created before is applied in the next round."""
        deadline = self._clock.deadline_in(max(float(self._settings.heartbeat_interval_ms), _LEAST_PATIENCE_MS))
        members = self._roster.tracker.members.values()
        told = [member.state.generation for member in members if member.state is not None]
        try:
            created = self._generations.create(plan, told, deadline=deadline)
        except PositionLost:
            self._reopen_generations()
            return False
        except CommitStateUnknownError as error:  # if it was created, the next round applies it like any other
            _LOGGER.info("group %s: %s", self._settings.group_id, error)
            return False
        if created is None:
            return False
        self._apply(created)
        if created.version % _CLEAN_EVERY == 0:
            clean_generations(self._generations.log)
        return True

    def _pass_stamps(self) -> None:
        """Repeat the newest generation until its number is above all that were used, where numbers have restarted."""
        if self._membership.take_was_refused():
            rows = self._generations.read_rows()
            self._apply_new_generations()
            if self._generations.is_behind_a_gap(self.newest, rows):
                self._reopen_generations()
                return
        deadline = self._clock.deadline_in(float(self._settings.heartbeat_interval_ms))
        while self.newest is not None and self.newest.version <= self._generations.used and not deadline.has_passed:
            if self._membership.member_id not in self.newest.plan.members or not self._propose(self.newest.plan):
                return

    # Objects that are left behind.

    def _delete_old_stays(self) -> None:
        """Delete the objects of this consumer's own earlier stays.

        Those of a static member go only once the newest generation is without them: else its partitions would move.
        """
        membership = self._membership
        with membership.lock:
            old_member_ids = sorted(membership.old_member_ids)
        members = self.newest.plan.members if self.newest is not None else {}
        unneeded = [i for i in old_member_ids if self._settings.instance_id is None or i not in members]
        self._roster.delete(*unneeded)
        with membership.lock:
            membership.old_member_ids.difference_update(unneeded)

    def _delete_dead_members(self) -> None:
        """Delete the objects of members that died, once the newest generation is without them: else members that join
        later would wait for their sessions to end."""
        newest = self.newest
        if newest is None:
            return
        timeout_ms = self._settings.session_timeout_ms
        dead = [
            member_id
            for member_id, member in self._roster.tracker.members.items()
            if member.is_dead or (member.marks.state is None and member.silence_ms > timeout_ms)
        ]
        self._roster.delete(*(member_id for member_id in dead if member_id not in newest.plan.members))

    def _next_wait(self) -> float:
        membership = self._membership
        with membership.lock:
            reconciliation = membership.reconciliation
            is_settled = bool(membership.member_id) and reconciliation.generation > 0 and reconciliation.is_settled
            progress = (
                membership.member_id,
                reconciliation.generation,
                len(reconciliation.held),
                self._written,
                self._turn.need,
            )
        return self._pace.next_wait_ms(is_settled=is_settled and self._turn.need is None, progress=progress)
