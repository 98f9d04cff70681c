"""Entries of ours that belong to another topic than the log they stand in (rule L8, one log). Pure, but for
:func:`settle_other_topic`.

A client whose storage was replaced under it may create its next entry in the log of another topic of the same name. Its
entry states the other topic's id and offsets: who took it for the continuation would give offsets twice. A topic that
is created again under its name goes on in the same log, and states its new id in a ``metaData`` action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from sparklog.delta.actions import Entry, Metadata
from sparklog.delta.log import DeltaLog
from sparklog.delta.names import entry_path
from sparklog.delta.snapshot import Snapshot
from sparklog.errors import CorruptLogError
from sparklog.log.shape import ID_PROPERTY
from sparklog.storage.entry_log import PositionLost

__all__ = [
    "ACCEPTED_INFO",
    "CLUSTER_INFO",
    "TopicIds",
    "check_opened",
    "cluster_of",
    "greatest_ends",
    "may_be_of_another_topic",
    "other_topic_error",
    "other_topic_id",
    "settle_other_topic",
    "topic_ids",
]

CLUSTER_INFO = "cluster_id"
"""In ``commitInfo.sparklog``: the id of the cluster that the entry's writer has opened; empty where it opened none. A
writer that states it builds upon no entry of another topic."""
ACCEPTED_INFO = "other_topics_entries"
"""In ``commitInfo.sparklog`` of a repair: the versions of entries of another topic that stay in the log, as others
stand on them."""
_MOST_READ = 64


def other_topic_id(topic_id: str, entry: Entry) -> str | None:
    """The id of another topic, which an entry of ours states without a ``metaData`` action that makes it the topic's;
    None: it states none."""
    info = entry.info
    if info is None or info.get("topic_id") in (topic_id, None):
        return None
    stated = str(info["topic_id"])
    made = (action.configuration.get(ID_PROPERTY) for action in entry.actions if isinstance(action, Metadata))
    return None if stated in made else stated


def other_topic_error(table: str, version: int, *, stated: object, topic_id: str) -> CorruptLogError:
    """The error that names both ids."""
    return CorruptLogError(
        f"{table}, version {version}, is an entry of another topic: it states topic id {stated}, the topic of this log "
        f"has {topic_id}. A client of another cluster, or of one that was here before, wrote it: stop such clients; "
        "then `sparklog check --repair` sets the entry aside"
    )


class _Mode(Enum):
    OWN = auto()
    """The newest entry is the topic's."""
    REFUSED = auto()
    """The newest entries are of another topic, and nothing that counts stands on them."""
    ACCEPTED = auto()
    """The newest entries are of another topic, and were built upon by a client that didn't compare ids."""


class TopicIds:
    """The ids that a run of entries states, oldest first: which entries are of another topic, and does anything stand
    on the newest of them?"""

    def __init__(self, topic_id: str, *, is_accepted: bool = False) -> None:
        """
        Args:
            is_accepted: the entry before the run is of another topic, and a checkpoint contains it.
        """
        self.topic_id = topic_id
        self.others: list[Entry] = []
        """All entries of another topic."""
        self._mode = _Mode.ACCEPTED if is_accepted else _Mode.OWN
        self._since = 0

    @property
    def refused(self) -> Sequence[Entry]:
        """The newest entries, if nobody may build upon them."""
        return self.others[self._since :] if self._mode is _Mode.REFUSED else ()

    @property
    def is_accepted(self) -> bool:
        """Is the newest entry of another topic, but built upon?"""
        return self._mode is _Mode.ACCEPTED

    def apply(self, entry: Entry) -> bool:
        """Go on by one entry. Is it of another topic?"""
        is_other = other_topic_id(self.topic_id, entry) is not None
        if not is_other:
            self._mode = _Mode.OWN
            self.topic_id = next(
                (
                    action.configuration[ID_PROPERTY]
                    for action in entry.actions
                    if isinstance(action, Metadata) and ID_PROPERTY in action.configuration
                ),
                self.topic_id,
            )
            return False
        if self._mode is _Mode.OWN:
            self._mode, self._since = _Mode.REFUSED, len(self.others)
        elif self._mode is _Mode.REFUSED and not _compares(entry.info or {}):
            self._mode = _Mode.ACCEPTED  # an older client of the topic may have taken the entry before for its own
        self.others.append(entry)
        return True

    def check(self, table: str) -> None:
        """Raises ``CorruptLogError``: the newest entries are of another topic."""
        for entry in self.refused:
            stated = None if entry.info is None else entry.info.get("topic_id")
            raise other_topic_error(table, entry.version, stated=stated, topic_id=self.topic_id)


def _compares(info: Mapping[str, Any]) -> bool:
    return CLUSTER_INFO in info


def topic_ids(snapshot: Snapshot) -> TopicIds:
    """The ids that a loaded table's tail states."""
    metadata, entry = snapshot.checkpoint_metadata, snapshot.checkpoint_entry
    topic_id = "" if metadata is None else metadata.configuration.get(ID_PROPERTY, "")
    is_accepted = entry is not None and metadata is not None and other_topic_id(topic_id, entry) is not None
    ids = TopicIds(topic_id, is_accepted=is_accepted)
    for one in snapshot.tail:
        ids.apply(one)
    return ids


def cluster_of(log: DeltaLog) -> str:
    """The id of the cluster that a log was opened in; empty where that isn't known."""
    ground = getattr(log.store, "ground", None)
    return "" if ground is None else str(ground.cluster_id)


def may_be_of_another_topic(log: DeltaLog, entry: Entry) -> bool:
    """May an entry of ours, the newest of its log, be of another topic? Its writer had opened another cluster, or
    didn't compare ids. No request."""
    if entry.info is None:
        return False
    stated, own = entry.info.get(CLUSTER_INFO), cluster_of(log)
    return stated is None or bool(own and stated and stated != own)


def check_opened(table: str, before: Sequence[Entry], opened: Entry | None) -> None:
    """Compare the entry that a log was opened by with the entries before it.

    Raises:
        CorruptLogError: it is of another topic; names both ids.
    """
    stated = next((entry.info["topic_id"] for entry in before if entry.info and "topic_id" in entry.info), None)
    if stated is None or opened is None:
        return
    ids = TopicIds(stated)
    for entry in (*before, opened):
        is_other = ids.apply(entry)
    if is_other:
        given = None if opened.info is None else opened.info.get("topic_id")
        raise other_topic_error(table, opened.version, stated=given, topic_id=ids.topic_id)


def greatest_ends(entries: Sequence[Entry], ends: Mapping[int, int]) -> dict[int, int]:
    """Log ends by partition, raised to the greatest that entries of ours state, of whatever topic."""
    found = dict(ends)
    for entry in entries:
        stated = (entry.info or {}).get("log_end_offsets", ())
        for partition, end in enumerate(stated):
            found[partition] = max(found.get(partition, 0), end)
    return found


def settle_other_topic(log: DeltaLog, topic_id: str, entry: Entry) -> None:
    """Meet an entry of another topic as the next one: look what stands on it. One GET for each of the next 64.

    Raises:
        CorruptLogError: nothing does; names both ids.
        PositionLost: something does, by an older client: load the table, which goes on behind it.
        StoreError.
    """
    ids = TopicIds(topic_id)
    ids.apply(entry)
    for found in log.read_entries(entry.version + 1, _MOST_READ):
        if found is None:
            break
        ids.apply(found)
    ids.check(log.table)
    raise PositionLost(entry_path(log.table, entry.version))
