"""Programs with consumer groups as people write them with kafka-python, and its admin client's calls about groups."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from sparklog.errors import StoreUnavailableError
from sparklog.kafka import (
    ConsumerGroupMetadata,
    ConsumerRebalanceListener,
    KafkaAdminClient,
    KafkaConsumer,
    KafkaProducer,
    OffsetAndMetadata,
    OffsetSpec,
    TopicPartition,
)
from sparklog.kafka.admin import GroupState, MemberToRemove, NewTopic, OffsetTimestamp
from sparklog.kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from sparklog.kafka.errors import (
    CommitFailedError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
    NoError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.kafka.structs import MemberState

P0, P1 = TopicPartition("foobar", 0), TopicPartition("foobar", 1)
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 50, "session_timeout_ms": 60_000, "auto_offset_reset": "earliest"}


@pytest.fixture
def server():
    uri = f"memory://{uuid.uuid4().hex}"
    with KafkaAdminClient(bootstrap_servers=uri) as admin:
        admin.create_topics([NewTopic("foobar", num_partitions=2, replication_factor=1), "other"])
    with KafkaProducer(bootstrap_servers=uri) as producer:
        for number in range(4):
            producer.send("foobar", b"%d" % number, partition=0, timestamp_ms=1_000 * number)
    return uri


@pytest.fixture
def admin(server):
    with KafkaAdminClient(bootstrap_servers=server) as client:
        yield client


def committed(admin, group="g"):
    return {at: found.offset for at, found in admin.list_group_offsets(group)[group].items()}


# Programs


def test_the_iterator_of_a_group_goes_on_where_it_was_closed(server):
    consumer = KafkaConsumer("foobar", group_id="my_favorite_group", bootstrap_servers=server, **QUICK)
    seen = [next(consumer).value for _ in range(4)]
    consumer.close()
    assert seen == [b"0", b"1", b"2", b"3"]
    with KafkaProducer(bootstrap_servers=server) as producer:
        producer.send("foobar", b"4", partition=0)
    with KafkaConsumer("foobar", group_id="my_favorite_group", bootstrap_servers=server, **QUICK) as again:
        assert next(again).value == b"4"


def test_at_least_once_by_commits_after_each_record(server, admin):
    consumer = KafkaConsumer(
        "foobar", group_id="g", bootstrap_servers=server, enable_auto_commit=False, max_poll_records=1, **QUICK
    )
    for message in consumer:
        tp = TopicPartition(message.topic, message.partition)
        consumer.commit({tp: OffsetAndMetadata(message.offset + 1, None, None)})  # type: ignore[arg-type]
        if message.offset == 2:
            break
    assert (consumer.committed(P0), consumer.committed(P1)) == (3, None)
    assert consumer.committed(P0, metadata=True) == OffsetAndMetadata(3, "", -1)
    consumer.commit()
    consumer.close(autocommit=False)
    assert committed(admin)[P0] == 3


def test_programs_for_kafka_python_2_ask_for_groups_by_their_names_of_then(server, admin):
    consumer = KafkaConsumer("foobar", group_id="g", bootstrap_servers=server, enable_auto_commit=False, **QUICK)
    while not consumer.poll(timeout_ms=100):
        pass
    consumer.commitSync()
    assert admin.list_consumer_groups() == [("g", "consumer")]
    offsets = admin.list_consumer_group_offsets("g")
    assert offsets[P0] == OffsetAndMetadata(4, "", -1)
    assert admin.list_consumer_group_offsets("g", partitions=[TopicPartition("other", 0)])[
        TopicPartition("other", 0)
    ] == OffsetAndMetadata(-1, "", -1)
    found, missing = admin.describe_consumer_groups(["g", "nobody"])
    assert (found.error_code, found.group, found.state, found.protocol_type) == (0, "g", "Stable", "consumer")
    [member] = found.members
    assert (member.member_metadata.subscription, sorted(member.member_assignment.partitions())) == (
        ["foobar"],
        [P0, P1],
    )
    assert (missing.error_code, missing.state, missing.members) == (0, "Dead", [])
    assert admin.delete_consumer_groups(["g"]) == [("g", NonEmptyGroupError)]
    consumer.commitSync({P0: OffsetAndMetadata(1)})
    consumer.close()
    assert committed(admin)[P0] == 1
    assert admin.delete_consumer_groups(["g"]) == [("g", NoError)]


def test_nothing_is_committed_where_autocommit_is_false_or_the_program_fails(server, admin):
    seldom = {**QUICK, "auto_commit_interval_ms": 3_600_000}  # however long a busy machine takes to join
    consumer = KafkaConsumer("foobar", group_id="g", bootstrap_servers=server, **seldom)
    assert next(consumer).offset == 0
    consumer.close(autocommit=False)
    with (
        pytest.raises(ZeroDivisionError),
        KafkaConsumer("foobar", group_id="g", bootstrap_servers=server, **seldom) as again,
    ):
        assert next(again).offset / 0
    assert committed(admin) == {}


def test_the_callback_of_a_commit_is_told_what_became_of_it(server):
    told: list[tuple[dict[TopicPartition, OffsetAndMetadata], Any]] = []
    defaults: list[Any] = []
    consumer = KafkaConsumer(
        "foobar",
        group_id="g",
        bootstrap_servers=server,
        enable_auto_commit=False,
        default_offset_commit_callback=lambda offsets, response: defaults.append(response),
        **QUICK,
    )
    while not consumer.poll(timeout_ms=100):
        pass
    future = consumer.commit_async(callback=lambda offsets, response: told.append((offsets, response)))
    consumer.commit_async({P0: OffsetAndMetadata(2)})
    foreign = consumer.commit_async({TopicPartition("other", 0): OffsetAndMetadata(1)})
    values: list[Any] = []
    errors: list[Any] = []
    consumer.commit({P0: OffsetAndMetadata(1)})  # those before it are done, too
    future.add_callback(
        values.append,
    ).add_errback(errors.append)
    foreign.add_both(errors.append)
    assert (future.is_done, future.succeeded(), future.failed(), future.exception) == (True, True, False, None)
    [(offsets, response)] = told
    assert offsets[P0].offset == 4
    assert values == [response] == [future.value]
    assert [(one.name, one.partitions[0].error_code) for one in response.topics] == [("foobar", 0)]
    assert not isinstance(defaults[0], Exception)
    assert errors == [foreign.exception] == [defaults[1]]
    assert isinstance(foreign.exception, CommitFailedError)
    assert (foreign.value, foreign.retriable(), foreign.succeeded()) == (None, False, False)
    consumer.close()


def test_automatic_commits_are_told_to_the_default_callback(server):
    told: list[Any] = []
    with KafkaConsumer(
        "foobar",
        group_id="g",
        bootstrap_servers=server,
        auto_commit_interval_ms=1,
        default_offset_commit_callback=lambda offsets, response: told.append((offsets, response)),
        **QUICK,
    ) as consumer:
        while not (told and told[-1][0][P0].offset == 4):
            consumer.poll(timeout_ms=20)
    assert [response for _, response in told if isinstance(response, Exception)] == []


def test_a_failed_commit_without_a_callback_is_logged(server, caplog):
    with KafkaConsumer(group_id="g", bootstrap_servers=server, **QUICK) as consumer:
        consumer.assign([P0])
        consumer.commit_async({P0: OffsetAndMetadata(-1)})
        consumer.commit({P0: OffsetAndMetadata(0)})
    assert "commit of the offsets of 1 partitions failed" in caplog.text


def test_two_members_share_the_partitions_and_tell_their_state(server, admin):
    class Listener(ConsumerRebalanceListener):
        def __init__(self):
            self.calls = []

        def on_partitions_revoked(self, revoked):
            self.calls.append(("revoked", sorted(revoked)))

        def on_partitions_assigned(self, assigned):
            self.calls.append(("assigned", sorted(assigned)))

    def make(client_id):
        return KafkaConsumer(
            group_id="g",
            bootstrap_servers=server,
            client_id=client_id,
            partition_assignment_strategy=[RoundRobinPartitionAssignor],
            **QUICK,
        )

    with make("one") as one, make("two") as two:
        listener = Listener()
        one.subscribe(["foobar"], listener=listener)
        assert one.group_metadata() == ConsumerGroupMetadata("g", -1, "", None, MemberState.UNJOINED)
        while one.assignment() != {P0, P1}:
            one.poll(timeout_ms=50)
        two.subscribe(["foobar"])
        while not (len(one.assignment()) == len(two.assignment()) == 1):
            one.poll(timeout_ms=20)
            two.poll(timeout_ms=20)
        assert one.assignment() | two.assignment() == {P0, P1}
        mine = one.group_metadata()
        assert (mine.group_id, mine.generation_id, mine.state) == ("g", 2, MemberState.STABLE)
        assert listener.calls[0] == ("assigned", [P0, P1])
        assert listener.calls[1] == ("revoked", [P0, P1])  # roundrobin is eager
        described = admin.describe_groups(["g"])["g"]
        assert (described["group_state"], described["protocol_data"], described["error"]) == (
            "Stable",
            "roundrobin",
            None,
        )
        members = {member["client_id"]: member for member in described["members"]}
        assert members["one"]["member_id"] == mine.member_id
        [number] = [at.partition for at in two.assignment()]
        assert members["two"]["member_assignment"] == {
            "assigned_partitions": [{"topic": "foobar", "partitions": [number]}],
            "user_data": "",
        }
        assert members["two"]["member_metadata"]["topics"] == ["foobar"]
        assert admin.alter_group_offsets("g", {P0: OffsetAndMetadata(1)}) == {P0: UnknownMemberIdError}
        assert admin.delete_group_offsets("g", [P0, TopicPartition("other", 0)]) == {
            P0: GroupSubscribedToTopicError,
            TopicPartition("other", 0): NoError,
        }
        assert admin.delete_groups(["g", "nosuch"]) == {"g": "NonEmptyGroupError", "nosuch": "GroupIdNotFoundError"}


def test_without_a_group_there_is_nothing_to_commit(server):
    with KafkaConsumer("foobar", bootstrap_servers=server) as consumer:
        assert consumer.group_metadata() == ConsumerGroupMetadata(None, -1, "", None, MemberState.UNJOINED)
        for call in (consumer.commit, consumer.commit_async, lambda: consumer.committed(P0)):
            with pytest.raises(IllegalStateError, match=r"^commit"):
                call()


# The admin client


def test_groups_are_listed_by_state_and_type(admin):
    assert admin.list_groups() == []
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(1)})
    listed = [{"group_id": "g", "protocol_type": "", "group_state": "Empty", "group_type": "classic"}]
    assert admin.list_groups() == admin.list_groups([0], ["empty"]) == listed
    assert admin.list_groups(states_filter=[GroupState.EMPTY], types_filter=["CLASSIC"]) == listed
    assert admin.list_groups(states_filter=["Stable", "preparing-rebalance"]) == []
    assert admin.list_groups(types_filter=["consumer"]) == []
    with pytest.raises(KafkaError, match="unrecognized GroupState 'tired'"):
        admin.list_groups(states_filter=["tired"])


def test_a_group_that_is_not_there_is_dead(admin):
    assert admin.describe_groups(["g"]) == {
        "g": {
            "group_id": "g",
            "group_state": "Dead",
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
            "authorized_operations": None,
            "error": "unknown group: 'g'",
        }
    }
    assert admin.list_group_offsets(["g"]) == {"g": {}}
    with pytest.raises(GroupIdNotFoundError):
        admin.delete_group_offsets("g", [P0])


def test_what_became_of_each_partition_is_told(admin):
    unknown, too_long = TopicPartition("nosuch", 0), OffsetAndMetadata(1, "x" * 5_000)
    assert admin.alter_group_offsets("g", {}) == admin.reset_group_offsets("g", {}) == {}
    assert admin.delete_group_offsets("g", []) == {}
    assert admin.alter_group_offsets("g", {P0: OffsetAndMetadata(1), unknown: OffsetAndMetadata(2), P1: too_long}) == {
        P0: NoError,
        unknown: UnknownTopicOrPartitionError,
        P1: OffsetMetadataTooLargeError,
    }
    assert admin.list_group_offsets({"g": [P0, P1]}) == {"g": {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(-1)}}
    unread = TopicPartition("other", 0)
    assert admin.delete_group_offsets("g", [P0, P1, unread]) == {P0: NoError, P1: NoError, unread: NoError}
    assert committed(admin) == {}
    with pytest.raises(IllegalArgumentError):
        admin.list_group_offsets({})


def test_offsets_are_reset(admin):
    admin.alter_group_offsets("g", {P0: OffsetAndMetadata(2, "by hand")})
    for spec, offset in (
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.EARLIEST_LOCAL, 0),
        (OffsetSpec.LATEST, 4),
        (OffsetSpec.MAX_TIMESTAMP, 3),
        (OffsetTimestamp(1_001), 2),
        (OffsetTimestamp(99_000), 4),
        (1, 1),
        (77, 4),
    ):
        assert admin.reset_group_offsets("g", {P0: spec}) == {P0: {"error": NoError, "offset": offset}}
        assert admin.list_group_offsets("g") == {"g": {P0: OffsetAndMetadata(offset, "by hand")}}
    with pytest.raises(IllegalArgumentError, match="expected OffsetSpec"):
        admin.reset_group_offsets("g", {P0: "latest"})


def test_static_members_are_removed(server, admin):
    consumer = KafkaConsumer("foobar", group_id="g", group_instance_id="i", bootstrap_servers=server, **QUICK)
    next(consumer)
    consumer.close()
    assert admin.remove_group_members("g", [MemberToRemove(group_instance_id="i"), MemberToRemove("nosuch")]) == {
        "i": NoError,
        "nosuch": UnknownMemberIdError,
    }
    assert admin.delete_groups(["g"]) == {"g": "OK"}


def test_an_error_of_the_store_is_raised(admin, monkeypatch):
    def fail(*_, **__):
        raise StoreUnavailableError("no")

    monkeypatch.setattr("sparklog.groups.admin.administration.empty_generation", fail)
    with pytest.raises(StoreUnavailableError):
        admin.alter_group_offsets("g", {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)})
