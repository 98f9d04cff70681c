"""Room in a producer for whatever another topic has taken: what is moved may be larger than its own limits allow."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.log import Cluster
from sparklog.log.topic import describe_topic

__all__ = ["MOST_BYTES", "buffer_bytes_for"]

MOST_BYTES = 2**31 - 1
"""The largest ``max_request_size``: then each topic's own ``max.message.bytes`` is the limit."""
_BUFFER_BYTES = 32 * 1024 * 1024


def buffer_bytes_for(cluster: Cluster, topics: Iterable[str]) -> int:
    """The ``buffer_memory`` with which the largest records of these topics can be sent; one that isn't there counts
    nothing. Raises ``StoreError``."""
    largest = 0
    for topic in dict.fromkeys(topics):
        with suppress(UnknownTopicOrPartitionError):
            config = describe_topic(cluster.topic_log(topic), topic).config
            largest = max(largest, config.integer("max.message.bytes"))
    return max(_BUFFER_BYTES, min(2 * largest, MOST_BYTES))
