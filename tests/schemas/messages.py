"""Protobuf messages that tests define without a compiler."""

from __future__ import annotations

from typing import Any

TYPES = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "bool": 8, "string": 9, "bytes": 12, "uint32": 13,
    "sint64": 18,
}  # fmt: skip
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
