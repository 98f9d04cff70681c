"""Consumers' polls as stretches: from where a consumer was put, through its polls, to where it was taken away."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparklog.model import TopicPartition
from sparklog.testing.history.columns import Columns
from sparklog.testing.history.events import Assigned, Event, Lost, Polled, Revoked, Sought
from sparklog.testing.history.verdict import Anomaly, AnomalyKind

__all__ = ["Stretch", "stretches_of"]


@dataclass(slots=True)
class Stretch:
    """Uninterrupted reading of one partition by one consumer."""

    client: str
    partition: TopicPartition
    start: int | None
    """The offset at which it began; None: not known, not even by a poll."""
    began: Event
    """The assignment, the seek, or for want of these the poll."""
    skipped_from: int | None = None
    """From where a seek left; None: it began otherwise."""
    position: int | None = None
    """Where it had come to at last, as far as is known."""
    polls: list[Polled] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    """The numbers of the polls among all reads."""

    @property
    def expected(self) -> int | None:
        """The next poll may not return anything below."""
        return self.start if self.position is None else self.position


def stretches_of(columns: Columns) -> tuple[list[Stretch], list[Anomaly]]:
    """All stretches, and an anomaly for each poll that went back behind what was read before it."""
    stretches: list[Stretch] = []
    anomalies: list[Anomaly] = []
    open_ones: dict[tuple[str, TopicPartition], Stretch] = {}

    def begin(
        client: str, partition: TopicPartition, start: int | None, event: Event, skipped_from: int | None = None
    ) -> Stretch:
        stretch = Stretch(client, partition, start, event, skipped_from)
        open_ones[client, partition] = stretch
        stretches.append(stretch)
        return stretch

    numbers = (number for number, event in enumerate(columns.reads.events) if isinstance(event, Polled))
    for event in columns.steps:
        if isinstance(event, Polled):
            key = (event.client, event.partition)
            stretch = open_ones.get(key) or begin(*key, None, event)
            stretch.reads.append(next(numbers))
            problem = _follow(stretch, event)
            if problem is not None:
                anomalies.append(problem)
        elif isinstance(event, Assigned):
            for partition, start in event.partitions:
                begin(event.client, partition, start, event)
        elif isinstance(event, Sought):
            left = open_ones.get((event.client, event.partition))
            where = left.expected if left is not None else None
            begin(event.client, event.partition, event.offset, event, 0 if where is None else where)
        elif isinstance(event, (Revoked, Lost)):
            for partition in event.partitions:
                open_ones.pop((event.client, partition), None)
    return stretches, anomalies


def _follow(stretch: Stretch, poll: Polled) -> Anomaly | None:
    """Make ``poll`` part of the stretch; the anomaly if it went back."""
    expected = stretch.expected
    lowest = poll.offsets[0] if poll.offsets else poll.position
    problem = None
    if expected is not None and lowest is not None and lowest < expected:
        problem = f"was at {expected} and then read {lowest}"
    elif poll.offsets and poll.position is not None and poll.position <= poll.offsets[-1]:
        problem = f"read {poll.offsets[-1]} and goes on at {poll.position}"
    before = stretch.polls[-1] if stretch.polls else stretch.began
    if stretch.start is None:
        stretch.start = lowest
    if poll.position is not None:
        stretch.position = poll.position
    elif poll.offsets:
        stretch.position = poll.offsets[-1] + 1
    stretch.polls.append(poll)
    if problem is None:
        return None
    topic, number = poll.partition
    text = f"{poll.client} {problem} in {topic}-{number}, without a seek or a new assignment"
    evidence = (before, poll) if before is not poll else (poll,)
    return Anomaly(kind=AnomalyKind.NON_MONOTONIC_POLL, text=text, evidence=evidence)
