"""Traces of the model of transactions, played on the real code: each rule's fault, which the code doesn't have."""

from __future__ import annotations

import pytest

from sparklog.errors import SparklogError
from tests.model.playing_transactions import TransactionPlayer
from tests.model.worlds import TRANSACTION_FAULTS, Fault, violation_of

NOT_PLAYED = {
    "decide_then_publish": "no call of the code publishes what isn't decided",
    "no_way_back": "abort_transaction refuses: tests/producer/test_transactions.py",
}
HOLES: dict[str, str] = {}
"""Where the code doesn't keep a rule yet, and why what the model foretells happens."""
PLAYED = [fault for fault in TRANSACTION_FAULTS if fault.name not in NOT_PLAYED]


def assert_whole(player: TransactionPlayer) -> None:
    player.finish()
    outputs = player.outputs
    assert [int(output.split()[0]) for output in outputs] == [*range(player.committed)]
    assert player.told.keys() <= set(outputs)
    assert not player.fenced & set(outputs)
    for name in ("a", "b", "r"):
        assert all(isinstance(error, SparklogError) for error in player.errors(name)), player.errors(name)


@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in PLAYED])
def test_what_goes_wrong_without_a_rule_doesnt_go_wrong_in_the_code(
    fault: Fault, request: pytest.FixtureRequest
) -> None:
    if fault.name in HOLES:
        request.applymarker(pytest.mark.xfail(strict=True, raises=AssertionError, reason=HOLES[fault.name]))
    player = TransactionPlayer()
    player.play(violation_of(fault.name, TRANSACTION_FAULTS).trace)
    assert_whole(player)
