"""A log of create-only entries: reading them, following them, and creating the next one. Decides nothing.

A topic's Delta log is one, and so is everything else that must be decided once (``docs/architecture.md``, The
primitive): what an entry is called and what its bytes mean, whoever keeps the log says.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Generic, Protocol, TypeVar

from sparklog.clock import Clock, Deadline
from sparklog.errors import StoreError, StoreUnavailableError
from sparklog.storage.base import CreateResult, ObjectStore
from sparklog.storage.blocked_name import gone_again
from sparklog.storage.cleanup_marks import mark_name, parse_mark
from sparklog.storage.foothold import Foothold
from sparklog.storage.log_ground import (
    check_follows,
    check_ground,
    check_place,
    grounded_again,
    is_check_due,
    unknown_outcome,
    verify_created,
)
from sparklog.storage.position import (
    DEFAULT_TAIL_TRUST_MS,
    Position,
    PositionLost,
    advance,
    last_check,
    needs_verification,
)
from sparklog.storage.refused_creates import read_refused
from sparklog.storage.retrying import Backoff

__all__ = ["Created", "EntryLog", "LogEntry", "Look", "NumberedLog", "PositionLost", "Taken", "new_token"]


class LogEntry(Protocol):
    """The attributes that every entry has."""

    @property
    def version(self) -> int:
        """The entry's number: 0, 1, 2, …"""

    @property
    def token(self) -> str:
        """Random; a hash of the content for an entry that isn't ours."""


E = TypeVar("E", bound=LogEntry)
_NUMBERED = re.compile(r"([0-9]{20})\.json")
_ATTEMPTS = 5  # to read what a listing has shown, while others clean


@dataclass(frozen=True, slots=True)
class Created:
    """The entry is ours: created now, or by an earlier attempt whose answer was lost."""

    position: Position


@dataclass(frozen=True, slots=True)
class Taken(Generic[E]):
    """Another writer's entry holds the name."""

    entry: E


@dataclass(frozen=True, slots=True)
class Look(Generic[E]):
    """The result of a look beyond a position."""

    entries: tuple[E, ...]
    """The entries that follow, without a gap."""
    position: Position
    """After applying them."""


def new_token() -> str:
    """128 random bits: no two entries carry the same."""
    return secrets.token_hex(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryLog(ABC, Generic[E]):
    """A log in a store, and the clock that positions in it are judged by."""

    store: ObjectStore
    clock: Clock
    tail_trust_ms: float = DEFAULT_TAIL_TRUST_MS
    checks_ground: bool = True
    """Does a position's ground have to be checked (rule L17, ground)? Not for who only shows what it finds, and looks
    so often that its requests count."""
    foothold: Foothold = field(default_factory=Foothold, compare=False, repr=False)
    """The place where the entries lie that were created through this object."""
    first_version: ClassVar[int] = 0
    """The number of its first entry."""

    @property
    @abstractmethod
    def folder(self) -> str:
        """The folder of its entries, with a trailing slash."""

    @abstractmethod
    def path_of(self, version: int) -> str:
        """The name of an entry."""

    @abstractmethod
    def decode(self, version: int, data: bytes) -> E:
        """An entry of its bytes. Raises ``CorruptLogError``, ``UnsupportedVersionError``."""

    def read_entry(self, version: int) -> E | None:
        """The entry of ``version``; None if there is none. Raises ``CorruptLogError``."""
        return self.read_entries(version, 1)[0]

    def read_entries(self, first: int, count: int) -> list[E | None]:
        """``count`` entries from ``first`` on, read in parallel where the store can."""
        return [found and found[0] for found in self.read_raw_entries(range(first, first + count))]

    def read_raw_entries(self, versions: Sequence[int]) -> list[tuple[E, bytes] | None]:
        """Entries with their bytes, in the order of ``versions``; None for one that isn't there."""
        paths = [self.path_of(version) for version in versions]
        found = self.store.read_many(paths)
        return [
            None if data is None else (self.decode(version, data), data)
            for version, data in zip(versions, found, strict=True)
        ]

    def look(self, position: Position, *, ahead: int = 1) -> Look[E]:
        """Read up to ``ahead`` entries beyond ``position``. One GET each, and one more when trust ran out.

        Raises:
            PositionLost: what was found isn't to be trusted (rule L1, trust).
            StoreReplacedError: the log's folder is gone.
        """
        began = self.clock.ticks_ms()
        paths = self.paths_beyond(position, ahead)
        data = self.store.read_many(paths)
        if data[0] is None:
            self.store.check_there(paths[0].rpartition("/")[0])
        return self.look_at(position, data, began_ticks_ms=began)

    def paths_beyond(self, position: Position, ahead: int) -> list[str]:
        """The names of the next ``ahead`` entries, for whoever reads those of several logs in one call to the store."""
        return [self.path_of(position.version + 1 + number) for number in range(ahead)]

    def look_at(self, position: Position, data: Sequence[bytes | None], *, began_ticks_ms: float) -> Look[E]:
        """Do the work of :meth:`look` on :meth:`paths_beyond` as read. No request, and a GET when trust ran out.

        Args:
            data: the objects under those names, in their order; None for one that isn't there.
            began_ticks_ms: when reading them began.
        Raises:
            PositionLost: what was found isn't to be trusted (rule L1, trust).
            CorruptLogError: an entry can't be read.
        """
        there = data[: data.index(None) if None in data else len(data)]
        entries = tuple(self.decode(position.version + 1 + n, one) for n, one in enumerate(there) if one is not None)
        tail_seen_at = began_ticks_ms if len(entries) < len(data) else None
        return self.look_of(position, entries, [one for one in there if one is not None], tail_seen_at=tail_seen_at)

    def look_of(
        self, position: Position, entries: Sequence[E], data: Sequence[bytes], *, tail_seen_at: float | None
    ) -> Look[E]:
        """Do the work of :meth:`look` on the entries that follow ``position``, as read and decoded. No request, but
        for those of :func:`~sparklog.storage.log_ground.check_ground` and :meth:`verify` where they are due.

        Args:
            data: the bytes of each.
            tail_seen_at: when the look began, if it found no more than these; None: more may be there.
        Raises:
            PositionLost: what was found isn't to be trusted (rule L1, trust).
            StoreReplacedError: the cluster is gone, or another one is there.
        """
        checked = self.grounded(position)
        if self._needs_verification(checked):
            self.verify(checked, is_read=checked is not position)
        position = checked
        for entry, one in zip(entries, data, strict=True):
            self._note_read(entry.version, one)
        newest = entries[-1] if entries else None
        return Look(
            tuple(entries),
            advance(
                position,
                version=newest.version if newest else position.version,
                token=newest.token if newest else position.token,
                tail_seen_at=tail_seen_at,
                is_durable=position.is_durable and newest is None,
            ),
        )

    def must_verify(self, position: Position) -> bool:
        """Must the entry at ``position`` be read again before what is learned now counts (rules L1, trust; L17,
        ground)?"""
        now = self.clock.ticks_ms()
        return self._ground_is_due(position, now) or self._needs_verification(position)

    def create_next(
        self,
        position: Position,
        encode: Callable[[str], bytes],
        *,
        tokens: set[str],
        deadline: Deadline,
        sync: bool,
        confirm: Callable[[float], None] = lambda checked_ticks_ms: None,
    ) -> Created | Taken[E]:
        """Create the entry after ``position``, and find out who holds that name, whatever the store answers.

        A create that failed is settled only by who holds the name: it is repeated until it says created or exists, and
        an entry that carries any of ``tokens`` is ours (rule L2, unknown). Also one that was refused for now: it may
        have been sent twice on its way. Another token each time, because the name may have been cleaned meanwhile:
        bytes under a name whose entry others stood on must not look like that entry (rule L1, trust).

        Args:
            encode: the entry's bytes for a token.
            tokens: of all attempts at this commit, at whichever version; each attempt adds its own.
            sync: fsync the entry (rule L9, fsync).
            confirm: called with the ticks of the newest check: files uploaded before it are to be there. Raises.
        Raises:
            PositionLost: rule L1, trust; whether the entry is in the log, the reloaded state decides.
            CommitStateUnknownError: out of time, or refused for good after an attempt that may be carried out yet.
            StoreError: the store itself refused the first attempt, or what came before it: nothing will be created.
        """
        version, position = position.version + 1, self._grounded_first(position, confirm)
        if sync:
            self._flush_before(position)
        unknown = False
        backoff: Backoff | None = None
        while True:
            began, token = self.clock.ticks_ms(), new_token()
            tokens.add(token)
            try:
                position = grounded_again(self, position, confirm) if unknown else position  # waits take long
                result = self._create(position, token, encode(token), sync=sync)
                unknown = True  # it is ours now, or may be ("exists" after a failure): only reading back settles it
                if result is CreateResult.CREATED:
                    verify_created(self, position, token)
                    return Created(advance(position, version=version, token=token, tail_seen_at=began, is_durable=sync))
                found = self.read_raw_entries([version])[0]
                if sync and found and found[0].token in tokens:  # the attempt that made it may have failed after
                    self.store.sync([self.path_of(version)])  # the link (rule L9, fsync)
                self._verify_if_due(position)
            except StoreError as error:
                if error.retriable or unknown:
                    unknown = True
                    if not error.retriable or deadline.has_passed:
                        raise unknown_outcome(self.path_of(version), error) from error
                    (backoff := backoff or Backoff(self.clock)).wait()
                    continue
                found = read_refused(self, version, error, verify=partial(self._verify_if_due, position))
            if found is None:  # taken a moment ago and gone now: somebody cleans below us
                raise gone_again(self, version, is_unknown=backoff is not None)
            self._note_read(version, found[1])
            if found[0].token not in tokens:
                return Taken(found[0])
            return Created(advance(position, version=version, token=found[0].token, is_durable=sync))

    def _create(self, position: Position, token: str, data: bytes, *, sync: bool) -> CreateResult:
        version, foothold = position.version + 1, self.foothold
        result = self.store.create_next(
            self.path_of(version),
            data,
            foothold=foothold,
            check=partial(check_place, self, position),
            is_first=not position.token,  # of an entry before
            sync=sync,
        )
        if result is CreateResult.CREATED:
            foothold.known = (version, token)
            self._note_created(version, data)
        return result

    def may_be_cleaned(self, number: int, *, is_there: bool) -> bool:
        """May a cleanup have deleted the entry of a number (rule L3, cleanup)? ``is_there``: there is one again."""
        return self.cleaned_below() > number

    def _note_created(self, version: int, data: bytes) -> None:
        """Note that an entry was created now, and with which bytes; for logs that have a use for that. No request."""

    def _note_read(self, version: int, data: bytes) -> None:
        """Note which bytes an entry has, as read now from a position that is trusted; see :meth:`_note_created`."""

    def _flush_before(self, position: Position) -> None:
        """Let the entry at ``position`` survive a power loss before another follows it: of a table its state tells who
        commits what is to be flushed. Raises ``StoreError``."""

    def verify(self, position: Position, *, is_read: bool = False) -> None:
        """Check that nothing at or behind ``position`` was deleted before this call (rule L1, trust): a GET and a LIST.

        The entry is read again, and then the marks of cleanups: old entries are deleted in no order, so an entry that
        is still there doesn't prove that the one behind it is.

        Args:
            is_read: the entry was read again just now.
        Raises:
            PositionLost: the entry is gone or another one, or a cleanup may have begun to delete from here on.
        """
        if not is_read or position.version < self.first_version:
            entry = self.read_entry(position.version) if position.version >= 0 else None
            if entry is None or entry.token != position.token:
                raise PositionLost(self.path_of(position.version))
        if not self.cleanup_marks:
            return
        began = self.clock.ticks_ms()
        is_cleaned = self.cleaned_below() > position.version
        # A mark goes only once a greater one is ten times as old: a listing that takes no longer shows one of the two.
        if is_cleaned or self.clock.ticks_ms() - began > self.tail_trust_ms:
            raise PositionLost(self.path_of(position.version))

    @property
    def cleanup_marks(self) -> str:
        """The folder of this log's cleanup marks, with a trailing slash; see :mod:`sparklog.storage.cleanup_marks`.

        Empty for a log whose entries are deleted strictly from the oldest on, each once the one before is gone.
        """
        return ""

    def cleaned_below(self) -> int:
        """The number below which entries may be cleaned (rule L3, cleanup); 0: none. A LIST. Raises ``StoreError``."""
        marks = map(parse_mark, self.store.list_names(self.cleanup_marks))
        return max((mark for mark in marks if mark is not None), default=0)

    def mark_cleaned(self, below: int) -> None:
        """Say, durably and before the first of them is deleted, that entries below ``below`` may be gone. One PUT.

        Raises ``StoreError``: then nothing may be deleted.
        """
        self.store.put(f"{self.cleanup_marks}{mark_name(below)}", b"", sync=True)

    def _verify_if_due(self, position: Position) -> None:
        if self._needs_verification(position):
            self.verify(position)

    def _needs_verification(self, position: Position) -> bool:
        now = self.clock.ticks_ms()
        return needs_verification(position, learned_ticks_ms=now, tail_trust_ms=self.tail_trust_ms)

    def grounded(self, position: Position) -> Position:
        """The position, its ground checked where that is due. Raises as :func:`check_ground`."""
        return check_ground(self, position) if self._ground_is_due(position, self.clock.ticks_ms()) else position

    def _grounded_first(self, position: Position, confirm: Callable[[float], None]) -> Position:
        """Do :meth:`grounded`, and ``confirm``, before anything is tried."""
        try:
            position = self.grounded(position)
        except PositionLost as lost:
            raise PositionLost(self.path_of(position.version + 1), nothing_tried=True) from lost
        confirm(last_check(position).ticks_ms)
        return position

    def _ground_is_due(self, position: Position, now_ticks_ms: float) -> bool:
        return self.checks_ground and is_check_due(self, position, now_ticks_ms)

    def check_cluster(self, *, is_doubtful: bool = False) -> None:
        """Is the cluster in the store still the one that was opened? One GET, at most once in ``tail_trust_ms`` for all
        logs of a process (rule L17, ground); on a folder also where another one has the root's name.

        ``is_doubtful``: look in any case, as a position was lost.
        Raises:
            StoreReplacedError: it is gone, or another one is there.
            CorruptLogError, UnsupportedVersionError, StoreError: ``cluster.json`` can't be read.
        """
        ground = self.store.ground
        if ground is not None and is_doubtful:
            ground.check()
        elif ground is not None:
            self.store.check_root()
            ground.check_if_due(self.clock, tail_trust_ms=self.tail_trust_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedLog(EntryLog[E]):
    """A log without checkpoints: entries called ``<number>.json``, from 1 on, in a folder of their own. Opening it
    lists it."""

    first_version: ClassVar[int] = 1

    def flush(self, number: int) -> None:
        """Let an entry of another process survive a power loss, before anything is done because of it: who created it
        may have died before its fsync. What lies before it, its creator has flushed (rule L9, fsync).

        Raises ``StoreError``."""
        self.store.sync([self.path_of(number)])

    def _flush_before(self, position: Position) -> None:
        if position.version > 0 and not position.is_durable:
            self.flush(position.version)

    def numbers(self) -> list[int]:
        """The numbers of the entries that are there."""
        found = (self.number_of(name) for name in self.store.list_names(self.folder))
        return [number for number in found if number is not None]

    def may_be_cleaned(self, number: int, *, is_there: bool) -> bool:
        if self.cleanup_marks:
            return self.cleaned_below() > number  # super() is lost in a class with slots
        return not is_there and max(self.numbers(), default=0) > number

    @staticmethod
    def number_of(name: str) -> int | None:
        """The number of the entry that a file of the folder is; None for another file."""
        found = _NUMBERED.fullmatch(name)
        return int(found[1]) if found else None

    def open_newest(self) -> tuple[E | None, Position]:
        """The newest entry, and where one stands after reading it. A LIST and a GET.

        Without an entry the position is before number 1. Who was silent between the two may read what a stalled process
        created under a name that had been cleaned: it lists once more, for the newest entry is never cleaned
        (rule L1, trust).

        Raises:
            StoreReplacedError: the cluster is gone, or another one is there.
            CorruptLogError, UnsupportedVersionError, StoreError.
        """
        self.check_cluster()
        for _ in range(_ATTEMPTS):
            began = self.clock.ticks_ms()
            number = max(self.numbers(), default=0)
            if number == 0:
                return None, Position(version=0, token="", anchor_ticks_ms=began)
            found = self.read_entry(number)
            is_young = self.clock.ticks_ms() - began <= self.tail_trust_ms
            if found is not None and (is_young or max(self.numbers(), default=0) == number):
                return found, Position(version=number, token=found.token, anchor_ticks_ms=began)
        raise StoreUnavailableError(f"{self.store.uri}/{self.folder} was cleaned under {_ATTEMPTS} looks")

    def open_again(self, lost: Position) -> tuple[E | None, Position]:
        """Do :meth:`open_newest` after ``lost`` was lost.

        Raises:
            StoreReplacedError: what is there doesn't go on from ``lost`` (rule L17, ground).
            CorruptLogError, UnsupportedVersionError, StoreError.
        """
        self.check_cluster(is_doubtful=True)
        newest, position = self.open_newest()
        check_follows(self, lost, position)
        return newest, position
