"""A cluster's root that lost its slashes, at every door: an error that names what was seen, and no local folder."""

from pathlib import Path

import pytest

import sparklog.spark as ss
from sparklog import Admin, Consumer, Producer, sql
from sparklog.errors import InvalidArgumentError
from sparklog.integrity import check_cluster
from sparklog.kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from sparklog.spark.maintenance.maintenance_job import main
from tests.cli.support import failure

MISTYPED = ["gs:b/p", "s3:b", Path("s3://b/p"), Path("abfss://c@a.dfs.core.windows.net/p")]

CLIENTS = {
    "Producer": Producer,
    "Consumer": lambda root: Consumer("orders", cluster=root),
    "Admin": lambda root: Admin(root).list_topics(),
    "sql": lambda root: sql.connect(root),
    "check": check_cluster,
    "KafkaProducer": lambda root: KafkaProducer(bootstrap_servers=root),
    "KafkaConsumer": lambda root: KafkaConsumer("orders", bootstrap_servers=root),
    "KafkaAdminClient": lambda root: KafkaAdminClient(bootstrap_servers=root).list_topics(),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("root", MISTYPED, ids=repr)
@pytest.mark.parametrize("call", CLIENTS.values(), ids=CLIENTS)
def test_clients_refuse_a_root_that_lost_its_slashes(call, root):
    with pytest.raises(InvalidArgumentError, match=r"begins with [a-z0-9]+:"):
        call(root)


@pytest.mark.parametrize(
    "command",
    [
        ["topics", "create", "orders"],
        ["topics", "list"],
        ["produce", "orders"],
        ["consume", "orders"],
        ["groups", "list"],
        ["sql", "SELECT 1"],
        ["check"],
        ["maintain"],
    ],
    ids=" ".join,
)
def test_commands_refuse_a_root_that_lost_its_slashes(command):
    assert "begins with gs:" in failure(*command, cluster="gs:b/p")


SPARK = {
    "read_topic": lambda spark, root: ss.read_topic(spark, root, "orders"),
    "register": lambda spark, root: ss.register(spark, root),
    "maintain": lambda spark, root: ss.maintain(spark, root),
    "load": lambda spark, root: spark.read.format("sparklog").option("subscribe", "a").load(root).count(),
    "option": lambda spark, root: spark.read.format("sparklog").options(subscribe="a", cluster=root).load().count(),
    "save": lambda spark, root: (
        spark.sql("SELECT 'v' value").write.format("sparklog").mode("append").save(root, topic="orders")
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("call", SPARK.values(), ids=SPARK)
def test_spark_refuses_a_root_that_lost_its_slashes(spark, call):
    with pytest.raises(Exception, match="begins with gs:"):  # some as Spark's own exceptions
        call(spark, "gs:b/p")


@pytest.mark.spark
def test_jobs_refuse_a_root_that_lost_its_slashes(spark, capsys):
    assert main("compact", ["--cluster", "gs:b/p", "--topic", "orders"]) != 0
    assert "begins with gs:" in capsys.readouterr().err
