"""Settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GatewaySettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Sizes in bytes, times in milliseconds."""

    auto_create_topics: bool = False
    """Create a topic that a client asks for, where the client allows it. Kafka's ``auto.create.topics.enable``."""
    num_partitions: int = 1
    """Partitions of a topic that is created without saying how many."""
    max_request_bytes: int = 104_857_600
    """Bound of a frame; a client that announces a larger one is disconnected. Kafka's ``socket.request.max.bytes``."""
    queued_bytes: int = 268_435_456
    """Bound of all requests that are read and not answered yet; beyond it nothing more is read, but for one request."""
    max_connections: int = 2_000
    """Further ones are closed at once."""
    max_idle_ms: int = 600_000
    """A connection that sends nothing, or reads nothing of what it is sent, for so long is closed."""
    max_stall_ms: int = 30_000
    """A connection that sends no byte for so long within a request is closed: the request has a share of
    :attr:`queued_bytes`. It is noticed after twice that at the latest."""
    fetch_max_bytes: int = 57_671_680
    """Bound of an answer to Fetch, but that a first batch is always sent. Kafka's ``fetch.max.bytes`` of a broker."""
    fetch_poll_ms: int = 50
    """How often a topic is looked at while a Fetch waits for records that others produce."""
    max_fetch_sessions: int = 1_000
    """Sessions of Fetch; where all are in use, further clients name all partitions each time. Kafka's
    ``max.incremental.fetch.session.cache.slots``."""
    cache_bytes: int = 67_108_864
    """Bound of record batches kept for the next Fetch, for all partitions together."""
    max_decoded_bytes: int = 6_291_456
    """Bound of a partition's records in one Produce, once decompressed: they are committed together."""
    delivery_timeout_ms: int = 25_000
    """Time after which a record that isn't stored is answered with ``REQUEST_TIMED_OUT``. Below clients' 30 s."""
    look_timeout_ms: int = 10_000
    """Time after which a look at topics while the store is away, as of Fetch, is answered with ``KAFKA_STORAGE_ERROR``.
    Below clients' 30 s: else they take the gateway for dead, and its threads wait for the store in vain."""
    offset_commit_timeout_ms: int = 10_000
    """Time after which a commit of offsets, or a look at them, is answered with ``COORDINATOR_NOT_AVAILABLE``."""
    group_initial_rebalance_delay_ms: int = 100
    """How long the first member of an empty group waits for others. Kafka's ``group.initial.rebalance.delay.ms``."""
    group_min_session_timeout_ms: int = 1_000
    """Clients that ask for less are refused. Kafka's ``group.min.session.timeout.ms``."""
    group_max_session_timeout_ms: int = 1_800_000
    """Clients that ask for more are refused. Kafka's ``group.max.session.timeout.ms``."""
    group_max_size: int = 5_000
    """Members of a group; further ones are refused. Kafka's ``group.max.size``."""
    max_groups: int = 1_000
    """Groups that this gateway coordinates at a time: each has two threads."""
    coordinator_session_timeout_ms: int = 10_000
    """After so long a silence another gateway takes over the groups that this one coordinates."""
    coordinator_heartbeat_interval_ms: int = 3_000
    """How often a gateway shows that it lives, for each group that it coordinates: a GET, a PUT and a LIST."""
    group_consumer_session_timeout_ms: int = 45_000
    """The session of members of the protocol ``consumer``. Kafka's ``group.consumer.session.timeout.ms``."""
    group_consumer_heartbeat_interval_ms: int = 1_000
    """The interval of these members' heartbeats. Kafka's ``group.consumer.heartbeat.interval.ms`` is 5000."""
    allow_plain_without_tls: bool = False
    """Let clients send their password over a connection that isn't encrypted. SCRAM doesn't send it."""
    max_transactional_ids: int = 500
    """Transactional producers that this gateway holds at a time; those that rest longest go. Each has two threads, and
    two for each topic that it writes to."""
    zone: str | None = None
    """The zone of this gateway, as clients name it; None: it looks for no other gateways, and names itself alone."""
    zone_heartbeat_interval_ms: int = 10_000
    """How often a gateway with a zone shows that it lives, and looks for others: a PUT and a LIST."""
    zone_session_timeout_ms: int = 30_000
    """Gateways that were silent for longer aren't named to clients any more."""
