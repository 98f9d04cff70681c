"""Objects that have to see every entry which a topic's state applies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sparklog.delta.actions import Entry

if TYPE_CHECKING:
    from sparklog.log.state import TopicState

__all__ = ["StateObserver", "StateObservers"]


class StateObserver(Protocol):
    """An observer that has to see every entry that a state applies."""

    def note_entry(self, entry: Entry) -> None:
        """Note an entry that was applied, whoever created it. Calls no store, and raises nothing."""

    def note_loaded(self, state: TopicState) -> None:
        """Note a topic that was loaded anew: some entries may have been passed over. Calls no store, and raises
        nothing."""


@dataclass(frozen=True, slots=True)
class StateObservers:
    """Several observers, in their order."""

    all: tuple[StateObserver, ...]

    def note_entry(self, entry: Entry) -> None:
        """Tell all of them."""
        for observer in self.all:
            observer.note_entry(entry)

    def note_loaded(self, state: TopicState) -> None:
        """Tell all of them."""
        for observer in self.all:
            observer.note_loaded(state)
