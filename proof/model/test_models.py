"""With all rules on nothing goes wrong, in whatever order things happen; with any off, the search finds what does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import pytest

from proof.model import append_cleanup, ground, group_commit, numbering, sharing, transactions
from proof.model.search import replay
from proof.model.worlds import (
    APPEND_FAULTS,
    APPENDS,
    DEEP,
    GROUND,
    GROUND_FAULTS,
    GROUP_COMMIT_FAULTS,
    GROUP_COMMITS,
    NUMBERING,
    NUMBERING_FAULTS,
    SHARING,
    SHARING_FAULTS,
    TRANSACTION_FAULTS,
    TRANSACTIONS,
    Fault,
    World,
    found,
    model_of,
)
from tests.depth import each_nth

FAULTS_OF = {
    "appends": APPEND_FAULTS,
    "transactions": TRANSACTION_FAULTS,
    "group commits": GROUP_COMMIT_FAULTS,
    "numbered batches": NUMBERING_FAULTS,
    "share groups": SHARING_FAULTS,
    "storage that is replaced": GROUND_FAULTS,
}
FAULTS = [fault for faults in FAULTS_OF.values() for fault in faults]
LARGE = 10_000
"""So many states, at least, take seconds."""


def fault_params() -> list[object]:
    return [
        pytest.param(fault, id=f"{model}-{fault.name}", marks=[pytest.mark.slow] if fault.is_slow else [])
        for model, faults in FAULTS_OF.items()
        for fault in faults
    ]


def assert_nothing_goes_wrong(world: World) -> None:
    seen = world.search()
    assert seen.violation is None, f"{world.name}:\n{seen.violation}"
    assert seen.state_count >= world.least_states, f"{world.name}: {seen}"


def worlds_of_this_run() -> list[World]:
    """All that are small, and in the gate every other of those that take seconds."""
    worlds = [*APPENDS, *TRANSACTIONS, *GROUP_COMMITS, *NUMBERING, *SHARING, *GROUND]
    large = each_nth([world for world in worlds if world.least_states >= LARGE], 2)
    return [world for world in worlds if world.least_states < LARGE or world in large]


@pytest.mark.parametrize("world", worlds_of_this_run(), ids=lambda world: world.name)
def test_nothing_goes_wrong_with_all_rules_on(world: World) -> None:
    assert_nothing_goes_wrong(world)


@pytest.mark.slow
@pytest.mark.timeout(300 * len(DEEP))
def test_nothing_goes_wrong_however_much_happens() -> None:
    """One test, so that no two processes hold so many states at once."""
    for world in each_nth(DEEP, 16):  # deeper by `python -m proof.model --deep`
        print(world.name)
        assert_nothing_goes_wrong(world)


@pytest.mark.parametrize("fault", fault_params())
def test_what_goes_wrong_without_a_rule_is_found(fault: Fault) -> None:
    violation = found(fault).violation
    assert violation is not None, f"without {fault.name}: {found(fault)}"
    print(f"without {fault.name}:\n{violation}")
    assert violation.invariants[0].startswith(fault.broken), str(violation)
    model = model_of(fault.bounds, *fault.without)
    assert tuple(model.broken(replay(model, violation.trace))) == violation.invariants


@pytest.mark.parametrize(
    ("fault", "rule"), [pytest.param(fault, rule, id=rule) for fault in FAULTS for rule in fault.alone]
)
def test_of_two_rules_either_is_enough(fault: Fault, rule: str) -> None:
    assert World(rule, fault.bounds, 8, 0).search(rule).violation is None


@pytest.mark.parametrize(
    ("rules", "faults"),
    [
        (append_cleanup.Rules, APPEND_FAULTS),
        (transactions.Rules, TRANSACTION_FAULTS),
        (group_commit.Rules, GROUP_COMMIT_FAULTS),
        (numbering.Rules, NUMBERING_FAULTS),
        (sharing.Rules, SHARING_FAULTS),
        (ground.Rules, GROUND_FAULTS),
    ],
    ids=FAULTS_OF,
)
def test_every_rule_of_the_models_is_needed(rules: type, faults: Sequence[Fault]) -> None:
    assert {name for fault in faults for name in fault.without} == {rule.name for rule in fields(rules)}


def test_a_rule_that_there_isnt_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no such rule: \['trust'\]; there are"):
        append_cleanup.Rules().without("trust")
    with pytest.raises(ValueError, match=r"no such rule: \['trust'\]; there are"):
        transactions.Rules().without("verify", "trust")
