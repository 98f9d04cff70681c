"""Checks of groups' committed offsets: went back, or out of step with the outputs made of what was read; and of the
order of these outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from sparklog.model import TopicPartition
from sparklog.testing.history.columns import NONE, Columns, Ends
from sparklog.testing.history.events import (
    Assigned,
    Event,
    FinalOffset,
    OffsetsSent,
    OffsetsSettled,
    Outcome,
    Sought,
)
from sparklog.testing.history.facts import Facts
from sparklog.testing.history.polls import Coverage
from sparklog.testing.history.verdict import Anomaly, AnomalyKind, MalformedHistoryError

__all__ = ["progress_anomalies"]

_ANYWHERE = -1


@dataclass(frozen=True, slots=True)
class _Commit:
    sent: OffsetsSent
    offset: int
    end: int
    """One of :class:`Ends`."""


@dataclass(slots=True)
class _Progress:
    """A group's commits of one partition."""

    commits: list[_Commit] = field(default_factory=list)
    lowest_excuse: int | None = None
    """The lowest offset to which somebody went back on purpose: from there on commits may be lower than others."""
    is_reset: bool = False
    final: FinalOffset | None = None

    def excuse(self, offset: int) -> None:
        """Note that somebody went back to ``offset`` on purpose."""
        self.lowest_excuse = offset if self.lowest_excuse is None else min(self.lowest_excuse, offset)

    def is_excused(self, offset: int) -> bool:
        """May this offset follow a higher one?"""
        return self.lowest_excuse is not None and offset >= self.lowest_excuse

    @property
    def certain(self) -> list[_Commit]:
        """The commits that were committed for certain."""
        return [commit for commit in self.commits if commit.end == Ends.COMMITTED]

    @property
    def highest(self) -> _Commit | None:
        """The highest that was committed for certain."""
        return max(self.certain, key=lambda commit: commit.offset, default=None)


_Key = tuple[str, TopicPartition]


def progress_anomalies(facts: Facts, coverage: dict[tuple[str, TopicPartition], Coverage]) -> tuple[list[Anomaly], int]:
    """All anomalies of progress, and how many inputs were compared with their outputs.

    Raises:
        MalformedHistoryError: a commit of offsets was settled that nobody had sent, or a name was used twice.
    """
    progress = _progress_of(facts.columns)
    anomalies: list[Anomaly] = []
    for key, group_progress in progress.items():
        anomalies += _went_back(key, group_progress)
        anomalies += _never_committed(key, group_progress)
    compared = 0
    for key, outputs in _outputs_of(facts).items():
        covered = coverage.get((f"group {key[0]}", key[1]), Coverage())
        group_progress = progress.get(key, _Progress())
        found, count = _out_of_step(facts, key, outputs, group_progress, covered)
        anomalies += found
        if not group_progress.is_reset and group_progress.lowest_excuse is None:
            anomalies += _out_of_order(facts, key, outputs)
        compared += count
    return anomalies, compared


def _progress_of(columns: Columns) -> dict[_Key, _Progress]:
    sent_of: dict[str, OffsetsSent] = {}
    for sent in columns.of(OffsetsSent):
        if sent_of.setdefault(sent.commit, sent) is not sent:
            raise MalformedHistoryError(f"a commit of offsets has the name of another: {sent}")
        if sent.transaction is not None and sent.transaction not in columns.transactions.codes:
            raise MalformedHistoryError(f"offsets of a transaction that never began: {sent}")
    settled: dict[str, Outcome] = {}
    for settlement in columns.of(OffsetsSettled):
        if settlement.commit not in sent_of:
            raise MalformedHistoryError(f"an outcome of offsets that nobody had sent: {settlement}")
        settled[settlement.commit] = settlement.outcome
    ends = {Outcome.COMMITTED: Ends.COMMITTED, Outcome.ABORTED: Ends.ABORTED, Outcome.UNKNOWN: Ends.UNKNOWN}
    found: dict[_Key, _Progress] = {}
    for sent in columns.of(OffsetsSent):
        end = ends[settled.get(sent.commit, Outcome.UNKNOWN)]
        if sent.transaction is not None and end != Ends.ABORTED:
            end = int(columns.transactions.end[columns.transactions.codes[sent.transaction]])
        for partition, offset in sent.offsets:
            group_progress = found.setdefault((sent.group, partition), _Progress())
            group_progress.commits.append(_Commit(sent, offset, end))
            if sent.is_reset:
                group_progress.is_reset = True
                group_progress.excuse(offset)
    for event in columns.of(FinalOffset):
        found.setdefault((event.group, event.partition), _Progress()).final = event
    _excuse_seeks(
        columns, found, {commit.sent.commit for group_progress in found.values() for commit in group_progress.certain}
    )
    return found


def _excuse_seeks(columns: Columns, progress: dict[_Key, _Progress], certain: set[str]) -> None:
    """A seek goes back on purpose if it goes below where its consumer was put, or what it had committed itself: not
    one to what is committed, as after an aborted transaction."""
    reached: dict[tuple[str, TopicPartition], int] = {}
    for event in columns.steps:
        if isinstance(event, Assigned):
            places = [(partition, position) for partition, position in event.partitions if position is not None]
        elif isinstance(event, OffsetsSent):
            places = list(event.offsets) if event.commit in certain else []
        else:
            places = []
        for partition, offset in places:
            key = (event.client, partition)
            reached[key] = max(reached.get(key, 0), offset)
        if not isinstance(event, Sought):
            continue
        opened = columns.consumers.get(event.client)
        group_progress = (
            None if opened is None or opened.group is None else progress.get((opened.group, event.partition))
        )
        before = reached.get((event.client, event.partition))
        if group_progress is not None and (event.offset is None or before is None or event.offset < before):
            group_progress.excuse(_ANYWHERE if event.offset is None else event.offset)


def _went_back(key: _Key, progress: _Progress) -> Iterator[Anomaly]:
    """Within a client the order is known; between clients only that the end comes last."""
    name = f"group {key[0]} of {key[1].topic}-{key[1].partition}"
    highest_of: dict[str, _Commit] = {}
    for commit in progress.certain:
        before = highest_of.setdefault(commit.sent.client, commit)
        if commit.offset >= before.offset:
            highest_of[commit.sent.client] = commit
        elif not progress.is_excused(commit.offset):
            text = f"{name}: {commit.sent.client} committed {commit.offset} after {before.offset}"
            yield Anomaly(kind=AnomalyKind.OFFSET_WENT_BACK, text=text, evidence=(before.sent, commit.sent))
    final, highest = progress.final, progress.highest
    if final is None or highest is None:
        return
    reached = 0 if final.offset is None else final.offset
    if reached < highest.offset and not progress.is_excused(reached):
        text = f"{name}: {highest.offset} was committed, and at the end it is {final.offset}"
        yield Anomaly(kind=AnomalyKind.OFFSET_WENT_BACK, text=text, evidence=(highest.sent, final))


def _never_committed(key: _Key, progress: _Progress) -> Iterator[Anomaly]:
    """The offset at the end is one that was refused, or belongs to an aborted transaction, and nothing else is."""
    final = progress.final
    if final is None:
        return
    same = [commit for commit in progress.commits if commit.offset == final.offset]
    if same and all(commit.end == Ends.ABORTED for commit in same):
        text = (
            f"group {key[0]} of {key[1].topic}-{key[1].partition} ends at {final.offset}, which was never committed: "
            f"only {same[0].sent.transaction or same[0].sent.commit} had it, and was aborted"
        )
        yield Anomaly(kind=AnomalyKind.OUT_OF_STEP, text=text, evidence=(same[0].sent, final))


def _outputs_of(facts: Facts) -> dict[_Key, dict[int, list[int]]]:
    """The rows of the outputs of each input offset, by group and input partition."""
    found: dict[_Key, dict[int, list[int]]] = {}
    for row, send in enumerate(facts.columns.sends.events):
        if send.source is not None:
            group, partition, offset = send.source
            found.setdefault((group, partition), {}).setdefault(offset, []).append(row)
    return found


def _out_of_step(
    facts: Facts, key: _Key, outputs: dict[int, list[int]], progress: _Progress, covered: Coverage
) -> tuple[list[Anomaly], int]:
    group, partition = key
    final, highest = progress.final, progress.highest
    name = f"group {group} of {partition.topic}-{partition.partition}"
    sends = facts.columns.sends.events
    is_there = (facts.is_in_final | facts.is_seen_committed | facts.is_required) & ~facts.is_forbidden
    may_be_there = is_there | (~facts.is_forbidden & (facts.may_be_removed | ~facts.has_final))
    committed = highest.offset if highest is not None else 0
    if final is not None:
        committed = 0 if final.offset is None else final.offset
    last_word: tuple[Event, ...] = (highest.sent,) if highest is not None else ()
    last_word = (final,) if final is not None else last_word
    found: list[Anomaly] = []

    def add(text: str, *events: Event) -> None:
        found.append(Anomaly(kind=AnomalyKind.OUT_OF_STEP, text=f"{name}: {text}", evidence=events))

    for offset, rows in outputs.items():
        there = [row for row in rows if is_there[row]]
        if len(there) > 1:
            names = ", ".join(map(facts.named, there[:3]))
            add(f"input {offset} has {len(there)} outputs: {names}", *(sends[row] for row in there))
        if there and final is not None and offset >= committed and not progress.is_reset:
            text = f"input {offset} has an output, {facts.named(there[0])}, and only {final.offset} is committed"
            add(text, *facts.evidence(there[0], final))
    inputs = _inputs(facts.columns, partition, covered, committed)
    for offset in inputs:
        rows = outputs.get(offset, [])
        if not any(may_be_there[row] for row in rows):
            add(
                f"{committed} is committed, and input {offset} has no output", *(sends[row] for row in rows), *last_word
            )
    return found, max(len(inputs), len(outputs))


def _out_of_order(facts: Facts, key: _Key, outputs: dict[int, list[int]]) -> Iterator[Anomaly]:
    """The first pair in each partition that has outputs: one whose input comes before that of the output before it.

    Whoever takes an input partition begins behind the committed offset, when the outputs of what lies before it are in
    their partitions.
    """
    group, partition = key
    there = sorted(
        (int(facts.place[row]), int(facts.offset[row]), offset, row)
        for offset, rows in outputs.items()
        for row in rows
        if facts.is_in_final[row] and facts.offset[row] != NONE
    )
    told: set[int] = set()
    for (place, at, source, row), (next_place, next_at, next_source, next_row) in pairwise(there):
        if place == next_place and next_source < source and place not in told:
            told.add(place)
            text = (
                f"group {group} of {partition.topic}-{partition.partition}: the output of input {source}, "
                f"{facts.named(row)}, is {facts.at(place, at)}, and that of input {next_source}, "
                f"{facts.named(next_row)}, only at {next_at}"
            )
            evidence = (*facts.evidence(row), *facts.evidence(next_row))
            yield Anomaly(kind=AnomalyKind.OUTPUT_ORDER, text=text, evidence=evidence)


def _inputs(columns: Columns, partition: TopicPartition, covered: Coverage, committed: int) -> list[int]:
    """The inputs that must have an output: from where the group began, below what is committed, that still exist."""
    final = columns.final(columns.places.get(partition, NONE))
    if final is None or not covered.is_whole:
        return []
    offsets = np.unique(columns.reads.offset[final.rows])
    start = final.log_start if covered.start is None else covered.start
    wanted = offsets[np.searchsorted(offsets, start) : np.searchsorted(offsets, committed)]
    for first, end in covered.excused:
        wanted = wanted[(wanted < first) | (wanted >= end)]
    return [int(offset) for offset in wanted]
