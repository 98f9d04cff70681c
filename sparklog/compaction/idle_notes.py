"""Notes of maintenance runs about topics in which nothing is due: one object for the whole cluster, so that the next
run can pass such a topic over for three requests, however large it is.

A note says that nothing is due as long as a certain entry is the newest of the topic's log, and up to when. It is a
hint. A run that uses it first reads that the entry is still the newest (rule L1, trust); what becomes due by time
alone is in the note; and no note holds for longer than a day. So a note that is lost, torn, or overwritten by another
run costs a look at the topic, and nothing else.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparklog.compaction.steps import Step
from sparklog.delta.log import DeltaLog
from sparklog.errors import ObjectNotFoundError, SparklogError
from sparklog.log.cluster import Cluster
from sparklog.paths import MAINTENANCE_NOTES
from sparklog.storage.each_alone import check_of_one
from sparklog.storage.entry_log import PositionLost
from sparklog.storage.position import Position

__all__ = ["TopicNote", "is_newest", "read_notes", "write_notes"]

NOTES_FORMAT = 1
NO_VERSION = -1
_LOGGER = logging.getLogger("sparklog.compaction")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNote:
    """The note about one topic."""

    version: int = NO_VERSION
    """The version of the newest entry of its log when it was looked at; -1 where something was left to do."""
    token: str = ""
    """The token of that entry."""
    deleted: bool = False
    due_ms: Mapping[Step, int] = field(default_factory=dict)
    """By step, as long as that entry is the newest: the store's time from which on a step may have something to do. A
    step that isn't there has to look."""
    policy: str = ""
    """By which nothing is worth being merged, see :func:`~sparklog.compaction.due.policy_key`."""
    search_ms: int = 0
    """The store's time from which on vacuum is to search the topic's folder again, whatever its newest entry is."""

    def to_json(self) -> dict[str, Any]:
        """The note as plain values, which :meth:`from_json` reads."""
        return {
            "version": self.version,
            "token": self.token,
            "deleted": self.deleted,
            "due": {step.value: due_ms for step, due_ms in self.due_ms.items()},
            "policy": self.policy,
            "search": self.search_ms,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TopicNote:
        """Raises ``KeyError``, ``TypeError``, ``ValueError`` or ``OverflowError``."""
        return cls(
            version=int(body["version"]),
            token=str(body["token"]),
            deleted=bool(body["deleted"]),
            due_ms={Step(name): int(due_ms) for name, due_ms in body["due"].items()},
            policy=str(body["policy"]),
            search_ms=int(body["search"]),
        )


def read_notes(cluster: Cluster) -> dict[str, TopicNote]:
    """The notes of earlier runs, by topic; none where there are none, or where they can't be understood. A GET."""
    try:
        body = json.loads(cluster.store.read(MAINTENANCE_NOTES))
        if body["format"] != NOTES_FORMAT or body["cluster_id"] != cluster.cluster_id:
            return {}
        return {name: TopicNote.from_json(note) for name, note in body["topics"].items()}
    except ObjectNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:  # torn, or not ours
        _LOGGER.info("%s/%s can't be parsed and is written again: %r", cluster.store.uri, MAINTENANCE_NOTES, error)
        return {}
    except SparklogError as error:
        check_of_one(cluster.store, error)
        _LOGGER.warning("%s/%s can't be read, so no topic is skipped: %s", cluster.store.uri, MAINTENANCE_NOTES, error)
        return {}


def write_notes(
    cluster: Cluster, before: Mapping[str, TopicNote], after: Mapping[str, TopicNote], topics: Iterable[str]
) -> bool:
    """Let the notes be known to the next run; does nothing where none has changed. What fails is logged.

    Args:
        before: as they were read.
        after: those that are new, by topic.
        topics: all that there are: notes of others are dropped.
    Returns:
        Has one changed?
    """
    existing = frozenset(topics)
    notes = {name: note for name, note in {**before, **after}.items() if name in existing}
    if notes == before:
        return False
    body = {
        "format": NOTES_FORMAT,
        "cluster_id": cluster.cluster_id,
        "topics": {name: note.to_json() for name, note in sorted(notes.items())},
    }
    try:
        cluster.store.put(MAINTENANCE_NOTES, json.dumps(body, separators=(",", ":")).encode())
    except SparklogError as error:
        _LOGGER.warning(
            "%s/%s can't be written, so the next run skips no topic: %s", cluster.store.uri, MAINTENANCE_NOTES, error
        )
    return True


def is_newest(log: DeltaLog, note: TopicNote) -> bool:
    """Is the entry that a note is of still the newest of its log? Two GETs and a LIST. No, where that can't be found
    out. Raises ``SparklogError``: the store can't be read."""
    position = Position(version=note.version, token=note.token, anchor_ticks_ms=-math.inf)
    try:
        return not log.look(position).entries
    except PositionLost:
        return False
    except SparklogError as error:
        check_of_one(log.store, error)
        return False
