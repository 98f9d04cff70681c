"""The records of a partition that are being processed, and the offset below which all are done: only that may be
committed.

What a record sends is kept until everything before it is done, and is sent in the transaction that commits its offset.
So no output is visible whose input may be processed again (decision 0029).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from sparklog.errors import HandlerError
from sparklog.model import ConsumerRecord, TopicPartition
from sparklog.processing.moves import DeadLetter, Output

__all__ = ["NOTHING", "Entry", "Frontier"]

NOTHING: tuple[Output, ...] = ()


class Entry:
    """A record under way. The thread that handles it sets ``is_done`` last; from then on it doesn't change."""

    __slots__ = (
        "attempts",
        "batch",
        "due_ticks_ms",
        "frontier",
        "is_alone",
        "is_delayed",
        "is_done",
        "is_given_back",
        "letter",
        "number",
        "outputs",
        "record",
        "span",
        "stuck",
    )

    def __init__(
        self, record: ConsumerRecord, frontier: Frontier, attempts: int = 0, due_ticks_ms: float = 0.0
    ) -> None:
        self.record = record
        self.frontier = frontier
        self.attempts = attempts
        """Tries that have failed."""
        self.due_ticks_ms = due_ticks_ms
        """Not to be tried before."""
        self.is_alone = False
        """To be tried without others of its batch, which failed."""
        self.is_delayed = False
        """It was moved to a delay topic."""
        self.is_done = False
        self.is_given_back = False
        """Its try failed, and its share group is to deliver it again from ``due_ticks_ms`` on."""
        self.outputs = NOTHING
        """The records to be sent once it is done."""
        self.batch: tuple[Entry, ...] = ()
        """All entries of a batch that sends something, whose outputs its last entry has; else none."""
        self.number = -1
        """How many entries its frontier has passed before it; known where one that passed with it has outputs."""
        self.letter: DeadLetter | None = None
        """Set where it was moved to the dead letters."""
        self.span: Any = None
        """The span of the newest try, where it is traced."""
        self.stuck: HandlerError | None = None
        """Set where its try has failed and it has nowhere to go: nothing behind it is passed."""


class Frontier:
    """The entries of one partition, in its order, for as long as this worker has it.

    For one thread; others look at ``is_live`` and finish entries.
    """

    __slots__ = (
        "_entries",
        "_gap_end",
        "error",
        "in_flight_bytes",
        "is_delayed",
        "is_live",
        "partition",
        "passed",
        "topic_id",
    )

    def __init__(self, partition: TopicPartition, *, is_delayed: bool = False) -> None:
        self.partition = partition
        self.is_delayed = is_delayed
        """Is it one of a delay topic?"""
        self.is_live = True
        """False: nothing more of it is to be begun."""
        self.in_flight_bytes = 0
        """Bytes of the values of its entries."""
        self.topic_id: str | None = None
        """The id of its topic or, of a delay topic, of the topic whose records wait there; None: it isn't known."""
        self.passed = 0
        """Entries that were passed."""
        self.error: HandlerError | None = None
        """Why it goes no further, where a record of it has nowhere to go."""
        self._entries: deque[Entry] = deque()
        self._gap_end: int | None = None

    @property
    def in_flight(self) -> int:
        """Entries that are not passed yet."""
        return len(self._entries)

    def is_due(self, now_ticks_ms: float) -> bool:
        """May its first entry be tried now?"""
        return bool(self._entries) and self._entries[0].due_ticks_ms <= now_ticks_ms

    def add(self, entries: Iterable[Entry], size_bytes: int) -> None:
        """Add what was read next.

        Args:
            size_bytes: of the values, all together.
        """
        self._entries.extend(entries)
        self.in_flight_bytes += size_bytes
        self._gap_end = None

    def add_gap(self, end: int) -> None:
        """Add that no records are left between what was added and an offset: others have deleted them."""
        self._gap_end = end

    def advance(self) -> list[Entry]:
        """Take out the entries that are done, up to the first that isn't; in their order."""
        entries, passed = self._entries, []
        while entries and entries[0].is_done and entries[0].stuck is None:
            passed.append(entries.popleft())
        if passed:
            self.passed += len(passed)
            self.in_flight_bytes -= sum(max(0, entry.record.serialized_value_size) for entry in passed)
        return passed

    def pass_gap(self) -> int | None:
        """The offset up to which nothing is left where all entries are passed; once. None: there is no such gap, or
        something before it isn't passed."""
        if self._entries or self.error is not None:
            return None
        end, self._gap_end = self._gap_end, None
        return end

    @property
    def stuck(self) -> HandlerError | None:
        """Why its first entry has nowhere to go, where it is so."""
        first = self._entries[0] if self._entries else None
        return first.stuck if first is not None and first.is_done else None

    def stop(self, error: HandlerError) -> None:
        """Go no further, and forget the entries: whoever has the partition next reads them again."""
        self.is_live, self.error = False, error
        self._entries.clear()
        self.in_flight_bytes = 0
