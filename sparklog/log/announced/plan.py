"""The decision of a commit that publishes announced flushes: which of others it takes, and what its entry says (rules
L4, decide again; L14, announced uploads). Pure, but for :class:`StoreClock`, which remembers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sparklog.delta.actions import SetTransaction
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log.announced.names import Announcement, topic_tag
from sparklog.log.commit import Commit
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.head import TopicHead
from sparklog.log.live_totals import LiveTotals
from sparklog.log.offset_assignment import assign_offsets
from sparklog.log.producer_state import announcer_txn
from sparklog.log.uploads import Vacuum, fresh_ms, is_at_risk

__all__ = [
    "MOST_FILES",
    "GroupPlan",
    "Listed",
    "Listing",
    "OwnFlush",
    "StoreClock",
    "plan_group",
    "takeable",
]

MOST_FILES = 500
"""An entry that includes flushes of others adds no more files."""
_OBSERVED_FOR_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An announced file as a listing shows it."""

    announcement: Announcement
    modified_ms: int
    """The store's time of it."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The announced files that a listing showed, and the moment of it."""

    files: tuple[Listed, ...]
    store_ms: float
    """The store's time then, at most."""
    at_ticks_ms: float
    """The moment by this process's ticks."""

    def age_ms(self, file: Listed, *, now_ticks_ms: float) -> float:
        """How old a file is now, at most."""
        return self.store_ms + (now_ticks_ms - self.at_ticks_ms) - file.modified_ms


class OwnFlush(NamedTuple):
    """A flush of the writer's own that isn't settled."""

    announcer: int | None
    """None for an ordinary one, which wasn't announced."""
    number: int
    files: tuple[UploadedFile, ...]
    is_given_up: bool = False


class GroupPlan(NamedTuple):
    """A commit, and where its files begin."""

    commit: Commit
    base_offsets: Mapping[str, int]
    """The offset of the first record of each file, by path."""


class StoreClock:
    """The store's time, as far as a writer learns it from its own announced files."""

    def __init__(self) -> None:
        self._ahead_ms: float | None = None
        self._observed_ticks_ms = 0.0

    def observe(self, modified_ms: int, *, began_ticks_ms: float, now_ticks_ms: float) -> None:
        """Note the store's time of an object whose upload began at ``began_ticks_ms``, not later than that."""
        self._ahead_ms = modified_ms - began_ticks_ms
        self._observed_ticks_ms = now_ticks_ms

    def store_ms(self, now_ticks_ms: float) -> float | None:
        """The store's time, at most; None if no file of this writer's own was seen within a minute."""
        is_known = now_ticks_ms - self._observed_ticks_ms <= _OBSERVED_FOR_MS
        return now_ticks_ms + self._ahead_ms if self._ahead_ms is not None and is_known else None


def takeable(
    listing: Listing,
    *,
    head: TopicHead,
    settled: Mapping[int, int],
    forgotten_version: int,
    vacuums: Sequence[Vacuum],
    trusted: Collection[int],
    own: Collection[int],
    now_ticks_ms: float,
    room: int = MOST_FILES,
) -> tuple[tuple[Listed, ...], ...]:
    """The flushes of others that an entry after ``head.delta_version`` may publish, each in the order of its parts.

    Args:
        settled: the newest settled number of each announcer of which an entry behind ``forgotten_version`` stated one.
        forgotten_version: the newest version that may have settled numbers which ``settled`` lacks.
        trusted: announcers that were found to state the truth.
        own: announcers that the includer itself is or was.
        room: how many files the entry may still add.
    """
    tag = topic_tag(head.topic_id)
    oldest_ms = fresh_ms(head.deleted_file_retention_ms)

    def may_be_taken(file: Listed) -> bool:
        announced = file.announcement
        return (
            announced.is_sound
            and announced.size_bytes == file.size_bytes
            and announced.partition < head.partition_count
            and announced.topic == tag
            and announced.announcer in trusted
            and announced.announcer not in own
            and forgotten_version <= announced.known <= head.delta_version
            and listing.age_ms(file, now_ticks_ms=now_ticks_ms) < oldest_ms
            and not is_at_risk(vacuums, topic_version=announced.known, uploaded_ms=announced.uploaded_ms)
        )

    flushes: dict[int, dict[int, list[Listed]]] = defaultdict(lambda: defaultdict(list))
    for file in listing.files if tag is not None and not head.deleted else ():
        if may_be_taken(file):
            flushes[file.announcement.announcer][file.announcement.number].append(file)
    runs = [_run(by_number, settled.get(announcer)) for announcer, by_number in flushes.items()]
    return tuple(_oldest_first(runs, room))


def plan_group(
    head: TopicHead,
    own: Sequence[OwnFlush],
    others: Sequence[Sequence[Listed]],
    *,
    counter: SetTransaction | None,
    topic: str,
    now_ms: int,
    value_stats: Callable[[str], Mapping[str, Mapping[str, Any]]] = lambda path: {},
) -> GroupPlan | None:
    """Decide an entry: the writer's own flushes in their order, then those of others.

    A flush that was given up is left out, and its number settled: that withdraws it.

    Args:
        own: flushes that aren't settled; every announced one below the last of them, without a gap.
        others: of :func:`takeable`.
        counter: counts the commit of an ordinary flush.
        now_ms: wall clock.
        value_stats: what is known of the values of a file of others, by its path.
    Returns:
        None: no flush of its own is unsettled. Nobody commits for others alone.
    Raises:
        UnknownTopicOrPartitionError: a file of its own is of a partition that the topic doesn't have.
    """
    if not own:
        return None
    uploaded = [file.announcement.to_uploaded() for flush in others for file in flush]
    included = [replace(file, value_stats=value_stats(file.path)) for file in uploaded]
    files = [file for flush in own if not flush.is_given_up for file in flush.files] + included

    def no_partition(file: UploadedFile) -> UnknownTopicOrPartitionError:
        return UnknownTopicOrPartitionError(
            f"topic {topic!r} has no partition {file.partition}; it has 0 to {head.partition_count - 1}"
        )

    assigned = assign_offsets(head, files, no_partition=no_partition)
    settles: dict[int, int] = {}
    numbers = [(flush.announcer, flush.number) for flush in own if flush.announcer is not None]
    numbers += [(flush[0].announcement.announcer, flush[0].announcement.number) for flush in others]
    for announcer, number in numbers:
        settles[announcer] = max(number, settles.get(announcer, number))
    commit = Commit(
        actions=[
            *assigned.adds,
            *([] if counter is None else [counter]),
            *[announcer_txn(announcer, number, now_ms=now_ms) for announcer, number in settles.items()],
        ],
        head=assigned.head,
        operation="WRITE",
        blind_append=True,
        includes_others=bool(others),
        synced_first=tuple([file.path for file in included]),
        added=None if numbers else _totals(files),
    )
    paths = [file.path for file in files]
    return GroupPlan(commit=commit, base_offsets=dict(zip(paths, assigned.base_offsets, strict=True)))


def _totals(files: Sequence[UploadedFile]) -> LiveTotals:
    """The totals of files that nobody but this writer can have published."""
    if len(files) == 1:
        (file,) = files
        return LiveTotals(1, file.size_bytes, file.record_count, file.min_timestamp_ms)
    return LiveTotals(
        len(files),
        sum([file.size_bytes for file in files]),
        sum([file.record_count for file in files]),
        min([file.min_timestamp_ms for file in files], default=None),
    )


def _run(by_number: Mapping[int, Sequence[Listed]], settled: int | None) -> list[tuple[Listed, ...]]:
    """The flushes of one announcer that may be published now: whole ones, from the next number on, without a gap."""
    if settled is None:
        first = by_number[min(by_number)][0].announcement
        settled = first.number - first.ahead
    run: list[tuple[Listed, ...]] = []
    while (files := by_number.get(settled + 1)) is not None and _is_whole(files):
        run.append(tuple(sorted(files, key=lambda file: file.announcement.part)))
        settled += 1
    return run


def _is_whole(files: Sequence[Listed]) -> bool:
    """Does the listing have every part of a flush, each once, and do they state the same?"""
    stated = {(file.announcement.known, file.announcement.ahead, file.announcement.parts) for file in files}
    parts = sorted(file.announcement.part for file in files)
    return len(stated) == 1 and parts == [*range(files[0].announcement.parts)]


def _oldest_first(runs: Sequence[list[tuple[Listed, ...]]], room: int) -> list[tuple[Listed, ...]]:
    """The oldest flushes, of each announcer in its order, as long as there is room for the files of all."""
    taken: list[tuple[Listed, ...]] = []
    waiting = [run for run in runs if run]
    while waiting:
        oldest = min(waiting, key=lambda run: _age_key(run[0]))
        flush = oldest.pop(0)
        if len(flush) > room:
            oldest.clear()
        else:
            taken.append(flush)
            room -= len(flush)
        waiting = [run for run in waiting if run]
    return taken


def _age_key(flush: Sequence[Listed]) -> tuple[int, int, int, int]:
    first = flush[0].announcement
    return first.known, max(file.modified_ms for file in flush), first.announcer, first.number
