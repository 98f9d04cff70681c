"""Assignors: pure functions from partition counts and subscriptions to an assignment."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType

from sparklog.groups.assignors.base import Assignments, Assignor, MemberSubscription, check_assignment
from sparklog.groups.assignors.cooperative_sticky import CooperativeStickyAssignor
from sparklog.groups.assignors.range import RangeAssignor
from sparklog.groups.assignors.round_robin import RoundRobinAssignor
from sparklog.groups.assignors.sticky import StickyAssignor

__all__ = [
    "ASSIGNORS",
    "Assignments",
    "Assignor",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assignor_of",
    "check_assignment",
]

_KNOWN: tuple[Assignor, ...] = (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({assignor.name: assignor for assignor in _KNOWN})
"""Kafka's assignors by the names of its protocol."""

_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_BY_JAVA_NAME = {_JAVA_PACKAGE + type(assignor).__name__: assignor for assignor in _KNOWN}


def assignor_of(value: object) -> Assignor:
    """The assignor that an item of the setting ``partition_assignment_strategy`` means.

    Args:
        value: Kafka's name of one ("range", as librdkafka has it), its Java class ("org.apache.kafka.clients.consumer.
            RangeAssignor"), or an :class:`Assignor`: an instance, or a class that takes no arguments.
    Raises:
        ValueError: it is none of these; says what is expected.
    """
    if isinstance(value, str):
        named = ASSIGNORS.get(value) or _BY_JAVA_NAME.get(value)
        if named is not None:
            return named
    elif isinstance(value, Assignor):
        return _with_a_name(value)
    elif isinstance(value, type) and issubclass(value, Assignor) and not inspect.isabstract(value):
        try:
            return _with_a_name(value())
        except TypeError as error:
            raise ValueError(f"{value!r} can't be made without arguments ({error}): expected an instance") from error
    raise ValueError(
        f"{value!r}: expected one of {', '.join(ASSIGNORS)}, Kafka's Java class of one, or an Assignor with assign()"
    )


def _with_a_name(assignor: Assignor) -> Assignor:
    name = getattr(assignor, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError(f"{assignor!r} has the name {name!r}: expected a string that is not empty")
    return assignor
