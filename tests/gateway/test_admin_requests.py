"""CreatePartitions, DeleteRecords, and the settings of topics, as clients of the gateway change them."""

from __future__ import annotations

import pytest

from sparklog import Admin, NewTopic, Producer
from sparklog.config import TopicConfig
from sparklog.config.topic import PROPERTY_PREFIX
from sparklog.gateway.config_requests import _replacement
from sparklog.gateway.error_codes import ErrorCode
from sparklog.log import open_cluster
from sparklog.log.topic import alter_topic
from tests.gateway.test_server import Wire, cluster, servers, wire

__all__ = ["Wire", "cluster", "servers", "wire"]
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def settings(cluster, topic="jobs"):
    return {name: entry.value for name, entry in Admin(cluster).describe_configs([topic])[topic].items()}


def resource(*configs, name="jobs", kind=TOPIC):
    found = [dict(zip(("name", "value", "config_operation"), one, strict=False)) for one in configs]
    return {"resource_type": kind, "resource_name": name, "configs": found}


def alter(wire, *resources, version=1, name="IncrementalAlterConfigs", validate_only=False):
    body = {"resources": list(resources), "validate_only": validate_only}
    return [ErrorCode(one["error_code"]).name for one in wire.call(name, version, body)["responses"]]


@pytest.mark.parametrize("version", [0, 1])
def test_settings_are_set_deleted_appended_to_and_subtracted_from(cluster, wire, version):
    assert alter(
        wire, resource(("retention.ms", "1000", SET), ("cleanup.policy", "compact", APPEND)), version=version
    ) == ["NONE"]
    assert settings(cluster)["retention.ms"] == 1000
    assert {*settings(cluster)["cleanup.policy"].split(",")} == {"compact", "delete"}
    assert alter(
        wire, resource(("retention.ms", None, DELETE), ("cleanup.policy", "delete", SUBTRACT)), version=version
    ) == ["NONE"]
    assert settings(cluster)["retention.ms"] == 604_800_000
    assert settings(cluster)["cleanup.policy"] == "compact"


def test_taking_away_a_setting_that_is_not_there_changes_nothing(cluster, wire):
    before = settings(cluster)
    names = ("retention.ms", "flush.messages", "preallocate", "remote.log.copy.disable", "no.such.setting")
    assert alter(wire, resource(*((name, "", DELETE) for name in names))) == ["NONE"]
    assert alter(wire, resource(("preallocate", None, DELETE)), validate_only=True) == ["NONE"]
    assert settings(cluster) == before
    assert alter(wire, resource(("preallocate", None, DELETE), ("retention.ms", "9000", SET))) == ["NONE"]
    assert settings(cluster)["retention.ms"] == 9000


def test_settings_that_cannot_be_are_refused_one_by_one(cluster, wire):
    Admin(cluster).create_topics([NewTopic("other", 1)])
    before = settings(cluster)
    found = alter(
        wire,
        resource(("retention.ms", "soon", SET)),
        resource(("retention.ms", "5000", SET), name="other"),
        resource(("retention.ms", "1", SET), name="missing"),
        resource(("log.level", "1", SET), name="0", kind=BROKER),
    )
    assert found == ["INVALID_CONFIG", "NONE", "UNKNOWN_TOPIC_OR_PARTITION", "INVALID_REQUEST"]
    assert settings(cluster, "other")["retention.ms"] == 5000
    bad: list[tuple[list[tuple[str, str | None, int]], str]] = [
        ([("no.such.setting", "1", SET)], "INVALID_CONFIG"),
        ([("retention.ms", "1", APPEND)], "INVALID_CONFIG"),
        ([("retention.ms", "1", 7)], "INVALID_REQUEST"),
        ([("retention.ms", None, SET)], "INVALID_REQUEST"),
        ([("retention.ms", "1", SET), ("retention.ms", "2", SET)], "INVALID_REQUEST"),
    ]
    for given, code in bad:
        assert alter(wire, resource(*given)) == [code], given
    assert alter(wire, resource(), resource()) == ["INVALID_REQUEST"] * 2
    assert alter(wire, resource(("retention.ms", "1000", SET)), validate_only=True) == ["NONE"]
    assert alter(wire, resource(("retention.ms", "soon", SET)), validate_only=True) == ["INVALID_CONFIG"]
    assert settings(cluster) == before


@pytest.mark.parametrize("version", [0, 1, 2])
def test_alter_configs_replaces_all_settings(cluster, wire, version):
    Admin(cluster).alter_configs({"jobs": {"retention.ms": 1000, "segment.bytes": 20_000_000}})
    given = resource(("segment.bytes", "30000000"))
    assert alter(wire, given, version=version, name="AlterConfigs") == ["NONE"]
    assert settings(cluster)["segment.bytes"] == 30_000_000
    assert settings(cluster)["retention.ms"] == 604_800_000


def test_alter_configs_takes_names_of_properties_and_leaves_unknown_settings(cluster, wire):
    Admin(cluster).alter_configs({"jobs": {"retention.ms": 1000}})
    assert alter(wire, resource((f"{PROPERTY_PREFIX}retention.ms", "3000")), name="AlterConfigs") == ["NONE"]
    assert settings(cluster)["retention.ms"] == 3000
    known = TopicConfig({"of.a.newer.sparklog": 1, "retention.ms": 1000})
    assert known.with_changes(_replacement({}, known)).explicit == {"of.a.newer.sparklog": 1}


@pytest.mark.parametrize("version", [1, 4])
def test_settings_are_described_with_where_they_come_from(cluster, wire, version):
    Admin(cluster).alter_configs({"jobs": {"retention.ms": 1000}})
    wanted = [
        {"resource_type": TOPIC, "resource_name": "jobs", "configuration_keys": ["retention.ms", "cleanup.policy"]}
    ]
    body = {"resources": wanted, "include_synonyms": True, "include_documentation": False}
    (found,) = wire.call("DescribeConfigs", version, body)["results"]
    configs = {one["name"]: one for one in found["configs"]}
    assert {name: (one["value"], one["config_source"]) for name, one in configs.items()} == {
        "retention.ms": ("1000", 1),
        "cleanup.policy": ("delete", 5),
    }
    assert [(one["value"], one["source"]) for one in configs["retention.ms"]["synonyms"]] == [
        ("1000", 1),
        ("604800000", 5),
    ]
    if version >= 3:
        assert [one["config_type"] for one in (configs["retention.ms"], configs["cleanup.policy"])] == [5, 7]


def grow(wire, *topics, version=3, validate_only=False):
    wanted = [{"name": name, "count": count, "assignments": given} for name, count, given in topics]
    body = {"topics": wanted, "timeout_ms": 20_000, "validate_only": validate_only}
    return [ErrorCode(one["error_code"]).name for one in wire.call("CreatePartitions", version, body)["results"]]


@pytest.mark.parametrize("version", [0, 3])
def test_topics_grow_one_by_one(cluster, wire, version):
    Admin(cluster).create_topics([NewTopic("other", 1)])
    found = grow(wire, ("jobs", 1, None), ("other", 3, None), ("missing", 3, None), version=version)
    assert found == ["INVALID_PARTITIONS", "NONE", "UNKNOWN_TOPIC_OR_PARTITION"]
    assert grow(wire, ("jobs", 4, None), validate_only=True, version=version) == ["NONE"]
    assert grow(wire, ("jobs", 2, None), validate_only=True, version=version) == ["INVALID_PARTITIONS"]
    assert grow(wire, ("jobs", 4, [{"broker_ids": [1]}]), version=version) == ["INVALID_REQUEST"]
    assert grow(wire, ("jobs", 4, None), ("jobs", 5, None), version=version) == ["INVALID_REQUEST"] * 2
    assert grow(wire, ("jobs", 3, [{"broker_ids": [1]}]), version=version) == ["NONE"]
    assert {one.name: one.partition_count for one in Admin(cluster).describe_topics()} == {"jobs": 3, "other": 3}


def delete_before(wire, topics, version=2):
    wanted = [
        {"name": name, "partitions": [{"partition_index": number, "offset": offset} for number, offset in given]}
        for name, given in topics
    ]
    found = wire.call("DeleteRecords", version, {"topics": wanted, "timeout_ms": 20_000})["topics"]
    return {
        (topic["name"], one["partition_index"]): (one["low_watermark"], ErrorCode(one["error_code"]).name)
        for topic in found
        for one in topic["partitions"]
    }


@pytest.mark.parametrize("version", [0, 2])
def test_records_are_deleted_whatever_is_refused(cluster, wire, version):
    admin = Admin(cluster)
    admin.create_topics([NewTopic("kept", 1, configs={"cleanup.policy": "compact"})])
    with Producer(cluster) as producer:
        for partition in (0, 1):
            for _ in range(5):
                producer.send("jobs", b"x", partition=partition)
        producer.send("kept", b"x", key=b"k")
    found = delete_before(
        wire, [("jobs", [(0, 3), (1, 6), (2, 1)]), ("kept", [(0, 1)]), ("missing", [(0, 0)])], version
    )
    assert found == {
        ("jobs", 0): (3, "NONE"),
        ("jobs", 1): (-1, "OFFSET_OUT_OF_RANGE"),
        ("jobs", 2): (-1, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("kept", 0): (-1, "POLICY_VIOLATION"),
        ("missing", 0): (-1, "UNKNOWN_TOPIC_OR_PARTITION"),
    }
    assert delete_before(wire, [("jobs", [(0, -1), (1, -1)])], version) == {
        ("jobs", 0): (5, "NONE"),
        ("jobs", 1): (5, "NONE"),
    }
    assert admin.list_topics() == ["jobs", "kept"]


def test_librdkafkas_admin_client_changes_topics(cluster, servers):
    confluent = pytest.importorskip("confluent_kafka", reason="needs confluent-kafka")
    admin = pytest.importorskip("confluent_kafka.admin", reason="needs confluent-kafka")
    with Producer(cluster) as producer:
        producer.send("jobs", b"x", partition=0)
    client = admin.AdminClient({"bootstrap.servers": servers})
    entry = admin.ConfigEntry("retention.ms", "9000", incremental_operation=admin.AlterConfigOpType.SET)
    given = admin.ConfigResource(confluent.admin.RESOURCE_TOPIC, "jobs", incremental_configs=[entry])
    for answer in client.incremental_alter_configs([given]).values():
        answer.result(60)
    assert settings(cluster)["retention.ms"] == 9000
    client.create_partitions([admin.NewPartitions("jobs", 5)])["jobs"].result(60)
    assert Admin(cluster).describe_topics(["jobs"])[0].partition_count == 5
    at = confluent.TopicPartition("jobs", 0, 1)
    assert [one.result(60).low_watermark for one in client.delete_records([at]).values()] == [1]


def test_what_is_appended_is_appended_to_the_settings_at_the_commit(cluster):
    log, seen = open_cluster(cluster).topic_log("jobs"), []

    def append(known):
        seen.append(known["cleanup.policy"])
        if len(seen) == 1:  # somebody else is faster
            alter_topic(log, "jobs", {"cleanup.policy": "compact", "retention.ms": 7})
        return {"cleanup.policy": ",".join(sorted({known["cleanup.policy"], "delete"}))}

    alter_topic(log, "jobs", append)
    assert seen == ["delete", "compact"]
    assert settings(cluster)["cleanup.policy"] == "compact,delete"
    assert settings(cluster)["retention.ms"] == 7


def test_groups_have_the_settings_of_the_gateway(wire):
    group = {"resource_type": 32, "resource_name": "g", "configuration_keys": None}
    (found,) = wire.call("DescribeConfigs", 4, {"resources": [group], "include_synonyms": False})["results"]
    assert {one["name"]: (one["value"], one["read_only"]) for one in found["configs"]} == {
        "consumer.heartbeat.interval.ms": ("1000", True),
        "consumer.session.timeout.ms": ("45000", True),
    }
    group["configuration_keys"] = ["consumer.session.timeout.ms"]
    (found,) = wire.call("DescribeConfigs", 1, {"resources": [group], "include_synonyms": False})["results"]
    assert len(found["configs"]) == 1
