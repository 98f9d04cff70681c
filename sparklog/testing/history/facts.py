"""Facts that the checks go by: of each send, whether it must be there, must not be, or was seen; and where."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from sparklog.testing.history.columns import NONE, Bools, Columns, Ends, Ints
from sparklog.testing.history.events import Acknowledged, Event, Failed, Isolation

__all__ = ["Facts", "facts_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Facts about each send, by its row; about reads where it says so."""

    columns: Columns
    end: Ints
    """How its transaction ended; NONE without one."""
    is_forbidden: Bools
    """No reader of committed records may see it."""
    is_required: Bools
    """It was promised to be in the log."""
    is_in_final: Bools
    is_seen_committed: Bools
    """By any reader of committed records, or at the end."""
    place: Ints
    """Where it was acknowledged, else read, else sent to; NONE: not known."""
    offset: Ints
    """Where it was acknowledged, else read."""
    has_final: Bools
    """Its partition was read at the end: if it is there it was found."""
    may_be_removed: Bools
    """If it was in the log, retention or compaction may have removed it."""
    is_compacted: Bools
    """By place."""
    final_reads: Bools
    """The reads at the end that say what is there for good."""

    def evidence(self, row: int, *more: Event) -> tuple[Event, ...]:
        """The send, its outcomes, its transaction's end, then ``more``."""
        columns, sends = self.columns, self.columns.sends
        events: list[Event] = [sends.events[row]]
        if sends.acknowledged[row] != NONE:
            events.append(columns.of(Acknowledged)[sends.acknowledged[row]])
        if sends.failed[row] != NONE:
            events.append(columns.of(Failed)[sends.failed[row]])
        if sends.transaction[row] != NONE:
            events += columns.transactions.events[sends.transaction[row]][1:]
        return (*events, *more)

    def named(self, row: int) -> str:
        """The send, for a text."""
        send = self.columns.sends.events[row]
        return f"{send.value!r} of {send.client}" + (f" in {send.transaction}" if send.transaction else "")

    def at(self, place: int, offset: int) -> str:
        """A place, for a text."""
        if place == NONE:
            return "an unknown partition"
        topic, number = self.columns.place_names[place]
        return f"{topic}-{number}" + (f" at {offset}" if offset != NONE else "")


def facts_of(columns: Columns, compacted: Collection[str]) -> Facts:
    """Derive them; ``compacted``: names of topics."""
    sends, reads = columns.sends, columns.reads
    count = len(sends)
    end = np.full(count, NONE, np.int64)
    inside = sends.transaction != NONE
    end[inside] = columns.transactions.end[sends.transaction[inside]]
    is_failed = sends.failed != NONE
    is_committed = end == Ends.COMMITTED

    read_committed_finals = np.zeros(len(columns.place_names) + 1, np.bool_)
    read_committed_finals[list(columns.finals[Isolation.READ_COMMITTED])] = True
    final_reads = reads.is_final & (reads.is_committed | ~read_committed_finals[reads.place])
    is_in_final = _marked(count, reads.send[final_reads])
    is_seen_committed = is_in_final | _marked(count, reads.send[reads.is_committed])

    place, offset = sends.acknowledged_place.copy(), sends.acknowledged_offset.copy()
    known = reads.send != NONE
    read_place, read_offset = np.full(count, NONE, np.int64), np.full(count, NONE, np.int64)
    read_place[reads.send[known]] = reads.place[known]
    read_offset[reads.send[known]] = reads.offset[known]
    unplaced = place == NONE
    place[unplaced] = read_place[unplaced]
    place = np.where(place == NONE, sends.place, place)
    offset = np.where(offset == NONE, np.where(place == read_place, read_offset, NONE), offset)

    is_compacted = np.array([name.topic in compacted for name in columns.place_names], np.bool_)
    is_forbidden = is_failed | (end == Ends.ABORTED)
    has_final, may_be_removed = _absences(
        columns, compacted, place, offset, is_forbidden=is_forbidden, final_reads=final_reads
    )
    return Facts(
        columns=columns,
        end=end,
        is_forbidden=is_forbidden,
        is_required=~is_failed & (is_committed | (~inside & (sends.acknowledged_offset != NONE))),
        is_in_final=is_in_final,
        is_seen_committed=is_seen_committed,
        place=place,
        offset=offset,
        has_final=has_final,
        may_be_removed=may_be_removed,
        is_compacted=is_compacted,
        final_reads=final_reads,
    )


def _absences(
    columns: Columns,
    compacted: Collection[str],
    place: Ints,
    offset: Ints,
    *,
    is_forbidden: Bools,
    final_reads: Bools,
) -> tuple[Bools, Bools]:
    """For each send: would it have been found at the end, and may it have been removed before."""
    sends = columns.sends
    starts = np.full(len(columns.place_names), NONE, np.int64)
    for number in range(len(starts)):
        final = columns.final(number) or columns.final(number, Isolation.READ_UNCOMMITTED)
        starts[number] = NONE if final is None else final.log_start
    topic_complete = np.ones(len(columns.topics), np.bool_)
    topic_start = np.full(len(columns.topics), NONE, np.int64)
    np.logical_and.at(topic_complete, columns.place_topic, starts != NONE)
    np.maximum.at(topic_start, columns.place_topic, starts)
    topic_complete &= topic_start != NONE

    is_placed = place != NONE
    log_start = np.where(is_placed, starts[place] if len(starts) else NONE, topic_start[sends.topic])
    has_final = np.where(is_placed, log_start != NONE, topic_complete[sends.topic])
    is_retired = np.where(offset != NONE, offset < log_start, log_start > 0)
    codes = [code for topic, code in columns.topics.items() if topic in compacted]
    on_compacted = np.isin(sends.topic, codes)
    is_retired |= on_compacted & (
        (sends.is_tombstone & ~_has_predecessor(columns, place, offset, final_reads))
        | (offset == NONE)
        | _has_successor(columns, place, offset, is_forbidden)
    )
    return has_final, is_retired


def _has_predecessor(columns: Columns, place: Ints, offset: Ints, final_reads: Bools) -> Bools:
    """For each send: is there, at the end, an earlier record of its key? A tombstone may not go before that has
    gone."""
    sends, reads = columns.sends, columns.reads
    has = np.zeros(len(sends), np.bool_)
    rows = np.flatnonzero((sends.key != NONE) & (offset != NONE) & (place != NONE))
    found = np.flatnonzero(final_reads & (reads.send != NONE))
    found = found[sends.key[reads.send[found]] != NONE]
    if not len(rows) or not len(found):
        return has
    count = len(columns.place_names)
    pairs, pair = np.unique(sends.key[reads.send[found]] * count + reads.place[found], return_inverse=True)
    earliest = np.full(len(pairs), np.iinfo(np.int64).max, np.int64)
    np.minimum.at(earliest, pair, reads.offset[found])
    wanted = sends.key[rows] * count + place[rows]
    at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
    has[rows] = (pairs[at] == wanted) & (earliest[at] < offset[rows])
    return has


def _has_successor(columns: Columns, place: Ints, offset: Ints, is_forbidden: Bools) -> Bools:
    """For each send: is there a later record of its key, or may there have been a tombstone that is gone by
    now?"""
    sends = columns.sends
    has = np.zeros(len(sends), np.bool_)
    rows = np.flatnonzero((sends.key != NONE) & (offset != NONE) & ~is_forbidden)
    if not len(rows):
        return has
    pairs, pair = np.unique(sends.key[rows] * len(columns.place_names) + place[rows], return_inverse=True)
    latest = np.full(len(pairs), NONE, np.int64)
    np.maximum.at(latest, pair, offset[rows])
    has[rows] = offset[rows] < latest[pair]
    tombstones = sends.is_tombstone & (sends.key != NONE) & (offset == NONE) & ~is_forbidden
    keyed = sends.key * len(columns.topics) + sends.topic
    has |= (sends.key != NONE) & np.isin(keyed, keyed[tombstones])
    return has


def _marked(count: int, rows: Ints) -> Bools:
    """True at each of these rows."""
    marked = np.zeros(count, np.bool_)
    marked[rows[rows != NONE]] = True
    return marked
