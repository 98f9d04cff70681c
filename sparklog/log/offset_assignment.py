"""The offsets of new data files. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sparklog.delta.actions import AddFile
from sparklog.log.data.data_files import UploadedFile
from sparklog.log.head import TopicHead

__all__ = ["AssignedOffsets", "assign_offsets"]


class AssignedOffsets(NamedTuple):
    """Data files with their offsets, and the topic that has them."""

    base_offsets: tuple[int, ...]
    """Offset of the first record of each file, in the order in which the files were given."""
    adds: tuple[AddFile, ...]
    """The actions that add the files, in the same order."""
    head: TopicHead
    """The topic afterwards; ``delta_version`` is as before."""


def assign_offsets(
    head: TopicHead, files: Sequence[UploadedFile], *, no_partition: Callable[[UploadedFile], Exception]
) -> AssignedOffsets:
    """Assign offsets: each file starts at its partition's log end offset, several of one partition follow one another.

    Args:
        no_partition: makes the error for a file whose partition the topic doesn't have.
    Raises:
        Exception: the one that ``no_partition`` makes.
    """
    ends = list(head.log_end_offsets)
    base_offsets: list[int] = []
    for file in files:
        if not 0 <= file.partition < len(ends):
            raise no_partition(file)
        base_offsets.append(ends[file.partition])
        ends[file.partition] += file.record_count
    return AssignedOffsets(
        base_offsets=tuple(base_offsets),
        adds=tuple([file.to_add(base_offset) for file, base_offset in zip(files, base_offsets, strict=True)]),
        head=head.moved(
            delta_version=head.delta_version,
            log_end_offsets=tuple(ends),
            live_file_count=head.live_file_count + len(files),
            totals=head.totals,
        ),
    )
