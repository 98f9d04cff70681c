"""Protobuf messages that tests define without a compiler."""

from __future__ import annotations

import re
from typing import Any

TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13,
    "sint64": 18,
}  # fmt: skip
ALL_TYPES = {**TYPES, "fixed64": 6, "fixed32": 7, "sfixed32": 15, "sfixed64": 16, "sint32": 17}
ENUM, MESSAGE = 14, 11
OPTIONAL, REQUIRED, REPEATED = 1, 2, 3


def a_file(name: str, syntax: str = "proto3", package: str = "") -> Any:
    """An empty ``.proto`` file."""
    from google.protobuf import descriptor_pb2

    return descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", syntax=syntax, package=package)


def message_of(file: Any, name: str) -> Any:
    """The class of a message that a file defines; ``name`` is its full name."""
    from google.protobuf import descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

    pool = descriptor_pool.DescriptorPool()
    for known in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def orders() -> Any:
    """A file with a message of every kind of field, ``shop.Order``, behind another one, ``shop.Other``."""
    file = a_file("orders", package="shop")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    file.message_type.add(name="Other").field.add(name="x", number=1, type=TYPES["int32"], label=OPTIONAL)
    color = file.enum_type.add(name="Color")
    for number, name in enumerate(("RED", "GREEN")):
        color.value.add(name=name, number=number)
    order = file.message_type.add(name="Order")
    place = order.nested_type.add(name="Place")
    place.field.add(name="city", number=1, type=TYPES["string"], label=OPTIONAL)
    order.oneof_decl.add(name="pay")
    order.oneof_decl.add(name="_note")
    for number, kind in enumerate(TYPES, 1):
        order.field.add(name=f"f_{kind}", number=number, type=TYPES[kind], label=OPTIONAL)
    add = order.field.add
    add(name="color", number=20, type=ENUM, label=OPTIONAL, type_name=".shop.Color")
    add(name="place", number=21, type=MESSAGE, label=OPTIONAL, type_name=".shop.Order.Place")
    add(name="places", number=22, type=MESSAGE, label=REPEATED, type_name=".shop.Order.Place")
    add(name="tags", number=23, type=TYPES["string"], label=REPEATED)
    add(name="colors", number=24, type=ENUM, label=REPEATED, type_name=".shop.Color")
    add(name="at", number=25, type=MESSAGE, label=OPTIONAL, type_name=".google.protobuf.Timestamp")
    add(name="limit", number=26, type=MESSAGE, label=OPTIONAL, type_name=".google.protobuf.UInt64Value")
    add(name="card", number=27, type=TYPES["string"], label=OPTIONAL, oneof_index=0)
    add(name="cash", number=28, type=TYPES["int64"], label=OPTIONAL, oneof_index=0)
    add(name="note", number=29, type=TYPES["string"], label=OPTIONAL, oneof_index=1, proto3_optional=True)
    counts, by_name = (order.nested_type.add(name=name) for name in ("CountsEntry", "ByNameEntry"))
    for entry, key in ((counts, "uint64"), (by_name, "string")):
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=TYPES[key], label=OPTIONAL)
    counts.field.add(name="value", number=2, type=TYPES["uint64"], label=OPTIONAL)
    by_name.field.add(name="value", number=2, type=MESSAGE, label=OPTIONAL, type_name=".shop.Order.Place")
    add(name="counts", number=30, type=MESSAGE, label=REPEATED, type_name=".shop.Order.CountsEntry")
    add(name="by_name", number=31, type=MESSAGE, label=REPEATED, type_name=".shop.Order.ByNameEntry")
    return file


def schema_of(text: str, syntax: str = "proto3") -> Any:
    """The schema of a message that a text defines by the part of Protobuf's language between its braces: fields, maps,
    oneofs, enumerations, messages, ``reserved`` and ``option allow_alias = true``."""
    from sparklog.schemas import value_schema

    file = a_file("m", syntax, package="p")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    words = re.findall(r'"[^"]*"|[\w.-]+|[{}<>,;=\[\]]', text)
    _Message(file.message_type.add(name="M"), words, syntax).read()
    return value_schema(message_of(file, "p.M"))


class _Message:
    """Reads the words of a message's definition into its descriptor; names of types are as in the innermost message."""

    def __init__(self, proto: Any, words: list[str], syntax: str, scope: str = ".p.M") -> None:
        self.proto, self.words, self.syntax, self.scope = proto, words, syntax, scope
        self.kinds: dict[str, tuple[int, str]] = {}

    def read(self) -> None:
        while self.words and self.words[0] != "}":
            word = self.words.pop(0)
            if word == "reserved":
                self._reserved(self.proto, 1)
            elif word == "enum":
                self._enum()
            elif word == "message":
                name = self._open()
                inner = _Message(self.proto.nested_type.add(name=name), self.words, self.syntax, f"{self.scope}.{name}")
                inner.kinds = dict(self.kinds)
                inner.read()
                self._close()
                self.kinds[name] = (MESSAGE, f"{self.scope}.{name}")
            elif word == "oneof":
                at = len(self.proto.oneof_decl)
                self.proto.oneof_decl.add(name=self._open())
                while self.words[0] != "}":
                    self._field(self.words.pop(0)).oneof_index = at
                self._close()
            else:
                self._field(word)
        self._optional_fields()

    def _open(self) -> str:
        name = self.words.pop(0)
        self._expect("{")
        return name

    def _close(self) -> None:
        self._expect("}")

    def _expect(self, word: str) -> None:
        found = self.words.pop(0)
        if found != word:
            raise ValueError(f"got {found} before {self.words[:5]}, expected {word}")

    def _reserved(self, proto: Any, beyond: int) -> None:
        while True:
            word = self.words.pop(0)
            if word.startswith('"'):
                proto.reserved_name.append(word[1:-1])
            else:
                last = int(word)
                if self.words[0] == "to":
                    self.words.pop(0)
                    last = int(self.words.pop(0))
                proto.reserved_range.add(start=int(word), end=last + beyond)
            if self.words.pop(0) == ";":
                return

    def _enum(self) -> None:
        name = self._open()
        enum = self.proto.enum_type.add(name=name)
        while self.words[0] != "}":
            word = self.words.pop(0)
            if word == "reserved":
                self._reserved(enum, 0)
                continue
            if word == "option":
                del self.words[:3]
                enum.options.allow_alias = True
            else:
                self._expect("=")
                enum.value.add(name=word, number=int(self.words.pop(0)))
            self._expect(";")
        self._close()
        self.kinds[name] = (ENUM, f"{self.scope}.{name}")

    def _field(self, word: str) -> Any:
        label, optional = OPTIONAL, False
        if word in ("repeated", "optional", "required"):
            label = {"repeated": REPEATED, "required": REQUIRED}.get(word, OPTIONAL)
            optional = word == "optional" and self.syntax == "proto3"
            word = self.words.pop(0)
        if word == "map":
            return self._map()
        name = self.words.pop(0)
        self._expect("=")
        field = self.proto.field.add(name=name, number=int(self.words.pop(0)), label=label, proto3_optional=optional)
        self._set_kind(field, word)
        self._expect(";")
        return field

    def _map(self) -> Any:
        self._expect("<")
        key = self.words.pop(0)
        self._expect(",")
        value = self.words.pop(0)
        self._expect(">")
        name = self.words.pop(0)
        self._expect("=")
        entry = self.proto.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        self._set_kind(entry.field.add(name="key", number=1, label=OPTIONAL), key)
        self._set_kind(entry.field.add(name="value", number=2, label=OPTIONAL), value)
        field = self.proto.field.add(name=name, number=int(self.words.pop(0)), label=REPEATED, type=MESSAGE)
        field.type_name = f"{self.scope}.{entry.name}"
        self._expect(";")
        return field

    def _set_kind(self, field: Any, word: str) -> None:
        if word in ALL_TYPES:
            field.type = ALL_TYPES[word]
            return
        field.type, field.type_name = self.kinds.get(word, (MESSAGE, f".google.protobuf.{word}"))

    def _optional_fields(self) -> None:
        for field in self.proto.field:
            if field.proto3_optional:
                field.oneof_index = len(self.proto.oneof_decl)
                self.proto.oneof_decl.add(name=f"_{field.name}")


def message_of_schema(schema: Any) -> Any:
    """The class of the message that a schema was made of."""
    from sparklog.schemas.protobuf_schema import descriptor_of, message_class

    return message_class(descriptor_of(schema))
