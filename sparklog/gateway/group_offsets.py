"""A group's committed offsets as a gateway reads them, and commits them for those that are no members."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Mapping

from sparklog.gateway.expressions import matching
from sparklog.groups.admin.unowned_commits import EmptyGroup, UnownedCommit
from sparklog.groups.membership.topic_catalog import TopicCatalog
from sparklog.groups.offsets.commit_thread import OffsetCommitThread
from sparklog.groups.offsets.rows import Rows
from sparklog.log import Cluster
from sparklog.model import OffsetAndMetadata, TopicPartition
from sparklog.paths import TOPICS_FOLDER
from sparklog.txn.deciding_for_groups import deciding_for

__all__ = ["GroupOffsets", "KnownTopics"]

_TOPICS_KNOWN_MS = 10_000
"""How long a member's commits go by what was seen of their topics."""


class KnownTopics:
    """Ids and partition counts of topics, as of some seconds ago. Any thread may call it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, tuple[str, int]]] = {}

    def facts(self, topics: Collection[str], *, is_fresh: bool = True) -> dict[str, tuple[str, int]]:
        """Topic id and partition count of those that exist. May block: a GET, a LIST and a GET for each.

        Args:
            is_fresh: look at all of them now; else only at those that weren't seen for some seconds.
        """
        now = self._cluster.clock.ticks_ms()
        with self._lock:
            known = {topic: self._known[topic] for topic in topics if topic in self._known and not is_fresh}
        wanted = {topic for topic in topics if topic not in known or now - known[topic][0] > _TOPICS_KNOWN_MS}
        facts_by_topic = {topic: facts for topic, (_, facts) in known.items() if topic not in wanted}
        if wanted:
            catalog = TopicCatalog(self._cluster)
            catalog.refresh(wanted)
            with self._lock:
                self._known |= {topic: (now, facts) for topic, facts in catalog.seen.items()}
            facts_by_topic |= catalog.seen
        return facts_by_topic

    def matching(self, pattern: str) -> frozenset[str]:
        """The names of topics that match an expression of RE2. May block: a LIST. Raises as :func:`matching`."""
        return matching(pattern, self._cluster.store.list_names(TOPICS_FOLDER))

    def forget(self, topics: Collection[str]) -> None:
        """Look at topics anew when they are asked for next: they were created or deleted."""
        with self._lock:
            self._known = {topic: known for topic, known in self._known.items() if topic not in topics}

    def forget_old(self) -> None:
        """Drop what is too old to be used."""
        now = self._cluster.clock.ticks_ms()
        with self._lock:
            self._known = {t: known for t, known in self._known.items() if now - known[0] <= _TOPICS_KNOWN_MS}


class GroupOffsets:
    """One group's offsets. Its methods are called in the event loop's thread; a thread of its own carries them out."""

    def __init__(self, cluster: Cluster, group: str, *, timeout_ms: float) -> None:
        reason = f"its partitions moved to another member of group {group!r}"
        self.thread = OffsetCommitThread(cluster, group, deciding_for(cluster, reason=reason, timeout_ms=timeout_ms))
        self.used_ticks_ms = cluster.clock.ticks_ms()
        self.users = 0
        """How many requests use it at the moment."""
        self._empty = EmptyGroup(cluster, group)
        self._timeout_ms = timeout_ms

    async def rows(self, partitions: Collection[TopicPartition], *, is_stable: bool) -> Rows:
        """The rows as of now.

        Args:
            is_stable: raise ``UnstableOffsetCommitError`` where a transaction may still change one of ``partitions``.
        """
        return await asyncio.wrap_future(self.thread.fetch(partitions, timeout_ms=self._timeout_ms, waits=is_stable))

    async def commit_unowned(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | None], topic_ids: Mapping[TopicPartition, str]
    ) -> None:
        """Commit for a client that assigns partitions itself.

        Raises:
            CommitFailedError: the group has members.
            KafkaTimeoutError, CommitStateUnknownError, StoreError, …
        """
        commit = UnownedCommit(self._empty, offsets, topic_ids)
        future = self.thread.change(commit.make, timeout_ms=self._timeout_ms, again=commit.again)
        await asyncio.wrap_future(future)
