"""What a suite's tests are expected to do, and what differs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Expectations", "Outcome", "differences", "load_expectations", "summary"]

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one test."""

    test: str
    state: str
    """``passed``, ``failed``, or ``skipped``: by the suite itself."""
    seconds: float = 0.0
    detail: str = ""
    """The suite's own words for a failure, or what it measured."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """The tests of a suite that aren't expected to pass, each with the reason. Every other one is."""

    left_out: Mapping[str, str]
    """They aren't run."""
    known_failures: Mapping[str, str]
    """They are run, and fail."""
    skipped: Mapping[str, str]
    """The suite leaves them out itself where something isn't there that it needs; they may pass where it is."""
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Tests that are run part by part, each as a test ``TEST/PART``: not all of them can pass."""
    shows: Mapping[str, str] = field(default_factory=dict)
    """All tests of a suite of our own, with what each shows."""

    def in_parts(self, tests: Iterable[str]) -> list[str]:
        """All tests, with the parts of those that have some in their place."""
        return [part for test in tests for part in ([f"{test}/{one}" for one in self.parts.get(test, ())] or [test])]

    def expected(self, test: str) -> str:
        """The state that a test is to end in."""
        if test in self.known_failures:
            return FAILED
        return SKIPPED if test in self.skipped else PASSED


def load_expectations(suite: str) -> Expectations:
    """Read a suite's list. Raises ``ValueError``: a test is there twice, or without a reason."""
    data = json.loads((Path(__file__).parent / f"{suite}.json").read_text())
    found = Expectations(
        data["left_out"], data["known_failures"], data["skipped"], data.get("parts", {}), data.get("shows", {})
    )
    names = [*found.left_out, *found.known_failures, *found.skipped]
    if len(names) != len(set(names)):
        raise ValueError(f"{suite}.json has a test twice")
    if not all(
        reason.strip()
        for part in (found.left_out, found.known_failures, found.skipped, found.shows)
        for reason in part.values()
    ):
        raise ValueError(f"{suite}.json has a test without a reason")
    return found


def differences(outcomes: Iterable[Outcome], expectations: Expectations, known: Iterable[str]) -> list[str]:
    """A line for each test that ended otherwise than expected, and for each name in the list that no test has.

    Args:
        known: all tests of the suite, those that are left out among them.
    """
    found = []
    for one in outcomes:
        expected = expectations.expected(one.test)
        if one.state != expected and (expected, one.state) != (SKIPPED, PASSED):
            detail = f": {one.detail}" if one.detail else ""
            found.append(f"{one.test} {one.state}, expected {expected}{detail}")
    names = set(known)
    listed = [*expectations.left_out, *expectations.known_failures, *expectations.skipped]
    found += [f"{name} is in the list, and no test of the suite" for name in listed if name not in names]
    return found


def summary(outcomes: Iterable[Outcome], left_out_count: int) -> str:
    """The counts of a run, in one line."""
    states = [one.state for one in outcomes]
    counts = ", ".join(f"{states.count(state)} {state}" for state in (PASSED, FAILED, SKIPPED))
    return f"{counts}, {left_out_count} left out"
