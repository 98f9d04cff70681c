"""Is the output what it should be, each record of it exactly once? Recomputed from the input, without Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from examples.exactly_once.checker import read_all
from examples.spark_stream.job import ALERTS, CLOSING, COUNTS, FLIGHTS, LATE_MIN, VERY_LATE_MIN, WORSE
from sparklog import ConsumerRecord

__all__ = ["Findings", "check", "compare"]

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found in a topic, and what is wrong with it."""

    topic: str
    records: int
    missing: int
    """That should be there and aren't."""
    surplus: int
    """That are there twice, or that no flight explains."""

    @property
    def is_exactly_once(self) -> bool:
        return not (self.missing or self.surplus)


def check(root: str) -> list[Findings]:
    """Read all topics from their beginning, and compare; one for each topic that the job writes."""
    flights = read_all(root, FLIGHTS)
    outputs = {topic: read_all(root, topic) for topic in (ALERTS, WORSE, COUNTS)}
    return compare(flights, outputs)


def compare(flights: Sequence[ConsumerRecord], outputs: dict[str, list[ConsumerRecord]]) -> list[Findings]:
    """The records of each output topic with those that the flights should have made."""
    late = [(record, delay) for record in flights if (delay := _parsed(record)["arr_delay"]) is not None]
    expected: dict[str, Iterable[Hashable]] = {
        ALERTS: [(record.partition, record.offset) for record, delay in late if delay >= LATE_MIN],
        WORSE: [(record.partition, record.offset) for record, delay in late if delay >= VERY_LATE_MIN],
        COUNTS: _counted(flights),
    }
    found: dict[str, Iterable[Hashable]] = {
        topic: [_count(record) if topic == COUNTS else _source(record) for record in records]
        for topic, records in outputs.items()
    }
    findings = []
    for topic, records in outputs.items():
        should, are = Counter(expected[topic]), Counter(found[topic])
        findings.append(
            Findings(
                topic=topic,
                records=len(records),
                missing=(should - are).total(),
                surplus=(are - should).total(),
            )
        )
    return findings


def _counted(flights: Sequence[ConsumerRecord]) -> list[tuple[str, int, int]]:
    by_hour = Counter((_parsed(record)["carrier"], record.timestamp // HOUR_MS) for record in flights)
    return [(carrier, hour, count) for (carrier, hour), count in by_hour.items() if carrier != CLOSING]


def _count(record: ConsumerRecord) -> tuple[str, int, int]:
    told = _parsed(record)
    hour = datetime.fromisoformat(told["hour"].replace("Z", "+00:00")).astimezone(UTC)
    return told["carrier"], int(hour.timestamp() * 1_000) // HOUR_MS, told["count"]


def _source(record: ConsumerRecord) -> tuple[int, int]:
    """Which flight an alert is of."""
    told = _parsed(record)
    return told["partition"], told["offset"]


def _parsed(record: ConsumerRecord) -> dict[str, object]:
    found = json.loads(record.value)
    if not isinstance(found, dict):
        raise SystemExit(f"{record.topic}-{record.partition} at {record.offset}: found {found!r}, expected an object")
    return found
