"""Maintenance reports for people and programs: as rows of a table, or as plain values for JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from sparklog.compaction.reports import MaintenanceReport, TopicMaintenance
from sparklog.compaction.topic_access import may_succeed_later
from sparklog.errors import SparklogError
from sparklog.log.data.segments import can_format_timestamp, format_timestamp

__all__ = ["COLUMNS", "NUMBERS", "as_plain", "error_as_plain", "report_as_plain", "report_rows"]

Row = tuple[str, str, int | None, int | None, str]
"""Topic or group, step, files, bytes, and what became of them."""

COLUMNS = ("topic", "step", "files", "bytes", "result")
NUMBERS = ("files", "bytes")
"""The columns that hold numbers."""


def report_rows(report: MaintenanceReport) -> list[Row]:
    """The rows of a report: what was done, or would be. A step that had nothing to do has none."""
    return [*_rows_of_cluster(report), *(row for topic in report.topics for row in _rows(topic))]


def _rows_of_cluster(report: MaintenanceReport) -> Iterator[Row]:
    for recovered in report.transactions:
        if recovered.action.value != "nothing":
            yield "", "transactions", None, None, f"{recovered.transactional_id}: {recovered.action.value}"
    for group in report.groups:
        if group.expired_offsets or group.deleted:
            gone = "; the group is empty and gone" if group.deleted else ""
            result = f"{group.group}: offsets of {group.expired_offsets} partitions expired{gone}"
            yield "", "groups", group.files_deleted, None, result


def _rows(topic: TopicMaintenance) -> Iterator[Row]:
    name = topic.topic
    if topic.sequence is not None and (topic.sequence.sequenced_files or topic.sequence.refused):
        refused = f", {len(topic.sequence.refused)} refused" if topic.sequence.refused else ""
        yield name, "sequence", topic.sequence.sequenced_files, None, f"offsets given{refused}"
    if topic.retention is not None and (topic.retention.removed_files or topic.retention.log_start_offsets):
        moved = topic.retention.log_start_offsets
        starts = ", ".join(f"{number} from {new}" for number, (_, new) in moved.items())
        result = f"removed; logs begin: {starts}" if starts else "removed"
        yield name, "retention", topic.retention.removed_files, topic.retention.removed_bytes, result
    for cleaned in topic.compact.partitions if topic.compact is not None else ():
        if cleaned.outcome is not None:
            counts = cleaned.counts
            what = f"{counts.dropped} of {counts.records} records dropped"
            if cleaned.outcome.value != "done":
                what = (
                    f"{cleaned.outcome.value} ({cleaned.reason.value}), {cleaned.dirty_ratio:.0%} dirty, "
                    f"{cleaned.tombstones_due} tombstones due"
                )
                oldest_ms = cleaned.oldest_dirty_ms
                if oldest_ms is not None:
                    oldest = format_timestamp(oldest_ms) if can_format_timestamp(oldest_ms) else f"{oldest_ms} ms"
                    what += f", oldest of {oldest}"
            result = f"partition {cleaned.partition}: {what}"
            yield name, "compact", cleaned.files_before, cleaned.bytes_before, result
    for merged in topic.optimize.ranges if topic.optimize is not None else ():
        what = f"into {merged.files_after}" if merged.outcome.value == "done" else merged.outcome.value
        result = f"partition {merged.partition}, offsets {merged.first_offset} to {merged.last_offset}: {what}"
        yield name, "optimize", merged.files_before, merged.bytes_before, result
    vacuum = topic.vacuum
    if vacuum is not None and (
        vacuum.files_deleted or vacuum.entries_deleted or vacuum.expired_ids or vacuum.checkpoint_version is not None
    ):
        entries = f", {vacuum.entries_deleted} log entries" if vacuum.entries_deleted else ""
        checkpoint = "" if vacuum.checkpoint_version is None else f"; checkpoint {vacuum.checkpoint_version}"
        ids = f"; {vacuum.expired_ids} expired transactional ids let go" if vacuum.expired_ids else ""
        yield name, "vacuum", vacuum.files_deleted, vacuum.bytes_deleted, f"deleted{entries}{checkpoint}{ids}"
    for folder in vacuum.spared_folders if vacuum is not None else ():
        yield name, "vacuum", 0, 0, f"{folder} holds another cluster or table: nothing there was deleted"


def report_as_plain(report: MaintenanceReport) -> dict[str, Any]:
    """A report as JSON has it, with what follows from it: what went wrong, and whether it may succeed later."""
    return {**as_plain(report), "failures": report.failures, "may_succeed_later": report.may_succeed_later}


def error_as_plain(error: SparklogError) -> dict[str, Any]:
    """An error as JSON has it in place of a report."""
    return {"error": str(error), "retriable": may_succeed_later(error)}


def as_plain(value: Any) -> Any:
    """A value of a report as JSON has it."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(as_plain(key)): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return str(value) if isinstance(value, Exception) else value
