"""Connectors, by which Spark itself reads and writes tables in a cloud: a Hadoop file system, a log store of Delta's.

Pure but for :func:`log_store_jar`, which looks where the jar is.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparklog.errors import InvalidConfigurationError, UnsafeStoreError

__all__ = [
    "DELTA_JAR",
    "HADOOP",
    "JAR",
    "JARS",
    "PACKAGES",
    "Connector",
    "check_log_store",
    "log_store_jar",
    "new_connector_settings",
    "other_log_stores",
    "submit_arguments",
    "unset",
]

HADOOP = "3.5.0"
"""The version that pyspark 4.2.0 brings: a connector must be of the same."""
JAR = "sparklog-delta.jar"
PACKAGES = "spark.jars.packages"
JARS = "spark.jars"

DELTA_JAR = re.compile(r"delta-spark[_-]")
"""Matches where a list of jars or packages names Delta's."""
_EXCLUDES = "spark.jars.excludes"
_HADOOP_SETTING = "spark.hadoop."
_ONE_LOG_STORE = ("spark.delta.logStore.class", "delta.logStore.class")
"""Goes before those by scheme."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """A Hadoop file system and a log store of Delta's, by which Spark reads and writes tables in one cloud's store."""

    option: str
    """The argument of :func:`~sparklog.spark.session.session.session` that asks for it."""
    schemes: tuple[str, ...]
    """Schemes of its URIs; by the first of them Spark reaches sparklog's tables."""
    log_store: str
    """Java class, in the jar of :func:`log_store_jar`."""
    log_store_reason: str
    """Why it must be this one: the end of a sentence."""
    file_systems: tuple[str, ...]
    """Java classes, of which one must be there; that of ``packages`` is the first."""
    packages: tuple[str, ...]
    """Maven coordinates of the file system."""
    excludes: tuple[str, ...]
    jar_pattern: re.Pattern[str]
    """Matches where a session names the file system's jar already."""
    defaults: Mapping[str, str]
    """Hadoop's settings where nobody gives others."""

    @property
    def log_store_settings(self) -> dict[str, str]:
        """Names of Spark's settings for the log store, by scheme."""
        return {scheme: f"spark.delta.logStore.{scheme}.impl" for scheme in self.schemes}


def new_connector_settings(
    connector: Connector, given: Mapping[str, str], present: Callable[[str], str | None], *, jar: Path | None
) -> dict[str, str]:
    """The configuration of a new session with a connector; nothing that is there already is taken away.

    Args:
        given: what the session is built with otherwise.
        present: a setting of the process, as ``spark-submit`` was given it; None for one that isn't set.
        jar: with the log store; None where it and the file system are there.
    """
    settings = dict(given)

    def seen(name: str) -> str:
        return settings.get(name) or present(name) or ""

    def with_items(name: str, *items: str) -> str:
        return ",".join(dict.fromkeys([*filter(None, seen(name).split(",")), *items]))

    if jar is not None:
        if not connector.jar_pattern.search(f"{seen(PACKAGES)},{seen(JARS)}"):
            settings[PACKAGES] = with_items(PACKAGES, *connector.packages)
            settings[_EXCLUDES] = with_items(_EXCLUDES, *connector.excludes)
        settings[JARS] = with_items(JARS, str(jar))
    wanted = connector.log_store_settings.values()
    return settings | {name: connector.log_store for name in wanted if not seen(name)}


def other_log_stores(connector: Connector, settings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Settings that have Delta commit by another log store than the connector's, with what they are."""
    others = [(name, settings[name]) for name in _ONE_LOG_STORE if settings.get(name)]
    for scheme, name in connector.log_store_settings.items():
        found = settings.get(name) or settings.get(name.removeprefix("spark."))
        opens = scheme == connector.schemes[0] or f"{_HADOOP_SETTING}fs.{scheme}.impl" in settings
        if found != connector.log_store and (opens or found):
            others.append((name, found or "not set"))
    return others


def check_log_store(connector: Connector, settings: Mapping[str, str], *, because: str = "") -> None:
    """Refuse a session that would commit by another log store than the connector's.

    Args:
        settings: of the process; nobody can change them later.
        because: what shows that the connector is used; it was asked for where this is empty.
    Raises:
        UnsafeStoreError: says which setting names the other log store.
    """
    others = other_log_stores(connector, settings)
    if others:
        name, found = others[0]
        wanted = connector.log_store_settings[connector.schemes[0]]
        raise UnsafeStoreError(
            f"{because or f'{connector.option}=True'}, but {name} is {found}: {connector.log_store_reason}. Let "
            f"sparklog.spark.session({connector.option}=True) start Spark, or start it with {wanted}="
            f'{connector.log_store} and its jar. format("sparklog") reads and writes topics there without it'
        )


def unset(wanted: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Hadoop's settings without those that ``settings``, which Spark was started with, have already."""
    return {name: value for name, value in wanted.items() if _HADOOP_SETTING + name not in settings}


def log_store_jar() -> Path:
    """The jar with sparklog's log stores: in a wheel, or built in a checkout.

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


def submit_arguments(
    connectors: Sequence[Connector], jar: Path | None, *, delta: str, present: Mapping[str, str] | None = None
) -> str:
    """Arguments of ``spark-submit`` for Delta and connectors, as a shell takes them.

    Args:
        jar: with the log stores, where there are connectors.
        delta: its Maven coordinates.
        present: settings that ``spark-submit`` had; these arguments take the place of those of theirs that are lists.
    """
    given = present or {}

    def joined(name: str, items: Sequence[str]) -> str:
        return ",".join(dict.fromkeys([*filter(None, given.get(name, "").split(",")), *items]))

    is_there = DELTA_JAR.search(f"{given.get(PACKAGES, '')},{given.get(JARS, '')}")
    packages = [package for connector in connectors for package in connector.packages]
    excludes = [excluded for connector in connectors for excluded in connector.excludes]
    arguments = {
        "--packages": joined(PACKAGES, [*([] if is_there else [delta]), *packages]),
        "--exclude-packages": joined(_EXCLUDES, excludes),
        "--jars": joined(JARS, [] if jar is None else [str(jar)]),
    }
    return " ".join(f"{name} {shlex.quote(value)}" for name, value in arguments.items() if value)
