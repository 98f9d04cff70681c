"""Whether many clients of a topic send requests without bounding how many are unanswered. Pure."""

from __future__ import annotations

__all__ = ["MANY_CONNECTIONS", "MOST_BOUNDED", "MUCH_BYTES", "UnboundedSenders"]

MANY_CONNECTIONS = 8
MUCH_BYTES = 131_072
"""The least bytes, of a round or of what came recently, for which a round is held."""
MOST_BOUNDED = 5
"""The most unanswered requests of a client that bounds them: Kafka's default, and the most for an idempotent client.
Source: Kafka ``max.in.flight.requests.per.connection``."""
_PERIOD_S = 0.1
_KNOWN_S = 60.0
"""A client is known for as long as it goes on sending, and for one to two of these times after that."""


class UnboundedSenders:
    """The clients that had more than :data:`MOST_BOUNDED` unanswered requests at once, and how much they send.

    A client that did so once doesn't wait for answers, also while a quick store answers each of its requests at once.
    What counts is what such clients sent in the present period or in the one directly before it.
    """

    __slots__ = ("_known", "_known_before", "_known_since_s", "_senders", "_since_s", "_size_bytes", "_were_many")

    def __init__(self) -> None:
        self._known: set[int] = set()
        self._known_before: set[int] = set()
        self._known_since_s = float("-inf")
        self._since_s = float("-inf")
        """The beginning of the present period."""
        self._senders: set[int] = set()
        self._size_bytes = 0
        self._were_many = False

    def note(self, sender: int, unanswered: int, size_bytes: int, now_s: float) -> None:
        """Record a request of a client, of whose requests so many, without this one, are unanswered."""
        if unanswered < MOST_BOUNDED and sender not in self._known and sender not in self._known_before:
            return
        if now_s - self._known_since_s >= _KNOWN_S:
            self._known_before, self._known, self._known_since_s = self._known, set(), now_s
        self._known.add(sender)
        lasts_s = now_s - self._since_s
        if lasts_s >= _PERIOD_S:
            self._were_many = self._are_many_now and lasts_s < 2 * _PERIOD_S
            self._since_s, self._size_bytes = now_s, 0
            self._senders.clear()
        self._senders.add(sender)
        self._size_bytes += size_bytes

    @property
    def _are_many_now(self) -> bool:
        return len(self._senders) >= MANY_CONNECTIONS and self._size_bytes >= MUCH_BYTES

    def are_many(self, now_s: float) -> bool:
        """Whether so many send so much that the next round should wait for more requests."""
        lasts_s = now_s - self._since_s
        return (self._were_many and lasts_s < _PERIOD_S) or (self._are_many_now and lasts_s < 2 * _PERIOD_S)
