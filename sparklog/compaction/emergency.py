"""Room on a full disk, at once: files go that a commit removed from their topic, however short ago (decision 0096).

Nothing else goes. A file that no commit has named may be an upload, announced, or decided on and about to be published;
only a sweep knows that, and a sweep writes before it deletes. This writes nothing, so it needs no free byte.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sparklog.delta.removed import removed_files
from sparklog.errors import SparklogError
from sparklog.log.cluster import Cluster
from sparklog.log.data.object_paths import object_path
from sparklog.log.state import TopicState, load_state
from sparklog.paths import TOPICS_FOLDER
from sparklog.storage import ObjectInfo
from sparklog.storage.log_ground import delete_listed
from sparklog.txn.barrier import look_at_ids, named_files
from sparklog.txn.orphans import any_age_candidates

__all__ = ["EMERGENCY_COSTS", "TopicEmergency", "free_removed_files"]

_LOGGER = logging.getLogger("sparklog.compaction")
_DELETED_AT_ONCE = 1_000
EMERGENCY_COSTS = (
    "queries and consumers that are reading such a file fail once, or read its records again from the file that took "
    "its place",
    "the topic can't be read any more as it was before: sql --version, Delta's time travel, streams that are behind",
    "`topics restore`, RESTORE and shallow clones find these files gone: let none run meanwhile",
)
"""The price of deleting at once: maintenance would wait for a week, by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEmergency:
    """The files of a topic that were deleted, or would be."""

    topic: str
    file_count: int = 0
    size_bytes: int = 0
    error: SparklogError | None = None
    """Why the rest, or all, is still there."""


def free_removed_files(
    cluster: Cluster, topics: Iterable[str] | None = None, *, dry_run: bool = True
) -> list[TopicEmergency]:
    """Delete the files of topics that a commit removed, and that aren't live again: one topic after the other.

    It needs no free byte and no i-node. What a commit didn't remove stays: uploads, announced files, those of decided
    transactions. Safe to run beside everything but what makes removed files live again: restores.

    Args:
        topics: by default all, those that were deleted among them.
        dry_run: only report what would be deleted.
    Returns:
        Topics that have such files, or that failed, sorted.
    Raises:
        StoreError: the topics or the transactional ids can't be listed; nothing was deleted.
    """
    names = sorted({*(cluster.store.list_names(TOPICS_FOLDER) if topics is None else topics)})
    named = named_files(look_at_ids(cluster, now_ms=cluster.clock.now_ms()).values())
    found = [_free(cluster, name, named.get(name, frozenset()), dry_run=dry_run) for name in names]
    return [one for one in found if one.file_count or one.error is not None]


def _free(cluster: Cluster, topic: str, spared: Collection[str], *, dry_run: bool) -> TopicEmergency:
    count = size_bytes = 0
    try:
        state, doomed = _doomed(cluster, topic, spared)
        for first in range(0, len(doomed), _DELETED_AT_ONCE):
            some = doomed[first : first + _DELETED_AT_ONCE]
            if not dry_run:
                paths = [file.path for file in some]
                delete_listed(state.log, state.position.version, state.position.token, paths)
            count += len(some)
            size_bytes += sum(file.size_bytes for file in some)
    except SparklogError as error:
        return TopicEmergency(topic=topic, file_count=count, size_bytes=size_bytes, error=error.with_traceback(None))
    if count and not dry_run:
        _LOGGER.warning("emergency: deleted %d files that commits had removed from topic %s", count, topic)
    return TopicEmergency(topic=topic, file_count=count, size_bytes=size_bytes)


def _doomed(cluster: Cluster, topic: str, spared: Collection[str]) -> tuple[TopicState, list[ObjectInfo]]:
    """The topic, and the files to delete. What is live is learned after what was removed: a file that was added again
    lives."""
    log = cluster.topic_log(topic)
    removed = {object_path(log.table, path) for path in removed_files(log).removed_ms}
    state = load_state(log)
    if not removed:
        return state, []
    if state.unwritable is not None:  # a feature that sparklog doesn't know may need removed files
        raise state.unwritable.with_traceback(None)
    listed = (file for file in log.store.list(f"{log.table}/") if file.path in removed and file.path not in spared)
    return state, any_age_candidates(state, listed)
