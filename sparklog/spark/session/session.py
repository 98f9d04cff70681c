"""A SparkSession with Delta that can't lose what others commit, sparklog's source in it, where it finds clusters."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.spark.session.connect import check_server_has, is_asked_for, is_connect, server_settings, working_folder
from sparklog.spark.session.s3a import (
    LOG_STORE,
    S3A_FILE_SYSTEM,
    bucket_settings,
    check_s3,
    log_store_jar,
    new_s3_settings,
    s3_settings,
    s3a_options,
    submit_arguments,
)
from sparklog.spark.session.session_settings import (
    CATALOG,
    DELTA_CATALOG,
    DELTA_EXTENSION,
    FILTER_PUSHDOWN,
    check_delta,
    new_session_settings,
)
from sparklog.storage import LocalStore, S3Store
from sparklog.streaming.cluster_ref import ClusterRef, cluster_ref_of, is_relative_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cluster_ref_for", "configure_storage_access", "pyspark_sql", "register_source", "run_sql", "session"]

_SCALA = "2.13"
_NO_PATHS = "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"
"""The error that Spark gives for ``delta.`path` `` where no catalog of Delta's is asked."""


def session(
    app_name: str = "sparklog",
    *,
    s3: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **conf: Any,
) -> SparkSession:
    """A SparkSession with Delta, and with ``format("sparklog")``: the one that is running, or a new one.

    Under ``spark-submit`` what it was given is kept, and only what Delta needs is added; its jars must be there
    (``--packages``). Elsewhere Spark fetches them from Maven's repository when it starts, once per machine.

    Where PySpark is a client of Spark Connect (``SPARK_REMOTE``, or a session of it is there), the session is one of
    Spark Connect: its server must have been started with what Delta, and S3, need.

    Args:
        s3: to read and write tables on S3 by Spark itself (``s3a://``): with S3A, and a log store whose commits are
            conditional.
        storage_options: for S3, as a Producer's: where it is, and credentials; else from the usual places of the AWS
            tools.
        conf: Spark's settings by name: ``session(**{"spark.ui.enabled": "false"})``. Of a session that is running only
            those can be set that Spark allows to change.
    Raises:
        InvalidConfigurationError: pyspark isn't installed, a session is running that has no Delta, Spark was started
            without the jars it needs, this sparklog has no log store for S3, or an option that S3A doesn't have.
        UnsafeStoreError: commits of this session on S3 could overwrite others'.
    """
    if storage_options and not s3:
        raise InvalidConfigurationError("storage_options are for S3: session(s3=True, storage_options=…)")
    sql = pyspark_sql()
    given = {name: _text(value) for name, value in conf.items()}
    options = s3a_options(storage_options or {}, os.environ) if s3 else {}
    running = _running(sql, given)
    if running is None:
        _check_context()
        spark = _start(sql, app_name, given, s3=s3)
    else:
        check_delta(lambda name: running.conf.get(name, None))
        check_s3({**_about_s3(given), **server_settings(running)}, wanted=s3)
        for name, value in given.items():
            if running.conf.isModifiable(name):
                running.conf.set(name, value)
        spark = running
    if storage_options or (s3 and running is None):  # else what an earlier call has set stays
        known = server_settings(spark)
        if is_connect(spark):
            wanted = {f"fs.s3a.{name}": f"fs.s3a.{name}" for name in options}
            check_server_has(known, wanted, credentials=True)
        else:
            _configure_hadoop(spark, s3_settings(options, known))
    register_source(spark)
    return spark


def cluster_ref_for(
    spark: SparkSession, cluster: str | Path, storage_options: Mapping[str, Any] | None = None
) -> ClusterRef:
    """The reference to a cluster by its root URI, which is the same for Spark and for this process.

    Raises:
        InvalidArgumentError: see :func:`~sparklog.streaming.cluster_ref.cluster_ref_of`; or a relative folder where
            Spark's JVM works in another folder than this process: Spark, and ``format("sparklog")``, would look
            elsewhere.
    """
    if is_relative_folder(cluster):
        here, there = os.getcwd(), working_folder(spark)
        if there is None or os.path.realpath(there) != os.path.realpath(here):
            seen = "a folder that it doesn't tell" if there is None else there
            raise InvalidArgumentError(
                f"{str(cluster)!r} is relative: to {here} for this process, to {seen} for Spark; give an absolute path"
            )
    return cluster_ref_of(cluster, storage_options)


def configure_storage_access(spark: SparkSession, cluster_ref: ClusterRef) -> None:
    """Let Spark's own reader and writer reach a cluster's tables, with the reference's ``storage_options``.

    They hold for the bucket from its first use in this Spark on, as Hadoop keeps what it has opened.

    Raises:
        UnsafeStoreError: it is on S3, and Spark wasn't started with ``session(s3=True)``, so could lose commits.
        InvalidConfigurationError: an option that S3A doesn't have; or, by Spark Connect, one that the server lacks; or
            it is in a store for which Spark's own access isn't set up.
    """
    store = cluster_ref.store()
    if isinstance(store, LocalStore):
        return
    if not isinstance(store, S3Store):
        raise InvalidConfigurationError(
            f"{store.uri}: views, read_topic and ingests need Spark's own access, which sparklog sets up for folders "
            'and S3 alone; format("sparklog") reads and writes this cluster by sparklog\'s own store'
        )
    known = server_settings(spark)
    check_s3(known, wanted=True)
    if cluster_ref.storage_options:
        options = s3a_options(cluster_ref.storage_options, os.environ)
        settings = bucket_settings(store, options)
        if is_connect(spark):
            wanted = dict(zip(settings, (f"fs.s3a.{name}" for name in options), strict=True))
            check_server_has(known, wanted, credentials=False)
        else:
            _configure_hadoop(spark, settings)


def register_source(spark: SparkSession) -> None:
    """Make ``format("sparklog")`` known in a session; :func:`session` and :func:`register` do it by themselves."""
    from sparklog.spark.source.data_source import SparklogDataSource

    spark.conf.set(FILTER_PUSHDOWN, "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark tells every time that it is there already
        spark.dataSource.register(SparklogDataSource)


def run_sql(spark: SparkSession, statement: str) -> None:
    """Run a statement that names a table by its path.

    Raises ``InvalidConfigurationError`` where the session's catalog doesn't know such tables; else what Spark raises.
    """
    from pyspark.errors import AnalysisException

    try:
        spark.sql(statement).collect()
    except AnalysisException as error:
        if _NO_PATHS in str(error):
            found = spark.conf.get(CATALOG, "none")
            raise InvalidConfigurationError(
                f"the session's catalog doesn't know Delta's tables by their paths: got {found}, "
                f"expected {CATALOG}={DELTA_CATALOG}, or a catalog that hands them on to it"
            ) from error
        raise


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
        _check_jars(SparkContext._jvm, s3=s3)
    package = None if is_submitted else _delta_package()
    settings = new_session_settings(given, present.get, delta_package=package)
    if s3:
        settings = new_s3_settings(settings, present.get, jar=None if is_submitted else log_store_jar())
    check_s3({**present, **settings}, wanted=s3)
    builder = sql.SparkSession.builder
    if "spark.app.name" not in {*present, *given}:
        builder = builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    if not is_submitted:  # else workers run whatever python3 is on the PATH
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # PySpark leaves its pipe to spark-submit open
        return builder.getOrCreate()


def _running(sql: Any, given: Mapping[str, str]) -> Any:
    """The session that is there. By Spark Connect one is made where there is none: its server is running already."""
    session = sql.SparkSession.getActiveSession()
    if session is None:
        session = getattr(sql.SparkSession, "_instantiatedSession", None)  # another thread's
        if session is not None and session.sparkContext._jsc is None:
            session = None
    remote = given.get("spark.remote") or os.environ.get("SPARK_REMOTE", "")
    if session is None and is_asked_for(os.environ, given) and not remote.startswith("local"):
        session = sql.SparkSession.builder.config(map=dict(given)).getOrCreate()
    return session


def _configure_hadoop(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Set what every session of this Spark, and each of its tasks, opens file systems with."""
    for name, value in settings.items():
        spark.sparkContext._jsc.hadoopConfiguration().set(name, value)


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


def _check_jars(jvm: Any, *, s3: bool) -> None:
    """Raise ``InvalidConfigurationError`` unless the JVM that spark-submit started has the classes that are needed."""
    if not _has_class(jvm, DELTA_EXTENSION):
        raise InvalidConfigurationError(
            f"spark-submit was started without Delta's jars: add --packages {_delta_package()}"
        )
    if s3:
        lacks = [name for name in (LOG_STORE, S3A_FILE_SYSTEM) if not _has_class(jvm, name)]
        if lacks:
            raise InvalidConfigurationError(
                f"spark-submit was started without {' and '.join(lacks)}: add to what it has "
                + submit_arguments(log_store_jar())
            )


def _has_class(jvm: Any, name: str) -> bool:
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Exception:  # py4j's; whatever Java throws means that it can't be had
        return False
    return True


def _about_s3(given: Mapping[str, str]) -> dict[str, str]:
    """Settings that tell that S3 is meant, without the log stores, which are fixed once Spark runs."""
    return {name: value for name, value in given.items() if "delta.logStore." not in name}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
