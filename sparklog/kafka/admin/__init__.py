"""kafka-python's admin client, and what it is asked with."""

from sparklog.admin import NewPartitions, NewTopic
from sparklog.kafka.admin.client import KafkaAdminClient
from sparklog.kafka.admin.requests import ConfigResource
from sparklog.kafka.enums import (
    AlterConfigOp,
    ConfigFilterType,
    ConfigResourceType,
    ConfigSourceType,
    ConfigType,
    OffsetSpec,
    OffsetTimestamp,
)

__all__ = [
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "KafkaAdminClient",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
]
