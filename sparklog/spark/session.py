"""A SparkSession with Delta that can't lose what others commit, and sparklog's source in it."""

from __future__ import annotations

import os
import sys
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.settings import DELTA_EXTENSION, FILTER_PUSHDOWN, check_delta, check_s3, new_session_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["pyspark_sql", "register_source", "session"]

_SCALA = "2.13"


def session(app_name: str = "sparklog", *, s3: bool = False, **conf: Any) -> SparkSession:
    """A SparkSession with Delta, and with ``format("sparklog")``: the one that is running, or a new one.

    Under ``spark-submit`` what it was given is kept, and only what Delta needs is added; its jars must be there
    (``--packages``). Elsewhere Spark fetches them from Maven's repository when it starts, once per machine.

    Args:
        s3: to read and write tables on S3 by Spark itself (``s3a://``). Refused as yet.
        conf: Spark's settings by name: ``session(**{"spark.ui.enabled": "false"})``. Of a session that is running only
            those can be set that Spark allows to change.
    Raises:
        InvalidConfigurationError: pyspark isn't installed, a session is running that has no Delta, or Spark was started
            without Delta's jars.
        UnsafeStoreError: commits of this session on S3 could overwrite others'.
    """
    sql = pyspark_sql()
    given = {name: _text(value) for name, value in conf.items()}
    running = sql.SparkSession.getActiveSession()
    if running is None:
        running = sql.SparkSession._instantiatedSession  # another thread's
        if running is not None and running.sparkContext._jsc is None:
            running = None
    if running is None:
        _check_context()
        spark = _start(sql, app_name, given, s3=s3)
    else:
        check_delta(lambda name: running.conf.get(name, None))
        check_s3({**dict(running.sparkContext.getConf().getAll()), **given}, wanted=s3)
        for name, value in given.items():
            if running.conf.isModifiable(name):
                running.conf.set(name, value)
        spark = running
    register_source(spark)
    return spark


def register_source(spark: SparkSession) -> None:
    """Make ``format("sparklog")`` known in a session; :func:`session` and :func:`register` do it by themselves."""
    from sparklog.spark.source import SparklogDataSource

    spark.conf.set(FILTER_PUSHDOWN, "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark tells every time that it is there already
        spark.dataSource.register(SparklogDataSource)


def pyspark_sql() -> Any:
    """The package ``pyspark.sql``. Raises ``InvalidConfigurationError`` where it isn't installed."""
    try:
        import pyspark.sql
    except ImportError as error:
        raise InvalidConfigurationError("Spark isn't installed: pip install 'sparklog[spark]'") from error
    return pyspark.sql


def _start(sql: Any, app_name: str, given: dict[str, str], *, s3: bool) -> SparkSession:
    present: dict[str, str] = {}
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if is_submitted:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        present = dict(SparkConf().getAll())
        _check_jars(SparkContext._jvm)
    check_s3({**present, **given}, wanted=s3)
    package = None if is_submitted else _delta_package()
    builder = sql.SparkSession.builder
    if "spark.app.name" not in {*present, *given}:
        builder = builder.appName(app_name)
    for name, value in new_session_settings(given, present.get, delta_package=package).items():
        builder = builder.config(name, value)
    if not is_submitted:  # else workers run whatever python3 is on the PATH
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark leaves its pipe to spark-submit open
        return builder.getOrCreate()


def _check_context() -> None:
    """Raise ``InvalidConfigurationError`` where a context runs without a session, which has no Delta any more."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        check_delta(SparkContext._active_spark_context.getConf().get)


def _delta_package() -> str:
    try:
        spark = ".".join(version("pyspark").split(".")[:2])
        return f"io.delta:delta-spark_{spark}_{_SCALA}:{version('delta-spark')}"
    except PackageNotFoundError as error:
        raise InvalidConfigurationError("Delta isn't installed: pip install 'sparklog[spark]'") from error


def _check_jars(jvm: Any) -> None:
    """Raise ``InvalidConfigurationError`` unless the JVM that spark-submit started has Delta's classes."""
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(DELTA_EXTENSION)
    except Exception as error:  # py4j's; whatever Java throws means that it can't be had
        raise InvalidConfigurationError(
            f"spark-submit was started without Delta's jars: add --packages {_delta_package()}"
        ) from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
