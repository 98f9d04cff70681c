"""Names that a request has more than once are answered once: one topic with ten thousand partitions, named as often,
would be an answer of gigabytes. Source: Kafka ``KafkaApis.handleTopicMetadataRequest``, which takes a set. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["distinct"]


def distinct(elements: Iterable[Mapping[str, Any]], *fields: str) -> list[Mapping[str, Any]]:
    """Elements of a request in their order, without those that are equal in some fields to one before."""
    found: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for element in elements:
        found.setdefault(tuple(_hashable(element.get(field)) for field in fields), element)
    return [*found.values()]


def _hashable(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
