"""The arithmetic and the plumbing of the benchmarks; what they measure is nobody's to assert."""

from __future__ import annotations

import os
from functools import partial
from itertools import islice

import pytest

from benchmarks import harness, kafka_broker, peers
from benchmarks.__main__ import BENCHMARKS, main


@pytest.mark.parametrize(("percent", "expected"), [(50, 2), (51, 3), (99, 4), (100, 4), (0, 1)])
def test_a_percentile_is_the_smallest_sample_that_so_many_do_not_exceed(percent, expected):
    assert harness.percentile([4, 1, 3, 2], percent) == expected


def test_the_median_takes_wall_and_cpu_time_each_on_its_own():
    usages = [harness.Usage(10, wall, cpu) for wall, cpu in ((1, 30), (2, 10), (3, 20))]
    assert harness.median(usages) == harness.Usage(10, 2, 20)


def test_cases_are_compared_with_the_best_of_the_peers_in_wall_and_in_cpu_time(capsys, monkeypatch):
    monkeypatch.setattr(harness, "WARM_MIB", 0)
    made = {"fast": (1.0, 4.0), "thrifty": (4.0, 1.0), "ours": (0.5, 0.5)}
    cases = [
        harness.Case(name, partial(harness.Usage, 1_000_000, *both), is_peer=name != "ours")
        for name, both in made.items()
    ]
    harness.compare(cases, rounds=1)
    assert capsys.readouterr().out.splitlines()[-1].split() == [
        "ours",
        "1,000,000",
        "2,000,000",
        "0.50",
        "2.00",
        "2.00",
    ]


def test_a_case_runs_in_a_process_of_its_own_and_its_result_comes_back():
    assert harness.run(os.getpid) != os.getpid()


def test_both_sides_get_the_same_records_in_every_process():
    first, second = (list(islice(peers.records(5, 100), 5)) for _ in range(2))
    assert first == second
    assert {(len(key), len(value)) for key, value in first} == {(16, 100)}


def test_the_settings_of_the_broker_are_filled_in(tmp_path):
    path, port = kafka_broker._configure(tmp_path, fsync=True)
    with open(path) as file:
        settings = file.read()
    assert f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}," in settings
    assert "log.flush.interval.messages=1" in settings


def test_without_java_there_is_one_line_and_no_broker(capsys, monkeypatch):
    pytest.importorskip("confluent_kafka")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with kafka_broker.broker_or_none() as broker:
        assert broker is None
    assert capsys.readouterr().out.splitlines() == [
        "Kafka is left out: there is no java that runs on the PATH or under JAVA_HOME"
    ]


def test_an_unknown_benchmark_is_named_beside_those_there_are(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["benchmarks", "produse"])
    with pytest.raises(SystemExit):
        main()
    error = capsys.readouterr().err
    assert "unknown benchmark produse" in error
    assert ", ".join(BENCHMARKS) in error
