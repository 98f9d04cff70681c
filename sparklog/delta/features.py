"""Delta's table features: which of them sparklog reads and writes, and the way back from each other one.

A writer feature is accepted where it asks nothing of what sparklog writes, or where sparklog does what it asks; some of
them ask something only once the table's metadata makes use of them. Source: Delta protocol, "Table Features",
"Additional Requirements for Writers"; its proposal "Checkpoint Protection". docs/decisions/0091.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sparklog.delta.actions import Metadata, Protocol
from sparklog.errors import UnsupportedVersionError

__all__ = [
    "CHECKPOINT_PROTECTION",
    "READER_VERSION",
    "WRITER_VERSION",
    "WriteDemands",
    "check_metadata",
    "check_protocol",
]

READER_VERSION = 1
WRITER_VERSION = 2
"""The versions that tables of ours ask for."""
_KNOWN_WRITER = 6
"""Beside reader version 1, which leaves column mapping out, it asks for some of :data:`_WRITER_FEATURES`."""
_LISTING_READER, _LISTING_WRITER = 3, 7
"""Versions that ask for nothing but the features they list. Source: Delta protocol, "Table Features"."""
CHECKPOINT_PROTECTION = "checkpointProtection"
_READER_FEATURES = frozenset({"vacuumProtocolCheck"})
_WRITER_FEATURES = _READER_FEATURES | {
    "allowColumnDefaults",
    "appendOnly",
    "changeDataFeed",
    "checkConstraints",
    CHECKPOINT_PROTECTION,
    "domainMetadata",
    "generatedColumns",
    "identityColumns",
    "inCommitTimestamp",
    "invariants",
}
_CONSTRAINT = "delta.constraints."
_COLUMN_DEMANDS: Mapping[str, tuple[str, str]] = {
    "delta.invariants": ("an invariant", "invariants"),
    "delta.generationExpression": ("an expression that generates it", "generatedColumns"),
    "delta.identity.start": ("generated numbers", "identityColumns"),
    "CURRENT_DEFAULT": ("a default", "allowColumnDefaults"),
}
"""By key of a column's metadata: a name for it, and the feature."""
_OLD_VERSIONS: Mapping[tuple[str, int], Sequence[str]] = {("reader", 2): ("columnMapping",)}
"""The features of versions that list none, as far as sparklog doesn't know them."""
_UNSET: Mapping[str, str] = {
    "columnMapping": "'delta.columnMapping.mode' = 'none'",
    "deletionVectors": "'delta.enableDeletionVectors' = 'false'",
    "inCommitTimestamp": "'delta.enableInCommitTimestamps' = 'false'",
    "rowTracking": "'delta.enableRowTracking' = 'false'",
    "typeWidening": "'delta.enableTypeWidening' = 'false'",
    "v2Checkpoint": "'delta.checkpointPolicy' = 'classic'",
}
"""By feature: the property that ends its use, before it can be dropped."""
_DROPPED = frozenset({*_UNSET, "materializePartitionColumns"})
"""Features that Delta 4.4 drops."""
_RESTORE = (
    "SET spark.databricks.delta.restore.protocolDowngradeAllowed = true; RESTORE TABLE … TO VERSION AS OF the version "
    "before, if no record was written since"
)
_PAGE = 'docs/operations.md, "Table features"'


def check_protocol(table: str, protocol: Protocol, *, write: bool, without: Collection[str] = ()) -> None:
    """May we read (and write) a table of this protocol? Of the versions that we know, and of those that ask for nothing
    but the features they list, where we know these. What its metadata makes of the features, :func:`check_metadata`
    says.

    Args:
        without: features that the caller doesn't take part in.
    Raises:
        UnsupportedVersionError: names the features that the table requires, and the way back.
    """
    reader = (protocol.min_reader_version, READER_VERSION, _LISTING_READER, protocol.reader_features)
    _check_version(table, "reader", *reader, _READER_FEATURES)
    if write:
        writer = (protocol.min_writer_version, _KNOWN_WRITER, _LISTING_WRITER, protocol.writer_features)
        _check_version(table, "writer", *writer, _WRITER_FEATURES.difference(without))


def _check_version(
    table: str, kind: str, needed: int, known: int, listing: int, listed: Sequence[str] | None, features: frozenset[str]
) -> None:
    if needed <= known or (needed == listing and listed is not None and features.issuperset(listed)):
        return
    unknown = sorted(set(listed or ()) - features) or _OLD_VERSIONS.get((kind, needed), ())
    named = f" (feature{'s' * (len(unknown) > 1)} {', '.join(unknown)})" if unknown else ""
    raise UnsupportedVersionError(
        f"{table} needs Delta {kind} version {needed}{named}; sparklog knows {kind} version {known}, and of the "
        f"features {', '.join(sorted(features))}. {_until(way_back(unknown), reads=kind == 'writer')}"
    )


def way_back(features: Sequence[str]) -> str:
    """The statements by which features leave a table's protocol."""
    if not features or not _DROPPED.issuperset(features):
        return _RESTORE
    unset = [f"SET TBLPROPERTIES ({_UNSET[name]})" for name in features if name in _UNSET]
    return "; ".join(f"ALTER TABLE … {each}" for each in (*unset, *(f"DROP FEATURE {name}" for name in features)))


def _until(statements: str, *, reads: bool) -> str:
    told = "read, but not written to" if reads else "neither read nor written to"
    return f"Until that is taken back, it is {told}: {statements} ({_PAGE})"


def check_metadata(table: str, metadata: Metadata) -> None:
    """May we write to a table of this metadata? Not where it makes use of a feature in a way that asks a writer for
    what sparklog doesn't do: to evaluate expressions, to generate values, to state a time in each commit.

    Raises:
        UnsupportedVersionError: names the property or the column, the feature, and the way back.
    """
    found = next(_demands(metadata), None)
    if found is not None:
        demand, statement = found
        raise UnsupportedVersionError(
            f"{table} {demand}, which sparklog doesn't support. {_until(statement, reads=True)}"
        )


def _demands(metadata: Metadata) -> Iterator[tuple[str, str]]:
    """The demands on writers that sparklog doesn't meet: a predicate of which the table is the subject, and the way
    back."""
    properties = metadata.configuration
    for name, value in properties.items():
        if name.lower().startswith(_CONSTRAINT):
            constraint = name[len(_CONSTRAINT) :]
            demand = f"has the constraint {constraint}, {value} (feature checkConstraints)"
            yield demand, f"ALTER TABLE … DROP CONSTRAINT {constraint}"
    if properties.get("delta.enableInCommitTimestamps", "").strip().lower() == "true":
        demand = "has the property delta.enableInCommitTimestamps=true (feature inCommitTimestamp)"
        yield demand, f"ALTER TABLE … SET TBLPROPERTIES ({_UNSET['inCommitTimestamp']})"
    mode = properties.get("delta.columnMapping.mode", "none")
    if mode.strip().lower() != "none":
        demand = f"has the property delta.columnMapping.mode={mode} (feature columnMapping)"
        yield demand, f"ALTER TABLE … SET TBLPROPERTIES ({_UNSET['columnMapping']})"
    if any(key in metadata.schema_string for key in (*_COLUMN_DEMANDS, "false")):
        yield from _column_demands(metadata.schema_string)


def _column_demands(schema_string: str) -> Iterator[tuple[str, str]]:
    try:
        schema = json.loads(schema_string)
    except ValueError:  # reported by whoever reads the columns
        return
    for field in _fields(schema):
        name, described = field.get("name"), field.get("metadata")
        for key in _COLUMN_DEMANDS.keys() & (described if isinstance(described, dict) else {}).keys():
            has, feature = _COLUMN_DEMANDS[key]
            ends = f"ALTER TABLE … ALTER COLUMN {name} DROP DEFAULT" if feature == "allowColumnDefaults" else _RESTORE
            yield f"has a column {name} with {has} (feature {feature})", ends
    columns = schema.get("fields") if isinstance(schema, dict) else None
    for column in columns if isinstance(columns, list) else ():
        if isinstance(column, dict) and column.get("nullable") is False:
            name = column.get("name")
            ends = f"ALTER TABLE … ALTER COLUMN {name} DROP NOT NULL"
            yield f"has a column {name} that is NOT NULL (feature invariants)", ends


def _fields(schema: Any) -> Iterator[dict[str, Any]]:
    """Every field of a schema, those within others too. Source: Delta protocol, "Schema Serialization Format"."""
    waiting = [schema]
    while waiting:
        found = waiting.pop()
        if not isinstance(found, dict):
            continue
        if "name" in found and "type" in found:
            yield found
        fields = found.get("fields")
        waiting += fields if isinstance(fields, list) else []
        waiting += [found.get(name) for name in ("type", "elementType", "keyType", "valueType")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDemands:
    """Why nobody of ours may write to a table, as far as its protocol and its metadata are known.

    The two change apart from each other, and a process that opened the table by its newest entry knows neither: whoever
    wrote that entry did.
    """

    by_protocol: UnsupportedVersionError | None = None
    by_metadata: UnsupportedVersionError | None = None

    def after(self, table: str, action: Protocol | Metadata, *, without: Collection[str] = ()) -> WriteDemands:
        """The demands after another action of the table's log.

        Args:
            without: see :func:`check_protocol`.
        """
        if isinstance(action, Protocol):
            return replace(self, by_protocol=_error(lambda: check_protocol(table, action, write=True, without=without)))
        return replace(self, by_metadata=_error(lambda: check_metadata(table, action)))

    @property
    def error(self) -> UnsupportedVersionError | None:
        """Why not to write; None: we may."""
        return self.by_protocol or self.by_metadata


def _error(check: Callable[[], None]) -> UnsupportedVersionError | None:
    try:
        check()
    except UnsupportedVersionError as error:
        return error
    return None
