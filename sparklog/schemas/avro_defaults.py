"""Defaults of an Avro record for what it can't hold: of an enumeration for a symbol that it doesn't know, of a field
for a value that isn't there. Source: Avro 1.12, "Schema Resolution"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sparklog.schemas.avro_schema import NAMED, full_name

__all__ = ["with_defaults"]

_Convert = Callable[[Any], Any]


def with_defaults(record: Mapping[str, Any]) -> _Convert | None:
    """A converter of a record's values, as dicts; None: they need none, as the record has no such default."""
    return _of(record, "", {})


def _of(kind: Any, namespace: str, names: dict[str, Any]) -> _Convert | None:
    """A converter of a type's values, which aren't null."""
    if isinstance(kind, list):
        return next((_of(each, namespace, names) for each in kind if each != "null"), None)
    if isinstance(kind, str):
        known = names.get(full_name(kind, namespace))
        return None if known is None else known[0]
    name = kind["type"]
    if name == "array":
        element = _of(kind["items"], namespace, names)
        return None if element is None else lambda found: [each if each is None else element(each) for each in found]
    if name == "map":
        value = _of(kind["values"], namespace, names)
        return (
            None
            if value is None
            else lambda found: {key: each if each is None else value(each) for key, each in found.items()}
        )
    if not isinstance(name, str) or name not in NAMED:
        return _of(name, namespace, names)
    full = full_name(str(kind["name"]), str(kind.get("namespace", namespace)))
    convert = _of_named(kind, full.rpartition(".")[0], names)
    names[full] = convert, kind
    return convert


def _of_named(kind: Mapping[str, Any], namespace: str, names: dict[str, Any]) -> _Convert | None:
    if kind["type"] == "enum":
        known, default = frozenset(kind["symbols"]), kind.get("default")
        return None if default not in known else lambda symbol: symbol if symbol in known else default
    if kind["type"] == "fixed":
        return None
    converters: dict[str, _Convert] = {}
    defaults: dict[str, Any] = {}
    for field in kind["fields"]:
        convert = _of(field["type"], namespace, names)
        if convert is not None:
            converters[field["name"]] = convert
        if field.get("default") is not None and not _allows_null(field["type"]):
            defaults[field["name"]] = _default(field["type"], field["default"], namespace, names)
    if not converters and not defaults:
        return None

    def convert_fields(row: Any) -> Any:
        found = dict(row)
        for name, convert in converters.items():
            if found.get(name) is not None:
                found[name] = convert(found[name])
        for name, default in defaults.items():
            if found.get(name) is None:
                found[name] = default
        return found

    return convert_fields


def _allows_null(kind: Any) -> bool:
    return isinstance(kind, list) and "null" in kind


def _default(kind: Any, found: Any, namespace: str, names: Mapping[str, Any]) -> Any:
    """A default as the schema's JSON has it, as a value of its type: bytes are texts there. Source: Avro 1.12, "Complex
    Types", default."""
    if isinstance(kind, list):
        return _default(kind[0], found, namespace, names)
    if isinstance(kind, str):
        known = names.get(full_name(kind, namespace))
        if known is not None:
            return _default(known[1], found, namespace, names)
        return found.encode("latin-1") if kind == "bytes" and isinstance(found, str) else found
    name = kind["type"]
    if name == "array" and isinstance(found, list):
        return [_default(kind["items"], each, namespace, names) for each in found]
    if name == "map" and isinstance(found, Mapping):
        return {key: _default(kind["values"], each, namespace, names) for key, each in found.items()}
    if name in ("record", "error") and isinstance(found, Mapping):
        inner = full_name(str(kind["name"]), str(kind.get("namespace", namespace))).rpartition(".")[0]
        return {
            field["name"]: _default(field["type"], found.get(field["name"], field.get("default")), inner, names)
            for field in kind["fields"]
        }
    if name in ("bytes", "fixed") and isinstance(found, str):
        return found.encode("latin-1")
    return found if isinstance(name, str) else _default(name, found, namespace, names)
