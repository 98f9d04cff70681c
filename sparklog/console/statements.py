"""From the fields of a form to a search in a topic, and to the SQL that finds the same. Pure.

Nothing that was given becomes SQL but as a literal or a quoted name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pyarrow as pa

from sparklog.console.masked_columns import SeenColumns
from sparklog.console.masks import NO_MASKS, Masks
from sparklog.console.wire_formats import NamedSchema
from sparklog.errors import InvalidArgumentError
from sparklog.iso_times import parse_time
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.data.murmur2 import key_partitions
from sparklog.log.data.value_columns import view_columns
from sparklog.sql.dataset import TOPIC_COLUMNS
from sparklog.sql.duck import quoted_name
from sparklog.sql.names import parse_versions
from sparklog.sql.search import FieldCondition, Search

__all__ = [
    "COMPARISONS",
    "MODES",
    "TopicShape",
    "Wanted",
    "blob_literal",
    "parse_time_ms",
    "text_literal",
    "version_of",
    "versions_of",
    "wanted",
]

MODES = ("newest", "oldest", "offset", "time", "key", "header", "field", "text")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=", "contains")
_SEARCHES = frozenset({"newest", "key", "header", "field", "text"})
_ROWS = 'partition, "offset", timestamp, key, value, headers'
_SAFE = frozenset(range(32, 127)) - {ord("'"), ord("\\")}
_MOST_RECORDS = 500
_MOST_CELL_BYTES = 2**20
_MOST_ANSWER_BYTES = 32 * 2**20
"""Keys and values of all records of an answer: each is cut to its part of these."""
_DIGITS = re.compile(r"-?\d{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicShape:
    """The parts of a topic that a search depends on."""

    name: str
    partition_count: int
    values: pa.StructType | None = None
    """The fields of a typed topic's values; None for an untyped one."""
    masks: Masks = NO_MASKS
    """Fields that may neither be shown nor be compared."""
    named_schema: NamedSchema | None = None
    """The schema of an untyped topic's values that somebody has named: they are shown by it, not looked for."""

    def seen(self, *compared: str) -> SeenColumns | None:
        """The part that a search may see that compares these columns; None: all."""
        return SeenColumns(self.masks, frozenset(compared)) if self.masks else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A search, and the SQL that finds the same."""

    search: Search
    statement: str


def wanted(given: Mapping[str, str], shape: TopicShape) -> Wanted:
    """The search that the fields of a form ask for.

    Fields: ``mode`` (one of :data:`MODES`), ``partition``, ``limit`` (1 to 500), ``since`` and ``until`` (a time, or
    milliseconds since the epoch); ``offset``; ``key``, ``key_format`` (``text`` or ``hex``) and ``home`` (only the
    partition in which the default partitioner puts the key); ``header`` and ``header_value``; ``field``, ``comparison``
    and ``value``; ``text``. Empty is as if it weren't there.

    Raises:
        InvalidArgumentError: names the field, what was seen and what was expected.
    """
    mode = given.get("mode") or "newest"
    if mode not in MODES:
        raise InvalidArgumentError(f"mode: got {mode!r}, expected one of {', '.join(MODES)}")
    partition = _whole(given, "partition", 0, shape.partition_count - 1)
    limit = _whole(given, "limit", 1, _MOST_RECORDS)
    since_ms, until_ms = (parse_time_ms(given.get(name, ""), name) for name in ("since", "until"))
    key, where, condition, compared = _looked_for(mode, given, shape)
    offset = None
    if mode == "offset":
        offset = _whole(given, "offset", 0, 2**63 - 1) or 0
        partition = partition or 0
    if mode == "time" and since_ms is None:
        raise InvalidArgumentError("since: expected a time, such as 2026-01-31T12:00Z")
    if mode == "key" and given.get("home"):
        partition = int(key_partitions(pa.array([_key(given)], pa.binary()), shape.partition_count)[0])
    search = Search(
        partitions=None if partition is None else frozenset([partition]),
        first_offset=offset,
        since_ms=since_ms,
        until_ms=until_ms,
        key=key,
        field=condition,
        where=where,
        seen=shape.seen(compared),
        newest_first=mode in _SEARCHES,
        limit=limit or 50,
        most_bytes=min(_MOST_CELL_BYTES, _MOST_ANSWER_BYTES // (limit or 50)),
    )
    return Wanted(search=search, statement=_statement(search, shape))


def version_of(given: Mapping[str, str]) -> int | None:
    """The older version of a topic that the field ``version`` names; None where it is empty. Raises
    ``InvalidArgumentError``."""
    return _whole(given, "version", 0, 10**18)


def versions_of(given: Mapping[str, str]) -> dict[str, int]:
    """The older versions that the field ``versions`` names, such as ``orders=41, bills=7``. Raises
    ``InvalidArgumentError``."""
    return parse_versions(text for text in given.get("versions", "").split(",") if text.strip())


def parse_time_ms(text: str, name: str) -> int | None:
    """A time in ISO 8601 (UTC unless it says otherwise) or milliseconds since the epoch; None for an empty text.

    Raises ``InvalidArgumentError``.
    """
    text = text.strip()
    if not text:
        return None
    try:
        if _DIGITS.fullmatch(text) and len(text) > 4 and abs(int(text)) <= MAX_TIMESTAMP_MS:
            return int(text)
        moment = parse_time(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise InvalidArgumentError(f"{name}: got {text!r}, expected a time, such as 2026-01-31T12:00Z") from None


def text_literal(text: str) -> str:
    """A text as SQL writes it, whatever stands in it."""
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return f"decode({blob_literal(text.encode(errors='replace'))})"


def blob_literal(data: bytes) -> str:
    r"""Bytes as DuckDB writes them: ``'user-1\xFF'::blob``."""
    return "'" + "".join(chr(byte) if byte in _SAFE else f"\\x{byte:02X}" for byte in data) + "'::blob"


def _looked_for(
    mode: str, given: Mapping[str, str], shape: TopicShape
) -> tuple[bytes | None, str, FieldCondition | None, str]:
    """The key, the condition in SQL, and the condition on a typed field, each None or empty where it isn't meant; and
    the column that they compare."""
    if mode == "key":
        _refuse_masked("key", shape)
        key = _key(given)
        return (None, _key_condition(key), None, "key") if shape.masks else (key, "", None, "key")
    if mode == "header":
        return None, _header_condition(given, shape), None, "headers"
    if mode == "field":
        return (None, *_field_condition(given, shape))
    if mode == "text":
        text = _needed(given, "text")
        return None, f"contains(try(decode(value)), {text_literal(text)})", None, "value"
    return None, "", None, ""


def _key_condition(key: bytes) -> str:
    return f"key = {blob_literal(key)}"


def _key(given: Mapping[str, str]) -> bytes:
    text = given.get("key", "")
    if given.get("key_format") != "hex":
        return text.encode(errors="replace")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidArgumentError(f"key: got {text!r}, expected hexadecimal digits") from None


def _header_condition(given: Mapping[str, str], shape: TopicShape) -> str:
    name = _needed(given, "header")
    _refuse_masked(name, shape)
    condition = f"h.key = {text_literal(name)}"
    if given.get("header_value"):
        condition += f" and h.value = {blob_literal(given['header_value'].encode(errors='replace'))}"
    return f"len(list_filter(headers, lambda h: {condition})) > 0"


def _field_condition(given: Mapping[str, str], shape: TopicShape) -> tuple[str, FieldCondition | None, str]:
    path = tuple(part for part in _needed(given, "field").split(".") if part)
    for part in path:
        _refuse_masked(part, shape)
    comparison, text = given.get("comparison") or "=", given.get("value", "")
    if comparison not in COMPARISONS or not path:
        raise InvalidArgumentError(f"comparison: got {comparison!r}, expected one of {', '.join(COMPARISONS)}")
    if shape.values is not None:
        condition = FieldCondition(leaf=path, comparison=comparison, text=text)
        return _typed_condition(condition, shape.values, in_sql=bool(shape.masks))
    if any('"' in part or "\\" in part for part in path):
        raise InvalidArgumentError("field: got a name with a quote or a backslash, which can't be searched")
    steps = "".join(f'."{part}"' for part in path)
    found = f"json_extract_string(try_cast(try(decode(value)) as json), {text_literal('$' + steps)})"
    if comparison == "contains":
        return f"contains({found}, {text_literal(text)})", None, "value"
    number = _as_number(text)
    if number is not None and comparison not in ("=", "!="):
        return f"try_cast({found} as double) {comparison} {number!r}", None, "value"
    return f"{found} {comparison} {text_literal(text)}", None, "value"


def _typed_condition(
    wanted: FieldCondition, values: pa.StructType, *, in_sql: bool
) -> tuple[str, FieldCondition | None, str]:
    """A condition on a field of typed values, by Arrow where it can be, and may be."""
    if wanted.comparison != "contains" and not in_sql:
        return "", wanted, ""
    _check_field(wanted.leaf, values)
    names = view_columns([one.name for one in values], TOPIC_COLUMNS)
    column, text = _column(wanted.leaf, values), text_literal(wanted.text)
    condition = f"{column} {wanted.comparison} {text}"
    if wanted.comparison == "contains":
        condition = f"contains(cast({column} as varchar), {text})"
    return condition, None, names.get(wanted.leaf[0], wanted.leaf[0])


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def _check_field(path: tuple[str, ...], values: pa.StructType) -> None:
    kind: Any = values
    for part in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            raise InvalidArgumentError(f"the topic's values have no field {'.'.join(path)!r}")
        kind = kind.field(part).type


def _column(path: tuple[str, ...], values: pa.StructType) -> str:
    """A field of typed values, as the topic's view has it."""
    names = view_columns([one.name for one in values], TOPIC_COLUMNS)
    return ".".join(quoted_name(part) for part in (names.get(path[0], path[0]), *path[1:]))


def _statement(search: Search, shape: TopicShape) -> str:
    conditions = []
    if search.partitions is not None:
        conditions.append(f"partition = {min(search.partitions)}")
    if search.first_offset is not None:
        conditions.append(f'"offset" >= {search.first_offset}')
    for comparison, time_ms in ((">=", search.since_ms), ("<", search.until_ms)):
        if time_ms is not None:
            conditions.append(f"timestamp {comparison} epoch_ms({time_ms})::timestamptz")
    if search.key is not None:
        conditions.append(_key_condition(search.key))
    if search.field is not None and shape.values is not None:
        column = _column(search.field.leaf, shape.values)
        conditions.append(f"{column} {search.field.comparison} {text_literal(search.field.text)}")
    if search.where:
        conditions.append(search.where)
    order = '"offset"' if search.first_offset is not None else "timestamp" + (" desc" if search.newest_first else "")
    columns = _ROWS if shape.values is None else "*"
    where = "\nwhere " + "\n  and ".join(conditions)
    return (
        f"select {columns}\nfrom {quoted_name(shape.name)}{where if conditions else ''}\n"
        f"order by {order}\nlimit {search.limit}"
    )


def _refuse_masked(name: str, shape: TopicShape) -> None:
    if shape.masks.hides(name):
        raise InvalidArgumentError(f"{name} is masked, and can't be searched")


def _needed(given: Mapping[str, str], name: str) -> str:
    text = given.get(name, "")
    if not text:
        raise InvalidArgumentError(f"{name}: got nothing, expected a text to search for")
    return text


def _whole(given: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    text = given.get(name, "").strip()
    if not text:
        return None
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None
    if number is None or not least <= number <= most:
        raise InvalidArgumentError(f"{name}: got {text!r}, expected {least} to {most}")
    return number
