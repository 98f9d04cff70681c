"""Which requests a user may send. Topics that are produced to, fetched from and described are asked for one by one by
those who answer; every other request is allowed or refused here, as a whole. What isn't named here is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparklog.gateway.backend import Request
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.partition_codes import added_partitions, committed_partitions
from sparklog.gateway.users import Rules

__all__ = ["NotAllowedError", "refusal"]

_Body = dict[str, Any]
_Refuse = Callable[[Rules, _Body], "_Body | None"]
_GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_TOPIC_RESOURCE = 2
"""Source: Kafka ``ConfigResource.Type``."""


class NotAllowedError(Exception):
    """A user isn't allowed what has no answer that says so."""


def refusal(name: str, rules: Rules | None, request: Request) -> _Body | None:
    """The answer to a request that a user may not send; None: it is to be carried out.

    Args:
        name: of the API.
        rules: of the user; None: nobody is asked who they are, and all may do everything.
    Raises:
        NotAllowedError: the request is unknown here.
    """
    if rules is None or name in _FREE:
        return None
    refuse = _REFUSALS.get(name)
    if refuse is None:
        raise NotAllowedError(f"{name} is not allowed to users of --users")
    return refuse(rules, request.body)


_FREE = frozenset(
    {
        "ApiVersions",
        "FindCoordinator",
        "SaslHandshake",
        "SaslAuthenticate",
        # by each topic:
        "Produce",
        "Fetch",
        "Metadata",
        "DescribeTopicPartitions",
        "OffsetForLeaderEpoch",
        "DescribeProducers",
        "ListConfigResources",
        # one answer for all, without names of the cluster's:
        "DescribeCluster",
    }
)


def _by_group(rules: Rules, body: _Body) -> _Body | None:
    return None if rules.may_use_group(body["group_id"]) else {"error_code": _GROUP}


def _join_group(rules: Rules, body: _Body) -> _Body | None:
    refused = _by_group(rules, body)
    return refused and {**refused, "member_id": body["member_id"], "protocol_name": ""}


def _offset_commit(rules: Rules, body: _Body) -> _Body | None:
    code = _GROUP
    if rules.may_use_group(body["group_id"]):
        if all(rules.may_read(topic["name"]) for topic in body["topics"]):
            return None
        code = _TOPIC
    return committed_partitions(body, code)


def _txn_offset_commit(rules: Rules, body: _Body) -> _Body | None:
    if not rules.may_use_transactional_id(body["transactional_id"]):
        return committed_partitions(body, _ID)
    return _offset_commit(rules, body)


def _offset_fetch(rules: Rules, body: _Body) -> _Body | None:
    if "groups" not in body:
        return None if rules.may_use_group(body["group_id"]) else {"error_code": _GROUP, "topics": []}
    groups = [group["group_id"] for group in body["groups"]]
    if all(map(rules.may_use_group, groups)):
        return None
    return {"groups": [{"group_id": group_id, "error_code": _GROUP, "topics": []} for group_id in groups]}


def _groups(field: str, answers: str) -> _Refuse:
    def refuse(rules: Rules, body: _Body) -> _Body | None:
        if all(map(rules.may_use_group, body[field])):
            return None
        return {answers: [{"group_id": group, "error_code": _GROUP} for group in body[field]]}

    return refuse


def _delete_groups(rules: Rules, body: _Body) -> _Body | None:
    if rules.admin and all(map(rules.may_use_group, body["groups_names"])):
        return None
    return {"results": [{"group_id": group, "error_code": _GROUP} for group in body["groups_names"]]}


def _admin(rules: Rules, body: _Body) -> _Body | None:
    return None if rules.admin else {"error_code": _CLUSTER}


def _each_partition(body: _Body, **fields: int) -> _Body:
    topics = committed_partitions(body, _TOPIC)["topics"]
    for topic in topics:
        topic["partitions"] = [{**partition, **fields} for partition in topic["partitions"]]
    return {"topics": topics}


def _list_offsets(rules: Rules, body: _Body) -> _Body | None:
    if all(rules.may_see(topic["name"]) for topic in body["topics"]):
        return None
    return _each_partition(body, timestamp=-1, offset=-1)


def _delete_records(rules: Rules, body: _Body) -> _Body | None:
    if rules.admin and all(rules.may_write(topic["name"]) for topic in body["topics"]):
        return None
    return _each_partition(body, low_watermark=-1)


def _changed_topics(answers: str) -> _Refuse:
    def refuse(rules: Rules, body: _Body) -> _Body | None:
        names = [topic["name"] for topic in body["topics"]]
        if rules.admin and all(map(rules.may_write, names)):
            return None
        return {answers: [{"name": name, "error_code": _TOPIC, "error_message": None} for name in names]}

    return refuse


def _delete_topics(rules: Rules, body: _Body) -> _Body | None:
    """By topic id too: of whoever may write to all topics."""
    names = [*body.get("topic_names", ()), *(topic["name"] for topic in body.get("topics", ()))]
    if rules.admin and all(rules.may_write("" if name is None else name) for name in names):
        return None
    return {"responses": [{"name": name, "error_code": _TOPIC, "error_message": None} for name in names]}


def _alter_configs(rules: Rules, body: _Body) -> _Body | None:
    if rules.admin and _topics_match(rules.may_write, body):
        return None
    return {"responses": _refused_resources(body, of_others=_CLUSTER)}


def _describe_configs(rules: Rules, body: _Body) -> _Body | None:
    if _topics_match(rules.may_see, body):
        return None
    return {"results": [{**resource, "configs": []} for resource in _refused_resources(body, of_others=_TOPIC)]}


def _topics_match(may: Callable[[str], bool], body: _Body) -> bool:
    return all(
        resource["resource_type"] != _TOPIC_RESOURCE or may(resource["resource_name"]) for resource in body["resources"]
    )


def _refused_resources(body: _Body, *, of_others: ErrorCode) -> list[_Body]:
    """An answer for each resource; ``of_others``: the code for what is no topic."""
    return [
        {
            "resource_type": resource["resource_type"],
            "resource_name": resource["resource_name"],
            "error_code": _TOPIC if resource["resource_type"] == _TOPIC_RESOURCE else of_others,
            "error_message": None,
        }
        for resource in body["resources"]
    ]


def _init_producer_id(rules: Rules, body: _Body) -> _Body | None:
    name = body["transactional_id"]
    if name is None or rules.may_use_transactional_id(name):
        return None
    return {"error_code": _ID, "producer_id": -1, "producer_epoch": -1}


def _add_partitions(rules: Rules, body: _Body) -> _Body | None:
    topics = body["v3_and_below_topics"]
    code = _TOPIC if rules.may_use_transactional_id(body["v3_and_below_transactional_id"]) else _ID
    if code is _TOPIC and all(rules.may_write(topic["name"]) for topic in topics):
        return None
    return added_partitions(topics, code)


def _by_id(rules: Rules, body: _Body) -> _Body | None:
    return None if rules.may_use_transactional_id(body["transactional_id"]) else {"error_code": _ID}


def _describe_transactions(rules: Rules, body: _Body) -> _Body | None:
    ids = body["transactional_ids"]
    if all(map(rules.may_use_transactional_id, ids)):
        return None
    empty: _Body = {"transaction_state": "", "transaction_timeout_ms": -1, "transaction_start_time_ms": -1}
    empty |= {"producer_id": -1, "producer_epoch": -1, "topics": [], "error_code": _ID}
    return {"transaction_states": [{**empty, "transactional_id": name} for name in ids]}


def _list_transactions(rules: Rules, body: _Body) -> _Body | None:
    return None if rules.admin else {"error_code": _CLUSTER, "unknown_state_filters": [], "transaction_states": []}


def _of_admins(rules: Rules, refused: _Body) -> _Body | None:
    return None if rules.admin else refused


def _alter_users(rules: Rules, body: _Body) -> _Body | None:
    """Administrators alone; whether a user's rights are within the administrator's own is asked by whoever answers."""
    names = dict.fromkeys(alteration["name"] for alteration in (*body["deletions"], *body["upsertions"]))
    return _of_admins(rules, {"results": [{**_REFUSED, "user": name} for name in names]})


def _describe_users(rules: Rules, body: _Body) -> _Body | None:
    """The error is that of each user who is asked for, or of one without a name where all are: librdkafka 2.16 ends its
    process by an error of the whole answer, with a message and without. Java's client takes both in the same way."""
    names = dict.fromkeys(asked["name"] for asked in body["users"] or ()) or [""]
    results = [{**_REFUSED, "user": name, "credential_infos": []} for name in names]
    return _of_admins(rules, {"error_code": ErrorCode.NONE, "error_message": None, "results": results})


_REFUSED: _Body = {"error_code": _CLUSTER, "error_message": "Cluster authorization failed."}

_REFUSALS: dict[str, _Refuse] = {
    "ListOffsets": _list_offsets,
    "CreateTopics": _changed_topics("topics"),
    "DeleteTopics": _delete_topics,
    "DescribeConfigs": _describe_configs,
    "AlterConfigs": _alter_configs,
    "IncrementalAlterConfigs": _alter_configs,
    "CreatePartitions": _changed_topics("results"),
    "DeleteRecords": _delete_records,
    "InitProducerId": _init_producer_id,
    "AddPartitionsToTxn": _add_partitions,
    "AddOffsetsToTxn": lambda rules, body: _by_id(rules, body) or _by_group(rules, body),
    "EndTxn": _by_id,
    "TxnOffsetCommit": _txn_offset_commit,
    "DescribeTransactions": _describe_transactions,
    "ListTransactions": _list_transactions,
    "JoinGroup": _join_group,
    "SyncGroup": _by_group,
    "Heartbeat": _by_group,
    "LeaveGroup": _by_group,
    "ConsumerGroupHeartbeat": _by_group,
    "OffsetCommit": _offset_commit,
    "OffsetFetch": _offset_fetch,
    "OffsetDelete": _by_group,
    "DescribeGroups": _groups("groups", "groups"),
    "ConsumerGroupDescribe": _groups("group_ids", "groups"),
    "DeleteGroups": _delete_groups,
    "ListGroups": _admin,
    "DescribeLogDirs": lambda rules, _: _of_admins(rules, {"error_code": _CLUSTER, "results": []}),
    "ElectLeaders": lambda rules, _: _of_admins(rules, {"error_code": _CLUSTER, "replica_election_results": []}),
    "AlterPartitionReassignments": lambda rules, _: _of_admins(rules, {**_REFUSED, "responses": []}),
    "DescribeUserScramCredentials": _describe_users,
    "AlterUserScramCredentials": _alter_users,
    "ListPartitionReassignments": lambda rules, _: _of_admins(rules, {**_REFUSED, "topics": []}),
    "DescribeClientQuotas": lambda rules, _: _of_admins(rules, {**_REFUSED, "entries": None}),
    "DescribeAcls": lambda rules, _: _of_admins(rules, {**_REFUSED, "resources": []}),
    "CreateAcls": lambda rules, body: _of_admins(rules, {"results": [_REFUSED for _ in body["creations"]]}),
    "DeleteAcls": lambda rules, body: _of_admins(
        rules, {"filter_results": [{**_REFUSED, "matching_acls": []} for _ in body["filters"]]}
    ),
}
