"""Which versions of Spark, Delta and Java go together, and the sentence for those that don't. Without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.runtime.versions import (
    SOURCE_SINCE,
    SparkVersion,
    check_java,
    check_spark,
    delta_package,
    java_problem,
)

SOURCE = 'format("sparklog")'


def refusal(call, *arguments, **named):
    with pytest.raises(InvalidConfigurationError) as refused:
        call(*arguments, **named)
    return str(refused.value)


@pytest.mark.parametrize("found", ["3.5.3", "4.0.1", "4.1.1", "4.2.0", "4.2.0.dev0"])
def test_each_supported_version_will_do(found):
    assert str(check_spark(found)) == found[:3]


@pytest.mark.parametrize("found", ["3.4.4", "4.3.0", "5.0.0", "preview"])
def test_every_other_version_gets_a_sentence_that_names_it_and_what_is_needed(found):
    assert refusal(check_spark, found) == f"sparklog needs PySpark 3.5, 4.0, 4.1 or 4.2, this is {found}"


def test_what_needs_a_newer_one_names_itself():
    assert check_spark("4.0.1", SOURCE, since=SOURCE_SINCE) == SOURCE_SINCE
    assert refusal(check_spark, "3.5.9", SOURCE, since=SOURCE_SINCE) == (
        f"{SOURCE} needs PySpark 4.0, 4.1 or 4.2, this is 3.5.9"
    )
    assert refusal(check_spark, "4.1.1", "session(s3=True)", since=SparkVersion(4, 2)) == (
        "session(s3=True) needs PySpark 4.2, this is 4.1.1"
    )


@pytest.mark.parametrize(
    ("spark", "delta", "package"),
    [
        ("3.5.9", "3.3.3", "io.delta:delta-spark_2.12:3.3.3"),
        ("4.0.1", "4.0.1", "io.delta:delta-spark_2.13:4.0.1"),
        ("4.0.1", "4.4.0", "io.delta:delta-spark_4.0_2.13:4.4.0"),
        ("4.1.1", "4.3.1", "io.delta:delta-spark_4.1_2.13:4.3.1"),
        ("4.2.0", None, "io.delta:delta-spark_4.2_2.13:4.4.0"),
    ],
)
def test_the_jar_of_delta_is_the_one_for_this_spark(spark, delta, package):
    """As Maven's repository has them: from Delta 4.1 on one for each version of Spark."""
    assert delta_package(spark, delta) == package


@pytest.mark.parametrize(
    ("spark", "delta", "wanted"),
    [("3.5.9", "4.0.1", "3.2 to 3.3"), ("4.1.1", "4.0.1", "4.1 to 4.4"), ("4.2.0", "4.3.1", "4.4")],
)
def test_a_delta_for_another_spark_is_refused(spark, delta, wanted):
    assert refusal(delta_package, spark, delta).startswith(
        f"PySpark {spark} needs delta-spark {wanted}, this is {delta}: pip install 'delta-spark=="
    )


def test_java_is_judged_by_what_spark_needs():
    assert java_problem("3.5.9", 8, "java") is None
    assert java_problem("4.2.0", 17, "java") is None
    assert java_problem("4.2.0", 25, "java") is None  # too new is for Java and Spark to say
    assert java_problem("4.2.0", 11, "/x/java") == "PySpark 4.2.0 needs Java 17 or 21, this is Java 11 (/x/java)"


@pytest.mark.parametrize(("told", "number"), [('openjdk version "11.0.2" 2019', 11), ('java version "1.8.0_392"', 8)])
def test_a_java_that_is_too_old_is_named(tmp_path, told, number):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o755)
    wanted = f"PySpark 4.2.0 needs Java 17 or 21, this is Java {number} ({java})"
    assert refusal(check_java, "4.2.0", {"JAVA_HOME": str(tmp_path)}) == wanted
    assert refusal(check_java, "4.2.0", {"PATH": str(java.parent)}) == wanted


def test_no_java_is_told_with_where_it_was_looked_for(tmp_path):
    needs = "PySpark 4.2.0 needs Java 17 or 21, and there is none: "
    assert refusal(check_java, "4.2.0", {"PATH": str(tmp_path)}) == (
        f"{needs}JAVA_HOME isn't set, and no java is on the PATH"
    )
    assert refusal(check_java, "4.2.0", {"JAVA_HOME": str(tmp_path)}) == (
        f"{needs}JAVA_HOME is {tmp_path}, without bin/java"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("ss.session()", "sparklog needs PySpark 3.5, 4.0, 4.1 or 4.2, this is 3.4.4"),
        ("ss.register_source(None)", f"{SOURCE} needs PySpark 4.0, 4.1 or 4.2, this is 3.4.4"),
        ("ss.register(None, '.')", "sparklog needs PySpark 3.5, 4.0, 4.1 or 4.2, this is 3.4.4"),
        ("ss.maintain(None, '.')", "sparklog needs PySpark 3.5, 4.0, 4.1 or 4.2, this is 3.4.4"),
    ],
)
def test_whoever_meets_an_old_pyspark_first_says_so_in_one_sentence(tmp_path, call, said):
    """✗ `ImportError: cannot import name 'DataSourceStreamArrowWriter'`."""
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.4.4'\n")
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(Path(__file__).parents[3])!r}]\n"
        "import sparklog.spark as ss\nfrom sparklog.errors import InvalidConfigurationError\n"
        f"try: {call}\nexcept InvalidConfigurationError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (said, "")


@pytest.mark.slow
def test_a_job_without_java_ends_with_one_sentence(tmp_path):
    pytest.importorskip("pyspark")
    command = [sys.executable, "-m", "sparklog.jobs.retention", "--cluster", str(tmp_path)]
    environment = {"PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, cwd=tmp_path)
    [line] = done.stderr.splitlines()
    assert done.returncode == 1
    assert line.startswith("retention: PySpark 4")
    assert line.endswith("and there is none: JAVA_HOME isn't set, and no java is on the PATH")
