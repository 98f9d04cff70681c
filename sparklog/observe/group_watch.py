"""Watching one group: its committed offsets, and which members live. Two requests where nothing has changed.

Nothing is written: where an administrator asks for the store's time, a watch compares what it sees from look to look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparklog.groups.membership.member_state import MemberState
from sparklog.groups.membership.roster import read_members
from sparklog.groups.offsets.offset_state import OffsetState, catch_up, load_state, offset_log
from sparklog.groups.offsets.pending import stable_rows
from sparklog.groups.offsets.rows import Rows
from sparklog.log.cluster import Cluster
from sparklog.model import TopicPartition
from sparklog.observe.figures import GroupFigures, GroupPartitionFigures, PartitionFigures, TopicFigures
from sparklog.observe.packed_files import TimedRange
from sparklog.paths import decode_id, group_members
from sparklog.storage import ObjectInfo

__all__ = ["GroupWatch", "WatchedTopic", "group_figures", "uncommitted_partitions"]

_DECISION_MS = 10_000.0
_STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedTopic:
    """A topic, with the data from which the time of an offset follows."""

    figures: TopicFigures
    ranges: Mapping[TopicPartition, TimedRange]
    """The range with the next offset that a group will read, for partitions that it hasn't read to the end."""


@dataclass(slots=True)
class _Member:
    state_etag: str
    mark: tuple[str, ...]
    """Changes when one of its objects is written."""
    changed_ticks_ms: float
    """When it was seen to change last."""
    silence_ms: float
    """How long it had been silent by then."""
    state: MemberState | None = None


class GroupWatch:
    """A group that is looked at again and again. Not for several threads at once."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        """Reads nothing."""
        self.name = group
        self._cluster = cluster
        self._log = offset_log(cluster, group)
        self._offsets: OffsetState | None = None
        self._members: dict[str, _Member] = {}
        self._first_ends: dict[tuple[str, int], int] = {}
        """By topic id and number, of partitions for which nothing is committed: their ends when a member that lives was
        first seen to read them."""
        self.rows: Rows = {}
        """The offsets at the newest look, with what committed transactions are to put there."""

    def look(self) -> None:
        """A LIST and a GET where nothing has changed; six requests more at most, and one for each member that changed.

        Raises:
            CorruptLogError, UnsupportedVersionError: the stored objects can't be read.
            StoreError.
        """
        offsets = load_state(self._log, is_once=True) if self._offsets is None else catch_up(self._log, self._offsets)
        if self._offsets is None or offsets.rows is not self._offsets.rows or _pending(offsets.rows):
            self.rows = self._settled(offsets.rows)
        self._offsets = offsets
        self._look_at_members(self._cluster.store.list(group_members(self.name)))

    @property
    def pending_count(self) -> int:
        """Offsets of transactions that aren't settled."""
        return _pending(self.rows)

    def pending_ids(self) -> Iterator[str]:
        """The transactional ids for whose decisions these offsets wait, one for each offset."""
        return (row.pending.decider.transactional_id for row in self.rows.values() if row.pending is not None)

    @property
    def living(self) -> frozenset[str]:
        """The members that live."""
        now = self._cluster.clock.ticks_ms()
        return frozenset(
            name
            for name, member in self._members.items()
            if member.state is not None
            and member.silence_ms + now - member.changed_ticks_ms <= member.state.session_timeout_ms
        )

    @property
    def subscribed(self) -> frozenset[str]:
        """The topics that members subscribe to that live."""
        return frozenset(topic for state in self._living_states() for topic in state.topics)

    def uncommitted(self, topics: Iterable[TopicFigures]) -> Mapping[str, int]:
        """By topic: records that a living member should have read, in partitions for which nothing was committed.

        A member that begins at the end, or doesn't say where, as those of a gateway don't, has read all there is where
        nothing arrives: of its partitions those records count that came after it was first seen.

        Args:
            topics: that members subscribe to that live.
        """
        from_start = frozenset(
            topic for state in self._living_states() if state.reads_from_start for topic in state.topics
        )
        found: dict[str, int] = {}
        before = self._first_ends
        self._first_ends = {}
        for topic in topics:
            for number, bounds in uncommitted_partitions(self.rows, topic):
                end = before.get((topic.topic_id, number), bounds.log_end_offset)
                self._first_ends[topic.topic_id, number] = end
                start = bounds.log_start_offset if topic.name in from_start else max(bounds.log_start_offset, end)
                if bounds.log_end_offset > start:
                    found[topic.name] = found.get(topic.name, 0) + bounds.log_end_offset - start
        return found

    @property
    def exists(self) -> bool:
        """Is there such a group? One that was deleted may have left a folder."""
        return bool(self.living) or any(row.committed is not None for row in self.rows.values())

    def _living_states(self) -> list[MemberState]:
        states = [self._members[name].state for name in self.living]
        return [state for state in states if state is not None]

    def _settled(self, rows: Rows) -> Rows:
        if not _pending(rows):
            return rows
        from sparklog.txn.deciding_for_groups import deciding_for  # few groups are committed to by transactions

        deciding = deciding_for(self._cluster, reason="", timeout_ms=_DECISION_MS)
        return stable_rows(self.name, rows, [*rows], deciding.look, now_ms=self._cluster.clock.now_ms(), waits=False)

    def _look_at_members(self, listed: Iterable[ObjectInfo]) -> None:
        clock, folder = self._cluster.clock, group_members(self.name)
        objects: dict[str, dict[str, ObjectInfo]] = {}
        for file in listed:
            part, _, name = file.path[len(folder) :].partition("/")
            objects.setdefault(decode_id(part), {})[name] = file
        self._members = {name: one for name, one in self._members.items() if name in objects}
        for name, ours in objects.items():
            if _STATE not in ours:
                continue
            mark = tuple(f"{one.etag} {one.modified_ms}" for one in ours.values())
            known = self._members.get(name)
            if known is None:
                age_ms = clock.now_ms() - max(one.modified_ms for one in ours.values())
                self._members[name] = _Member("", mark, clock.ticks_ms(), max(0.0, age_ms))
            elif known.mark != mark:
                known.mark, known.changed_ticks_ms, known.silence_ms = mark, clock.ticks_ms(), 0.0
        etags = {name: ours[_STATE].etag for name, ours in objects.items() if _STATE in ours}
        changed = [name for name, etag in etags.items() if self._members[name].state_etag != etag]
        for name, state in read_members(self._cluster.store, self.name, changed).items():
            self._members[name].state, self._members[name].state_etag = state, etags[name]


def group_figures(
    group: str, rows: Rows, living: frozenset[str], topics: Mapping[str, WatchedTopic], *, now_ms: int, pending: int = 0
) -> GroupFigures:
    """The figures of a group. Pure.

    Args:
        rows: of its offset table, settled.
        topics: those that were looked at; offsets of others are left out, as is what was committed for an earlier topic
            of the same name.
    """
    partitions = []
    for partition, row in sorted(rows.items(), key=lambda item: item[0]):
        watched = topics.get(partition.topic)
        if watched is None or partition.partition >= len(watched.figures.partitions):
            continue
        committed = row.committed_for(watched.figures.topic_id)
        if committed is None:
            continue
        bounds = watched.figures.partitions[partition.partition]
        lag = max(0, bounds.log_end_offset - committed.offset)
        unread = max(committed.offset, bounds.log_start_offset)
        unread_range = watched.ranges.get(partition)
        lag_ms = None if unread_range is None else max(0, now_ms - unread_range.time_at(unread))
        partitions.append(
            GroupPartitionFigures(
                partition=partition,
                committed_offset=committed.offset,
                lag=lag,
                lag_ms=0 if unread >= bounds.log_end_offset else lag_ms,
                commit_ms=row.commit_timestamp_ms,
                member_id=row.stamp.member if row.stamp.member in living else "",
            )
        )
    return GroupFigures(group_id=group, member_count=len(living), partitions=tuple(partitions), pending_count=pending)


def uncommitted_partitions(rows: Rows, topic: TopicFigures) -> Iterator[tuple[int, PartitionFigures]]:
    """The partitions of a topic for which a group has committed nothing, by number. Pure.

    Args:
        rows: of the group's offset table, settled.
    """
    for number, bounds in enumerate(topic.partitions):
        row = rows.get(TopicPartition(topic.name, number))
        if row is None or row.committed_for(topic.topic_id) is None:
            yield number, bounds


def _pending(rows: Rows) -> int:
    return sum(row.pending is not None for row in rows.values())
