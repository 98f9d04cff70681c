"""A gateway takes no more connections than its process can have open files."""

from __future__ import annotations

import logging
import resource

import pytest

from sparklog.gateway.process import connections_with_files


@pytest.mark.parametrize(
    ("soft", "hard", "room", "raised"),
    [
        (1_024, 20_000, 2_000, 2_128),  # raised as far as it is needed
        (20_000, 20_000, 2_000, None),
        (1_024, 1_024, 896, 1_024),
        (64, 1_024, 896, 1_024),
        (64, 64, 32, 64),
        (1, 1, 1, 1),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 2_000, None),
        (256, resource.RLIM_INFINITY, 2_000, 2_128),
    ],
)
def test_the_bound_is_what_the_limit_of_open_files_leaves(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    soft: int,
    hard: int,
    room: int,
    raised: int | None,
) -> None:
    """✗ A bound that can't be reached: no client is refused, nobody is answered, and the alert at four fifths of it
    never fires."""
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: made.append(limits))
    with caplog.at_level(logging.WARNING):
        assert connections_with_files(2_000) == room
    assert made == ([] if raised is None else [(raised, hard)])
    assert bool(caplog.messages) == (room < 2_000)


def test_a_limit_that_cannot_be_raised_bounds_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(which: int, limits: tuple[int, int]) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 20_000))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert connections_with_files(2_000) == 128
