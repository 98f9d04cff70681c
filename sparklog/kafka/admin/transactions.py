"""kafka-python's calls about transactions, and the shapes of their answers."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple

from sparklog.admin import Admin
from sparklog.admin import TransactionDescription as Described
from sparklog.admin import TransactionState as OurState
from sparklog.admin.many import listed
from sparklog.kafka.enums import TransactionState
from sparklog.kafka.errors import (
    IllegalArgumentError,
    IncompatibleBrokerVersion,
    InvalidProducerEpochError,
    TransactionalIdNotFoundError,
)
from sparklog.model import TopicPartition

__all__ = ["AbortTransactionSpec", "TransactionCalls", "TransactionDescription", "TransactionListing"]

NODE = 0
"""Stands for the store, as in ``describe_topics``."""
NOT_KNOWN = -1
_NO_DURATION = "list_transactions(duration_filter_ms=…) is not supported: it is written nowhere when one began"


class TransactionListing(NamedTuple):
    """A transactional id in short."""

    transactional_id: str
    producer_id: int
    state: TransactionState


class TransactionDescription(NamedTuple):
    """A transactional id as of one moment."""

    coordinator_id: int
    """0: the store."""
    state: TransactionState
    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    """-1: it is written nowhere."""
    topic_partitions: set[TopicPartition]
    """The partitions of a transaction that is decided and not carried out everywhere."""


class AbortTransactionSpec(NamedTuple):
    """The producer whose transaction to abort."""

    topic_partition: TopicPartition
    """Accepted; a transaction is aborted as a whole."""
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = -1
    """Accepted; there are no coordinators."""


class TransactionCalls(ABC):
    """The calls. ``broker_ids`` has no effect: there are no brokers."""

    @abstractmethod
    def _admin(self, *, create: bool = False) -> Admin: ...

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """All transactional ids, or those of some states, of some producers, or whose whole name matches a pattern.

        Returns:
            ``{0: [TransactionListing(…)]}``: node 0 stands for the store.
        Raises:
            IncompatibleBrokerVersion: ``duration_filter_ms`` is given.
        """
        if duration_filter_ms is not None and duration_filter_ms >= 0:
            raise IncompatibleBrokerVersion(_NO_DURATION)
        try:
            pattern = re.compile(transactional_id_pattern or ".*", re.DOTALL)
        except re.error as error:
            raise IllegalArgumentError(f"transactional_id_pattern={transactional_id_pattern!r}: {error}") from None
        states = {TransactionState.build_from(state) for state in state_filters or TransactionState}
        found = (
            TransactionListing(listing.transactional_id, listing.producer_id, _state(listing.state))
            for listing in self._admin().list_transactions(None, list(producer_id_filters or ()) or None)
        )
        return {
            NODE: [
                listing for listing in found if listing.state in states and pattern.fullmatch(listing.transactional_id)
            ]
        }

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Transactional ids by name. Raises ``TransactionalIdNotFoundError``."""
        described = self._admin().describe_transactions(listed(transactional_ids))
        for description in described:
            if description.error is not None:
                raise description.error
        return {description.transactional_id: _answer(description) for description in described}

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Abort whatever transaction a producer has open, all of it; the producer gets an error, and stays usable.

        Raises:
            TransactionalIdNotFoundError: no transactional id belongs to this producer.
            InvalidProducerEpochError: its newest producer has another epoch.
            InvalidTxnStateError: the transaction is committed already.
        """
        admin = self._admin()
        found = admin.list_transactions(None, [spec.producer_id])
        if not found:
            raise TransactionalIdNotFoundError(
                f"abort_transaction: no transactional id is of producer {spec.producer_id}"
            )
        [described] = admin.describe_transactions([found[0].transactional_id])
        if (described.producer_id, described.producer_epoch) != (spec.producer_id, spec.producer_epoch):
            raise InvalidProducerEpochError(
                f"abort_transaction of {described.transactional_id!r}: producer {described.producer_id} has epoch "
                f"{described.producer_epoch}, got {spec.producer_id} with {spec.producer_epoch}"
            )
        admin.abort_transaction(described.transactional_id)

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: int = 900_000
    ) -> list[dict[str, Any]]:
        """None: what isn't committed is in no topic, and so holds up no reader."""
        self._admin()
        return []


def _answer(description: Described) -> TransactionDescription:
    return TransactionDescription(
        coordinator_id=NODE,
        state=_state(description.state),
        producer_id=description.producer_id,
        producer_epoch=description.producer_epoch,
        transaction_timeout_ms=description.transaction_timeout_ms,
        transaction_start_time_ms=NOT_KNOWN,
        topic_partitions=set(description.topic_partitions),
    )


def _state(state: OurState | None) -> TransactionState:
    return TransactionState.UNKNOWN if state is None else TransactionState(state.value)
