"""Names of delay topics, where records wait for their time: ``delayed.orders`` and ``orders-retry-1m`` (decision 0099).

Their records are kept until they are delivered, so ``retention.*`` has no effect there.
"""

from __future__ import annotations

import re

from sparklog.errors import InvalidPartitionsError
from sparklog.paths import TOPICS_FOLDER

__all__ = ["DELAY_PREFIX", "MOVED_BY_GROUP", "check_may_grow", "is_delay_table", "retry_source"]

DELAY_PREFIX = "delayed."
"""``delayed.T`` has the records for T that were sent with ``deliver_at``."""
MOVED_BY_GROUP = "kafka_dlt-original-consumer-group"
"""The header that names the group which moved a record to a topic of retries, and which is to read it there. Source:
Spring Kafka's ``KafkaHeaders``."""
_RETRIES = re.compile(r"(.+)-retry-[0-9]+(?:ms|s|m|h)")


def retry_source(topic: str) -> str | None:
    """The topic whose records wait for their next try in ``topic``; None: it is no topic of retries."""
    found = _RETRIES.fullmatch(topic)
    return found[1] if found else None


def is_delay_table(table: str) -> bool:
    """Is this table that of a delay topic?"""
    topic = table.removeprefix(TOPICS_FOLDER)
    return topic.startswith(DELAY_PREFIX) or retry_source(topic) is not None


def check_may_grow(topic: str) -> None:
    """Raise ``InvalidPartitionsError`` for a topic of delayed records: a cancellation goes to the partition of its
    records' key, and would pass those that wait in the key's partition of before."""
    if topic.startswith(DELAY_PREFIX):
        raise InvalidPartitionsError(
            f"topic {topic!r} gets no more partitions: the records that wait in it could no longer be cancelled by key"
        )
