"""What follows for the applications of a round when everybody was stopped: what is left is done, and all is judged.

Each job has one output, or one dead letter; each row of the outbox is in its topic once, those of an aggregate in
order; each delayed record is in its topic once, and was there for nobody before its time; each record that a share
group has to share was accepted, and delivered to nobody after that.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from proof.torture.app_roles import FAILURES, SHARE_GROUP, WORK_GROUP, a_mover, a_relay, a_worker, share
from proof.torture.life import Life, Place, Told, identify
from proof.torture.outbox_rows import ROWS_TOPIC, opened, written
from proof.torture.plan import Plan, Role
from sparklog.admin import Admin
from sparklog.consumer import Consumer
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.model import TopicPartition
from sparklog.processing.delayed import read_schedule
from sparklog.testing.history import FinalRead, History, Recorder, check, load, record_final
from tests.histories import note_promised

__all__ = ["conclude_apps", "judge_apps"]

_AT_MOST_S = 90.0
_TICK_S = 0.1
_JOBS = ("jobs", "jobs-retry-200ms", "jobs-retry-600ms")
"""In the order in which a record goes through them."""
_TOPICS: Mapping[str, Callable[[object, object], str]] = {
    "jobs": identify,
    "done": identify,
    "dlq.jobs": lambda key, value: _letter_of(identify(key, value)),
    ROWS_TOPIC: identify,
    "later": identify,
    "tasks": identify,
}
"""The topics of applications, and how a record of each is named in the history."""
_ENOUGH = {"app inputs": 15, "app letters": 1, "app rows": 15, "app delayed": 8, "app shared": 10}


def conclude_apps(plan: Plan, place: Place) -> None:
    """Do what is left, and write down what is there and what has to be.

    Raises:
        TimeoutError: it isn't done within a minute and a half.
    """
    with a_relay(_life(plan, place, Role.RELAY)) as relay:
        relay.run_until_empty()
    _move_all(_life(plan, place, Role.MOVE))
    _work_all(_life(plan, place, Role.WORK))
    member = _life(plan, place, Role.SHARE)
    until = time.monotonic() + _AT_MOST_S
    while not member.has_ended:
        if time.monotonic() > until:
            raise TimeoutError(f"group {SHARE_GROUP} didn't share everything within {_AT_MOST_S:.0f} s")
        share(member)
    _note_times(member)
    with Recorder("final", path=place.app_histories / "final.jsonl") as recorder:
        for topic, name in _TOPICS.items():
            record_final(recorder, member.cluster, topics=[topic], identify=name)
        _note_promises(recorder, place)


def _life(plan: Plan, place: Place, role: Role) -> Life:
    return Life(Told(place=place, seed=plan.seed, job=f"{role.value}-at-last", number=0, role=role), is_final=True)


def _move_all(life: Life) -> None:
    def is_done() -> bool:
        mover.run_until_done()
        try:
            return not read_schedule(life.cluster, "later")
        except UnknownTopicOrPartitionError:  # nothing was ever delayed, which is too little
            return True

    with a_mover(life) as mover:
        _wait_for(is_done, "nothing waits in delayed.later")


def _work_all(life: Life) -> None:
    app = a_worker(life)
    app.create_topics()
    app.start()
    try:
        _wait_for(lambda: not app.health().is_alive or _all_is_done(life), f"group {WORK_GROUP} has no lag")
    finally:
        app.stop(_AT_MOST_S)


def _all_is_done(life: Life) -> bool:
    with Admin(life.cluster) as admin, Consumer(cluster=life.cluster) as reader:
        for topic in _JOBS:
            done = admin.list_group_offsets(WORK_GROUP)
            partitions = [TopicPartition(topic, number) for number in reader.partitions_for_topic(topic) or ()]
            for partition, end in reader.end_offsets(partitions).items():
                if end and (partition not in done or done[partition].offset < end):
                    return False
    return True


def _wait_for(is_so: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + _AT_MOST_S
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError(f"after {_AT_MOST_S:.0f} s it isn't so that {what}")
        time.sleep(_TICK_S)


def _note_times(life: Life) -> None:
    """Note when each delayed record was delivered, by its mover's clock."""
    with Consumer(cluster=life.cluster) as consumer:
        partitions = [TopicPartition("later", number) for number in consumer.partitions_for_topic("later") or ()]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for records in consumer.poll(1_000).values():
                for record in records:
                    life.note("delivered", f"{record.timestamp} {identify(record.key, record.value)}")


def _note_promises(recorder: Recorder, place: Place) -> None:
    """Note what has to be there of rows and jobs; each job by a client of its own: of jobs no order is promised."""
    with opened(place) as engine:
        for aggregate, values in written(engine).items():
            note_promised(recorder, aggregate, ROWS_TOPIC, values)
    for job in [*_values(recorder.history(), "jobs")]:
        is_letter = FAILURES[job.split()[0]] == max(FAILURES.values())
        note_promised(
            recorder,
            f"worker of {job}",
            "dlq.jobs" if is_letter else "done",
            [_letter_of(job) if is_letter else f"done {job}"],
        )


def _letter_of(job: str) -> str:
    return f"letter of {job}"


def _values(history: History, topic: str) -> Iterator[str]:
    for event in history:
        if isinstance(event, FinalRead) and event.partition.topic == topic:
            yield from event.values


def judge_apps(place: Place) -> tuple[Counter[str], list[str]]:
    """Check what applications have written down; how much that was, and what is wrong. Reads nothing but the round's
    folder."""
    history = load(*sorted(place.app_histories.glob("*.jsonl")))
    verdict = check(history)
    faults = [f"apps: {anomaly}" for anomaly in verdict.anomalies]
    if verdict.counts.unverified:
        faults.append(f"apps: {verdict.counts.unverified} records couldn't be looked for")
    notes = [*_notes(place)]
    faults += [f"apps: {fault}" for fault in (*_early(notes), *_not_shared(history, notes))]
    counts = Counter(
        {
            "app inputs": len([*_values(history, "jobs")]),
            "app letters": len([*_values(history, "dlq.jobs")]),
            "app rows": len([*_values(history, ROWS_TOPIC)]),
            "app delayed": len([*_values(history, "later")]),
            "app shared": len([*_values(history, "tasks")]),
        }
    )
    few = [f"{name}={counts[name]} of {least}" for name, least in _ENOUGH.items() if counts[name] < least]
    if few:
        faults.append(f"apps: too little was checked: {', '.join(few)}")
    return counts, faults


def _notes(place: Place) -> Iterator[tuple[str, list[str]]]:
    for line in place.notes.read_text().splitlines():
        what, _, text = line.split("\t")
        yield what, text.split()


def _early(notes: list[tuple[str, list[str]]]) -> Iterator[str]:
    """Delayed records that somebody saw, or a mover delivered, before their time."""
    for what, words in notes:
        if what == "delivered":
            seen_ms, value = words
        elif what == "shared" and words[0] == "later":
            seen_ms, value = words[-2:]
        else:
            continue
        due_ms = value.rpartition("@")[2]
        if int(seen_ms) < int(due_ms):
            yield f"{value} was {what} at {seen_ms}, before its time"


def _not_shared(history: History, notes: list[tuple[str, list[str]]]) -> Iterator[str]:
    """Records that nobody has accepted, and those that were delivered once more after they were.

    The count of deliveries numbers them, so that no clock is needed.
    """
    accepting: set[tuple[str, ...]] = set()
    accepted: dict[tuple[str, ...], int] = {}
    delivered: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
    for what, words in notes:
        at = tuple(words[:3])
        if what == "accepting":
            accepting.add(at)
        elif what == "accepted":
            if at in accepted:
                yield f"{' '.join(at)} was accepted twice"
            accepted[at] = int(words[3])
        elif what == "shared":
            delivered[at].append(int(words[3]))
    for event in history:
        if not isinstance(event, FinalRead) or event.partition.topic not in ("tasks", "later"):
            continue
        for offset in event.offsets:
            at = (event.partition.topic, str(event.partition.partition), str(offset))
            if at not in accepting:
                yield f"{' '.join(at)} was accepted by nobody"
    for at, count in accepted.items():
        if max(delivered[at]) > count:
            yield f"{' '.join(at)} was accepted at delivery {count}, and delivered again: {delivered[at]}"
