"""A consumer's membership in its group: what the application and the heartbeat's thread share, behind one lock."""

from __future__ import annotations

import logging
import re
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from sparklog.clock import Clock
from sparklog.errors import CommitStateUnknownError, IllegalGenerationError, SparklogError
from sparklog.groups.assignors import Assignor
from sparklog.groups.membership.reconciliation import Reconciliation
from sparklog.groups.offsets.rows import OffsetRow, Rows, Stamp
from sparklog.model import ConsumerGroupMetadata, TopicPartition

__all__ = ["MemberSettings", "Membership", "Wanted"]

_LOGGER = logging.getLogger("sparklog.groups")
_PREFIX_LENGTH = 60
NEVER_JOINED = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What a member was told. Times in milliseconds."""

    group_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    metadata_max_age_ms: int
    """How often topics are looked for that match a pattern."""
    assignors: Mapping[str, Assignor]
    """By name, the preferred one first."""
    is_eager: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the application subscribes to."""

    version: int
    """Another one for each subscription."""
    topics: frozenset[str]
    pattern: re.Pattern[str] | None


class Membership:
    """Every method takes the lock; any thread may call it.

    A member id is used for one stay in the group and never again. So a member takes a partition at most once in a
    generation, and no two stamps are the same (rule G1).

    Args:
        tell: called, with the lock held, when there is something for the application.
        wake: called when the heartbeat's thread should do a round at once.
    """

    def __init__(
        self,
        settings: MemberSettings,
        clock: Clock,
        *,
        tell: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.reconciliation = Reconciliation(is_eager=settings.is_eager)
        self.member_id = NEVER_JOINED
        """Of this stay; empty outside of the group."""
        self.wanted: Wanted | None = None
        """None: out of the group."""
        self.is_parked = False
        """Did it leave since the application didn't poll, or is it fenced? Then it doesn't join by itself."""
        self.ghosts: set[str] = set()
        """Its earlier member ids whose objects may still be there."""
        self.told: dict[str, tuple[str, int]] = {}
        """What the application's own reading has found of topics: name to topic id and partition count."""
        self.doubted: set[str] = set()
        """Topics that the application's own reading didn't find any more: they are to be looked at."""
        self.resolved: frozenset[str] = frozenset()
        """The topics of the subscription, those that a pattern has found included."""
        self.missing: set[str] = set()
        """Topics that don't exist, not told to the application yet."""
        self.tell = tell
        self._clock = clock
        self._wake = wake
        self._error: Exception | None = None
        self._fatal: SparklogError | None = None
        self._beat_ticks_ms = 0.0
        self._polled_ticks_ms = clock.ticks_ms()
        self._version = 0
        self._told_member_id = NEVER_JOINED
        """Of the stay that the application knows of."""

    # What the application calls.

    def subscribe(self, topics: Iterable[str], pattern: re.Pattern[str] | None) -> None:
        """Want other topics, or those that match a pattern."""
        with self.lock:
            self._version += 1
            if pattern is None:
                self.reconciliation.restrict(frozenset(topics))
            self.wanted = Wanted(version=self._version, topics=frozenset(topics), pattern=pattern)
            self.missing.clear()
            self._polled_ticks_ms = self._clock.ticks_ms()
        self._wake()

    def unsubscribe(self) -> None:
        """Want nothing: the application has no partitions any more. Whoever runs the rounds must let it leave."""
        with self.lock:
            self.wanted = None
            self.reconciliation.lose_all()
            self.reconciliation.lost.clear()
            self._told_member_id = NEVER_JOINED
            self._error = None

    def polled(self) -> None:
        """The application lives. One that was put out for its silence joins again."""
        with self.lock:
            self._polled_ticks_ms = self._clock.ticks_ms()
            if not self.is_parked or self._fatal is not None:
                return
            self.is_parked = False
        self._wake()

    def raise_error(self) -> None:
        """Raise what went wrong: once, but what can't be mended again and again."""
        with self.lock:
            error, self._error = self._fatal or self._error, None
        if error is not None:
            raise error.with_traceback(None)

    def tell_topics(self, found: Mapping[str, tuple[str, int]]) -> None:
        """The application's own reading has found topics so: name to topic id and partition count."""
        with self.lock:
            self.told.update(found)
        self._wake()

    def doubt_topics(self, topics: Iterable[str]) -> None:
        """The application's own reading didn't find these any more, or not with as many partitions: whether the group
        must go on without them, the next round finds out."""
        with self.lock:
            self.doubted.update(topics)
        self._wake()

    def next_missing(self) -> str | None:
        """A topic that doesn't exist and wasn't told yet."""
        with self.lock:
            return self.missing.pop() if self.missing else None

    def take_lost(self) -> set[TopicPartition]:
        """What was lost since the last call. A member that was silent for too long finds out here (rule G2)."""
        with self.lock:
            self.check_silence()
            lost, self.reconciliation.lost = self.reconciliation.lost, set()
            self._told_member_id = self.member_id
            return lost

    def to_release(self) -> set[TopicPartition]:
        """What the application must give up."""
        with self.lock:
            return set(self.reconciliation.to_release)

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        """The application gave these up."""
        with self.lock:
            self.reconciliation.released(partitions)
        self._wake()

    def hand_over(self, assigned: Collection[TopicPartition] | None = None) -> dict[TopicPartition, OffsetRow]:
        """What the application gets, each with its row; empty while there is something for it to release or lose.

        Args:
            assigned: as of ``Reconciliation.hand_over``.
        """
        with self.lock:
            self.check_silence()
            return self.reconciliation.hand_over(assigned)

    def stamps(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Stamp]:
        """The stamps of those partitions that the application has; the others are left out."""
        with self.lock:
            self.check_silence()
            return self.reconciliation.stamps(partitions)

    def first_counts(self) -> dict[str, int]:
        """Of each topic, how many partitions it had when the group first subscribed to it."""
        with self.lock:
            return dict(self.reconciliation.first_counts)

    def metadata(self) -> ConsumerGroupMetadata:
        """As ``Consumer.group_metadata`` gives it: the member as the application knows it.

        After a stay that was lost, the id is still the old one until the application was told: what it read under that
        must not be committed under the new one (rule G1).
        """
        with self.lock:
            generation = self.reconciliation.generation
            return ConsumerGroupMetadata(
                group_id=self.settings.group_id,
                generation_id=generation if generation else -1,
                member_id=self._told_member_id,
                group_instance_id=self.settings.instance_id,
            )

    @property
    def is_joining(self) -> bool:
        """Is it on its way into the group, without a generation yet?"""
        with self.lock:
            return self.wanted is not None and not self.is_parked and self.reconciliation.generation == 0

    # What the rounds call.

    def begin_stay(self) -> str:
        """A new member id, not yet in use."""
        prefix = self.settings.instance_id or self.settings.client_id or "consumer"
        return f"{prefix[:_PREFIX_LENGTH]}-{uuid.uuid4()}"

    def joined(self, member_id: str, *, began_ticks_ms: float) -> None:
        """The first state was written, by a request that began then."""
        with self.lock:
            self.member_id = member_id
            self._beat_ticks_ms = began_ticks_ms

    def beaten(self, member_id: str, *, began_ticks_ms: float) -> None:
        """The others could see that it lives, by a request that began then; or it finds out that it was too late."""
        with self.lock:
            self.check_silence()
            if self.member_id == member_id:
                self._beat_ticks_ms = max(self._beat_ticks_ms, began_ticks_ms)

    def check_silence(self) -> None:
        """Give up everything if the others may have taken this member for dead (rule G2)."""
        with self.lock:
            silent_ms = self._clock.ticks_ms() - self._beat_ticks_ms
            if self.member_id and silent_ms > self.settings.session_timeout_ms:
                self.lose()

    def check_poll_interval(self) -> bool:
        """Leave if the application hasn't polled for too long. True: so it is."""
        with self.lock:
            if not self.member_id:
                return False
            if self._clock.ticks_ms() - self._polled_ticks_ms <= self.settings.max_poll_interval_ms:
                return False
            self.is_parked = True
            self.lose()
            return True

    def lose(self, member_id: str = "") -> None:
        """Everything belongs to others by now, or may; the next stay has another member id.

        Args:
            member_id: of the stay that ended; whichever it is by default.
        """
        with self.lock:
            if not self.member_id or (member_id and member_id != self.member_id):
                return
            self.ghosts.add(self.member_id)
            self.member_id = NEVER_JOINED
            self.reconciliation.lose_all()
            self.tell()

    def is_in_generation(self, member_id: str) -> bool:
        """Has a generation had this member already?"""
        with self.lock:
            return self.member_id == member_id and self.reconciliation.generation > 0

    def note_missing(self, topics: set[str]) -> None:
        """Topics that don't exist."""
        with self.lock:
            self.missing |= topics
            if topics:
                self.tell()

    def fail(self, error: Exception) -> None:
        """Let the application know."""
        with self.lock:
            self._error = error
            self.tell()

    def end(self, error: SparklogError) -> None:
        """This membership can't go on: everything is lost, and each poll says why."""
        with self.lock:
            self._fatal = error
            self.is_parked = True
            self.lose()

    def took(self, member_id: str, stamp: Stamp, result: Rows | Exception) -> None:
        """A stamp was written, or not."""
        with self.lock:
            self.check_silence()
            if self.member_id != member_id:  # of an earlier stay
                return
            if isinstance(result, Exception):
                _LOGGER.info("group %s: %s", self.settings.group_id, result)
                self.reconciliation.not_taken(stamp)
                # Taking again under the same stamp settles what is unknown.
                is_settled_later = isinstance(result, (IllegalGenerationError, CommitStateUnknownError))
                if not is_settled_later and not getattr(result, "retriable", False):
                    self.fail(result)
            else:
                self.reconciliation.taken(stamp, result)
                self.tell()
