"""A streaming query over topics: where it begins, how far each micro-batch goes, and which files that is.

Knows nothing of Spark, whose side of it is :mod:`sparklog.spark.source`. Owned by one thread, lives as long as a run
of the query.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from sparklog.admin import Admin
from sparklog.delta.actions import AddFile, Entry
from sparklog.delta.names import log_folder, parse_name
from sparklog.errors import NotATopicError, SparklogError, UnknownTopicOrPartitionError
from sparklog.log.cluster import Cluster
from sparklog.log.follow import TopicFollower
from sparklog.log.segments import segment_of_add
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.paths import TOPICS_FOLDER
from sparklog.spark.admission import Backlog, Cut, choose_cuts, cut_between_files, record_count
from sparklog.spark.options import SourceOptions
from sparklog.spark.planning import Task, split
from sparklog.spark.positions import Positions, TopicPosition
from sparklog.spark.resolving import in_range, lost, offsets_at, range_of, subscribed
from sparklog.storage.cleanup_marks import mark_of

__all__ = ["StreamPlanner"]

_LOGGER = logging.getLogger("sparklog.spark")
_READ_AHEAD = 32
_LIST_TOPICS_MS = 5_000.0
_MAX_CUTS = 1_000
"""Of a topic, kept in memory for a query that is behind; more are read again once it comes to them."""


@dataclass(slots=True)
class _Known:
    """A cut, and what is known of the commits between it and the one before."""

    cut: Cut
    is_next: bool
    """There is but one commit in between; else there may be others, which can be read from the log..."""
    is_lost: bool = False
    """... or can't any more."""


@dataclass(slots=True)
class _Followed:
    follower: TopicFollower
    cuts: list[_Known] = field(default_factory=list)
    """In the order of the log; the last one is as far as the follower is."""


class StreamPlanner:
    """Decides what each micro-batch of a query reads."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._followed: dict[str, _Followed] = {}
        self._names: tuple[str, ...] = ()
        self._listed_ticks_ms: float | None = None
        self._is_frozen = False
        self._last_batch_ticks_ms = float("-inf")
        """The first batch after a start doesn't wait. Source: Spark ``KafkaMicroBatchStream.delayBatch``."""
        self._initial: Positions | None = None
        self._committed: Positions | None = None

    def initial(self) -> Positions:
        """Where a new query begins.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition isn't there.
            InvalidConfigurationError, OffsetOutOfRangeError: see :func:`~sparklog.spark.resolving.offsets_at`.
        """
        options = self._options
        followers = {topic: self._poll(topic).follower for topic in self._topics()}
        partitions = [
            TopicPartition(topic, partition)
            for topic, follower in followers.items()
            for partition in subscribed(options.subscription, topic, follower.head.partition_count)
        ]
        offsets = offsets_at(followers, partitions, options.starting, "starting", latest=options.latest_without_match)
        topics = {}
        for topic, follower in followers.items():
            starts = {
                at.partition: in_range(follower.head, at, offsets[at], fail_on_data_loss=options.fail_on_data_loss)
                for at in partitions
                if at.topic == topic
            }
            is_end = all(follower.head.log_end_offsets[partition] == start for partition, start in starts.items())
            topics[topic] = TopicPosition(
                topic_id=follower.head.topic_id,
                offsets=starts,
                delta_version=follower.head.delta_version if is_end else -1,
            )
        self._initial = Positions(topics)
        return self._initial

    def freeze(self) -> None:
        """Go on to what is there now, and no further (``Trigger.AvailableNow``)."""
        for topic in self._topics():
            self._poll(topic)
        self._is_frozen = True

    def next(self, start: Positions, *, limited: bool) -> Positions:
        """How far a micro-batch goes that begins at ``start``; ``start`` itself where nothing is to be read.

        Args:
            limited: whether the options' limits apply.
        Raises:
            OffsetOutOfRangeError: records at ``start`` were deleted.
            UnknownTopicOrPartitionError: a topic was deleted.
        """
        self._commit_group(start)
        limits = self._options.limits
        positions = {topic: self._position(topic, start.topics.get(topic)) for topic in self._topics()}
        for topic in start.topics.keys() - positions.keys():
            self._no_longer_read(f"topic {topic!r}")
        known = {topic: position for topic, position in positions.items() if position is not None}
        max_offsets = limits.max_offsets if limited else None
        backlogs = {topic: self._backlog(topic, at, max_offsets) for topic, at in known.items()}
        size = sum(backlog.size for backlog in backlogs.values())
        if size == 0 or (limited and self._waits(size)):
            return start
        self._last_batch_ticks_ms = self._cluster.clock.ticks_ms()
        cuts = choose_cuts(backlogs, max_offsets)
        after = {topic: at for topic, at in start.topics.items() if topic in known}
        for topic, at in known.items():
            cut = cuts[topic]
            if max_offsets is not None:
                cut = self._shortened(topic, backlogs[topic], cut, max_offsets * backlogs[topic].size // size)
            if record_count(at.offsets, cut.ends) or topic not in after:
                after[topic] = _moved(at, cut, start.topics.get(topic))
        return Positions(after, start.topics if start == self._initial else None)

    def newest(self) -> Positions:
        """The ends of the logs as far as they were looked at."""
        return Positions(
            {
                topic: TopicPosition(
                    topic_id=followed.follower.head.topic_id,
                    offsets=dict(enumerate(followed.follower.head.log_end_offsets)),
                    delta_version=followed.follower.head.delta_version,
                )
                for topic, followed in self._followed.items()
            }
        )

    def plan(self, start: Positions, end: Positions) -> list[Task]:
        """The tasks that read from ``start`` to ``end``. Raises as :meth:`next`.

        A first micro-batch that is run again begins where it began, and not where a query that starts now would.
        """
        fail = self._options.fail_on_data_loss
        begins = start.topics if end.begins is None else end.begins
        ranges = []
        for topic, until in end.topics.items():
            since = begins.get(topic)
            starts = since.offsets if since is not None and since.topic_id == until.topic_id else {}
            if all(starts.get(partition, 0) >= offset for partition, offset in until.offsets.items()):
                continue
            followed = self._with_id(topic, until)
            if followed is None:
                continue
            for partition, offset in until.offsets.items():
                at = TopicPartition(topic, partition)
                head = followed.follower.head
                first = in_range(head, at, starts.get(partition, 0), fail_on_data_loss=fail)
                last = max(first, in_range(head, at, max(offset, first), fail_on_data_loss=fail))
                if first < last:
                    ranges.append(range_of(followed.follower, partition, first, last))
        return split([one for one in ranges if one.segments], self._options.min_partitions)

    def done(self, end: Positions) -> None:
        """A micro-batch is done: commit the group's offsets, if the query has a group. Failures are logged."""
        self._commit_group(end, is_done=True)

    def close(self) -> None:
        """Give back the connections to the store."""
        self._cluster.store.close()

    def _commit_group(self, positions: Positions, *, is_done: bool = False) -> None:
        """What a micro-batch begins at, all before it have done; where a new query begins, nothing is."""
        group = self._options.group_id
        if group is None or positions == self._committed or (positions == self._initial and not is_done):
            return
        offsets = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset)
            for topic, at in positions.topics.items()
            for partition, offset in at.offsets.items()
        }
        try:
            Admin(self._cluster).alter_group_offsets(group, offsets)
        except SparklogError as error:
            _LOGGER.warning("offsets of group %r weren't committed: %s", group, error)
        else:
            self._committed = positions

    def _topics(self) -> Iterable[str]:
        subscription = self._options.subscription
        if not subscription.pattern:
            return subscription.topics or dict.fromkeys(topic for topic, _ in subscription.partitions)
        now = self._cluster.clock.ticks_ms()
        is_due = self._listed_ticks_ms is None or now - self._listed_ticks_ms >= _LIST_TOPICS_MS
        if is_due and not self._is_frozen:
            found = self._cluster.store.list_names(TOPICS_FOLDER)
            matching = [name for name in found if re.fullmatch(subscription.pattern, name)]
            self._names = tuple(name for name in matching if name in self._followed or self._is_topic(name))
            self._listed_ticks_ms = now
        return self._names

    def _is_topic(self, name: str) -> bool:
        try:
            self._poll(name)
        except (UnknownTopicOrPartitionError, NotATopicError):
            return False
        return True

    def _poll(self, topic: str) -> _Followed:
        """A topic as of now. Raises ``UnknownTopicOrPartitionError`` if it is gone; another of its name is opened."""
        followed = self._followed.get(topic)
        if followed is not None and not self._is_frozen:
            try:
                while _go_on(followed):
                    _forget_middle(followed.cuts)
                _forget_middle(followed.cuts)
            except UnknownTopicOrPartitionError:
                del self._followed[topic]
                followed = None
        if followed is None:
            followed = _Followed(TopicFollower(self._cluster.topic_log(topic), topic))
            followed.cuts.append(_Known(_end_of(followed.follower), is_next=False))
            self._followed[topic] = followed
        return followed

    def _with_id(self, topic: str, wanted: TopicPosition) -> _Followed | None:
        """A topic that still has the id, and has come as far; None where its loss is to be passed over."""
        try:
            followed = self._followed.get(topic) or self._poll(topic)
            ends = followed.follower.head.log_end_offsets
            if any(partition >= len(ends) or ends[partition] < end for partition, end in wanted.offsets.items()):
                followed = self._poll(topic)
        except UnknownTopicOrPartitionError as error:
            lost(UnknownTopicOrPartitionError, str(error), self._options.fail_on_data_loss)
            return None
        if followed.follower.head.topic_id != wanted.topic_id:
            self._lost_topic(topic, wanted.topic_id)
            return None
        return followed

    def _position(self, topic: str, at: TopicPosition | None) -> TopicPosition | None:
        """Where to go on in a topic, with all its partitions; None where there is nothing to go on with.

        A topic or partition that is new begins at 0: if that isn't there any more, it was lost. Source: Spark
        ``KafkaMicroBatchStream.planInputPartitions``.
        """
        fail = self._options.fail_on_data_loss
        try:
            head = self._poll(topic).follower.head
        except UnknownTopicOrPartitionError as error:
            lost(UnknownTopicOrPartitionError, str(error), fail)
            return None
        version = -1
        offsets: Mapping[int, int] = {}
        if at is not None and at.topic_id != head.topic_id:
            self._lost_topic(topic, at.topic_id)
        elif at is not None:
            offsets, version = at.offsets, at.delta_version
        partitions = subscribed(self._options.subscription, topic, head.partition_count)
        for partition in offsets.keys() - set(partitions):
            self._no_longer_read(f"{topic}-{partition}")
        starts = {
            partition: in_range(
                head, TopicPartition(topic, partition), offsets.get(partition, 0), fail_on_data_loss=fail
            )
            for partition in partitions
        }
        return TopicPosition(topic_id=head.topic_id, offsets=starts, delta_version=version)

    def _no_longer_read(self, what: str) -> None:
        """Source: Spark ``KafkaMicroBatchStream.planInputPartitions``, partitions that are gone."""
        message = f"{what} was read and isn't any more: it was deleted, or the options of the query have changed"
        lost(UnknownTopicOrPartitionError, message, self._options.fail_on_data_loss)

    def _lost_topic(self, topic: str, topic_id: str) -> None:
        message = f"topic {topic!r} with id {topic_id} was deleted, and another of its name created"
        lost(UnknownTopicOrPartitionError, message, self._options.fail_on_data_loss)

    def _waits(self, size: int) -> bool:
        limits = self._options.limits
        if limits.min_offsets is None or size >= limits.min_offsets or self._is_frozen:
            return False
        return self._cluster.clock.ticks_ms() - self._last_batch_ticks_ms < limits.max_delay_ms

    def _backlog(self, topic: str, at: TopicPosition, max_offsets: int | None) -> Backlog:
        followed = self._followed[topic]
        if max_offsets is not None:
            _drop_passed(followed.cuts, at)
            _read_cuts(followed, at, max_offsets)
        else:
            del followed.cuts[:-1]
        cuts = [
            Cut(one.cut.delta_version, {p: end for p, end in one.cut.ends.items() if p in at.offsets})
            for one in followed.cuts
        ]
        return Backlog(offsets=at.offsets, cuts=cuts)

    def _shortened(self, topic: str, backlog: Backlog, cut: Cut, budget: int) -> Cut:
        """A cut before one that is too far, where no log tells of the commits in between."""
        followed = self._followed[topic]
        first = followed.cuts[0]
        if not first.is_lost or cut.delta_version != first.cut.delta_version:
            return cut
        if record_count(backlog.offsets, cut.ends) <= budget:
            return cut
        follower = followed.follower
        segments = {
            partition: follower.segments(partition, offset)
            for partition, offset in backlog.offsets.items()
            if offset < cut.ends.get(partition, 0)
        }
        return cut_between_files(backlog.offsets, cut, segments, max(1, budget))


def _moved(at: TopicPosition, cut: Cut, before: TopicPosition | None) -> TopicPosition:
    """A position behind a cut. Partitions that came after it are left for later."""
    known = {*cut.ends, *(before.offsets if before is not None else ())}
    offsets = {p: max(offset, cut.ends.get(p, 0)) for p, offset in at.offsets.items() if p in known}
    return TopicPosition(topic_id=at.topic_id, offsets=offsets, delta_version=cut.delta_version)


def _go_on(followed: _Followed) -> bool:
    """Poll once; False at the end of the log."""
    follower = followed.follower
    before = follower.head.delta_version
    entries = follower.poll()
    followed.cuts += [_Known(cut, is_next=True) for cut in _cuts_of(entries, follower.head.topic_id)]
    if follower.head.delta_version > (followed.cuts[-1].cut.delta_version):
        # Another engine's entry, or the log was cleaned under us: then what came in between is not known.
        followed.cuts.append(_Known(_end_of(follower), is_next=follower.head.delta_version == before + len(entries)))
    return not follower.caught_up


def _forget_middle(cuts: list[_Known]) -> None:
    """Keep the cuts that come next, and the last one."""
    if len(cuts) > _MAX_CUTS:
        del cuts[_MAX_CUTS - 1 : -1]
        cuts[-1].is_next = False


def _drop_passed(cuts: list[_Known], at: TopicPosition) -> None:
    """Forget the cuts that lie behind, but for the last one."""
    while len(cuts) > 1 and _is_passed(cuts[0].cut, at):
        del cuts[0]


def _is_passed(cut: Cut, at: TopicPosition) -> bool:
    return record_count(at.offsets, cut.ends) == 0


def _read_cuts(followed: _Followed, at: TopicPosition, max_offsets: int) -> None:
    """Read from the log where commits ended that came before the topic was loaded, as far as a batch may go."""
    cuts = followed.cuts
    gap = next((n for n, one in enumerate(cuts) if not one.is_next and not one.is_lost), None)
    if gap is None or _is_passed(cuts[gap].cut, at):
        return
    if gap > 0 and record_count(at.offsets, cuts[gap - 1].cut.ends) >= max_offsets:
        return
    log, behind = followed.follower.log, cuts[gap]
    version, is_lost = _first_to_read(
        followed, cuts[gap - 1].cut.delta_version if gap > 0 else at.delta_version, behind
    )
    found: list[_Known] = []
    while version <= behind.cut.delta_version:
        if found and record_count(at.offsets, found[-1].cut.ends) >= max_offsets:
            break
        read = log.read_entries(version, min(_READ_AHEAD, behind.cut.delta_version + 1 - version))
        if log.cleaned_below() > version:  # of what was read, a process that slept may have created some just now
            is_lost = True
            break
        entries = [entry for entry in takewhile(lambda entry: entry is not None, read) if entry is not None]
        for entry in entries:
            known = _known_of(entry, followed, behind.cut, is_lost=is_lost)
            is_lost = is_lost and not known
            found += [one for one in known if not _is_passed(one.cut, at)]
        version += len(entries)
        if len(entries) < len(read):  # cleaned while it was read
            is_lost = True
            break
    if is_lost or version > behind.cut.delta_version:
        behind.is_next, behind.is_lost = not is_lost, is_lost
    cuts[gap:gap] = [one for one in found if one.cut.delta_version < behind.cut.delta_version]


def _first_to_read(followed: _Followed, before: int, behind: _Known) -> tuple[int, bool]:
    """The first entry after a version that the log still has, and whether others before it are lost."""
    first = before + 1
    log = followed.follower.log
    is_there = before >= 0 and (
        first >= behind.cut.delta_version or (log.read_entry(first) is not None and log.cleaned_below() <= first)
    )
    return (first, False) if is_there else (_oldest_entry(followed), True)


def _known_of(entry: Entry, followed: _Followed, later: Cut, *, is_lost: bool) -> list[_Known]:
    """The cut behind an entry, and the one before it where what comes before is lost."""
    found = []
    for cut in _cuts_of([entry], followed.follower.head.topic_id):
        # Else a process that slept has created it under a name that was cleaned (rule L1).
        if all(end <= later.ends.get(partition, -1) for partition, end in cut.ends.items()):
            if is_lost:
                found.append(_Known(_begin_of(entry, cut), is_next=False, is_lost=True))
            found.append(_Known(cut, is_next=True))
    return found


def _oldest_entry(followed: _Followed) -> int:
    """The first of the entries that the log still has without a gap up to the newest; what lies below the mark of a
    cleanup counts for nothing (rule L3)."""
    log, newest = followed.follower.log, followed.follower.head.delta_version
    listed = list(log.store.list(log_folder(log.table)))
    below = max(map(mark_of, listed), default=0)
    names = (parse_name(found.path.rpartition("/")[2]) for found in listed)
    there = {name for name in names if isinstance(name, int) and name >= below}
    version = newest
    while version - 1 in there:
        version -= 1
    return version


def _cuts_of(entries: Iterable[Entry], topic_id: str) -> list[Cut]:
    """Where the log ended after each entry; another engine's doesn't tell."""
    return [
        Cut(entry.version, dict(enumerate(entry.info["log_end_offsets"])))
        for entry in entries
        if entry.info is not None and entry.info.get("topic_id") == topic_id
    ]


def _begin_of(entry: Entry, end: Cut) -> Cut:
    """Where the log ended before an entry of ours: where the records begin that came with it."""
    begins = dict(end.ends)
    for action in entry.actions:
        if isinstance(action, AddFile) and action.data_change:
            segment = segment_of_add(action, entry.version)
            if segment.base_offset is not None and segment.partition in begins:
                begins[segment.partition] = min(begins[segment.partition], segment.base_offset)
    return Cut(entry.version - 1, begins)


def _end_of(follower: TopicFollower) -> Cut:
    return Cut(follower.head.delta_version, dict(enumerate(follower.head.log_end_offsets)))
