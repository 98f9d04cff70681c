"""Nothing of kafka-python 3.0.12 is silently missing: each public name is there, or is refused with a word why."""

import inspect
import math
import selectors
import socket
import uuid
from typing import Any

import pytest

import sparklog.errors
from sparklog import kafka
from sparklog.groups.assignors import RangeAssignor
from sparklog.kafka import IsolationLevel, KafkaAdminClient, KafkaConsumer, KafkaProducer, errors
from sparklog.kafka.admin import NewTopic
from sparklog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from sparklog.kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from sparklog.kafka.coordinator.assignors.range import RangePartitionAssignor
from sparklog.kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from sparklog.kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from sparklog.kafka.errors import (
    IllegalStateError,
    IncompatibleBrokerVersion,
    KafkaConfigurationError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    RetriableError,
)
from sparklog.kafka.partitioner import DefaultPartitioner, StickyPartitioner
from sparklog.storage import MemoryStore


@pytest.fixture
def root():
    uri = f"memory://{uuid.uuid4().hex}"
    with KafkaAdminClient(bootstrap_servers=uri) as admin:
        admin.create_topics([NewTopic("t", num_partitions=2)])
    return uri


# Methods, with kafka-python's arguments in its order. Source: kafka-python 3.0.12, by hand.

SUPPORTED: dict[Any, dict[str, str]] = {
    KafkaProducer: {
        "abort_transaction": "",
        "begin_transaction": "",
        "bootstrap_connected": "",
        "close": "timeout null_logger",
        "commit_transaction": "",
        "flush": "timeout",
        "init_transactions": "",
        "metrics": "raw",
        "partitions_for": "topic",
        "send": "topic value key headers partition timestamp_ms",
        "send_offsets_to_transaction": "offsets group_metadata",
    },
    KafkaConsumer: {
        "assign": "partitions",
        "assignment": "",
        "beginning_offsets": "partitions timeout_ms",
        "bootstrap": "timeout_ms refresh",
        "bootstrap_connected": "",
        "close": "autocommit timeout_ms",
        "commit": "offsets timeout_ms",
        "commit_async": "offsets callback",
        "committed": "partition metadata timeout_ms",
        "end_offsets": "partitions timeout_ms",
        "group_metadata": "",
        "highwater": "partition",
        "metrics": "raw",
        "offsets_for_times": "timestamps timeout_ms",
        "partitions_for_topic": "topic",
        "pause": "partitions",
        "paused": "",
        "poll": "timeout_ms max_records update_offsets",
        "position": "partition timeout_ms",
        "resume": "partitions",
        "seek": "partition offset",
        "seek_to_beginning": "partitions",
        "seek_to_end": "partitions",
        "subscribe": "topics pattern listener",
        "subscription": "",
        "topics": "",
        "unsubscribe": "",
    },
    KafkaAdminClient: {
        "abort_transaction": "spec",
        "alter_configs": "config_resources validate_only raise_on_unknown incremental",
        "alter_group_offsets": "group_id offsets group_coordinator_id",
        "close": "",
        "create_partitions": "topic_partitions timeout_ms validate_only raise_errors",
        "create_topics": "new_topics timeout_ms validate_only raise_errors wait_for_metadata",
        "delete_group_offsets": "group_id partitions group_coordinator_id",
        "delete_groups": "group_ids group_coordinator_id",
        "delete_records": "records_to_delete timeout_ms partition_leader_id",
        "delete_topics": "topics timeout_ms raise_errors",
        "describe_cluster": "",
        "describe_configs": "config_resources include_synonyms config_filter",
        "describe_groups": "group_ids group_coordinator_id include_authorized_operations",
        "describe_topics": "topics",
        "describe_transactions": "transactional_ids",
        "find_hanging_transactions": "broker_ids max_transaction_timeout_ms",
        "list_config_resources": "resource_types",
        "list_group_offsets": "group_specs",
        "list_groups": "broker_ids states_filter types_filter",
        "list_partition_offsets": "topic_partition_specs isolation_level timeout_ms",
        "list_topics": "",
        "list_transactions": "broker_ids producer_id_filters state_filters duration_filter_ms transactional_id_pattern",
        "remove_group_members": "group_id members group_coordinator_id",
        "reset_configs": "config_resources validate_only raise_on_unknown incremental",
        "reset_group_offsets": "group_id offset_specs group_coordinator_id",
        "wait_for_topics": "topic_names timeout_ms",
    },
}
OLDER: dict[Any, dict[str, str]] = {
    KafkaAdminClient: {
        "delete_consumer_groups": "group_ids group_coordinator_id",
        "describe_consumer_groups": "group_ids group_coordinator_id include_authorized_operations",
        "list_consumer_group_offsets": "group_id group_coordinator_id partitions",
        "list_consumer_groups": "broker_ids",
    },
}
"""Of kafka-python 2.2, by hand."""
REFUSED: dict[Any, dict[str, tuple[Any, ...]]] = {
    KafkaProducer: {
        "max_usable_produce_magic": ((3, 0),),
    },
    KafkaConsumer: {
        "commitAsync": (None,),
    },
    KafkaAdminClient: {
        "alter_partition_reassignments": ({},),
        "alter_replica_log_dirs": ({},),
        "alter_user_scram_credentials": ([],),
        "api_versions": (),
        "create_acls": ([],),
        "delete_acls": ([],),
        "describe_acls": (None,),
        "describe_features": (),
        "describe_log_dirs": (),
        "describe_metadata_quorum": (),
        "describe_producers": ([],),
        "describe_topic_partitions": (["t"],),
        "describe_user_scram_credentials": (),
        "elect_leaders": (0,),
        "get_broker_version_data": (0,),
        "list_partition_reassignments": (),
        "update_features": ({},),
    },
}


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        pytest.param(getattr(client, name), arguments.split(), id=f"{client.__name__}.{name}")
        for client, methods in (*SUPPORTED.items(), *OLDER.items())
        for name, arguments in methods.items()
    ],
)
def test_a_supported_call_takes_kafka_pythons_arguments_in_its_order(method, arguments):
    names = [name for name in inspect.signature(method).parameters if name != "self"]
    assert names[: len(arguments)] == arguments


@pytest.mark.parametrize(
    ("client", "name", "arguments"),
    [
        pytest.param(client, name, arguments, id=f"{client.__name__}.{name}")
        for client, methods in REFUSED.items()
        for name, arguments in methods.items()
    ],
)
def test_a_refused_call_says_which_it_is(root, client, name, arguments):
    with client(bootstrap_servers=root) as one:
        with pytest.raises((IncompatibleBrokerVersion, IllegalStateError), match=f"^{name}") as refusal:
            getattr(one, name)(*arguments)
        assert isinstance(refusal.value, KafkaError)


def test_what_a_supported_call_can_not_do_is_refused(root):
    with KafkaProducer(bootstrap_servers=root) as producer, KafkaConsumer("t", bootstrap_servers=root) as consumer:
        for call in (
            lambda: producer.metrics(raw=True),
            lambda: consumer.metrics(raw=True),
            lambda: consumer.poll(update_offsets=False),
        ):
            with pytest.raises(IncompatibleBrokerVersion, match=r"metrics|poll"):
                call()
        for _ in range(2):  # the second one of a topic takes another way
            with pytest.raises(TypeError, match=r"send\(…\)\.add_callback\(function\) calls function\(metadata\)"):
                producer.send("t", b"v", callback=print)  # type: ignore[arg-type]
            producer.send("t", b"v").get(60)
        assert sum(consumer.end_offsets([kafka.TopicPartition("t", at) for at in (0, 1)]).values()) == 2


# Settings: kafka-python's names with its own default values, by hand. Every one of them is accepted.

CLIENT: dict[str, Any] = {
    "api_version": None,
    "bootstrap_timeout_ms": 30000,
    "client_dns_lookup": "use_all_dns_ips",
    "client_id": "kafka-python-3.0.12",
    "connections_max_idle_ms": 540000,
    "kafka_client": object,
    "max_in_flight_requests_per_connection": 5,
    "metadata_max_age_ms": 300000,
    "metric_reporters": [],
    "metrics_num_samples": 2,
    "metrics_sample_window_ms": 30000,
    "proxy_url": None,
    "receive_buffer_bytes": None,
    "receive_message_max_bytes": 100_000_000,
    "reconnect_backoff_max_ms": 30000,
    "reconnect_backoff_ms": 50,
    "request_timeout_ms": 30000,
    "retry_backoff_ms": 100,
    "sasl_kerberos_domain_name": None,
    "sasl_kerberos_name": None,
    "sasl_kerberos_service_name": "kafka",
    "sasl_mechanism": None,
    "sasl_oauth_token_provider": None,
    "sasl_plain_password": None,
    "sasl_plain_username": None,
    "security_protocol": "PLAINTEXT",
    "selector": selectors.DefaultSelector,
    "send_buffer_bytes": None,
    "socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    "socks5_proxy": None,
    "ssl_cafile": None,
    "ssl_certfile": None,
    "ssl_check_hostname": True,
    "ssl_context": None,
    "ssl_crlfile": None,
    "ssl_keyfile": None,
    "ssl_password": None,
}
DEFAULTS: dict[Any, dict[str, Any]] = {
    KafkaAdminClient: CLIENT,
    KafkaProducer: {
        **CLIENT,
        "acks": -1,
        "batch_size": 16384,
        "client_id": None,
        "compression_type": None,
        "delivery_timeout_ms": 120000,
        "enable_idempotence": True,
        "key_serializer": None,
        "linger_ms": 0,
        "max_block_ms": 60000,
        "max_request_size": 1048576,
        "metrics_enabled": True,
        "partitioner": DefaultPartitioner(),
        "retries": math.inf,
        "ssl_ciphers": None,
        "transaction_timeout_ms": 60000,
        "transactional_id": None,
        "value_serializer": None,
    },
    KafkaConsumer: {
        **CLIENT,
        "auto_commit_interval_ms": 5000,
        "auto_offset_reset": "latest",
        "check_crcs": True,
        "client_rack": "",
        "consumer_timeout_ms": math.inf,
        "default_offset_commit_callback": lambda offsets, response: True,
        "enable_auto_commit": True,
        "enable_incremental_fetch_sessions": True,
        "exclude_internal_topics": True,
        "fetch_max_bytes": 52428800,
        "fetch_max_wait_ms": 500,
        "fetch_min_bytes": 1,
        "group_id": None,
        "group_instance_id": None,
        "heartbeat_interval_ms": 3000,
        "isolation_level": "read_uncommitted",
        "key_deserializer": None,
        "max_partition_fetch_bytes": 1048576,
        "max_poll_interval_ms": 300000,
        "max_poll_records": 500,
        "metric_group_prefix": "consumer",
        "metrics_enabled": True,
        "partition_assignment_strategy": (RangePartitionAssignor, RoundRobinPartitionAssignor),
        "session_timeout_ms": 45000,
        "ssl_ciphers": None,
        "value_deserializer": None,
    },
}
REFUSED_SETTINGS: dict[str, Any] = {
    "proxy_url": "socks5://proxy",
    "sasl_kerberos_domain_name": "d",
    "sasl_kerberos_name": "n",
    "sasl_kerberos_service_name": "other",
    "sasl_mechanism": "PLAIN",
    "sasl_oauth_token_provider": object(),
    "sasl_plain_password": "p",
    "sasl_plain_username": "u",
    "security_protocol": "SASL_SSL",
    "socks5_proxy": "socks5://proxy",
    "ssl_cafile": "ca.pem",
    "ssl_certfile": "cert.pem",
    "ssl_context": object(),
    "ssl_crlfile": "crl.pem",
    "ssl_keyfile": "key.pem",
    "ssl_password": "p",
}
REFUSED_OF: dict[Any, dict[str, Any]] = {
    KafkaAdminClient: REFUSED_SETTINGS,
    KafkaProducer: {
        **REFUSED_SETTINGS,
        "allow_auto_create_topics": True,
        "ssl_ciphers": "HIGH",
        "transactional_id": 17,
    },
    KafkaConsumer: {
        **REFUSED_SETTINGS,
        "allow_auto_create_topics": True,
        "default_offset_commit_callback": 17,
        "group_instance_id": "i",
        "partition_assignment_strategy": [object],
        "ssl_ciphers": "HIGH",
    },
}


@pytest.mark.parametrize("client", DEFAULTS, ids=lambda client: client.__name__)
def test_kafka_pythons_own_defaults_are_accepted_one_by_one_and_together(root, client):
    for name, value in DEFAULTS[client].items():
        client(bootstrap_servers=root, **{name: value}).close()
    client(bootstrap_servers=root, **DEFAULTS[client]).close()


@pytest.mark.parametrize(
    ("client", "name", "value"),
    [
        pytest.param(client, name, value, id=f"{client.__name__}-{name}")
        for client, settings in REFUSED_OF.items()
        for name, value in {**settings, "no_such_setting": 1}.items()
    ],
)
def test_a_setting_that_can_not_be_honoured_is_refused_by_name(root, client, name, value):
    with pytest.raises(KafkaConfigurationError, match=name):
        client(bootstrap_servers=root, **{name: value})


@pytest.mark.parametrize(
    ("client", "setting"),
    [
        (KafkaProducer, {"allow_auto_create_topics": False}),
        (KafkaConsumer, {"allow_auto_create_topics": False}),
        (KafkaConsumer, {"auto_offset_reset": "smallest"}),
        (KafkaConsumer, {"auto_offset_reset": "largest"}),
        (KafkaConsumer, {"consumer_timeout_ms": -1}),
        (KafkaConsumer, {"isolation_level": IsolationLevel.READ_COMMITTED}),
        (KafkaConsumer, {"isolation_level": 1}),
        (KafkaConsumer, {"group_id": "g", "partition_assignment_strategy": [StickyPartitionAssignor]}),
        (KafkaConsumer, {"group_id": "g", "partition_assignment_strategy": [CooperativeStickyAssignor()]}),
        (KafkaConsumer, {"group_id": "g", "partition_assignment_strategy": "range,roundrobin"}),
        (KafkaConsumer, {"group_id": "g", "partition_assignment_strategy": [RangeAssignor]}),
        (KafkaConsumer, {"group_id": "g", "default_offset_commit_callback": None}),
        (KafkaProducer, {"partitioner": StickyPartitioner()}),
        (KafkaProducer, {"acks": "all", "compression_type": "gzip", "retries": 5}),
    ],
)
def test_other_spellings_are_understood(root, client, setting):
    client(bootstrap_servers=root, **setting).close()


class Subclass(RangePartitionAssignor):
    def assign(self, cluster, members):
        return {}


class Duck:
    name = "mine"

    def assign(self, cluster, members):
        return {}


@pytest.mark.parametrize("assignor", [Subclass, Subclass(), Duck, Duck(), AbstractPartitionAssignor])
def test_an_assignor_written_for_kafka_python_is_refused(root, assignor):
    with pytest.raises(KafkaConfigurationError, match=r"was written for kafka-python can't be used"):
        KafkaConsumer(bootstrap_servers=root, group_id="g", partition_assignment_strategy=[assignor])


def test_an_unknown_isolation_level_is_refused(root):
    with pytest.raises(KafkaConfigurationError, match="isolation_level='dirty'"):
        KafkaConsumer(bootstrap_servers=root, isolation_level="dirty")


def test_idempotence_is_switched_off_where_kafka_python_does(root, caplog):
    KafkaProducer(bootstrap_servers=root, max_in_flight_requests_per_connection=10).close()
    assert "idempotence is switched off: max_in_flight_requests_per_connection=10" in caplog.text
    with pytest.raises(KafkaConfigurationError, match="max_in_flight"):
        KafkaProducer(bootstrap_servers=root, max_in_flight_requests_per_connection=10, enable_idempotence=True)


# bootstrap_servers


@pytest.mark.parametrize("client", DEFAULTS, ids=lambda client: client.__name__)
@pytest.mark.parametrize(
    "servers",
    [
        None,
        "",
        [],
        "localhost",
        "localhost:9092",
        "10.0.0.1:9092",
        "[::1]:9092",
        "a:9092,b:9092",
        "SASL_SSL://a:9092",
        ["a:9092"],
        ["a:9092", "b:9092"],
        ("./data", "./other"),
        17,
    ],
)
def test_addresses_of_brokers_are_refused(client, servers):
    with pytest.raises(KafkaConfigurationError, match="expected the root URI of a cluster"):
        client(bootstrap_servers=servers)


def test_a_root_may_be_a_path_a_text_or_a_list_of_one(tmp_path):
    for servers in (tmp_path, str(tmp_path), [str(tmp_path)], (tmp_path.as_uri(),)):
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics([uuid.uuid4().hex])
        with KafkaConsumer(bootstrap_servers=servers) as consumer:
            assert consumer.bootstrap_connected()
    assert not consumer.bootstrap_connected()


@pytest.mark.parametrize("client", [KafkaProducer, KafkaConsumer])
def test_without_a_cluster_there_are_no_brokers(tmp_path, client):
    for name in (NoBrokersAvailable, KafkaConnectionError, KafkaTimeoutError, RetriableError, KafkaError, ValueError):
        with pytest.raises(name, match="no sparklog cluster"):
            client(bootstrap_servers=tmp_path / "data")


def test_an_admin_without_a_cluster_makes_one_with_the_first_topic(tmp_path):
    with KafkaAdminClient(bootstrap_servers=tmp_path / "data") as admin:
        with pytest.raises(NoBrokersAvailable):
            admin.list_topics()
        with pytest.raises(NoBrokersAvailable):
            admin.create_topics(["t"], validate_only=True)
        admin.create_topics(["t"])
        assert admin.list_topics() == ["t"]


CLIENTS = pytest.mark.parametrize("client", [KafkaProducer, KafkaConsumer, KafkaAdminClient])


@CLIENTS
def test_a_client_tells_its_settings(root, client):
    """As kafka-python: the defaults, updated with what was given."""
    given = {"request_timeout_ms": 20_000, "client_id": "me", "api_version": (3, 0)}
    with client(bootstrap_servers=root, **given) as one:
        without_group = {"enable_auto_commit": False} if client is KafkaConsumer else {}
        assert one.config == {**client.DEFAULT_CONFIG, "bootstrap_servers": root, **without_group, **given}
        one.config["request_timeout_ms"] = 1  # a copy
    assert client.DEFAULT_CONFIG["request_timeout_ms"] == 30_000


def test_settings_are_told_as_a_program_would_give_them(root):
    given: dict[str, Any] = {
        "auto.offset.reset": "earliest",
        "group_id": "g",
        "consumer_timeout_ms": 5,
        "isolation_level": 1,
    }
    with KafkaConsumer(bootstrap_servers=[root], **given) as consumer:
        told = {name.replace(".", "_"): consumer.config[name.replace(".", "_")] for name in given}
        assert told == {name.replace(".", "_"): value for name, value in given.items()}
        assert (consumer.config["enable_auto_commit"], consumer.config["max_poll_records"]) == (True, 500)
    defaults = KafkaConsumer.DEFAULT_CONFIG
    assert (defaults["auto_offset_reset"], defaults["consumer_timeout_ms"]) == ("latest", math.inf)
    with KafkaProducer(bootstrap_servers=root, transactional_id="x", acks="all") as producer:
        assert (producer.config["transactional_id"], producer.config["acks"]) == ("x", "all")


def test_a_producer_tells_the_memory_that_its_store_asks_for(root, monkeypatch):
    monkeypatch.setattr(MemoryStore, "is_remote", True)
    cases: list[tuple[dict[str, Any], int]] = [({}, 2**27), ({"buffer_memory": 2**25}, 2**25)]
    for given, told in cases:
        with KafkaProducer(bootstrap_servers=root, **given) as producer:
            assert producer.config["buffer_memory"] == told
            assert producer.metrics()["producer-metrics"]["buffer-total-bytes"] == told
    assert KafkaProducer.DEFAULT_CONFIG["buffer_memory"] == 2**25


@CLIENTS
def test_a_clients_defaults_may_be_given_to_it(root, client):
    given = {**client.DEFAULT_CONFIG, "bootstrap_servers": root}
    with client(**given) as one:
        assert one.config == given
    if client is KafkaConsumer:
        with client(**{**given, "group_id": "g"}) as member:
            assert member._runtime.config.enable_auto_commit


def test_no_credentials_of_the_store_are_among_the_settings(root):
    with KafkaAdminClient(bootstrap_servers=root, storage_options={}) as admin:
        assert "storage_options" not in admin.config


def test_storage_options_reach_the_store(tmp_path):
    for client in (KafkaProducer, KafkaConsumer):
        with pytest.raises(errors.IllegalArgumentError, match="storage_options"):
            client(bootstrap_servers=tmp_path, storage_options={"endpoint_url": "http://localhost:9000"})


# Names

MODULES = {
    kafka: """KafkaAdminClient KafkaConsumer KafkaProducer ConsumerRebalanceListener DefaultSerializer JsonSerializer
        Serializer Deserializer ConsumerGroupMetadata OffsetAndMetadata TopicPartition TopicPartitionReplica
        IsolationLevel OffsetSpec errors structs admin consumer producer serializer partitioner""",
    kafka.structs: """TopicPartition TopicPartitionReplica OffsetAndMetadata OffsetAndTimestamp ConsumerGroupMetadata
        MemberState""",
    kafka.serializer: "Serializer Deserializer DefaultSerializer JsonSerializer",
    kafka.partitioner: "Partitioner DefaultPartitioner StickyPartitioner murmur2",
    kafka.admin: """KafkaAdminClient NewTopic NewPartitions ConfigResource ConfigResourceType ConfigType
        ConfigSourceType AlterConfigOp GroupState GroupType MemberToRemove OffsetSpec OffsetTimestamp""",
    kafka.producer: "KafkaProducer",
    kafka.consumer: "KafkaConsumer",
}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_kafka_pythons_names_can_be_imported(module):
    assert [name for name in MODULES[module].split() if not hasattr(module, name)] == []


# Source: kafka-python 3.0.12 errors.py, by hand.
ERRORS = """KafkaError RetriableError InvalidMetadataError Cancelled CommitFailedError IllegalArgumentError
    IllegalStateError KafkaConfigurationError KafkaConnectionError KafkaProtocolError CorrelationIdError
    InvalidReceiveError KafkaTimeoutError MetadataEmptyBrokerList NoOffsetForPartitionError LogTruncationError
    NodeNotReadyError UnknownBrokerIdError QuotaViolationError StaleMetadata TooManyInFlightRequests
    UnrecognizedBrokerVersion UnsupportedCodecError TransactionAbortedError BrokerResponseError AuthorizationError
    NoError UnknownError OffsetOutOfRangeError CorruptRecordError CorruptRecordException UnknownTopicOrPartitionError
    InvalidFetchRequestError LeaderNotAvailableError NotLeaderForPartitionError RequestTimedOutError
    BrokerNotAvailableError ReplicaNotAvailableError MessageSizeTooLargeError StaleControllerEpochError
    OffsetMetadataTooLargeError NetworkExceptionError CoordinatorLoadInProgressError CoordinatorNotAvailableError
    NotCoordinatorError InvalidTopicError RecordListTooLargeError NotEnoughReplicasError
    NotEnoughReplicasAfterAppendError InvalidRequiredAcksError IllegalGenerationError InconsistentGroupProtocolError
    InvalidGroupIdError UnknownMemberIdError InvalidSessionTimeoutError RebalanceInProgressError
    InvalidCommitOffsetSizeError TopicAuthorizationFailedError GroupAuthorizationFailedError
    ClusterAuthorizationFailedError InvalidTimestampError UnsupportedSaslMechanismError IllegalSaslStateError
    UnsupportedVersionError IncompatibleBrokerVersion TopicAlreadyExistsError InvalidPartitionsError
    InvalidReplicationFactorError InvalidReplicationAssignmentError InvalidConfigurationError NotControllerError
    InvalidRequestError UnsupportedForMessageFormatError PolicyViolationError OutOfOrderSequenceNumberError
    DuplicateSequenceNumberError InvalidProducerEpochError InvalidTxnStateError InvalidProducerIdMappingError
    InvalidTransactionTimeoutError ConcurrentTransactionsError TransactionCoordinatorFencedError
    TransactionalIdAuthorizationFailedError SecurityDisabledError OperationNotAttemptedError KafkaStorageError
    LogDirNotFoundError SaslAuthenticationFailedError UnknownProducerIdError ReassignmentInProgressError
    DelegationTokenAuthDisabledError DelegationTokenNotFoundError DelegationTokenOwnerMismatchError
    DelegationTokenRequestNotAllowedError DelegationTokenAuthorizationFailedError DelegationTokenExpiredError
    InvalidPrincipalTypeError NonEmptyGroupError GroupIdNotFoundError FetchSessionIdNotFoundError
    InvalidFetchSessionEpochError ListenerNotFoundError TopicDeletionDisabledError FencedLeaderEpochError
    UnknownLeaderEpochError UnsupportedCompressionTypeError StaleBrokerEpochError OffsetNotAvailableError
    MemberIdRequiredError PreferredLeaderNotAvailableError GroupMaxSizeReachedError FencedInstanceIdError
    EligibleLeadersNotAvailableError ElectionNotNeededError NoReassignmentInProgressError
    GroupSubscribedToTopicError InvalidRecordError UnstableOffsetCommitError ThrottlingQuotaExceededError
    ProducerFencedError ResourceNotFoundError DuplicateResourceError UnacceptableCredentialError
    InconsistentVoterSetError InvalidUpdateVersionError FeatureUpdateFailedError
    PrincipalDeserializationFailureError SnapshotNotFoundError PositionOutOfRangeError UnknownTopicIdError
    DuplicateBrokerRegistrationError BrokerIdNotRegisteredError InconsistentTopicIdError
    InconsistentClusterIdError TransactionalIdNotFoundError FetchSessionTopicIdError IneligibleReplicaError
    NewLeaderElectedError OffsetMovedToTieredStorageError FencedMemberEpochError UnreleasedInstanceIdError
    UnsupportedAssignorError StaleMemberEpochError MismatchedEndpointTypeError UnsupportedEndpointTypeError
    UnknownControllerIdError UnknownSubscriptionIdError TelemetryTooLargeError InvalidRegistrationError
    TransactionAbortableError InvalidRecordStateError ShareSessionNotFoundError InvalidShareSessionEpochError
    FencedStateEpochError InvalidVoterKeyError DuplicateVoterError VoterNotFoundError"""


def test_except_clauses_for_every_error_of_kafka_python_import():
    for name in ERRORS.split():
        kind = getattr(errors, name)
        assert issubclass(kind, KafkaError)
        assert kind.__doc__
        if kind.__doc__ == "Never raised by sparklog.":
            assert (kind.__name__, kind.__module__) == (name, "sparklog.kafka.errors")


def test_every_error_of_sparklog_is_a_kafka_error():
    assert all(issubclass(getattr(sparklog.errors, name), KafkaError) for name in sparklog.errors.__all__)


def test_codes_are_kafkas():
    assert errors.for_code(3) is errors.UnknownTopicOrPartitionError
    assert errors.for_code(0) is errors.NoError
    assert errors.for_code(1234) is errors.UnknownError
    assert errors.code_of(errors.TopicAlreadyExistsError("t")) == 36
    assert errors.code_of(errors.UnknownMemberIdError("g")) == 25
    assert errors.for_code(69) is errors.GroupIdNotFoundError
    assert errors.code_of(errors.ProducerFencedError("x")) == 90
    assert errors.code_of(sparklog.errors.StoreReplacedError("x")) == 56
    assert errors.code_of(sparklog.errors.TopicShrunkError("x")) == 56
    assert errors.for_code(56) is errors.KafkaStorageError
    assert errors.for_code(105) is errors.TransactionalIdNotFoundError
    assert errors.code_of(NoBrokersAvailable("x")) == 7
    assert errors.code_of(KafkaError("x")) == -1
