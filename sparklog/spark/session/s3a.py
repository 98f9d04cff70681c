"""Configuration with which Spark reads and writes tables on S3 by itself: jars, a log store, ``storage_options`` as
S3A's settings.

Pure but for :func:`log_store_jar`, which looks where the jar is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparklog.errors import InvalidConfigurationError, UnsafeStoreError
from sparklog.storage import S3Store
from sparklog.storage._s3_arrow import arrow_s3_arguments

__all__ = [
    "LOG_STORE",
    "S3A_EXCLUDES",
    "S3A_FILE_SYSTEM",
    "S3A_PACKAGES",
    "bucket_settings",
    "check_s3",
    "log_store_jar",
    "new_s3_settings",
    "s3_settings",
    "s3a_options",
    "submit_arguments",
]

LOG_STORE = "io.sparklog.delta.ConditionalS3LogStore"
"""Its commit is one conditional PUT; none of Delta's own log stores for S3 does that."""
S3A_FILE_SYSTEM = "org.apache.hadoop.fs.s3a.S3AFileSystem"
JAR = "sparklog-delta-s3.jar"

_PREFIX = "spark.hadoop.fs.s3a."
_PACKAGES = "spark.jars.packages"
_EXCLUDES = "spark.jars.excludes"
_JARS = "spark.jars"
_SCHEMES = ("s3a", "s3", "s3n")
_LOG_STORES = {scheme: f"spark.delta.logStore.{scheme}.impl" for scheme in _SCHEMES}
_ONE_LOG_STORE = ("spark.delta.logStore.class", "delta.logStore.class")
"""Goes before those by scheme."""
_USES = re.compile(
    r"spark\.hadoop\.fs\.s3[an]?\.(impl|endpoint|path\.style|access\.|secret\.|session\.|aws\.|assumed\.|bucket\.)"
    r"|(spark\.)?delta\.logStore\.s3[an]?\."
)
"""Settings that nobody sets but for tables on S3; Spark by itself sets how s3a is to read."""
_HADOOP_AWS = re.compile(r"hadoop-aws")

_SDK = "2.35.4"
S3A_PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0",  # of the Hadoop that pyspark 4.2.0 brings
    *(f"software.amazon.awssdk:{module}:{_SDK}" for module in ("s3", "s3-transfer-manager", "sts")),
)
S3A_EXCLUDES = (
    "software.amazon.awssdk:bundle",  # every service of AWS, 690 MB, in place of the three modules above
    "org.wildfly.openssl:*",  # for fs.s3a.ssl.channel.mode=openssl alone
    "io.netty:*",  # Spark's is there
)
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
_NAMES = {
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "region": "endpoint.region",
}


def new_s3_settings(
    given: Mapping[str, str], present: Callable[[str], str | None], *, jar: Path | None
) -> dict[str, str]:
    """The configuration of a new session to read and write on S3; nothing that is there already is taken away.

    Args:
        given: what the session is built with otherwise.
        present: a setting of the process, as ``spark-submit`` was given it; None for one that isn't set.
        jar: with the log store; None where it and S3A are there.
    """
    settings = dict(given)

    def seen(name: str) -> str:
        return settings.get(name) or present(name) or ""

    def with_items(name: str, *items: str) -> str:
        return ",".join(dict.fromkeys([*filter(None, seen(name).split(",")), *items]))

    if jar is not None:
        if not _HADOOP_AWS.search(f"{seen(_PACKAGES)},{seen(_JARS)}"):
            settings[_PACKAGES] = with_items(_PACKAGES, *S3A_PACKAGES)
            settings[_EXCLUDES] = with_items(_EXCLUDES, *S3A_EXCLUDES)
        settings[_JARS] = with_items(_JARS, str(jar))
    return settings | {name: LOG_STORE for name in _LOG_STORES.values() if not seen(name)}


def s3_settings(options: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings for all of S3, but for those that ``settings`` of the process have already.

    They are set when Spark runs: what it is started with stands on a command line, for all to read.

    Args:
        options: of :func:`s3a_options`.
    """
    wanted = {"aws.credentials.provider": ",".join(_CREDENTIALS), **options}
    return {f"fs.s3a.{name}": value for name, value in wanted.items() if _PREFIX + name not in settings}


def bucket_settings(store: S3Store, options: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings that hold for the store's bucket alone. ``options``: of :func:`s3a_options`."""
    bucket = store.uri.removeprefix("s3://").partition("/")[0]
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in options.items()}


def s3a_options(storage_options: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
    """``storage_options``, which are s3fs's, as settings of S3A, without their prefix ``fs.s3a.``.

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
    return options


def check_s3(settings: Mapping[str, str], *, wanted: bool) -> None:
    """Refuse a session that could lose commits on S3: its own commits there must be conditional.

    Args:
        settings: of the process; nobody can change them later.
        wanted: whether s3a is asked for; else it only must not be there by accident.
    Raises:
        UnsafeStoreError: s3a is asked for or configured, but another log store than sparklog's commits on S3.
    """
    uses = sorted(name for name in settings if _USES.match(name))
    uses += [name for name in (_PACKAGES, _JARS) if _HADOOP_AWS.search(settings.get(name, ""))]
    if not wanted and not uses:
        return
    others = [(name, settings[name]) for name in _ONE_LOG_STORE if settings.get(name)]
    for scheme, name in _LOG_STORES.items():
        found = settings.get(name) or settings.get(name.removeprefix("spark."))
        opens = scheme == "s3a" or f"spark.hadoop.fs.{scheme}.impl" in settings
        if found != LOG_STORE and (opens or found):
            others.append((name, found or "not set"))
    if others:
        seen = "s3=True" if wanted else f"{uses[0]} is set"
        name, found = others[0]
        raise UnsafeStoreError(
            f"{seen}, but {name} is {found}: every log store that Delta brings overwrites what another client has "
            "committed on S3 in the meantime, and acknowledged records are lost. Let sparklog.spark.session(s3=True) "
            f'start Spark, or start it with {_LOG_STORES["s3a"]}={LOG_STORE} and its jar. format("sparklog") reads and '
            "writes topics on S3 without s3a"
        )


def log_store_jar() -> Path:
    """The jar with sparklog's log store: in a wheel, or built in a checkout.

    Raises:
        InvalidConfigurationError: it isn't there, or older than its source.
    """
    room = Path(__file__).resolve().parents[1]
    packed = room / "jars" / JAR
    if packed.exists():
        return packed
    checkout = room.parents[1]
    sources = [*(checkout / "java").rglob("*.java")]
    if not sources:
        raise InvalidConfigurationError(
            f"{packed} isn't there: this sparklog was built where there was no Java. Install a wheel with it, or build "
            "one where there is: SPARKLOG_JAR=require pip install …"
        )
    built = checkout / "build" / JAR
    if not built.exists():
        raise InvalidConfigurationError(f"{built} isn't there: run `make jar`")
    if built.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        raise InvalidConfigurationError(f"{built} is older than its source: run `make jar`")
    return built


def submit_arguments(jar: Path) -> str:
    """Arguments of ``spark-submit`` for S3."""
    return f"--packages {','.join(S3A_PACKAGES)} --exclude-packages {','.join(S3A_EXCLUDES)} --jars {jar}"
