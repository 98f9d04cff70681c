"""The examples of groups say themselves whether what they show is so."""

from __future__ import annotations

import pytest

from examples.groups import at_least_once, at_most_once, broadcast

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("example", [at_least_once, at_most_once, broadcast], ids=lambda example: example.__name__)
def test_an_example_shows_what_it_says(example):
    example.main()
