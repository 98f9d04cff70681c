"""aiokafka's names for errors: kafka-python's, and the few that aiokafka adds."""

from sparklog.errors import IllegalStateError
from sparklog.kafka import errors as _kafka
from sparklog.kafka.errors import *  # noqa: F403 - all of them


class ConsumerStoppedError(IllegalStateError):
    """The consumer was stopped, perhaps while a task waited for records."""


class ProducerClosed(IllegalStateError):  # noqa: N818 - aiokafka's
    """Never raised: ``IllegalStateError`` is, which this is too."""


IllegalOperation = IllegalStateError
ProducerFenced = _kafka.ProducerFencedError
RecordTooLargeError = _kafka.MessageSizeTooLargeError
GroupCoordinatorNotAvailableError = _kafka.CoordinatorNotAvailableError
GroupLoadInProgressError = _kafka.CoordinatorLoadInProgressError
NotCoordinatorForGroupError = _kafka.NotCoordinatorError
