"""Transactional ids as an administrator sees them: states by Kafka's names, what a decision names, who aborted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sparklog.errors import (
    InvalidArgumentError,
    SparklogError,
    TransactionalIdNotFoundError,
    as_sparklog_error,
)
from sparklog.log.cluster import Cluster
from sparklog.model import TopicPartition
from sparklog.storage.each_alone import each_alone
from sparklog.txn.entries import TransactionEntry, TransactionLog, open_transaction_log
from sparklog.txn.overview import (
    SessionMarker,
    markers_of,
    may_be_open,
    readable_markers,
    transactional_ids,
)
from sparklog.txn.states import TransactionState

__all__ = [
    "TransactionDescription",
    "TransactionListing",
    "check_state",
    "describe_transactions",
    "list_transactions",
    "newest_entries",
]

UNKNOWN = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id in short."""

    transactional_id: str
    producer_id: int
    """The id of its newest producer; -1 where the log can't be read."""
    state: TransactionState | None
    """The state of its newest transaction; None where the log can't be understood.

    *Ongoing* means that one may be open: a producer has the id and hasn't closed, or it died. Whether it has begun a
    transaction is written nowhere."""
    error: SparklogError | None = None
    """Why ``state`` is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id as of one moment. Numbers are -1 where its log can't be understood."""

    transactional_id: str
    state: TransactionState | None
    """The state, as :attr:`TransactionListing.state`."""
    producer_id: int = UNKNOWN
    producer_epoch: int = UNKNOWN
    """0 … 32766; grows with each producer that takes the id."""
    transaction_timeout_ms: int = UNKNOWN
    """After so long an open transaction may be aborted by anybody."""
    entry_number: int = UNKNOWN
    """The number of the newest entry in the id's log, from 1."""
    written_ms: int = UNKNOWN
    """When the newest entry was written, by its writer's clock; milliseconds since the epoch."""
    topic_partitions: frozenset[TopicPartition] = frozenset()
    """The partitions that the transaction has records in; known from its decision until it is carried out
    everywhere."""
    groups: Mapping[str, frozenset[TopicPartition]] = field(default_factory=lambda: MappingProxyType({}))
    """The partitions whose committed offsets it moves, by group; known as long as ``topic_partitions``."""
    abort_reason: str | None = None
    """Why another process than the producer has aborted its newest transaction; None where none has."""
    error: SparklogError | None = None
    """Why ``state`` is None."""


def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[TransactionState] | None = None,
    producer_ids: Collection[int] | None = None,
) -> list[TransactionListing]:
    """The transactional ids of a cluster, sorted: all, or those of some states and producers.

    Costs as :func:`describe_transactions` of all.
    """
    listings = (
        TransactionListing(
            transactional_id=each.transactional_id, producer_id=each.producer_id, state=each.state, error=each.error
        )
        for each in describe_transactions(cluster, None)
    )
    return [
        each
        for each in listings
        if (states is None or each.state in states) and (producer_ids is None or each.producer_id in producer_ids)
    ]


def describe_transactions(cluster: Cluster, wanted: Iterable[str] | None) -> list[TransactionDescription]:
    """Transactional ids as of now, in the order as given; all, sorted, for None.

    Costs a LIST, a GET, and a LIST of its markers each, 32 ids at a time; for all of them two listings more, and no
    LIST of markers each. One whose log can't be read hides no other: it has an ``error``.

    Raises:
        TransactionalIdNotFoundError: one that was asked for by name isn't there.
        InvalidArgumentError: a name that no id may have.
        StoreError.
    """
    names = transactional_ids(cluster) if wanted is None else list(dict.fromkeys(wanted))
    everyones, unlisted = readable_markers(cluster) if wanted is None else (None, {})

    def markers(name: str) -> Collection[SessionMarker]:
        return markers_of(cluster, name) if everyones is None else everyones.get(name, ())

    def look(name: str) -> TransactionDescription | None:
        if name in unlisted:
            raise unlisted[name]
        return _look(open_transaction_log(cluster, name), lambda: markers(name))

    looks = each_alone(cluster.store, look, names)
    described = []
    for name, description in zip(names, looks, strict=True):
        if isinstance(description, Exception):
            error = as_sparklog_error(description).with_traceback(None)
            described.append(TransactionDescription(transactional_id=name, state=None, error=error))
        elif description is not None:
            described.append(description)
        elif wanted is not None:
            raise TransactionalIdNotFoundError(f"unknown transactional id: {name!r}")
    return described


def newest_entries(cluster: Cluster, transactional_id: str, count: int) -> list[TransactionEntry]:
    """The newest entries of an id's log that are still there, the newest first; none where there is no such id.

    Costs a GET and a LIST, and a GET for each.

    Args:
        count: the most of them.
    Raises:
        CorruptLogError, UnsupportedVersionError: one of them can't be understood.
        InvalidArgumentError: a name that no id may have.
        StoreError.
    """
    log = open_transaction_log(cluster, transactional_id)
    newest, _ = log.open_newest()
    if newest is None:
        return []
    first = max(1, newest.version - count + 1)
    earlier = log.read_entries(first, newest.version - first)
    return [newest, *(entry for entry in reversed(earlier) if entry is not None)]


def check_state(given: object) -> TransactionState:
    """A state by its name as Kafka writes it. Raises ``InvalidArgumentError``."""
    for state in TransactionState:
        if given in (state, state.value):
            return state
    known = ", ".join(state.value for state in TransactionState)
    raise InvalidArgumentError(f"got {given!r} for the state of a transaction, expected one of {known}")


def _look(log: TransactionLog, markers: Callable[[], Collection[SessionMarker]]) -> TransactionDescription | None:
    """None: there is no such id."""
    newest, _ = log.open_newest()
    return None if newest is None else _describe(log, newest, is_open=_is_open(log, newest, markers))


def _is_open(log: TransactionLog, newest: TransactionEntry, markers: Callable[[], Collection[SessionMarker]]) -> bool:
    """May a transaction be open? One that was just aborted from outside isn't, though its producer may go on."""
    if not newest.state.is_open or newest.is_forced:
        return False
    return any(may_be_open(log, newest, marker) for marker in markers() if marker.number <= newest.version)


def _describe(log: TransactionLog, newest: TransactionEntry, *, is_open: bool) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=log.transactional_id,
        state=TransactionState.ONGOING if is_open else newest.state,
        producer_id=newest.header.producer_id,
        producer_epoch=newest.header.producer_epoch,
        transaction_timeout_ms=newest.header.timeout_ms,
        entry_number=newest.version,
        written_ms=newest.written_ms,
        topic_partitions=frozenset(
            TopicPartition(name, file.partition)
            for name, topic in newest.contents.topics.items()
            for file in topic.files
        ),
        groups=newest.contents.groups,
        abort_reason=None if newest.is_expired else newest.reason or None,
    )
