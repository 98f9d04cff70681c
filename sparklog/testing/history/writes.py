"""Checks of what was written: lost, doubled, aborted, never sent, out of order, torn, at two places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from sparklog.testing.history.columns import NONE, Bools, Ends, Ints, grouped
from sparklog.testing.history.events import Acknowledged, Event, FinalRead, Isolation, PartitionView, Snapshot
from sparklog.testing.history.facts import Facts
from sparklog.testing.history.verdict import Anomaly, AnomalyKind

__all__ = ["interleaved", "write_anomalies"]


def write_anomalies(facts: Facts) -> Iterator[Anomaly]:
    """All anomalies of writes."""
    yield from _contradictions(facts)
    yield from _torn(facts)
    yield from _lost(facts)
    yield from _forbidden(facts)
    yield from _phantoms(facts)
    yield from _doubled(facts)
    yield from _moved(facts)
    yield from _shared_offsets(facts)
    yield from _bad_finals(facts)
    yield from _reordered(facts)
    yield from _torn_snapshots(facts)


def _contradictions(facts: Facts) -> Iterator[Anomaly]:
    columns, sends = facts.columns, facts.columns.sends
    for number in columns.transactions.contradicted:
        name, events = columns.transactions.names[number], columns.transactions.events[number]
        yield _anomaly(AnomalyKind.CONTRADICTION, f"{name} was committed, and aborted as well", events)
    for row in np.flatnonzero(
        (sends.acknowledged != NONE) & (sends.failed != NONE) & (sends.transaction == NONE)
    ).tolist():
        text = f"{facts.named(row)} was acknowledged, and failed for certain as well"
        yield _anomaly(AnomalyKind.CONTRADICTION, text, facts.evidence(row))
    row_of, place_of, offset_of = sends.acknowledgements
    differs = (place_of != sends.acknowledged_place[row_of]) | (offset_of != sends.acknowledged_offset[row_of])
    for number in np.flatnonzero(differs).tolist():
        row = int(row_of[number])
        text = f"{facts.named(row)} was acknowledged twice, differently"
        yield _anomaly(AnomalyKind.CONTRADICTION, text, facts.evidence(row, facts.columns.of(Acknowledged)[number]))


def _missing(facts: Facts) -> Bools:
    """Sends that are not in the final read though it would show them."""
    missing: Bools = ~facts.is_in_final & facts.has_final & ~facts.may_be_removed
    return missing


def _torn_rows(facts: Facts) -> Bools:
    """Sends that are missing while others of the same transaction are there."""
    sends, is_part = facts.columns.sends, _is_part(facts)
    is_there = np.zeros(len(facts.columns.transactions.names) + 1, np.bool_)  # the last: of no transaction
    is_there[sends.transaction[is_part & facts.is_in_final]] = True
    return is_part & _missing(facts) & is_there[sends.transaction]


def _is_part(facts: Facts) -> Bools:
    """Sends that are there if their transaction was committed."""
    sends = facts.columns.sends
    part: Bools = (sends.transaction != NONE) & (sends.failed == NONE) & (facts.end != Ends.ABORTED)
    return part


def _torn(facts: Facts) -> Iterator[Anomaly]:
    sends, names = facts.columns.sends, facts.columns.transactions.names
    is_part = _is_part(facts)
    parts = np.bincount(sends.transaction[is_part], minlength=len(names))
    present = np.full(len(names), NONE, np.int64)
    there = np.flatnonzero(is_part & facts.is_in_final)
    present[sends.transaction[there]] = there
    rows = np.flatnonzero(_torn_rows(facts))
    for number, missing in grouped(sends.transaction[rows], rows).items():
        text = (
            f"{names[number]}: {len(missing)} of {parts[number]} records are not there, such as "
            f"{facts.named(int(missing[0]))}, and others are, such as {facts.named(int(present[number]))}"
        )
        events = facts.evidence(int(missing[0]), sends.events[present[number]])
        yield _anomaly(AnomalyKind.TORN_TRANSACTION, text, events)


def _lost(facts: Facts) -> Iterator[Anomaly]:
    sends, reads, torn = facts.columns.sends, facts.columns.reads, _torn_rows(facts)
    if not len(sends):
        return
    is_lost = facts.is_required & _missing(facts) & ~torn
    for row in np.flatnonzero(is_lost).tolist():
        why = "committed" if sends.transaction[row] != NONE else "acknowledged"
        text = f"{facts.named(row)} was {why}, {facts.at(facts.place[row], facts.offset[row])}, and is not there"
        if sends.is_tombstone[row] and facts.place[row] != NONE and facts.is_compacted[facts.place[row]]:
            text += ", and what it deleted is"
        yield _anomaly(AnomalyKind.LOST_WRITE, text, facts.evidence(row))
    is_gone = _missing(facts) & ~facts.is_forbidden & ~is_lost & ~torn
    counts_for = reads.is_committed | (sends.transaction[reads.send] == NONE)
    witnesses = np.flatnonzero((reads.send != NONE) & ~reads.is_final & counts_for & is_gone[reads.send])
    for number in _first_of_each(reads.send[witnesses], witnesses).tolist():
        row = int(reads.send[number])
        reader = reads.events[reads.event[number]]
        text = (
            f"{facts.named(row)} was read by {reader.client}, {facts.at(reads.place[number], reads.offset[number])}, "
            "and is not there any more"
        )
        yield _anomaly(AnomalyKind.LOST_WRITE, text, facts.evidence(row, reader))


def _forbidden(facts: Facts) -> Iterator[Anomaly]:
    """One anomaly per record; outside of a transaction a failed send may not even be read uncommitted."""
    sends, reads = facts.columns.sends, facts.columns.reads
    if not len(sends):
        return
    is_plain = sends.transaction[reads.send] == NONE
    seen = (reads.send != NONE) & facts.is_forbidden[reads.send] & (reads.is_committed | is_plain)
    numbers = np.flatnonzero(seen)
    for number in _first_of_each(reads.send[numbers], numbers).tolist():
        row, reader = int(reads.send[number]), reads.events[reads.event[number]]
        why = "failed for certain" if facts.end[row] != Ends.ABORTED else "was of an aborted transaction"
        where = facts.at(reads.place[number], reads.offset[number])
        text = f"{facts.named(row)} {why}, and {reader.client} read it, {where}"
        yield _anomaly(AnomalyKind.ABORTED_READ, text, facts.evidence(row, reader))


def _phantoms(facts: Facts) -> Iterator[Anomaly]:
    columns, sends, reads = facts.columns, facts.columns.sends, facts.columns.reads
    numbers = np.flatnonzero(reads.send == NONE)
    for number in _first_of_each(reads.name[numbers], numbers).tolist():
        reader, where = reads.events[reads.event[number]], facts.at(reads.place[number], reads.offset[number])
        text = f"{reads.values[int(number)].as_py()!r}, {where}, was read by {reader.client}, and nobody sent it"
        yield _anomaly(AnomalyKind.PHANTOM, text, (reader,))
    if not len(sends):
        return
    elsewhere = (sends.place[reads.send] != NONE) & (sends.place[reads.send] != reads.place)
    elsewhere |= sends.topic[reads.send] != columns.place_topic[reads.place]
    numbers = np.flatnonzero(elsewhere & (reads.send != NONE))
    for number in _first_of_each(reads.send[numbers], numbers).tolist():
        row, reader = int(reads.send[number]), reads.events[reads.event[number]]
        where = facts.at(reads.place[number], reads.offset[number])
        text = f"{facts.named(row)} was sent elsewhere, and {reader.client} read it, {where}"
        yield _anomaly(AnomalyKind.PHANTOM, text, facts.evidence(row, reader))


def _doubled(facts: Facts) -> Iterator[Anomaly]:
    sends, reads = facts.columns.sends, facts.columns.reads
    if not len(sends):
        return
    numbers = np.flatnonzero((reads.send != NONE) & sends.is_idempotent[reads.send])
    numbers = numbers[np.lexsort((numbers, reads.offset[numbers], reads.place[numbers], reads.send[numbers]))]
    one, other = numbers[:-1], numbers[1:]
    same_send = reads.send[one] == reads.send[other]
    same_place = (reads.place[one] == reads.place[other]) & (reads.offset[one] == reads.offset[other])
    for number in np.flatnonzero(same_send & ~same_place).tolist():
        first, second = int(one[number]), int(other[number])
        row = int(reads.send[first])
        places = " and ".join(facts.at(reads.place[which], reads.offset[which]) for which in (first, second))
        readers = [reads.events[reads.event[which]] for which in (first, second)]
        yield _anomaly(AnomalyKind.DUPLICATE, f"{facts.named(row)} is at {places}", facts.evidence(row, *readers))


def _moved(facts: Facts) -> Iterator[Anomaly]:
    """Acknowledged at one place, and read at others only."""
    sends, reads = facts.columns.sends, facts.columns.reads
    if not len(sends):
        return
    known = np.flatnonzero((reads.send != NONE) & (sends.acknowledged_offset[reads.send] != NONE))
    rows = reads.send[known]
    fits = (reads.place[known] == sends.acknowledged_place[rows]) & (
        reads.offset[known] == sends.acknowledged_offset[rows]
    )
    is_confirmed = np.zeros(len(sends), np.bool_)
    is_confirmed[rows[fits]] = True
    wrong = known[~is_confirmed[rows]]
    for number in _first_of_each(reads.send[wrong], wrong).tolist():
        row, reader = int(reads.send[number]), reads.events[reads.event[number]]
        text = (
            f"{facts.named(row)} was acknowledged, "
            f"{facts.at(sends.acknowledged_place[row], sends.acknowledged_offset[row])}, and {reader.client} read it, "
            f"{facts.at(reads.place[number], reads.offset[number])}"
        )
        yield _anomaly(AnomalyKind.INCONSISTENT_OFFSETS, text, facts.evidence(row, reader))


def _shared_offsets(facts: Facts) -> Iterator[Anomaly]:
    """Two values at one offset, by whoever read or acknowledged them."""
    columns, reads = facts.columns, facts.columns.reads
    rows, acknowledged_places, acknowledged_offsets = columns.sends.acknowledgements
    answered = np.flatnonzero(acknowledged_offsets != NONE)
    name = np.concatenate([reads.name, rows[answered]])
    place = np.concatenate([reads.place, acknowledged_places[answered]])
    offset = np.concatenate([reads.offset, acknowledged_offsets[answered]])
    order = np.lexsort((name, offset, place))
    one, other = order[:-1], order[1:]
    differs = (place[one] == place[other]) & (offset[one] == offset[other]) & (name[one] != name[other])
    for number in np.flatnonzero(differs).tolist():
        first, second = int(one[number]), int(other[number])
        events: list[Event] = []
        values = []
        for which in (first, second):
            if which < len(reads):
                events.append(reads.events[reads.event[which]])
                values.append(reads.values[which].as_py())
            else:
                events.append(columns.of(Acknowledged)[answered[which - len(reads)]])
                values.append(columns.sends.events[name[which]].value)
        text = f"{facts.at(place[first], offset[first])} are both {values[0]!r} and {values[1]!r}"
        yield _anomaly(AnomalyKind.INCONSISTENT_OFFSETS, text, events)


def _bad_finals(facts: Facts) -> Iterator[Anomaly]:
    """A final read that doesn't fit itself: bounds, order, or committed records that the full read hasn't."""
    columns, reads = facts.columns, facts.columns.reads
    kind = AnomalyKind.INCONSISTENT_OFFSETS
    for isolation, finals in columns.finals.items():
        for place, final in finals.items():
            where, offsets = f"the final read ({isolation.value}) of {facts.at(place, NONE)}", reads.offset[final.rows]
            if len({(event.log_start, event.log_end) for event in final.events}) > 1:
                yield _anomaly(kind, f"{where} has several log starts or ends", final.events)
            outside = np.flatnonzero((offsets < final.log_start) | (offsets >= final.log_end))
            if len(outside):
                bounds = f"[{final.log_start}, {final.log_end})"
                text = f"{where} has {len(outside)} records outside of {bounds}, such as {offsets[outside[0]]}"
                yield _anomaly(kind, text, _events_of(facts, final.rows[outside[:1]]))
            back = np.flatnonzero(np.diff(offsets) <= 0)
            if len(back):
                pair = offsets[back[0] : back[0] + 2]
                text = f"{where} goes back from {pair[0]} to {pair[1]}"
                yield _anomaly(kind, text, _events_of(facts, final.rows[back[0] : back[0] + 2]))
            every = columns.finals[Isolation.READ_UNCOMMITTED].get(place)
            if isolation is Isolation.READ_COMMITTED and every is not None:
                hidden = final.rows[~np.isin(offsets, reads.offset[every.rows])]
                if len(hidden):
                    text = f"{where} has {len(hidden)} records that reading all doesn't show, such as "
                    text += str(reads.offset[hidden[0]])
                    yield _anomaly(kind, text, _events_of(facts, hidden[:1]))


def _events_of(facts: Facts, numbers: Ints) -> list[FinalRead]:
    reads = facts.columns.reads
    return [event for event in (reads.events[reads.event[n]] for n in numbers) if isinstance(event, FinalRead)]


def _reordered(facts: Facts) -> Iterator[Anomaly]:
    sends, reads = facts.columns.sends, facts.columns.reads
    if not len(sends):
        return
    # Where it was read first counts, else where it was acknowledged: what else there is, others say.
    place, offset = facts.place.copy(), sends.acknowledged_offset.copy()
    known = np.flatnonzero(reads.send != NONE)
    known = known[np.lexsort((-reads.offset[known], reads.send[known]))]
    place[reads.send[known]], offset[reads.send[known]] = reads.place[known], reads.offset[known]
    rows = np.flatnonzero(sends.is_idempotent & (offset != NONE))
    rows = rows[np.lexsort((rows, place[rows], sends.client[rows]))]
    one, other = rows[:-1], rows[1:]
    same = (sends.client[one] == sends.client[other]) & (place[one] == place[other])
    for number in np.flatnonzero(same & (offset[one] > offset[other])).tolist():
        first, second = int(one[number]), int(other[number])
        text = (
            f"{facts.named(second)} was sent after {sends.events[first].value!r}, and is before it: "
            f"{facts.at(place[second], offset[second])}, and {offset[first]}"
        )
        events = (*facts.evidence(first), *facts.evidence(second))
        yield _anomaly(AnomalyKind.NON_MONOTONIC_SEND, text, events)


def _torn_snapshots(facts: Facts) -> Iterator[Anomaly]:
    """A transaction of which a snapshot shows some records and not all, though it covers their partitions."""
    columns, sends, reads = facts.columns, facts.columns.sends, facts.columns.reads
    numbers = np.flatnonzero([isinstance(event, Snapshot) for event in reads.events])
    if not len(numbers) or not len(sends):
        return
    parts = np.flatnonzero(sends.transaction != NONE)
    parts_of = grouped(sends.transaction[parts], parts)
    is_seen = np.isin(reads.event, numbers) & (reads.send != NONE)
    seen_rows = np.flatnonzero(is_seen)
    rows_of = grouped(reads.event[seen_rows], seen_rows)
    for number in numbers.tolist():
        snapshot = reads.events[number]
        if not isinstance(snapshot, Snapshot) or number not in rows_of:
            continue
        seen = reads.send[rows_of[number]]
        views = {columns.places[view.partition]: view for view in snapshot.views}
        for transaction in np.unique(sends.transaction[seen]):
            if transaction == NONE or columns.transactions.end[transaction] == Ends.ABORTED:
                continue
            others = np.setdiff1d(parts_of[int(transaction)], seen)
            torn = [int(row) for row in others if _is_missed(facts, int(row), views)]
            if torn:
                shown = sends.events[seen[sends.transaction[seen] == transaction][0]]
                text = (
                    f"a snapshot of {snapshot.client} shows {shown.value!r} of {shown.transaction}, and not "
                    f"{sends.events[torn[0]].value!r}, {facts.at(facts.place[torn[0]], facts.offset[torn[0]])}"
                )
                yield _anomaly(AnomalyKind.TORN_TRANSACTION, text, facts.evidence(torn[0], shown, snapshot))


def interleaved(facts: Facts) -> Iterator[Anomaly]:
    """A transaction's part in one partition whose final offsets don't follow one another; of what has gone below the
    log start the rest still does. Not where compaction makes holes, nor of those that are reported as torn."""
    reads, sends = facts.columns.reads, facts.columns.sends
    if not len(sends):
        return
    rows = np.flatnonzero(facts.final_reads & (reads.send != NONE))
    of_transaction, place = sends.transaction[reads.send[rows]], reads.place[rows]
    torn = np.unique(sends.transaction[_torn_rows(facts)])
    kept = (of_transaction != NONE) & ~facts.is_compacted[place] & ~np.isin(of_transaction, torn)
    rows, of_transaction, place = rows[kept], of_transaction[kept], place[kept]
    order = np.lexsort((reads.offset[rows], place, of_transaction))
    rows, of_transaction, place = rows[order], of_transaction[order], place[order]
    one, other = rows[:-1], rows[1:]
    is_same = (of_transaction[:-1] == of_transaction[1:]) & (place[:-1] == place[1:])
    apart = np.flatnonzero(is_same & (reads.offset[other] - reads.offset[one] > 1))
    for number in _first_of_each(of_transaction[apart], apart).tolist():
        before, after = int(one[number]), int(other[number])
        first, second = int(reads.send[before]), int(reads.send[after])
        text = (
            f"{facts.named(first)} is {facts.at(reads.place[before], reads.offset[before])}, and what follows of its "
            f"transaction there, {sends.events[second].value!r}, only at {reads.offset[after]}"
        )
        events = (*facts.evidence(first), *facts.evidence(second), *_events_of(facts, np.array([before, after])))
        yield _anomaly(AnomalyKind.INTERLEAVED_TRANSACTION, text, dict.fromkeys(events))


def _is_missed(facts: Facts, row: int, views: dict[int, PartitionView]) -> bool:
    """Should a snapshot have shown this record, of a transaction that it shows?"""
    view = views.get(int(facts.place[row]))
    offset = facts.offset[row]
    if view is None or offset == NONE or offset < view.start or facts.columns.sends.failed[row] != NONE:
        return False
    return bool(offset >= view.end or not facts.is_compacted[facts.place[row]])


def _first_of_each(keys: Ints, numbers: Ints) -> Ints:
    """The first of ``numbers`` for each key."""
    return numbers[np.unique(keys, return_index=True)[1]] if len(numbers) else numbers


def _anomaly(kind: AnomalyKind, text: str, events: Iterable[Event]) -> Anomaly:
    return Anomaly(kind=kind, text=text, evidence=tuple(events))
