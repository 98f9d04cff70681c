"""The leaves of a typed topic's values as columns of their own."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings

from sparklog.consumer import Consumer
from sparklog.log import create_topic
from sparklog.log.data.value_columns import leaf_column, leaves_of
from sparklog.log.data.value_sizes import value_sizes
from sparklog.schemas import python_rows_to_struct, value_schema
from tests.depth import by_depth
from tests.producer.support import a_cluster, a_producer
from tests.schemas.test_values import schemas_and_rows


@settings(max_examples=by_depth(gate=40, nightly=200), deadline=None)
@given(schemas_and_rows())
def test_a_leaf_is_what_arrow_says_of_it_in_slices_and_chunks_too(found):
    schema, rows = found
    whole, _ = python_rows_to_struct(schema, [None, *rows, None])
    for values in (whole, whole.slice(1), pa.chunked_array([whole, whole.slice(2)]), pa.chunked_array([], whole.type)):
        for leaf, kind in leaves_of(schema.struct_type):
            column = leaf_column(values, leaf)
            assert column.type == kind
            assert column.to_pylist().__repr__() == pc.struct_field(values, list(leaf)).to_pylist().__repr__()


def test_a_field_of_a_null_has_no_size_whatever_is_in_it():
    inner = pa.StructArray.from_arrays([pa.array(["abc", "de"]), pa.array([1, 2])], ["text", "number"])
    values = pa.StructArray.from_arrays(
        [pa.StructArray.from_arrays(inner.flatten(), ["text", "number"], mask=pa.array([True, False]))], ["inner"]
    )
    assert value_sizes(values).tolist() == [0, 10]
    assert value_sizes(values.slice(1)).tolist() == [10]


def test_a_wide_value_costs_no_pass_over_all_fields_for_each_of_them(monkeypatch):
    """Arrow's ``struct_field`` takes one: of 2,000 fields a second for a record."""
    fields = [f"f{number}" for number in range(100)]
    cluster = a_cluster()
    schema = value_schema(pa.schema([(name, pa.string()) for name in fields]))
    create_topic(cluster.topic_log("t"), "t", value_schema=schema)
    row = dict.fromkeys(fields, "a")

    def refuse(*_: object) -> None:
        raise AssertionError("struct_field was called")

    monkeypatch.setattr(pc, "struct_field", refuse)
    table = pa.table({name: np.repeat("a", 600) for name in fields})
    with a_producer(cluster) as producer:
        producer.send("t", row).get()
        producer.send_batch("t", table).get()
    with Consumer("t", cluster=cluster, value_format="python", auto_offset_reset="earliest") as consumer:
        found: list[object] = []
        while len(found) < 601:
            found += [record.value for records in consumer.poll(timeout_ms=1_000).values() for record in records]
    assert found == [row] * 601
