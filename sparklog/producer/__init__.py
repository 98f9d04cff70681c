"""Sending records to topics: gathered, encoded and committed in the background (``docs/architecture.md``, The path of a
record)."""

from sparklog.producer.client import Producer
from sparklog.producer.future import BatchMetadata, FutureBatchMetadata, FutureRecordMetadata
from sparklog.producer.interceptors import ProducerRecord

__all__ = ["BatchMetadata", "FutureBatchMetadata", "FutureRecordMetadata", "Producer", "ProducerRecord"]
