"""kafka-python's admin client, and what it is asked with."""

from sparklog.admin import NewPartitions, NewTopic
from sparklog.kafka.admin.client import KafkaAdminClient
from sparklog.kafka.admin.groups import MemberToRemove
from sparklog.kafka.admin.requests import ConfigResource
from sparklog.kafka.admin.transactions import AbortTransactionSpec, TransactionDescription, TransactionListing
from sparklog.kafka.enums import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    GroupState,
    GroupType,
    OffsetSpec,
    OffsetTimestamp,
    TransactionState,
)

__all__ = [
    "AbortTransactionSpec",
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "GroupState",
    "GroupType",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]
