"""Schemas of values: what a schema may be, what a value of it is, how it may change, and its bytes in other formats.

Pure: nothing here reads a store. Avro, Protobuf and pydantic are imported where they are used.
"""

from sparklog.schemas.columns import conform
from sparklog.schemas.compatibility import MODES, Verdict, check, merged_type, union
from sparklog.schemas.formats import FORMATS, decode, encode
from sparklog.schemas.records import check_record, python_rows_to_struct
from sparklog.schemas.sources import schema_of_file, value_schema
from sparklog.schemas.to_python import struct_to_python
from sparklog.schemas.value_schema import SchemaError, ValueSchema

__all__ = [
    "FORMATS",
    "MODES",
    "SchemaError",
    "ValueSchema",
    "Verdict",
    "check",
    "check_record",
    "conform",
    "decode",
    "encode",
    "merged_type",
    "python_rows_to_struct",
    "schema_of_file",
    "struct_to_python",
    "union",
    "value_schema",
]
