"""Arguments of kafka-python's admin client, taken apart; and asking for several topics or groups side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from sparklog.admin import NewTopic
from sparklog.admin.many import listed
from sparklog.errors import SparklogError
from sparklog.kafka.admin.refused import refuse
from sparklog.kafka.enums import AlterConfigOp, ConfigResourceType
from sparklog.kafka.errors import IllegalArgumentError
from sparklog.parallel import AT_ONCE, parallel_map

__all__ = ["ConfigResource", "changes_of", "each", "new_topics_of", "raise_first", "topics_of"]

S = TypeVar("S")
T = TypeVar("T")


class ConfigResource:
    """Something that has settings.

    Args:
        resource_type: a :class:`ConfigResourceType` or its name. Only topics have settings here.
        name: of the topic.
        configs: names to describe or reset, or names and values to set; None for all.
    """

    def __init__(
        self,
        resource_type: ConfigResourceType | str,
        name: str,
        configs: Iterable[str] | Mapping[str, Any] | None = None,
    ) -> None:
        self.resource_type = ConfigResourceType.build_from(resource_type)
        self.name = name
        self.configs = configs

    def __repr__(self) -> str:
        return f"ConfigResource({self.resource_type.name}, {self.name!r}, {self.configs!r})"


def new_topics_of(given: Mapping[str, Any] | Iterable[object]) -> list[NewTopic]:
    """Topics to create, in whichever of kafka-python's three ways they were given.

    Raises:
        IllegalArgumentError: none, or something that isn't one of them.
    """
    known = {"num_partitions", "replication_factor", "assignments", "configs"}
    topics = []
    for item in listed(given):
        if isinstance(item, NewTopic):
            topics.append(item)
            continue
        options = given[str(item)] if isinstance(given, Mapping) else {}
        if not (isinstance(item, str) and isinstance(options, Mapping) and options.keys() <= known):
            raise IllegalArgumentError(
                f"got {item!r}: {options!r} for a topic to create, expected a name, a NewTopic, or a name and a dict "
                f"of {', '.join(sorted(known))}"
            )
        topics.append(
            NewTopic(
                item,
                num_partitions=options.get("num_partitions", -1),
                replication_factor=options.get("replication_factor", -1),
                replica_assignments=options.get("assignments"),
                configs=options.get("configs"),
            )
        )
    if not topics:
        raise IllegalArgumentError(f"no topics to create in {given!r}")
    return topics


def each(
    items: Iterable[S], act: Callable[[S], T], *, at_once: int = AT_ONCE
) -> list[tuple[S, T | None, SparklogError | None]]:
    """Act on every item, up to ``at_once`` at the same time; what came of it, or how it failed."""

    def outcome(item: S) -> tuple[S, T | None, SparklogError | None]:
        try:
            return item, act(item), None
        except SparklogError as error:
            return item, None, error

    return parallel_map(outcome, items, at_once=at_once)


def raise_first(outcomes: Iterable[tuple[object, object, SparklogError | None]], raise_errors: bool) -> None:
    """Raise the first error among ``outcomes`` of (item, result, error); nothing if ``raise_errors`` is false."""
    for _, _, error in outcomes:
        if error is not None and raise_errors:
            raise error


def topics_of(call: str, resources: Iterable[ConfigResource]) -> list[ConfigResource]:
    """The resources of a call that is about topics. Raises ``IncompatibleBrokerVersion`` for any other type of
    resource."""
    listed = list(resources)
    for resource in listed:
        if resource.resource_type != ConfigResourceType.TOPIC:
            refuse(f"{call} of a {resource.resource_type.name.lower()}", "only topics have settings")
    return listed


def changes_of(resource: ConfigResource) -> dict[str, object]:
    """The settings to change: None for those that go back to their default."""
    if not isinstance(resource.configs, Mapping):
        raise IllegalArgumentError(f"alter_configs: got {resource!r}, expected a dict of names and values")
    changes: dict[str, object] = {}
    for name, asked in resource.configs.items():
        op, value = asked if isinstance(asked, tuple) else (AlterConfigOp.SET, asked)
        op = AlterConfigOp.build_from(op)
        if op not in (AlterConfigOp.SET, AlterConfigOp.DELETE):
            refuse(f"alter_configs with {op.name}", f"set the whole value of {name}")
        changes[name] = None if op == AlterConfigOp.DELETE else value
    return changes
