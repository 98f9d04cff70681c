"""Every error sparklog raises, on one page.

Names and classes are Kafka's (kafka-python's spelling) wherever Kafka has the error; the rest say what a store or a
table did. Three flags answer a caller's questions: may the same call succeed later (``retriable``), must the open
transaction be aborted first (``requires_abort``), is this client finished (``fatal``).

::

    SparklogError
    ├─ RetriableError                    the same call may succeed later
    │  ├─ KafkaTimeoutError              a bound the caller set has passed
    │  │  └─ CommitStateUnknownError     not retriable: the answer was lost and could not be settled in time
    │  ├─ NoThreadError                  the process has as many threads as it may
    │  ├─ UnknownTopicOrPartitionError
    │  ├─ RebalanceInProgressError       poll, then commit again
    │  ├─ ConcurrentTransactionsError    another one of this transactional id is being finished
    │  ├─ UnstableOffsetCommitError      a transaction that isn't decided or carried out yet may change the offset
    │  └─ CorruptRecordError             a data file can't be read; names it
    ├─ StoreError                        what an object store said; names the path
    │  ├─ ObjectNotFoundError
    │  ├─ StoreUnavailableError          retriable; the call was not carried out (409, 429, 503)
    │  ├─ StoreOutcomeUnknownError       retriable; carried out or not, nobody knows (time-out, reset, 500)
    │  ├─ StorePermissionError           read-only file system, access denied
    │  ├─ StoreFullError                 no space, quota
    │  ├─ StoreReplacedError             another folder, bucket or cluster lies under the path, or none
    │  └─ UnsafeStoreError               no atomic create-only put: sparklog refuses to run on it
    ├─ InvalidProducerEpochError  OutOfOrderSequenceError  TransactionAbortableError     requires_abort
    ├─ DuplicateSequenceError            the batch is stored already; its offsets are known no more
    ├─ TransactionTimedOutError          requires_abort: the transaction was open for too long
    ├─ TransactionAbortedError           the record was sent in a transaction that was aborted
    ├─ ProducerFencedError               fatal: another producer uses this transactional_id
    ├─ InvalidTxnStateError  InvalidTransactionTimeoutError  TransactionalIdNotFoundError
    ├─ MessageSizeTooLargeError  InvalidTimestampError  InvalidRecordError            the record is refused
    ├─ RecordDeserializationError  NoOffsetForPartitionError
    ├─ CommitFailedError                 the partition belongs to another member by now, or the group to its members
    ├─ UnknownMemberIdError  IllegalGenerationError  InconsistentGroupProtocolError
    ├─ FencedInstanceIdError             fatal: another consumer uses this group_instance_id
    ├─ GroupIdNotFoundError  NonEmptyGroupError  GroupSubscribedToTopicError  OffsetMetadataTooLargeError
    ├─ OffsetOutOfRangeError  TopicAlreadyExistsError  InvalidTopicError  InvalidPartitionsError
    ├─ PolicyViolationError  InvalidConfigurationError  UnsupportedVersionError  CorruptLogError
    ├─ NotATopicError
    │  └─ TopicShrunkError               another engine set back what only grows: the message says what puts it back
    ├─ WakeupError                       another thread ended a blocked call
    ├─ HandlerError                      a handler of sparklog.processing failed, and its record has nowhere to go
    └─ IllegalStateError  InvalidArgumentError  InvalidTypeError     the caller's own mistake
"""

from __future__ import annotations

from sparklog.model import TopicPartition

__all__ = [
    "CommitFailedError",
    "CommitStateUnknownError",
    "ConcurrentTransactionsError",
    "CorruptLogError",
    "CorruptRecordError",
    "DuplicateSequenceError",
    "FencedInstanceIdError",
    "GroupIdNotFoundError",
    "GroupSubscribedToTopicError",
    "HandlerError",
    "IllegalGenerationError",
    "IllegalStateError",
    "InconsistentGroupProtocolError",
    "InvalidArgumentError",
    "InvalidConfigurationError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidRecordStateError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTransactionTimeoutError",
    "InvalidTxnStateError",
    "InvalidTypeError",
    "KafkaTimeoutError",
    "MessageSizeTooLargeError",
    "NoOffsetForPartitionError",
    "NoThreadError",
    "NonEmptyGroupError",
    "NotATopicError",
    "ObjectNotFoundError",
    "OffsetMetadataTooLargeError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "PolicyViolationError",
    "ProducerFencedError",
    "RebalanceInProgressError",
    "RecordDeserializationError",
    "RetriableError",
    "SparklogError",
    "StoreError",
    "StoreFullError",
    "StoreOutcomeUnknownError",
    "StorePermissionError",
    "StoreReplacedError",
    "StoreUnavailableError",
    "TopicAlreadyExistsError",
    "TopicShrunkError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionTimedOutError",
    "TransactionalIdNotFoundError",
    "UnknownMemberIdError",
    "UnknownTopicOrPartitionError",
    "UnsafeStoreError",
    "UnstableOffsetCommitError",
    "UnsupportedVersionError",
    "WakeupError",
]


class SparklogError(Exception):
    """Base of every error that sparklog raises on purpose."""

    retriable = False
    """The same call may succeed later."""
    requires_abort = False
    """The open transaction must be aborted before anything else."""
    fatal = False
    """This client can only be closed."""


class RetriableError(SparklogError):
    """The same call may succeed later."""

    retriable = True


class NoThreadError(RetriableError, RuntimeError):
    """No thread can be started: the process has as many as it may, or ends. Nothing was done."""


class KafkaTimeoutError(RetriableError):
    """A bound that the caller set (``delivery_timeout_ms``, ``max_block_ms``, …) passed before the work was done.

    Of a commit: nothing was stored, and nothing will be, unless it is a :class:`CommitStateUnknownError`.
    """


class UnknownTopicOrPartitionError(RetriableError):
    """The cluster has no such topic or partition (Kafka error 3); it may be created later."""


class CorruptRecordError(RetriableError):
    """A data file can't be read: truncated, overwritten or no Parquet (Kafka error 2). Names the file."""


class CommitStateUnknownError(KafkaTimeoutError):
    """A commit's answer was lost and could not be settled in time: read the log back before anything else.

    A time-out for whoever catches time-outs, but not retriable: the same call again could store the records twice. Of a
    consumer's ``commit`` alone the same call again is safe: it sets the same offsets.
    """

    retriable = False


class StoreError(SparklogError):
    """An object store refused or failed a call; the message names the path and what the store said."""

    was_repeated = False
    """Was the call made before, and failed in a way that leaves open whether it was carried out?"""
    is_of_no_bucket = False
    """Did the store say that there is no such bucket or container? It may have been deleted, and be made anew."""
    code: str | None = None
    """The code with which a server refused the call, if it is one of those that stores alone give; empty: its answer
    has none of these, so a proxy may have given it; None: no server refused it."""

    @property
    def is_refusal(self) -> bool:
        """Is it certain that nothing was written, nor will be (rule L2, unknown)? It was the only attempt, and was
        refused for good by the store itself: it is full, read-only or another one."""
        return not (self.retriable or self.was_repeated or self.code == "")


class ObjectNotFoundError(StoreError):
    """There is no object of this name."""


class StoreUnavailableError(StoreError):
    """The store refused the call for now (409, 429, 503): it was not carried out.

    A create counts as unknown all the same: its request may have been sent twice on its way (decision 0008).
    """

    retriable = True


class StoreOutcomeUnknownError(StoreError):
    """The answer was lost (time-out, connection reset, 500, failed fsync): the call may have been carried out."""

    retriable = True


class StorePermissionError(StoreError):
    """The store may not be read or written with these rights: read-only file system, access denied."""


class StoreFullError(StoreError):
    """There is no room left: disk full, quota reached. Nothing was written."""


class StoreReplacedError(StoreError):
    """Something else lies under a cluster's path than what the client has opened there: the folder was unmounted, moved
    or made again, a link was switched, a prefix was emptied, set back or is another cluster's. Nothing was written by
    the call.

    The client goes on once what it opened is back; else a new one is to be opened.
    """


class UnsafeStoreError(StoreError):
    """The store has no atomic create-only put, so two writers could both win: sparklog refuses to run on it."""


class InvalidProducerEpochError(SparklogError):
    """The topic has seen a newer epoch of this producer (Kafka error 47)."""

    requires_abort = True


class OutOfOrderSequenceError(SparklogError):
    """A batch of this producer is missing in between (Kafka error 45)."""

    requires_abort = True


class DuplicateSequenceError(SparklogError):
    """A batch that its producer sent again is stored already; its offsets are no longer known (Kafka error 46).

    Kafka's clients take it for success without an offset.
    """


class TransactionAbortableError(SparklogError):
    """Something failed within a transaction: ``abort_transaction``, then try it again (Kafka error 120).

    Its cause is the error that befell the transaction.
    """

    requires_abort = True


class TransactionTimedOutError(TransactionAbortableError):
    """The transaction was open for longer than ``transaction_timeout_ms``: it was not, and won't be, committed."""


class TransactionAbortedError(SparklogError):
    """The record was sent in a transaction that was aborted: it is not stored."""


class ProducerFencedError(SparklogError):
    """A newer producer uses the same ``transactional_id`` (Kafka error 90)."""

    fatal = True


class InvalidRecordStateError(SparklogError):
    """An acknowledgement came too late: the record isn't held by this member of the share group any more (Java's
    ``InvalidRecordStateException``). It is, or was, delivered to another."""


class InvalidTxnStateError(SparklogError):
    """The transaction isn't in a state that allows this: abort after commit, say (Kafka error 48)."""


class InvalidTransactionTimeoutError(SparklogError):
    """``transaction_timeout_ms`` is longer than a transaction may last (Kafka error 50)."""


class TransactionalIdNotFoundError(SparklogError):
    """No producer ever used this transactional id (Kafka error 105)."""


class MessageSizeTooLargeError(SparklogError):
    """A record is larger than ``max_request_size`` or the topic's ``max.message.bytes`` (Kafka error 10)."""


class InvalidTimestampError(SparklogError):
    """A record's timestamp is outside of what the topic's ``message.timestamp`` settings allow (Kafka error 32)."""


class InvalidRecordError(SparklogError):
    """A record that this topic refuses: one without a key where ``cleanup.policy`` has compact (Kafka error 87)."""


class RecordDeserializationError(SparklogError):
    """A deserializer failed. The position stays at the record: ``seek`` beyond it to go on (Java's class)."""

    def __init__(self, message: str, *, topic_partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset


class NoOffsetForPartitionError(SparklogError):
    """A partition has no position, and ``auto_offset_reset`` is none."""

    def __init__(self, message: str, *, topic_partition: TopicPartition | None = None) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition


class RebalanceInProgressError(RetriableError):
    """The member is between two assignments: ``poll`` until it has one, then try again (Kafka error 27)."""


class ConcurrentTransactionsError(RetriableError):
    """Another transaction of this transactional id is just being finished, or another producer with the same id is
    starting (Kafka error 51)."""


class UnstableOffsetCommitError(RetriableError):
    """A transaction may still change the committed offset: it isn't decided yet, or it is committed and its records
    aren't in their topics yet (Kafka error 88)."""


class CommitFailedError(SparklogError):
    """Offsets weren't committed: the partition was given to another member, or the consumer left its group; or the
    consumer assigns partitions itself, and the group has members.

    ``poll`` joins again; what was processed since the last commit is read again by the partition's new owner.
    """


class UnknownMemberIdError(SparklogError):
    """The group doesn't have this member, or it has members where none may be (Kafka error 25)."""


class IllegalGenerationError(SparklogError):
    """A newer generation of the group has taken the partition (Kafka error 22)."""


class InconsistentGroupProtocolError(SparklogError):
    """No assignor is supported by all members of the group (Kafka error 23)."""


class FencedInstanceIdError(SparklogError):
    """Another consumer has taken over this ``group_instance_id`` (Kafka error 82)."""

    fatal = True


class GroupIdNotFoundError(SparklogError):
    """There is no such group (Kafka error 69)."""


class NonEmptyGroupError(SparklogError):
    """The group has members: only an empty group may be changed in this way (Kafka error 68)."""


class GroupSubscribedToTopicError(SparklogError):
    """A member of the group subscribes to the topic (Kafka error 86)."""


class OffsetMetadataTooLargeError(SparklogError):
    """The metadata of a committed offset is longer than 4,096 bytes (Kafka error 12)."""


class OffsetOutOfRangeError(SparklogError):
    """The offset is below the log start or above the log end of the partition (Kafka error 1)."""

    def __init__(
        self, message: str, *, topic_partition: TopicPartition | None = None, offset: int | None = None
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        """Where a consumer was; None where only the message says it."""
        self.offset = offset


class TopicAlreadyExistsError(SparklogError):
    """A topic of this name exists (Kafka error 36)."""


class InvalidTopicError(SparklogError):
    """The name breaks Kafka's rule for topic names (Kafka error 17)."""


class InvalidPartitionsError(SparklogError):
    """The number of partitions is not positive, or smaller than it is now (Kafka error 37)."""


class PolicyViolationError(SparklogError):
    """The topic's settings don't allow what was asked (Kafka error 44)."""


class InvalidConfigurationError(SparklogError):
    """A setting is unknown or its value is not allowed (Kafka error 40); the message names it."""


class UnsupportedVersionError(SparklogError):
    """Something was written by a newer sparklog or needs a newer Delta reader than this one (Kafka error 35)."""


class NotATopicError(SparklogError):
    """The folder holds a Delta table that is no sparklog topic, or no Delta table at all."""


class TopicShrunkError(NotATopicError):
    """Another engine set back what of a topic only grows: its partitions, its schemas or its id. The topic is there,
    and refused until that is put back, as the error says."""


class CorruptLogError(SparklogError):
    """A log can't be understood, or contradicts itself: an entry is truncated, no JSON, or another topic's; another
    engine moved records of a partition. The message names the entry."""


class WakeupError(SparklogError):
    """Another thread called ``wakeup``: the blocked call ended without a result (Java's WakeupException)."""


class HandlerError(SparklogError):
    """A handler of ``sparklog.processing`` failed, hung or returned what it may not, and its record has nowhere to go:
    the worker stopped before it, and nothing was skipped. Its cause is the handler's error."""

    def __init__(self, message: str, *, topic_partition: TopicPartition, offset: int) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset


class IllegalStateError(SparklogError):
    """Methods were called in the wrong order; the caller's own mistake."""


class InvalidArgumentError(SparklogError, ValueError):
    """An argument has a value that is not allowed; the message says what was seen and what was expected."""


class InvalidTypeError(SparklogError, TypeError):
    """An argument has a type that is not allowed; the message says what was seen and what was expected."""


def as_sparklog_error(error: Exception) -> SparklogError:
    """An error as one of sparklog's; one that nobody foresaw tells its class."""
    return error if isinstance(error, SparklogError) else SparklogError(f"{type(error).__name__}: {error}")


def is_no_topic(error: object) -> bool:
    """Does an error say that there is no topic of the name? A topic that shrank is there."""
    kinds = (UnknownTopicOrPartitionError, NotATopicError, InvalidTopicError)
    return isinstance(error, kinds) and not isinstance(error, TopicShrunkError)
