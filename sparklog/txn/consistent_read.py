"""Loading several topics as of versions at which every transaction is whole (decision 0032)."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from sparklog.clock import Deadline
from sparklog.delta.actions import Entry, SetTransaction
from sparklog.errors import (
    KafkaTimeoutError,
    NotATopicError,
    SparklogError,
    TopicShrunkError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.cluster import Cluster
from sparklog.log.publishing import transactional_id_of
from sparklog.log.state import TopicState, load_state
from sparklog.parallel import parallel_map
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position, advance
from sparklog.txn.cuts import Cut, Partial, TopicHistory, Transaction, Unknown, decide_cut
from sparklog.txn.entries import open_transaction_log
from sparklog.txn.forward import finish
from sparklog.txn.overview import newest_number
from sparklog.txn.states import TransactionState

__all__ = ["DEFAULT_CUT_TIMEOUT_MS", "load_consistent"]

_LOGGER = logging.getLogger("sparklog.txn")

DEFAULT_CUT_TIMEOUT_MS = 30_000.0
_PAUSE_MS = 50.0
_HELP_AFTER_MS = 1_000.0
"""A producer carries its decision out within that, unless it died or the store is slow."""
_HELP_MS = 10_000.0
"""The time limit of carrying out one decision in each topic and group."""
_AHEAD = 8
_ATTEMPTS = 5
"""To load topics whose versions are cleaned meanwhile."""


def load_consistent(
    cluster: Cluster,
    topics: Iterable[str],
    *,
    timeout_ms: float = DEFAULT_CUT_TIMEOUT_MS,
    skip_missing: bool = False,
) -> dict[str, TopicState]:
    """Load topics as of versions at which every transaction is in all of its topics among these, or in none.

    The newest such versions there are. Everything that was acknowledged before this call is in them, unless a
    transaction that was decided isn't in all of its topics yet: then it waits for that, and after a second carries the
    decision out itself, as consumers do.

    Costs the load of each topic; a GET for each and for what comes meanwhile; two GETs for each transactional id that
    not all of the topics know.

    Args:
        timeout_ms: how long to go on looking, once the topics are loaded.
        skip_missing: leave out topics that aren't there, or are no topics.
    Returns:
        By topic, a state that is whole.
    Raises:
        KafkaTimeoutError: no such versions came in that time; names the transaction that isn't whole, and where.
        UnknownTopicOrPartitionError, and what reading a log raises.
    """
    names = list(dict.fromkeys(topics))
    for _ in range(_ATTEMPTS):
        loaded = [topic for topic in parallel_map(lambda name: _load(cluster, name, skip_missing), names) if topic]
        try:
            return _ConsistentRead(cluster, loaded, cluster.clock.deadline_in(timeout_ms)).run()
        except PositionLost as error:  # old versions were cleaned while we slept, or a table is readable again
            _LOGGER.info("topics are loaded anew for a consistent cut: %s", error)
    raise KafkaTimeoutError(
        f"no consistent cut of {', '.join(names)} was found in {_ATTEMPTS} attempts: versions were cleaned each time "
        "while this process slept; try again"
    )


@dataclass(slots=True)
class _Topic:
    """A topic as it was loaded, and the entries that came since."""

    name: str
    state: TopicState
    """The topic as of the first version; carried on once, when the cut is known."""
    tail: Position
    entries: list[Entry] = field(default_factory=list)
    published: list[tuple[int, Transaction]] = field(default_factory=list)

    def extend(self) -> None:
        """Learn of all entries that are there by now. Raises ``PositionLost``, and what reading a log raises."""
        while True:
            look = self.state.log.look(self.tail, ahead=_AHEAD)
            self.tail = look.position
            for entry in look.entries:
                self.entries.append(entry)
                self.published += [(entry.version, transaction) for transaction in _published_by(entry.actions)]
            if len(look.entries) < _AHEAD:
                return

    def history(self) -> TopicHistory:
        published = _published_by(self.state.transactions.values())
        return TopicHistory(
            first_version=self.state.position.version,
            last_version=self.tail.version,
            markers={transaction.transactional_id: transaction.number for transaction in published},
            published=self._first_only(),
        )

    def state_at(self, version: int) -> TopicState:
        """Carry the state on to ``version``. Raises ``UnknownTopicOrPartitionError`` where the topic was deleted by
        then, and what applying an entry raises."""
        state, topic_id = self.state, self.state.head.topic_id
        for entry in self.entries:
            if entry.version <= version:
                state.apply_entry(entry, advance(state.position, version=entry.version, token=entry.token))
        if state.unreadable is not None:
            raise state.unreadable.with_traceback(None)
        _check_alive(self.name, state, topic_id)
        return state

    def _first_only(self) -> list[tuple[int, Transaction]]:
        """The entries by which a marker grew: maintenance may write one again as it is."""
        newest = dict[str, int]()
        grown = []
        for version, transaction in self.published:
            if transaction.number > newest.get(transaction.transactional_id, 0):
                newest[transaction.transactional_id] = transaction.number
                grown.append((version, transaction))
        return grown


class _ConsistentRead:
    """One search, from the moment at which its topics were loaded on."""

    def __init__(self, cluster: Cluster, topics: Sequence[_Topic], deadline: Deadline) -> None:
        self._cluster = cluster
        self._topics = topics
        self._deadline = deadline
        self._named: dict[Transaction, Collection[str]] = {}
        self._carried_out: set[Transaction] = set()
        self._patient_until: Deadline | None = None
        """Until then producers are left to carry out their decisions by themselves."""
        self._help_error: SparklogError | None = None

    def run(self) -> dict[str, TopicState]:
        """Raises as :func:`load_consistent`, and ``PositionLost``: load the topics anew."""
        while True:
            # After what is known of transactions: one that was carried out by then is in every topic that is read now.
            parallel_map(_Topic.extend, self._topics)
            decision = decide_cut(
                {topic.name: topic.history() for topic in self._topics},
                named=self._named,
                carried_out=self._carried_out,
            )
            if isinstance(decision, Cut):
                return {topic.name: topic.state_at(decision.versions[topic.name]) for topic in self._topics}
            if self._deadline.has_passed:
                raise self._time_out(decision) from self._help_error
            if isinstance(decision, Unknown):
                self._learn(decision.transactions)
            else:
                self._wait_for(decision)

    def _learn(self, transactions: Sequence[Transaction]) -> None:
        """Learn which topics transactions are of, or that they are carried out."""
        ids = {topic.name: topic.state.head.topic_id for topic in self._topics}

        def look_up(transaction: Transaction) -> Collection[str] | None:
            log = open_transaction_log(self._cluster, transaction.transactional_id)
            decided, after = log.read_entries(transaction.number, 2)
            if after is not None:  # the entry that says so, or a later one
                return None
            if decided is None or decided.state is not TransactionState.PREPARE_COMMIT:  # cleaned, and so carried out
                return None
            if newest_number(log, after=transaction.number):
                return None
            topics = decided.contents.topics
            return frozenset(name for name, named in topics.items() if ids.get(name) == named.topic_id)

        for transaction, named in zip(transactions, parallel_map(look_up, transactions), strict=True):
            if named is None:
                self._carried_out.add(transaction)
            else:
                self._named[transaction] = named

    def _wait_for(self, partial: Partial) -> None:
        """Leave a second to producers that live; then carry out all that isn't whole, as long as it takes: where it
        comes faster than it goes there is no cut."""
        clock = self._cluster.clock
        self._patient_until = self._patient_until or clock.deadline_in(_HELP_AFTER_MS)
        if self._patient_until.has_passed:
            errors = [error for error in parallel_map(self._help, partial.missing) if error is not None]
            self._help_error = errors[0] if errors else None
            if not errors:
                return
        clock.sleep_ms(min(_PAUSE_MS, self._deadline.left_ms))

    def _help(self, transaction: Transaction) -> SparklogError | None:
        """Carry out an unfinished decision. A process without write access waits for another to do it."""
        log = open_transaction_log(self._cluster, transaction.transactional_id)
        try:
            newest, position = log.open_newest()
            if newest is not None and newest.version == transaction.number and newest.state.is_prepared:
                timeout_ms = min(_HELP_MS, max(1.0, self._deadline.left_ms))
                finish(self._cluster, log, newest, position, timeout_ms=timeout_ms)
        except SparklogError as error:
            return error
        return None

    def _time_out(self, decision: Unknown | Partial) -> KafkaTimeoutError:
        names = ", ".join(topic.name for topic in self._topics)
        if isinstance(decision, Unknown):
            what = f"{len(decision.transactions)} transactions were being looked up"
        else:
            transaction = decision.transaction
            what = (
                f"transaction {transaction.number} of transactional id {transaction.transactional_id!r} isn't yet in "
                f"{', '.join(decision.missing[transaction])}"
            )
        because = "" if self._help_error is None else f": {self._help_error}"
        return KafkaTimeoutError(f"no consistent cut of {names} was found in time: {what}{because}; try again")


def _load(cluster: Cluster, name: str, skip_missing: bool) -> _Topic | None:
    try:
        state = load_state(cluster.topic_log(name))
        _check_alive(name, state, state.head.topic_id)
    except (UnknownTopicOrPartitionError, NotATopicError) as error:
        if skip_missing and not isinstance(error, TopicShrunkError):
            return None
        raise
    return _Topic(name, state, state.position)


def _check_alive(name: str, state: TopicState, topic_id: str) -> None:
    if state.head.deleted or state.head.topic_id != topic_id:
        raise UnknownTopicOrPartitionError(f"unknown topic: {name!r} was deleted")


def _published_by(actions: Iterable[object]) -> list[Transaction]:
    markers = [action for action in actions if isinstance(action, SetTransaction)]
    named = ((transactional_id_of(marker.app_id), marker.version) for marker in markers)
    return [Transaction(name, number) for name, number in named if name is not None]
