"""Consumed records as lines: as Kafka's console consumer prints them, by kcat's format, or JSON."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sparklog.cli.output import as_json
from sparklog.model import LOG_APPEND_TIME, ConsumerRecord

__all__ = ["Formatter", "console_format", "json_line", "kcat_format"]

Formatter = Callable[[ConsumerRecord], bytes]

_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PIECE = re.compile(r"%(?P<token>.?)|\\(?:x(?P<hex>[0-9A-Fa-f]{2})|(?P<escape>.))|(?P<plain>[^%\\]+|\\$)", re.DOTALL)


def json_line(record: ConsumerRecord) -> bytes:
    """A JSON object; bytes that aren't UTF-8 as ``key_base64`` and ``value_base64``."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp < 0 else record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": [{"key": name, "value": value} for name, value in record.headers],
    }
    return as_json(fields).encode() + b"\n"


def console_format(*, fields: tuple[str, ...], separator: bytes, key_separator: bytes | None, null: bytes) -> Formatter:
    """Format as Kafka's ``DefaultMessageFormatter`` does: the fields in its order, then the value, each line ended by
    LF.

    Args:
        fields: of ``timestamp``, ``partition``, ``offset``, ``headers``, ``key``.
        key_separator: between key and value, where it isn't ``separator``.
    """
    takers: list[Callable[[ConsumerRecord], bytes]] = []
    if "timestamp" in fields:
        takers.append(_timestamp)
    if "partition" in fields:
        takers.append(lambda record: b"Partition:%d" % record.partition)
    if "offset" in fields:
        takers.append(lambda record: b"Offset:%d" % record.offset)
    if "headers" in fields:
        takers.append(lambda record: _headers(record, b":", null) or b"NO_HEADERS")
    before_value = key_separator if key_separator is not None else separator

    def line(record: ConsumerRecord) -> bytes:
        text = b"".join(take(record) + separator for take in takers)
        if "key" in fields:
            text += _or_null(record.key, null) + before_value
        return text + _or_null(record.value, null) + b"\n"

    return line


def kcat_format(template: str, *, null: bytes) -> Formatter:
    r"""As kcat's ``-f``.

    ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%k`` ``%K`` key and its length, ``%s`` ``%S`` value and its length
    (-1 for null), ``%T`` timestamp in ms, ``%h`` headers, ``%%``; ``\n \r \t \0 \\ \xHH``.

    Raises:
        ValueError: another token, or an escape that isn't known.
    """
    tokens: dict[str, Callable[[ConsumerRecord], bytes]] = {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: b"%d" % record.partition,
        "o": lambda record: b"%d" % record.offset,
        "k": lambda record: _or_null(record.key, null),
        "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
        "s": lambda record: _or_null(record.value, null),
        "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
        "T": lambda record: b"%d" % record.timestamp,
        "h": lambda record: _headers(record, b"=", null),
        "%": lambda record: b"%",
    }
    takers: list[Callable[[ConsumerRecord], bytes]] = []
    for piece in _PIECE.finditer(template):
        if piece["token"] is not None:
            if piece["token"] not in tokens:
                raise ValueError(
                    f"unknown token %{piece['token']}, expected one of {' '.join('%' + t for t in tokens)}"
                )
            takers.append(tokens[piece["token"]])
            continue
        text = _literal(piece)
        takers.append(lambda record, text=text: text)  # type: ignore[misc]
    return lambda record: b"".join(take(record) for take in takers)


def _literal(piece: re.Match[str]) -> bytes:
    if piece["plain"] is not None:
        return piece["plain"].encode(errors="surrogateescape")
    if piece["hex"] is not None:
        return bytes([int(piece["hex"], 16)])
    if piece["escape"] not in _ESCAPES:
        raise ValueError(f"unknown escape \\{piece['escape']}, expected \\n \\r \\t \\0 \\\\ or \\xHH")
    return _ESCAPES[piece["escape"]]


def _timestamp(record: ConsumerRecord) -> bytes:
    if record.timestamp < 0:
        return b"NO_TIMESTAMP"
    kind = b"LogAppendTime" if record.timestamp_type == LOG_APPEND_TIME else b"CreateTime"
    return b"%s:%d" % (kind, record.timestamp)


def _headers(record: ConsumerRecord, equals: bytes, null: bytes) -> bytes:
    return b",".join(name.encode() + equals + _or_null(value, null) for name, value in record.headers)


def _or_null(data: bytes | None, null: bytes) -> bytes:
    return null if data is None else data
