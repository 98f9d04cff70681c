"""What a session is configured with to reach the stores of clouds, and what is refused; without Spark."""

import os
import shlex
from pathlib import Path

import pytest

from java import build_jar
from sparklog.errors import InvalidConfigurationError, UnsafeStoreError
from sparklog.spark.session import connector
from sparklog.spark.session.adls import ADLS
from sparklog.spark.session.connector import check_log_store, log_store_jar, new_connector_settings, submit_arguments
from sparklog.spark.session.gcs import GCS
from sparklog.spark.session.s3a import S3
from sparklog.spark.session.session_settings import OFFSET_PRUNING

CONNECTORS = (S3, GCS, ADLS)
JAR = Path("/jars/log-stores.jar")


def settings(connector, given=None, present=None):
    return new_connector_settings(connector, given or {}, (present or {}).get, jar=JAR)


@pytest.mark.parametrize("each", CONNECTORS, ids=lambda each: each.option)
def test_a_new_session_has_the_file_system_and_sparklogs_log_store(each):
    found = settings(each, {"spark.jars.packages": "io.delta:delta-spark_9:1"})
    assert found["spark.jars.packages"].split(",") == ["io.delta:delta-spark_9:1", *each.packages]
    assert found["spark.jars"] == str(JAR)
    for scheme in each.schemes:
        assert found[f"spark.delta.logStore.{scheme}.impl"] == each.log_store
    check_log_store(each, found)


@pytest.mark.parametrize("each", CONNECTORS, ids=lambda each: each.option)
def test_what_is_there_already_is_kept(each):
    jar = f"/jars/{each.packages[0].split(':')[1]}-3.5.0.jar"
    name = f"spark.delta.logStore.{each.schemes[0]}.impl"
    found = settings(each, {}, {"spark.jars": jar, name: "a.B"})
    assert found["spark.jars"] == f"{jar},{JAR}"
    assert not {"spark.jars.packages", "spark.jars.excludes", name} & found.keys()
    again = settings(each, {}, settings(each))
    assert again == {"spark.jars": str(JAR)}
    submitted = new_connector_settings(each, {}, lambda name: None, jar=None)
    assert submitted.keys() == {f"spark.delta.logStore.{scheme}.impl" for scheme in each.schemes}


def test_one_session_may_have_the_connectors_of_all_clouds():
    found: dict[str, str] = {}
    for each in CONNECTORS:
        found = settings(each, found)
    assert found["spark.jars.packages"].split(",") == [package for each in CONNECTORS for package in each.packages]
    for each in CONNECTORS:
        check_log_store(each, found)


def test_the_submit_line_is_whole_and_a_shell_can_take_it():
    delta = "io.delta:delta-spark_4.2_2.13:4.4.0"
    had = {"spark.jars.packages": "a:b:1", "spark.jars": "/there/c.jar", "spark.jars.excludes": "x:*"}
    line = submit_arguments(CONNECTORS, JAR, delta=delta, present=had)
    given = shlex.split(line)
    assert given[0::2] == ["--packages", "--exclude-packages", "--jars"]  # each once: spark-submit takes the last
    packages, excludes, jars = (value.split(",") for value in given[1::2])
    assert packages == ["a:b:1", delta, *(package for each in CONNECTORS for package in each.packages)]
    assert excludes == [*dict.fromkeys(["x:*", *(one for each in CONNECTORS for one in each.excludes)])]
    assert jars == ["/there/c.jar", str(JAR)]
    assert "'" in line  # a shell would look for files of the name org.wildfly.openssl:*
    assert submit_arguments([], None, delta=delta) == f"--packages {delta}"
    assert submit_arguments([], None, delta=delta, present={"spark.jars": "/delta-spark_2.13-4.4.0.jar"}) == (
        "--jars /delta-spark_2.13-4.4.0.jar"
    )


@pytest.mark.parametrize(
    ("each", "given", "seen"),
    [
        (GCS, {}, "gcs=True, but spark.delta.logStore.gs.impl is not set"),
        (GCS, {"spark.delta.logStore.gs.impl": "io.delta.storage.GCSLogStore"}, "is io.delta.storage.GCSLogStore"),
        (ADLS, {}, "adls=True, but spark.delta.logStore.abfss.impl is not set"),
        (ADLS, {"spark.delta.logStore.abfss.impl": ADLS.log_store, "spark.delta.logStore.class": "a.B"}, "is a.B"),
        (
            ADLS,
            {"spark.delta.logStore.abfss.impl": ADLS.log_store, "spark.delta.logStore.abfs.impl": "a.B"},
            "spark.delta.logStore.abfs.impl is a.B",
        ),
    ],
)
def test_a_session_that_commits_by_another_log_store_is_refused(each, given, seen):
    with pytest.raises(UnsafeStoreError, match=seen) as refusal:
        check_log_store(each, given)
    assert f"sparklog.spark.session({each.option}=True)" in str(refusal.value)


def test_the_classes_and_the_jar_are_called_the_same_everywhere():
    classes = {
        path.relative_to(build_jar.HERE).with_suffix("").as_posix().replace("/", ".") for path in build_jar.sources()
    }
    named = {each.log_store for each in CONNECTORS} | {OFFSET_PRUNING}
    assert named == classes - {"io.sparklog.delta.CreateOnce", "io.sparklog.sql.OffsetBounds"}
    assert build_jar.JAR.name == connector.JAR


def test_versions_are_those_that_pyspark_brings():
    pyspark = pytest.importorskip("pyspark")
    assert (Path(pyspark.__path__[0]) / "jars" / build_jar.HADOOP.file_name).exists()
    for each in CONNECTORS:
        assert each.packages[0].endswith(f":{build_jar.HADOOP.version}")


def test_a_jar_that_is_missing_or_older_than_its_source_is_told(tmp_path, monkeypatch):
    module = tmp_path / "sparklog" / "spark" / "session" / "connector.py"
    monkeypatch.setattr(connector, "__file__", str(module))
    with pytest.raises(InvalidConfigurationError, match="there was no Java"):
        log_store_jar()
    source, built = tmp_path / "java" / "io" / "A.java", tmp_path / "build" / connector.JAR
    for file in (source, built):
        file.parent.mkdir(parents=True)
    source.touch()
    with pytest.raises(InvalidConfigurationError, match="make jar"):
        log_store_jar()
    built.touch()
    os.utime(built, (2_000_000_000, 2_000_000_000))
    assert log_store_jar() == built
    os.utime(built, (1_000_000_000, 1_000_000_000))
    with pytest.raises(InvalidConfigurationError, match="older than its source"):
        log_store_jar()
    packed = module.parents[1] / "jars" / connector.JAR
    packed.parent.mkdir(parents=True)
    packed.touch()
    assert log_store_jar() == packed
