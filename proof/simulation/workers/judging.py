"""What a world of workers must have come to: each input's effect once, and in order where that is promised."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import sqlalchemy as sa

from proof.simulation.workers.inputs import DELAYED, Inputs
from proof.simulation.workers.lives import ATTEMPT, EFFECTS, FROM, GROUP
from sparklog.consumer import Consumer
from sparklog.log import Cluster
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.processing.dead_letters import REPLAYED
from sparklog.processing.moves import letter_of
from sparklog.testing.history import AnomalyError, FinalRead, NothingCheckedError, Recorder, Source, check, record_final
from tests.histories import note_promised

if TYPE_CHECKING:
    from proof.simulation.workers.play import Play

__all__ = ["judge", "judge_history"]

_TOPICS = ("in", "seq", "in-out", "seq-out", "dlq.in", "dlq.seq", DELAYED)


def judge(play: Play, cluster: Cluster) -> list[str]:
    """What is wrong now. Waiting helps where something is only missing."""
    found = _records(cluster)
    problems: list[str] = []
    for topic in ("in", "seq"):
        problems += _sent(play.inputs, topic, found[topic])
        problems += _effects(found[topic], found[f"{topic}-out"], found[f"dlq.{topic}"])
        problems += _order(topic, found[f"{topic}-out"], found[f"dlq.{topic}"])
    problems += _replays(found["in"], found["dlq.in"])
    problems += _inbox(play, [*found["in-out"], *found["seq-out"]], [*found["in"], *found["seq"]])
    problems += _delayed(play, found[DELAYED])
    return problems


def judge_history(play: Play, cluster: Cluster) -> list[str]:
    """What the checker of histories says of the topic whose letters nobody replays: each input has one output, or one
    letter, once the group's offset is beyond it, in the order of a partition's inputs."""
    recorder = Recorder()
    note_promised(
        recorder, "director", "seq", [each.value.decode() for each in play.inputs.sent if each.topic == "seq"]
    )
    record_final(recorder, cluster, topics=["seq"], groups=[GROUP])
    for event in recorder.history().events:
        if isinstance(event, FinalRead):
            producer = recorder.producer(f"worker of {event.partition}")
            for offset, value in zip(event.offsets, event.values, strict=True):
                number, kind = value.split(":")
                topic, name = ("dlq.seq", f"letter {value}") if kind == "bad" else ("seq-out", f"output {number}")
                producer.send(name, topic, source=Source(GROUP, TopicPartition(*event.partition), offset))
    record_final(recorder, cluster, topics=["dlq.seq"], identify=lambda key, value: f"letter {value.decode()}")
    record_final(recorder, cluster, topics=["seq-out"], identify=lambda key, value: f"output {value.decode()}")
    try:
        check(recorder.history()).raise_if_any()
    except (AnomalyError, NothingCheckedError) as error:
        return [f"the history: {error}"]
    return []


def _records(cluster: Cluster) -> dict[str, list[ConsumerRecord]]:
    """All of each topic, each partition's in its order."""
    found: dict[TopicPartition, list[ConsumerRecord]] = defaultdict(list)
    with Consumer(cluster=cluster, isolation_level="read_committed") as consumer:
        numbers = {topic: sorted(consumer.partitions_for_topic(topic) or ()) for topic in _TOPICS}
        ends = consumer.end_offsets([TopicPartition(topic, each) for topic in _TOPICS for each in numbers[topic]])
        consumer.assign([at for at, end in ends.items() if end])
        consumer.seek_to_beginning()
        while any(consumer.position(at) < ends[at] for at in consumer.assignment()):
            for at, records in consumer.poll(timeout_ms=1_000).items():
                found[at] += records
    return {topic: [each for at in sorted(found) if at.topic == topic for each in found[at]] for topic in _TOPICS}


def _sent(inputs: Inputs, topic: str, found: Iterable[ConsumerRecord]) -> Iterator[str]:
    """Each input is there once, beside what was replayed."""
    counts = Counter(each.value.decode() for each in found if _header(each, REPLAYED + "offset") is None)
    expected = Counter(each.value.decode() for each in inputs.sent if each.topic == topic)
    if counts != expected:
        yield f"inputs of {topic}: {counts - expected} too many, {expected - counts} missing"


def _effects(
    inputs: Iterable[ConsumerRecord], outputs: Iterable[ConsumerRecord], letters: Iterable[ConsumerRecord]
) -> Iterator[str]:
    """Each record has one output or one letter, as its kind says."""
    made = Counter(_header(each, FROM) for each in outputs)
    buried = Counter(_origin(each) for each in letters)
    for record in inputs:
        at = f"{record.topic}-{record.partition}-{record.offset}"
        kind = record.value.decode().split(":")[1]
        is_replayed = _header(record, REPLAYED + "offset") is not None
        is_letter = kind == "hopeless" or (kind in ("bad", "refused") and not is_replayed)
        expected = (0, 1) if is_letter else (1, 0)
        got = made.pop(at, 0), buried.pop(at, 0)
        if got != expected:
            yield f"{at}, {record.value!r}: {got} outputs and letters, expected {expected}"
    if made or buried:
        yield f"of nothing: outputs {dict(made)}, letters {dict(buried)}"


def _order(topic: str, outputs: Iterable[ConsumerRecord], letters: Iterable[ConsumerRecord]) -> Iterator[str]:
    """What was made at the first try is in the order of its key; where retries wait in place, all is."""
    places: dict[tuple[str, bytes | None], list[int]] = defaultdict(list)
    for each in outputs:
        if topic == "seq" or _header(each, ATTEMPT) == "1":
            places["outputs", each.key].append(int((_header(each, FROM) or "").rsplit("-", 1)[1]))
    if topic == "seq":
        for each in letters:
            places["letters", each.key].append(letter_of(each).origin.offset)
    for (what, key), offsets in places.items():
        if key is not None and offsets != sorted(offsets):
            yield f"{what} of {topic}, key {key!r}, aren't in order: {offsets}"


def _replays(inputs: Iterable[ConsumerRecord], letters: Iterable[ConsumerRecord]) -> Iterator[str]:
    """Each letter was replayed once; those of hopeless records once at most."""
    counts = Counter((_header(each, REPLAYED + "partition"), _header(each, REPLAYED + "offset")) for each in inputs)
    for letter in letters:
        at = str(letter.partition), str(letter.offset)
        is_hopeless = letter.value.decode().endswith("hopeless")
        if counts[at] > 1 or (counts[at] < 1 and not is_hopeless):
            yield f"the letter {at}, {letter.value!r}, was replayed {counts[at]} times"


def _inbox(play: Play, outputs: Iterable[ConsumerRecord], inputs: Iterable[ConsumerRecord]) -> Iterator[str]:
    """Each message that was handled has had its effect once."""
    ids = {str(each.number): each.message_id for each in play.inputs.sent}
    refused = {str(each.number) for each in play.inputs.sent if each.kind == "refused"}
    expected = Counter({ids[each.value.decode()] for each in outputs})
    expected |= Counter({ids[number] for number in refused if number in ids})
    with play.engine.connect() as connection:
        found = Counter(str(row[0]) for row in connection.execute(sa.select(EFFECTS)))
    if found != expected:
        yield f"effects of messages: {dict(found - expected)} too many, {dict(expected - found)} missing"


def _delayed(play: Play, found: Iterable[ConsumerRecord]) -> Iterator[str]:
    """What was delayed for this topic, and for no earlier one of its name, is there once, and not before its time."""
    due = {each.value: each.deliver_at_ms for each in play.inputs.delayed if each.life == play.topic_life}
    counts: Counter[str] = Counter()
    for record in found:
        value = record.value.decode()
        counts[value] += 1
        if value in due and record.timestamp < due[value]:
            yield f"delayed {value!r} was delivered {due[value] - record.timestamp} ms before its time"
    if counts != Counter(due.keys()):
        yield f"delayed: {counts - Counter(due.keys())} too many, {Counter(due.keys()) - counts} missing"


def _header(record: ConsumerRecord, name: str) -> str | None:
    """The last one of this name."""
    found = [value for each, value in record.headers if each == name and value is not None]
    return found[-1].decode() if found else None


def _origin(record: ConsumerRecord) -> str:
    origin = letter_of(record).origin
    return f"{origin.topic}-{origin.partition}-{origin.offset}"
