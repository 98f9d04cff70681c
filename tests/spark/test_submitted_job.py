"""A job under spark-submit, a process of its own: it keeps what it was given, and survives tasks that die."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sparklog.spark as ss
from sparklog.compaction import OptimizePolicy, Step
from sparklog.compaction.report_format import report_rows
from sparklog.log import open_cluster
from sparklog.log.topic import create_topic
from sparklog.spark.maintenance import clean_by_shuffle, per_topic, rewrite_on_executors
from sparklog.spark.session.connector import log_store_jar
from sparklog.spark.session.s3a import S3
from tests import spark_session
from tests.compaction.support import append_each, live
from tests.spark.keyed_topics import a_keyed_topic, check_keys
from tests.support import a_writer, contents

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

POLICY = OptimizePolicy(min_files=2, max_files=4, growth=1.5)
REPOSITORY = Path(__file__).parents[2]


# --- the program


def dying(folder: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """``work`` in a task; the first one dies after it did all of it, uploads, and perhaps commits."""
    done = work(*arguments)
    done = [*done] if isinstance(done, Iterator) else done
    try:
        Path(folder, work.__name__).touch(exist_ok=False)
    except FileExistsError:
        return iter(done) if isinstance(done, list) else done
    os._exit(9)


def dying_rewrite(*arguments: Any) -> Any:
    return dying(os.environ["SPARKLOG_TEST_DYING"], REAL["rewrite"], *arguments)


def dying_clean(*arguments: Any) -> Any:
    return dying(os.environ["SPARKLOG_TEST_DYING"], REAL["clean"], *arguments)


def dying_spread(*arguments: Any) -> Any:
    return dying(os.environ["SPARKLOG_TEST_DYING"], REAL["spread"], *arguments)


REAL: dict[str, Callable[..., Any]] = {
    "rewrite": rewrite_on_executors.rewrite_in_task,
    "clean": clean_by_shuffle.clean_in_task,
    "spread": per_topic._maintain_in_task,
}


def job(root: str) -> None:
    """Print what the session was given. Then every kind of task dies once, and Spark repeats it."""
    spark = ss.session("from the job", s3=True)
    topic = ss.read_topic(spark, root, "small")
    seen = [spark.conf.get(name) for name in ("spark.sql.shuffle.partitions", "spark.app.name")]
    print(*seen, *topic.columns[:2], spark.sparkContext.getConf().get("spark.delta.logStore.s3a.impl"))
    spark.sparkContext.setLogLevel("OFF")
    for module, name, dies in (
        (rewrite_on_executors, "rewrite_in_task", dying_rewrite),
        (clean_by_shuffle, "clean_in_task", dying_clean),
        (per_topic, "_maintain_in_task", dying_spread),
    ):
        setattr(module, name, dies)
    reports = (
        ss.run_compaction(spark, root, "keyed", small_bytes=0),
        ss.optimize(spark, root, "small", small_bytes=0, policy=POLICY),
        ss.maintain(spark, root, steps=[Step.COMPACT, Step.OPTIMIZE], policy=POLICY),
    )
    for report in reports:
        for row in report_rows(report):
            print(*row[:3], row[4])
        print(report.failures)


# --- what became of it


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the job; its cluster is in it."""
    return tmp_path_factory.mktemp("submitted")


@pytest.fixture(scope="module")
def topics(folder: Path) -> dict[str, dict[Any, Any]]:
    """What each key's last record says, of two topics; a third one has no keys."""
    cluster = open_cluster(folder / "cluster")
    last = {name: a_keyed_topic(cluster, 12, name) for name in ("keyed", "by_task")}
    create_topic(cluster.topic_log("small"), "small")
    append_each(a_writer(cluster.topic_log("small"), topic="small"), *"abcdefghi")
    return last


@pytest.fixture(scope="module")
def printed(spark: Any, folder: Path, topics: object) -> list[str]:
    """The lines of the job. Its jars are those that the shared session has fetched."""
    import pyspark

    (folder / "job.py").write_text(
        f"from tests.spark.test_submitted_job import job\njob({str(folder / 'cluster')!r})\n"
    )
    (folder / "died").mkdir()
    jars = ",".join(str(jar) for jar in [*(spark_session.IVY / "jars").glob("*.jar"), log_store_jar()])
    settings = {
        **spark_session.settings(folder),
        "spark.master": "local[2,3]",  # a task is tried three times
        "spark.sql.shuffle.partitions": "3",
        "spark.app.name": "submitted",
    }
    del settings["spark.jars.ivy"]
    submit = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--jars", jars]
    for name, value in settings.items():
        submit += ["--conf", f"{name}={value}"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARKLOG_TEST_DYING": str(folder / "died"),
    }
    done = subprocess.run(
        [*submit, str(folder / "job.py")], capture_output=True, text=True, timeout=580, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout.splitlines()


def test_under_spark_submit_what_was_given_is_kept(printed: list[str]) -> None:
    assert printed[0] == f"3 submitted key value {S3.log_store}"


def test_tasks_that_die_after_their_work_are_repeated_and_nothing_is_there_twice(
    printed: list[str], folder: Path, topics: dict[str, dict[Any, Any]]
) -> None:
    died = sorted(path.name for path in (folder / "died").iterdir())
    assert died == ["_maintain_in_task", "clean_in_task", "rewrite_in_task"]
    assert printed[1:6] == [
        "keyed compact 11 partition 0: 41 of 48 records dropped",
        "[]",
        "small optimize 4 partition 0, offsets 0 to 3: into 1",
        "small optimize 4 partition 0, offsets 4 to 7: into 1",
        "[]",
    ]
    assert printed[-1] == "[]"
    cluster = open_cluster(folder / "cluster")
    for topic, last in topics.items():
        assert len(check_keys(cluster.topic_log(topic), last)) == 8
    assert contents(cluster.topic_log("small"), topic="small")[0] == [*enumerate("abcdefghi")]
    assert len(live(cluster.topic_log("small"))) == 2
