"""Reading topics: subscribe or assign, poll, seek; or as the members of a share group."""

from sparklog.consumer.client import Consumer
from sparklog.consumer.listener import ConsumerRebalanceListener
from sparklog.consumer.sharing.client import ShareConsumer
from sparklog.groups.sharing.changes import AcknowledgeType

__all__ = ["AcknowledgeType", "Consumer", "ConsumerRebalanceListener", "ShareConsumer"]
