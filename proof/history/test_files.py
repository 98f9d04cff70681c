"""Recording, saving, loading, merging."""

from __future__ import annotations

import threading

import pytest

from proof.history.model_log import good_history
from sparklog.model import TopicPartition
from sparklog.testing.history import (
    EVENT_TYPES,
    History,
    Lost,
    MalformedHistoryError,
    Outcome,
    Recorder,
    Send,
    Snapshot,
    check,
    load,
    merge,
)


def test_every_event_comes_back_as_it_was(tmp_path):
    history = History([*good_history(3, steps=400), *good_history(7, steps=400, has_markers=True)])
    with Recorder("other") as recorder:
        recorder.reset_offsets("g", {TopicPartition("t", 0): 3}, "committed")
        recorder.consumer("c").caught_up(("t", 0), 3)
    history = History([*history, *recorder.history()])
    assert {type(event) for event in history} == set(EVENT_TYPES), "the histories show all types"
    history.save(tmp_path / "h.jsonl")
    loaded = load(tmp_path / "h.jsonl")
    assert loaded == history
    assert [type(event) for event in loaded] == [type(event) for event in history]
    views = [event.views for event in loaded if isinstance(event, Snapshot)]
    assert views[0][0].partition.topic == "t"
    assert all(isinstance(e.partitions[0].topic, str) for e in loaded if isinstance(e, Lost))
    with pytest.raises(FileExistsError):
        history.save(tmp_path / "h.jsonl")


def test_what_was_recorded_is_on_disk_before_the_call_returns(tmp_path):
    path = tmp_path / "a.jsonl"
    with Recorder("a", path=path) as recorder:
        producer = recorder.producer("p")
        producer.send("v", "t", 0)
        assert load(path) == recorder.history()
        producer.acknowledged("v", ("t", 0), 0)
    with open(path, "ab") as file:
        file.write(b'["Send", 9, 9, "a/p", "to')  # the process was killed while it wrote
    assert load(path) == recorder.history()
    with open(path, "ab") as file:
        file.write(b"\n")
    with pytest.raises(MalformedHistoryError, match=r"a\.jsonl, line 4: no event"):
        load(path)


def test_histories_of_processes_are_merged_by_a_hint_and_each_keeps_its_order(tmp_path):
    times = {"a": iter([10, 40, 20, 50]), "b": iter([15, 16, 60])}
    recorders = {name: Recorder(name, path=tmp_path / name, now_ms=times[name].__next__) for name in "ab"}
    for name, recorder in recorders.items():
        producer = recorder.producer("p")
        for number in range(2 if name == "b" else 3):
            producer.send(f"{name}{number}", "t")
        recorder.close()
    merged = load(tmp_path / "a", tmp_path / "b")
    assert [event.value for event in merged if isinstance(event, Send)] == ["b0", "a0", "a1", "a2", "b1"]
    assert {event.client for event in merged} == {"a/p", "b/p"}
    with pytest.raises(MalformedHistoryError, match="client 'a/p' is in two histories"):
        merge(recorders["a"].history(), merged)


def test_many_threads_record_at_once():
    recorder = Recorder()

    def work(number: int) -> None:
        producer = recorder.producer(f"p{number}")
        for n in range(200):
            producer.send(f"{number}-{n}", "t", 0)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = recorder.history()
    assert [event.order for event in history] == list(range(804))
    assert check(history).counts.sends == 800


def test_a_client_has_a_name_of_its_own():
    recorder = Recorder("x")
    recorder.producer("p")
    with pytest.raises(ValueError, match="there is a client 'x/p' already"):
        recorder.consumer("p")


def sent_twice(recorder: Recorder) -> None:
    producer = recorder.producer("p")
    producer.send("v", "t")
    producer.send("v", "t")


def unsent_outcome(recorder: Recorder) -> None:
    recorder.producer("p").failed("v")


def begun_twice(recorder: Recorder) -> None:
    producer = recorder.producer("p")
    producer.begin("x")
    producer.begin("x")


def never_begun(recorder: Recorder) -> None:
    producer = recorder.producer("p")
    producer.transaction = "x"
    producer.send("v", "t")


def ended_only(recorder: Recorder) -> None:
    producer = recorder.producer("p")
    producer.transaction = "x"
    producer.ended("committed")


def unequal(recorder: Recorder) -> None:
    recorder.consumer("c").polled(("t", 0), [0, 1], ["v"])


def unsent_offsets(recorder: Recorder) -> None:
    recorder.consumer("c", group="g").committed("x", Outcome.COMMITTED)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (sent_twice, "value 'v' was sent twice"),
        (unsent_outcome, "an outcome of a value that nobody sent"),
        (begun_twice, "transaction 'x' began twice"),
        (never_begun, "a send of a transaction that never began"),
        (ended_only, "a transaction that never began"),
        (unequal, "a read with other numbers of offsets and values"),
        (unsent_offsets, "an outcome of offsets that nobody had sent"),
    ],
)
def test_a_recorders_mistakes_are_told_as_such(mistake, message):
    recorder = Recorder()
    mistake(recorder)
    with pytest.raises(MalformedHistoryError, match=message):
        check(recorder.history())


def test_calls_out_of_place_raise():
    recorder = Recorder()
    with pytest.raises(RuntimeError, match="has no open transaction"):
        recorder.producer("p").ending(is_commit=True)
    with pytest.raises(RuntimeError, match="has no group"):
        recorder.consumer("c").committing({})


def test_a_consumer_cant_begin_at_the_end_and_from_the_start():
    with pytest.raises(ValueError, match="consumer 'c': may_skip and from_start, expected one of them at most"):
        Recorder().consumer("c", may_skip=True, from_start=True)
