"""Requests that ask for as much as they may, and for more: of every API, in its lowest and its highest version, made
from Kafka's definitions. Pure."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sparklog.gateway.apis import APIS, Api
from sparklog.gateway.wire import ElementLimits, message
from sparklog.gateway.wire.fields import Field
from sparklog.gateway.wire.primitives import write_unsigned

__all__ = ["Hostile", "all_hostile", "frame_of", "told_limits"]

_MOST_BYTES = 8_388_608
_MOST_STRING_BYTES = 32_767
_DOCS = Path(__file__).parents[2] / "docs" / "gateway.md"
_ROW = re.compile(r"^\| ([A-Za-z, ]+) \| ([\d,]+) \| ([\d,]+) \|", re.MULTILINE)
_ODD = "\x01" * 1_000 + "\U0001f600"
"""Takes four times its bytes, and sixteen times where it is quoted."""


_WANTED: Mapping[str, Mapping[str, Any]] = {"Produce": {"acks": -1}}
"""What a request has beside its arrays, by API: with acks=0 none is answered."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """A request, and what is to become of it."""

    api: Api
    key: int
    version: int
    kind: str
    """``count``, ``nesting``, ``length`` or ``tags``."""
    about: str
    make_body: Callable[[], bytes]
    """Of eight megabytes, as a rule: called where the request is sent, not where requests are listed."""
    is_too_much: bool
    """Is its connection to be ended?"""

    @property
    def body(self) -> bytes:
        """The request without its header. Made anew each time."""
        return self.make_body()


def told_limits(docs: str | None = None) -> Mapping[str, ElementLimits]:
    """The limits that the documentation tells, by API; those of the others by ``all others``."""
    rows = _ROW.findall(_DOCS.read_text(encoding="utf-8") if docs is None else docs)
    return {
        name: ElementLimits(_number(each), _number(every)) for names, each, every in rows for name in names.split(", ")
    }


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def all_hostile(only: frozenset[str] | None = None) -> Iterator[Hostile]:
    """All requests, but for those of SASL; ``only``: of these APIs."""
    limits = told_limits()
    for key, api in sorted(APIS.items()):
        if not api.name.startswith("Sasl") and (only is None or api.name in only):
            for version in sorted({api.first, api.last}):
                yield from _of_version(key, api, version, limits.get(api.name, limits["all others"]))


def _of_version(key: int, api: Api, version: int, limits: ElementLimits) -> Iterator[Hostile]:
    fields = api.request.fields

    def made(
        kind: str, about: str, path: tuple[str, ...], count: int, *, is_too_much: bool, outer: int = 1, text: str = ""
    ) -> Hostile:
        def make_body() -> bytes:
            value = _filled(fields, version, path, count, outer=outer, text=text)
            return bytes(api.request.encode({**_WANTED.get(api.name, {}), **value}, version))

        return Hostile(api, key, version, kind, about, make_body, is_too_much)

    for path in _paths(fields, version, "[]"):
        name = ".".join(path)
        yield made("count", name, path, limits.of_array, is_too_much=False)
        yield made("count", name, path, limits.of_array + 1, is_too_much=True)
        if len(path) > 1:
            outer = limits.of_array
            each = max(1, (limits.of_message - outer) // outer)
            yield made("nesting", name, path, each, outer=outer, is_too_much=False)
            yield made("nesting", name, path, each + 1, outer=outer, is_too_much=True)
    if version in api.request.flexible:
        for path in _paths(fields, version, "string"):
            for size, is_too_much in ((_MOST_STRING_BYTES, False), (_MOST_BYTES * 10 // 11, True)):
                text = _ODD * (size // len(_ODD.encode()))
                yield made("length", ".".join(path), path, 1, text=text, is_too_much=is_too_much)
        make_body = partial(_unknown_tags, api, version)
        yield Hostile(api, key, version, "tags", "as many as there is room for, unknown", make_body, is_too_much=True)


def _unknown_tags(api: Api, version: int) -> bytes:
    plain = bytes(api.request.encode({}, version))[:-1]
    count = (_MOST_BYTES - len(plain) - 100) // 6
    tags = bytearray()
    write_unsigned(tags, count)
    for tag in range(1_000_000, 1_000_000 + count):
        write_unsigned(tags, tag)
        tags.append(0)
    return plain + bytes(tags)


def _paths(fields: tuple[Field, ...], version: int, kind: str, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all fields of a kind; ``[]``: of all arrays."""
    for field in fields:
        if version in field.versions:
            here = (*path, field.name)
            if field.kind.startswith(kind) or field.kind == f"[]{kind}":
                yield here
            yield from _paths(field.fields, version, kind, here)


def _filled(
    fields: tuple[Field, ...], version: int, path: tuple[str, ...], count: int, *, outer: int = 1, text: str = ""
) -> dict[str, Any]:
    """A value with ``count`` elements, each of its own name, at the end of a path, and ``outer`` ones on the way."""
    value: dict[str, Any] = {}
    for field in fields:
        if version not in field.versions or field.name != path[0]:
            continue
        if not path[1:]:
            value[field.name] = (
                [_element(field, version, number, text) for number in range(count)]
                if field.kind.startswith("[]")
                else text
            )
        elif field.kind.startswith("[]"):
            inner = _filled(field.fields, version, path[1:], count, text=text)
            value[field.name] = [{**_element(field, version, number, ""), **inner} for number in range(outer)]
        else:
            value[field.name] = _filled(field.fields, version, path[1:], count, outer=outer, text=text)
    return value


def _element(field: Field, version: int, number: int, text: str) -> Any:
    kind = field.kind[2:]
    if field.fields:
        return {
            inner.name: text or f"t{number:05d}"
            for inner in field.fields
            if inner.kind == "string" and version in inner.versions
        }
    if kind == "string":
        return text or f"t{number:05d}"
    return uuid.UUID(int=number + 1) if kind == "uuid" else number if kind in ("int32", "int64") else 0


def frame_of(hostile: Hostile) -> bytes:
    """The request with its header and its length."""
    header = message("RequestHeader").encode(
        {
            "request_api_key": hostile.key,
            "request_api_version": hostile.version,
            "correlation_id": 7,
            "client_id": "bounds",
        },
        2 if hostile.version in hostile.api.request.flexible else 1,
    )
    data = bytes(header) + hostile.body
    return len(data).to_bytes(4, "big") + data
