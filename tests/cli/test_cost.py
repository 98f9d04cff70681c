"""``sparklog cost``: requests as the protocol's tests count them, and dollars."""

import json

import pytest

from sparklog.cli.cost_rehearsal import Workload, commit_requests, reading_requests
from tests.cli.support import done, failure

CHECKPOINT_SHARE = 0.02
"""A create and a PUT for each hundred commits."""


def a_workload(**changed):
    given = {
        "rate": 100.0,
        "record_bytes": 100,
        "partitions": 1,
        "has_keys": True,
        "producers": 1,
        "linger_ms": 100.0,
        "fetch_max_wait_ms": 500.0,
        "put_ms": 50.0,
        "get_ms": 20.0,
    }
    return Workload(**{**given, **changed})


def rows(*arguments):
    found = json.loads(done("cost", "--json", *arguments))
    return found, {row.pop("for"): row for row in found["requests"]}


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "has_keys", "files"), [(1, True, 1), (3, True, 3), (3, False, 1)])
def test_a_commit_is_a_put_for_each_file_and_one_for_the_entry(partitions, has_keys, files):
    counted = commit_requests(a_workload(partitions=partitions, has_keys=has_keys, rate=1_000))
    assert counted.puts == pytest.approx(files + 1 + CHECKPOINT_SHARE, abs=0.01)
    assert counted.gets < 0.1
    assert counted.lists < 0.1


@pytest.mark.slow
def test_a_quiet_consumer_looks_each_fetch_max_wait_ms():
    for wait_ms, looks_per_s in ((500, 1.92), (2_000, 0.5)):
        looks, files = reading_requests(a_workload(rate=0.001, fetch_max_wait_ms=wait_ms))
        assert looks.gets == pytest.approx(looks_per_s, rel=0.15)
        assert (looks.puts, files.puts) == (0, 0)


@pytest.mark.slow
def test_a_consumer_reads_each_file_once():
    _, files = reading_requests(a_workload(partitions=2, rate=10.0, record_bytes=100_000))
    per_second = 1_000 / a_workload(rate=10.0).commit_interval_ms * a_workload(partitions=2, rate=10.0).files_per_commit
    assert files.gets == pytest.approx(per_second, rel=0.1)


@pytest.mark.slow
def test_a_consumer_reads_no_file_that_the_log_carries():
    _, files = reading_requests(a_workload(partitions=2, rate=10.0))
    assert files.gets == 0


def test_commits_come_after_linger_a_put_a_full_batch_or_a_record():
    assert a_workload().commit_interval_ms == 100
    assert a_workload(linger_ms=5).commit_interval_ms == 50
    assert a_workload(rate=2.0).commit_interval_ms == 500
    assert a_workload(producers=2).commit_interval_ms == 50
    assert a_workload(producers=8, rate=1_000).commit_interval_ms == 50  # one log, a PUT after the other
    assert a_workload(rate=100_000.0, record_bytes=1_000, linger_ms=1_000).commit_interval_ms == 50


def test_records_with_keys_go_to_as_many_partitions_as_chance_has_it():
    assert a_workload(partitions=4, rate=10.0).files_per_commit == 1
    assert a_workload(partitions=4, rate=20.0).files_per_commit == pytest.approx(1.75)
    assert a_workload(partitions=4, rate=20.0, has_keys=False).files_per_commit == 1


@pytest.mark.slow
def test_members_of_a_group_share_files_but_each_looks_and_has_heartbeats():
    _, one = rows("--rate", "20", "--linger-ms", "500")
    _, three = rows("--rate", "20", "--linger-ms", "500", "--members", "3")
    assert three["read files"] == one["read files"]
    for name in ("look for news", "group heartbeats", "offset commits", "look for transactions"):
        assert three[name]["dollars_per_month"] == pytest.approx(3 * one[name]["dollars_per_month"])
    assert one["group heartbeats"]["put_per_million"] == pytest.approx(1_000_000 / 20 / 3)


@pytest.mark.slow
def test_dollars_are_requests_times_the_prices_that_are_given():
    found, by_name = rows("--rate", "5", "--put-price", "1", "--get-price", "0", "--list-price", "0", "--groups", "0")
    assert found["prices_per_1000"] == {"put": 1.0, "get": 0.0, "list": 0.0}
    produce = by_name["produce"]
    assert produce["dollars_per_million"] == pytest.approx(produce["put_per_million"] / 1_000)
    assert produce["dollars_per_month"] == pytest.approx(produce["dollars_per_million"] * 5 * 730 * 3_600 / 1_000_000)
    assert by_name["look for news"]["get_per_million"] == 0
    assert by_name["total"]["dollars_per_month"] == pytest.approx(produce["dollars_per_month"])


@pytest.mark.slow
def test_the_table_names_its_prices():
    text = done("cost", "--rate", "5")
    assert text.splitlines()[0].split() == [
        "for", "put_per_million", "get_per_million", "list_per_million", "dollars_per_million", "dollars_per_month",
    ]  # fmt: skip
    assert "Dollars per 1,000: PUT 0.005, GET 0.0004, LIST 0.005." in text
    assert "Invalid value for '--rate'" in failure("cost", "--rate", "0", code=2)
