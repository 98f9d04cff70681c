"""Which codes are found in answers."""

from __future__ import annotations

import pytest

from sparklog.gateway.apis import APIS
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.error_counts import error_name, errors_in
from sparklog.gateway.wire import message


def test_the_codes_of_all_parts_of_an_answer_are_found():
    answer = {
        "error_code": ErrorCode.NOT_COORDINATOR,
        "responses": [
            {"topic": "a", "partitions": [{"partition_index": 0, "error_code": 3}, {"partition_index": 1}]},
            {"topic": "b", "partitions": [{"partition_index": 0, "error_code": 0}, {"error_code": 1}]},
        ],
    }
    assert sorted(errors_in(message("FetchResponse"), answer)) == [1, 3, 16]
    assert errors_in(message("FetchResponse"), {"responses": []}) == []
    parts = {"results_by_partition": [{"partition_index": 0, "partition_error_code": 48}]}
    assert errors_in(message("AddPartitionsToTxnResponse"), {"results_by_topic_v3_and_below": [parts]}) == [48]
    assert errors_in(message("OffsetFetchResponse"), {"groups": None}) == []


@pytest.mark.parametrize("name", [api.name for api in APIS.values()])
def test_each_answer_has_a_place_for_errors(name):
    response = message(f"{name}Response")
    assert errors_in(response, {"error_code": 0}) == []


def test_errors_have_kafkas_names():
    assert error_name(3) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert error_name(-1) == "UNKNOWN_SERVER_ERROR"
    assert error_name(31_000) == "31000"
