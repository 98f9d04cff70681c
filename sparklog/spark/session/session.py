"""A SparkSession with Delta that can't lose what others commit, sparklog's source in it, where it finds clusters."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparklog.errors import InvalidArgumentError, InvalidConfigurationError
from sparklog.spark.runtime.versions import (
    SOURCE_SINCE,
    SparkVersion,
    installed_delta_package,
    need_java,
    need_pyspark,
    usual_delta_package,
)
from sparklog.spark.session.connect import is_asked_for, server_settings, working_folder
from sparklog.spark.session.connector import Connector, log_store_jar, new_connector_settings, submit_arguments
from sparklog.spark.session.session_settings import (
    CATALOG,
    DELTA_CATALOG,
    DELTA_EXTENSION,
    FILTER_PUSHDOWN,
    OFFSET_PRUNING,
    check_delta,
    new_session_settings,
    with_offset_pruning,
)
from sparklog.spark.session.storage_access import (
    asked_connectors,
    check_connectors,
    configure_session_access,
    session_options,
)
from sparklog.streaming.cluster_ref import ClusterRef, cluster_ref_of, is_relative_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["cluster_ref_for", "pyspark_sql", "register_source", "run_sql", "session"]

_LOGGER = logging.getLogger("sparklog.spark")
_PRUNING_SINCE = SparkVersion(4, 2)
"""The rule for offsets is compiled for this one's classes."""
_CONNECTORS_SINCE = SparkVersion(4, 2)
"""Hadoop's connectors are of the version that this PySpark brings; older ones of S3 don't create conditionally."""
_CONNECT_SINCE = SparkVersion(4, 1)
"""The first whose client can clone its session."""
_EXISTS = "DATA_SOURCE_ALREADY_EXISTS"
_NO_PATHS = "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"
"""The error that Spark gives for ``delta.`path` `` where no catalog of Delta's is asked."""


def session(
    app_name: str = "sparklog",
    *,
    s3: bool = False,
    gcs: bool = False,
    adls: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    **conf: Any,
) -> SparkSession:
    """A SparkSession with Delta, and with ``format("sparklog")``: the one that is running, or a new one.

    Under ``spark-submit`` what it was given is kept, and only what Delta needs is added; its jars must be there
    (``--packages``). Elsewhere Spark fetches them from Maven's repository when it starts, once per machine.

    Where PySpark is a client of Spark Connect (``SPARK_REMOTE``, or a session of it is there), the session is one of
    Spark Connect: its server must have been started with what Delta, and the stores, need.

    Args:
        s3: to read and write tables on S3 by Spark itself (``s3a://``): with S3A, and a log store whose commits are
            conditional.
        gcs: the same on Google Cloud Storage (``gs://``), with Hadoop's own file system.
        adls: the same on Azure Data Lake Storage Gen2 (``abfss://``), with ABFS. A commit is refused in an account
            without a hierarchical namespace.
        storage_options: as a Producer's, for one of the three: where it is, and credentials; else from each cloud's
            usual places.
        conf: Spark's settings by name: ``session(**{"spark.ui.enabled": "false"})``. Of a session that is running only
            those can be set that Spark allows to change.
    Raises:
        InvalidConfigurationError: pyspark isn't installed, or it, Delta or Java is of a version that won't do; a
            session is running that has no Delta, Spark was started without the jars it needs, this sparklog has no log
            stores, an option that Hadoop doesn't have, or ``storage_options`` that aren't for one of the three.
        UnsafeStoreError: commits of this session on S3 could overwrite others'; or, elsewhere, be made twice.
    """
    connectors = asked_connectors({"s3": s3, "gcs": gcs, "adls": adls}, storage_options)
    sql = pyspark_sql()
    given = {name: _text(value) for name, value in conf.items()}
    options = session_options(connectors, storage_options)
    running = _running(sql, given)
    if running is None:
        _check_context()
        spark = _start(sql, app_name, given, connectors)
    else:
        check_delta(lambda name: running.conf.get(name, None))
        check_connectors({**_without_log_stores(given), **server_settings(running)}, connectors)
        for name, value in given.items():
            if running.conf.isModifiable(name):
                running.conf.set(name, value)
        spark = running
    if connectors and (storage_options or running is None):  # else what an earlier call has set stays
        configure_session_access(spark, connectors, options, are_given=bool(storage_options))
    if need_pyspark() >= SOURCE_SINCE:
        register_source(spark)
    return spark


def cluster_ref_for(
    spark: SparkSession, cluster: str | Path, storage_options: Mapping[str, Any] | None = None
) -> ClusterRef:
    """The reference to a cluster by its root URI, which is the same for Spark and for this process.

    Raises:
        InvalidConfigurationError: this PySpark won't do.
        InvalidArgumentError: see :func:`~sparklog.streaming.cluster_ref.cluster_ref_of`; or a relative folder where
            Spark's JVM works in another folder than this process: Spark, and ``format("sparklog")``, would look
            elsewhere.
    """
    need_pyspark()
    if is_relative_folder(cluster):
        here, there = os.getcwd(), working_folder(spark)
        if there is None or os.path.realpath(there) != os.path.realpath(here):
            seen = "a folder that it doesn't reveal" if there is None else there
            raise InvalidArgumentError(
                f"{str(cluster)!r} is relative: to {here} for this process, to {seen} for Spark; give an absolute path"
            )
    return cluster_ref_of(cluster, storage_options)


def register_source(spark: SparkSession) -> None:
    """Make ``format("sparklog")`` known in a session; :func:`session` and :func:`register` do it by themselves.

    Raises ``InvalidConfigurationError`` where PySpark has no Python data sources, as 3.5.
    """
    need_pyspark('format("sparklog")', since=SOURCE_SINCE)
    from pyspark.errors import AnalysisException

    from sparklog.spark.source.data_source import SparklogDataSource

    spark.conf.set(FILTER_PUSHDOWN, "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Spark reports every time that it exists already
        try:
            spark.dataSource.register(SparklogDataSource)
        except AnalysisException as error:  # as 4.0 does
            if _EXISTS not in str(error):
                raise


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
    """The package ``pyspark.sql``.

    Raises ``InvalidConfigurationError`` where it isn't installed, or a version that won't do.
    """
    need_pyspark()
    try:
        import pyspark.sql
    except ImportError as error:  # such as 3.5 on a Python of after its time
        found = ".".join(map(str, sys.version_info[:2]))
        raise InvalidConfigurationError(
            f"PySpark {pyspark.__version__} can't be imported by Python {found}: {error}"
        ) from error
    return pyspark.sql


def _start(sql: Any, app_name: str, given: dict[str, str], connectors: Sequence[Connector]) -> SparkSession:
    present: dict[str, str] = {}
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    jar: Path | None = None
    may_prune = need_pyspark() >= _PRUNING_SINCE
    if is_submitted:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        present = dict(SparkConf().getAll())
        _check_jars(SparkContext._jvm, present, connectors)
        has_pruning = may_prune and _has_class(SparkContext._jvm, OFFSET_PRUNING)
    else:
        if connectors:
            asked = ", ".join(f"{connector.option}=True" for connector in connectors)
            need_pyspark(f"session({asked})", since=_CONNECTORS_SINCE)
        if not is_asked_for(os.environ, given):
            need_java()
        jar = _jar(is_needed=bool(connectors)) if may_prune else None
        has_pruning = jar is not None
    package = None if is_submitted else installed_delta_package()
    settings = new_session_settings(given, present.get, delta_package=package)
    if has_pruning:
        settings = with_offset_pruning(settings, present.get, jar=jar)
    for connector in connectors:
        settings = new_connector_settings(connector, settings, present.get, jar=jar)
    check_connectors({**present, **settings}, connectors)
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


def _jar(*, is_needed: bool) -> Path | None:
    """sparklog's jar; None where it isn't there, and only queries of offsets read more files for that."""
    try:
        return log_store_jar()
    except InvalidConfigurationError as error:
        if is_needed:
            raise
        _LOGGER.info("views of topics read all files for a range of offsets: %s", error)
        return None


def _running(sql: Any, given: Mapping[str, str]) -> Any:
    """The session that is there. By Spark Connect one is made where there is none: its server is running already."""
    session = sql.SparkSession.getActiveSession()
    if session is None:
        session = getattr(sql.SparkSession, "_instantiatedSession", None)  # another thread's
        if session is not None and session.sparkContext._jsc is None:
            session = None
    remote = given.get("spark.remote") or os.environ.get("SPARK_REMOTE", "")
    if is_asked_for(os.environ, given):
        need_pyspark("Spark Connect with sparklog", since=_CONNECT_SINCE)
    if session is None and is_asked_for(os.environ, given) and not remote.startswith("local"):
        session = sql.SparkSession.builder.config(map=dict(given)).getOrCreate()
    return session


def _check_context() -> None:
    """Raise ``InvalidConfigurationError`` where a context runs without a session, which has no Delta any more."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        check_delta(SparkContext._active_spark_context.getConf().get)


def _check_jars(jvm: Any, present: Mapping[str, str], connectors: Sequence[Connector]) -> None:
    """Raise ``InvalidConfigurationError`` unless the JVM that spark-submit started has the classes that are needed."""
    lacks = [] if _has_class(jvm, DELTA_EXTENSION) else ["Delta's jars"]
    lacks += [connector.log_store for connector in connectors if not _has_class(jvm, connector.log_store)]
    for connector in connectors:
        if not any(_has_class(jvm, name) for name in connector.file_systems):
            lacks.append(connector.file_systems[0])
    if lacks:
        jar = log_store_jar() if connectors else None
        line = submit_arguments(connectors, jar, delta=usual_delta_package(), present=present)
        raise InvalidConfigurationError(f"spark-submit was started without {' and '.join(lacks)}: start it with {line}")


def _has_class(jvm: Any, name: str) -> bool:
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Exception:  # py4j's; whatever Java throws means that it can't be had
        return False
    return True


def _without_log_stores(given: Mapping[str, str]) -> dict[str, str]:
    """Settings that determine which stores are meant, without the log stores, which are fixed once Spark runs."""
    return {name: value for name, value in given.items() if "delta.logStore." not in name}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
