"""The live files of a topic: do they give each offset once, and is each between start and end there? Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from sparklog.integrity.findings import Code, Finding, Subject
from sparklog.integrity.history import TopicHistory
from sparklog.integrity.ranges import Range, RangeSet, within, without
from sparklog.log.data.segments import Segment, SegmentIndex, overlapping
from sparklog.log.head import TopicHead, cleaner_app_id

__all__ = ["check_foreign", "check_history_against", "check_live", "check_partition", "tells_its_offsets"]

OffsetsOf = Callable[[Segment], Collection[int] | None]
"""Reads the offsets of a file's records; None: it can't be read."""
_MOST_REPORTED = 20
"""Ranges of one partition: the rest is counted."""


def check_live(
    topic: str,
    head: TopicHead,
    index: SegmentIndex,
    history: TopicHistory,
    transactions: Collection[str],
    *,
    offsets_of: OffsetsOf,
) -> Iterator[Finding]:
    """Every partition of a topic that isn't deleted, and files of no partition.

    Args:
        transactions: the appIds of the table's ``txn`` actions.
        offsets_of: asked where statistics don't tell whether files share offsets.
    """
    compacts = "compact" in str(head.config["cleanup.policy"]).split(",")
    for segment in index.by_path.values():
        partition = segment.partition
        if segment.base_offset is not None and (partition is None or not 0 <= partition < head.partition_count):
            yield Finding(
                code=Code.PARTITION_UNKNOWN,
                subject=Subject(topic=topic, path=segment.path),
                seen=f"it is of partition {partition}",
                expected=f"one of 0 to {head.partition_count - 1}",
            )
    for partition in range(head.partition_count):
        yield from check_partition(
            Subject(topic=topic, partition=partition),
            index.partition(partition),
            refused=[one for one in index.refused() if one.partition == partition],
            start=head.log_start_offsets[partition],
            end=head.log_end_offsets[partition],
            told_end=_told_end(partition, history),
            told_version=history.own_version,
            known_from=history.known_from.get(partition, head.log_end_offsets[partition]),
            explained=history.explained.get(partition, RangeSet()).ranges(),
            is_compacted=compacts or cleaner_app_id("offset", head.topic_id, partition) in transactions,
            offsets_of=offsets_of,
        )


def check_partition(
    subject: Subject,
    segments: Sequence[Segment],
    *,
    refused: Sequence[Segment] = (),
    start: int,
    end: int,
    told_end: int | None,
    told_version: int,
    known_from: int,
    explained: Sequence[Range],
    is_compacted: bool = False,
    offsets_of: OffsetsOf = lambda segment: None,
) -> Iterator[Finding]:
    """Check the offsets of one partition.

    Args:
        segments: in offset order.
        refused: files of the partition that no reader shows.
        start, end: of the log.
        told_end: the log end as the newest entry of ours states it, which is of ``told_version``; None: not known.
        known_from: from this offset on the kept log records everything that ever happened.
        explained: offsets that may have no record.
        is_compacted: records may have been deleted by key at any time.
        offsets_of: see :func:`check_live`.
    """
    yield from _above(subject, segments, told_end=told_end, told_version=told_version)
    yield from _overlaps(subject, segments, refused, offsets_of)
    covered = RangeSet()
    for segment in segments:
        if tells_its_offsets(segment):
            covered.add(segment.first_offset, segment.last_offset + 1)
        elif segment.base_offset is not None:  # nobody could look into it: a finding about the file
            return
    missing = without([(start, end)] if start < end else [], covered.ranges())
    for code, ranges, expected in (
        (
            Code.OFFSETS_MISSING,
            without(within(missing, known_from, end), explained),
            "records: nothing in the log that is kept removes them",
        ),
        (
            Code.OFFSETS_MISSING_LONG_AGO,
            [] if is_compacted else without(within(missing, start, known_from), explained),
            "records, unless they were deleted by key or by SQL before the oldest log entry that is kept",
        ),
    ):
        if ranges:
            count = sum(last - first for first, last in ranges)
            listed = ", ".join(f"{first} to {last - 1}" for first, last in ranges[:_MOST_REPORTED])
            more = f", … ({len(ranges)} ranges)" if len(ranges) > _MOST_REPORTED else ""
            yield Finding(
                code=code, subject=subject, seen=f"{count} offsets have none: {listed}{more}", expected=expected
            )


def check_history_against(
    history: TopicHistory,
    live: Mapping[str, object],
    transactions: Mapping[str, int],
    *,
    subject: Subject,
    is_whole: bool,
) -> Iterator[Finding]:
    """Does a loaded table, by its checkpoint, say the same as the log that is kept?

    Args:
        live: by path.
        transactions: the version of each ``txn`` action, by appId.
        is_whole: the log is kept from its very first entry on.
    """
    lost = [path for path, is_live in history.live.items() if is_live and path not in live]
    risen = [path for path, is_live in history.live.items() if not is_live and path in live]
    if is_whole:
        risen += [path for path in live if path not in history.live]
    for paths, seen, expected in (
        (lost, "aren't live in the loaded table", "to be live: the log adds and never removes them"),
        (risen, "are live in the loaded table", "not to be: the log removes or never adds them"),
    ):
        if paths:
            yield Finding(
                code=Code.CHECKPOINT_DIFFERS,
                subject=subject,
                seen=f"{len(paths)} files {seen}: {', '.join(sorted(paths)[:3])}",
                expected=expected,
            )
    for app_id, version in history.lasting.items():
        if transactions.get(app_id) != version:
            yield Finding(
                code=Code.CHECKPOINT_DIFFERS,
                subject=subject,
                seen=f"action {app_id} is {transactions.get(app_id)} in the loaded table",
                expected=f"{version}, as the log says",
            )


def _told_end(partition: int, history: TopicHistory) -> int | None:
    head = history.own_head
    return head.log_end_offsets[partition] if head is not None and partition < head.partition_count else None


def _above(
    subject: Subject, segments: Sequence[Segment], *, told_end: int | None, told_version: int
) -> Iterator[Finding]:
    """Files beyond what the newest entry of ours states, that aren't newer than it."""
    for segment in segments:
        if told_end is not None and segment.delta_version <= told_version and segment.last_offset >= told_end:
            yield Finding(
                code=Code.OFFSETS_ABOVE_END,
                subject=_of(subject, segment),
                seen=f"it ends at offset {segment.last_offset}",
                expected=f"offsets below {told_end}, the log end",
            )


def check_foreign(topic: str, index: SegmentIndex, table: str) -> Iterator[Finding]:
    """Files that are refused, and partitions that stop (rule F6, moved records)."""
    for partition, stop in sorted(index.stopped().items()):
        yield Finding(
            code=Code.PARTITION_STOPPED,
            subject=Subject(topic=topic, partition=partition, delta_version=stop.version),
            seen=str(stop.error(table)),
            expected="records under the offsets that they had",
        )
    for segment in sorted(index.refused(), key=lambda one: one.path):
        yield Finding(
            code=Code.FOREIGN_FILE_REFUSED,
            subject=Subject(topic=topic, partition=segment.partition, path=segment.path),
            seen=f"another engine wrote it, in version {index.rewrites.refused[segment.path]}, with base_offset "
            f"{segment.base_offset}, which that commit removed no such records from",
            expected="null in base_offset, as sparklog gives offsets. No reader shows the file: delete its rows, and "
            "write them again without base_offset",
        )


def tells_its_offsets(segment: Segment) -> bool:
    """Is it known how many records the file has, and which offsets? Its times may be unknown."""
    return None not in (segment.record_count, segment.min_offset_delta, segment.max_offset_delta)


def _overlaps(
    subject: Subject, segments: Sequence[Segment], refused: Sequence[Segment], offsets_of: OffsetsOf
) -> Iterator[Finding]:
    known = [segment for segment in (*segments, *refused) if tells_its_offsets(segment)]
    known.sort(key=lambda one: (one.first_offset, one.last_offset, one.is_refused, one.path))
    for segment in known:
        span = segment.last_offset - segment.first_offset + 1
        if not 1 <= (segment.record_count or 0) <= span or (segment.min_offset_delta or 0) < 0:
            yield Finding(
                code=Code.STATS_WRONG,
                subject=_of(subject, segment),
                seen=f"{segment.record_count} records at {segment.first_offset} to {segment.last_offset}",
                expected="at least one record, and no more than offsets",
            )
    for together in overlapping(known):
        if len(together) == 1:
            continue
        first = together[0].first_offset
        span = max(other.last_offset for other in together) - first + 1
        count = sum(other.record_count or 0 for other in together)
        has_one_base = len({other.base_offset for other in together}) == 1
        if count > span or not (has_one_base or _are_disjoint(together, offsets_of)):
            yield Finding(
                code=Code.OFFSETS_OVERLAP,
                subject=_of(subject, together[1]),
                seen=f"it holds {together[1].first_offset} to {together[1].last_offset}, and {together[0].path} "
                f"{together[0].first_offset} to {together[0].last_offset}",
                expected="each offset in one file",
            )


def _are_disjoint(together: Sequence[Segment], offsets_of: OffsetsOf) -> bool:
    """Is each offset in one of these files? A merge closes the hole that a removed file leaves in its range, and
    another engine's ``RESTORE`` may put the file back into it."""
    seen: set[int] = set()
    count = 0
    for segment in together:
        offsets = offsets_of(segment)
        if offsets is None:
            return False
        seen.update(offsets)
        count += len(offsets)
    return len(seen) == count


def _of(subject: Subject, segment: Segment) -> Subject:
    return Subject(topic=subject.topic, partition=subject.partition, path=segment.path)
