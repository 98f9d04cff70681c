"""Commands that run for long share what their threads have freed."""

from __future__ import annotations

import pytest

from sparklog.freed_memory import GIVEN_BACK, KEPT, Keeping
from tests.cli.support import a_cluster, run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "keeping"),
    [
        (("gateway", "--listen", "192.0.2.1:9092", "--allow-unauthenticated"), KEPT),
        (("exporter", "--listen", "192.0.2.1:9308"), GIVEN_BACK),
        (("ui", "--listen", "127.0.0.1:0"), GIVEN_BACK),
    ],
)
def test_a_command_that_runs_for_long_shares_freed_memory(
    arguments: tuple[str, ...], keeping: Keeping, kept: list[Keeping]
) -> None:
    """The address is no machine's, and the console has no cluster."""
    assert run(*arguments, cluster=a_cluster()).exit_code != 0
    assert kept == [keeping]


def test_a_look_at_once_leaves_malloc_as_it_is(kept: list[Keeping]) -> None:
    assert run("exporter", "--once", cluster=a_cluster()).exit_code != 0
    assert kept == []
