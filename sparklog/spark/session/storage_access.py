"""Access of Spark itself to the stores of clouds: in a session, and to the tables of a cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.session.adls import ADLS, abfs_options, abfs_settings, gives_credentials, has_access
from sparklog.spark.session.connect import check_server_has, is_connect, server_settings
from sparklog.spark.session.connector import Connector, check_log_store, unset
from sparklog.spark.session.gcs import GCS, check_same_access, hadoop_gcs_options
from sparklog.spark.session.s3a import S3, bucket_settings, check_s3, s3_options
from sparklog.storage import AzureStore, GcsStore, LocalStore, S3Store
from sparklog.streaming.cluster_ref import ClusterRef

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "asked_connectors",
    "check_connectors",
    "configure_session_access",
    "configure_storage_access",
    "session_options",
]

_CONNECTORS = (S3, GCS, ADLS)
_OPTIONS = {S3.option: s3_options, GCS.option: hadoop_gcs_options, ADLS.option: abfs_options}


def asked_connectors(asked: Mapping[str, bool], storage_options: Mapping[str, Any] | None) -> tuple[Connector, ...]:
    """The connectors that a session is asked to have, by the names of its arguments.

    Raises:
        InvalidConfigurationError: ``storage_options`` are given, and it isn't one connector that they could be for.
    """
    found = tuple(connector for connector in _CONNECTORS if asked[connector.option])
    if storage_options and len(found) != 1:
        raise InvalidConfigurationError(
            "storage_options are for one cloud's store: session(s3=True, storage_options=…), or with gcs=True or "
            "adls=True in its place; those of further stores are given to register, read_topic, …"
        )
    return found


def session_options(
    connectors: Sequence[Connector], storage_options: Mapping[str, Any] | None
) -> dict[str, dict[str, str]]:
    """Hadoop's settings of a session that ``storage_options`` and the environment mean, by the connectors' names.

    Raises ``InvalidConfigurationError`` for options without a counterpart.
    """
    options = storage_options or {}
    return {connector.option: _OPTIONS[connector.option](options, os.environ) for connector in connectors}


def check_connectors(settings: Mapping[str, str], connectors: Sequence[Connector]) -> None:
    """Refuse a session that could lose commits, or make them twice.

    Args:
        settings: of the process.
        connectors: that are asked for. S3A mustn't be there by accident, either: Delta's log store for it loses
            commits.
    Raises:
        UnsafeStoreError: Delta would commit by another log store than sparklog's.
    """
    check_s3(settings, wanted=S3 in connectors)
    for connector in connectors:
        check_log_store(connector, settings)


def configure_session_access(
    spark: SparkSession,
    connectors: Sequence[Connector],
    options: Mapping[str, Mapping[str, str]],
    *,
    are_given: bool,
) -> None:
    """Set Hadoop's settings for all of a cloud's store, but for those that Spark was started with.

    They are set when Spark runs: what it is started with stands on a command line, for all to read.

    Args:
        options: of :func:`session_options`.
        are_given: whether ``storage_options`` were.
    Raises:
        InvalidConfigurationError: by Spark Connect, the server lacks some.
    """
    known = server_settings(spark)
    for connector in connectors:
        wanted = options[connector.option]
        if is_connect(spark):
            check_server_has(known, {name: name for name in wanted} if are_given else {}, credentials=True)
        elif connector is not ADLS or are_given or not has_access(known):
            _configure_hadoop(spark, unset({**connector.defaults, **wanted}, known))


def configure_storage_access(spark: SparkSession, cluster_ref: ClusterRef) -> None:
    """Let Spark's own reader and writer reach a cluster's tables, with the reference's ``storage_options``.

    They hold for the bucket, on Azure for the account, from its first use in this Spark on, as Hadoop keeps what it has
    opened; on Google Cloud Storage they must be the session's.

    Raises:
        UnsafeStoreError: Spark wasn't started with ``session(s3=True)``, or what the store needs, and so could lose
            commits.
        InvalidConfigurationError: an option that Hadoop doesn't have; or, by Spark Connect, one that the server lacks;
            or it is in a store for which Spark's own access isn't set up.
    """
    store = cluster_ref.store()
    if isinstance(store, S3Store):
        _configure_s3(spark, store, cluster_ref.storage_options)
    elif isinstance(store, GcsStore):
        _configure_gcs(spark, cluster_ref.storage_options)
    elif isinstance(store, AzureStore):
        _configure_adls(spark, store, cluster_ref.storage_options)
    elif not isinstance(store, LocalStore):
        raise InvalidConfigurationError(
            f"{store.uri}: views, read_topic and ingests need Spark's own access, which sparklog sets up for folders, "
            'S3, Google Cloud Storage and Azure Data Lake Storage alone; format("sparklog") reads and writes this '
            "cluster by sparklog's own store"
        )


def _configure_s3(spark: SparkSession, store: S3Store, storage_options: Mapping[str, Any]) -> None:
    known = server_settings(spark)
    check_s3(known, wanted=True)
    if storage_options:
        options = s3_options(storage_options, os.environ)
        _configure_bucket(spark, known, dict(zip(bucket_settings(store, options), options.items(), strict=True)))


def _configure_gcs(spark: SparkSession, storage_options: Mapping[str, Any]) -> None:
    known = server_settings(spark)
    check_log_store(GCS, known)
    if storage_options:
        options = hadoop_gcs_options(storage_options, os.environ)
        if not is_connect(spark):  # by Spark Connect credentials may come from the server's machine
            check_same_access(options, {name: _hadoop(spark).get(name) for name in options})


def _configure_adls(spark: SparkSession, store: AzureStore, storage_options: Mapping[str, Any]) -> None:
    known = server_settings(spark)
    check_log_store(ADLS, known)
    host = store.account_host
    options = abfs_options(storage_options, os.environ)
    if gives_credentials(storage_options):
        _configure_bucket(spark, known, dict(zip(abfs_settings(options, host), options.items(), strict=True)))


def _configure_bucket(spark: SparkSession, known: Mapping[str, str], settings: Mapping[str, tuple[str, str]]) -> None:
    """Set Hadoop's settings of one bucket or account.

    Args:
        settings: by name; each is what the setting for all of them is called, and the value.
    """
    if is_connect(spark):
        check_server_has(known, {name: other for name, (other, _) in settings.items()}, credentials=False)
    else:
        _configure_hadoop(spark, {name: value for name, (_, value) in settings.items()})


def _configure_hadoop(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Set what every session of this Spark, and each of its tasks, opens file systems with."""
    for name, value in settings.items():
        _hadoop(spark).set(name, value)


def _hadoop(spark: SparkSession) -> Any:
    return spark.sparkContext._jsc.hadoopConfiguration()
