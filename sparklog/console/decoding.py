"""Keys and values as people read them, and what is never shown. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sparklog.console.masks import HIDDEN, NO_MASKS, Masks, Unmasked
from sparklog.console.wire_formats import NamedSchema, frame_id, protobuf_fields, within_frame
from sparklog.errors import InvalidArgumentError
from sparklog.sql.search import FoundRecord
from sparklog.texts import as_json, utf8_text, with_text

__all__ = ["DECODINGS", "Shown", "plain_record", "shown", "shown_record"]

DECODINGS = ("auto", "json", "protobuf", "text", "hex")
_HEX_ROW = 16
_MOST_HEX_BYTES = 4_096
_HEX_IN_A_LINE = 48
_MOST_DEPTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A key or value as text."""

    kind: str
    """``null``, ``json``, ``avro``, ``protobuf``, ``text``, ``hex``, ``typed`` or ``hidden``."""
    text: str
    size: int
    """Bytes; -1 where that isn't known."""
    is_cut: bool = False
    """Is there more?"""
    note: str = ""
    """A remark on further contents of the bytes, such as the schema's id in Confluent's framing."""


def shown(
    data: Any,
    *,
    size: int,
    how: str = "auto",
    name: str = "",
    masks: Masks = NO_MASKS,
    pretty: bool = False,
    schema: NamedSchema | None = None,
) -> Shown:
    """A key, a value or the value of a header as text.

    Args:
        data: bytes, perhaps cut; a dict of a typed topic; None.
        size: of the whole, in bytes; -1 for a dict.
        how: one of :data:`DECODINGS`; what can't be read so is shown in hexadecimal digits.
        name: of the header, or ``key``; empty for a value.
        masks: what they hide; bytes of which nobody knows the fields, and bytes that were cut, are hidden whole.
        pretty: whether it is spread over several lines, as on a page of its own.
        schema: of the bytes, if one was named.
    """
    if how not in DECODINGS:
        raise InvalidArgumentError(f"decode={how}: expected one of {', '.join(DECODINGS)}")
    if masks.hides(name):
        return Shown(kind="hidden", text=HIDDEN, size=-1)
    if data is None:
        return Shown(kind="null", text="null", size=-1)
    if not isinstance(data, bytes):
        content = masks.of_value(data) if masks else data
        return Shown(kind="typed", text=_json_text(content, pretty=pretty), size=-1)
    is_cut = size > len(data)
    if masks:
        found = None if is_cut else masks.of_bytes(name, data, schema=schema if how == "auto" else None)
        if isinstance(found, Unmasked) and how in ("auto", "json"):
            note = _frame_note(data) if found.is_framed else ""
            return Shown(kind=found.format, text=_json_text(found.value, pretty=pretty), size=size, note=note)
        if not isinstance(found, bytes):
            return Shown(kind="hidden", text="hidden: fields are masked, and nobody knows which it has", size=size)
        schema = None
    value = None if is_cut else _structured(data, how, schema)
    if value is not None:
        kind, content, note = value
        return Shown(kind=kind, text=_json_text(content, pretty=pretty), size=size, note=note)
    text = _text_of(data, is_cut=is_cut)
    if how in ("auto", "text") and text is not None and (how == "text" or _is_printable(text)):
        return Shown(kind="text", text=text, size=size, is_cut=is_cut)
    most = _MOST_HEX_BYTES if pretty else _HEX_IN_A_LINE
    hexadecimal = _hex_rows(data[:most]) if pretty else data[:most].hex(" ")
    note = _frame_note(data) if how == "auto" else ""
    return Shown(kind="hex", text=hexadecimal, size=size, is_cut=is_cut or len(data) > most, note=note)


def _structured(data: bytes, how: str, schema: NamedSchema | None) -> tuple[str, Any, str] | None:
    """The kind, the value and a note, where bytes have fields; None where they are to be shown as they are."""
    if how == "auto" and schema is not None:
        value = schema.value_of(data)
        if value is not None:
            return schema.format, value, _frame_note(data)
    if how in ("auto", "json"):
        found = _parsed(data)
        if found is not None and (how == "json" or isinstance(found[0], dict | list)):
            return "json", found[0], ""
        found = None if frame_id(data) is None else _parsed(within_frame(data))
        if found is not None:
            return "json", found[0], _frame_note(data)
    if how == "protobuf":
        fields = protobuf_fields(data)
        if fields is not None:
            return (
                "protobuf",
                fields,
                f"by numbers of fields{', ' if frame_id(data) is not None else ''}{_frame_note(data)}",
            )
    return None


def _frame_note(data: bytes) -> str:
    """The id of a schema in Confluent's framing; empty where there is no frame."""
    number = frame_id(data)
    return "" if number is None else f"perhaps framed, schema {number}"


def shown_record(
    record: FoundRecord,
    *,
    how: str = "auto",
    masks: Masks = NO_MASKS,
    pretty: bool = False,
    schema: NamedSchema | None = None,
) -> dict[str, Any]:
    """A record as pages show it: ``partition``, ``offset``, ``timestamp_ms``; ``key`` and ``value`` as :class:`Shown`;
    ``headers``, a list of name and :class:`Shown`.

    Args:
        schema: of the value, if one was named.
    """
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": shown(record.key, size=record.key_size, how=how, name="key", masks=masks),
        "value": shown(record.value, size=record.value_size, how=how, masks=masks, pretty=pretty, schema=schema),
        "headers": [
            (name, shown(value, size=-1 if value is None else len(value), name=name, masks=masks))
            for name, value in record.headers
        ],
    }


def plain_record(
    topic: str, record: FoundRecord, *, masks: Masks = NO_MASKS, schema: NamedSchema | None = None
) -> dict[str, Any]:
    """A record as the JSON API has it; bytes that aren't UTF-8 in base64, under a name that ends so.

    Args:
        schema: of the value, if one was named: then it is an object.
    """
    value_size = record.value_size
    found: dict[str, Any] = {
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _plain("key", record.key, record.key_size, masks),
        "value": _plain("", record.value, value_size, masks, schema),
        "headers": [{"key": name, "value": _plain(name, content, -1, masks)} for name, content in record.headers],
    }
    if isinstance(record.value, bytes) and value_size > len(record.value):
        found["value_size"] = value_size
    return dict(with_text(found))


def _plain(name: str, data: Any, size: int, masks: Masks, schema: NamedSchema | None = None) -> Any:
    """A key, a value or the value of a header, without what the masks hide; what was cut is hidden whole by any."""
    if masks.hides(name):
        return HIDDEN
    if data is None:
        return None
    if not isinstance(data, bytes):
        return masks.of_value(data) if masks else data
    is_cut = size > len(data)
    if not masks:
        decoded = schema.value_of(data) if schema is not None and not is_cut else None
        return data if decoded is None else decoded
    found = None if is_cut else masks.of_bytes(name, data, schema=schema)
    if isinstance(found, Unmasked):
        return found.value if found.by_schema else found.text
    return HIDDEN if found is None else found


def _parsed(data: bytes) -> tuple[Any] | None:
    """The value of JSON that bytes are, in a tuple; None where they aren't, or are nested too deeply."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return (value,) if _depth_is_sane(value, _MOST_DEPTH) else None


def _depth_is_sane(value: Any, left: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    parts = value.values() if isinstance(value, dict) else value
    return left > 0 and all(_depth_is_sane(one, left - 1) for one in parts)


def _json_text(value: Any, *, pretty: bool) -> str:
    text = as_json(value)
    if pretty:
        text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    return text.encode(errors="backslashreplace").decode()  # half of a surrogate pair, which JSON may name, is no text


def _text_of(data: bytes, *, is_cut: bool) -> str | None:
    """The text; of one that was cut within a character without its last bytes."""
    for end in range(len(data), max(len(data) - (4 if is_cut else 1), -1), -1):
        text = utf8_text(data[:end])
        if text is not None:
            return text
    return None


def _is_printable(text: str) -> bool:
    return all(character.isprintable() or character in "\n\r\t" for character in text)


def _hex_rows(data: bytes) -> str:
    rows = []
    for start in range(0, len(data), _HEX_ROW):
        part = data[start : start + _HEX_ROW]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        rows.append(f"{start:06x}  {part.hex(' '):<{3 * _HEX_ROW - 1}}  {text}")
    return "\n".join(rows)
