"""A range of offsets is read from the files that can hold it alone, whichever way a topic is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog import sql
from sparklog.compaction.optimize import optimize_topic
from sparklog.compaction.plan_optimize import OptimizePolicy
from sparklog.log.state import open_state
from tests.cli.support import done
from tests.spark.spark_support import a_cluster, files_read, put
from tests.support import foreign_entry, unsequenced_file

pytestmark = pytest.mark.spark

FILES, RECORDS = 30, 4
"""Of each of two partitions; and records of each file."""
WANTED = range(41, 61)
"""Offsets in the middle of files: the files with 40 to 63, six, can hold them."""
HOLDING = 6


@pytest.fixture
def many_files(tmp_path):
    cluster = a_cluster(tmp_path)
    for number in range(FILES):
        values = "".join(chr(ord("A") + number) for _ in range(RECORDS))
        put(cluster, (0, values), (1, values))
    return tmp_path


def hide_others(root: Path) -> None:
    """Take away the data files that can't hold what is wanted, so that whoever opens one fails."""
    for add in adds(root):
        first = int(add["partitionValues"]["base_offset"])
        if first + RECORDS <= WANTED.start or first >= WANTED.stop:
            (root / "topics" / "t" / add["path"]).unlink()


def adds(root: Path) -> list[dict[str, Any]]:
    """The files with offsets that were ever added to the topic, the newest last."""
    entries = sorted((root / "topics" / "t" / "_delta_log").glob("*.json"))
    lines = [json.loads(line) for entry in entries for line in entry.read_text().splitlines()]
    return [
        line["add"] for line in lines if "add" in line and line["add"]["partitionValues"]["base_offset"] is not None
    ]


def test_no_way_to_read_a_topic_opens_files_that_cant_hold_the_offsets(spark, many_files):
    hide_others(many_files)
    ss.register(spark, many_files, ["t"])
    condition = f"offset >= {WANTED.start} AND offset < {WANTED.stop}"
    by_view = spark.sql(f"SELECT * FROM t WHERE partition = 1 AND {condition}")
    assert files_read(by_view) == (len(WANTED), HOLDING)
    permanent = ss.create_view(spark, many_files, "t", name="pruned")
    assert files_read(spark.sql(f"SELECT * FROM {permanent} WHERE partition = 1 AND {condition}"))[1] == HOLDING
    spark.sql(f"DROP VIEW {permanent}")
    pinned = ss.read_topic(spark, many_files, "t", starting=WANTED.start, ending=WANTED.stop)
    assert files_read(pinned) == (2 * len(WANTED), 2 * HOLDING)
    source = spark.read.format("sparklog").option("subscribe", "t").load(str(many_files)).where(condition)
    assert source.count() == 2 * len(WANTED)
    text = "SELECT count(*) AS n FROM t WHERE " + condition.replace("offset", '"offset"')
    assert sql.connect(many_files).execute(text).fetchone() == (2 * len(WANTED),)
    assert f"{2 * len(WANTED)}" in done("sql", text, cluster=str(many_files))


CONDITIONS = {
    "offset = 41": 2,
    "41 = offset AND partition = 0": 1,
    "offset > 111": 4,
    "4 > offset": 2,
    "`offset` IN (41, 45, 47)": 4,
    "offset BETWEEN 200 AND 300": 0,
    "offset < 4 OR offset > 115": 60,  # no one range
}
"""And how many files can hold what they leave."""


def test_a_view_asks_the_snapshot_which_files_can_hold_what_a_filter_leaves(spark, many_files):
    ss.register(spark, many_files, ["t"])
    everything = spark.sql("SELECT partition, offset FROM t").localCheckpoint()
    for condition, files in CONDITIONS.items():
        found = files_read(spark.sql(f"SELECT partition, offset FROM t WHERE {condition}"))
        assert (condition, *found) == (condition, everything.where(condition).count(), files)


def test_merged_files_and_those_without_statistics_are_read_for_what_they_may_hold(spark, tmp_path):
    cluster = a_cluster(tmp_path)
    for number in range(6):
        put(cluster, (0, "abcd"), (1, "abcd"))
        if number == 3:  # files of 16 records: their base offset is 0
            assert optimize_topic(cluster.topic_log("t"), "t", policy=OptimizePolicy(min_files=2, growth=1.1)).ranges
    log = cluster.topic_log("t")
    unsequenced_file(log, "not yet")
    ss.register(spark, tmp_path, ["t"])
    query = "SELECT partition, offset FROM t WHERE offset BETWEEN 13 AND 17"
    assert files_read(spark.sql(query)) == (10, 4)  # of each partition the merged one and the next
    add = adds(tmp_path)[-1]
    assert add["partitionValues"]["base_offset"] == "20"
    del add["stats"]
    foreign_entry(log, open_state(log).position.version + 1, [{"add": add}])
    assert files_read(spark.sql(query)) == (10, 5)
