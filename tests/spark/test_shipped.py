"""A standalone cluster of Spark whose workers' Python has nothing: sparklog comes with each application."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from sparklog.log import open_cluster
from sparklog.log.topic import create_topic
from sparklog.spark.shipping import FOLDER, jobs_folder, pack_archive, pack_py_files
from tests import spark_session
from tests.compaction.support import append_each
from tests.spark.keyed_topics import a_keyed_topic, check_keys
from tests.spark.standalone import Standalone, standalone
from tests.support import a_writer, contents

pytestmark = [pytest.mark.spark, pytest.mark.deep, pytest.mark.timeout(3_600)]

PROGRAM = """
import json, sys
import sparklog.spark as ss
from pyspark.sql import SparkSession

root, checkpoint = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
ss.register_source(spark)

def where(_):
    import pyarrow, sparklog
    from sparklog._native import DESCRIPTION
    return [(sparklog.__file__, pyarrow.__file__, DESCRIPTION)]

found = {"places": sorted(set(spark.sparkContext.parallelize([1, 2], 2).flatMap(where).collect()))}
frame = spark.read.format("sparklog").option("subscribe", "small").load(root)
found["count"] = frame.count()
frame.select("value").repartition(2).write.format("sparklog").mode("append").option("topic", "written").save(root)
stream = spark.readStream.format("sparklog").option("subscribe", "small").option("startingOffsets", "earliest")
query = (
    stream.load(root).select("value").writeStream.format("sparklog").option("topic", "streamed")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start(root)
)
query.awaitTermination()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    spark_session.need_java()
    with standalone(tmp_path_factory.mktemp("standalone")) as found:
        yield found


@pytest.fixture(scope="module")
def ships(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The arguments that ``sparklog spark package`` prints."""
    archive = pack_archive(tmp_path_factory.mktemp("package") / "sparklog.tar.gz").path
    return ["--archives", f"{archive}#{FOLDER}", "--conf", f"spark.executorEnv.PYTHONPATH={FOLDER}"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster with a keyed topic, one of nine small files, and empty ones."""
    folder = tmp_path_factory.mktemp("topics") / "cluster"
    cluster = open_cluster(folder)
    for name in ("small", "written", "streamed", "ingested"):
        create_topic(cluster.topic_log(name), name)
    append_each(a_writer(cluster.topic_log("small"), topic="small"), *"abcdefghi")
    return folder


def values(root: Path, topic: str) -> list[Any]:
    return sorted(value for _, value in contents(open_cluster(root).topic_log(topic), topic=topic)[0])


def test_the_workers_python_has_none_of_it(spark_cluster: Standalone) -> None:
    for name in ("sparklog", "pyarrow", "numpy", "deltalake", "obstore"):
        command = [str(spark_cluster.bare_python), "-I", "-c", f"import {name}"]
        done = subprocess.run(command, capture_output=True, env={})
        assert b"ModuleNotFoundError" in done.stderr


def test_batch_sink_and_stream_run_on_executors_that_have_only_the_archive(
    spark_cluster: Standalone, ships: list[str], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    shown = spark_cluster.submit(tmp_path / "program.py", str(root), str(tmp_path / "checkpoint"), ships=ships)
    found = json.loads(shown.splitlines()[-1])
    assert found["count"] == 9
    for sparklog_file, pyarrow_file, core in found["places"]:
        assert f"/{FOLDER}/sparklog/" in sparklog_file
        assert f"/{FOLDER}/pyarrow/" in pyarrow_file
        assert core == "native core"
    assert values(root, "written") == values(root, "streamed") == list("abcdefghi")


def test_every_job_runs_by_spark_submit_with_the_archive(
    spark_cluster: Standalone, ships: list[str], root: Path, tmp_path: Path
) -> None:
    last = a_keyed_topic(open_cluster(root), 12, "keyed")
    common = ("--cluster", str(root), "--json")
    reports = {}
    for job, *more in (
        ("compact", "--topics", "keyed", "--small-bytes", "0"),
        ("optimize", "--topics", "small", "--small-bytes", "0"),
        ("retention",),
        ("vacuum",),
        ("maintain",),
    ):
        shown = spark_cluster.submit(jobs_folder() / f"{job}.py", *common, *more, ships=ships)
        reports[job] = json.loads(shown.splitlines()[-1])
        assert reports[job]["errors"] == {}
        assert all(topic["errors"] == {} for topic in reports[job]["topics"])
    check_keys(open_cluster(root).topic_log("keyed"), last)
    assert values(root, "small") == list("abcdefghi")


def test_the_ingest_job_runs_by_spark_submit_with_the_archive(
    spark_cluster: Standalone, ships: list[str], root: Path, tmp_path: Path, spark_jars: None
) -> None:
    line = '{"producer_id": 7, "producer_epoch": 0, "sequence": %d, "key": "%s", "value": "%s"}\n'
    (tmp_path / "rows.json").write_text("".join(line % (number, one, one) for number, one in enumerate("xyz")))
    arguments = ["--cluster", str(root), "--topic", "ingested", "--input", str(tmp_path / "rows.json"), "--json"]
    jars = sorted((spark_session.IVY / "jars").glob("io.delta_*.jar")) + sorted(
        (spark_session.IVY / "jars").glob("org.antlr_*.jar")
    )
    shown = [spark_cluster.submit(jobs_folder() / "ingest.py", *arguments, ships=ships, jars=jars) for _ in range(2)]
    assert [json.loads(text.splitlines()[-1])["inserted"] for text in shown] == [3, 0]
    assert values(root, "ingested") == list("xyz")


def test_by_py_files_executors_with_pyarrow_run_pure_python(
    spark_cluster: Standalone, tmp_path: Path, root: Path
) -> None:
    """The dependencies stand in for what an executor's own Python has; sparklog itself comes from the zip alone."""
    zipped = pack_py_files(tmp_path / "sparklog.zip").path
    packages = Path(pyarrow.__file__).parents[1]
    program = PROGRAM.split("frame = ")[0] + "print(json.dumps(found))\n"
    (tmp_path / "program.py").write_text(program)
    ships = ["--py-files", str(zipped), "--conf", f"spark.executorEnv.PYTHONPATH={packages}"]
    shown = spark_cluster.submit(tmp_path / "program.py", str(root), str(tmp_path / "checkpoint"), ships=ships)
    for sparklog_file, _, core in json.loads(shown.splitlines()[-1])["places"]:
        assert "/sparklog.zip/" in sparklog_file
        assert core.startswith("pure Python")
