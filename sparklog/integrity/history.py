"""A topic's log, entry by entry: does each follow from the one before, and what do they add up to? Pure.

The rules are those that writers decide by: ends move by as many records as an append adds (``plan_append``), a
producer's counters go on by one (``is_duplicate_commit``), ``txn`` actions and ``commitInfo`` state the same starts and
ends, which never decrease (protocol rule L6, start and end), a merge of files keeps every record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparklog.delta.actions import FAR_FUTURE_MS, AddFile, Entry, RemoveFile, SetTransaction
from sparklog.errors import NotATopicError, SparklogError
from sparklog.integrity.findings import Code, Finding, Subject
from sparklog.integrity.producer_steps import follows, sequences_of
from sparklog.integrity.ranges import RangeSet
from sparklog.integrity.totals import TotalsFollowed
from sparklog.log.announced.names import parse_name
from sparklog.log.data.segments import Segment, segment_of_add
from sparklog.log.head import TopicHead, end_app_id, head_after_entry, head_of_info, start_app_id
from sparklog.log.live_totals import TOTALS_INFO, totals_of_info
from sparklog.log.other_topic import other_topic_error, other_topic_id
from sparklog.log.producer_state import ProducerEntry, announcer_app_id, is_of_announcer, producer_entry
from sparklog.log.publishing import transactional_id_of

__all__ = ["Published", "TopicHistory"]

_HALF = 2**30
"""Sequences are int32 that wrap to 0: one that is so much smaller went on beyond the wrap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A transaction's part of one topic, as the topic's log has it."""

    transactional_id: str
    number: int
    """The number of the entry that decided it."""
    topic_id: str
    delta_version: int
    records: Mapping[str, tuple[int | None, int | None]]
    """By path: partition and number of records."""


@dataclass(slots=True)
class _Producer:
    """The newest append of one producer to a partition."""

    producer_epoch: int
    last_sequence: int


@dataclass(slots=True, kw_only=True)
class TopicHistory:
    """The state that a run of entries adds up to. Memory grows with the files that they name, and their producers."""

    topic: str
    table: str
    refused: Mapping[str, int] = field(default_factory=dict)
    """By path: files of other engines that are refused (rule F6, moved records)."""
    findings: list[Finding] = field(default_factory=list)
    head: TopicHead | None = None
    """After the newest entry that was applied; None before the first that states one."""
    own_head: TopicHead | None = None
    """The topic's head as the newest entry written by sparklog has it."""
    own_version: int = -1
    """The version of that entry."""
    entry_count: int = 0
    live: dict[str, bool] = field(default_factory=dict)
    """By path: was it added last, or removed?"""
    lasting: dict[str, int] = field(default_factory=dict)
    """By appId: the newest version of each ``txn`` action that never expires."""
    known_from: dict[int, int] = field(default_factory=dict)
    """By partition: these entries cover all offsets from here on."""
    explained: dict[int, RangeSet] = field(default_factory=dict)
    """By partition: offsets that may have no record: deleted by key or by SQL, or never used by who numbered them."""
    producers: dict[str, SetTransaction] = field(default_factory=dict)
    """By producer id: the newest commit of each."""
    _segments: dict[str, Segment] = field(default_factory=dict)
    """By path, the segments of the files that are live according to these entries."""
    _sequences: dict[tuple[int, int], _Producer] = field(default_factory=dict)
    _settled: dict[str, int] = field(default_factory=dict)
    """By appId of an announcer: its newest settled number."""
    _markers: dict[str, int] = field(default_factory=dict)
    _ends_are_exact: bool = False
    _totals: TotalsFollowed = field(default_factory=TotalsFollowed)

    def apply(self, entry: Entry) -> Published | None:
        """Go on by one entry. Returns the transaction that it published, if any."""
        self.entry_count += 1
        before = self.head
        if before is not None and (stated := other_topic_id(before.topic_id, entry)) is not None:
            self._pass_over(entry, before, stated)
            return None
        after = self._head_after(entry)
        added = [segment_of_add(action, entry.version) for action in entry.actions if isinstance(action, AddFile)]
        added = [replace(one, is_refused=True) if one.path in self.refused else one for one in added]
        removed = [action.path for action in entry.actions if isinstance(action, RemoveFile)]
        if after is not None:
            same = before if before is not None and before.topic_id == after.topic_id else None
            if same is not None:
                self._check_offsets(entry, same, after)
            elif before is not None:
                self._begin_anew()
            self._learn_from(before, after, is_first=entry.version == 0)
            self._check_actions(entry, after)
            if is_append(entry):
                self._check_append(entry, same, after, added, removed)
            else:
                self._check_change(entry, same, after, added, removed)
            if entry.info is not None:
                self.own_head, self.own_version = after, entry.version
        self.head = after
        self._ends_are_exact = entry.info is not None or (
            self._ends_are_exact and all(one.base_offset is None or one.has_stats for one in added)
        )
        self._check_totals(entry, added, removed)
        self._apply_files(removed, added)
        return self._apply_transactions(entry, after, added)

    def _pass_over(self, entry: Entry, head: TopicHead, stated: str) -> None:
        """An entry of another topic: its files and numbers are in the table, and its offsets are of no use."""
        error = other_topic_error(self.table, entry.version, stated=stated, topic_id=head.topic_id)
        self._tell(Code.TOPIC_ID_WRONG, entry, str(error), f"topic id {head.topic_id}")
        added = [segment_of_add(action, entry.version) for action in entry.actions if isinstance(action, AddFile)]
        self._apply_files([action.path for action in entry.actions if isinstance(action, RemoveFile)], added)
        self._apply_transactions(entry, None, added)
        self._ends_are_exact = False

    def _head_after(self, entry: Entry) -> TopicHead | None:
        if self.head is None and entry.info is None:
            return None  # whatever it is, a later entry of ours states it
        try:
            if self.head is None:
                return head_of_info(self.table, entry.version, entry.info or {})
            return head_after_entry(self.table, self.head, entry, refused=self.refused)
        except NotATopicError:
            return self.head  # put back since, or the topic can't be loaded, which is a finding of its own
        except SparklogError as error:
            self._tell(Code.ENTRY_CORRUPT, entry, str(error), "what a topic may be")
            return self.head

    def _begin_anew(self) -> None:
        """Another topic took the name: its offsets begin at 0."""
        self.known_from.clear()
        self.explained.clear()
        self._ends_are_exact = True

    def _learn_from(self, before: TopicHead | None, after: TopicHead, *, is_first: bool) -> None:
        is_new = is_first or (before is not None and before.topic_id != after.topic_id)
        had = 0 if before is None or is_new else before.partition_count
        for partition in range(had, after.partition_count):
            begins_here = is_new or before is not None
            self.known_from.setdefault(partition, 0 if begins_here else after.log_end_offsets[partition])

    # Starts and ends.

    def _check_offsets(self, entry: Entry, before: TopicHead, after: TopicHead) -> None:
        for what, old, new in (
            ("log start", before.log_start_offsets, after.log_start_offsets),
            ("log end", before.log_end_offsets, after.log_end_offsets),
        ):
            for partition, offset in enumerate(old):
                if partition >= len(new):
                    expected = f"{len(old)} or more: partitions only grow"
                    self._tell(Code.OFFSET_WENT_BACK, entry, f"{len(new)} partitions", expected)
                    break
                if new[partition] < offset:
                    self._tell(
                        Code.OFFSET_WENT_BACK,
                        entry,
                        f"the {what} went from {offset} to {new[partition]}",
                        "one that never decreases",
                        partition,
                    )
        if entry.info is None:
            return
        recorded = {action.app_id for action in entry.actions if isinstance(action, SetTransaction)}
        for app_id, what, old, new in (
            (start_app_id, "log start", before.log_start_offsets, after.log_start_offsets),
            (end_app_id, "log end", before.log_end_offsets, after.log_end_offsets),
        ):
            for partition, (was, now) in enumerate(zip(old, new, strict=False)):
                if now != was and app_id(partition) not in recorded:
                    self._tell(
                        Code.OFFSETS_DISAGREE,
                        entry,
                        f"commitInfo moves the {what} from {was} to {now}, no txn action states it",
                        f"an action {app_id(partition)}",
                        partition,
                    )

    def _check_actions(self, entry: Entry, after: TopicHead) -> None:
        """The ``txn`` actions that state starts and ends, against what holds after the entry."""
        for action in entry.actions:
            if not isinstance(action, SetTransaction):
                continue
            for prefix, what, offsets in (
                ("sparklog.start.", "log start", after.log_start_offsets),
                ("sparklog.end.", "log end", after.log_end_offsets),
            ):
                number = action.app_id.removeprefix(prefix)
                if number == action.app_id or not number.isdecimal():
                    continue
                partition = int(number)
                expected = offsets[partition] if partition < len(offsets) else 0
                if action.version == expected:
                    continue
                is_foreign = entry.info is None  # what it lowers is lowered for whoever loads the table
                self._tell(
                    Code.OFFSET_WENT_BACK if is_foreign else Code.OFFSETS_DISAGREE,
                    entry,
                    f"action {action.app_id} says {action.version}",
                    f"{expected}, the {what} that {'held before' if is_foreign else 'commitInfo tells'}",
                    partition,
                )
        for partition, (start, end) in enumerate(zip(after.log_start_offsets, after.log_end_offsets, strict=False)):
            if start > end or start < 0:
                self._tell(
                    Code.OFFSETS_DISAGREE, entry, f"log start {start} and log end {end}", "0 <= start <= end", partition
                )

    # Appends.

    def _check_append(
        self,
        entry: Entry,
        before: TopicHead | None,
        after: TopicHead,
        added: Sequence[Segment],
        removed: Sequence[str],
    ) -> None:
        if removed:
            self._tell(Code.APPEND_WRONG, entry, f"an append removes {len(removed)} files, {removed[0]}, …", "none")
        at: dict[int, int] = {}
        if before is not None and self._ends_are_exact:
            at = dict(enumerate(before.log_end_offsets))
        for segment in sorted(added, key=lambda one: (one.partition or 0, one.base_offset or 0)):
            partition, base = segment.partition, segment.base_offset
            if partition is None or base is None or not segment.has_stats:
                self._tell(
                    Code.APPEND_WRONG, entry, f"{segment.path} has no partition, offset or statistics", "all of them"
                )
                continue
            expected = at.get(partition, base)
            count = segment.record_count or 0
            if (base, segment.min_offset_delta, segment.max_offset_delta) != (expected, 0, count - 1):
                self._tell(
                    Code.APPEND_WRONG,
                    entry,
                    f"{segment.path} has {count} records at {segment.first_offset} to {segment.last_offset}, based on "
                    f"{base}",
                    f"{count} offsets from {expected} on",
                    partition,
                )
            at[partition] = base + count
        for partition, end in at.items():
            if partition < after.partition_count and after.log_end_offsets[partition] != end:
                self._tell(
                    Code.APPEND_WRONG,
                    entry,
                    f"the log end is {after.log_end_offsets[partition]} after an append",
                    f"{end}, the end of what was added",
                    partition,
                )
        self._check_producers(entry, added)
        self._check_announced(entry)

    def _check_producers(self, entry: Entry, added: Sequence[Segment]) -> None:
        for action in entry.actions:
            if not isinstance(action, SetTransaction) or not action.app_id.isdecimal():
                continue
            producer_id = int(action.app_id)
            now = producer_entry({action.app_id: action}, producer_id)
            known = producer_entry(self.producers, producer_id)
            self.producers[action.app_id] = action
            if now is None:
                continue
            if known is not None and not follows(known, now):
                self._tell(
                    Code.PRODUCER_COUNTER,
                    entry,
                    f"producer {producer_id}: epoch {now.producer_epoch}, commit {now.counter} came after epoch "
                    f"{known.producer_epoch}, commit {known.counter}",
                    "the next commit of the epoch, or the first of a later one",
                )
            self._check_sequences(entry, producer_id, now, added)

    def _check_announced(self, entry: Entry) -> None:
        """Each number of an announcer is settled once, by one entry (rule L14, announced uploads)."""
        named = [parse_name(action.path) for action in entry.actions if isinstance(action, AddFile)]
        settled = {action.app_id for action in entry.actions if isinstance(action, SetTransaction)}
        for app_id in sorted({announcer_app_id(one.announcer) for one in named if one} - settled):
            self._tell(
                Code.ANNOUNCED_NUMBER, entry, f"files of {app_id}, and no action {app_id}", "the number that it settles"
            )
        for action in entry.actions:
            if not isinstance(action, SetTransaction) or not is_of_announcer(action.app_id):
                continue
            before, now = self._settled.get(action.app_id, -1), action.version
            self._settled[action.app_id] = max(before, now)
            numbers = [one.number for one in named if one and announcer_app_id(one.announcer) == action.app_id]
            wrong = [number for number in numbers if not before < number <= now]
            if now <= before or wrong or numbers != sorted(numbers):
                self._tell(
                    Code.ANNOUNCED_NUMBER,
                    entry,
                    f"{action.app_id} settles {now} after {before}, with files of numbers {numbers}",
                    "greater numbers each time, and files of numbers that weren't settled, in their order",
                )

    def _check_sequences(self, entry: Entry, producer_id: int, now: ProducerEntry, added: Sequence[Segment]) -> None:
        bounds = {
            action.path: sequences_of(action, producer_id) for action in entry.actions if isinstance(action, AddFile)
        }
        for segment in added:
            found = bounds.get(segment.path)
            if found is None or segment.partition is None:
                continue
            first, last = found
            is_wrapping = (first, last) == (0, 2**31 - 1) and (segment.record_count or 0) < last
            key = (producer_id, segment.partition)
            before = self._sequences.get(key)
            if is_wrapping:
                self._sequences.pop(key, None)
                continue
            self._sequences[key] = _Producer(now.producer_epoch, last)
            if before is None or before.producer_epoch != now.producer_epoch:
                continue
            if first <= before.last_sequence and before.last_sequence - first < _HALF:
                self._tell(
                    Code.SEQUENCE_REPEATED,
                    entry,
                    f"producer {producer_id}: sequences {first} to {last} came after {before.last_sequence}",
                    "sequences that were not there yet",
                    segment.partition,
                )

    # Everything else.

    def _check_change(
        self,
        entry: Entry,
        before: TopicHead | None,
        after: TopicHead,
        added: Sequence[Segment],
        removed: Sequence[str],
    ) -> None:
        operation = entry.commit_info.get("operation") if entry.info is not None else None
        gone = [self._segments[path] for path in removed if path in self._segments]
        if operation == "OPTIMIZE":
            self._check_merge(entry, added, removed, gone)
            return
        if operation not in ("RETENTION", "DELETE RECORDS"):  # what lies above their start, they don't take
            for segment in gone:
                self._explain(segment.partition, segment.first_offset, segment.last_offset + 1)
        if before is not None:
            ends = zip(before.log_end_offsets, after.log_end_offsets, strict=False)
            for partition, (old, new) in enumerate(ends):
                # of another engine's numbers some may be unused (rules F1, foreign files; F4, order)
                self._explain(partition, old, new)

    def _check_merge(
        self, entry: Entry, added: Sequence[Segment], removed: Sequence[str], gone: Sequence[Segment]
    ) -> None:
        counts = [segment.record_count for segment in (*gone, *added)]
        if len(gone) < len(removed) or None in counts:
            return  # what was removed was added before the oldest entry that is kept
        old = sum(segment.record_count or 0 for segment in gone)
        new = sum(segment.record_count or 0 for segment in added)
        ranges = [
            (
                min((segment.first_offset for segment in some), default=0),
                max((segment.last_offset for segment in some), default=-1),
            )
            for some in (gone, added)
        ]
        if old != new or ranges[0] != ranges[1]:
            self._tell(
                Code.REWRITE_LOST_RECORDS,
                entry,
                f"{new} records at {ranges[1][0]} to {ranges[1][1]} took the place of {old} at {ranges[0][0]} to "
                f"{ranges[0][1]}",
                "the same records in other files",
                added[0].partition if added else None,
            )

    def _check_totals(self, entry: Entry, added: Sequence[Segment], removed: Sequence[str]) -> None:
        carried = totals_of_info((entry.info or {}).get(TOTALS_INFO))
        if (expected := self._totals.apply(entry.version, added, removed, carried)) is not None:
            self._tell(Code.TOTALS_WRONG, entry, f"commitInfo carries {carried}", f"{expected}")

    def _explain(self, partition: int | None, first: int, end: int) -> None:
        if partition is not None:
            self.explained.setdefault(partition, RangeSet()).add(first, end)

    def _apply_files(self, removed: Sequence[str], added: Sequence[Segment]) -> None:
        for path in removed:
            self.live[path] = False
            self._segments.pop(path, None)
        for segment in added:
            self.live[segment.path] = True
            self._segments[segment.path] = segment

    def _apply_transactions(self, entry: Entry, after: TopicHead | None, added: Sequence[Segment]) -> Published | None:
        published = None
        for action in (action for action in entry.actions if isinstance(action, SetTransaction)):
            if action.last_updated_ms == FAR_FUTURE_MS:
                self.lasting[action.app_id] = action.version
            else:
                self.lasting.pop(action.app_id, None)
            transactional_id = transactional_id_of(action.app_id)
            if transactional_id is None or after is None:
                continue
            before = self._markers.get(transactional_id, 0)
            self._markers[transactional_id] = action.version
            is_again = action.version <= before
            if is_append(entry) and not is_again:
                published = Published(
                    transactional_id=transactional_id,
                    number=action.version,
                    topic_id=after.topic_id,
                    delta_version=entry.version,
                    records={segment.path: (segment.partition, segment.record_count) for segment in added},
                )
            elif is_append(entry) or action.version < before:
                self.findings.append(
                    Finding(
                        code=Code.TRANSACTION_DIFFERS,
                        subject=Subject(
                            topic=self.topic, transactional_id=transactional_id, delta_version=entry.version
                        ),
                        seen=f"transaction {action.version} came after transaction {before}",
                        expected="each transaction once, in their order",
                    )
                )
        return published

    def _tell(self, code: Code, entry: Entry, seen: str, expected: str, partition: int | None = None) -> None:
        subject = Subject(topic=self.topic, partition=partition, delta_version=entry.version)
        self.findings.append(Finding(code=code, subject=subject, seen=seen, expected=expected))


def is_append(entry: Entry) -> bool:
    """Is it a producer's commit?"""
    return entry.info is not None and entry.commit_info.get("operation") == "WRITE"
