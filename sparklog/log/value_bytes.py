"""Values of a typed topic as bytes of its ``value.format``, both ways, by the schemas that they were written by.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparklog.config import TopicConfig
from sparklog.errors import InvalidConfigurationError
from sparklog.log.data.value_columns import conform_values, unknown_values
from sparklog.log.value_schemas import TopicSchemas
from sparklog.schemas import (
    UnwritableError,
    ValueSchema,
    check_format,
    decode,
    encode,
    frame_ids,
    struct_to_python,
    unmet_demands,
)

__all__ = ["ValueBytes"]

_BY_ID = ("avro-confluent", "protobuf-confluent")
"""Formats whose bytes can be read by the schema alone that they were written by, whose id is in their frame."""


@dataclass(frozen=True, slots=True)
class ValueBytes:
    """The bytes of a topic's values."""

    value_format: str
    schemas: tuple[ValueSchema, ...]
    """All that the topic has, by id from 1 on."""

    @classmethod
    def of(cls, schemas: TopicSchemas, config: TopicConfig) -> ValueBytes:
        """The bytes of a topic with these schemas and settings."""
        return cls(str(config["value.format"]), schemas.all())

    def check(self) -> None:
        """Raise ``InvalidConfigurationError`` where the newest schema can't be that of the format's bytes, or its
        registry's id is that of another schema."""
        check_format(self.value_format, self.schemas[-1])
        ids = [self.frame_id(number) for number in range(1, len(self.schemas) + 1)]
        if ids[-1] in ids[:-1]:
            raise InvalidConfigurationError(
                f"the registry's id {ids[-1]} is that of schema {ids.index(ids[-1]) + 1}; expected one for each schema"
            )

    def frame_id(self, schema_id: int) -> int:
        """The id in the frame of a schema's bytes: a registry's, or its own."""
        registry_id = self.schemas[schema_id - 1].registry_id
        return schema_id if registry_id is None else registry_id

    def decode(
        self, values: pa.Array, kind: pa.StructType, passed_over: list[int] | None = None
    ) -> tuple[pa.StructArray, dict[int, str]]:
        """Bytes that are sent now as values of a type, and what is wrong with some, by place.

        They are read by the newest schema; with a frame of Avro or Protobuf by that of its id, which must be known.

        Args:
            passed_over: is given the places of values of which something is left out that the schema doesn't have.
        """
        if self.value_format in _BY_ID:
            return self._by_frames(values, kind)
        return self._by(self.schemas[-1], values, kind, passed_over)

    def decode_stored(self, values: pa.Array, kind: pa.StructType) -> pa.StructArray:
        """Bytes that a table has as they were sent, as values of a type; null where they can't be decoded.

        Avro without an id is read by the first schema, the oldest first, that leaves nothing over: most are of before
        the topic was typed, which its first schema describes.
        """
        if self.value_format != "avro":
            return self.decode(values, kind)[0]
        stored = pa.nulls(len(values), kind)
        for schema in dict.fromkeys(self.schemas):
            if values.null_count == len(values):
                break
            decoded, _ = self._by(schema, values, kind)
            stored = pc.if_else(stored.is_valid(), stored, decoded)
            values = pc.if_else(stored.is_valid(), pa.scalar(None, pa.binary()), values)
        return stored

    def encode(self, data: pa.StructArray, schema_id: int) -> pa.Array:
        """Values of the column ``data`` as bytes of a schema; one that its format can't hold, as an earlier version let
        schemas follow that don't hold the same, as bytes of another schema of the topic. Raises ``UnwritableError``."""
        schema = self.schemas[schema_id - 1]
        return encode(
            self.value_format,
            schema,
            conform_values(data, schema.struct_type),
            schema_id=self.frame_id(schema_id),
            others=self.schemas,
            otherwise=lambda place: self._by_another(data.slice(place, 1), schema),
        )

    def _by_another(self, data: pa.StructArray, schema: ValueSchema) -> bytes | None:
        """A value as bytes of the newest schema that holds all of it; None: there is none, or readers by ``schema``
        would take its bytes, which have no frame, for another value."""
        for number in range(len(self.schemas), 0, -1):
            other = self.schemas[number - 1]
            if other == schema or unknown_values(data, other.struct_type):
                continue
            values = conform_values(data, other.struct_type)
            try:
                raws = encode(self.value_format, other, values, schema_id=self.frame_id(number), others=self.schemas)
            except UnwritableError:
                continue
            if self.value_format.endswith("-confluent") or decode(self.value_format, schema, raws)[1]:
                raw: bytes = raws[0].as_py()
                return raw
        return None

    def readable(self, raws: pa.Array, data: pa.StructArray, schema_id: int) -> tuple[pa.Array, pa.StructArray]:
        """The bytes that a topic has of its values beside or in place of the column ``data``, for readers by a schema,
        and that column. Avro's bytes, which don't tell by which schema they were written, are null where they aren't
        the value by this one, which is in the column then."""
        if self.value_format != "avro" or len(self.schemas) == 1 or raws.null_count == len(raws):
            return raws, data
        schema, nothing = self.schemas[schema_id - 1], pa.scalar(None, pa.binary())
        alone = pc.if_else(data.is_valid(), nothing, raws)
        data = pc.if_else(data.is_valid(), data, self.decode_stored(alone, data.type))
        read = struct_to_python(self._by(schema, raws, schema.struct_type)[0])
        wanted = struct_to_python(conform_values(data, schema.struct_type))
        is_right = [one is not None and repr(one) == repr(other) for one, other in zip(read, wanted, strict=True)]
        return pc.if_else(pc.or_(data.is_null(), pa.array(is_right, pa.bool_())), raws, nothing), data

    def unmet(self, values: pa.StructArray) -> dict[int, str]:
        """The values of the newest schema that can't be bytes of the format, by place, with the reason."""
        source = self.schemas[-1].source
        if source is None or self.value_format.removesuffix("-confluent") != source.language:
            return {}
        return unmet_demands(self.schemas[-1], values)

    def _by_frames(self, values: pa.Array, kind: pa.StructType) -> tuple[pa.StructArray, dict[int, str]]:
        ids = frame_ids(values)
        known = {self.frame_id(number): number for number in range(1, len(self.schemas) + 1)}
        errors: dict[int, str] = {}
        by_schema: dict[int, list[int]] = {}
        for place, (schema_id, is_there) in enumerate(zip(ids, values.is_valid().to_pylist(), strict=True)):
            if not is_there:
                continue
            number = len(self.schemas) if schema_id is None else known.get(schema_id)
            if number is None:
                errors[place] = f"framed as of schema {schema_id}, which the topic doesn't have; expected one of " + (
                    ", ".join(map(str, known))
                )
            else:
                by_schema.setdefault(number, []).append(place)
        if not errors and len(by_schema) == 1:
            [number] = by_schema
            return self._by(self.schemas[number - 1], values, kind)
        parts, order = [pa.nulls(1, kind)], np.zeros(len(values), np.int64)
        start = 1
        for number, places in by_schema.items():
            found, wrong = self._by(self.schemas[number - 1], values.take(pa.array(places)), kind)
            parts.append(found)
            order[places] = np.arange(start, start + len(places))
            start += len(places)
            errors |= {places[at]: reason for at, reason in wrong.items()}
        return pa.concat_arrays(parts).take(pa.array(order)), errors

    def _by(
        self, schema: ValueSchema, values: pa.Array, kind: pa.StructType, passed_over: list[int] | None = None
    ) -> tuple[pa.StructArray, dict[int, str]]:
        structs, errors = decode(self.value_format, schema, values, passed_over)
        return conform_values(structs, kind), errors
