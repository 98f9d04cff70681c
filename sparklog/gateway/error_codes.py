"""Kafka's error codes, and the code of each sparklog error. Source: Kafka ``Errors``."""

from __future__ import annotations

from enum import IntEnum

from sparklog import errors

__all__ = ["ErrorCode", "code_of", "coordinator_code_of"]


class ErrorCode(IntEnum):
    """Kafka's codes, by Kafka's names: those that the gateway answers."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    UNSUPPORTED_ENDPOINT_TYPE = 115
    INVALID_REGULAR_EXPRESSION = 117
    TRANSACTION_ABORTABLE = 120


_CODES: tuple[tuple[type[Exception], ErrorCode], ...] = (
    # Nobody knows whether it was stored: what Kafka answers where replicas didn't acknowledge in time.
    (errors.KafkaTimeoutError, ErrorCode.REQUEST_TIMED_OUT),
    (errors.OutOfOrderSequenceError, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (errors.DuplicateSequenceError, ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
    (errors.InvalidProducerEpochError, ErrorCode.INVALID_PRODUCER_EPOCH),
    (errors.ConcurrentTransactionsError, ErrorCode.CONCURRENT_TRANSACTIONS),
    (errors.ProducerFencedError, ErrorCode.PRODUCER_FENCED),
    (errors.InvalidTransactionTimeoutError, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    (errors.InvalidTxnStateError, ErrorCode.INVALID_TXN_STATE),
    (errors.TransactionalIdNotFoundError, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
    (errors.UnknownTopicOrPartitionError, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (errors.OffsetOutOfRangeError, ErrorCode.OFFSET_OUT_OF_RANGE),
    (errors.CorruptRecordError, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.MessageSizeTooLargeError, ErrorCode.MESSAGE_TOO_LARGE),
    (errors.InvalidRecordError, ErrorCode.INVALID_RECORD),
    (errors.InvalidTimestampError, ErrorCode.INVALID_TIMESTAMP),
    (errors.InvalidTopicError, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (errors.TopicAlreadyExistsError, ErrorCode.TOPIC_ALREADY_EXISTS),
    (errors.InvalidPartitionsError, ErrorCode.INVALID_PARTITIONS),
    (errors.InvalidConfigurationError, ErrorCode.INVALID_CONFIG),
    (errors.PolicyViolationError, ErrorCode.POLICY_VIOLATION),
    (errors.OffsetMetadataTooLargeError, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    (errors.UnstableOffsetCommitError, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    (errors.CommitFailedError, ErrorCode.UNKNOWN_MEMBER_ID),
    (errors.UnknownMemberIdError, ErrorCode.UNKNOWN_MEMBER_ID),
    (errors.IllegalGenerationError, ErrorCode.ILLEGAL_GENERATION),
    (errors.InconsistentGroupProtocolError, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    (errors.NonEmptyGroupError, ErrorCode.NON_EMPTY_GROUP),
    (errors.GroupSubscribedToTopicError, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
    (errors.GroupIdNotFoundError, ErrorCode.GROUP_ID_NOT_FOUND),
    # StoreReplacedError among them. Kafka's answer where a log is offline: clients ask for metadata and try again. An
    # idempotent producer repeats the same batch, which is stored once when the log is back, or repaired.
    (errors.StoreError, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.CorruptLogError, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.TopicShrunkError, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.InvalidArgumentError, ErrorCode.INVALID_REQUEST),
    (errors.InvalidTypeError, ErrorCode.INVALID_REQUEST),
)


def code_of(error: BaseException) -> ErrorCode:
    """The code that answers an error; ``UNKNOWN_SERVER_ERROR`` where Kafka has none for it."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ErrorCode.UNKNOWN_SERVER_ERROR)


def coordinator_code_of(error: BaseException) -> ErrorCode:
    """The code for a group's member whose request couldn't be carried out: each makes it find the coordinator anew, and
    ask again. Source: Kafka ``GroupMetadataManager.convertToOffsetCommitError``."""
    if isinstance(error, (errors.KafkaTimeoutError, errors.StoreError)):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if isinstance(error, (errors.IllegalGenerationError, errors.CommitFailedError)):
        return ErrorCode.NOT_COORDINATOR
    return code_of(error)
