"""Assignment of a consumer without a group: every partition of the topics that it subscribes to."""

from __future__ import annotations

from sparklog.config import ConsumerConfig
from sparklog.consumer.fetch_state import FetchState
from sparklog.consumer.listener import ConsumerRebalanceListener
from sparklog.consumer.metrics import ConsumerMetrics
from sparklog.consumer.subscription import Subscription
from sparklog.model import TopicPartition

__all__ = ["UngroupedAssignment"]


class UngroupedAssignment:
    """Used by the consumer's own thread alone."""

    def __init__(
        self, config: ConsumerConfig, fetch_state: FetchState, metrics: ConsumerMetrics, subscription: Subscription
    ) -> None:
        self._config = config
        self._fetch_state = fetch_state
        self._metrics = metrics
        self._subscription = subscription
        self._views_version = -1

    def subscribe(self) -> None:
        """Have the fetcher follow what is subscribed now."""
        subscription = self._subscription
        by_name = subscription.topics if subscription.pattern is None and subscription.topics else frozenset()
        with self._fetch_state.lock:
            self._fetch_state.subscribe(by_name, subscription.pattern)

    def clear_subscription(self) -> list[TopicPartition]:
        """Subscribe to nothing. An interrupt leaves all as it was, or nothing subscribed.

        Returns:
            The partitions that were assigned by the subscription, which a listener is to be called for.
        """
        with self._fetch_state.lock:
            revoked = self._fetch_state.assignment.partitions()
        is_manual = self._subscription.manual
        self._subscription.clear()
        return [] if is_manual else sorted(revoked)

    def follow_nothing(self) -> None:
        """Have the fetcher follow no subscription."""
        with self._fetch_state.lock:
            self._fetch_state.subscribe(frozenset(), None)

    def update(self, listener: ConsumerRebalanceListener | None) -> None:
        """Take up topics and partitions that came or went since the last call. Raises what the listener raises."""
        fetch_state, subscription = self._fetch_state, self._subscription
        if subscription.topics is None or self._views_version == fetch_state.views_version:
            return
        with fetch_state.lock:
            self._views_version = fetch_state.views_version
            if subscription.pattern is not None:
                if fetch_state.matched_topics is None:
                    return
                subscription.found(fetch_state.matched_topics)
            wanted = subscription.partitions(fetch_state.views, self._config.auto_offset_reset)
            assigned = fetch_state.assignment.partitions()
        revoked, added = sorted(assigned - wanted.keys()), sorted(wanted.keys() - assigned)
        try:
            if revoked and listener is not None:
                listener.on_partitions_revoked(revoked)
        finally:
            with fetch_state.lock:
                fetch_state.assignment.replace(wanted)
                fetch_state.request_update()
            self._metrics.keep(wanted)
        if added and listener is not None:
            listener.on_partitions_assigned(added)
