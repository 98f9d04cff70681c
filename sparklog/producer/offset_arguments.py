"""The arguments of ``send_offsets_to_transaction``, checked."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.errors import InvalidArgumentError, InvalidTypeError
from sparklog.groups.offsets.changes import check_offset
from sparklog.model import ConsumerGroupMetadata, TopicPartition

__all__ = ["check_offsets"]


def check_offsets(offsets: object, metadata: object) -> None:
    """Check that these are offsets by partition, and the metadata of a consumer that has a group.

    Raises ``InvalidTypeError``, ``InvalidArgumentError``."""
    if not isinstance(offsets, Mapping):
        raise InvalidTypeError(
            f"offsets: got {type(offsets).__name__}, expected a dict of TopicPartition to OffsetAndMetadata"
        )
    for partition, committed in offsets.items():
        if not isinstance(partition, tuple) or not isinstance(committed, tuple):
            raise InvalidTypeError(
                f"offsets: got {partition!r}: {committed!r}, expected TopicPartition: OffsetAndMetadata"
            )
        check_offset(TopicPartition(*partition), committed)  # type: ignore[arg-type]
    if not isinstance(metadata, ConsumerGroupMetadata):
        raise InvalidTypeError(
            f"group_metadata: got {type(metadata).__name__}, expected the result of the consumer's group_metadata()"
        )
    if not metadata.group_id:
        raise InvalidArgumentError("group_metadata: expected the metadata of a consumer that has a group_id")
