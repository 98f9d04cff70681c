"""Consumer groups by the wire: what members are told, and who coordinates them."""

from __future__ import annotations

import threading
import uuid
from contextlib import closing
from typing import Any

import pytest

import sparklog.gateway
from sparklog import Admin, Consumer, NewTopic, OffsetAndMetadata, TopicPartition
from sparklog.errors import IllegalGenerationError, StoreUnavailableError
from sparklog.gateway import group_coordinator
from sparklog.gateway.coordination.consumer_protocol import encode_assignment, encode_subscription, subscribed_topics
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.group_stay import GroupStay
from sparklog.gateway.server import parse_address
from sparklog.log.cluster import open_cluster
from sparklog.storage import MemoryStore
from sparklog.testing import WrappedStore
from tests.gateway.test_server import Wire

JOBS = [TopicPartition("jobs", 0), TopicPartition("jobs", 1)]
MINE = encode_assignment(JOBS)
PATIENT: dict[str, Any] = {"coordinator_session_timeout_ms": 60_000, "offset_commit_timeout_ms": 60_000}
"""The bounds of a gateway on a machine that gives it little time; what these tests show needs none of them."""


@pytest.fixture
def cluster():
    root = f"memory://groups-{uuid.uuid4().hex}"
    Admin(root).create_topics([NewTopic("jobs", 2)])
    return root


@pytest.fixture
def servers(cluster):
    with sparklog.gateway.serve(cluster, group_initial_rebalance_delay_ms=0, **PATIENT) as bootstrap_servers:
        yield bootstrap_servers


@pytest.fixture
def wire(servers):
    client = Wire(servers)
    yield client
    client.close()


def joining(member="", *, group="g", instance=None, session_ms=60_000, protocols=("range",), kind="consumer"):
    said = [{"name": name, "metadata": encode_subscription(["jobs"])} for name in protocols]
    return {
        "group_id": group,
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": session_ms,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": kind,
        "protocols": said,
    }


def joined(wire, *, version=9, **settings):
    """A member that joined, and what it was told."""
    answer = wire.call("JoinGroup", version, joining(**settings))
    if answer["error_code"] == 79:  # its member id comes first
        answer = wire.call("JoinGroup", version, joining(answer["member_id"], **settings))
    return answer


def syncing(answer, *, instance=None, group="g", assignments=None):
    given = {answer["member_id"]: MINE} if assignments is None else assignments
    return {
        "group_id": group,
        "generation_id": answer["generation_id"],
        "member_id": answer["member_id"],
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocol_name": answer.get("protocol_name", "range"),
        "assignments": [{"member_id": one, "assignment": what} for one, what in given.items()],
    }


def member(wire, **settings):
    """A lone member with its assignment."""
    answer = joined(wire, **settings)
    assert answer["error_code"] == 0
    body = syncing(answer, instance=settings.get("instance"), group=settings.get("group", "g"))
    assert wire.call("SyncGroup", 5, body)["assignment"] == MINE
    return answer


def who(answer, *, instance=None, generation=None, group="g"):
    return {
        "group_id": group,
        "generation_id": answer["generation_id"] if generation is None else generation,
        "member_id": answer["member_id"],
        "group_instance_id": instance,
    }


def committing(offset, *, generation=-1, member_id="", group="g", partition=0, topic="jobs", metadata=None):
    at = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [{"name": topic, "partitions": [at]}],
    }


def commit(wire, offset, *, version=9, **settings):
    (topic,) = wire.call("OffsetCommit", version, committing(offset, **settings))["topics"]
    return topic["partitions"][0]["error_code"]


def fetch(wire, *, version=9, group="g", partitions=(0,)):
    wanted = [{"name": "jobs", "partition_indexes": [*partitions]}]
    if version < 8:
        found = wire.call("OffsetFetch", version, {"group_id": group, "topics": wanted})
    else:
        (found,) = wire.call("OffsetFetch", version, {"groups": [{"group_id": group, "topics": wanted}]})["groups"]
    return [(one["committed_offset"], one["metadata"]) for topic in found["topics"] for one in topic["partitions"]]


def ask(servers, name, version, body):
    """Ask in a thread, since the answer waits for others."""
    answers = []

    def call():
        client = Wire(servers)
        answers.append(client.call(name, version, body))
        client.close()

    thread = threading.Thread(target=call)
    thread.start()
    return thread, answers


@pytest.mark.parametrize("version", range(7))
def test_this_gateway_is_the_coordinator_where_no_other_is(wire, servers, version):
    found = wire.call("FindCoordinator", version, {"key": "g", "coordinator_keys": ["g"]})
    (found,) = found.get("coordinators", [found])
    (broker,) = wire.call("Metadata", 9, {"topics": []})["brokers"]
    assert f"{found['host']}:{found['port']}" == servers
    assert (found["error_code"], found["node_id"]) == (0, broker["node_id"])


def test_a_group_without_a_name_has_no_coordinator(wire):
    asked = {"coordinator_keys": ["", "t" * 300, "good"]}
    codes = [one["error_code"] for one in wire.call("FindCoordinator", 4, asked)["coordinators"]]
    assert codes == [24, 24, 0]
    assert wire.call("FindCoordinator", 6, {"key_type": 1, "coordinator_keys": ["t"]})["coordinators"][0]["port"] > 0
    assert wire.call("FindCoordinator", 6, {"key_type": 2, "coordinator_keys": ["t"]})["coordinators"][0]["port"] < 0


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_are_committed_without_members(wire, cluster, version):
    assert commit(wire, 5, version=version, metadata="m") == 0
    assert fetch(wire, version=version, partitions=[0, 1]) == [(5, "m"), (-1, "")]
    assert Admin(cluster).list_group_offsets("g") == {JOBS[0]: OffsetAndMetadata(5, "m")}


@pytest.mark.parametrize("is_member", [False, True])
def test_an_offset_below_zero_takes_the_committed_one_back(wire, cluster, is_member):
    settings = {}
    if is_member:
        mine = member(wire)
        settings = {"generation": mine["generation_id"], "member_id": mine["member_id"]}
    assert commit(wire, -2, partition=1, **settings) == 0
    assert commit(wire, 5, **settings) == commit(wire, 7, partition=1, **settings) == 0
    assert commit(wire, -1, **settings) == 0
    assert fetch(wire, partitions=[0, 1]) == [(-1, ""), (7, "")]
    assert Admin(cluster).list_group_offsets("g") == {JOBS[1]: OffsetAndMetadata(7)}
    assert commit(wire, 3, **settings) == 0
    assert fetch(wire) == [(3, "")]


def test_a_group_that_has_committed_nothing_has_no_offsets(wire):
    assert fetch(wire, version=1) == [(-1, "")]
    (found,) = wire.call("OffsetFetch", 9, {"groups": [{"group_id": "g", "topics": None}]})["groups"]
    assert (found["error_code"], found["topics"]) == (0, [])


def test_all_offsets_of_a_group_are_told(wire):
    for partition in (0, 1):
        assert commit(wire, 7 + partition, partition=partition) == 0
    (found,) = wire.call("OffsetFetch", 9, {"groups": [{"group_id": "g", "topics": None}]})["groups"]
    (topic,) = found["topics"]
    assert [(one["partition_index"], one["committed_offset"]) for one in topic["partitions"]] == [(0, 7), (1, 8)]


def test_what_sparklogs_consumer_commits_clients_read(wire, cluster):
    with Consumer(cluster=cluster, group_id="g") as consumer:
        consumer.assign([JOBS[1]])
        consumer.commit({JOBS[1]: OffsetAndMetadata(3, "from Python")})
    assert fetch(wire, partitions=[1]) == [(3, "from Python")]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"topic": "nothing"}, 3),
        ({"partition": 2}, 3),
        ({"partition": -1}, 3),
        ({"metadata": "m" * 5_000}, 12),
        ({"group": ""}, 24),
        ({"member_id": "nobody", "generation": 1}, 25),
        ({"generation": 1}, 25),
    ],
)
def test_a_commit_that_cannot_be_has_kafkas_error(wire, settings, code):
    settings = {"offset": 1, **settings}
    assert commit(wire, settings.pop("offset"), **settings) == code
    assert fetch(wire) == [(-1, "")]


@pytest.mark.parametrize("version", range(10))
def test_a_lone_member_joins_in_all_versions(wire, version):
    answer = joined(wire, version=version)
    assert (answer["error_code"], answer["leader"], answer["protocol_name"]) == (0, answer["member_id"], "range")
    assert [subscribed_topics(one["metadata"]) for one in answer["members"]] == [{"jobs"}]
    synced = wire.call("SyncGroup", min(version, 5), syncing(answer))
    assert (synced["error_code"], synced["assignment"]) == (0, MINE)
    assert wire.call("Heartbeat", min(version, 4), who(answer))["error_code"] == 0
    generation, member_id = answer["generation_id"], answer["member_id"]
    assert commit(wire, 4, version=max(2, version), generation=generation, member_id=member_id) == 0
    assert fetch(wire, version=max(1, version)) == [(4, "")]
    leaving = {"group_id": "g", "member_id": member_id, "members": [{"member_id": member_id}]}
    left = wire.call("LeaveGroup", min(version, 5), leaving)
    assert [left["error_code"], *(one["error_code"] for one in left.get("members", ()))] in ([0], [0, 0])
    assert wire.call("Heartbeat", min(version, 4), who(answer))["error_code"] == 25


def test_a_member_of_a_classic_group_may_name_itself_as_it_reads_offsets(wire):
    told = member(wire)
    assert commit(wire, 5, generation=told["generation_id"], member_id=told["member_id"]) == 0
    asked = {"group_id": "g", "member_id": told["member_id"], "member_epoch": told["generation_id"], "topics": None}
    (found,) = wire.call("OffsetFetch", 9, {"groups": [asked]})["groups"]
    assert found["error_code"] == 0
    assert found["topics"][0]["partitions"][0]["committed_offset"] == 5


def test_a_second_member_makes_the_first_join_again(wire, servers):
    first = member(wire)
    second = Wire(servers)
    told = second.call("JoinGroup", 9, joining())
    assert told["error_code"] == 79
    assert wire.call("Heartbeat", 4, who(first))["error_code"] == 0  # it hasn't joined yet
    thread, answers = ask(servers, "JoinGroup", 9, joining(told["member_id"]))
    while wire.call("Heartbeat", 4, who(first))["error_code"] == 0:
        pass
    assert wire.call("Heartbeat", 4, who(first))["error_code"] == 27
    again = wire.call("JoinGroup", 9, joining(first["member_id"]))
    thread.join()
    assert again["generation_id"] == answers[0]["generation_id"] > first["generation_id"]
    assert again["leader"] == answers[0]["leader"] == first["member_id"]
    assert (len(again["members"]), answers[0]["members"]) == (2, [])
    halves = {first["member_id"]: b"first", told["member_id"]: b"second"}
    thread, others = ask(servers, "SyncGroup", 5, syncing(answers[0], assignments={}))
    assert wire.call("SyncGroup", 5, syncing(again, assignments=halves))["assignment"] == b"first"
    thread.join()
    assert others[0]["assignment"] == b"second"
    second.close()


def test_an_old_generation_and_a_stranger_are_refused(wire):
    first = member(wire)
    again = wire.call("JoinGroup", 9, joining(first["member_id"], protocols=("roundrobin", "range")))
    old, new, member_id = first["generation_id"], again["generation_id"], first["member_id"]
    assert new == old + 1
    assert commit(wire, 5, generation=new, member_id=member_id) == 27  # its assignment isn't known yet
    wire.call("SyncGroup", 5, syncing(again))
    assert commit(wire, 5, generation=old, member_id=member_id) == 22
    assert commit(wire, 5, generation=new, member_id="stranger") == 25
    assert commit(wire, 5) == 25  # without a member, beside members
    assert wire.call("Heartbeat", 4, who(first))["error_code"] == 22
    assert wire.call("SyncGroup", 5, syncing(first))["error_code"] == 22
    assert fetch(wire) == [(-1, "")]
    assert commit(wire, 6, generation=new, member_id=member_id) == 0


def test_a_member_without_a_common_assignor_is_refused(wire):
    member(wire)
    assert wire.call("JoinGroup", 3, joining(protocols=("mine",)))["error_code"] == 23
    assert wire.call("JoinGroup", 3, joining(kind="connect"))["error_code"] == 23
    assert wire.call("JoinGroup", 3, joining(group="other", protocols=()))["error_code"] == 23
    assert wire.call("JoinGroup", 3, joining(session_ms=1))["error_code"] == 26
    assert wire.call("JoinGroup", 9, joining("stranger"))["error_code"] == 25


def test_a_group_that_is_none_of_consumers_is_served(wire):
    answer = joined(wire, kind="connect", protocols=("sessioned",))
    body = {**syncing(answer, assignments={answer["member_id"]: b"opaque"}), "protocol_type": "connect"}
    assert wire.call("SyncGroup", 5, body)["assignment"] == b"opaque"
    (found,) = wire.call("DescribeGroups", 5, {"groups": ["g"]})["groups"]
    assert (found["protocol_type"], found["protocol_data"]) == ("connect", "sessioned")


def test_a_static_member_comes_back_to_its_place(wire, servers):
    first = member(wire, instance="one")
    again = wire.call("JoinGroup", 9, joining(instance="one"))
    assert again["member_id"] != first["member_id"]
    assert (again["generation_id"], again["skip_assignment"]) == (first["generation_id"], True)
    synced = wire.call("SyncGroup", 5, syncing(again, instance="one", assignments={}))
    assert synced["assignment"] == MINE
    assert wire.call("Heartbeat", 4, who(first, instance="one"))["error_code"] == 82
    assert wire.call("JoinGroup", 9, joining(first["member_id"], instance="one"))["error_code"] == 82
    other = wire.call("LeaveGroup", 4, {"group_id": "g", "members": [{"member_id": "", "group_instance_id": "one"}]})
    assert [one["error_code"] for one in other["members"]] == [0]


@pytest.mark.slow
def test_a_session_ends(wire, cluster):
    first: dict[str, Any] = {"error_code": -1}
    while first["error_code"]:  # a busy machine may take longer than the session between two requests
        first = joined(wire, session_ms=1_000)
    wire.call("SyncGroup", 5, syncing(first))
    code = 0
    while code == 0:
        wire.call("OffsetFetch", 1, {"group_id": "g", "topics": []})
        (found,) = wire.call("DescribeGroups", 5, {"groups": ["g"]})["groups"]
        code = 25 if not found["members"] else 0
    assert wire.call("Heartbeat", 4, who(first))["error_code"] == 25


def test_a_client_that_goes_while_it_joins_is_out_at_once(wire, servers):
    first = member(wire)
    gone = Wire(servers)
    gone.send("JoinGroup", 3, joining(session_ms=300_000))
    while wire.call("Heartbeat", 4, who(first))["error_code"] == 0:
        pass
    gone.close()
    while len(wire.call("DescribeGroups", 5, {"groups": ["g"]})["groups"][0]["members"]) == 2:
        pass
    alone = wire.call("JoinGroup", 9, joining(first["member_id"]))
    assert (alone["error_code"], len(alone["members"])) == (0, 1)


def test_a_coordinator_that_is_superseded_is_none_as_soon_as_a_client_joins(cluster, monkeypatch):
    monkeypatch.setattr(group_coordinator, "_TICK_S", 3_600)  # by itself it ends nothing
    own, refusals = GroupStay.own, [IllegalGenerationError("another has taken them")]

    async def refused_once(stay, topic_ids, *, timeout_ms):
        if refusals:
            raise refusals.pop()
        await own(stay, topic_ids, timeout_ms=timeout_ms)

    monkeypatch.setattr(GroupStay, "own", refused_once)
    with sparklog.gateway.serve(cluster, group_initial_rebalance_delay_ms=0, **PATIENT) as servers:
        client = Wire(servers)
        first = joined(client)
        assert client.call("SyncGroup", 5, syncing(first))["error_code"] == 16
        again = client.call("JoinGroup", 9, joining(first["member_id"]))
        assert again["error_code"] == 25  # of a group that begins anew
        assert member(client)["error_code"] == 0
        client.close()


@pytest.mark.slow
def test_a_group_whose_last_session_has_just_ended_may_be_deleted(cluster, monkeypatch):
    monkeypatch.setattr(group_coordinator, "_TICK_S", 3_600)  # by itself it notices nothing
    with sparklog.gateway.serve(cluster, group_initial_rebalance_delay_ms=0, **PATIENT) as servers:
        client = Wire(servers)
        client.call("JoinGroup", 3, joining(session_ms=1_000))
        codes = []
        while 0 not in codes:
            codes += [one["error_code"] for one in client.call("DeleteGroups", 2, {"groups_names": ["g"]})["results"]]
        assert set(codes) == {68, 0}
        client.close()


def test_groups_are_listed_described_and_deleted(wire, cluster):
    answer = member(wire)
    commit(wire, 2, group="offsets only")
    listed = wire.call("ListGroups", 5, {})["groups"]
    assert [(one["group_id"], one["group_state"], one["group_type"]) for one in listed] == [
        ("g", "Stable", "classic"),
        ("offsets only", "Empty", "classic"),
    ]
    assert [one["group_id"] for one in wire.call("ListGroups", 4, {"states_filter": ["Empty"]})["groups"]] == [
        "offsets only"
    ]
    assert wire.call("ListGroups", 5, {"types_filter": ["consumer"]})["groups"] == []
    (found,) = wire.call("DescribeGroups", 6, {"groups": ["g"]})["groups"]
    assert (found["group_state"], found["protocol_data"]) == ("Stable", "range")
    (described,) = found["members"]
    assert (described["member_id"], described["client_id"]) == (answer["member_id"], "wire")
    assert (described["client_host"], described["member_assignment"]) == ("/127.0.0.1", MINE)
    assert wire.call("DescribeGroups", 6, {"groups": ["none"]})["groups"][0]["error_code"] == 69
    assert wire.call("DescribeGroups", 5, {"groups": ["none"]})["groups"][0]["group_state"] == "Dead"
    deleted = wire.call("DeleteGroups", 2, {"groups_names": ["g", "offsets only", "none"]})["results"]
    assert [one["error_code"] for one in deleted] == [68, 0, 69]
    leaving = {"group_id": "g", "members": [{"member_id": answer["member_id"]}]}
    wire.call("LeaveGroup", 5, leaving)
    assert wire.call("DeleteGroups", 2, {"groups_names": ["g"]})["results"][0]["error_code"] == 0
    assert Admin(cluster).list_groups() == []


def test_a_group_of_sparklogs_consumers_is_described(wire, cluster):
    with Consumer("jobs", cluster=cluster, group_id="g", client_id="mine") as consumer:
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        found: dict[str, Any] = {}
        while found.get("group_state") != "Stable":
            (found,) = wire.call("DescribeGroups", 5, {"groups": ["g"]})["groups"]
        (described,) = found["members"]
        assert (described["client_id"], described["member_assignment"]) == ("mine", MINE)
        assert subscribed_topics(described["member_metadata"]) == {"jobs"}


def test_offsets_are_deleted_where_nobody_subscribes(wire, cluster):
    Admin(cluster).create_topics([NewTopic("other", 1)])
    answer = member(wire)
    generation, member_id = answer["generation_id"], answer["member_id"]
    assert commit(wire, 5, generation=generation, member_id=member_id) == 0
    assert commit(wire, 6, topic="other", generation=generation, member_id=member_id) == 0
    until_told = {"error_code": 0}
    while until_told["error_code"] == 0:  # until the group says what it subscribes to
        until_told = deleting(wire, "jobs")["topics"][0]["partitions"][0]
    assert until_told["error_code"] == 86
    assert deleting(wire, "other")["topics"][0]["partitions"][0]["error_code"] == 0
    assert "other" not in {one.topic for one in Admin(cluster).list_group_offsets("g")}
    assert commit(wire, 7, topic="other", generation=generation, member_id=member_id) == 0
    assert deleting(wire, "jobs", group="none")["error_code"] == 69


def deleting(wire, topic, group="g"):
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    return wire.call("OffsetDelete", 0, {"group_id": group, "topics": topics})


def test_a_topic_that_is_created_anew_has_no_offsets(wire, cluster):
    answer = member(wire)
    generation, member_id = answer["generation_id"], answer["member_id"]
    assert commit(wire, 5, generation=generation, member_id=member_id) == 0
    wire.call("DeleteTopics", 1, {"topic_names": ["jobs"]})
    assert fetch(wire) == [(-1, "")]
    assert commit(wire, 6, generation=generation, member_id=member_id) == 3
    Admin(cluster).create_topics([NewTopic("jobs", 1)])
    assert fetch(wire) == [(-1, "")]
    assert commit(wire, 1, generation=generation, member_id=member_id) == 0
    assert fetch(wire) == [(1, "")]


def test_more_groups_than_allowed_are_refused(cluster):
    with sparklog.gateway.serve(cluster, max_groups=1) as servers:
        client = Wire(servers)
        member(client)
        assert client.call("JoinGroup", 3, joining(group="other"))["error_code"] == 15
        for number in range(3):
            assert commit(client, 5, group=f"offsets {number}") == 0
        assert fetch(client, group="offsets 0") == [(5, "")]
        client.close()


class AwayStore(WrappedStore):
    """A store that can't be reached for a while."""

    def __init__(self, store):
        super().__init__(store)
        self.is_away = False

    def _call(self, kind, path, call):
        if self.is_away:
            raise StoreUnavailableError("the store is away")
        return call()


@pytest.fixture
def away():
    store = AwayStore(MemoryStore(f"memory://away-{uuid.uuid4().hex}"))
    Admin(open_cluster(store)).create_topics([NewTopic("jobs", 2)])
    return store


def member_at_last(wire):
    """A lone member of a gateway with such short bounds that a busy machine makes clients ask again."""
    synced: dict[str, Any] = {"error_code": -1}
    while synced["error_code"]:
        answer = joined(wire)
        if answer["error_code"] == 0:
            synced = wire.call("SyncGroup", 5, syncing(answer))
    assert synced["assignment"] == MINE
    return answer


@pytest.mark.slow
def test_a_store_that_is_away_makes_clients_ask_again(away):
    with (
        sparklog.gateway.serve(open_cluster(away), offset_commit_timeout_ms=300) as servers,
        closing(Wire(servers)) as client,
    ):
        answer = member_at_last(client)
        known = {"generation": answer["generation_id"], "member_id": answer["member_id"]}
        away.is_away = True
        assert commit(client, 5, **known) == 15
        assert client.call("Heartbeat", 4, who(answer))["error_code"] == 0
        assert client.call("JoinGroup", 3, joining(group="other"))["error_code"] == 15
        away.is_away = False
        code = 15
        while code == 15:
            code = commit(client, 6, **known)
        assert code == 0
        while fetch(client) != [(6, "")]:
            pass
        while (code := joined(client, group="other")["error_code"]) == 15:
            pass
        assert code == 0


@pytest.mark.slow
def test_a_gateway_whose_store_was_away_for_a_session_lets_its_members_join_again(away):
    with (
        sparklog.gateway.serve(
            open_cluster(away), offset_commit_timeout_ms=300, coordinator_session_timeout_ms=1_000
        ) as servers,
        closing(Wire(servers)) as client,
    ):
        answer = member_at_last(client)
        known = {"generation": answer["generation_id"], "member_id": answer["member_id"]}
        away.is_away = True
        while client.call("Heartbeat", 4, who(answer))["error_code"] == 0:
            pass  # until this gateway must take itself for dead
        assert commit(client, 7, **known) in (15, 16, 25)
        away.is_away = False
        again = {"error_code": 16}
        while again["error_code"] != 0:  # its own former stay is looked for until its session has ended
            again = joined(client)
        while fetch(client) != [(-1, "")]:
            pass


# The protocol consumer.


def hearing(member_id, epoch, *, group="g", **settings):
    return {"group_id": group, "member_id": member_id, "member_epoch": epoch, **settings}


def of_consumer_protocol(wire, member_id="m", **settings):
    """A member of this protocol, and what it was told."""
    said = {"rebalance_timeout_ms": 5_000, "subscribed_topic_names": ["jobs"], "topic_partitions": [], **settings}
    return wire.call("ConsumerGroupHeartbeat", 0, hearing(member_id, 0, **said))


def test_the_gateway_assigns_in_the_protocol_consumer(wire, cluster):
    told = of_consumer_protocol(wire)
    assert (told["error_code"], told["member_id"]) == (0, "m")
    (topic,) = told["assignment"]["topic_partitions"]
    assert (topic["topic_id"], topic["partitions"]) == (wire_topic_id(wire), [0, 1])
    epoch = told["member_epoch"]
    again = wire.call("ConsumerGroupHeartbeat", 0, hearing("m", epoch))
    assert (again["member_epoch"], again["assignment"]) == (epoch, None)
    assert commit(wire, 5, generation=epoch, member_id="m") == 0
    assert commit(wire, 6, generation=epoch - 1, member_id="m") == 113
    assert commit(wire, 6, generation=epoch, member_id="other") == 25
    wanted = {"group_id": "g", "member_id": "m", "member_epoch": epoch, "topics": None}
    (found,) = wire.call("OffsetFetch", 9, {"groups": [wanted]})["groups"]
    assert [one["committed_offset"] for one in found["topics"][0]["partitions"]] == [5]
    (found,) = wire.call("OffsetFetch", 9, {"groups": [{**wanted, "member_epoch": epoch + 1}]})["groups"]
    assert found["error_code"] == 113
    assert wire.call("ConsumerGroupHeartbeat", 0, hearing("m", epoch + 1))["error_code"] == 110
    assert wire.call("ConsumerGroupHeartbeat", 0, hearing("m", -1))["member_epoch"] == -1
    assert wire.call("ConsumerGroupHeartbeat", 0, hearing("m", epoch))["error_code"] == 25
    assert Admin(cluster).describe_groups(["g"])[0].state.value == "Empty"


def wire_topic_id(wire):
    (topic,) = wire.call("Metadata", 12, {"topics": [{"name": "jobs"}]})["topics"]
    return topic["topic_id"]


def test_a_group_of_the_protocol_consumer_is_described(wire):
    told = of_consumer_protocol(wire)
    (found,) = wire.call("ConsumerGroupDescribe", 0, {"group_ids": ["g"]})["groups"]
    assert (found["error_code"], found["group_state"], found["assignor_name"]) == (0, "Stable", "uniform")
    (described,) = found["members"]
    assert (described["member_id"], described["member_epoch"]) == ("m", told["member_epoch"])
    (topic,) = described["assignment"]["topic_partitions"]
    assert (topic["topic_name"], topic["partitions"]) == ("jobs", [0, 1])
    assert described["subscribed_topic_names"] == ["jobs"]
    assert wire.call("DescribeGroups", 6, {"groups": ["g"]})["groups"][0]["error_code"] == 69
    (listed,) = wire.call("ListGroups", 5, {"types_filter": ["consumer"]})["groups"]
    assert (listed["group_type"], listed["group_state"]) == ("consumer", "Stable")
    member(wire, group="classic")
    described = wire.call("ConsumerGroupDescribe", 0, {"group_ids": ["classic", "none", ""]})["groups"]
    assert [one["error_code"] for one in described] == [69, 69, 24]


def test_a_topic_that_comes_later_is_assigned(cluster):
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        told = of_consumer_protocol(client, subscribed_topic_names=["later"])
        assert told["assignment"] == {"topic_partitions": []}
        Admin(cluster).create_topics([NewTopic("later", 1)])
        said = {"subscribed_topic_names": ["later", "jobs"]}
        told = client.call("ConsumerGroupHeartbeat", 0, hearing("m", told["member_epoch"], **said))
        assert [one["partitions"] for one in told["assignment"]["topic_partitions"]] == [[0, 1], [0]]
        client.close()


@pytest.mark.parametrize(("pattern", "topics"), [("j.*", {"jobs"}), ("job", set()), ("o|jobs", {"jobs"})])
def test_topics_are_subscribed_by_an_expression(wire, cluster, pattern, topics):
    Admin(cluster).create_topics([NewTopic("other", 1)])
    said = {"subscribed_topic_names": [], "subscribed_topic_regex": pattern, "topic_partitions": []}
    told = wire.call("ConsumerGroupHeartbeat", 1, hearing("m", 0, rebalance_timeout_ms=5_000, **said))
    assert told["error_code"] == 0
    (found,) = wire.call("ConsumerGroupDescribe", 1, {"group_ids": ["g"]})["groups"]
    (described,) = found["members"]
    assert (described["subscribed_topic_regex"], described["member_type"]) == (pattern, 1)
    assert {one["topic_name"] for one in described["assignment"]["topic_partitions"]} == topics


@pytest.mark.parametrize("pattern", ["(", "a)|(b", "[", "\\1"])
def test_an_expression_that_is_none_is_refused(wire, pattern):
    said = {"subscribed_topic_names": [], "subscribed_topic_regex": pattern, "topic_partitions": []}
    told = wire.call("ConsumerGroupHeartbeat", 1, hearing("m", 0, rebalance_timeout_ms=5_000, **said))
    assert told["error_code"] == 117


def test_what_clients_call_themselves_and_ask_for_is_cut_in_the_log(wire, caplog):
    caplog.set_level("INFO", "sparklog.gateway")
    said = {"subscribed_topic_names": [], "subscribed_topic_regex": "(" * 32_767, "topic_partitions": []}
    assert wire.call("ConsumerGroupHeartbeat", 1, hearing("m", 0, rebalance_timeout_ms=5_000, **said))["error_code"]
    said["subscribed_topic_regex"] = "j.*"
    name = "\x01" * 32_767  # longer ones aren't read
    joined = wire.call("ConsumerGroupHeartbeat", 1, hearing(name, 0, rebalance_timeout_ms=5_000, **said))
    assert joined["error_code"] == 0
    assert wire.call("ConsumerGroupHeartbeat", 1, hearing(name, -1))["error_code"] == 0
    entries = [one.getMessage() for one in caplog.records]
    assert ["pattern" in one for one in entries].count(True) == 1
    assert ["member" in one for one in entries].count(True) == 2
    assert max(map(len, entries)) < 2_000


def test_a_group_has_one_protocol(wire, servers, cluster):
    answer = member(wire)
    assert of_consumer_protocol(wire)["error_code"] == 23
    wire.call("LeaveGroup", 0, {"group_id": "g", "member_id": answer["member_id"]})
    assert of_consumer_protocol(wire)["error_code"] == 0
    assert wire.call("JoinGroup", 3, joining())["error_code"] == 23
    assert of_consumer_protocol(wire, server_assignor="mine")["error_code"] == 112
    assert of_consumer_protocol(wire, group="")["error_code"] == 24
    with sparklog.gateway.serve(cluster) as elsewhere:
        other = Wire(elsewhere)
        assert of_consumer_protocol(other)["error_code"] == 16
        assert other.call("ConsumerGroupHeartbeat", 0, hearing("m", 3))["error_code"] == 16
        assert other.call("ConsumerGroupDescribe", 0, {"group_ids": ["g"]})["groups"][0]["error_code"] == 16
        other.close()


# Several gateways, and sparklog's own consumers beside them.


def test_another_gateway_names_the_coordinator(wire, servers, cluster):
    answer = member(wire)
    with sparklog.gateway.serve(cluster) as elsewhere:
        other = Wire(elsewhere)
        (found,) = other.call("FindCoordinator", 4, {"coordinator_keys": ["g"]})["coordinators"]
        assert f"{found['host']}:{found['port']}" == servers
        (broker,) = other.call("Metadata", 9, {"topics": []})["brokers"]
        assert broker["node_id"] != found["node_id"]
        assert other.call("JoinGroup", 3, joining())["error_code"] == 16
        assert other.call("Heartbeat", 4, who(answer))["error_code"] == 16
        assert other.call("SyncGroup", 5, syncing(answer))["error_code"] == 16
        assert other.call("LeaveGroup", 0, {"group_id": "g", "member_id": answer["member_id"]})["error_code"] == 16
        assert other.call("DescribeGroups", 5, {"groups": ["g"]})["groups"][0]["error_code"] == 16
        assert commit(other, 5, generation=answer["generation_id"], member_id=answer["member_id"]) == 16
        assert commit(other, 5) == 25
        assert commit(wire, 6, generation=answer["generation_id"], member_id=answer["member_id"]) == 0
        assert fetch(other) == [(6, "")]
        other.close()


@pytest.mark.slow
def test_a_gateway_that_ends_leaves_its_groups_to_others(cluster):
    with sparklog.gateway.serve(cluster) as elsewhere:
        other = Wire(elsewhere)
        with sparklog.gateway.serve(cluster) as servers:
            first = Wire(servers)
            answer = member(first)
            commit(first, 5, generation=answer["generation_id"], member_id=answer["member_id"])
            first.close()
        assert commit(other, 6, generation=answer["generation_id"], member_id=answer["member_id"]) == 25
        again = member(other)
        assert fetch(other) == [(5, "")]
        assert commit(other, 6, generation=again["generation_id"], member_id=again["member_id"]) == 0
        other.close()


def test_of_two_gateways_that_clients_join_at_once_one_coordinates(cluster):
    with sparklog.gateway.serve(cluster) as here, sparklog.gateway.serve(cluster) as there:
        asked = [ask(one, "JoinGroup", 3, joining()) for one in (here, there)]
        for thread, _ in asked:
            thread.join()
        # Two that came one right after the other may both be told 0: the first is put in its place by the next round.
        assert {answers[0]["error_code"] for _, answers in asked} <= {0, 16}
        clients = [Wire(here), Wire(there)]
        code = -1
        while code != 0:
            (found,) = clients[0].call("FindCoordinator", 4, {"coordinator_keys": ["g"]})["coordinators"]
            client = clients[[here, there].index(f"{found['host']}:{found['port']}")]
            told = client.call("JoinGroup", 9, joining())
            code = {79: 0}.get(told["error_code"], told["error_code"])
        for one in clients:
            one.close()


def test_clients_are_refused_beside_sparklogs_consumers(wire, cluster):
    with Consumer("jobs", cluster=cluster, group_id="g") as consumer:
        while not consumer.assignment():
            consumer.poll(timeout_ms=100)
        assert wire.call("JoinGroup", 3, joining())["error_code"] == 23
        assert commit(wire, 5) == 25
    assert member(wire)["error_code"] == 0


@pytest.mark.slow
def test_sparklogs_consumers_are_refused_beside_clients(wire, cluster):
    member(wire)
    with (
        Consumer("jobs", cluster=cluster, group_id="g", heartbeat_interval_ms=100) as consumer,
        pytest.raises(sparklog.errors.InconsistentGroupProtocolError, match="kafka-clients"),
    ):
        poll_for_ever(consumer)


def poll_for_ever(consumer):
    while True:
        consumer.poll(timeout_ms=100)


def test_the_address_of_the_coordinator_is_the_advertised_one(cluster):
    with sparklog.gateway.serve(cluster) as servers:
        client = Wire(servers)
        member(client)
        assert Admin(cluster).describe_groups(["g"])[0].members[0].host == servers
        assert parse_address(servers)[0] == "127.0.0.1"
        client.close()


def test_a_client_learns_of_unknown_partitions_before_it_is_no_member(wire):
    assert commit(wire, 1, generation=3, member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(wire, 1, generation=3, member_id="nobody", topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    member(wire)
    assert commit(wire, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(wire, 1, topic="none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(wire, 1, partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_without_a_generation_commits_to_an_empty_group(wire):
    assert (
        commit(wire, 1, member_id="mine") == ErrorCode.NONE
    )  # librdkafka's, of group.protocol=consumer, that assigns itself
    answer = member(wire)
    assert commit(wire, 2, member_id="mine") == ErrorCode.UNKNOWN_MEMBER_ID
    leaving = {"group_id": "g", "members": [{"member_id": answer["member_id"], "group_instance_id": None}]}
    assert wire.call("LeaveGroup", 4, leaving)["error_code"] == 0
    assert commit(wire, 3, member_id="mine") == commit(wire, 4) == ErrorCode.NONE
    assert fetch(wire) == [(4, "")]
