"""A look at what others have announced: one listing, and a footer of each announcer that is new here."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.delta.log import DeltaLog
from sparklog.delta.parquet_reading import footer_of
from sparklog.errors import StoreError
from sparklog.log.announced.names import Announcement, announcer_and_number, folders_to_list, parse_name
from sparklog.log.announced.plan import Listed, Listing, StoreClock
from sparklog.log.data.carried_stats import carried_stats
from sparklog.log.data.producer_stamp import next_sequence
from sparklog.log.data.value_columns import Leaf
from sparklog.parallel import parallel_map, parallel_results
from sparklog.storage.base import ObjectInfo
from sparklog.storage.retrying import Patience, RetryingStore

__all__ = ["CarriedStats", "TrustedAnnouncers", "is_true_to_its_name", "list_announced"]

_LOGGER = logging.getLogger("sparklog.log")
_MOST_LISTED = 10_000
_MOST_ANNOUNCERS = 10_000
_CHECKED_AT_ONCE = 32
_LISTING_MS = 5_000
"""A listing that fails isn't repeated: the writer commits its own alone."""
_TAIL_BYTES = 64 * 1024
_MOST_FILES_KNOWN = 1_000
_STATS_MS = 2_000
"""Statistics that take longer to read are done without."""
_END_BYTES = 8
"""The length of the footer and the magic number behind it."""


def list_announced(
    log: DeltaLog,
    version: int,
    own_paths: Mapping[str, float],
    clock: StoreClock,
    *,
    settled: Callable[[int], int | None],
    is_wide: bool = False,
) -> Listing | None:
    """List what was announced by those who knew one of the newest versions: one LIST, at a block's beginning two side
    by side.

    Args:
        version: the newest that the includer has applied.
        own_paths: the includer's own announced files, relative to the table's folder, and when the upload of each
            began, by its ticks.
        clock: gets to know the store's time.
        settled: the newest settled number of an announcer, None where none is known: what is settled is left out.
        is_wide: of more versions: up to three LISTs side by side.
    Returns:
        None: the store's time isn't known, so nobody's age is.
    Raises:
        StoreError.
    """
    patience = Patience(deadline=log.clock.deadline_in(_LISTING_MS), retries=0)
    with log.store.patience(patience) if isinstance(log.store, RetryingStore) else nullcontext():
        files = _list(log, folders_to_list(version, is_wide=is_wide), own_paths, clock, settled)
    now = log.clock.ticks_ms()
    store_ms = clock.store_ms(now)
    return None if store_ms is None else Listing(files=files, store_ms=store_ms, at_ticks_ms=now)


def _list(
    log: DeltaLog,
    folders: Iterable[tuple[str, str]],
    own_paths: Mapping[str, float],
    clock: StoreClock,
    settled: Callable[[int], int | None],
) -> tuple[Listed, ...]:
    files: list[Listed] = []
    prefix = f"{log.table}/"

    def listed(folder_and_after: tuple[str, str]) -> list[ObjectInfo]:
        folder, after = folder_and_after
        return [*islice(log.store.list(prefix + folder, after=prefix + after), _MOST_LISTED)]

    for found in chain.from_iterable(parallel_map(listed, folders)):
        path = found.path.removeprefix(prefix)
        if path in own_paths:
            now = log.clock.ticks_ms()
            clock.observe(found.modified_ms, began_ticks_ms=own_paths[path], now_ticks_ms=now)
        elif not _is_settled(path, settled) and (announcement := parse_name(path)) is not None:
            files.append(Listed(announcement=announcement, modified_ms=found.modified_ms, size_bytes=found.size_bytes))
    return tuple(files)


def _is_settled(path: str, settled: Callable[[int], int | None]) -> bool:
    """Is a file, if its name announces one, of a number that is settled? So are most that a listing shows."""
    stated = announcer_and_number(path)
    if stated is None:
        return False
    announcer, number = stated
    newest = settled(announcer)
    return newest is not None and number <= newest


class TrustedAnnouncers:
    """Announcers of which a file was read, and was what its name says; and those that stated something else.

    Offsets of all who come later depend on counts: one announcer that states wrong ones would move everybody's.
    """

    def __init__(self) -> None:
        self._is_true: OrderedDict[int, bool] = OrderedDict()

    @property
    def trusted(self) -> Collection[int]:
        """The announcers whose names are believed."""
        return frozenset(announcer for announcer, is_true in self._is_true.items() if is_true)

    def check(self, log: DeltaLog, files: Iterable[Listed]) -> None:
        """Read a file of each announcer that isn't known: one ranged GET each, side by side.

        Where the store refuses, or the file is gone, nothing is learned.
        """
        first: dict[int, Announcement] = {}
        for file in files:
            announced = file.announcement
            if announced.announcer not in self._is_true and announced.size_bytes == file.size_bytes:
                first.setdefault(announced.announcer, announced)
        some = [*islice(first.values(), _CHECKED_AT_ONCE)]
        for announced, answer in zip(
            some, parallel_results(lambda one: is_true_to_its_name(log, one), some), strict=True
        ):
            if isinstance(answer, StoreError):
                continue
            if isinstance(answer, Exception):
                raise answer
            if not answer:
                _LOGGER.warning(
                    "%s/%s isn't what its name says: files of its announcer aren't published by this process",
                    log.table,
                    announced.path,
                )
            self._is_true[announced.announcer] = answer
        while len(self._is_true) > _MOST_ANNOUNCERS:
            self._is_true.popitem(last=False)


class CarriedStats:
    """The statistics of values that announced files carry in their footers, by path; of what can't be read, none."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, Mapping[str, Mapping[str, Any]]] = OrderedDict()

    def of(self, path: str) -> Mapping[str, Mapping[str, Any]]:
        """The statistics of a file as Delta has them; empty where none are known."""
        return self._found.get(path, {})

    def read(self, log: DeltaLog, files: Iterable[Listed], leaves: Sequence[tuple[Leaf, pa.DataType]]) -> None:
        """Read the footers of files that aren't known: one ranged GET each, side by side, of so many at most.

        Args:
            leaves: the indexed leaves of the topic's values, with their types.
        """
        unknown = (file.announcement for file in files if file.announcement.path not in self._found)
        some = [*islice(unknown, _CHECKED_AT_ONCE)]
        patience = Patience(deadline=log.clock.deadline_in(_STATS_MS), retries=0)
        with log.store.patience(patience) if isinstance(log.store, RetryingStore) else nullcontext():
            answers = parallel_results(lambda one: _carried(log, one, leaves), some)
        for announced, answer in zip(some, answers, strict=True):
            if isinstance(answer, Exception) and not isinstance(answer, StoreError):
                raise answer
            self._found[announced.path] = {} if isinstance(answer, Exception) else answer
        while len(self._found) > _MOST_FILES_KNOWN:
            self._found.popitem(last=False)


def _carried(
    log: DeltaLog, announced: Announcement, leaves: Sequence[tuple[Leaf, pa.DataType]]
) -> Mapping[str, Mapping[str, Any]]:
    footer = _footer(log, announced)
    try:
        return carried_stats(footer_of(footer, announced.size_bytes).metadata, leaves, announced.record_count)
    except (pa.ArrowException, OSError, ValueError):
        return {}


def is_true_to_its_name(log: DeltaLog, announced: Announcement) -> bool:
    """Does the footer of a file have the records, the times and the stamp that its name states? A file without these
    statistics isn't ours. Raises ``StoreError``."""
    footer = _footer(log, announced)
    try:
        return _states_the_same(footer_of(footer, announced.size_bytes), announced)
    except (pa.ArrowException, OSError, ValueError):  # it isn't a Parquet file, or a broken one
        return False


def _states_the_same(metadata: pq.FileMetaData, announced: Announcement) -> bool:
    stamp, last = announced.stamp, announced.record_count - 1
    is_wrapped = next_sequence(stamp.base_sequence, last) < stamp.base_sequence
    sequences = (0, 2**31 - 1) if is_wrapped else (stamp.base_sequence, stamp.base_sequence + last)
    return (
        bool(metadata.num_rows == announced.record_count)
        and _bounds(metadata, "offset_delta") == (0, last)
        and _bounds(metadata, "timestamp", divisor=1_000) == (announced.min_timestamp_ms, announced.max_timestamp_ms)
        and _bounds(metadata, "producer_id") == (stamp.producer_id, stamp.producer_id)
        and _bounds(metadata, "sequence") == sequences
    )


def _footer(log: DeltaLog, announced: Announcement) -> bytes:
    """The end of a file, its metadata among it if it is a Parquet file."""
    path, size = f"{log.table}/{announced.path}", announced.size_bytes
    tail = log.store.read_range(path, max(0, size - _TAIL_BYTES), size)
    wanted = int.from_bytes(tail[-_END_BYTES:-4], "little") + _END_BYTES
    if len(tail) < wanted <= size:
        tail = log.store.read_range(path, size - wanted, size)
    return tail[-wanted:]


def _bounds(metadata: pq.FileMetaData, column: str, *, divisor: int = 1) -> tuple[int, int] | None:
    """The least and the greatest value of a column of whole numbers; None where the statistics lack them."""
    bounds: list[int] = []
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            chunk = row_group.column(number)
            if chunk.path_in_schema != column:
                continue
            stats = chunk.statistics
            if stats is None or not stats.has_min_max or not isinstance(stats.min_raw, int):
                return None
            bounds += [stats.min_raw // divisor, stats.max_raw // divisor]
    return (min(bounds), max(bounds)) if bounds else None
