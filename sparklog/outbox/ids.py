"""The ids of rows: which types of columns a relay can settle rows by, and conditions that match ids byte for byte.

A database compares ids by its own rules: without case, without trailing spaces, by a collation. A row may be deleted
only if its id *is* the one that was sent, so each condition compares twice where the rules may be loose: as the
database does, which an index serves, and byte for byte.
"""

from __future__ import annotations

import decimal
import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql

from sparklog.errors import InvalidArgumentError
from sparklog.outbox.errors import OutboxError

__all__ = ["Id", "IdKind", "Ids", "as_number", "header_of", "ids_of", "is_binary", "raw", "told", "told_some"]

Id = int | str | bytes
"""An id as relays compare it: a text and a number of the same digits are two ids."""

_NUMBERS_OF_SQLITE = ("INT", "BIGINT", "SMALLINT", "TINYINT", "MEDIUMINT", "UNSIGNED", "NUMERIC", "DECIMAL")
"""Beginnings of declared types; all of which aren't known have the affinity NUMERIC there, ``uuid`` among them."""
_EXACT_COLLATIONS = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""Collations of MariaDB and MySQL by which a text equals only itself."""
_SURROGATES = re.compile("[\ud800-\udfff]")
_MOST_DIGITS = 65
"""The most digits of numbers that are compared with a column numeric: as many has MariaDB's DECIMAL."""
_TOLD = 5
"""Ids that an error names, at most."""
_SETTLED = "uuid, integers, numeric, texts, binary(n) and bytea"


class IdKind(Enum):
    """How the values of a column ``id`` are read and compared."""

    INTEGER = auto()
    NUMERIC = auto()
    UUID = auto()
    TEXT = auto()
    BYTES = auto()
    STORED = auto()
    """SQLite: each value has a type of its own, whatever is declared."""


@dataclass(frozen=True, slots=True)
class Ids:
    """The column ``id`` of an outbox table."""

    column: sa.Column[Any]
    kind: IdKind
    dialect: str
    are_numbers: bool
    """Do they grow, as a sequence's do? Then they tell the order of writing."""

    @property
    def read(self) -> Any:
        """The expression to select for an id."""
        if self.dialect == "postgresql" and self.kind in (IdKind.TEXT, IdKind.NUMERIC):
            return sa.cast(self.column, sa.Text)  # char(n) without the spaces that pad it
        return raw(self.column)

    def value(self, found: Any, table: str) -> Id:
        """The id that was selected. Raises ``OutboxError``: none, or a number that isn't exact."""
        if isinstance(found, bytearray | memoryview):
            found = bytes(found)
        if isinstance(found, uuid.UUID | decimal.Decimal):
            return str(found)
        if isinstance(found, int | str | bytes):
            return found
        raise OutboxError(
            f"a row of table {table!r} has the id {found!r} ({found.__class__.__name__}); expected one of {_SETTLED}: "
            "the row "
            "can't be told from others"
        )

    def possible(self, ids: Iterable[Id]) -> list[Id]:
        """The ids that a row of this column may have, of those that another relay has sent; as numbers where the column
        has numbers. A database refuses to compare with others."""
        return list(dict.fromkeys(each for each in map(self._possible, ids) if each is not None))

    def _possible(self, id: Id) -> Id | None:
        if self.kind is IdKind.STORED:
            may_be = isinstance(id, bytes) or (_is_integer(id) if isinstance(id, int) else _is_text(id))
            return id if may_be else None
        if isinstance(id, bytes) or self.kind is IdKind.BYTES:
            return id if isinstance(id, bytes) and self.kind is IdKind.BYTES else None
        try:
            if self.kind is IdKind.INTEGER:
                number = int(id)
                return number if _is_integer(number, is_unsigned=self.dialect in ("mysql", "mariadb")) else None
            if self.kind is IdKind.UUID:
                return str(uuid.UUID(str(id)))
            if self.kind is IdKind.NUMERIC:
                exact = decimal.Decimal(str(id))
                return str(exact) if exact.is_finite() and abs(exact.adjusted()) <= _MOST_DIGITS else None
        except (ValueError, decimal.InvalidOperation):
            return None
        text = str(id)
        return text if _is_text(text) and not ("\0" in text and self.dialect == "postgresql") else None

    def among(self, ids: Sequence[Id], *, are_foreign: bool = False) -> list[Any]:
        """Conditions that hold for rows with one of these ids, and for no other row.

        Args:
            are_foreign: they may be those of another table, and have characters that the column's character set doesn't
                have: then no index serves.
        """
        if self.dialect == "postgresql":
            return self._among_of_postgresql(ids)
        if self.kind is IdKind.STORED:
            return [raw(self.column).collate("BINARY").in_(ids)]
        column = raw(self.column) if self.dialect in ("mysql", "mariadb") else self.column
        if self.kind is IdKind.NUMERIC:
            return [column.in_([decimal.Decimal(str(each)) for each in ids])]
        if (
            self.kind is not IdKind.TEXT
            or column is self.column
            or getattr(self.column.type, "collation", None) in _EXACT_COLLATIONS
        ):
            return [column.in_(ids)]
        exact = sa.cast(sa.cast(self.column, mysql.CHAR(charset="utf8mb4")), mysql.BINARY)
        found = exact.in_([str(each).encode() for each in ids])
        return [found] if are_foreign else [column.in_(ids), found]

    def _among_of_postgresql(self, ids: Sequence[Id]) -> list[Any]:
        """Arrays are one parameter each."""
        if self.kind is IdKind.UUID:
            return [_any(self.column, sa.Uuid(), [uuid.UUID(str(each)) for each in ids])]
        if self.kind is IdKind.NUMERIC:
            numbers = _any(self.column, sa.Numeric(), [decimal.Decimal(str(each)) for each in ids])
            return [numbers, _any(self.read, sa.Text(), ids)]
        if self.kind is IdKind.TEXT:
            return [_any(self.column, sa.Text(), ids), _any(self.read.collate("C"), sa.Text(), ids)]
        return [_any(self.column, sa.BigInteger() if self.kind is IdKind.INTEGER else sa.LargeBinary(), ids)]


def _is_integer(number: int, *, is_unsigned: bool = False) -> bool:
    most = 2**64 if is_unsigned else 2**63
    return -(2**63) <= number < most


def _is_text(text: str) -> bool:
    """Has it bytes in UTF-8?"""
    return _SURROGATES.search(text) is None


def _any(column: Any, of: Any, values: Sequence[Any]) -> Any:
    return column == sa.any_(sa.literal(list(values), postgresql.ARRAY(of)))


def raw(column: Any) -> Any:
    """A column as the driver gives it."""
    return sa.type_coerce(column, sa.types.NullType())


def told(message_id: Id) -> str:
    """The id in messages to people."""
    return message_id.hex() if isinstance(message_id, bytes) else str(message_id)


def told_some(ids: Sequence[Id]) -> str:
    """The first of the ids, and how many there are beyond them."""
    more = f" and {len(ids) - _TOLD} more" if len(ids) > _TOLD else ""
    return f"{', '.join(map(told, ids[:_TOLD]))}{more}"


def header_of(message_id: Id) -> bytes:
    """The header ``id`` of a record: bytes as they are, others as texts."""
    return message_id if isinstance(message_id, bytes) else str(message_id).encode()


def as_number(column: sa.Column[Any]) -> bool:
    """Are the values numbers without fractions, as a sequence gives them?"""
    kind = column.type
    if isinstance(kind, sa.Integer):
        return True
    return isinstance(kind, sa.Numeric) and not isinstance(kind, sa.Float) and not kind.scale


def ids_of(column: sa.Column[Any], dialect: str, table: str, *, declared: str = "") -> Ids:
    """How the ids of a table are compared.

    Args:
        declared: SQLite's type of the column, as it stands in the table's statement, in capitals.
    Raises:
        InvalidArgumentError: by this type a row can't be told from all others; names it.
    """
    kind = _kind(column.type, dialect)
    if kind is None:
        seen = "a type that isn't known" if isinstance(column.type, sa.types.NullType) else f"the type {column.type!r}"
        raise InvalidArgumentError(
            f"table {table!r}: the column id has {seen}, by which a relay can't tell the rows that it has sent from "
            f"others; expected one of {_SETTLED}"
        )
    are_numbers = as_number(column) if dialect != "sqlite" else declared.startswith(_NUMBERS_OF_SQLITE)
    return Ids(column, kind, dialect, are_numbers)


def _kind(declared: Any, dialect: str) -> IdKind | None:
    if dialect == "sqlite":
        return None if isinstance(declared, sa.Float | sa.Boolean) else IdKind.STORED
    declared = _base(declared)
    if isinstance(declared, sa.Enum | sa.Float | mysql.SET | mysql.BIT):
        return None
    kinds = (
        (sa.Integer, IdKind.INTEGER),
        (sa.Numeric, IdKind.NUMERIC),
        (sa.Uuid, IdKind.UUID),
        (sa.String, IdKind.TEXT),
    )
    found = next((kind for each, kind in kinds if isinstance(declared, each)), None)
    return IdKind.BYTES if found is None and is_binary(declared) else found


def _base(declared: Any) -> Any:
    return declared.data_type if isinstance(declared, postgresql.DOMAIN) else declared


def is_binary(declared: Any) -> bool:
    """Are the values of this type bytes?"""
    try:
        return bool(_base(declared).python_type is bytes)
    except NotImplementedError:
        return False
