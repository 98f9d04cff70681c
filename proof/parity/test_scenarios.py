"""Every scenario shows on sparklog, and through a gateway, what its file says; what differs from Kafka is explained."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from proof.parity.playing import VERBS, play
from proof.parity.scenario import Scenario, load, parse, written
from proof.parity.sparklog_player import SparklogPlayer
from tests.depth import each_nth

SEMANTICS = Path(__file__).parent.parent.parent / "docs" / "semantics.md"
SCENARIOS = [pytest.param(one, id=f"{path.stem}: {one.title}") for path, one in load()]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_sparklog_shows_what_the_file_says(scenario: Scenario) -> None:
    assert play(SparklogPlayer(), scenario) == [step.sparklog for step in scenario.steps]


def test_each_difference_names_a_row_of_the_semantics_and_nothing_else_does() -> None:
    rows = [line for line in SEMANTICS.read_text().splitlines() if line.startswith("|")]
    differing = [(one.title, step) for _, one in load() for step in one.steps if step.differs]
    unexplained = [
        (title, step.text) for title, step in differing if not any(step.because and step.because in row for row in rows)
    ]
    assert unexplained == []
    assert len(differing) >= 10
    needless = [(one.title, s.text) for _, one in load() for s in one.steps if s.because and not s.differs]
    assert needless == []
    assert [(one.title, s.text) for _, one in load() for s in one.steps if s.gateway == s.sparklog] == []


BY_FILE = {path.stem: each_nth([one for where, one in load() if where == path], 4) for path, _ in load()}
"""In the gate a part of the scenarios goes by the wire, another one in each run."""


@pytest.mark.slow
@pytest.mark.parametrize("file", BY_FILE)
def test_kafkas_client_shows_the_same_through_a_gateway(file: str) -> None:
    """On a busy machine a client may miss a time-out: what differs is played again, alone."""
    pytest.importorskip("confluent_kafka")
    from proof.parity.gateway_player import play_through_gateway

    def differing(scenarios: Collection[Scenario]) -> dict[Scenario, object]:
        expected = {one: [step.through_gateway for step in one.steps] for one in scenarios}
        played = play_through_gateway(scenarios)
        found = {one: played[one].exception() or played[one].result() for one in scenarios}
        return {one: (seen, expected[one]) for one, seen in found.items() if seen != expected[one]}

    again = [item for one in differing(BY_FILE[file]) for item in differing([one]).items()]
    assert [(scenario.title, found) for scenario, found in again] == []


def test_titles_are_used_once_and_every_word_is_played() -> None:
    titles = [one.title for _, one in load()]
    assert len(set(titles)) == len(titles) >= 30
    assert {step.verb for _, one in load() for step in one.steps} == set(VERBS)


def test_the_files_are_as_they_would_be_written() -> None:
    paths = {path for path, _ in load()}
    assert [path.name for path in paths if written(parse(path.read_text())) != path.read_text()] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("    read t\n", "x, line 1: a step before any title"),
        ("a\n    => seen\n", "x, line 2: what is seen stands before any step"),
        ("a\n    because of it\n", "x, line 2: what is seen stands before any step"),
        ('a\n    read "t\n', "x, line 2: No closing quotation"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text, "x")


def test_a_step_s_words() -> None:
    [scenario] = parse(
        "a\n    send p t value='b c' key=x*3 at=T+5\n        kafka => 1\n        sparklog =>\n    read t\n"
    )
    step, other = scenario.steps
    assert (step.verb, step.arguments) == ("send", ["p", "t"])
    assert step.options == {"value": "b c", "key": "xxx", "at": "T+5"}
    assert (step.kafka, step.sparklog) == (("1",), ())
    assert (step.through_gateway, step.differs, other.differs) == ((), True, False)


def test_a_gateway_s_lines_are_told_where_they_differ() -> None:
    text = "a\n    read t\n        => 1\n        gateway => 2\n        gateway => 3\n        because of it\n"
    [scenario] = parse(text)
    [step] = scenario.steps
    assert (step.kafka, step.sparklog, step.through_gateway) == (("1",), ("1",), ("2", "3"))
    assert step.differs
    assert written([scenario]) == text
