"""Files whose bytes log entries contain: kept for the partitions that read them next, so that they aren't requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.read_ahead import FileAhead
from sparklog.consumer.segment_fetcher import SegmentFetcher
from sparklog.delta.actions import Entry
from sparklog.log import TopicFollower
from sparklog.log.carried_files import carried_file, carried_paths
from sparklog.log.data.object_paths import object_path
from sparklog.model import TopicPartition

__all__ = ["CarriedAhead"]


class CarriedAhead:
    """Hands the files that new entries carry to the reader of segments. Owned by the fetcher's thread."""

    def __init__(self, fetch_state: FetchState, reader: SegmentFetcher, *, max_bytes: int) -> None:
        """``max_bytes``: of all records that are buffered and files that are held."""
        self._fetch_state = fetch_state
        self._reader = reader
        self._max_bytes = max_bytes

    def hold(
        self,
        entries: Mapping[str, Sequence[Entry]],
        follower: Callable[[str], TopicFollower],
        epochs: Mapping[TopicPartition, int],
    ) -> None:
        """Hold what partitions will need, as far as there is room for it.

        Args:
            entries: by topic, in the order in which they were applied.
            epochs: those in which the partitions' positions belong to the topics that are followed.
        """
        if not entries:
            return
        with self._fetch_state.lock:
            room = self._max_bytes - self._fetch_state.assignment.buffered_bytes - self._reader.held_bytes
            for topic, of_topic in entries.items():
                for file, data in self._needed(follower(topic), of_topic, epochs):
                    room -= file.size_bytes
                    if room < 0 or not self._reader.hold(file, data):
                        return

    def _needed(
        self, follower: TopicFollower, entries: Iterable[Entry], epochs: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[FileAhead, Any]]:
        live, assignment = follower.state.require_whole().index.by_path, self._fetch_state.assignment
        for entry in entries:
            for path in carried_paths(entry):
                segment = live.get(path)  # the log alone says which files there are, and what they are for
                if segment is None or segment.partition is None or segment.base_offset is None:
                    continue
                partition = TopicPartition(follower.topic, segment.partition)
                state = assignment.get(partition)
                if state is None or state.epoch != epochs.get(partition) or not state.needs(segment.last_offset):
                    continue
                data = carried_file(entry, path, size_bytes=segment.size_bytes)
                if data is not None:
                    name = object_path(follower.log.table, path)
                    yield FileAhead(path=name, partition=partition, epoch=state.epoch, size_bytes=len(data)), data
