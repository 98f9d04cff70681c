"""The hard cases of group commit: the model plays each of them, and ends as decision 0019 says."""

from __future__ import annotations

from typing import Any

import pytest

from proof.model.group_commit import Bounds, GroupCommit, Owner, World
from proof.model.search import replay

BEGIN = "an empty topic"
BOTH_UPLOAD = ("a uploads flush 0", "b uploads flush 0")


def play(*steps: str, **bounds: Any) -> World:
    """The world after these steps; nothing is broken on the way."""
    model = GroupCommit(bounds=Bounds(**bounds))
    for count in range(len(steps) + 1):
        world = replay(model, (BEGIN, *steps[:count]))
        assert not [*model.broken(world)], steps[:count]
    return world


def published(world: World) -> list[str]:
    """The flushes in the log, by offset."""
    return [f"{add.file.owner}{add.file.number}" for entry in world.log for add in entry.adds]


def outcomes(world: World) -> dict[str, int | None]:
    """What the owners of flushes were told: offset, or None for a failure."""
    return {f"{told.owner}{told.number}": told.offset for told in world.told}


def test_an_includer_that_slept_after_its_listing_decides_again() -> None:
    world = play(
        *BOTH_UPLOAD,
        "b lists a0",
        "a creates version 1 with a0 (a: 0): created",
        "b reads version 1 by a",
        "b creates version 2 with b0 (b: 0): created",
    )
    assert published(world) == ["a0", "b0"]
    assert outcomes(world) == {"a0": 0, "b0": 1}


def test_an_includer_that_slept_for_a_week_leaves_out_what_is_old() -> None:
    world = play(
        *BOTH_UPLOAD,
        "b lists a0",
        "a week passes",
        "a sweep takes a version",
        "b reads version 1 by the sweep",
        "b creates version 2 with b0 (b: 0): created",
        "the sweep deletes",
        weeks=1,
        sweeps=1,
    )
    assert published(world) == ["b0"]


@pytest.mark.parametrize(
    ("steps", "flushes", "told"),
    [
        (
            ("a creates version 1 with nothing (a: 0): created", "b's late request finds version 1 taken"),
            [],
            {"a0": None},
        ),
        (("b's late request comes: version 1", "a reads version 1 by b"), ["b0", "a0"], {"a0": 1}),
    ],
    ids=["the withdrawal is first", "the includer is first"],
)
def test_a_withdrawal_beside_an_unknown_create_is_settled_by_the_log(
    steps: tuple[str, ...], flushes: list[str], told: dict[str, int | None]
) -> None:
    create = "b creates version 1 with b0, a0 (a: 0, b: 0): no answer, the request is under way"
    world = play(*BOTH_UPLOAD, "b lists a0", create, "a gives up flush 0", *steps, faults=1, gives_up=1)
    assert published(world) == flushes
    assert outcomes(world) == told


def test_what_was_withdrawn_is_taken_by_no_listing_of_before() -> None:
    world = play(
        *BOTH_UPLOAD,
        "b lists a0",
        "a gives up flush 0",
        "a creates version 1 with nothing (a: 0): created",
        "b reads version 1 by a",
        "b creates version 2 with b0 (b: 0): created",
        gives_up=1,
    )
    assert published(world) == ["b0"]
    assert outcomes(world) == {"a0": None, "b0": 0}


def test_what_is_listed_after_it_was_published_is_left_out() -> None:
    world = play(
        "a uploads flush 0",
        "a creates version 1 with a0 (a: 0): created",
        "b uploads flush 0",
        "b reads version 1 by a",
        "b lists a0",
        "b creates version 2 with b0 (b: 0): created",
    )
    assert published(world) == ["a0", "b0"]


def test_an_includer_that_opened_late_leaves_what_it_cannot_know() -> None:
    world = play(
        "a uploads flush 0",
        "a creates version 1 with a0 (a: 0): created",
        "another client appends",
        "b opens the topic",
        "b uploads flush 0",
        "b lists a0",
        "b creates version 3 with b0 (b: 0): created",
        owners=(Owner(), Owner(is_open=False)),
        others=1,
    )
    assert published(world) == ["a0", "others2", "b0"]


def test_what_was_meant_for_a_topic_of_before_is_left_out() -> None:
    world = play(
        "a uploads flush 0",
        "the topic is deleted and made anew",
        "b opens the topic",
        "b uploads flush 0",
        "b lists a0",
        "b creates version 2 with b0 (b: 0): created",
        "a reads version 1 by others",
        owners=(Owner(), Owner(is_open=False)),
        anew=1,
    )
    assert published(world) == ["b0"]
    assert outcomes(world) == {"a0": None, "b0": 0}


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")], ids=["the owner has acks=all", "the includer has acks=all"])
def test_with_acks_all_all_that_an_acknowledgement_needs_is_synced(names: tuple[str, str]) -> None:
    owner, includer = names
    world = play(
        *BOTH_UPLOAD,
        f"{includer} lists {owner}0",
        f"{includer} creates version 1 with {includer}0, {owner}0 (a: 0, b: 0): created",
        f"{owner} reads version 1 by {includer}",
        owners=(Owner(acks_all=True), Owner()),
    )
    assert world.synced >= {0, 1, *world.files}
    assert outcomes(world) == {f"{includer}0": 0, f"{owner}0": 1}


def test_an_includer_without_acks_all_leaves_its_entry_unsynced() -> None:
    world = play(
        *BOTH_UPLOAD,
        "b lists a0",
        "b creates version 1 with b0, a0 (a: 0, b: 0): created",
        owners=(Owner(acks_all=True), Owner()),
    )
    assert 1 not in world.synced
    assert outcomes(world) == {"b0": 0}
