"""For code written for kafka-python 3: change the import, and give a cluster's root as ``bootstrap_servers``.

::

    from sparklog.kafka import KafkaConsumer, KafkaProducer  # was: from kafka import …

    producer = KafkaProducer(bootstrap_servers="./data")

What maps to what, what differs and what is refused: docs/kafka_python.md.
"""

from sparklog._version import __version__
from sparklog.consumer import ConsumerRebalanceListener
from sparklog.kafka import errors, structs
from sparklog.kafka.admin import KafkaAdminClient
from sparklog.kafka.consumer import KafkaConsumer
from sparklog.kafka.enums import IsolationLevel, OffsetSpec
from sparklog.kafka.producer import KafkaProducer
from sparklog.kafka.serializer import DefaultSerializer, Deserializer, JsonSerializer, Serializer
from sparklog.kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition, TopicPartitionReplica

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "DefaultSerializer",
    "Deserializer",
    "IsolationLevel",
    "JsonSerializer",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Serializer",
    "TopicPartition",
    "TopicPartitionReplica",
    "__version__",
    "errors",
    "structs",
]
