"""Notifications of the store that the log of a topic has something new."""

from __future__ import annotations

from collections.abc import Callable, Set

from sparklog.consumer.fetch_state import FetchState

__all__ = ["Announcements"]


class Announcements:
    """The topics of which the store has announced something that the fetcher hasn't looked at yet."""

    def __init__(self, fetch_state: FetchState) -> None:
        self._fetch_state = fetch_state
        self._topics: set[str] = set()
        """Under the lock."""

    def announce(self, topic: str) -> None:
        """Wake the fetcher's thread, unless the consumer is away: a topic has something new. From any thread."""
        with self._fetch_state.lock:
            self._topics.add(topic)
            if not self._fetch_state.is_parked:
                self._fetch_state.fetcher_condition.notify()

    def among(self, topics: Callable[[], Set[str]]) -> Set[str]:
        """The topics among these, asked for where it matters, of which something was announced. Under the lock."""
        return self._topics & topics() if self._topics else self._topics

    def take_single(self) -> str | None:
        """Take what was announced where that is of one topic; None: of none, or of several. Under the lock."""
        return self._topics.pop() if len(self._topics) == 1 else None

    def keep(self, topics: Set[str]) -> None:
        """Forget what was announced of all other topics: one that is wanted again is loaded as it is then."""
        with self._fetch_state.lock:
            self._topics &= topics

    def put_back(self, topic: str) -> None:
        """Have what was taken looked at nevertheless, by whoever takes it next."""
        with self._fetch_state.lock:
            self._topics.add(topic)

    def take(self, topics: Set[str]) -> Set[str]:
        """Forget what was announced of these topics, which are looked at now; return those of which something was."""
        if not self._topics:  # most rounds; what is announced right now is taken by the next
            return frozenset()
        with self._fetch_state.lock:
            taken = self._topics & topics
            self._topics -= taken
        return taken
