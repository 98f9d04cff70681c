"""kafka-python's admin client: its calls, and the shapes of its answers."""

import pickle
import uuid

import pytest

from sparklog.admin import Admin
from sparklog.kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from sparklog.kafka.admin import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from sparklog.kafka.errors import (
    IllegalArgumentError,
    IllegalStateError,
    IncompatibleBrokerVersion,
    InvalidPartitionsError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)


@pytest.fixture
def server():
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def admin(server):
    with KafkaAdminClient(bootstrap_servers=server, client_id="test") as client:
        client.create_topics([NewTopic("a", 3, 1, topic_configs={"retention.ms": "5000"})])
        yield client


# Topics


def test_topics_are_created_from_names_objects_or_a_dict(admin):
    admin.create_topics(["b", NewTopic(name="c", num_partitions=2, replication_factor=3)], timeout_ms=5_000)
    answer = admin.create_topics(
        {"d": {"num_partitions": 2, "configs": {"retention.ms": "1"}}, "e": {"assignments": {0: [1], 1: [2]}}},
        wait_for_metadata=True,
    )
    assert admin.list_topics() == ["a", "b", "c", "d", "e"]
    d, e = answer["topics"]
    assert (d["name"], d["error_code"], d["error_message"], d["num_partitions"]) == ("d", 0, None, 2)
    assert d["configs"]["retention.ms"] == {
        "value": "1",
        "read_only": False,
        "config_source": "DYNAMIC_TOPIC_CONFIG",
        "is_sensitive": False,
    }
    assert (e["num_partitions"], e["replication_factor"]) == (2, 1)


def test_each_topic_is_tried_and_then_the_first_error_raised(admin):
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(["a", "b", "!"])
    assert admin.list_topics() == ["a", "b"]
    answer = admin.create_topics(["a", "c", "!"], raise_errors=False)
    assert [(topic["name"], topic["error_code"]) for topic in answer["topics"]] == [("a", 36), ("c", 0), ("!", 17)]
    assert "already exists" in answer["topics"][0]["error_message"]


def test_creating_can_be_tried_without_doing_it(admin):
    [topic] = admin.create_topics([NewTopic("b", 4)], validate_only=True)["topics"]
    assert (topic["error_code"], topic["num_partitions"], admin.list_topics()) == (0, 4, ["a"])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics(["a"], validate_only=True)
    with pytest.raises(IllegalArgumentError):
        admin.create_topics(["b"], validate_only=True, wait_for_metadata=True)


@pytest.mark.parametrize("topics", [[], {}, "abc", [17], {"b": {"partitions": 3}}, {"b": 3}, [object()]])
def test_what_is_no_topic_to_create_is_refused(admin, topics):
    with pytest.raises(IllegalArgumentError):
        admin.create_topics(topics)
    assert admin.list_topics() == ["a"]


def test_topics_are_described_by_name_and_by_id(admin):
    [a] = admin.describe_topics()
    assert {key: a[key] for key in ("error_code", "name", "is_internal", "authorized_operations")} == {
        "error_code": 0,
        "name": "a",
        "is_internal": False,
        "authorized_operations": None,
    }
    assert a["partitions"][2] == {
        "error_code": 0,
        "partition_index": 2,
        "leader_id": 0,
        "leader_epoch": -1,
        "replica_nodes": [0],
        "isr_nodes": [0],
        "offline_replicas": [],
    }
    assert admin.describe_topics([a["topic_id"], "a"]) == [a, a]
    unknown = admin.describe_topics(["b", "!", uuid.UUID(int=7)])
    assert [(topic["error_code"], topic["partitions"]) for topic in unknown] == [(3, []), (17, []), (100, [])]


def test_topics_are_deleted_by_name_and_by_id(admin):
    admin.create_topics(["b"])
    topic_id = admin.describe_topics(["b"])[0]["topic_id"]
    answer = admin.delete_topics(["a", topic_id], timeout_ms=5_000)
    assert [(topic["name"], topic["error_code"], topic["error_message"]) for topic in answer["topics"]] == [
        ("a", 0, None),
        ("b", 0, None),
    ]
    assert (answer["topics"][1]["topic_id"], admin.list_topics()) == (topic_id, [])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["a"])
    with pytest.raises(UnknownTopicIdError):
        admin.delete_topics([topic_id])
    [failed] = admin.delete_topics([topic_id], raise_errors=False)["topics"]
    assert (failed["name"], failed["topic_id"], failed["error_code"]) == (None, topic_id, 100)
    with pytest.raises(IllegalArgumentError, match="expected a list"):
        admin.delete_topics("abc")


def test_topics_can_be_waited_for(admin):
    admin.wait_for_topics(["a"])
    admin.wait_for_topics([])
    with pytest.raises(KafkaTimeoutError, match="b"):
        admin.wait_for_topics(["a", "b"], timeout_ms=0)


def test_partitions_grow(admin):
    admin.create_topics(["b", "c"])
    response = admin.create_partitions({"a": 4, "b": NewPartitions(2), "c": {"count": 3, "assignments": [[1], [2]]}})
    assert [(result.name, result.error_code, result.error_message) for result in response.results] == [
        ("a", 0, None),
        ("b", 0, None),
        ("c", 0, None),
    ]
    assert [len(topic["partitions"]) for topic in admin.describe_topics()] == [4, 2, 3]
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({"a": 4})
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({"a": {"assignments": []}})
    [refused] = admin.create_partitions({"a": 2}, raise_errors=False).to_dict()["results"]
    assert (refused["name"], refused["error_code"]) == ("a", 37)
    admin.create_partitions({"a": 9}, validate_only=True)
    assert len(admin.describe_topics(["a"])[0]["partitions"]) == 4


# Settings


def test_settings_are_described(admin):
    a = ConfigResource(ConfigResourceType.TOPIC, "a")
    assert admin.describe_configs([a], include_synonyms=True) == {
        "topic": {
            "a": {
                "retention.ms": {
                    "value": "5000",
                    "read_only": False,
                    "config_source": "DYNAMIC_TOPIC_CONFIG",
                    "is_default": False,
                    "is_sensitive": False,
                    "synonyms": [
                        {"name": "retention.ms", "value": "5000", "source": "DYNAMIC_TOPIC_CONFIG"},
                        {"name": "retention.ms", "value": "604800000", "source": "DEFAULT_CONFIG"},
                    ],
                    "config_type": "LONG",
                    "documentation": None,
                }
            }
        }
    }
    names = {kind: set(admin.describe_configs([a], config_filter=kind)["topic"]["a"]) for kind in ("all", "default")}
    assert names["all"] - names["default"] == {"retention.ms"}
    assert admin.describe_configs([a], config_filter="static") == {"topic": {"a": {}}}
    some = ConfigResource("topic", "a", ["cleanup.policy", "segment.bytes", "min.insync.replicas"])
    described = admin.describe_configs([some], config_filter="ALL")["topic"]["a"]
    assert {name: (entry["value"], entry["config_type"]) for name, entry in described.items()} == {
        "cleanup.policy": ("delete", "LIST"),
        "segment.bytes": ("1073741824", "INT"),
        "min.insync.replicas": ("1", "INT"),
    }
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.describe_configs([ConfigResource("topic", "b")])
    with pytest.raises(KafkaError, match="ConfigFilterType 'some'"):
        admin.describe_configs([a], config_filter="some")


def test_settings_are_altered_and_reset(admin):
    def modified():
        found = admin.describe_configs([ConfigResource("TOPIC", "a")])["topic"]["a"]
        return {name: entry["value"] for name, entry in found.items()}

    changes = {"retention.ms": ("delete", None), "segment.ms": "7", "cleanup.policy": (AlterConfigOp.SET, "compact")}
    assert admin.alter_configs([ConfigResource("topic", "a", changes)]) == {"topic": {"a": "OK"}}
    assert modified() == {"segment.ms": "7", "cleanup.policy": "compact"}
    admin.reset_configs([ConfigResource("topic", "a", ["segment.ms"])])
    assert modified() == {"cleanup.policy": "compact"}
    admin.alter_configs([ConfigResource("topic", "a", {"segment.ms": 7})], validate_only=True)
    assert modified() == {"cleanup.policy": "compact"}
    admin.reset_configs([ConfigResource("topic", "a")])
    assert modified() == {}
    assert admin.list_config_resources() == admin.list_config_resources(["topic"]) == {"topic": ["a"]}
    assert admin.list_config_resources(["client_metrics"]) == {}


def test_settings_that_can_not_be_altered(admin):
    def alter(changes, **how):
        return admin.alter_configs([ConfigResource("topic", "a", changes)], **how)["topic"]["a"]

    with pytest.raises(ValueError, match=r"'a': no\.such"):
        alter({"no.such": 1})
    assert "unknown topic setting 'no.such'" in alter({"no.such": 1}, raise_on_unknown=False)
    assert "expected a whole number" in alter({"segment.ms": "soon"})
    with pytest.raises(IncompatibleBrokerVersion, match=r"APPEND.*set the whole value of cleanup\.policy"):
        alter({"cleanup.policy": (AlterConfigOp.APPEND, "compact")})
    with pytest.raises(IllegalArgumentError, match="expected a dict"):
        alter(["segment.ms"])
    for call in (admin.alter_configs, admin.describe_configs, admin.reset_configs):
        with pytest.raises(IncompatibleBrokerVersion, match=r"of a broker.*only topics have settings"):
            call([ConfigResource(ConfigResourceType.BROKER, "0", {"log.dirs": "x"})])
    with pytest.raises(ValueError, match="ConfigResourceType 'table'"):
        ConfigResource("table", "a")


# Records and the cluster


def test_records_are_deleted_and_offsets_listed(admin, server):
    at = TopicPartition("a", 1)
    with KafkaProducer(bootstrap_servers=server) as producer:
        for number in range(5):
            producer.send("a", b"x", partition=1, timestamp_ms=1_000 + number % 4)
    assert admin.delete_records({at: 2}, timeout_ms=5_000) == {
        at: {"partition_index": 1, "low_watermark": 2, "error_code": 0}
    }

    def offset(spec):
        return admin.list_partition_offsets({at: spec}, isolation_level="read_committed")[at].offset

    specs = (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST, OffsetSpec.MAX_TIMESTAMP, 1_003, 2_000)
    assert [offset(spec) for spec in specs] == [2, 2, 5, 3, 3, -1]
    with pytest.raises(IllegalArgumentError):
        offset(OffsetSpec.LATEST_TIERED)
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({at: 6})


def test_the_cluster_has_an_id_and_no_brokers(admin, server):
    described = admin.describe_cluster()
    assert described == {
        "cluster_id": described["cluster_id"],
        "controller_id": -1,
        "brokers": [],
        "authorized_operations": None,
    }
    with KafkaAdminClient(bootstrap_servers=server) as other:
        assert other.describe_cluster() == described


def test_a_closed_client_is_closed(admin):
    admin.close()
    admin.close()
    with pytest.raises(IllegalStateError, match="closed"):
        admin.list_topics()
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(admin)


def test_a_bad_name_is_told_by_every_call(admin):
    with pytest.raises(InvalidTopicError):
        admin.create_topics(["!"])
    with pytest.raises(InvalidTopicError):
        admin.delete_topics(["!"])


@pytest.mark.parametrize(("given", "bound"), [(None, 30_000), (0, 0), (5, 5)])
def test_a_bound_of_nothing_is_a_bound(admin, monkeypatch, given, bound):
    """✗ 0 is taken for no bound at all."""
    seen = []

    def note(*_, timeout_ms, **__):
        seen.append(timeout_ms)
        return {}

    for call in ("create_topics", "delete_topics", "create_partitions", "delete_records"):
        monkeypatch.setattr(Admin, call, note)
    admin.create_topics(["z"], timeout_ms=given)
    admin.delete_topics(["a"], timeout_ms=given)
    admin.create_partitions({"a": 9}, timeout_ms=given)
    admin.delete_records({TopicPartition("a", 0): 1}, timeout_ms=given)
    assert seen == [bound] * 4
