"""Whether the names of announced uploads, which are long, fit into keys of the store."""

from __future__ import annotations

import logging

from sparklog.log.announced.names import LONGEST_NAME
from sparklog.logs import about
from sparklog.storage.base import ObjectStore

__all__ = ["can_announce"]

_LOGGER = logging.getLogger("sparklog.log")


def can_announce(store: ObjectStore, table: str) -> bool:
    """Do the names fit by which uploads to a topic's table are announced (rule L14, announced uploads)? It is logged
    where they don't."""
    most, needed = store.longest_path_bytes, len(table) + 1 + LONGEST_NAME
    if most is None or needed <= most:
        return True
    topic = table.rpartition("/")[2]
    _LOGGER.warning(
        "topic %s: group commit is off: announced uploads need keys of %d bytes below %s, whose prefix leaves %d",
        topic,
        needed,
        store.uri,
        most,
        extra=about(topic=topic),
    )
    return False
