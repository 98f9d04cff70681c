"""Values of one strict type (:mod:`sparklog.schemas.strict`) that readers by another can't have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from sparklog.schemas.strict import HIGH, LOW, MULTIPLE, NUMBERED, ONE_OF, OTHERWISE, SIZE, SYMBOLS, children

__all__ = ["Gap", "gaps"]

_MOST_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Gap:
    """Values of a writer that a reader can't have."""

    path: str
    """The field, with dots, as errors name it."""
    values: str = ""
    """The end of a sentence about what they may be; empty: null, or not there."""
    remedy: str = ""


def gaps(reader: pa.StructType, writer: pa.StructType) -> Iterator[Gap]:
    """The values of a writer's strict type that a reader's doesn't allow, field by field, at any depth."""
    yield from _gaps(reader, writer, "")


def _gaps(reader: pa.DataType, writer: pa.DataType, prefix: str) -> Iterator[Gap]:
    if pa.types.is_struct(reader) and pa.types.is_struct(writer):
        before = {field.name: field for field in writer}
        for field in reader:
            known = before.get(field.name)
            if not field.nullable and (known is None or known.nullable):
                yield Gap(f"{prefix}{field.name}")
            if known is not None:
                yield from _of_field(field, known, f"{prefix}{field.name}")
        yield from _of_oneofs(reader, before, prefix)
        return
    for one, other in zip(children(reader), children(writer), strict=False):
        if not one.nullable and other.nullable:
            yield Gap(f"{prefix}{one.name}")
        yield from _of_field(one, other, f"{prefix}{one.name}")


def _of_field(reader: pa.Field, writer: pa.Field, path: str) -> Iterator[Gap]:
    if reader.type == writer.type or pa.types.is_nested(reader.type):
        yield from _of_metadata(reader.metadata or {}, writer.metadata or {}, path)
    yield from _gaps(reader.type, writer.type, f"{path}.")


def _of_metadata(reader: Mapping[bytes, bytes], writer: Mapping[bytes, bytes], path: str) -> Iterator[Gap]:
    if SYMBOLS in reader and OTHERWISE not in reader and not (NUMBERED in reader and NUMBERED in writer):
        yield from _of_symbols(reader[SYMBOLS], writer.get(SYMBOLS), path)
    if SIZE in reader and reader[SIZE] != writer.get(SIZE):
        length = "any length" if SIZE not in writer else f"{writer[SIZE].decode()} bytes"
        yield Gap(path, f"be of {length} in place of {reader[SIZE].decode()} bytes", _ANOTHER_FIELD)
    if MULTIPLE in reader and MULTIPLE not in writer:
        yield Gap(path, "have microseconds, which milliseconds can't hold", _ANOTHER_FIELD)
    if LOW in reader and (LOW not in writer or int(writer[LOW]) < int(reader[LOW])):
        yield Gap(path, f"be less than {reader[LOW].decode()}", _ANOTHER_FIELD)
    if HIGH in reader and (HIGH not in writer or int(writer[HIGH]) > int(reader[HIGH])):
        yield Gap(path, f"be more than {reader[HIGH].decode()}", _ANOTHER_FIELD)


_ANOTHER_FIELD = "give the field another name"


def _of_symbols(reader: bytes, writer: bytes | None, path: str) -> Iterator[Gap]:
    if writer is None:
        yield Gap(path, "be any text, not only those of an enumeration", _ANOTHER_FIELD)
        return
    known = {*reader.decode().split("\n")}
    unknown = [each for each in writer.decode().split("\n") if each not in known]
    if unknown:
        shown = ", ".join(unknown)
        shown = shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"
        yield Gap(path, f"be {shown}, which the enumeration doesn't have", "keep it there, or give it a default")


def _of_oneofs(reader: pa.StructType, writer: Mapping[str, pa.Field], prefix: str) -> Iterator[Gap]:
    together: dict[bytes, dict[str, bytes | None]] = {}
    for field in reader:
        name = (field.metadata or {}).get(ONE_OF)
        known = writer.get(field.name)
        if name is not None and known is not None:
            together.setdefault(name, {})[field.name] = (known.metadata or {}).get(ONE_OF)
    for name, members in together.items():
        if len(members) > 1 and (None in members.values() or len({*members.values()}) > 1):
            several = " and ".join(sorted(members))
            yield Gap(
                f"{prefix}{name.decode()}",
                f"have {several} at once, of which the oneof has one",
                "leave them out of it",
            )
