"""Whether many clients of a topic send requests while many of their own are unanswered. Pure."""

from __future__ import annotations

__all__ = ["MANY_CONNECTIONS", "MOST_BOUNDED", "MUCH_BYTES", "UnboundedSenders"]

MANY_CONNECTIONS = 8
MUCH_BYTES = 131_072
"""The least bytes, of a round or of what came recently, for which a round is held."""
MOST_BOUNDED = 5
"""The most unanswered requests of a client that bounds them: Kafka's default, and the most for an idempotent client.
Source: Kafka ``max.in.flight.requests.per.connection``."""
_LATELY_S = 0.1


class UnboundedSenders:
    """The clients that did so recently, within two periods of 0.1 s."""

    __slots__ = ("_since_s", "_size_bytes", "_there", "_were_many")

    def __init__(self) -> None:
        self._since_s = float("-inf")
        """The beginning of the present period; requests of the period directly before it count, too."""
        self._there: set[int] = set()
        self._size_bytes = 0
        self._were_many = False

    def note(self, sender: int, size_bytes: int, now_s: float) -> None:
        """Record that a client has sent a request while :data:`MOST_BOUNDED` or more of its own were unanswered."""
        lasts_s = now_s - self._since_s
        if lasts_s >= _LATELY_S:
            self._were_many = self._are_many_now and lasts_s < 2 * _LATELY_S
            self._since_s, self._size_bytes = now_s, 0
            self._there.clear()
        self._there.add(sender)
        self._size_bytes += size_bytes

    @property
    def _are_many_now(self) -> bool:
        return len(self._there) >= MANY_CONNECTIONS and self._size_bytes >= MUCH_BYTES

    def are_many(self, now_s: float) -> bool:
        """Whether so many send so much that the next round should wait for more requests."""
        lasts_s = now_s - self._since_s
        return (self._were_many and lasts_s < _LATELY_S) or (self._are_many_now and lasts_s < 2 * _LATELY_S)
