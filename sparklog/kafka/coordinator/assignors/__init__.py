"""Assignors under kafka-python's names, for the setting ``partition_assignment_strategy``."""

from __future__ import annotations

from sparklog.groups.assignors import Assignor, assignor_of
from sparklog.kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from sparklog.kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from sparklog.kafka.coordinator.assignors.range import RangePartitionAssignor
from sparklog.kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from sparklog.kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from sparklog.kafka.errors import KafkaConfigurationError

__all__ = ["strategy_of"]

_OWN: tuple[type[AbstractPartitionAssignor], ...] = (
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
)


def strategy_of(value: object) -> object:
    """``partition_assignment_strategy`` as :class:`~sparklog.consumer.Consumer` wants it.

    Args:
        value: kafka-python's: a list or tuple of the classes of this package, or of instances; or sparklog's.
    Raises:
        KafkaConfigurationError: an assignor that was written for kafka-python, or none at all.
    """
    return [_assignor_of(one) for one in value] if isinstance(value, list | tuple) else _assignor_of(value)


def _assignor_of(value: object) -> object:
    kind = value if isinstance(value, type) else type(value)
    for own in _OWN:
        if kind is own:
            return own.name
    is_kafka_pythons = issubclass(kind, AbstractPartitionAssignor) or callable(getattr(kind, "assign", None))
    if is_kafka_pythons and not issubclass(kind, Assignor):
        raise KafkaConfigurationError(
            f"partition_assignment_strategy: got {kind.__module__}.{kind.__qualname__}, expected "
            f"{', '.join(own.__name__ for own in _OWN)} of sparklog.kafka.coordinator.assignors, or a subclass of "
            "sparklog.groups.assignors.Assignor: an assignor that was written for kafka-python can't be used"
        )
    if not isinstance(value, str):
        try:
            assignor_of(value)
        except ValueError as error:
            raise KafkaConfigurationError(f"partition_assignment_strategy: {error}") from None
    return value
