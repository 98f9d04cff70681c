"""The rows of a checkpoint as Python values, whichever process reads its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # loads Arrow
    from sparklog.delta.checkpoint_rows import CheckpointPartFile
    from sparklog.delta.producer_states import CheckpointStates

__all__ = ["CheckpointContent", "CheckpointReader", "Row"]

Row = Mapping[str, Any]
"""The fields of an action by their names; a map is a list of pairs, or a mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """The rows of a checkpoint, by kind of action."""

    transactions: Sequence[Row]
    """Without :attr:`states`."""
    metadata: Sequence[Row]
    protocol: Sequence[Row]
    file_rows: Sequence[Row] | None = None
    """Its live files, with the columns of :attr:`sparklog.delta.snapshot.Snapshot.files`; None: they are read from
    :attr:`parts`."""
    parts: Sequence[CheckpointPartFile] = ()
    """Its files, opened, for whoever wants its live files; empty where another process has read them."""
    states: Sequence[CheckpointStates] = ()
    """States of producers that aren't decoded yet; for whoever only observes, none."""


CheckpointReader = Callable[[Mapping[str, bytes]], CheckpointContent]
"""Reads a checkpoint's files, given by path. Raises ``CorruptLogError``, which names the file."""
