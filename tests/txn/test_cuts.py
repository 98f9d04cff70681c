"""Which versions of several topics make a consistent cut: against all versions there are, tried one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from sparklog.txn.cuts import Cut, Partial, TopicHistory, Transaction, Unknown, decide_cut

TOPICS = ("a", "b", "c")


@dataclass
class World:
    """Topics and ids, each of which carries out one transaction after the other, topic by topic, in any order."""

    choice: random.Random
    logs: dict[str, list[Transaction | None]] = field(default_factory=lambda: {topic: [None] for topic in TOPICS})
    """By version: the transaction that came with it; None: a version of something else."""
    named: dict[Transaction, frozenset[str]] = field(default_factory=dict)
    under_way: dict[str, tuple[Transaction, list[str]]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)

    def step(self) -> None:
        name = self.choice.choice("xyz")
        if name not in self.under_way:
            number = self.numbers[name] = self.numbers.get(name, 0) + 2
            topics = self.choice.sample(TOPICS, self.choice.randint(1, 3))
            self.named[Transaction(name, number)] = frozenset(topics)
            self.under_way[name] = (Transaction(name, number), topics)
            return
        transaction, left = self.under_way[name]
        if self.choice.random() < 0.1:
            self.logs[self.choice.choice(TOPICS)].append(None)
        elif left:
            self.logs[left.pop()].append(transaction)
        else:
            del self.under_way[name]

    def carried_out(self) -> set[Transaction]:
        return set(self.named) - {transaction for transaction, _ in self.under_way.values()}

    def history(self, topic: str, first: int) -> TopicHistory:
        log = self.logs[topic]
        seen = [transaction for transaction in log[: first + 1] if transaction is not None]
        markers: dict[str, int] = {}
        for transaction in seen:
            markers[transaction.transactional_id] = transaction.number
        published = [
            (version, transaction) for version, transaction in enumerate(log) if transaction and version > first
        ]
        return TopicHistory(first_version=first, last_version=len(log) - 1, markers=markers, published=tuple(published))

    def is_whole(self, versions: dict[str, int]) -> bool:
        seen = {topic: set(self.logs[topic][: version + 1]) for topic, version in versions.items()}
        return all(
            len({transaction in seen[topic] for topic in topics if topic in versions}) <= 1
            for transaction, topics in self.named.items()
        )


def all_cuts(world: World, firsts: dict[str, int]) -> Iterator[dict[str, int]]:
    ranges = [range(first, len(world.logs[topic])) for topic, first in firsts.items()]
    for versions in itertools.product(*ranges):
        cut = dict(zip(firsts, versions, strict=True))
        if world.is_whole(cut):
            yield cut


@given(seed=st.integers(0, 2**32), before=st.integers(0, 30), after=st.integers(0, 25), topics=st.integers(1, 3))
def test_the_newest_cut_is_found_where_there_is_one(seed: int, before: int, after: int, topics: int) -> None:
    world = World(random.Random(seed))
    for _ in range(before):
        world.step()
    firsts = {topic: len(world.logs[topic]) - 1 for topic in TOPICS[:topics]}
    for _ in range(after):
        world.step()
    histories = {topic: world.history(topic, first) for topic, first in firsts.items()}
    expected = max(all_cuts(world, firsts), key=lambda cut: sum(cut.values()), default=None)
    found = decide_cut(histories, named=world.named, carried_out=())
    if expected is not None:
        assert found == Cut(versions=expected)
    else:
        assert isinstance(found, Partial)
        assert found.missing[found.transaction]
        for transaction, lacking in found.missing.items():
            assert set(lacking) < world.named[transaction]

    # As it is asked: of what is carried out nobody knows the topics.
    carried_out = world.carried_out()
    named = {transaction: world.named[transaction] for transaction in world.named if transaction not in carried_out}
    found = decide_cut(histories, named=named, carried_out=carried_out)
    if isinstance(found, Cut):
        assert found.versions == expected
    else:
        assert isinstance(found, Partial)


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 60))
def test_what_isnt_known_is_asked_for_and_nothing_is_decided_without(seed: int, steps: int) -> None:
    world = World(random.Random(seed))
    for _ in range(steps):
        world.step()
    histories = {topic: world.history(topic, 0) for topic in TOPICS}
    named: dict[Transaction, frozenset[str]] = {}
    for _ in range(len(world.named) + 1):
        found = decide_cut(histories, named=named, carried_out=())
        if not isinstance(found, Unknown):
            break
        assert not named.keys() & set(found.transactions)
        named |= {transaction: world.named[transaction] for transaction in found.transactions}
    assert isinstance(found, Cut)  # at version 0 there is nothing
    assert world.is_whole(dict(found.versions))


def test_a_transaction_that_one_topic_lacks_is_left_out_with_all_that_lies_behind_it() -> None:
    one, two = Transaction("x", 2), Transaction("y", 2)
    a = TopicHistory(first_version=5, last_version=8, markers={}, published=[(6, one), (7, two)])
    b = TopicHistory(first_version=3, last_version=4, markers={}, published=[(4, two)])
    known = {one: frozenset("ab"), two: frozenset("ab")}
    assert decide_cut({"a": a, "b": b}, named=known, carried_out=()) == Cut(versions={"a": 5, "b": 3})
    later = TopicHistory(first_version=3, last_version=5, markers={}, published=[(4, two), (5, one)])
    assert decide_cut({"a": a, "b": later}, named=known, carried_out=()) == Cut(versions={"a": 8, "b": 5})


def test_no_cut_is_made_below_the_first_version() -> None:
    one = Transaction("x", 2)
    a = TopicHistory(first_version=5, last_version=5, markers={"x": 2})
    b = TopicHistory(first_version=3, last_version=3, markers={})
    found = decide_cut({"a": a, "b": b}, named={one: frozenset("ab")}, carried_out=())
    assert found == Partial(transaction=one, missing={one: ("b",)})
