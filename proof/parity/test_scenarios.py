"""Every scenario shows on sparklog what its file says, and every difference to Kafka is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.parity.playing import VERBS, play
from proof.parity.scenario import Scenario, load, parse, written
from proof.parity.sparklog_player import SparklogPlayer

SEMANTICS = Path(__file__).parent.parent.parent / "docs" / "semantics.md"
SCENARIOS = [pytest.param(one, id=f"{path.stem}: {one.title}") for path, one in load()]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_sparklog_shows_what_the_file_says(scenario: Scenario) -> None:
    assert play(SparklogPlayer(), scenario) == [step.sparklog for step in scenario.steps]


def test_each_difference_names_a_row_of_the_semantics_and_nothing_else_does() -> None:
    rows = [line for line in SEMANTICS.read_text().splitlines() if line.startswith("|")]
    differing = [(one.title, step) for _, one in load() for step in one.steps if step.kafka != step.sparklog]
    unexplained = [
        (title, step.text) for title, step in differing if not any(step.because and step.because in row for row in rows)
    ]
    assert unexplained == []
    assert len(differing) >= 10
    needless = [(one.title, s.text) for _, one in load() for s in one.steps if s.because and s.kafka == s.sparklog]
    assert needless == []


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
    [scenario] = parse("a\n    send p t value='b c' key=x*3 at=T+5\n        kafka => 1\n        sparklog =>\n")
    [step] = scenario.steps
    assert (step.verb, step.arguments) == ("send", ["p", "t"])
    assert step.options == {"value": "b c", "key": "xxx", "at": "T+5"}
    assert (step.kafka, step.sparklog) == (("1",), ())
