"""Operations that a client may do with a topic, a group or the cluster, where its request asks for them. Pure.

Source: KIP-430; Kafka ``AclOperation`` and ``AclEntry.supportedOperations``: without an authorizer, all of them.
"""

from __future__ import annotations

from enum import IntEnum

from sparklog.gateway.users import Rules

__all__ = ["Operation", "cluster_operations", "group_operations", "topic_operations"]


class Operation(IntEnum):
    """Kafka's operations, by Kafka's names."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_LOOK = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
_CHANGE = (Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS)
_OF_CLUSTERS = (
    *_LOOK,
    Operation.CREATE,
    Operation.ALTER,
    Operation.CLUSTER_ACTION,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in set(operations))


def topic_operations(rules: Rules | None, topic: str) -> int:
    """A bit for each operation on a topic. ``rules`` None: all may do everything."""
    if rules is None:
        return _bits(Operation.READ, Operation.WRITE, *_LOOK, *_CHANGE)
    operations: list[Operation] = []
    if rules.may_read(topic):
        operations += [Operation.READ, *_LOOK]
    if rules.may_write(topic):
        operations += [Operation.WRITE, *_LOOK, *(_CHANGE if rules.admin else ())]
    return _bits(*operations)


def cluster_operations(rules: Rules | None) -> int:
    """A bit for each operation on the cluster."""
    if rules is None:
        return _bits(*_OF_CLUSTERS)
    return _bits(Operation.IDEMPOTENT_WRITE, *((Operation.CREATE, *_LOOK) if rules.admin else ()))


def group_operations(rules: Rules | None, group: str) -> int:
    """A bit for each operation on a group."""
    if rules is not None and not rules.may_use_group(group):
        return 0
    is_admin = rules is None or rules.admin
    return _bits(Operation.READ, Operation.DESCRIBE, *((Operation.DELETE,) if is_admin else ()))
