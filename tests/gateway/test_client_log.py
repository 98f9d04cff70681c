"""What the log says of a client: each thing that it isn't allowed once, with its name, and no more than a bound."""

from __future__ import annotations

import logging

from sparklog.errors import StoreUnavailableError
from sparklog.gateway.client_log import ClientLog, UnavailableError, address_text
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.refusals import refused_in
from sparklog.gateway.repeats import Repeats
from sparklog.gateway.wire import WireError

TOPIC, GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_what_was_refused_is_named_by_the_answer_or_else_by_the_request():
    partitions = [{"index": 0, "error_code": TOPIC}, {"index": 1, "error_code": 0}]
    produce = {
        "responses": [{"name": "a", "partition_responses": partitions}, {"name": "b", "partition_responses": []}]
    }
    assert [*refused_in(produce, {})] == [(TOPIC, "a")]
    assert [*refused_in({"error_code": GROUP}, {"group_id": "g"})] == [(GROUP, "g")]
    assert [*refused_in({"error_code": GROUP}, {})] == [(GROUP, "")]
    added = {"name": "a", "results_by_partition": [{"partition_index": 0, "partition_error_code": TOPIC}]}
    assert [*refused_in({"results_by_topic_v3_and_below": [added]}, {})] == [(TOPIC, "a")]
    assert [*refused_in({"error_code": 3, "name": "a"}, {})] == []


def fields(caplog):
    return [{**record.sparklog, "level": record.levelname} for record in caplog.records]


def refusing(*names):
    return {"topics": [{"name": name, "error_code": TOPIC} for name in names]}


def test_each_refusal_is_told_once_and_not_without_end(caplog):
    caplog.set_level(logging.INFO, "sparklog.gateway")
    log = ClientLog(("10.0.0.7", 50_240))
    log.client_id = "billing"
    for _ in range(2):
        log.refused("Metadata", refusing("a", "b"), {}, 2)
    known = {"client": "10.0.0.7:50240", "client_id": "billing", "api": "Metadata", "level": "INFO"}
    assert fields(caplog) == [{**known, "reason": "TOPIC_AUTHORIZATION_FAILED", "topic": name} for name in ("a", "b")]
    for number in range(100):
        log.refused("Metadata", refusing(f"t{number}"), {}, 1)
    assert len(caplog.records) == 50


LONG = "\x01" * 1_000_000


def is_short(record):
    return len(record.getMessage()) < 2_000 and all(len(text) < 300 for text in record.sparklog.values())


def test_long_names_of_clients_are_cut(caplog):
    caplog.set_level(logging.DEBUG, "sparklog.gateway")
    log = ClientLog(("10.0.0.7", 50_240))
    log.client_id = LONG
    log.refused("DescribeGroups", {"groups": [{"group_id": LONG, "error_code": GROUP}]}, {}, 1)
    log.refused("DescribeGroups", {"groups": [{"group_id": LONG + "b", "error_code": GROUP}]}, {}, 1)
    assert len(caplog.records) == 1  # nor is the whole name kept to tell it from others
    log.disconnected(WireError(LONG))
    log.not_let_in(ValueError(LONG), LONG)
    log.users_not_read(ValueError(LONG))
    assert all(map(is_short, caplog.records))
    assert [one["client_id"] for one in fields(caplog)] == ["\x01" * 200 + "…"] * 4


def test_one_answer_has_no_more_entries_than_a_connection(caplog):
    caplog.set_level(logging.INFO, "sparklog.gateway")
    log = ClientLog("a socket")
    log.refused("Metadata", refusing("a", "b"), {}, 2)
    log.refused("Metadata", refusing(*(f"t{number}" for number in range(100))), {}, 100)
    assert len(caplog.records) == 50


def test_a_disconnect_has_its_reason(caplog):
    caplog.set_level(logging.INFO, "sparklog.gateway")
    log = ClientLog("a socket")
    reasons = {
        "unavailable": UnavailableError("the store is away"),
        "invalid": WireError("half a frame"),
        "idle": TimeoutError(),
        "error": ZeroDivisionError("a defect"),
    }
    assert [log.disconnected(error) for error in reasons.values()] == [*reasons]
    assert [one["reason"] for one in fields(caplog)] == [*reasons]
    assert [one["level"] for one in fields(caplog)] == ["WARNING", "WARNING", "INFO", "ERROR"]
    assert caplog.records[-1].exc_info is not None
    assert caplog.records[0].exc_info is None


def test_of_what_a_store_that_is_away_causes_there_is_an_entry_a_second(caplog):
    caplog.set_level(logging.INFO, "sparklog.gateway")
    times_s = [0.0]
    repeats = Repeats(lambda: times_s[0])
    for number in range(16):
        log = ClientLog(f"client {number}", repeats)
        log.users_not_read(StoreUnavailableError("away"))
        assert log.disconnected(UnavailableError("away")) == "unavailable"
        assert log.disconnected(WireError("half a frame")) == "invalid"  # which is this client's doing
        times_s[0] += 0.125
    texts = [one.getMessage() for one in caplog.records if "half a frame" not in one.getMessage()]
    others = " (and 7 others since the last such entry)"
    assert texts == [
        "client client 0 wasn't let in, as the users can't be read: away",
        "client client 0 was disconnected: away",
        f"client client 8 wasn't let in, as the users can't be read: away{others}",
        f"client client 8 was disconnected: away{others}",
    ]
    assert len(caplog.records) == 20


def test_an_address_is_one_text():
    assert address_text(("::1", 9092, 0, 0)) == "::1:9092"
    assert address_text(None) == "None"
