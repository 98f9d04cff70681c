"""The parts of a group's messages that consumers encode: subscriptions and assignments, which the coordinator passes
on.

Source: Kafka ``ConsumerProtocolSubscription``, ``ConsumerProtocolAssignment``, version 0, with which all later begin.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from sparklog.model import TopicPartition

__all__ = [
    "CONSUMER",
    "MOST_TOPICS",
    "assigned_topics",
    "encode_assignment",
    "encode_subscription",
    "named_topics",
    "subscribed_topics",
]

CONSUMER = "consumer"
"""The protocol type of groups of consumers; of others the coordinator understands nothing."""


MOST_TOPICS = 20_000
"""In all subscriptions of a member together: it has one for each of its assignors."""


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """The topics of a subscription. Raises ``ValueError``: it is none."""
    return frozenset(named_topics(metadata, MOST_TOPICS))


def named_topics(metadata: bytes, most: int) -> list[str]:
    """The same, as often as they are named. Raises ``ValueError``, also where there are more than ``most``."""
    try:
        _, count = struct.unpack_from(">hi", metadata)
        if count > most:
            raise ValueError(f"{count} topics: expected at most {most}")
        at, topics = 6, []
        for _ in range(count):
            (size,) = struct.unpack_from(">h", metadata, at)
            name = metadata[at + 2 : at + 2 + size]
            if size < 0 or len(name) != size:
                raise ValueError(f"a topic of {size} bytes at byte {at}")
            topics.append(name.decode())
            at += 2 + size
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    return topics


def assigned_topics(assignment: bytes) -> list[str]:
    """The topics of an assignment. Raises ``ValueError``: it is none, or has more than :data:`MOST_TOPICS`."""
    try:
        _, count = struct.unpack_from(">hi", assignment)
        if count > MOST_TOPICS:
            raise ValueError(f"{count} topics: expected at most {MOST_TOPICS}")
        at, topics = 6, []
        for _ in range(count):
            (size,) = struct.unpack_from(">h", assignment, at)
            name = assignment[at + 2 : at + 2 + size]
            (partition_count,) = struct.unpack_from(">i", assignment, at + 2 + max(0, size))
            if size < 0 or partition_count < 0:
                raise ValueError(f"a topic of {size} bytes and {partition_count} partitions at byte {at}")
            topics.append(name.decode())
            at += 6 + size + 4 * partition_count
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from error
    return topics


def encode_subscription(topics: Iterable[str]) -> bytes:
    """A subscription to topics."""
    names = sorted(topics)
    return struct.pack(">hi", 0, len(names)) + b"".join(map(_text, names)) + struct.pack(">i", -1)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """An assignment of partitions."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    topics = [
        _text(topic) + struct.pack(f">i{len(of_topic)}i", len(of_topic), *of_topic)
        for topic, of_topic in numbers.items()
    ]
    return struct.pack(">hi", 0, len(topics)) + b"".join(topics) + struct.pack(">i", -1)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data
