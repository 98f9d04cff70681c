"""Schemas as SQL writes them: ``id BIGINT, total DOUBLE, at TIMESTAMP, tags ARRAY<STRING>``."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pyarrow as pa

from sparklog.schemas.canonical import SchemaError, ValueSchema, canonical_schema

__all__ = ["schema_of_ddl"]

_TOKEN = re.compile(r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<sign>[<>(),:]))")
_TYPES: Mapping[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "BYTE": pa.int8(),
    "TINYINT": pa.int8(),
    "SHORT": pa.int16(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "STRING": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "TEXT": pa.string(),
    "BINARY": pa.binary(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_LTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "DECIMAL": pa.decimal128(10, 0),
    "DEC": pa.decimal128(10, 0),
    "NUMERIC": pa.decimal128(10, 0),
}
"""Source: Spark SQL, "Data Types"; without digits a decimal is decimal(10, 0) there."""
_MOST_DEPTH = 64


def schema_of_ddl(text: str) -> ValueSchema:
    """The schema of Spark's DDL. Raises ``SchemaError``, which says where it can't be read."""
    parser = _Parser(text)
    fields = parser.fields(end="", depth=0)
    return canonical_schema(pa.struct(fields))


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._seen = ""
        self._is_name = False
        self._next()

    def fields(self, *, end: str, depth: int) -> list[pa.Field]:
        """Names and types up to ``end``; nothing else may stand there."""
        found: list[pa.Field] = []
        while True:
            name = self._name()
            if self._seen == ":":
                self._next()
            found.append(pa.field(name, self._type(depth + 1)))
            self._skip_attributes()
            if self._seen != ",":
                break
            self._next()
        if self._seen != end:
            raise self._wrong("a comma" if end == "" else f"a comma or {end}")
        return found

    def _type(self, depth: int) -> pa.DataType:
        if depth > _MOST_DEPTH:
            raise SchemaError(f"nested deeper than {_MOST_DEPTH} levels")
        word = self._seen.upper()
        if not self._is_name:
            raise self._wrong("a type")
        if word in ("ARRAY", "STRUCT", "MAP"):
            self._next()
            self._take("<")
            if word == "STRUCT":
                kind: pa.DataType = pa.struct(self.fields(end=">", depth=depth))
            else:
                first = self._type(depth + 1)
                if word == "MAP":
                    self._take(",")
                    kind = pa.map_(first, self._type(depth + 1))
                else:
                    kind = pa.list_(first)
            self._take(">")
            return kind
        if word not in _TYPES:
            raise self._wrong(f"one of {', '.join(_TYPES)}, ARRAY<…>, MAP<…, …>, STRUCT<…>")
        self._next()
        digits = self._digits()
        if digits and word in ("DECIMAL", "DEC", "NUMERIC"):
            try:
                return pa.decimal128(digits[0], digits[1] if len(digits) > 1 else 0)
            except (ValueError, pa.ArrowException) as error:
                raise SchemaError(f"{word}({', '.join(map(str, digits))}): {error}") from error
        return _TYPES[word]

    def _digits(self) -> list[int]:
        found: list[int] = []
        if self._seen != "(":
            return found
        while self._seen in ("(", ","):
            self._next()
            if not self._seen.isdigit():
                raise self._wrong("a number")
            found.append(int(self._seen))
            self._next()
        self._take(")")
        return found

    def _skip_attributes(self) -> None:
        """``NOT NULL`` says nothing here, as every field may be null; nor does a comment."""
        while self._seen.upper() in ("NOT", "NULL", "COMMENT"):
            is_comment = self._seen.upper() == "COMMENT"
            self._next()
            if is_comment:
                self._next()

    def _name(self) -> str:
        if not self._is_name:
            raise self._wrong("a field's name")
        name = self._seen
        self._next()
        return name

    def _take(self, sign: str) -> None:
        if self._seen != sign:
            raise self._wrong(sign)
        self._next()

    def _next(self) -> None:
        rest = self._text[self._at :]
        if not rest.strip():
            self._seen, self._is_name, self._at = "", False, len(self._text)
            return
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise SchemaError(f"a schema in SQL: {rest.strip()[:40]!r} can't be read")
        self._at = match.end()
        quoted = match["quoted"]
        self._is_name = bool(quoted or match["word"])
        self._seen = quoted[1:-1].replace("``", "`") if quoted else match[0].strip()

    def _wrong(self, expected: str) -> SchemaError:
        seen = repr(self._seen) if self._seen else "the end"
        return SchemaError(f"a schema in SQL: got {seen} before character {self._at}, expected {expected}")
