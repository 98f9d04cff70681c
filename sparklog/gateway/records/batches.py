"""The header of a record batch. Source: kafka.apache.org, "Record Batch"; Kafka ``DefaultRecordBatch``."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from sparklog._native import CORE
from sparklog.gateway.records.crc32c import crc32c

__all__ = [
    "CODECS",
    "HEADER_BYTES",
    "BatchError",
    "BatchHeader",
    "TooLargeError",
    "UnsupportedCodecError",
    "UnsupportedMagicError",
]
__all__ += ["batch_headers", "batch_with_header", "is_plain", "write_header"]

HEADER_BYTES = 61
"""From the base offset to the count of records, both within."""
_HEADER = struct.Struct(">qiibIhiqqqhii")
_BEFORE_CRC = struct.Struct(">qiibI")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_CRC_END = 21
_LENGTH_END = 12
CODECS = {0: None, 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
"""By the lowest three bits of the attributes."""
_CODEC_BITS, LOG_APPEND_TIME_BIT, _TRANSACTIONAL, _CONTROL = 7, 8, 16, 32
_FEW_BATCHES = 100
"""Clients send one for a partition; each costs some microseconds of Python."""


class BatchError(ValueError):
    """Bytes that aren't a record batch, or whose checksum is another."""


class UnsupportedMagicError(BatchError):
    """A format of before Kafka 0.11."""


class TooLargeError(BatchError):
    """Records that are more than the limit once decompressed."""


class UnsupportedCodecError(BatchError):
    """A compression that Kafka doesn't know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchHeader:
    """A record batch whose header is read and checked; its records may be anything."""

    base_offset: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    """-1: the producer isn't idempotent; so of epoch and sequence."""
    producer_epoch: int
    base_sequence: int
    count: int
    records: memoryview
    """Compressed as :attr:`codec` says."""

    @property
    def codec(self) -> str | None:
        """gzip, snappy, lz4 or zstd."""
        return CODECS[self.attributes & _CODEC_BITS]

    @property
    def is_transactional(self) -> bool:
        """Does it belong to a transaction?"""
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Does it hold markers of transactions in place of a user's records?"""
        return bool(self.attributes & _CONTROL)

    @property
    def is_log_append_time(self) -> bool:
        """Is the time of all its records that of appending, ``max_timestamp_ms``?"""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)


def batch_headers(data: bytes | bytearray | memoryview) -> Iterator[BatchHeader]:
    """The batches that follow each other in ``data``, each checked with its checksum.

    Raises:
        UnsupportedMagicError, UnsupportedCodecError.
        BatchError: what follows isn't a whole batch, or its checksum is another.
    """
    left = memoryview(data)
    while left:
        if len(left) < HEADER_BYTES:
            magic = left[16] if len(left) > 16 else 2
            _check_magic(magic)
            raise BatchError(f"a record batch of {len(left)} bytes: its header has {HEADER_BYTES}")
        offset, length, _, magic, crc, attributes, last, base_ms, max_ms, pid, epoch, sequence, count = (
            _HEADER.unpack_from(left)
        )
        _check_magic(magic)
        end = _LENGTH_END + length
        if not HEADER_BYTES <= end <= len(left):
            raise BatchError(f"a record batch of length {length}: {len(left) - _LENGTH_END} bytes are there")
        checksum = crc32c(left[_CRC_END:end])
        if checksum != crc:
            raise BatchError(f"a record batch whose checksum is {checksum:#x}, and should be {crc:#x}")
        if attributes & _CODEC_BITS not in CODECS:
            raise UnsupportedCodecError(f"a record batch of compression {attributes & _CODEC_BITS}")
        if count < 0 or last < 0 or (count and last < count - 1):
            raise BatchError(f"a record batch of {count} records whose last offset delta is {last}")
        yield BatchHeader(
            base_offset=offset,
            attributes=attributes,
            last_offset_delta=last,
            base_timestamp_ms=base_ms,
            max_timestamp_ms=max_ms,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            count=count,
            records=left[HEADER_BYTES:end],
        )
        left = left[end:]


def is_plain(data: bytes | memoryview) -> bool:
    """Are there batches of format v2 in ``data`` that aren't compressed, and does reading them cost little?"""
    left = memoryview(data)
    for _ in range(_FEW_BATCHES):
        if len(left) < HEADER_BYTES:
            break
        _, length, _, magic, _, attributes, *_ = _HEADER.unpack_from(left)
        if magic != 2 or attributes & _CODEC_BITS or length < HEADER_BYTES - _LENGTH_END:
            return False
        left = left[_LENGTH_END + length :]
    return CORE is not None and not left


def _check_magic(magic: int) -> None:
    if magic != 2:
        raise UnsupportedMagicError(f"records of message format v{magic}: expected v2, of Kafka 0.11 or later")


def batch_with_header(header: BatchHeader) -> bytearray:
    """The bytes of a batch: its header, with length and checksum, and its records as they are."""
    whole = bytearray(HEADER_BYTES)
    whole += header.records
    write_header(header, whole)
    return whole


def write_header(header: BatchHeader, whole: bytearray) -> None:
    """Write the header of a batch, with length and checksum, in front of its records, which are there."""
    _AFTER_CRC.pack_into(
        whole,
        _CRC_END,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp_ms,
        header.max_timestamp_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
    length = len(whole) - _LENGTH_END
    _BEFORE_CRC.pack_into(whole, 0, header.base_offset, length, 0, 2, crc32c(memoryview(whole)[_CRC_END:]))
