"""``sparklog.spark.session.session`` beside a session that is there, and under spark-submit."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.errors import InvalidConfigurationError
from sparklog.spark.session.connector import log_store_jar
from sparklog.spark.session.s3a import S3
from tests import spark_session
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
    with pytest.raises(InvalidConfigurationError, match="storage_options are for S3"):
        ss.session(storage_options={"key": "k"})


def test_the_source_is_there_where_nobody_has_registered_it(spark, tmp_path):
    """Spark finds it by the name of the package ``pyspark_sparklog``."""
    put(a_cluster(tmp_path), (0, "ab"))
    another = spark.newSession()  # knows what was found, not what was registered
    assert seen(another.read.format("sparklog").option("subscribe", "t").load(str(tmp_path))) == [
        (0, 0, "a"),
        (0, 1, "b"),
    ]


@pytest.mark.timeout(300)
def test_under_spark_submit_what_was_given_is_kept(spark, tmp_path):
    """A process of its own. Its jars are those that the shared session has fetched."""
    a_cluster(tmp_path / "cluster")
    job = tmp_path / "job.py"
    job.write_text(
        textwrap.dedent(
            f"""
            import sparklog.spark as ss
            spark = ss.session("from the job", s3=True)
            topic = ss.read_topic(spark, {str(tmp_path / "cluster")!r}, "t")
            print("seen:", spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.app.name"),
                  *topic.columns[:2], spark.sparkContext.getConf().get("spark.delta.logStore.s3a.impl"))
            """
        )
    )
    import pyspark

    home = Path(pyspark.__file__).parent
    jars = ",".join(str(jar) for jar in [*(spark_session.IVY / "jars").glob("*.jar"), log_store_jar()])
    settings = {**spark_session.settings(tmp_path), "spark.sql.shuffle.partitions": "3", "spark.app.name": "submitted"}
    del settings["spark.jars.ivy"]
    submit = [str(home / "bin" / "spark-submit"), "--jars", jars]
    for name, value in settings.items():
        submit += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = str(Path(ss.__file__).parents[2])
    done = subprocess.run(
        [*submit, str(job)], capture_output=True, text=True, timeout=280, check=False, env=environment
    )
    assert f"seen: 3 submitted key value {S3.log_store}" in done.stdout, done.stderr[-3_000:]
