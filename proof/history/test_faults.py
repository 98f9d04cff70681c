"""Each anomaly, planted into a good history: it is found, with its evidence, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.model import TopicPartition
from sparklog.testing.history import (
    Acknowledged,
    AnomalyError,
    AnomalyKind,
    Assigned,
    CaughtUp,
    ConsumerOpened,
    Event,
    FinalOffset,
    FinalRead,
    History,
    NothingCheckedError,
    OffsetsSent,
    PartitionView,
    Polled,
    Recorder,
    Send,
    Snapshot,
    Source,
    check,
)

A, B, OUT, PLAIN = (TopicPartition(*place) for place in (("a", 0), ("b", 0), ("out", 0), ("plain", 0)))
VIEWS = [PartitionView(A, 0, 6, (0, 1, 2, 3, 4), ("a0", "a1", "a2", "a3", "x0")), PartitionView(B, 0, 1, (0,), ("x1",))]


def a_history() -> History:
    """Partition a: a0 a1 a2 a3 x0 ·, with 5 a hole; b: x1 ·, both x of transaction x; out: o0 of a0 and so on to o2,
    of the group etl; plain: of a producer without idempotence. Nobody may see n0 (aborted) and f0 (failed)."""
    r = Recorder(now_ms=lambda: 0)
    producer, sender, etl = (r.producer(name) for name in ("producer", "sender", "etl"))
    plain = r.producer("plain", is_idempotent=False)
    for offset in range(4):
        producer.send(f"a{offset}", "a", 0)
        producer.acknowledged(f"a{offset}", A, offset)
    producer.send("f0", "a", 0)
    producer.failed("f0", "too large")
    producer.send("u0", "a", 0)
    producer.unknown("u0", "time-out")
    for value, offset in (("p0", 1), ("p1", 0)):
        plain.send(value, "plain", 0)
        plain.acknowledged(value, PLAIN, offset)
    sender.begin("x")
    for value, place in (("x0", A), ("x1", B)):
        sender.send(value, *place)
    sender.ending(is_commit=True)
    sender.ended("committed")
    sender.acknowledged("x0", A, 4)
    sender.acknowledged("x1", B, 0)
    sender.begin("n")
    sender.send("n0", "b", 0)
    sender.ending(is_commit=False)
    sender.ended("aborted")

    reader = r.consumer("reader", group="g", from_start=True)
    reader.assigned({A: 0, B: None})
    reader.polled(A, [0, 1], ["a0", "a1"], 2)
    reader.committed(reader.committing({A: 2}))
    reader.polled(A, [2, 3], ["a2", "a3"])
    reader.committed(reader.committing({A: 4}))
    reader.polled(B, [0], ["x1"], 2)
    reader.polled(A, [4], ["x0"], 6)
    reader.snapshot(VIEWS)

    worker = r.consumer("worker", group="etl", from_start=True)
    worker.assigned({A: 0})
    etl.begin("e")
    worker.polled(A, [0, 1, 2], ["a0", "a1", "a2"], 3)
    for offset in range(3):
        etl.send(f"o{offset}", "out", source=Source("etl", A, offset))
        etl.acknowledged(f"o{offset}", OUT, offset)
    etl.send_offsets("etl", {A: 3})
    etl.ending(is_commit=True)
    etl.ended("committed")

    r.final_read(A, log_start=0, log_end=6, offsets=range(5), values=["a0", "a1", "a2", "a3", "x0"])
    r.final_read(B, log_start=0, log_end=3, offsets=[0], values=["x1"])
    r.final_read(OUT, log_start=0, log_end=4, offsets=range(3), values=["o0", "o1", "o2"])
    r.final_read(PLAIN, log_start=0, log_end=3, offsets=[0, 1, 2], values=["p1", "p0", "p1"])
    r.final_offsets("etl", {A: 3})
    r.final_offsets("g", {A: 4, B: None})
    reader.caught_up(A, 6)
    reader.caught_up(B, 2)
    return r.history()


def test_the_good_history_is_good():
    verdict = check(a_history(), contiguous_transactions=True)
    assert verdict.anomalies == ()
    verdict.raise_if_any()
    verdict.require(sends=14, acknowledged=11, failed=1, unknown=2, transactions=3, committed=2, aborted=1, inputs=3)
    verdict.require(required=11, polled=9, final_records=12, snapshots=1, offset_commits=3, polls=5)
    assert "no anomalies in: clients 7, sends 14" in str(verdict)


Edit = Callable[[list[Any]], None]


def final(events: list[Any], place: TopicPartition) -> int:
    return next(n for n, event in enumerate(events) if isinstance(event, FinalRead) and event.partition == place)


def at(kind: type[Event], nth: int = 0) -> Callable[[list[Any]], int]:
    return lambda events: [n for n, event in enumerate(events) if isinstance(event, kind)][nth]


def set_final(place: TopicPartition, offsets: list[int], values: str, **fields: Any) -> Edit:
    def edit(events: list[Any]) -> None:
        n = final(events, place)
        events[n] = events[n]._replace(offsets=tuple(offsets), values=tuple(values.split()), **fields)

    return edit


def change(kind: type[Event], nth: int = 0, **fields: Any) -> Edit:
    """The nth event of a type, from the end if negative."""

    def edit(events: list[Any]) -> None:
        n = at(kind, nth)(events)
        events[n] = events[n]._replace(**fields)

    return edit


def remove(kind: type[Event], nth: int = 0) -> Edit:
    return lambda events: events.__delitem__(at(kind, nth)(events))


def remove_about(*values: str) -> Edit:
    """Nothing ever tells of these sends."""

    def edit(events: list[Any]) -> None:
        events[:] = [event for event in events if getattr(event, "value", None) not in values]
        for n, event in enumerate(events):
            if isinstance(event, (FinalRead, Polled)):
                kept = [pair for pair in zip(event.offsets, event.values, strict=True) if pair[1] not in values]
                events[n] = event._replace(offsets=tuple(o for o, _ in kept), values=tuple(v for _, v in kept))

    return edit


def exchange(one: str, other: str) -> Edit:
    """Everybody saw these two values in each other's place."""
    names = {one: other, other: one}

    def edit(events: list[Any]) -> None:
        for n, event in enumerate(events):
            if isinstance(event, (FinalRead, Polled)):
                events[n] = event._replace(values=tuple(names.get(value, value) for value in event.values))
            elif isinstance(event, Snapshot):
                views = (v._replace(values=tuple(names.get(value, value) for value in v.values)) for v in event.views)
                events[n] = event._replace(views=tuple(views))
            elif isinstance(event, Acknowledged):
                events[n] = event._replace(value=names.get(event.value, event.value))

    return edit


def also(like: type[Event], nth: int = 0, *, before: bool = False, **fields: Any) -> Edit:
    """Another event, made of the nth of its type, right after it (or at its place)."""

    def edit(events: list[Any]) -> None:
        n = at(like, nth)(events)
        events.insert(n if before else n + 1, events[n]._replace(**fields))

    return edit


def both(*edits: Edit) -> Edit:
    def edit(events: list[Any]) -> None:
        for one in edits:
            one(events)

    return edit


K = AnomalyKind
FAULTS: dict[str, tuple[AnomalyKind, Edit, str]] = {
    "acknowledged, and gone": (K.LOST_WRITE, set_final(A, [0, 1, 2, 4], "a0 a1 a2 x0"), "'a3' of producer was ack"),
    "committed, and gone": (
        K.LOST_WRITE,
        both(set_final(A, [0, 1, 2, 3], "a0 a1 a2 a3"), set_final(B, [], "")),
        "'x0' of sender in x was committed, a-0 at 4, and is not there",
    ),
    "of a producer that may repeat itself, and gone": (
        K.LOST_WRITE,
        set_final(PLAIN, [1], "p0"),
        "'p1' of plain was acknowledged, plain-0 at 0, and is not there",
    ),
    "read, and gone": (
        K.LOST_WRITE,
        change(Polled, 3, offsets=(4, 5), values=("x0", "u0")),
        "'u0' of producer was read by reader, a-0 at 5, and is not there any more",
    ),
    "at two offsets": (
        K.DUPLICATE,
        set_final(OUT, [0, 1, 2, 3], "o0 o1 o2 o1"),
        "'o1' of etl in e is at out-0 at 1 and out-0 at 3",
    ),
    "of an aborted transaction": (
        K.ABORTED_READ,
        both(set_final(B, [0, 2], "x1 n0"), change(CaughtUp, 1, position=0), remove(CaughtUp, 1)),
        "'n0' of sender in n was of an aborted transaction, and final read it, b-0 at 2",
    ),
    "polled of an aborted transaction": (
        K.ABORTED_READ,
        change(Polled, 2, offsets=(0, 1), values=("x1", "n0")),
        "'n0' of sender in n was of an aborted transaction, and reader read it, b-0 at 1",
    ),
    "failed for certain": (
        K.ABORTED_READ,
        change(Polled, 3, offsets=(4, 5), values=("x0", "f0")),
        "'f0' of producer failed for certain, and reader read it, a-0 at 5",
    ),
    "nobody sent it": (
        K.PHANTOM,
        change(Polled, 3, offsets=(4, 5), values=("x0", "zzz")),
        "'zzz', a-0 at 5, was read by reader, and nobody sent it",
    ),
    "sent elsewhere": (
        K.PHANTOM,
        both(change(Send, 5, topic="b"), change(Polled, 3, offsets=(4, 5), values=("x0", "u0")),
             set_final(A, [0, 1, 2, 3, 4, 5], "a0 a1 a2 a3 x0 u0")),
        "'u0' of producer was sent elsewhere, and reader read it, a-0 at 5",
    ),
    "two values at an offset": (
        K.INCONSISTENT_OFFSETS,
        change(Acknowledged, 9, offset=3, partition=A),
        "a-0 at 3 are both 'a3' and 'o1'",
    ),
    "acknowledged at another offset": (
        K.INCONSISTENT_OFFSETS,
        change(Acknowledged, 3, offset=5),
        "'a3' of producer was acknowledged, a-0 at 5, and reader read it, a-0 at 3",
    ),
    "outside of the log": (
        K.INCONSISTENT_OFFSETS,
        set_final(OUT, [0, 1, 2], "o0 o1 o2", log_end=2),
        "has 1 records outside of [0, 2), such as 2",
    ),
    "not in order at the end": (
        K.INCONSISTENT_OFFSETS,
        set_final(PLAIN, [0, 2, 1], "p1 p1 p0"),
        "the final read (read_committed) of plain-0 goes back from 2 to 1",
    ),
    "went back between polls": (
        K.NON_MONOTONIC_POLL,
        also(Polled, 1),
        "reader was at 4 and then read 2 in a-0, without a seek",
    ),
    "went back to before its assignment": (
        K.NON_MONOTONIC_POLL,
        change(Assigned, 1, partitions=((A, 1),)),
        "worker was at 1 and then read 0 in a-0",
    ),
    "went back without reading anything": (
        K.NON_MONOTONIC_POLL,
        also(Polled, 4, offsets=(), values=(), position=2),
        "worker was at 3 and then read 2 in a-0",
    ),
    "went back within a poll": (
        K.NON_MONOTONIC_POLL,
        change(Polled, 1, offsets=(2, 3, 2), values=("a2", "a3", "a2"), position=4),
        "reader read 2 after 3 in one poll of a-0",
    ),
    "goes on before what it read": (K.NON_MONOTONIC_POLL, change(Polled, 3, position=4), "read 4 and goes on at 4"),
    "order of sending": (
        K.NON_MONOTONIC_SEND,
        exchange("a1", "a2"),
        "'a2' of producer was sent after 'a1', and is before it: a-0 at 1, and 2",
    ),
    "passed over": (
        K.SKIPPED_POLL,
        change(Polled, 1, offsets=(3,), values=("a3",)),
        "reader read a-0 from 0 to 6 and didn't see 1 of its records, such as 'a2' at 2",
    ),
    "passed over at the start": (K.SKIPPED_POLL, change(Polled, 4, offsets=(1, 2), values=("a1", "a2")), "'a0' at 0"),
    "a transaction in part": (
        K.TORN_TRANSACTION,
        both(set_final(B, [], "")),
        "x: 1 of 2 records are not there, such as 'x1' of sender in x, and others are, such as 'x0'",
    ),
    "a snapshot that ends too early": (
        K.TORN_TRANSACTION,
        change(Snapshot, views=(PartitionView(A, 0, 4, (0, 1, 2, 3), ("a0", "a1", "a2", "a3")), VIEWS[1])),
        "a snapshot of reader shows 'x1' of x, and not 'x0', a-0 at 4",
    ),
    "a snapshot with a hole": (
        K.TORN_TRANSACTION,
        change(Snapshot, views=(VIEWS[0], VIEWS[1]._replace(offsets=(), values=()))),
        "a snapshot of reader shows 'x0' of x, and not 'x1', b-0 at 0",
    ),
    "beyond the end that was reached": (
        K.UNSEEN,
        both(remove(Polled, 3), change(CaughtUp, position=4)),
        "reader had reached the end of a-0 at 4, and there are 1 records beyond, such as 'x0' at 4",
    ),
    "begun too late by the group": (
        K.UNSEEN,
        both(change(Assigned, 0, partitions=((A, 2), (B, None))), remove(Polled)),
        "group g had reached the end of a-0 and had not seen 2 of its records since 0, such as 'a0' at 0",
    ),
    "not seen by the group": (K.UNSEEN, remove(Polled, 3), "group g had reached the end of a-0 and had not seen 1"),
    "a transaction with something between": (
        K.INTERLEAVED_TRANSACTION,
        both(set_final(OUT, [0, 1, 3], "o0 o1 o2"), change(Acknowledged, -1, offset=3)),
        "'o1' of etl in e is out-0 at 1, and what follows of its transaction there, 'o2', only at 3",
    ),
    "inputs begun too late": (
        K.OUT_OF_STEP,
        both(remove_about("o0", "o1"), change(Assigned, 1, partitions=((A, 2),)),
             change(Polled, 4, offsets=(2,), values=("a2",))),
        "group etl of a-0: 3 is committed, and input 1 has no output",
    ),
    "an input without an output": (
        K.OUT_OF_STEP,
        remove_about("o1"),
        "group etl of a-0: 3 is committed, and input 1 has no output",
    ),
    "an output beyond what is committed": (
        K.OUT_OF_STEP,
        change(Send, -1, source=Source("etl", A, 3)),
        "input 3 has an output, 'o2' of etl in e, and only 3 is committed",
    ),
    "an input with two outputs": (
        K.OUT_OF_STEP,
        change(Send, -1, source=Source("etl", A, 1)),
        "input 1 has 2 outputs: 'o1' of etl in e, 'o2' of etl in e",
    ),
    "outputs that changed places": (
        K.OUTPUT_ORDER,
        both(change(Send, -2, source=Source("etl", A, 2)), change(Send, -1, source=Source("etl", A, 1))),
        "group etl of a-0: the output of input 2, 'o1' of etl in e, is out-0 at 1, and that of input 1, 'o2' of etl in "
        "e, only at 2",
    ),
    "offsets of an aborted transaction": (
        K.OUT_OF_STEP,
        both(also(OffsetsSent, -1, commit="other", transaction="n", group="g", offsets=((B, 1),)),
             change(FinalOffset, -1, offset=1)),
        "group g of b-0 ends at 1, which was never committed: only n had it",
    ),
    "committed offsets decrease": (
        K.OFFSET_WENT_BACK,
        both(change(OffsetsSent, 1, offsets=((A, 1),)), change(FinalOffset, 1, offset=2)),
        "group g of a-0: reader committed 1 after 2",
    ),
    "lower at the end": (
        K.OFFSET_WENT_BACK,
        change(FinalOffset, 1, offset=2),
        "group g of a-0: 4 was committed, and at the end it is 2",
    ),
    "acknowledged twice": (K.CONTRADICTION, also(Acknowledged, 9, before=True, offset=3), "was acknowledged twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_and_nothing_else(name):
    kind, edit, text = FAULTS[name]
    events: list[Any] = list(a_history().events)
    edit(events)
    verdict = check(History(events), contiguous_transactions=kind is K.INTERLEAVED_TRANSACTION)
    assert {anomaly.kind for anomaly in verdict.anomalies} == {kind}, str(verdict)
    assert text in str(verdict)
    assert all(anomaly.evidence and set(anomaly.evidence) <= set(events) for anomaly in verdict.anomalies)
    assert all("\n" not in str(anomaly) for anomaly in verdict.anomalies)
    with pytest.raises(AnomalyError, match=kind.value):
        verdict.raise_if_any()


def test_outputs_that_were_made_again_on_purpose_may_come_later():
    events: list[Any] = list(a_history().events)
    both(change(Send, -2, source=Source("etl", A, 2)), change(Send, -1, source=Source("etl", A, 1)))(events)
    also(OffsetsSent, -1, commit="reset", transaction=None, is_reset=True)(events)
    assert check(History(events)).anomalies == ()


def test_every_kind_has_a_fault():
    assert {kind for kind, _, _ in FAULTS.values()} == set(AnomalyKind)


def test_an_empty_history_proves_nothing():
    with pytest.raises(NothingCheckedError, match="no record was read"):
        check(History([])).raise_if_any()
    with pytest.raises(NothingCheckedError, match="acknowledged=11, expected at least 12"):
        check(a_history()).require(acknowledged=12)
    with pytest.raises(TypeError, match="no count 'acked'"):
        check(a_history()).require(acked=1)


def test_without_a_final_read_it_says_so():
    events = [event for event in a_history().events if not (isinstance(event, FinalRead) and event.partition == OUT)]
    verdict = check(History(events))
    assert verdict.anomalies == ()
    assert verdict.counts.unverified == 3
    with pytest.raises(NothingCheckedError, match="3 records were never looked for"):
        verdict.raise_if_any()


def edited(name: str) -> History:
    events: list[Any] = list(a_history().events)
    FAULTS[name][1](events)
    return History(events)


def test_that_a_transactions_records_follow_one_another_is_looked_for_only_if_asked():
    assert check(edited("a transaction with something between")).anomalies == ()


@pytest.mark.parametrize("name", ["begun too late by the group", "inputs begun too late"])
def test_only_who_says_to_read_from_the_start_must_have_read_from_there(name):
    events = [one._replace(from_start=False) if isinstance(one, ConsumerOpened) else one for one in edited(name)]
    assert check(History(events)).anomalies == ()


def test_records_below_the_log_start_need_not_be_seen_from_the_start():
    edits = (change(FinalRead, 0, log_start=2), set_final(A, [2, 3, 4], "a2 a3 x0"))
    events: list[Any] = list(edited("begun too late by the group"))
    both(*edits)(events)
    assert check(History(events)).anomalies == ()


def test_of_a_transaction_that_retention_has_begun_to_remove_the_rest_is_whole():
    events: list[Any] = list(a_history())
    set_final(OUT, [1, 2], "o1 o2", log_start=1)(events)
    assert check(History(events), contiguous_transactions=True).anomalies == ()


def a_compacted_history(*left: int, is_sent_again: bool = False) -> History:
    """One key: v0 at 0, v1 at 1, a tombstone at 2 (and v3 at 3, if it is sent again); these offsets are left."""
    r = Recorder(now_ms=lambda: 0)
    producer = r.producer("producer")
    values = ["v0", "v1", "gone"] if not is_sent_again else ["v0", "v1", "gone", "v3"]
    for offset, value in enumerate(values):
        producer.send(value, "a", 0, key="k", is_tombstone=value == "gone")
        producer.acknowledged(value, A, offset)
    producer.send("other", "a", 0, key="l")
    producer.acknowledged("other", A, 9)
    kept = [values[offset] for offset in left]
    r.final_read(A, log_start=0, log_end=10, offsets=[*left, 9], values=[*kept, "other"])
    return r.history()


@pytest.mark.parametrize("left", [(), (2,), (1, 2), (0, 2), (0, 1, 2)])
def test_a_tombstone_may_go_once_what_it_deletes_has_gone(left):
    assert check(a_compacted_history(*left), compacted={"a"}).anomalies == ()


@pytest.mark.parametrize("left", [(0,), (1,), (0, 1)])
def test_a_deleted_key_that_comes_back_is_a_lost_write(left):
    verdict = check(a_compacted_history(*left), compacted={"a"})
    assert set(verdict.by_kind()) == {K.LOST_WRITE}, str(verdict)
    assert "'gone' of producer was acknowledged, a-0 at 2, and is not there, and what it deleted is" in str(verdict)


def test_a_tombstone_with_a_successor_may_go_before_what_it_deletes():
    assert check(a_compacted_history(0, 3, is_sent_again=True), compacted={"a"}).anomalies == ()
