"""Configuration with which Spark reads and writes tables on S3 by itself: its connector, ``storage_options`` as S3A's
settings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from sparklog.spark.session.connector import HADOOP, JARS, PACKAGES, Connector, check_log_store
from sparklog.storage import S3Store
from sparklog.storage._s3_arrow import arrow_s3_arguments

__all__ = ["S3", "bucket_settings", "check_s3", "s3_options"]

_PREFIX = "fs.s3a."
_USES = re.compile(
    r"spark\.hadoop\.fs\.s3[an]?\.(impl|endpoint|path\.style|access\.|secret\.|session\.|aws\.|assumed\.|bucket\.)"
    r"|(spark\.)?delta\.logStore\.s3[an]?\."
)
"""Settings that nobody sets but for tables on S3; Spark by itself sets how s3a is to read."""

_SDK = "2.35.4"
_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_TEMPORARY = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_SIMPLE = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_CREDENTIALS = (
    _TEMPORARY,
    _SIMPLE,
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.ProfileAWSCredentialsProvider",  # the one that S3A leaves out by default
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
"""The places where S3A looks when it is given none: where Python clients do, too."""
S3 = Connector(
    option="s3",
    schemes=("s3a", "s3", "s3n"),
    log_store="io.sparklog.delta.ConditionalS3LogStore",
    log_store_reason="every log store that Delta brings overwrites what another client has committed on S3 in the "
    "meantime, and acknowledged records are lost",
    file_systems=("org.apache.hadoop.fs.s3a.S3AFileSystem",),
    packages=(
        f"org.apache.hadoop:hadoop-aws:{HADOOP}",
        *(f"software.amazon.awssdk:{module}:{_SDK}" for module in ("s3", "s3-transfer-manager", "sts")),
    ),
    excludes=(
        "software.amazon.awssdk:bundle",  # every service of AWS, 690 MB, in place of the three modules above
        "org.wildfly.openssl:*",  # for fs.s3a.ssl.channel.mode=openssl alone
        "io.netty:*",  # Spark's is there
    ),
    jar_pattern=re.compile(r"hadoop-aws"),
    defaults={f"{_PREFIX}aws.credentials.provider": ",".join(_CREDENTIALS)},
)
"""Its log store's commit is one conditional PUT; none of Delta's own log stores for S3 does that."""
_NAMES = {
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "region": "endpoint.region",
}


def bucket_settings(store: S3Store, options: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings that hold for the store's bucket alone. ``options``: of :func:`s3_options`."""
    bucket = store.uri.removeprefix("s3://").partition("/")[0]
    return {f"{_PREFIX}bucket.{bucket}.{name.removeprefix(_PREFIX)}": value for name, value in options.items()}


def s3_options(storage_options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """``storage_options``, which are s3fs's, as settings of S3A.

    Raises:
        InvalidConfigurationError: there are options without a counterpart; names them, never their values.
    """
    known = arrow_s3_arguments(storage_options, environment)  # for engines that read S3 by themselves, as Spark does
    options = {_NAMES[name]: str(value) for name, value in known.items() if name in _NAMES}
    if "endpoint_override" in known:
        options["endpoint"] = f"{known['scheme']}://{known['endpoint_override']}"
        options["path.style.access"] = str(not known.get("force_virtual_addressing", False)).lower()
        options.setdefault("endpoint.region", "us-east-1")  # what s3fs signs with
    elif known.get("scheme") == "http":
        options["connection.ssl.enabled"] = "false"
    provider = _ANONYMOUS if known.get("anonymous") else _TEMPORARY if "session_token" in known else _SIMPLE
    if provider == _ANONYMOUS or "access_key" in known:
        options["aws.credentials.provider"] = provider
    return {_PREFIX + name: value for name, value in options.items()}


def check_s3(settings: Mapping[str, str], *, wanted: bool) -> None:
    """Refuse a session that could lose commits on S3: its own commits there must be conditional.

    Args:
        settings: of the process; nobody can change them later.
        wanted: whether s3a is asked for; else it only must not be there by accident.
    Raises:
        UnsafeStoreError: s3a is asked for or configured, but another log store than sparklog's commits on S3.
    """
    uses = sorted(name for name in settings if _USES.match(name))
    uses += [name for name in (PACKAGES, JARS) if S3.jar_pattern.search(settings.get(name, ""))]
    if wanted or uses:
        check_log_store(S3, settings, because="" if wanted else f"{uses[0]} is set")
