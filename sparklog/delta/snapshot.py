"""Opening a table: from its newest entry alone, or whole, with every live file.

A checkpoint's live files are read as columns. The entries behind it are applied by whoever follows the table, at once
and later alike (docs/decisions/0002-deltalake-reads-a-staged-copy.md).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sparklog.delta.actions import Entry, Metadata, Protocol, SetTransaction, listed_features
from sparklog.delta.checkpoint_content import CheckpointReader
from sparklog.delta.features import check_protocol
from sparklog.delta.listing import Listing, is_untouched, list_log, list_log_at, list_short_log, still_there
from sparklog.delta.log import DeltaLog
from sparklog.errors import CorruptLogError, SparklogError, StoreUnavailableError
from sparklog.storage.position import Position

if TYPE_CHECKING:
    import pyarrow as pa

    from sparklog.delta.checkpoint_rows import CheckpointPartFile
    from sparklog.delta.producer_states import CheckpointStates

__all__ = [
    "LogCopy",
    "Newest",
    "Snapshot",
    "check_protocol",
    "load_snapshot",
    "newest_of_listing",
    "open_newest",
    "read_log",
]

_LOGGER = logging.getLogger(__name__)
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """A table's newest entry: all that a new producer needs (rule L5, opening)."""

    entry: Entry
    position: Position
    checkpoint_version: int
    """-1 where there is no checkpoint yet."""
    checkpoint_ms: int | None = None
    """When the checkpoint was written, by the store's time, ms since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A table as of one version: its checkpoint's files, and the entries behind it."""

    position: Position
    checkpoint_version: int
    checkpoint_ms: int | None
    """When it was written, by the store's time, ms since the epoch; None without one."""
    metadata: Metadata
    protocol: Protocol
    transactions: Mapping[str, SetTransaction]
    """By ``app_id``; without :attr:`states`."""
    files: pa.Table | None
    """The files that were live at the checkpoint, a row each; None without one.

    Columns: ``path``, ``partition_values`` (a map of texts), ``size_bytes``, ``modification_time`` (milliseconds since
    the epoch), ``stats`` (JSON; null where nobody gave any): all as the log has them.
    """
    tail: tuple[Entry, ...]
    """The entries behind the checkpoint, oldest first: whoever wants the live files applies them to ``files``."""
    file_rows: Sequence[Mapping[str, Any]] | None = None
    """The same as ``files``, row by row, where another process reads the log's checkpoints; ``files`` is None then, and
    this is None everywhere else."""
    checkpoint_entry: Entry | None = None
    """The entry of the checkpoint's own version; None without a checkpoint, or where the entry was cleaned away."""
    checkpoint_metadata: Metadata | None = None
    """The table's metadata as of the checkpoint; None without one."""
    states: Sequence[CheckpointStates] = ()
    """States of producers as of the checkpoint, where there are many: of those, ``transactions`` has only what the tail
    has. None where another process reads the log's checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHeader:
    """The content of a checkpoint beside its files; empty where there is no checkpoint."""

    transactions: Mapping[str, SetTransaction] = field(default_factory=dict)
    states: Sequence[CheckpointStates] = ()
    """See :attr:`Snapshot.states`."""
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    file_rows: Sequence[Mapping[str, Any]] | None = None
    """See :attr:`Snapshot.file_rows`."""
    parts: Sequence[CheckpointPartFile] = ()
    """Its files, opened; empty where :attr:`file_rows` has what they have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCopy:
    """The log's newest checkpoint and its tail, in memory; verified to be of one piece."""

    listing: Listing
    checkpoint: Mapping[str, bytes]
    """Its parts, by path; empty without one."""
    header: CheckpointHeader
    entries: tuple[Entry, ...]
    """Every entry of the listing, oldest first, but those whose bytes were known."""
    raw_entries: tuple[bytes, ...]
    """The bytes of every entry of the listing, oldest first."""

    @property
    def tail(self) -> tuple[Entry, ...]:
        """The entries behind the checkpoint, oldest first, but those whose bytes were known."""
        return tuple(entry for entry in self.entries if entry.version > self.listing.checkpoint_version)

    @property
    def raw_tail(self) -> Mapping[str, bytes]:
        """The bytes of every entry behind the checkpoint, by path, oldest first."""
        found = zip(self.listing.entries, self.raw_entries, strict=True)
        return {one.path: data for (version, one), data in found if version > self.listing.checkpoint_version}


def open_newest(log: DeltaLog, *, is_once: bool = False) -> Newest | None:
    """Read a table's newest entry: a GET, a LIST and a GET, whatever the table's age. None where there is no table.

    Args:
        is_once: for who looks at many tables once: without the first GET where the log is short, and with one LIST more
            where it isn't.
    Raises:
        CorruptLogError: the newest entry can't be read; names it.
        StoreReplacedError: the cluster is gone, or another one is there.
        StoreUnavailableError: the log changed under us again and again.
    """
    log.check_cluster()
    for _ in range(_ATTEMPTS):
        listing = (list_short_log(log) if is_once else None) or list_log(log)
        if listing is None:
            return None
        version, listed = listing.entries[-1]
        gap = listing.first_gap()
        if gap is not None and log.read_entry(gap) is None:  # a listing isn't atomic, it may have missed one
            continue
        entry = log.read_entry(version)
        # The newest entry can't be cleaned within tail_trust_ms; if reading took longer, is it still the same?
        young = log.clock.ticks_ms() - listing.began_ticks_ms <= log.tail_trust_ms
        if entry is not None and (young or still_there(log, version, listed)):
            position = Position(version=version, token=entry.token, anchor_ticks_ms=listing.began_ticks_ms)
            return Newest(
                entry=entry,
                position=position,
                checkpoint_version=listing.checkpoint_version,
                checkpoint_ms=listing.checkpoint_ms,
            )
    raise _no_way_in(log, listing, gap)


def newest_of_listing(log: DeltaLog, listing: Listing, data: bytes | None) -> Newest | None:
    """The newest entry of a log, for who lists many tables and then reads the newest entries of all together. No
    request. None where :func:`open_newest` has to find out.

    Args:
        data: the newest entry of the listing; None where it isn't there.
    Raises:
        CorruptLogError: the entry can't be read; names it.
    """
    if data is None or listing.first_gap() is not None:
        return None
    entry = log.decode(listing.newest_version, data)
    if log.clock.ticks_ms() - listing.began_ticks_ms > log.tail_trust_ms:  # it may be another one by now
        return None
    return Newest(
        entry=entry,
        position=Position(version=entry.version, token=entry.token, anchor_ticks_ms=listing.began_ticks_ms),
        checkpoint_version=listing.checkpoint_version,
        checkpoint_ms=listing.checkpoint_ms,
    )


def load_snapshot(
    log: DeltaLog, *, is_once: bool = False, version: int | None = None, without: frozenset[int] = frozenset()
) -> Snapshot | None:
    """Load the whole table as of its newest version. None where there is no table.

    Args:
        is_once: see :func:`open_newest`.
        version: an older one; None is returned where the log doesn't contain it (any more).
        without: versions of checkpoints that aren't used.
    Raises:
        CorruptLogError: an entry or the checkpoint can't be read, or an entry is missing; names it.
        UnsupportedVersionError: the table needs a newer Delta reader.
        StoreUnavailableError: the log changed under us again and again.
    """
    copy = read_log(log, is_once=is_once, version=version, without=without)
    if copy is None:
        return None
    transactions = dict(copy.header.transactions)
    metadata, protocol = copy.header.metadata, copy.header.protocol
    for entry in copy.tail:
        for action in entry.actions:
            if isinstance(action, SetTransaction):
                transactions[action.app_id] = action
            elif isinstance(action, Metadata):
                metadata = action
            elif isinstance(action, Protocol):
                protocol = action
    if metadata is None or protocol is None:
        raise CorruptLogError(
            f"log of {log.table}: no metadata or no protocol up to version {copy.listing.newest_version}"
        )
    check_protocol(log.table, protocol, write=False)
    return Snapshot(
        position=Position(
            version=copy.entries[-1].version,
            token=copy.entries[-1].token,
            anchor_ticks_ms=copy.listing.began_ticks_ms,
        ),
        checkpoint_version=copy.listing.checkpoint_version,
        checkpoint_ms=copy.listing.checkpoint_ms,
        metadata=metadata,
        protocol=protocol,
        transactions=transactions,
        files=_live_files(copy),
        tail=copy.tail,
        file_rows=copy.header.file_rows,
        states=copy.header.states,
        checkpoint_metadata=copy.header.metadata,
        checkpoint_entry=next(
            (entry for entry in copy.entries[:1] if entry.version == copy.listing.checkpoint_version), None
        ),
    )


def _live_files(copy: LogCopy) -> pa.Table | None:
    if not copy.checkpoint or copy.header.file_rows is not None:
        return None
    from sparklog.delta.checkpoint_rows import live_files  # loads Arrow, which a log without a checkpoint doesn't need

    return live_files(copy.header.parts)


def read_log(
    log: DeltaLog,
    *,
    known: Mapping[int, bytes] = MappingProxyType({}),
    is_once: bool = False,
    version: int | None = None,
    reads_header: bool = True,
    without: frozenset[int] = frozenset(),
) -> LogCopy | None:
    """Read the newest checkpoint and the tail; None where there is no table.

    Args:
        known: bytes of entries, by version, that are neither read nor decoded: their creator knows that they are whole.
        is_once, version: see :func:`open_newest` and :func:`load_snapshot`.
        without: versions of checkpoints that aren't used.
        reads_header: off: :attr:`LogCopy.header` is empty, and whether the checkpoint can be read is unknown.
    Raises:
        CorruptLogError: an entry or the checkpoint can't be read, or an entry is missing; names it.
        StoreReplacedError: the cluster is gone, or another one is there.
        StoreUnavailableError, StoreError: the log changed under us again and again; the store refuses.
    """
    corrupt: CorruptLogError | None = None
    for _ in range(_ATTEMPTS):
        listing = _listed(log, version, is_once=is_once, without=without)
        if listing is None:
            return None
        gap = listing.first_gap()
        if gap is not None and version is not None:
            if log.read_entry(gap) is None:  # cleaned, with the checkpoints up to this version
                return None
            continue
        if gap is not None:
            # A listing takes its time: of what is created meanwhile it may miss a version and show a later one. What
            # it misses wasn't there when it began, so what comes before is the log as of that moment.
            if log.read_entry(gap) is None or (earlier := listing.before(gap)) is None:
                continue
            listing, gap = earlier, None
        first_version, first_listed = listing.entries[0]
        _announce(log, listing)
        parts = log.store.read_many([part.path for part in listing.checkpoint_parts])
        found = _raw_entries(log, [version for version, _ in listing.entries], known)
        entries = [pair for pair in found if pair is not None]
        complete = None not in parts and len(entries) == len(found)
        if not complete or not is_untouched(log, first_version, first_listed):  # else it was cleaned while we read
            continue
        copies = {part.path: data or b"" for part, data in zip(listing.checkpoint_parts, parts, strict=True)}
        try:
            header = _read_header(copies if reads_header else {}, log.read_checkpoint)
        except CorruptLogError as error:  # an older checkpoint and more entries say the same, if they are still there
            _LOGGER.warning("%s", error)
            corrupt, without = error, without | {listing.checkpoint_version}
            continue
        return LogCopy(
            listing=listing,
            checkpoint=copies,
            header=header,
            entries=tuple(entry for entry, _ in entries if entry is not None),
            raw_entries=tuple(data for _, data in entries),
        )
    raise corrupt or _no_way_in(log, listing, gap)


def _listed(log: DeltaLog, version: int | None, *, is_once: bool, without: frozenset[int]) -> Listing | None:
    log.check_cluster()
    if version is not None:
        return list_log_at(log, version, without=without)
    return (list_short_log(log) if is_once and not without else None) or list_log(log, without=without)


def _announce(log: DeltaLog, listing: Listing) -> None:
    """Report to whoever wants to know how much is to be read."""
    if log.before_load is not None:
        sizes = (
            sum(one.size_bytes for one in listing.checkpoint_parts),
            sum(one.size_bytes for _, one in listing.entries),
        )
        log.before_load(*sizes)


def _raw_entries(
    log: DeltaLog, versions: Sequence[int], known: Mapping[int, bytes]
) -> list[tuple[Entry | None, bytes] | None]:
    """Entries, None where they are known, with their bytes, in the order of ``versions``; None for one that isn't
    there."""
    missing = [version for version in versions if version not in known]
    read = dict(zip(missing, log.read_raw_entries(missing), strict=True)) if missing else {}
    return [read[v] if v in read else (None, known[v]) for v in versions]


def _read_header(parts: Mapping[str, bytes], read: CheckpointReader | None) -> CheckpointHeader:
    """Read a checkpoint's parts, by path. Raises ``CorruptLogError``, which names the part."""
    if not parts:
        return CheckpointHeader()
    if read is None:
        from sparklog.delta.checkpoint_rows import read_checkpoint  # loads Arrow

        read = read_checkpoint
    content = read(parts)
    transactions = {
        row["appId"]: SetTransaction(
            app_id=row["appId"], version=row["version"], last_updated_ms=row["lastUpdated"] or 0
        )
        for row in content.transactions
    }
    if not content.metadata or not content.protocol:
        raise CorruptLogError(f"corrupt checkpoint {', '.join(parts)}: it has no metaData or no protocol")
    row = content.protocol[-1]
    protocol = Protocol(
        min_reader_version=row["minReaderVersion"],
        min_writer_version=row["minWriterVersion"],
        reader_features=listed_features(row["readerFeatures"]),
        writer_features=listed_features(row["writerFeatures"]),
    )
    row = content.metadata[-1]
    metadata = Metadata(
        table_id=row["id"],
        schema_string=row["schemaString"],
        partition_columns=tuple(row["partitionColumns"]),
        configuration=dict(row["configuration"] or ()),
        created_ms=row["createdTime"],
        name=row["name"],
        description=row["description"],
    )
    return CheckpointHeader(
        transactions=transactions,
        states=content.states,
        metadata=metadata,
        protocol=protocol,
        file_rows=content.file_rows,
        parts=content.parts,
    )


def _no_way_in(log: DeltaLog, listing: Listing | None, gap: int | None) -> SparklogError:
    if listing is not None and gap is not None:
        return CorruptLogError(
            f"log of {log.table}: version {gap} is missing, though version {listing.newest_version} exists"
        )
    return StoreUnavailableError(f"log of {log.table} was cleaned under {_ATTEMPTS} attempts to open it; try again")
