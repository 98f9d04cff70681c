"""The example of processing says itself whether what it shows is so."""

from __future__ import annotations

import pytest

from examples.processing import __main__ as example

pytestmark = pytest.mark.slow


def test_the_example_shows_what_it_says(capsys):
    example.main()
    assert capsys.readouterr().out == (
        "396 bills, 396 of them different\nsent again: {'orders': 4}\n400 bills, 400 of them different\n"
    )
