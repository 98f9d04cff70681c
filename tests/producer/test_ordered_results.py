"""Results come in the order in which their work began."""

from __future__ import annotations

import random
import threading

import pytest

from sparklog.producer.ordered_results import OrderedResults
from tests.producer.support import LONG_S


def test_results_are_handed_over_in_the_order_of_beginning():
    handed: list[str] = []
    results = OrderedResults[str](handed.append)
    numbers = [results.begin() for _ in range(4)]
    results.end(numbers[2], "c")
    results.end(numbers[1], "b")
    assert handed == []
    results.end(numbers[0], "a")
    assert handed == ["a", "b", "c"]
    results.end(numbers[3], "d")
    assert handed == ["a", "b", "c", "d"]


def test_a_result_that_ends_while_another_is_handed_over_waits_for_it():
    handed: list[int] = []
    numbers: list[int] = []

    def hand_over(result: int) -> None:
        if result == 0:
            results.end(numbers[1], 1)
            assert handed == []
        handed.append(result)

    results = OrderedResults[int](hand_over)
    numbers += [results.begin(), results.begin()]
    results.end(numbers[0], 0)
    assert handed == [0, 1]


def test_a_result_that_cant_be_handed_over_holds_up_no_other():
    handed: list[int] = []

    def hand_over(result: int) -> None:
        if result == 0:
            raise RuntimeError("a defect")
        handed.append(result)

    results = OrderedResults[int](hand_over)
    numbers = [results.begin() for _ in range(3)]
    results.end(numbers[1], 1)
    with pytest.raises(RuntimeError):
        results.end(numbers[0], 0)
    results.end(numbers[2], 2)
    assert handed == [1, 2]


def test_many_threads_hand_all_results_over_once_and_in_order():
    handed: list[int] = []
    results = OrderedResults[int](handed.append)
    numbers = [results.begin() for _ in range(200)]
    random.Random(1).shuffle(numbers)

    def end(part: list[int]) -> None:
        for number in part:
            results.end(number, number)

    threads = [threading.Thread(target=end, args=(numbers[at::8],)) for at in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert handed == [*range(200)]
