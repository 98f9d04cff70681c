"""A history as a value, and as files of JSON lines: one per process, merged when they are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sparklog.model import TopicPartition
from sparklog.testing.history.events import (
    EVENT_TYPES,
    Acknowledged,
    Assigned,
    CaughtUp,
    ConsumerOpened,
    Event,
    FinalOffset,
    FinalRead,
    Isolation,
    Lost,
    OffsetsSent,
    OffsetsSettled,
    Outcome,
    PartitionView,
    Polled,
    Revoked,
    Send,
    Snapshot,
    Sought,
    Source,
    TransactionEnded,
)
from sparklog.testing.history.verdict import MalformedHistoryError

__all__ = ["History", "load", "merge", "to_line"]

_TYPES = {kind.__name__: kind for kind in EVENT_TYPES}


class History:
    """The events of one run, of all its processes; never changes.

    Only the order within a client means anything; that between processes is a reader's help.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.events: tuple[Event, ...] = tuple(events)

    def save(self, path: str | Path) -> None:
        """Write it as JSON lines; the file must not exist yet."""
        with open(path, "xb") as file:
            file.writelines(map(to_line, self.events))

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.events == other.events

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"History({len(self.events):,} events)"


def load(*paths: str | Path) -> History:
    """Read the files of a run's processes and merge them.

    A last line without its end, of a process that was killed while it wrote, is dropped.

    Raises:
        MalformedHistoryError: another line is no event, names file and line; or as :func:`merge`.
    """
    return merge(*(_load(Path(path)) for path in paths))


def merge(*histories: History) -> History:
    """One history of several processes, roughly in the order of their clocks; each one's own order is kept.

    Raises:
        MalformedHistoryError: a client occurs in two of them.
    """
    if len(histories) == 1:
        return histories[0]
    owners: dict[str, int] = {}
    rows: list[tuple[int, int, int, Event]] = []
    for number, history in enumerate(histories):
        latest = 0
        for index, event in enumerate(history.events):
            if owners.setdefault(event.client, number) != number:
                raise MalformedHistoryError(
                    f"client {event.client!r} is in two histories: give each process (and each of its lives) a name"
                )
            latest = max(latest, event.wall_ms)
            rows.append((latest, number, index, event))
    rows.sort(key=lambda row: row[:3])
    return History(row[3] for row in rows)


def to_line(event: Event) -> bytes:
    """A line of JSON, with its end: the type's name, then the fields."""
    return json.dumps([type(event).__name__, *event], separators=(",", ":")).encode() + b"\n"


def _load(path: Path) -> History:
    lines = path.read_bytes().split(b"\n")
    lines.pop()  # what follows the last end of a line: nothing, or a line that was being written
    events = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(_from_json(json.loads(line)))
        except (ValueError, TypeError, KeyError) as error:
            raise MalformedHistoryError(f"{path}, line {number}: no event: {error}") from error
    return History(events)


def _from_json(line: Any) -> Event:
    name, *fields = line
    kind = _TYPES[name]
    return _REVIVE[kind](*fields) if kind in _REVIVE else kind(*fields)


def _partition(pair: Sequence[Any]) -> TopicPartition:
    topic, number = pair
    return TopicPartition(topic, number)


def _partitions(pairs: Iterable[Sequence[Any]]) -> tuple[TopicPartition, ...]:
    return tuple(map(_partition, pairs))


def _places(pairs: Iterable[Sequence[Any]]) -> tuple[tuple[TopicPartition, Any], ...]:
    return tuple((_partition(pair), offset) for pair, offset in pairs)


_REVIVE: dict[type[Event], Callable[..., Event]] = {
    Send: lambda *fields: Send._make((*fields[:-1], _source(fields[-1]))),
    Acknowledged: lambda order, ms, client, value, place, offset: Acknowledged(
        order, ms, client, value, _partition(place), offset
    ),
    TransactionEnded: lambda order, ms, client, name, outcome, error: TransactionEnded(
        order, ms, client, name, Outcome(outcome), error
    ),
    OffsetsSent: lambda order, ms, client, commit, group, offsets, transaction, is_reset: OffsetsSent(
        order, ms, client, commit, group, _places(offsets), transaction, is_reset
    ),
    OffsetsSettled: lambda order, ms, client, commit, outcome, error: OffsetsSettled(
        order, ms, client, commit, Outcome(outcome), error
    ),
    ConsumerOpened: lambda order, ms, client, group, isolation, *begins: ConsumerOpened(
        order, ms, client, group, Isolation(isolation), *begins
    ),
    Assigned: lambda order, ms, client, places: Assigned(order, ms, client, _places(places)),
    Revoked: lambda order, ms, client, places: Revoked(order, ms, client, _partitions(places)),
    Lost: lambda order, ms, client, places: Lost(order, ms, client, _partitions(places)),
    Sought: lambda order, ms, client, place, offset: Sought(order, ms, client, _partition(place), offset),
    Polled: lambda order, ms, client, place, offsets, values, position: Polled(
        order, ms, client, _partition(place), tuple(offsets), tuple(values), position
    ),
    CaughtUp: lambda order, ms, client, place, position: CaughtUp(order, ms, client, _partition(place), position),
    Snapshot: lambda order, ms, client, views: Snapshot(order, ms, client, tuple(map(_view, views))),
    FinalRead: lambda order, ms, client, place, isolation, start, end, offsets, values: FinalRead(
        order, ms, client, _partition(place), Isolation(isolation), start, end, tuple(offsets), tuple(values)
    ),
    FinalOffset: lambda order, ms, client, group, place, offset: FinalOffset(
        order, ms, client, group, _partition(place), offset
    ),
}
"""How those types are made of JSON whose fields aren't all plain."""


def _source(fields: Sequence[Any] | None) -> Source | None:
    if fields is None:
        return None
    group, place, offset = fields
    return Source(group, _partition(place), offset)


def _view(fields: Sequence[Any]) -> PartitionView:
    place, start, end, offsets, values = fields
    return PartitionView(_partition(place), start, end, tuple(offsets), tuple(values))
