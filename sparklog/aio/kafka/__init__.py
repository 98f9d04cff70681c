"""For code written for aiokafka: change the import, and give a cluster's root as ``bootstrap_servers``.

::

    from sparklog.aio.kafka import AIOKafkaConsumer, AIOKafkaProducer  # was: from aiokafka import …

What maps to what, what differs and what is refused: docs/asyncio.md.
"""

from sparklog.aio.kafka import errors, structs
from sparklog.aio.kafka.clients import AIOKafkaConsumer, AIOKafkaProducer
from sparklog.aio.kafka.errors import ConsumerStoppedError, IllegalOperation
from sparklog.aio.listener import AsyncRebalanceListener as ConsumerRebalanceListener
from sparklog.model import ConsumerRecord, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerStoppedError",
    "IllegalOperation",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "errors",
    "structs",
]
