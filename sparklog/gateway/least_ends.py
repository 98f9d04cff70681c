"""How far the logs of partitions reach at least, by what the transactions of one gateway have seen and committed."""

from __future__ import annotations

from threading import Lock

__all__ = ["LeastEnds"]

_MOST = 10_000
"""Partitions that are remembered. An entry is of use for a second: then each session looks at the topic again."""


class LeastEnds:
    """The greatest ends that are known, for all threads: a session that looked at a topic a second ago answers with no
    lower offsets than those of another session's transaction that was committed since."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: dict[tuple[str, int], tuple[str, int]] = {}
        """The topic's id and the end; what was seen last comes last."""

    def seen(self, topic: str, partition: int, topic_id: str, end: int) -> int:
        """Take note that a partition's log reaches an end at least. The greatest end that is known."""
        with self._lock:
            known_id, known = self._known.pop((topic, partition), ("", 0))
            if known_id == topic_id:
                end = max(end, known)
            self._known[topic, partition] = topic_id, end
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        return end
