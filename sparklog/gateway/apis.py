"""The requests that are served: their versions and handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sparklog.gateway import (
    cluster_requests,
    config_requests,
    consumer_group_requests,
    fetch,
    group_admin_requests,
    group_offset_requests,
    group_requests,
    leader_epochs,
    offsets,
    producers,
    topics,
    transaction_requests,
    user_requests,
)
from sparklog.gateway.backend import Backend, Request
from sparklog.gateway.error_codes import ErrorCode
from sparklog.gateway.wire import Message, message

__all__ = ["APIS", "API_VERSIONS", "PRODUCE", "Api", "api_versions"]

Handle = Callable[[Backend, Request], Awaitable[dict[str, Any]]]
PRODUCE, API_VERSIONS = 0, 18


@dataclass(frozen=True, slots=True)
class Api:
    """A request that is served."""

    name: str
    first: int
    last: int
    """Versions, inclusive."""
    handle: Handle | None
    """None: by the connection itself."""
    advertised_first: int | None = None
    """The first version that ApiVersions names, where that isn't the lowest one that is served."""

    @property
    def request(self) -> Message:
        """The message of the request."""
        return message(f"{self.name}Request")

    @property
    def response(self) -> Message:
        """The message of the response."""
        return message(f"{self.name}Response")


async def api_versions(backend: Backend, request: Request) -> dict[str, Any]:
    """The list of what is served. A version of this request that isn't served has the same answer, with an error."""
    known = APIS[API_VERSIONS]
    keys = [
        {
            "api_key": key,
            "min_version": api.first if api.advertised_first is None else api.advertised_first,
            "max_version": api.last,
        }
        for key, api in sorted(APIS.items())
    ]
    is_known = known.first <= request.api_version <= known.last
    return {"error_code": ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION, "api_keys": keys}


APIS = {
    # librdkafka takes what it may send from the lowest version of Produce (KAFKA-18659).
    PRODUCE: Api("Produce", 3, 11, None, advertised_first=0),
    1: Api("Fetch", 4, 16, fetch.fetch),
    2: Api("ListOffsets", 1, 8, offsets.list_offsets),
    3: Api("Metadata", 0, 13, topics.metadata),
    8: Api("OffsetCommit", 2, 9, group_offset_requests.offset_commit),
    9: Api("OffsetFetch", 1, 9, group_offset_requests.offset_fetch),
    10: Api("FindCoordinator", 0, 6, group_requests.find_coordinator),
    11: Api("JoinGroup", 0, 9, group_requests.join_group),
    12: Api("Heartbeat", 0, 4, group_requests.heartbeat),
    13: Api("LeaveGroup", 0, 5, group_requests.leave_group),
    14: Api("SyncGroup", 0, 5, group_requests.sync_group),
    15: Api("DescribeGroups", 0, 6, group_admin_requests.describe_groups),
    16: Api("ListGroups", 0, 5, group_admin_requests.list_groups),
    API_VERSIONS: Api("ApiVersions", 0, 4, api_versions),
    17: Api("SaslHandshake", 1, 1, None),
    36: Api("SaslAuthenticate", 0, 2, None),
    19: Api("CreateTopics", 2, 7, topics.create_topics),
    20: Api("DeleteTopics", 1, 6, topics.delete_topics),
    22: Api("InitProducerId", 0, 5, producers.init_producer_id),
    24: Api("AddPartitionsToTxn", 0, 3, transaction_requests.add_partitions_to_txn),
    25: Api("AddOffsetsToTxn", 0, 4, transaction_requests.add_offsets_to_txn),
    26: Api("EndTxn", 0, 4, transaction_requests.end_txn),
    28: Api("TxnOffsetCommit", 0, 4, transaction_requests.txn_offset_commit),
    61: Api("DescribeProducers", 0, 0, producers.describe_producers),
    65: Api("DescribeTransactions", 0, 0, transaction_requests.describe_transactions),
    66: Api("ListTransactions", 0, 2, transaction_requests.list_transactions),
    42: Api("DeleteGroups", 0, 2, group_admin_requests.delete_groups),
    47: Api("OffsetDelete", 0, 0, group_offset_requests.offset_delete),
    68: Api("ConsumerGroupHeartbeat", 0, 1, consumer_group_requests.consumer_group_heartbeat),
    69: Api("ConsumerGroupDescribe", 0, 1, consumer_group_requests.consumer_group_describe),
    21: Api("DeleteRecords", 0, 2, topics.delete_records),
    32: Api("DescribeConfigs", 1, 4, config_requests.describe_configs),
    33: Api("AlterConfigs", 0, 2, config_requests.alter_configs),
    37: Api("CreatePartitions", 0, 3, topics.create_partitions),
    44: Api("IncrementalAlterConfigs", 0, 1, config_requests.incremental_alter_configs),
    23: Api("OffsetForLeaderEpoch", 2, 4, leader_epochs.offset_for_leader_epoch),
    29: Api("DescribeAcls", 1, 3, cluster_requests.describe_acls),
    30: Api("CreateAcls", 1, 3, cluster_requests.create_acls),
    31: Api("DeleteAcls", 1, 3, cluster_requests.delete_acls),
    35: Api("DescribeLogDirs", 1, 4, cluster_requests.describe_log_dirs),
    43: Api("ElectLeaders", 0, 2, cluster_requests.elect_leaders),
    45: Api("AlterPartitionReassignments", 0, 1, cluster_requests.alter_partition_reassignments),
    46: Api("ListPartitionReassignments", 0, 0, cluster_requests.list_partition_reassignments),
    48: Api("DescribeClientQuotas", 0, 1, cluster_requests.describe_client_quotas),
    50: Api("DescribeUserScramCredentials", 0, 0, user_requests.describe_user_scram_credentials),
    51: Api("AlterUserScramCredentials", 0, 0, user_requests.alter_user_scram_credentials),
    60: Api("DescribeCluster", 0, 2, cluster_requests.describe_cluster),
    74: Api("ListConfigResources", 0, 1, config_requests.list_config_resources),
    75: Api("DescribeTopicPartitions", 0, 0, cluster_requests.describe_topic_partitions),
}
"""By API key."""
