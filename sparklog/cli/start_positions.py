"""Start positions of reading, in the words that kcat and Kafka's console consumer know."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparklog.model import TopicPartition

if TYPE_CHECKING:
    from sparklog.consumer import Consumer

__all__ = ["BEGINNING", "END", "StartPosition", "first_offsets", "parse_start_position", "parse_time"]

_EXPECTED = "expected beginning, end, an offset N, -N (that many before the end), or @TIME (ISO 8601, or ms)"


@dataclass(frozen=True, slots=True)
class StartPosition:
    """A position at which reading begins: one of four kinds."""

    kind: str
    """``beginning``, ``end``, ``offset`` (negative: from the end) or ``time``."""
    number: int = 0
    """The offset, or milliseconds since the epoch."""


BEGINNING, END = StartPosition("beginning"), StartPosition("end")
_WORDS = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}


def parse_start_position(text: str) -> StartPosition:
    """Parse a start position that a user gave. Raises ``ValueError`` with what was expected."""
    if text in _WORDS:
        return _WORDS[text]
    if re.fullmatch(r"-?\d{1,18}", text):
        return StartPosition("offset", int(text)) if text != "-0" else END
    time = re.fullmatch(r"s?@(?P<time>.+)", text)
    if time is None:
        raise ValueError(f"got {text!r}, {_EXPECTED}")
    return StartPosition("time", parse_time(time["time"]))


def parse_time(text: str) -> int:
    """Milliseconds since the epoch: ISO 8601 (UTC unless it says otherwise), or the number itself. Raises
    ``ValueError`` with what was expected."""
    if re.fullmatch(r"\d{1,15}", text):
        return int(text)
    from sparklog.log.data.segments import parse_timestamp  # here, as it brings Arrow with it

    try:
        milliseconds = parse_timestamp(text)
    except (ValueError, OverflowError):
        raise ValueError(f"got {text!r}, expected a time: ISO 8601, or ms since 1970") from None
    if milliseconds < 0:
        raise ValueError(f"got {text!r}, expected a time from 1970 on")
    return milliseconds


def first_offsets(
    consumer: Consumer, partitions: Collection[TopicPartition], start: StartPosition
) -> dict[TopicPartition, int]:
    """The offset at which reading of each partition begins; one outside of the partition's log is moved into it."""
    starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    if start.kind == "time":
        by_time = consumer.offsets_for_times(dict.fromkeys(partitions, start.number))
        return {at: offset.offset if offset else ends[at] for at, offset in by_time.items()}
    if start == BEGINNING:
        return starts
    if start == END:
        return ends
    wanted = {at: start.number if start.number >= 0 else ends[at] + start.number for at in partitions}
    return {at: min(max(wanted[at], starts[at]), ends[at]) for at in partitions}
