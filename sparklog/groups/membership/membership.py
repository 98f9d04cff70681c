"""A consumer's membership in its group: the state that application and heartbeat thread share, behind one lock."""

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

__all__ = ["MemberSettings", "Membership", "Wanted", "member_prefix"]

_LOGGER = logging.getLogger("sparklog.groups")
_PREFIX_LENGTH = 60
NEVER_JOINED = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings of a member. Times in milliseconds."""

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
    reads_from_start: bool = False
    """See ``MemberState``."""


def member_prefix(settings: MemberSettings) -> str:
    """The beginning of a member's ids, before the part that makes each unique."""
    return (settings.instance_id or settings.client_id or "consumer")[:_PREFIX_LENGTH]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A subscription of the application."""

    version: int
    """Another one for each subscription."""
    topics: frozenset[str]
    pattern: re.Pattern[str] | None


class Membership:
    """One consumer's part in its group. Every method takes the lock; any thread may call it.

    A member id is used for one stay in the group and never again. So a member takes a partition at most once in a
    generation, and no two stamps are the same (rule G1, stamps).

    Args:
        notify: called, with the lock held, when there is something for the application to take up.
        wake: called when the heartbeat thread should run a round at once.
    """

    def __init__(
        self,
        settings: MemberSettings,
        clock: Clock,
        *,
        notify: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.reconciliation = Reconciliation(is_eager=settings.is_eager)
        self.member_id = NEVER_JOINED
        """The member id of this stay; empty outside of the group."""
        self.wanted: Wanted | None = None
        """None: out of the group."""
        self.is_parked = False
        """Did it leave since the application didn't poll, or is it fenced? Then it doesn't join by itself."""
        self.old_member_ids: set[str] = set()
        """The member ids of its earlier stays whose objects may still be there."""
        self.reported: dict[str, tuple[str, int]] = {}
        """Topics as the application's own reading saw them last: name to topic id and partition count."""
        self.doubted: set[str] = set()
        """Topics that the application's own reading didn't find any more: they are to be looked at."""
        self.resolved: frozenset[str] = frozenset()
        """The topics of the subscription, those that a pattern has found included."""
        self.missing: set[str] = set()
        """Topics that don't exist, and of which the application doesn't know yet."""
        self.notify = notify
        self._clock = clock
        self._wake = wake
        self._take_was_refused = False
        self._error: Exception | None = None
        self._fatal: SparklogError | None = None
        self._beat_ticks_ms = 0.0
        self._polled_ticks_ms = clock.ticks_ms()
        self._version = 0
        self._reported_member_id = NEVER_JOINED
        """The member id of the stay that the application knows of."""

    # What the application calls.

    def subscribe(self, topics: Iterable[str], pattern: re.Pattern[str] | None) -> None:
        """Subscribe to other topics, or to those that match a pattern."""
        with self.lock:
            self._version += 1
            if pattern is None:
                self.reconciliation.restrict(frozenset(topics))
            self.wanted = Wanted(version=self._version, topics=frozenset(topics), pattern=pattern)
            self.missing.clear()
            self._polled_ticks_ms = self._clock.ticks_ms()
        self._wake()

    def unsubscribe(self) -> None:
        """Subscribe to nothing: the application has no partitions any more. The caller makes the rounds leave."""
        with self.lock:
            self.wanted = None
            self.reconciliation.lose_all()
            self.reconciliation.lost.clear()
            self._reported_member_id = NEVER_JOINED
            self._error = None

    def polled(self) -> None:
        """Note that the application polled. A member that left since it didn't poll joins again."""
        with self.lock:
            self._polled_ticks_ms = self._clock.ticks_ms()
            if not self.is_parked or self._fatal is not None:
                return
            self.is_parked = False
        self._wake()

    def raise_error(self) -> None:
        """Raise the error that waits for the application: once, but a fatal one at each call."""
        with self.lock:
            error, self._error = self._fatal or self._error, None
        if error is not None:
            raise error.with_traceback(None)

    def report_topics(self, topics: Mapping[str, tuple[str, int]]) -> None:
        """Report topics as the application's own reading sees them: name to topic id and partition count."""
        with self.lock:
            self.reported.update(topics)
        self._wake()

    def doubt_topics(self, topics: Iterable[str]) -> None:
        """Report topics that the application's own reading didn't find any more, or not with as many partitions: the
        next round finds out whether the group must go on without them."""
        with self.lock:
            self.doubted.update(topics)
        self._wake()

    def next_missing(self) -> str | None:
        """A topic that doesn't exist, each once; None where there is no other."""
        with self.lock:
            return self.missing.pop() if self.missing else None

    def take_lost(self) -> set[TopicPartition]:
        """The partitions that were lost since the last call. A member that was silent for too long finds out here
        (rule G2, silence)."""
        with self.lock:
            self.check_silence()
            lost, self.reconciliation.lost = self.reconciliation.lost, set()
            self._reported_member_id = self.member_id
            return lost

    def to_release(self) -> set[TopicPartition]:
        """The partitions that the application must give up."""
        with self.lock:
            return set(self.reconciliation.to_release)

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that the application gave partitions up."""
        with self.lock:
            self.reconciliation.released(partitions)
        self._wake()

    def hand_over(self, assigned: Collection[TopicPartition] | None = None) -> dict[TopicPartition, OffsetRow]:
        """The partitions that the application gets, each with its row; none while it must release or lose others.

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
        """The number of partitions that each topic had when the group first subscribed to it."""
        with self.lock:
            return dict(self.reconciliation.first_counts)

    def metadata(self) -> ConsumerGroupMetadata:
        """The member as the application knows it, for ``Consumer.group_metadata``.

        After a stay that was lost, the id is still the old one until the application knows of the loss: what it read
        under that must not be committed under the new one (rule G1, stamps).
        """
        with self.lock:
            generation = self.reconciliation.generation
            return ConsumerGroupMetadata(
                group_id=self.settings.group_id,
                generation_id=generation if generation else -1,
                member_id=self._reported_member_id,
                group_instance_id=self.settings.instance_id,
            )

    @property
    def is_joining(self) -> bool:
        """Is it on its way into the group, without a generation yet?"""
        with self.lock:
            return self.wanted is not None and not self.is_parked and self.reconciliation.generation == 0

    # What the heartbeat rounds call.

    def new_member_id(self) -> str:
        """A member id that was never used before; it isn't in use yet."""
        return f"{member_prefix(self.settings)}-{uuid.uuid4()}"

    def joined(self, member_id: str, *, began_ticks_ms: float) -> None:
        """Note that the stay's first state was written, by a request that began at ``began_ticks_ms``."""
        with self.lock:
            self.member_id = member_id
            self._beat_ticks_ms = began_ticks_ms

    def heartbeat_written(self, member_id: str, *, began_ticks_ms: float) -> None:
        """Note that the others could see that it lives, by a request that began at ``began_ticks_ms``; give up
        everything if that was too late."""
        with self.lock:
            self.check_silence()
            if self.member_id == member_id:
                self._beat_ticks_ms = max(self._beat_ticks_ms, began_ticks_ms)

    def check_silence(self) -> None:
        """Give up everything if the others may have taken this member for dead (rule G2, silence)."""
        with self.lock:
            silent_ms = self._clock.ticks_ms() - self._beat_ticks_ms
            if self.member_id and silent_ms > self.settings.session_timeout_ms:
                self.lose()

    def check_poll_interval(self) -> bool:
        """Leave if the application hasn't polled for too long. True: the member leaves."""
        with self.lock:
            if not self.member_id:
                return False
            if self._clock.ticks_ms() - self._polled_ticks_ms <= self.settings.max_poll_interval_ms:
                return False
            self.is_parked = True
            self.lose()
            return True

    def lose(self, member_id: str = "") -> None:
        """End a stay: everything belongs to others by now, or may. The next stay has another member id.

        Args:
            member_id: of the stay that ended; that of the current stay by default.
        """
        with self.lock:
            if not self.member_id or (member_id and member_id != self.member_id):
                return
            self.old_member_ids.add(self.member_id)
            self.member_id = NEVER_JOINED
            self.reconciliation.lose_all()
            self.notify()

    def is_in_generation(self, member_id: str) -> bool:
        """Was a generation that has this member applied in its current stay?"""
        with self.lock:
            return self.member_id == member_id and self.reconciliation.generation > 0

    def report_missing(self, topics: set[str]) -> None:
        """Report topics that don't exist to the application."""
        with self.lock:
            self.missing |= topics
            if topics:
                self.notify()

    def fail(self, error: Exception) -> None:
        """Have the application's next call raise an error, once."""
        with self.lock:
            self._error = error
            self.notify()

    def end(self, error: SparklogError) -> None:
        """End the membership for good: everything is lost, and each poll raises the error."""
        with self.lock:
            self._fatal = error
            self.is_parked = True
            self.lose()

    def take_was_refused(self) -> bool:
        """Was a take refused since the last call, because of another one of this generation or a later one?"""
        with self.lock:
            was_refused, self._take_was_refused = self._take_was_refused, False
            return was_refused

    def take_finished(self, member_id: str, stamp: Stamp, result: Rows | Exception) -> None:
        """Note the result of a take: the rows with the stamp, or why it wasn't written."""
        with self.lock:
            self.check_silence()
            if self.member_id != member_id:  # of an earlier stay
                return
            if isinstance(result, Exception):
                _LOGGER.info("group %s: %s", self.settings.group_id, result)
                self.reconciliation.not_taken(stamp)
                self._take_was_refused |= isinstance(result, IllegalGenerationError)
                # Taking again under the same stamp settles what is unknown.
                is_settled_later = isinstance(result, (IllegalGenerationError, CommitStateUnknownError))
                if not is_settled_later and not getattr(result, "retriable", False):
                    self.fail(result)
            else:
                self.reconciliation.taken(stamp, result)
                self.notify()
