"""The configuration of a Spark session, and which configurations are refused. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from sparklog.errors import InvalidConfigurationError
from sparklog.spark.session.connector import DELTA_JAR, JARS, PACKAGES

__all__ = ["OFFSET_PRUNING", "check_delta", "new_session_settings", "with_offset_pruning"]

CATALOG = "spark.sql.catalog.spark_catalog"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
EXTENSIONS = "spark.sql.extensions"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
OFFSET_PRUNING = "io.sparklog.sql.OffsetPruning"
"""The extension by which queries of offsets read only the files that can hold them; in sparklog's jar."""
FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
_MASTER = "spark.master"

_DEFAULTS = {
    "spark.databricks.delta.snapshotPartitions": "2",  # Delta's 50 are tasks of nothing for logs of this size
    FILTER_PUSHDOWN: "true",  # without it Spark refuses a source that can push filters down
}
_LOCAL_DEFAULTS = {
    # A task takes 128 MiB of files, as which a small one counts 4 MiB by default: far more than it costs to open here.
    # To a cluster it may well be that much, and more tasks share its cores better.
    "spark.sql.files.openCostInBytes": "1048576",
}


def new_session_settings(
    given: Mapping[str, str], present: Callable[[str], str | None], *, delta_package: str | None
) -> dict[str, str]:
    """The configuration of a new session: what was asked for, and what Delta needs where nobody has set it.

    Lists are added to, and nothing that is there already is taken away: a session catalog stays, whichever it is, since
    topics are found by their paths.

    Args:
        given: what the caller asks for.
        present: a setting of the process, as ``spark-submit`` was given it; None for one that isn't set.
        delta_package: Maven coordinates of Delta; None where its jars are there.
    """
    settings = dict(given)

    def seen(name: str) -> str:
        return settings.get(name) or present(name) or ""

    if not _has_item(seen(EXTENSIONS), DELTA_EXTENSION):
        settings[EXTENSIONS] = _with_item(seen(EXTENSIONS), DELTA_EXTENSION)
    if not seen(CATALOG):  # another, as Unity Catalog's or Iceberg's, hands Delta's tables on
        settings[CATALOG] = DELTA_CATALOG
    if delta_package is not None and not DELTA_JAR.search(f"{seen(PACKAGES)},{seen(JARS)}"):
        settings[PACKAGES] = _with_item(seen(PACKAGES), delta_package)
    is_local = (seen(_MASTER) or "local").partition("[")[0] == "local"  # Spark's own default, where nobody submits
    for name, value in {**_DEFAULTS, **(_LOCAL_DEFAULTS if is_local else {})}.items():
        if not seen(name):
            settings[name] = value
    return settings


def with_offset_pruning(
    given: Mapping[str, str], present: Callable[[str], str | None], *, jar: Path | None
) -> dict[str, str]:
    """The configuration of a new session that has Delta, with the rule that prunes by offsets behind Delta's.

    Args:
        given, present: as of :func:`new_session_settings`, after it.
        jar: with the rule; None where Spark was started with it.
    """
    settings = dict(given)

    def with_item_of(name: str, item: str) -> None:
        found = settings.get(name) or present(name) or ""
        if not _has_item(found, item):
            settings[name] = _with_item(found, item)

    with_item_of(EXTENSIONS, OFFSET_PRUNING)
    if jar is not None:
        with_item_of(JARS, str(jar))
    return settings


def check_delta(setting: Callable[[str], str | None]) -> None:
    """Raise ``InvalidConfigurationError`` unless a running session, which can't be given it any more, has Delta.

    Delta's catalog isn't needed: topics are found by their paths, whatever the session's catalog.
    """
    if not _has_item(setting(EXTENSIONS) or "", DELTA_EXTENSION):
        raise InvalidConfigurationError(
            f"the SparkSession that is running has no Delta: it lacks {EXTENSIONS}={DELTA_EXTENSION}. Stop it and call "
            f"sparklog.spark.session(), or start it with this setting, {CATALOG}={DELTA_CATALOG} and Delta's jars"
        )


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _has_item(text: str, item: str) -> bool:
    return item in _items(text)


def _with_item(text: str, item: str) -> str:
    return ",".join([*_items(text), item])
