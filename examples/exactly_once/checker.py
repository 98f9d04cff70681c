"""Is the output the transformation of the input, each record's exactly once?"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from examples.exactly_once.alerts import alert_of
from examples.exactly_once.worker import GROUP
from sparklog import Admin, Consumer, ConsumerRecord, TopicPartition

__all__ = ["Findings", "check", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found, and what is wrong with it."""

    flights: int
    alerts: int
    missing: int
    """Alerts that should be there and aren't."""
    surplus: int
    """Alerts that are there twice, or that no flight explains."""
    disordered: int
    """Aircraft whose alerts aren't in the order of its flights."""
    uncommitted: int
    """Flights that the group hasn't committed."""

    @property
    def is_exactly_once(self) -> bool:
        return not (self.missing or self.surplus or self.disordered or self.uncommitted)


def check(root: str) -> Findings:
    """Read both topics from their beginning, and compare."""
    with Admin(root) as admin:
        committed = admin.list_group_offsets(GROUP)
    flights, alerts = read_all(root, "flights"), read_all(root, "alerts")
    return compare(flights, alerts, committed=sum(each.offset for each in committed.values()))


def compare(flights: Sequence[ConsumerRecord], alerts: Sequence[ConsumerRecord], *, committed: int) -> Findings:
    """Compare the alerts that there are with those that there should be. Pure."""
    expected = Counter(alert for alert in map(alert_of, flights) if alert is not None)
    found = Counter(record.value for record in alerts)
    return Findings(
        flights=len(flights),
        alerts=len(alerts),
        missing=sum((expected - found).values()),
        surplus=sum((found - expected).values()),
        disordered=sum(offsets != sorted(offsets) for offsets in sources_by_aircraft(alerts).values()),
        uncommitted=len(flights) - committed,
    )


def read_all(root: str, topic: str) -> list[ConsumerRecord]:
    """Every record of a topic."""
    found: list[ConsumerRecord] = []
    with Consumer(cluster=root, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for records in consumer.poll(timeout_ms=1_000).values():
                found += records
    return found


def sources_by_aircraft(alerts: Sequence[ConsumerRecord]) -> dict[bytes | None, list[int]]:
    """The offsets of the flights, which of one aircraft are in one partition, in the order of their alerts."""
    sources: dict[bytes | None, list[int]] = defaultdict(list)
    for record in alerts:
        sources[record.key].append(json.loads(record.value)["offset"])
    return sources
