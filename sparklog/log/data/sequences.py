"""The numbers that a writer's records carry: its producer's id and epoch, and a sequence in each partition."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sparklog.log.data.producer_stamp import ProducerStamp, next_sequence

__all__ = ["NumberedBatches", "ProducerSequences"]


class NumberedBatches(NamedTuple):
    """The stamps of batches that were numbered together."""

    stamps: tuple[ProducerStamp, ...]
    """One for each batch, in the order in which they were given."""
    turn: int
    """How often something was numbered, given back or renewed by then."""
    before: Mapping[int, int]
    """The next sequence of each partition as it was before."""


class ProducerSequences:
    """A producer's id and epoch, and the next sequence of each partition. Safe for several threads."""

    def __init__(self, producer_id: int) -> None:
        self._lock = threading.Lock()
        self._producer_id = producer_id
        self._producer_epoch = 0
        self._next: dict[int, int] = {}
        self._turn = 0

    @property
    def producer_id(self) -> int:
        """63 bits."""
        return self._producer_id

    @property
    def producer_epoch(self) -> int:
        """0 … 32767."""
        return self._producer_epoch

    def begin_anew(self, producer_id: int, producer_epoch: int = 0) -> None:
        """Number from 0 on, in the name of this producer; nothing changes where it is the same as before."""
        with self._lock:
            if (self._producer_id, self._producer_epoch) != (producer_id, producer_epoch):
                self._producer_id, self._producer_epoch, self._next = producer_id, producer_epoch, {}
                self._turn += 1

    def number(self, batches: Iterable[tuple[int, int]]) -> NumberedBatches:
        """The stamps of batches of (partition, number of records); what follows goes on behind them."""
        with self._lock:
            before = dict(self._next)
            stamps = []
            for partition, count in batches:
                stamp = ProducerStamp(self._producer_id, self._producer_epoch, self._next.get(partition, 0))
                self._next[partition] = next_sequence(stamp.base_sequence, count)
                stamps.append(stamp)
            self._turn += 1
            return NumberedBatches(stamps=tuple(stamps), turn=self._turn, before=before)

    def give_back(self, numbered: NumberedBatches) -> None:
        """Let these numbers be given again, for records that were never sent: unless others came behind them, which
        then leave a gap, as nothing forbids."""
        with self._lock:
            if self._turn == numbered.turn:
                self._next = dict(numbered.before)
                self._turn += 1
