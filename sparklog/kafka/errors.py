"""kafka-python's names for errors: those of :mod:`sparklog.errors`, and those that sparklog never raises.

``except`` clauses written for kafka-python work with the import changed: each of Kafka's errors corresponds to
sparklog's of the same name, and ``KafkaError`` is :class:`~sparklog.errors.SparklogError`, so it catches everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from sparklog import errors as ours

# What sparklog raises, or may raise. Where sparklog raises a wider error than kafka-python, kafka-python's name stands
# for the wider one.
KafkaError = ours.SparklogError
BrokerResponseError = ours.SparklogError
RetriableError = ours.RetriableError

KafkaConfigurationError = ours.InvalidConfigurationError
InvalidConfigurationError = ours.InvalidConfigurationError
IllegalArgumentError = ours.InvalidArgumentError
IllegalStateError = ours.IllegalStateError

KafkaTimeoutError = ours.KafkaTimeoutError
RequestTimedOutError = ours.KafkaTimeoutError
UnsupportedVersionError = ours.UnsupportedVersionError
KafkaStorageError = ours.StoreError
AuthorizationError = ours.StorePermissionError
TopicAuthorizationFailedError = ours.StorePermissionError
GroupAuthorizationFailedError = ours.StorePermissionError
ClusterAuthorizationFailedError = ours.StorePermissionError
TransactionalIdAuthorizationFailedError = ours.StorePermissionError

UnknownTopicOrPartitionError = ours.UnknownTopicOrPartitionError
TopicAlreadyExistsError = ours.TopicAlreadyExistsError
InvalidTopicError = ours.InvalidTopicError
InvalidPartitionsError = ours.InvalidPartitionsError
PolicyViolationError = ours.PolicyViolationError

OffsetOutOfRangeError = ours.OffsetOutOfRangeError
NoOffsetForPartitionError = ours.NoOffsetForPartitionError
CorruptRecordError = ours.CorruptRecordError
CorruptRecordException = ours.CorruptRecordError

CommitFailedError = ours.CommitFailedError
UnknownMemberIdError = ours.UnknownMemberIdError
IllegalGenerationError = ours.IllegalGenerationError
InconsistentGroupProtocolError = ours.InconsistentGroupProtocolError
RebalanceInProgressError = ours.RebalanceInProgressError
FencedInstanceIdError = ours.FencedInstanceIdError
GroupIdNotFoundError = ours.GroupIdNotFoundError
NonEmptyGroupError = ours.NonEmptyGroupError
GroupSubscribedToTopicError = ours.GroupSubscribedToTopicError
OffsetMetadataTooLargeError = ours.OffsetMetadataTooLargeError

MessageSizeTooLargeError = ours.MessageSizeTooLargeError
InvalidTimestampError = ours.InvalidTimestampError
InvalidRecordError = ours.InvalidRecordError
DuplicateSequenceNumberError = ours.DuplicateSequenceError
OutOfOrderSequenceNumberError = ours.OutOfOrderSequenceError
InvalidProducerEpochError = ours.InvalidProducerEpochError

ConcurrentTransactionsError = ours.ConcurrentTransactionsError
InvalidTransactionTimeoutError = ours.InvalidTransactionTimeoutError
InvalidTxnStateError = ours.InvalidTxnStateError
ProducerFencedError = ours.ProducerFencedError
TransactionAbortableError = ours.TransactionAbortableError
TransactionAbortedError = ours.TransactionAbortedError
TransactionalIdNotFoundError = ours.TransactionalIdNotFoundError
UnstableOffsetCommitError = ours.UnstableOffsetCommitError


class InvalidMetadataError(RetriableError):
    """Metadata of the cluster is out of date. Only as :class:`NoBrokersAvailable`."""


class KafkaConnectionError(InvalidMetadataError):
    """The cluster can't be reached. Only as :class:`NoBrokersAvailable`."""


class NoBrokersAvailable(KafkaConnectionError, KafkaTimeoutError, IllegalArgumentError):  # noqa: N818 - kafka-python's
    """There is no cluster at the root, or its store doesn't answer; there may be one later.

    kafka-python 2's name. Version 3 raises ``KafkaTimeoutError`` instead, which this is too.
    """


class IncompatibleBrokerVersion(UnsupportedVersionError):  # noqa: N818 - kafka-python's
    """The call, or this way of calling it, has no meaning without brokers, or isn't there yet; says which."""


class UnknownTopicIdError(UnknownTopicOrPartitionError):
    """No topic has this id."""


def _unraised(name: str, *bases: type[ours.SparklogError]) -> type[ours.SparklogError]:
    """An error that sparklog never raises: its name exists so that ``except`` clauses written for Kafka import."""
    inherited: tuple[type[ours.SparklogError], ...] = bases or (KafkaError,)
    return type(name, inherited, {"__doc__": "Never raised by sparklog.", "__module__": __name__})


Cancelled = _unraised("Cancelled", RetriableError)
KafkaProtocolError = _unraised("KafkaProtocolError")
CorrelationIdError = _unraised("CorrelationIdError", RetriableError, KafkaProtocolError)
InvalidReceiveError = _unraised("InvalidReceiveError", KafkaProtocolError)
LogTruncationError = _unraised("LogTruncationError")
MetadataEmptyBrokerList = _unraised("MetadataEmptyBrokerList", RetriableError)
NodeNotReadyError = _unraised("NodeNotReadyError", RetriableError)
QuotaViolationError = _unraised("QuotaViolationError")
StaleMetadata = _unraised("StaleMetadata", InvalidMetadataError)
TooManyInFlightRequests = _unraised("TooManyInFlightRequests", RetriableError)
UnknownBrokerIdError = _unraised("UnknownBrokerIdError")
UnrecognizedBrokerVersion = _unraised("UnrecognizedBrokerVersion")
UnsupportedCodecError = _unraised("UnsupportedCodecError")

NoError = _unraised("NoError")
UnknownError = _unraised("UnknownError")
InvalidFetchRequestError = _unraised("InvalidFetchRequestError")
LeaderNotAvailableError = _unraised("LeaderNotAvailableError", InvalidMetadataError)
NotLeaderForPartitionError = _unraised("NotLeaderForPartitionError", InvalidMetadataError)
BrokerNotAvailableError = _unraised("BrokerNotAvailableError")
ReplicaNotAvailableError = _unraised("ReplicaNotAvailableError", InvalidMetadataError)
StaleControllerEpochError = _unraised("StaleControllerEpochError")
NetworkExceptionError = _unraised("NetworkExceptionError", InvalidMetadataError)
CoordinatorLoadInProgressError = _unraised("CoordinatorLoadInProgressError", RetriableError)
CoordinatorNotAvailableError = _unraised("CoordinatorNotAvailableError", RetriableError)
NotCoordinatorError = _unraised("NotCoordinatorError", RetriableError)
RecordListTooLargeError = _unraised("RecordListTooLargeError")
NotEnoughReplicasError = _unraised("NotEnoughReplicasError", RetriableError)
NotEnoughReplicasAfterAppendError = _unraised("NotEnoughReplicasAfterAppendError", RetriableError)
InvalidRequiredAcksError = _unraised("InvalidRequiredAcksError")
InvalidGroupIdError = _unraised("InvalidGroupIdError")
InvalidSessionTimeoutError = _unraised("InvalidSessionTimeoutError")
InvalidCommitOffsetSizeError = _unraised("InvalidCommitOffsetSizeError")
UnsupportedSaslMechanismError = _unraised("UnsupportedSaslMechanismError")
IllegalSaslStateError = _unraised("IllegalSaslStateError")
InvalidReplicationFactorError = _unraised("InvalidReplicationFactorError")
InvalidReplicationAssignmentError = _unraised("InvalidReplicationAssignmentError")
NotControllerError = _unraised("NotControllerError", RetriableError)
InvalidRequestError = _unraised("InvalidRequestError")
UnsupportedForMessageFormatError = _unraised("UnsupportedForMessageFormatError")
InvalidProducerIdMappingError = _unraised("InvalidProducerIdMappingError")
TransactionCoordinatorFencedError = _unraised("TransactionCoordinatorFencedError")
SecurityDisabledError = _unraised("SecurityDisabledError")
OperationNotAttemptedError = _unraised("OperationNotAttemptedError")
LogDirNotFoundError = _unraised("LogDirNotFoundError")
SaslAuthenticationFailedError = _unraised("SaslAuthenticationFailedError")
UnknownProducerIdError = _unraised("UnknownProducerIdError")
ReassignmentInProgressError = _unraised("ReassignmentInProgressError")
DelegationTokenAuthDisabledError = _unraised("DelegationTokenAuthDisabledError")
DelegationTokenNotFoundError = _unraised("DelegationTokenNotFoundError")
DelegationTokenOwnerMismatchError = _unraised("DelegationTokenOwnerMismatchError")
DelegationTokenRequestNotAllowedError = _unraised("DelegationTokenRequestNotAllowedError")
DelegationTokenAuthorizationFailedError = _unraised("DelegationTokenAuthorizationFailedError", AuthorizationError)
DelegationTokenExpiredError = _unraised("DelegationTokenExpiredError")
InvalidPrincipalTypeError = _unraised("InvalidPrincipalTypeError")
FetchSessionIdNotFoundError = _unraised("FetchSessionIdNotFoundError", RetriableError)
InvalidFetchSessionEpochError = _unraised("InvalidFetchSessionEpochError", RetriableError)
ListenerNotFoundError = _unraised("ListenerNotFoundError", InvalidMetadataError)
TopicDeletionDisabledError = _unraised("TopicDeletionDisabledError")
FencedLeaderEpochError = _unraised("FencedLeaderEpochError", InvalidMetadataError)
UnknownLeaderEpochError = _unraised("UnknownLeaderEpochError", InvalidMetadataError)
UnsupportedCompressionTypeError = _unraised("UnsupportedCompressionTypeError")
StaleBrokerEpochError = _unraised("StaleBrokerEpochError")
OffsetNotAvailableError = _unraised("OffsetNotAvailableError", RetriableError)
MemberIdRequiredError = _unraised("MemberIdRequiredError")
PreferredLeaderNotAvailableError = _unraised("PreferredLeaderNotAvailableError", InvalidMetadataError)
GroupMaxSizeReachedError = _unraised("GroupMaxSizeReachedError")
EligibleLeadersNotAvailableError = _unraised("EligibleLeadersNotAvailableError", InvalidMetadataError)
ElectionNotNeededError = _unraised("ElectionNotNeededError", InvalidMetadataError)
NoReassignmentInProgressError = _unraised("NoReassignmentInProgressError")
ThrottlingQuotaExceededError = _unraised("ThrottlingQuotaExceededError", RetriableError)
ResourceNotFoundError = _unraised("ResourceNotFoundError")
DuplicateResourceError = _unraised("DuplicateResourceError")
UnacceptableCredentialError = _unraised("UnacceptableCredentialError")
InconsistentVoterSetError = _unraised("InconsistentVoterSetError")
InvalidUpdateVersionError = _unraised("InvalidUpdateVersionError")
FeatureUpdateFailedError = _unraised("FeatureUpdateFailedError")
PrincipalDeserializationFailureError = _unraised("PrincipalDeserializationFailureError")
SnapshotNotFoundError = _unraised("SnapshotNotFoundError")
PositionOutOfRangeError = _unraised("PositionOutOfRangeError")
DuplicateBrokerRegistrationError = _unraised("DuplicateBrokerRegistrationError")
BrokerIdNotRegisteredError = _unraised("BrokerIdNotRegisteredError")
InconsistentTopicIdError = _unraised("InconsistentTopicIdError", InvalidMetadataError)
InconsistentClusterIdError = _unraised("InconsistentClusterIdError")
FetchSessionTopicIdError = _unraised("FetchSessionTopicIdError", RetriableError)
IneligibleReplicaError = _unraised("IneligibleReplicaError")
NewLeaderElectedError = _unraised("NewLeaderElectedError")
OffsetMovedToTieredStorageError = _unraised("OffsetMovedToTieredStorageError")
FencedMemberEpochError = _unraised("FencedMemberEpochError")
UnreleasedInstanceIdError = _unraised("UnreleasedInstanceIdError")
UnsupportedAssignorError = _unraised("UnsupportedAssignorError")
StaleMemberEpochError = _unraised("StaleMemberEpochError")
MismatchedEndpointTypeError = _unraised("MismatchedEndpointTypeError")
UnsupportedEndpointTypeError = _unraised("UnsupportedEndpointTypeError")
UnknownControllerIdError = _unraised("UnknownControllerIdError")
UnknownSubscriptionIdError = _unraised("UnknownSubscriptionIdError")
TelemetryTooLargeError = _unraised("TelemetryTooLargeError")
InvalidRegistrationError = _unraised("InvalidRegistrationError")
InvalidRecordStateError = _unraised("InvalidRecordStateError")
ShareSessionNotFoundError = _unraised("ShareSessionNotFoundError", RetriableError)
InvalidShareSessionEpochError = _unraised("InvalidShareSessionEpochError", RetriableError)
FencedStateEpochError = _unraised("FencedStateEpochError")
InvalidVoterKeyError = _unraised("InvalidVoterKeyError")
DuplicateVoterError = _unraised("DuplicateVoterError")
VoterNotFoundError = _unraised("VoterNotFoundError")

# Source: Kafka ``Errors``; of those that an answer of the admin client can hold.
_CODES: Mapping[type[ours.SparklogError], int] = MappingProxyType(
    {
        NoError: 0,
        OffsetOutOfRangeError: 1,
        CorruptRecordError: 2,
        UnknownTopicOrPartitionError: 3,
        KafkaTimeoutError: 7,
        OffsetMetadataTooLargeError: 12,
        InvalidTopicError: 17,
        IllegalGenerationError: 22,
        InconsistentGroupProtocolError: 23,
        UnknownMemberIdError: 25,
        RebalanceInProgressError: 27,
        ours.StorePermissionError: 29,
        UnsupportedVersionError: 35,
        TopicAlreadyExistsError: 36,
        InvalidPartitionsError: 37,
        InvalidConfigurationError: 40,
        IllegalArgumentError: 42,
        PolicyViolationError: 44,
        InvalidProducerEpochError: 47,
        InvalidTxnStateError: 48,
        InvalidTransactionTimeoutError: 50,
        ConcurrentTransactionsError: 51,
        ours.TopicShrunkError: 56,  # before the class that stands for the code
        KafkaStorageError: 56,
        NonEmptyGroupError: 68,
        GroupIdNotFoundError: 69,
        FencedInstanceIdError: 82,
        GroupSubscribedToTopicError: 86,
        UnstableOffsetCommitError: 88,
        ProducerFencedError: 90,
        UnknownTopicIdError: 100,
        TransactionalIdNotFoundError: 105,
        TransactionAbortableError: 120,
    }
)
_BY_CODE: Mapping[int, type[ours.SparklogError]] = MappingProxyType({code: kind for kind, code in _CODES.items()})


def code_of(error: ours.SparklogError) -> int:
    """Kafka's code for an error, for an answer's ``error_code``; -1 where Kafka has none."""
    return next((_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), -1)


def for_code(error_code: int) -> type[ours.SparklogError]:
    """The class of an answer's ``error_code``; ``UnknownError`` for one that sparklog doesn't give."""
    return _BY_CODE.get(error_code, UnknownError)
