"""The log of a share group's partition: each entry holds the whole state, and is decided by one create-only put.

Opening it needs the newest entry alone. A number is never given twice (rule L8, one log): the newest two always stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sparklog.checksums import EMPTY_SUM, SUM_FIELD, check_sum, with_sum
from sparklog.errors import CorruptLogError, UnsupportedVersionError
from sparklog.groups.sharing.states import Lock, RecordState, SharePartition, StateRange
from sparklog.log import Cluster
from sparklog.model import TopicPartition
from sparklog.paths import share_entry, share_log
from sparklog.storage.entry_log import NumberedLog
from sparklog.storage.numbered_cleanup import clean_numbered_log

__all__ = ["KEEP_MS", "ShareEntry", "ShareLog", "clean_share_log", "encode_entry", "open_share_log"]

SHARE_FORMAT = 1
KEEP_MS = 600_000
"""Source: rule L3, cleanup: at least ten times ``tail_trust_ms``. These logs grow by some entries a second."""
_STATES = MappingProxyType(
    {
        RecordState.AVAILABLE: "V",
        RecordState.ACQUIRED: "Q",
        RecordState.ACKNOWLEDGED: "K",
        RecordState.ARCHIVED: "R",
    }
)
_BY_LETTER = MappingProxyType({letter: state for state, letter in _STATES.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEntry:
    """An entry of the log."""

    version: int
    """Its number, 1 or more."""
    token: str
    partition: SharePartition | None
    """None: the group was deleted; who comes next begins as one who has never been here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLog(NumberedLog[ShareEntry]):
    """The log of a share group in one partition."""

    group: str
    at: TopicPartition

    @property
    def folder(self) -> str:
        return share_log(self.group, *self.at)

    @property
    def cleanup_marks(self) -> str:
        return f"{self.folder}_cleaned/"

    def path_of(self, version: int) -> str:
        return share_entry(self.group, *self.at, version)

    def decode(self, version: int, data: bytes) -> ShareEntry:
        return decode_entry(version, self.path_of(version), data)


def open_share_log(cluster: Cluster, group: str, at: TopicPartition) -> ShareLog:
    """The log of a share group in a partition; reads nothing."""
    return ShareLog(store=cluster.store, clock=cluster.clock, tail_trust_ms=cluster.tail_trust_ms, group=group, at=at)


def encode_entry(partition: SharePartition | None, token: str) -> bytes:
    """The bytes of an entry. A range is ``[offsets, state, delivery count, lock]``; the first one begins at the start
    offset, each other one behind the one before."""
    body: dict[str, Any] = {"format": SHARE_FORMAT, "token": token, SUM_FIELD: EMPTY_SUM}
    if partition is not None:
        body |= {
            "topic_id": partition.topic_id,
            "start": partition.start_offset,
            "ranges": [[r.offset_count, _STATES[r.state], r.delivery_count, r.lock] for r in partition.ranges],
            "locks": {str(number): [lock.member, lock.duration_ms] for number, lock in partition.locks.items()},
        }
    return with_sum(json.dumps(body, separators=(",", ":")).encode())


def decode_entry(version: int, path: str, data: bytes) -> ShareEntry:
    """Decode an entry from its bytes. Raises ``CorruptLogError``, ``UnsupportedVersionError``."""
    try:
        body: dict[str, Any] = json.loads(data)
        if int(body["format"]) > SHARE_FORMAT:
            raise UnsupportedVersionError(
                f"{path} has format {body['format']}; this sparklog knows up to {SHARE_FORMAT}: upgrade it"
            )
        check_sum(data, body)
        partition = _partition(body) if "topic_id" in body else None
        return ShareEntry(version=version, token=str(body["token"]), partition=partition)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptLogError(f"corrupt entry of a share group {path}: {error!r}") from error


def _partition(body: Mapping[str, Any]) -> SharePartition:
    locks = {
        int(number): Lock(member=str(member), duration_ms=float(duration))
        for number, (member, duration) in body["locks"].items()
    }
    at = start = int(body["start"])
    ranges = []
    for count, letter, deliveries, lock in body["ranges"]:
        state = _BY_LETTER[letter]
        if count < 1 or (state is RecordState.ACQUIRED) != (lock in locks):
            raise ValueError(f"range {[count, letter, deliveries, lock]} at offset {at}")
        ranges.append(StateRange(first=at, last=at + count - 1, state=state, delivery_count=deliveries, lock=lock))
        at += count
    return SharePartition(
        topic_id=str(body["topic_id"]), start_offset=start, ranges=tuple(ranges), locks=MappingProxyType(locks)
    )


def clean_share_log(log: ShareLog) -> int:
    """Delete entries whose successor is older than ten minutes; returns how many. See :func:`clean_numbered_log`."""
    return clean_numbered_log(log, keep_ms=KEEP_MS)
