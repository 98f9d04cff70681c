"""The state of a group's offset table that one process knows: read from the newest commit alone, and carried on.

Every commit of ours removes all files that were live before it and adds one that holds all rows, so whoever has read
the newest entry and its file knows everything. Only behind a commit of another engine the whole table is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sparklog.delta.actions import AddFile, Entry, RemoveFile, SetTransaction
from sparklog.delta.features import CHECKPOINT_PROTECTION, WriteDemands
from sparklog.delta.listing import list_short_log
from sparklog.delta.log import DeltaLog
from sparklog.delta.snapshot import Newest, Snapshot, load_snapshot, open_newest
from sparklog.errors import (
    CorruptLogError,
    ObjectNotFoundError,
    StoreError,
    StoreUnavailableError,
    UnsupportedVersionError,
)
from sparklog.groups.offsets.offset_files import FORMAT_PROPERTY, FORMAT_VERSION, decode_rows
from sparklog.groups.offsets.rows import OffsetRow, Rows
from sparklog.log.cluster import Cluster
from sparklog.log.data.object_paths import object_path
from sparklog.model import TopicPartition
from sparklog.paths import group_offsets_table
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.log_ground import check_follows
from sparklog.storage.position import Position, advance

__all__ = [
    "COMMITTED_INFO",
    "FORMAT_INFO",
    "NO_TABLE",
    "UNSYNCED_INFO",
    "LiveFile",
    "OffsetState",
    "catch_up",
    "follow",
    "has_committed",
    "load_again",
    "load_state",
    "load_whole",
    "look_once",
    "offset_log",
    "state_of",
]

FORMAT_INFO = "offsets_format"
"""In ``commitInfo.sparklog``: the table's format, for clients that open it from the newest commit alone."""
COMMITTED_INFO = "committed"
"""In ``commitInfo.sparklog``, beside the format: how many rows have a committed offset. Older versions don't say."""
UNSYNCED_INFO = "unsynced_since"
"""In ``commitInfo.sparklog`` of an entry that was created without fsync: the first version from which on a power loss
may take entries, as far as its writer knows. Where it is missing, what lies before the entry is durable."""
NO_TABLE = -1

_ATTEMPTS = 5
_MAX_UNSYNCED = 1_000
"""More entries than this are flushed by one call for all that the file system holds."""
_COLUMNS = ("path", "size_bytes")
_LOOKS_AHEAD = (1, 4)
"""Most often nothing is new, or a few commits are; opening anew costs three requests, however many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFile:
    """A data file as the log names it."""

    path: str
    """Relative to the table's folder, percent-encoded as a URI."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetState:
    """An offset table as of one version."""

    position: Position
    """``NO_TABLE`` as its version: there was no table."""
    rows: Rows
    live: tuple[LiveFile, ...]
    """Exactly one, but for what other engines do."""
    checkpoint_version: int
    """The newest checkpoint that was seen as the table was opened; -1 for none."""
    unsynced_since: int | None
    """The first version that may not survive a power loss (rule L9, fsync), with all behind it and the live files; the
    next version: all of it does; None: not known."""
    unread: range = range(0)
    """The versions without fsync that the table was opened over: this process hasn't read them."""
    unwritable: UnsupportedVersionError | None = None
    """Why sparklog must not commit: a foreign engine demands a newer Delta writer."""

    @property
    def is_durable(self) -> bool:
        """Does all of it survive a power loss?"""
        return self.unsynced_since is not None and self.unsynced_since > self.position.version

    def unsynced(self, log: DeltaLog) -> tuple[str, ...] | None:
        """The objects that may not survive a power loss yet; None: not known which, or too many."""
        since, version = self.unsynced_since, self.position.version
        if self.is_durable:
            return ()
        if since is None or version - since >= _MAX_UNSYNCED:
            return None
        entries = (log.path_of(version_of_entry) for version_of_entry in range(since, version + 1))
        return (*(object_path(log.table, file.path) for file in self.live), *entries)


def offset_log(cluster: Cluster, group: str) -> DeltaLog:
    """The log of a group's offset table; reads nothing. Raises ``InvalidArgumentError``."""
    return DeltaLog(
        store=cluster.store,
        table=group_offsets_table(group),
        clock=cluster.clock,
        tail_trust_ms=cluster.tail_trust_ms,
    )


def load_state(log: DeltaLog, *, is_once: bool = False) -> OffsetState:
    """The table as of now: two GETs and a LIST, and a GET for the file. No rows where there is no table.

    Args:
        is_once: see :func:`~sparklog.delta.snapshot.open_newest`.
    Raises:
        CorruptLogError, UnsupportedVersionError: what is there can't be understood; see :func:`load_whole`.
        ObjectNotFoundError: the newest version's file is gone: somebody else has deleted it, or a power loss.
        StoreUnavailableError: each file that was read of was replaced for an hour already.
        StoreError.
    """
    entry: Entry | None = None
    seen: list[int] = []
    for _ in range(_ATTEMPTS):
        began = log.clock.ticks_ms()
        newest = open_newest(log, is_once=is_once)
        if newest is None:
            return _no_table(began)
        entry = newest.entry
        seen.append(newest.position.version)
        state = _state_of(log, newest.entry, newest.position, newest.checkpoint_version)
        if state is not None:
            return _with_unread(state)
    raise _always_gone(log, entry, seen)


def _with_unread(state: OffsetState) -> OffsetState:
    """The state as it is where only its newest entry was read."""
    if state.unsynced_since is None:  # the whole table was loaded
        return state
    return replace(state, unread=range(max(state.unsynced_since, state.checkpoint_version + 1), state.position.version))


def look_once(log: DeltaLog) -> Rows:
    """The rows as of now, for who looks at a table once: a LIST and two GETs where its log is short, else as
    :func:`load_state`. Raises as that."""
    newest = _newest_of_short_log(log)
    if newest is None:
        return load_state(log).rows
    return state_of(log, newest.entry, newest.position, checkpoint_version=newest.checkpoint_version).rows


def has_committed(log: DeltaLog) -> bool:
    """Has a group committed anything? A LIST and a GET where its log is short and its newest commit was one of ours,
    else as :func:`look_once`. Raises as that."""
    newest = _newest_of_short_log(log)
    if newest is not None and newest.entry.info is not None:
        committed = newest.entry.info.get(COMMITTED_INFO)
        if isinstance(committed, int):
            return committed > 0
    return any(row.committed is not None for row in look_once(log).values())


def _newest_of_short_log(log: DeltaLog) -> Newest | None:
    """A LIST and a GET; None where the table must be opened as any other."""
    listing = list_short_log(log)
    if listing is None or listing.first_gap() is not None:
        return None
    entry = log.read_entry(listing.newest_version)
    # an older one may be another by now (rule L1, trust)
    is_young = log.clock.ticks_ms() - listing.began_ticks_ms <= log.tail_trust_ms
    if entry is None or not is_young:
        return None
    position = Position(version=entry.version, token=entry.token, anchor_ticks_ms=listing.began_ticks_ms)
    return Newest(entry=entry, position=position, checkpoint_version=listing.checkpoint_version)


def load_whole(log: DeltaLog) -> tuple[OffsetState, Mapping[str, SetTransaction]]:
    """The table as of now, and every ``txn`` action by appId, whoever wrote what is there.

    Raises:
        CorruptLogError: the log, a checkpoint or a data file can't be read, the rows make no sense, or it is another
            table; names what is wrong.
        UnsupportedVersionError: a newer sparklog wrote the table, or it needs a newer Delta reader.
        ObjectNotFoundError, StoreUnavailableError, StoreError: as :func:`load_state`.
    """
    entry: Entry | None = None
    seen: list[int] = []
    for _ in range(_ATTEMPTS):
        began = log.clock.ticks_ms()
        snapshot = load_snapshot(log)
        if snapshot is None:
            return _no_table(began), {}
        entry = snapshot.tail[-1] if snapshot.tail else None
        seen.append(snapshot.position.version)
        state = _state_of_snapshot(log, snapshot)
        if state is not None:
            return state, snapshot.transactions
    raise _always_gone(log, entry, seen)


def catch_up(log: DeltaLog, state: OffsetState, *, beyond: Entry | None = None) -> OffsetState:
    """The table as of now: one GET where nothing is new. Raises as :func:`load_state`.

    Args:
        beyond: the entry that follows ``state``, where it is known already.
    """
    position, newest = state.position, beyond
    if beyond is not None:
        position = advance(position, version=beyond.version, token=beyond.token)
    try:
        for ahead in _LOOKS_AHEAD:
            look = log.look(position, ahead=ahead)
            position = look.position
            newest = look.entries[-1] if look.entries else newest
            if len(look.entries) < ahead:
                break
        else:
            return load_state(log)
    except PositionLost:
        return load_again(log, position)
    if newest is None:
        return replace(state, position=position)
    return follow(log, state, newest, position)


def load_again(log: DeltaLog, lost: Position) -> OffsetState:
    """The table as of now, after the position of who knew it was lost.

    Raises:
        StoreReplacedError: it is gone, or doesn't go on from there (rule L17, ground).
        CorruptLogError, UnsupportedVersionError, StoreUnavailableError, StoreError: as :func:`load_state`.
    """
    log.check_cluster(is_doubtful=True)
    state = load_state(log)
    check_follows(log, lost, state.position)
    return state


def follow(log: DeltaLog, state: OffsetState, entry: Entry, position: Position) -> OffsetState:
    """The table as of ``entry``, which others created behind ``state``, with all between the two read. Raises as
    :func:`state_of`."""
    followed = state_of(log, entry, position, checkpoint_version=state.checkpoint_version)
    if followed.position.version != entry.version or followed.unsynced_since is None:
        return followed  # it was opened anew
    since = followed.unsynced_since
    if state.unsynced_since is not None:  # we may know more of it to be durable than its writer did
        since = max(since, state.unsynced_since)
    return replace(followed, unsynced_since=since, unread=state.unread)


def state_of(log: DeltaLog, entry: Entry, position: Position, *, checkpoint_version: int) -> OffsetState:
    """The table as of ``entry``, at ``position``; as of now where that entry is of another engine, or its file is gone
    because a newer version has replaced it long ago. Raises as :func:`load_state`."""
    return _state_of(log, entry, position, checkpoint_version) or load_state(log)


def _state_of(log: DeltaLog, entry: Entry, position: Position, checkpoint_version: int) -> OffsetState | None:
    if entry.info is None:
        return load_whole(log)[0]
    _check_format(log, f"version {entry.version}", entry.info.get(FORMAT_INFO))
    added = [action for action in entry.actions if isinstance(action, AddFile)]
    if len(added) != 1:
        raise CorruptLogError(f"{log.table}, version {entry.version} adds {len(added)} files, expected one")
    rows = _read_rows(log, added)
    if rows is None:
        return None
    return OffsetState(
        position=position,
        rows=rows,
        live=_live(added),
        checkpoint_version=checkpoint_version,
        unsynced_since=_unsynced_since(log, entry),
    )


def _state_of_snapshot(log: DeltaLog, snapshot: Snapshot) -> OffsetState | None:
    _check_format(log, FORMAT_PROPERTY, snapshot.metadata.configuration.get(FORMAT_PROPERTY))
    if snapshot.metadata.partition_columns:
        raise CorruptLogError(
            f"{log.table} is partitioned by {', '.join(snapshot.metadata.partition_columns)}, expected no partitions"
        )
    files = {} if snapshot.files is None else dict(zip(*(snapshot.files[c].to_pylist() for c in _COLUMNS), strict=True))
    for entry in snapshot.tail:
        for action in entry.actions:
            if isinstance(action, AddFile):
                files[action.path] = action.size_bytes
            elif isinstance(action, RemoveFile):
                files.pop(action.path, None)
    live = tuple(LiveFile(path=path, size_bytes=size_bytes) for path, size_bytes in files.items())
    rows = _read_rows(log, live)
    if rows is None:
        return None
    # its log is cleaned every hour, whatever a property protects
    demands = WriteDemands().after(log.table, snapshot.protocol, without=[CHECKPOINT_PROTECTION])
    return OffsetState(
        position=snapshot.position,
        rows=rows,
        live=live,
        checkpoint_version=snapshot.checkpoint_version,
        unsynced_since=None,
        unwritable=demands.after(log.table, snapshot.metadata).error,
    )


def _read_rows(log: DeltaLog, files: Iterable[AddFile | LiveFile]) -> Rows | None:
    """The rows that the files hold together; None where one of them is gone."""
    rows: dict[TopicPartition, OffsetRow] = {}
    for file in files:
        path = object_path(log.table, file.path)
        try:
            data = log.store.read(path)
        except ObjectNotFoundError:
            return None
        more = decode_rows(path, data)
        twice = rows.keys() & more.keys()
        if twice:
            raise CorruptLogError(f"offset file {path} has a row of {min(twice)}, which another live file has too")
        rows.update(more)
    return rows


def _unsynced_since(log: DeltaLog, entry: Entry) -> int:
    """The first version that may not be durable: who creates an entry with fsync has flushed all before it, as we
    do."""
    since = (entry.info or {}).get(UNSYNCED_INFO, entry.version)
    if not isinstance(since, int) or not 0 <= since <= entry.version:
        raise CorruptLogError(
            f"{log.table}, version {entry.version} has {UNSYNCED_INFO} {since!r}, expected a version up to its own"
        )
    return since


def _live(added: Iterable[AddFile]) -> tuple[LiveFile, ...]:
    return tuple(LiveFile(path=add.path, size_bytes=add.size_bytes) for add in added)


def _check_format(log: DeltaLog, place: str, found: object) -> None:
    try:
        version = int(str(found))
    except ValueError as error:
        raise CorruptLogError(
            f"{log.table} is no offset table of sparklog: {place} has format {found!r}, expected {FORMAT_VERSION}"
        ) from error
    if version > FORMAT_VERSION:
        raise UnsupportedVersionError(
            f"{log.table}: {place} has format {version}; this sparklog knows up to {FORMAT_VERSION}: upgrade it"
        )


def _no_table(ticks_ms: float) -> OffsetState:
    position = Position(version=NO_TABLE, token="", anchor_ticks_ms=ticks_ms)
    return OffsetState(position=position, rows={}, live=(), checkpoint_version=-1, unsynced_since=position.version + 1)


def _always_gone(log: DeltaLog, newest: Entry | None, seen: Sequence[int]) -> StoreError:
    """The error where no attempt found the file of the newest version, which may have been another one each time.

    Args:
        seen: the newest version of each attempt.
    """
    added = [action.path for action in newest.actions if isinstance(action, AddFile)] if newest is not None else []
    named = f" (version {newest.version}: {', '.join(added)})" if newest is not None else ""
    is_lost = seen[0] == seen[-1]
    return (ObjectNotFoundError if is_lost else StoreUnavailableError)(
        f"{log.table}: the newest version's data file{named} was gone in {_ATTEMPTS} attempts to read it; "
        "was it deleted by somebody else, or lost with the power?"
    )
