"""When a commit waits for an upload that is about to end."""

from __future__ import annotations

import pytest

from sparklog.producer.in_flight import InFlightBatches


def wait_ms(
    *, now: float, put_ms: float = 100.0, since: float = 1_000.0, begun: float | None = 900.0, uploads: int = 1
) -> float:
    """For how long a commit waits at ``now`` that might have begun at ``since``."""
    in_flight = InFlightBatches()
    in_flight.put_ms = put_ms
    for number in range(uploads):
        in_flight.begin_upload([])
        in_flight.uploads[number].put_ticks_ms = begun
    return in_flight.wait_for_more_ms(now_ticks_ms=now, since_ticks_ms=since)


@pytest.mark.parametrize(
    ("begun", "waits"),
    [
        (900.0, 25.0),  # due now
        (920.0, 25.0),
        (925.0, 25.0),  # due as late as is waited for
        (926.0, 0.0),
        (1_000.0, 0.0),
        (875.0, 25.0),  # overdue by a quarter
        (874.0, 0.0),  # it is a slow one: nobody knows when it ends
        (None, 0.0),  # it isn't being sent yet
    ],
)
def test_a_commit_waits_for_an_upload_that_is_about_to_end(begun: float | None, waits: float) -> None:
    assert wait_ms(now=1_000.0, begun=begun) == waits


def test_it_waits_for_a_quarter_of_an_uploads_time_at_most() -> None:
    assert wait_ms(now=1_010.0, begun=920.0) == 15.0
    assert wait_ms(now=1_025.0, begun=920.0) == 0.0
    assert wait_ms(now=2_000.0, begun=920.0) == 0.0


def test_after_an_outage_it_waits_for_a_quarter_of_a_second_at_most() -> None:
    assert wait_ms(now=100_000.0, since=100_000.0, put_ms=90_000.0, begun=10_000.0) == 250.0
    assert wait_ms(now=100_000.0, since=100_000.0, put_ms=90_000.0, begun=11_000.0) == 0.0


def test_where_uploads_are_fast_or_none_is_under_way_it_doesnt_wait() -> None:
    assert wait_ms(now=1_000.0, put_ms=3.9, begun=999.0) == 0.0
    assert wait_ms(now=1_000.0, uploads=0) == 0.0


def test_uploads_to_another_machine_are_taken_to_be_slow_until_one_has_ended() -> None:
    assert InFlightBatches(is_remote=True).is_slow
    assert not InFlightBatches().is_slow
