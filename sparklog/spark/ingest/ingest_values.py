"""The values of an ingest into a typed topic: from the input's fields, structs or bytes to the column of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sparklog.errors import InvalidArgumentError
from sparklog.log.data.value_columns import DATA, SCHEMA_ID, conform_values, view_columns
from sparklog.log.data.value_sizes import value_sizes
from sparklog.log.head import TopicHead
from sparklog.log.value_bytes import ValueBytes
from sparklog.schemas import ValueSchema, conform
from sparklog.spark.runtime.spark_calls import with_arrow_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["ERROR", "TYPED_COLUMNS", "VALUE_SIZE", "TypedInput", "checked_structs"]

TYPED_COLUMNS = (DATA, SCHEMA_ID)
"""The columns that a row of a typed topic has beside the others."""
VALUE_SIZE = "value_size"
"""A column: the bytes of a value in ``data``."""
ERROR = "value_error"
"""A column: why bytes that are kept couldn't be decoded; null where they could."""
_CHECKED = "checked_value"


@dataclass(frozen=True, slots=True)
class TypedInput:
    """How an input's values become those of a typed topic."""

    schema: ValueSchema
    schema_id: int
    codec: ValueBytes
    keeps_undecodable: bool
    keeps_bytes: bool
    physical: pa.StructType
    """The type of the table's column."""
    columns: Mapping[str, str]
    """Fields by the name of their column."""

    @classmethod
    def of(cls, head: TopicHead, taken: tuple[str, ...]) -> TypedInput | None:
        """The input of a topic; None for an untyped one.

        Args:
            taken: names of columns that are no fields: a field of such a name is the column ``value_<name>``.
        """
        if head.schemas is None:
            return None
        schema = head.schemas.newest
        names = view_columns([field.name for field in head.schemas.physical], taken)
        return cls(
            schema=schema,
            schema_id=head.schemas.newest_id,
            codec=ValueBytes.of(head.schemas, head.config),
            keeps_undecodable=head.config["value.on.error"] == "keep",
            keeps_bytes=head.config["value.bytes"] == "keep",
            physical=head.schemas.physical,
            columns={names[field]: field for field in schema.arrow.names},
        )

    def with_values(self, df: DataFrame) -> tuple[DataFrame, dict[str, Column], Column]:
        """The input with what its values are checked to be; then the columns ``value``, ``data``, ``schema_id``,
        :data:`VALUE_SIZE` and :data:`ERROR` of it, and the reason why a value can't be stored, null where it can.

        Raises:
            InvalidArgumentError: a column of a type that can't be the field's.
        """
        from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's own documentation
        from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

        given = [name for name in df.columns if name in self.columns]
        types = dict(df.dtypes)
        is_bytes = not given and types.get("value", "binary") in ("string", "binary")
        if given:
            value = F.struct(*(F.col(name).alias(self.columns[name]) for name in given))
        else:
            value = F.col("value") if "value" in types else F.lit(None)
        if is_bytes:
            value = value.cast("binary")
        else:
            kind = df.select(value.alias("value")).schema["value"].dataType
            checked_structs(pa.array([], to_arrow_type(kind)), self.schema, self.physical)
        result = pa.struct([(DATA, self.physical), (VALUE_SIZE, pa.int64()), ("reason", pa.string())])
        df = with_arrow_column(df, _CHECKED, self._check(is_bytes), from_arrow_type(result), value)
        checked = F.col(_CHECKED)
        nothing, keeps_undecodable = F.lit(None).cast("string"), is_bytes and self.keeps_undecodable
        undecodable = checked["reason"] if keeps_undecodable else nothing
        stays = undecodable.isNotNull() | F.lit(is_bytes and self.keeps_bytes)
        columns = {
            "value": F.when(stays, value) if is_bytes else nothing.cast("binary"),
            DATA: checked[DATA],
            SCHEMA_ID: F.when(checked[DATA].isNotNull(), F.lit(self.schema_id)),
            VALUE_SIZE: checked[VALUE_SIZE],
            ERROR: undecodable,
        }
        return df, columns, nothing if keeps_undecodable else checked["reason"]

    def _check(self, is_bytes: bool) -> Callable[[pa.Array], pa.Array]:
        schema, codec, physical = self.schema, self.codec, self.physical

        def check(values: pa.Array) -> pa.Array:
            if is_bytes:
                data, errors = codec.decode(values, schema.struct_type)
            else:
                data, errors = _each_struct(values, schema, 0)
                errors |= codec.unmet(data)
            reasons = pa.array([errors.get(place) for place in range(len(values))], pa.string())
            columns = [conform_values(data, physical), pa.array(value_sizes(data)), reasons]
            return pa.StructArray.from_arrays(columns, [DATA, VALUE_SIZE, "reason"])

        return check


def checked_structs(values: pa.Array, schema: ValueSchema, physical: pa.StructType) -> pa.StructArray:
    """Structs as values of a schema, in the table's type. Raises ``InvalidArgumentError``."""
    if not pa.types.is_struct(values.type):
        raise InvalidArgumentError(f"merge_ingest: column value is {values.type}, expected binary, string or a struct")
    try:
        return conform_values(conform(values, schema), physical)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"merge_ingest: {error}") from error


def _each_struct(values: pa.Array, schema: ValueSchema, first: int) -> tuple[pa.StructArray, dict[int, str]]:
    """Structs as values of a schema, null where one can't be; and why, by place from ``first`` on."""
    try:
        return conform(values, schema), {}
    except InvalidArgumentError as error:
        if len(values) == 1:
            return pa.nulls(1, schema.struct_type), {first: str(error)}
    middle = len(values) // 2
    low, errors = _each_struct(values.slice(0, middle), schema, first)
    high, more = _each_struct(values.slice(middle), schema, first + middle)
    return pa.concat_arrays([low, high]), errors | more
