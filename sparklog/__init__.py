"""Kafka's semantics on Delta tables: topics, producers and consumers without a broker.

What is named here is the promise; everything else may move.
"""

from sparklog._version import __version__
from sparklog.admin import Admin, NewPartitions, NewTopic, TopicDescription
from sparklog.consumer import Consumer, ConsumerRebalanceListener
from sparklog.model import (
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
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
    "TopicDescription",
    "TopicPartition",
    "__version__",
]
