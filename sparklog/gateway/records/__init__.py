"""Kafka's record batches (format v2) as Arrow columns, and back."""

from sparklog.gateway.records.batches import BatchError, BatchHeader, batch_headers, is_plain
from sparklog.gateway.records.decoding import decode_batches, decode_parts, decode_rows
from sparklog.gateway.records.encoding import encode_batches, encode_empty_batch

__all__ = ["BatchError", "BatchHeader", "batch_headers", "decode_batches", "decode_parts", "decode_rows"]
__all__ += ["encode_batches", "encode_empty_batch", "is_plain"]
