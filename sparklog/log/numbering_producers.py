"""The producers that number their batches themselves, as a topic remembers them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.log.producer_batches import unpacked
from sparklog.log.producer_state import parse_batches_app_id
from sparklog.log.state import TopicState

__all__ = ["NumberingProducer", "numbering_producers"]


@dataclass(frozen=True, slots=True)
class NumberingProducer:
    """A producer that numbers its batches itself, as a partition remembers it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    updated_ms: int
    """When its last batch was stored, by the wall clock of who stored it."""


def numbering_producers(state: TopicState) -> dict[int, list[NumberingProducer]]:
    """The producers that number their batches themselves, by partition, in the order of their ids. Pure.

    Args:
        state: of the topic, loaded whole.
    """
    found: dict[int, list[NumberingProducer]] = {}
    for action in state.transactions.values():
        parsed = parse_batches_app_id(action.app_id)
        if parsed is None or parsed[0] != state.head.topic_id:
            continue
        _, partition, producer_id = parsed
        epoch, sequence = unpacked(action.version)
        found.setdefault(partition, []).append(
            NumberingProducer(producer_id, epoch, sequence, action.last_updated_ms or -1)
        )
    return {partition: sorted(found[partition], key=lambda one: one.producer_id) for partition in sorted(found)}
