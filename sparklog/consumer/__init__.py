"""Reading topics: subscribe or assign, poll, seek."""

from sparklog.consumer.client import Consumer
from sparklog.consumer.listener import ConsumerRebalanceListener

__all__ = ["Consumer", "ConsumerRebalanceListener"]
