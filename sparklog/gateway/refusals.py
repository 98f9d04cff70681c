"""Refusals for lack of rights, for the log: found in the answers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sparklog.gateway.error_codes import ErrorCode

__all__ = ["KINDS", "refused_in"]

KINDS: Mapping[int, str] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional_id",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
"""The kind of thing that a code refuses."""
_CODES = ("error_code", "partition_error_code")
_NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "resource_name", "user")
"""Fields by which an answer, or a request as a whole, names what it is about."""


def refused_in(answer: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The codes of :data:`KINDS` in an answer, each with the name of what was refused; empty where it has none.

    Args:
        asked: the request, which has the name where the answer is of one thing alone.
    """
    yield from _walk(answer, _name_in(asked, ""))


def _walk(answer: object, name: str) -> Iterator[tuple[int, str]]:
    if isinstance(answer, Mapping):
        name = _name_in(answer, name)
        for field in _CODES:
            if answer.get(field) in KINDS:
                yield answer[field], name
        for part in answer.values():
            yield from _walk(part, name)
    elif isinstance(answer, list):
        for part in answer:
            yield from _walk(part, name)


def _name_in(answer: Mapping[str, Any], known: str) -> str:
    return next((answer[name] for name in _NAMES if isinstance(answer.get(name), str) and answer[name]), known)
