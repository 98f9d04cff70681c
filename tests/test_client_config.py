"""The settings of producers and consumers: Kafka's names, defaults and rules; unknown ones are refused by name."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import pytest

from sparklog.config import AdminConfig, ConsumerConfig, ProducerConfig
from sparklog.config.clients import NO_EFFECT, REFUSED
from sparklog.config.consumer import CONSUMER_SETTINGS, ResetPolicy
from sparklog.config.producer import PRODUCER_SETTINGS
from sparklog.errors import InvalidConfigurationError

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1

# Source: Apache Kafka 4.3.0 ProducerConfig and ConsumerConfig, as their released classes print them.
PRODUCER_DEFAULTS: dict[str, object] = {
    "acks": -1,
    "buffer_memory": 33_554_432,
    "client_id": None,
    "compression_type": "none",
    "delivery_timeout_ms": 120_000,
    "enable_idempotence": True,
    "linger_ms": 5,
    "max_block_ms": 60_000,
    "max_in_flight_requests_per_connection": 5,
    "max_request_size": 1_048_576,
    "request_timeout_ms": 30_000,
    "retries": INT_MAX,
    "retry_backoff_max_ms": 1_000,
    "retry_backoff_ms": 100,
    "transaction_timeout_ms": 60_000,
    "transactional_id": None,
}
CONSUMER_DEFAULTS: dict[str, object] = {
    "auto_commit_interval_ms": 5_000,
    "auto_offset_reset": ResetPolicy("latest"),
    "check_crcs": True,
    "client_id": None,
    "default_api_timeout_ms": 60_000,
    "enable_auto_commit": False,  # without a group.id
    "exclude_internal_topics": True,
    "fetch_max_bytes": 52_428_800,
    "fetch_max_wait_ms": 500,
    "fetch_min_bytes": 1,
    "group_id": None,
    "group_instance_id": None,
    "group_protocol": "classic",
    "heartbeat_interval_ms": 3_000,
    "isolation_level": "read_uncommitted",
    "max_partition_fetch_bytes": 1_048_576,
    "max_poll_interval_ms": 300_000,
    "max_poll_records": 500,
    "metadata_max_age_ms": 300_000,
    "request_timeout_ms": 30_000,
    "retry_backoff_max_ms": 1_000,
    "retry_backoff_ms": 100,
    "session_timeout_ms": 45_000,
}
# docs/semantics.md says why
OURS: dict[str, object] = {
    "batch_size": 1_048_576,
    "group_commit": True,
    "value_format": "bytes",
    "value_schema_id": None,
}
KAFKA_PYTHONS: dict[str, object] = {
    **dict.fromkeys(("key_serializer", "value_serializer", "partitioner"), None),
    **dict.fromkeys(("key_deserializer", "value_deserializer", "partition_assignment_strategy"), None),
    "interceptors": (),
    "consumer_timeout_ms": LONG_MAX,
}
CONFIGS = {"producer": ProducerConfig, "consumer": ConsumerConfig, "admin": AdminConfig}
CLIENTS: list[Any] = [pytest.param(config, id=name) for name, config in CONFIGS.items()]


def as_dict(config: Any) -> dict[str, object]:
    return {field.name: getattr(config, field.name) for field in fields(config)}


def test_a_producers_defaults_are_kafkas() -> None:
    known = {**PRODUCER_DEFAULTS, **OURS, **KAFKA_PYTHONS}
    assert as_dict(ProducerConfig.parse({})) == {name: known[name] for name in PRODUCER_SETTINGS}


def test_on_another_machines_store_only_the_default_of_a_producers_memory_is_another() -> None:
    at_home, remote = (as_dict(ProducerConfig.parse({}, is_remote=is_remote)) for is_remote in (False, True))
    assert remote == {**at_home, "buffer_memory": 128 * 2**20}


@pytest.mark.parametrize("name", ["buffer_memory", "buffer.memory"])
@pytest.mark.parametrize("given", [0, 33_554_432, "5000000", LONG_MAX])
def test_memory_that_is_given_is_kept_on_any_store(name: str, given: object) -> None:
    configs = [ProducerConfig.parse({name: given}, is_remote=is_remote) for is_remote in (False, True)]
    assert [config.buffer_memory for config in configs] == [int(str(given))] * 2


def test_a_consumers_defaults_are_kafkas() -> None:
    known = {**CONSUMER_DEFAULTS, **OURS, **KAFKA_PYTHONS}
    assert as_dict(ConsumerConfig.parse({})) == {name: known[name] for name in CONSUMER_SETTINGS}


def test_names_are_spelled_with_dots_or_underscores_and_values_as_text_or_numbers() -> None:
    config = ProducerConfig.parse(
        {"linger.ms": "7", "batch_size": " 100 ", "max.block.ms": 5.0, "buffer_memory": 9, "retries": 3}
    )
    assert (config.linger_ms, config.batch_size, config.max_block_ms, config.buffer_memory) == (7, 100, 5, 9)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_setting_given_in_both_spellings_is_refused(client: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"request_timeout_ms is given twice.*request\.timeout\.ms"):
        client.parse({"request_timeout_ms": 1, "request.timeout.ms": 1})


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", ["lingerms", "linger-ms", "bootstrap_servers", "", "LINGER_MS"])
def test_an_unknown_setting_is_named_beside_the_known_ones(client: Any, name: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=rf"unknown \w+ setting {name!r}; known: .*request_timeout_ms"):
        client.parse({name: 5})


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "name",
    [*REFUSED, "sasl_mechanism", "sasl.jaas.config", "sasl_plain_password", "ssl_cafile", "ssl.truststore.password"],
)
def test_a_refused_setting_of_security_or_topic_creation_does_not_show_its_value(client: Any, name: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"{name.replace('.', '_')} is not supported: ") as caught:
        client.parse({name: "a-secret"})
    assert "a-secret" not in str(caught.value)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security_protocol", "PLAINTEXT"),
        ("allow_auto_create_topics", False),
        ("sasl_mechanism", None),
        ("proxy_url", None),
    ],
)
def test_a_refused_setting_that_asks_for_what_is_so_anyway_is_accepted(client: Any, name: str, value: object) -> None:
    client.parse({name: value})


@pytest.mark.parametrize("client", CLIENTS)
def test_settings_of_sockets_and_the_like_are_accepted_and_change_nothing(client: Any) -> None:
    given = {name.replace("_", "."): object() for name in NO_EFFECT if name not in as_dict(client.parse({}))}
    assert client.parse(given) == client.parse({})
    assert all(NO_EFFECT.values())


@pytest.mark.parametrize(
    ("given", "acks"), [("all", -1), ("-1", -1), (-1, -1), ("1", 1), (1, 1), ("0", 0), (0, 0)], ids=repr
)
def test_acks_is_0_1_or_all(given: object, acks: int) -> None:
    assert ProducerConfig.parse({"acks": given}).acks == acks


@pytest.mark.parametrize("given", ["ALL", "2", 2, True, False, None, "", 1.5, [1]], ids=repr)
def test_acks_is_nothing_else(given: object) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"acks=.*expected 0, 1 or all"):
        ProducerConfig.parse({"acks": given})


NUMBERS = {
    **dict.fromkeys(("batch_size", "linger_ms", "max_request_size", "request_timeout_ms", "retries"), (0, INT_MAX)),
    "delivery_timeout_ms": (30_005, INT_MAX),
    **dict.fromkeys(("buffer_memory", "max_block_ms", "retry_backoff_ms", "retry_backoff_max_ms"), (0, LONG_MAX)),
    "max_in_flight_requests_per_connection": (1, 5),
    "transaction_timeout_ms": (1, INT_MAX),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_have_kafkas_bounds(name: str) -> None:
    for allowed in NUMBERS[name]:
        assert getattr(ProducerConfig.parse({name: allowed}), name) == allowed
    low, high = PRODUCER_BOUNDS.get(name, NUMBERS[name])
    for value in (low - 1, high + 1, "many", "", 1.5, True, None, [1], b"1", math.nan, -math.inf):
        with pytest.raises(InvalidConfigurationError, match=f"{name}=.*expected a whole number from {low} to {high}"):
            ProducerConfig.parse({name: value})


PRODUCER_BOUNDS = {"delivery_timeout_ms": (0, INT_MAX), "max_in_flight_requests_per_connection": (1, INT_MAX)}
"""Where other rules bound what may be given alone."""


@pytest.mark.parametrize(("client", "name"), [(ProducerConfig, "retries"), (AdminConfig, "retries")])
def test_infinite_retries_are_kafkas_most(client: Any, name: str) -> None:
    assert getattr(client.parse({name: math.inf}), name) == INT_MAX


def test_a_consumer_may_iterate_for_ever() -> None:
    assert ConsumerConfig.parse({"consumer_timeout_ms": math.inf}).consumer_timeout_ms == LONG_MAX


def test_infinity_is_refused_elsewhere() -> None:
    with pytest.raises(InvalidConfigurationError, match="linger_ms=inf"):
        ProducerConfig.parse({"linger_ms": math.inf})


# Source: Kafka ProducerConfig.postProcessAndValidateIdempotenceConfigs
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, True),
        ({"enable_idempotence": True}, True),
        ({"enable_idempotence": "true", "acks": "all", "retries": 1}, True),
        ({"enable_idempotence": False}, False),
        ({"acks": 1}, False),
        ({"acks": 0}, False),
        ({"retries": 0}, False),
        ({"acks": 1, "max_in_flight_requests_per_connection": 6}, False),
        ({"enable_idempotence": False, "max_in_flight_requests_per_connection": 100}, False),
        ({"enable_idempotence": False, "acks": 1, "retries": 0}, False),
    ],
    ids=repr,
)
def test_idempotence_is_turned_off_by_what_contradicts_it_silently_if_nobody_asked(
    given: dict[str, object], expected: bool
) -> None:
    assert ProducerConfig.parse(given).enable_idempotence is expected


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"enable_idempotence": True, "acks": 1}, "acks=1"),
        ({"enable_idempotence": True, "acks": 0, "retries": 0}, "retries=0 and acks=0"),
        ({"enable.idempotence": True, "retries": 0}, "retries=0"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "max_in_flight.*=6.*at most 5"),
        ({"max_in_flight_requests_per_connection": 6}, "max_in_flight.*=6.*at most 5"),  # an error since Kafka 4.0
    ],
    ids=repr,
)
def test_what_contradicts_idempotence_that_was_asked_for_is_named(given: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=named):
        ProducerConfig.parse(given)


def test_the_delivery_timeout_holds_linger_and_request_timeout() -> None:
    """Source: Kafka ``KafkaProducer.configureDeliveryTimeout``: explicit ones are refused, the default grows."""
    for name in ("delivery_timeout_ms", "delivery.timeout.ms"):
        with pytest.raises(InvalidConfigurationError, match=r"delivery_timeout_ms=149.*linger_ms \+ .*= 150"):
            ProducerConfig.parse({name: 149, "linger_ms": 50, "request_timeout_ms": 100})
    assert ProducerConfig.parse({"delivery_timeout_ms": 30_005}).delivery_timeout_ms == 30_005
    assert ProducerConfig.parse({"linger_ms": 100_000}).delivery_timeout_ms == 130_000


@pytest.mark.parametrize("given", ["gzip", "snappy", "lz4", "zstd", "none", None], ids=repr)
def test_compression_is_one_of_kafkas(given: str | None) -> None:
    assert ProducerConfig.parse({"compression_type": given}).compression_type == (given or "none")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("compression_type", "brotli", "one of none, gzip"),
        ("client_id", "", "isn't empty"),
        ("client_id", 5, "a text"),
        ("enable_idempotence", "yes", "true or false"),
        ("key_serializer", 5, "a function of the data or an object"),
        ("value_serializer", "utf-8", "a function of the data or an object"),
        ("partitioner", "murmur2", "a function of"),
        ("interceptors", [object()], "objects with a method on_send"),
        ("interceptors", "org.example.Interceptor", "objects with a method on_send"),
        ("transactional_id", "", "a text that isn't empty"),
        ("transactional_id", 5, "a text that isn't empty"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_was_expected(name: str, value: object, expected: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"{name}=.*{expected}"):
        ProducerConfig.parse({name: value})


def test_a_transactional_producer_is_named_after_its_id() -> None:
    config = ProducerConfig.parse({"transactional.id": "orders-1", "transaction.timeout.ms": "5000"})
    assert (config.transactional_id, config.transaction_timeout_ms) == ("orders-1", 5_000)
    assert (config.client_id, config.enable_idempotence) == ("producer-orders-1", True)
    assert ProducerConfig.parse({"transactional_id": "x", "client_id": "mine"}).client_id == "mine"
    assert ProducerConfig.parse({"transactional_id": "x", "acks": 1}).acks == 1  # refused by Kafka


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"acks": 0}, "acks=0 contradicts transactional_id"),
        ({"retries": 0}, "retries=0 contradicts transactional_id"),
        ({"enable_idempotence": False}, "enable_idempotence=false contradicts transactional_id"),
        ({"max_in_flight_requests_per_connection": 6}, "max_in_flight.*=6.*at most 5"),
    ],
    ids=repr,
)
def test_what_contradicts_a_transactional_id_is_named(given: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=named):
        ProducerConfig.parse({"transactional_id": "x", **given})


class Json:
    def serialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: object) -> bytes:
        return f"{topic}{len(headers)}{data}".encode()

    def deserialize(self, topic: str, headers: list[tuple[str, bytes | None]], data: object) -> str:
        return f"{topic}{len(headers)}{data!r}"


def test_serializers_are_functions_of_the_data_or_objects() -> None:
    producer = ProducerConfig.parse({"key_serializer": str.encode, "value_serializer": Json()})
    consumer = ConsumerConfig.parse({"key_deserializer": bytes.decode, "value_deserializer": Json()})
    assert producer.key_serializer is not None
    assert producer.value_serializer is not None
    assert consumer.key_deserializer is not None
    assert consumer.value_deserializer is not None
    assert producer.key_serializer("t", [], "k") == b"k"
    assert producer.value_serializer("t", [("a", None)], 5) == b"t15"
    assert consumer.key_deserializer("t", [], b"k") == "k"
    assert consumer.value_deserializer("t", [], b"5") == "t0b'5'"


def test_a_serializers_class_instead_of_an_instance_is_told_so() -> None:
    with pytest.raises(
        InvalidConfigurationError, match=r"value_serializer=.*expected an instance of Json, not the class"
    ):
        ProducerConfig.parse({"value_serializer": Json})


def test_a_partitioners_class_instead_of_an_instance_is_refused() -> None:
    class ByValue:
        def partition(self, *given: object) -> int:
            return 0

    with pytest.raises(InvalidConfigurationError, match=r"partitioner=.*expected"):
        ProducerConfig.parse({"partitioner": ByValue})
    assert isinstance(ProducerConfig.parse({"partitioner": ByValue()}).partitioner, ByValue)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("earliest", ResetPolicy("earliest")),
        ("latest", ResetPolicy("latest")),
        ("none", ResetPolicy("none")),
        ("by_duration:P3D", ResetPolicy("by_duration", 3 * 86_400_000)),
        ("by_duration:PT1H30M", ResetPolicy("by_duration", 5_400_000)),
        ("by_duration:P1DT0.5S", ResetPolicy("by_duration", 86_400_500)),
    ],
)
def test_a_consumer_resets_to_an_end_not_at_all_or_by_a_duration(given: str, expected: ResetPolicy) -> None:
    assert ConsumerConfig.parse({"auto_offset_reset": given}).auto_offset_reset == expected


@pytest.mark.parametrize("given", ["Earliest", "by_duration", "by_duration:", "by_duration:P", "by_duration:3D", "", 0])
def test_another_reset_policy_is_refused(given: object) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"auto_offset_reset=.*expected earliest, latest, none"):
        ConsumerConfig.parse({"auto_offset_reset": given})


def test_how_often_patterns_are_looked_up_is_told_to_consumers_alone() -> None:
    assert ConsumerConfig.parse({"metadata.max.age.ms": "7"}).metadata_max_age_ms == 7
    assert "metadata_max_age_ms" in NO_EFFECT
    assert "metadata_max_age_ms" not in PRODUCER_SETTINGS


def test_a_group_brings_automatic_commits_unless_told_otherwise() -> None:
    """Source: Kafka ``ConsumerConfig.maybeOverrideEnableAutoCommit``."""
    assert ConsumerConfig.parse({"group.id": "g"}).enable_auto_commit is True
    assert ConsumerConfig.parse({"group.id": "g", "enable.auto.commit": "false"}).enable_auto_commit is False


@pytest.mark.parametrize("given", ["", 5, b"g"], ids=repr)
@pytest.mark.parametrize("name", ["group_id", "group_instance_id"])
def test_a_group_and_an_instance_are_named_by_text(name: str, given: object) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"{name}=.*expected a text that isn't empty"):
        ConsumerConfig.parse({"group_id": "g", name: given})


def test_a_static_member_needs_a_group() -> None:
    with pytest.raises(InvalidConfigurationError, match="group_instance_id: expected a group_id"):
        ConsumerConfig.parse({"group_instance_id": "i"})


@pytest.mark.parametrize("heartbeat_ms", [6_000, 6_001])
def test_a_heartbeat_comes_more_often_than_the_session_lasts(heartbeat_ms: int) -> None:
    """Source: Kafka ``Heartbeat``: "Heartbeat must be set lower than the session timeout"."""
    given = {"group_id": "g", "session_timeout_ms": 6_000}
    with pytest.raises(InvalidConfigurationError, match=rf"heartbeat_interval_ms={heartbeat_ms}: .*=6000"):
        ConsumerConfig.parse({**given, "heartbeat_interval_ms": heartbeat_ms})
    assert ConsumerConfig.parse({**given, "heartbeat_interval_ms": 5_999}).heartbeat_interval_ms == 5_999


@pytest.mark.parametrize(
    "name", ["session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms", "auto_commit_interval_ms"]
)
@pytest.mark.parametrize("given", [-1, "soon", 1.5, 2**31])
def test_the_times_of_a_group_are_whole_numbers(name: str, given: object) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"{name}="):
        ConsumerConfig.parse({"group_id": "g", name: given})


@pytest.mark.parametrize("given", ["classic", "consumer"])
def test_both_of_kafkas_group_protocols_are_accepted(given: str) -> None:
    assert ConsumerConfig.parse({"group_id": "g", "group_protocol": given}).group_protocol == given
    with pytest.raises(InvalidConfigurationError, match="group_protocol='shared': expected one of"):
        ConsumerConfig.parse({"group_id": "g", "group_protocol": "shared"})


def test_auto_commit_needs_a_group() -> None:
    """Source: Kafka ``ConsumerConfig.maybeOverrideEnableAutoCommit``."""
    assert ConsumerConfig.parse({"enable_auto_commit": False}).enable_auto_commit is False
    with pytest.raises(InvalidConfigurationError, match="enable_auto_commit=true: expected a group_id"):
        ConsumerConfig.parse({"enable_auto_commit": True})
