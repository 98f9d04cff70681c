"""kafka-python's enumerations. Calls take a member, its name or its number."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TypeVar

from sparklog.errors import InvalidArgumentError

__all__ = [
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResourceType",
    "ConfigSourceType",
    "ConfigType",
    "GroupState",
    "GroupType",
    "IsolationLevel",
    "OffsetSpec",
    "OffsetTimestamp",
    "TransactionState",
]

E = TypeVar("E", bound="_NamedEnum")
T = TypeVar("T", bound="_TextEnum")


class _NamedEnum(IntEnum):
    @classmethod
    def build_from(cls: type[E], value: object) -> E:
        """The member that is, has the number, or has the name ``value``. Raises ``InvalidArgumentError``."""
        for member in cls:
            if value == member.value or str(value).strip().upper().replace("-", "_") == member.name:
                return member
        raise InvalidArgumentError(
            f"unrecognized {cls.__name__} {value!r}; known: {', '.join(one.name for one in cls)}"
        )

    @classmethod
    def value_for(cls, value: object) -> int:
        """The number of :meth:`build_from`."""
        return cls.build_from(value).value


class _TextEnum(str, Enum):
    @classmethod
    def build_from(cls: type[T], value: object) -> T:
        """The member that is, has the value, or has the name ``value``. Raises ``InvalidArgumentError``."""
        for member in cls:
            if value == member.value or str(value).strip().upper().replace("-", "_") == member.name:
                return member
        raise InvalidArgumentError(
            f"unrecognized {cls.__name__} {value!r}; known: {', '.join(one.value for one in cls)}"
        )

    @classmethod
    def value_for(cls, value: object) -> str:
        """The value of :meth:`build_from`."""
        return str(cls.build_from(value).value)


class GroupState(_TextEnum):
    """States of a group. The last three never occur: they are of Kafka's newer protocol."""

    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    UNKNOWN = "Unknown"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"


class GroupType(_TextEnum):
    """Kafka's protocols of groups. Here every group counts as a classic one."""

    UNKNOWN = "Unknown"
    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class TransactionState(_TextEnum):
    """States of a transaction. Dead and PrepareEpochFence never occur."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    """One may be open."""
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    UNKNOWN = "Unknown"
    """Its log can't be understood."""


class IsolationLevel(_NamedEnum):
    """Both read the same: nothing uncommitted is ever in a log."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetSpec(_NamedEnum):
    """Offsets that stand for a place in a partition."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    """The same as EARLIEST: all of a topic is in its store."""
    LATEST_TIERED = -5
    """Refused: there is one tier."""


class OffsetTimestamp(int):
    """A time in milliseconds, as a type of its own beside offsets."""

    __slots__ = ()


class ConfigResourceType(_NamedEnum):
    """Types of resources that settings belong to. Only topics have any here."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterConfigOp(_NamedEnum):
    """Operations on a setting. APPEND and SUBTRACT are refused: set the whole value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigFilterType(_NamedEnum):
    """Filters that say which settings to describe."""

    ALL = 0
    DYNAMIC = 1
    MODIFIED = 2
    DEFAULT = 3
    STATIC = 4


class ConfigType(_NamedEnum):
    """The type of a setting's value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSourceType(_NamedEnum):
    """Sources of a setting's value: here the topic, or the default."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8
