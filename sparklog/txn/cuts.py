"""Which versions of several topics show every transaction as a whole. Pure.

A transaction becomes visible topic by topic: for a moment one topic has its records and another doesn't. Versions at
which each transaction is in all of its topics or in none make a *consistent cut*. The newest one is searched for, from
the newest versions downwards: what isn't in one topic yet is left out of the others, and with it what these have behind
it, until nothing changes any more. Whatever is left out in this way is in no consistent cut of these versions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Cut", "Partial", "TopicHistory", "Transaction", "Unknown", "decide_cut"]

_BEFORE = -1
"""Stands for any version up to the first of a history."""


@dataclass(frozen=True, slots=True, order=True)
class Transaction:
    """A committed transaction, as the topics remember it."""

    transactional_id: str
    number: int
    """The number of the entry that decided it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicHistory:
    """The versions of a topic that a cut may choose from, and where transactions became visible in it."""

    first_version: int
    """The oldest version that may be chosen."""
    last_version: int
    """The newest one."""
    markers: Mapping[str, int]
    """At the first version: the number of the newest transaction of each transactional id."""
    published: Sequence[tuple[int, Transaction]] = ()
    """Behind the first version, in the order of versions: which transaction came with which of them."""

    def places(self) -> dict[Transaction, int]:
        """The version with which each transaction of :attr:`published` came."""
        return {transaction: version for version, transaction in self.published}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Every transaction is whole at these versions."""

    versions: Mapping[str, int]
    """By topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Which topics these transactions are in must be known first."""

    transactions: tuple[Transaction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Partial:
    """There is no cut in these versions, as a transaction isn't in all of its topics yet."""

    transaction: Transaction
    """The one, or one of those, because of which there is none."""
    missing: Mapping[Transaction, tuple[str, ...]]
    """By transaction that isn't whole: its topics that don't have it."""


@dataclass(slots=True)
class _Search:
    """A search for the newest cut."""

    histories: Mapping[str, TopicHistory]
    placed: Mapping[Transaction, Mapping[str, int]]
    """The version with which each transaction came to each topic that has it."""
    versions: dict[str, int]
    left_out: dict[Transaction, Transaction] = field(default_factory=dict)
    """Transactions that no cut of these versions can have; and the one that isn't whole, because of which."""
    waiting: list[Transaction] = field(default_factory=list)

    def leave_out(self, transaction: Transaction, cause: Transaction) -> None:
        if transaction not in self.left_out:
            self.left_out[transaction] = cause
            self.waiting.append(transaction)

    def run(self) -> Transaction | None:
        """Lower the versions until each transaction is whole. Returns the transaction because of which that can't be;
        None where it is done."""
        while self.waiting:
            transaction = self.waiting.pop()
            cause = self.left_out[transaction]
            for topic, version in self.placed[transaction].items():
                if version == _BEFORE:
                    return cause
                if version > self.versions[topic]:
                    continue
                for other_version, other in self.histories[topic].published:
                    if version <= other_version <= self.versions[topic]:
                        self.leave_out(other, cause)
                self.versions[topic] = version - 1
        return None


def decide_cut(
    histories: Mapping[str, TopicHistory],
    *,
    named: Mapping[Transaction, Collection[str]],
    carried_out: Collection[Transaction],
) -> Cut | Unknown | Partial:
    """The newest consistent cut of these versions.

    Args:
        histories: by topic.
        named: the topics of a transaction, as the entry that decided it names them; of those in ``histories`` at least.
        carried_out: transactions that were in all of their topics before the newest versions were looked for.
    Returns:
        :class:`Unknown` where ``named`` or ``carried_out`` must name more transactions; :class:`Partial` where the
        same must be asked again once the topics went on.
    """
    placed = _places(histories, named)
    unknown = [
        transaction
        for transaction, places in placed.items()
        if len(places) < len(histories) and transaction not in named and transaction not in carried_out
    ]
    if unknown:
        return Unknown(transactions=tuple(sorted(unknown)))
    search = _Search(histories, placed, {topic: history.last_version for topic, history in histories.items()})
    missing: dict[Transaction, tuple[str, ...]] = {}
    for transaction, places in placed.items():
        lacking = [topic for topic in histories if topic not in places and topic in named.get(transaction, ())]
        if lacking and transaction not in carried_out:
            missing[transaction] = tuple(lacking)
            search.leave_out(transaction, transaction)
    cause = search.run()
    if cause is not None:
        return Partial(transaction=cause, missing=missing)
    return Cut(versions=search.versions)


def _places(
    histories: Mapping[str, TopicHistory], named: Mapping[Transaction, Collection[str]]
) -> dict[Transaction, dict[str, int]]:
    """Where each transaction is that some topic may have and another may not.

    A topic whose marker is greater at the first version has the transaction, or never will. Where nothing shows which,
    it counts as one that has it: then a cut may be missed that a later look finds, and none is wrong.
    """
    places_by_topic = {topic: history.places() for topic, history in histories.items()}
    newest: dict[str, set[int]] = {}
    for history in histories.values():
        for name, number in history.markers.items():
            newest.setdefault(name, set()).add(number)
    seen = {transaction for places in places_by_topic.values() for transaction in places}
    for name, numbers in newest.items():
        if len(numbers) > 1 or any(name not in history.markers for history in histories.values()):
            seen.update(Transaction(name, number) for number in numbers)
    placed: dict[Transaction, dict[str, int]] = {}
    for transaction in seen:
        places = placed[transaction] = {}
        for topic, history in histories.items():
            if topic not in named.get(transaction, histories):
                continue
            if history.markers.get(transaction.transactional_id, 0) >= transaction.number:
                places[topic] = _BEFORE
            elif transaction in places_by_topic[topic]:
                places[topic] = places_by_topic[topic][transaction]
    return placed
