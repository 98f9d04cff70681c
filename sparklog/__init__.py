"""Kafka's semantics on Delta tables: topics, producers, consumers and consumer groups without a broker.

What is named here is the promise; everything else may move.
"""

from sparklog._version import __version__
from sparklog.admin import Admin, GroupDescription, NewPartitions, NewTopic, ResetTo, TopicDescription
from sparklog.consumer import Consumer, ConsumerRebalanceListener
from sparklog.model import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)
from sparklog.producer import BatchMetadata, Producer, ProducerRecord

__all__ = [
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
    "TopicDescription",
    "TopicPartition",
    "__version__",
]
