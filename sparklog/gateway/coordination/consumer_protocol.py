"""The parts of a group's messages that consumers encode: subscriptions and assignments, which the coordinator passes
on.

Source: Kafka ``ConsumerProtocolSubscription``, ``ConsumerProtocolAssignment``, version 0, with which all later begin.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from sparklog.model import TopicPartition

__all__ = ["CONSUMER", "encode_assignment", "encode_subscription", "subscribed_topics"]

CONSUMER = "consumer"
"""The protocol type of groups of consumers; of others the coordinator understands nothing."""


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """The topics of a subscription. Raises ``ValueError``: it is none."""
    try:
        _, count = struct.unpack_from(">hi", metadata)
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
    return frozenset(topics)


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
