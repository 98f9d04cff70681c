"""Names of announced files: each states all that another writer has to know to publish the file. Pure.

``docs/decisions/0019-group-commit.md`` has the fields.
"""

from __future__ import annotations

import re
import secrets
import zlib
from dataclasses import dataclass

from sparklog.log.data.data_files import UploadedFile
from sparklog.log.data.encode import MAX_TIMESTAMP_MS
from sparklog.log.data.producer_stamp import SEQUENCE_MODULUS, ProducerStamp
from sparklog.log.producer_state import MAX_PRODUCER_EPOCH
from sparklog.paths import announced_file, announced_folder, announced_versions_after

__all__ = [
    "LONGEST_NAME",
    "MAX_AHEAD",
    "MAX_PARTS",
    "Announcement",
    "announcer_and_number",
    "encode_name",
    "folders_to_list",
    "is_listed",
    "new_salt",
    "parse_name",
    "topic_tag",
]

MAX_AHEAD = 255
"""The most announced flushes of a writer that aren't settled, the new one included."""
MAX_PARTS = 1_000
"""The most files of a flush."""
_FORMAT = 1
_VERSIONS_IN_BLOCK = 32
_VERSIONS_LISTED = 6
_MORE_VERSIONS_LISTED, _MORE_EVERY = 16, 4
_VERSIONS_LISTED_WIDE = 64
_TAG_DIGITS = 12
_MAX_LONG = 2**63 - 1
_MAX_PARTITION = 2**31 - 1
_MAX_VERSION = 10**12 * _VERSIONS_IN_BLOCK - 1
"""A block's number has 12 digits."""
_FIELDS: tuple[tuple[str, int, bool], ...] = (
    ("format", 1, False),
    ("topic", 6, False),
    ("announcer", 8, False),
    ("number", 6, False),
    ("ahead", 1, False),
    ("part", 2, False),
    ("parts", 2, False),
    ("record_count", 4, False),
    ("size_bytes", 5, False),
    ("min_timestamp_ms", 7, True),
    ("max_timestamp_ms", 7, True),
    ("producer_id", 8, False),
    ("producer_epoch", 2, False),
    ("sequence", 4, False),
    ("uploaded_ms", 6, False),
    ("salt", 6, False),
)
"""Name, bytes, and whether it is signed; big-endian, without gaps, and a CRC behind them."""
_CRC_BYTES = 4
_FACTS_DIGITS = 2 * (sum(size for _, size, _ in _FIELDS) + _CRC_BYTES)
_SUFFIX = ".parquet"
_ANNOUNCER, _NUMBER = slice(14, 30), slice(30, 42)
"""Where the two fields are among the facts' digits."""
LONGEST_NAME = len(f"announced/{0:012d}/{0:020d}/partition={10**4}/") + _FACTS_DIGITS + len(_SUFFIX)
"""Bytes of the longest name of an announced file: a topic has 10,000 partitions at most."""
_NAME = re.compile(
    rf"announced/([0-9]{{12}})/([0-9]{{20}})/partition=(0|[1-9][0-9]{{0,9}})/([0-9a-f]{{{_FACTS_DIGITS}}})\.parquet"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A file of an announced flush, as its name states it. A *flush* is what a writer uploads at once."""

    known: int
    """The newest version that the owner had applied before the upload began."""
    partition: int
    topic: int
    """The topic's :func:`topic_tag`."""
    announcer: int
    """Random, 63 bits: the owner's writer, for as long as it lives."""
    number: int
    """The flush among the announcer's, from 0 on."""
    ahead: int
    """``number`` less the newest of the announcer's numbers that version ``known`` or an earlier one has settled, -1
    where none was; 1 to 255."""
    part: int
    """The file among those of the flush, from 0 on."""
    parts: int
    """How many files the flush has, 1 to 1,000."""
    record_count: int
    size_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    stamp: ProducerStamp
    uploaded_ms: int
    """By the owner's wall clock."""
    salt: int
    """Random, 48 bits: no two uploads have one name."""

    @property
    def path(self) -> str:
        """The file's name, relative to the table's folder. Raises ``OverflowError`` where a fact doesn't fit."""
        return announced_file(self.known // _VERSIONS_IN_BLOCK, self.known, self.partition, self._facts().hex())

    def to_uploaded(self) -> UploadedFile:
        """The facts that a commit has to say of the file."""
        return UploadedFile(
            path=self.path,
            partition=self.partition,
            record_count=self.record_count,
            size_bytes=self.size_bytes,
            min_timestamp_ms=self.min_timestamp_ms,
            max_timestamp_ms=self.max_timestamp_ms,
            stamp=self.stamp,
            uploaded_ms=self.uploaded_ms,
            topic_version=self.known,
        )

    @property
    def is_sound(self) -> bool:
        """Are these facts such as an owner states?"""
        return (
            0 <= self.known <= _MAX_VERSION
            and 0 <= self.partition <= _MAX_PARTITION
            and 1 <= self.ahead <= min(MAX_AHEAD, self.number + 1)
            and 0 <= self.part < self.parts <= MAX_PARTS
            and self.record_count > 0
            and self.size_bytes > 0
            and 0 <= self.min_timestamp_ms <= self.max_timestamp_ms <= MAX_TIMESTAMP_MS
            and 0 <= self.announcer <= _MAX_LONG
            and 0 <= self.stamp.producer_id <= _MAX_LONG
            and 0 <= self.stamp.producer_epoch <= MAX_PRODUCER_EPOCH
            and 0 <= self.stamp.base_sequence < SEQUENCE_MODULUS
        )

    def _facts(self) -> bytes:
        values = {
            "format": _FORMAT,
            "producer_id": self.stamp.producer_id,
            "producer_epoch": self.stamp.producer_epoch,
            "sequence": self.stamp.base_sequence,
        }
        facts = b"".join(
            (values[name] if name in values else getattr(self, name)).to_bytes(size, "big", signed=signed)
            for name, size, signed in _FIELDS
        )
        return facts + _crc(facts, self.known, self.partition)


def topic_tag(topic_id: str) -> int | None:
    """The part of a topic's id that names carry; None for an id that isn't hexadecimal."""
    try:
        return int(topic_id[:_TAG_DIGITS], 16) if len(topic_id) >= _TAG_DIGITS else None
    except ValueError:
        return None


def new_salt() -> int:
    """A random number of 48 bits."""
    return secrets.randbits(48)


def encode_name(announcement: Announcement) -> str | None:
    """The name of an announced file, relative to the table's folder; None where a fact doesn't fit: then the file is
    uploaded under an ordinary name."""
    try:
        return announcement.path if announcement.is_sound else None
    except OverflowError:
        return None


def parse_name(path: str) -> Announcement | None:
    """The announcement that a path, relative to the table's folder, states; None for anything but a name that
    :func:`encode_name` makes."""
    found = _NAME.fullmatch(path)
    if found is None:
        return None
    block, known, partition = int(found[1]), int(found[2]), int(found[3])
    facts = bytes.fromhex(found[4])
    fits = known <= _MAX_VERSION and partition <= _MAX_PARTITION and block == known // _VERSIONS_IN_BLOCK
    if not fits or facts[-_CRC_BYTES:] != _crc(facts[:-_CRC_BYTES], known, partition):
        return None
    values: dict[str, int] = {}
    at = 0
    for name, size, signed in _FIELDS:
        values[name] = int.from_bytes(facts[at : at + size], "big", signed=signed)
        at += size
    if values.pop("format") != _FORMAT:
        return None
    stamp = ProducerStamp(values.pop("producer_id"), values.pop("producer_epoch"), values.pop("sequence"))
    announcement = Announcement(known=known, partition=partition, stamp=stamp, **values)
    return announcement if announcement.is_sound else None


def announcer_and_number(path: str) -> tuple[int, int] | None:
    """The announcer and the number that a name states, if it is one of an announced file, which isn't looked at: a
    listing shows many names of what was published, and :func:`parse_name` takes ten times as long."""
    facts = path[-_FACTS_DIGITS - len(_SUFFIX) : -len(_SUFFIX)]
    try:
        return int(facts[_ANNOUNCER], 16), int(facts[_NUMBER], 16)
    except ValueError:
        return None


def folders_to_list(version: int, *, is_wide: bool = False) -> tuple[tuple[str, str], ...]:
    """The folders, relative to the table's, in which a writer whose newest version is ``version`` looks for announced
    files, and where it begins in each: by those who knew one of the newest six versions, of every fourth version the
    newest 16.

    Args:
        is_wide: the newest 64: the writer itself knew none of the newest, and it may not be the only one.
    """
    count = _VERSIONS_LISTED if version % _MORE_EVERY else _MORE_VERSIONS_LISTED
    count = _VERSIONS_LISTED_WIDE if is_wide else count
    first = max(0, version - count + 1)
    blocks = range(first // _VERSIONS_IN_BLOCK, version // _VERSIONS_IN_BLOCK + 1)
    return tuple(
        (announced_folder(block), announced_versions_after(block, max(first, block * _VERSIONS_IN_BLOCK)))
        for block in blocks
    )


def is_listed(known: int, version: int) -> bool:
    """Will some writer whose newest version is ``version``, or a later one, list what was announced by an owner that
    knew ``known``? See :func:`folders_to_list`."""
    return known > version - _MORE_VERSIONS_LISTED


def _crc(facts: bytes, known: int, partition: int) -> bytes:
    everything = facts + known.to_bytes(8, "big") + partition.to_bytes(4, "big")
    return zlib.crc32(everything).to_bytes(_CRC_BYTES, "big")
