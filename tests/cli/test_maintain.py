"""``sparklog maintain`` prints what was done, and its exit code tells a scheduler whether all went well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sparklog.errors import KafkaTimeoutError
from sparklog.log import Cluster, open_cluster
from sparklog.log.state import load_state
from sparklog.log.topic import create_topic
from tests.cli.support import done, failure, run
from tests.compaction.support import append_at, append_each, append_pairs, live
from tests.support import DAY_MS, a_writer, foreign_commit


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """As it may look after a while; its log starts, keys and files wait for a job."""
    found = open_cluster(tmp_path / "data")
    now_ms = found.clock.now_ms()
    for topic, configs in (("cut", {}), ("keyed", {"cleanup.policy": "compact"}), ("small", {})):
        create_topic(found.topic_log(topic), topic, configs=configs)
    writer = a_writer(found.topic_log("cut"), topic="cut")
    for age in (9, 8, 0):
        append_at(writer, now_ms - age * DAY_MS, f"{age} days")
    for value in "123":
        append_pairs(a_writer(found.topic_log("keyed"), topic="keyed"), [("a", value)], timestamp_ms=now_ms)
    append_each(a_writer(found.topic_log("small"), topic="small"), *map(str, range(9)))
    yield found
    found.store.close()


def uri(cluster: Cluster) -> str:
    return cluster.store.uri.removeprefix("file://")


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_what_was_done_is_a_table_and_the_second_time_there_is_nothing_to_do(cluster: Cluster) -> None:
    planned = words(done("maintain", "--dry-run", cluster=uri(cluster)))
    assert len(live(cluster.topic_log("small"))) == 9
    assert planned[-1] == ["nothing", "was", "changed:", "this", "was", "a", "dry", "run"]
    printed = words(done("maintain", cluster=uri(cluster)))
    assert printed[0] == ["topic", "step", "files", "bytes", "result"]
    assert [line[:3] for line in printed[1:]] == [
        ["cut", "retention", "2"],
        ["keyed", "compact", "1"],
        ["small", "optimize", "8"],
    ]
    assert [line[:2] for line in planned[1:-1]] == [line[:2] for line in printed[1:]]
    assert printed[1][4:] == ["removed;", "logs", "begin:", "0", "from", "2"]
    assert printed[2][4:] == ["partition", "0:", "1", "of", "2", "records", "dropped"]
    assert printed[3][4:] == ["partition", "0,", "offsets", "0", "to", "7:", "into", "1"]
    assert " ".join(planned[2][4:-1]) == "partition 0: planned (dirty), 100% dirty, 0 tombstones due, oldest of"
    assert done("maintain", cluster=uri(cluster)) == "nothing to be done\n"


def test_steps_and_topics_are_chosen_by_commas_or_by_repeating(cluster: Cluster) -> None:
    at = uri(cluster)
    printed = words(
        done("maintain", "--steps", "retention,optimize", "--topics", "keyed", "--topics", "small", cluster=at)
    )
    assert [line[:2] for line in printed[1:]] == [["small", "optimize"]]
    assert "expected any of transactions, sequence" in failure("maintain", "--steps", "purge", code=2, cluster=at)
    assert "unknown" in failure("maintain", "--topics", "nosuch", cluster=at)


def test_json_has_the_whole_report(cluster: Cluster) -> None:
    report = json.loads(done("maintain", "--json", cluster=uri(cluster)))
    assert list(report) == [
        *("topics", "transactions", "groups", "errors", "dry_run"),
        *("failures", "may_succeed_later"),
    ]
    assert (report["failures"], report["may_succeed_later"]) == ([], False)
    cut, keyed, small = report["topics"]
    assert cut["retention"]["log_start_offsets"] == {"0": [0, 2]}
    assert keyed["compact"]["partitions"][0]["reason"] == "dirty"
    assert small["optimize"]["ranges"][0]["outcome"] == "done"
    assert (small["vacuum"]["files_deleted"], small["errors"]) == (0, {})


def test_failures_show_on_standard_error_and_in_the_exit_code_and_the_rest_is_done(cluster: Cluster) -> None:
    log = cluster.topic_log("cut")
    metadata = load_state(log).require_whole().metadata
    foreign_commit(log, replace(metadata, configuration={**metadata.configuration, "sparklog.retention.ms": "1 week"}))
    result = run("maintain", "--steps", "retention,compact", "--json", cluster=uri(cluster))
    assert result.exit_code == 1
    assert result.stderr.startswith("sparklog: error: topic cut: retention: topics/cut: table property sparklog.ret")
    report = json.loads(result.stdout)
    assert "1 week" in report["topics"][0]["errors"]["retention"]
    assert report["topics"][1]["compact"]["partitions"][0]["outcome"] == "done"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--topics", ""], "--topics: got '', expected a name"),
        (["--topics", ","], "--topics: got ',', expected a name"),
        (["--steps", " "], "--steps: got ' ', expected a name"),
        (["--target-bytes", "0"], "target_bytes: got 0, expected 1 or more"),
    ],
)
def test_what_a_script_left_empty_or_wrong_is_refused_before_anything_is_done(
    cluster: Cluster, arguments: list[str], said: str
) -> None:
    assert said in failure("maintain", *arguments, code=2, cluster=uri(cluster))
    assert len(live(cluster.topic_log("small"))) == 9


def test_what_may_succeed_later_ends_with_75_and_json_is_an_object_whatever_happens(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run("maintain", "--topics", "nosuch", "--json", cluster=uri(cluster))
    assert (result.exit_code, json.loads(result.stdout)["retriable"]) == (1, False)
    assert "topics/nosuch" in json.loads(result.stdout)["error"]

    def slow(*_: object, **__: object) -> None:
        raise KafkaTimeoutError("too slow")

    monkeypatch.setattr("sparklog.compaction.topic_steps.vacuum_state", slow)
    result = run("maintain", "--steps", "vacuum", "--topics", "small", "--json", cluster=uri(cluster))
    assert (result.exit_code, result.stderr) == (75, "sparklog: error: topic small: vacuum: too slow\n")
    report = json.loads(result.stdout)
    assert (report["failures"], report["may_succeed_later"]) == (["topic small: vacuum: too slow"], True)
    monkeypatch.setattr("sparklog.compaction.maintain", slow)
    result = run("maintain", "--json", cluster=uri(cluster))
    assert (result.exit_code, json.loads(result.stdout)) == (75, {"error": "too slow", "retriable": True})
    assert result.stderr == "sparklog: error: too slow\n"


def test_how_large_merged_files_become_is_chosen(cluster: Cluster) -> None:
    sizes = [file.size_bytes for file in live(cluster.topic_log("small"))]
    done("maintain", "--steps", "optimize", "--target-bytes", str(max(sizes)), cluster=uri(cluster))
    assert [file.size_bytes for file in live(cluster.topic_log("small"))] == sizes


def test_an_emergency_shows_what_can_go_and_deletes_it_when_told_to(cluster: Cluster) -> None:
    def small_files() -> int:
        return sum(one.path.endswith(".parquet") for one in cluster.store.list("topics/small/"))

    done("maintain", cluster=uri(cluster))
    before = small_files()
    shown = done("maintain", "--emergency", "--topics", "small", cluster=uri(cluster))
    assert ["small", "8"] in [line[:2] for line in words(shown)]
    assert "topics restore" in shown
    assert small_files() == before
    plain = json.loads(done("maintain", "--emergency", "--execute", "--json", cluster=uri(cluster)))
    assert (plain["dry_run"], [one["topic"] for one in plain["topics"]]) == (False, ["cut", "keyed", "small"])
    assert small_files() == before - 8
    assert done("maintain", "--emergency", cluster=uri(cluster)) == "there are no files that a commit removed\n"


@pytest.mark.parametrize(
    "options", ["--execute", "--emergency --execute --dry-run", "--emergency --full", "--emergency --steps vacuum"]
)
def test_an_emergency_has_no_steps(cluster: Cluster, options: str) -> None:
    failure("maintain", *options.split(), code=2, cluster=uri(cluster))
