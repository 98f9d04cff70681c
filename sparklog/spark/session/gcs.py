"""Configuration with which Spark reads and writes tables on Google Cloud Storage by itself: its connector,
``storage_options`` as Hadoop's settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.session.connector import HADOOP, Connector
from sparklog.storage.gcs import gcs_options

__all__ = ["GCS", "check_same_access", "hadoop_gcs_options"]

_TYPE = "fs.gs.auth.type"
_KEY_FILE = "fs.gs.auth.service.account.json.keyfile"
_KEY_FILE_VARIABLES = ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")
"""Environment variables that object_store reads, beside those of Google's application default credentials."""
GCS = Connector(
    option="gcs",
    schemes=("gs",),
    log_store="io.sparklog.delta.ConditionalGcsLogStore",
    log_store_reason="with Delta's own a commit whose answer was lost is taken for another's or for none, and its rows "
    "may come twice",
    file_systems=(
        "org.apache.hadoop.fs.gs.GoogleHadoopFileSystem",
        "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    ),
    packages=(f"org.apache.hadoop:hadoop-gcp:{HADOOP}",),
    excludes=(),
    jar_pattern=re.compile(r"hadoop-gcp|gcs-connector"),
    defaults={_TYPE: "APPLICATION_DEFAULT"},
)
"""Its log store's commit is one upload with ``ifGenerationMatch=0``, as that of Delta's own."""


def hadoop_gcs_options(storage_options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """``storage_options`` of a store on Google Cloud Storage as Hadoop's settings. Time-outs are passed over.

    Raises:
        InvalidConfigurationError: there are unknown options, or some without a counterpart; names them, never their
            values.
    """
    options = gcs_options({name: value for name, value in storage_options.items() if name != "client"})
    unknown = sorted({*options.config, *options.client} - {"service_account", "connect_timeout", "read_timeout"})
    if options.is_anonymous:  # Hadoop 3.5.0 has the setting, and ends with a NullPointerException
        unknown.append("anon")
    if options.endpoint:
        unknown.append("endpoint_url")
    if unknown:
        raise InvalidConfigurationError(
            f"storage_options that mean {', '.join(unknown)} can't be handed to Spark, whose access to Google Cloud "
            "Storage is by a service account's file, or by application default credentials"
        )
    in_environment = next(filter(None, map(environment.get, _KEY_FILE_VARIABLES)), None)
    key_file = options.config.get("service_account") or in_environment
    return {_TYPE: "SERVICE_ACCOUNT_JSON_KEYFILE", _KEY_FILE: str(key_file)} if key_file else {}


def check_same_access(options: Mapping[str, str], set_already: Mapping[str, str | None]) -> None:
    """Refuse options of a cluster that aren't those of the session: Hadoop knows no access by bucket.

    Args:
        options: of :func:`hadoop_gcs_options`.
        set_already: what Spark has for the same names.
    Raises:
        InvalidConfigurationError: names the settings.
    """
    others = sorted(name for name, value in options.items() if set_already.get(name) != value)
    if others:
        raise InvalidConfigurationError(
            f"storage_options that mean {', '.join(others)} aren't those of this Spark, which has one access to Google "
            "Cloud Storage for all buckets: give them to session(gcs=True, storage_options=…)"
        )
