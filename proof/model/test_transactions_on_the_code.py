"""Traces of the model of transactions, played on the real code: each rule's fault, which the code doesn't have."""

from __future__ import annotations

import pytest

from proof.model import planting
from proof.model.planting import Plant
from proof.model.playing_transactions import TransactionPlayer
from proof.model.worlds import TRANSACTION_FAULTS, Fault, violation_of
from proof.simulation.cluster import planted
from sparklog.errors import SparklogError

NOT_PLAYED = {
    "decide_then_publish": "no call of the code publishes what isn't decided",
    "no_way_back": "abort_transaction refuses: tests/producer/test_transaction_manager.py",
    "topic_before_group": "a producer's order: tests/producer/test_transaction_faults.py",
}
HOLES: dict[str, str] = {}
"""Where the code doesn't keep a rule yet, and why what the model foretells happens."""
PLAYED = [fault for fault in TRANSACTION_FAULTS if fault.name not in NOT_PLAYED]


def assert_whole(player: TransactionPlayer, *, dies: bool) -> None:
    there = {int(output.split()[0]) for _, output in player.visible}
    assert there >= {*range(player.committed)}, f"{player.committed} are committed, and only {there} have their output"
    player.finish(dies=dies)
    offsets, outputs = [offset for offset, _ in player.visible], [output for _, output in player.visible]
    assert offsets == [*range(len(offsets))], f"offsets {offsets} aren't dense"
    inputs = [int(output.split()[0]) for output in outputs]
    assert inputs == [*range(player.committed)], f"inputs {inputs} have their output, {player.committed} are committed"
    assert player.told.keys() <= set(outputs), f"told to be committed: {player.told}, visible: {outputs}"
    assert player.decided <= set(outputs), f"decided: {player.decided}, visible: {outputs}"
    assert not player.fenced & set(outputs), f"fenced: {player.fenced}, visible: {outputs}"
    for name in ("a", "b", "r"):
        assert all(isinstance(error, SparklogError) for error in player.errors(name)), player.errors(name)


def play(name: str) -> TransactionPlayer:
    player = TransactionPlayer()
    player.play(violation_of(name, TRANSACTION_FAULTS).trace)
    return player


@pytest.mark.parametrize("dies", [False, True], ids=["all_go_on", "all_die"])
@pytest.mark.parametrize("fault", [pytest.param(fault, id=fault.name) for fault in PLAYED])
def test_what_goes_wrong_without_a_rule_doesnt_go_wrong_in_the_code(
    fault: Fault, dies: bool, request: pytest.FixtureRequest
) -> None:
    if fault.name in HOLES:
        request.applymarker(pytest.mark.xfail(strict=True, raises=AssertionError, reason=HOLES[fault.name]))
    assert_whole(play(fault.name), dies=dies)


OUT_OF_STEP = r"^inputs \[\] have their output, 1 are committed"
NOT_COMMITTED = r"^inputs \[0\] have their output, 0 are committed"
TWICE = r"^inputs \[0, 0\] have their output, 1 are committed"
AGAIN = r"^offsets \[1\] aren't dense"
HALF = r"^decided: {'0 by a'}, visible: \[\]"
EARLY = r"^1 are committed, and only set\(\) have their output"
FENCED = r"^fenced: {'0 by a'}, visible: \['0 by a'"
GOES_ON = ""
"""Can't be seen unless ``a`` dies: else it publishes and settles by itself what it has committed, and nobody needs what
the rule is for."""
SHOWN: list[tuple[str, Plant, str, str]] = [
    # the trace, the code's rule, what is seen if all go on, and if all die
    ("verify", planted.trust_never_ends, FENCED, NOT_COMMITTED),
    ("verify_by_listing", planting.its_own_entry_shows_that_nothing_was_cleaned, FENCED, FENCED),
    ("read_token", planting.exists_is_success, FENCED, NOT_COMMITTED),
    ("marker", planted.transactions_are_published_again, GOES_ON, AGAIN),
    ("exact_number", planting.the_next_free_number_is_aborted, GOES_ON, HALF),
    ("decide_first", planted.pending_offsets_are_forgotten, TWICE, TWICE),
    ("publish_first", planting.an_offset_counts_before_its_records_are_visible, EARLY, EARLY),
    ("fence", planted.a_fenced_producer_decides_once_more, FENCED, FENCED),
    ("finish_first", planted.nobody_finishes_what_was_left, GOES_ON, OUT_OF_STEP),
    ("carry_out_first", planting.a_decision_is_complete_at_once, GOES_ON, OUT_OF_STEP),
    ("stamp", planting.anybody_leaves_offsets, TWICE, TWICE),
    ("in_place", planting.another_counts_by_its_name, FENCED, FENCED),
    ("newest_by_listing", planting.the_newest_is_told_by_the_one_before, FENCED, FENCED),
    ("check_opening", planting.what_was_listed_is_the_newest, FENCED, NOT_COMMITTED),
    ("successor_age", planting.transaction_entries_are_as_old_as_themselves, FENCED, NOT_COMMITTED),
]


def test_every_trace_that_is_played_is_seen_to_fail() -> None:
    assert [name for name, *_ in SHOWN] == [fault.name for fault in PLAYED]


@pytest.mark.parametrize(
    ("name", "plant", "dies", "seen"),
    [
        pytest.param(name, plant, dies, seen, id=f"{name}-{plant.__name__}-{'all_die' if dies else 'all_go_on'}")
        for name, plant, *both in SHOWN
        for dies, seen in zip((False, True), both, strict=True)
        if seen
    ],
)
def test_a_rule_that_is_switched_off_in_the_code_is_seen(name: str, plant: Plant, dies: bool, seen: str) -> None:
    with plant(), planting.ground_is_not_checked():
        player = play(name)
        with pytest.raises(AssertionError, match=seen):
            assert_whole(player, dies=dies)
