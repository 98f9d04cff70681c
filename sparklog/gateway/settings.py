"""Settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GatewaySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The settings of a gateway. Sizes are in bytes, times in milliseconds."""

    auto_create_topics: bool = False
    """Create a topic when a client requests it and allows that. Kafka's ``auto.create.topics.enable``."""
    num_partitions: int = 1
    """Partitions of a topic that is created without a number of partitions."""
    max_request_bytes: int = 104_857_600
    """The largest request; a client that sends a larger one is disconnected. Kafka's ``socket.request.max.bytes``."""
    queued_bytes: int = 268_435_456
    """The most bytes of requests that are read and not answered yet; beyond it only one more request is read."""
    max_connections: int = 2_000
    """The most open connections; further ones are closed at once."""
    max_idle_ms: int = 600_000
    """A connection that sends nothing, or doesn't read its answers, for this long is closed."""
    max_stall_ms: int = 30_000
    """A connection that sends no byte for this long within a request is closed, since the request has reserved a part
    of :attr:`queued_bytes`. It is closed after twice this time at the latest."""
    fetch_max_bytes: int = 57_671_680
    """The largest answer to Fetch; a first batch is sent whatever its size. Kafka's ``fetch.max.bytes`` of a broker."""
    fetch_poll_ms: int = 50
    """Time between two polls of a topic's log while a Fetch waits for records that others produce."""
    max_fetch_sessions: int = 1_000
    """The most sessions of Fetch; if all are in use, further clients name all partitions each time. Kafka's
    ``max.incremental.fetch.session.cache.slots``."""
    cache_bytes: int = 67_108_864
    """The most bytes of record batches that are cached for the next Fetch, over all partitions."""
    max_decoded_bytes: int = 6_291_456
    """The most decompressed bytes of a partition's records in one Produce: they are committed together."""
    delivery_timeout_ms: int = 25_000
    """The time after which a Produce without result is answered with ``REQUEST_TIMED_OUT``; less than clients' 30 s."""
    look_timeout_ms: int = 10_000
    """The time after which Fetch and other reads of topics are answered with ``KAFKA_STORAGE_ERROR`` while the store is
    unavailable. Less than clients' 30 s, after which they take the gateway for dead."""
    offset_commit_timeout_ms: int = 10_000
    """The time after which committing or reading offsets is answered with ``COORDINATOR_NOT_AVAILABLE``."""
    group_initial_rebalance_delay_ms: int = 100
    """How long the first member of an empty group waits for others. Kafka's ``group.initial.rebalance.delay.ms``."""
    group_min_session_timeout_ms: int = 1_000
    """Clients with a shorter session time-out are refused. Kafka's ``group.min.session.timeout.ms``."""
    group_max_session_timeout_ms: int = 1_800_000
    """Clients with a longer session time-out are refused. Kafka's ``group.max.session.timeout.ms``."""
    group_max_size: int = 5_000
    """The most members of a group; further ones are refused. Kafka's ``group.max.size``."""
    max_groups: int = 1_000
    """The most groups that this gateway coordinates at a time; each has two threads."""
    coordinator_session_timeout_ms: int = 10_000
    """If this gateway sends no heartbeat for this long, another one takes over the groups that it coordinates."""
    coordinator_heartbeat_interval_ms: int = 3_000
    """Time between two heartbeats of a gateway for each group that it coordinates: a GET, a PUT and a LIST."""
    group_consumer_session_timeout_ms: int = 45_000
    """The session time-out of members of the protocol ``consumer``. Kafka's ``group.consumer.session.timeout.ms``."""
    group_consumer_heartbeat_interval_ms: int = 1_000
    """The interval of these members' heartbeats. Kafka's ``group.consumer.heartbeat.interval.ms`` is 5000."""
    allow_plain_without_tls: bool = False
    """Let clients send their password over a connection that isn't encrypted. SCRAM doesn't send it."""
    max_transactional_ids: int = 500
    """The most transactional producers of this gateway at a time; those that are idle longest are closed. Each has two
    threads, and two more for each topic to which it writes."""
    zone: str | None = None
    """The zone of this gateway, as clients name it; None: it doesn't look for other gateways, and names only itself."""
    zone_heartbeat_interval_ms: int = 10_000
    """Time between two heartbeats of a gateway with a zone, each a PUT and a LIST."""
    zone_session_timeout_ms: int = 30_000
    """A gateway without a heartbeat for this long is no longer named to clients."""
