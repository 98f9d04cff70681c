"""Traces of the model, played on the real code: each rule's fault, which the code doesn't have, and random walks."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from proof.model import planting
from proof.model.append_cleanup import AppendCleanup, Bounds, Rules, World
from proof.model.planting import Plant
from proof.model.playing import AppendPlayer
from proof.model.worlds import APPEND_FAULTS, Fault, violation_of
from proof.simulation.cluster import planted
from sparklog.errors import CorruptLogError
from tests.depth import each_nth
from tests.support import contents, wrong_totals

PLAYED = [
    fault for fault in APPEND_FAULTS if fault.name not in ("settle_unknown", "new_producer_id+own_bytes", "stall")
]
"""All but those whose way leads over an append that gives up: time doesn't pass within the code by itself; and that of
a stall, which takes eight days in the code (``tests/log/test_trust_faults.py``)."""


def play(name: str) -> AppendPlayer:
    player = AppendPlayer()
    player.play(violation_of(name, APPEND_FAULTS).trace)
    return player


def assert_whole(player: AppendPlayer) -> None:
    player.finish()
    assert [player.errors(name) for name in ("a", "b", "cleanup")] == [[], [], []]
    seen = contents(player.log)[0]
    offsets = [offset for offset, _ in seen]
    assert offsets == [*range(len(seen))], f"offsets {offsets} aren't dense"
    own = {value: offset for offset, value in seen if value[0] in "ab" and value != "first"}
    assert own == player.acknowledged, f"acknowledged: {player.acknowledged}, there: {own}"
    assert len({value for _, value in seen}) == len(seen), f"{seen} holds a record twice"
    assert not player.strays, f"not on the log's entries: {player.strays}"
    assert wrong_totals(player.log) == []


@pytest.mark.parametrize(
    "fault", [pytest.param(f, id=f.name, marks=[pytest.mark.slow] if f.is_slow else []) for f in PLAYED]
)
def test_what_goes_wrong_without_a_rule_doesnt_go_wrong_in_the_code(fault: Fault) -> None:
    assert_whole(play(fault.name))


LOST = r"^acknowledged: {'a0': \d}, there: {}"
STRAY = r"^not on the log's entries: \['b'\]"
SHOWN: list[tuple[str, Plant, str]] = [
    # the trace, the code's rule, what is seen
    ("verify", planted.trust_never_ends, LOST),
    ("verify_afterwards", planting.verified_beforehand, LOST),
    ("anchor_at_tail", planting.finding_an_entry_refreshes_trust, LOST),
    ("check_opening", planting.what_was_listed_is_there, STRAY),
    ("read_token", planting.exists_is_success, LOST),
    ("counter", planting.nobody_looks_for_the_counter, "holds a record twice"),
    ("decide_again", planting.the_first_decision_stands, r"^offsets \[0, 0\] aren't dense"),
    ("mark", planting.cleanup_leaves_no_mark, LOST),
    ("mark_first", planting.cleanup_marks_afterwards, LOST),
    ("below_checkpoint", planting.cleanup_needs_no_checkpoint, "version 0 is missing, though version 2 exists"),
    ("store_times", planting.cleanup_goes_by_its_own_clock, LOST),
    ("successor_age", planting.entries_are_as_old_as_themselves, STRAY),
]


def test_every_trace_that_is_played_is_seen_to_fail() -> None:
    assert [name for name, *_ in SHOWN] == [fault.name for fault in PLAYED]


@pytest.mark.parametrize(
    ("name", "plant", "seen"),
    [
        pytest.param(*shown, id=shown[0], marks=[pytest.mark.slow] if fault.is_slow else [])
        for shown, fault in zip(SHOWN, PLAYED, strict=True)
    ],
)
def test_a_rule_that_is_switched_off_in_the_code_is_seen(name: str, plant: Plant, seen: str) -> None:
    with plant(), planting.ground_is_not_checked():
        player = play(name)
        with pytest.raises((AssertionError, CorruptLogError), match=seen):
            assert_whole(player)


WALKED = Bounds(appends=2, others=4, sleeps=1, faults=0, looks=2, gives_up=0, places=("at the tail", "one behind"))


def a_walk(seed: int, *, length: int = 14) -> tuple[tuple[str, ...], list[World]] | None:
    """A random way through the model; None where it leads to what the code does in more calls than the model: after a
    second race that is lost it reads ahead, and a load that is disturbed begins anew."""
    rng = random.Random(seed)
    model = AppendCleanup(Rules(), WALKED)
    label, world = rng.choice([*model.starts()])
    labels, worlds = [label], [world]
    for _ in range(length):
        possible = [*model.moves(world)]
        if not possible:
            break
        label, world = rng.choice(possible)
        labels.append(label)
        worlds.append(world)
    for name in ("a", "b"):
        losses = [one for one in labels if one.startswith(f"{name} reads that") or one.startswith(f"{name} finds")]
        if len(losses) > 1:
            return None
    return tuple(labels), worlds


@pytest.mark.parametrize(
    "seeds", [range(50), pytest.param(each_nth(range(50, 500), 8), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_a_random_walk_gives_the_same_entries_and_answers_in_model_and_code(seeds: Sequence[int]) -> None:
    played = 0
    for seed in seeds:
        walk = a_walk(seed)
        if walk is None:
            continue
        labels, worlds = walk
        player = AppendPlayer()

        def same(number: int) -> None:
            world = worlds[number]  # noqa: B023 - called before the next
            there = [version for version, found in enumerate(world.objects) if found is not None]
            assert player.versions == there, f"seed {seed}, step {number}: {labels}"  # noqa: B023
            told = {
                f"{name}{append}": (offset or 0) - 1 for (name, append), offset in world.told
            }  # version 0 has no record
            assert player.acknowledged == told, f"seed {seed}, step {number}: {labels}"  # noqa: B023

        with planting.ground_is_not_checked():  # the model is of the rules without it
            player.play(labels, same)
        assert_whole(player)
        played += 1
    assert played > len(seeds) // 8
