"""What tests of processes that are killed tell the checker of histories."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.testing.history import FinalRead, Outcome, Recorder, Source, Verdict, check, record_final

__all__ = ["judge", "judge_worker", "note_promised"]


def note_promised(recorder: Recorder, name: str, topic: str, values: Iterable[object]) -> None:
    """Note values that are in a topic at the end, all, once, and in this order within a partition: as a client's that
    has committed them."""
    producer = recorder.producer(name)
    producer.begin()
    for value in values:
        producer.send(str(value), topic)
    producer.ending(is_commit=True)
    producer.ended(Outcome.COMMITTED)


def judge(recorder: Recorder, cluster: Cluster, topic: str, *, count: int) -> None:
    """Let the checker compare what was noted with what a topic holds; of ``count`` records."""
    record_final(recorder, cluster, topics=[topic])
    _let_through(check(recorder.history()), count)


def judge_worker(recorder: Recorder, cluster: Cluster, *, inputs: str, outputs: str, group: str, count: int) -> None:
    """Let the checker compare ``count`` inputs of a group, which were noted, with its offsets and their outputs: the
    same values in another topic, one each, in the order of a partition's inputs."""
    record_final(recorder, cluster, topics=[inputs], groups=[group])
    for event in recorder.history().events:
        if isinstance(event, FinalRead):
            producer = recorder.producer(f"worker of {event.partition}")
            for offset, value in zip(event.offsets, event.values, strict=True):
                producer.send(_output(value), outputs, source=Source(group, TopicPartition(*event.partition), offset))
    record_final(recorder, cluster, topics=[outputs], identify=lambda key, value: _output(value.decode()))
    verdict = check(recorder.history())
    _let_through(verdict, count)
    assert verdict.counts.inputs == count
    assert verdict.counts.final_records == 2 * count


def _output(value: str) -> str:
    """The name of an output in the history, where each has its own."""
    return f"output of {value}"


def _let_through(verdict: Verdict, count: int) -> None:
    verdict.raise_if_any()
    verdict.require(committed=1)
    assert verdict.counts.required == count
