"""The requests of ``proof.bounds``: each API is there, and what the documentation allows is decoded."""

from __future__ import annotations

import itertools

import pytest

from proof.bounds.hostile import all_hostile, told_limits
from sparklog.gateway.apis import APIS
from sparklog.gateway.element_limits import limits_of
from sparklog.gateway.wire import WireError


def test_each_api_with_arrays_is_asked_for_too_much() -> None:
    kinds = {(one.api.name, one.kind) for one in all_hostile() if one.is_too_much}
    with_arrays = {
        api.name for api in APIS.values() if any(field.kind.startswith("[]") for field in api.request.fields)
    }
    assert {name for name, kind in kinds if kind == "count"} == with_arrays
    assert ("Fetch", "nesting") in kinds
    assert ("ApiVersions", "tags") in kinds


@pytest.mark.timeout(300)
def test_the_documentation_s_limits_are_those_of_the_gateway() -> None:
    assert set(told_limits()) > {"all others", "Fetch"}
    chosen = all_hostile(frozenset({"FindCoordinator", "ListOffsets", "Fetch", "ApiVersions"}))
    for one in itertools.islice(chosen, 40):
        body = one.body
        assert len(body) < 8_900_000
        if one.is_too_much:
            with pytest.raises(WireError):
                one.api.request.decode(body, one.version, is_exact=False, limits=limits_of(one.api.name))
        else:
            assert one.api.request.decode(body, one.version, limits=limits_of(one.api.name))


def test_each_produce_asks_for_an_answer() -> None:
    for one in all_hostile(frozenset({"Produce"})):
        if not one.is_too_much:
            assert one.api.request.decode(one.body, one.version)["acks"] == -1
