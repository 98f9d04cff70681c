"""No form of a record shows what is masked, wherever it stands."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.console.decoding import DECODINGS, plain_record, shown_record
from sparklog.console.masks import HIDDEN, Masks
from sparklog.console.wire_formats import NamedSchema
from sparklog.sql.search import FoundRecord
from tests.console.secret_records import CARD, MASKED, SECRETS, headers, values

MASKS = Masks(MASKED)


@given(st.sampled_from(DECODINGS), st.booleans(), SECRETS, SECRETS)
def test_no_form_of_a_record_has_a_secret(how: str, pretty: bool, one: str, other: str) -> None:
    named = NamedSchema(CARD)
    for schema, place in itertools.product((None, named), range(len(values(one)))):
        seen = []
        for secret in (one, other):
            value = values(secret)[place]
            record = FoundRecord(0, 0, 0, value, value, headers(secret), len(value), len(value))
            shown = shown_record(record, how=how, masks=MASKS, pretty=pretty, schema=schema)
            seen.append((shown, plain_record("t", record, masks=MASKS, schema=schema)))
        assert seen[0] == seen[1]
        assert HIDDEN in repr(seen) or "hidden" in repr(seen)


def test_what_is_named_plain_is_shown() -> None:
    masks = Masks(MASKED, plain=frozenset(["key", "trace"]))
    record = FoundRecord(0, 0, 0, b"user-1", b"text", [("Trace", b"t1"), ("other", b"t2"), ("ssn", b"t3")], 6, 4)
    found = plain_record("t", record, masks=masks)
    assert (found["key"], found["value"]) == ("user-1", HIDDEN)
    assert [one["value"] for one in found["headers"]] == ["t1", HIDDEN, HIDDEN]
    assert shown_record(record, masks=masks)["key"].text == "user-1"
    document = record._replace(key=b'{"ssn": 1}', key_size=10)
    assert json.loads(plain_record("t", document, masks=masks)["key"]) == {"ssn": HIDDEN}


@pytest.mark.parametrize("text", ["fine", "[]", '"a"', "{}", "a ssnumber", "5", ""])
def test_a_text_without_masked_fields_is_shown(text: str) -> None:
    assert MASKS.of_value({"a": text}) == {"a": text}


def test_a_number_of_any_length_and_any_depth_hides_no_more_than_itself() -> None:
    assert MASKS.of_bytes("", b'{"ssn": %s, "a": 1}' % (b"9" * 5_000)).value == {"ssn": HIDDEN, "a": 1}  # type: ignore[union-attr]
    deep = b'{"ssn": %s, "a": 1}' % (b"[" * 100 + b"]" * 100)
    assert MASKS.of_bytes("", deep).value == {"ssn": HIDDEN, "a": 1}  # type: ignore[union-attr]
    found = MASKS.of_bytes("", deep.replace(b"ssn", b"b"))
    assert HIDDEN in found.text  # type: ignore[union-attr]
