"""Kafka's record batches (format v2) as Arrow columns, and back."""

from sparklog.gateway.records.batches import BatchError, BatchHeader, batch_headers
from sparklog.gateway.records.decoding import decode_batches
from sparklog.gateway.records.encoding import encode_batches

__all__ = ["BatchError", "BatchHeader", "batch_headers", "decode_batches", "encode_batches"]
