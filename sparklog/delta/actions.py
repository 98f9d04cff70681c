"""The actions of a Delta commit as frozen values, and the bytes of a log entry.

Source: Delta protocol, "Actions". Only what tables of reader version 1 and writer version 2 hold is modelled; what a
foreign engine adds beside it (``cdc``, ``domainMetadata``, …) is passed over when it is read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparklog.checksums import EMPTY_SUM, SUM_FIELD, check_sum, with_sum
from sparklog.errors import CorruptLogError, UnsupportedVersionError

__all__ = [
    "FAR_FUTURE_MS",
    "Action",
    "AddFile",
    "Entry",
    "Metadata",
    "Protocol",
    "RemoveFile",
    "SetTransaction",
    "decode_entry",
    "encode_entry",
    "listed_features",
]

FAR_FUTURE_MS = 253_402_300_799_999
"""9999-12-31: the ``lastUpdated`` of a ``txn`` action that no engine may expire (protocol rules L6, start and end; L7,
producer state)."""

ENGINE_INFO = "sparklog"
ENTRY_FORMAT = 1
NEWEST_ENTRY_FORMAT = 2
"""The format of typed topics' entries, which an older sparklog must not take part in (decision 0027)."""
_OURS = "sparklog"
_MARKS = (b'"engineInfo":"sparklog/', b'"sparklog":{"format":')
"""Marks of each entry of ours, and of no other: a text of JSON can't contain them."""
_INT64 = 2**63
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)
"""Kept, because ``json.dumps`` with separators makes an encoder for each call."""

_parse_from: Callable[[str, int], tuple[Any, int]] = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""Reads the value at the beginning of a text, without a look at what surrounds it; ``StopIteration``: there is none."""
_SPACES = " \t\n\r\v\f"
_text = json.encoder.encode_basestring_ascii
_BOOLEANS = {False: "false", True: "true"}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFile:
    """A data file becomes part of the table, or is described anew."""

    path: str
    """Relative to the table's folder, percent-encoded as a URI."""
    partition_values: Mapping[str, str | None]
    size_bytes: int
    modification_ms: int
    data_change: bool = True
    stats: Mapping[str, Any] | None = None
    """``numRecords``, ``minValues``, ``maxValues``, ``nullCount``; None where the writer gave none."""

    def to_json(self) -> dict[str, Any]:
        """The action as a log entry has it, under its name ``add``."""
        body: dict[str, Any] = {
            "path": self.path,
            "partitionValues": dict(self.partition_values),
            "size": self.size_bytes,
            "modificationTime": self.modification_ms,
            "dataChange": self.data_change,
        }
        if self.stats is not None:
            body["stats"] = _dumps(self.stats)
        return {"add": body}

    def to_line(self) -> str:
        """The action as a line of a log entry: :meth:`to_json`, whose encoder is set up anew for each line."""
        values = ",".join(
            f"{_text(name)}:{_text(value) if type(value) is str else _ENCODER.encode(value)}"
            for name, value in self.partition_values.items()
        )
        stats = "" if self.stats is None else f',"stats":{_text(_dumps(self.stats))}'
        return (
            f'{{"add":{{"path":{_text(self.path)},"partitionValues":{{{values}}},"size":{self.size_bytes},'
            f'"modificationTime":{self.modification_ms},"dataChange":{_BOOLEANS[self.data_change]}{stats}}}}}'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFile:
    """A data file is part of the table no more; vacuum deletes it later."""

    path: str
    deletion_ms: int
    data_change: bool = True
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    size_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        """The action as a log entry has it, under its name ``remove``."""
        return {
            "remove": {
                "path": self.path,
                "deletionTimestamp": self.deletion_ms,
                "dataChange": self.data_change,
                "extendedFileMetadata": True,
                "partitionValues": dict(self.partition_values),
                "size": self.size_bytes,
            }
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTransaction:
    """Delta's ``txn``: a number that an application keeps in the table, the newest per ``app_id`` counts."""

    app_id: str
    version: int
    last_updated_ms: int

    def to_json(self) -> dict[str, Any]:
        """The action as a log entry has it, under its name ``txn``."""
        return {"txn": {"appId": self.app_id, "version": self.version, "lastUpdated": self.last_updated_ms}}

    def to_line(self) -> str:
        """The action as a line of a log entry, as :meth:`AddFile.to_line`."""
        return (
            f'{{"txn":{{"appId":{_text(self.app_id)},"version":{self.version},"lastUpdated":{self.last_updated_ms}}}}}'
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """A table's schema, partition columns and properties."""

    table_id: str
    schema_string: str
    partition_columns: Sequence[str]
    configuration: Mapping[str, str]
    created_ms: int | None = None
    name: str | None = None
    description: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The action as a log entry has it, under its name ``metaData``."""
        body: dict[str, Any] = {
            "id": self.table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.schema_string,
            "partitionColumns": list(self.partition_columns),
            "configuration": dict(self.configuration),
        }
        optional = {"createdTime": self.created_ms, "name": self.name, "description": self.description}
        body.update({name: value for name, value in optional.items() if value is not None})
        return {"metaData": body}


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The versions that an engine must know to read and to write the table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    """The features of reader version 3; None where none are listed. Source: Delta protocol, "Table Features"."""
    writer_features: tuple[str, ...] | None = None
    """The features of writer version 7."""

    def to_json(self) -> dict[str, Any]:
        """The action as a log entry has it, under its name ``protocol``."""
        body: dict[str, Any] = {
            "minReaderVersion": self.min_reader_version,
            "minWriterVersion": self.min_writer_version,
        }
        listed = {"readerFeatures": self.reader_features, "writerFeatures": self.writer_features}
        body.update({name: list(features) for name, features in listed.items() if features is not None})
        return {"protocol": body}


Action = AddFile | RemoveFile | SetTransaction | Metadata | Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One version of a table's log."""

    version: int
    token: str
    """Random for an entry of ours, a hash of the content for a foreign one (protocol, "Words")."""
    actions: tuple[Action, ...]
    commit_info: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, Any] | None = None
    """The object that sparklog put into ``commitInfo``; None for the entry of another engine."""


def listed_features(listed: Sequence[str] | None) -> tuple[str, ...] | None:
    """Table features as :class:`Protocol` has them."""
    return None if listed is None else tuple(listed)


def encode_entry(
    *,
    actions: Sequence[Action],
    token: str,
    info: Mapping[str, Any],
    operation: str,
    blind_append: bool,
    timestamp_ms: int,
    version: str,
) -> bytes:
    """The bytes of an entry of ours: ``commitInfo`` first, then an action a line.

    ``info`` goes into ``commitInfo`` under ``sparklog``, beside the token, the checksum of all bytes, and the number of
    actions, by which an entry that was cut at the end of a line is recognised, also by older versions.
    """
    commit_info = {
        "timestamp": timestamp_ms,
        "operation": operation,
        "operationParameters": {},
        "isBlindAppend": blind_append,
        "engineInfo": f"{ENGINE_INFO}/{version}",
        _OURS: {"format": ENTRY_FORMAT, "token": token, SUM_FIELD: EMPTY_SUM, "actions": len(actions), **info},
    }
    lines = [_dumps({"commitInfo": commit_info}), *map(_line, actions)]
    return with_sum(("\n".join(lines) + "\n").encode())


def decode_entry(version: int, path: str, data: bytes) -> Entry:
    """Read the entry that lies at ``path``.

    Raises:
        CorruptLogError: empty, truncated, changed, no JSON or of an unknown shape; names the entry and the line.
        UnsupportedVersionError: a newer sparklog wrote it.
    """
    actions: list[Action] = []
    commit_info: Mapping[str, Any] = {}
    is_empty = True
    for number, line in enumerate(_lines(data), start=1):
        try:
            for kind, body in _parsed(line).items() if line else ():
                is_empty = False
                if kind == "commitInfo":
                    commit_info = _typed({kind: body}, kind, dict)
                elif kind in _DECODERS:
                    actions.append(_DECODERS[kind](body))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise CorruptLogError(f"corrupt log entry {path}: line {number} is no Delta action ({error!r})") from error
    if is_empty:
        raise CorruptLogError(f"corrupt log entry {path}: it holds no action ({len(data)} bytes)")
    info = commit_info.get(_OURS)
    if info is None:
        if any(mark in data for mark in _MARKS):
            raise CorruptLogError(
                f"corrupt log entry {path}: sparklog wrote it, and it has no commitInfo of sparklog's"
            )
        return Entry(version=version, token=_content_token(data), actions=tuple(actions), commit_info=commit_info)
    if isinstance(info, dict) and isinstance(info.get("format"), int) and info["format"] > NEWEST_ENTRY_FORMAT:
        raise UnsupportedVersionError(
            f"log entry {path} has format {info['format']}; this sparklog knows up to {NEWEST_ENTRY_FORMAT}: upgrade it"
        )
    if not isinstance(info, dict) or not isinstance(info.get("token"), str) or info.get("actions") != len(actions):
        raise CorruptLogError(
            f"corrupt log entry {path}: {len(actions)} actions, its commitInfo states {info!r:.200}; is it truncated?"
        )
    try:
        check_sum(data, info)
    except ValueError as error:
        raise CorruptLogError(f"corrupt log entry {path}: {error}") from error
    return Entry(version=version, token=info["token"], actions=tuple(actions), commit_info=commit_info, info=info)


def _lines(data: bytes) -> Sequence[str | bytes]:
    """The lines of an entry, as text where that is plain; empty for those of spaces alone."""
    if data.isascii() and b"\0" not in data:  # else it may have another encoding, which json.loads knows
        return [line if line[:1] == "{" or line.strip(_SPACES) else "" for line in data.decode().split("\n")]
    return [line if line.strip() else b"" for line in data.split(b"\n")]


def _parsed(data: str | bytes) -> Any:
    """The value of a text of JSON, as ``json.loads`` reads it, which takes longer than what an entry's lines take."""
    try:
        text = data.decode() if isinstance(data, bytes) else data
        value, end = _parse_from(text, 0)
        if end == len(text):
            return value
    except (ValueError, StopIteration):  # spaces before it, say
        pass
    return json.loads(data)


def _content_token(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _line(action: Action) -> str:
    """An action as a line of an entry: files and numbers, which every commit has, without an encoder."""
    return action.to_line() if isinstance(action, AddFile | SetTransaction) else _dumps(action.to_json())


def _dumps(value: Mapping[str, Any]) -> str:
    return _ENCODER.encode(value)


def _typed(body: Mapping[str, Any], name: str, kind: type[T], default: T | None = None) -> T:
    """A field of the type it must have. Without a ``default`` it may be neither missing nor null."""
    value = body[name] if default is None else body.get(name)
    if type(value) is kind:
        return value
    if value is None and default is not None:
        return default
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected {kind.__name__}, got {value!r:.100}")
    return value


def _long(body: Mapping[str, Any], name: str, default: int | None = None) -> int:
    """A whole number of 64 bits."""
    value = _typed(body, name, int, default)
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise ValueError(f"{name}: expected a whole number of 64 bits, got {value!r:.100}")
    return value


def _size(body: Mapping[str, Any], default: int | None = None) -> int:
    value = _long(body, "size", default)
    if value < 0:
        raise ValueError(f"size: {value} bytes")
    return value


def _texts(values: Iterable[Any], name: str) -> None:
    """Raise unless all of these are texts."""
    for value in values:
        if not isinstance(value, str):
            raise TypeError(f"{name}: expected texts, got {value!r:.100}")


def _add(body: Mapping[str, Any]) -> AddFile:
    get: Callable[[str], Any] = body.get
    stats, path, values, size_bytes = get("stats"), get("path"), get("partitionValues"), get("size")
    modification_ms, data_change = get("modificationTime"), get("dataChange")
    is_usual = type(path) is str and type(values) is dict and type(size_bytes) is type(modification_ms) is int
    if (
        is_usual
        and 0 <= size_bytes < _INT64
        and -_INT64 <= modification_ms < _INT64
        and type(data_change) is bool
        and type(stats) is str
    ):
        parsed = _parsed(stats) if stats else None
        if type(parsed) is dict or not stats:
            return AddFile(
                path=path,
                partition_values=values,
                size_bytes=size_bytes,
                modification_ms=modification_ms,
                data_change=data_change,
                stats=parsed,
            )
    return AddFile(
        path=_typed(body, "path", str),
        partition_values=_typed(body, "partitionValues", dict),
        size_bytes=_size(body),
        modification_ms=_long(body, "modificationTime"),
        data_change=_typed(body, "dataChange", bool),
        stats=_typed({"stats": _parsed(stats)}, "stats", dict) if stats else None,
    )


def _remove(body: Mapping[str, Any]) -> RemoveFile:
    return RemoveFile(
        path=_typed(body, "path", str),
        deletion_ms=_long(body, "deletionTimestamp", 0),
        data_change=_typed(body, "dataChange", bool, True),
        partition_values=_typed(body, "partitionValues", dict, {}),
        size_bytes=_size(body, 0),
    )


def _txn(body: Mapping[str, Any]) -> SetTransaction:
    app_id, number, updated_ms = body.get("appId"), body.get("version"), body.get("lastUpdated")
    if (
        type(app_id) is str
        and type(number) is type(updated_ms) is int
        and -_INT64 <= number < _INT64
        and -_INT64 <= updated_ms < _INT64
    ):
        return SetTransaction(app_id=app_id, version=number, last_updated_ms=updated_ms)
    return SetTransaction(
        app_id=_typed(body, "appId", str),
        version=_long(body, "version"),
        last_updated_ms=_long(body, "lastUpdated", 0),
    )


def _metadata(body: Mapping[str, Any]) -> Metadata:
    _texts(_typed(body, "partitionColumns", list), "partitionColumns")
    configuration = {name: one for name, one in _typed(body, "configuration", dict, {}).items() if one is not None}
    _texts(configuration.values(), "configuration")
    return Metadata(
        table_id=_typed(body, "id", str),
        schema_string=_typed(body, "schemaString", str),
        partition_columns=tuple(_typed(body, "partitionColumns", list)),
        configuration=configuration,
        created_ms=body.get("createdTime"),
        name=body.get("name"),
        description=body.get("description"),
    )


def _protocol(body: Mapping[str, Any]) -> Protocol:
    return Protocol(
        min_reader_version=_long(body, "minReaderVersion"),
        min_writer_version=_long(body, "minWriterVersion"),
        reader_features=listed_features(body.get("readerFeatures")),
        writer_features=listed_features(body.get("writerFeatures")),
    )


_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], Action]] = {
    "add": _add,
    "remove": _remove,
    "txn": _txn,
    "metaData": _metadata,
    "protocol": _protocol,
}
