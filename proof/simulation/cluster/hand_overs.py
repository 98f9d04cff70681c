"""When the members of groups handed partitions over to their applications."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from sparklog.groups.membership.membership import Membership

__all__ = ["HandOvers"]


class HandOvers:
    """The moments of all hand-overs, as orders of events in a history.

    A member that slept past its session finds out as it hands partitions over, and hands nothing over then. Afterwards
    its process may be suspended for as long as one likes, before its listener writes down what it was given: a start is
    judged by what the group had committed when it was handed over.

    Args:
        next_order: of the event that the history will have next.
        process_name: of the process that acts now.
    """

    def __init__(self, next_order: Callable[[], int], process_name: Callable[[], str]) -> None:
        self._next_order = next_order
        self._process_name = process_name
        self._orders: dict[str, list[int]] = {}
        """By process: what the next event's order was at each of its hand-overs."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note each hand-over of every member."""
        hand_over = Membership.hand_over

        def noted(membership: Membership, *arguments: Any) -> Any:
            rows = hand_over(membership, *arguments)
            if rows:
                self._orders.setdefault(self._process_name(), []).append(self._next_order())
            return rows

        with mock.patch.object(Membership, "hand_over", noted):
            yield

    def order_of(self, client: str, order: int) -> int:
        """The next event's order when a client was handed what it wrote down in the event of this ``order``; ``order``
        itself where nothing is known of its process.

        Args:
            client: its name begins with that of its process and a slash.
        """
        orders = self._orders.get(client.partition("/")[0], [])
        number = bisect_right(orders, order)
        return orders[number - 1] if number else order
