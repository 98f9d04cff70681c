"""A writer's part in group commit, and that of each of its appends: announcing, waiting for a turn, listing,
including (rule L14, announced uploads)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeAlias

from sparklog.clock import Deadline
from sparklog.delta.actions import Entry
from sparklog.delta.log import DeltaLog
from sparklog.errors import StoreError
from sparklog.log.announced.inbox import CarriedStats, TrustedAnnouncers, list_announced
from sparklog.log.announced.key_room import can_announce
from sparklog.log.announced.names import Announcement, encode_name, new_salt, topic_tag
from sparklog.log.announced.notes import MOST_MS, Notes
from sparklog.log.announced.plan import MOST_FILES, Listed, Listing, StoreClock, takeable
from sparklog.log.announced.turns import LEAST_ROUND_TRIP_MS, LONGEST_WAIT_MS, Turns, is_on
from sparklog.log.announced.writing import Claim, GroupWriting
from sparklog.log.catch_up import apply_look, catch_up, catch_up_to_tail
from sparklog.log.commit import GROUP_COMMIT_INFO
from sparklog.log.data.data_files import StagedFile, UploadedFile
from sparklog.log.data.encode import EncodedBatch
from sparklog.log.producer_state import announcer_app_id
from sparklog.log.state import TopicState
from sparklog.parallel import parallel_results
from sparklog.storage.entry_log import Look, PositionLost

__all__ = ["GroupCommit", "Participation", "announced_files"]

_LOGGER = logging.getLogger("sparklog.log")
_MOST_LISTINGS = 5
"""An append that has listed so often goes on with what it knows: others may create versions faster than it lists, and
who lists behind each of them never creates one."""
_LOOKS_FOR_VERSION = 16
"""In a cycle, at most."""
_WAITED_FOR_LOOK = 0.3
"""Looks of other writers in this process are waited for as long as this part of a cycle, once for each own look."""
_COMPANY_MS = 60_000
"""For as long after an entry of another producer a writer announces what it uploads."""
_REFUSED_FOR_MS = 60_000
"""A store that refuses a listing for good isn't asked for another before."""
_Answer: TypeAlias = "Look[Entry] | Listing | None"


class GroupCommit:
    """The knowledge that one writer has of group commit at its topic. It observes the writer's state."""

    def __init__(self, log: DeltaLog, version: int, *, is_enabled: bool) -> None:
        """
        Args:
            version: the newest that the writer has applied.
            is_enabled: off: nothing is announced, and nothing included. So it is where the names are too long, too.
        """
        self.writing = GroupWriting(version)
        self._notes = Notes(lambda: self.own_app_ids)
        self.create_ms = 0.0
        """How long the writer's newest create took whose answer came; 0: there was none."""
        self.trusted = TrustedAnnouncers()
        self.carried_stats = CarriedStats()
        self.store_clock = StoreClock()
        self.is_enabled = is_enabled and can_announce(log.store, log.table)
        self.created_version = -1
        """The newest version that this writer created."""
        self.no_listing_until_ticks_ms = float("-inf")
        self._log = log
        self._last_seen_ticks_ms = float("-inf")
        self._is_slow = False
        """Did the writer's newest create take so long that it matters which entry a flush comes into?"""

    @property
    def turns(self) -> Turns:
        """The writer's turns, as of all that was noted. For the thread that commits."""
        return self._notes.turns

    def is_on(self) -> bool:
        """Does the writer announce and include now?"""
        return self.is_enabled and is_on(self._last_seen_ticks_ms, self._log.clock.ticks_ms())

    def switch_on(self) -> None:
        """Count group commit as on from now on, as after an entry that asks for it."""
        self._last_seen_ticks_ms = self._log.clock.ticks_ms()

    def note_created(self, version: int, round_trip_ms: float) -> None:
        """Note a version that the writer created, whose entry was noted before."""
        self.created_version = version
        self._notes.note_created(version)
        is_slow = round_trip_ms >= LEAST_ROUND_TRIP_MS
        if is_slow:
            self._notes.learn()  # before :meth:`may_be_included` asks, in another thread
        self._is_slow = is_slow
        self.create_ms = round_trip_ms

    def note_took(self, listing_ms: float, create_ms: float) -> None:
        """Note how long a listing and a create of the writer took; 0: there was none."""
        self._notes.note_took(listing_ms, create_ms)

    def may_be_included(self) -> bool:
        """Is what is uploaded now to be announced? It costs no request. So a writer that knows of others does so before
        any race is lost: what isn't announced when they all begin at once, each has to create by itself."""
        if self.is_on():
            return True
        is_worth_while = self.is_enabled and self._is_slow
        return is_worth_while and self._log.clock.ticks_ms() - self._notes.company_ticks_ms <= _COMPANY_MS

    def announce(
        self,
        batches: Sequence[tuple[int, EncodedBatch]],
        *,
        topic_id: str,
        ends_before: tuple[int, ...],
        ordinary: frozenset[str],
    ) -> list[StagedFile] | None:
        """The files of a flush under names that announce it, noted as this writer's own, before they are put; None: it
        is an ordinary one. Belongs to the thread that uploads.

        Args:
            batches: of (partition, records).
            ends_before: the log end offsets that are known.
            ordinary: ordinary uploads of the writer that aren't settled.
        """
        if not (self.may_be_included() and 0 < len(batches) <= MOST_FILES):
            return None
        claim, began = self.writing.claim(ordinary), self._log.clock.ticks_ms()
        if claim is None:
            return None
        facts = announced_files(claim, batches, topic_id=topic_id, uploaded_ms=self._log.clock.now_ms())
        if facts is None:
            return None
        files = [
            StagedFile(
                facts=replace(one, value_stats=batch.value_stats, staged_ticks_ms=began),
                batch=batch,
                uploaded_ticks_ms=began,
            )
            for one, (_, batch) in zip(facts, batches, strict=True)
        ]
        is_begun = self.writing.begin(claim, files, ends_before=ends_before, began_ticks_ms=began)
        return files if is_begun else None

    def note_entry(self, entry: Entry) -> None:
        """Note an entry that the writer's state has applied."""
        self.writing.note_entry(entry)
        now = self._log.clock.ticks_ms()
        if entry.info is not None and entry.info.get(GROUP_COMMIT_INFO) is True:
            self.switch_on()
        began_ms = entry.commit_info.get("timestamp")
        age_ms: float | None = None
        if isinstance(began_ms, int) and abs(began_ms) < MOST_MS:
            age_ms = self._log.clock.now_ms() - began_ms
        self._notes.note_entry(entry, now, age_ms)
        if self._is_slow:
            self._notes.learn()

    @property
    def own_app_ids(self) -> frozenset[str]:
        """The appIds that stand for this writer's own flushes."""
        return frozenset(map(announcer_app_id, self.writing.announcers))

    def note_loaded(self, state: TopicState) -> None:
        """Note a topic that was loaded anew."""
        self.writing.note_loaded(state)


class Participation:
    """One append's part in group commit: its turn and its listing. Belongs to the thread that commits."""

    def __init__(
        self, group: GroupCommit, *, deadline: Deadline, waits: bool = True, uploaded_ticks_ms: float = -math.inf
    ) -> None:
        """
        Args:
            waits: for a turn; off: the entry is urgent, and includes nobody.
            uploaded_ticks_ms: when the newest of the append's files was uploaded.
        """
        self._group = group
        self._waits = waits
        self._deadline = deadline
        self._clock = deadline.clock
        self._uploaded_ticks_ms = uploaded_ticks_ms
        self._began_ticks_ms = deadline.clock.ticks_ms()
        self._turn_at: float | None = None
        self._drawn_version = -1
        """The version as of which the turn was drawn."""
        self._listing: Listing | None = None
        self.listed_ticks_ms = -math.inf
        """Before the newest listing began."""
        self._listed_version = -1
        self._listings = 0
        self._waited_for_version = -1
        self._listing_took_ms = 0.0

    def is_on(self) -> bool:
        """Does the writer take turns with others?"""
        return self._group.is_on()

    def switch_on(self) -> None:
        """Let the writer take turns with others, and announce what it uploads from now on."""
        self._group.switch_on()

    def took_ms(self) -> Sequence[float]:
        """How long the append's listing and the writer's create before took, for the entry; 0: there was none."""
        return [round(self._listing_took_ms, 1), round(self._group.create_ms, 1)]

    def after_loss(self, lost_races: int, round_trip_ms: float) -> None:
        """A create was lost: its turn comes later."""
        self._group.turns.note_lost(round_trip_ms)
        now, left_ms = self._clock.ticks_ms(), self._deadline.left_ms
        self._turn_at = self._group.turns.draw_after_loss(now, lost_races=lost_races, left_ms=left_ms)

    def after_commit(self, round_trip_ms: float) -> None:
        """An entry was created by this append."""
        self._group.note_took(self._listing_took_ms, round_trip_ms)

    def prepare(self, state: TopicState, *, must_create: bool, lists: bool = False) -> bool:
        """Wait for a turn, then list. True: decide again, since the state or the listing is another one.

        Args:
            must_create: nobody else publishes some of the files, so that each entry of another puts them off.
            lists: where it must create, list once nevertheless, before it waits for a version.
        Raises:
            StoreError, UnsupportedVersionError, NotATopicError.
        """
        if not self.is_on() or self._deadline.has_passed:
            return False
        if must_create and lists and self._waits and not self._listings:
            return self._list(state, is_wide=True)
        if must_create or not self._waits or self._listings >= _MOST_LISTINGS:
            return self._wait_for_version(state)
        return self._wait_for_turn(state) or self._list(state)

    def takeable(self, state: TopicState, *, room: int) -> tuple[tuple[Listed, ...], ...]:
        """The flushes of others that an entry after ``state`` may include, of ``room`` files in all."""
        listing = self._listing
        if listing is None or not self.is_on():
            return ()
        settled = {file.announcement.announcer: state.settled(file.announcement.announcer) for file in listing.files}
        return takeable(
            listing,
            head=state.head,
            settled={announcer: number for announcer, number in settled.items() if number is not None},
            forgotten_version=state.forgotten_version,
            vacuums=state.vacuums,
            trusted=self._group.trusted.trusted,
            own=self._group.writing.announcers,
            now_ticks_ms=self._clock.ticks_ms(),
            room=max(0, min(room, MOST_FILES)),
        )

    def forget_listing(self) -> None:
        """Include nobody who was listed: some of what was listed is gone."""
        self._listing = None

    def _draw(self, state: TopicState) -> float:
        """The tick of the turn. A turn isn't put off, but for a while where versions come at a pace."""
        turns, now, left_ms = self._group.turns, self._clock.ticks_ms(), self._deadline.left_ms
        if self._turn_at is None or self._drawn_version != state.position.version:
            own = self._group.own_app_ids
            is_creator = state.position.version == self._group.created_version
            drawn = turns.draw(now, is_creator=is_creator, left_ms=left_ms, own=own)
            put_off_ms = turns.put_off_ms(own, left_ms=left_ms)
            if self._turn_at is None:
                self._turn_at = drawn
            elif now - self._began_ticks_ms < put_off_ms:
                self._turn_at = min(drawn, self._began_ticks_ms + max(LONGEST_WAIT_MS, put_off_ms))
            else:
                self._turn_at = min(self._turn_at, drawn)
            self._drawn_version = state.position.version
        return self._turn_at

    def _wait_for_turn(self, state: TopicState) -> bool:
        """True: entries were applied meanwhile."""
        turns, own, turn_at = self._group.turns, self._group.own_app_ids, self._draw(state)
        if turns.is_behind(self._clock.ticks_ms(), own) and self._looks(state, own):
            return True
        while (now := self._clock.ticks_ms()) < turn_at:
            look_at = turns.next_look(now, turn_at=turn_at, uploaded_ticks_ms=self._uploaded_ticks_ms, own=own)
            self._clock.sleep_ms(max(0.0, min(turn_at, look_at) - now))
            if self._clock.ticks_ms() < turn_at and self._looks(state, own):
                return True
        return False

    def _looks(self, state: TopicState, own: frozenset[str]) -> bool:
        """Look for the versions that are expected. True: some were applied."""
        turns, began = self._group.turns, self._clock.ticks_ms()
        most_ms = _WAITED_FOR_LOOK * turns.cycle_ms
        until = min(began + most_ms, self._deadline.ticks_ms)  # of several looks that begin one after another, too
        while (now := self._clock.ticks_ms()) < until:
            since = state.log.looked_for_since(state.position, within_ms=most_ms)
            if since is None:
                break
            expected = min(since + turns.look_ms, until)  # until then nobody need ask whether it has ended
            self._clock.sleep_ms(max(1.0, turns.cycle_ms / 32, expected - now))
        version, anchor_ticks_ms = state.position.version, state.position.anchor_ticks_ms
        if self._applies_shared(state, ended_from_ticks_ms=began):
            turns.note_look(None)
            return True
        if state.position.version == version and state.position.anchor_ticks_ms > anchor_ticks_ms:
            turns.note_look(None)
            turns.note_tail(state.position.anchor_ticks_ms)
            return False
        began = self._clock.ticks_ms()
        is_new = self._applies(lambda: catch_up(state, ahead=turns.ahead(began, own)))
        turns.note_look(self._clock.ticks_ms() - began)
        if not is_new:
            turns.note_tail(began)
        return is_new

    def _applies_shared(self, state: TopicState, *, ended_from_ticks_ms: float = math.inf) -> bool:
        """Apply what other writers of this process have found. True: entries were applied."""

        def apply() -> list[Entry]:
            look = state.log.shared_look(state.position, ended_from_ticks_ms=ended_from_ticks_ms)
            return [] if look is None else apply_look(state, look)

        return self._applies(apply)

    def _wait_for_version(self, state: TopicState) -> bool:
        """Wait for the next version, for a cycle at most: who creates right behind it is faster than whoever lists
        first. True: entries were applied."""
        if state.position.version == self._waited_for_version:
            return False
        cycle_ms = self._group.turns.cycle_ms
        until = min(self._clock.ticks_ms() + cycle_ms, self._deadline.ticks_ms)
        before = state.position.version
        while True:
            with suppress(PositionLost):  # the create that follows finds out
                catch_up_to_tail(state)
            if state.position.version > before or self._clock.ticks_ms() >= until:
                break
            self._clock.sleep_ms(cycle_ms / _LOOKS_FOR_VERSION)
        self._waited_for_version = state.position.version
        return state.position.version > before

    def _list(self, state: TopicState, *, is_wide: bool = False) -> bool:
        """List once for each version, and look for the next one at the same time. True: something is new."""
        version, group = state.position.version, self._group
        now = self._clock.ticks_ms()
        if version == self._listed_version:
            return False
        if self._applies_shared(state):
            return True
        own_paths = group.writing.own_paths
        is_time_known = bool(own_paths) or group.store_clock.store_ms(now) is not None
        if now < group.no_listing_until_ticks_ms or not is_time_known:
            return self._wait_for_version(state)
        later_ms = min(group.turns.look_beside_listing_ms, max(0.0, self._deadline.ticks_ms - now) / 2)

        def look_later() -> Look[Entry]:
            self._clock.sleep_ms(later_ms)
            return state.log.look(state.position)

        def list_now() -> Listing | None:
            try:
                return list_announced(
                    state.log, version, own_paths, group.store_clock, settled=state.settled, is_wide=is_wide
                )
            finally:
                self._listing_took_ms = self._clock.ticks_ms() - now

        calls: Sequence[Callable[[], _Answer]] = (list_now, look_later)
        listing, look = parallel_results(lambda call: call(), calls)
        self._listed_version = version
        self._listings += 1
        if isinstance(listing, StoreError):
            _LOGGER.info("%s: others' uploads can't be listed: %s", state.log.table, listing)
            if not listing.retriable:
                group.no_listing_until_ticks_ms = self._clock.ticks_ms() + _REFUSED_FOR_MS
        elif isinstance(listing, Exception):
            raise listing
        elif isinstance(listing, Listing):
            self._listing, self.listed_ticks_ms = listing, now
        if self._listing is not None:
            group.trusted.check(state.log, self._listing.files)
            self._read_stats(state)
        if isinstance(look, Look):
            self._applies(lambda: apply_look(state, look))
        elif isinstance(look, Exception) and not isinstance(look, PositionLost):
            raise look
        return True

    def _read_stats(self, state: TopicState) -> None:
        """Learn the statistics of values that files of a typed topic carry which may be included."""
        leaves = state.head.typed_leaves
        if leaves:
            files = [file for flush in self.takeable(state, room=MOST_FILES) for file in flush]
            self._group.carried_stats.read(state.log, files, leaves)

    def value_stats(self, path: str) -> Mapping[str, Mapping[str, Any]]:
        """The statistics of values that an announced file of another carries; empty where none are known."""
        return self._group.carried_stats.of(path)

    def _applies(self, call: Callable[[], list[Entry]]) -> bool:
        """Does the call apply an entry? Where the position is lost, the create that follows finds out."""
        try:
            return bool(call())
        except PositionLost:
            return False


def announced_files(
    claim: Claim, batches: Sequence[tuple[int, EncodedBatch]], *, topic_id: str, uploaded_ms: int
) -> list[UploadedFile] | None:
    """The files of a flush under names that announce it; None where a fact doesn't fit into them."""
    tag = topic_tag(topic_id)
    if tag is None:
        return None
    files: list[UploadedFile] = []
    for part, (partition, batch) in enumerate(batches):
        announcement = Announcement(
            known=claim.known,
            partition=partition,
            topic=tag,
            announcer=claim.announcer,
            number=claim.number,
            ahead=claim.ahead,
            part=part,
            parts=len(batches),
            record_count=batch.record_count,
            size_bytes=len(batch.data),
            min_timestamp_ms=batch.min_timestamp_ms,
            max_timestamp_ms=batch.max_timestamp_ms,
            stamp=batch.stamp,
            uploaded_ms=uploaded_ms,
            salt=new_salt(),
        )
        if encode_name(announcement) is None:
            return None
        files.append(announcement.to_uploaded())
    return files
