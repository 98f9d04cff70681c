"""The log of a transactional id: what its entries say, their bytes, and opening it at its newest.

Entries are create-only and numbered from 1. Each carries the token of the one before it: an entry that a stalled
process created under a name that had been cleaned fits to neither neighbour, and counts for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any

from sparklog.checksums import EMPTY_SUM, SUM_FIELD, check_sum, with_sum
from sparklog.clock import Deadline
from sparklog.errors import CorruptLogError, UnsupportedVersionError
from sparklog.groups.membership.member_state import decode_partitions, encode_partitions
from sparklog.groups.offsets.rows import CommittedPartitions
from sparklog.log.cluster import Cluster
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.data.producer_stamp import ProducerStamp
from sparklog.log.producer_state import new_producer_id
from sparklog.model import TopicPartition
from sparklog.paths import transaction_entry, transaction_log
from sparklog.storage.entry_log import Created, NumberedLog, PositionLost
from sparklog.storage.position import Position, advance
from sparklog.txn.states import WRITTEN, TransactionState, check_step

__all__ = [
    "BatchTarget",
    "Contents",
    "Header",
    "QueryBatch",
    "TopicFiles",
    "TransactionEntry",
    "TransactionLog",
    "append_entry",
    "encode_transaction",
    "first_entry",
    "next_header",
    "open_transaction_log",
]

TRANSACTION_FORMAT = 1
TYPED_TRANSACTION_FORMAT = 2
"""The format of an entry that names files of typed topics, with the statistics of their values (decision 0027)."""
MAX_EPOCH = 32_766
"""Source: rule T5, epochs, and Kafka ``TransactionMetadata.isEpochExhausted``."""
EXPIRED = "expired"
"""The beginning of the reason in an entry that expired an id, unused for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTarget:
    """The topics that the rows of a micro-batch go to."""

    topic: str | None = None
    """The topic that the query is declared to write all of its rows to; None: each row names its topic."""
    topics: frozenset[str] = frozenset()
    """Without a declared topic: those that the batch has rows for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryBatch:
    """A micro-batch of a streaming query, or a numbered write of an application."""

    query_id: str
    """Stays the same as long as the query's checkpoint does."""
    batch_id: int
    """From 0 on, one more for each."""
    target: BatchTarget | None = None
    """None: an entry of an older sparklog, which doesn't say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The writer of an entry: every entry of an epoch repeats it."""

    producer_id: int
    """Random, 63 bits; another one after epoch 32766 (rule T5, epochs)."""
    producer_epoch: int
    """0 … 32766; each ``init_transactions`` has a new one."""
    timeout_ms: int
    """``transaction_timeout_ms``."""
    holder: str = ""
    """The holder that began the epoch: the run of a streaming query; empty for a producer."""
    is_unsynced: bool = False
    """Does the producer leave fsync out (``acks=1``)? Then a power loss may take the epoch's entries but the first."""

    @property
    def refresh_after_ms(self) -> int:
        """A session that has written nothing for longer than this writes its marker again when it begins a transaction
        (rule T4, open sessions)."""
        return self.timeout_ms // 2

    @property
    def abort_after_ms(self) -> int:
        """A session that has written neither an entry nor its marker for longer than this may be aborted by anybody:
        a transaction that it has open is older than ``timeout_ms`` (rule T4, open sessions)."""
        return self.timeout_ms + self.refresh_after_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFiles:
    """The files that a transaction puts into one topic."""

    topic_id: str
    files: tuple[UploadedFile, ...]

    @property
    def topic_version(self) -> int:
        """A version of the topic that was known before the first of the files was uploaded; -1: none is known."""
        return min((file.topic_version for file in self.files), default=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All that a transaction changes."""

    topics: Mapping[str, TopicFiles] = field(default_factory=lambda: MappingProxyType({}))
    groups: Mapping[str, frozenset[TopicPartition]] = field(default_factory=lambda: MappingProxyType({}))
    """The partitions whose committed offsets it moves; where to, the pending rows of the group's table say."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.groups)


NOTHING = Contents()


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEntry:
    """An entry of a transactional id's log."""

    version: int
    """Its number, 1 or more."""
    token: str
    previous: str
    """Token of the entry before; empty for number 1."""
    state: TransactionState
    header: Header
    contents: Contents = NOTHING
    """The contents of the transaction in a PrepareCommit; its groups in a PrepareAbort by the producer itself."""
    reason: str = ""
    """The reason of an abort, where it wasn't the producer that wanted it; the reason of an epoch's begin, where no
    producer began it."""
    written_ms: int = 0
    """Wall time of its writer, milliseconds since the epoch."""
    batches: tuple[QueryBatch, ...] = ()
    """The newest micro-batch of each streaming query that was committed with this id, the newest query last. Every
    entry hands it on: it shows that a batch which is run again is stored already (rule T7, micro-batches)."""

    @property
    def is_forced(self) -> bool:
        """Was it aborted by another than its producer?"""
        return bool(self.reason)

    @property
    def committed_partitions(self) -> CommittedPartitions:
        """The partitions whose offsets it commits, by group; empty where it isn't the decision to commit."""
        return self.contents.groups if self.state is TransactionState.PREPARE_COMMIT else MappingProxyType({})

    @property
    def is_expired(self) -> bool:
        """Did the id expire, unused for too long?"""
        return self.state is TransactionState.EMPTY and self.reason.startswith(EXPIRED)

    def follow(
        self,
        state: TransactionState,
        *,
        header: Header | None = None,
        contents: Contents = NOTHING,
        reason: str = "",
        batches: tuple[QueryBatch, ...] | None = None,
        now_ms: int,
    ) -> TransactionEntry:
        """The next entry, which has no token yet. Raises ``InvalidTxnStateError`` where it may not follow."""
        check_step(self.state, state)
        return TransactionEntry(
            version=self.version + 1,
            token="",
            previous=self.token,
            state=state,
            header=header or self.header,
            contents=contents,
            reason=reason,
            written_ms=now_ms,
            batches=self.batches if batches is None else batches,
        )


def first_entry(header: Header, *, now_ms: int) -> TransactionEntry:
    """The first entry of a log, which has no token yet."""
    check_step(None, TransactionState.EMPTY)
    return TransactionEntry(
        version=1, token="", previous="", state=TransactionState.EMPTY, header=header, written_ms=now_ms
    )


def next_header(before: Header) -> Header:
    """The header of the epoch after ``before``, for the same producer; a new producer id where epochs are used up (rule
    T5, epochs)."""
    if before.producer_epoch >= MAX_EPOCH:
        return replace(before, producer_id=new_producer_id(), producer_epoch=0)
    return replace(before, producer_epoch=before.producer_epoch + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLog(NumberedLog[TransactionEntry]):
    """The log of one transactional id. Opening it is a LIST for each 1,000 entries of ten minutes.

    Its old entries are deleted many at a time and in no order (rule T6, an id's log). So the existence of an entry
    doesn't show that what follows it was never deleted; trust comes from a listing instead: the newest entries are
    never deleted, so a log that went on always shows an entry beyond.
    """

    transactional_id: str

    @property
    def folder(self) -> str:
        return transaction_log(self.transactional_id)

    def path_of(self, version: int) -> str:
        return transaction_entry(self.transactional_id, version)

    def decode(self, version: int, data: bytes) -> TransactionEntry:
        return decode_transaction(version, self.path_of(version), data)

    def numbers_from(self, first: int, *, at_most: int) -> list[int]:
        """The first numbers, ``first`` or greater, of entries that are there, sorted. One LIST of one page."""
        listed = self.store.list(self.folder, after=self.path_of(max(0, first - 1)))
        numbers = (self.number_of(file.path.rpartition("/")[2]) for file in listed)
        return list(islice((number for number in numbers if number is not None), at_most))

    def make_durable(self, number: int, entry: TransactionEntry | None) -> None:
        """Let the decision with this number survive a power loss before anything is done because of it, as
        :meth:`flush`: nothing is carried out that may be lost. Where its producer leaves fsync out that holds for what
        lies before it, and for its files, too.

        Args:
            entry: the decision; None where it was cleaned away.
        Raises:
            StoreError.
        """
        if entry is not None and entry.header.is_unsynced:
            self.store.sync_all()
        else:
            self.flush(number)

    def verify(self, position: Position, *, is_read: bool = False) -> None:
        """Did others leave the log alone since ``position``, but for the entry right behind it? One LIST.

        Raises:
            PositionLost: no: whatever was learned of the number behind ``position`` may be of an entry that a stalled
                process created under a number that had been cleaned.
        """
        version = position.version
        numbers = self.numbers_from(version, at_most=3)
        if any(number > version + 1 for number in numbers) or (version > 0 and version not in numbers):
            raise PositionLost(self.path_of(version))


def open_transaction_log(cluster: Cluster, transactional_id: str) -> TransactionLog:
    """The log of a transactional id; reads nothing. Raises ``InvalidArgumentError`` for an id that none may have."""
    transaction_log(transactional_id)
    return TransactionLog(
        store=cluster.store,
        clock=cluster.clock,
        tail_trust_ms=cluster.tail_trust_ms,
        transactional_id=transactional_id,
    )


def encode_transaction(entry: TransactionEntry, token: str) -> bytes:
    """The bytes of an entry, with its token."""
    header = entry.header
    body = {
        "format": TYPED_TRANSACTION_FORMAT if _is_typed(entry.contents) else TRANSACTION_FORMAT,
        "token": token,
        SUM_FIELD: EMPTY_SUM,
        "previous": entry.previous,
        "state": entry.state.value,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "timeout_ms": header.timeout_ms,
        "written_ms": entry.written_ms,
        "reason": entry.reason,
        "topics": {
            name: {
                "id": topic.topic_id,
                "version": topic.topic_version,
                "files": [_file_body(header, file) for file in topic.files],
            }
            for name, topic in entry.contents.topics.items()
        },
        "groups": {name: encode_partitions(partitions) for name, partitions in entry.contents.groups.items()},
    }
    if header.holder:
        body["holder"] = header.holder
    if header.is_unsynced:
        body["unsynced"] = True
    if entry.batches:
        body["batches"] = [[batch.query_id, batch.batch_id] for batch in entry.batches]
        # Beside them, not in them: an older sparklog, which knows pairs alone, still reads the entry.
        targets = {batch.query_id: _target_body(batch.target) for batch in entry.batches if batch.target is not None}
        if targets:
            body["targets"] = targets
    return with_sum(json.dumps(body, separators=(",", ":")).encode())


def decode_transaction(version: int, path: str, data: bytes) -> TransactionEntry:
    """An entry of its bytes. Raises ``CorruptLogError``, ``UnsupportedVersionError``."""
    try:
        body: dict[str, Any] = json.loads(data)
        if int(body["format"]) > TYPED_TRANSACTION_FORMAT:
            raise UnsupportedVersionError(
                f"{path} has format {body['format']}; this sparklog knows up to {TYPED_TRANSACTION_FORMAT}: upgrade it"
            )
        check_sum(data, body)
        header = Header(
            producer_id=int(body["producer_id"]),
            producer_epoch=int(body["producer_epoch"]),
            timeout_ms=int(body["timeout_ms"]),
            holder=str(body.get("holder", "")),
            is_unsynced=bool(body.get("unsynced", False)),
        )
        topics = {
            str(name): TopicFiles(
                topic_id=str(topic["id"]),
                files=tuple(_file(header, values, int(topic.get("version", -1))) for values in topic["files"]),
            )
            for name, topic in body["topics"].items()
        }
        groups = {str(name): decode_partitions(rows) for name, rows in body["groups"].items()}
        targets = {str(query): _target(target) for query, target in body.get("targets", {}).items()}
        state = TransactionState(body["state"])
        if state not in WRITTEN:
            raise ValueError(f"state {state.value}")
        return TransactionEntry(
            version=version,
            token=str(body["token"]),
            previous=str(body["previous"]),
            state=state,
            header=header,
            contents=Contents(topics=MappingProxyType(topics), groups=MappingProxyType(groups)),
            reason=str(body["reason"]),
            written_ms=int(body["written_ms"]),
            batches=tuple(
                QueryBatch(query_id=str(query), batch_id=int(number), target=targets.get(str(query)))
                for query, number in body.get("batches", ())
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise CorruptLogError(f"corrupt transaction entry {path}: {error!r}") from error


def append_entry(
    log: TransactionLog,
    position: Position,
    entry: TransactionEntry,
    *,
    tokens: set[str],
    deadline: Deadline,
    sync: bool = True,
) -> tuple[TransactionEntry, Position, bool]:
    """Create the entry after ``position``: the one way in which anything is decided.

    Args:
        sync: fsync it (rule L9, fsync); not for a producer whose topics aren't fsynced either.
        tokens: of all attempts at this entry; to be handed in again where the outcome of an earlier call isn't known.
    Returns:
        The entry that has the number now, the position after it, and whether it is ours.
    Raises:
        PositionLost: the position is older than what cleanup left; nothing is decided by us.
        KafkaTimeoutError: it wasn't and won't be created.
        CommitStateUnknownError: it may be created: repeating the same call settles it.
        StoreError.
    """
    outcome = log.create_next(position, partial(encode_transaction, entry), tokens=tokens, deadline=deadline, sync=sync)
    if isinstance(outcome, Created):
        return replace(entry, token=outcome.position.token), outcome.position, True
    other = outcome.entry
    return other, advance(position, version=other.version, token=other.token), False


def _target_body(target: BatchTarget) -> object:
    return sorted(target.topics) if target.topic is None else target.topic


def _target(body: object) -> BatchTarget:
    if isinstance(body, str):
        return BatchTarget(topic=body)
    if isinstance(body, list):
        return BatchTarget(topics=frozenset(str(topic) for topic in body))
    raise ValueError(f"target {body!r}")


def _is_typed(contents: Contents) -> bool:
    return any(file.value_stats for topic in contents.topics.values() for file in topic.files)


def _file_body(header: Header, file: UploadedFile) -> list[object]:
    stamp = file.stamp
    body: list[object] = [
        file.path,
        file.partition,
        file.record_count,
        file.size_bytes,
        file.min_timestamp_ms,
        file.max_timestamp_ms,
        stamp.base_sequence,
        file.uploaded_ms,
    ]
    if (stamp.producer_id, stamp.producer_epoch) != (header.producer_id, header.producer_epoch):
        body += [stamp.producer_id, stamp.producer_epoch]  # uploaded by another process than the one that commits
    if file.value_stats:
        body.append(dict(file.value_stats))
    return body


def _file(header: Header, values: Sequence[Any], topic_version: int) -> UploadedFile:
    path, partition, count, size, first_ms, last_ms, sequence, uploaded_ms, *own = values
    value_stats = own.pop() if own and isinstance(own[-1], dict) else {}
    producer_id, producer_epoch = own or (header.producer_id, header.producer_epoch)
    return UploadedFile(
        path=str(path),
        partition=int(partition),
        record_count=int(count),
        size_bytes=int(size),
        min_timestamp_ms=int(first_ms),
        max_timestamp_ms=int(last_ms),
        stamp=ProducerStamp(int(producer_id), int(producer_epoch), int(sequence)),
        uploaded_ms=int(uploaded_ms),
        topic_version=topic_version,
        value_stats=value_stats,
    )
