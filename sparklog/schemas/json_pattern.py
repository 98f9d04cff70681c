"""The JSON texts that Arrow's reader takes as values of a schema, as a regular expression: one pass finds the few among
many that must be read alone. Schemas aren't recursive, so that their JSON is a regular language.

It may be wrong either way, which costs time alone: who reads by columns finds out. It is too strict about what few
write, such as numbers of more than 60 digits, and too lax where a field is there twice, or where a comma and a brace
are mixed up.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.schemas.canonical import TIMESTAMP, ValueSchema

__all__ = ["look_readable"]

_MOST_CHARACTERS = 60_000
"""The length of an expression at most: that of some 200 fields. A pass by a larger one takes longer than it saves."""
_BLANKS = r"[ \t\n\r]*"
_CHARACTER = (  # of JSON's texts, in UTF-8
    r"[\x20\x21\x23-\x5b\x5d-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf][\x80-\xbf]"
    r"|[\xf1-\xf3][\x80-\xbf][\x80-\xbf][\x80-\xbf]|\xf4[\x80-\x8f][\x80-\xbf][\x80-\xbf]"
)
_HEX = "[0-9a-fA-F]"
_UNIT = (  # of UTF-16, behind \u: no surrogate, or two that are a pair
    rf"[0-9a-cefA-CEF]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}}|[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}}"
)
_TEXT = rf'"(?:{_CHARACTER}|\\(?:["\\/bfnrt]|u(?:{_UNIT})))*"'
_DATE = (
    r"(?:[1-9]\d\d\d-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    r"|[1-9]\d(?:0[48]|[2468][048]|[13579][26])-02-29)"
)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?(?:Z|[+-](?:0\d|1\d|2[0-3]):[0-5]\d)"
_DOUBLE = r"-?(?:0|[1-9]\d{0,60})(?:\.\d{1,60})?(?:[eE](?:-\d{1,3}|\+?[12]?\d?\d))?"
_FLOAT = r"-?(?:0|[1-9]\d{0,20})(?:\.\d{1,60})?(?:[eE](?:-\d\d?|\+?(?:0?\d|1[0-6])))?"
_SIMPLE = {
    pa.bool_(): "true|false",
    pa.float32(): _FLOAT,
    pa.float64(): _DOUBLE,
    pa.string(): _TEXT,
    pa.date32(): f'"{_DATE}"',
    TIMESTAMP: f'"{_DATE}[T ]{_TIME}"',
}


def look_readable(schema: ValueSchema, values: pa.Array) -> pa.Array | None:
    """Does Arrow's reader most likely take each of many values? A boolean for each; None: the schema is too large.

    Args:
        values: binary without nulls.
    """
    pattern = _pattern(schema)
    return None if pattern is None else pc.match_substring_regex(values, pattern)


@lru_cache(maxsize=64)
def _pattern(schema: ValueSchema) -> str | None:
    found = rf"\A{_BLANKS}{_value(schema.struct_type)}{_BLANKS}\z"
    return found if len(found) <= _MOST_CHARACTERS else None


def _value(kind: pa.DataType) -> str:
    """The expression of a value of a type that isn't null."""
    if pa.types.is_struct(kind):
        fields = "|".join(
            rf'{re.escape(field.name)}"{_BLANKS}:{_BLANKS}(?:null|{_value(field.type)})' for field in kind
        )
        return _several("{", rf'"(?:{fields})', "}")
    if pa.types.is_list(kind):
        return _several("[", f"(?:null|{_value(kind.value_type)})", "]")
    if pa.types.is_integer(kind):
        most = 2 ** (kind.bit_width - 1) - 1
        return f"(?:-?{_up_to(most)}|-{most + 1})"
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision - kind.scale, kind.scale)
    return f"(?:{_SIMPLE[kind]})"


def _several(start: str, one: str, end: str) -> str:
    """Any number of parts with commas between them. What opens them may stand for a comma, and the other way round:
    else the expression of a part would be there twice, and that of a part of it four times."""
    return rf"(?:\{start}{_BLANKS}\{end}|(?:[\{start},]{_BLANKS}{one}{_BLANKS})+\{end})"


def _up_to(most: int) -> str:
    """The integers from 0 to another one of two digits or more."""
    digits = str(most)
    found = ["0", rf"[1-9]\d{{0,{len(digits) - 2}}}"]
    for place, digit in enumerate(digits):
        low = 1 if place == 0 else 0
        if int(digit) > low:
            found.append(rf"{digits[:place]}[{low}-{int(digit) - 1}]\d{{{len(digits) - place - 1}}}")
    return f"(?:{'|'.join([*found, digits])})"


def _decimal(before: int, after: int) -> str:
    """A number, or a text of one, with so many digits at most before and after its point."""
    whole = rf"(?:0|[1-9]\d{{0,{before - 1}}})" if before else "0"
    number = rf"-?{whole}(?:\.\d{{1,{after}}})?" if after else f"-?{whole}"
    return f'(?:"{number}"|{number})'
