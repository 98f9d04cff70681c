"""What a session is configured with, and what is refused; without Spark."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.session.connect import check_server_has, is_asked_for, is_connect
from sparklog.spark.session.session_settings import (
    OFFSET_PRUNING,
    check_delta,
    new_session_settings,
    with_offset_pruning,
)

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def settings(given=None, present=None, delta_package="io.delta:delta-spark_9:1"):
    return new_session_settings(given or {}, (present or {}).get, delta_package=delta_package)


def test_a_new_session_has_delta():
    found = settings({"spark.ui.enabled": "false"})
    assert found["spark.sql.extensions"] == EXTENSION
    assert found["spark.sql.catalog.spark_catalog"] == CATALOG
    assert found["spark.jars.packages"] == "io.delta:delta-spark_9:1"
    assert found["spark.sql.python.filterPushdown.enabled"] == "true"
    assert found["spark.ui.enabled"] == "false"


def test_what_spark_submit_was_given_is_added_to_and_not_replaced():
    present = {
        "spark.sql.extensions": "com.example.Extension",
        "spark.jars.packages": "com.example:thing:1",
        "spark.databricks.delta.snapshotPartitions": "50",
    }
    found = settings(present=present)
    assert found["spark.sql.extensions"] == f"com.example.Extension,{EXTENSION}"
    assert found["spark.jars.packages"] == "com.example:thing:1,io.delta:delta-spark_9:1"
    assert "spark.databricks.delta.snapshotPartitions" not in found


def test_the_rule_that_prunes_by_offsets_stands_behind_deltas_and_is_named_once():
    jar = Path("/jars/sparklog.jar")
    found = with_offset_pruning(settings({"spark.jars": "/jars/a.jar"}), lambda name: None, jar=jar)
    assert found["spark.sql.extensions"] == f"{EXTENSION},{OFFSET_PRUNING}"
    assert found["spark.jars"] == f"/jars/a.jar,{jar}"
    assert with_offset_pruning(found, lambda name: None, jar=jar) == found
    submitted = with_offset_pruning({}, {"spark.sql.extensions": EXTENSION}.get, jar=None)
    assert submitted == {"spark.sql.extensions": f"{EXTENSION},{OFFSET_PRUNING}"}


@pytest.mark.parametrize(
    ("master", "cost"),
    [
        (None, "1048576"),
        ("local", "1048576"),
        ("local[*]", "1048576"),
        ("local[2,3]", "1048576"),
        ("local-cluster[2,1,1024]", None),
        ("spark://host:7077", None),
        ("yarn", None),
    ],
)
def test_small_files_are_cheap_to_open_where_all_tasks_run_in_one_process(master, cost):
    name = "spark.sql.files.openCostInBytes"
    of_master = {} if master is None else {"spark.master": master}
    assert settings(of_master).get(name) == settings(present=of_master).get(name) == cost
    assert settings({**of_master, name: "7"})[name] == "7"
    assert name not in settings(present={**of_master, name: "7"})


def test_where_delta_is_there_already_nothing_is_added():
    present = {
        "spark.sql.extensions": f"{EXTENSION}, com.example.Extension",
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.jars": "/jars/delta-spark_4.2_2.13-4.4.0.jar",
    }
    found = settings(present=present)
    assert not {"spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.jars.packages"} & found.keys()
    assert "spark.jars.packages" not in settings(delta_package=None)


@pytest.mark.parametrize(
    "catalog",
    ["io.unitycatalog.spark.UCSingleCatalog", "org.apache.iceberg.spark.SparkSessionCatalog", "com.example.C"],
)
def test_a_session_keeps_its_own_catalog(catalog):
    """Topics are found by their paths; other catalogs hand Delta's tables on."""
    given = {"spark.sql.catalog.spark_catalog": catalog}
    assert settings(given)["spark.sql.catalog.spark_catalog"] == catalog
    assert "spark.sql.catalog.spark_catalog" not in settings(present=given)
    check_delta({"spark.sql.extensions": EXTENSION, **given}.get)


@pytest.mark.parametrize(
    ("running", "lacks"),
    [
        ({}, f"lacks spark.sql.extensions={EXTENSION}"),
        ({"spark.sql.catalog.spark_catalog": CATALOG}, "lacks spark.sql.extensions"),
        ({"spark.sql.extensions": "com.example.Extension"}, "lacks spark.sql.extensions"),
    ],
)
def test_a_running_session_without_delta_is_refused(running, lacks):
    with pytest.raises(InvalidConfigurationError, match=lacks):
        check_delta(running.get)


def test_a_running_session_with_delta_is_taken():
    check_delta({"spark.sql.extensions": f"a.B,{EXTENSION}", "spark.sql.catalog.spark_catalog": CATALOG}.get)


@pytest.mark.parametrize(
    ("settings", "credentials", "lacks"),
    [
        ({}, False, True),
        ({"spark.hadoop.fs.s3a.bucket.b.endpoint": "x"}, False, False),
        ({"spark.hadoop.fs.s3a.endpoint": "x"}, False, False),
        ({"spark.hadoop.fs.s3a.endpoint": "x"}, True, True),
        ({"spark.hadoop.fs.s3a.endpoint": "x", "spark.hadoop.fs.s3a.bucket.b.access.key": "x"}, True, False),
    ],
)
def test_a_server_without_the_settings_of_s3_is_told_which_it_lacks(settings, credentials, lacks):
    wanted = {f"fs.s3a.bucket.b.{name}": f"fs.s3a.{name}" for name in ("endpoint", "access.key")}
    if not lacks:
        check_server_has(settings, wanted, credentials=credentials)
        return
    with pytest.raises(InvalidConfigurationError, match=r"start it with spark\.hadoop\.fs\.s3a\.bucket\.b\.endpoint, "):
        check_server_has(settings, wanted, credentials=credentials)


def test_a_client_of_spark_connect_is_recognised():
    assert not is_connect(SimpleNamespace())
    assert is_asked_for({"SPARK_REMOTE": "sc://host"}, {})
    assert is_asked_for({}, {"spark.remote": "sc://host"})
    assert not is_asked_for({}, {})
