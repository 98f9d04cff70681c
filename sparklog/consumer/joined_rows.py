"""Small batches of records are concatenated to larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pyarrow as pa

from sparklog.log.data.few_rows import FEW_RECORDS, FewRows, Rows, as_batch
from sparklog.log.data.record_streaming import RECORD_SCHEMA

__all__ = ["joined"]


def joined(batches: list[Rows], piece_bytes: int) -> list[Rows]:
    """The same records in their order, with small batches put together up to about ``piece_bytes``."""
    if len(batches) == 1:
        return batches
    parts: list[Rows] = []
    few: list[Rows] = []
    size = 0
    for batch in batches:
        is_other = bool(few) and not _alike(batch, few[0])  # its topic has a new schema since
        if few and (is_other or size + batch.nbytes > piece_bytes):
            parts.append(_concat(few))
            few, size = [], 0
        few.append(batch)
        size += batch.nbytes
    return [*parts, _concat(few)] if few else parts


def _alike(batch: Rows, other: Rows) -> bool:
    """Can these be one batch? All that is plain records is of one schema."""
    schemas = [each.schema if isinstance(each, pa.RecordBatch) else RECORD_SCHEMA for each in (batch, other)]
    return schemas[0] is schemas[1] or bool(schemas[0] == schemas[1])


def _concat(batches: Sequence[Rows]) -> Rows:
    """Batches as one. Of many records, those of a consumer that is behind, Arrow makes Python's more quickly."""
    together: list[Rows] = []
    for are_few, same in groupby(batches, lambda batch: isinstance(batch, FewRows)):
        parts = [*same]
        together += [FewRows.together([part for part in parts if isinstance(part, FewRows)])] if are_few else parts
    if len(together) == 1:
        rows = together[0]
        return as_batch(rows) if isinstance(rows, FewRows) and rows.num_rows > FEW_RECORDS else rows
    return pa.concat_batches([as_batch(each) for each in together])
