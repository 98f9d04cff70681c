"""Spark Connect: what a session whose Spark runs in another process can't do as others do, or does otherwise.

Its client has no JVM: what the server was started with it may read and not set, and a folder is looked for where the
server runs. Reading, writing, streams, views and ingest need nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sparklog.errors import InvalidConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["a_clone", "check_server_has", "is_asked_for", "is_connect", "server_settings", "working_folder"]

_MODULE = "pyspark.sql.connect.session"
_HADOOP = "spark.hadoop."
_ENDPOINT = ".endpoint"


def is_connect(spark: object) -> bool:
    """Is this a session of Spark Connect?"""
    return any(kind.__module__ == _MODULE for kind in type(spark).__mro__)


def is_asked_for(environment: Mapping[str, str], given: Mapping[str, str]) -> bool:
    """Would PySpark make a session of Spark Connect, by the environment or by the settings that are given?"""
    return bool(environment.get("SPARK_REMOTE") or environment.get("SPARK_CONNECT_MODE_ENABLED")) or bool(
        given.get("spark.remote")
    )


def server_settings(spark: SparkSession) -> dict[str, str]:
    """The configuration that Spark was started with. A client's own settings of its session aren't part of it: of a log
    store that is set there Delta takes no notice."""
    if not is_connect(spark):
        return dict(spark.sparkContext.getConf().getAll())
    with a_clone(spark, {}) as clone:
        clone.sql("RESET").collect()
        settings: Any = clone.conf.getAll
        return dict(settings)


def check_server_has(settings: Mapping[str, str], wanted: Mapping[str, str], *, credentials: bool) -> None:
    """Raise ``InvalidConfigurationError`` if a server of Spark Connect lacks settings of a store, which no client sets.

    Args:
        settings: of :func:`server_settings`.
        wanted: settings that it may have instead of each other, as the one for a bucket and the one for all of
            them.
        credentials: whether those for access count, too. They may come from the server's machine, which a client can't
            know.
    """
    lacks = [name for name, other in wanted.items() if not {_HADOOP + name, _HADOOP + other} & settings.keys()]
    if lacks if credentials else any(name.endswith(_ENDPOINT) for name in lacks):
        raise InvalidConfigurationError(
            "storage_options can't be handed to a server of Spark Connect, which reads stores by its own settings: "
            f"start it with {', '.join(_HADOOP + name for name in wanted)}"
        )


def working_folder(spark: SparkSession) -> str | None:
    """The folder that relative paths of Spark are relative to; None where the server doesn't reveal it."""
    if not is_connect(spark):
        jvm: Any = spark._jvm
        return str(jvm.java.lang.System.getProperty("user.dir"))
    from pyspark.errors import PySparkException

    try:
        [row] = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'user.dir')").collect()
    except PySparkException:  # a server may forbid it
        return None
    return None if row[0] is None else str(row[0])


@contextmanager
def a_clone(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session like ``spark``, with its temporary views, and with settings that hold for no other.

    It ends with the block. ``spark`` is one of Spark Connect, on a server of Spark 4.1 or later.
    """
    remote: Any = spark
    clone = remote.cloneSession()
    try:
        for name, value in settings.items():
            clone.conf.set(name, value)
        yield clone
    finally:
        clone.client.release_session()  # not stop(), which may stop the server, too
        clone.client.close()
