"""``sparklog.spark.session.session`` beside a session that is there. Under spark-submit: ``test_submitted_job.py``."""

from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.errors import InvalidConfigurationError
from tests.spark.spark_support import a_cluster, put, seen

pytestmark = pytest.mark.spark


def test_a_running_session_is_taken_and_given_what_can_be_changed(spark):
    changed: dict[str, Any] = {"spark.sql.shuffle.partitions": 3}
    again = ss.session("another name", **changed)
    assert again.sparkContext is spark.sparkContext
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    changed["spark.sql.shuffle.partitions"] = "2"
    assert ss.session(**changed).conf.get("spark.sql.shuffle.partitions") == "2"
    options = {"endpoint_url": "http://127.0.0.1:1", "key": "k", "secret": "hush"}
    assert ss.session(s3=True, storage_options=options).sparkContext is spark.sparkContext  # it was made for S3
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    assert (hadoop.get("fs.s3a.endpoint"), hadoop.get("fs.s3a.secret.key")) == ("http://127.0.0.1:1", "hush")
    assert "hush" not in str(spark.sparkContext.getConf().getAll())
    for name in ("endpoint", "endpoint.region", "path.style.access", "access.key", "secret.key"):
        spark.sparkContext._jsc.hadoopConfiguration().unset(f"fs.s3a.{name}")
    spark.sparkContext._jsc.hadoopConfiguration().unset("fs.s3a.aws.credentials.provider")
    with pytest.raises(InvalidConfigurationError, match="storage_options are for one cloud's store"):
        ss.session(storage_options={"key": "k"})


def test_the_source_is_there_where_nobody_has_registered_it(spark, tmp_path):
    """Spark finds it by the name of the package ``pyspark_sparklog``."""
    put(a_cluster(tmp_path), (0, "ab"))
    another = spark.newSession()  # knows what was found, not what was registered
    assert seen(another.read.format("sparklog").option("subscribe", "t").load(str(tmp_path))) == [
        (0, 0, "a"),
        (0, 1, "b"),
    ]
