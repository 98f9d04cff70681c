"""Random histories of a faultless log are clean; a random fault in one is found."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proof.history.model_log import COMPACTED, OUTPUT, good_history
from sparklog.testing.history import (
    Acknowledged,
    AnomalyKind,
    CaughtUp,
    FinalOffset,
    FinalRead,
    History,
    Isolation,
    OffsetsSent,
    Outcome,
    Polled,
    Send,
    TransactionEnded,
    check,
)

K = AnomalyKind
seeds = st.integers(0, 2**32)


@settings(max_examples=60)
@given(seeds, st.integers(0, 250), st.booleans())
def test_a_faultless_log_shows_no_anomaly(seed, steps, has_markers):
    verdict = check(good_history(seed, steps=steps, has_markers=has_markers), compacted={COMPACTED})
    assert verdict.anomalies == (), str(verdict)
    assert verdict.counts.unverified == 0


def test_the_histories_hold_much():
    """Or the test above would prove little."""
    for has_markers in (False, True):
        verdict = check(good_history(1, steps=2_000, has_markers=has_markers), compacted={COMPACTED})
        verdict.require(acknowledged=300, failed=20, unknown=50, committed=80, aborted=50, undecided=20, polled=500)
        verdict.require(seeks=20, assignments=100, offset_commits=100, required=300, removed=100, inputs=30)


def test_the_flag_of_compaction_is_needed():
    verdict = check(good_history(1, steps=500))
    assert K.LOST_WRITE in verdict.by_kind()


Plant = Callable[[list[Any], random.Random], bool]
"""Changes the events; False where they don't allow it."""


def chosen(events: list[Any], rng: random.Random, accepts: Callable[[Any], bool]) -> int | None:
    numbers = [number for number, event in enumerate(events) if accepts(event)]
    return rng.choice(numbers) if numbers else None


def outcomes(events: list[Any]) -> dict[str, Outcome]:
    return {event.transaction: event.outcome for event in events if isinstance(event, TransactionEnded)}


def placed(events: list[Any]) -> dict[str, Send]:
    """What was promised for good, and where, elsewhere than on the compacted topic."""
    sends = {event.value: event for event in events if isinstance(event, Send) and event.topic != COMPACTED}
    ends = outcomes(events)
    acknowledged = {event.value for event in events if isinstance(event, Acknowledged)}
    return {
        value: send
        for value, send in sends.items()
        if value in acknowledged and (send.transaction is None or ends.get(send.transaction) is Outcome.COMMITTED)
    }


def without(events: list[Any], value: str, kind: type[Any]) -> None:
    for number, event in enumerate(events):
        if isinstance(event, kind) and value in event.values:
            kept = [pair for pair in zip(event.offsets, event.values, strict=True) if pair[1] != value]
            offsets, values = tuple(offset for offset, _ in kept), tuple(kept_value for _, kept_value in kept)
            events[number] = event._replace(offsets=offsets, values=values)


def shown_at_the_end(events: list[Any]) -> set[str]:
    return {value for event in events if isinstance(event, FinalRead) for value in event.values}


def lose(events: list[Any], rng: random.Random) -> bool:
    values = sorted(set(placed(events)) & shown_at_the_end(events))
    if not values:
        return False
    without(events, rng.choice(values), FinalRead)
    return True


def double(events: list[Any], rng: random.Random) -> bool:
    number = chosen(events, rng, lambda event: isinstance(event, FinalRead) and bool(event.values))
    if number is None:
        return False
    final = events[number]
    places = {event.partition: event.log_end for event in events if isinstance(event, FinalRead)}
    value, end = rng.choice(final.values), places[final.partition]
    for index, event in enumerate(events):
        if isinstance(event, FinalRead) and event.partition == final.partition:
            events[index] = event._replace(log_end=end + 1)
    extra = {"offsets": (end,), "values": (value,), "log_end": end + 1}
    events += [final._replace(isolation=isolation, **extra) for isolation in Isolation]
    return True


def show_aborted(events: list[Any], rng: random.Random) -> bool:
    ends = outcomes(events)
    number = chosen(events, rng, lambda e: isinstance(e, Send) and ends.get(e.transaction or "") is Outcome.ABORTED)
    other = chosen(
        events, rng, lambda e: isinstance(e, FinalRead) and e.isolation is Isolation.READ_COMMITTED and bool(e.values)
    )
    if number is None or other is None:
        return False
    events[other] = events[other]._replace(values=(*events[other].values[:-1], events[number].value))
    return True


def invent(events: list[Any], rng: random.Random) -> bool:
    number = chosen(events, rng, lambda event: isinstance(event, (Polled, FinalRead)) and bool(event.values))
    if number is None:
        return False
    events[number] = events[number]._replace(values=("garbage", *events[number].values[1:]))
    return True


def swap(events: list[Any], rng: random.Random) -> bool:
    """Two values of one read change places."""
    number = chosen(events, rng, lambda event: isinstance(event, (Polled, FinalRead)) and len(event.values) > 1)
    if number is None:
        return False
    first, second, *rest = events[number].values
    events[number] = events[number]._replace(values=(second, first, *rest))
    readers = [e for e in events if isinstance(e, (Polled, FinalRead, Acknowledged)) and e is not events[number]]
    known = {v for e in readers for v in ((e.value,) if isinstance(e, Acknowledged) else e.values)}
    return bool({first, second} & known)


def repeat(events: list[Any], rng: random.Random) -> bool:
    number = chosen(events, rng, lambda event: isinstance(event, Polled) and bool(event.values))
    if number is not None:
        events.insert(number, events[number])
    return number is not None


def skip(events: list[Any], rng: random.Random) -> bool:
    """A record in the middle of a poll, that is there at the end."""
    there = {(e.partition, offset) for e in events if isinstance(e, FinalRead) for offset in e.offsets
             if e.isolation is Isolation.READ_COMMITTED}  # fmt: skip
    number = chosen(
        events,
        rng,
        lambda e: isinstance(e, Polled) and len(e.values) > 2 and (e.partition, e.offsets[1]) in there,
    )
    if number is None:
        return False
    poll = events[number]
    cut = {"offsets": (poll.offsets[0], *poll.offsets[2:]), "values": (poll.values[0], *poll.values[2:])}
    events[number] = poll._replace(**cut)
    return True


def tear(events: list[Any], rng: random.Random) -> bool:
    promised, shown = placed(events), shown_at_the_end(events)
    sizes: dict[str, list[str]] = {}
    for value in sorted(set(promised) & shown):
        transaction = promised[value].transaction
        if transaction is not None:
            sizes.setdefault(transaction, []).append(value)
    parts = [values for values in sizes.values() if len(values) > 1]
    if not parts:
        return False
    without(events, rng.choice(rng.choice(parts)), FinalRead)
    return True


def stop_short(events: list[Any], rng: random.Random) -> bool:
    """A consumer's last poll never was, and it says that it had reached the end."""
    number = chosen(
        events,
        rng,
        lambda e: isinstance(e, CaughtUp) and any(e.partition == f.partition and f.isolation is Isolation.READ_COMMITTED
                                                  and f.offsets for f in events if isinstance(f, FinalRead)),
    )  # fmt: skip
    if number is None:
        return False
    told = events[number]
    last = max(e.offsets[-1] for e in events if isinstance(e, FinalRead) and e.partition == told.partition and e.offsets
               and e.isolation is Isolation.READ_COMMITTED)  # fmt: skip
    events[number] = told._replace(position=last)
    return True


def swallow_output(events: list[Any], rng: random.Random) -> bool:
    """The record is gone everywhere, and its input counts as done."""
    values = sorted(value for value, send in placed(events).items() if send.topic == OUTPUT)
    shown = shown_at_the_end(events)
    starts = {e.partition: e.log_start for e in events if isinstance(e, FinalRead)}
    sources = {v: placed(events)[v].source for v in values if v in shown}
    values = [v for v, s in sources.items() if s is not None and s.offset >= starts[s.partition]]
    inputs = {(e.partition, o) for e in events if isinstance(e, FinalRead) for o in e.offsets}
    values = [v for v in values if (s := sources[v]) is not None and (s.partition, s.offset) in inputs]
    if not values:
        return False
    value = rng.choice(values)
    events[:] = [event for event in events if getattr(event, "value", None) != value]
    without(events, value, FinalRead)
    return True


def set_back(events: list[Any], rng: random.Random) -> bool:
    ends = outcomes(events)
    sure = [
        (partition, offset)
        for event in events
        if isinstance(event, OffsetsSent) and event.transaction and ends.get(event.transaction) is Outcome.COMMITTED
        for partition, offset in event.offsets
        if offset > 0
    ]
    if not sure:
        return False
    place, offset = rng.choice(sure)
    number = chosen(events, rng, lambda e: isinstance(e, FinalOffset) and (e.group, e.partition) == ("etl", place))
    if number is not None:
        events[number] = events[number]._replace(offset=offset - 1)
    return number is not None


def contradict(events: list[Any], rng: random.Random) -> bool:
    number = chosen(events, rng, lambda e: isinstance(e, TransactionEnded) and e.outcome is Outcome.COMMITTED)
    if number is not None:
        events.insert(number, events[number]._replace(outcome=Outcome.ABORTED))
    return number is not None


@pytest.mark.parametrize(
    ("plant", "kinds"),
    [
        (lose, {K.LOST_WRITE, K.TORN_TRANSACTION}),
        (double, {K.DUPLICATE}),
        (show_aborted, {K.ABORTED_READ}),
        (invent, {K.PHANTOM}),
        (swap, {K.INCONSISTENT_OFFSETS, K.DUPLICATE, K.NON_MONOTONIC_SEND}),
        (repeat, {K.NON_MONOTONIC_POLL}),
        (skip, {K.SKIPPED_POLL}),
        (tear, {K.TORN_TRANSACTION}),
        (stop_short, {K.UNSEEN}),
        (swallow_output, {K.OUT_OF_STEP}),
        (set_back, {K.OFFSET_WENT_BACK}),
        (contradict, {K.CONTRADICTION}),
    ],
)
def test_a_random_fault_is_found(plant: Plant, kinds: set[AnomalyKind]):
    planted = 0
    for seed in range(12):
        rng = random.Random(seed)
        events: list[Any] = list(good_history(seed, steps=200, has_markers=seed % 2 == 1).events)
        if plant(events, rng):
            planted += 1
            verdict = check(History(events), compacted={COMPACTED})
            assert kinds & set(verdict.by_kind()), f"seed {seed}: {verdict}"
    assert planted >= 6
