"""A stand-in of the package of schemas: Arrow schemas alone. The package takes its place."""

import base64
import json
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class ValueSchema:
    """A schema."""

    arrow: pa.Schema

    def to_json(self):
        return json.dumps({"ipc": base64.b64encode(self.arrow.serialize().to_pybytes()).decode()})

    @classmethod
    def from_json(cls, t):
        return cls(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(json.loads(t)["ipc"]))))


def value_schema(source):
    return source if isinstance(source, ValueSchema) else ValueSchema(source)


@dataclass(frozen=True)
class Verdict:
    """A verdict."""

    compatible: bool
    reasons: tuple


def check(new, olds, mode):
    for old in olds:
        for f in old.arrow:
            if f.name in new.arrow.names and new.arrow.field(f.name).type != f.type:
                return Verdict(False, (f"field {f.name}: {f.type} became {new.arrow.field(f.name).type}",))
    return Verdict(True, ())


def union(schemas):
    fs = {}
    for s in schemas:
        for f in s.arrow:
            fs.setdefault(f.name, f)
    return ValueSchema(pa.schema(list(fs.values())))


def _kind(t):
    if pa.types.is_integer(t):
        return int
    if pa.types.is_floating(t):
        return (int, float)
    if pa.types.is_string(t):
        return str
    if pa.types.is_struct(t):
        return dict
    return object


def check_record(schema, value):
    from sparklog.errors import InvalidRecordError

    if not isinstance(value, dict):
        raise InvalidRecordError(f"value: got {type(value).__name__}, expected a dict")
    for name, v in value.items():
        if name not in schema.arrow.names:
            raise InvalidRecordError(f"field {name!r}: unknown")
        t = schema.arrow.field(name).type
        if v is not None and not isinstance(v, _kind(t)):
            raise InvalidRecordError(f"field {name!r}: got {v!r}, expected {t}")


def python_rows_to_struct(schema, rows):
    t = pa.struct(list(schema.arrow))
    try:
        return pa.array(rows, t), {}
    except Exception:
        out, errors = [], {}
        for i, r in enumerate(rows):
            try:
                pa.array([r], t)
                out.append(r)
            except Exception as e:
                out.append(None)
                errors[i] = str(e)
        return pa.array(out, t), errors


def struct_to_python(array):
    return array.to_pylist()


def decode(fmt, schema, values):
    rows, errors = [], {}
    for i, v in enumerate(values.to_pylist()):
        try:
            rows.append(None if v is None else json.loads(v))
        except Exception as e:
            rows.append(None)
            errors[i] = str(e)
    s, more = python_rows_to_struct(schema, rows)
    return s, {**errors, **more}


def encode(fmt, schema, array):
    return pa.array(
        [None if v is None else json.dumps(v, default=str).encode() for v in array.to_pylist()], pa.binary()
    )
