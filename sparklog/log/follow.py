"""Following a topic: one GET a poll, and finding records by offset or time from the log's own statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

import pyarrow as pa

from sparklog.delta.actions import Entry
from sparklog.delta.log import DeltaLog
from sparklog.errors import ObjectNotFoundError, OffsetOutOfRangeError, StoreError, UnknownTopicOrPartitionError
from sparklog.log.catch_up import apply_look
from sparklog.log.data.record_reading import empty_records, read_together
from sparklog.log.data.segments import Segment, overlapping
from sparklog.log.head import TopicHead
from sparklog.log.reloading import load_again
from sparklog.log.search import first_records_since
from sparklog.log.state import TopicState, load_state
from sparklog.model import OffsetAndTimestamp
from sparklog.parallel import attempt, parallel_results
from sparklog.storage.entry_log import PositionLost

__all__ = ["TopicFollower", "poll_all"]

_MAX_DOUBLINGS = 5
_MOST_TOGETHER = 2_048
"""Entries that :func:`poll_all` asks for in one call; more only where it is one for each topic."""
_MAX_TRANSACTIONS_KEPT = 1_000
"""A reader has no use for the producers' ``txn`` actions."""

T = TypeVar("T")


class TopicFollower:
    """A reader's view of a topic that keeps up with it; not for several threads at once."""

    def __init__(self, log: DeltaLog, topic: str) -> None:
        """Load ``topic``. Raises ``UnknownTopicOrPartitionError`` and what reading a log raises."""
        self.topic = topic
        self._log = log
        self._full_polls = 0
        self._caught_up = False
        self._state = _for_reading(load_state(log))
        self._topic_id = self.head.topic_id
        self._check_alive()

    @property
    def head(self) -> TopicHead:
        """The topic as of the newest version that was applied."""
        return self._state.head

    @property
    def state(self) -> TopicState:
        """All that this follower knows; it goes on changing with the next poll."""
        return self._state

    @property
    def log(self) -> DeltaLog:
        """The topic's log."""
        return self._log

    @property
    def caught_up(self) -> bool:
        """Did the newest poll find the end of the log? Not before the first poll."""
        return self._caught_up

    @property
    def ahead(self) -> int:
        """The number of entries that the next poll asks for: more each time that a poll found all of them, up to 32."""
        return 1 << min(max(0, self._full_polls - 1), _MAX_DOUBLINGS)

    def reload(self) -> None:
        """Load the topic anew: a file that it names is gone (rule L10, orphans). Raises as the constructor."""
        self._caught_up = False
        self._state = self._load()
        self._check_alive()

    def poll(self, expected: int = 0) -> list[Entry]:
        """Apply what follows, if anything does: one GET when nothing new is there, and one per new version.

        A follower that finds something at every poll is behind, and reads further ahead each time, up to 32 versions in
        parallel. One that was left behind by log cleanup loads the topic anew and returns nothing of what it missed.

        Args:
            expected: how many entries are likely to be new: one more is asked for, so that one poll finds the end.
        Raises:
            UnknownTopicOrPartitionError: the topic was deleted, and perhaps created again: that is another topic.
            UnsupportedVersionError, NotATopicError: what another engine did to it can't be understood, as long as it
                lasts.
        """
        began = self._log.clock.ticks_ms()
        paths = self.next_paths(max(self.ahead, min(expected + 1, _MOST_TOGETHER)))
        return self.take(self._log.store.read_many(paths), began_ticks_ms=began)

    def next_paths(self, ahead: int) -> list[str]:
        """The names of the entries that come next, for whoever polls several topics at once."""
        return self._log.paths_beyond(self._state.position, ahead)

    @property
    def must_verify(self) -> bool:
        """Does :meth:`take` need a request of its own, because trust in the position ran out (rule L1, trust)?"""
        return self._log.must_verify(self._state.position)

    def take(self, data: Sequence[bytes | None], *, began_ticks_ms: float) -> list[Entry]:
        """Do the work of :meth:`poll` when :meth:`next_paths` has been read.

        Args:
            data: the objects under those names, in their order; None for one that isn't there.
            began_ticks_ms: when reading them began.
        """
        self._caught_up = False
        try:
            entries = apply_look(
                self._state, self._log.look_at(self._state.position, data, began_ticks_ms=began_ticks_ms)
            )
        except PositionLost:
            self._state = self._load()
            entries = []
        self._caught_up = len(entries) < len(data)
        self._full_polls = 0 if self._caught_up else self._full_polls + 1
        if len(self._state.transactions) > _MAX_TRANSACTIONS_KEPT:
            self._state.transactions.clear()
            self._state.forgotten_version = self._state.position.version
        self._check_alive()
        return entries

    def segments(self, partition: int, offset: int) -> Iterator[Segment]:
        """The segments that hold records of ``partition`` at ``offset`` or beyond, by their first offset.

        Several of one base offset may overlap: :func:`~sparklog.log.data.segments.overlapping` puts them together.

        Raises:
            OffsetOutOfRangeError: below the log start or above the log end.
        """
        start, end = self._bounds(partition)
        if not start <= offset <= end:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic}-{partition} is out of range: log start {start}, log end {end}"
            )
        return self._state.require_whole().index.from_offset(partition, offset)

    def holds(self, paths: Iterable[str]) -> bool:
        """Are all of these files still live? Not those that were compacted, merged or deleted meanwhile."""
        return self._state.require_whole().index.by_path.keys() >= frozenset(paths)

    def segment_groups(self, partition: int, offset: int) -> Iterator[list[Segment]]:
        """The files of :meth:`segments`, those together whose ranges of offsets overlap; most stand alone."""
        return overlapping(self.segments(partition, offset))

    def read(self, partition: int, offset: int, *, max_records: int = 500) -> pa.Table:
        """Up to ``max_records`` records of ``partition`` from ``offset`` on, by offset. Empty at the log end.

        Columns: ``offset``, ``timestamp``, ``key``, ``value``, ``headers``, ``producer_id``, ``producer_epoch``,
        ``sequence``.

        A file that was replaced or vacuumed under this follower is no error: the topic is loaded anew
        (rule L10, orphans).

        Raises:
            OffsetOutOfRangeError, CorruptRecordError, StoreError.
        """
        return self._despite_vacuum(lambda: self._read(partition, offset, max_records))

    def offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first offset whose record is not older than ``timestamp_ms``; None where there is none (as in Kafka)."""
        return self.offsets_for_times({partition: timestamp_ms})[partition]

    def offsets_for_times(self, timestamps_ms: Mapping[int, int]) -> dict[int, OffsetAndTimestamp | None]:
        """The same for several partitions, whose files are read together."""
        return self._despite_vacuum(lambda: self._offsets_for_times(timestamps_ms))

    def _despite_vacuum(self, look: Callable[[], T]) -> T:
        try:
            return look()
        except ObjectNotFoundError:
            self.reload()
            return look()

    def _load(self) -> TopicState:
        return _for_reading(load_again(self._log, self._state.position, topic_id=self._topic_id))

    def _check_alive(self) -> None:
        if self.head.deleted or self.head.topic_id != self._topic_id:
            self._log.check_cluster(is_doubtful=True)  # or is it another cluster's topic (rule L17, ground)?
            raise UnknownTopicOrPartitionError(f"topic {self.topic!r} with id {self._topic_id} was deleted")

    def _offsets_for_times(self, timestamps_ms: Mapping[int, int]) -> dict[int, OffsetAndTimestamp | None]:
        for partition in timestamps_ms:
            self._bounds(partition)
        return first_records_since(self._log, self._state.require_whole().index, self.head, timestamps_ms)

    def _read(self, partition: int, offset: int, max_records: int) -> pa.Table:
        pieces: list[pa.Table] = []
        missing = max_records
        for together in self.segment_groups(partition, offset):
            piece = read_together(self._log, together, start_offset=offset).slice(0, missing)
            pieces.append(piece)
            missing -= piece.num_rows
            if missing <= 0:
                break
        return pa.concat_tables(pieces) if pieces else empty_records()

    def _bounds(self, partition: int) -> tuple[int, int]:
        self._check_alive()
        head = self._state.head
        if not 0 <= partition < head.partition_count:
            raise UnknownTopicOrPartitionError(
                f"topic {self.topic!r} has no partition {partition}; it has 0 to {head.partition_count - 1}"
            )
        return head.log_start_offsets[partition], head.log_end_offsets[partition]


def _for_reading(state: TopicState) -> TopicState:
    state.require_whole().tail = ()
    state.states = ()  # who reads asks for none
    return state


def poll_all(followers: Sequence[TopicFollower], expected: Sequence[int] = ()) -> list[list[Entry] | Exception]:
    """Poll several topics of one cluster: one call to the store for all of them, whatever is new in how many.

    Args:
        expected: how many entries are likely to be new in each: one more is asked for, so that one poll is enough.
    Returns:
        For each what :meth:`TopicFollower.poll` returns, or what it raises: no topic's error hides another's news.
    Raises:
        StoreError: a retriable one; which of the topics it is about isn't known.
    """
    if len(followers) < 2:
        return [attempt(partial(TopicFollower.poll, expected=sum(expected)), follower) for follower in followers]
    log = followers[0].log
    most = max(1, _MOST_TOGETHER // len(followers))
    likely = [count + 1 for count in expected] or [1] * len(followers)
    paths = [f.next_paths(min(max(f.ahead, ahead), most)) for f, ahead in zip(followers, likely, strict=True)]
    began = log.clock.ticks_ms()
    try:
        data = iter(log.store.read_many([path for each in paths for path in each]))
    except StoreError as error:
        if error.retriable:
            raise
        return parallel_results(TopicFollower.poll, followers)
    found = [[*islice(data, len(each))] for each in paths]

    def take(number: int) -> list[Entry]:
        return followers[number].take(found[number], began_ticks_ms=began)

    # Whose position must be verified makes a request: so do these side by side, and all the others in this thread.
    asking = [number for number, follower in enumerate(followers) if follower.must_verify]
    taken = dict(zip(asking, parallel_results(take, asking), strict=True))
    return [taken[number] if number in taken else attempt(take, number) for number in range(len(followers))]
