"""The answer to Produce by a template, where every partition was stored, which is nearly always."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

__all__ = ["produced_frame"]

_FIRST_WITH_START, _FIRST_WITH_ERRORS, _FIRST_FLEXIBLE, _LAST = 5, 8, 9, 11
"""Versions from which on partitions have their log's first offset, errors of records, tagged fields; and the last one
that looks so. Source: Kafka ``ProduceResponse.json``."""
_STORED = struct.Struct(">ihq")
"""Partition, no error, base offset; then :data:`_BEHIND` as the version has it."""
_FEW = 126
"""The length in front of so many bytes or elements takes a byte."""
_LEFT, _LEFT_FLEXIBLE = 4, 6
"""Bytes behind the only partition: the time of throttling, and the tagged fields of the topic and of all."""
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")
_MOST_TEMPLATES = 1_000
_NO_TIME = struct.pack(">q", -1)
_NO_START = struct.pack(">q", -1)


def _behind(version: int) -> bytes:
    """The bytes behind a base offset: no time of appending, nobody knows the log's first offset, no errors."""
    start = _NO_START if version >= _FIRST_WITH_START else b""
    if version >= _FIRST_FLEXIBLE:
        return _NO_TIME + start + b"\x01\x00\x00"
    return _NO_TIME + start + (b"\x00\x00\x00\x00\xff\xff" if version >= _FIRST_WITH_ERRORS else b"")


_BEHIND = {version: _behind(version) for version in range(3, _LAST + 1)}


def produced_frame(
    version: int, correlation_id: int, topics: Sequence[tuple[str, Sequence[int]]], offsets: Sequence[int]
) -> bytes | None:
    """The frame that answers a Produce request of which all is stored; None: it is too long for the template.

    Args:
        topics: names of topics, each with numbers of partitions.
        offsets: the offset of the first record, for each partition, over all topics.
    """
    if len(offsets) == 1 and len(topics) == 1:
        return _only_frame(version, correlation_id, *topics[0], *offsets)
    return _frame(version, correlation_id, topics, offsets)


def _only_frame(version: int, correlation_id: int, topic: str, numbers: Sequence[int], offset: int) -> bytes | None:
    """The answer to a request for one partition, which most are: only two numbers in it change."""
    template = _template(version, topic, numbers[0])
    if template is None:
        return None
    size, middle, behind = template
    return b"%b%b%b%b%b" % (size, _INT32.pack(correlation_id), middle, _INT64.pack(offset), behind)


@lru_cache(_MOST_TEMPLATES)
def _template(version: int, topic: str, number: int) -> tuple[bytes, bytes, bytes] | None:
    """The bytes before the correlation id, between it and the offset, and behind that."""
    frame = _frame(version, 0, [(topic, [number])], [0])
    if frame is None:
        return None
    at = len(frame) - len(_BEHIND[version]) - (_LEFT_FLEXIBLE if version >= _FIRST_FLEXIBLE else _LEFT) - _INT64.size
    return frame[:4], frame[8:at], frame[at + _INT64.size :]


def _frame(
    version: int, correlation_id: int, topics: Sequence[tuple[str, Sequence[int]]], offsets: Sequence[int]
) -> bytes | None:
    behind, is_flexible = _BEHIND.get(version), version >= _FIRST_FLEXIBLE
    if behind is None or len(offsets) > _FEW or len(topics) > _FEW:
        return None
    left, pieces = iter(offsets), []
    for topic, numbers in topics:
        name = topic.encode()
        if is_flexible:
            if len(name) > _FEW:
                return None
            pieces.append(b"%c%b%c" % (len(name) + 1, name, len(numbers) + 1))
        else:
            pieces.append(struct.pack(f">h{len(name)}si", len(name), name, len(numbers)))
        pieces += [_STORED.pack(number, 0, next(left)) + behind for number in numbers]
        if is_flexible:
            pieces.append(b"\x00")
    body = b"".join(pieces)
    if is_flexible:  # behind the topics: no throttling, no tagged fields
        return struct.pack(f">iiBB{len(body)}siB", len(body) + 11, correlation_id, 0, len(topics) + 1, body, 0, 0)
    return struct.pack(f">iii{len(body)}si", len(body) + 12, correlation_id, len(topics), body, 0)
