"""Topics in a Spark session's catalog, read back by SQL."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.admin import Admin, NewTopic
from sparklog.catalogs import sync_catalog
from sparklog.log.state import open_state
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.spark.session_catalog import SessionCatalog, cloud_of
from sparklog.streaming.cluster_ref import ClusterRef, cluster_ref_of
from tests import spark_session
from tests.spark.spark_support import a_cluster, put

pytestmark = pytest.mark.spark

AT_ONCE = """
import sys
from sparklog.cli.app import main
import sparklog.spark as ss

command, schema = sys.argv[1:], "default"
assert main(command) == 0
spark = ss.session()
print("catalog", spark.conf.get("spark.sql.catalogImplementation"))
print("rows", spark.sql("SELECT count(*), max(offset) FROM t").collect()[0][:])
assert main(command) == 0
spark.stop()
"""


def test_topics_are_tables_and_views_that_sql_reads_by_name(spark, tmp_path):
    cluster = a_cluster(tmp_path, "my-orders")
    admin = Admin(cluster)
    admin.create_topics([NewTopic("old", 1)])
    put(cluster, (0, "abc"), (1, "x"), topic="my-orders")
    admin.alter_group_offsets("it's", {TopicPartition("my-orders", 0): OffsetAndMetadata(1)})
    before = open_state(cluster.topic_log("my-orders")).position.version
    spark.sql("CREATE DATABASE lake")
    catalog = SessionCatalog(spark, cluster_ref_of(tmp_path), "lake")
    sync_catalog(catalog, cluster)
    rows = spark.sql("SELECT partition, offset, CAST(value AS STRING) FROM lake.my_orders").collect()
    assert sorted(map(tuple, rows)) == [(0, 0, "a"), (0, 1, "b"), (0, 2, "c"), (1, 0, "x")]
    lag = spark.sql("SELECT group_id, topic, partition, committed_offset, lag FROM lake.sparklog_lag").collect()
    assert [*map(tuple, lag)] == [("it's", "my-orders", 0, 1, 2)]
    counts = spark.sql("SELECT partition, count(base_offset) FROM lake.my_orders_raw GROUP BY partition").collect()
    assert sorted(map(tuple, counts)) == [(0, 3), (1, 1)]
    assert sync_catalog(catalog, cluster).unchanged == 6
    admin.delete_topics(["old"])
    assert [found.name for found in sync_catalog(catalog, cluster, drop=True).drops] == ["old_raw", "old"]
    assert sorted(catalog.found()) == ["my_orders", "my_orders_raw", "sparklog_group_it_s", "sparklog_lag"]
    assert open_state(cluster.topic_log("my-orders")).position.version == before  # not a commit of a catalog's
    spark.sql("DROP DATABASE lake CASCADE")
    assert (tmp_path / "topics" / "my-orders" / "partition=0").is_dir()


@pytest.mark.deep  # in each run the test above, in a catalog in memory
def test_a_hive_metastore_gets_them_by_the_command(spark_jars, tmp_path):
    put(a_cluster(tmp_path / "cluster"), (0, "abc"))
    script = tmp_path / "at_once.py"
    script.write_text(AT_ONCE)
    settings = {
        **{name: value for name, value in spark_session.settings(tmp_path).items() if "javaOptions" not in name},
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true",
    }
    options = [part for name, value in settings.items() for part in ("--option", f"{name}={value}")]
    command = ["-c", str(tmp_path / "cluster"), "catalog", "sync", "--to", "hive", "--schema", "default", *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(script), *command],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=spark_session.SPARK_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "catalog hive\nrows (3, 2)\nnothing to be done: 2 entries are as they should be" in done.stdout


@pytest.mark.parametrize(
    ("uri", "option"),
    [("s3://b/c", {"s3": True}), ("gs://b/c", {"gcs": True}), ("abfss://c@a.dfs.core.windows.net/x", {"adls": True})],
)
def test_a_cluster_in_a_cloud_is_reached_by_its_connector(uri, option):
    assert cloud_of(ClusterRef(uri, {})) == option
    assert cloud_of(ClusterRef("/tmp")) == {}
