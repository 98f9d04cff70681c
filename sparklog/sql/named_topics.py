"""The topics that all share one namespace of SQL: of names that differ in case alone, the oldest topic's."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sparklog.errors import SparklogError
from sparklog.log.cluster import Cluster
from sparklog.log.state import load_state
from sparklog.logs import about
from sparklog.sql.names import oldest_of_each

__all__ = ["names_of_all"]

_LOGGER = logging.getLogger("sparklog.sql")
_NEVER = 1 << 63


def names_of_all(cluster: Cluster, topics: Iterable[str]) -> list[str]:
    """Leave out topics whose names differ in case alone from an older topic's: whoever may create a topic could take
    the others' SQL away. Who names such a topic gets it.

    Loads the topics that have such names, and no other; logs which are left out.
    """

    def created_ms(topic: str) -> int:
        try:
            state = load_state(cluster.topic_log(topic))
        except SparklogError:  # the query says why it can't be read, if it is about it
            return _NEVER
        return _NEVER if state.head.deleted else state.require_whole().metadata.created_ms or 0

    kept, left_out = oldest_of_each(topics, created_ms)
    for topic, older in left_out.items():
        _LOGGER.warning(
            "topic %s is left out of SQL over all topics: it differs in case alone from topic %s, which is older; "
            "queries that name it as it is written get it",
            topic,
            older,
            extra=about(topic=topic),
        )
    return kept
