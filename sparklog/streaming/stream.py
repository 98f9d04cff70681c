"""A streaming query over topics: where it begins, how far each micro-batch goes, and which files that is.

Knows nothing of Spark, whose side of it is :mod:`sparklog.spark.source.data_source`. Owned by one thread, lives as long
as a run of the query.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile

from sparklog.delta.actions import AddFile, Entry
from sparklog.delta.names import log_folder, parse_name
from sparklog.errors import (
    SparklogError,
    UnknownTopicOrPartitionError,
    is_no_topic,
)
from sparklog.log.cluster import Cluster
from sparklog.log.data.segments import segment_of_add
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.parallel import parallel_map
from sparklog.paths import TOPICS_FOLDER
from sparklog.storage.cleanup_marks import mark_of
from sparklog.streaming.limits import Backlog, Cut, choose_cuts, cut_between_files, record_count
from sparklog.streaming.new_fields import NewFields, UnreadFields
from sparklog.streaming.planning import Task, split_into_tasks
from sparklog.streaming.positions import Positions, TopicPosition
from sparklog.streaming.resolving import (
    handle_data_loss,
    offset_range,
    readable_offset,
    resolve_offsets,
    subscribed_partitions,
)
from sparklog.streaming.source_options import SourceOptions
from sparklog.streaming.topic_following import FollowedTopic, FollowedTopics, KnownCut, cuts_of, or_raise

__all__ = ["StreamPlanner"]

_LOGGER = logging.getLogger("sparklog.spark")
_READ_AHEAD = 32
_LIST_TOPICS_MS = 5_000.0


class StreamPlanner:
    """Decides what each micro-batch of a query reads."""

    def __init__(self, cluster: Cluster, options: SourceOptions, unread: UnreadFields | None = None) -> None:
        """Args:
        unread: of a query that has the fields of a typed topic's values as columns, see :class:`NewFields`.
        """
        self._cluster = cluster
        self._fields = NewFields(unread, is_ignoring=options.ignores_new_fields)
        self._options = options
        self._topics = FollowedTopics(cluster)
        self._names: tuple[str, ...] = ()
        self._listed_ticks_ms: float | None = None
        self._last_batch_ticks_ms = float("-inf")
        """The first batch after a start doesn't wait. Source: Spark ``KafkaMicroBatchStream.delayBatch``."""
        self._initial: Positions | None = None
        self._committed: Positions | None = None

    def initial(self) -> Positions:
        """The positions at which a new query begins.

        Raises:
            UnknownTopicOrPartitionError: a topic or partition isn't there.
            InvalidConfigurationError, OffsetOutOfRangeError: see :func:`~sparklog.streaming.resolving.resolve_offsets`.
        """
        options = self._options
        followers = {topic: or_raise(polled).follower for topic, polled in self._topics.poll(self._wanted()).items()}
        partitions = [
            TopicPartition(topic, partition)
            for topic, follower in followers.items()
            for partition in subscribed_partitions(options.subscription, topic, follower.head.partition_count)
        ]
        offsets = resolve_offsets(
            followers, partitions, options.starting, "starting", latest=options.latest_without_match
        )
        topics = {}
        for topic, follower in followers.items():
            starts = {
                at.partition: readable_offset(
                    follower.head, at, offsets[at], fail_on_data_loss=options.fail_on_data_loss
                )
                for at in partitions
                if at.topic == topic
            }
            is_end = all(follower.head.log_end_offsets[partition] == start for partition, start in starts.items())
            topics[topic] = TopicPosition(
                topic_id=follower.head.topic_id,
                offsets=starts,
                delta_version=follower.head.delta_version if is_end else -1,
                schema_id=self._fields.known_schema(topic, follower.head),
            )
        self._initial = Positions(topics)
        return self._initial

    def freeze(self) -> None:
        """Go on to what is there now, and no further (``Trigger.AvailableNow``)."""
        for polled in self._topics.poll(self._wanted()).values():
            or_raise(polled)
        self._topics.is_frozen = True

    def next(self, start: Positions, *, limited: bool) -> Positions:
        """The end of the micro-batch that begins at ``start``; ``start`` itself where nothing is to be read.

        Args:
            limited: whether the options' limits apply.
        Raises:
            OffsetOutOfRangeError: records at ``start`` were deleted.
            UnknownTopicOrPartitionError: a topic was deleted.
        """
        self._commit_group(start)
        limits = self._options.limits
        polled = self._topics.poll(self._wanted())
        positions = {topic: self._position(topic, start.topics.get(topic), found) for topic, found in polled.items()}
        for topic in start.topics.keys() - positions.keys():
            self._no_longer_read(f"topic {topic!r}")
        known = {topic: position for topic, position in positions.items() if position is not None}
        max_offsets = limits.max_offsets if limited else None
        backlogs = self._backlogs(known, max_offsets)
        size = sum(backlog.size for backlog in backlogs.values())
        if size == 0 or (limited and self._waits(size)):
            return start
        self._last_batch_ticks_ms = self._cluster.clock.ticks_ms()
        cuts = choose_cuts(backlogs, max_offsets, splits_large_commits=limits.splits_large_commits)
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
                for topic, followed in self._topics.by_name.items()
            }
        )

    def ends(self) -> Positions:
        """The ends of what is read, as of now, for a query that isn't told where it begins. Raises as :meth:`next`."""
        found = {}
        for topic, polled in self._topics.poll(self._wanted()).items():
            head = or_raise(polled).follower.head
            partitions = subscribed_partitions(self._options.subscription, topic, head.partition_count)
            found[topic] = TopicPosition(
                topic_id=head.topic_id,
                offsets={partition: head.log_end_offsets[partition] for partition in partitions},
                delta_version=head.delta_version,
                schema_id=self._fields.known_schema(topic, head),
            )
        return Positions(found)

    def plan(self, start: Positions, end: Positions) -> list[Task]:
        """The tasks that read from ``start`` to ``end``. Raises as :meth:`next`.

        A first micro-batch that is run again begins where it began, and not where a query that starts now would.
        """
        fail = self._options.fail_on_data_loss
        begins = start.topics if end.begins is None else end.begins
        ranges = []
        wanted = {topic: until for topic, until in end.topics.items() if _has_more(until, begins.get(topic))}
        behind = self._topics.poll(topic for topic, until in wanted.items() if not self._is_known(topic, until))
        for topic, until in wanted.items():
            followed = self._with_id(topic, until, behind.get(topic))
            if followed is None:
                continue
            starts = _starts_of(until, begins.get(topic))
            for partition, offset in until.offsets.items():
                at = TopicPartition(topic, partition)
                head = followed.follower.head
                first = readable_offset(head, at, starts.get(partition, 0), fail_on_data_loss=fail)
                last = max(first, readable_offset(head, at, max(offset, first), fail_on_data_loss=fail))
                if first < last:
                    ranges.append(offset_range(followed.follower, partition, first, last))
        return split_into_tasks(
            [one for one in ranges if one.segments], self._options.min_partitions, self._options.max_records
        )

    def done(self, end: Positions) -> None:
        """A micro-batch is done: commit the group's offsets, if the query has a group. Failures are logged."""
        self._commit_group(end, is_done=True)

    def close(self) -> None:
        """Give back the connections to the store."""
        self._cluster.store.close()

    def _commit_group(self, positions: Positions, *, is_done: bool = False) -> None:
        """Commit the offsets that a micro-batch begins at, as all before it are done; nothing where a new query
        begins."""
        group = self._options.group_id
        if group is None or positions == self._committed or (positions == self._initial and not is_done):
            return
        offsets = {
            TopicPartition(topic, partition): OffsetAndMetadata(offset)
            for topic, at in positions.topics.items()
            for partition, offset in at.offsets.items()
        }
        from sparklog.admin import Admin  # imports all of groups, which few queries need

        try:
            Admin(self._cluster).alter_group_offsets(group, offsets)
        except SparklogError as error:
            _LOGGER.warning("offsets of group %r weren't committed: %s", group, error)
        else:
            self._committed = positions

    def _wanted(self) -> Iterable[str]:
        subscription = self._options.subscription
        if not subscription.pattern:
            return subscription.topics or dict.fromkeys(topic for topic, _ in subscription.partitions)
        now = self._cluster.clock.ticks_ms()
        is_due = self._listed_ticks_ms is None or now - self._listed_ticks_ms >= _LIST_TOPICS_MS
        if is_due and not self._topics.is_frozen:
            found = self._cluster.store.list_names(TOPICS_FOLDER)
            matching = [name for name in found if re.fullmatch(subscription.pattern, name)]
            unknown = self._topics.poll(name for name in matching if name not in self._topics.by_name)
            for opened in unknown.values():
                if not is_no_topic(opened):
                    or_raise(opened)
            self._names = tuple(name for name in matching if name in self._topics.by_name)
            self._listed_ticks_ms = now
        return self._names

    def _is_known(self, topic: str, wanted: TopicPosition) -> bool:
        """Has the follower of a topic come as far as this position?"""
        followed = self._topics.by_name.get(topic)
        ends = () if followed is None else followed.follower.head.log_end_offsets
        return all(partition < len(ends) and ends[partition] >= end for partition, end in wanted.offsets.items())

    def _with_id(
        self, topic: str, wanted: TopicPosition, polled: FollowedTopic | Exception | None
    ) -> FollowedTopic | None:
        """A topic that still has the id; None where its loss is to be passed over.

        Args:
            polled: the topic as of now, where the follower hadn't come as far.
        """
        if isinstance(polled, UnknownTopicOrPartitionError):
            handle_data_loss(UnknownTopicOrPartitionError, str(polled), self._options.fail_on_data_loss)
            return None
        followed = self._topics.by_name[topic] if polled is None else or_raise(polled)
        if followed.follower.head.topic_id != wanted.topic_id:
            self._lost_topic(topic, wanted.topic_id)
            return None
        return followed

    def _position(
        self, topic: str, at: TopicPosition | None, polled: FollowedTopic | Exception
    ) -> TopicPosition | None:
        """The position to go on from in a topic, with all its partitions; None where there is nothing to go on with.

        A topic or partition that is new begins at 0: if that isn't there any more, it was lost. Source: Spark
        ``KafkaMicroBatchStream.planInputPartitions``.
        """
        fail = self._options.fail_on_data_loss
        if isinstance(polled, UnknownTopicOrPartitionError):
            handle_data_loss(UnknownTopicOrPartitionError, str(polled), fail)
            return None
        head = or_raise(polled).follower.head
        version, schema_id = -1, -1
        offsets: Mapping[int, int] = {}
        if at is not None and at.topic_id != head.topic_id:
            self._lost_topic(topic, at.topic_id)
        elif at is not None:
            offsets, version, schema_id = at.offsets, at.delta_version, at.schema_id
        partitions = subscribed_partitions(self._options.subscription, topic, head.partition_count)
        for partition in offsets.keys() - set(partitions):
            self._no_longer_read(f"{topic}-{partition}")
        starts = {
            partition: readable_offset(
                head, TopicPartition(topic, partition), offsets.get(partition, 0), fail_on_data_loss=fail
            )
            for partition in partitions
        }
        schema_id = self._fields.known_schema(topic, head, schema_id)
        return TopicPosition(topic_id=head.topic_id, offsets=starts, delta_version=version, schema_id=schema_id)

    def _no_longer_read(self, what: str) -> None:
        """Source: Spark ``KafkaMicroBatchStream.planInputPartitions``, partitions that are gone."""
        message = f"{what} was read and isn't any more: it was deleted, or the options of the query have changed"
        handle_data_loss(UnknownTopicOrPartitionError, message, self._options.fail_on_data_loss)

    def _lost_topic(self, topic: str, topic_id: str) -> None:
        message = f"topic {topic!r} with id {topic_id} was deleted, and another of its name created"
        handle_data_loss(UnknownTopicOrPartitionError, message, self._options.fail_on_data_loss)

    def _waits(self, size: int) -> bool:
        limits = self._options.limits
        if limits.min_offsets is None or size >= limits.min_offsets or self._topics.is_frozen:
            return False
        return self._cluster.clock.ticks_ms() - self._last_batch_ticks_ms < limits.max_delay_ms

    def _backlogs(self, positions: Mapping[str, TopicPosition], max_offsets: int | None) -> dict[str, Backlog]:
        if max_offsets is None:
            return {topic: self._backlog(topic, at, None) for topic, at in positions.items()}
        # Where commits ended may have to be read from the logs.
        found = parallel_map(lambda topic: self._backlog(topic, positions[topic], max_offsets), positions)
        return dict(zip(positions, found, strict=True))

    def _backlog(self, topic: str, at: TopicPosition, max_offsets: int | None) -> Backlog:
        followed = self._topics.by_name[topic]
        if max_offsets is not None:
            _drop_passed(followed.cuts, at)
            _read_cuts(followed, at, max_offsets)
        else:
            del followed.cuts[:-1]
        cuts = [
            Cut(one.cut.delta_version, {p: end for p, end in one.cut.ends.items() if p in at.offsets})
            for one in followed.cuts
        ]
        return Backlog(offsets=at.offsets, cuts=cuts, delta_version=at.delta_version)

    def _shortened(self, topic: str, backlog: Backlog, cut: Cut, budget: int) -> Cut:
        """A cut before one that is too far, where no log contains the commits in between."""
        followed = self._topics.by_name[topic]
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
    return replace(at, offsets=offsets, delta_version=cut.delta_version)


def _has_more(until: TopicPosition, since: TopicPosition | None) -> bool:
    starts = _starts_of(until, since)
    return any(starts.get(partition, 0) < offset for partition, offset in until.offsets.items())


def _starts_of(until: TopicPosition, since: TopicPosition | None) -> Mapping[int, int]:
    """The offsets at which a micro-batch begins that ends at a position; a partition that isn't there begins at 0."""
    return since.offsets if since is not None and since.topic_id == until.topic_id else {}


def _drop_passed(cuts: list[KnownCut], at: TopicPosition) -> None:
    """Forget the cuts that lie behind, but for the last one."""
    while len(cuts) > 1 and _is_passed(cuts[0].cut, at):
        del cuts[0]


def _is_passed(cut: Cut, at: TopicPosition) -> bool:
    return record_count(at.offsets, cut.ends) == 0


def _read_cuts(followed: FollowedTopic, at: TopicPosition, max_offsets: int) -> None:
    """Read from the log where commits ended that came before the topic was loaded, as far as a batch may go."""
    cuts = followed.cuts
    gap = next((n for n, known_cut in enumerate(cuts) if not known_cut.is_next and not known_cut.is_lost), None)
    if gap is None or _is_passed(cuts[gap].cut, at):
        return
    if gap > 0 and record_count(at.offsets, cuts[gap - 1].cut.ends) >= max_offsets:
        return
    log, behind = followed.follower.log, cuts[gap]
    version, is_lost = _first_to_read(
        followed, cuts[gap - 1].cut.delta_version if gap > 0 else at.delta_version, behind
    )
    new: list[KnownCut] = []
    while version <= behind.cut.delta_version:
        if new and record_count(at.offsets, new[-1].cut.ends) >= max_offsets:
            break
        read = log.read_entries(version, min(_READ_AHEAD, behind.cut.delta_version + 1 - version))
        if log.cleaned_below() > version:  # of what was read, a process that slept may have created some just now
            is_lost = True
            break
        entries = [entry for entry in takewhile(lambda entry: entry is not None, read) if entry is not None]
        for entry in entries:
            known = _known_of(entry, followed, behind.cut, is_lost=is_lost)
            is_lost = is_lost and not known
            new += [known_cut for known_cut in known if not _is_passed(known_cut.cut, at)]
        version += len(entries)
        if len(entries) < len(read):  # cleaned while it was read
            is_lost = True
            break
    if is_lost or version > behind.cut.delta_version:
        behind.is_next, behind.is_lost = not is_lost, is_lost
    cuts[gap:gap] = [known_cut for known_cut in new if known_cut.cut.delta_version < behind.cut.delta_version]


def _first_to_read(followed: FollowedTopic, before: int, behind: KnownCut) -> tuple[int, bool]:
    """The first entry after a version that the log still has, and whether others before it are lost."""
    first = before + 1
    log = followed.follower.log
    is_there = before >= 0 and (
        first >= behind.cut.delta_version or (log.read_entry(first) is not None and log.cleaned_below() <= first)
    )
    return (first, False) if is_there else (_oldest_entry(followed), True)


def _known_of(entry: Entry, followed: FollowedTopic, later: Cut, *, is_lost: bool) -> list[KnownCut]:
    """The cut behind an entry, and the one before it where what comes before is lost."""
    found = []
    for cut in cuts_of([entry], followed.follower.head.topic_id):
        # Else a process that slept has created it under a name that was cleaned (rule L1, trust).
        if all(end <= later.ends.get(partition, -1) for partition, end in cut.ends.items()):
            if is_lost:
                found.append(KnownCut(_begin_of(entry, cut), is_next=False, is_lost=True))
            found.append(KnownCut(cut, is_next=True))
    return found


def _oldest_entry(followed: FollowedTopic) -> int:
    """The first of the entries that the log still has without a gap up to the newest; what lies below the mark of a
    cleanup counts for nothing (rule L3, cleanup)."""
    log, newest = followed.follower.log, followed.follower.head.delta_version
    listed = list(log.store.list(log_folder(log.table)))
    below = max(map(mark_of, listed), default=0)
    names = (parse_name(found.path.rpartition("/")[2]) for found in listed)
    there = {name for name in names if isinstance(name, int) and name >= below}
    version = newest
    while version - 1 in there:
        version -= 1
    return version


def _begin_of(entry: Entry, end: Cut) -> Cut:
    """The end of the log before an entry of ours, at which the records begin that came with it."""
    begins = dict(end.ends)
    for action in entry.actions:
        if isinstance(action, AddFile) and action.data_change:
            segment = segment_of_add(action, entry.version)
            if segment.base_offset is not None and segment.partition in begins:
                begins[segment.partition] = min(begins[segment.partition], segment.base_offset)
    return Cut(entry.version - 1, begins)
