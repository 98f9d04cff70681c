"""The numbers by which a batch is known to be its producer's next one."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SEQUENCE_MODULUS", "ProducerStamp", "next_sequence"]

SEQUENCE_MODULUS = 2**31
"""Sequences are int32 and wrap to 0. Source: Kafka ``DefaultRecordBatch.incrementSequence``."""


@dataclass(frozen=True, slots=True)
class ProducerStamp:
    """The producer of a batch, and the batch's place in its sequence."""

    producer_id: int
    """Random, 63 bits."""
    producer_epoch: int
    """0 … 32767."""
    base_sequence: int
    """Sequence of the batch's first record in its partition, 0 … 2**31 - 1."""


def next_sequence(sequence: int, count: int) -> int:
    """The sequence ``count`` records after ``sequence``."""
    return (sequence + count) % SEQUENCE_MODULUS
