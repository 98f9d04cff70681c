"""Schemas of values: what a schema may be, what a value of it is, how it may change, and its bytes in other formats.

Pure: nothing here reads a store. A name is imported when it is first used, as a client of untyped topics needs few of
them; Avro, Protobuf and pydantic where they are used.
"""

from typing import TYPE_CHECKING

from sparklog.lazy_imports import import_on_use

if TYPE_CHECKING:
    from sparklog.schemas.canonical import SchemaError, SchemaSource, ValueSchema, delta_type, type_name
    from sparklog.schemas.columns import conform, unreadable_leaf
    from sparklog.schemas.compatibility import MODES, Verdict, check, merged_type, type_differences, union
    from sparklog.schemas.dataclass_fields import plain_fields
    from sparklog.schemas.demands import unmet_demands
    from sparklog.schemas.formats import FORMATS, UnwritableError, check_format, decode, encode, frame_ids
    from sparklog.schemas.packing import column_of_parts, packer_of
    from sparklog.schemas.records import check_record, has_fields, python_rows_to_struct
    from sparklog.schemas.sources import schema_of_file, value_schema
    from sparklog.schemas.to_python import struct_to_python
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.schemas.canonical": ("SchemaError", "SchemaSource", "ValueSchema", "delta_type", "type_name"),
            "sparklog.schemas.columns": ("conform", "unreadable_leaf"),
            "sparklog.schemas.compatibility": ("MODES", "Verdict", "check", "merged_type", "type_differences", "union"),
            "sparklog.schemas.dataclass_fields": ("plain_fields",),
            "sparklog.schemas.demands": ("unmet_demands",),
            "sparklog.schemas.formats": ("FORMATS", "UnwritableError", "check_format", "decode", "encode", "frame_ids"),
            "sparklog.schemas.packing": ("column_of_parts", "packer_of"),
            "sparklog.schemas.records": ("check_record", "has_fields", "python_rows_to_struct"),
            "sparklog.schemas.sources": ("schema_of_file", "value_schema"),
            "sparklog.schemas.to_python": ("struct_to_python",),
        },
    )

__all__ = [
    "FORMATS",
    "MODES",
    "SchemaError",
    "SchemaSource",
    "UnwritableError",
    "ValueSchema",
    "Verdict",
    "check",
    "check_format",
    "check_record",
    "column_of_parts",
    "conform",
    "decode",
    "delta_type",
    "encode",
    "frame_ids",
    "has_fields",
    "merged_type",
    "packer_of",
    "plain_fields",
    "python_rows_to_struct",
    "schema_of_file",
    "struct_to_python",
    "type_differences",
    "type_name",
    "union",
    "unmet_demands",
    "unreadable_leaf",
    "value_schema",
]
