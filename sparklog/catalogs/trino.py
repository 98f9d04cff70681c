"""A schema of a Delta catalog of Trino's, by its client. Alone imports trino."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sparklog.catalogs.content import Dialect
from sparklog.catalogs.entries import Entry, Found, Kind
from sparklog.errors import InvalidConfigurationError, StoreError
from sparklog.log.cluster import Cluster

__all__ = ["TrinoCatalog", "trino_connection"]

_LOCATION = re.compile(r"location\s*=\s*'((?:[^']|'')*)'")


def trino_connection(**options: Any) -> Any:
    """A connection of ``trino.dbapi``: ``host``, ``port``, ``user``, ….

    Raises ``InvalidConfigurationError``: Trino's client isn't installed, or knows no such option.
    """
    try:
        from trino.dbapi import connect
    except ImportError as error:
        raise InvalidConfigurationError("Trino needs its client: pip install 'sparklog[trino]'") from error
    try:
        return connect(**options)
    except (TypeError, ValueError) as error:
        raise InvalidConfigurationError(f"Trino's client: {error}") from error


class TrinoCatalog:
    """A schema of a catalog with the connector ``delta_lake``, which must be there, and allow
    ``delta.register-table-procedure.enabled``.

    Trino keeps no properties of tables apart from Delta's log, so what is ours is written into the comments of views.
    """

    def __init__(self, connection: Any, catalog: str, schema: str, *, location: str | None = None) -> None:
        """
        Args:
            connection: of ``trino.dbapi``, or what has its ``cursor``.
            location: the cluster's root as Trino knows it; None: the URI by which it was opened.
        """
        self._connection = connection
        self._catalog, self._schema = catalog, schema
        self._location = location
        self._errors = _errors()
        self.dialect: Dialect = Dialect(
            quote='"',
            schema=f"{_quoted(catalog)}.{_quoted(schema)}",
            timestamp_type="timestamp_type",
            escapes=False,
        )

    def location(self, cluster: Cluster) -> str:
        return self._location or cluster.store.uri

    def found(self) -> dict[str, Found]:
        of_schema = f"table_schema = {_literal(self._schema)}"
        kinds = self._run(
            f"SELECT table_name, table_type FROM {_quoted(self._catalog)}.information_schema.tables WHERE {of_schema}"  # noqa: S608
        )
        rows = self._run(
            "SELECT table_name, comment FROM system.metadata.table_comments WHERE catalog_name = "  # noqa: S608
            f"{_literal(self._catalog)} AND schema_name = {_literal(self._schema)}"
        )
        comments: dict[str, str | None] = {row[0]: row[1] for row in rows}
        return {
            name: Found(name=name, kind=Kind.VIEW, properties=_properties(comments.get(name)))
            if kind == "VIEW"
            else Found(name=name, kind=Kind.TABLE, location=self._location_of(name))
            for name, kind in kinds
        }

    def create(self, entry: Entry, properties: Mapping[str, str]) -> None:
        if entry.kind is Kind.VIEW:
            comment = _literal(json.dumps(dict(properties), sort_keys=True))
            self._run(f"CREATE VIEW {self.dialect.table(entry.name)} COMMENT {comment} AS {entry.text}")
            return
        self._run(
            f"CALL {_quoted(self._catalog)}.system.register_table(schema_name => {_literal(self._schema)}, "
            f"table_name => {_literal(entry.name)}, table_location => {_literal(entry.location)})"
        )

    def replace(self, entry: Entry, there: Found, properties: Mapping[str, str]) -> None:
        self.drop(there)
        self.create(entry, properties)

    def drop(self, there: Found) -> None:
        if there.kind is Kind.VIEW:
            self._run(f"DROP VIEW {self.dialect.table(there.name)}")
            return
        self._run(  # DROP TABLE deletes the files of a table that Trino takes for its own
            f"CALL {_quoted(self._catalog)}.system.unregister_table(schema_name => {_literal(self._schema)}, "
            f"table_name => {_literal(there.name)})"
        )

    def _location_of(self, name: str) -> str:
        [[text]] = self._run(f"SHOW CREATE TABLE {self.dialect.table(name)}")
        location = _LOCATION.search(text)
        return "" if location is None else location[1].replace("''", "'")

    def _run(self, statement: str) -> Sequence[Sequence[Any]]:
        try:
            cursor = self._connection.cursor()
            cursor.execute(statement)
            rows: Sequence[Sequence[Any]] = cursor.fetchall()
        except self._errors as error:
            raise StoreError(f"Trino refused {statement[:200]}: {error}") from error
        return rows


def _errors() -> tuple[type[Exception], ...]:
    """The errors of Trino's client, where it is installed."""
    try:
        from trino.exceptions import Error, HttpError
    except ImportError:  # whoever brings a connection of another kind has its errors
        return ()
    return (Error, HttpError)


def _properties(comment: str | None) -> dict[str, str]:
    """The properties in a view's comment; none where another has written it."""
    try:
        found = json.loads(comment or "{}")
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
