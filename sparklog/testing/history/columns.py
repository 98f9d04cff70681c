"""A history as columns: sends, what became of them, and every record that somebody read. Nothing is judged here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.model import TopicPartition
from sparklog.testing.history.events import (
    Acknowledged,
    Assigned,
    ConsumerOpened,
    Event,
    Failed,
    FinalRead,
    Isolation,
    Lost,
    OffsetsSent,
    Outcome,
    Polled,
    ProducerOpened,
    Revoked,
    Send,
    Snapshot,
    Sought,
    TransactionBegun,
    TransactionEnded,
    TransactionEnding,
    Unknown,
)
from sparklog.testing.history.files import History
from sparklog.testing.history.verdict import MalformedHistoryError

__all__ = [
    "NONE",
    "Bools",
    "Columns",
    "Ends",
    "FinalPlace",
    "Ints",
    "Reads",
    "Sends",
    "Transactions",
    "columns_of",
    "grouped",
]

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

E = TypeVar("E")

_STEPS = (Polled, Assigned, Revoked, Lost, Sought, OffsetsSent)

NONE = -1
"""In every column: there is none, or it isn't known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sends:
    """A row per send, in the order of the history."""

    events: Sequence[Send]
    client: Ints
    topic: Ints
    place: Ints
    """The partition that the send named; NONE if it didn't."""
    key: Ints
    transaction: Ints
    is_tombstone: Bools
    is_idempotent: Bools
    """Whether the send is an idempotent producer's."""
    acknowledgements: tuple[Ints, Ints, Ints]
    """The acknowledgements, for each :class:`Acknowledged` of the history: row of the send, place, offset."""
    acknowledged: Ints
    """Number of its last :class:`Acknowledged` among those of the history."""
    acknowledged_place: Ints
    acknowledged_offset: Ints
    failed: Ints
    """Number of its last :class:`Failed`."""

    def __len__(self) -> int:
        return len(self.events)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """A row per record that was read, in the order of the history."""

    events: Sequence[Polled | FinalRead | Snapshot]
    """The events that ``event`` numbers."""
    event: Ints
    send: Ints
    """Row of the send; NONE for a value that nobody sent."""
    name: Ints
    """A number for each value: that of its send, or one beyond all sends."""
    place: Ints
    offset: Ints
    is_committed: Bools
    """Read with isolation read_committed."""
    is_final: Bools
    values: pa.Array

    def __len__(self) -> int:
        return len(self.event)


class Ends:
    """Ends of a transaction, as far as its client knows."""

    UNKNOWN = 0
    COMMITTED = 1
    ABORTED = 2
    """Or was never to be committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """A row per transaction."""

    names: Sequence[str]
    codes: dict[str, int]
    end: Ints
    """One of :class:`Ends`."""
    events: Sequence[Sequence[Event]]
    """The events of each transaction: begun, ending, ended."""
    contradicted: Sequence[int]
    """The transactions whose clients learnt both that they are committed and that they are aborted."""


@dataclass(frozen=True, slots=True)
class FinalPlace:
    """The final read of one partition with one isolation."""

    log_start: int
    log_end: int
    rows: Ints
    """The rows of the reads, as they were read."""
    events: Sequence[FinalRead]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """A whole history as columns: all that the checks look at."""

    by_type: dict[type, list[Event]]
    places: dict[TopicPartition, int]
    place_names: Sequence[TopicPartition]
    place_topic: Ints
    topics: dict[str, int]
    sends: Sends
    reads: Reads
    transactions: Transactions
    finals: dict[Isolation, dict[int, FinalPlace]]
    """By place; of each isolation."""
    consumers: dict[str, ConsumerOpened]
    steps: Sequence[Assigned | Revoked | Lost | Sought | Polled | OffsetsSent]
    """The events that move consumers and groups, each client's in its order."""

    def of(self, kind: type[E]) -> list[E]:
        """The events of one type, in order."""
        return self.by_type.get(kind, [])  # type: ignore[return-value]

    def final(self, place: int, isolation: Isolation = Isolation.READ_COMMITTED) -> FinalPlace | None:
        """The final read that holds what a reader of this isolation must have seen, and no more."""
        found = self.finals[isolation].get(place)
        if found is None and isolation is Isolation.READ_UNCOMMITTED:
            found = self.finals[Isolation.READ_COMMITTED].get(place)
        return found


class _Codes(dict[E, int]):
    """Numbers things in the order in which they are met."""

    def __missing__(self, thing: E) -> int:
        self[thing] = code = len(self)
        return code


def columns_of(history: History) -> Columns:
    """Read the events once.

    Raises:
        MalformedHistoryError: a value was sent twice, or had an outcome without having been sent; a transaction began
            twice, or is spoken of without having begun; a read has other numbers of offsets and values.
    """
    by_type: dict[type, list[Event]] = {}
    for event in history.events:
        by_type.setdefault(type(event), []).append(event)

    def of(kind: type[E]) -> list[E]:
        return by_type.get(kind, [])  # type: ignore[return-value]

    places: _Codes[TopicPartition] = _Codes()
    topics: _Codes[str] = _Codes()
    transactions = _transactions(of(TransactionBegun), [*of(TransactionEnding), *of(TransactionEnded)])
    values = pa.array([send.value for send in of(Send)], pa.string())
    plain = {event.client for event in of(ProducerOpened) if not event.is_idempotent}
    outcomes = _Outcomes(values, of(Acknowledged), of(Failed), of(Unknown))
    sends = _sends(of(Send), outcomes, places, topics, transactions, plain)
    consumers = {event.client: event for event in of(ConsumerOpened)}
    reads = _reads(
        [event for event in history.events if isinstance(event, (Polled, FinalRead, Snapshot))],
        values,
        places,
        {client for client, event in consumers.items() if event.isolation is Isolation.READ_COMMITTED},
    )
    names = [TopicPartition(*place) for place in places]
    return Columns(
        by_type=by_type,
        places=places,
        place_names=names,
        place_topic=np.array([topics[place.topic] for place in names], np.int64),
        topics=topics,
        sends=sends,
        reads=reads,
        transactions=transactions,
        finals={isolation: _finals(reads, places, isolation) for isolation in Isolation},
        consumers=consumers,
        steps=[event for event in history.events if isinstance(event, _STEPS)],
    )


def _transactions(
    begun: Iterable[TransactionBegun], later: Iterable[TransactionEnding | TransactionEnded]
) -> Transactions:
    events: dict[str, list[Event]] = {}
    for event in begun:
        if event.transaction in events:
            raise MalformedHistoryError(f"transaction {event.transaction!r} began twice: {event}")
        events[event.transaction] = [event]
    wanted: set[str] = set()
    outcomes: dict[str, set[Outcome]] = {}
    for end in later:
        if end.transaction not in events:
            raise MalformedHistoryError(f"a transaction that never began: {end}")
        events[end.transaction].append(end)
        if isinstance(end, TransactionEnded):
            outcomes.setdefault(end.transaction, set()).add(end.outcome)
        elif end.is_commit:
            wanted.add(end.transaction)
    ends, contradicted = [], []
    for number, name in enumerate(events):
        known = outcomes.get(name, set()) - {Outcome.UNKNOWN}
        if len(known) > 1:
            contradicted.append(number)
        if known == {Outcome.COMMITTED}:
            ends.append(Ends.COMMITTED)
        elif known == {Outcome.ABORTED} or (not known and name not in wanted):
            ends.append(Ends.ABORTED)
        else:
            ends.append(Ends.UNKNOWN)
    return Transactions(
        names=list(events),
        codes={name: number for number, name in enumerate(events)},
        end=np.array(ends, np.int64),
        events=list(events.values()),
        contradicted=contradicted,
    )


class _Outcomes:
    """The outcomes of the sends, by row."""

    def __init__(
        self,
        values: pa.Array,
        acknowledged: Sequence[Acknowledged],
        failed: Sequence[Failed],
        unknown: Sequence[Unknown],
    ) -> None:
        self.values = values
        if len(pc.unique(values)) < len(values):
            counts = pc.value_counts(values)
            twice = counts.filter(pc.greater(counts.field("counts"), 1))[0].as_py()["values"]
            raise MalformedHistoryError(f"value {twice!r} was sent twice: give each send a value of its own")
        self.acknowledged_events = acknowledged
        self.acknowledged_rows = self._rows(acknowledged)
        self.acknowledged = self._last(self.acknowledged_rows)
        self.failed = self._last(self._rows(failed))
        self._rows(unknown)  # nothing follows from them, but that they were sent

    def _rows(self, events: Sequence[Acknowledged | Failed | Unknown]) -> Ints:
        """Row of the send that each event is about."""
        rows = _rows_of(pa.array([event.value for event in events], pa.string()), self.values)
        if (rows == NONE).any():
            raise MalformedHistoryError(f"an outcome of a value that nobody sent: {events[int(np.argmin(rows))]}")
        return rows

    def _last(self, rows: Ints) -> Ints:
        """The number of the last event of each send."""
        last = np.full(len(self.values), NONE, np.int64)
        last[rows] = np.arange(len(rows))
        return last


def _sends(
    events: Sequence[Send],
    outcomes: _Outcomes,
    places: _Codes[TopicPartition],
    topics: _Codes[str],
    transactions: Transactions,
    plain: set[str],
) -> Sends:
    clients: _Codes[str] = _Codes()
    keys: _Codes[str] = _Codes()
    unbegun = next((e for e in events if e.transaction is not None and e.transaction not in transactions.codes), None)
    if unbegun is not None:
        raise MalformedHistoryError(f"a send of a transaction that never began: {unbegun}")
    acknowledged = outcomes.acknowledged
    acknowledgements = outcomes.acknowledged_events
    acknowledged_places = _ints(places[event.partition] for event in acknowledgements)
    acknowledged_offsets = _ints(NONE if event.offset is None else event.offset for event in acknowledgements)
    return Sends(
        events=events,
        client=_ints(clients[e.client] for e in events),
        topic=_ints(topics[e.topic] for e in events),
        place=_ints(NONE if e.partition is None else places[TopicPartition(e.topic, e.partition)] for e in events),
        key=_ints(NONE if e.key is None else keys[e.key] for e in events),
        transaction=_ints(NONE if e.transaction is None else transactions.codes[e.transaction] for e in events),
        is_tombstone=np.array([e.is_tombstone for e in events], np.bool_),
        is_idempotent=np.array([e.client not in plain for e in events], np.bool_),
        acknowledgements=(outcomes.acknowledged_rows, acknowledged_places, acknowledged_offsets),
        acknowledged=acknowledged,
        acknowledged_place=_taken(acknowledged_places, acknowledged),
        acknowledged_offset=_taken(acknowledged_offsets, acknowledged),
        failed=outcomes.failed,
    )


def _reads(
    events: Sequence[Polled | FinalRead | Snapshot],
    sent: pa.Array,
    places: _Codes[TopicPartition],
    committed_clients: set[str],
) -> Reads:
    pieces: list[tuple[int, Sequence[int], Sequence[str], TopicPartition]] = []
    for number, event in enumerate(events):
        views = event.views if isinstance(event, Snapshot) else (event,)
        pieces += [(number, view.offsets, view.values, view.partition) for view in views]
    wrong = next((events[number] for number, offsets, values, _ in pieces if len(offsets) != len(values)), None)
    if wrong is not None:
        raise MalformedHistoryError(f"a read with other numbers of offsets and values: {wrong}")
    lengths = _ints(len(offsets) for _, offsets, _, _ in pieces)
    event_of = np.repeat(_ints(number for number, _, _, _ in pieces), lengths)
    values = pa.array(list(chain.from_iterable(values for _, _, values, _ in pieces)), pa.string())
    send = _rows_of(values, sent)
    name = send.copy()
    phantom = np.flatnonzero(send == NONE)
    if len(phantom):
        name[phantom] = len(sent) + np.asarray(values.take(phantom).dictionary_encode().indices)
    is_final = np.array([isinstance(e, FinalRead) for e in events], np.bool_)
    is_committed = np.array([_reads_committed(e, committed_clients) for e in events], np.bool_)
    return Reads(
        events=events,
        event=event_of,
        send=send,
        name=name,
        place=np.repeat(_ints(places[place] for _, _, _, place in pieces), lengths),
        offset=_ints(chain.from_iterable(offsets for _, offsets, _, _ in pieces)),
        is_committed=is_committed[event_of],
        is_final=is_final[event_of],
        values=values,
    )


def _reads_committed(event: Polled | FinalRead | Snapshot, committed_clients: set[str]) -> bool:
    if isinstance(event, FinalRead):
        return event.isolation is Isolation.READ_COMMITTED
    return isinstance(event, Snapshot) or event.client in committed_clients


def _finals(reads: Reads, places: dict[TopicPartition, int], isolation: Isolation) -> dict[int, FinalPlace]:
    events: dict[int, list[FinalRead]] = {}
    for event in reads.events:
        if isinstance(event, FinalRead) and event.isolation is isolation:
            events.setdefault(places[event.partition], []).append(event)
    wanted = np.flatnonzero(reads.is_final & (reads.is_committed == (isolation is Isolation.READ_COMMITTED)))
    rows = grouped(reads.place[wanted], wanted)
    none = np.empty(0, np.int64)
    return {
        place: FinalPlace(
            max(event.log_start for event in found), max(event.log_end for event in found), rows.get(place, none), found
        )
        for place, found in events.items()
    }


def grouped(keys: Ints, rows: Ints) -> dict[int, Ints]:
    """``rows`` by their key, each group in the order given."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    bounds = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(keys) else np.empty(0, np.int64)
    pieces = np.split(rows[order], bounds[1:]) if len(keys) else []
    return {int(ordered[start]): piece for start, piece in zip(bounds, pieces, strict=True)}


def _rows_of(values: pa.Array, among: pa.Array) -> Ints:
    """The row of each value among others; NONE where it isn't there."""
    found: Ints = pc.index_in(values, value_set=among).fill_null(NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _ints(numbers: Iterable[int]) -> Ints:
    return np.fromiter(numbers, np.int64)


def _taken(column: Ints, rows: Ints) -> Ints:
    """``column[rows]``, NONE where the row is."""
    taken = np.full(len(rows), NONE, np.int64)
    there = rows != NONE
    taken[there] = column[rows[there]]
    return taken
