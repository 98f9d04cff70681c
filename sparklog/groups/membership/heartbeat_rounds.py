"""A member's rounds: show that it lives, see who else does, and act upon it.

A steady round is three requests whatever the group's size: the own heartbeat is written, the members are listed, and
the next generation is asked for. The rules are pure and next door (``watching``, ``proposals``, ``reconciliation``);
here is the order of the steps. After each of them the process may die or sleep for an hour.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from sparklog.clock import Clock
from sparklog.errors import CommitStateUnknownError, FencedInstanceIdError, InconsistentGroupProtocolError
from sparklog.groups.membership.generations import (
    Generation,
    GenerationPlan,
    clean_generations,
    encode_generation,
    generation_log,
)
from sparklog.groups.membership.liveness import Watched
from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.membership import Membership
from sparklog.groups.membership.proposals import (
    common_assignors,
    empty_plan,
    living_members,
    need_of,
    only_replaces,
    plan_generation,
    same_decision,
)
from sparklog.groups.membership.roster import Roster
from sparklog.groups.membership.subscribed_topics import SubscribedTopics
from sparklog.groups.membership.topic_catalog import TopicCatalog
from sparklog.groups.offsets.rows import Rows, Stamp
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.storage.entry_log import Created, PositionLost
from sparklog.storage.position import Position
from sparklog.storage.retrying import Patience

__all__ = ["Rounds", "Take"]

_LOGGER = logging.getLogger("sparklog.groups")
_FAST_PER_INTERVAL = 10
"""Rounds in a heartbeat interval while something is to be settled."""
_SLOWER = 1.5
_SHORTEST_WAIT_MS = 5.0
_MOST_RANKS = 4
"""Rounds that a member waits for those before it to propose."""
_MOST_DELAY_ROUNDS = 10
"""Where members keep coming, a generation is proposed all the same after so many rounds."""
_FIRST_AHEAD = 1
_MAX_AHEAD = 16
_CLEAN_EVERY = 50
_CONFIRMING_INTERVALS = 2
"""A member that the newest generation left out counts as gone once it was silent for so many heartbeat intervals."""
_LEAST_PATIENCE_MS = 1_000.0

Take = Callable[[Mapping[TopicPartition, str], Stamp, Callable[["Rows | Exception"], None]], None]
"""Write a stamp into the rows of partitions (with their topic ids), then call back, perhaps from another thread."""


class Rounds:
    """One consumer's rounds in its group; owned by one thread."""

    def __init__(self, cluster: Cluster, membership: Membership, take: Take) -> None:
        settings = membership.settings
        self._membership = membership
        self._settings = settings
        self._store = cluster.store
        self._clock: Clock = cluster.clock
        self._take = take
        self._generations = generation_log(cluster, settings.group_id)
        self._roster = Roster(
            cluster.store,
            cluster.clock,
            settings.group_id,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
        )
        self._catalog = TopicCatalog(cluster)
        self._subscribed = SubscribedTopics(membership, self._catalog, cluster.clock)
        self._newest: Generation | None = None
        self._position: Position | None = None
        self._predecessor = ""
        """The member whose place this one takes: it has the same instance id."""
        self._own_ids: set[str] = set()
        """Of all its stays."""
        self._earlier: set[str] = set()
        """Members with the same instance id that were there before this consumer first wrote a state. No two consumers
        are each earlier than the other."""
        self._written: MemberState | None = None
        self._need: object | None = None
        self._need_rounds = 0
        self._need_age = 0
        self._wait_ms = 0.0
        self._progress: object = None

    def round(self) -> float:
        """Do one round; returns after how many milliseconds the next is due.

        Raises:
            StoreError: the store can't be used now; the next round tries again.
            SparklogError: something that can't be understood lies in the group's folders; names it.
        """
        membership, interval_ms = self._membership, float(self._settings.heartbeat_interval_ms)
        membership.check_silence()
        membership.check_poll_interval()
        patience_ms = max(interval_ms, _LEAST_PATIENCE_MS)
        with self._store.patience(Patience(deadline_ticks_ms=self._clock.ticks_ms() + patience_ms)):
            self._bury_ghosts()
            wanted = membership.wanted
            if wanted is None or membership.is_parked:
                return interval_ms
            if membership.member_id not in self._own_ids:  # one of earlier rounds that hung isn't ours
                membership.lose()
            self._show()  # before anything that a topic could hinder
            self._subscribed.resolve(wanted)
            if not membership.member_id:
                self._join()
            self._follow()
            self._look()  # after the generations: whoever isn't seen now though the newest has it is gone
            self._claim_and_take()
            if self._propose_if_due():
                self._claim_and_take()
            self._bury_the_dead()
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
        self._follow()
        self._roster.look()  # after the newest generation is known: whoever it has is there, or has gone
        newest = self._newest
        if newest is None or member_id not in newest.plan.members:
            return
        members = living_members(self._roster.watch.members, newest.plan, me=None)
        if not members:
            self._propose(empty_plan(now_ms=self._clock.now_ms()))
        elif frozenset(common_assignors(list(members.values()))[:1]) <= self._settings.assignors.keys():
            self._propose(self._plan(members))

    # Being seen, and seeing.

    def _join(self) -> None:
        self._newest, self._position = self._generations.open_newest()
        plan = self._newest.plan if self._newest is not None else None
        holder = plan.holder_of(self._settings.instance_id) if plan is not None else ""
        if self._own_ids:
            if self._is_successor(holder):
                self._fence()
                return
        elif self._settings.instance_id is not None:
            self._earlier = self._with_its_instance_id()
        self._predecessor = holder
        member_id = self._membership.begin_stay()
        self._own_ids.add(member_id)
        state = self._state(member_id)
        began = self._clock.ticks_ms()
        self._roster.write(state)
        self._written = state
        self._need, self._need_rounds, self._need_age = None, 0, 0
        self._membership.joined(member_id, began_ticks_ms=began)

    def _with_its_instance_id(self) -> set[str]:
        """The members that are there now and have this consumer's instance id. One LIST, and a GET for each member."""
        self._roster.look()
        return {
            member_id
            for member_id, one in self._roster.watch.members.items()
            if one.state is not None and one.state.instance_id == self._settings.instance_id
        }

    def _is_successor(self, holder: str) -> bool:
        """Did the member that holds the instance id come after this consumer, or at the same time?

        Args:
            holder: a member id, or the empty string where no member holds it.
        """
        return holder not in ("", self._predecessor) and holder not in self._own_ids | self._earlier

    def _refuse(self, plan: GenerationPlan) -> None:
        theirs = sorted({name for member in plan.members.values() for name in member.assignors})
        error = f"group {self._settings.group_id!r} assigns partitions by {', '.join(theirs)}"
        self._membership.end(
            InconsistentGroupProtocolError(f"{error}; this consumer supports {', '.join(self._settings.assignors)}")
        )

    def _state(self, member_id: str) -> MemberState:
        """What this member would say of itself now."""
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
        )

    def _is_outdated(self) -> bool:
        """Is there something new to say?"""
        member_id = self._membership.member_id
        return bool(member_id) and self._state(member_id) != self._written

    def _show(self) -> None:
        """Say what is new, or only that one lives. One PUT."""
        member_id = self._membership.member_id
        if not member_id:
            return
        state = self._state(member_id)
        began = self._clock.ticks_ms()
        if state != self._written:
            self._roster.write(state)
            self._written = state
        else:
            self._roster.beat(member_id)
        self._membership.beaten(member_id, began_ticks_ms=began)

    def _look(self) -> None:
        """See who is there. What was written before can be seen by everybody who looks after this began."""
        member_id = self._membership.member_id
        if not member_id:
            return
        self._roster.look()
        own = self._roster.watch.members.get(member_id)
        if own is None or own.marks.state is None:
            _LOGGER.warning("group %s: member %s was removed by the others", self._settings.group_id, member_id)
            self._membership.lose(member_id)
        elif own.state is not None and own.state != self._written:
            # A write of before, whose answer was lost, has landed late: the claims are to be seen again.
            self._written = None

    # Generations.

    def _follow(self) -> None:
        """Act upon the generations that came, one after the other. One GET where none did."""
        ahead = _FIRST_AHEAD
        while self._position is not None:
            try:
                look = self._generations.look(self._position, ahead=ahead)
            except PositionLost:
                self._reopen()
                return
            if look.entries:
                self._generations.flush(look.position.version)
            self._position = look.position
            for generation in look.entries:
                self._apply(generation)
            if len(look.entries) < ahead:
                return
            ahead = min(2 * ahead, _MAX_AHEAD)

    def _reopen(self) -> None:
        """What went by meanwhile is unknown: whatever one had may have been somebody else's (rule G2)."""
        before = self._newest
        self._newest, self._position = self._generations.open_newest()
        if before is None or self._newest is None or before.token != self._newest.token:
            self._membership.lose(self._membership.member_id)

    def _apply(self, generation: Generation) -> None:
        before, self._newest = self._newest, generation
        keeps = before is not None and only_replaces(before.plan, generation.plan)
        membership = self._membership
        with membership.lock:
            member_id = membership.member_id
            target = generation.target_of(member_id)
            if not member_id:
                return
            if target is not None:
                self._subscribed.adopt(before.plan if before is not None else None, generation.plan, member_id)
                membership.reconciliation.apply(generation, target, topics=self._wanted_topics(), keeps=keeps)
                membership.tell()
                return
        holder = generation.plan.holder_of(self._settings.instance_id)
        if self._is_successor(holder):
            self._fence()
            return
        # A holder that was there before this consumer is replaced in its turn: the next state says so.
        self._predecessor = holder or self._predecessor
        if membership.is_in_generation(member_id):
            _LOGGER.warning("group %s went on without member %s", self._settings.group_id, member_id)
            membership.lose(member_id)
        elif generation.plan.members and not common_assignors(
            [*generation.plan.members.values(), self._state(member_id)]
        ):
            self._refuse(generation.plan)

    def _wanted_topics(self) -> frozenset[str]:
        """Those that the application wants at this moment, which may be others than as this round began."""
        wanted = self._membership.wanted
        if wanted is None:
            return frozenset()
        return self._subscribed.topics if wanted.pattern is not None else wanted.topics

    def _fence(self) -> None:
        """Somebody else has taken the place that was ours by our instance id."""
        error = f"group_instance_id {self._settings.instance_id!r} of group {self._settings.group_id!r}"
        self._membership.end(FencedInstanceIdError(f"{error} was taken over by another consumer"))

    def _claim_and_take(self) -> None:
        """Say what one claims, look again, and take what is free then. Nothing where there is nothing new to say."""
        if self._is_outdated():
            self._show()
            self._look()
        self._take_free()

    def _take_free(self) -> None:
        """Have the stamps written of what is to be ours and nobody else claims."""
        membership, newest, written = self._membership, self._newest, self._written
        if newest is None or written is None:
            return
        claimed = self._claimed(newest.plan)
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
        self._take(topic_ids, stamp, partial(membership.took, member_id, stamp))

    def _claimed(self, plan: GenerationPlan) -> set[TopicPartition]:
        """What others have, or are about to take."""
        claimed: set[TopicPartition] = set()
        for member_id, one in self._roster.watch.members.items():
            if member_id != self._membership.member_id and one.state is not None:
                is_replaced = plan.holder_of(one.state.instance_id) not in ("", member_id)
                if not is_replaced and self._lives(member_id, one, plan):
                    claimed |= one.state.claims
        return claimed

    def _lives(self, member_id: str, one: Watched, plan: GenerationPlan) -> bool:
        """May a member still act upon what it claims?"""
        if one.is_dead:
            return False
        left_out_ms = _CONFIRMING_INTERVALS * self._settings.heartbeat_interval_ms
        return member_id in plan.members or one.silence_ms < left_out_ms

    # Proposing.

    def _propose_if_due(self) -> bool:
        """True: another generation is there."""
        membership, newest, written = self._membership, self._newest, self._written
        if written is None or written.member_id != membership.member_id:
            self._need = None
            return False
        plan = newest.plan if newest is not None else None
        members = living_members(self._roster.watch.members, plan, me=written)
        need = need_of(newest, members, self._catalog.seen, self._catalog.missing)
        if need is None or written.member_id not in members:
            self._need, self._need_rounds, self._need_age = None, 0, 0
            if plan is not None and written.member_id not in members and self._is_incompatible(plan, written):
                self._refuse(plan)
            return False
        self._need_age += 1
        self._need_rounds = self._need_rounds + 1 if need == self._need else 0
        self._need = need
        rank = min(sorted(members).index(written.member_id), _MOST_RANKS)
        is_alone = len(members) == 1
        if not (is_alone or self._need_rounds > rank or self._need_age > _MOST_DELAY_ROUNDS):
            return False
        plan = self._plan(members)
        return (newest is None or not same_decision(plan, newest.plan)) and self._propose(plan)

    def _is_incompatible(self, plan: GenerationPlan, written: MemberState) -> bool:
        """Do members that were seen to live share no assignor with this one? Those of a generation that is long dead
        hinder nobody."""
        beating = [
            one.state
            for member_id, one in self._roster.watch.members.items()
            if member_id in plan.members and one.state is not None and one.beats_seen and not one.is_dead
        ]
        return bool(beating) and not common_assignors([*beating, written])

    def _plan(self, members: Mapping[str, MemberState]) -> GenerationPlan:
        catalog = self._catalog
        catalog.look({topic for state in members.values() for topic in state.topics})
        return plan_generation(
            self._newest,
            members,
            catalog.seen,
            self._settings.assignors,
            now_ms=self._clock.now_ms(),
            missing=catalog.missing,
        )

    def _propose(self, plan: GenerationPlan) -> bool:
        """Create the next generation. Whoever was faster is followed in the next round."""
        if self._position is None:
            return False
        deadline = self._clock.ticks_ms() + max(float(self._settings.heartbeat_interval_ms), _LEAST_PATIENCE_MS)
        try:
            outcome = self._generations.create_next(
                self._position, partial(encode_generation, plan), tokens=set(), deadline_ticks_ms=deadline, sync=True
            )
        except PositionLost:
            self._reopen()
            return False
        except CommitStateUnknownError as error:  # the next round follows it, if it is there, like anybody else's
            _LOGGER.info("group %s: %s", self._settings.group_id, error)
            return False
        if not isinstance(outcome, Created):
            return False
        position = outcome.position
        self._position = position
        self._apply(Generation(version=position.version, token=position.token, plan=plan))
        if position.version % _CLEAN_EVERY == 0:
            clean_generations(self._generations)
        return True

    # What is left behind.

    def _bury_ghosts(self) -> None:
        """Take away the objects of this consumer's own earlier stays.

        Those of a static member only once another generation is there: taking them away before would move its
        partitions.
        """
        membership = self._membership
        with membership.lock:
            ghosts = set(membership.ghosts)
        members = self._newest.plan.members if self._newest is not None else {}
        buried = [one for one in sorted(ghosts) if self._settings.instance_id is None or one not in members]
        self._roster.delete(*buried)
        with membership.lock:
            membership.ghosts.difference_update(buried)

    def _bury_the_dead(self) -> None:
        """Take away the objects of members that died, once the group goes on without them: whoever joins later would
        have to wait for their sessions again."""
        newest = self._newest
        if newest is None:
            return
        timeout_ms = self._settings.session_timeout_ms
        dead = [
            member_id
            for member_id, one in self._roster.watch.members.items()
            if one.is_dead or (one.marks.state is None and one.silence_ms > timeout_ms)
        ]
        self._roster.delete(*(member_id for member_id in dead if member_id not in newest.plan.members))

    # How long to wait.

    def _next_wait(self) -> float:
        """A heartbeat interval where all is settled; else less, and more again while nothing moves."""
        interval_ms = float(self._settings.heartbeat_interval_ms)
        membership = self._membership
        with membership.lock:
            reconciliation = membership.reconciliation
            is_settled = bool(membership.member_id) and reconciliation.generation > 0 and reconciliation.is_settled
            progress = (
                membership.member_id,
                reconciliation.generation,
                len(reconciliation.held),
                self._written,
                self._need,
            )
        if is_settled and self._need is None:
            self._wait_ms = interval_ms
        elif progress != self._progress:
            self._wait_ms = interval_ms / _FAST_PER_INTERVAL
        else:
            self._wait_ms = min(self._wait_ms * _SLOWER, interval_ms)
        self._progress = progress
        return max(_SHORTEST_WAIT_MS, self._wait_ms)
