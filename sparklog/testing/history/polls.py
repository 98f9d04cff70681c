"""Checks of what consumers saw: went back, passed over, reached the end without having seen all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from sparklog.model import TopicPartition
from sparklog.testing.history.columns import NONE, Columns, Ints, grouped
from sparklog.testing.history.events import CaughtUp, Event, Isolation, OffsetsSent, Polled
from sparklog.testing.history.facts import Facts
from sparklog.testing.history.stretches import Stretch
from sparklog.testing.history.verdict import Anomaly, AnomalyKind

__all__ = ["Coverage", "coverage_of", "poll_anomalies"]

_NOTHING = np.empty(0, np.int64)


@dataclass(slots=True)
class Coverage:
    """The records of one partition that a group, or a consumer without one, has read."""

    start: int | None = None
    """The lowest offset at which one of its consumers began, or should have; None: not known."""
    is_whole: bool = True
    """Must it have seen all? Not where it may begin at the end, or was reset on purpose, or sought an unknown place."""
    excused: list[tuple[int, int]] = field(default_factory=list)
    """Passed over on purpose: from, to (exclusive)."""
    seen: list[Ints] = field(default_factory=list)
    reported: list[Ints] = field(default_factory=list)
    """Offsets that are reported as skipped already."""


def poll_anomalies(
    facts: Facts, stretches: Sequence[Stretch], coverage: dict[tuple[str, TopicPartition], Coverage]
) -> Iterator[Anomaly]:
    """The anomalies of polls, but for those that the stretches showed by themselves. Fills in what was seen."""
    columns = facts.columns
    yield from _back_within_polls(columns)
    rows = _rows_of_stretches(columns, stretches)
    ends = _Ends(columns)
    for number, stretch in enumerate(stretches):
        seen = columns.reads.offset[rows.get(number, _NOTHING)]
        covered = coverage[owner_of(columns, stretch.client), stretch.partition]
        covered.seen.append(seen)
        missed = _missed(ends.offsets(stretch.partition, isolation_of(columns, stretch.client)), stretch, seen)
        if len(missed):
            covered.reported.append(missed)
            name = ends.name(stretch.partition, isolation_of(columns, stretch.client), int(missed[0]))
            yield _skipped(stretch, missed, name)
    for event in columns.of(CaughtUp):
        key = (owner_of(columns, event.client), event.partition)
        yield from _unseen(facts, event, coverage.get(key, Coverage()), ends)


def owner_of(columns: Columns, client: str) -> str:
    """The owner of a consumer's reads, which must have seen all records together: its group, or itself."""
    opened = columns.consumers.get(client)
    return f"consumer {client}" if opened is None or opened.group is None else f"group {opened.group}"


def isolation_of(columns: Columns, client: str) -> Isolation:
    """The isolation level that a consumer asked for."""
    opened = columns.consumers.get(client)
    return Isolation.READ_UNCOMMITTED if opened is None else opened.isolation


def coverage_of(columns: Columns, stretches: Sequence[Stretch]) -> dict[tuple[str, TopicPartition], Coverage]:
    """The beginning of each owner (see :func:`owner_of`), and what it needn't have seen; nothing seen yet."""
    found: dict[tuple[str, TopicPartition], Coverage] = {}

    def is_read(partition: TopicPartition) -> bool:
        return columns.final(columns.places.get(partition, NONE), Isolation.READ_UNCOMMITTED) is not None

    for stretch in stretches:
        covered = found.setdefault((owner_of(columns, stretch.client), stretch.partition), Coverage())
        opened = columns.consumers.get(stretch.client)
        if opened is not None and opened.may_skip:
            covered.is_whole = False
        if opened is not None and opened.from_start and stretch.skipped_from is None and is_read(stretch.partition):
            covered.start = 0  # wherever it began: what is below the log start isn't in the final read
        elif stretch.start is not None:
            covered.start = stretch.start if covered.start is None else min(covered.start, stretch.start)
        if stretch.skipped_from is None:
            continue
        if stretch.start is None:
            covered.is_whole = False
        elif stretch.start > stretch.skipped_from:
            covered.excused.append((stretch.skipped_from, stretch.start))
    for sent in columns.of(OffsetsSent):
        for partition, _ in sent.offsets if sent.is_reset else ():
            found.setdefault((f"group {sent.group}", partition), Coverage()).is_whole = False
    return found


class _Ends:
    """The final reads as a reader of some isolation must have seen them, by offset."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._known: dict[tuple[TopicPartition, Isolation], tuple[Ints, Ints]] = {}

    def offsets(self, partition: TopicPartition, isolation: Isolation) -> Ints:
        """Sorted; none where the partition wasn't read at the end."""
        return self._read(partition, isolation)[0]

    def name(self, partition: TopicPartition, isolation: Isolation, offset: int) -> str:
        """The value at an offset and the offset, for a text."""
        offsets, rows = self._read(partition, isolation)
        found = np.flatnonzero(offsets[np.searchsorted(offsets, offset) :][:1] == offset)
        if not len(found):
            return str(offset)
        row = int(rows[np.searchsorted(offsets, offset)])
        return f"{self._columns.reads.values[row].as_py()!r} at {offset}"

    def _read(self, partition: TopicPartition, isolation: Isolation) -> tuple[Ints, Ints]:
        """Offsets, and the rows of the reads."""
        key = (partition, isolation)
        if key not in self._known:
            final = self._columns.final(self._columns.places.get(partition, NONE), isolation)
            rows = _NOTHING if final is None else final.rows
            offsets, first = np.unique(self._columns.reads.offset[rows], return_index=True)
            self._known[key] = (offsets, rows[first])
        return self._known[key]


def _back_within_polls(columns: Columns) -> Iterator[Anomaly]:
    reads = columns.reads
    is_poll = np.array([isinstance(event, Polled) for event in reads.events], np.bool_)
    if not is_poll.any():
        return
    back = is_poll[reads.event[1:]] & (reads.event[1:] == reads.event[:-1]) & (reads.offset[1:] <= reads.offset[:-1])
    for number in np.flatnonzero(back):
        poll = reads.events[reads.event[number]]
        text = (
            f"{poll.client} read {reads.offset[number + 1]} after {reads.offset[number]} in one poll of "
            f"{columns.place_names[reads.place[number]].topic}-{columns.place_names[reads.place[number]].partition}"
        )
        yield Anomaly(kind=AnomalyKind.NON_MONOTONIC_POLL, text=text, evidence=(poll,))


def _rows_of_stretches(columns: Columns, stretches: Sequence[Stretch]) -> dict[int, Ints]:
    """The rows of the reads that belong to each stretch, by its number."""
    stretch_of = np.full(len(columns.reads.events), -1, np.int64)
    for number, stretch in enumerate(stretches):
        stretch_of[stretch.reads] = number
    of_rows = stretch_of[columns.reads.event]
    rows = np.flatnonzero(of_rows != -1)
    return grouped(of_rows[rows], rows)


def _missed(final: Ints, stretch: Stretch, seen: Ints) -> Ints:
    """The offsets that the log holds between the stretch's two ends and its polls didn't return."""
    if stretch.start is None or stretch.position is None:
        return _NOTHING
    passed = final[np.searchsorted(final, stretch.start) : np.searchsorted(final, stretch.position)]
    return np.setdiff1d(passed, seen)


def _skipped(stretch: Stretch, missed: Ints, name: str) -> Anomaly:
    first = int(missed[0])
    around: list[Event] = [stretch.began]
    around += [poll for poll in stretch.polls if poll.offsets and poll.offsets[-1] < first][-1:]
    around += [poll for poll in stretch.polls if (poll.offsets[-1] if poll.offsets else first) >= first][:1]
    topic, number = stretch.partition
    text = (
        f"{stretch.client} read {topic}-{number} from {stretch.start} to {stretch.position} and didn't see "
        f"{len(missed)} of its records, such as {name}"
    )
    return Anomaly(kind=AnomalyKind.SKIPPED_POLL, text=text, evidence=tuple(dict.fromkeys(around)))


def _unseen(facts: Facts, event: CaughtUp, covered: Coverage, ends: _Ends) -> Iterator[Anomaly]:
    columns, isolation = facts.columns, isolation_of(facts.columns, event.client)
    final = ends.offsets(event.partition, isolation)
    place = columns.places.get(event.partition, NONE)
    if not len(final):  # what is promised and isn't there at the end is lost, not unseen
        is_promised = facts.is_required & (facts.place == place) & ~facts.has_final
        final = np.unique(facts.offset[is_promised])
    beyond = final[np.searchsorted(final, event.position) :]
    topic, number = event.partition
    if len(beyond):
        text = (
            f"{event.client} had reached the end of {topic}-{number} at {event.position}, and there are {len(beyond)} "
            f"records beyond, such as {ends.name(event.partition, isolation, int(beyond[0]))}"
        )
        yield Anomaly(kind=AnomalyKind.UNSEEN, text=text, evidence=(event,))
    if not covered.is_whole or covered.start is None:
        return
    passed = final[np.searchsorted(final, covered.start) : np.searchsorted(final, event.position)]
    passed = np.setdiff1d(passed, np.concatenate([_NOTHING, *covered.seen, *covered.reported]))
    for start, end in covered.excused:
        passed = passed[(passed < start) | (passed >= end)]
    if len(passed):
        owner = owner_of(columns, event.client)
        text = (
            f"{owner} had reached the end of {topic}-{number} and had not seen {len(passed)} of its records since "
            f"{covered.start}, such as {ends.name(event.partition, isolation, int(passed[0]))}"
        )
        yield Anomaly(kind=AnomalyKind.UNSEEN, text=text, evidence=(event,))
