"""What holds at every moment of a world: seen in all entries that anybody in it applies to what he knows of a topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple
from unittest import mock

from sparklog.log.state import TopicState

__all__ = ["Watch"]


class _Head(NamedTuple):
    """Of a topic at one version."""

    topic_id: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


class Watch:
    """A version has one content, whoever reads it; log starts and ends never go back.

    Args:
        violate: told what isn't so.
    """

    def __init__(self, violate: Callable[[str], object]) -> None:
        self._violate = violate
        self._tokens: dict[tuple[str, int], str] = {}
        self._heads: dict[str, dict[int, _Head]] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """See every entry that is applied."""
        apply = TopicState.apply

        def watch(state: TopicState, entry: Any, position: Any, **kwargs: Any) -> None:
            apply(state, entry, position, **kwargs)
            self._see(state)

        with mock.patch.object(TopicState, "apply", watch):
            yield

    def _see(self, state: TopicState) -> None:
        table, position, head = state.log.table, state.position, state.head
        token = self._tokens.setdefault((table, position.version), position.token)
        if token != position.token:
            self._violate(f"{table}: version {position.version} forks: {token} and {position.token}")
        found = _Head(head.topic_id, head.log_start_offsets, head.log_end_offsets)
        seen = self._heads.setdefault(table, {}).setdefault(position.version, found)
        if token == position.token and seen != found:
            self._violate(f"{table}: version {position.version} is {seen} to one and {found} to another")

    def check_course(self) -> None:
        """In the end: did a log start or end go back?"""
        for table, seen in self._heads.items():
            for (old_version, old), (new_version, new) in pairwise(sorted(seen.items())):
                if old.topic_id == new.topic_id and (_fell(old.starts, new.starts) or _fell(old.ends, new.ends)):
                    self._violate(f"{table}: went back from {old} at {old_version} to {new} at {new_version}")


def _fell(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    return len(new) < len(old) or any(after < before for before, after in zip(old, new, strict=False))
