from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidArgumentError
from sparklog.processing.retries import Again, Bury, Delay, Exponential, Fixed, Retry, Stop, decide, span

SECONDS = st.floats(0.001, 86_400)


@given(SECONDS, SECONDS, st.floats(1, 100), st.integers(1, 5_000))
def test_exponential_waits_grow_up_to_the_longest(first, second, factor, attempts):
    initial, longest = sorted([first, second])
    backoff = Exponential(initial, longest, factor)
    assert round(initial * 1_000) <= backoff.delay_ms(attempts) <= backoff.delay_ms(attempts + 1)
    assert backoff.delay_ms(attempts) <= round(longest * 1_000)
    assert backoff.delay_ms(1) == round(initial * 1_000)


def test_exponential_waits_are_doubled():
    assert [Exponential(1, 60).delay_ms(attempts) for attempts in range(1, 9)] == [
        1_000,
        2_000,
        4_000,
        8_000,
        16_000,
        32_000,
        60_000,
        60_000,
    ]


@given(st.integers(1, 20), st.integers(1, 20), st.booleans(), st.booleans(), st.booleans())
def test_a_failed_record_always_goes_somewhere(attempts, most, topics, can_mend, has_dead_letter):
    retry = Retry(attempts=most, backoff=Fixed(1), topics=topics)
    found = decide(retry, ValueError(), attempts=attempts, can_mend=can_mend, has_dead_letter=has_dead_letter)
    if can_mend and attempts < most:
        assert found == (Delay(1_000) if topics else Again(1_000))
    else:
        assert found == (Bury() if has_dead_letter else Stop())


def test_what_no_try_can_mend_isnt_tried_again():
    retry = Retry(attempts=5, not_on=(LookupError,))
    assert decide(retry, KeyError(), attempts=1, has_dead_letter=True) == Bury()
    assert decide(retry, ValueError(), attempts=1, has_dead_letter=True) == Again(1_000)


@pytest.mark.parametrize("error", [SystemExit(), KeyboardInterrupt()])
def test_an_error_that_is_meant_for_the_process_stops_it(error):
    assert decide(Retry(attempts=5), error, attempts=1, has_dead_letter=True) == Stop()


class PanicException(BaseException):
    """What a library in Rust raises by way of pyo3 where it panics."""


@pytest.mark.parametrize("error", [PanicException("index out of bounds"), GeneratorExit(), asyncio.CancelledError()])
def test_other_errors_that_are_no_exceptions_are_failures_of_the_record(error):
    """✗ One record at which a library panics ends the worker, and each that is started after it."""
    assert decide(Retry(attempts=5), error, attempts=1, has_dead_letter=True) == Again(1_000)
    assert decide(Retry(attempts=5), error, attempts=5, has_dead_letter=True) == Bury()


def test_delay_topics_are_named_by_their_delays():
    retry = Retry(attempts=5, backoff=Exponential(1, 60, factor=60), topics=True)
    assert retry.topics_of("orders") == ["orders-retry-1s", "orders-retry-1m"]
    assert [retry.topic("orders", attempts) for attempts in (1, 2, 3)] == [
        "orders-retry-1s",
        "orders-retry-1m",
        "orders-retry-1m",
    ]
    assert Retry(attempts=5).topics_of("orders") == []


@pytest.mark.parametrize(
    ("duration_ms", "text"), [(0, "0ms"), (250, "250ms"), (1_500, "1500ms"), (90_000, "90s"), (7_200_000, "2h")]
)
def test_spans(duration_ms, text):
    assert span(duration_ms) == text


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exponential(0, 1),
        lambda: Exponential(2, 1),
        lambda: Exponential(1, 2, 0.5),
        lambda: Exponential(1, 10**9),
        lambda: Fixed(-1),
        lambda: Retry(attempts=0),
        lambda: Retry(attempts=2, backoff=Fixed(0), topics=True),
    ],
)
def test_bad_rules_are_refused(make):
    with pytest.raises(InvalidArgumentError, match=r"expected|needs"):
        make()
