"""Kafka's definitions of its messages (``definitions.json``), and each as a codec.

The definitions are Apache Kafka's, under the Apache License, Version 2.0; ``java/kafka_messages.py`` made the file from
its jar. A codec is made when a version is used first.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from sparklog.gateway.wire.fields import Field, Versions, WireError, struct_codec
from sparklog.gateway.wire.primitives import Codec, ElementLimits, Input

__all__ = ["Message", "message"]


@dataclass(frozen=True)
class Message:
    """One of Kafka's messages, in all its versions."""

    name: str
    api_key: int
    """-1 of a header."""
    versions: Versions
    """The ones that Kafka 4.3 knows."""
    flexible: Versions
    fields: tuple[Field, ...]

    def codec(self, version: int) -> Codec:
        """The codec of a version. Raises ``WireError``: Kafka doesn't know it."""
        if version not in self.versions:
            raise WireError(f"{self.name} {version}: expected version {self.versions.first} to {self.versions.last}")
        return _codec(self.name, version)

    def decode(
        self,
        data: bytes | bytearray | memoryview,
        version: int,
        *,
        is_exact: bool = True,
        limits: ElementLimits | None = None,
    ) -> dict[str, Any]:
        """The message that ``data`` is. Its records are views of ``data``.

        Args:
            is_exact: whether something behind it is an error.
            limits: of its elements; None: it may have as many as its bytes hold.
        Raises ``WireError``: it isn't one, or something follows it; ``TooManyElementsError``, before memory is taken.
        """
        source = Input(data, limits)
        value: dict[str, Any] = self.codec(version).read(source)
        if source.left and is_exact:
            raise WireError(f"{self.name} {version}: {source.left} bytes too many")
        return value

    def encode(self, value: dict[str, Any], version: int) -> bytearray:
        """The bytes of a message. Raises ``WireError``: a value that a field can't hold; names the field."""
        out = bytearray()
        self.codec(version).write(out, value)
        return out


def message(name: str) -> Message:
    """A message by Kafka's name, such as ``FetchRequest``. Raises ``KeyError``."""
    return _all()[name]


@lru_cache(maxsize=1)
def _all() -> dict[str, Message]:
    definitions = json.loads(resources.files(__package__).joinpath("definitions.json").read_text(encoding="utf-8"))
    return {message["name"]: _message(message) for message in definitions["messages"]}


def _message(definition: dict[str, Any]) -> Message:
    structs = {struct["name"]: struct for struct in definition.get("commonStructs", ())}
    return Message(
        name=definition["name"],
        api_key=definition.get("apiKey", -1),
        versions=Versions.parse(definition["validVersions"]),
        flexible=Versions.parse(definition["flexibleVersions"]),
        fields=tuple(Field.parse(field, structs) for field in definition["fields"]),
    )


@lru_cache(maxsize=1_000)
def _codec(name: str, version: int) -> Codec:
    known = message(name)
    return struct_codec(known.fields, version, flexible=version in known.flexible)
