"""What a session is configured with, and what is refused; without Spark."""

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.settings import check_delta, new_session_settings

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


def test_where_delta_is_there_already_nothing_is_added():
    present = {
        "spark.sql.extensions": f"{EXTENSION}, com.example.Extension",
        "spark.sql.catalog.spark_catalog": CATALOG,
        "spark.jars": "/jars/delta-spark_4.2_2.13-4.4.0.jar",
    }
    found = settings(present=present)
    assert not {"spark.sql.extensions", "spark.sql.catalog.spark_catalog", "spark.jars.packages"} & found.keys()
    assert "spark.jars.packages" not in settings(delta_package=None)


def test_another_catalog_is_refused():
    with pytest.raises(InvalidConfigurationError, match=r"com\.example\.Catalog"):
        settings({"spark.sql.catalog.spark_catalog": "com.example.Catalog"})


@pytest.mark.parametrize(
    ("running", "lacks"),
    [
        ({}, "spark.sql.extensions=.*, spark.sql.catalog.spark_catalog="),
        ({"spark.sql.extensions": EXTENSION}, "lacks spark.sql.catalog"),
        ({"spark.sql.catalog.spark_catalog": CATALOG}, "lacks spark.sql.extensions"),
    ],
)
def test_a_running_session_without_delta_is_refused(running, lacks):
    with pytest.raises(InvalidConfigurationError, match=lacks):
        check_delta(running.get)


def test_a_running_session_with_delta_is_taken():
    check_delta({"spark.sql.extensions": f"a.B,{EXTENSION}", "spark.sql.catalog.spark_catalog": CATALOG}.get)
