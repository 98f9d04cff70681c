"""Records that hold a secret wherever a name can be, for tests of masks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from sparklog.model import Headers
from sparklog.schemas import value_schema

MASKED = frozenset(["ssn", "pin"])
SECRETS = st.text("0123456789abc-", min_size=6, max_size=6)
CARD = value_schema(
    {
        "type": "record",
        "name": "Card",
        "fields": [{"name": "ssn", "type": "string"}, {"name": "note", "type": "string"}],
    }
)
PERSON = pa.struct([("name", pa.string()), ("ssn", pa.string())])
TYPED = pa.schema(
    [
        ("id", pa.int64()),
        ("pin", pa.int64()),
        ("person", PERSON),
        ("people", pa.list_(PERSON)),
        ("by_name", pa.map_(pa.string(), pa.string())),
        ("document", pa.string()),
        ("blob", pa.binary()),
    ]
)


def documents(secret: str) -> list[Any]:
    """Values of JSON that hold a secret in every place that a name can be in."""
    inner = {"ssn": secret, "name": "ann"}
    return [
        {"ssn": secret},
        {"person": inner, "people": [inner, {"x": [[inner]]}], "SSN": [secret], "pin": {"deep": secret}},
        {"text": json.dumps(inner), "twice": json.dumps(json.dumps([inner])), "before": f"at {json.dumps(inner)}"},
        {"query": f"a=1&ssn={secret}", "xml": f"<ssn>{secret}</ssn>", "cut": json.dumps(inner)[:-1]},
        {"flat.person.ssn": secret, json.dumps(inner): 1},
        [inner],
    ]


def card(secret: str) -> bytes:
    """A record of Avro. Source: Avro 1.12, "Binary encoding"."""
    return bytes([2 * len(secret)]) + secret.encode() + b"\x04hi"


def values(secret: str) -> list[bytes]:
    plain = [json.dumps(one).encode() for one in documents(secret)]
    return [*plain, b"\0\0\0\0\x11" + plain[0], plain[0][:-1], f"ssn: {secret}".encode(), card(secret)]


def headers(secret: str) -> Headers:
    document = json.dumps({"ssn": secret}).encode()
    return [("ssn", secret.encode()), ("document", document), ("__dlq.errors.message", f"got {secret}".encode())]


def typed_value(secret: str, number: int) -> Mapping[str, Any]:
    person = {"name": "ann", "ssn": secret}
    return {
        "id": number,
        "pin": int.from_bytes(secret.encode(), "big"),
        "person": person,
        "people": [person],
        "by_name": {"ssn": secret, "city": "Bern"},
        "document": json.dumps(person),
        "blob": b"\xff" + secret.encode(),
    }
