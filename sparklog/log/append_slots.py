"""The ordinary files of an append, and which of the batches in them that their producers numbered are stored (rule L15,
numbered batches). Calls no store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.log.data.data_files import StagedFile
from sparklog.log.data.encode import EncodedBatch, decode_file, encode_batch
from sparklog.log.data.producer_batch import FileRows, ProducerBatch
from sparklog.log.data.value_columns import Leaf
from sparklog.log.producer_batches import ProducerBatches, Verdict
from sparklog.log.state import TopicState

__all__ = ["Slot", "judge_slots", "new_batches", "rows_of"]

_I64 = npt.NDArray[np.int64]


@dataclass(slots=True)
class Slot:
    """An ordinary file of an append."""

    files: list[StagedFile]
    """The names under which it was uploaded, the newest last. The first holds all of its records."""
    order: int
    """Its upload's, among all of the writer."""
    verdicts: Sequence[Verdict] = ()
    """The newest judgement of the batches of the first file."""
    held: tuple[bool, ...] = field(default=())
    """Which of them the newest file holds."""
    is_empty: bool = False
    """Nothing of it is left to be stored."""

    def __post_init__(self) -> None:
        self.held = (True,) * len(self.files[0].batches)

    @property
    def newest(self) -> StagedFile:
        """The file that is to be published."""
        return self.files[-1]

    @property
    def wanted(self) -> tuple[bool, ...]:
        """Which batches are to be stored."""
        return tuple(verdict.is_new for verdict in self.verdicts)

    @property
    def is_right(self) -> bool:
        """Does the newest file hold what is to be stored?"""
        return self.wanted == self.held

    def mask(self) -> npt.NDArray[np.bool_]:
        """Which rows of the first file are to be stored."""
        rows = np.ones(self.files[0].facts.record_count, bool)
        for placed, is_wanted in zip(self.files[0].batches, self.wanted, strict=True):
            rows[placed.rows] = is_wanted
        return rows

    def encoded_anew(self, leaves: Sequence[Leaf]) -> EncodedBatch | None:
        """The records that are to be stored; None: there are none. Raises ``CorruptRecordError``."""
        first, mask = self.files[0], self.mask()
        if not mask.any():
            return None
        records = decode_file(first.path, first.batch.data).filter(pa.array(mask))
        return encode_batch(records, first.batch.stamp, leaves=leaves)


def judge_slots(slots: Sequence[Slot], known: ProducerBatches, state: TopicState) -> None:
    """Judge the batches of all slots, in their order, by a topic as of the newest entry that was noted."""
    verdicts = iter(known.judge(_batches(slots), knows_all=known.knows_all(state)))
    for slot in slots:
        slot.verdicts = [next(verdicts) for _ in slot.files[0].batches]


def _batches(slots: Sequence[Slot]) -> list[tuple[int, ProducerBatch]]:
    return [(slot.files[0].partition, placed.batch) for slot in slots for placed in slot.files[0].batches]


def new_batches(slots: Sequence[Slot], bases: Mapping[str, int]) -> list[tuple[int, ProducerBatch, int]]:
    """The batches that are to be stored: partition, batch, and the offset of its first record.

    Args:
        bases: the offset of the first record of each newest file, by path.
    """
    found = []
    for slot in slots:
        if slot.is_empty or not slot.files[0].batches or slot.newest.path not in bases:
            continue
        offsets = _stored_offsets(slot, bases[slot.newest.path])
        for placed, is_wanted in zip(slot.files[0].batches, slot.wanted, strict=True):
            if is_wanted:
                found.append((slot.files[0].partition, placed.batch, int(offsets[placed.start])))
    return found


def _stored_offsets(slot: Slot, base_offset: int) -> _I64:
    """The offsets of the rows that are stored by this append; -1 of the others."""
    mask = slot.mask()
    return np.where(mask, base_offset + np.cumsum(mask) - 1, -1)


def rows_of(slots: Sequence[Slot], base_offsets: Sequence[int]) -> list[FileRows | None]:
    """The fate of the rows of each slot; None: they are all stored, from its base offset on.

    Args:
        base_offsets: of each slot; -1 of an empty one.
    """
    if all(verdict.is_new for slot in slots for verdict in slot.verdicts):
        return [None] * len(slots)
    firsts: list[int] = []
    """The offset of each batch, over all slots."""
    result: list[FileRows | None] = []
    for slot, base_offset in zip(slots, base_offsets, strict=True):
        offsets = _stored_offsets(slot, base_offset)
        refused = []
        for placed, verdict in zip(slot.files[0].batches, slot.verdicts, strict=True):
            first = firsts[verdict.same_as] if verdict.same_as is not None else verdict.offset
            if first is not None:
                offsets[placed.rows] = first + np.arange(placed.batch.count)
            elif verdict.error is not None:
                refused.append((placed.rows, verdict.error))
            firsts.append(int(offsets[placed.start]))
        result.append(FileRows(offsets=offsets, refused=tuple(refused)))
    return result
