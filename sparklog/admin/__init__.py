"""Administration of a cluster: its topics, their settings, partitions and offsets."""

from sparklog.admin.client import Admin
from sparklog.admin.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from sparklog.admin.values import ConfigEntry, NewPartitions, NewTopic
from sparklog.log.topic import HIGH_WATERMARK, TopicDescription

__all__ = [
    "EARLIEST",
    "HIGH_WATERMARK",
    "LATEST",
    "MAX_TIMESTAMP",
    "Admin",
    "ConfigEntry",
    "NewPartitions",
    "NewTopic",
    "TopicDescription",
]
