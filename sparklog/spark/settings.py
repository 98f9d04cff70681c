"""What a Spark session is configured with, and which configurations are refused. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sparklog.errors import InvalidConfigurationError, UnsafeStoreError

__all__ = ["check_delta", "check_s3", "new_session_settings"]

CATALOG = "spark.sql.catalog.spark_catalog"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
EXTENSIONS = "spark.sql.extensions"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
PACKAGES = "spark.jars.packages"
JARS = "spark.jars"
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
LOG_STORE = "spark.delta.logStore.s3a.impl"

_DEFAULTS = {
    "spark.databricks.delta.snapshotPartitions": "4",  # Delta's 50 are tasks of nothing for logs of this size
    FILTER_PUSHDOWN: "true",  # without it Spark refuses a source that can push filters down
}
_CONDITIONAL_LOG_STORES: frozenset[str] = frozenset()
"""Log stores whose commit on S3 is one conditional PUT. None of Delta's own is."""
_S3 = re.compile(
    r"spark\.hadoop\.fs\.s3[an]?\.(impl|endpoint|path\.style|access\.|secret\.|session\.|aws\.|assumed\.|bucket\.)"
    r"|spark\.delta\.logStore\.s3[an]?\."
)
"""What nobody sets but for tables on S3; Spark by itself sets how s3a is to read."""
_S3_PACKAGE = re.compile(r"hadoop-aws")
_DELTA_JAR = re.compile(r"delta-spark[_-]")


def new_session_settings(
    given: Mapping[str, str], present: Callable[[str], str | None], *, delta_package: str | None
) -> dict[str, str]:
    """What a new session is built with: what was asked for, and what Delta needs where nobody has set it.

    Lists are added to, and nothing that is there already is taken away.

    Args:
        given: what the caller asks for.
        present: a setting of the process, as ``spark-submit`` was given it; None for one that isn't set.
        delta_package: Maven coordinates of Delta; None where its jars are there.
    Raises:
        InvalidConfigurationError: another catalog than Delta's is asked for.
    """
    settings = dict(given)

    def seen(name: str) -> str:
        return settings.get(name) or present(name) or ""

    if not _has_item(seen(EXTENSIONS), DELTA_EXTENSION):
        settings[EXTENSIONS] = _with_item(seen(EXTENSIONS), DELTA_EXTENSION)
    if not seen(CATALOG):
        settings[CATALOG] = DELTA_CATALOG
    elif seen(CATALOG) != DELTA_CATALOG:
        raise InvalidConfigurationError(f"{CATALOG}={seen(CATALOG)!r}: Delta tables need {DELTA_CATALOG}")
    if delta_package is not None and not _DELTA_JAR.search(f"{seen(PACKAGES)},{seen(JARS)}"):
        settings[PACKAGES] = _with_item(seen(PACKAGES), delta_package)
    for name, value in _DEFAULTS.items():
        if not seen(name):
            settings[name] = value
    return settings


def check_delta(setting: Callable[[str], str | None]) -> None:
    """Raise ``InvalidConfigurationError`` unless a running session, which can't be given it any more, has Delta."""
    lacks = [
        f"{name}={wanted}"
        for name, wanted in ((EXTENSIONS, DELTA_EXTENSION), (CATALOG, DELTA_CATALOG))
        if not _has_item(setting(name) or "", wanted)
    ]
    if lacks:
        raise InvalidConfigurationError(
            f"the SparkSession that is running has no Delta: it lacks {', '.join(lacks)}. Stop it and call "
            "sparklog.spark.session(), or start it with these settings and Delta's jars"
        )


def check_s3(settings: Mapping[str, str], *, wanted: bool) -> None:
    """Refuse a session that could lose commits on S3: its own commits there must be conditional.

    Raises:
        UnsafeStoreError: s3a is asked for or configured, but no log store that commits by a conditional PUT.
    """
    uses = sorted(name for name in settings if _S3.match(name))
    uses += [name for name in (PACKAGES, JARS) if _S3_PACKAGE.search(settings.get(name, ""))]
    if not wanted and not uses:
        return
    log_store = settings.get(LOG_STORE)
    if log_store not in _CONDITIONAL_LOG_STORES:
        seen = "s3=True" if wanted else f"{uses[0]} is set"
        raise UnsafeStoreError(
            f"{seen}, but {LOG_STORE} is {log_store or 'not set'}: every log store that Delta brings overwrites what "
            "another client has committed on S3 in the meantime, and acknowledged records are lost. sparklog doesn't "
            'bring a safe one yet. format("sparklog") reads topics on S3 without s3a'
        )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _has_item(text: str, item: str) -> bool:
    return item in _items(text)


def _with_item(text: str, item: str) -> str:
    return ",".join([*_items(text), item])
