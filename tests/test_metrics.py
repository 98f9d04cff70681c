"""Sensors: sums since the start, and rates, means and maxima over two windows of 30 seconds."""

from __future__ import annotations

import math
import threading

import pytest

from sparklog.metrics import MetricGroup, Sensor, by_group
from sparklog.testing import ManualClock

WINDOW_MS = 30_000  # Source: Kafka metrics.sample.window.ms


def a_sensor() -> tuple[Sensor, ManualClock]:
    clock = ManualClock()
    return Sensor(clock), clock


def test_without_a_value_mean_and_maximum_are_unknown() -> None:
    sensor, _ = a_sensor()
    assert math.isnan(sensor.mean())
    assert math.isnan(sensor.maximum())
    assert (sensor.rate(), sensor.count_rate(), sensor.total, sensor.count) == (0, 0, 0, 0)


def test_values_are_summed_counted_averaged_and_the_greatest_kept() -> None:
    sensor, _ = a_sensor()
    for value in (2.0, -3.0, 7.0):
        sensor.record(value)
    assert (sensor.total, sensor.count, sensor.mean(), sensor.maximum()) == (6, 3, 2, 7)


def test_the_maximum_of_negative_values_is_negative() -> None:
    sensor, _ = a_sensor()
    sensor.record(-5)
    assert sensor.maximum() == -5


def test_many_values_are_recorded_as_their_sum_and_greatest() -> None:
    sensor, _ = a_sensor()
    sensor.record(100, count=10, greatest=30)
    sensor.record(20)
    assert (sensor.count, sensor.mean(), sensor.maximum()) == (11, 120 / 11, 30)


def test_a_rate_is_taken_over_at_least_a_window() -> None:
    sensor, clock = a_sensor()
    sensor.record(60, count=3)
    assert (sensor.rate(), sensor.count_rate()) == (60 / 30, 3 / 30)
    clock.advance(15_000)
    assert sensor.rate() == 60 / 30
    clock.advance(25_000)
    assert sensor.rate() == pytest.approx(60 / 40)


def test_what_is_older_than_two_windows_counts_in_the_totals_alone() -> None:
    sensor, clock = a_sensor()
    sensor.record(60)
    clock.advance(WINDOW_MS)
    sensor.record(30)
    assert (sensor.mean(), sensor.maximum(), sensor.rate()) == (45, 60, 90 / 30)
    clock.advance(WINDOW_MS)
    assert (sensor.mean(), sensor.maximum(), sensor.rate()) == (30, 30, 30 / 30)
    clock.advance(WINDOW_MS)
    assert math.isnan(sensor.mean())
    assert (sensor.rate(), sensor.total, sensor.count) == (0, 90, 2)


def test_after_an_hour_of_silence_a_value_counts_alone() -> None:
    sensor, clock = a_sensor()
    sensor.record(60)
    clock.advance(3_600_000)
    sensor.record(3)
    assert (sensor.mean(), sensor.maximum(), sensor.rate()) == (3, 3, 3 / 30)


def test_several_threads_record_at_once_and_nothing_is_lost() -> None:
    sensor, _ = a_sensor()

    def work() -> None:
        for _ in range(2_000):
            sensor.record(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sensor.total, sensor.count) == (8_000, 8_000)


def test_the_smallest_value_is_of_the_recent_ones() -> None:
    sensor, clock = a_sensor()
    assert math.isnan(sensor.minimum())
    sensor.record(3)
    clock.advance(WINDOW_MS)
    sensor.record(7)
    sensor.record(5)
    assert sensor.minimum() == 3
    clock.advance(WINDOW_MS)
    assert sensor.minimum() == 5


def test_groups_of_one_key_are_one() -> None:
    of_topic = MetricGroup(name="g", labels={"topic": "t-0"}, values={"a": 1})
    of_partition = MetricGroup(name="g", labels={"topic": "t", "partition": "0"}, values={"b": 2})
    assert by_group([MetricGroup(name="g", values={}), of_topic, of_partition]) == {"g": {}, "g.t-0": {"a": 1, "b": 2}}
