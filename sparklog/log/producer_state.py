"""Epoch and counter rules of idempotent appends. Pure: the old state and a batch in, a decision out.

A producer's commits to a topic are totally ordered by the topic's log, so one ``txn`` action per producer is its
whole state: appId = producer id, version = epoch and per-topic commit counter packed in one long
(rules L2, unknown; L7, producer state). Source of the rules: Kafka ``ProducerAppendInfo.checkSequence``, with commits
in place of records.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.delta.actions import SetTransaction
from sparklog.errors import InvalidArgumentError, InvalidProducerEpochError, OutOfOrderSequenceError

__all__ = [
    "MAX_PRODUCER_EPOCH",
    "PRODUCER_EXPIRATION_MS",
    "ProducerEntry",
    "announcer_app_id",
    "announcer_txn",
    "app_id",
    "batches_app_id",
    "is_duplicate_commit",
    "is_of_announcer",
    "is_of_batches",
    "new_producer_id",
    "parse_batches_app_id",
    "producer_entry",
    "producer_txn",
]

MAX_PRODUCER_EPOCH = 32_767
"""int16. Source: Kafka ``RecordBatch``."""
MAX_COUNTER = 2**48 - 1
"""The counter takes the low 48 bits beside a 15-bit epoch: at 1,000 commits per second it lasts 8,900 years."""
_ANNOUNCED = "announced:"
_BATCHES = "batches:"
PRODUCER_EXPIRATION_MS = 7 * 86_400_000
"""The longest stall after which a producer may still learn whether its commit landed (rule L7, producer state)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """The state that a topic keeps of a producer: its newest commit."""

    producer_epoch: int
    """0 … 32767."""
    counter: int
    """The counter of its newest commit in this topic and epoch, from 0 on."""


def new_producer_id() -> int:
    """A random number of 63 bits (rule T5, epochs): nobody hands them out, none is ever given twice."""
    return secrets.randbits(63)


def app_id(producer_id: int) -> str:
    """The ``txn`` appId of a producer."""
    return str(producer_id)


def announcer_app_id(announcer: int) -> str:
    """The ``txn`` appId that keeps the newest settled number of an announcer (rule L14, announced uploads)."""
    return f"{_ANNOUNCED}{announcer}"


def is_of_announcer(app_id: str) -> bool:
    """Is a ``txn`` action one that :func:`announcer_app_id` names?"""
    return app_id.startswith(_ANNOUNCED)


def batches_app_id(topic_id: str, partition: int, producer_id: int) -> str:
    """The ``txn`` appId that keeps the newest batch of a producer which numbers its batches itself (rule L15, numbered
    batches). The topic's id: what a producer sent to a topic of before mustn't count."""
    return f"{_BATCHES}{topic_id}.{partition}.{producer_id}"


def is_of_batches(app_id: str) -> bool:
    """Is a ``txn`` action one that :func:`batches_app_id` names?"""
    return app_id.startswith(_BATCHES)


def parse_batches_app_id(app_id: str) -> tuple[str, int, int] | None:
    """Topic id, partition and producer id of :func:`batches_app_id`; None for another."""
    parts = app_id.removeprefix(_BATCHES).split(".") if is_of_batches(app_id) else []
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return parts[0], int(parts[1]), int(parts[2])


def announcer_txn(announcer: int, number: int, *, now_ms: int) -> SetTransaction:
    """The ``txn`` action that settles an announcer's flushes up to ``number``. ``now_ms``: wall clock, for its
    expiry."""
    return SetTransaction(app_id=announcer_app_id(announcer), version=number, last_updated_ms=now_ms)


def producer_txn(producer_id: int, entry: ProducerEntry, *, now_ms: int) -> SetTransaction:
    """The ``txn`` action that records a producer's commit. ``now_ms``: wall clock, for its expiry."""
    if not (0 <= entry.producer_epoch <= MAX_PRODUCER_EPOCH and 0 <= entry.counter <= MAX_COUNTER):
        raise InvalidArgumentError(
            f"producer {producer_id}: epoch {entry.producer_epoch} or counter {entry.counter} out of range"
        )
    return SetTransaction(
        app_id=app_id(producer_id), version=entry.producer_epoch << 48 | entry.counter, last_updated_ms=now_ms
    )


def producer_entry(transactions: Mapping[str, SetTransaction], producer_id: int) -> ProducerEntry | None:
    """The entry of a producer among a table's ``txn`` actions; None where it is unknown or expired."""
    found = transactions.get(app_id(producer_id))
    if found is None:
        return None
    return ProducerEntry(producer_epoch=found.version >> 48, counter=found.version & MAX_COUNTER)


def is_duplicate_commit(
    known: ProducerEntry | None, *, topic: str, producer_id: int, producer_epoch: int, counter: int
) -> bool:
    """Is a commit of ``producer_id`` in the topic already? Else it may follow the producer's newest one.

    Args:
        known: the producer's newest commit in the topic; None accepts any counter (Kafka: no state, any sequence).
        counter: of the new commit; the same counter always means the same bytes (rule L2, unknown).
    Raises:
        InvalidProducerEpochError: the topic has seen a newer epoch; requires_abort.
        OutOfOrderSequenceError: a commit in between is missing, or a new epoch doesn't start at 0; requires_abort.
    """
    if known is None:
        return False
    if producer_epoch < known.producer_epoch:
        raise InvalidProducerEpochError(
            f"invalid producer epoch: topic={topic}, producer_id={producer_id}, epoch={producer_epoch}, "
            f"the topic has seen {known.producer_epoch}"
        )
    expected = 0 if producer_epoch > known.producer_epoch else known.counter + 1
    if counter > expected:
        raise OutOfOrderSequenceError(
            f"out of order commit: topic={topic}, producer_id={producer_id}, epoch={producer_epoch}, "
            f"counter={counter}, expected={expected}"
        )
    return counter < expected
