"""Watchers of new producers and consumers: nobody, or :mod:`sparklog.opentelemetry`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["announce", "on_new_client"]

_WATCHING: list[Callable[[Any], object]] = []


def on_new_client(watch: Callable[[Any], object]) -> Callable[[], None]:
    """Have ``watch`` called with each producer and consumer that is made from now on, as the last step of making it.

    Returns:
        Ends it; may be called again.
    """
    _WATCHING.append(watch)

    def end() -> None:
        if watch in _WATCHING:
            _WATCHING.remove(watch)

    return end


def announce(client: Any) -> None:
    """Report a new client."""
    for watch in [*_WATCHING] if _WATCHING else ():
        watch(client)
