"""The versions of Spark, Delta and Java that go together, and one sentence for those that don't. Imports no pyspark
until it is asked which one is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sparklog.errors import InvalidConfigurationError

__all__ = [
    "SOURCE_SINCE",
    "SparkVersion",
    "check_java",
    "check_spark",
    "delta_package",
    "installed_delta_package",
    "java_problem",
    "need_java",
    "need_pyspark",
    "usual_delta_package",
]

_INSTALL = "pip install 'sparklog[spark]'"
_NUMBER = re.compile(r"(\d+)\.(\d+)")
_JAVA = re.compile(r'version "(?:1\.)?(\d+)')
_JAVA_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True, order=True)
class SparkVersion:
    """A minor version of Spark."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Supported:
    """The versions of other things that go with a minor version of Spark."""

    scala: str
    """The Scala of PySpark's jars."""
    deltas: tuple[str, ...]
    """Minor versions of delta-spark."""
    delta: str
    """The one to take where none is installed."""
    oldest_java: int


_SUPPORTED: Mapping[SparkVersion, _Supported] = {
    SparkVersion(3, 5): _Supported(scala="2.12", deltas=("3.2", "3.3"), delta="3.3.3", oldest_java=8),
    SparkVersion(4, 0): _Supported(
        scala="2.13", deltas=("4.0", "4.1", "4.2", "4.3", "4.4"), delta="4.4.0", oldest_java=17
    ),
    SparkVersion(4, 1): _Supported(scala="2.13", deltas=("4.1", "4.2", "4.3", "4.4"), delta="4.4.0", oldest_java=17),
    SparkVersion(4, 2): _Supported(scala="2.13", deltas=("4.4",), delta="4.4.0", oldest_java=17),
}
SOURCE_SINCE = SparkVersion(4, 0)
"""The first with the Python Data Source API, by which ``format("sparklog")`` reads and writes."""
_ONE_NAME_BEFORE = (4, 1)
"""Before this version of Delta its artifacts are for one version of Spark, which their names leave out."""


def check_spark(found: str, what: str = "sparklog", *, since: SparkVersion | None = None) -> SparkVersion:
    """The minor version of Spark in a full one, such as ``4.2.0``.

    Args:
        found: as ``pyspark.__version__`` has it.
        what: needs it: the beginning of the sentence.
        since: the first version that will do; any that is supported for None.
    Raises:
        InvalidConfigurationError: it won't do; the sentence names it, and those that will.
    """
    number = _NUMBER.match(found)
    spark = SparkVersion(int(number[1]), int(number[2])) if number else None
    will_do = [one for one in _SUPPORTED if since is None or one >= since]
    if spark in will_do and spark is not None:
        return spark
    names = [str(one) for one in will_do]
    wanted = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"
    raise InvalidConfigurationError(f"{what} needs PySpark {wanted}, this is {found}")


def need_pyspark(what: str = "sparklog", *, since: SparkVersion | None = None) -> SparkVersion:
    """The minor version of the PySpark that is installed. Raises as :func:`check_spark`, and where there is none."""
    return check_spark(_pyspark(what).__version__, what, since=since)


def delta_package(spark: str, delta: str | None = None) -> str:
    """Maven coordinates of Delta for a version of Spark.

    Args:
        spark: as ``4.2.0``.
        delta: the version of Delta, as of the Python package ``delta-spark``; for None the newest that was tried.
    Raises:
        InvalidConfigurationError: they don't go together.
    """
    minor = check_spark(spark)
    fitting = _SUPPORTED[minor]
    release = delta or fitting.delta
    number = _NUMBER.match(release)
    if number is None or f"{number[1]}.{number[2]}" not in fitting.deltas:
        wanted = f"{fitting.deltas[0]} to {fitting.deltas[-1]}" if len(fitting.deltas) > 1 else fitting.deltas[0]
        raise InvalidConfigurationError(
            f"PySpark {spark} needs delta-spark {wanted}, this is {release}: pip install 'delta-spark=={fitting.delta}'"
        )
    is_for_one = (int(number[1]), int(number[2])) < _ONE_NAME_BEFORE
    name = f"delta-spark_{fitting.scala}" if is_for_one else f"delta-spark_{minor}_{fitting.scala}"
    return f"io.delta:{name}:{release}"


def installed_delta_package() -> str:
    """Maven coordinates of the Delta that is installed as ``delta-spark``.

    Raises:
        InvalidConfigurationError: there is none, or not one for this PySpark.
    """
    pyspark = _pyspark("sparklog")
    check_spark(pyspark.__version__)
    try:
        delta = version("delta-spark")
    except PackageNotFoundError as error:
        raise InvalidConfigurationError(f"Delta isn't installed: {_INSTALL}") from error
    return delta_package(pyspark.__version__, delta)


def usual_delta_package() -> str:
    """Maven coordinates of the Delta that is installed as ``delta-spark``; where there is none, as in a Spark that
    didn't come by pip, of the newest that was tried. Raises as :func:`delta_package`."""
    spark = _pyspark("sparklog").__version__
    try:
        return delta_package(spark, version("delta-spark"))
    except PackageNotFoundError:
        return delta_package(spark)


def java_problem(spark: str, java: int | None, where: str) -> str | None:
    """The fault of the Java that a version of Spark would start, in one sentence; None where it will do.

    Args:
        spark: as ``4.2.0``.
        java: its major version, 8 for ``1.8``; None where there is none.
        where: it is, or was looked for.
    """
    oldest = _SUPPORTED[check_spark(spark)].oldest_java
    needs = f"PySpark {spark} needs Java {oldest}{' or 17' if oldest < 17 else ' or 21'}"
    if java is None:
        return f"{needs}, and there is none: {where}"
    return None if java >= oldest else f"{needs}, this is Java {java} ({where})"


def check_java(spark: str, environment: Mapping[str, str]) -> None:
    """Raise ``InvalidConfigurationError`` unless the Java that Spark would start by these variables will do."""
    home = environment.get("JAVA_HOME")
    path = os.path.join(home, "bin", "java") if home else shutil.which("java", path=environment.get("PATH"))
    if path is None or not os.path.exists(path):
        nowhere = (
            f"JAVA_HOME is {home}, without bin/java" if home else "JAVA_HOME isn't set, and no java is on the PATH"
        )
        found, where = None, nowhere
    else:
        found, where = _java_version(path), path
        if found is None:  # it tells its version in words that aren't known: let Spark try
            return
    problem = java_problem(spark, found, where)
    if problem is not None:
        raise InvalidConfigurationError(problem)


def need_java() -> None:
    """Raise ``InvalidConfigurationError`` unless there is a Java that the PySpark that is installed can start."""
    check_java(_pyspark("sparklog").__version__, os.environ)


def _java_version(path: str) -> int | None:
    """The major version of a Java; None where it doesn't tell."""
    try:
        told = subprocess.run(  # noqa: S603 - the one that Spark would start
            [path, "-version"], capture_output=True, text=True, timeout=_JAVA_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    number = _JAVA.search(told.stderr + told.stdout)
    return int(number[1]) if number else None


def _pyspark(what: str) -> Any:
    try:
        import pyspark
    except ImportError as error:
        newest = max(_SUPPORTED)
        raise InvalidConfigurationError(
            f"{what} needs PySpark {newest}, and Spark isn't installed, or can't be imported ({error}): {_INSTALL}"
        ) from error
    return pyspark
