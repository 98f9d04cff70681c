"""Kafka's semantics on Delta tables: topics, producers, consumers and consumer groups without a broker.

What is named here is the promise; everything else may move. A name is imported when it is first used: Spark starts
Python processes by the dozen that need no client.
"""

from typing import TYPE_CHECKING

from sparklog._version import __version__
from sparklog.lazy_imports import import_on_use

if TYPE_CHECKING:
    from sparklog.admin import Admin, GroupDescription, NewPartitions, NewTopic, ResetTo, TopicDescription
    from sparklog.consumer import AcknowledgeType, Consumer, ConsumerRebalanceListener, ShareConsumer
    from sparklog.model import (
        ConsumerGroupMetadata,
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )
    from sparklog.producer import BatchMetadata, Producer, ProducerRecord
else:
    __getattr__, __dir__ = import_on_use(
        __name__,
        {
            "sparklog.admin": ("Admin", "GroupDescription", "NewPartitions", "NewTopic", "ResetTo", "TopicDescription"),
            "sparklog.consumer": ("AcknowledgeType", "Consumer", "ConsumerRebalanceListener", "ShareConsumer"),
            "sparklog.model": (
                "ConsumerGroupMetadata",
                "ConsumerRecord",
                "OffsetAndMetadata",
                "OffsetAndTimestamp",
                "RecordMetadata",
                "TopicPartition",
            ),
            "sparklog.producer": ("BatchMetadata", "Producer", "ProducerRecord"),
        },
    )

__all__ = [
    "AcknowledgeType",
    "Admin",
    "BatchMetadata",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "GroupDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
    "ResetTo",
    "ShareConsumer",
    "TopicDescription",
    "TopicPartition",
    "__version__",
]
