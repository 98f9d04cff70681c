"""``sparklog.spark.session`` beside a session that is there, and under spark-submit."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.errors import UnsafeStoreError
from tests.integration import conftest as integration
from tests.spark.spark_support import a_cluster

pytestmark = pytest.mark.spark


def test_a_running_session_is_taken_and_given_what_can_be_changed(spark):
    changed: dict[str, Any] = {"spark.sql.shuffle.partitions": 3}
    again = ss.session("another name", **changed)
    assert again.sparkContext is spark.sparkContext
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    changed["spark.sql.shuffle.partitions"] = "2"
    assert ss.session(**changed).conf.get("spark.sql.shuffle.partitions") == "2"
    with pytest.raises(UnsafeStoreError, match="s3=True"):
        ss.session(s3=True)


@pytest.mark.timeout(300)
def test_under_spark_submit_what_was_given_is_kept(spark, tmp_path):
    """A process of its own. Its jars are those that the shared session has fetched."""
    a_cluster(tmp_path / "cluster")
    job = tmp_path / "job.py"
    job.write_text(
        textwrap.dedent(
            f"""
            import sparklog.spark as ss
            spark = ss.session("from the job")
            ss.register(spark, {str(tmp_path / "cluster")!r})
            print("seen:", spark.conf.get("spark.sql.shuffle.partitions"), spark.conf.get("spark.app.name"),
                  *spark.table("t").columns[:2])
            """
        )
    )
    import pyspark

    home = Path(pyspark.__file__).parent
    jars = ",".join(str(jar) for jar in (integration.IVY / "jars").glob("*.jar"))
    settings = {**integration.settings(tmp_path), "spark.sql.shuffle.partitions": "3", "spark.app.name": "submitted"}
    for name in ("spark.jars.packages", "spark.jars.ivy", "spark.sql.extensions", "spark.sql.catalog.spark_catalog"):
        del settings[name]
    submit = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--jars", jars]
    for name, value in settings.items():
        submit += ["--conf", f"{name}={value}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYTHONPATH"] = str(Path(ss.__file__).parents[2])
    done = subprocess.run(
        [*submit, str(job)], capture_output=True, text=True, timeout=280, check=False, env=environment
    )
    assert "seen: 3 submitted key value" in done.stdout, done.stderr[-3_000:]
